"""What a herd of nodes does to shared storage, as both sides know it: sizes, contents, steps. Pure."""

from __future__ import annotations

import hashlib

ROUNDS = 2
"""Times that the herd does it all; a node's figure is its better one, as one disturbance is no property of it."""
BLOCK = 1024**2
"""Bytes of one write or read of a stream."""
HEAD = 4096
"""Bytes at the start of each block that say whose it is."""
PAGE = 8192
"""Bytes of a page that each node writes twice, in place, for the others to read."""
BATCH = 20
"""Files that are made, opened and removed before the clock is looked at again."""
LEAST_S = 0.3
"""A stream or a batch goes on at least this long, so that nodes that start milliseconds apart overlap."""
MOST_S = 20.0
"""A stream ends after this long, however little it moved."""
FREE_SHARE = 4
"""All streams together take at most one n-th of what is free."""
STREAMS = ("write", "read")
FILES = ("create", "stat", "unlink")
UNITS = {**dict.fromkeys(STREAMS, "MB/s"), **dict.fromkeys(FILES, "files/s")}


def stream_bytes(asked: int, free: int, nodes: int) -> int:
    """Bytes of each node's stream: what the ladder asks, capped by free space, in whole blocks. 0: no room."""
    return min(asked, free // FREE_SHARE // nodes) // BLOCK * BLOCK


def head(nonce: str, node: int) -> bytes:
    """How each block of a node's stream begins."""
    return hashlib.shake_256(f"{nonce}:{node}:stream".encode()).digest(HEAD)


def page(nonce: str, node: int, version: int) -> bytes:
    """Version `version` of a node's page: always as long, so that its size does not give it away."""
    return hashlib.shake_256(f"{nonce}:{node}:page:{version}".encode()).digest(PAGE)


def short_digest(data: bytes) -> str:
    """First 16 hex digits of the sha256: a thousand nodes report a thousand each."""
    return hashlib.sha256(data).hexdigest()[:16]
