"""What is said to the other side's shell, and what is made of its answer."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from surefoot.connection.remote import hear, hopeless
from surefoot.connection.ssh import SshConnection
from surefoot.connection.trees import compare, read_sums
from surefoot.errors import StorageError

MARK = "surefoot-1"


def test_an_end_that_was_not_heard_is_no_exit_code() -> None:
    heard = hear(b"banner\nsurefoot-1 begin 42\nsome error\nConnection to there closed by remote host.\n", MARK)
    assert (heard.begun, heard.leader, heard.status) == (True, 42, None)


def test_what_ssh_says_before_the_command_begins_is_no_begin() -> None:
    assert not hear(b"ssh: connect to host there port 22: Connection refused\n", MARK).begun


def test_the_command_s_own_stderr_is_between_the_marks_and_another_command_s_end_does_not_count() -> None:
    heard = hear(b"noise\nsurefoot-1 begin 42\nerr\nsurefoot-2 end 0\n\nsurefoot-1 end 7\nbye\n", MARK)
    assert (heard.status, heard.stderr) == (7, b"err\nsurefoot-2 end 0\n")


def test_advice_is_given_only_where_trying_again_is_pointless() -> None:
    assert "known_hosts" in (hopeless(b"Host key verification failed.\r\n") or "")
    assert hopeless(b"ssh: connect to host x port 22: Connection timed out\n") is None


def test_sums_of_odd_names_are_read_and_another_line_is_an_error() -> None:
    digest = "a" * 64
    assert read_sums(f"{digest}  ./a b\n\\{digest}  ./x\\ny\\\\z\n".encode()) == {"a b": digest, "x\ny\\z": digest}
    with pytest.raises(StorageError, match="permission"):
        read_sums(b"sha256sum: permission denied\n")


@pytest.mark.parametrize("there", [{}, {"a": "2"}, {"a": "1", "b": "1"}])
def test_a_missing_a_changed_and_an_extra_file_are_differences(there: dict[str, str]) -> None:
    with pytest.raises(StorageError, match="1 of"):
        compare({"a": "1"}, there, "copy")


def test_the_empty_folder_of_a_killed_process_is_removed_and_a_living_ones_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("surefoot.connection.ssh._short_folder", lambda: str(tmp_path))
    dead, held, alive = tmp_path / "sf-99999999-a", tmp_path / "sf-99999998-b", tmp_path / f"sf-{os.getpid()}-c"
    for folder in (dead, held, alive):
        folder.mkdir()
    (held / "m").touch()  # its master has not ended yet
    SshConnection("host").close()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([held.name, alive.name])
