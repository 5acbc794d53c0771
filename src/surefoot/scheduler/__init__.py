"""Who places work: Slurm, or local processes behind the same interface."""
