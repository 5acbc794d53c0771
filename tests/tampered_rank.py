"""An interpreter whose one rank does something to itself at a phase of the mesh: hangs, dies, is slow, lies.

The product has no hook for this: ``sitecustomize`` of that rank wraps the trail's phases.
"""

from __future__ import annotations

import stat
import sys
from pathlib import Path

_SITE = """
import contextlib, os, signal, sys, time

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "surefoot.node.mesh_steps" and "trail" not in done:
            done.add("trail")
            import surefoot.node.trail as module
            before = module.Trail.phase

            @contextlib.contextmanager
            def phase(self, name):
                with before(self, name):
                    if name.name == {phase!r}:
                        {act}
                    yield
            module.Trail.phase = phase
        return None

done = set()
sys.meta_path.insert(0, Finder())
"""


def tampered(folder: Path, rank: int, phase: str, act: str) -> str:
    """Path of an interpreter whose `rank` runs `act` (Python, one line) at the begin of `phase` (after the import of torch began)."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sitecustomize.py").write_text(_SITE.format(phase=phase, act=act))
    path = folder / "python"
    path.write_text(
        f'#!/bin/sh\n[ "$RANK" = {rank} ] && export PYTHONPATH="{folder}:$PYTHONPATH"\nexec {sys.executable} "$@"\n'
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    return str(path)
