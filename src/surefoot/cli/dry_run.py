"""``--dry-run``: what would be run. Records nothing and proves nothing."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator

import click

from surefoot.cli.streams import say
from surefoot.engine.session import Session, dry_plan
from surefoot.model.run import CommandStep, JobsStep, Plan, PushStep
from surefoot.model.status import ExitCode
from surefoot.rungs.table import RUNGS


def show_plans(session: Session, selected: frozenset[str], *, as_json: bool) -> int:
    """Print the plan of each selected rung, or why it cannot be known yet."""
    ladder = session.manifest.inputs.ladder
    left_out = session.manifest.inputs.left_out
    plans = {spec.rung: dry_plan(session, RUNGS, spec) for spec in ladder.rungs if spec.rung in selected}
    if as_json:
        shown = {name: p.canonical() if isinstance(p, Plan) else {"unknown": p} for name, p in plans.items()}
        code = int(ExitCode.UNPROVED)
        click.echo(
            json.dumps({"dry_run": True, "exit_code": code, "plans": shown, "left_out": list(left_out)}, indent=1)
        )
        return code
    for name, plan in plans.items():
        needs = ", ".join(ladder.spec(name).needs) or "nothing"
        say(f"{name}  (needs {needs})")
        for line in _plan_lines(plan):
            say(f"    {line}")
    if left_out:
        say(f"\n{session.manifest.inputs.left_out_note}")
    click.echo("\nDry run: nothing was run, nothing is recorded, nothing is proved (exit 2).")
    return ExitCode.UNPROVED


def _plan_lines(plan: Plan | str) -> Iterator[str]:
    if isinstance(plan, str):
        yield plan
        return
    for step in plan.steps:
        match step:
            case CommandStep():
                yield f"run    {shlex.join(step.argv)}"
            case PushStep():
                yield f"copy   code and configuration to {step.destination}"
            case JobsStep():
                for job in step.jobs:
                    where = f"{job.nodes} node(s) × {job.ranks_per_node} rank(s), limit {job.time_limit_s} s"
                    yield f"job    {job.name}: {shlex.join(job.argv)}  [{where}]"
    if not plan.steps:
        yield "judges evidence that the rungs below collected; runs nothing"
