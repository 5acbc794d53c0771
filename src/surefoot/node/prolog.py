"""What Slurm runs on a node as Prolog before each job: claims about this node, judged within seconds.

``python3 -m surefoot.node.prolog CLAIMS``; the standard library alone. Exit code 3, which no broken Python gives, only
where a value that was read disproves a claim, the claims say ``"enforce": true`` and not too many nodes are drained by
prologs already: the shell script around it then ends 1, and Slurm drains the node and requeues the job. Everything else,
faults of this program included, ends 0 and says so aloud.
See docs/prolog.md for the claims and for each cause with its outcome.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import syslog
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from surefoot.node.facts import gpus, mounts, network, nvml

PROVED, DISPROVED, UNKNOWN = "proved", "disproved", "unknown"
DRAIN = 3
LIMIT_S = 3.0
"""For all claims together; the question to Slurm comes on top."""
SINFO_S = 1.0
SINFO = ("sinfo", "-h", "-N", "-o", "%N|%T|%E")
Verdict = tuple[str, str]


def judge_gpus(count: int) -> Verdict:
    """A driver that cannot be asked where GPUs are claimed is this node's fault, so it disproves."""
    try:
        found = gpus.gpus()
    except (OSError, nvml.NvmlError) as e:
        return DISPROVED, f"{count} GPUs are claimed, and the driver cannot be asked: {e}"
    if len(found) != count:
        return DISPROVED, f"the driver sees {len(found)} GPUs, {count} are claimed"
    return PROVED, f"the driver sees {count} GPUs"


def judge_rows(_: bool) -> Verdict:
    """No GPU has a row whose remapping is pending or failed; one that does not tell is no proof."""
    told = [gpu["remapped_rows"] for gpu in gpus.gpus()]
    for index, rows in enumerate(told):
        if rows["value"] and (rows["value"]["pending"] or rows["value"]["failed"]):
            return DISPROVED, f"GPU {index}: remapping of rows: {rows['value']}"
    silent = [str(index) for index, rows in enumerate(told) if not rows["value"]]
    if silent or not told:
        return UNKNOWN, f"no GPU, or GPUs that do not tell: {', '.join(silent)}"
    return PROVED, f"no row of {len(told)} GPUs waits for remapping"


def judge_driver(version: str) -> Verdict:
    """The driver's version, exactly."""
    found = gpus.driver_versions()["driver"]
    return (PROVED if found == version else DISPROVED), f"driver {found}, claimed {version}"


def judge_mounts(places: list[str]) -> Verdict:
    """From the kernel's table alone: no file system is touched, so none that hangs can hold this."""
    there = {row["place"] for row in mounts.mounts()}
    gone = [place for place in places if place not in there]
    return (DISPROVED, f"not mounted: {', '.join(gone)}") if gone else (PROVED, f"mounted: {', '.join(places)}")


def judge_interfaces(names: list[str]) -> Verdict:
    """Each is there, up and has a carrier."""
    found = {row["name"]: row for row in network.interfaces()}
    bad = [name for name in names if name not in found or not (found[name]["up"] and found[name]["carrier"])]
    return (DISPROVED, f"not there, or down: {', '.join(bad)}") if bad else (PROVED, f"up: {', '.join(names)}")


JUDGES: dict[str, Callable[[Any], Verdict]] = {
    "gpus": judge_gpus, "rows": judge_rows, "driver": judge_driver, "mounts": judge_mounts, "interfaces": judge_interfaces,
}  # fmt: skip
_FORMS: dict[str, type] = {"gpus": int, "rows": bool, "driver": str, "mounts": list, "interfaces": list}


def read_claims(path: Path) -> dict[str, Any]:
    """The claims file. Raises OSError, ValueError where it is not there or not one."""
    claims = json.loads(path.read_text())
    if not isinstance(claims, dict) or not isinstance(claims.get("claims"), dict) or not claims["claims"]:
        raise ValueError(f'{path}: has no "claims"')
    for name, claimed in claims["claims"].items():
        if name not in _FORMS or type(claimed) is not _FORMS[name]:
            raise ValueError(f"{path}: no such claim: {name}: {claimed!r}")
        if claimed is False:
            raise ValueError(f"{path}: {name} can only be claimed to be true")
        if type(claimed) is list and not (claimed and all(type(item) is str for item in claimed)):
            raise ValueError(f"{path}: {name} must be a list of names")
    return claims


def _child(judge: Callable[[Any], Verdict], claimed: Any, answer: int) -> None:
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):  # a child that hangs must not hold what slurmd reads until its end
        os.dup2(null, stream)
    try:
        verdict = judge(claimed)
    except BaseException as e:  # noqa: BLE001 - whatever it is, it is this program's fault, and no verdict on the node
        verdict = (UNKNOWN, f"{type(e).__name__}: {e}")
    os.write(answer, json.dumps(verdict).encode()[:4096])


def judged(claims: dict[str, Any], limit_s: float = LIMIT_S) -> dict[str, Verdict]:
    """Each claim judged in a child of its own; one that hangs is abandoned at the limit and its claim is unknown."""
    verdicts: dict[str, Verdict] = {}
    running: dict[int, tuple[str, int]] = {}
    for name, claimed in claims.items():
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                _child(JUDGES[name], claimed, writing)
            finally:
                os._exit(0)
        os.close(writing)
        running[reading] = (name, pid)
    end = time.monotonic() + limit_s
    while running:
        ready = select.select(list(running), [], [], max(0.0, end - time.monotonic()))[0]
        if not ready:
            break
        for reading in ready:
            name, pid = running.pop(reading)
            text = os.read(reading, 8192)
            os.close(reading)
            os.waitpid(pid, 0)
            try:
                state, words = json.loads(text)
                verdicts[name] = (state, words)
            except ValueError:
                verdicts[name] = (UNKNOWN, "its check ended without an answer")
    for reading, (name, pid) in running.items():
        os.kill(pid, signal.SIGKILL)  # and no wait: it may be stuck in the kernel
        os.close(reading)
        verdicts[name] = (UNKNOWN, f"no answer within {limit_s:g} s")
    return verdicts


def brake(share: float) -> str | None:
    """Why a disproved claim must not drain this node; None: it may. Silence of Slurm is a reason."""
    try:
        text = subprocess.run(SINFO, capture_output=True, text=True, timeout=SINFO_S, check=True).stdout
    except (OSError, subprocess.SubprocessError) as e:
        return f"Slurm does not say how many nodes are drained: {e}"
    rows = [line.split("|", 2) for line in text.splitlines() if line.count("|") >= 2]
    names = {row[0] for row in rows}
    drained = {row[0] for row in rows if row[1].startswith("drain") and "prolog" in row[2].lower()}
    if not names:
        return "Slurm names no node"
    if not (len(drained) + 1) / len(names) <= share:  # so that NaN holds, too
        return f"{len(drained)} of {len(names)} nodes are drained by prologs already, and at most {share:g} may be"
    return None


def say(words: str) -> None:
    """To stderr and to syslog."""
    print(f"surefoot prolog: {words}", file=sys.stderr)  # noqa: T201
    syslog.syslog(syslog.LOG_WARNING, f"surefoot prolog: {words}")


def run(path: Path) -> int:
    """Judge and say; `DRAIN` only as the module's text has it."""
    asked = read_claims(path)
    verdicts = judged(asked["claims"])
    for name, (state, words) in verdicts.items():
        if state != PROVED:
            say(f"{name} {'NOT PROVED' if state == UNKNOWN else 'DISPROVED'}: {words}")
    if all(state != DISPROVED for state, _ in verdicts.values()):
        return 0
    if asked.get("enforce") is not True:
        say('not acted upon: the claims file does not say "enforce": true')
        return 0
    reason = brake(float(asked.get("max_drain_share", 0.1)))
    if reason is not None:
        say(f"not acted upon: {reason}")
        return 0
    return DRAIN


def main(arguments: list[str]) -> int:
    """The exit code for the script that Slurm runs."""
    try:
        return run(Path(arguments[0]))
    except Exception as e:  # noqa: BLE001 - a fault of this program or its file must not drain a cluster
        say(f"NOTHING PROVED, own fault: {type(e).__name__}: {e}")
        return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
