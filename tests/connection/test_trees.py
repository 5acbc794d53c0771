"""Folders as tar streams: what goes in comes out, and nothing lies or leads outside."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from surefoot.connection.trees import pack, unpack
from surefoot.errors import StorageError


def tar_of(*entries: tuple[str, bytes, str]) -> io.BytesIO:
    """A tar of (name, type, link target or content)."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for name, kind, text in entries:
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = kind, text if kind in (tarfile.SYMTYPE, tarfile.LNKTYPE) else ""
            data = text.encode() if kind == tarfile.REGTYPE else b""
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    stream.seek(0)
    return stream


def test_what_is_packed_comes_out_with_the_same_digests(tmp_path: Path) -> None:
    stream = io.BytesIO()
    went_in = pack({"a/b c": b"1", "a/\n": b"", "top": b"x" * 100_000}, stream)
    stream.seek(0)
    assert unpack(stream, tmp_path / "new") == went_in
    assert (tmp_path / "new" / "a" / "b c").read_bytes() == b"1"


def test_links_within_the_folder_and_empty_folders_come_along(tmp_path: Path) -> None:
    entries = [("./d", tarfile.DIRTYPE, ""), ("./f", tarfile.REGTYPE, "x"), ("./d/s", tarfile.SYMTYPE, "../f")]
    digests = unpack(tar_of(*entries, ("./h", tarfile.LNKTYPE, "./f"), ("./e", tarfile.DIRTYPE, "")), tmp_path / "new")
    assert set(digests) == {"f", "h"}
    assert (tmp_path / "new/d/s").readlink() == Path("../f")
    assert (tmp_path / "new/h").read_text() == "x"
    assert (tmp_path / "new/e").is_dir()


@pytest.mark.parametrize(
    "entries",
    [
        [("../out", tarfile.REGTYPE, "x")],
        [("a/../../out", tarfile.REGTYPE, "x")],
        [("../out/", tarfile.DIRTYPE, "")],
        [("s", tarfile.SYMTYPE, "../out")],
        [("s", tarfile.SYMTYPE, "/etc/passwd")],
        [("h", tarfile.LNKTYPE, "/etc/passwd")],
        [("h", tarfile.LNKTYPE, "../secret")],
        [("d", tarfile.DIRTYPE, ""), ("s", tarfile.SYMTYPE, "d"), ("d/s", tarfile.SYMTYPE, "../../out")],
        [("pipe", tarfile.FIFOTYPE, "")],
        [("device", tarfile.CHRTYPE, "")],
    ],
    ids=lambda entries: " ".join(f"{name}={text}" for name, _, text in entries),
)
def test_what_would_lie_or_lead_outside_is_refused(tmp_path: Path, entries: list[tuple[str, bytes, str]]) -> None:
    (tmp_path / "secret").write_text("secret")
    with pytest.raises(StorageError, match="no whole tar"):
        unpack(tar_of(*entries), tmp_path / "new")
    assert {path.name for path in tmp_path.iterdir()} <= {"new", "secret"}


def test_the_last_of_two_entries_counts_and_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    entries = [("f", tarfile.REGTYPE, "first"), ("s", tarfile.SYMTYPE, "f"), ("s", tarfile.REGTYPE, "second")]
    unpack(tar_of(*entries), tmp_path / "new")
    assert (tmp_path / "new/f").read_text() == "first"
    assert (tmp_path / "new/s").read_text() == "second"


def test_a_tar_that_breaks_off_is_refused(tmp_path: Path) -> None:
    whole = tar_of(("f", tarfile.REGTYPE, "x" * 50_000)).getvalue()
    with pytest.raises(StorageError):
        unpack(io.BytesIO(whole[:20_000]), tmp_path / "new")
