"""What the filters behind roles/slurm and roles/gres make of data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from loaded import loaded

SLURM = loaded("plugins/filter/surefoot_slurm.py")


def test_a_setting_of_the_site_replaces_the_roles_own_whatever_its_case_and_null_leaves_it_out() -> None:
    merged = SLURM.merged({"KillWait": 30, "MinJobAge": 300}, {"killwait": 5, "MinJobAge": None})
    assert SLURM.settings(merged) == "killwait=5\n"


def test_what_yaml_reads_as_false_is_off_for_preemption_and_no_elsewhere() -> None:
    assert (
        SLURM.line({"PreemptMode": False, "Default": True, "Hidden": False}) == "PreemptMode=OFF Default=YES Hidden=NO"
    )


FILE = {"path": "/f", "content": "x\n", "mode": "0644", "owner": "root"}
DIGEST = "73cb3858a687a8494ca3323053016282f3dad39d42cf62ca4e79dda2aac7d9ac"


@pytest.mark.parametrize("found", [{}, {"/f": ["0", "644", "root:root"]}, {"/f": [DIGEST, "600", "root:root"]}])
def test_a_file_that_is_missing_or_other_is_written(found: dict[str, list[str]]) -> None:
    assert SLURM.files_to_write(SLURM.declared_files([FILE]), found) == ["/f"]


def test_a_file_that_lies_here_is_known_by_its_content(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"x\n")
    named = {"path": "/f", "source": str(tmp_path / "f"), "mode": "0644", "owner": "root"}
    assert SLURM.files_to_write(SLURM.declared_files([named]), {"/f": [DIGEST, "644", "root:root"]}) == []
    (tmp_path / "f").write_bytes(b"\xff\x00")
    assert SLURM.files_to_write(SLURM.declared_files([named]), {"/f": [DIGEST, "644", "root:root"]}) == ["/f"]
    (tmp_path / "f").unlink()
    with pytest.raises(OSError, match="No such file"):
        SLURM.declared_files([named])


def test_a_prologs_files_go_to_nodes_by_its_own_record(tmp_path: Path) -> None:
    (tmp_path / "written.json").write_text('{"sha256": {"prolog.sh": "", "claims/g.json": ""}}')
    found = SLURM.prolog_files(str(tmp_path), "/etc/p")
    assert [(one["path"], one["source"], one["mode"]) for one in found] == [
        ("/etc/p/claims/g.json", f"{tmp_path}/claims/g.json", "0644"),
        ("/etc/p/prolog.sh", f"{tmp_path}/prolog.sh", "0755"),
        ("/etc/p/written.json", f"{tmp_path}/written.json", "0644"),
    ]


def test_a_file_that_is_as_declared_is_not_written() -> None:
    assert SLURM.files_to_write(SLURM.declared_files([FILE]), {"/f": [DIGEST, "644", "root:root"]}) == []


@pytest.mark.parametrize(
    ("unit", "action"),
    [
        ({"active": "active", "enabled": "enabled", "started_with": {"/f": DIGEST}}, {}),
        ({"active": "active", "enabled": "enabled", "started_with": {"/f": "0"}}, {"d": "restarted"}),
        ({"active": "active", "enabled": "enabled", "started_with": {}}, {"d": "restarted"}),
        ({"active": "failed", "enabled": "enabled", "started_with": {"/f": DIGEST}}, {"d": "started"}),
        ({"active": "active", "enabled": "disabled", "started_with": {"/f": DIGEST}}, {"d": "started"}),
    ],
)
def test_a_service_is_touched_only_when_it_does_not_run_with_what_is_declared(
    unit: dict[str, Any], action: dict[str, str]
) -> None:
    found = {"files": {}, "units": {"d": unit}}
    assert SLURM.units_to_act_on([{"name": "d", "files": ["/f"]}], SLURM.declared_files([FILE]), found) == action


def test_gpus_are_in_the_order_of_their_numbers() -> None:
    assert SLURM.device_list(["/dev/nvidia10", "/dev/nvidia9"]) == ["/dev/nvidia9", "/dev/nvidia10"]
