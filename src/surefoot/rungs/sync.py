"""Sync: the code and configuration that jobs run is the code that was sent, byte for byte."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import Field

from surefoot.errors import EvidenceError
from surefoot.files import tree_digest
from surefoot.model.base import Record
from surefoot.model.check import Check
from surefoot.model.ladder import Sync as SyncSpec
from surefoot.model.run import JobsStep, Judgement, PushStep, Step
from surefoot.model.status import Status
from surefoot.rungs.base import Asked, Layout, PlanContext, Rung, View, nodes_of
from surefoot.rungs.judging import RankData, Said, decide, said, shorten
from surefoot.rungs.sync_environment import (
    JOB,
    Built,
    Running,
    build_job,
    built_checks,
    environment_details,
    running_checks,
)

TREES = ("code", "configuration")


def push_file(tree: str) -> str:
    """The engine's account of what it sent."""
    return f"raw/push-{tree}.json"


class Push(Record):
    """``push-<tree>.json``: what the engine sent, and where to."""

    digest: str
    destination: str
    files: dict[str, str]
    pushed: bool


class Tree(Record):
    """One tree as ``surefoot.node.verify_tree`` found it where it ran."""

    folder: str = Field(min_length=1)
    real: str = Field(min_length=1)
    files: dict[str, str]
    digest: str


class Found(RankData):
    """What a node has, and which code it ran."""

    trees: dict[str, Tree]
    imported_from: str
    environment: Running | None = None
    """Where the cluster has an environment for its jobs."""


@dataclass(frozen=True)
class Facts:
    """What was sent and what each node has."""

    pushes: dict[str, Push]
    found: tuple[Said[Found], ...]
    built: tuple[Said[Built], ...] = ()
    """What became of each node's environment, where the cluster has one."""


class Sync(Rung[SyncSpec, Facts]):
    """Push code and configuration, then let every node say what it has."""

    name: ClassVar[str] = "sync"
    title: ClassVar[str] = "Sync"
    proves: ClassVar[str] = "Jobs run exactly the code and configuration that this run was started with."
    uses: ClassVar[tuple[str, ...]] = ("cluster", "package", "configuration")

    def plan(self, context: PlanContext[SyncSpec]) -> Asked:
        inputs = context.inputs
        digests = {"code": inputs.code_digest, "configuration": inputs.configuration_digest}
        folders = {tree: str(context.root.pushed(digest)) for tree, digest in digests.items()}
        pushes = (PushStep(name=tree, destination=folders[tree], digest=digests[tree]) for tree in TREES)
        where = Layout(nodes_of(context.cluster, context.spec), 1, "cpu")
        request: dict[str, Any] = {"trees": folders}
        expect: dict[str, Any] = {"digests": digests, "folders": folders}
        steps: list[Step] = list(pushes)
        asked = context.cluster.environment
        if asked is not None:
            steps.append(JobsStep(jobs=(build_job(context, asked, where),)))
            request["python"] = context.python
            expect["environment"] = str(context.root.environment(context.cluster.environment_digest).folder)
        job = context.job("sync", "surefoot.node.verify_tree", request, where)
        return Asked(steps=(*steps, JobsStep(jobs=(job,))), expect=expect)

    def read(self, view: View) -> Facts:
        pushes = {tree: view.evidence.record(Push, push_file(tree)) for tree in TREES}
        wanted = "environment" in view.expect
        built = said(view.evidence, JOB, Built) if wanted else ()
        if not all(rank.data.good for rank in built):
            return Facts(pushes, (), built)  # then no job was started to verify it
        found = said(view.evidence, "sync", Found, any_code=True)  # `_same` and `_imported` name what differs
        for rank in found:
            if set(rank.data.trees) != set(TREES):
                raise EvidenceError(f"tells of {sorted(rank.data.trees)}, asked for were {TREES}", file=rank.file)
            if (rank.data.environment is not None) != wanted:
                raise EvidenceError("does not tell of the environment as it was asked to", file=rank.file)
        return Facts(pushes, found, built)

    def judge(self, facts: Facts, view: View) -> Judgement:
        checks = [_sent(tree, facts.pushes[tree], view) for tree in TREES]
        checks += built_checks(facts.built, view)
        for rank in facts.found:
            checks += [_same(rank, tree, facts.pushes[tree], view) for tree in TREES]
            checks.append(_imported(rank, view))
            if rank.data.environment is not None:
                checks += running_checks(rank, rank.data.environment, view)
        details: dict[str, Any] = {
            tree: {"digest": push.digest, "destination": push.destination} for tree, push in facts.pushes.items()
        }
        if facts.built:
            details["environments"] = environment_details(facts.built)
        return Judgement(checks=tuple(checks), summary=_summary(facts, checks), details=details)


def _summary(facts: Facts, checks: list[Check]) -> str:
    not_passed = [check.id.split(".") for check in checks if check.status is not Status.PASSED]
    bad = {where for _, where, *_ in not_passed if where.startswith("rank")}
    missing = sum(not rank.data.good for rank in facts.built)
    if missing:
        return f"no environment on {missing} of {len(facts.built)} nodes"
    count = sum(len(push.files) for push in facts.pushes.values())
    kinds = len({rank.data.key for rank in facts.built})
    environments = f"; {kinds} environment{'s' if kinds > 1 else ''} from the lock" if kinds and not not_passed else ""
    return f"{count} files, the same on {len(facts.found) - len(bad)} of {len(facts.found)} nodes{environments}"


def _sent(tree: str, push: Push, view: View) -> Check:
    wanted, folder = view.expect["digests"][tree], view.expect["folders"][tree]
    actual = tree_digest(push.files)
    ok = bool(push.files) and actual == wanted == push.digest and push.destination == folder
    return decide(
        f"sync.{tree}.sent",
        f"what was sent to {folder} is the {tree} of this run",
        ok,
        expected=wanted,
        actual=actual if push.destination == folder else f"{actual} in {push.destination}",
        evidence=(view.evidence.ref(push_file(tree), text=f"{len(push.files)} files"),),
        derivation="sha256 over the sorted lines `path NUL sha256 LF` of all files",
        next_action="the code changed while the run was going on: start a new run",
    )


def _same(rank: Said[Found], name: str, push: Push, view: View) -> Check:
    wanted, folder = view.expect["digests"][name], view.expect["folders"][name]
    tree = rank.data.trees[name]
    have, sent = tree.files, push.files
    problems = [f"{file} is missing" for file in sorted(set(sent) - set(have))]
    problems += [f"{file} differs" for file in sorted(sent) if file in have and have[file] != sent[file]]
    problems += [f"{file} was not sent" for file in sorted(set(have) - set(sent))]
    recomputed = tree_digest(have)
    if not problems and not recomputed == tree.digest == wanted:
        problems = [f"tree digest is {tree.digest[:16]}…, computed from its files {recomputed[:16]}…"]
    if tree.folder != folder:
        problems.append(f"looked at {tree.folder}")
    return decide(
        f"sync.rank{rank.rank}.{name}",
        f"{rank.where} sees the {name} that was sent, and no other file",
        not problems,
        expected=wanted,
        actual=shorten(problems) or recomputed,
        evidence=(view.evidence.ref(rank.file, text=shorten(problems)), view.evidence.ref(push_file(name))),
        next_action=f"remove {folder} and resume the run: it is sent again. If the file comes back "
        "stale, the node mounts another file system there, or caches it",
    )


def _imported(rank: Said[Found], view: View) -> Check:
    """By its folder as Python was given it, by that with links resolved (a root may be a link), and by its content."""
    wanted = f"{view.expect['folders']['code']}/src/surefoot"
    real = f"{rank.data.trees['code'].real}/src/surefoot/__init__.py"
    found, really = rank.report.imported_from, rank.data.imported_from
    digest = view.expect["digests"]["code"]
    same = rank.report.code_digest == digest
    return decide(
        f"sync.rank{rank.rank}.imported",
        f"{rank.where} runs the surefoot that was sent, not one installed there",
        (found, really) == (wanted, real) and same,
        expected=wanted,
        actual=(found if found != wanted else really)
        + ("" if same else f", which has another digest than {digest[:16]}…"),
        evidence=(view.evidence.ref(rank.file, text=really),),
        next_action="PYTHONPATH does not reach the ranks, or a .pth file or `python -I` overrides it: look at the job's env",
    )


RUNG = Sync()
