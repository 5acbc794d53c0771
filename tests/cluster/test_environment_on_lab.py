"""Environments on real hosts: built on one of two through ssh and Slurm, run on both, and what differs is named."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from drilling import statuses
from lab_drill import LabDrill, lab
from surefoot.lab.places import LabPaths
from wheels import wheel

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]
PYTHON = "/usr/bin/python3"
KEY = "x86_64-debian12-py3.11"
LADDER = """name: short
rungs:
  - rung: runner
  - rung: sync
    needs: [runner]
  - rung: fake_trainer
    needs: [sync]
    seconds: 0.5
"""


@pytest.fixture
def drill(climbing_lab: LabPaths, tmp_path: Path) -> LabDrill:
    return LabDrill(tmp_path / "root", lab=climbing_lab)


def cluster_file(drill: LabDrill, version: str, *, environment: bool = True, python: str = PYTHON) -> str:
    """The lab's cluster file with another interpreter, and with an environment from a lock of tiny wheels.

    `version` of the first wheel: a test's own, so that its environment is its own.
    """
    wheels, folder = drill.paths.shared / "wheels", drill.root.parent
    wheel(wheels, "Tiny.One", version, script="tiny")
    wheel(wheels, "tiny-two", "2.0", needs=("tiny-one",))
    (folder / "lock.txt").write_text(f"Tiny.One=={version}\ntiny_two==2.0\n")
    asked = f"python: {python}\n" + (f"environment:\n  lock: lock.txt\n  wheels: {wheels}\n" if environment else "")
    text = re.sub(r"^python:.*\n", lambda _: asked, drill.paths.cluster.read_text(), flags=re.MULTILINE)
    (folder / "short.yaml").write_text(LADDER)
    path = folder / "cluster.yaml"
    path.write_text(text.replace("config: ssh_config", f"config: {drill.paths.ssh_config}"))
    return str(path)


def climb(drill: LabDrill, cluster: str, code: int = 0) -> Any:
    """A climb to the rung sync."""
    return drill.json("climb", "--cluster", cluster, "--ladder", "short.yaml", "--to", "sync", code=code)


def on(drill: LabDrill, host: str, script: str) -> None:
    lab("exec", host, "--", "/bin/sh", "-c", script, name=drill.paths.folder.name)


def checks(run: Path) -> dict[str, Any]:
    """The checks of the rung sync in its last attempt, by id."""
    result = json.loads((run / "rungs/sync/result.json").read_text())
    return {check["id"]: check for check in result["judgement"]["checks"]}


def reports(run: Path, attempt: int, job: str) -> dict[str, Any]:
    """Host → what its rank of this job said."""
    files = (run / f"rungs/sync/attempt-{attempt:03d}/raw/{job}").glob("rank-*.json")
    said = [json.loads(path.read_text()) for path in files]
    return {report["host"]: report["data"] for report in said}


def test_one_host_builds_both_run_in_it_and_the_next_time_it_is_there(drill: LabDrill) -> None:
    cluster = cluster_file(drill, "1.0")
    answer = climb(drill, cluster)
    assert statuses(answer)["sync"] == "PASSED"
    run = drill.run_folder()
    built = reports(run, 1, "environment")
    assert set(built) == {"n1", "n2"}
    assert sorted(report["outcome"] for report in built.values()) == ["built", "waited"]
    places = {host: report["environment"]["prefix"] for host, report in reports(run, 1, "sync").items()}
    assert set(places) == {"n1", "n2"}
    (place,) = set(places.values())
    assert re.fullmatch(rf"{drill.paths.shared}/envs/[0-9a-f]{{16}}/{KEY}", place)
    assert {path.name for path in Path(place).parent.iterdir()} == {"python", KEY}  # nothing half-built
    drill.json("climb", "--resume", run.name, "--again", "sync", "--to", "sync")
    assert {report["outcome"] for report in reports(run, 2, "environment").values()} == {"there"}


def test_packages_that_somebody_changed_are_named_with_both_hosts(drill: LabDrill) -> None:
    cluster = cluster_file(drill, "1.1")
    climb(drill, cluster)
    run = drill.run_folder()
    place = Path(reports(run, 1, "sync")["n1"]["environment"]["prefix"])
    (metadata,) = place.glob("lib/python3*/site-packages/Tiny.One-*.dist-info/METADATA")
    metadata.write_text(metadata.read_text().replace("Version: 1.1", "Version: 7"))
    drill.json("climb", "--resume", run.name, "--again", "sync", "--to", "sync", code=1)
    named = [check for name, check in checks(run).items() if name.endswith(".packages")]
    assert {check["status"] for check in named} == {"FAILED"}
    assert {check["actual"] for check in named} == {"tiny-one is 7, the lock has 1.1"}
    assert {re.search(r"on (n\d), which is (\S+),", check["claim"]).groups() for check in named} == {  # type: ignore[union-attr]
        ("n1", KEY), ("n2", KEY),
    }  # fmt: skip


def test_a_host_of_another_architecture_builds_and_runs_its_own_and_is_named_where_it_is_gone(drill: LabDrill) -> None:
    other = KEY.replace("x86_64", "aarch64x")
    on(drill, "n2", "printf '#!/bin/sh\\n[ \"$1\" = -m ] && echo aarch64x || exec /usr/bin/uname \"$@\"\\n'"
       " > /usr/local/bin/uname; chmod 755 /usr/local/bin/uname")  # fmt: skip
    try:
        cluster = cluster_file(drill, "1.2")
        climb(drill, cluster)
        run = drill.run_folder()
        found = {host: report["environment"]["prefix"] for host, report in reports(run, 1, "sync").items()}
        assert {host: Path(place).name for host, place in found.items()} == {"n1": KEY, "n2": other}
        assert {report["outcome"] for report in reports(run, 1, "environment").values()} == {"built"}
        (Path(found["n2"]) / "ready.json").unlink()  # as if it had never been built: the next rung's ranks
        answer = drill.json("climb", "--resume", run.name, "--to", "fake_trainer", code=1)
        assert statuses(answer)["fake_trainer"] == "FAILED"
        result = json.loads((run / "rungs/fake_trainer/result.json").read_text())
        ended = next(check for check in result["judgement"]["checks"] if check["id"] == "job.fake_trainer.ended")
        told = " ".join(evidence["text"] for evidence in ended["evidence"])
        assert f"host n2 is {other}, and has no environment in {drill.paths.shared}/envs/" in told
        assert f"there are: {KEY}" in told
        assert "exit code 78" in ended["actual"]
    finally:
        on(drill, "n2", "rm -f /usr/local/bin/uname")


def test_a_lock_that_no_wheel_fits_fails_with_host_kind_and_pips_line(drill: LabDrill) -> None:
    cluster = cluster_file(drill, "1.3")
    (drill.root.parent / "lock.txt").write_text("Tiny.One==1.3\nnowhere==4.2\n")
    climb(drill, cluster, code=1)
    told = checks(drill.run_folder())[f"sync.built.{KEY}"]
    assert told["status"] == "FAILED"
    assert re.match(r"on n\d, n\d: pip install: ERROR: .*nowhere==4\.2", told["actual"])


@pytest.mark.parametrize(("host", "status", "code"), [("n1", "ERROR", 4), ("n2", "FAILED", 1)])
def test_a_host_without_the_clusters_python_is_named_with_the_reason(
    drill: LabDrill, host: str, status: str, code: int
) -> None:
    for other in {"head", "n1", "n2"} - {host}:
        on(drill, other, "ln -sf /usr/bin/python3 /opt/python3")
    try:
        cluster = cluster_file(drill, "1.4", environment=False, python="/opt/python3")
        answer = climb(drill, cluster, code=code)
        assert statuses(answer)["sync"] == status
        ended = checks(drill.run_folder())["job.sync.ended"]
        told = " ".join(evidence["text"] for evidence in ended["evidence"])
        assert f"host {host}: /opt/python3 is not there (exit code 127)" in told
        assert host in ended["actual"]
    finally:
        on(drill, "head", "rm -f /opt/python3")
        on(drill, "n1", "rm -f /opt/python3")
        on(drill, "n2", "rm -f /opt/python3")
