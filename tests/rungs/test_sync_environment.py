"""Sync with an environment: built for each kind of node, run from there, and anything but the lock is named."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rungs_harness import NONCE, collect, collected, edited, failed, judged, planned, run_jobs, status_of, with_files
from surefoot.evidence import EvidenceSet
from surefoot.model.check import Check
from surefoot.model.run import JobsStep, PushStep
from surefoot.model.status import Status
from surefoot.node.chooser import node_key
from surefoot.paths import RootPaths
from surefoot.rungs.base import View
from surefoot.rungs.ddp import RUNG as DDP
from surefoot.rungs.endings import ending_checks
from surefoot.rungs.runner import RUNG as RUNNER
from surefoot.rungs.sync import RUNG
from wheels import wheel

pytestmark = pytest.mark.slow
BUILD, RANK = "raw/environment/rank-0.json", "raw/sync/rank-0.json"
LOCK = ["Tiny.One==1.0", "tiny_two==2.0"]
KEY, _ = node_key(sys.executable)
HOST = os.uname().nodename


def environment(root: Path, lock: list[str] | None = None) -> dict[str, Any]:
    """As a cluster's record has it, with its wheels below `root`."""
    wheel(root / "wheels", "Tiny.One", "1.0", script="tiny")
    wheel(root / "wheels", "tiny-two", "2.0", needs=("tiny-one>=1",))
    return {"lock": "/somewhere/lock.txt", "wheels": str(root / "wheels"), "requirements": lock or LOCK}


def home_of(view: View) -> Path:
    return Path(view.expect["environment"])


def check(view: View, identifier: str) -> Check:
    return next(check for check in judged(RUNG, view).checks if check.id == identifier)


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> View:
    root = tmp_path_factory.mktemp("sync e")
    return collected(RUNG, {}, root, environment=environment(root))


def test_an_environment_from_the_lock_passes_and_is_told(good: View) -> None:
    judgement = judged(RUNG, good)
    assert status_of(RUNG, good) is Status.PASSED
    assert {check.id for check in judgement.checks} >= {
        f"sync.built.{KEY}", "sync.rank0.environment", "sync.rank0.packages",
    }  # fmt: skip
    assert judgement.summary.endswith("the same on 1 of 1 nodes; 1 environment from the lock")
    told = judgement.details["environments"][KEY]
    assert (told["built_on"], told["distributions"], told["hosts"]) == (HOST, 2, [HOST])
    assert check(good, "sync.rank0.environment").actual == str(home_of(good) / KEY)
    assert all(check.status is Status.PASSED for check in ending_checks(good.evidence) if check.id.startswith("job."))


def test_jobs_run_in_it_and_what_comes_before_it_on_the_clusters_python(good: View, tmp_path: Path) -> None:
    asked = good.inputs.cluster.environment
    assert asked is not None
    with_it = {"environment": asked.model_dump(mode="json")}
    build, verify = good.plan.jobs
    assert build.argv[0] == good.inputs.cluster.python == sys.executable
    assert verify.argv[0] == str(home_of(good) / "python")
    above = planned(DDP, {}, tmp_path, **with_it)
    assert above.plan.jobs[0].argv[0] == str(
        RootPaths(tmp_path).environment(above.inputs.cluster.environment_digest).python
    )
    assert str(planned(RUNNER, {}, tmp_path, **with_it).plan.steps[0].argv[0]) == sys.executable  # type: ignore[union-attr]


def test_without_an_environment_the_plan_knows_nothing_of_it(tmp_path: Path) -> None:
    plan = planned(RUNG, {}, tmp_path).plan
    assert [step.kind for step in plan.steps] == ["push", "push", "jobs"]
    assert set(plan.expect) == {"digests", "folders"}
    assert set(plan.jobs[0].request) == {"trees"}
    assert plan.jobs[0].argv[0] == sys.executable


# -- real damage


def verified_after(root: Path, damage: Callable[[Path], None]) -> View:
    """The evidence of a sync whose environment was damaged after it was built, and before it was verified."""
    view = planned(RUNG, {}, root, environment=environment(root))
    *before, verify = view.plan.steps
    assert isinstance(verify, JobsStep)
    view = collect(view, tuple(before), root)
    damage(home_of(view) / KEY)
    run_jobs(verify)
    folder = RootPaths(root).run("run-1").rung("sync").attempt(1).folder
    return with_files(
        view, {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    )


def info(place: Path, name: str) -> Path:
    """The dist-info folder of a distribution."""
    return next(place.glob(f"lib/python3*/site-packages/{name}-*.dist-info"))


def another_version(place: Path) -> None:
    metadata = info(place, "Tiny.One") / "METADATA"
    metadata.write_text(metadata.read_text().replace("Version: 1.0", "Version: 1.1"))


def one_less(place: Path) -> None:
    folder = info(place, "tiny_two")
    folder.rename(folder.with_name("gone"))


def one_more(place: Path) -> None:
    folder = info(place, "tiny_two").with_name("extra-3.0.dist-info")
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: Extra\nVersion: 3.0\n")


def one_twice(place: Path) -> None:
    folder = info(place, "tiny_two").with_name("tiny_two-2.1.dist-info")
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: tiny.two\nVersion: 2.1\n")


def another_build(place: Path) -> None:
    metadata = info(place, "Tiny.One") / "METADATA"
    metadata.write_text(metadata.read_text().replace("Version: 1.0", "Version: 1.0+cu130"))


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (another_version, "tiny-one is 1.1, the lock has 1.0"),
        (one_less, "tiny-two is missing, the lock has 2.0"),
        (one_more, "extra 3.0 is not in the lock"),
        (one_twice, "tiny-two is there 2 times: 2.0, 2.1"),
        (another_build, "not as it was built: Tiny.One 1.0; Tiny.One 1.0+cu130"),
    ],
)
def test_packages_that_were_changed_after_the_build_are_named_with_host_and_kind(
    tmp_path: Path, damage: Callable[[Path], None], words: str
) -> None:
    view = verified_after(tmp_path, damage)
    assert failed(RUNG, view) == {"sync.rank0.packages"}
    found = check(view, "sync.rank0.packages")
    assert found.status is Status.FAILED
    assert str(found.actual) in (words, "tiny-two is there 2 times: 2.1, 2.0")
    assert f"rank 0 on {HOST}, which is {KEY}" in found.claim
    assert str(home_of(view) / KEY) in found.next_action


def test_an_environment_that_says_another_lock_fails(tmp_path: Path) -> None:
    def relabel(place: Path) -> None:
        ready = json.loads((place / "ready.json").read_text())
        (place / "ready.json").write_text(json.dumps({**ready, "requirements": ["Tiny.One==1.0"]}))

    view = verified_after(tmp_path, relabel)
    assert failed(RUNG, view) == {"sync.rank0.environment"}
    assert check(view, "sync.rank0.environment").actual == "ready.json there is another lock's"


def test_a_node_that_has_no_environment_ends_with_its_host_and_kind_named(tmp_path: Path) -> None:
    view = verified_after(tmp_path, lambda place: place.rename(place.with_name("s390x-aix7-py3.11")))
    ended = next(check for check in ending_checks(view.evidence) if check.id == "job.sync.ended")
    assert ended.status is Status.FAILED
    assert "exit code 78" in str(ended.actual)
    told = ended.evidence[-1].text
    assert f"host {HOST} is {KEY}, and has no environment" in told
    assert "there are: s390x-aix7-py3.11" in told
    assert "→ run the rung sync again" in told
    assert status_of(RUNG, view) is Status.INCONCLUSIVE  # of the rung's own checks; the ending FAILED


def test_a_lock_that_cannot_be_built_fails_with_host_kind_and_pips_line(tmp_path: Path) -> None:
    view = planned(RUNG, {}, tmp_path, environment=environment(tmp_path, ["Tiny.One==1.0", "nowhere==4.2"]))
    view = collect(view, view.plan.steps[:3], tmp_path)  # the engine goes no further after a job that failed
    assert status_of(RUNG, view) is Status.FAILED
    found = check(view, f"sync.built.{KEY}")
    assert found.status is Status.FAILED
    assert str(found.actual).startswith(f"on {HOST}: pip install: ERROR: Could not find a version")
    assert "nowhere==4.2" in str(found.actual)
    log = found.evidence[-1]
    assert log.file == f"raw/environment/pip-{KEY}.log"
    assert log.line is not None
    assert "nowhere==4.2" in view.evidence.blob(log.file).text().splitlines()[log.line - 1]
    ended = next(check for check in ending_checks(view.evidence) if check.id == "job.environment.ended")
    assert ended.status is Status.FAILED
    assert f"host {HOST}, {KEY}: no environment: pip install: ERROR" in ended.evidence[-1].text
    assert judged(RUNG, view).summary == "no environment on 1 of 1 nodes"


# -- two nodes, as two ranks here


def two_nodes(root: Path, uname: str, lock: list[str] | None = None) -> View:
    """A view with a rank for each of two nodes; what `uname -m` says is for `uname`, a line of shell."""
    fake = root / "bin" / "uname"
    fake.parent.mkdir()
    fake.write_text(f'#!/bin/sh\nif [ "$1" = -m ]; then\n{uname}\nfi\nexec /usr/bin/uname "$@"\n')
    fake.chmod(0o755)
    env = {"PATH": f"{fake.parent}:{os.environ['PATH']}"}
    view = planned(RUNG, {}, root, environment=environment(root, lock), env=env)
    steps = []
    for step in view.plan.steps:
        if isinstance(step, JobsStep):
            jobs = tuple(job.model_copy(update={"ranks_per_node": 2}) for job in step.jobs)
            steps.append(step.model_copy(update={"jobs": jobs}))
        else:
            assert isinstance(step, PushStep)
            steps.append(step)
    plan = view.plan.model_copy(update={"steps": tuple(steps)})
    return replace(view, evidence=EvidenceSet(plan=plan, files={}))


def test_two_nodes_of_a_kind_share_one_environment_that_one_of_them_built(tmp_path: Path) -> None:
    view = two_nodes(tmp_path, ":")
    view = collect(view, view.plan.steps, tmp_path)
    assert status_of(RUNG, view) is Status.PASSED
    reports = [json.loads(view.evidence.blob(f"raw/environment/rank-{r}.json").text())["data"] for r in (0, 1)]
    assert sorted(report["outcome"] for report in reports) == ["built", "waited"]
    assert reports[0]["ready"] == reports[1]["ready"]
    assert NONCE in reports[0]["ready"]["attempt"]


def test_a_node_of_another_architecture_gets_an_environment_of_its_own_and_runs_in_it(tmp_path: Path) -> None:
    other = KEY.replace(os.uname().machine, "ppc64x")
    view = two_nodes(tmp_path, '[ "$RANK" = 1 ] && echo ppc64x && exit')
    view = collect(view, view.plan.steps, tmp_path)
    assert status_of(RUNG, view) is Status.PASSED
    assert check(view, "sync.rank0.environment").actual == str(home_of(view) / KEY)
    assert check(view, "sync.rank1.environment").actual == str(home_of(view) / other)
    assert {f"sync.built.{KEY}", f"sync.built.{other}"} <= {check.id for check in judged(RUNG, view).checks}
    assert judged(RUNG, view).summary.endswith("2 environments from the lock")


def test_a_kind_that_cannot_be_built_is_named_and_the_other_kinds_build_goes_on(tmp_path: Path) -> None:
    uname = '[ "$RANK" = 1 ] && echo "odd kind" && exit'
    view = two_nodes(tmp_path, uname)
    view = collect(view, view.plan.steps[:3], tmp_path)
    assert failed(RUNG, view) == {"sync.built.rank1"}
    found = check(view, "sync.built.rank1")
    assert "no name that a folder could have: odd kind-" in str(found.actual)
    assert check(view, f"sync.built.{KEY}").status is Status.PASSED
    assert (home_of(view) / KEY / "ready.json").exists()
    assert judged(RUNG, view).summary == "no environment on 1 of 2 nodes"


# -- forged evidence


@pytest.mark.parametrize(
    ("change", "identifiers"),
    [
        ({"prefix": "/usr"}, {"sync.rank0.environment"}),
        ({"executable": "/usr/bin/python3"}, {"sync.rank0.environment"}),
        ({"key": "aarch64-debian12-py3.11"}, {"sync.rank0.environment"}),
        ({"ready": None}, {"sync.rank0.environment"}),
        ({"ready": {}}, {"sync.rank0.environment"}),
        ({"distributions": []}, {"sync.rank0.packages"}),
        ({"distributions": [["tiny-two", "2.0"]]}, {"sync.rank0.packages"}),
        ({"distributions": [["Tiny.One", "1.0"], ["tiny-two", "None"]]}, {"sync.rank0.packages"}),
    ],
)
def test_a_rank_that_ran_elsewhere_or_with_other_packages_fails(
    good: View, change: dict[str, Any], identifiers: set[str]
) -> None:
    assert failed(RUNG, edited(good, RANK, lambda d: d["data"]["environment"].update(change))) == identifiers


@pytest.mark.parametrize(
    "change",
    [
        {"outcome": "failed"},
        {"ready": None},
        {"failure": {"step": "pip install", "text": "ERROR: x", "line": 3, "advice": "", "log": "pip.log"}},
        {"key": ""},
    ],
)
def test_a_build_that_tells_of_no_environment_never_passes(good: View, change: dict[str, Any]) -> None:
    assert status_of(RUNG, edited(good, BUILD, lambda d: d["data"].update(change))) is Status.FAILED


def test_a_rank_that_does_not_tell_where_it_ran_proves_nothing(good: View) -> None:
    damaged = edited(good, RANK, lambda d: d["data"].pop("environment"))
    assert status_of(RUNG, damaged) is Status.INCONCLUSIVE


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every figure and word in JSON data."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inside:
        yield from leaves(item, (*path, key))
    if not isinstance(value, (dict, list)):
        yield path


FOR_PEOPLE = {"attempt", "host", "base", "started_at", "ended_at", "python", "conflicts"}
"""Of ready.json: who built it, when and on what. No claim rests on it where it is told once."""


@pytest.mark.parametrize("value", [None, "", "other", 7, [], {}])
def test_no_word_of_what_a_rank_tells_of_its_environment_can_be_another(good: View, value: Any) -> None:
    said = json.loads(good.evidence.blob(RANK).text())["data"]["environment"]
    passed = []
    for path in leaves(said):

        def change(data: dict[str, Any], path: tuple[Any, ...] = path) -> None:
            holder = data["data"]["environment"]
            for key in path[:-1]:
                holder = holder[key]
            holder[path[-1]] = value

        if status_of(RUNG, edited(good, RANK, change)) is Status.PASSED:
            passed.append(path)
    assert [path for path in passed if path[0] != "ready" or path[1] not in FOR_PEOPLE] == []


@pytest.mark.parametrize("name", [BUILD, RANK, "raw/environment/done.json", "raw/environment/job.json"])
def test_without_one_of_its_files_nothing_is_proved(good: View, name: str) -> None:
    assert status_of(RUNG, with_files(good, {name: None})) is Status.INCONCLUSIVE


def test_built_twice_is_not_built_once(tmp_path: Path) -> None:
    view = two_nodes(tmp_path, ":")
    view = collect(view, view.plan.steps, tmp_path)
    damaged = edited(view, "raw/environment/rank-1.json", lambda d: d["data"]["ready"].update(ended_at=1.0))
    assert failed(RUNG, damaged) == {f"sync.built.{KEY}"}
    both = view
    for rank in (0, 1):
        both = edited(both, f"raw/environment/rank-{rank}.json", lambda d: d["data"].update(outcome="built"))
    assert failed(RUNG, both) == {f"sync.built.{KEY}"}
    assert "built more than once" in str(check(both, f"sync.built.{KEY}").actual)
