"""A package named gitlab-runner that is none: GitLab's own comes from a repository that tests cannot count on.

It stands in for what the role runner deals with: a package to install, a service of root's that it brings,
a program that reads its config.toml and starts jobs as its own user. It talks to no server: its jobs are the
files ``jobs/*.sh`` of its working directory, whose output and exit code it writes beside them.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

_CONTROL = """\
Package: gitlab-runner
Version: 0.0.1
Architecture: all
Maintainer: tests
Depends: python3
Description: stand-in for the package of the same name
"""
_UNIT = """\
[Service]
ExecStart=/usr/bin/gitlab-runner run --config /nowhere --working-directory /
[Install]
WantedBy=multi-user.target
"""
_POSTINST = "#!/bin/sh\nsystemctl enable gitlab-runner.service\n"
_PROGRAM = """\
#!/usr/bin/env python3
import argparse, os, pathlib, signal, stat, subprocess, sys, time, tomllib

parser = argparse.ArgumentParser()
parser.add_argument("command", choices=["run"])
parser.add_argument("--config", type=pathlib.Path, required=True)
parser.add_argument("--working-directory", type=pathlib.Path, required=True)
asked = parser.parse_args()
runners = tomllib.loads(asked.config.read_text())["runners"]
mode = stat.S_IMODE(asked.config.stat().st_mode)
print(f"{len(runners)} runner for {runners[0]['url']}, executor {runners[0]['executor']}, user {os.getuid()}, config {mode:o}", flush=True)
signal.signal(signal.SIGQUIT, lambda *_: sys.exit(0))
jobs = asked.working_directory / "jobs"
jobs.mkdir(exist_ok=True)
while True:
    for script in sorted(jobs.glob("*.sh")):
        done = subprocess.run(["bash", "--login", str(script)], capture_output=True, text=True, timeout=60)
        script.with_suffix(".out").write_text(f"{done.stdout}{done.stderr}exit {done.returncode}\\\\n")
        script.unlink()
    time.sleep(0.2)
"""


def write_package(folder: Path, work: Path) -> Path:
    """Build the package into `folder`; `work` is for what it is made of."""
    tree = work / "gitlab-runner"
    for name, text, mode in (
        ("DEBIAN/control", _CONTROL, 0o644),
        ("DEBIAN/postinst", _POSTINST, 0o755),
        ("lib/systemd/system/gitlab-runner.service", _UNIT, 0o644),
        ("usr/bin/gitlab-runner", _PROGRAM.replace("\\\\n", "\\n"), 0o755),
    ):
        path = tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)
    package = folder / "gitlab-runner_0.0.1_all.deb"
    command = ["dpkg-deb", "--root-owner-group", "--build", str(tree), str(package)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return package
