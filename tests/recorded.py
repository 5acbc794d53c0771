"""Builds the evidence of jobs in memory, as the engine would have recorded it: for tests of rungs that judge."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from surefoot.config.load import load_recipe
from surefoot.evidence import Blob, EvidenceSet
from surefoot.model.cluster import Cluster, NodeGroup
from surefoot.model.job import Job, JobDone, JobSpec, JobState, RankExit
from surefoot.model.ladder import AnyRung, Ladder
from surefoot.model.policy import Policy
from surefoot.model.recipe import Recipe
from surefoot.model.run import Judgement, Plan, RunInputs
from surefoot.model.status import Status, combine
from surefoot.paths import AttemptPaths, RootPaths
from surefoot.rungs.base import PlanContext, Rung, View

START = 1_796_000_000.0
RUN = "run-1"
PYTHON = "/usr/bin/python3"


def demo_recipe(**changes: Any) -> Recipe:
    """The shipped demonstration recipe, changed."""
    return Recipe.model_validate({**load_recipe("demo").record.canonical(), **changes})


def inputs_of(recipe: Recipe, ladder: Ladder) -> RunInputs:
    """Inputs of a run on one machine with two CPUs."""
    policy = Policy(
        name="p", min_machine_accuracy=0.8, max_empty_outputs=0,
        max_adapter_avg_latency_seconds=30, max_accuracy_regression_vs_base=0.03,
    )  # fmt: skip
    cluster = Cluster(name="here", root="/shared", python=PYTHON, node_groups=(NodeGroup(name="n", count=1),))
    return RunInputs(
        cluster=cluster,
        ladder=ladder,
        recipe=recipe,
        policy=policy,
        code_digest="ab" * 32,
        configuration_digest="cd" * 32,
    )


def plan_of(
    rung: Rung[Any, Any], spec: AnyRung, inputs: RunInputs, root: Path, *, nonce: str, needs: Mapping[str, EvidenceSet]
) -> Plan:
    """The plan of a first attempt."""
    paths = RootPaths(root)
    attempt = AttemptPaths(paths.run(RUN).rung(rung.name).attempt(1).folder)
    asked = rung.plan(
        PlanContext(
            run_id=RUN, inputs=inputs, spec=spec, root=paths, attempt=attempt, nonce=nonce, python=PYTHON, needs=needs
        )
    )
    return Plan(run_id=RUN, rung=rung.name, attempt=1, nonce=nonce, steps=asked.steps, expect=asked.expect)


def job_files(plan: Plan, spec: JobSpec, data: list[dict[str, Any]], *, seconds: float = 60.0) -> dict[str, bytes]:
    """``request.json``, ``job.json``, ``done.json`` and every rank's report of a job that ended well."""
    job = Job(id=f"id-{spec.name}", spec=spec, submitted_at=START)
    ends = tuple(RankExit(rank=r, host="node-a", exit_code=0) for r in range(spec.world_size))
    done = JobDone(
        id=job.id,
        name=spec.name,
        state=JobState.COMPLETED,
        started_at=START + 1,
        ended_at=START + 1 + seconds,
        ranks=ends,
    )
    files = {
        "request.json": spec.request,
        "job.json": job.canonical(),
        "done.json": done.canonical(),
    }
    for rank, said in enumerate(data):
        files[f"rank-{rank}.json"] = {
            "program": spec.argv[-1], "run": RUN, "nonce": plan.nonce, "job": spec.name, "job_id": job.id,
            "rank": rank, "local_rank": rank % spec.ranks_per_node, "world_size": spec.world_size, "host": "node-a",
            "pid": 100 + rank, "imported_from": f"{spec.env['PYTHONPATH']}/surefoot",
            "code_digest": spec.env["SUREFOOT_CODE"], "started_at": START + 2, "ended_at": START + seconds, "data": {"rank": rank, **said},
        }  # fmt: skip
    return {f"raw/{spec.name}/{name}": (json.dumps(content) + "\n").encode() for name, content in files.items()}


@dataclass
class Recorded:
    """One attempt's evidence that a test may damage."""

    rung: Rung[Any, Any]
    spec: AnyRung
    inputs: RunInputs
    plan: Plan
    files: dict[str, bytes]
    needs: Mapping[str, EvidenceSet] = field(default_factory=dict)

    def evidence(self) -> EvidenceSet:
        """As judging sees it."""
        blobs = {name: Blob(name=name, data=data) for name, data in self.files.items()}
        return EvidenceSet(plan=self.plan, files=blobs, prefix=f"rungs/{self.rung.name}/attempt-001")

    def judge(self) -> Judgement:
        """Read and judge. Raises EvidenceError as the rung does."""
        view = View(evidence=self.evidence(), inputs=self.inputs, spec=self.spec, needs=self.needs)
        return self.rung.judge(self.rung.read(view), view)

    def status(self) -> Status:
        """Status of all checks together. Raises EvidenceError as the rung does."""
        return combine(check.status for check in self.judge().checks)

    def failed(self) -> set[str]:
        """Ids of the checks that did not pass."""
        return {check.id for check in self.judge().checks if check.status is not Status.PASSED}

    def edit(self, name: str, *path: str | int, to: Any) -> Recorded:
        """Change one value in a JSON file. The path must exist."""
        content = json.loads(self.files[name])
        at = content
        for step in path[:-1]:
            at = at[step]
        assert at[path[-1]] != to, "an edit that changes nothing tests nothing"
        at[path[-1]] = to
        self.files[name] = (json.dumps(content) + "\n").encode()
        return self
