"""``surefoot preflight --drain``: what is printed, what stands in JSON, and that no exit code becomes a better one."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slurm_to_drain import SlurmToDrain
from surefoot.connection.local import LocalConnection
from surefoot.model.run import Judgement
from surefoot.model.status import Status
from surefoot.rungs.base import View
from surefoot.scheduler.local import LocalScheduler
from toy_cli import ToyCli
from toy_ladder import NAMES, WRITES_42, ToyRung

CLUSTER = """
name: pretended
root: {root}
scheduler: {{kind: slurm}}
node_groups: [{{name: nodes, count: 2}}]
"""
WRITES_41 = WRITES_42.replace("42", "41")


class Blaming(ToyRung):
    """A rung whose FAILED check shows n2 to be at fault."""

    def judge(self, facts: str, view: View) -> Judgement:
        judged = super().judge(facts, view)
        (check,) = judged.checks
        nodes = ("n2",) if check.status is Status.FAILED else ()
        return judged.model_copy(update={"checks": (check.model_copy(update={"nodes": nodes}),)})


Preflight = Callable[..., Any]


@pytest.fixture
def slurm() -> SlurmToDrain:
    return SlurmToDrain({"n1": ("idle", ""), "n2": ("idle", "")})


@pytest.fixture
def preflight(toy: ToyCli, slurm: SlurmToDrain, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Preflight:
    """The toy ladder as of a Slurm cluster. Jobs are processes; what is asked of Slurm about nodes, `slurm` answers."""
    monkeypatch.setattr("surefoot.engine.session.connect", lambda *_, **__: (LocalConnection(), LocalScheduler()))
    monkeypatch.setattr("surefoot.engine.draining.connect", lambda *_, **__: (slurm, None))
    cluster = tmp_path / "pretended.yaml"
    cluster.write_text(CLUSTER.format(root=toy.root))

    def run(*words: str, code: str = WRITES_41, local: bool = False) -> Any:
        toy.set()
        rungs = {name: Blaming(name, code if name == "precheck" else WRITES_42) for name in NAMES}
        monkeypatch.setattr("surefoot.cli.running.RUNGS", rungs)
        where = () if local else ("--cluster", str(cluster))
        return toy("preflight", *where, "--ladder", str(toy.ladder), *words)

    return run


def reason(toy: ToyCli) -> str:
    return f"surefoot: toy.answer: 41, expected 42 {toy.only_run.folder.name}/rungs/precheck/attempt-001/raw/toy/answer"


def test_a_node_at_fault_is_proposed_as_a_command_to_paste_and_nothing_is_changed(
    preflight: Preflight, slurm: SlurmToDrain, toy: ToyCli
) -> None:
    said = preflight("--drain")
    assert (said.code, slurm.updates) == (1, [])
    (line,) = [line.strip() for line in said.out.splitlines() if line.strip().startswith("scontrol")]
    assert shlex.split(line) == ["scontrol", "update", "nodename=n2", "state=drain", f"reason={reason(toy)}"]
    assert "proposed, nothing was changed (at most 1 of 2 nodes of gpu may be out, 0 are)" in said.out
    assert "--yes" in said.out.splitlines()[-1]


def test_with_yes_it_is_drained_and_what_stands_there_is_told(
    preflight: Preflight, slurm: SlurmToDrain, toy: ToyCli
) -> None:
    said = preflight("--drain", "--yes")
    assert said.code == 1
    assert slurm.nodes == {"n1": ("idle", ""), "n2": ("drained", reason(toy))}
    assert f"Drained: n2 is drained ({reason(toy)})" in said.out


def test_json_is_one_document_that_holds_what_was_proposed_and_what_was_done(preflight: Preflight, toy: ToyCli) -> None:
    told = preflight("--drain", "--yes", "--drain-share", "0.5", "--json").json
    assert told["asked"]["exit_code"] == 1
    assert told["drain"] == {
        "yes": True,
        "share": 0.5,
        "at_fault": [{"node": "n2", "checks": ["toy.answer"]}],
        "partition": "gpu",
        "nodes": 2,
        "most": 1,
        "out_before": [],
        "withheld": False,
        "drained": ["n2"],
        "stands": [{"node": "n2", "drained": True, "told": f"n2 is drained ({reason(toy)})"}],
        "left_alone": {},
        "to_do": [],
        "problems": [],
    }


def test_json_of_a_proposal_has_the_command(preflight: Preflight, slurm: SlurmToDrain) -> None:
    told = preflight("--drain", "--json").json["drain"]
    (todo,) = told["to_do"]
    assert (todo["nodes"], told["drained"], slurm.updates) == (["n2"], [], [])
    assert shlex.split(todo["command"])[:4] == ["scontrol", "update", "nodename=n2", "state=drain"]


def test_over_the_limit_it_says_how_many_and_what_to_do(preflight: Preflight, slurm: SlurmToDrain) -> None:
    slurm.nodes["n1"] = ("down", "power")
    said = preflight("--drain", "--yes")
    assert (said.code, slurm.updates) == (1, [])
    assert "Drain: nothing is drained. At fault: n2, and out already: n1. That makes 2 of 2 nodes" in said.out
    assert "--drain-share 1" in said.out
    assert "scontrol" not in said.out


def test_a_node_that_is_drained_already_keeps_its_reason(preflight: Preflight, slurm: SlurmToDrain) -> None:
    slurm.nodes["n2"] = ("drained", "jo: bad rail")
    said = preflight("--drain", "--yes")
    assert (said.code, slurm.updates) == (1, [])
    assert "Left as it is: n2: out of service already: n2 is drained (jo: bad rail)" in said.out


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_a_refusal_is_told_with_the_command_for_an_admin_and_is_never_exit_0(
    preflight: Preflight, slurm: SlurmToDrain, words: tuple[str, ...]
) -> None:
    slurm.refusal = b"slurm_update error: Invalid user id"
    said = preflight("--drain", "--yes", *words)
    assert said.code == 1
    people = said.err if words else said.out
    assert "NOT drained: n2 is idle" in people
    assert "Invalid user id" in people
    assert "scontrol update nodename=n2 state=drain" in people


@pytest.mark.parametrize("code", [WRITES_42, "pass"], ids=["a run that passed", "a run that is not conclusive"])
def test_where_nothing_failed_slurm_is_not_asked_and_the_exit_code_is_the_run_s(
    preflight: Preflight, slurm: SlurmToDrain, code: str
) -> None:
    said = preflight("--drain", "--yes", code=code)
    assert said.code == (0 if code == WRITES_42 else 2)
    assert "Drain: no check that FAILED names a node at fault. Nothing was changed." in said.out
    assert slurm.looks == 0


def test_without_drain_nothing_of_it_happens(preflight: Preflight, slurm: SlurmToDrain) -> None:
    said = preflight("--json")
    assert "drain" not in said.json
    assert slurm.looks == 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--yes",), "go with --drain"),
        (("--drain-share", "0.5"), "go with --drain"),
        (("--drain", "--drain-share", "0"), "--drain-share 0"),
        (("--drain", "--drain-share", "1.5"), "--drain-share 1.5"),
        (("--drain", "--drain-share", "nan"), "--drain-share nan"),
    ],
)
def test_options_that_make_no_sense_are_refused_before_anything_runs(
    preflight: Preflight, toy: ToyCli, words: tuple[str, ...], told: str
) -> None:
    said = preflight(*words)
    assert said.code == 3
    assert told in said.err
    assert toy.runs == []


def test_without_slurm_it_is_refused_before_anything_runs(preflight: Preflight, toy: ToyCli) -> None:
    said = preflight("--drain", local=True)
    assert said.code == 3
    assert "--drain needs Slurm" in said.err
    assert toy.runs == []
