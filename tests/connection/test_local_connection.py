"""This machine behind the interface that ssh has."""

from __future__ import annotations

from pathlib import Path

import pytest

from surefoot.connection.local import LocalConnection
from surefoot.errors import StorageError

HERE = LocalConnection()


def test_standard_input_arrives() -> None:
    assert HERE.run(["cat"], stdin=b"hello\0").stdout == b"hello\0"
    assert HERE.run(["cat"]).stdout == b""


def test_files_are_written_and_read_and_missing_ones_left_out(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file"
    HERE.write({path: b"1"})
    assert HERE.read_many([path, tmp_path / "none", path / "below", tmp_path]) == {path: b"1"}
    assert (HERE.exists(path), HERE.exists(tmp_path / "none")) == (True, False)


def test_a_tree_is_copied_whole_and_replaces_what_was_there(tmp_path: Path) -> None:
    HERE.put_tree({"a": b"1", "b/c": b"2"}, tmp_path / "source")
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "stale").write_text("")
    assert set(HERE.get_tree(tmp_path / "source", tmp_path / "copy")) == {"a", "b/c"}
    assert sorted(p.name for p in (tmp_path / "copy").iterdir()) == ["a", "b"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["copy", "source"]


def test_a_tree_that_is_there_already_is_only_digested(tmp_path: Path) -> None:
    HERE.put_tree({"a": b"1"}, tmp_path / "source")
    assert HERE.get_tree(tmp_path / "source", tmp_path / "source").keys() == {"a"}


def test_a_tree_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot copy"):
        HERE.get_tree(tmp_path / "none", tmp_path / "copy")
    assert list(tmp_path.iterdir()) == []
