"""Storage: what a rank writes is on the shared storage, whole, for every rank."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field

from surefoot.errors import EvidenceError
from surefoot.model.base import Record
from surefoot.model.check import Check
from surefoot.model.ladder import Storage as StorageSpec
from surefoot.model.measurement import Fingerprint, Measurement
from surefoot.model.run import JobsStep, Judgement
from surefoot.model.status import Status
from surefoot.rungs.base import Asked, Layout, PlanContext, Rung, View, layout
from surefoot.rungs.judging import ONE_CLOCK_S, RankData, Said, blamed, decide, said, shorten, unproved
from surefoot.rungs.precheck import fingerprint_below, names_below
from surefoot.rungs.storage_herd import (
    Herd,
    Nodes,
    herd_details,
    herd_measurements,
    herd_words,
    judge_herd,
    plan_herd,
    read_herd,
)
from surefoot.units import format_size

FSYNCS = 16
"""Small writes whose fsync is timed."""
VERSIONS = 200
"""Versions that are put under one name while the others read it."""
CACHE_NOTE = (
    "on one node reads may come from the page cache: the kernel is asked to drop the file's pages, which is advice"
)


class Written(Record):
    """One file written: only the write and fsync calls are timed."""

    bytes: int = Field(ge=1)
    sha256: str = Field(pattern="^[0-9a-f]{64}$")
    write_s: float = Field(gt=0)
    fsync_s: float = Field(gt=0)


class ReadBack(Record):
    """The right neighbour's file read."""

    owner: int
    bytes: int = Field(ge=1)
    sha256: str = Field(pattern="^[0-9a-f]{64}$")
    read_s: float = Field(gt=0)


class Renaming(Record):
    """Rank 0's part of the rename test."""

    renames: int


class Watching(Record):
    """The other ranks' part: what each read of the renamed name gave."""

    reads: int = Field(ge=0)
    whole: int = Field(ge=0)
    mixed: int = Field(ge=0)
    partial: int = Field(ge=0)
    missing: int = Field(ge=0)
    stale: int = Field(ge=0)
    versions_seen: tuple[int, ...]
    backwards: int = Field(ge=0)
    last: int


class Stored(RankData):
    """What ``surefoot.node.storage`` reports."""

    scratch: str
    write: Written
    read: ReadBack | None
    """None: the neighbour's file was never seen."""
    stat_bytes: int
    fsync_s: tuple[float, ...] = Field(min_length=1)
    seen: dict[str, str | None]
    renaming: Renaming | None = None
    watching: Watching | None = None
    others_done: bool | None = None
    removed: bool | None = None
    herd: Herd | None = None
    """On the first rank of each node."""


Facts = tuple[Said[Stored], ...]


class Storage(Rung[StorageSpec, Facts]):
    """Every rank writes, reads, and looks at the others' files."""

    name: ClassVar[str] = "storage"
    title: ClassVar[str] = "Storage"
    proves: ClassVar[str] = "Shared storage keeps what is written, renames atomically, and every rank sees it."
    uses: ClassVar[tuple[str, ...]] = ("cluster", "package")

    def plan(self, context: PlanContext[StorageSpec]) -> Asked:
        spec = context.spec
        ranks = layout(context.cluster, spec, collective=True, computes=False)
        where = Layout(ranks.nodes, ranks.ranks_per_node, "cpu")
        scratch = str(context.root.scratch(context.run_id, context.nonce))
        asked, herd = plan_herd(spec, where)
        request: dict[str, Any] = {
            "scratch": scratch,
            "file_size": spec.file_size,
            "fsyncs": FSYNCS,
            "versions": VERSIONS,
            # Longer than an NFS client's attribute cache (60 s), shorter than the job.
            "wait_s": min(120.0, spec.time_limit_s / 3),
            **asked,
        }
        job = context.job("storage", "surefoot.node.storage", request, where, exclusive=True)
        expect = {
            "world_size": where.world_size,
            "scratch": scratch,
            "file_size": spec.file_size,
            "fsyncs": FSYNCS,
            "versions": VERSIONS,
            "min_write_mb_s": spec.min_write_mb_s,
            "min_read_mb_s": spec.min_read_mb_s,
            **herd,
        }
        return Asked(steps=(JobsStep(jobs=(job,)),), expect=expect)

    def read(self, view: View) -> Facts:
        ranks = said(view.evidence, "storage", Stored)
        for rank in ranks:
            first = rank.rank == 0
            there = (rank.data.renaming is not None, rank.data.removed is not None, rank.data.watching is None)
            if there != (first, first, first):
                raise EvidenceError("does not hold this rank's part of the rename test", file=rank.file)
            if rank.data.scratch != view.expect["scratch"]:
                raise EvidenceError(f"worked in {rank.data.scratch}, not where it was asked", file=rank.file)
            if len(rank.data.fsync_s) != view.expect["fsyncs"] or min(rank.data.fsync_s) <= 0:
                raise EvidenceError(f"wants {view.expect['fsyncs']} positive times of fsync", file=rank.file)
            per_node = view.expect["ranks_per_node"]
            if (rank.data.herd is not None) != (rank.rank % per_node == 0):
                raise EvidenceError("does not hold this rank's part of the herd", file=rank.file)
            if rank.data.herd is not None:
                read_herd(rank.rank // per_node, rank.data.herd, rank.file, view)
            read_s = (rank.data.read.read_s if rank.data.read else 0.0) + (
                rank.data.herd.timed_s if rank.data.herd else 0
            )
            timed = sum(rank.data.fsync_s) + rank.data.write.write_s + rank.data.write.fsync_s + read_s
            if timed > rank.report.ended_at - rank.report.started_at + ONE_CLOCK_S:
                raise EvidenceError("its times add up to more than it ran", file=rank.file)
        return ranks

    def judge(self, facts: Facts, view: View) -> Judgement:
        checks = []
        for rank in facts:
            owner = facts[(rank.rank + 1) % len(facts)]
            checks += [_round_trip(rank, owner, view), _rate(rank, view, "write"), _rate(rank, view, "read")]
            checks.append(_sees_others(rank, view))
        names = names_below(view)
        checks = _few_at_fault(checks, facts, names)
        nodes: Nodes = [(rank, rank.data.herd) for rank in facts if rank.data.herd is not None]
        checks += [_distinct_content(facts, view), _renames(facts, view), *judge_herd(nodes, view, names)]
        checks.append(_leaves_nothing(facts, view))
        fingerprint = fingerprint_below(view, file_size=str(view.expect["file_size"]), world_size=str(len(facts)))
        slowest = {name: _least([_mb_s(rank, name) for rank in facts]) for name in ("write", "read")}
        latency = statistics.median(t for rank in facts for t in rank.data.fsync_s) * 1e3
        return Judgement(
            checks=tuple(checks),
            measurements=(*_measurements(facts, fingerprint), *herd_measurements(nodes, fingerprint)),
            fingerprint=fingerprint,
            summary=f"write {slowest['write']} MB/s, read {slowest['read']} MB/s per rank, fsync {latency:.1f} ms"
            + (f"; {words}" if (words := herd_words(nodes)) else ""),
            details={
                "ranks": [_row(rank) for rank in facts],
                "note": CACHE_NOTE,
                "herd": herd_details(nodes, view),
            },
        )


def _few_at_fault(checks: list[Check], facts: Facts, names: Mapping[str, str]) -> list[Check]:
    """Checks of one rank's rates and of what it sees, with its node where not all ranks fail in it.

    Otherwise it is the storage, not a node. `names`: host → what the pre-check below says that the scheduler calls it; a host without one is not named.
    """
    node_of = {f"storage.rank{rank.rank}": names.get(rank.report.host) for rank in facts}
    failed = Counter(check.id.rpartition(".")[2] for check in checks if check.status is Status.FAILED)
    return [
        blamed([check], node)[0]
        if (kind := check.id.rpartition(".")[2]) != "round_trip"
        and failed[kind] < len(facts)
        and (node := node_of[check.id.rpartition(".")[0]])
        else check
        for check in checks
    ]


def _mb_s(rank: Said[Stored], direction: str) -> float | None:
    """Decimal MB/s, computed from bytes and seconds. Writing includes its fsync. None: nothing was read."""
    if direction == "write":
        return rank.data.write.bytes / (rank.data.write.write_s + rank.data.write.fsync_s) / 1e6
    read = rank.data.read
    return read.bytes / read.read_s / 1e6 if read else None


def _least(rates: list[float | None]) -> str:
    """The slowest rank's rate in words; ``-`` where one was not measured."""
    known = [rate for rate in rates if rate is not None]
    return f"{min(known):.0f}" if len(known) == len(rates) else "-"


def _round_trip(rank: Said[Stored], owner: Said[Stored], view: View) -> Check:
    """What `rank` read of its right neighbour's file is what that one says it wrote."""
    size, read, wrote = view.expect["file_size"], rank.data.read, owner.data.write
    sizes = {rank.data.stat_bytes, wrote.bytes, *([read.bytes] if read else [])}
    if read is None:
        problem = "never seen"
    elif read.owner != owner.rank:
        problem = f"read the file of rank {read.owner}"
    elif sizes != {size}:
        problem = f"sizes {sorted(sizes)}"
    else:
        problem = "" if read.sha256 == wrote.sha256 else "another digest came back"
    found = problem or f"{size} bytes, sha256 {wrote.sha256}"
    return decide(
        f"storage.rank{rank.rank}.round_trip",
        f"{rank.where} reads the {format_size(size)} that {owner.where} wrote",
        not problem,
        expected=wrote.sha256,
        actual=problem or wrote.sha256,
        evidence=(view.evidence.ref(rank.file, text=found), view.evidence.ref(owner.file, text=wrote.sha256)),
        next_action="storage returned other data than it took, or not at all: compare `df` on both nodes, "
        "then read the server's and the kernel's log",
    )


def _rate(rank: Said[Stored], view: View, direction: str) -> Check:
    floor, found = float(view.expect[f"min_{direction}_mb_s"]), _mb_s(rank, direction)
    identifier, claim = (
        f"storage.rank{rank.rank}.{direction}_rate",
        f"{rank.where} {direction}s at {floor:g} MB/s or more",
    )
    if found is None:
        return unproved(
            identifier, claim, expected=floor, unit="MB/s", evidence=(view.evidence.ref(rank.file, text="read: null"),),
            next_action="it read nothing: see the round trip",
        )  # fmt: skip
    return decide(
        identifier,
        claim,
        found >= floor,
        expected=floor,
        actual=round(found, 1),
        unit="MB/s",
        evidence=(view.evidence.ref(rank.file, text=f"{direction} {found:.1f} MB/s"),),
        derivation=f"min_{direction}_mb_s of the ladder" + ("" if direction == "write" else f"; {CACHE_NOTE}"),
        next_action="see who else uses the storage (nfsiostat, iostat -x), then the network path to its server",
    )


def _sees_others(rank: Said[Stored], view: View) -> Check:
    world, nonce = view.expect["world_size"], view.plan.nonce
    wanted = {str(other): f"{nonce}:{other}\n" for other in range(world)}
    seen = rank.data.seen
    wrong = [
        f"rank {k}: {'never seen' if seen.get(k) is None else 'other content'}"
        for k in wanted
        if seen.get(k) != wanted[k]
    ]
    wrong += [f"rank {k}: there is no such rank" for k in sorted(set(seen) - set(wanted))]
    reference = view.evidence.ref(rank.file, text=shorten(wrong) or f"files of {world} ranks")
    claim = f"{rank.where} sees what every rank wrote"
    identifier = f"storage.rank{rank.rank}.sees_all"
    action = "the ranks do not share one file system there, or its client caches longer than two minutes: compare `df` on the nodes"
    if world < 2:
        return unproved(
            identifier, claim, evidence=(reference,), expected="≥ 2 ranks", actual=world,
            next_action="one rank cannot show what others see: set ranks_per_node or nodes to 2 or more",
        )  # fmt: skip
    return decide(
        identifier, claim, not wrong, expected=world, actual=shorten(wrong) or world, unit="ranks' files",
        evidence=(reference,), next_action=action,
    )  # fmt: skip


def _distinct_content(facts: Facts, view: View) -> Check:
    digests = {rank.data.write.sha256 for rank in facts}
    return decide(
        "storage.distinct",
        "every rank wrote content of its own",
        len(digests) == len(facts) == view.expect["world_size"],
        expected=len(facts),
        actual=len(digests),
        unit="contents",
        evidence=tuple(view.evidence.ref(rank.file, text=rank.data.write.sha256) for rank in facts),
        derivation="content is made from nonce and rank, so equal digests mean that reports were mixed up",
        next_action="run the rung again",
    )


def _renames(facts: Facts, view: View) -> Check:
    versions = view.expect["versions"]
    references = tuple(view.evidence.ref(rank.file) for rank in facts)
    claim = f"while one rank renamed {versions} versions over one name, the others read a whole version every time"
    watchers = [(rank, rank.data.watching) for rank in facts if rank.data.watching is not None]
    if not watchers:
        return unproved(
            "storage.rename", claim, evidence=references, expected="a reader", actual="no other rank",
            next_action="one rank cannot show it: set ranks_per_node or nodes to 2 or more",
        )  # fmt: skip
    writer = facts[0].data.renaming
    problems = [] if writer is not None and writer.renames == versions - 1 else ["not every version was renamed"]
    for rank, seen in watchers:
        problems += [f"{rank.where}: {text}" for text in _seen_problems(seen, versions)]
    reads = sum(seen.whole for _, seen in watchers)
    return decide(
        "storage.rename",
        claim,
        not problems,
        expected="only whole versions, the last one at the end",
        actual=shorten(problems) or f"{reads} whole of {sum(seen.reads for _, seen in watchers)} reads",
        evidence=references,
        derivation="POSIX rename replaces a name at once; checkpoints and done.json rely on it",
        next_action="this file system breaks atomic rename across clients: put the shared root on another (NFSv4, Lustre, GPFS)",
    )


def _seen_problems(seen: Watching, versions: int) -> list[str]:
    """What contradicts atomic renames. A stale NFS handle is an error that says so, no wrong content."""
    problems = []
    for kind in ("mixed", "partial", "missing"):
        count = getattr(seen, kind)
        if count:
            problems.append(f"{count} × {kind}")
    if seen.whole < 1 or seen.reads != seen.whole + seen.mixed + seen.partial + seen.missing + seen.stale:
        problems.append(f"{seen.reads} reads do not add up")
    if seen.backwards:
        problems.append(f"went back to an older version {seen.backwards} times")
    ascending = list(seen.versions_seen) == sorted(set(seen.versions_seen))
    enough = 0 < len(seen.versions_seen) <= seen.whole
    if not ascending or not enough or seen.versions_seen[0] < 0 or seen.versions_seen[-1] != seen.last:
        problems.append("the versions seen do not add up")
    if seen.last != versions - 1:
        problems.append(f"version {seen.last} was the last it saw, {versions - 1} was the last there is")
    return problems


def _leaves_nothing(facts: Facts, view: View) -> Check:
    first = facts[0]
    ok = first.data.removed is True and (first.data.others_done is True)
    return decide(
        "storage.cleaned",
        "the scratch folder was removed when every rank was done",
        ok,
        expected="removed",
        actual="removed" if ok else "still there" if first.data.removed is False else "removed before all were done",
        evidence=(
            view.evidence.ref(first.file, text=f"removed {first.data.removed}, others_done {first.data.others_done}"),
        ),
        next_action=f"remove {view.expect['scratch']} by hand; NFS keeps .nfs files while someone has them open",
    )


def _measurements(facts: Facts, fingerprint: Fingerprint) -> tuple[Measurement, ...]:
    rows = []
    common: dict[str, Any] = {"world_size": len(facts), "fingerprint": fingerprint.content_digest()}
    for rank in facts:
        labels = {"rank": str(rank.rank), "host": rank.report.host}
        rows += [
            Measurement(
                metric="bandwidth",
                value=_mb_s(rank, direction),
                unit="MB/s",
                size_bytes=rank.data.write.bytes,
                labels={**labels, "direction": direction},
                **common,
            )
            for direction in ("write", "read")
        ]
        latency = statistics.median(rank.data.fsync_s) * 1e3
        rows.append(Measurement(metric="fsync", value=latency, unit="ms", size_bytes=4096, labels=labels, **common))
    return tuple(rows)


def _rounded(rate: float | None) -> float | None:
    return None if rate is None else round(rate, 1)


def _row(rank: Said[Stored]) -> dict[str, Any]:
    seen = rank.data.watching
    return {
        "rank": rank.rank,
        "host": rank.report.host,
        "write_mb_s": _rounded(_mb_s(rank, "write")),
        "read_mb_s": _rounded(_mb_s(rank, "read")),
        "fsync_ms": round(statistics.median(rank.data.fsync_s) * 1e3, 3),
        "reads_while_renamed": seen.reads if seen else None,
        "versions_seen": len(seen.versions_seen) if seen else None,
        "stale_handles": seen.stale if seen else None,
    }


RUNG = Storage()
