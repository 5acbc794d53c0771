"""Runner: commands run where they should, as who they should, and come back whole."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

import surefoot
from surefoot.errors import EvidenceError
from surefoot.evidence import parse_json, parse_record
from surefoot.model.base import Record
from surefoot.model.check import Check
from surefoot.model.cluster import Cluster
from surefoot.model.ladder import Runner as RunnerSpec
from surefoot.model.run import CommandStep, Judgement
from surefoot.node import runner as program
from surefoot.rungs.base import Asked, PlanContext, Rung, View
from surefoot.rungs.judging import decide
from surefoot.rungs.runner_slurm import COMMANDS, PROGRAMS, Slurmd, slurm_checks
from surefoot.rungs.slurm_view import Answer
from surefoot.versions import at_least

STDOUT = "raw/runner.stdout"
HERE = "raw/here.stdout"
OLDEST_PYTHON = "3.11"
BARE_PYTHON = "3.9"
"""Oldest that Surefoot's launcher and the programs of the first rungs run on; what trains does not."""
LONGEST_S = 60.0
"""The command's own limit; one that took longer tells nothing about the clock."""
CLOCK_TOLERANCE_S = 5.0
"""How far the remote clock may stand outside the command's own start and end."""
_WHO_AM_I = (
    'uname -n; echo "$(cat /etc/machine-id 2>/dev/null)"; echo "$(cat /proc/sys/kernel/random/boot_id 2>/dev/null)"'
)
"""Three lines, also where a file is empty, as a container's machine-id is."""


class Root(Record):
    """What became of one file written below the shared root."""

    path: str
    read: str | None
    error: str


class Account(Record):
    """The document that ``surefoot.node.runner`` prints."""

    nonce: str
    host: str = Field(min_length=1)
    machine_id: str
    """systemd's id of the installation; empty where there is none."""
    boot_id: str
    """The kernel's id of this boot; empty where there is none."""
    user: str = Field(min_length=1)
    pid: int = Field(ge=1)
    ssh_connection: str
    """What sshd sets: both ends of the link. Empty where the command came another way."""
    terminal: bool
    python: str
    executable: str = Field(min_length=1)
    system: str = Field(min_length=1)
    surefoot: str | None
    root: Root
    programs: dict[str, str | None]
    answers: dict[str, Answer]
    slurmds: tuple[Slurmd, ...]
    clock: float = Field(gt=0)


class Ending(Record):
    """``runner.exit.json``. Whether it ended well is the engine's check; its times are needed here."""

    exit_code: int | None
    signal: int | None
    timed_out: bool
    started_at: float
    ended_at: float


@dataclass(frozen=True)
class Here:
    """The machine that climbs."""

    host: str
    machine_id: str
    boot_id: str


@dataclass(frozen=True)
class Facts:
    """The account, the command that gave it, and over ssh who asked."""

    account: Account
    ending: Ending
    here: Here | None


@cache
def _source() -> str:
    """The program's text: over ssh it travels with the command, for nothing has been pushed yet."""
    return Path(program.__file__).read_text(encoding="utf-8")


def _over_ssh(cluster: Cluster) -> bool:
    return cluster.connection.kind == "ssh"


def _on_slurm(cluster: Cluster) -> bool:
    return cluster.scheduler.kind == "slurm"


class Runner(Rung[RunnerSpec, Facts]):
    """One command through the connection."""

    name: ClassVar[str] = "runner"
    title: ClassVar[str] = "Runner"
    proves: ClassVar[str] = (
        "Commands run on the declared machine and can write below the shared root; where there is a Slurm, it answers."
    )
    uses: ClassVar[tuple[str, ...]] = ("cluster", "package")

    def plan(self, context: PlanContext[RunnerSpec]) -> Asked:
        cluster, root = context.cluster, str(context.root.root)
        asked: dict[str, Any] = {"nonce": context.nonce, "root": root}
        if _on_slurm(cluster):
            asked |= {"programs": list(PROGRAMS), "commands": COMMANDS, "nodes": "nodes"}
        limit = min(LONGEST_S, context.spec.time_limit_s)
        text = json.dumps(asked)
        steps: tuple[CommandStep, ...]
        if _over_ssh(cluster):
            steps = (
                CommandStep(name="here", argv=("sh", "-c", _WHO_AM_I), timeout_s=limit, here=True),
                CommandStep(name="runner", argv=(context.python, "-", text), timeout_s=limit, stdin=_source()),
            )
        else:
            local = (context.python, "-m", "surefoot.node.runner", text)
            steps = (CommandStep(name="runner", argv=local, timeout_s=limit),)
        expect: dict[str, Any] = {"nonce": context.nonce, "root": root, "surefoot": surefoot.__version__}
        return Asked(steps=steps, expect={**expect, "python": cluster.software.python or OLDEST_PYTHON})

    def read(self, view: View) -> Facts:
        data = parse_json(view.evidence.blob(STDOUT).text(), file=STDOUT)
        view.evidence.blob("raw/runner.stderr")
        return Facts(
            account=parse_record(Account, data, file=STDOUT),
            ending=view.evidence.record(Ending, "raw/runner.exit.json"),
            here=_here(view) if _over_ssh(view.inputs.cluster) else None,
        )

    def judge(self, facts: Facts, view: View) -> Judgement:
        account, cluster = facts.account, view.inputs.cluster
        checks = [check(account, view) for check in (_nonce, _python, _root)]
        checks.append(_clock(facts, view))
        checks.append(_right_host(facts.here, account, view) if facts.here else _version(account, view))
        summary = f"{account.user}@{account.host}, Python {account.python}"
        if _on_slurm(cluster):
            found, words = slurm_checks(account.programs, account.answers, account.slurmds, view, STDOUT)
            checks += found
            summary += f"; {words}"
        details = account.model_copy(update={"answers": {}, "slurmds": ()})
        return Judgement(checks=tuple(checks), summary=summary, details={"account": details.canonical()})


def _here(view: View) -> Here:
    """Three lines: host, machine id, boot id; an id that a system does not have is an empty line."""
    rows = view.evidence.blob(HERE).text().split("\n")
    if len(rows) != 4 or rows[3] or not rows[0]:
        raise EvidenceError("wants three lines: host, machine id, boot id", file=HERE, text=rows[0][:100])
    return Here(*(row.strip() for row in rows[:3]))


def _right_host(here: Here, account: Account, view: View) -> Check:
    """Another machine than this one, reached by ssh and without a terminal.

    Containers of one kernel share its boot id, copies of one image their machine id: it is this
    machine only where all that is known of both is equal.
    """
    declared = getattr(view.inputs.cluster.connection, "host", "")
    pairs = [(here.machine_id, account.machine_id), (here.boot_id, account.boot_id), (here.host, account.host)]
    this = all(mine == theirs for mine, theirs in pairs if mine and theirs)
    problems = []
    if this:
        problems.append(f"{account.host} is the machine that climbs (machine id {account.machine_id or 'unknown'})")
    if not account.ssh_connection:
        problems.append("no sshd started the command (SSH_CONNECTION is not set)")
    if account.terminal:
        problems.append("the command was given a terminal")
    ways = account.ssh_connection.split()
    way = f", port {ways[3]} of {ways[2]}" if len(ways) == 4 else ""
    return decide(
        "runner.host",
        f"ssh host {declared!r} is another machine than this one, and runs commands without asking anything",
        not problems,
        expected=f"not {here.host}",
        actual="; ".join(problems) or f"{account.user}@{account.host}{way}",
        evidence=(view.evidence.ref(STDOUT, text=f"host {account.host}"), view.evidence.ref(HERE, text=here.host)),
        derivation="host name, machine id and boot id of both; SSH_CONNECTION as sshd sets it",
        next_action=f"`ssh -G {declared}` shows where the name leads; on the login host itself, "
        "write `connection: {kind: local}`",
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
        at_least(account.python, oldest) and at_least(account.python, BARE_PYTHON),
        expected=f"≥ {oldest}",
        actual=account.python,
        evidence=(view.evidence.ref(STDOUT, text=account.executable),),
        derivation=f"software.python of the cluster file, else {OLDEST_PYTHON}, which training needs; never below {BARE_PYTHON}",
        next_action="name a newer interpreter as `python:` in the cluster file"
        + ("" if at_least(oldest, BARE_PYTHON) else f"; software.python cannot be below {BARE_PYTHON}"),
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
