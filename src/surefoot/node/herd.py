"""All nodes at once on shared storage, then one alone: streams, small files, pages rewritten in place, imports.

Standard library only. Called by `surefoot.node.storage` on the first rank of each node. Raw values: the
judge works out the figures. Where a node does not come, or an import fails, that is what is reported.
"""

from __future__ import annotations

import mmap
import os
import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from surefoot.benchmarks.storage import (
    BATCH,
    BLOCK,
    HEAD,
    LEAST_S,
    MOST_S,
    ROUNDS,
    head,
    page,
    short_digest,
    stream_bytes,
)
from surefoot.node.import_time import ImportFailedError, drop, import_all
from surefoot.node.meeting import AbsentError, Meeting


def write_stream(path: Path, size: int, begin: bytes) -> dict[str, Any]:
    """Write `size` bytes and fsync, over and over for `LEAST_S`, at most `MOST_S`. Only system calls are timed."""
    block = begin + random.Random(begin).randbytes(BLOCK - HEAD)
    seconds, moved = 0.0, 0
    handle = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    try:
        while seconds < LEAST_S:
            begun = time.perf_counter()
            for offset in range(0, size, BLOCK):
                moved += _write_at(handle, block, offset)
                if seconds + time.perf_counter() - begun > MOST_S:
                    break
            os.fsync(handle)
            seconds += time.perf_counter() - begun
    finally:
        os.close(handle)
    return {"bytes": moved, "seconds": seconds}


def _write_at(handle: int, block: bytes, offset: int) -> int:
    view = memoryview(block)
    while view:
        written = os.pwrite(handle, view, offset)
        view, offset = view[written:], offset + written
    return len(block)


def open_past_cache(path: Path, buffer: mmap.mmap) -> tuple[int, str]:
    """A handle to read a file past the kernel's page cache, and how: ``O_DIRECT``, else ``fadvise``, which is advice."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECT)
    except OSError:
        return os.open(path, os.O_RDONLY), "fadvise"
    try:
        os.preadv(handle, [buffer], 0)
    except OSError:
        os.close(handle)
        return os.open(path, os.O_RDONLY), "fadvise"
    return handle, "O_DIRECT"


def read_stream(path: Path) -> dict[str, Any]:
    """Read a stream, over and over for `LEAST_S`, at most `MOST_S`; `head`: digest of how its first block begins."""
    buffer = mmap.mmap(-1, BLOCK)  # O_DIRECT wants memory that begins at a page
    handle, how = open_past_cache(path, buffer)
    seconds, moved, first = 0.0, 0, ""
    try:
        size = os.fstat(handle).st_size
        while size and seconds < LEAST_S:
            if how == "fadvise":
                os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
            begun = time.perf_counter()
            for offset in range(0, size, BLOCK):
                moved += os.preadv(handle, [buffer], offset)
                first = first or short_digest(buffer[:HEAD])
                if seconds + time.perf_counter() - begun > MOST_S:
                    break
            seconds += time.perf_counter() - begun
    finally:
        os.close(handle)
        buffer.close()
    return {"bytes": moved, "seconds": seconds, "how": how, "head": first}


def small_files(folder: Path) -> dict[str, Any]:
    """Make, open and remove empty files in a folder of one's own for `LEAST_S`, in batches.

    Opened and asked (fstat), as a bare stat may be answered by what the client remembers; to open
    a file, NFS asks the server.
    """
    folder.mkdir(parents=True)
    names = [folder / str(number) for number in range(BATCH)]
    spent = {"create_s": 0.0, "stat_s": 0.0, "unlink_s": 0.0}
    steps: dict[str, Callable[[Path], None]] = {"create_s": _create, "stat_s": _stat, "unlink_s": os.unlink}
    files = 0
    while sum(spent.values()) < LEAST_S:
        for step, do in steps.items():
            begun = time.perf_counter()
            for name in names:
                do(name)
            spent[step] += time.perf_counter() - begun
        files += BATCH
    return {"files": files, **spent}


def _create(path: Path) -> None:
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))


def _stat(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    os.fstat(handle)
    os.close(handle)


def rewritten_pages(meeting: Meeting, nonce: str) -> dict[str, Any]:
    """Every node's page as this one reads it: once (so that it is cached), then after all rewrote theirs in place."""
    seen: dict[str, list[str | None]] = {}
    pages = meeting.folder / "pages"
    pages.mkdir(exist_ok=True)
    for version, key in enumerate(("old", "new")):
        handle = os.open(pages / str(meeting.node), os.O_WRONLY | os.O_CREAT, 0o644)
        try:
            os.pwrite(handle, page(nonce, meeting.node, version), 0)
        finally:
            os.close(handle)  # close, then open by the others: what NFS promises to order
        meeting.together(f"pages-{key}")
        seen[key] = [_digest_of(pages / str(node)) for node in range(meeting.nodes)]
        meeting.together(f"pages-{key}-read")  # nobody rewrites a page that somebody still reads
    return seen


def _digest_of(path: Path) -> str | None:
    try:
        return short_digest(path.read_bytes())
    except OSError:
        return None


def one_round(meeting: Meeting, name: str, size: int, begin: bytes, *, alone: bool = False) -> dict[str, Any]:
    """Write, read the next node's stream, make and remove files: each step begun together by all who meet."""
    owner = (meeting.node + 1) % meeting.nodes
    streams = meeting.folder / "streams"
    streams.mkdir(exist_ok=True)
    steps: dict[str, Callable[[], dict[str, Any]]] = {
        "write": lambda: write_stream(streams / str(meeting.node), size, begin),
        "read": lambda: {"owner": owner, **read_stream(streams / str(owner))},
        "files": lambda: small_files(meeting.folder / f"files-{name}-{meeting.node}"),
    }
    found = {}
    for step, do in steps.items():
        if not alone:
            meeting.together(f"{name}-{step}")
        told = do()
        found[step] = told if alone else {**told, "began": meeting.began(f"{name}-{step}")}
    return found


def imports(meeting: Meeting, modules: list[str]) -> dict[str, Any]:
    """A fresh interpreter imports `modules`: as the node is, then with their files dropped from memory, all at once."""
    first_s, told = import_all(modules, meeting.wait_s)
    size = drop(told["files"])
    meeting.together("import")
    seconds, again = import_all(modules, meeting.wait_s)
    found = {
        "first_s": first_s, "seconds": seconds, "began": meeting.began("import"), "found": again["found"],
        "missing": again["missing"], "files": len(told["files"]), "bytes": size, "alone_s": None,
    }  # fmt: skip
    meeting.put("done", "import")
    if meeting.node == 0 and meeting.nodes > 1:
        meeting.all_done("import")
        drop(told["files"])
        found["alone_s"] = import_all(modules, meeting.wait_s)[0]
    return found


def herd(scratch: Path, node: int, request: dict[str, Any], nonce: str) -> dict[str, Any]:
    """All of it on one node. ``stopped`` says why where it did not come to its end."""
    meeting = Meeting(scratch / "herd", node, request["nodes"], request["wait_s"])
    meeting.folder.mkdir(exist_ok=True)
    free = shutil.disk_usage(scratch).free
    told = meeting.folder / "free"
    found: dict[str, Any] = {"node": node, "stopped": None}
    try:
        if node == 0:
            told.write_text(str(free))
        meeting.together("plan")
        free = int(told.read_text())  # all go by what the first one found
        size = stream_bytes(request["stream_size"], free, meeting.nodes)
        found |= {"free_bytes": free, "stream_bytes": size, "pages": None, "imports": None, "alone": None}
        if meeting.nodes > 1:
            found["pages"] = rewritten_pages(meeting, nonce)
        begin = head(nonce, node)
        if size:
            found["rounds"] = [one_round(meeting, str(number), size, begin) for number in range(ROUNDS)]
        if request["imports"]:
            found["imports"] = imports(meeting, request["imports"])
        meeting.put("done", "herd")
        if node == 0 and meeting.nodes > 1 and size:
            meeting.all_done("herd")
            found["alone"] = one_round(meeting, "alone", size, begin, alone=True)
    except (AbsentError, ImportFailedError) as error:
        return {"node": node, "stopped": str(error)}
    return found
