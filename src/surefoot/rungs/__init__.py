"""One file a rung. The table of them is `surefoot.rungs.table`."""
