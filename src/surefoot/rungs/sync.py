"""Sync: the code and configuration that jobs run is the code that was sent, byte for byte."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from surefoot.files import tree_digest
from surefoot.model.base import Record
from surefoot.model.check import Check
from surefoot.model.ladder import Sync as SyncSpec
from surefoot.model.run import JobsStep, Judgement, PushStep
from surefoot.model.status import Status
from surefoot.rungs.base import Asked, Layout, PlanContext, Rung, View
from surefoot.rungs.judging import RankData, Said, decide, said, shorten

PUSH = "raw/push.json"


class Push(Record):
    """``push.json``: what the engine sent, and where to."""

    digest: str
    destination: str
    files: dict[str, str]
    pushed: bool


class Tree(RankData):
    """What ``surefoot.node.verify_tree`` found where it ran."""

    package: str
    package_real: str
    imported_from: str
    files: dict[str, str]
    tree_digest: str


@dataclass(frozen=True)
class Facts:
    """What was sent and what each node has."""

    push: Push
    trees: tuple[Said[Tree], ...]


class Sync(Rung[SyncSpec, Facts]):
    """Push the package, then let every node say what it has."""

    name: ClassVar[str] = "sync"
    title: ClassVar[str] = "Sync"
    proves: ClassVar[str] = "Jobs run exactly the code and configuration that this run was started with."
    uses: ClassVar[tuple[str, ...]] = ("cluster", "package", "configuration")

    def plan(self, context: PlanContext[SyncSpec]) -> Asked:
        digest = context.inputs.package_digest
        destination = str(context.root.package(digest))
        where = Layout(context.spec.nodes, 1, "cpu")
        job = context.job("sync", "surefoot.node.verify_tree", {"package": destination}, where)
        steps = (PushStep(destination=destination, digest=digest), JobsStep(jobs=(job,)))
        return Asked(steps=steps, expect={"digest": digest, "destination": destination})

    def read(self, view: View) -> Facts:
        return Facts(push=view.evidence.record(Push, PUSH), trees=said(view.evidence, "sync", Tree))

    def judge(self, facts: Facts, view: View) -> Judgement:
        checks = [_sent(facts.push, view)]
        checks += [check for tree in facts.trees for check in (_same(tree, facts.push, view), _imported(tree, view))]
        intact = sum(check.status is Status.PASSED for check in checks if check.id.endswith(".files"))
        return Judgement(
            checks=tuple(checks),
            summary=f"{len(facts.push.files)} files, the same on {intact} of {len(facts.trees)} nodes",
            details={"digest": facts.push.digest, "destination": facts.push.destination},
        )


def _sent(push: Push, view: View) -> Check:
    wanted, actual = view.expect["digest"], tree_digest(push.files)
    ok = bool(push.files) and actual == wanted == push.digest and push.destination == view.expect["destination"]
    return decide(
        "sync.sent",
        f"what was sent to {view.expect['destination']} is the package of this run",
        ok,
        expected=wanted,
        actual=actual if push.destination == view.expect["destination"] else f"{actual} in {push.destination}",
        evidence=(view.evidence.ref(PUSH, text=f"{len(push.files)} files"),),
        derivation="sha256 over the sorted lines `path NUL sha256 LF` of all files",
        next_action="the code changed while the run was going on: start a new run",
    )


def _same(tree: Said[Tree], push: Push, view: View) -> Check:
    have, sent = tree.data.files, push.files
    problems = [f"{name} is missing" for name in sorted(set(sent) - set(have))]
    problems += [f"{name} differs" for name in sorted(sent) if name in have and have[name] != sent[name]]
    problems += [f"{name} was not sent" for name in sorted(set(have) - set(sent))]
    recomputed = tree_digest(have)
    if not problems and not recomputed == tree.data.tree_digest == view.expect["digest"]:
        problems = [f"tree digest is {tree.data.tree_digest[:16]}…, computed from its files {recomputed[:16]}…"]
    if tree.data.package != view.expect["destination"]:
        problems.append(f"looked at {tree.data.package}")
    return decide(
        f"sync.rank{tree.rank}.files",
        f"{tree.where} sees the files that were sent, and no other",
        not problems,
        expected=view.expect["digest"],
        actual=shorten(problems) or recomputed,
        evidence=(view.evidence.ref(tree.file, text=shorten(problems)), view.evidence.ref(PUSH)),
        next_action=f"remove {view.expect['destination']} and resume the run: it is sent again. If the file comes back "
        "stale, the node mounts another file system there, or caches it",
    )


def _imported(tree: Said[Tree], view: View) -> Check:
    wanted = f"{tree.data.package_real}/src/surefoot/__init__.py"
    return decide(
        f"sync.rank{tree.rank}.imported",
        f"{tree.where} runs the surefoot that was sent, not one installed there",
        tree.data.imported_from == wanted,
        expected=wanted,
        actual=tree.data.imported_from,
        evidence=(view.evidence.ref(tree.file, text=tree.data.imported_from),),
        next_action="PYTHONPATH does not reach the ranks, or a .pth file or `python -I` overrides it: look at the job's env",
    )


RUNG = Sync()
