"""Slurm, by its command line: text and argument lists out, text in, and one place that runs them."""
