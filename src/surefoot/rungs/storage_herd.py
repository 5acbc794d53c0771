"""Storage, with all nodes at once: each node's rates and import time, held against its peers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from surefoot.benchmarks.storage import BLOCK, FILES, ROUNDS, STREAMS, UNITS, head, page, short_digest, stream_bytes
from surefoot.errors import EvidenceError
from surefoot.model.base import Record
from surefoot.model.check import Check
from surefoot.model.ladder import Storage as StorageSpec
from surefoot.model.measurement import Fingerprint, Measurement
from surefoot.rungs.base import Layout, View
from surefoot.rungs.judging import Said, decide, shorten, unproved
from surefoot.stats.peers import FEWEST, compare
from surefoot.units import format_size

IMPORT = "import"
UNITS_OF = {**UNITS, IMPORT: "s"}
HOW = {
    "O_DIRECT": "past the page cache (O_DIRECT)",
    "fadvise": "after the kernel was advised to drop the pages (fadvise)",
}


class Stream(Record):
    """A node's stream written, fsync included."""

    bytes: int = Field(ge=BLOCK)
    seconds: float = Field(gt=0)
    began: int | None = None
    """Nodes that had begun this step when this one ended; None where it was alone."""


class StreamRead(Stream):
    """The next node's stream read."""

    owner: int
    how: Literal["O_DIRECT", "fadvise"]
    head: str


class SmallFiles(Record):
    """Files made, opened and removed: one number, three times."""

    files: int = Field(ge=1)
    create_s: float = Field(gt=0)
    stat_s: float = Field(gt=0)
    unlink_s: float = Field(gt=0)
    began: int | None = None


class Round(Record):
    """All three steps, once."""

    write: Stream
    read: StreamRead
    files: SmallFiles

    @property
    def began(self) -> set[int | None]:
        return {self.write.began, self.read.began, self.files.began}

    @property
    def timed_s(self) -> float:
        own = self.files
        return self.write.seconds + self.read.seconds + own.create_s + own.stat_s + own.unlink_s

    def rate(self, what: str) -> float:
        """Decimal MB/s, or files/s."""
        if what in STREAMS:
            stream = self.write if what == "write" else self.read
            return stream.bytes / stream.seconds / 1e6
        return self.files.files / float(getattr(self.files, f"{what}_s"))


class Pages(Record):
    """Digest of each node's page before and after it was rewritten in place; None: it could not be read."""

    old: tuple[str | None, ...]
    new: tuple[str | None, ...]


class Imports(Record):
    """A fresh interpreter's imports. Seconds from its start to its end."""

    first_s: float = Field(gt=0)
    """As the node was, with whatever it had in memory."""
    seconds: float = Field(gt=0)
    """All nodes at once, after the kernel was advised to forget those files."""
    began: int
    found: tuple[str, ...]
    missing: tuple[str, ...]
    files: int = Field(ge=1)
    bytes: int = Field(ge=1)
    alone_s: float | None = Field(gt=0)


class Herd(Record):
    """What ``surefoot.node.herd`` reports of a node."""

    node: int
    stopped: str | None
    """Why it did not come to its end; then nothing else is there."""
    free_bytes: int | None = Field(default=None, ge=0)
    stream_bytes: int | None = Field(default=None, ge=0)
    pages: Pages | None = None
    rounds: tuple[Round, ...] = ()
    alone: Round | None = None
    imports: Imports | None = None

    @property
    def timed_s(self) -> float:
        rounds = [*self.rounds, *([self.alone] if self.alone else [])]
        told = self.imports
        return sum(r.timed_s for r in rounds) + (told.first_s + told.seconds + (told.alone_s or 0) if told else 0)


Nodes = Sequence[tuple[Said[Any], Herd]]
"""Each node's first rank and what it reports of its node."""


def plan_herd(spec: StorageSpec, where: Layout) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the ranks are asked, and what judging compares with."""
    asked: dict[str, Any] = {
        "nodes": where.nodes,
        "ranks_per_node": where.ranks_per_node,
        "stream_size": spec.stream_size,
        "imports": list(spec.imports),
    }
    limits = {"min_peer_share": spec.min_peer_share, "min_herd": dict(spec.min_herd), "max_import_s": spec.max_import_s}
    return asked, {**asked, **limits}


def read_herd(node: int, told: Herd, file: str, view: View) -> None:
    """Raises EvidenceError where a node's report is not what was asked, or is cut short without saying so."""
    nodes = view.expect["nodes"]
    if told.node != node:
        raise EvidenceError(f"holds the herd's part of node {told.node}, not {node}", file=file)
    if told.stopped is not None:
        if not told.stopped:
            raise EvidenceError("stopped in the herd, and does not say why", file=file)
        return
    if told.free_bytes is None or told.stream_bytes != stream_bytes(view.expect["stream_size"], told.free_bytes, nodes):
        raise EvidenceError(
            f"streams of {told.stream_bytes} bytes do not follow from what was asked and is free", file=file
        )
    moves, lead = bool(told.stream_bytes), node == 0 and nodes > 1
    wanted = (ROUNDS if moves else 0, nodes > 1, bool(view.expect["imports"]), lead and moves)
    there = (len(told.rounds), told.pages is not None, told.imports is not None, told.alone is not None)
    if there != wanted:
        raise EvidenceError(f"rounds, pages, imports, alone: {there}, asked for was {wanted}", file=file)
    _read_rounds(told, (node + 1) % nodes, file, view)
    if told.imports is not None:
        found = told.imports
        if sorted((*found.found, *found.missing)) != sorted(view.expect["imports"]):
            raise EvidenceError(f"tells of {found.found} and {found.missing}, not of what it was to import", file=file)
        if (found.alone_s is not None) != lead:
            raise EvidenceError("does not tell of the import alone as it was asked to", file=file)


def _read_rounds(told: Herd, owner: int, file: str, view: View) -> None:
    """Each round read its neighbour's stream, and tells who else was at work. Raises EvidenceError."""
    wanted = short_digest(head(view.plan.nonce, owner))
    for each in (*told.rounds, *([told.alone] if told.alone else [])):
        if (each.read.owner, each.read.head) != (owner, wanted):
            raise EvidenceError(f"read a stream that is not node {owner}'s", file=file)
        if (each.began == {None}) != (each is told.alone) or (None in each.began and each is not told.alone):
            raise EvidenceError("does not tell who had begun a step as it was asked to", file=file)


def judge_herd(nodes: Nodes, view: View, names: Mapping[str, str]) -> list[Check]:
    """That all worked at once, that a rewritten page is seen, and whether a node is slower than the ladder or its peers allow.

    `names`: host → what the scheduler calls it, as far as that is known: so a slow node is named as data.
    """
    together = _together(nodes, view)
    if any(told.stopped is not None for _, told in nodes):
        return [together]
    checks = [together]
    if len(nodes) > 1:
        checks.append(_close_to_open(nodes, view))
    if view.expect["imports"]:
        checks += _same_imports(nodes, view)
    for what, figures in figures_of(nodes).items():
        checks += _peers(what, figures, nodes, view, names)
        checks += _limits(what, figures, nodes, view)
    return checks


def figures_of(nodes: Nodes) -> dict[str, dict[str, float]]:
    """What → node → its better round. Imports are there where every node imported something."""
    if any(told.stopped is not None for _, told in nodes):
        return {}
    found: dict[str, dict[str, float]] = {}
    if all(told.rounds for _, told in nodes):
        for what in (*STREAMS, *FILES):
            found[what] = {rank.where: max(each.rate(what) for each in told.rounds) for rank, told in nodes}
    if all(told.imports is not None and told.imports.found for _, told in nodes):
        found[IMPORT] = {rank.where: told.imports.seconds for rank, told in nodes if told.imports is not None}
    return found


def _together(nodes: Nodes, view: View) -> Check:
    """The test was the test: every node did every step while all others had begun it."""
    count = view.expect["nodes"]
    problems, stopped = [], [f"{rank.where}: {told.stopped}" for rank, told in nodes if told.stopped is not None]
    if not stopped:
        for rank, told in nodes:
            steps = {number for each in told.rounds for number in each.began}
            steps |= {told.imports.began} if told.imports else set()
            if steps - {count}:
                few = sorted(str(number) for number in steps - {count})
                problems.append(f"{rank.where}: {' and '.join(few)} of {count} nodes had begun when it was done")
            if not told.rounds:
                problems.append(f"{rank.where}: no room for a stream: {format_size(told.free_bytes or 0)} free")
    claim = (
        f"{count} nodes wrote, read, made and removed files all at once, {ROUNDS} times"
        if count > 1
        else f"one node wrote, read, made and removed files, {ROUNDS} times"
    )
    references = tuple(view.evidence.ref(rank.file, text=told.stopped or "") for rank, told in nodes)
    if stopped or problems or len(nodes) != count:
        return unproved(
            "storage.herd", claim, expected=f"{count} nodes at work at one moment of each step",
            actual=shorten(stopped or problems) or f"{len(nodes)} nodes tell of it", evidence=references,
            next_action="nothing is known of all nodes at once: start with the node that is named, its log and its mount; then run the rung again",
        )  # fmt: skip
    return decide(
        "storage.herd", claim, True, expected=count, actual=count, unit="nodes", evidence=references,
        derivation="when each node was done with a step, it saw that every other had begun it",
    )  # fmt: skip


def _close_to_open(nodes: Nodes, view: View) -> Check:
    nonce, count = view.plan.nonce, view.expect["nodes"]
    versions = [[short_digest(page(nonce, node, version)) for node in range(count)] for version in (0, 1)]
    names = [rank.report.host for rank, _ in nodes]
    problems = []
    for rank, told in nodes:
        pages = told.pages or Pages(old=(), new=())
        for key, seen, wanted in (("first", pages.old, versions[0]), ("rewritten", pages.new, versions[1])):
            if len(seen) != count:
                problems.append(f"{rank.where} tells of {len(seen)} {key} pages")
            problems += [
                f"{rank.where} read {_what(found, other, versions)} of {names[other]}"
                for other, found in enumerate(seen[:count])
                if found != wanted[other]
            ]
    return decide(
        "storage.close_to_open",
        f"what a node rewrote in place and closed, each of the {count} nodes that opened it afterwards read anew",
        not problems,
        expected=f"{count} pages on {count} nodes",
        actual=shorten(problems) or f"{count} pages on {count} nodes",
        evidence=tuple(view.evidence.ref(rank.file) for rank, _ in nodes),
        derivation="sha256 of pages made from nonce, node and version; each node had read the first version before",
        next_action="that node's client answers from its cache: look at its mount options (nocto, actimeo, cache=) beside "
        "those of a good node, and at its clock",
    )


def _what(found: str | None, other: int, versions: list[list[str]]) -> str:
    if found is None:
        return "nothing"
    return "the old page" if found == versions[0][other] else "something else than the page"


def _same_imports(nodes: Nodes, view: View) -> list[Check]:
    """All nodes have the same modules. Where none has any, nothing is claimed; a limit is not shown to be kept then."""
    told = {rank.where: found.imports.found for rank, found in nodes if found.imports is not None}
    kinds, wanted = sorted(set(told.values())), ", ".join(view.expect["imports"])
    references = tuple(view.evidence.ref(rank.file) for rank, _ in nodes)
    claim = "a fresh interpreter finds the same modules on every node"
    if kinds == [()]:
        limit = view.expect["max_import_s"]
        nothing = unproved(
            "storage.imports", claim, expected=f"{wanted} within {limit:g} s", actual="not there on any node",
            evidence=references, next_action="name in storage.imports what training imports on these nodes",
        ) if limit is not None else None  # fmt: skip
        return [nothing] if nothing else []
    words = [f"{', '.join(kind) or 'nothing'}: {shorten([n for n in told if told[n] == kind], 3)}" for kind in kinds]
    return [
        decide(
            "storage.imports",
            claim,
            len(kinds) == 1 and len(told) == view.expect["nodes"],
            expected=f"of {wanted}, the same everywhere",
            actual=f"all import {', '.join(kinds[0])}" if len(kinds) == 1 else "; ".join(words),
            evidence=references,
            next_action="the environments differ: see the rung sync, `environment` of the cluster file, and `python`",
        )
    ]


def _peers(what: str, figures: dict[str, float], nodes: Nodes, view: View, names: Mapping[str, str]) -> list[Check]:
    """One check where there are enough nodes to compare, and comparing is wanted."""
    share = float(view.expect["min_peer_share"])
    found = compare(figures, share, less_is_better=what == IMPORT) if share else None
    if found is None:
        return []
    unit = UNITS_OF[what]
    bad = [f"{name}: {figures[name]:.4g} {unit}" for name in found.slow]
    worst = (max if what == IMPORT else min)(figures, key=lambda name: figures[name])
    rule = "median / min_peer_share" if what == IMPORT else "min_peer_share × median"
    files = [rank.file for rank, _ in nodes if rank.where in found.slow] or [rank.file for rank, _ in nodes]
    check = decide(
        f"storage.herd.{what}",
        f"while all {len(figures)} nodes {_does(what, nodes)}, none is left behind by the others",
        not bad,
        expected=f"{'≤' if what == IMPORT else '≥'} {found.limit:.4g} {unit}; median {found.median:.4g}",
        actual=shorten(bad) or f"slowest: {worst}: {figures[worst]:.4g} {unit}",
        evidence=tuple(view.evidence.ref(name) for name in files),
        derivation=f"{found.limit:.4g} = {rule} = {share:g} and {found.median:.4g} {unit} of {len(figures)} nodes; "
        + _how(what, nodes),
        next_action=f"on {shorten(list(found.slow))}: mount options, link rate and errors to the storage, what else runs there; "
        "compare with a node that is not named",
    )
    hosts = [rank.report.host for rank, _ in nodes if rank.where in found.slow]
    return [check.model_copy(update={"nodes": tuple(names[host] for host in hosts if host in names)})]


def _limits(what: str, figures: dict[str, float], nodes: Nodes, view: View) -> list[Check]:
    """A check for each node where the ladder declares a limit."""
    limit = view.expect["max_import_s"] if what == IMPORT else view.expect["min_herd"].get(what)
    if limit is None:
        return []
    key = "max_import_s" if what == IMPORT else f"min_herd.{what}"
    return [
        decide(
            f"storage.rank{rank.rank}.herd_{what}",
            f"while all nodes {_does(what, nodes)}, {rank.where} keeps to {limit:g} {UNITS_OF[what]}",
            figures[rank.where] <= limit if what == IMPORT else figures[rank.where] >= limit,
            expected=limit,
            actual=round(figures[rank.where], 3),
            unit=UNITS_OF[what],
            evidence=(view.evidence.ref(rank.file),),
            derivation=f"{key} of the ladder, {'at most' if what == IMPORT else 'at least'}; " + _how(what, nodes),
            next_action="see who else uses the storage (nfsiostat, iostat -x), then the network path to its server",
        )
        for rank, _ in nodes
    ]


def _does(what: str, nodes: Nodes) -> str:
    """In words; of modules, those that some node found: one that is on none was not imported."""
    verbs = {"write": "write", "read": "read", "create": "make files", "stat": "open files", "unlink": "remove files"}
    found = dict.fromkeys(module for _, told in nodes if told.imports for module in told.imports.found)
    return verbs.get(what) or f"import {', '.join(found)}"


def _how(what: str, nodes: Nodes) -> str:
    """How a figure came about, as to caches."""
    if what == "read":
        ways = sorted({each.read.how for _, told in nodes for each in told.rounds})
        return f"better of {ROUNDS} rounds, read " + " or ".join(HOW[way] for way in ways)
    if what == IMPORT:
        return "from an interpreter's start to its end, after the kernel was advised to forget the files (fadvise)"
    return f"better of {ROUNDS} rounds" + (", fsync included" if what == "write" else "")


def herd_details(nodes: Nodes, view: View) -> dict[str, Any]:
    """For the report: each node's figures, those of one node alone, the herd's share of it, and what was not judged."""
    figures = figures_of(nodes)
    alone = _alone(nodes)
    rows = [
        {"host": rank.report.host, "rank": rank.rank, **{what: _round(f[rank.where]) for what, f in figures.items()}}
        for rank, _ in nodes
    ]
    return {
        "units": UNITS_OF,
        "nodes": rows,
        "alone": {what: _round(value) for what, value in alone.items()},
        "share_of_alone": {what: _round(_share(what, figures, nodes, alone)) for what in alone if what in figures},
        "stream_bytes": nodes[0][1].stream_bytes,
        "free_bytes": nodes[0][1].free_bytes,
        "read": sorted({HOW[each.read.how] for _, told in nodes for each in told.rounds}),
        "note": _note(figures, view),
    }


def _alone(nodes: Nodes) -> dict[str, float]:
    if any(told.stopped is not None for _, told in nodes):
        return {}
    first = nodes[0][1]
    found = {what: first.alone.rate(what) for what in (*STREAMS, *FILES)} if first.alone else {}
    if first.imports and first.imports.alone_s and first.imports.found:
        found[IMPORT] = first.imports.alone_s
    return found


def _share(what: str, figures: dict[str, dict[str, float]], nodes: Nodes, alone: dict[str, float]) -> float:
    """Of the same node's rate alone, what is left while all work; for seconds, alone over herd."""
    herd = figures[what][nodes[0][0].where]
    return alone[what] / herd if what == IMPORT else herd / alone[what]


def _note(figures: dict[str, dict[str, float]], view: View) -> str:
    count = view.expect["nodes"]
    notes = []
    if count < FEWEST:
        notes.append(f"{count} node{'s' if count > 1 else ''}: too few to compare with each other (from {FEWEST} on)")
    elif not view.expect["min_peer_share"]:
        notes.append("min_peer_share: 0, so nodes are not compared with each other")
    if not view.expect["min_herd"] and count < FEWEST:
        notes.append("the ladder declares no floor (min_herd): rates are recorded, not judged")
    if view.expect["imports"] and IMPORT not in figures:
        notes.append(f"no import time: {', '.join(view.expect['imports'])} not there")
    return "; ".join(notes)


def _round(value: float) -> float:
    return float(f"{value:.4g}")


def herd_measurements(nodes: Nodes, fingerprint: Fingerprint) -> list[Measurement]:
    """A row for each figure of each node, and for the one node alone."""
    figures, alone = figures_of(nodes), _alone(nodes)
    count, digest = len(nodes), fingerprint.content_digest()
    rows = [(what, value, where, count) for what, per_node in figures.items() for where, value in per_node.items()]
    rows += [(what, value, nodes[0][0].where, 1) for what, value in alone.items()]
    hosts = {rank.where: rank.report.host for rank, _ in nodes}
    return [
        Measurement(
            metric=f"herd_{what}", value=value, unit=UNITS_OF[what], world_size=at_once,
            size_bytes=nodes[0][1].stream_bytes if what in STREAMS else None,
            labels={"host": hosts[where], "nodes_at_once": str(at_once)}, fingerprint=digest,
        )
        for what, value, where, at_once in rows
    ]  # fmt: skip


def herd_words(nodes: Nodes) -> str:
    """For the summary: how the slowest node did while all worked, and an import."""
    figures = figures_of(nodes)
    words = []
    if "create" in figures:
        words.append(f"{min(figures['create'].values()):.0f} files/s made")
    if IMPORT in figures:
        words.append(f"import {max(figures[IMPORT].values()):.1f} s")
    return ", ".join(words)
