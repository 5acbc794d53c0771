"""A check run over a site as data: what a real lab answered, clean, drifted by hand, out of reach, and damaged."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_views import change_event, change_said, drift_view, events, put
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
        _lines(said, drop=lambda event: event.get("play") == "Only where there are any")

    def fewer(said: dict[str, Any]) -> None:
        change_event(said["check"], lambda e: e.update(hosts=["n1", "head"]), event="play", play="Files and packages")

    assert wrong(drift_view("clean", gone)) == {
        "drift.run": (Status.INCONCLUSIVE, "plays not run: Only where there are any")
    }
    assert wrong(drift_view("clean", fewer)) == {
        "drift.run": (Status.INCONCLUSIVE, "play 'Files and packages' left out n2")
    }


def test_a_host_that_no_play_is_for_is_no_pass() -> None:
    def edit(said: dict[str, Any]) -> None:
        rows = said["inventory"]["stdout"]
        at = next(n for n, row in enumerate(rows) if row.strip() == '"n1",')
        rows.insert(at, rows[at].replace("n1", "n9"))

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
        change_event(said["check"], lambda e: e["hosts"]["n1"].update(skipped=1), event="stats")

    found = wrong(drift_view("clean", edit))
    assert list(found) == ["drift.seen"]
    assert found["drift.seen"][0] is Status.INCONCLUSIVE
    assert "toy: Its version is looked at (roles/toy/tasks/main.yml:29)" in found["drift.seen"][1]


def _fails(said: dict[str, Any], *, ignored: bool) -> None:
    def change(event: dict[str, Any]) -> None:
        event.update(status="failed", message="GPU 3 is missing", **({"ignored": True} if ignored else {}))

    change_event(said["check"], change, event="result", host="n1", task="Its version is looked at")
    totals = {"ignored": 1} if ignored else {"failures": 1}
    change_event(said["check"], lambda e: e["hosts"]["n1"].update(totals), event="stats")
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
