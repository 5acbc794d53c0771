"""Sync's part for clusters whose jobs have an environment of their own: built from the lock, and nothing but the lock."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from surefoot.model.base import Record
from surefoot.model.check import Check, Evidence
from surefoot.model.cluster import Cluster, Environment
from surefoot.model.job import JobSpec
from surefoot.model.ladder import Sync as SyncSpec
from surefoot.model.lock import normalised, parse_lock
from surefoot.paths import EnvironmentPaths, RootPaths
from surefoot.rungs.base import Layout, PlanContext, View
from surefoot.rungs.judging import RankData, Said, decide, shorten
from surefoot.versions import meets_pin

JOB = "environment"
PROGRAM = "surefoot.node.build_environment"


class Ready(Record):
    """``ready.json``: what the builder of an environment wrote last."""

    key: str
    digest: str
    requirements: tuple[str, ...]
    attempt: str
    host: str
    base: str
    started_at: float
    ended_at: float
    python: str
    distributions: tuple[tuple[str, str], ...]
    conflicts: tuple[str, ...]


class Failure(Record):
    """Why there is no environment: the step, what it said, and where that stands in the log."""

    step: str
    text: str
    line: int | None
    advice: str
    log: str


class Built(RankData):
    """What ``surefoot.node.build_environment`` reports."""

    key: str
    outcome: Literal["there", "built", "waited", "failed"]
    ready: Ready | None
    failure: Failure | None

    @property
    def good(self) -> bool:
        """It tells of an environment for its kind of node."""
        return bool(self.key) and self.failure is None and self.ready is not None and self.outcome != "failed"


class Running(Record):
    """Where ``surefoot.node.verify_tree`` ran, and what can be imported there."""

    prefix: str = Field(min_length=1)
    executable: str
    key: str
    ready: Any
    """``ready.json`` of that place as it is now, whatever it holds."""
    distributions: tuple[tuple[str, str], ...]


def environment_request(cluster: Cluster, asked: Environment, root: RootPaths) -> dict[str, Any]:
    """What ``surefoot.node.build_environment`` is asked for: by the rung sync, and by Ansible's role python_runtime."""
    return {
        "folder": str(root.environment(cluster.environment_digest).folder),
        "digest": cluster.environment_digest,
        "python": cluster.python,
        "requirements": list(asked.requirements),
        "index": asked.index,
        "wheels": asked.wheels,
    }


def build_job(context: PlanContext[SyncSpec], asked: Environment, where: Layout) -> JobSpec:
    """The job that builds what is missing. It runs on the cluster's `python`: there may be nothing else yet."""
    request = environment_request(context.cluster, asked, context.root)
    job = context.job(JOB, PROGRAM, request, where, time_limit_s=asked.build_limit_s)
    return job.model_copy(update={"argv": (context.python, "-m", PROGRAM)})


def built_checks(ranks: Sequence[Said[Built]], view: View) -> list[Check]:
    """One check for each kind of node, and one for each rank that could not say its kind."""
    keys = sorted({rank.data.key for rank in ranks if rank.data.key})
    checks = [_built(key, [rank for rank in ranks if rank.data.key == key], view) for key in keys]
    return checks + [_unknown_kind(rank, view) for rank in ranks if not rank.data.key]


def _built(key: str, ranks: list[Said[Built]], view: View) -> Check:
    failures: dict[str, list[str]] = {}
    for rank in ranks:
        if not rank.data.good:
            told = rank.data.failure
            words = f"{told.step}: {told.text}" if told else "no environment, and no reason told"
            failures.setdefault(words, []).append(rank.report.host)
    problems = [f"on {', '.join(hosts)}: {words}" for words, hosts in failures.items()]
    builders = {(r.data.ready.attempt, r.data.ready.host, r.data.ready.ended_at) for r in ranks if r.data.ready}
    builds = [rank.report.host for rank in ranks if rank.data.outcome == "built"]
    if len(builders) > 1 or len(builds) > 1:
        where = sorted({host for _, host, _ in builders} | set(builds))
        problems.append(f"built more than once: on {', '.join(where)}")
    hosts = sorted({rank.report.host for rank in ranks})
    evidence = [view.evidence.ref(rank.file, text=_story(rank)) for rank in ranks]
    evidence += _log_lines(ranks, view)
    advice = next((r.data.failure.advice for r in ranks if r.data.failure and r.data.failure.advice), "")
    return decide(
        f"sync.built.{key}",
        f"there is one environment from the lock for {key} ({shorten(hosts)})",
        not problems,
        expected=_place_of(key, view),
        actual=shorten(problems) or _place_of(key, view),
        evidence=tuple(evidence),
        derivation="built where ready.json was not there, by one rank for each kind of node",
        next_action=advice
        or "see that line of pip's log; correct the lock, index: or wheels: of the cluster file, "
        "then climb with it again. A lock must name wheels that exist for every kind of node",
    )


def _unknown_kind(rank: Said[Built], view: View) -> Check:
    told = rank.data.failure
    return decide(
        f"sync.built.rank{rank.rank}",
        f"{rank.where} can say which kind of node it is",
        ok=False,
        expected="ARCHITECTURE-SYSTEM-pyX.Y",
        actual=f"{told.step}: {told.text}" if told else "no word",
        evidence=(view.evidence.ref(rank.file),),
        next_action=f"install the interpreter there, or name one that every node has as python: (now {view.inputs.cluster.python})",
    )


def _story(rank: Said[Built]) -> str:
    """What a rank tells of its environment, for the reference to its file."""
    ready = rank.data.ready
    if ready is None:
        return f"{rank.report.host}: {rank.data.outcome}"
    return (
        f"{rank.report.host}: {rank.data.outcome}; built on {ready.host} in {ready.ended_at - ready.started_at:.1f} s"
    )


def _log_lines(ranks: Sequence[Said[Built]], view: View) -> list[Evidence]:
    """The lines of pip's logs that failures speak of."""
    found = {}
    for rank in ranks:
        told = rank.data.failure
        name = f"raw/{JOB}/{told.log}" if told and told.log else ""
        if told and name in view.evidence:
            found[name] = view.evidence.ref(name, line=told.line, text=told.text)
    return list(found.values())


def running_checks(rank: Said[Any], running: Running, view: View) -> list[Check]:
    """The rank ran in the environment of its own node, and that holds what the lock says."""
    return [_place(rank, running, view), _packages(rank, running, view)]


def _place(rank: Said[Any], running: Running, view: View) -> Check:
    wanted = _place_of(running.key, view)
    problems = [] if running.prefix == wanted else [f"runs from {running.prefix}"]
    if not running.executable.startswith(f"{running.prefix}/bin/"):
        problems.append(f"its interpreter is {running.executable}")
    ready = _ready(running)
    if ready is None:
        problems.append(f"ready.json in {running.prefix} is missing or damaged")
    else:
        cluster = view.inputs.cluster
        asked = cluster.environment.requirements if cluster.environment else ()
        if (ready.digest, ready.requirements) != (cluster.environment_digest, asked):
            problems.append("ready.json there is another lock's")
        if ready.key != running.key:
            problems.append(f"built for {ready.key}")
    return decide(
        f"sync.rank{rank.rank}.environment",
        f"{rank.where}, which is {running.key}, runs in the environment that was built for it",
        not problems,
        expected=wanted,
        actual=shorten(problems) or running.prefix,
        evidence=(view.evidence.ref(rank.file, text=f"sys.prefix {running.prefix}"),),
        next_action=f"remove {wanted}, then run sync again: it is built anew",
    )


def _packages(rank: Said[Any], running: Running, view: View) -> Check:
    asked = view.inputs.cluster.environment
    pins = parse_lock("\n".join(asked.requirements if asked else ()))[0]
    problems = _differences({pin.name: pin.version for pin in pins}, running)
    text = shorten(problems) or f"{len(running.distributions)} distributions"
    return decide(
        f"sync.rank{rank.rank}.packages",
        f"{rank.where}, which is {running.key}, has the distributions of the lock and no other",
        not problems and bool(pins),
        expected=f"{len(pins)} distributions of the lock",
        actual=shorten(problems, 6) or f"{len(running.distributions)} distributions of the lock",
        evidence=(view.evidence.ref(rank.file, text=text),),
        derivation="importlib.metadata in the running rank against the lock; names normalised, versions by PEP 440",
        next_action=f"somebody changed {_place_of(running.key, view)}: remove it, then run sync again: it is built anew",
    )


def _differences(pins: dict[str, str], running: Running) -> list[str]:
    """What is installed against the lock, and against what was installed when it was built."""
    found: dict[str, list[str]] = {}
    for name, version in running.distributions:
        found.setdefault(normalised(name), []).append(version)
    problems = []
    for name, wanted in pins.items():
        versions = found.get(name, [])
        if not versions:
            problems.append(f"{name} is missing, the lock has {wanted}")
        elif len(versions) > 1:
            problems.append(f"{name} is there {len(versions)} times: {', '.join(versions)}")
        elif not meets_pin(versions[0], wanted):
            problems.append(f"{name} is {versions[0]}, the lock has {wanted}")
    problems += [
        f"{name} {', '.join(versions)} is not in the lock" for name, versions in found.items() if name not in pins
    ]
    ready = _ready(running)
    if not problems and ready is not None and sorted(ready.distributions) != sorted(running.distributions):
        now, then = set(running.distributions), set(ready.distributions)
        changed = [f"{name} {version}" for name, version in sorted(now ^ then)]
        problems.append(f"not as it was built: {shorten(changed)}")
    return problems


def _ready(running: Running) -> Ready | None:
    try:
        return Ready.model_validate(running.ready)
    except ValidationError:
        return None


def _place_of(key: str, view: View) -> str:
    """The environment of a kind of node."""
    return str(EnvironmentPaths(Path(view.expect["environment"])).of(key))


def environment_details(ranks: Sequence[Said[Built]]) -> dict[str, Any]:
    """For the report: each environment, where it was built and for which hosts."""
    details: dict[str, Any] = {}
    for rank in ranks:
        ready = rank.data.ready
        if ready is not None:
            entry = details.setdefault(
                rank.data.key,
                {
                    "python": ready.python,
                    "built_on": ready.host,
                    "seconds": round(ready.ended_at - ready.started_at, 1),
                    "distributions": len(ready.distributions),
                    "conflicts": list(ready.conflicts),
                    "hosts": [],
                },
            )
            entry["hosts"].append(rank.report.host)
    return details
