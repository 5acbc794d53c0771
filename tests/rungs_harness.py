"""One rung without a climb: plan it, execute it with real processes, judge it, damage its evidence."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from surefoot.connection.local import LocalConnection
from surefoot.engine.package import Package, build
from surefoot.engine.resolve import resolve
from surefoot.errors import EvidenceError
from surefoot.evidence import Blob, EvidenceSet
from surefoot.model.cluster import Cluster
from surefoot.model.ladder import AnyRung, Ladder
from surefoot.model.policy import Policy
from surefoot.model.recipe import Recipe, TaskSource
from surefoot.model.run import CommandStep, JobsStep, Judgement, Plan, PushStep, RunInputs, Step
from surefoot.model.status import Status, combine
from surefoot.paths import RootPaths
from surefoot.rungs.base import PlanContext, Rung, View
from surefoot.scheduler.local import LocalScheduler

RUN = "run-1"
NONCE = "0123456789abcdef"


def inputs_of(spec: AnyRung, root: Path, **cluster: Any) -> RunInputs:
    """Inputs of a ladder of this one rung on this machine. `cluster` overrides keys of the cluster."""
    group = {"name": "here", "count": 1, "min_cpus": 1, "min_memory_gib": 0.5, "min_free_disk_gib": 0.1}
    declared = {"name": "here", "root": str(root), "python": sys.executable, "node_groups": [group], **cluster}
    source = TaskSource(source="builtin:demo-train")
    recipe = Recipe(name="r", base="builtin:demo-base", train=source, evaluate=source, learning_rate=1e-3)
    policy = Policy(
        name="p",
        min_machine_accuracy=0.8,
        max_empty_outputs=0,
        max_adapter_avg_latency_seconds=30,
        max_accuracy_regression_vs_base=0.03,
    )
    ladder = Ladder(name="l", rungs=(spec.model_copy(update={"needs": ()}),))
    return resolve(Cluster.model_validate(declared), ladder, recipe, policy)[0]


def planned(
    rung: Rung[Any, Any],
    asked: Mapping[str, Any],
    root: Path,
    needs: Mapping[str, EvidenceSet] | None = None,
    **cluster: Any,
) -> View:
    """A view with a plan and no evidence yet. `asked`: the rung's spec as the ladder's YAML has it."""
    spec: AnyRung = TypeAdapter(AnyRung).validate_python({"rung": rung.name, **asked})
    inputs = inputs_of(spec, root, **cluster)
    paths = RootPaths(root)
    attempt = paths.run(RUN).rung(rung.name).attempt(1)
    context = PlanContext(
        run_id=RUN, inputs=inputs, spec=spec, root=paths, attempt=attempt, nonce=NONCE,
        python=inputs.cluster.python, needs=needs or {},
    )  # fmt: skip
    answer = rung.plan(context)
    plan = Plan(run_id=RUN, rung=rung.name, attempt=1, nonce=NONCE, steps=answer.steps, expect=answer.expect)
    plan = Plan.model_validate_json(plan.model_dump_json())  # as judging will read it
    return View(evidence=EvidenceSet(plan=plan, files={}), inputs=inputs, spec=spec, needs=needs or {})


def collected(
    rung: Rung[Any, Any],
    asked: Mapping[str, Any],
    root: Path,
    needs: Mapping[str, EvidenceSet] | None = None,
    **cluster: Any,
) -> View:
    """A view whose evidence real processes left."""
    view = planned(rung, asked, root, needs, **cluster)
    return collect(view, view.plan.steps, root)


def collect(view: View, steps: tuple[Step, ...], root: Path) -> View:
    """The view with the evidence that real processes leave when these steps are executed."""
    folder = RootPaths(root).run(RUN).rung(view.plan.rung).attempt(1)
    folder.raw.mkdir(parents=True)
    code = RootPaths(root).pushed(view.inputs.code_digest)
    if not any(isinstance(step, PushStep) for step in view.plan.steps) and not code.exists():
        tree = package_of(view.inputs).tree(view.inputs.code_digest)
        LocalConnection().put_tree(tree.files, code)
    for step in steps:
        execute(step, folder.raw, view.inputs)
    names = [path for path in sorted(folder.folder.rglob("*")) if path.is_file()]
    files = {p.relative_to(folder.folder).as_posix(): p.read_bytes() for p in names}
    return with_files(view, files)


def package_of(inputs: RunInputs) -> Package:
    """The package that was resolved together with these inputs."""
    return build({name: getattr(inputs, name) for name in ("cluster", "ladder", "recipe", "policy")})


def execute(step: Step, raw: Path, inputs: RunInputs) -> None:
    """What the engine does for a step, in its simplest form."""
    if isinstance(step, CommandStep):
        begun = time.time()
        result = subprocess.run(step.argv, capture_output=True, timeout=step.timeout_s, check=False)
        (raw / f"{step.name}.stdout").write_bytes(result.stdout)
        (raw / f"{step.name}.stderr").write_bytes(result.stderr)
        ending = {"exit_code": result.returncode, "signal": None, "timed_out": False}
        times = {"started_at": begun, "ended_at": time.time()}
        (raw / f"{step.name}.exit.json").write_text(json.dumps({**ending, **times}))
    elif isinstance(step, PushStep):
        tree = package_of(inputs).tree(step.digest)
        pushed = LocalConnection().put_tree(tree.files, Path(step.destination))
        account = {
            "digest": tree.digest, "destination": step.destination, "files": dict(tree.digests), "pushed": pushed,
        }  # fmt: skip
        (raw / f"push-{step.name}.json").write_text(json.dumps(account))
    elif isinstance(step, JobsStep):
        run_jobs(step)


def run_jobs(step: JobsStep) -> None:
    """Submit to the local scheduler and wait. Processes are gone when this returns."""
    scheduler = LocalScheduler(cpus=4)
    try:
        for spec in step.jobs:
            Path(spec.folder).mkdir(parents=True)
        jobs = [scheduler.submit(spec) for spec in step.jobs]
        while not all(status.state.final for status in scheduler.poll(jobs).values()):
            time.sleep(0.05)
    finally:
        scheduler.close()


def with_files(view: View, files: Mapping[str, bytes | None]) -> View:
    """The view with these files added or replaced; None removes one."""
    blobs = {**view.evidence.files, **{n: Blob(name=n, data=data) for n, data in files.items() if data is not None}}
    kept = {name: blob for name, blob in blobs.items() if name not in files or files[name] is not None}
    return replace(view, evidence=EvidenceSet(plan=view.plan, files=kept))


def edited(view: View, name: str, change: Callable[[Any], Any]) -> View:
    """The view with one JSON file changed in place by `change` (what it returns is ignored)."""
    content = json.loads(view.evidence.blob(name).read())
    change(content)
    return with_files(view, {name: json.dumps(content).encode()})


def judged(rung: Rung[Any, Any], view: View) -> Judgement:
    """Read and judge. Raises EvidenceError as the rung does."""
    return rung.judge(rung.read(view), view)


def status_of(rung: Rung[Any, Any], view: View) -> Status:
    """The rung's own status: INCONCLUSIVE where its evidence cannot be read."""
    try:
        return combine(check.status for check in judged(rung, view).checks)
    except EvidenceError:
        return Status.INCONCLUSIVE


def failed(rung: Rung[Any, Any], view: View) -> set[str]:
    """Ids of the checks that did not pass."""
    return {check.id for check in judged(rung, view).checks if check.status is not Status.PASSED}
