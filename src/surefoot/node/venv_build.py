"""Builds one virtual environment from a lock, with Python's own venv and pip. Standard library only.

The environment holds what the lock says and nothing else: pip itself stays outside of it, in a
folder that is thrown away. It is built beside its place and moved there whole.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from surefoot.node.rank import say

LIST = (
    "import importlib.metadata as m, json, sys; "
    "print(json.dumps([sys.version.split()[0], sorted([str(d.metadata['Name']), str(d.version)] for d in m.distributions())]))"
)
"""What a fresh interpreter says of itself and of the distributions that it finds."""
_INCOMPLETE = "add it to the lock, which must be complete (`pip freeze` leaves out setuptools: `pip freeze --all`)"
_ELSEWHERE = (
    "PIP_TARGET",
    "PIP_PREFIX",
    "PIP_ROOT",
    "PIP_USER",
    "PIP_REQUIREMENT",
    "PIP_EDITABLE",
    "PIP_PYTHON",
    "PIP_NO_BINARY",
)
"""Variables with which pip would install something else, or somewhere else."""


class BuildError(Exception):
    """An environment could not be built: which step, what it said, and where that stands in the log."""

    def __init__(self, step: str, text: str, *, line: int | None = None, advice: str = "") -> None:
        super().__init__(f"{step}: {text}")
        self.step = step
        self.text = text
        self.line = line
        self.advice = advice

    def account(self) -> dict[str, Any]:
        """As it is written down: what `BuildError` takes."""
        return {"step": self.step, "text": self.text, "line": self.line, "advice": self.advice}


@dataclass(frozen=True)
class Source:
    """What is built, and where it comes from."""

    base: str
    """Interpreter that it is built on."""
    requirements: tuple[str, ...]
    index: str
    wheels: str

    def pip_arguments(self, lock: Path) -> list[str]:
        """Arguments of ``pip install``: this lock, wheels only, nothing that it does not name."""
        where = ["--no-index", "--find-links", self.wheels] if self.wheels else []
        where += ["--index-url", self.index] if self.index else []
        hashed = ["--require-hashes"] if any(" --hash=" in line for line in self.requirements) else []
        quiet = ["--no-input", "--no-color", "--progress-bar=off", "--disable-pip-version-check"]
        quiet += ["--no-warn-script-location", "--root-user-action=ignore"]
        return [*quiet, "--no-deps", "--only-binary=:all:", *hashed, *where, "--requirement", str(lock)]


class Builder:
    """One build, in a folder of its own."""

    def __init__(self, source: Source, folder: Path, log: Path, tell: Callable[[int, str], None]) -> None:
        self.source = source
        self.folder = folder
        self.venv = folder / "venv"
        self.log = log
        self.lines = 0
        self.tell = tell
        """Told how many distributions pip has begun with, and what goes on."""

    def build(self) -> dict[str, Any]:
        """Build it. Raises BuildError.

        ``{"python": version, "distributions": [[name, version], …], "conflicts": [line, …]}``: the last is
        what ``pip check`` says of versions that do not go together, which a lock may want all the same.
        """
        try:
            with self.log.open("w", errors="backslashreplace") as log:
                wheels = self.source.wheels
                if wheels and not Path(wheels).is_dir():
                    advice = "put the wheels where all nodes see them, or mend the mount on this host"
                    raise BuildError("looking for wheels", f"{wheels} is no folder on this host", advice=advice)
                self.tell(0, "making a virtual environment")
                self.run(log, "python -m venv", [self.source.base, "-m", "venv", "--without-pip", str(self.venv)])
                lock = self.folder / "requirements.txt"
                lock.write_text("".join(f"{line}\n" for line in self.source.requirements))
                python = str(self.venv / "bin" / "python")
                pip = [*self.pip(log), "--python", python]
                self.run(log, "pip install", [*pip, "install", *self.source.pip_arguments(lock)])
                conflicts = self.conflicts(log, [*pip, "--disable-pip-version-check", "check"])
                said = self.run(log, "listing what was installed", [python, "-I", "-c", LIST])
                version, distributions = json.loads(said[-1])
        except (OSError, ValueError, IndexError) as error:
            raise BuildError("building", f"{type(error).__name__}: {error}") from error
        return {"python": version, "distributions": distributions, "conflicts": conflicts}

    def conflicts(self, log: IO[str], check: list[str]) -> list[str]:
        """What pip says of versions that do not go together. Raises BuildError for a lock that is not complete."""
        first = self.lines + 2
        code, said = self.call(log, check)
        for number, line in enumerate(said):
            if code != 0 and line and "has requirement" not in line:
                raise BuildError("pip check", line, line=first + number, advice=_INCOMPLETE)
        return said if code != 0 else []

    def pip(self, log: IO[str]) -> list[str]:
        """Command of a pip that is no part of the environment."""
        base = self.source.base
        own = [base, "-m", "pip"]
        if self.works([*own, "--python", str(self.venv / "bin" / "python"), "--version"]):  # from pip 22.3 on
            return own
        if self.works([base, "-c", "import ensurepip"]):
            tools = self.folder / "tools"
            self.run(log, "python -m venv (for pip)", [base, "-m", "venv", str(tools)])
            return [str(tools / "bin" / "python"), "-m", "pip"]
        advice = "install pip or ensurepip for it there (Debian, Ubuntu: apt-get install python3-venv)"
        raise BuildError("finding pip", f"{base} has neither ensurepip nor a pip that knows --python", advice=advice)

    def works(self, command: list[str]) -> bool:
        return subprocess.run(command, env=self.env(), capture_output=True, check=False).returncode == 0

    def env(self) -> dict[str, str]:
        """As it is here, without what points Python or pip elsewhere. Large wheels are unpacked beside the target."""
        dropped = ("PYTHON", "VIRTUAL_ENV", *(("PIP_",) if self.source.wheels else _ELSEWHERE))
        held = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
        if self.source.wheels:
            held["PIP_CONFIG_FILE"] = os.devnull  # this folder and no other: a pip.conf may name more
        (self.folder / "tmp").mkdir(exist_ok=True)
        return {**held, "TMPDIR": str(self.folder / "tmp")}

    def run(self, log: IO[str], step: str, argv: list[str]) -> list[str]:
        """Run a command, its output into the log: its lines. Raises BuildError with the line that says why."""
        first = self.lines + 2
        code, said = self.call(log, argv)
        if code == 0:
            return said
        number, text = failing_line(said)
        how = f"exit code {code}" if code > 0 else f"signal {-code}"
        raise BuildError(step, f"{text or 'said nothing'} ({how})", line=first + number if said else None)

    def call(self, log: IO[str], argv: list[str]) -> tuple[int, list[str]]:
        """Run a command, its output into the log: (returncode, lines)."""
        self.note(log, f"$ {' '.join(argv)}")
        said: list[str] = []
        with subprocess.Popen(
            argv, env=self.env(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, errors="backslashreplace",
        ) as child:  # fmt: skip
            assert child.stdout is not None
            begun = 0
            for line in child.stdout:
                said.append(line.rstrip())
                self.note(log, said[-1])
                if said[-1].startswith("Collecting "):
                    begun += 1
                    self.tell(begun, said[-1])
                elif said[-1].startswith("Installing collected"):
                    self.tell(begun, "installing")
        return child.returncode, said

    def note(self, log: IO[str], line: str) -> None:
        log.write(line + "\n")
        log.flush()
        self.lines += 1
        say(line)


def failing_line(lines: list[str]) -> tuple[int, str]:
    """(index, text) of the line that says why a command failed: pip's first ERROR, else the last that says something."""
    for index, line in enumerate(lines):
        if line.startswith("ERROR:"):
            return index, line
    for index in range(len(lines) - 1, -1, -1):
        if lines[index].strip():
            return index, lines[index].strip()
    return 0, ""


def settle(venv: Path, place: Path) -> None:
    """Let scripts and notes of an environment say `place`, where it will stand, in place of where it was built."""
    old, new = os.fsencode(venv), os.fsencode(place)
    for path in [*(venv / "bin").iterdir(), venv / "pyvenv.cfg"]:
        if path.is_symlink() or not path.is_file():
            continue
        content = path.read_bytes()
        if old in content and b"\0" not in content:
            path.write_bytes(content.replace(old, new))


def flush(folder: Path) -> None:
    """Onto the disk, as far as the file system does that: the file system of `folder`, and no other."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        subprocess.run(["sync", "-f", str(folder)], capture_output=True, timeout=300, check=False)


def move_in(venv: Path, place: Path, aside: Path, whole: Callable[[], bool]) -> bool:
    """Move a finished environment to its place; False where another stands there whole.

    What stands there and is not `whole` was taken apart by somebody: it is moved to `aside` and removed.
    Raises BuildError.
    """
    for _ in range(3):
        try:
            venv.rename(place)  # fails where `place` exists and is not empty
        except OSError as error:
            why = error
        else:
            return True
        if whole():
            return False
        with contextlib.suppress(OSError):
            place.rename(aside)
        shutil.rmtree(aside, ignore_errors=True)
    raise BuildError("moving it into place", f"{place}: {why.strerror or why}", advice=f"remove {place}")
