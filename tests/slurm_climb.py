"""One rung on a real Slurm, through the whole engine: a job of several nodes whose ranks run one line of Python."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from surefoot.engine.session import Chosen, Session, start
from surefoot.model.check import Check
from surefoot.model.cluster import Cluster, NodeGroup, SlurmScheduler
from surefoot.model.job import JobSpec
from surefoot.model.ladder import Ladder
from surefoot.model.run import JobsStep, Judgement
from surefoot.model.status import Status
from surefoot.rungs.base import Asked, PlanContext, View, nodes_of
from toy_ladder import ToyRung, chosen

RUNG = "sync"
WRITES = "import os; open(f\"said-{os.environ['RANK']}\", 'w').write('42')"
SLEEPS = "import time; open('begun', 'w').write('x'); time.sleep(600)"


class SlurmRung(ToyRung):
    """PASSED when every rank wrote 42."""

    def __init__(self, code: str = WRITES, time_limit_s: int = 120) -> None:
        super().__init__(RUNG, code)
        self.time_limit_s = time_limit_s

    def plan(self, context: PlanContext[Any]) -> Asked:
        job = JobSpec(
            name="toy",
            argv=(sys.executable, "-c", self.code),
            folder=str(context.attempt.job("toy")),
            env={"SUREFOOT_RUN": context.run_id, "SUREFOOT_NONCE": context.nonce},
            nodes=nodes_of(context.cluster, context.spec),
            memory_mib_per_node=50,
            time_limit_s=self.time_limit_s,
        )
        return Asked(steps=(JobsStep(jobs=(job,)),), expect={"nodes": job.nodes})

    def read(self, view: View) -> str:
        return ",".join(view.evidence.blob(f"raw/toy/said-{n}").text() for n in range(view.expect["nodes"]))

    def judge(self, facts: str, view: View) -> Judgement:
        wanted = ",".join(["42"] * view.expect["nodes"])
        check = Check(
            id="toy.answer",
            claim="every rank wrote 42",
            status=Status.PASSED if facts == wanted else Status.FAILED,
            expected=wanted,
            actual=facts,
            evidence=(view.evidence.ref("raw/toy/said-0"),),
        )
        return Judgement(checks=(check,), summary=facts)


def request(root: Path, nodes: int = 4, **rung: Any) -> Chosen:
    """A request for a climb of that rung on so many nodes. `rung`: more keys of it."""
    cluster = Cluster(
        name="here",
        root=str(root),
        python=sys.executable,
        scheduler=SlurmScheduler(kind="slurm"),
        node_groups=(NodeGroup(name="all", count=nodes),),
    )
    rungs = [{"rung": RUNG, "needs": [], **rung}]
    return chosen(root, cluster=cluster, ladder=Ladder.model_validate({"name": "one", "rungs": rungs}))


def new_session(root: Path, nodes: int = 4, **rung: Any) -> Session:
    """A new run of that climb."""
    return start(request(root, nodes, **rung), ("surefoot", "climb"))
