"""Intervals, paired and exact tests, robust baselines. Empty so far: the gate's and the baselines' issues fill it."""
