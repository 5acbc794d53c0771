"""How long a fresh interpreter takes to import what training imports. Standard library only."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable
from typing import Any

CHILD = """
import importlib, json, os, sys
found, missing = [], []
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
        found.append(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        missing.append(name)
# vars, not getattr: some modules answer to any name (torch.classes).
kept = [getattr(module, "__dict__", {}) for module in list(sys.modules.values())]
files = {str(names.get("__cached__") or names.get("__file__") or "") for names in kept}
with open("/proc/self/maps") as maps:
    files |= {line.split(None, 5)[5].strip() for line in maps if len(line.split(None, 5)) == 6}
print(json.dumps({"found": found, "missing": missing, "files": sorted(f for f in files if os.path.isfile(f))}))
"""
"""What the interpreter runs: it tells which files it needed, bytecode and shared libraries."""


class ImportFailedError(Exception):
    """The interpreter ended with an error, or not at all; the text says what it said last."""


def import_all(modules: Iterable[str], wait_s: float) -> tuple[float, dict[str, Any]]:
    """Seconds from the start of an interpreter to its end, and what it told (see `CHILD`).

    Raises ImportFailedError where a module is there and cannot be imported, or it takes longer than `wait_s`.
    """
    begun = time.perf_counter()
    try:
        child = subprocess.run(
            [sys.executable, "-c", CHILD, *modules], capture_output=True, text=True, timeout=wait_s, check=False
        )
    except subprocess.TimeoutExpired:
        raise ImportFailedError(f"importing {', '.join(modules)} was not done after {wait_s:g} s") from None
    seconds = time.perf_counter() - begun
    if child.returncode != 0:
        last = (child.stderr.strip().splitlines() or ["nothing on stderr"])[-1]
        raise ImportFailedError(f"importing {', '.join(modules)}: exit code {child.returncode}: {last}")
    told: dict[str, Any] = json.loads(child.stdout.splitlines()[-1])
    return seconds, told


def drop(files: Iterable[str]) -> int:
    """Ask the kernel to forget the cached pages of these files (it keeps what is mapped). Their bytes in all."""
    total = 0
    for name in files:
        with contextlib.suppress(OSError):
            handle = os.open(name, os.O_RDONLY)
            try:
                total += os.fstat(handle).st_size
                os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(handle)
    return total
