"""The herd's programs: nodes meet with files alone, and who does not come, or cannot import, is named."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from surefoot.node.herd import herd, read_stream, rewritten_pages, write_stream
from surefoot.node.import_time import ImportFailedError, import_all
from surefoot.node.meeting import AbsentError, Meeting


def test_a_node_that_does_not_come_is_named_with_the_step(tmp_path: Path) -> None:
    with pytest.raises(AbsentError, match=r"node 1, 2 of 3 did not come to write \(here\) in 0.1 s"):
        Meeting(tmp_path, 0, 3, 0.1).together("write")


def test_nodes_that_meet_all_see_that_all_began(tmp_path: Path) -> None:
    seen: list[int] = []

    def node(number: int) -> None:
        meeting = Meeting(tmp_path, number, 3, 20)
        meeting.together("write")
        meeting.put("done", "write")
        meeting.all_done("write")
        seen.append(meeting.began("write"))

    threads = [threading.Thread(target=node, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [3, 3, 3]


def test_a_stream_that_is_read_is_the_one_that_was_written(tmp_path: Path) -> None:
    wrote = write_stream(tmp_path / "s", 2 * 1024**2, b"x" * 4096)
    read = read_stream(tmp_path / "s")
    assert wrote["bytes"] >= 2 * 1024**2
    assert read["bytes"] >= 2 * 1024**2
    assert read["how"] in ("O_DIRECT", "fadvise")
    assert min(wrote["seconds"], read["seconds"]) >= 0.3
    (tmp_path / "s").write_bytes(b"y" * 1024**2)
    assert read_stream(tmp_path / "s")["head"] != read["head"]


def test_a_page_that_a_node_never_wrote_is_reported_as_not_read(tmp_path: Path) -> None:
    class Alone(Meeting):
        def together(self, step: str) -> None:
            """Nobody else is waited for."""

    seen = rewritten_pages(Alone(tmp_path, 0, 2, 1), "nonce")
    assert [page is None for page in seen["new"]] == [False, True]
    assert seen["old"][0] != seen["new"][0]


def test_an_interpreter_tells_what_it_found_what_not_and_which_files_it_took() -> None:
    seconds, told = import_all(["json", "no_such_module"], 20)
    assert seconds > 0
    assert (told["found"], told["missing"]) == (["json"], ["no_such_module"])
    assert any(name.endswith(("json/__init__.py", ".pyc")) for name in told["files"])


def test_a_module_that_is_there_and_breaks_is_told_in_its_own_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken.py").write_text("import no_such_module\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(ImportFailedError, match=r"importing broken: exit code 1: .*no_such_module"):
        import_all(["broken"], 20)
    (tmp_path / "slow.py").write_text("import time\ntime.sleep(9)\n")
    with pytest.raises(ImportFailedError, match="not done after"):
        import_all(["slow"], 0.5)


def test_a_node_that_waits_in_vain_reports_why_it_stopped(tmp_path: Path) -> None:
    request: dict[str, Any] = {"nodes": 2, "wait_s": 0.1, "stream_size": 1024**2, "imports": []}
    told = herd(tmp_path, 0, request, "nonce")
    assert set(told) == {"node", "stopped"}
    assert "node 1 of 2 did not come to plan" in told["stopped"]
