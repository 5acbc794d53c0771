"""An edited role or inventory is a changed input, of the rungs that use Ansible alone; where the site lies is none."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ansible_views import FOLDER, drift_view
from surefoot.engine.inputs import configuration_digests
from surefoot.errors import RequestError
from surefoot.model.cluster import Ansible
from surefoot.provision.site import site_digest
from surefoot.rungs.table import RUNGS


def asked(folder: Path) -> Ansible:
    return Ansible(site=str(folder), inventory=(str(folder / "inventory"), str(folder / "hosts.yml")))


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    return Path(shutil.copytree(FOLDER, tmp_path / "site"))


def test_a_site_that_moved_is_the_same(copied: Path) -> None:
    assert site_digest(asked(copied)) == site_digest(asked(FOLDER))


@pytest.mark.parametrize(
    "name", ["site.yml", "ansible.cfg", "roles/toy/defaults/main.yml", "inventory/groups.yml", "hosts.yml", "new.yml"]
)
def test_each_edited_file_is_a_change(copied: Path, name: str) -> None:
    with (copied / name).open("a") as stream:
        stream.write("# edited\n")
    assert site_digest(asked(copied)) != site_digest(asked(FOLDER))


def test_other_sites_inventories_and_test_scenarios_are_none(copied: Path) -> None:
    before = site_digest(Ansible(site=str(copied), inventory=(str(copied / "hosts.yml"),)))
    for name in ("inventory/another/hosts.yml", "roles/toy/molecule/default/verify.yml"):
        (copied / name).parent.mkdir(parents=True)
        (copied / name).write_text("x\n")
    assert site_digest(Ansible(site=str(copied), inventory=(str(copied / "hosts.yml"),))) == before


@pytest.mark.parametrize("variables", ["host_vars/n1.yml", "group_vars/slurm_node.yml", "group_vars/all/gpus.yml"])
def test_variables_beside_an_inventory_that_is_a_file_are_of_it(copied: Path, tmp_path: Path, variables: str) -> None:
    file = tmp_path / "own" / variables
    file.parent.mkdir(parents=True)
    (tmp_path / "own/hosts.yml").write_text("all: {}\n")
    one = Ansible(site=str(copied), inventory=(str(tmp_path / "own/hosts.yml"),))
    before = site_digest(one)
    file.write_text("gres_gpus_per_node: 4\n")
    assert site_digest(one) != before


def test_another_limit_is_a_change_and_an_inventory_that_is_gone_is_named(copied: Path) -> None:
    one = asked(copied)
    assert site_digest(one) != site_digest(one.model_copy(update={"limit": "n1"}))
    (copied / "hosts.yml").unlink()
    with pytest.raises(RequestError, match=r"hosts\.yml"):
        site_digest(one)


def test_only_rungs_that_use_ansible_see_the_change() -> None:
    inputs = drift_view().inputs
    edited = inputs.model_copy(update={"ansible_digest": "other"})
    moved = inputs.model_copy(update={"cluster": inputs.cluster.model_copy(update={"ansible": None})})
    touched = set()
    for name, rung in RUNGS.items():
        spec = inputs.ladder.rungs[0]
        before = configuration_digests(rung, spec, inputs)
        if before != configuration_digests(rung, spec, edited):
            touched.add(name)
        assert before.get("cluster") == configuration_digests(rung, spec, moved).get("cluster")
    assert touched == {"inventory", "drift"}
