"""What the scheduler rung asks of a Slurm site beyond its ranks: steps, and the facts that come back.

In four steps: the head says what it has and leaves it for the nodes; jobs end in every way there is;
one rank on each node looks at its node; the head decodes what the nodes left.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from pydantic import Field

from surefoot.errors import EvidenceError
from surefoot.evidence import EvidenceSet, RankReport, parse_json, parse_record
from surefoot.hostlist import compress
from surefoot.model.base import Record
from surefoot.model.job import ExpectedExit, Job, JobDone, JobSpec, JobState
from surefoot.model.ladder import SchedulerSmoke
from surefoot.model.run import CommandStep, JobsStep, Step
from surefoot.rungs.base import Layout, PlanContext, View, nodes_of
from surefoot.rungs.judging import CLOCK_SLACK_S, OLDEST_TIME, RankData, Said, reported, said
from surefoot.rungs.slurm_view import (
    SHOW_CONFIG,
    SHOW_NODES,
    Answer,
    Config,
    Node,
    config_of,
    named_hosts,
    nodes_of_answer,
)
from surefoot.scheduler.slurm.script import array_elements

HEAD = "raw/head.stdout"
DECODED = "raw/decoded.stdout"
COMMANDS: dict[str, list[str]] = {
    "config": SHOW_CONFIG,
    "nodes": SHOW_NODES,
}
ARRAY = "0-2"
LIMIT_S = 10
"""Of the job that runs into it."""
LONGER_S = 600
"""What jobs would run that are ended before."""
WAIT_S = 60
"""How long a rank waits for another's credential."""


class ConfigurationFile(Record):
    """One file of Slurm's configuration on one host."""

    path: str
    sha256: str | None
    """None: it could not be read, and `error` says why."""
    error: str
    lines: tuple[str, ...] = ()
    """Of the head's: what is shown of it, without secrets."""
    differing: tuple[str, ...] = ()
    """Of a node's: lines that the head has (``-``) and the node (``+``)."""


class Configuration(Record):
    """slurm.conf, what it includes, and the files beside it."""

    found: str
    """How slurm.conf was found."""
    files: dict[str, ConfigurationFile]


class HeadSaid(Record):
    """The document of ``surefoot.node.slurm_head`` before the jobs."""

    nonce: str
    host: str = Field(min_length=1)
    answers: dict[str, Answer]
    configuration: Configuration
    munge: Answer
    clock: float = Field(gt=0)


class HeadDecoded(Record):
    """The document of ``surefoot.node.slurm_head`` after them. Rank → unmunge's answer; None: nothing was left."""

    nonce: str
    host: str = Field(min_length=1)
    answers: dict[str, Answer]
    decoded: dict[str, Answer | None]
    clock: float = Field(gt=0)


class Exchange(Record):
    """Credentials that a node made, and what it made of others'."""

    made: dict[str, Answer]
    head: Answer | None
    others: dict[str, Answer | None]


class Left(Record):
    """A process of a job that has ended."""

    pid: int
    job: str
    command: str


class NodeSaid(RankData):
    """What ``surefoot.node.slurm_node`` reports of its node."""

    node: str = Field(min_length=1)
    """Slurm's name for it."""
    config: Answer
    """``scontrol show config`` as asked there, its first line: the controller's clock."""
    configuration: Configuration
    munge: Exchange
    left_behind: tuple[Left, ...]


class Waited(RankData):
    """What ``surefoot.node.waiting`` reports before it waits."""

    child: int = Field(ge=1)
    seconds: float = Field(gt=0)


@dataclass(frozen=True)
class Ended:
    """A job that the scheduler ended: its rank's report, and its own end where it could tell one."""

    report: RankReport
    file: str
    done: JobDone | None


@dataclass(frozen=True)
class SlurmFacts:
    """Everything that the steps left."""

    head: HeadSaid
    config: Config
    nodes: list[Node]
    ranks: tuple[Said[NodeSaid], ...]
    decoded: HeadDecoded
    elements: dict[int, RankReport]
    ended: dict[str, Ended]


# -- asking


def _within(context: PlanContext[SchedulerSmoke], job: JobSpec, number: int) -> JobSpec:
    """The job on hosts that the cluster file names, where the rung is about all of them: each node gets its turn."""
    hosts = named_hosts(context.cluster)
    if not hosts or nodes_of(context.cluster, context.spec) != len(hosts):
        return job
    mine = hosts if job.nodes == len(hosts) else [hosts[number % len(hosts)]]
    return job.model_copy(update={"hosts": compress(mine)})


def slurm_steps(context: PlanContext[SchedulerSmoke], jobs: list[JobSpec]) -> tuple[Step, ...]:
    """The steps of the rung on a Slurm site; `jobs` are those that it submits anywhere."""
    one = Layout(1, 1, "cpu")
    array = context.job("array", "surefoot.node.ending", {"exit_code": 0, "signal": None}, one)
    jobs = [*jobs, array.model_copy(update={"array": ARRAY})]
    for name, state, limit_s in (("limit", JobState.TIMEOUT, LIMIT_S), ("cancelled", JobState.CANCELLED, None)):
        expect = ExpectedExit(state=state)
        request = {"seconds": LONGER_S}
        jobs.append(
            context.job(name, "surefoot.node.waiting", request, one, expect=expect, time_limit_s=limit_s or LONGER_S)
        )
    jobs = [_within(context, job, number) for number, job in enumerate(jobs)]
    where = Layout(nodes_of(context.cluster, context.spec), 1, "cpu")
    # Not among the evidence: it is there only while the job runs, and what matters of it is printed too.
    left = str(context.root.scratch(context.run_id, context.nonce) / "head.json")
    asked = {"head": left, "jobs": [job.name for job in jobs], "wait_s": min(WAIT_S, context.spec.time_limit_s / 3)}
    looking = _within(context, context.job("nodes", "surefoot.node.slurm_node", asked, where), 0)
    return (
        _on_head(context, looking, "head", {"commands": COMMANDS, "leave": left}),
        JobsStep(jobs=tuple(jobs), cancel=("cancelled",)),
        JobsStep(jobs=(looking,)),
        _on_head(
            context,
            looking,
            "decoded",
            {"commands": {}, "decode": looking.folder, "ranks": where.nodes, "remove": left},
        ),
    )


def _on_head(context: PlanContext[SchedulerSmoke], job: JobSpec, name: str, asked: dict[str, Any]) -> CommandStep:
    """A command on the login host, from the code that was pushed."""
    text = json.dumps({"nonce": context.nonce, **asked})
    env = {key: job.env[key] for key in ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE")}
    argv = (context.python, "-m", "surefoot.node.slurm_head", text)
    return CommandStep(name=name, argv=argv, env=env, timeout_s=min(120, context.spec.time_limit_s))


# -- reading


def read_slurm(view: View) -> SlurmFacts:
    """Raises EvidenceError."""
    evidence = view.evidence
    head = parse_record(HeadSaid, parse_json(evidence.blob(HEAD).text(), file=HEAD), file=HEAD)
    decoded = parse_record(HeadDecoded, parse_json(evidence.blob(DECODED).text(), file=DECODED), file=DECODED)
    ranks = said(evidence, "nodes", NodeSaid)
    for name, document, file in (("head", head.nonce, HEAD), ("decoded", decoded.nonce, DECODED)):
        if document != view.plan.nonce:
            raise EvidenceError(f"{name} answers another attempt's question", file=file)
    _asked_commands(head, ranks)
    if set(decoded.decoded) != {str(rank.rank) for rank in ranks}:
        raise EvidenceError("does not tell of each rank's credential", file=DECODED)
    twice = [rank for rank in ranks if sum(rank.data.node == other.data.node for other in ranks) > 1]
    if twice:
        raise EvidenceError(f"two ranks say that they are on node {twice[0].data.node}", file=twice[-1].file)
    return SlurmFacts(
        head=head,
        config=config_of(head.answers["config"], file=HEAD),
        nodes=nodes_of_answer(head.answers["nodes"], file=HEAD),
        ranks=ranks,
        decoded=decoded,
        elements={number: _element(evidence, number) for number in array_elements(ARRAY)},
        ended={name: _ended(evidence, name) for name in ("limit", "cancelled")},
    )


def _asked_commands(head: HeadSaid, ranks: tuple[Said[NodeSaid], ...]) -> None:
    """Every answer is to the command that was asked. Raises EvidenceError."""
    found = {name: list(answer.argv) for name, answer in head.answers.items()}
    if found != COMMANDS:
        raise EvidenceError(f"answers {found}, asked for were {COMMANDS}", file=HEAD)
    if head.munge.argv[0] != "munge":
        raise EvidenceError("munge: the answer to another command", file=HEAD)
    if "slurm.conf" not in head.configuration.files:
        raise EvidenceError("configuration: says nothing of slurm.conf", file=HEAD)
    for rank in ranks:
        exchange, others = rank.data.munge, {str(other) for other in range(len(ranks))} - {str(rank.rank)}
        wanted = {"head", "all"} if rank.rank == 0 else {"head", "first"}
        partners = others if rank.rank == 0 else {"0"}
        made = set(exchange.made) == wanted and all(answer.argv[0] == "munge" for answer in exchange.made.values())
        told = [exchange.head, *exchange.others.values()]
        could = all(answer.well for answer in exchange.made.values())
        if not made or set(exchange.others) != (partners if could else set()):
            raise EvidenceError(f"munge: made {sorted(exchange.made)}, of {sorted(exchange.others)}", file=rank.file)
        if any(answer is not None and answer.argv[0] != "unmunge" for answer in told):
            raise EvidenceError("munge: the answer to another command", file=rank.file)
        if list(rank.data.config.argv) != COMMANDS["config"]:
            raise EvidenceError("config: the answer to another command", file=rank.file)
        if "slurm.conf" not in rank.data.configuration.files:
            raise EvidenceError("configuration: says nothing of slurm.conf", file=rank.file)


def _report(evidence: EvidenceSet, job: str, element: int | None = None) -> RankReport:
    """The one rank of a job, or of an element of an array. Raises EvidenceError.

    Unlike `said`: a job that others ended may have left no done.json.
    """
    submitted, (report,) = reported(evidence, job, element=element)
    _times_fit(evidence, submitted, report, file=evidence.rank_file(job, 0, element))
    return report


def _times_fit(evidence: EvidenceSet, submitted: Job, report: RankReport, *, file: str) -> None:
    """The rank reported while its job ran, on the host that the job names. Raises EvidenceError."""
    if submitted.submitted_at < OLDEST_TIME:
        raise EvidenceError(f"submitted at {submitted.submitted_at}: no clock says so", file=file)
    name = f"{file.rsplit('/', 1)[0]}/done.json"
    earliest, latest = submitted.submitted_at, report.ended_at
    if name in evidence:
        done = evidence.record(JobDone, name)
        earliest, latest = done.started_at, done.ended_at
        if not submitted.submitted_at - CLOCK_SLACK_S <= done.started_at <= done.ended_at:
            raise EvidenceError("the job's times contradict: submitted ≤ started ≤ ended does not hold", file=name)
        if done.ranks and report.host != done.ranks[0].host:
            raise EvidenceError(f"says host {report.host!r}, and the job {done.ranks[0].host!r}", file=file)
    if not earliest - CLOCK_SLACK_S <= report.started_at <= report.ended_at <= latest + CLOCK_SLACK_S:
        raise EvidenceError(f"the rank's times lie outside its job's; see the clock of {report.host}", file=file)


def _element(evidence: EvidenceSet, number: int) -> RankReport:
    """An element of the array, which did what it was asked. Raises EvidenceError."""
    report = _report(evidence, "array", number)
    if report.data != {"rank": 0, **evidence.job("array").request}:
        raise EvidenceError(
            f"was asked for {evidence.job('array').request}", file=evidence.rank_file("array", 0, number)
        )
    return report


def _ended(evidence: EvidenceSet, name: str) -> Ended:
    """A job that was ended, and what it said before: its done.json is judged by the engine's own check."""
    report, file = _report(evidence, name), evidence.rank_file(name, 0)
    waited = parse_record(Waited, report.data, file=file)
    if waited.rank != 0 or waited.seconds != LONGER_S:
        raise EvidenceError(f"waited {waited.seconds} s as rank {waited.rank}", file=file)
    done = f"raw/{name}/done.json"
    return Ended(report, file, evidence.record(JobDone, done) if done in evidence else None)
