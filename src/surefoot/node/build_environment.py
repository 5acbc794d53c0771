"""One Python environment for each kind of node, built once. Standard library (and `surefoot.files`) only.

``request.json``: ``{"folder": <root>/envs/<digest>, "digest": …, "python": …, "requirements": […],
"index": …, "wheels": …}``. One rank a node: each says which kind of node it is on; where there is no
environment for that kind, one rank of them builds it and the others wait.

A build is claimed by making a folder whose name holds this attempt: ``mkdir`` succeeds once, and what
a dead attempt left blocks nobody. Its builder writes ``alive.json`` there every two seconds; a claim
of another attempt is waited for while that changes, and removed when it does not. What decides in the
end is the move of the finished environment to its place, which succeeds once.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from surefoot.errors import StorageError
from surefoot.files import write_atomic
from surefoot.node.chooser import node_key, script
from surefoot.node.rank import Rank, say
from surefoot.node.venv_build import Builder, BuildError, Source, flush, move_in, settle

STALE_S = 30.0
"""A builder of another attempt that has not stirred for so long is dead."""
BEAT_S = 2.0
_POLL_S = 0.5
_TELL_EVERY_S = 15.0

Tell = Callable[[int, str], None]
"""Told how many distributions are begun with, and what goes on: for people."""


@dataclass(frozen=True)
class Order:
    """What is wanted, and by whom."""

    folder: Path
    digest: str
    source: Source
    attempt: str
    """Names this life of this job: part of the name of what it claims."""
    stale_s: float = STALE_S
    log: Path | None = None
    """Where pip's output is kept as evidence; None: beside the build."""

    def claim(self, key: str) -> Path:
        """The folder in which this attempt builds."""
        return self.folder / f".building-{key}-{self.attempt}"


def read_json(path: Path) -> dict[str, Any] | None:
    """A JSON object; None where there is none, or no whole one."""
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def look_again(folder: Path) -> None:
    """Open a folder: network storage then asks its server what is there, whatever it remembers."""
    with contextlib.suppress(OSError):
        os.listdir(folder)  # noqa: PTH208 - nothing is done with what it says


def ready(order: Order, key: str) -> dict[str, Any] | None:
    """``ready.json`` of the finished environment for `key`; None where there is none of this lock."""
    look_again(order.folder)
    found = read_json(order.folder / key / "ready.json")
    same = found is not None and (found.get("key"), found.get("digest")) == (key, order.digest)
    return found if same else None


class Claim:
    """A claimed build. Shows that it is alive until it is let go."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state = {"host": socket.gethostname(), "pid": os.getpid(), "begun": False, "done": 0, "text": ""}
        self._beat = 0
        self._over = threading.Event()
        self._lock = threading.Lock()
        self.beat()
        self._thread = threading.Thread(target=self._keep_beating, daemon=True)
        self._thread.start()

    def tell(self, done: int, text: str) -> None:
        """What goes on, for those who wait."""
        with self._lock:
            self.state.update(done=done, text=text)

    def begin(self) -> None:
        """From now on nobody builds before this one."""
        with self._lock:
            self.state["begun"] = True
        self.beat()

    def beat(self) -> None:
        with self._lock:
            self._beat += 1
            account = json.dumps({**self.state, "beat": self._beat})
        with contextlib.suppress(Exception):  # a full disk, a folder that was taken away: the build itself will say so
            if self.folder.is_dir():
                write_atomic(self.folder / "alive.json", account)

    def _keep_beating(self) -> None:
        while not self._over.wait(BEAT_S):
            self.beat()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()


@dataclass
class Watched:
    """Claims of other attempts, and when each was last seen to stir."""

    stale_s: float
    seen: dict[Path, tuple[object, float]] = field(default_factory=dict)

    def alive(self, claim: Path) -> bool:
        """False for one that failed, or has not stirred for `stale_s` of this process's own clock."""
        if (claim / "failed.json").exists():
            return False
        beat = (read_json(claim / "alive.json") or {}).get("beat")
        before = self.seen.get(claim)
        if before is None or before[0] != beat:
            self.seen[claim] = (beat, time.monotonic())
            return True
        return time.monotonic() - before[1] < self.stale_s


@dataclass
class Waiting:
    """Tells now and then who is waited for."""

    to: Tell
    told_at: float = float("-inf")

    def tell(self, key: str, builder: dict[str, Any] | None) -> None:
        if time.monotonic() - self.told_at > _TELL_EVERY_S:
            self.told_at = time.monotonic()
            known = builder or {}
            text = f"waiting for {known.get('host', 'another rank')}, which builds {key}: {known.get('text', '')}"
            say(text)
            self.to(known.get("done", 0), text)


def provide(order: Order, key: str, tell: Tell) -> dict[str, Any]:
    """The environment for `key`: there already, built here, or built by another while this waited.

    ``{"outcome": "there" | "built" | "waited", "ready": …}``. Raises BuildError, also for the failure
    of the rank of this attempt that builds for this one.
    """
    outcome, watched, waiting = "there", Watched(order.stale_s), Waiting(tell)
    while True:
        found = ready(order, key)
        if found is not None:
            return {"outcome": outcome, "ready": found}
        claim = order.claim(key)
        try:
            claim.mkdir()
        except FileExistsError:
            outcome = "waited"
            failure = read_json(claim / "failed.json")
            if failure is not None:
                raise BuildError(**failure) from None
            if not watched.alive(claim):
                raise BuildError("waiting for the build", "the rank that built it stopped without a word") from None
            waiting.tell(key, read_json(claim / "alive.json"))
            time.sleep(_POLL_S)
            continue
        return _claimed(order, key, claim, tell)


def _claimed(order: Order, key: str, folder: Path, tell: Tell) -> dict[str, Any]:
    """Build, unless a living builder of another attempt does it first."""
    claim = Claim(folder)

    def both(done: int, text: str) -> None:
        claim.tell(done, text)
        tell(done, text)

    try:
        found = _after_others(order, key, claim, tell)
        if found is None:
            claim.begin()
            found = _build(order, key, folder, both)
            outcome = "built" if found["attempt"] == order.attempt else "waited"
        else:
            outcome = "waited"
    except BuildError as error:
        claim.stop()
        with contextlib.suppress(StorageError):  # then the others see that it does not stir any more
            write_atomic(folder / "failed.json", json.dumps(error.account()))
        for part in ("venv", "tools", "tmp"):
            shutil.rmtree(folder / part, ignore_errors=True)
        raise
    except BaseException:
        claim.stop()
        raise
    claim.stop()
    shutil.rmtree(folder, ignore_errors=True)
    return {"outcome": outcome, "ready": found}


def _after_others(order: Order, key: str, claim: Claim, tell: Tell) -> dict[str, Any] | None:
    """Wait for living builders of other attempts: what one of them built, or None when it is this one's turn.

    Of two that wait for each other the first by name begins. Dead ones are cleared away.
    """
    watched, waiting = Watched(order.stale_s), Waiting(tell)
    while True:
        found = ready(order, key)
        if found is not None:
            return found
        others = [path for path in order.folder.glob(f".building-{key}-*") if path != claim.folder]
        alive = [path for path in others if watched.alive(path)]
        states = {path: read_json(path / "alive.json") or {} for path in alive}
        before = [path for path in alive if states[path].get("begun") or path.name < claim.folder.name]
        if not before:
            for path in set(others) - set(alive):
                say(f"removing what a dead build left: {path.name}")
                shutil.rmtree(path, ignore_errors=True)
            return None
        waiting.tell(key, states[before[0]])
        time.sleep(_POLL_S)


def _build(order: Order, key: str, folder: Path, tell: Tell) -> dict[str, Any]:
    """Build it and move it to its place: its ``ready.json``, or that of who was faster. Raises BuildError."""
    started_at = time.time()
    builder = Builder(order.source, folder, order.log or folder / "pip.log", tell)
    built = builder.build()
    place = order.folder / key
    account = {
        "key": key,
        "digest": order.digest,
        "requirements": list(order.source.requirements),
        "attempt": order.attempt,
        "host": socket.gethostname(),
        "base": order.source.base,
        "started_at": started_at,
        "ended_at": time.time(),
        **built,
    }
    try:
        settle(builder.venv, place)
        write_atomic(builder.venv / "ready.json", json.dumps(account, indent=1) + "\n")
        flush(builder.venv)
    except (OSError, StorageError) as error:
        raise BuildError("settling it", f"{type(error).__name__}: {error}") from error
    if move_in(builder.venv, place, folder / "aside", lambda: ready(order, key) is not None):
        return account
    found = ready(order, key)
    if found is None:
        raise BuildError("moving it into place", f"{place} was taken away meanwhile")
    return found


def put_chooser(order: Order) -> None:
    """Write the script that starts the environments, where it is not there as it should be."""
    path, text = order.folder / "python", script(order.source.base, order.folder)
    with contextlib.suppress(OSError):
        if path.read_text() == text and os.access(path, os.X_OK):
            return
    temporary = order.folder / f".python-{order.attempt}-{socket.gethostname()}-{os.getpid()}"
    temporary.write_text(text)
    temporary.chmod(0o755)
    temporary.replace(path)


def order_of(rank: Rank) -> Order:
    """What this job was asked for."""
    asked = rank.request
    life = os.environ.get("SLURM_RESTART_COUNT") or "0"
    attempt = f"{os.environ['SUREFOOT_NONCE']}-{os.environ['SUREFOOT_JOB_ID']}-{life}"
    source = Source(asked["python"], tuple(asked["requirements"]), asked["index"], asked["wheels"])
    return Order(Path(asked["folder"]), asked["digest"], source, re.sub(r"[^A-Za-z0-9_.-]", "_", attempt))


def account_of(rank: Rank) -> dict[str, Any]:
    """What became of this rank's environment: its kind of node, and ``ready.json`` or a failure."""
    order = order_of(rank)
    key, problem = node_key(order.source.base)
    log = rank.folder / f"pip-{key}.log"
    account: dict[str, Any] = {"rank": rank.rank, "key": key, "outcome": "failed", "ready": None, "failure": None}

    def tell(done: int, text: str) -> None:
        with contextlib.suppress(StorageError):
            rank.progress(done, len(order.source.requirements), text)

    try:
        if key:
            order.folder.mkdir(parents=True, exist_ok=True)
            put_chooser(order)
            return {**account, **provide(replace(order, log=log), key, tell)}
        failure = BuildError("finding out which kind of node this is", problem)
    except BuildError as error:
        failure = error
    except OSError as error:
        failure = BuildError("writing below the root", str(error))
    account["failure"] = {**failure.account(), "log": log.name if key and log.exists() else ""}
    return account


def let_others_end(rank: Rank) -> None:
    """Until every rank has reported: a rank that ends badly takes the others along, which may still be building."""
    while any(not (rank.folder / f"rank-{other}.json").exists() for other in range(rank.world_size)):
        time.sleep(_POLL_S)
        look_again(rank.folder)


def main() -> None:
    """Provide this node's environment and report it; end with 1 where there is none."""
    rank = Rank.current("surefoot.node.build_environment")
    account = account_of(rank)
    failure = account["failure"]
    if failure is None:
        say(f"rank {rank.rank}: {account['key']}: {account['outcome']}")
    rank.report(account)
    if failure is not None:
        let_others_end(rank)
        kind = account["key"] or "unknown kind of node"
        say(f"host {socket.gethostname()}, {kind}: no environment: {failure['step']}: {failure['text']}")
        if failure["advice"]:
            say(f"→ {failure['advice']}")
        sys.exit(1)


if __name__ == "__main__":
    main()
