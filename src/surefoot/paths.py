"""The one owner of every path below a cluster's root. Nothing else joins these names.

::

    <root>/jobs/<digest>/                    code that jobs run from; configuration likewise, apart
    <root>/cache/<kind>/<digest>/            staged models and data
    <root>/envs/<digest>/python              starts the environment of the node that it runs on
                         <kind of node>/     an environment (bin/, lib/), with ready.json, written last
                         .building-…/        one that is being built
    <root>/scratch/<run>-<nonce>/            what a job needs only while it runs
    <root>/runs/<run>/run.json               manifest
                      inputs/                the user's own files, verbatim
                      report.html  junit.xml  summary.json
                      events.jsonl           what happened when, for people
                      owner.json             who climbs it, while someone does
                      rungs/<rung>/result.json
                      rungs/<rung>/attempt-001/plan.json
                                               owner.json         who collects it
                                               raw/<job>/…        evidence, verbatim
                                               raw/<job>.status.json  the scheduler's last word, where it says more
                                               raw/<command>.stdout …
                                               collection.json    seal, written last
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from surefoot.errors import RequestError

DEFAULT_ROOT = ".surefoot"
"""Where runs lie on this machine unless told otherwise: below the working directory."""
_ATTEMPT = re.compile(r"^attempt-(\d{3,})$")


def usable_root(text: str) -> Path:
    """A root on this machine: absolute, `~` and links resolved, so that it has one name however it is given.

    Raises RequestError for a name that records and logs could not hold.
    """
    if not text.isprintable():
        raise RequestError(
            f"root {text!r} holds a line break, a control character or bytes that are no UTF-8",
            next_action="name a root without them: --root DIR",
        )
    try:
        return Path(text).expanduser().resolve()
    except (OSError, RuntimeError) as error:  # a loop of links, no home
        raise RequestError(f"root {text!r}: {error}", next_action="name another: --root DIR") from error


@dataclass(frozen=True)
class RootPaths:
    """Paths below a shared root."""

    root: Path

    @property
    def runs(self) -> Path:
        return self.root / "runs"

    @property
    def cache(self) -> Path:
        return self.root / "cache"

    def pushed(self, digest: str) -> Path:
        """Where code, or configuration, of this tree digest lies."""
        return self.root / "jobs" / digest[:16]

    def environment(self, digest: str) -> EnvironmentPaths:
        """Where the Python environments of this digest lie."""
        return EnvironmentPaths(self.root / "envs" / digest[:16])

    def run(self, run_id: str) -> RunPaths:
        return RunPaths(self.runs / run_id)

    def scratch(self, run_id: str, nonce: str) -> Path:
        """A job's scratch folder on shared storage; the job removes it. Never evidence."""
        return self.root / "scratch" / f"{run_id}-{nonce}"


@dataclass(frozen=True)
class EnvironmentPaths:
    """One Python environment for each kind of node."""

    folder: Path

    @property
    def python(self) -> Path:
        """The script that starts the environment of the node it runs on (`surefoot.node.chooser`)."""
        return self.folder / "python"

    def of(self, key: str) -> Path:
        """The environment of a kind of node: what ``sys.prefix`` is in it."""
        return self.folder / key


@dataclass(frozen=True)
class RunPaths:
    """Paths of one run."""

    folder: Path

    @property
    def root(self) -> RootPaths:
        """The root that the run lies under."""
        return RootPaths(self.folder.parent.parent)

    @property
    def manifest(self) -> Path:
        return self.folder / "run.json"

    @property
    def inputs(self) -> Path:
        return self.folder / "inputs"

    @property
    def events(self) -> Path:
        return self.folder / "events.jsonl"

    @property
    def owner(self) -> Path:
        return self.folder / "owner.json"

    @property
    def report(self) -> Path:
        return self.folder / "report.html"

    @property
    def junit(self) -> Path:
        return self.folder / "junit.xml"

    @property
    def summary(self) -> Path:
        return self.folder / "summary.json"

    def rung(self, rung: str) -> RungPaths:
        return RungPaths(self.folder / "rungs" / rung)

    def rungs(self) -> list[RungPaths]:
        """Of the rungs that have left something."""
        folder = self.folder / "rungs"
        return [RungPaths(path) for path in sorted(folder.iterdir()) if path.is_dir()] if folder.is_dir() else []


@dataclass(frozen=True)
class RungPaths:
    """Paths of one rung in one run."""

    folder: Path

    @property
    def result(self) -> Path:
        return self.folder / "result.json"

    def attempt(self, number: int) -> AttemptPaths:
        return AttemptPaths(self.folder / f"attempt-{number:03d}")

    def attempts(self) -> list[int]:
        """Numbers of the attempts that exist, ascending."""
        if not self.folder.is_dir():
            return []
        found = (_ATTEMPT.match(entry.name) for entry in self.folder.iterdir() if entry.is_dir())
        return sorted(int(match.group(1)) for match in found if match)


@dataclass(frozen=True)
class AttemptPaths:
    """Paths of one attempt at a rung."""

    folder: Path

    @property
    def plan(self) -> Path:
        return self.folder / "plan.json"

    @property
    def owner(self) -> Path:
        return self.folder / "owner.json"

    @property
    def collection(self) -> Path:
        return self.folder / "collection.json"

    @property
    def raw(self) -> Path:
        return self.folder / "raw"

    def job(self, name: str) -> Path:
        return self.raw / name

    def job_status(self, name: str) -> Path:
        """The scheduler's last word on a job, where it says more than the job's own ``done.json``."""
        return self.raw / f"{name}.status.json"
