"""Scheduler smoke: ranks are placed as asked, and the scheduler tells how they ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pydantic import Field

from surefoot.errors import EvidenceError
from surefoot.model.check import Check
from surefoot.model.job import ExpectedExit, JobDone, JobSpec
from surefoot.model.ladder import SchedulerSmoke as SchedulerSpec
from surefoot.model.run import JobsStep, Judgement, Step
from surefoot.rungs.base import Asked, Layout, PlanContext, Rung, View, layout
from surefoot.rungs.judging import RankData, Said, decide, said, shorten, summed_up
from surefoot.rungs.scheduler_jobs import job_checks
from surefoot.rungs.scheduler_site import site_checks
from surefoot.rungs.scheduler_slurm import SlurmFacts, read_slurm, slurm_steps

ECHO = "a b  \"c\" 'd' $HOME `e` é; "
"""Blanks, quotes, a dollar, a back-quote, an accent: what an unescaped batch script would break."""
ENDINGS: dict[str, ExpectedExit] = {
    "exit0": ExpectedExit(exit_code=0),
    "exit7": ExpectedExit(exit_code=7),
    "killed": ExpectedExit(exit_code=None, signal=9),
}


class Ended(RankData):
    """What ``surefoot.node.ending`` was asked to do."""

    exit_code: int | None
    signal: int | None


class Placed(RankData):
    """The environment that ``surefoot.node.environment`` found."""

    environment: dict[str, str | None]
    host: str
    pid: int
    cwd: str = Field(min_length=1)
    cpus: tuple[int, ...]
    """CPUs that this rank may run on."""


@dataclass(frozen=True)
class Ending:
    """One of the jobs that only end."""

    name: str
    rank: Said[Ended]
    done: JobDone


@dataclass(frozen=True)
class Printed:
    """What one job left of its ranks' output: every ``.out`` file in its folder, by name."""

    job: str
    id: str
    logs: dict[str, str]
    hosts: dict[str, list[int]]
    """Host → its ranks, by the job's own word."""


@dataclass(frozen=True)
class Facts:
    """Four jobs, read; and what a Slurm site said."""

    endings: tuple[Ending, ...]
    ranks: tuple[Said[Placed], ...]
    printed: tuple[Printed, ...]
    slurm: SlurmFacts | None


class Scheduler(Rung[SchedulerSpec, Facts]):
    """Three jobs that end differently, and one that looks around."""

    name: ClassVar[str] = "scheduler"
    title: ClassVar[str] = "Scheduler smoke"
    proves: ClassVar[str] = "The scheduler places ranks as asked and reports success, failure and death as such."
    uses: ClassVar[tuple[str, ...]] = ("cluster", "package")

    def plan(self, context: PlanContext[SchedulerSpec]) -> Asked:
        one = Layout(1, 1, "cpu")
        jobs = [
            context.job(name, "surefoot.node.ending", end.model_dump(include={"exit_code", "signal"}), one, expect=end)
            for name, end in ENDINGS.items()
        ]
        where = layout(context.cluster, context.spec, collective=True, computes=False)
        echo = ECHO + context.nonce
        jobs.append(
            context.job("environment", "surefoot.node.environment", {}, where, env={"SUREFOOT_ECHO": echo}),
        )
        expect = {"world_size": where.world_size, "nodes": where.nodes, "echo": echo}
        steps: tuple[Step, ...] = (JobsStep(jobs=tuple(jobs)),)
        if context.cluster.scheduler.kind == "slurm":
            steps = slurm_steps(context, jobs)
        return Asked(steps=steps, expect=expect)

    def read(self, view: View) -> Facts:
        endings = []
        for name in ENDINGS:
            done = view.evidence.record(JobDone, f"raw/{name}/done.json")
            endings.append(Ending(name, said(view.evidence, name, Ended)[0], done))
        ranks = said(view.evidence, "environment", Placed)
        printed = tuple(_printed(name, view) for name in (*ENDINGS, "environment"))
        slurm = read_slurm(view) if view.inputs.cluster.scheduler.kind == "slurm" else None
        return Facts(endings=tuple(endings), ranks=ranks, printed=printed, slurm=slurm)

    def judge(self, facts: Facts, view: View) -> Judgement:
        environment = view.evidence.job("environment")
        checks = [_ended(ending, view) for ending in facts.endings]
        checks += [_variables(rank, environment, view) for rank in facts.ranks]
        checks += [_distinct_world(facts.ranks, view), _nodes(facts.ranks, environment, view)]
        checks.append(_rendezvous(facts.ranks, view))
        checks += [_output(printed, view) for printed in facts.printed]
        if facts.slurm is not None:
            checks += [*job_checks(facts.slurm, view), *site_checks(facts.slurm, view)]
        table = [
            {"rank": r.rank, "host": r.data.host, "pid": r.data.pid, "cpus": len(r.data.cpus), "cwd": r.data.cwd}
            for r in facts.ranks
        ]
        hosts = len({rank.data.host for rank in facts.ranks})
        placed = f"{len(facts.ranks)} ranks on {hosts} node{'s' if hosts > 1 else ''}"
        told = "exit 0, 7 and signal 9 told apart"
        if facts.slurm is not None:
            told += f"; Slurm {facts.slurm.config['SLURM_VERSION']}, {len(facts.slurm.ranks)} nodes configured alike"
        return Judgement(
            checks=tuple(checks),
            summary=summed_up(checks, f"{placed}; {told}", anyway=placed),
            details={"ranks": table},
        )


def _words(exit_code: int | None, signal: int | None) -> str:
    return f"signal {signal}" if signal is not None else f"exit code {exit_code}"


def _ended(ending: Ending, view: View) -> Check:
    wanted = ENDINGS[ending.name]
    asked = (ending.rank.data.exit_code, ending.rank.data.signal)
    if asked != (wanted.exit_code, wanted.signal):
        raise EvidenceError(f"says it was asked for {_words(*asked)}", file=ending.rank.file)
    if len(ending.done.ranks) != 1:
        raise EvidenceError(
            f"tells of {len(ending.done.ranks)} ranks, one was asked for", file=f"raw/{ending.name}/done.json"
        )
    came = (ending.done.ranks[0].exit_code, ending.done.ranks[0].signal)
    return decide(
        f"scheduler.{ending.name}",
        f"a rank that ends with {_words(*asked)} comes back as {_words(*asked)}",
        came == asked,
        expected=_words(*asked),
        actual=_words(*came),
        evidence=(view.evidence.ref(f"raw/{ending.name}/done.json", text=str(ending.done.state)),),
        next_action="a wrapper, prolog or epilog hides the exit status: run the job by hand and compare `sacct -o ExitCode`",
    )


def _asked_variables(rank: int, spec: JobSpec, echo: str) -> dict[str, str]:
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank % spec.ranks_per_node),
        "WORLD_SIZE": str(spec.world_size),
        "LOCAL_WORLD_SIZE": str(spec.ranks_per_node),
        "SUREFOOT_ECHO": echo,
    }


def _variables(rank: Said[Placed], spec: JobSpec, view: View) -> Check:
    wanted = _asked_variables(rank.rank, spec, view.expect["echo"])
    found = rank.data.environment
    wrong = [f"{key} is {found.get(key)!r}, not {value!r}" for key, value in wanted.items() if found.get(key) != value]
    if (rank.data.host, rank.data.pid) != (rank.report.host, rank.report.pid):
        wrong.append(
            f"two accounts of who it is: pid {rank.data.pid} on {rank.data.host}, {rank.report.pid} on {rank.report.host}"
        )
    cpus = {cpu for cpu in rank.data.cpus if cpu >= 0}
    if not spec.cpus_per_rank <= len(cpus) == len(rank.data.cpus):
        wrong.append(f"may run on CPUs {list(rank.data.cpus)}, asked for were {spec.cpus_per_rank}")
    return decide(
        f"scheduler.rank{rank.rank}.environment",
        f"{rank.where} has the environment that was asked for, verbatim",
        not wrong,
        expected=", ".join(f"{key}={wanted[key]}" for key in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")),
        actual=shorten(wrong) or "as asked",
        evidence=(view.evidence.ref(rank.file, text=shorten(wrong)),),
        next_action="a site's prolog or the batch script changes the environment: compare `srun env` with the job's env",
    )


def _distinct_world(ranks: tuple[Said[Placed], ...], view: View) -> Check:
    processes = {(rank.data.host, rank.data.pid) for rank in ranks}
    wanted = view.expect["world_size"]
    return decide(
        "scheduler.world_size",
        f"{wanted} ranks ran as {wanted} processes of one job",
        len(processes) == len(ranks) == wanted >= 2,
        expected=wanted,
        actual=len(processes),
        unit="processes",
        evidence=tuple(view.evidence.ref(rank.file, text=f"pid {rank.data.pid} on {rank.data.host}") for rank in ranks),
        derivation="nodes × ranks_per_node; at least two, because one rank shows nothing about placing",
        next_action="set ranks_per_node to 2 or more, or look for a launcher that starts N worlds of one",
    )


def _nodes(ranks: tuple[Said[Placed], ...], spec: JobSpec, view: View) -> Check:
    by_node: dict[int, set[str]] = {}
    for rank in ranks:
        by_node.setdefault(rank.rank // spec.ranks_per_node, set()).add(rank.data.host)
    together = all(len(hosts) == 1 for hosts in by_node.values())
    hosts = {rank.data.host for rank in ranks}
    return decide(
        "scheduler.nodes",
        f"the ranks are spread over {spec.nodes} node(s), {spec.ranks_per_node} on each, in blocks",
        together and len(hosts) == spec.nodes == view.expect["nodes"],
        expected=spec.nodes,
        actual=len(hosts) if together else f"ranks of one node on several hosts: {sorted(hosts)}",
        unit="nodes",
        evidence=tuple(view.evidence.ref(rank.file, text=rank.data.host) for rank in ranks),
        next_action="the scheduler places ranks cyclically or packs nodes: ask for --distribution=block and exact task counts",
    )


def _rendezvous(ranks: tuple[Said[Placed], ...], view: View) -> Check:
    places = {(rank.data.environment.get("MASTER_ADDR"), rank.data.environment.get("MASTER_PORT")) for rank in ranks}
    address, port = next(iter(places))
    number = int(port) if port and port.isascii() and port.isdigit() else 0
    return decide(
        "scheduler.rendezvous",
        "every rank was told the same address and an unprivileged port to meet at",
        len(places) == 1 and bool(address) and 1024 <= number <= 65535,
        expected="one address, one port of 1024–65535",
        actual=f"{address}:{port}" if len(places) == 1 else f"{len(places)} different places",
        evidence=tuple(
            view.evidence.ref(rank.file, text=f"MASTER_PORT={rank.data.environment.get('MASTER_PORT')}")
            for rank in ranks
        ),
        next_action="MASTER_ADDR and MASTER_PORT must be set once for the job, not by each rank",
    )


def _wanted_lines(name: str, view: View) -> list[str]:
    nonce, spec = view.plan.nonce, view.evidence.job(name)
    if name in ENDINGS:
        return [f"surefoot rank 0 of {nonce} ends with {_words(ENDINGS[name].exit_code, ENDINGS[name].signal)}"]
    return [f"surefoot rank {rank} of {nonce} has its environment" for rank in range(spec.world_size)]


def _printed(name: str, view: View) -> Printed:
    done = view.evidence.record(JobDone, f"raw/{name}/done.json")
    logs = {log.name: log.text() for log in view.evidence.under(f"raw/{name}") if log.name.endswith(".out")}
    hosts: dict[str, list[int]] = {}
    if [rank.rank for rank in done.ranks] != list(range(view.evidence.job(name).world_size)):
        raise EvidenceError("does not list each rank once", file=f"raw/{name}/done.json")
    for rank in done.ranks:
        hosts.setdefault(rank.host, []).append(rank.rank)
    return Printed(name, done.id, logs, hosts)


def _output(printed: Printed, view: View) -> Check:
    """One ``<name>-<id>-<host>.out`` of each host, and in it exactly one line of each rank that ran there."""
    name, logs = printed.job, printed.logs
    wanted = {f"raw/{name}/{name}-{printed.id}-{host}.out": ranks for host, ranks in printed.hosts.items()}
    claim = f"job {name!r} kept what its ranks printed, in one file a host, named by job, id and host"
    expected = ", ".join(log.rsplit("/", 1)[1] for log in wanted)
    if set(logs) != set(wanted):
        found = ", ".join(log.rsplit("/", 1)[1] for log in logs) or "no .out file"
        reference = view.evidence.ref(f"raw/{name}/done.json", text=f"id {printed.id}")
        action = "see whether the output pattern %x-%j-%N is set, and whether the folder is on shared storage"
        return decide(
            f"scheduler.{name}.output",
            claim,
            False,
            expected=expected,
            actual=found,
            evidence=(reference,),
            next_action=action,
        )
    lines = _wanted_lines(name, view)
    references, missing = [], []
    for log, ranks in wanted.items():
        rows = logs[log].splitlines()
        missing += [lines[rank] for rank in ranks if rows.count(lines[rank]) != 1]
        first = lines[ranks[0]]
        where = rows.index(first) + 1 if first in rows else None
        references.append(view.evidence.ref(log, line=where, text=first if where else ""))
    return decide(
        f"scheduler.{name}.output",
        claim,
        not missing,
        expected=expected,
        actual=f"not once in it: {missing[0]!r}" if missing else expected,
        evidence=tuple(references),
        next_action="output is lost or doubled between rank and file: look for --output, --label or unbuffered settings",
    )


RUNG = Scheduler()
