"""What Slurm runs on a node as Prolog before each job: claims about this node, judged within seconds.

``python3 -m surefoot.node.prolog CLAIMS``; the standard library alone. Exit code 3, which no broken Python gives, only
where a value that was read disproves a claim, the claims say ``"enforce": true`` and not too many nodes are drained by
prologs already: the shell script around it then ends 1, and Slurm drains the node. Everything else, faults of this
program included, ends 0 and says so aloud.
See docs/prolog.md for the claims and for each cause with its outcome, docs/decisions/prolog.md for why.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import syslog
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from surefoot.files import write_atomic
from surefoot.node.prolog_claims import DISPROVED, JUDGES, PROVED, UNKNOWN, Verdict, problem

DRAIN = 3
WHOLE_S = 4.5
"""For everything; whatever hangs then, nothing is drained."""
LIMIT_S = 3.0
"""For all claims together; the question to Slurm comes on top."""
SINFO_S = 1.0
SINFO = ("sinfo", "--all", "-h", "-N", "-o", "%N|%T|%E")
STATUS = "/run/surefoot-prolog.json"
"""Where the last result lies, unless the claims file says ``status``."""
SHARE = 0.1
"""Of Slurm's nodes, so many may be drained by prologs, unless the claims file says ``max_drain_share``."""
MARKER_S = 300.0
"""How long a disproved claim counts by its marker: long enough for Slurm to show the drain."""
KEYS = ("claims", "enforce", "max_drain_share", "markers", "status", "group")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON. Raises ValueError for a key that stands there twice: one of them would be left out quietly."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [key for key, _ in pairs]
        raise ValueError(f"{next(key for key in names if names.count(key) > 1)} stands there twice")
    return found


def read_claims(path: Path) -> dict[str, Any]:
    """The claims file. Raises OSError, ValueError where it is not there or not one."""
    asked = json.loads(path.read_text(), object_pairs_hook=_once)
    if not isinstance(asked, dict) or not isinstance(asked.get("claims"), dict) or not asked["claims"]:
        raise ValueError(f'{path}: has no "claims"')
    wrong = [f"no such key: {key}; there are {', '.join(KEYS)}" for key in asked if key not in KEYS]
    wrong += [text for name, claimed in asked["claims"].items() if (text := problem(name, claimed))]
    for key in ("markers", "status"):
        if key in asked and not (isinstance(asked[key], str) and asked[key].startswith("/")):
            wrong.append(f"{key} is {asked[key]!r}; allowed: an absolute path")
    for key, kind, words in (("enforce", bool, "true or false"), ("group", str, "a name")):
        if key in asked and type(asked[key]) is not kind:
            wrong.append(f"{key} is {asked[key]!r}; allowed: {words}")
    share = asked.get("max_drain_share", SHARE)
    if type(share) not in (int, float) or not 0 < share < 1:  # 10 for 10 % would be no brake at all
        wrong.append(f"max_drain_share is {share!r}; allowed: more than 0 and less than 1")
    if wrong:
        raise ValueError(f"{path}: {'; '.join(wrong)}")
    return asked


def _child(judge: Callable[[Any], Verdict], claimed: Any, answer: int) -> None:
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):  # a child that hangs must not hold what is read until its end
        os.dup2(null, stream)
    try:
        verdict = judge(claimed)
    except BaseException as e:  # noqa: BLE001 - whatever it is, it is this program's fault, and no verdict on the node
        verdict = (UNKNOWN, f"{type(e).__name__}: {e}")
    os.write(answer, json.dumps((verdict[0], verdict[1][:600])).encode())


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
            # It has answered, and is not waited for: closing a GPU that is lost may hold it in the kernel.
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, os.WNOHANG)
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


def own_name() -> str:
    """This node, as Slurm calls it."""
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname().split(".")[0]


def marked(folder: Path, name: str) -> set[str]:
    """Nodes whose claims were disproved within `MARKER_S`, `name` included: each leaves a file. Raises OSError.

    Whoever comes k-th finds k markers at least, so more nodes than may be drained never pass together.
    Ages are by the file server's clock.
    """
    if "/" in name:
        raise OSError(f"{name!r} is no name of a node")
    # Where everybody may write to the folder, a link there would have root write elsewhere, and a pipe would hang.
    own = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)
    try:
        os.ftruncate(own, 0)
        os.write(own, f"{time.time()}\n".encode())
        now = os.fstat(own).st_mtime
    finally:
        os.close(own)
    found = {name}
    for entry in folder.iterdir():
        try:
            if now - entry.lstat().st_mtime < MARKER_S:
                found.add(entry.name)
        except FileNotFoundError:
            continue
    return found


def brake(share: float, markers: str | None = None) -> str | None:
    """Why a disproved claim must not drain this node; None: it may. Silence of Slurm, or of `markers`, is a reason."""
    own = own_name()
    try:
        at_once = marked(Path(markers), own) if markers else {own}
    except OSError as e:
        return f"no marker could be left, so nobody knows how many nodes fail at once: {e}"
    try:
        text = subprocess.run(SINFO, capture_output=True, text=True, timeout=SINFO_S, check=True).stdout
    except (OSError, subprocess.SubprocessError) as e:
        return f"Slurm does not say how many nodes are drained: {e}"
    rows = [line.split("|", 2) for line in text.splitlines() if line.count("|") >= 2]
    names = {row[0] for row in rows}
    drained = {row[0] for row in rows if row[1].startswith("drain") and "prolog" in row[2].lower()}
    if not names:
        return "Slurm names no node"
    if own not in names:
        return f"Slurm names no node {own}, so nobody knows whether the others' names here are Slurm's"
    others = (drained | at_once & names) - {own}
    if not (len(others) + 1) / len(names) <= share:  # so that NaN holds, too
        return f"{len(others)} of {len(names)} nodes are drained by prologs already or fail now, and at most {share:g} may be"
    return None


def say(words: str) -> None:
    """To stderr and to syslog, as one line: what a node or a file tells may hold escape sequences, or be no text."""
    text = "surefoot prolog: " + "".join(each if each.isprintable() else "\ufffd" for each in words.replace("\n", " "))
    os.write(2, f"{text}\n".encode())
    syslog.syslog(syslog.LOG_WARNING, text)


def decided(asked: dict[str, Any], verdicts: dict[str, Verdict]) -> tuple[int, str]:
    """Exit code and outcome in words; all that is not proved is said."""
    for name, (state, words) in verdicts.items():
        if state != PROVED:
            say(f"{name} {'NOT PROVED' if state == UNKNOWN else 'DISPROVED'}: {words}")
    states = [state for state, _ in verdicts.values()]
    if DISPROVED not in states:
        return 0, PROVED if set(states) == {PROVED} else "not proved"
    if asked.get("enforce") is not True:
        reason: str | None = 'the claims file does not say "enforce": true'
    else:
        reason = brake(float(asked.get("max_drain_share", SHARE)), asked.get("markers"))
    if reason is None:
        return DRAIN, "disproved: the script ends 1"
    say(f"not acted upon: {reason}")
    return 0, f"disproved, not acted upon: {reason}"


def work(path: Path) -> int:
    """Judge, say and leave the status file; `DRAIN` only as the module's text has it."""
    status, verdicts = STATUS, {}
    try:
        asked = read_claims(path)
        status = asked.get("status", STATUS)
        verdicts = judged(asked["claims"])
        code, outcome = decided(asked, verdicts)
    except Exception as e:  # noqa: BLE001 - a fault of this program or its file must not drain a cluster
        code, outcome = 0, f"NOTHING PROVED, own fault: {type(e).__name__}: {e}"
        say(outcome)
    left = {
        "time": time.time(), "node": own_name(), "job": os.environ.get("SLURM_JOB_ID"), "claims_file": str(path),
        "code": code, "outcome": outcome, "verdicts": verdicts,
    }  # fmt: skip
    try:
        if Path(status).exists() and not Path(status).is_file():
            say(f"no status file: {status} is no regular file, and is left as it is")
        else:
            write_atomic(Path(status), json.dumps(left, indent=1) + "\n")
    except Exception as e:  # noqa: BLE001 - likewise
        say(f"no status file: {e}")
    return code


def within(path: Path, limit_s: float) -> int:
    """`work` in a process of its own, abandoned at the limit: then 0, said aloud.

    What it says comes by a pipe, so that no part that hangs holds what slurmd reads until its end.
    """
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 0
        try:
            os.setsid()
            null = os.open(os.devnull, os.O_RDWR)
            for stream, target in ((0, null), (1, null), (2, writing)):
                os.dup2(target, stream)
            os.close(writing)
            code = work(path)
        finally:
            os._exit(code)
    os.close(writing)
    end = time.monotonic() + limit_s
    while select.select([reading], [], [], max(0.0, end - time.monotonic()))[0]:
        words = os.read(reading, 8192)
        if not words:
            ended = os.waitpid(pid, 0)[1]
            if os.WIFEXITED(ended):
                return DRAIN if os.WEXITSTATUS(ended) == DRAIN else 0
            raise RuntimeError(f"the process that judges was ended by signal {os.WTERMSIG(ended)}")
        os.write(2, words)
    os.killpg(pid, signal.SIGKILL)  # and no wait: it may be stuck in the kernel
    os.write(2, f"surefoot prolog: NOTHING PROVED, own fault: no end within {limit_s:g} s; not acted upon\n".encode())
    return 0


def main(arguments: list[str]) -> int:
    """The exit code for the script that Slurm runs."""
    try:
        return within(Path(arguments[0]), WHOLE_S)
    except Exception as e:  # noqa: BLE001 - a fault of this program or its file must not drain a cluster
        say(f"NOTHING PROVED, own fault: {type(e).__name__}: {e}")
        return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
