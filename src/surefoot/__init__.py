"""Surefoot proves that a GPU cluster can train, and never says "pass" without evidence."""

__version__ = "0.1.0"
