"""What the ranks of a job share: a file that all of them write to."""

from __future__ import annotations

import io

from surefoot.node.rank import say


class _Writes(io.RawIOBase):
    """Keeps what each write to the file brought."""

    def __init__(self) -> None:
        self.seen: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        self.seen.append(bytes(data))
        return len(self.seen[-1])


def test_a_line_of_a_rank_is_one_write_also_where_python_does_not_buffer() -> None:
    """So that lines of ranks which speak at the same moment stay whole."""
    file = _Writes()
    unbuffered = io.TextIOWrapper(file, write_through=True)  # what PYTHONUNBUFFERED makes
    say("rank 0: 7 bytes", unbuffered)
    say("rank 0: 8 bytes", unbuffered)
    assert file.seen == [b"rank 0: 7 bytes\n", b"rank 0: 8 bytes\n"]
