"""One rung looked at on its own, without a run: its commands run, what they said is judged, nothing is recorded."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from typing import Any

from surefoot.connection.local import LocalConnection
from surefoot.engine.connect import connect
from surefoot.engine.judge import unreadable
from surefoot.engine.left_out import refuse_missing_ansible
from surefoot.engine.session import Session
from surefoot.errors import EvidenceError
from surefoot.evidence import Blob, EvidenceSet
from surefoot.model.check import Check
from surefoot.model.run import CommandStep, Judgement, RungResult
from surefoot.model.status import combine
from surefoot.rungs.base import Rung, View
from surefoot.rungs.endings import ending_checks


def probe(session: Session, rung: Rung[Any, Any], stop: threading.Event) -> RungResult:
    """The result of a rung whose plan is commands alone. `session` is not recorded, and its ladder is this rung.

    Raises RequestError where the rung cannot be planned, MachineryError where a command cannot be run,
    KeyboardInterrupt when `stop` is set.
    """
    inputs = session.manifest.inputs
    refuse_missing_ansible(inputs, frozenset([rung.name]))
    spec = inputs.ladder.spec(rung.name)
    plan = session.planner({rung.name: rung}).plan(spec, 1, {})
    commands = [step for step in plan.steps if isinstance(step, CommandStep)]
    assert len(commands) == len(plan.steps), "only commands can be run without a run"
    files: dict[str, bytes] = {}
    connection, scheduler = connect(inputs.cluster, hurry=stop)
    try:
        for step in commands:
            where = LocalConnection() if step.here else connection
            stdin = step.stdin.encode() if step.stdin else None
            result = where.run(step.argv, env=step.env, timeout_s=step.timeout_s, cancel=stop, stdin=stdin)
            if stop.is_set():
                raise KeyboardInterrupt
            ending = {"exit_code": result.exit_code, "signal": result.signal, "timed_out": result.timed_out}
            times = {"started_at": result.started_at, "ended_at": result.ended_at}
            files[f"raw/{step.name}.stdout"] = result.stdout
            files[f"raw/{step.name}.stderr"] = result.stderr
            files[f"raw/{step.name}.exit.json"] = json.dumps({**ending, **times}, indent=1).encode()
            if result.exit_code != 0:
                break
    finally:
        scheduler.close()
        connection.close()
    return _judged(View(_evidence(plan, files), inputs, spec, {}), rung)


def _evidence(plan: Any, files: Mapping[str, bytes]) -> EvidenceSet:
    return EvidenceSet(plan=plan, files={name: Blob(name=name, data=data) for name, data in files.items()})


def _judged(view: View, rung: Rung[Any, Any]) -> RungResult:
    checks: list[Check] = ending_checks(view.evidence)
    own = Judgement()
    try:
        own = rung.judge(rung.read(view), view)
    except EvidenceError as error:
        checks.append(unreadable(error, view.evidence))
    everything = (*checks, *own.checks)
    return RungResult(
        rung=rung.name,
        title=rung.title,
        proves=rung.proves,
        status=combine(check.status for check in everything),
        judgement=own.model_copy(update={"checks": everything}),
    )
