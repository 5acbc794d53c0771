"""Looks at what nccl-tests are built with, and at what was built; changes nothing. Python 3.9 or newer.

    look.py toolchain CUDA_HOME NCCL_HOME MPI_HOME [COMPUTE_CAPABILITY]
    look.py programs  FOLDER CUDA_HOME

Prints one JSON document of facts, each ``{"value": …, "from": …}``, or with ``unknown`` in place of a guess.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

PROGRAMS = ("all_reduce_perf", "all_gather_perf", "reduce_scatter_perf", "alltoall_perf")
"""What the rung nccl needs."""


class UnknownError(Exception):
    """Something could not be found out: why."""


def call(*command: str) -> str:
    """What a command prints. Raises UnknownError with what it said."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=60, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        raise UnknownError(f"{command[0]}: {error}") from error
    said = done.stdout + done.stderr
    if done.returncode != 0:
        raise UnknownError(f"{command[0]} ends with {done.returncode}: {' '.join(said.split())[:300]}")
    return said


def found(pattern: str, text: str, where: str) -> re.Match[str]:
    """The first match. Raises UnknownError."""
    match = re.search(pattern, text, re.MULTILINE)
    if match is None:
        raise UnknownError(f"{where} does not say it")
    return match


def fact(source: str, find: Callable[[], Any]) -> dict[str, Any]:
    """What `find` gives, or why there is nothing."""
    try:
        return {"value": find(), "from": source}
    except (UnknownError, OSError, ValueError) as error:
        return {"value": None, "unknown": str(error), "from": source}


def header(home: str, name: str) -> Path:
    """A header of a home, or of the system where no home is named. Raises UnknownError."""
    places = [Path(home or "/usr") / "include" / name]
    for path in places:
        if path.is_file():
            return path
    raise UnknownError(f"{places[0]} is not there")


def nccl(home: str) -> str:
    """``2.31.2``, from nccl.h."""
    path = header(home, "nccl.h")
    text = path.read_text(errors="replace")
    parts = [found(rf"#define NCCL_{name} +(\d+)", text, str(path)).group(1) for name in ("MAJOR", "MINOR", "PATCH")]
    return ".".join(parts)


def mpi(home: str) -> str:
    """Version of Open MPI, or of the MPI standard where it is another, from mpi.h."""
    path = header(home, "mpi.h")
    text = path.read_text(errors="replace")
    names = ("OMPI_MAJOR_VERSION", "OMPI_MINOR_VERSION", "OMPI_RELEASE_VERSION")
    parts = [re.search(rf"#define {name} +(\d+)", text) for name in names]
    if all(parts):
        return "Open MPI " + ".".join(part.group(1) for part in parts if part)
    return "MPI " + found(r"#define MPI_VERSION +(\d+)", text, str(path)).group(1)


def capabilities() -> list[str]:
    """Compute capabilities of this host's GPUs, each once: ``["9.0"]``."""
    rows = call("nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader").split("\n")
    values = sorted({row.strip() for row in rows if row.strip()})
    if not values or any(not re.fullmatch(r"\d+\.\d+", value) for value in values):
        raise UnknownError(f"nvidia-smi says {values or 'nothing'}; expected numbers like 9.0")
    return values


def toolchain(cuda: str, nccl_home: str, mpi_home: str, declared: str) -> dict[str, Any]:
    """What the tests would be built with."""
    nvcc = f"{cuda}/bin/nvcc"
    return {
        "nvcc": fact(nvcc, lambda: found(r"release (\d+\.\d+)", call(nvcc, "--version"), nvcc).group(1)),
        "nccl": fact("nccl.h", lambda: nccl(nccl_home)),
        "mpi": fact("mpi.h", lambda: mpi(mpi_home)),
        "make": fact("make --version", lambda: call("make", "--version").split("\n")[0]),
        "compiler": fact("g++ --version", lambda: call("g++", "--version").split("\n")[0]),
        "compute_capability": fact("nvidia-smi", capabilities)
        if not declared
        else {"value": [declared], "from": "nccl_tests_compute_capability"},
    }


def usage(program: Path) -> str:
    """First line of a program's help. nccl-tests end with 0 whatever they are asked, so the words count."""
    said = call(str(program), "--help")
    for option in ("--minbytes", "--maxbytes", "--ngpus"):
        if option not in said:
            raise UnknownError(f"its --help does not tell of {option}: {' '.join(said.split())[:120]}")
    return found(r"^USAGE: .*\S", said, "its --help").group(0)


def libraries(program: Path) -> dict[str, str]:
    """Shared libraries that decide what a program does, and where this host finds them."""
    rows = re.findall(
        r"^\s*(lib(?:nccl|mpi|cudart)\.so\S*) => (.+?)(?: \(0x[0-9a-f]+\))?$", call("ldd", str(program)), re.MULTILINE
    )
    return {name: place.strip() for name, place in rows}


def architectures(program: Path, cuda: str) -> list[str]:
    """``["sm_90"]``: what the program holds code for."""
    tool = shutil.which(f"{cuda}/bin/cuobjdump") or shutil.which("cuobjdump")
    if tool is None:
        raise UnknownError("cuobjdump is not there")
    return sorted(set(re.findall(r"\.(sm_\d+[a-z]?)\.cubin", call(tool, "--list-elf", str(program)))))


def programs(folder: Path, cuda: str) -> dict[str, Any]:
    """What was built: its record, and what each program says of itself."""
    first = folder / "bin" / PROGRAMS[0]
    record = folder / "built.json"
    return {
        "record": fact(str(record), lambda: json.loads(record.read_text())),
        "usage": {name: fact(f"{name} --help", lambda name=name: usage(folder / "bin" / name)) for name in PROGRAMS},  # type: ignore[misc]
        "libraries": fact(f"ldd {first}", lambda: libraries(first)),
        "architectures": fact(f"cuobjdump --list-elf {first}", lambda: architectures(first, cuda)),
    }


if __name__ == "__main__":
    if sys.argv[1] == "toolchain":
        cuda, nccl_home, mpi_home, declared = [*sys.argv[2:], ""][:4]
        said = toolchain(cuda, nccl_home, mpi_home, declared)
    else:
        said = programs(Path(sys.argv[2]), sys.argv[3])
    sys.stdout.write(json.dumps(said) + "\n")
