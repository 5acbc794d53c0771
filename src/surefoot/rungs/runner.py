"""Runner: commands run where they should, as who they should, and come back whole."""

from __future__ import annotations

import json
from typing import Any, ClassVar

from pydantic import Field

import surefoot
from surefoot.evidence import parse_json, parse_record
from surefoot.model.base import Record
from surefoot.model.check import Check
from surefoot.model.ladder import Runner as RunnerSpec
from surefoot.model.run import CommandStep, Judgement
from surefoot.rungs.base import Asked, PlanContext, Rung, View
from surefoot.rungs.judging import decide
from surefoot.versions import at_least

STDOUT = "raw/runner.stdout"
OLDEST_PYTHON = "3.11"
LONGEST_S = 60.0
"""The command's own limit; one that took longer tells nothing about the clock."""
CLOCK_TOLERANCE_S = 5.0
"""How far the remote clock may stand outside the command's own start and end."""


class Root(Record):
    """What became of one file written below the shared root."""

    path: str
    read: str | None
    error: str


class Account(Record):
    """The document that ``surefoot.node.runner`` prints."""

    nonce: str
    host: str = Field(min_length=1)
    user: str = Field(min_length=1)
    pid: int = Field(ge=1)
    python: str
    executable: str = Field(min_length=1)
    system: str = Field(min_length=1)
    surefoot: str
    root: Root
    clock: float = Field(gt=0)


class Ending(Record):
    """``runner.exit.json``. Whether it ended well is the engine's check; its times are needed here."""

    exit_code: int | None
    signal: int | None
    timed_out: bool
    started_at: float
    ended_at: float


class Facts(Record):
    """The account and the command that gave it."""

    account: Account
    ending: Ending


class Runner(Rung[RunnerSpec, Facts]):
    """One command through the connection."""

    name: ClassVar[str] = "runner"
    title: ClassVar[str] = "Runner"
    proves: ClassVar[str] = "Commands run on the declared machine and can write below the shared root."
    uses: ClassVar[tuple[str, ...]] = ("cluster", "package")

    def plan(self, context: PlanContext[RunnerSpec]) -> Asked:
        root = str(context.root.root)
        asked = json.dumps({"nonce": context.nonce, "root": root})
        argv = (context.python, "-m", "surefoot.node.runner", asked)
        step = CommandStep(name="runner", argv=argv, timeout_s=min(LONGEST_S, context.spec.time_limit_s))
        expect: dict[str, Any] = {"nonce": context.nonce, "root": root, "surefoot": surefoot.__version__}
        return Asked(steps=(step,), expect={**expect, "python": context.cluster.software.python or OLDEST_PYTHON})

    def read(self, view: View) -> Facts:
        data = parse_json(view.evidence.blob(STDOUT).text(), file=STDOUT)
        view.evidence.blob("raw/runner.stderr")
        return Facts(
            account=parse_record(Account, data, file=STDOUT),
            ending=view.evidence.record(Ending, "raw/runner.exit.json"),
        )

    def judge(self, facts: Facts, view: View) -> Judgement:
        account = facts.account
        checks = [check(account, view) for check in (_nonce, _python, _version, _root)]
        checks.append(_clock(facts, view))
        return Judgement(
            checks=tuple(checks),
            summary=f"{account.user}@{account.host}, Python {account.python}",
            details={"account": account.canonical()},
        )


def _nonce(account: Account, view: View) -> Check:
    wanted = view.plan.nonce
    return decide(
        "runner.answered",
        "the answer is to this attempt's question",
        account.nonce == wanted == view.expect["nonce"],
        expected=wanted,
        actual=account.nonce,
        evidence=(view.evidence.ref(STDOUT, text=f"nonce {account.nonce}"),),
        next_action="something answers from a record instead of running the command: look at the login shell's start-up files",
    )


def _python(account: Account, view: View) -> Check:
    oldest = view.expect["python"]
    return decide(
        "runner.python",
        f"the interpreter there is Python {oldest} or newer",
        at_least(account.python, oldest) and at_least(account.python, OLDEST_PYTHON),
        expected=f"≥ {oldest}",
        actual=account.python,
        evidence=(view.evidence.ref(STDOUT, text=account.executable),),
        derivation="software.python of the cluster file; Surefoot itself needs 3.11",
        next_action="name a newer interpreter as `python:` in the cluster file",
    )


def _version(account: Account, view: View) -> Check:
    wanted = view.expect["surefoot"]
    return decide(
        "runner.surefoot",
        "the surefoot there is the surefoot here",
        account.surefoot == wanted,
        expected=wanted,
        actual=account.surefoot,
        evidence=(view.evidence.ref(STDOUT, text=account.executable),),
        next_action=f"install surefoot {wanted} for {account.executable} there",
    )


def _root(account: Account, view: View) -> Check:
    wanted, root = view.expect["root"], account.root
    ok = root.path == wanted and root.read == f"{view.plan.nonce}\n" and not root.error
    return decide(
        "runner.root",
        "a file written below the shared root, renamed and read back is what was written",
        ok,
        expected=f"read and write {wanted}",
        actual=root.error or ("read back" if ok else f"{root.path}: read back {root.read!r}"),
        evidence=(view.evidence.ref(STDOUT, text=f"root {root.path}: {root.error or 'written and read back'}"),),
        next_action=f"as {account.user} on {account.host}: mkdir -p {wanted}; touch {wanted}/x; mend owner, mount or quota",
    )


def _clock(facts: Facts, view: View) -> Check:
    ending, clock = facts.ending, facts.account.clock
    late = clock - ending.ended_at
    early = ending.started_at - clock
    off = max(late, early, 0.0)
    duration = ending.ended_at - ending.started_at
    ok = 0 <= duration <= LONGEST_S and off <= CLOCK_TOLERANCE_S
    return decide(
        "runner.clock",
        f"the clock there agrees with the clock here to {CLOCK_TOLERANCE_S:g} s",
        ok,
        expected=CLOCK_TOLERANCE_S,
        actual=round(off, 3),
        unit="s",
        evidence=(view.evidence.ref(STDOUT, text=f"clock {clock}"), view.evidence.ref("raw/runner.exit.json")),
        derivation="distance of the reported time from the interval between the command's start and end",
        next_action=f"start time synchronisation (chrony, timesyncd) on {facts.account.host}",
    )


RUNG = Runner()
