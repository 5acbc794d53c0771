"""Evaluation: scorers and records are pure; `generate` and `run` run on nodes and import torch."""
