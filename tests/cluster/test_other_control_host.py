"""A single control host is none that a run depends on: it is lost whole in the middle of a job, and another goes on.

A control host here is a host name, a clone, a home, a folder for temporary files and a working directory, all its
own. When it is lost, its processes are killed and all of that is deleted. What is left is git and the shared root.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
from dataclasses import dataclass
from pathlib import Path

import pytest

from drilling import QUICK, Drill, attempts, settled, statuses, wait_until
from held import Held, remove_folder
from lab_drill import LabDrill, events
from surefoot.files import sha256_file
from surefoot.lab.places import LabPaths

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.timeout(900)]

SOURCES = Path(__file__).parents[2] / "src"
LADDER = (*QUICK, "--set", "fake_trainer.seconds=30")
"""Long enough to lose the first host, and to find its job still there."""


@dataclass
class ControlHost(LabDrill):
    """Commands on a control host, and how it is lost."""

    def lose(self) -> None:
        """Its power is cut, and its disk is gone."""
        while pids := self.processes():
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.root.parents[1])


def control_host(held: Held, lab: LabPaths, name: str) -> ControlHost:
    """A host of this name, with nothing on it but a clone."""
    folder = held.folder(f"{name}-")
    shutil.copytree(SOURCES, folder / "clone/src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    env = {"PYTHONPATH": str(folder / "clone/src"), "HOME": str(folder / "home"), "TMPDIR": str(folder / "tmp")}
    env |= {f"XDG_{kind}_HOME": str(folder / "home" / kind.lower()) for kind in ("CACHE", "CONFIG", "DATA", "STATE")}
    for place in ("home", "tmp"):
        (folder / place).mkdir()
    named = ("unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', name)
    return ControlHost(folder / "work/.surefoot", lab=lab, before=named, env=env)


def sealed(run: Path) -> dict[str, str]:
    """Path → digest of every seal and of every file that one names, below a run's folder; each as its seal says."""
    found = {}
    for seal in run.glob("rungs/*/attempt-*/collection.json"):
        found[str(seal.relative_to(run))] = sha256_file(seal)
        for name, told in json.loads(seal.read_text())["files"].items():
            digest = sha256_file(seal.parent / name)
            assert digest == told["sha256"], seal.parent / name
            found[str((seal.parent / name).relative_to(run))] = digest
    return found


def test_a_run_passes_from_another_control_host_when_the_first_is_lost_with_all_that_it_had(
    climbing_lab: LabPaths, held: Held
) -> None:
    first, other = (control_host(held, climbing_lab, name) for name in ("first", "other"))
    try:
        climb = first.start("climb", *first.on_lab, *LADDER, "--to", "fake_trainer")
        run = first.run_folder().name
        shared = first.paths.shared / "runs" / run

        def in_the_middle() -> bool:
            assert climb.poll() is None, climb.communicate()
            return any("fake" in job for job in first.on_head("squeue", "-h", "-t", "R", "-o", "%i_%j").split())

        wait_until(in_the_middle)
        first.lose()
        climb.communicate()
        assert not first.root.exists()
        running = set(first.queue())
        assert any("fake" in job for job in running), "the job outlives the host that submitted it"
        before, there = sealed(shared), settled(shared)
        assert {name.split("/")[1] for name in before} >= {"runner", "sync", "scheduler"}

        # The other one has the clone, the cluster file and the run's name, and is told that the first is gone.
        again = ("climb", "--resume", run, *other.on_lab, "--to", "fake_trainer")
        refused = other.run(*again)
        assert refused.returncode == 3
        assert "climbed from first" in refused.stderr
        assert "--take-over" in refused.stderr
        assert set(first.queue()) == running, "until then nothing of the first's is touched"
        went_on = other.run(*again, "--take-over", "--json")
        assert went_on.returncode == 0, went_on.stderr[-3000:] + went_on.stdout[-3000:]
        assert f"jobs that first left of run {run!r}, ended before it goes on here" in went_on.stderr
        answer = json.loads(went_on.stdout)
        assert answer["asked"]["status"] == "PASSED"
        assert set(answer["asked"]["rungs"]) >= {"scheduler", "fake_trainer"}

        # What the first had sealed is as it was, on both sides; what it had not sealed was made anew, once.
        for place in (shared, other.run_folder()):
            assert {name: digest for name, digest in sealed(place).items() if name in before} == before
            assert {name: content for name, (_, content) in settled(place).items() if name in there} == {
                name: content for name, (_, content) in there.items()
            }
        done = {name.split("/")[1] for name in before}
        made = {rung: number for rung, number in attempts(other.run_folder()).items() if number}
        assert {rung: made[rung] for rung in done} == dict.fromkeys(done, 1)
        assert made["fake_trainer"] == 2
        assert max(made.values()) == 2

        # No job twice, none left: those of the first that still ran were ended before their rung ran again.
        assert first.queue() == []
        ended = account(other, shared)
        assert ended["fake_trainer", 1] == {"CANCELLED"}
        assert ended["fake_trainer", 2] == {"COMPLETED"}
        # Shown from the shared root. Its exit code is that of the whole ladder, of which a part was asked for.
        judged = json.loads(Drill(first.paths.shared).run("show", run, "--json").stdout)
        asked = set(answer["asked"]["rungs"])
        assert {rung: status for rung, status in statuses(judged).items() if rung in asked} == dict.fromkeys(
            asked, "PASSED"
        )
        assert judged["differs_from_recorded"] == []
        log = [(row["kind"], row.get("rung")) for row in events(shared)]
        assert log.count(("rung_started", "sync")) == 1, "what happened before the first was lost is still told"
        assert events(shared) == events(other.run_folder())
    finally:
        for host in (first, other):
            remove_folder(str(host.root.parents[1]))


def account(drill: LabDrill, run: Path) -> dict[tuple[str, int], set[str]]:
    """(rung, attempt) → how the jobs of that attempt ended, by Slurm's accounting: for each submission one job."""
    rows = drill.on_head("sacct", "-n", "-X", "-P", "-a", "-o", "comment%200,jobid,state").splitlines()
    jobs = [row.split("|") for row in rows if row.startswith(f"surefoot:{run.name}:")]
    assert jobs, rows
    ids: dict[str, set[str]] = {}
    for tag, job, _ in jobs:
        ids.setdefault(tag, set()).add(job.split("_")[0])  # elements of an array are one
    assert {tag: found for tag, found in ids.items() if len(found) > 1} == {}, "a job was submitted twice"
    plans = {json.loads(plan.read_text())["nonce"]: plan.parent for plan in run.glob("rungs/*/attempt-*/plan.json")}
    ended: dict[tuple[str, int], set[str]] = {}
    for tag, _, state in jobs:
        attempt = plans[tag.split(":")[2]]
        key = attempt.parent.name, int(attempt.name.removeprefix("attempt-"))
        ended.setdefault(key, set()).add(state.split()[0])
    return ended
