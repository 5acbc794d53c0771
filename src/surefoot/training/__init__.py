"""What runs on compute nodes to train: data preparation, staging, the LoRA trainer.

Modules that rungs import (sources, tasks, sharding, schedule, tensors, demo_tasks) need no torch.
"""
