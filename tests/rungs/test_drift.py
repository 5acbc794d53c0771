"""A check run over a site as data: what a real lab answered, clean, drifted by hand, out of reach, and damaged."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ansible_views import change_event, change_said, change_totals, drift_view, events, put
from rungs_harness import status_of
from surefoot.errors import EvidenceError
from surefoot.model.check import Check
from surefoot.model.status import Status
from surefoot.rungs.base import View
from surefoot.rungs.drift import RUNG
from surefoot.rungs.endings import ending_checks


def judged(view: View) -> dict[str, Check]:
    return {check.id: check for check in RUNG.judge(RUNG.read(view), view).checks}


def wrong(view: View) -> dict[str, tuple[Status, str]]:
    return {n: (c.status, str(c.actual)) for n, c in judged(view).items() if c.status is not Status.PASSED}


def test_a_clean_site_passes_with_zero_changes_and_names_its_evidence() -> None:
    view = drift_view()
    checks = judged(view)
    assert {name: check.status for name, check in checks.items()} == dict.fromkeys(
        ("drift.run", "drift.reached", "drift.tasks", "drift.seen", "drift.none", "drift.packages"), Status.PASSED
    )
    assert all(check.evidence and check.evidence[0].line for check in checks.values())
    assert checks["drift.none"].actual == 0
    assert checks["drift.none"].derivation == "15 tasks looked at on 3 hosts"
    assert {check.status for check in ending_checks(view.evidence)} == {Status.PASSED}
    assert RUNG.judge(RUNG.read(view), view).summary == "no drift on 3 hosts"


def test_each_drift_is_a_failed_check_with_host_role_file_difference_and_who_changed_it_last() -> None:
    view = drift_view("drifted")
    checks = judged(view)
    assert set(wrong(view)) == {"drift.none", "drift.n1.1", "drift.n1.2", "drift.n2.3"}
    assert checks["drift.none"].derivation == "by host: n1: 2, n2: 1"
    limits, mode, gone = (checks[f"drift.{name}"] for name in ("n1.1", "n1.2", "n2.3"))
    assert limits.claim == "on n1 it holds that: toy: The limits are as declared"
    assert str(limits.actual).startswith("/etc/toy/limits.conf: -nofile = 1024 / +nofile = 65536; last changed 2026-")
    assert str(limits.actual).endswith("UTC; owner root, mode 0640")
    assert limits.derivation == "role toy, roles/toy/tasks/main.yml:14"
    assert limits.evidence[0].line
    assert '"0600"' in str(mode.actual)
    assert '"0644"' in str(mode.actual)
    assert gone.actual == "/etc/toy/one: +one; it is not there"
    assert RUNG.judge(RUNG.read(view), view).summary == "3 drifts on 2 of 3 hosts"


def test_a_host_out_of_reach_is_not_known_and_the_others_drifts_are_told() -> None:
    found = wrong(drift_view("n2-away"))
    assert found["drift.reached"][0] is Status.INCONCLUSIVE
    assert found["drift.reached"][1].startswith("n2: unreachable: ")
    assert {"drift.n1.1", "drift.n1.2"} <= set(found)


def _lines(said: dict[str, Any], *, drop: Any) -> None:
    put(said["check"], [event for event in events(said["check"]) if not drop(event)])


def test_a_line_of_a_drift_that_is_gone_shows_by_the_totals() -> None:
    def edit(said: dict[str, Any]) -> None:
        _lines(said, drop=lambda event: event.get("path") == "/etc/toy/limits.conf" and event["status"] == "changed")
        change_totals(said["check"], "n1", ok=-1)

    with pytest.raises(EvidenceError, match="n1: 1 tasks changed by the lines, 2 by the totals"):
        judged(drift_view("drifted", edit))


def test_totals_that_say_zero_show_by_the_lines() -> None:
    def edit(said: dict[str, Any]) -> None:
        change_event(said["check"], lambda event: event["hosts"]["n1"].update(changed=0), event="stats")

    with pytest.raises(EvidenceError, match="n1: 2 tasks changed by the lines, 0 by the totals"):
        judged(drift_view("drifted", edit))


def test_a_run_that_was_no_check_run_is_no_pass() -> None:
    for key in ("check", "diff"):

        def edit(said: dict[str, Any], key: str = key) -> None:
            change_event(said["check"], lambda event: event.update({key: False}), event="run")

        assert wrong(drift_view("clean", edit))["drift.run"][0] is Status.INCONCLUSIVE


def test_a_play_that_was_not_seen_or_left_a_host_out_is_no_pass() -> None:
    def gone(said: dict[str, Any]) -> None:
        _lines(said, drop=lambda event: event.get("play") == "Only where there are any" and event["event"] == "play")

    def fewer(said: dict[str, Any]) -> None:
        change_event(said["check"], lambda e: e.update(hosts=["n1", "head"]), event="play", play="Files and packages")

    assert wrong(drift_view("clean", gone)) == {
        "drift.run": (Status.INCONCLUSIVE, "plays not run: #2 Only where there are any")
    }
    assert wrong(drift_view("clean", fewer)) == {
        "drift.run": (Status.INCONCLUSIVE, "play #1 'Files and packages' left out n2")
    }


def test_a_host_that_no_play_is_for_is_no_pass() -> None:
    def edit(said: dict[str, Any]) -> None:
        inventory = json.loads("\n".join(said["inventory"]["stdout"]))
        inventory["slurm_node"]["hosts"].append("n9")
        inventory["_meta"]["hostvars"]["n9"] = {"ansible_host": None}
        said["inventory"]["stdout"] = json.dumps(inventory, indent=1).splitlines()

    assert wrong(drift_view("clean", edit)) == {
        "drift.reached": (Status.INCONCLUSIVE, "n9: no play of the site is for it")
    }


@pytest.mark.parametrize(
    "skipped",
    [
        {"message": "Command would have run if not in check mode"},
        {"message": "Check mode is not supported for this task.", "module": "ansible.builtin.script"},
        {"module": "ansible.builtin.raw"},
    ],
    ids=["command", "script", "raw"],
)
def test_a_task_that_cannot_be_checked_is_named_and_no_pass(skipped: dict[str, str]) -> None:
    """Each as ansible-core 2.19 tells it."""

    def edit(said: dict[str, Any]) -> None:
        change_event(
            said["check"],
            lambda e: e.update(status="skipped", **skipped),
            event="result",
            host="n1",
            task="Its version is looked at",
        )
        change_totals(said["check"], "n1", skipped=1, ok=-1)

    found = wrong(drift_view("clean", edit))
    assert list(found) == ["drift.seen"]
    assert found["drift.seen"][0] is Status.INCONCLUSIVE
    assert "toy: Its version is looked at (roles/toy/tasks/main.yml:29)" in found["drift.seen"][1]


def _fails(said: dict[str, Any], *, ignored: bool) -> None:
    def change(event: dict[str, Any]) -> None:
        event.update(status="failed", message="GPU 3 is missing", **({"ignored": True} if ignored else {}))

    change_event(said["check"], change, event="result", host="n1", task="Its version is looked at")
    change_totals(said["check"], "n1", **({"ignored": 1} if ignored else {"failures": 1, "ok": -1}))
    said["check"]["exit_code"] = 0 if ignored else 2


def test_a_task_that_fails_is_named_with_what_it_said() -> None:
    found = wrong(drift_view("clean", lambda said: _fails(said, ignored=False)))
    assert list(found) == ["drift.tasks"]
    assert found["drift.tasks"][0] is Status.FAILED
    assert (
        "n1: toy: Its version is looked at (roles/toy/tasks/main.yml:29): GPU 3 is missing" in found["drift.tasks"][1]
    )


def test_a_task_that_failed_and_was_let_pass_is_no_pass() -> None:
    found = wrong(drift_view("clean", lambda said: _fails(said, ignored=True)))
    assert list(found) == ["drift.seen"]
    assert "failed, and was let pass: n1" in found["drift.seen"][1]


def test_another_version_of_a_package_is_named_with_its_host_although_none_is_pinned() -> None:
    def edit(said: dict[str, Any]) -> None:
        def other(answer: dict[str, Any]) -> None:
            answer["versions"]["coreutils"] = "9.9-1"
            answer["history"]["coreutils"] = "2026-11-30 00:01:02 upgrade coreutils:amd64 9.1-1 9.9-1"

        change_said(said["history"], "n2", other, "Answered")

    found = wrong(drift_view("clean", edit))
    assert list(found) == ["drift.packages"]
    assert found["drift.packages"][1].startswith("coreutils: n2 has 9.9-1; others 9.1-1")
    assert "n2: 2026-11-30 00:01:02 upgrade coreutils:amd64 9.1-1 9.9-1" in found["drift.packages"][1]


def test_versions_of_different_releases_are_not_compared() -> None:
    def edit(said: dict[str, Any]) -> None:
        def other(answer: dict[str, Any]) -> None:
            answer["versions"]["coreutils"] = "9.9-1"
            answer["distribution"] = "debian 13"

        change_said(said["history"], "n2", other, "Answered")

    assert wrong(drift_view("clean", edit)) == {}


def test_versions_that_are_not_known_are_no_pass() -> None:
    def edit(said: dict[str, Any]) -> None:
        said["history"] = None

    found = wrong(drift_view("clean", edit))
    assert found == {"drift.packages": (Status.INCONCLUSIVE, "versions are not known of head, n1, n2")}


# --- two plays of one name, and limited runs -------------------------------------------------------


def _second_play_of_the_first_ones_name(said: dict[str, Any]) -> None:
    """The site has two plays of one name, the second for n1 alone."""
    rows = said["plays"]["stdout"]
    at = next(number for number, row in enumerate(rows) if "play #2" in row)
    rows[at:] = [
        "  play #2 (slurm_node): Files and packages\tTAGS: []",
        "    pattern: ['slurm_node']", "    hosts (1):", "      n1",
    ]  # fmt: skip


def test_a_play_that_was_not_run_is_not_hidden_by_another_of_its_name() -> None:
    def edit(said: dict[str, Any]) -> None:
        _second_play_of_the_first_ones_name(said)
        _lines(said, drop=lambda event: event["event"] == "play" and event["number"] == 2)

    assert wrong(drift_view("clean", edit)) == {
        "drift.run": (Status.INCONCLUSIVE, "plays not run: #2 Files and packages")
    }


def test_a_host_that_one_play_left_out_is_not_hidden_by_another_play_of_its_name() -> None:
    def edit(said: dict[str, Any]) -> None:
        _second_play_of_the_first_ones_name(said)
        change_event(said["check"], lambda e: e.update(play="Files and packages", hosts=["n2"]), event="play", number=2)

    assert wrong(drift_view("clean", edit)) == {
        "drift.run": (Status.INCONCLUSIVE, "play #2 'Files and packages' left out n1")
    }


def test_a_play_that_told_nothing_of_one_of_its_hosts_is_no_pass() -> None:
    """Ansible names all hosts of a play also where a meta task ended it for one."""

    def edit(said: dict[str, Any]) -> None:
        _second_play_of_the_first_ones_name(said)
        change_event(said["check"], lambda e: e.update(play="Files and packages", hosts=["n1"]), event="play", number=2)

    found = wrong(drift_view("clean", edit))
    assert list(found) == ["drift.run"]
    assert found["drift.run"][1].startswith("play #2 'Files and packages' told nothing of n1")


def _limited(said: dict[str, Any], limit: str = "slurm_node", hosts: tuple[str, ...] = ("n1", "n2")) -> None:
    """What the programs print with ``--limit``: all of head is gone but in the inventory without it."""
    said["whole"] = json.loads(json.dumps(said["inventory"]))
    for key in ("inventory", "plays", "check"):
        argv = said[key]["argv"]
        argv[5:5] = ["--limit", limit]
    away = sorted({"head", "n1", "n2"} - set(hosts))
    inventory = json.loads("\n".join(said["inventory"]["stdout"]))
    for host in away:
        inventory["_meta"]["hostvars"].pop(host)
        for group in inventory.values():
            group["hosts"] = [name for name in group.get("hosts", []) if name != host]
    said["inventory"]["stdout"] = json.dumps(inventory, indent=1).splitlines()
    rows = [row for row in said["plays"]["stdout"] if row.strip() not in away]
    said["plays"]["stdout"] = [f"    hosts ({len(hosts)}):" if row.strip() == "hosts (3):" else row for row in rows]
    for key in ("check", "history"):
        kept = [event for event in events(said[key]) if event.get("host") not in away]
        for event in kept:
            if isinstance(event.get("hosts"), list):
                event["hosts"] = [host for host in event["hosts"] if host not in away]
            elif "hosts" in event:
                event["hosts"] = {host: told for host, told in event["hosts"].items() if host not in away}
        put(said[key], kept)
    change_event(said["check"], lambda event: event.update(limit=limit), event="run")


def test_a_limited_run_says_of_how_many_hosts_it_is_and_which_were_not_looked_at() -> None:
    view = drift_view("clean", _limited, limit="slurm_node")
    checks = judged(view)
    assert wrong(view) == {}
    assert checks["drift.limit"].actual == "2 of 3 hosts; not looked at: head"
    assert "the hosts that the limit 'slurm_node' leaves" in checks["drift.run"].claim
    assert "whole site" not in checks["drift.run"].claim
    assert RUNG.judge(RUNG.read(view), view).summary == "no drift on 2 (of 3) hosts, limited to 'slurm_node'"


@pytest.mark.parametrize(
    ("group", "word"),
    [
        ({}, "nodes of the cluster file are left out: n2"),
        ({"hosts": "", "count": 2}, "it leaves 1 nodes of slurm_node, the cluster file has 2"),
    ],
)
def test_a_limit_that_leaves_out_a_node_of_the_cluster_is_no_pass(group: dict[str, Any], word: str) -> None:
    found = wrong(drift_view("clean", lambda said: _limited(said, "n1", ("n1",)), limit="n1", group=group))
    assert list(found) == ["drift.limit"]
    assert found["drift.limit"][0] is Status.INCONCLUSIVE
    assert found["drift.limit"][1].startswith(word)


def test_a_run_that_was_limited_otherwise_than_asked_is_no_pass() -> None:
    with pytest.raises(EvidenceError, match="the answer to another command"):
        judged(drift_view("clean", _limited))
    with pytest.raises(EvidenceError, match="the answer to another command"):
        judged(drift_view("clean", limit="n1"))

    def told(said: dict[str, Any]) -> None:
        change_event(said["check"], lambda event: event.update(limit="n1"), event="run")

    assert wrong(drift_view("clean", told))["drift.run"][1] == "limited to 'n1', asked for was 'no limit'"


def test_tasks_that_were_left_out_by_tags_of_the_configuration_are_no_pass() -> None:
    def edit(said: dict[str, Any]) -> None:
        change_event(said["check"], lambda event: event.update(only="--skip-tags toy"), event="run")

    assert wrong(drift_view("clean", edit))["drift.run"] == (
        Status.INCONCLUSIVE,
        "tasks were left out: --skip-tags toy ([tags] in ansible.cfg?)",
    )


# --- what a check run was told not to see ----------------------------------------------------------


@pytest.mark.parametrize(
    ("task", "change", "word"),
    [
        ("The limits are as declared", {"for_real": True}, "is not held back by a check run (check_mode: false)"),
        ("The folder is there", {"forgiven": "no such user"}, "failed (no such user), and failed_when lets it pass"),
        (
            "The limits are as declared",
            {"diff": [{"before": "a", "after": "b"}]},
            "tells a difference, and changed_when",
        ),
        ("Its version is looked at", {"status": "changed"}, "changed its host in the check run"),
    ],
)
def test_a_task_that_a_role_tells_better_than_it_is_is_named_and_no_pass(
    task: str, change: dict[str, Any], word: str
) -> None:
    def edit(said: dict[str, Any]) -> None:
        change_event(said["check"], lambda e: e.update(change), event="result", host="n1", task=task)
        if change.get("status") == "changed":
            change_totals(said["check"], "n1", changed=1)

    found = wrong(drift_view("clean", edit))
    assert found["drift.seen"][0] is Status.INCONCLUSIVE
    assert f"toy: {task} (roles/toy/tasks/main.yml:" in found["drift.seen"][1]
    assert word in found["drift.seen"][1]
    assert "n1" in found["drift.seen"][1]


def test_a_command_that_looks_may_fail_where_its_role_says_so() -> None:
    def edit(said: dict[str, Any]) -> None:
        change_event(
            said["check"], lambda e: e.update(forgiven="rc 1"), event="result", task="Its version is looked at"
        )

    assert wrong(drift_view("clean", edit)) == {}


def test_a_host_that_was_out_of_reach_and_let_pass_is_no_pass() -> None:
    def edit(said: dict[str, Any]) -> None:
        change = {"status": "unreachable", "ignored": True, "message": "no route"}
        change_event(said["check"], lambda e: e.update(change), event="result", host="n1", task="The folder is there")
        change_totals(said["check"], "n1", ignored=1)

    found = wrong(drift_view("clean", edit))
    assert found["drift.reached"] == (Status.INCONCLUSIVE, "n1: unreachable: no route")
    assert "did not reach its host, and was let pass: n1" in found["drift.seen"][1]


def test_a_host_whose_tasks_only_say_something_was_not_looked_at() -> None:
    def edit(said: dict[str, Any]) -> None:
        for task in {event["task"] for event in events(said["check"]) if event["event"] == "result"}:
            change = {"module": "ansible.builtin.debug"}
            change_event(said["check"], lambda e, c=change: e.update(c), event="result", host="n1", task=task)

    assert wrong(drift_view("clean", edit))["drift.reached"] == (Status.INCONCLUSIVE, "n1: no task looked at it")


def test_two_hosts_that_one_machine_answers_for_are_no_pass() -> None:
    def edit(said: dict[str, Any]) -> None:
        for host in ("n1", "n2"):
            same = {"host": "n1", "addresses": ["10.77.3.11"]}
            change_said(said["history"], host, lambda answer, same=same: answer.update(same), "Answered")

    found = wrong(drift_view("clean", edit))
    assert found["drift.reached"][1] == "n1 and n2 are one machine, which calls itself n1"


def test_proofs_that_leave_check_runs_out_are_counted() -> None:
    def edit(said: dict[str, Any]) -> None:
        change = {"status": "skipped", "left_out": True}
        change_event(
            said["check"], lambda e: e.update(change), event="result", host="n1", task="Its version is looked at"
        )
        change_totals(said["check"], "n1", ok=-1, skipped=1)

    checks = judged(drift_view("clean", edit))
    assert checks["drift.seen"].derivation.startswith(
        "1 tasks leave check runs out by their own `when`: toy: Its version"
    )


# --- packages of which roles are not known ---------------------------------------------------------


def _packages_say(**change: Any) -> Any:
    return lambda said: said["packages"]["toy"].update(change)


def _cannot_be_worked_out(said: dict[str, Any]) -> None:
    why = {"status": "failed", "ignored": True, "message": "'toy_version' is undefined"}
    change_event(said["history"], lambda e: e.update(why), event="result", host="n1", task="Packages of toy_packages")
    change_totals(said["history"], "n1", ignored=1)
    change_said(said["history"], "n1", lambda named: named.clear(), "Named")


@pytest.mark.parametrize(
    ("edit", "word"),
    [
        (_packages_say(variables=[]), "toy: it installs packages, and none of its defaults is named toy_packages"),
        (_packages_say(variables=[], there=False), "toy: its folder is neither in roles/"),
        (_cannot_be_worked_out, "toy: toy_packages cannot be worked out on n1: 'toy_version' is undefined"),
        (
            _packages_say(variables=["toy_packages", "toy_more_packages"]),
            "toy: toy_more_packages cannot be worked out on",
        ),
    ],
)
def test_a_role_whose_packages_are_not_known_is_named_and_no_pass(edit: Any, word: str) -> None:
    found = wrong(drift_view("clean", edit))
    assert list(found) == ["drift.packages"]
    assert found["drift.packages"][0] is Status.INCONCLUSIVE
    assert word in found["drift.packages"][1]


def test_a_role_that_the_evidence_does_not_speak_of_is_no_pass() -> None:
    with pytest.raises(EvidenceError, match="what the roles toy say of packages is missing"):
        judged(drift_view("clean", lambda said: said["packages"].clear()))


def test_packages_for_hosts_of_another_kind_are_compared_where_they_are() -> None:
    """``storage_server_packages`` stands among a client's defaults too."""

    def edit(said: dict[str, Any]) -> None:
        said["packages"]["toy"]["variables"] = ["toy_packages", "toy_server_packages"]
        for host, version in (("head", "2.6-1"), ("n1", ""), ("n2", "2.6-2")):
            change_said(said["history"], host, lambda of: of.update(toy_server_packages=["nfs"]), "Named")
            if version:
                change_said(said["history"], host, lambda of, v=version: of["versions"].update(nfs=v), "Answered")

    assert wrong(drift_view("clean", edit)) == {
        "drift.packages": (Status.FAILED, "nfs: head has 2.6-1, n2 has 2.6-2"),
    }


def test_ansible_that_could_not_start_says_so_in_its_own_words() -> None:
    def edit(said: dict[str, Any]) -> None:
        said["check"].update(exit_code=4, stdout=[], stderr=["[ERROR]: the role 'gone' was not found"])

    view = drift_view("clean", edit)
    with pytest.raises(EvidenceError, match=r"told nothing; it said: .*the role 'gone' was not found"):
        judged(view)
    assert status_of(RUNG, view) is Status.INCONCLUSIVE


def test_a_program_that_printed_nothing_says_why() -> None:
    from rungs_harness import with_files

    view = drift_view()
    said = b"no ansible-playbook on this machine: install it beside Surefoot"
    view = with_files(view, {**{n: b.read() for n, b in view.evidence.files.items()}, "raw/check.stdout": b"",
                             "raw/check.stderr": said})  # fmt: skip
    with pytest.raises(EvidenceError, match="printed nothing: no ansible-playbook on this machine"):
        judged(view)
