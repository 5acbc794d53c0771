"""A real multi-host Slurm cluster on one machine, to see the ladder climb on and to break on purpose."""
