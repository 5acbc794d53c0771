"""Rungs about Ansible where a cluster declares none: left out where the ladder allows it, refused where it does not."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot.engine.left_out import fitting, refuse_missing_ansible
from surefoot.engine.selection import below
from surefoot.errors import RequestError
from surefoot.model.cluster import Ansible, Cluster, NodeGroup
from surefoot.model.ladder import Ladder
from surefoot.model.run import RunInputs
from surefoot.provision.tools import find_tool
from toy_ladder import chosen

BARE = Cluster(name="bare", root="/srv/x", node_groups=(NodeGroup(name="all", count=1),))
SITE = Ansible(site="/srv/site", inventory=("/srv/hosts.yml",))
DECLARED = BARE.model_copy(update={"ansible": SITE})


def made(*rungs: Mapping[str, Any]) -> Ladder:
    return Ladder.model_validate({"name": "mine", "rungs": list(rungs)})


def rung(name: str, *needs: str, **keys: Any) -> dict[str, Any]:
    return {"rung": name, "needs": needs, **keys}


OPTIONAL = made(
    rung("runner"),
    rung("sync", "runner"),
    rung("inventory", "sync", optional=True),
    rung("drift", "inventory", optional=True),
    rung("scheduler", "drift", "sync"),
    rung("precheck", "runner", "drift"),
)


def needs(ladder: Ladder) -> dict[str, tuple[str, ...]]:
    return {spec.rung: spec.needs for spec in ladder.rungs}


def test_where_ansible_is_declared_every_rung_stays() -> None:
    assert fitting(OPTIONAL, DECLARED) is OPTIONAL
    demanded = made(rung("runner"), rung("drift", "runner"))
    assert fitting(demanded, DECLARED) is demanded


def test_a_ladder_without_such_rungs_stays_as_it_is() -> None:
    plain = made(rung("runner"), rung("sync", "runner"))
    assert fitting(plain, BARE) is plain


def test_what_needed_a_rung_that_is_left_out_needs_what_that_one_needed_each_once() -> None:
    """Here sync stands twice behind scheduler's needs: by drift and inventory, and by itself."""
    assert needs(fitting(OPTIONAL, BARE)) == {
        "runner": (),
        "sync": ("runner",),
        "scheduler": ("sync",),
        "precheck": ("runner", "sync"),
    }


def test_all_else_of_the_ladder_stays() -> None:
    left = fitting(OPTIONAL, BARE)
    assert (left.name, left.description) == (OPTIONAL.name, OPTIONAL.description)
    assert left.spec("runner") == OPTIONAL.spec("runner")
    assert OPTIONAL.spec("scheduler").needs == ("drift", "sync"), "the ladder that was asked for is not changed"


def test_one_that_needs_nothing_leaves_nothing_to_need() -> None:
    assert needs(fitting(made(rung("drift", optional=True), rung("sync", "drift")), BARE)) == {"sync": ()}


@given(st.data())
def test_among_the_rungs_that_stay_each_still_stands_on_all_that_it_stood_on(data: st.DataObject) -> None:
    """For any ladder: nothing that must have PASSED before a rung is lost, and nothing is added."""
    names = ("runner", "sync", "inventory", "scheduler", "drift", "precheck", "storage")
    rungs = []
    for at, name in enumerate(names):
        below_it = data.draw(st.lists(st.sampled_from(names[:at]), unique=True)) if at else []
        rungs.append(rung(name, *below_it, **({"optional": True} if name in ("inventory", "drift") else {})))
    ladder = made(*rungs)
    left = fitting(ladder, BARE)
    assert left.names == tuple(name for name in names if name not in ("inventory", "drift"))
    for name in left.names:
        assert below(left, (name,)) == below(ladder, (name,)) - {"inventory", "drift"}


def test_one_that_is_not_optional_is_refused_with_its_name_and_both_ways_out() -> None:
    ladder = made(rung("sync"), rung("inventory", "sync", optional=True), rung("drift", "inventory"))
    with pytest.raises(RequestError) as caught:
        fitting(ladder, BARE)
    assert caught.value.message == "ladder 'mine' asks for drift, and cluster 'bare' declares no ansible"
    assert "declare the site under `ansible:` in the cluster file" in caught.value.next_action
    assert "write `optional: true` at the rung" in caught.value.next_action


def test_of_several_that_are_not_optional_each_is_named() -> None:
    with pytest.raises(RequestError, match="asks for inventory, drift, and"):
        fitting(made(rung("inventory"), rung("drift")), BARE)


def test_a_ladder_of_which_nothing_is_left_is_refused_and_is_no_empty_pass() -> None:
    with pytest.raises(RequestError, match="nothing is left of ladder 'mine': cluster 'bare' declares no ansible"):
        fitting(made(rung("inventory", optional=True), rung("drift", optional=True)), BARE)


# --- no Ansible on this machine -------------------------------------------------------------------


def program(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with Ansible neither beside this interpreter nor on the PATH; a folder that is on the PATH."""
    path = tmp_path / "path"
    path.mkdir()
    monkeypatch.setenv("PATH", str(path))
    monkeypatch.setattr(sys, "executable", str(program(tmp_path / "own/python")))
    monkeypatch.chdir(tmp_path)
    return path


def inputs(python: str, ladder: Ladder = OPTIONAL) -> RunInputs:
    asked = chosen(Path("/srv/x"))
    assert asked.recipe is not None
    assert asked.policy is not None
    cluster = DECLARED.model_copy(update={"ansible": SITE.model_copy(update={"python": python})})
    return RunInputs(
        cluster=cluster,
        ladder=ladder,
        recipe=asked.recipe,
        policy=asked.policy,
        code_digest="",
        configuration_digest="",
    )


@pytest.mark.usefixtures("nowhere")
def test_without_ansible_the_rungs_that_were_asked_for_are_named_with_where_it_was_looked_for() -> None:
    with pytest.raises(RequestError) as caught:
        refuse_missing_ansible(inputs("/opt/none/bin/python"), frozenset(OPTIONAL.names))
    said = "inventory, drift: no ansible-playbook and no ansible-inventory on this machine, neither beside /opt/none/bin/python"
    assert caught.value.message == f"{said} nor on the PATH"
    assert "pip install 'surefoot[ansible]'" in caught.value.next_action
    assert "ansible.python in the cluster file" in caught.value.next_action


@pytest.mark.usefixtures("nowhere")
def test_only_what_is_asked_for_needs_ansible() -> None:
    refuse_missing_ansible(inputs("/opt/none/bin/python"), frozenset(["runner", "sync", "precheck"]))
    with pytest.raises(RequestError, match=r"^drift: no ansible-playbook"):
        refuse_missing_ansible(inputs("/opt/none/bin/python"), frozenset(["runner", "drift"]))


@pytest.mark.usefixtures("nowhere")
def test_where_such_rungs_are_left_out_no_ansible_is_needed() -> None:
    left = fitting(OPTIONAL, BARE)
    bare = inputs("").model_copy(update={"cluster": BARE, "ladder": left, "asked_ladder": OPTIONAL})
    refuse_missing_ansible(bare, frozenset(left.names))


def test_beside_the_interpreter_outweighs_the_path(nowhere: Path, tmp_path: Path) -> None:
    on_path, beside = program(nowhere / "ansible-playbook"), program(tmp_path / "venv/bin/ansible-playbook")
    assert find_tool("ansible-playbook", str(tmp_path / "venv/bin/python")) == str(beside)
    assert find_tool("ansible-playbook", "/opt/none/bin/python") == str(on_path)
    assert find_tool("ansible-playbook") == str(on_path)
    with pytest.raises(RequestError, match=r"^drift: no ansible-inventory on this machine"):
        refuse_missing_ansible(inputs("/opt/none/bin/python"), frozenset(["drift"]))
    program(nowhere / "ansible-inventory")
    refuse_missing_ansible(inputs("/opt/none/bin/python"), frozenset(["drift"]))
    own = program(tmp_path / "own/ansible-playbook")
    assert find_tool("ansible-playbook") == str(own)


def test_an_interpreter_by_its_name_is_looked_for_on_the_path_and_never_here(nowhere: Path, tmp_path: Path) -> None:
    here = program(tmp_path / "ansible-playbook")
    assert here.samefile("ansible-playbook"), "it lies in the working directory"
    assert find_tool("ansible-playbook", "python3") is None
    program(nowhere / "python3")
    assert find_tool("ansible-playbook", "python3") is None
    beside = program(nowhere / "ansible-playbook")
    assert find_tool("ansible-playbook", "python3") == str(beside)


@pytest.mark.parametrize("kind", ["folder", "not executable", "dangling"])
def test_what_cannot_be_run_is_no_tool(nowhere: Path, kind: str) -> None:
    place = nowhere / "ansible-playbook"
    if kind == "folder":
        place.mkdir()
    elif kind == "dangling":
        place.symlink_to("gone")
    else:
        place.write_text("")
        place.chmod(0o644)
    assert find_tool("ansible-playbook", str(nowhere / "python")) is None
