"""A run: one recorded climb. Its manifest, what each rung was asked, what was collected, what it showed."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from surefoot.model.base import Record
from surefoot.model.check import Check
from surefoot.model.cluster import Cluster
from surefoot.model.job import Job, JobSpec
from surefoot.model.ladder import Ladder
from surefoot.model.measurement import Fingerprint, Measurement
from surefoot.model.policy import Policy
from surefoot.model.recipe import Recipe
from surefoot.model.status import Status, combine
from surefoot.model.verdict import Verdict


class RunInputs(Record):
    """What a climb is made of, resolved: no detection, no relative path is left in it."""

    cluster: Cluster
    ladder: Ladder
    recipe: Recipe
    policy: Policy
    code_digest: str
    """Tree digest of the code that jobs run from."""
    configuration_digest: str
    """Tree digest of the four files above, as they are pushed beside the code."""
    source_digests: dict[str, str] = {}
    """``train`` and ``evaluate``, where they are ``path:`` files: sha256 of their content when the run was
    started or resumed, so that edited data is a changed input."""
    ansible_digest: str = ""
    """Digest of the cluster's Ansible site and inventories, where it has one: a changed role is a changed input."""
    asked_ladder: Ladder | None = None
    """The ladder as it was chosen, where `ladder` leaves out rungs that this cluster has nothing for."""

    @property
    def left_out(self) -> tuple[str, ...]:
        """Rungs of the chosen ladder that are left out: the cluster file declares no ``ansible``."""
        asked = self.asked_ladder
        return tuple(name for name in asked.names if name not in self.ladder.names) if asked else ()

    @property
    def left_out_note(self) -> str:
        """The same, as a sentence for people; empty where nothing is left out."""
        if not self.left_out:
            return ""
        return f"left out: {', '.join(self.left_out)} (cluster {self.cluster.name!r} declares no ansible: nothing is known of them)"


class RunManifest(Record):
    """``run.json``: who asked for what, when, with which code."""

    run_id: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,80}$")
    created_at: float
    surefoot_version: str
    user: str
    host: str
    command: tuple[str, ...]
    inputs: RunInputs


class CommandStep(Record):
    """Run one command through the connection; stdout, stderr and exit code become evidence."""

    kind: Literal["command"] = "command"
    name: str
    argv: tuple[str, ...]
    env: dict[str, str] = {}
    timeout_s: float = 60
    stdin: str = ""
    """What it reads: a program for an interpreter there, before anything has been pushed."""
    here: bool = False
    """On the machine that climbs, whatever the connection: what an answer from there is compared with."""


class PushStep(Record):
    """Copy the package to ``<root>/jobs/<digest>`` (nothing to do where it is already there)."""

    kind: Literal["push"] = "push"
    name: str
    """``code`` or ``configuration``; the account of it is ``push-<name>.json``."""
    destination: str
    digest: str


class JobsStep(Record):
    """Submit these jobs together and wait for all of them."""

    kind: Literal["jobs"] = "jobs"
    jobs: tuple[JobSpec, ...]
    cancel: tuple[str, ...] = ()
    """Names of jobs that are cancelled as soon as their rank 0 shows progress."""


Step = CommandStep | PushStep | JobsStep


class Shrunk(Record):
    """An attempt asks for fewer nodes than its ladder, because its jobs waited too long for so many."""

    nodes: int = Field(ge=1)
    reason: str
    """What the jobs of the attempt before waited for, in words."""


class Plan(Record):
    """``plan.json``: what one attempt at a rung asked for. Judging reads what was asked from here."""

    run_id: str
    rung: str
    attempt: int = Field(ge=1)
    nonce: str = Field(min_length=8)
    """Random, new for each attempt; every piece of evidence carries it."""
    steps: tuple[Step, ...] = ()
    expect: dict[str, Any] = {}
    """What judging compares with: world size, devices, floors, digests."""
    inputs: dict[str, str] = {}
    """Name to digest of everything this attempt depends on."""
    shrunk: Shrunk | None = None
    """None: as many nodes as the ladder asks for."""

    @property
    def jobs(self) -> tuple[JobSpec, ...]:
        """Jobs of all steps, in order."""
        return tuple(job for step in self.steps if isinstance(step, JobsStep) for job in step.jobs)


class CollectionOutcome(StrEnum):
    """How collecting ended. Only COMPLETE evidence is judged for a pass."""

    COMPLETE = "COMPLETE"
    ABORTED = "ABORTED"
    """Interrupted; the jobs were cancelled."""
    BROKEN = "BROKEN"
    """The machinery failed."""


class SealedFile(Record):
    """One file of the evidence as it was when collecting ended."""

    sha256: str
    size_bytes: int


class Collection(Record):
    """``collection.json``: the last file of an attempt, and the seal over all others."""

    outcome: CollectionOutcome
    error: str = ""
    started_at: float
    ended_at: float
    jobs: tuple[Job, ...] = ()
    files: dict[str, SealedFile]
    """Path relative to the attempt's folder → what it held. ``plan.json`` is among them."""
    shrunk: Shrunk | None = None
    """It was given up so that the next attempt asks for fewer nodes."""


class Judgement(Record):
    """What a rung's evidence shows: the result of judging, free of clocks and of chance."""

    checks: tuple[Check, ...] = ()
    measurements: tuple[Measurement, ...] = ()
    fingerprint: Fingerprint | None = None
    verdict: Verdict | None = None
    summary: str = ""
    """One line for the ladder's view: the figure that a reader wants first."""
    details: dict[str, Any] = {}
    """Data that a report draws (curves, answers that changed). Nothing in it decides."""


class RungResult(Record):
    """``result.json``: the status of one rung in one run."""

    rung: str
    title: str
    proves: str
    status: Status
    reason: str = ""
    """Why it is BLOCKED, SKIPPED or INCONCLUSIVE as a whole."""
    attempt: int | None = None
    needs: tuple[str, ...] = ()
    started_at: float | None = None
    ended_at: float | None = None
    judgement: Judgement = Judgement()

    @model_validator(mode="after")
    def _status_follows_from_checks(self) -> Self:
        shown = combine(check.status for check in self.judgement.checks)
        if self.status is Status.PASSED and shown is not Status.PASSED:
            raise ValueError(f"says PASSED, and its checks say {shown}")
        return self

    @property
    def duration_s(self) -> float | None:
        """Seconds that collecting took."""
        if self.started_at is None or self.ended_at is None:
            return None
        return self.ended_at - self.started_at
