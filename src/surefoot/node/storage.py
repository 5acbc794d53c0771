"""Write, read, rename and see each other's files on shared storage. Standard library only.

``request.json``: ``{"scratch": FOLDER, "file_size": bytes, "fsyncs": int, "versions": int,
"wait_s": seconds, "nodes": int, "ranks_per_node": int, "stream_size": bytes, "imports": [MODULE, …]}``.
Every wait is bounded: a rank that never sees a file says so (``missing``) instead of hanging.
"""

from __future__ import annotations

import errno
import hashlib
import os
import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from surefoot.files import write_atomic
from surefoot.node.herd import herd
from surefoot.node.rank import Rank, say

BLOCK = 8 * 1024**2
VERSION_DIGITS = 7
VERSION_WORDS = 8192
"""Words of seven digits in one version of the renamed file: 64 KiB with their blanks."""


def content(seed: str, size: int) -> Callable[[], Any]:
    """A generator function of pseudo-random blocks, `size` bytes in all: incompressible, cheap, repeatable."""

    def blocks() -> Any:
        source = random.Random(seed)
        left = size
        while left:
            yield source.randbytes(min(BLOCK, left))
            left -= min(BLOCK, left)

    return blocks


def write_file(path: Path, blocks: Callable[[], Any]) -> dict[str, Any]:
    """Write, fsync, rename. Only the system calls are timed, not the making of the data."""
    digest, seconds, size = hashlib.sha256(), 0.0, 0
    temporary = path.with_name(f".{path.name}.part")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        for block in blocks():
            digest.update(block)
            begun = time.perf_counter()
            view = memoryview(block)
            while view:
                view = view[os.write(handle, view) :]
            seconds += time.perf_counter() - begun
            size += len(block)
        begun = time.perf_counter()
        os.fsync(handle)
        fsync_s = time.perf_counter() - begun
    finally:
        os.close(handle)
    temporary.replace(path)
    return {"bytes": size, "sha256": digest.hexdigest(), "write_s": seconds, "fsync_s": fsync_s}


def read_file(path: Path) -> dict[str, Any]:
    """Read it; the kernel is asked to drop its cached pages first, which it may not heed."""
    digest, seconds, size = hashlib.sha256(), 0.0, 0
    handle = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        while True:
            begun = time.perf_counter()
            block = os.read(handle, BLOCK)
            seconds += time.perf_counter() - begun
            if not block:
                break
            digest.update(block)
            size += len(block)
    finally:
        os.close(handle)
    return {"bytes": size, "sha256": digest.hexdigest(), "read_s": seconds}


def fsync_latencies(path: Path, repeats: int) -> list[float]:
    """Seconds that one fsync takes after 4 KiB were written, `repeats` times."""
    seconds = []
    handle = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    try:
        for _ in range(repeats):
            os.write(handle, bytes(4096))
            begun = time.perf_counter()
            os.fsync(handle)
            seconds.append(time.perf_counter() - begun)
    finally:
        os.close(handle)
    return seconds


def await_text(path: Path, wait_s: float) -> str | None:
    """A file's text as soon as it is there; None when `wait_s` have passed without it."""
    until = time.monotonic() + wait_s
    while time.monotonic() < until:
        try:
            return path.read_text()
        except OSError:
            os.listdir(path.parent)  # noqa: PTH208 - an NFS client looks again when the folder is listed
            time.sleep(0.02)
    return None


def read_others(scratch: Path, owner: int, wait_s: float) -> dict[str, Any] | None:
    """Read the large file of rank `owner`; None when `wait_s` have passed without it. It stays: others come later."""
    until = time.monotonic() + wait_s
    # An NFS client may know the second of two new names before the first.
    while await_text(scratch / f"wrote-{owner}", until - time.monotonic()) is not None:
        try:
            return {"owner": owner, **read_file(scratch / f"big-{owner}.bin")}
        except FileNotFoundError:
            time.sleep(0.02)
    return None


def version_text(version: int) -> str:
    """Version `version` of the file that is renamed: one word, over and over."""
    return " ".join([f"{version:0{VERSION_DIGITS}d}"] * VERSION_WORDS) + "\n"


def look(path: Path) -> tuple[str, int]:
    """One read of the renamed file: (whole | mixed | partial | missing | stale, version or -1)."""
    try:
        text = path.read_text()
    except FileNotFoundError:
        return "missing", -1
    except OSError as error:
        if error.errno == errno.ESTALE:
            return "stale", -1
        raise
    if len(text) < VERSION_DIGITS:
        return "partial", -1
    first = text[:VERSION_DIGITS]
    whole = version_text(int(first)) if first.isdigit() else ""
    if text == whole:
        return "whole", int(first)
    return ("partial" if whole.startswith(text) else "mixed"), -1


def rename_versions(scratch: Path, versions: int) -> dict[str, Any]:
    """Rank 0: put version after version under one name. Version 0 is there before this begins."""
    for version in range(1, versions):
        write_atomic(scratch / "versions.txt", version_text(version))
    write_atomic(scratch / "renamed", str(versions - 1))
    return {"renames": versions - 1}


def watch_versions(scratch: Path, wait_s: float) -> dict[str, Any]:
    """The others: read that name until rank 0 says that it is done, then once more."""
    counts = dict.fromkeys(("whole", "mixed", "partial", "missing", "stale"), 0)
    seen: set[int] = set()
    backwards, newest = 0, -1
    until = time.monotonic() + wait_s
    finished = False
    while True:
        finished = finished or (scratch / "renamed").exists() or time.monotonic() > until
        outcome, version = look(scratch / "versions.txt")
        counts[outcome] += 1
        if outcome == "whole":
            seen.add(version)
            backwards += version < newest
            newest = version
        # One more whole look after the end: that one must be the last version. NFS may need its time.
        if finished and (outcome == "whole" or time.monotonic() > until):
            break
        time.sleep(0.0005)
    return {
        "reads": sum(counts.values()),
        **counts,
        "versions_seen": sorted(seen),
        "backwards": backwards,
        "last": newest,
    }


def herd_of(
    node: int, scratch: Path, seen: dict[str, str | None], request: dict[str, Any], nonce: str
) -> dict[str, Any]:
    """The herd's part, unless a rank's file was never seen: who shares no storage cannot meet on it."""
    unseen = [rank for rank, text in seen.items() if text is None]
    if unseen:
        return {"node": node, "stopped": f"the file of rank {', '.join(unseen[:8])} was never seen"}
    return herd(scratch, node, request, nonce)


def main() -> None:
    """All tests of one rank; rank 0 removes the scratch folder when every other rank is done."""
    rank = Rank.current("surefoot.node.storage")
    scratch, wait_s = Path(rank.request["scratch"]), rank.request["wait_s"]
    nonce = os.environ["SUREFOOT_NONCE"]
    scratch.mkdir(parents=True, exist_ok=True)
    big = scratch / f"big-{rank.rank}.bin"
    data: dict[str, Any] = {"rank": rank.rank, "scratch": str(scratch)}
    data["write"] = write_file(big, content(f"{nonce}:{rank.rank}", rank.request["file_size"]))
    data["stat_bytes"] = big.stat().st_size
    write_atomic(scratch / f"wrote-{rank.rank}", f"{nonce}\n")
    data["fsync_s"] = fsync_latencies(scratch / f"fsync-{rank.rank}.bin", rank.request["fsyncs"])
    # The neighbour's file, not this rank's own: what one wrote is there for the other, and on another
    # node it cannot come from this one's page cache.
    data["read"] = read_others(scratch, (rank.rank + 1) % rank.world_size, wait_s)
    if rank.rank == 0:
        write_atomic(scratch / "versions.txt", version_text(0))
    write_atomic(scratch / f"small-{rank.rank}.txt", f"{nonce}:{rank.rank}\n")
    data["seen"] = {str(r): await_text(scratch / f"small-{r}.txt", wait_s) for r in range(rank.world_size)}
    if rank.rank == 0:
        data["renaming"] = rename_versions(scratch, rank.request["versions"])
    else:
        data["watching"] = watch_versions(scratch, wait_s)
    per_node = rank.request["ranks_per_node"]
    if rank.rank % per_node == 0:  # one rank speaks for its node
        data["herd"] = herd_of(rank.rank // per_node, scratch, data["seen"], rank.request, nonce)
    if rank.rank == 0:
        waited = [await_text(scratch / f"done-{r}", wait_s) is not None for r in range(1, rank.world_size)]
        data["others_done"] = all(waited)
        shutil.rmtree(scratch, ignore_errors=True)
        data["removed"] = not scratch.exists()
    else:
        write_atomic(scratch / f"done-{rank.rank}", "done\n")
    say(f"rank {rank.rank}: wrote {data['write']['bytes']} bytes below {scratch}")
    rank.report(data)


if __name__ == "__main__":
    main()
