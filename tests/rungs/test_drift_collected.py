"""What ``surefoot.provision.check`` makes of sites that leave something out, by a real Ansible on this machine.

One play each; what is judged is what the program printed. That a site passes without these is in
``tests/cli/test_provision_commands``.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from surefoot.model.cluster import Ansible
from surefoot.provision.check import packages_in
from surefoot.provision.events import Playbook, playbook_of
from surefoot.rungs.drift_whole import blind_spots, looks, run_problems

HERE = platform.node().split(".", maxsplit=1)[0]
SECRET = "hunter22hunter22"  # noqa: S105 - it must not be found
COPY = {"dest": "{{ playbook_dir }}/toy.conf", "content": "as declared\n", "mode": "0644"}


def task(name: str, module: str, of: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, f"ansible.builtin.{module}": of, **more}


@dataclass
class Site:
    """A site on this machine."""

    folder: Path
    secret: str = SECRET

    def write(self, *plays: dict[str, Any], configuration: str = "") -> None:
        """Its playbook, its ``ansible.cfg`` and its inventory, which holds a secret in several forms."""
        self.folder.mkdir(exist_ok=True)
        (self.folder / "ansible.cfg").write_text(f"[defaults]\nroles_path = more\n{configuration}")
        (self.folder / "site.yml").write_text(json.dumps([{"hosts": "all", "gather_facts": False, **p} for p in plays]))
        here = {"ansible_connection": "local", "ansible_become": False, "ansible_python_interpreter": sys.executable}
        receivers = [{"name": "x", "slack_configs": [{"api_url": f"https://hooks.slack.com/services/{self.secret}"}]}]
        secrets = {
            "apt_url": f"https://u:{self.secret}@packages.example",
            "receivers": receivers,
            "x_token": self.secret,
        }
        hosts = {"all": {"vars": {**here, **secrets}, "children": {"slurm_node": {"hosts": {HERE: {}}}}}}
        (self.folder / "hosts.yml").write_text(json.dumps(hosts))

    def printed(self) -> str:
        """What the program printed."""
        asked = Ansible(site=str(self.folder), inventory=(str(self.folder / "hosts.yml"),)).canonical()
        question = json.dumps({"nonce": "n", "ansible": asked, "limit_s": 200})
        argv = [sys.executable, "-m", "surefoot.provision.check", question]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=250, check=False, cwd=self.folder)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def run(self) -> Playbook:
        """Its check run."""
        return playbook_of(json.loads(self.printed())["check"]["stdout"], file="check")


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path / "site")


pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not Path(sys.executable).with_name("ansible-playbook").exists(), reason="needs surefoot[ansible]"
    ),
]


def test_no_secret_of_an_inventory_is_printed_not_even_one_that_a_task_shows_under_another_name(site: Site) -> None:
    shown = task("Shown", "debug", {"msg": "login is {{ x_token }} at {{ apt_url }} for {{ receivers }}"})
    site.write({"name": "A", "tasks": [task("Written", "copy", {**COPY, "content": "login = {{ x_token }}\n"}), shown]})
    text = site.printed()
    assert SECRET not in text
    inventory = json.loads("\n".join(json.loads(text)["inventory"]["stdout"]))
    assert inventory["_meta"] == {"hostvars": {HERE: {"ansible_host": None}}}
    assert inventory["slurm_node"]["hosts"] == [HERE]


def test_everything_that_a_task_is_told_not_to_tell_is_a_blind_spot(site: Site) -> None:
    nowhere = {"path": "/proc/nowhere/x", "state": "file"}
    fail = {"msg": "x"}
    site.write(
        {
            "name": "A",
            "tasks": [
                task("Hidden", "copy", COPY, changed_when=False),
                task(
                    "For real",
                    "copy",
                    {**COPY, "dest": "{{ playbook_dir }}/real"},
                    check_mode=False,
                    changed_when=False,
                ),
                task("Forgiven", "file", nowhere, failed_when=False),
                task("Ignored", "fail", fail, ignore_errors=True),
                {"block": [task("Rescued", "fail", fail)], "rescue": [task("Sorry", "debug", fail)]},
                task("Not run", "command", "true"),
                task("Looked", "command", "false", check_mode=False, changed_when=False, failed_when=False),
                task("Left out", "command", "true", when="not ansible_check_mode"),
            ],
        }
    )
    run = site.run()
    assert [told.result.task for told, _ in blind_spots(run)] == [
        "Hidden", "For real", "Forgiven", "Ignored", "Rescued", "Not run",
    ]  # fmt: skip
    assert [t.result.task for t in run.results if t.result.left_out] == ["Left out"]


def test_a_play_that_a_meta_task_ended_and_tags_of_the_configuration_are_problems(site: Site) -> None:
    from surefoot.provision.listing import plays_of

    said = task("Said", "debug", {"msg": "x"})
    site.write(
        {"name": "Twin", "tasks": [said, task("Looked", "copy", COPY)]},
        {"name": "Twin", "tasks": [task("Ended", "meta", "end_host"), said]},
        configuration="[tags]\nskip = slow\n",
    )
    document = json.loads(site.printed())
    run = playbook_of(document["check"]["stdout"], file="check")
    plays = plays_of(document["plays"]["stdout"], file="check")
    assert list(run_problems(run, plays, "site.yml", "")) == [
        "tasks were left out: --skip-tags slow ([tags] in ansible.cfg?)",
        f"play #2 'Twin' told nothing of {HERE}: was it ended by a meta task?",
    ]
    assert [(event.number, event.at) for event in run.plays] == [(1, "site.yml:1"), (2, "site.yml:1")]
    assert {told.result.task for told in run.results if looks(told.result)} == {"Looked"}


def test_included_files_and_roles_and_loops_agree_with_what_ansible_counts(site: Site) -> None:
    (site.folder / "roles/r/tasks").mkdir(parents=True)
    inner = json.dumps([task("Inner", "debug", {"msg": "x"})])
    (site.folder / "roles/r/tasks/main.yml").write_text(inner)
    (site.folder / "more.yml").write_text(inner)
    site.write(
        {
            "name": "A",
            "serial": 1,
            "tasks": [
                task("File", "include_tasks", "more.yml", loop=[1, 2]),
                task("Role", "include_role", {"name": "r"}),
                task("Not here", "include_tasks", "more.yml", when=False),
                task("Each", "debug", {"msg": "x"}, loop=[1, 2]),
                task("Ignored", "fail", {"msg": "x"}, ignore_errors=True, loop=[1]),
            ],
        }
    )
    run = site.run()
    assert run.totals[HERE].ok == 2 + 1 + 3 + 1 + 1, "inclusions, what they brought, a loop, and what was ignored"
    assert sum(told.result.task == "Inner" for told in run.results) == 3


def test_a_task_that_is_tagged_always_is_only_checked_when_its_role_is_listed_for_its_packages(site: Site) -> None:
    """The playbook that asks for history lists roles for their variables: it must change nothing either."""
    role = site.folder / "more/r"
    (role / "tasks").mkdir(parents=True)
    (role / "defaults").mkdir()
    (role / "defaults/main.yml").write_text("r_packages: [coreutils]\nr_server_packages: '{{ r_not_set }}'\n")
    (role / "tasks/main.yml").write_text(json.dumps([task("Always", "copy", COPY, tags=["always"])]))
    site.write({"name": "A", "roles": ["r"]})
    document = json.loads(site.printed())
    assert not (site.folder / "toy.conf").exists()
    assert document["packages"] == {
        "r": {"variables": ["r_packages", "r_server_packages"], "installs": False, "there": True}
    }
    asked = playbook_of(document["history"]["stdout"], file="history")
    assert [(t.result.task, t.result.status) for t in asked.results if t.result.task.startswith("Packages of")] == [
        ("Packages of r_packages", "ok"), ("Packages of r_server_packages", "failed"),
    ]  # fmt: skip


def test_every_role_of_the_project_that_installs_packages_names_them() -> None:
    site = Path(__file__).parents[2] / "ansible"
    for role in sorted(folder.name for folder in (site / "roles").iterdir() if folder.is_dir()):
        told = packages_in(site, role)
        assert told["variables"] or not told["installs"], role
