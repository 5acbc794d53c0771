"""``surefoot nccl read``: tables and documents of captures, exit codes, and no traceback whatever a file holds."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from nccl_tests_written import GOLDEN, Printed
from surefoot.cli import run


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str


Read = Callable[..., Done]


@pytest.fixture
def read(capfd: pytest.CaptureFixture[str]) -> Read:
    def command(*words: str) -> Done:
        return Done(run(["nccl", "read", *words]), *capfd.readouterr())

    return command


def written(folder: Path, printed: Printed, name: str = "all_reduce.log") -> str:
    path = folder / name
    path.write_text(printed.text())
    return str(path)


def test_whole_captures_are_tables_with_what_stands_at_the_largest_size(read: Read) -> None:
    done = read(*(str(GOLDEN / f"{name}.log") for name in ("all_reduce", "all_gather")))
    assert done.code == 0, done.err
    words = [line.split() for line in done.out.splitlines()]
    assert ["all_reduce", "all_reduce.log", "8", "GiB", "348.21", "348.21"] in words
    assert ["8", "GiB", "24669.1", "µs", "348.21", "348.21", "24801.7", "µs", "346.34"] in words
    assert "nccl-tests 2.19.6" in done.out


def test_csv_and_json_have_every_size(read: Read) -> None:
    done = read(str(GOLDEN / "healthy-1-all_reduce.json"), "--csv")
    rows = list(csv.DictReader(done.out.splitlines()))
    assert len(rows) == 60
    assert rows[0]["collective"] == "all_reduce"
    document = json.loads(read(str(GOLDEN / "all_reduce.log"), "--json").out)
    assert len(document["tests"][0]["rows"]) == 31
    assert document["refused"] == []


def test_what_is_refused_is_told_with_its_line_beside_what_is_read(read: Read) -> None:
    files = [str(GOLDEN / name) for name in ("truncated.log", "all_reduce.log", "too_many_gpus.log")]
    done = read(*files)
    assert done.code == 2
    assert f"{files[0]}:36: ends before the footer" in done.err
    assert f"{files[2]}:6: " in done.err
    assert "348.21" in done.out
    document = json.loads(read(*files, "--json").out)
    assert [row["line"] for row in document["refused"]] == [36, 6]


def test_wrong_values_disprove_and_doubts_are_no_pass(read: Read, tmp_path: Path) -> None:
    good = written(tmp_path, Printed(world=4))
    assert read(good, "--ranks", "4").code == 0
    less = read(good, "--ranks", "8")
    assert (less.code, "4 ranks took part, 8 were asked for" in less.out) == (2, True)
    wrong = read(written(tmp_path, replace(Printed(), wrong="12", bounds="12 FAILED")))
    assert (wrong.code, "elements came out wrong at 1 KiB" in wrong.out) == (1, True)


def test_an_escape_in_a_capture_does_not_reach_the_terminal(read: Read, tmp_path: Path) -> None:
    done = read(written(tmp_path, replace(Printed(), notes=("Test NCCL failure \x1b]0;owned\x07",))))
    assert done.code == 2
    assert "\x1b" not in done.out + done.err


@pytest.mark.parametrize("data", [b"", b"\xff\xfe\x00", b"{", b"[]", b"{}" * 10, b"\n" * 1000, b"nThread"])
def test_a_file_that_is_none_is_refused_by_name(read: Read, tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "what.log"
    path.write_bytes(data)
    done = read(str(path))
    assert done.code == 2
    assert f"not read: {path}" in done.err


def test_files_that_cannot_be_opened_are_a_wrong_request(read: Read, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for path in (tmp_path / "nothing.log", tmp_path, fifo):
        done = read(str(path))
        assert done.code == 3, path
        assert str(path) in done.err
    assert read(str(GOLDEN / "all_reduce.log"), "--csv", "--json").code == 3


def test_what_comes_through_a_pipe_is_read_as_a_dash() -> None:
    with (GOLDEN / "all_reduce.log").open() as capture:
        said = subprocess.run(
            [sys.executable, "-m", "surefoot", "nccl", "read", "-"],
            stdin=capture,
            capture_output=True,
            text=True,
            check=False,
        )
    assert said.returncode == 0, said.stderr
    assert "348.21" in said.stdout


@pytest.mark.parametrize(
    ("name", "begins"), [("c.html", b"<!doctype html>"), ("c.svg", b"<?xml"), ("c.PNG", b"\x89PNG")]
)
def test_curves_are_drawn_into_a_page_or_a_picture(read: Read, tmp_path: Path, name: str, begins: bytes) -> None:
    files = [str(GOLDEN / f"{one}.log") for one in ("all_reduce", "all_gather")]
    assert read(*files, "--plot", str(tmp_path / name), "--json").code == 0
    drawn = (tmp_path / name).read_bytes()
    assert drawn.startswith(begins)
    if name == "c.html":
        assert b"348 GB/s" in drawn
        assert b"all_gather" in drawn
        assert b"<script" not in drawn


@pytest.mark.parametrize("name", ["c.gif", "c", "no/c.svg", "."])
def test_a_picture_that_cannot_be_drawn_is_refused_before_anything_is_read(
    read: Read, tmp_path: Path, name: str
) -> None:
    done = read(str(GOLDEN / "all_reduce.log"), "--plot", str(tmp_path / name))
    assert (done.code, done.out) == (3, "")
    assert "--plot" in done.err


def test_a_hostile_file_name_is_text_on_the_page(read: Read, tmp_path: Path) -> None:
    file = written(tmp_path, Printed(), "<img src=x onerror=alert(1)>-all_reduce.log")
    assert read(file, "--plot", str(tmp_path / "c.html")).code == 0
    assert "<img" not in (tmp_path / "c.html").read_text()


def test_hostile_file_names_are_text_in_a_picture_and_in_csv(read: Read, tmp_path: Path) -> None:
    files = [written(tmp_path, Printed(), f"{name}-all_reduce.log") for name in ("a$\\foo$", "b\x1b[31m--><g>")]
    assert read(*files, "--plot", str(tmp_path / "c.svg")).code == 0
    ET.parse(tmp_path / "c.svg")  # noqa: S314 - it is ours
    done = read(*files, "--csv")
    assert (done.code, "\x1b" in done.out) == (0, False)


@pytest.mark.parametrize(("form", "shown"), [("--csv", "\ufffd"), ("--json", r"\udcff")])
def test_a_file_name_that_is_no_text_is_no_fault(tmp_path: Path, form: str, shown: str) -> None:
    file = os.fsencode(tmp_path) + b"/\xff-all_reduce.log"
    with open(file, "w") as stream:  # noqa: PTH123 - such a name is bytes
        stream.write(Printed().text())
    said = subprocess.run(
        [sys.executable, "-m", "surefoot", "nccl", "read", form, file],
        env={**os.environ, "PYTHONIOENCODING": "utf-8:strict"},
        capture_output=True,
        check=False,
    )
    assert (said.returncode, said.stderr) == (0, b"")
    assert f"{shown}-all_reduce.log" in said.stdout.decode()
