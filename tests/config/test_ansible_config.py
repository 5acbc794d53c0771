"""The Ansible site of a cluster file: paths become absolute; what is not there is told with file, line and key."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from surefoot.cli import run
from surefoot.config.load import load_cluster, load_ladder
from surefoot.errors import ConfigError
from surefoot.model.cluster import Ansible

HEAD = """\
name: here
root: .surefoot
node_groups: [{name: all, count: 1}]
ansible:
"""
SITE, INVENTORY = "the folder where ansible.cfg and the playbook lie", "the path of an inventory file or folder"
VARIABLE = "Ansible would put that variable's value there, Surefoot does not"

Write = Callable[..., Path]


@pytest.fixture
def cluster(tmp_path: Path) -> Write:
    """Writes a cluster file beside a site, with these keys of ``ansible``, one a line from line 5 on."""
    (tmp_path / "site").mkdir()
    for name in ("site/ansible.cfg", "site/site.yml", "hosts.yml"):
        (tmp_path / name).write_text("")

    def write(**keys: Any) -> Path:
        rows = {"site": "site", "inventory": ["hosts.yml"], **keys}
        path = tmp_path / "c.yaml"
        path.write_text(HEAD + "".join(f"  {key}: {json.dumps(value)}\n" for key, value in rows.items()))
        return path

    return write


def asked(path: Path) -> Ansible:
    found = load_cluster(path).record.ansible
    assert found is not None
    return found


def refusal(path: Path) -> list[str]:
    """What is wrong, one row for each thing, without the folder's name."""
    with pytest.raises(ConfigError) as caught:
        load_cluster(path)
    assert "then run it again" in caught.value.next_action
    return caught.value.message.replace(f"{path.parent}/", "").split("\n")


def test_paths_are_below_the_cluster_files_folder_wherever_the_command_is_run(
    cluster: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = cluster(inventory=["./hosts.yml", "site/../site"], python="venv/bin/python")
    monkeypatch.chdir("/")
    found = asked(path)
    assert (found.site, found.inventory) == (f"{tmp_path}/site", (f"{tmp_path}/hosts.yml", f"{tmp_path}/site"))
    assert found.python == f"{tmp_path}/venv/bin/python"


def test_absolute_paths_and_those_below_the_home_stay(
    cluster: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    found = asked(cluster(site=str(tmp_path / "site"), inventory=["~/hosts.yml"]))
    assert (found.site, found.inventory) == (f"{tmp_path}/site", (f"{tmp_path}/hosts.yml",))


def test_links_stay_links(cluster: Write, tmp_path: Path) -> None:
    (tmp_path / "current").symlink_to("site")
    assert asked(cluster(site="current")).site == f"{tmp_path}/current"


def test_an_interpreter_by_its_name_stays_one(cluster: Write) -> None:
    assert asked(cluster(python="python3")).python == "python3"


@pytest.mark.parametrize(
    "name", ["with blanks", "it's", 'quo"ted', "line\nbreak", "tab\t", "höst-日本", "a,b", "{{ x }}", "5$", "-i"]
)
def test_any_name_that_a_file_can_have_is_a_name(cluster: Write, tmp_path: Path, name: str) -> None:
    (tmp_path / "site").rename(tmp_path / f"{name} site")
    (tmp_path / "hosts.yml").rename(tmp_path / name)
    found = asked(cluster(site=f"{name} site", inventory=[name]))
    assert (found.site, found.inventory) == (f"{tmp_path}/{name} site", (f"{tmp_path}/{name}",))


@pytest.mark.parametrize(
    ("site", "what"),
    [
        ("nowhere", "nowhere does not exist"),
        ("hosts.yml", "hosts.yml is a file"),
        ("hosts.yml/x", "hosts.yml/x does not exist"),
        ("empty", "empty has no ansible.cfg and no site.yml"),
        ("half", "half has no site.yml"),
        ("dangling", "dangling does not exist"),
        ("~nobody-here/site", "~nobody-here/site does not exist"),
        ("line\nbreak", r"'{folder}line\nbreak' does not exist"),
        ("red\x1b[31m", r"'{folder}red\x1b[31m' does not exist"),
        ("nul\x00", r"'{folder}nul\x00' does not exist"),
        ("a" * 300, f"{'a' * 300} cannot be looked at: File name too long"),
    ],
)
def test_a_site_that_is_none_is_told_with_its_line_and_what_is_allowed(
    cluster: Write, tmp_path: Path, site: str, what: str
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "half/site.yml").mkdir(parents=True)  # a folder is no playbook
    (tmp_path / "half/ansible.cfg").touch()
    (tmp_path / "dangling").symlink_to("gone")
    said = refusal(cluster(site=site))
    assert said == [f"c.yaml:5: ansible.site: {what.replace('{folder}', '')}; allowed: {SITE}"]


def test_a_loop_of_links_is_no_site(cluster: Write, tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (row,) = refusal(cluster(site="loop"))
    assert row.startswith("c.yaml:5: ansible.site: loop ")
    assert row.endswith(SITE)


def test_a_folder_that_may_not_be_looked_into_is_told_as_such(cluster: Write, tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0)
    as_anyone = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
    done = subprocess.run(
        [*as_anyone, sys.executable, "-m", "surefoot", "drift", "--cluster", str(cluster(site="closed/site"))],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 3, done.stderr
    assert "c.yaml:5: ansible.site:" in done.stderr
    assert "closed/site cannot be looked at: Permission denied; allowed: " in done.stderr


def test_another_playbook_is_looked_for_in_the_place_of_site_yml(cluster: Write, tmp_path: Path) -> None:
    assert refusal(cluster(playbook="plays/all.yml")) == [
        f"c.yaml:5: ansible.site: site has no plays/all.yml; allowed: {SITE}"
    ]
    (tmp_path / "site/plays").mkdir()
    (tmp_path / "site/plays/all.yml").touch()
    assert asked(cluster(playbook="plays/all.yml")).playbook == "plays/all.yml"


@pytest.mark.parametrize(
    ("inventory", "what"),
    [
        ("nowhere.yml", f"nowhere.yml does not exist; allowed: {INVENTORY}"),
        ("$HOME/x", f"$HOME/x holds a $NAME: {VARIABLE}; allowed: {INVENTORY}"),
        ("a${B}", f"a${{B}} holds a $NAME: {VARIABLE}; allowed: {INVENTORY}"),
        ("n1,n2,", "'n1,n2,' is a list of hosts; allowed: the path of a file or folder"),
        ("n1, ", "'n1, ' is a list of hosts; allowed: the path of a file or folder"),
        ("n1\n,", r"'n1\n,' is a list of hosts; allowed: the path of a file or folder"),
        ("hosts.yml/x", f"hosts.yml/x does not exist; allowed: {INVENTORY}"),
        ("a\nb", rf"'a\nb' does not exist; allowed: {INVENTORY}"),
        ("a" * 300, f"{'a' * 300} cannot be looked at: File name too long; allowed: {INVENTORY}"),
        ("", "is ''; allowed: text of at least one"),
        (3, 'is 3; allowed: text of at least one; did you mean "3", in quotes?'),
    ],
)
def test_of_several_inventories_the_wrong_one_is_named(cluster: Write, inventory: Any, what: str) -> None:
    """In JSON's own line: the list stands on line 6."""
    assert refusal(cluster(inventory=["hosts.yml", inventory])) == [f"c.yaml:6: ansible.inventory[1]: {what}"]


def test_an_inventory_on_a_line_of_its_own_is_told_with_that_line(cluster: Write) -> None:
    path = cluster()
    path.write_text(HEAD + "  site: site\n  inventory:\n    - hosts.yml\n    - gone.yml\n    - lost\n")
    assert [row.split(" does")[0] for row in refusal(path)] == [
        "c.yaml:8: ansible.inventory[1]: gone.yml",
        "c.yaml:9: ansible.inventory[2]: lost",
    ]


@pytest.mark.parametrize(
    ("keys", "rows"),
    [
        ({"inventory": []}, ["6: ansible.inventory: is an empty list"]),
        ({"inventory": "hosts.yml"}, ["6: ansible.inventory: is 'hosts.yml'"]),
        ({"site": ""}, ["5: ansible.site: is ''"]),
        ({"site": 3}, ["5: ansible.site: is 3"]),
        ({"playbook": 3}, ["7: ansible.playbook: is 3"]),
        ({"python": 3}, ["7: ansible.python: is 3"]),
        ({"inventry": "x"}, ["7: ansible.inventry: unknown key"]),
        ({"limit": "-x"}, ["7: ansible.limit: is '-x'; allowed: text (a pattern of hosts that does not begin with '-')"]),
    ],
)  # fmt: skip
def test_a_key_that_is_no_path_at_all_is_told_once_by_its_type(
    cluster: Write, keys: dict[str, Any], rows: list[str]
) -> None:
    said = refusal(cluster(**keys))
    assert len(said) == len(rows)
    assert all(row.startswith(f"c.yaml:{start}") for row, start in zip(said, rows, strict=True)), said


def test_a_playbook_that_is_none_is_told_at_its_own_key_alone(cluster: Write) -> None:
    for playbook in ("../x.yml", "", "/etc/x.yml", "a\nb"):
        (row,) = refusal(cluster(playbook=playbook))
        assert row.startswith("c.yaml:7: ansible.playbook: is "), row


@pytest.mark.parametrize("value", ["[]", "site", "3"])
def test_an_ansible_that_is_no_mapping_names_its_keys(cluster: Write, value: str) -> None:
    path = cluster()
    path.write_text(HEAD.replace("ansible:\n", f"ansible: {value}\n"))
    (row,) = refusal(path)
    assert "a mapping with the keys site, inventory, playbook, limit, node_group, python or null" in row


def test_no_ansible_is_none(cluster: Write) -> None:
    path = cluster()
    path.write_text(HEAD.replace("ansible:\n", "ansible: null\n"))
    assert load_cluster(path).record.ansible is None


def test_a_home_of_nobody_is_a_path_that_is_not_there_and_no_fault(cluster: Write) -> None:
    """Wherever a user's file names a path, and for the file itself."""
    path = cluster()
    path.write_text(path.read_text() + "environment: {lock: ~nobody-here/requirements.txt}\n")
    assert "~nobody-here/requirements.txt: cannot be read: No such file or directory" in refusal(path)[0]
    with pytest.raises(ConfigError, match=r"ladder file ~nobody-here/l\.yaml does not exist"):
        load_ladder("~nobody-here/l.yaml")
    path.write_text(HEAD.replace("ansible:\n", "") + "connection: {kind: ssh, host: h, config: ~nobody-here/config}\n")
    assert "~nobody-here" not in "".join(refusal(path))  # looked at when ssh is: here what is told is another thing


@pytest.mark.parametrize("command", ["inventory", "drift"])
def test_a_command_with_a_wrong_cluster_file_exits_3_and_starts_nothing(
    cluster: Write, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run([command, "--cluster", str(cluster(site="nowhere"))]) == 3
    out, err = capsys.readouterr()
    assert out == ""
    assert f"c.yaml:5: ansible.site: {tmp_path}/nowhere does not exist" in err
    assert "→ correct this, then run it again" in err
    assert not (tmp_path / ".surefoot").exists()
