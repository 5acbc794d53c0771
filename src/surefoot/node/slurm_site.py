"""What the programs on the head and on the nodes of a Slurm site share: configuration files, munge. Standard library only."""

from __future__ import annotations

import difflib
import hashlib
import os
import re
from pathlib import Path
from typing import Any

from surefoot.node.runner import answer

BESIDE = ("gres.conf", "cgroup.conf")
"""Files that lie beside slurm.conf and that slurmd reads too."""
PLACES = (
    "/etc/slurm/slurm.conf",
    "/run/slurm/conf/slurm.conf",
    "/etc/slurm-llnl/slurm.conf",
    "/usr/local/etc/slurm.conf",
)
_INCLUDE = re.compile(r"^\s*include\s+(\S+)", re.IGNORECASE)
_SECRET = re.compile(r"^(\s*\w*(?:pass|authinfo|authalt\w*|key|token)\w*\s*=\s*)\S.*$", re.IGNORECASE)
_IN_PARAMETER = re.compile(r"((?:pass(?:word)?|key|token|secret)\w*=)[^\s,;]+", re.IGNORECASE)
MOST_LINES = 20


def masked(line: str) -> str:
    """The line without what may be a secret: only its digest is compared, and this is shown."""
    return _IN_PARAMETER.sub(r"\1***", _SECRET.sub(r"\1***", line))


def slurmd_options(proc: Path = Path("/proc")) -> list[str] | None:
    """The command line of this host's slurmd; None where none is to be seen."""
    for folder in proc.glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if words and words[0].rsplit("/", 1)[-1] == "slurmd":
            return [word for word in words if word]
    return None


def main_file(config: list[str]) -> tuple[str, str]:
    """(path of slurm.conf here, how it was found). Empty path: not found.

    As slurmd says (``-f``), else as its environment would, else as ``scontrol show config`` says
    (also where slurmd took it from the controller), else where packages put it.
    """
    options = slurmd_options() or []
    if "-f" in options[:-1]:
        return options[options.index("-f") + 1], "slurmd -f"
    if os.environ.get("SLURM_CONF"):
        return os.environ["SLURM_CONF"], "SLURM_CONF"
    for row in config:
        match = re.match(r"SLURM_CONF\s*=\s*(\S+)", row)
        if match and Path(match.group(1)).exists():
            return match.group(1), "scontrol show config"
    for place in PLACES:
        if Path(place).exists():
            return place, "by default"
    return "", "not found"


def read(path: Path) -> dict[str, Any]:
    """A file's digest and its lines (masked), or why it cannot be read."""
    try:
        data = path.read_bytes()
    except OSError as error:
        return {"path": str(path), "sha256": None, "lines": [], "error": error.strerror or str(error)}
    lines = [masked(line.rstrip()) for line in data.decode(errors="replace").splitlines()]
    return {"path": str(path), "sha256": hashlib.sha256(data).hexdigest(), "lines": lines, "error": ""}


def configuration(config: list[str]) -> dict[str, Any]:
    """``{"found": how, "files": {NAME: file}}``: slurm.conf, what it includes, and the files beside it.

    A file that is not there is left out, but for slurm.conf itself.
    """
    path, how = main_file(config)
    files = {"slurm.conf": read(Path(path)) if path else {"path": "", "sha256": None, "lines": [], "error": how}}
    waiting = [Path(path)] if path else []
    while waiting:
        at = waiting.pop()
        for line in _text(at).splitlines():
            match = _INCLUDE.match(line)
            if match and match.group(1) not in files and len(files) < 50:
                below = Path(path).parent / match.group(1)
                files[match.group(1)] = read(below)
                waiting.append(below)
    for name in BESIDE:
        if path and (Path(path).parent / name).exists():
            files[name] = read(Path(path).parent / name)
    return {"found": how, "files": files}


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode(errors="replace")
    except OSError:
        return ""


def differing(ours: list[str], theirs: list[str]) -> list[str]:
    """Lines as ``-theirs`` and ``+ours``, at most `MOST_LINES`; empty where only secrets or line ends differ."""
    rows = difflib.unified_diff(theirs, ours, lineterm="", n=0)
    return [row for row in rows if not row.startswith(("---", "+++", "@@"))][:MOST_LINES]


def munge_socket(config: list[str]) -> str:
    """Where Slurm's munge listens, from ``scontrol show config`` (``AuthInfo = socket=…``); empty: munge's own place."""
    for row in config:
        match = re.match(r"AuthInfo\s*=.*?\bsocket=([^\s,;]+)", row)
        if match:
            return match.group(1)
    return ""


def _by_socket(socket: str) -> list[str]:
    return [f"--socket={socket}"] if socket else []


def encode(text: str, socket: str) -> dict[str, Any]:
    """A munge credential with `text` in it, which only this user may decode."""
    return answer(["munge", f"--restrict-uid={os.getuid()}", *_by_socket(socket)], stdin=text)


def decode(credential: str, socket: str) -> dict[str, Any]:
    """What unmunge says of a credential."""
    return answer(["unmunge", *_by_socket(socket)], stdin=credential)
