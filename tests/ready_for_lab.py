"""Says whether this machine can run the tests marked `lab`, before any of them starts: `make test` asks at once.

``python tests/ready_for_lab.py`` prints what is missing and what helps, and exits 1; silent and 0 where nothing is.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import slurm_here
import sshd
from surefoot.lab import machine
from surefoot.lab.places import DEFAULT_HOME, HOME_VARIABLE
from surefoot.lab.spec import Tier

SITES = ("dpkg-scanpackages", "make", "gcc", "g++")
"""What tests of Ansible's sites run on this machine: they write apt repositories, and compile as a role does."""


def sites_problems() -> list[str]:
    """What is missing for tests marked `sites`, beyond a lab; empty where nothing is."""
    missing = [name for name in SITES if not shutil.which(name)]
    return [f"not installed: {', '.join(missing)} (scripts/setup.sh lab installs them)"] if missing else []


def lab_problems() -> list[str]:
    """What is missing for a lab on this machine; empty where nothing is."""
    home = Path(os.environ.get(HOME_VARIABLE, DEFAULT_HOME))
    return [f"{problem.what}\n      → {problem.remedy}" for problem in machine.problems(Tier.HOSTS, home)]


def main() -> int:
    missing = dict.fromkeys([*lab_problems(), *slurm_here.problems(), *sshd.problems(), *sites_problems()])
    if not missing:
        return 0
    print("this machine cannot run the tests on a real Slurm, sshd and lab:", file=sys.stderr)  # noqa: T201
    for line in missing:
        print(f"  - {line}", file=sys.stderr)  # noqa: T201
    print("  all other tests: make test-local", file=sys.stderr)  # noqa: T201
    return 1


if __name__ == "__main__":
    sys.exit(main())
