"""Which daemons are started again: those that read other files at their start than lie there now."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from loaded import loaded

ANSIBLE = Path(__file__).parents[2] / "ansible"
filters = loaded("plugins/filter/daemons.py")

PROMETHEUS = {"unit": "prometheus", "files": ["/etc/arguments", "/etc/targets"], "reload": ["/etc/targets"]}


def found(active: str = "active", **noted: str) -> dict[str, Any]:
    """A host with both files as "now", and a daemon that noted these."""
    with_path = {f"/etc/{name}": digest for name, digest in noted.items()}
    unit = {"ActiveState": active, "NeedDaemonReload": "no", "started_with": with_path}
    return {"files": {"/etc/arguments": "now", "/etc/targets": "now"}, "units": {"prometheus": unit}}


def acts(facts: dict[str, Any]) -> list[tuple[str, str]]:
    return [(each["state"], each["because"]) for each in filters.daemons_to_act_on([PROMETHEUS], facts)]


def test_a_daemon_that_runs_with_its_files_is_left_alone() -> None:
    assert acts(found(arguments="now", targets="now")) == []


def test_one_that_read_another_file_is_restarted_and_the_file_is_named() -> None:
    assert acts(found(arguments="old", targets="now")) == [("restarted", "it read /etc/arguments otherwise than now")]


def test_a_file_that_is_read_again_on_reload_costs_no_restart() -> None:
    assert acts(found(arguments="now", targets="old")) == [("reloaded", "it read /etc/targets otherwise than now")]


def test_a_file_that_it_never_noted_counts_as_another() -> None:
    assert acts(found(arguments="now")) == [("reloaded", "it read /etc/targets otherwise than now")]


def test_a_file_that_is_gone_counts_as_another() -> None:
    facts = found(arguments="now", targets="now")
    del facts["files"]["/etc/arguments"]
    assert [state for state, _ in acts(facts)] == ["restarted"]


def test_one_that_noted_nothing_is_restarted() -> None:
    assert acts(found()) == [("restarted", "what it was started with is not known")]


def test_one_that_does_not_run_reads_its_files_when_it_is_started() -> None:
    assert acts(found("inactive", arguments="old", targets="old")) == []


def test_units_that_systemd_has_not_read_again_are_named() -> None:
    facts = found(arguments="now", targets="now")
    assert filters.daemons_unread(facts) == []
    facts["units"]["prometheus"]["NeedDaemonReload"] = "yes"
    assert filters.daemons_unread(facts) == ["prometheus"]


def test_of_a_file_that_was_noted_twice_the_later_line_holds(tmp_path: Path) -> None:
    """As after a reload. A stand-in for systemctl answers; the record lies where the script looks for it."""
    (tmp_path / "systemctl").write_text("#!/bin/sh\necho ActiveState=active\necho NeedDaemonReload=no\n")
    (tmp_path / "systemctl").chmod(0o755)
    (tmp_path / "it.started-with").write_text("aa  /etc/targets\nbb  /etc/arguments\ncc  /etc/targets\n")
    (tmp_path / "file").write_text("text")
    script = (ANSIBLE / "roles/common/files/daemons.sh").read_text().replace("/run/", f"{tmp_path}/")
    done = subprocess.run(
        ["bash", "--norc", "-euc", script, "daemons", "it", "--", str(tmp_path / "file"), str(tmp_path / "none")],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, capture_output=True, text=True, timeout=20, check=True,
    )  # fmt: skip
    said = json.loads(done.stdout)
    assert said["units"]["it"] == {
        "ActiveState": "active",
        "NeedDaemonReload": "no",
        "started_with": {"/etc/targets": "cc", "/etc/arguments": "bb"},
    }
    digest = "982d9e3eb996f559e633f4d194def3761d909f5a3b647d1a851fead67c32c9d1"
    assert said["files"] == {str(tmp_path / "file"): digest}
