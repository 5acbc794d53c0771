"""``python -m surefoot`` is the same command as ``surefoot``."""

from surefoot.cli import main

if __name__ == "__main__":
    main()
