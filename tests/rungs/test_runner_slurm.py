"""Runner over ssh on a Slurm site: the right host, and a Slurm that answers, judged on what a real lab said."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rungs_harness import NONCE, edited, failed, judged, planned, status_of, with_files
from slurm_views import GROUP, answered, runner_document, site
from surefoot.model.check import Check
from surefoot.model.run import CommandStep
from surefoot.model.status import Status
from surefoot.rungs.base import View
from surefoot.rungs.runner import HERE, RUNG, STDOUT
from surefoot.rungs.runner_slurm import COMMANDS


def view(case: str, *groups: dict[str, Any]) -> View:
    return answered(site(RUNG, *groups), runner_document(case))


@pytest.fixture
def good() -> View:
    return view("good")


def check(seen: View, identifier: str) -> Check:
    return next(each for each in judged(RUNG, seen).checks if each.id == identifier)


def test_a_whole_lab_passes_and_every_check_names_its_evidence(good: View) -> None:
    judgement = judged(RUNG, good)
    assert failed(RUNG, good) == set()
    assert all(each.evidence for each in judgement.checks)
    assert judgement.summary.endswith("Slurm cluster 'sched': 2 of 2 nodes take jobs")
    assert "runner.surefoot" not in {each.id for each in judgement.checks}, "nothing was pushed yet"


def test_the_program_travels_with_the_command_and_runs_where_surefoot_is_not(good: View, tmp_path: Path) -> None:
    (step,) = (s for s in good.plan.steps if isinstance(s, CommandStep) and s.name == "runner")
    asked = json.dumps({"nonce": NONCE, "root": str(tmp_path), "commands": {"a": ["true"], "b": ["no-such-thing"]}})
    bare = [sys.executable, "-I", "-S", "-", asked]
    done = subprocess.run(bare, input=step.stdin, capture_output=True, text=True, check=True, cwd=tmp_path)
    said = json.loads(done.stdout)
    assert said["surefoot"] is None
    assert said["root"]["read"] == f"{NONCE}\n"
    assert said["answers"]["a"]["exit_code"] == 0
    assert said["answers"]["b"]["error"] == "no-such-thing: not found"
    assert list(tmp_path.iterdir()) == []


def test_an_interpreter_that_is_too_old_can_run_the_program_and_is_named(good: View) -> None:
    (step,) = (s for s in good.plan.steps if isinstance(s, CommandStep) and s.name == "runner")
    ast.parse(step.stdin, feature_version=(3, 7))
    assert "strict=" not in step.stdin
    assert failed(RUNG, edited(good, STDOUT, lambda d: d.update(python="3.7.17"))) == {"runner.python"}


# --- the right host -------------------------------------------------------------------------------


def test_an_alias_that_leads_back_to_this_machine_fails(good: View) -> None:
    said = runner_document("good")
    same = f"{said['host']}\n{said['machine_id']}\n{said['boot_id']}\n".encode()
    assert failed(RUNG, with_files(good, {HERE: same})) == {"runner.host"}


@pytest.mark.parametrize("unlike", ["host", "machine_id", "boot_id"])
def test_a_container_or_a_copy_of_this_machine_is_another_one(good: View, unlike: str) -> None:
    said = {**runner_document("good"), unlike: "other"}
    mine = f"{said['host']}\n{said['machine_id']}\n{said['boot_id']}\n".encode()
    assert failed(RUNG, with_files(good, {HERE: mine})) == set()


@pytest.mark.parametrize("change", [{"ssh_connection": ""}, {"terminal": True}])
def test_a_command_that_no_sshd_ran_by_itself_fails(good: View, change: dict[str, Any]) -> None:
    assert failed(RUNG, edited(good, STDOUT, lambda d: d.update(change))) == {"runner.host"}


@pytest.mark.parametrize("content", [None, b"", b"\n\n\n", b"a\nb\nc", b"a\nb\nc\nd\n"])
def test_without_knowing_this_machine_nothing_is_proved(good: View, content: bytes | None) -> None:
    assert status_of(RUNG, with_files(good, {HERE: content})) is Status.INCONCLUSIVE


# --- Slurm ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("case", "identifier", "words"),
    [
        ("slurmd-killed", "runner.slurm.nodes", "n1: slurmd does not listen (Connection refused), although"),
        ("gres-missing", "runner.slurm.nodes", "gres/gpu count reported lower than configured (7 < 8) [said slurm]"),
        ("slurmctld-stopped", "runner.slurm.controller", "Unable to contact slurm controller"),
        ("slurmdbd-stopped", "runner.slurm.accounting", "connection to host:head:6819: Connection refused"),
    ],
)
def test_each_real_fault_fails_its_own_check_in_slurms_words(case: str, identifier: str, words: str) -> None:
    broken = view(case)
    assert failed(RUNG, broken) - {"runner.slurm.accounting" if case == "slurmctld-stopped" else ""} == {identifier}
    found = check(broken, identifier)
    assert words in str(found.actual)
    assert found.next_action
    assert found.evidence[0].line is not None, "the line that shows it"
    assert found.status is Status.FAILED


def _row(name: str, change: Callable[[str], str]) -> Callable[[Any], None]:
    """Change one node's row of ``scontrol show node``."""

    def apply(document: Any) -> None:
        rows = document["answers"]["nodes"]["stdout"]
        index = next(i for i, row in enumerate(rows) if row.startswith(f"NodeName={name} "))
        before, rows[index] = rows[index], change(rows[index])
        assert before != rows[index]

    return apply


@pytest.mark.parametrize(
    "state",
    ["DOWN", "DOWN+NOT_RESPONDING", "IDLE+DRAIN", "MIXED+DRAIN", "IDLE+INVALID_REG", "UNKNOWN", "IDLE+MAINT",
     "FAIL", "FUTURE", "IDLE+NOT_RESPONDING", "IDLE+SOMETHING_NEW", "IDLE*", "DOWN*", "MIXED*+DRAIN", "IDLE$", "IDLE@"],
)  # fmt: skip
def test_a_node_that_takes_no_jobs_fails_with_its_name_and_state(good: View, state: str) -> None:
    broken = edited(good, STDOUT, _row("n2", lambda row: row.replace("State=IDLE", f"State={state}")))
    assert failed(RUNG, broken) == {"runner.slurm.nodes"}
    assert f"n2 is {state}" in str(check(broken, "runner.slurm.nodes").actual)


@pytest.mark.parametrize(
    "state", ["ALLOCATED", "MIXED", "IDLE+PLANNED", "ALLOCATED+COMPLETING", "IDLE+POWERED_DOWN", "IDLE~", "IDLE-"]
)
def test_a_busy_or_sleeping_node_passes(good: View, state: str) -> None:
    busy = edited(good, STDOUT, _row("n2", lambda row: row.replace("State=IDLE", f"State={state}")))
    assert failed(RUNG, busy) == set()


def test_a_node_that_slurm_does_not_hear_though_it_listens_is_told_with_key_and_clock(good: View) -> None:
    deaf = edited(good, STDOUT, _row("n1", lambda row: row.replace("State=IDLE", "State=IDLE+NOT_RESPONDING")))
    words = str(check(deaf, "runner.slurm.nodes").actual)
    assert "n1: slurmd listens, and accepts nothing that is said to it: another munge key, or a clock" in words
    assert "unmunge" in check(deaf, "runner.slurm.nodes").next_action


def test_a_slurmd_that_refuses_what_the_head_says_is_named_before_slurm_knows(good: View) -> None:
    said = "scontrol: error: slurm_slurmd_info: Zero Bytes were transmitted or received"
    deaf = edited(good, STDOUT, lambda d: d["slurmds"][1].update(refused=said))
    assert failed(RUNG, deaf) == {"runner.slurm.nodes"}
    words = str(check(deaf, "runner.slurm.nodes").actual)
    assert words.startswith("n2: slurmd listens, and accepts nothing")
    assert "(Zero Bytes were transmitted or received), although Slurm still calls it fit" in words
    everywhere = edited(deaf, STDOUT, lambda d: d["slurmds"][0].update(refused=said))
    assert failed(RUNG, everywhere) == set(), "where none answers, this host may not ask"


def test_a_login_host_that_is_kept_from_all_slurmds_believes_slurm(good: View) -> None:
    kept = edited(good, STDOUT, lambda d: [row.update(error="timed out") for row in d["slurmds"]])
    assert failed(RUNG, kept) == set()


def test_a_group_on_a_network_that_the_login_host_does_not_reach_is_left_to_slurms_word() -> None:
    document = runner_document("good")
    for name in ("n3", "n4"):
        row = document["answers"]["nodes"]["stdout"][1]
        document["answers"]["nodes"]["stdout"].append(row.replace("NodeName=n2", f"NodeName={name}"))
        document["slurmds"].append({**document["slurmds"][1], "node": name, "error": "timed out", "refused": None})
    other = {"name": "far", "count": 2, "hosts": "n[3-4]"}
    assert failed(RUNG, answered(site(RUNG, GROUP, other), document)) == set()
    document["slurmds"][3]["error"] = ""
    far = check(answered(site(RUNG, GROUP, other), document), "runner.slurm.nodes")
    assert str(far.actual).startswith("n3: slurmd does not listen (timed out)")
    one = [GROUP, {"name": "a", "count": 1, "hosts": "n3"}, {"name": "b", "count": 1, "hosts": "n4"}]
    assert failed(RUNG, answered(site(RUNG, *one), document)) == {"runner.slurm.nodes"}


def test_on_the_login_host_itself_the_installed_program_asks_slurm() -> None:
    (step,) = planned(
        RUNG, {}, Path("/shared"), node_groups=[GROUP], python="python3", scheduler={"kind": "slurm"}
    ).plan.steps
    assert isinstance(step, CommandStep)
    assert step.argv[1:3] == ("-m", "surefoot.node.runner")
    assert json.loads(step.argv[3])["commands"] == COMMANDS
    assert step.stdin == ""


def test_a_declared_host_that_slurm_does_not_know_is_named() -> None:
    missing = view("good", {**GROUP, "hosts": "n[1-3]", "count": 3})
    assert "n3 is not known to Slurm" in str(check(missing, "runner.slurm.nodes").actual)
    assert failed(RUNG, missing) == {"runner.slurm.nodes"}


def test_of_a_group_without_names_as_many_nodes_as_declared_must_be_fit() -> None:
    unnamed = {"name": "any", "count": 2}
    assert failed(RUNG, view("good", unnamed)) == set()
    assert failed(RUNG, view("good", {**unnamed, "count": 3})) == {"runner.slurm.nodes"}
    assert failed(RUNG, view("gres-missing", unnamed)) == {"runner.slurm.nodes"}
    one = check(view("gres-missing", {**unnamed, "count": 1}), "runner.slurm.nodes")
    assert one.status is Status.PASSED
    assert "not so n1" in str(one.actual)


def test_a_site_that_keeps_no_accounts_says_so_and_passes(good: View) -> None:
    def disable(document: Any) -> None:
        rows = document["answers"]["config"]["stdout"]
        index = next(i for i, row in enumerate(rows) if row.startswith("AccountingStorageType "))
        rows[index] = "AccountingStorageType   = accounting_storage/none"
        document["answers"]["accounting"].update(
            exit_code=1, stderr=["Slurm accounting storage is disabled"], stdout=[]
        )

    found = check(edited(good, STDOUT, disable), "runner.slurm.accounting")
    assert found.status is Status.PASSED
    assert "switched off by configuration (accounting_storage/none)" in str(found.actual)


def test_commands_that_are_not_on_the_path_are_named(good: View) -> None:
    found = check(edited(good, STDOUT, lambda d: d["programs"].update(sbatch=None)), "runner.slurm.commands")
    assert found.status is Status.FAILED
    assert "sbatch" in str(found.actual)
    assert "PATH" in found.next_action


def test_a_slurm_that_is_too_old_fails(good: View) -> None:
    old = edited(good, STDOUT, lambda d: d["answers"]["version"].update(stdout=["slurm 19.05.8"]))
    assert failed(RUNG, old) == {"runner.slurm.commands"}


@pytest.mark.parametrize("name", COMMANDS)
def test_an_answer_that_is_missing_or_to_another_question_proves_nothing(good: View, name: str) -> None:
    assert status_of(RUNG, edited(good, STDOUT, lambda d: d["answers"].pop(name))) is Status.INCONCLUSIVE
    other = edited(good, STDOUT, lambda d: d["answers"][name].update(argv=["echo"]))
    assert status_of(RUNG, other) is Status.INCONCLUSIVE


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "queue"])
def test_an_answer_that_is_empty_never_passes(good: View, name: str) -> None:
    """Sacct and squeue that answer with nothing have answered: they were asked about nothing."""
    if name == "accounting":
        return
    empty = edited(good, STDOUT, lambda d: d["answers"][name].update(stdout=[]))
    assert status_of(RUNG, empty) is not Status.PASSED


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_that_did_not_end_never_passes(good: View, name: str) -> None:
    hung = edited(
        good, STDOUT, lambda d: d["answers"][name].update(exit_code=None, stdout=[], stderr=[], error="no answer")
    )
    assert status_of(RUNG, hung) is not Status.PASSED


def test_half_a_configuration_and_a_row_that_is_no_node_prove_nothing(good: View) -> None:
    half = edited(good, STDOUT, lambda d: d["answers"]["config"].update(stdout=d["answers"]["config"]["stdout"][:9]))
    assert status_of(RUNG, half) is Status.INCONCLUSIVE
    row = edited(good, STDOUT, lambda d: d["answers"]["nodes"]["stdout"].append("segmentation fault"))
    assert status_of(RUNG, row) is Status.INCONCLUSIVE


def test_a_node_that_nobody_knocked_at_proves_nothing(good: View) -> None:
    assert status_of(RUNG, edited(good, STDOUT, lambda d: d["slurmds"].pop())) is Status.INCONCLUSIVE
