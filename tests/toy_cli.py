"""The command line in this process, on the toy ladder: real commands, real jobs, a second each."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from surefoot.cli import run
from surefoot.paths import RunPaths
from toy_ladder import toys

LADDER = """name: toy
rungs:
  - rung: runner
  - {rung: sync, needs: [runner]}
  - {rung: scheduler, needs: [sync]}
  - {rung: precheck, needs: [sync]}
"""


@dataclass(frozen=True)
class Said:
    """What a command answered."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass
class ToyCli:
    """Commands on one root. `codes` are what the rungs' jobs run."""

    root: Path
    ladder: Path
    patch: pytest.MonkeyPatch
    capture: pytest.CaptureFixture[str]

    def set(self, **codes: str) -> None:
        """From now on the rungs run `codes`; where none is given they write the right answer."""
        rungs = toys(**codes)
        self.patch.setattr("surefoot.cli.running.RUNGS", rungs)
        self.patch.setattr("surefoot.cli.runs.RUNGS", rungs)
        self.patch.setattr("surefoot.cli.dry_run.RUNGS", rungs)

    def __call__(self, *arguments: str) -> Said:
        self.capture.readouterr()
        code = run([*arguments, "--root", str(self.root)])
        out, err = self.capture.readouterr()
        return Said(code, out, err)

    def climb(self, *arguments: str) -> Said:
        """A new climb of the toy ladder."""
        return self("climb", "--ladder", str(self.ladder), *arguments)

    @property
    def runs(self) -> list[RunPaths]:
        return [RunPaths(path.parent) for path in sorted((self.root / "runs").glob("*/run.json"))]

    @property
    def only_run(self) -> RunPaths:
        (run_paths,) = self.runs
        return run_paths


def statuses(summary: Mapping[str, Any]) -> dict[str, str]:
    """Rung → status of a ``--json`` answer."""
    return {row["rung"]: row["status"] for row in summary["rungs"]}
