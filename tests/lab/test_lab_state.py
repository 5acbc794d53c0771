"""What this machine holds of a lab: state file, lock, address ranges, and whether this machine can hold one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from surefoot.errors import MachineryError, RequestError
from surefoot.lab import breaking, lifecycle, machine
from surefoot.lab.host_files import HostFile, write_files
from surefoot.lab.places import LabHome
from surefoot.lab.spec import LabSpec, Tier
from surefoot.lab.state import AppliedFault, LabState, claim_slot, load, locked, observed, release_slot, save


@pytest.fixture
def home(tmp_path: Path) -> LabHome:
    return LabHome(tmp_path)


def lab(**changes: object) -> LabState:
    return LabState(spec=LabSpec(), slot=0, base="b", phase="up", made_at=1.5).model_copy(update=changes)


# --- state ----------------------------------------------------------------------------------------


def test_a_state_is_read_as_it_was_written(home: LabHome) -> None:
    fault = AppliedFault(fault="link-shaped", host="n1", setting="1gbit", at=2.5)
    wrote = save(home.lab("lab"), lab(processes={"head": observed(os.getpid())}, faults=(fault,)))
    assert load(home, "lab") == wrote


def test_a_lab_that_is_not_there_is_named_with_those_that_are(home: LabHome) -> None:
    save(home.lab("blue"), lab())
    with pytest.raises(RequestError, match=r"no lab 'red' .*blue"):
        load(home, "red")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"spec": {}}', '{"phase": "up"}'])
def test_a_damaged_state_is_an_error_and_never_an_empty_lab(home: LabHome, text: str) -> None:
    home.lab("lab").folder.mkdir(parents=True)
    home.lab("lab").state.write_text(text)
    with pytest.raises(MachineryError, match="not the state of a lab"):
        load(home, "lab")


def test_a_process_is_alive_only_as_the_one_that_was_recorded() -> None:
    own = observed(os.getpid())
    assert own.alive()
    assert not own.model_copy(update={"started_ticks": own.started_ticks + 1}).alive()
    assert not own.model_copy(update={"boot_id": "another boot"}).alive()


def test_a_process_that_ended_is_not_recorded() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    with pytest.raises(MachineryError, match="ended as soon"):
        observed(ended.pid)


# --- lock -----------------------------------------------------------------------------------------


def test_two_commands_do_not_change_a_lab_at_once_and_the_second_is_told_who_does(tmp_path: Path) -> None:
    with locked(tmp_path / "l", "surefoot lab up"):
        try_it = locked(tmp_path / "l", "surefoot lab down")
        with pytest.raises(RequestError, match=f"surefoot lab up, process {os.getpid()}"):
            try_it.__enter__()
    with locked(tmp_path / "l", "surefoot lab down"):
        pass


def test_a_lock_file_that_was_removed_locks_nobody_out(tmp_path: Path) -> None:
    with locked(tmp_path / "l", "down"):
        (tmp_path / "l").unlink()
        with locked(tmp_path / "l", "up"):
            assert (tmp_path / "l").read_text().startswith("up, ")


# --- address ranges -------------------------------------------------------------------------------


def test_labs_side_by_side_get_different_ranges_and_a_lab_keeps_its_own(home: LabHome) -> None:
    assert [claim_slot(home, name) for name in ("a", "b", "a", "c")] == [0, 1, 0, 2]


def test_a_range_that_was_given_back_is_taken_again(home: LabHome) -> None:
    for name in ("a", "b"):
        claim_slot(home, name)
    release_slot(home, "a")
    assert claim_slot(home, "c") == 0
    assert claim_slot(home, "b") == 1


def test_claims_leave_no_drafts(home: LabHome) -> None:
    claim_slot(home, "a")
    claim_slot(home, "b")
    assert sorted(path.name for path in home.slots.iterdir()) == ["0", "1"]


# --- up, down, status -----------------------------------------------------------------------------


def test_what_is_missing_is_told_all_at_once_with_the_packages_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(machine, "found", lambda program: program not in ("mmdebstrap", "socat", "systemd-nspawn"))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(RequestError) as refused:
        machine.require(Tier.HOSTS, tmp_path)
    assert "not root" in refused.value.message
    assert "mmdebstrap, socat, systemd-nspawn" in refused.value.message
    assert "mmdebstrap socat systemd-container" in refused.value.next_action


def test_the_namespaces_tier_does_not_ask_for_systemd_nspawn(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(machine, "found", lambda program: program != "systemd-nspawn")
    assert not [each for each in machine.problems(Tier.NAMESPACES, tmp_path) if "systemd-nspawn" in each.what]
    assert [each for each in machine.problems(Tier.HOSTS, tmp_path) if "systemd-nspawn" in each.what]


@pytest.mark.lab  # root, to give rights up
@pytest.mark.parametrize(
    ("with_less", "says"),
    [
        (["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin"], "root without CAP_SYS_ADMIN"),
        (["unshare", "--user", "--map-root-user"], "root of a user namespace only"),
    ],
    ids=["capability", "user namespace"],
)
def test_a_machine_that_gives_too_few_rights_is_told_from_one_that_can_hold_a_lab(
    with_less: list[str], says: str
) -> None:
    code = "from surefoot.lab import machine; print(machine.problems(machine.Tier.HOSTS, machine.Path('/')))"
    done = subprocess.run(
        [*with_less, sys.executable, "-c", f"import sys; sys.path = {sys.path}\n{code}"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert says in done.stdout


@pytest.mark.parametrize(
    ("mounted", "expected"),
    [
        (("unified/cgroup.procs", "systemd/cgroup.procs"), ["unified/surefoot-lab/a/n1", "systemd/surefoot-lab/a/n1"]),
        (("cgroup.controllers", "cgroup.procs"), ["surefoot-lab/a/n1"]),
        (("systemd/cgroup.procs", "memory/cgroup.procs"), ["systemd/surefoot-lab/a/n1"]),
        ((), []),
    ],
    ids=["hybrid", "v2", "v1", "none"],
)
def test_a_host_has_a_cgroup_in_every_hierarchy_that_keeps_account(
    tmp_path: Path, mounted: tuple[str, ...], expected: list[str]
) -> None:
    for name in mounted:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert machine.cgroup_folders("a", "n1", top=tmp_path) == [tmp_path / name for name in expected]


def test_down_of_a_lab_that_never_was_is_no_error(home: LabHome, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "require_root", lambda: None)
    said: list[str] = []
    lifecycle.down(home, "lab", purge=False, say=said.append)
    assert "nothing to do" in said[0]


def test_a_lab_whose_up_did_not_end_is_not_called_up(home: LabHome) -> None:
    save(home.lab("lab"), lab(phase="starting"))
    found = lifecycle.status(home, "lab")
    assert "half there" in found.problem
    with pytest.raises(RequestError, match="half there"):
        breaking.break_lab(home, "lab", "link-cut", None, None)


def test_a_lab_whose_processes_are_gone_is_not_called_up(home: LabHome) -> None:
    """As after a restart of this machine."""
    save(home.lab("lab"), lab())
    found = lifecycle.status(home, "lab")
    assert found.dead == ("head", "n1", "n2")
    assert "not running" in found.problem


# --- files ----------------------------------------------------------------------------------------


def test_a_folder_over_one_of_the_base_root_takes_over_its_mode(tmp_path: Path) -> None:
    """The munge daemon refuses to start from a folder that others can enter."""
    base, upper = tmp_path / "base", tmp_path / "upper"
    (base / "etc/munge").mkdir(parents=True)
    (base / "etc/munge").chmod(0o700)
    (base / "etc/passwd").write_text(f"root:x:{os.getuid()}:{os.getgid()}::/root:/bin/sh\n")
    key = HostFile("/etc/munge/munge.key", b"\x00\xff", mode=0o400)
    write_files([key, HostFile("/etc/a/link", "/etc/passwd", link=True)], upper=upper, base=base)
    assert (upper / "etc/munge").stat().st_mode & 0o777 == 0o700
    assert (upper / "etc/munge/munge.key").stat().st_mode & 0o777 == 0o400
    assert (upper / "etc/munge/munge.key").read_bytes() == b"\x00\xff"
    assert (upper / "etc/a/link").readlink() == Path("/etc/passwd")


def test_an_owner_that_the_base_root_does_not_have_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "base/etc").mkdir(parents=True)
    (tmp_path / "base/etc/passwd").write_text("root:x:0:0::/root:/bin/sh\n")
    with pytest.raises(MachineryError, match="no user munge"):
        write_files([HostFile("/k", "", owner="munge")], upper=tmp_path / "upper", base=tmp_path / "base")
