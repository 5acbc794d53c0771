"""Mesh: as many ranks as were asked for, each on what is its own, find each other and compute together."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import Field

from surefoot.benchmarks.ddp_step import expected_step, seed_of
from surefoot.benchmarks.mesh import ClockRound, Trail
from surefoot.benchmarks.mesh_steps import digest_text, summed_values
from surefoot.errors import EvidenceError
from surefoot.model.base import Record
from surefoot.model.check import Check
from surefoot.model.ladder import Mesh as MeshSpec
from surefoot.model.run import JobsStep, Judgement
from surefoot.numbers import parse
from surefoot.rungs.base import Asked, PlanContext, Rung, View, layout
from surefoot.rungs.found_network import Network, asked, network_checks, network_details
from surefoot.rungs.judging import RankData, Said, decide, said, shorten, summed_up
from surefoot.rungs.mesh_log import environment_of, log_checks
from surefoot.rungs.mesh_ranks import Mesh as Seen
from surefoot.rungs.mesh_ranks import at_fault, misplaced_ranks, rank_checks
from surefoot.rungs.nccl_checks import LOG_ENVIRONMENT, network_asked, wants_sockets
from surefoot.rungs.step_values import StepValues, problems, refuse_misshapen
from surefoot.rungs.threads import cpus_per_rank

JOB = "mesh"


class Summed(Record):
    """What the all-reduce of known data gave a rank."""

    first: tuple[int, ...]
    digest: str = Field(pattern="^[0-9a-f]{64}$")


class Meshed(RankData, Network):
    """What ``surefoot.node.mesh`` reports when all of it went well. Facts as in its trail."""

    took_s: dict[str, float]
    affinity: dict[str, Any]
    limits: dict[str, Any]
    binding: dict[str, str]
    step: StepValues
    summed: Summed
    clocks: tuple[ClockRound, ...]
    near: dict[str, Any] | None
    peers: tuple[int, ...] | None


@dataclass(frozen=True)
class Facts:
    """Trails of all ranks that left one, and the reports of all where all went well."""

    seen: Seen
    ranks: tuple[Said[Meshed], ...]


class Mesh(Rung[MeshSpec, Facts]):
    """N nodes × R ranks, from the first word to a common last one."""

    name: ClassVar[str] = "mesh"
    title: ClassVar[str] = "Mesh"
    proves: ClassVar[str] = (
        "As many ranks as were asked for start, each on a device of its own, find each other, and compute together."
    )
    uses: ClassVar[tuple[str, ...]] = ("cluster", "package")

    def plan(self, context: PlanContext[MeshSpec]) -> Asked:
        where = layout(context.cluster, context.spec, collective=True)
        backend = where.backend if context.spec.backend == "auto" else context.spec.backend
        request: dict[str, Any] = {
            "device": where.device,
            "backend": backend,
            "init_timeout_s": min(120.0, context.spec.time_limit_s / 3),
            "seed": seed_of(context.nonce),
            "environment": asked(context.needs),
        }
        debug = LOG_ENVIRONMENT if backend == "nccl" else {}
        cpus = cpus_per_rank(context.cluster, where)
        job = context.job(JOB, "surefoot.node.mesh", request, where, cpus_per_rank=cpus, exclusive=True, env=debug)
        expect = {
            "nodes": where.nodes,
            "ranks_per_node": where.ranks_per_node,
            "world_size": where.world_size,
            "device": where.device,
            "backend": backend,
            "seed": request["seed"],
            "max_clock_offset_s": context.spec.max_clock_offset_s,
            "sockets": wants_sockets(context.cluster),
            "network": network_asked(context.cluster),
        }
        return Asked(steps=(JobsStep(jobs=(job,)),), expect=expect)

    def read(self, view: View) -> Facts:
        trails = _trails(view)
        whole = len(trails) == view.expect["world_size"] and all(trail.finished for trail in trails.values())
        # Ranks in a wrong place are told from their trails; nothing that they report is as it was asked for.
        whole = whole and not misplaced_ranks(trails, view.expect["ranks_per_node"])
        ranks = said(view.evidence, JOB, Meshed) if whole else ()
        for rank in ranks:
            refuse_misshapen(rank.data.step, view.expect["world_size"], rank.file)
            if (trails[rank.rank].host, trails[rank.rank].pid) != (rank.report.host, rank.report.pid):
                raise EvidenceError("is of another process than the trail of this rank", file=rank.file)
        return Facts(Seen(trails, {r.rank: r.data.clocks for r in ranks}), ranks)

    def judge(self, facts: Facts, view: View) -> Judgement:
        if view.expect["seed"] != seed_of(view.plan.nonce):
            raise EvidenceError("the seed is not that of this attempt", file="plan.json")
        checks = rank_checks(facts.seen, view)
        if view.expect["backend"] == "nccl" and facts.seen.trails:
            checks += log_checks(dict(facts.seen.trails), view)
        if facts.ranks:
            checks += [_backend(facts, view), _step(facts, view), _all_reduce(facts, view)]
            checks += network_checks("mesh", JOB, facts.ranks, view)
        world = view.expect["world_size"]
        shape = f"{view.expect['nodes']} × {view.expect['ranks_per_node']} ranks over {view.expect['backend']}"
        rows = [_row(trail) for trail in facts.seen.trails.values()]
        return Judgement(
            checks=tuple(checks),
            summary=summed_up(checks, f"{shape}: all {world} meet and compute together", anyway=shape),
            details={"ranks": rows, "network": network_details(JOB, facts.ranks, view)},
        )


def _trails(view: View) -> dict[int, Trail]:
    """Rank → its trail, of those that left one. Raises EvidenceError for one that is not of this attempt's job."""
    job_id = view.evidence.json(f"raw/{JOB}/job.json").get("id")
    trails = {}
    for rank in range(view.expect["world_size"]):
        name = f"raw/{JOB}/trail-{rank}.json"
        if name not in view.evidence:
            continue
        trail = view.evidence.record(Trail, name)
        if (trail.rank, trail.nonce, trail.job_id) != (rank, view.plan.nonce, job_id):
            raise EvidenceError(f"is of rank {trail.rank} of job {trail.job_id}, not {rank} of {job_id}", file=name)
        if trail.world_size != view.expect["world_size"]:
            raise EvidenceError(f"is of a world of {trail.world_size} ranks", file=name)
        _refuse_odd_facts(trail.facts, name)
        trails[rank] = trail
    return trails


def _refuse_odd_facts(facts: dict[str, Any], file: str) -> None:
    """Raises EvidenceError where what is looked into is not what a rank writes."""
    for key in ("affinity", "network", "near"):
        if not isinstance(facts.get(key), dict | None):
            raise EvidenceError(f"facts.{key} is {str(facts[key])[:100]!r}, not an object", file=file)
    if (near := facts.get("near")) is None:
        return
    beside, own = near.get("cpus"), (facts.get("affinity") or {}).get("cpus")
    if not isinstance(beside, dict) or not (beside.get("value") is None or _lists_numbers(beside["value"])):
        raise EvidenceError(f"facts.near.cpus is {str(beside)[:100]!r}, no fact of CPUs", file=file)
    if not _lists_numbers(own):
        raise EvidenceError(f"facts.affinity.cpus is {str(own)[:100]!r}, no list of CPUs", file=file)


def _lists_numbers(text: Any) -> bool:
    try:
        return isinstance(text, str) and parse(text) is not None
    except ValueError:
        return False


def _backend(facts: Facts, view: View) -> Check:
    wanted = view.expect["backend"]
    other = sorted({rank.data.step.backend for rank in facts.ranks} - {wanted})
    return decide(
        "mesh.backend",
        f"every rank communicated over {wanted}",
        not other,
        expected=wanted,
        actual=", ".join(other) or wanted,
        evidence=tuple(view.evidence.ref(r.file, text=r.data.step.backend) for r in facts.ranks),
        next_action="PyTorch fell back to another backend: see whether its build has NCCL",
    )


def _step(facts: Facts, view: View) -> Check:
    step = expected_step(view.expect["seed"], view.expect["world_size"])
    found = [(rank, words) for rank in facts.ranks if (words := problems(rank.data.step, step))]
    wrong = [f"{rank.where}: {', '.join(words)}" for rank, words in found]
    digests = {rank.data.step.parameter_digest for rank in facts.ranks}
    if len(digests) > 1:
        wrong.append(f"{len(digests)} different models after the step")
    return decide(
        "mesh.step",
        "a DDP step gives every rank the loss, gradient and parameters that arithmetic says",
        not wrong,
        expected=f"sum of losses {step.loss_sum:.6f}",
        actual=shorten(wrong)
        or f"sum of losses {facts.ranks[0].data.step.loss_sum:.6f} on all {len(facts.ranks)} ranks",
        evidence=tuple(
            view.evidence.ref(rank.file, text=f"loss_sum {rank.data.step.loss_sum}") for rank in facts.ranks
        ),
        derivation="Linear(10, 10), mean squared error, SGD, worked out in plain Python from the attempt's seed",
        next_action="the all-reduce or the arithmetic of that rank is wrong: the rungs ddp, collectives and compute say which",
        nodes=at_fault((rank.rank for rank, _ in found), facts.seen, view),
    )


def _all_reduce(facts: Facts, view: View) -> Check:
    expected = summed_values(view.expect["seed"], view.expect["world_size"])
    digest = hashlib.sha256(digest_text(expected).encode()).hexdigest()
    others = [rank for rank in facts.ranks if rank.data.summed.digest != digest]
    wrong = [f"{rank.where}: begins {list(rank.data.summed.first)}" for rank in others]
    return decide(
        "mesh.all_reduce",
        "the all-reduce of known data gives every rank the exact sum",
        not wrong,
        expected=f"{len(expected)} whole numbers, beginning {expected[:8]}",
        actual=shorten(wrong) or f"the same on all {len(facts.ranks)} ranks",
        evidence=tuple(view.evidence.ref(rank.file, text=rank.data.summed.digest) for rank in facts.ranks),
        derivation="whole numbers up to 1024 from the attempt's seed; their float32 sums are exact",
        next_action="data was changed on its way: run compute-sanitizer or the collectives rung with validation, look at "
        "ECC and link error counters of the nodes named",
        nodes=at_fault((rank.rank for rank in others), facts.seen, view),
    )


def _row(trail: Trail) -> dict[str, Any]:
    device = trail.facts.get("device") or {}
    ended = {entry.phase.value: round(entry.took_s, 3) for entry in trail.phases if entry.took_s is not None}
    affinity = trail.facts.get("affinity") or {}
    return {
        "rank": trail.rank,
        "host": trail.host,
        "local_rank": trail.local_rank,
        "device": device.get("name") or device.get("kind"),
        "uuid": device.get("uuid"),
        "cpus": affinity.get("cpus"),
        "environment": environment_of(trail),
        "stands": "complete" if trail.finished else trail.stands.value,
        "took_s": ended,
    }


RUNG = Mesh()
