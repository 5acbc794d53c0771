"""A small real ladder for tests of the engine: real jobs through the local scheduler, one line of Python each.

Four rungs under names that ladders know: runner → sync → {scheduler, precheck}; each job writes a
number, and the rung PASSED when it is the one asked for.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from surefoot.engine.climb import Climb
from surefoot.engine.session import Chosen, Session, start
from surefoot.model.check import Check
from surefoot.model.cluster import Cluster, NodeGroup
from surefoot.model.events import Event
from surefoot.model.job import JobSpec
from surefoot.model.ladder import Ladder
from surefoot.model.policy import Policy
from surefoot.model.recipe import Recipe, TaskSource
from surefoot.model.run import JobsStep, Judgement, RungResult
from surefoot.model.status import Status
from surefoot.paths import RunPaths
from surefoot.rungs.base import Asked, PlanContext, Rung, View

WRITES_42 = "open('answer', 'w').write('42')"
SLEEPS = "import os, time; open('p', 'w').write(str(os.getpid())); os.rename('p', 'pid'); time.sleep(600)"
NAMES = ("runner", "sync", "scheduler", "precheck")


class ToyRung(Rung[Any, str]):
    """One job that runs `code`; PASSED when it left the answer 42."""

    title = "Toy"
    proves = "the answer is 42"
    uses = ("cluster",)

    def __init__(self, name: str, code: str = WRITES_42, reads: str = "") -> None:
        self.name = name  # type: ignore[misc]
        self.code = code
        self.reads = reads

    def plan(self, context: PlanContext[Any]) -> Asked:
        if self.reads:
            context.needs[self.reads].blob("raw/toy/answer").text()
        job = JobSpec(
            name="toy", argv=(sys.executable, "-c", self.code), folder=str(context.attempt.job("toy")), time_limit_s=60
        )
        return Asked(steps=(JobsStep(jobs=(job,)),), expect={"answer": "42"})

    def read(self, view: View) -> str:
        return view.evidence.blob("raw/toy/answer").text()

    def judge(self, facts: str, view: View) -> Judgement:
        passed = facts == view.expect["answer"]
        check = Check(
            id="toy.answer",
            claim="the answer is 42",
            status=Status.PASSED if passed else Status.FAILED,
            expected=view.expect["answer"],
            actual=facts,
            evidence=(view.evidence.ref("raw/toy/answer"),),
        )
        return Judgement(checks=(check,), summary=facts)


def toys(**codes: str) -> dict[str, ToyRung]:
    """The four rungs, each with its own code where one is given."""
    return {name: ToyRung(name, codes.get(name, WRITES_42)) for name in NAMES}


def ladder(**more: Mapping[str, Any]) -> Ladder:
    """The ladder runner → sync → {scheduler, precheck}; `more` adds keys to a rung."""
    needs = {"runner": [], "sync": ["runner"], "scheduler": ["sync"], "precheck": ["sync"]}
    return Ladder.model_validate(
        {"name": "toy", "rungs": [{"rung": n, "needs": needs[n], **more.get(n, {})} for n in NAMES]}
    )


def chosen(root: Path, **changes: Any) -> Chosen:
    """A request for a climb of the toy ladder under `root`."""
    source = TaskSource(source="builtin:demo-train")
    values: dict[str, Any] = {
        "cluster": Cluster(name="here", root=str(root), node_groups=(NodeGroup(name="all", count=1),)),
        "ladder": ladder(),
        "recipe": Recipe(name="none", base="builtin:demo-base", train=source, evaluate=source, learning_rate=1e-3),
        "policy": Policy(
            name="none",
            min_machine_accuracy=0.8,
            max_empty_outputs=0,
            max_adapter_avg_latency_seconds=30,
            max_accuracy_regression_vs_base=0.03,
        ),
    }
    return Chosen(**{**values, **changes})


def new_session(root: Path, **changes: Any) -> Session:
    """A new run of the toy ladder."""
    return start(chosen(root, **changes), ("surefoot", "climb"))


def climb(
    session: Session,
    rungs: Mapping[str, Rung[Any, Any]],
    selected: frozenset[str] = frozenset(NAMES),
    emit: Callable[[Event], None] = lambda _event: None,
) -> dict[str, RungResult]:
    """Climb and return the results."""
    return session.climb(rungs, selected, emit).run()


def attempts(run_paths: RunPaths) -> dict[str, int]:
    """How often each rung was run."""
    return {name: len(run_paths.rung(name).attempts()) for name in NAMES}


def statuses(results: Mapping[str, RungResult]) -> dict[str, Status]:
    return {name: result.status for name, result in results.items()}


__all__ = ["Climb", "ToyRung", "attempts", "chosen", "climb", "ladder", "new_session", "statuses", "toys"]
