"""NCCL's log, damaged as files are: cut, torn, interleaved, doubled, overwritten; and what must hold then.

By hand, so many rounds from a seed: ``PYTHONPATH=src:tests python -m nccl_damage 100000 1``.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Callable

from nccl_written import Job, golden
from surefoot.benchmarks.nccl_claims import Finding, bootstrap, direct, inside_nodes, no_sockets, ranks
from surefoot.benchmarks.nccl_log import NcclLog, read_log
from surefoot.benchmarks.nccl_log_links import Connection, Kind
from surefoot.benchmarks.nccl_rails import rails
from surefoot.errors import EvidenceError
from surefoot.model.status import Status

MERGED = ("NET/IB : Made virtual device [2] name=mlx5_0+mlx5_1 speed=200000 ndevs=2",)
JUNK = (
    "\x00",
    "\r",
    "\n",
    "NCCL INFO ",
    "n9:1:1 [0] NCCL INFO ",
    "  4096  1024  float  sum  0.05",
    "é",
    "[1,0]<stdout>:",
    " via ",
)


def whole() -> list[str]:
    """Logs that nothing happened to, one of each kind."""
    jobs = [
        Job(),
        Job(devices=("IB/2/GDRDMA", "IB/2"), virtual=MERGED),
        Job(devices=("IB/0(?)", "IB/1(?)/GDRDMA/Shared")),
        Job(nodes=3, per_node=1, devices=("AWS Libfabric/0/GDRDMA",), network="AWS Libfabric"),
        Job(nodes=1, per_node=4, inside="SHM/direct/direct"),
        Job(using=" [0]={[0] mlx5_0:1/RoCE, [1] mlx5_1:1/RoCE} [RO]; OOB eth0:10.0.0.1<0>", devices=("IBext_v8/0",)),
    ]
    return [*(job.text() for job in jobs), *golden("hosts.out", "same.out", "nointerface.out").values()]


# --- what is done to a log: of whole lines and pieces of lines; characters within a line


def _cut(text: str, rng: random.Random) -> str:
    return text[: rng.randrange(len(text) + 1)]


def _behead(text: str, rng: random.Random) -> str:
    return text[rng.randrange(len(text) + 1) :]


def _lose_line(text: str, rng: random.Random) -> str:
    rows = text.split("\n")
    del rows[rng.randrange(len(rows))]
    return "\n".join(rows)


def _double_line(text: str, rng: random.Random) -> str:
    rows = text.split("\n")
    rows.insert(rng.randrange(len(rows)), rows[rng.randrange(len(rows))])
    return "\n".join(rows)


def _swap_lines(text: str, rng: random.Random) -> str:
    rows = text.split("\n")
    one, other = rng.randrange(len(rows)), rng.randrange(len(rows))
    rows[one], rows[other] = rows[other], rows[one]
    return "\n".join(rows)


def _tear(text: str, rng: random.Random) -> str:
    """A line is written in two parts, and another between them."""
    rows = text.split("\n")
    one = rng.randrange(len(rows))
    at = rng.randrange(len(rows[one]) + 1)
    between = rows[rng.randrange(len(rows))]
    rows[one : one + 1] = [rows[one][:at] + between, rows[one][at:]]
    return "\n".join(rows)


def _lose_line_feed(text: str, rng: random.Random) -> str:
    places = [place for place, character in enumerate(text) if character == "\n"]
    place = rng.choice(places) if places else 0
    return text[:place] + text[place + 1 :]


def _break_line(text: str, rng: random.Random) -> str:
    place = rng.randrange(len(text) + 1)
    return text[:place] + "\n" + text[place:]


def _junk(text: str, rng: random.Random) -> str:
    place = rng.randrange(len(text) + 1)
    return text[:place] + rng.choice(JUNK) + text[place:]


def _lose_piece(text: str, rng: random.Random) -> str:
    place = rng.randrange(len(text) + 1)
    return text[:place] + text[place + rng.randrange(1, 40) :]


def _overwrite(text: str, rng: random.Random) -> str:
    place = rng.randrange(len(text) + 1)
    return text[:place] + rng.choice("0123456789abcNIP/[]:() \n") + text[place + 1 :]


LINES: tuple[Callable[[str, random.Random], str], ...] = (
    _cut, _behead, _lose_line, _double_line, _swap_lines, _tear, _lose_line_feed,
)  # fmt: skip
"""What never makes another line out of a line: not one connection may appear that was not there."""
PIECES = (*LINES, _break_line, _junk, _lose_piece, _overwrite)


def key(link: Connection) -> tuple[object, ...]:
    """What a connection says, without where it stands."""
    return (link.process, link.channel, link.index, link.own, link.own_device, link.peer, link.sends, link.kind, link.how, link.device, link.proxy, link.gdr, link.shared)  # fmt: skip


def says(link: Connection) -> bool:
    """Whether the line says what was read from it."""
    text = link.line.text
    ends = (link.own, link.peer) if link.sends else (link.peer, link.own)
    if link.kind is Kind.COLLNET:
        return f": {link.own} [" in text and f"via COLLNET/{link.how}/{link.device}" in text
    if f": {ends[0]}[" not in text or f" -> {ends[1]}[" not in text:
        return False
    how = link.how.replace("direct", "direct pointer", 1) if link.kind is Kind.P2P else link.how
    device = "" if link.device is None else f"/{link.device}" + ("" if link.proxy is None else f"({link.proxy})")
    tail = f"via {link.kind}/{how}{device}" + (f"/{link.gdr}" if link.gdr else "") + ("/Shared" if link.shared else "")
    return text.rstrip().endswith(tail)


def judged(log: NcclLog, world: int) -> list[Finding]:
    """Every claim."""
    return [
        ranks(log, world), no_sockets(log), no_sockets(log, allowed=True), inside_nodes(log), direct(log),
        bootstrap(log, {"n1": ["eth0"], "vm": ["eth0"]}), rails(log), rails(log, expected={"n1": ["mlx5_0"]}),
    ]  # fmt: skip


def one_round(rng: random.Random, logs: list[str], known: list[tuple[set[tuple[object, ...]], ...]]) -> str:
    """Damage a log and read it: ``read`` or ``error``. Raises AssertionError where something is not right."""
    number = rng.randrange(len(logs))
    only_lines = rng.random() < 0.5
    text = logs[number]
    for _ in range(rng.randrange(1, 4)):
        text = rng.choice(LINES if only_lines else PIECES)(text, rng)
    rows = text.split("\n")
    try:
        log = read_log({"log": text})
    except EvidenceError as error:
        if error.line is None or not rows[error.line - 1].startswith(error.text):
            raise AssertionError(text) from error
        return "error"
    for link in log.connections:
        assert rows[link.line.number - 1] == link.line.text
        assert says(link), link
        # Where a file begins in the middle of a host's name, only lines about ranks show that it is none.
        assert not only_lines or key(link)[not log.members :] in known[number][not log.members], (text, link)
    for found in judged(log, 4):
        assert found.status is not Status.PASSED or found.lines
        assert all(rows[line.number - 1] == line.text for line in found.lines)
    return "read"


def run(rounds: int, seed: int) -> Counter[str]:
    """So many rounds."""
    rng = random.Random(seed)
    logs = whole()
    keys = [[key(link) for link in read_log({"log": text}).connections] for text in logs]
    known = [(set(each), {one[1:] for one in each}) for each in keys]
    return Counter(one_round(rng, logs, known) for _ in range(rounds))


if __name__ == "__main__":
    print(run(int(sys.argv[1]), int(sys.argv[2])))  # noqa: T201
