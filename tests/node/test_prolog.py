"""The prolog: a drain only for what was read and may be acted upon; its own faults never drain a node."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from surefoot.node import prolog

GONE = {"mounts": ["/no/such/mount"]}


@pytest.fixture(autouse=True)
def _sinfo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _slurm_says(tmp_path, monkeypatch, *(f"n{i}|idle|none" for i in range(20)))
    monkeypatch.setattr(prolog, "STATUS", str(tmp_path / "status.json"))
    monkeypatch.setenv("SLURMD_NODENAME", "n19")


def _left(tmp_path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((tmp_path / "status.json").read_text())
    return found


def _slurm_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *rows: str) -> None:
    listing = tmp_path / "sinfo"
    listing.write_text("".join(f"{row}\n" for row in rows))
    monkeypatch.setattr(prolog, "SINFO", ("cat", str(listing)))


def _ends(tmp_path: Path, claims: dict[str, Any], **more: Any) -> int:
    file = tmp_path / "claims.json"
    file.write_text(json.dumps({"claims": claims, **more}))
    return prolog.main([str(file)])


def test_what_holds_ends_0_and_says_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert _ends(tmp_path, {"mounts": ["/proc"]}, enforce=True) == 0
    assert capfd.readouterr().err == ""


def test_a_disproved_claim_tells_to_drain(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert _ends(tmp_path, GONE, enforce=True) == prolog.DRAIN
    assert "DISPROVED: not mounted: /no/such/mount" in capfd.readouterr().err


def test_a_lost_driver_and_a_lost_interface_are_the_nodes_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("surefoot.node.facts.nvml.LIBRARY", "libno-such.so")
    assert _ends(tmp_path, {"gpus": 8}, enforce=True) == prolog.DRAIN
    assert _ends(tmp_path, {"interfaces": ["nosuch0"]}, enforce=True) == prolog.DRAIN


def test_a_claim_that_cannot_be_read_drains_nothing_and_is_called_not_proved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("surefoot.node.facts.nvml.LIBRARY", "libno-such.so")
    assert _ends(tmp_path, {"driver": "580.95.05", "mounts": ["/proc"]}, enforce=True) == 0
    assert "driver NOT PROVED: " in capfd.readouterr().err
    assert _left(tmp_path)["outcome"] == "not proved"


def test_nothing_is_drained_unless_told_to(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert _ends(tmp_path, GONE) == 0
    assert "not acted upon" in capfd.readouterr().err


@pytest.mark.parametrize(
    "text",
    [
        None, "", "{", "[]", '{"claims": {}}', '{"claims": {"gpus": "8"}}', '{"claims": {"x": 1}}',
        '{"claims": {"mounts": ["/no"]}, "enforce": true, "claims": {"mounts": ["/proc"]}}',
        '{"claims": {"mounts": ["/no"]}, "enforce": "yes"}', '{"claims": {"mounts": ["/no"]}, "group": 1}',
        '{"claims": {"rails": [{"hca": "mlx5_0", "rate_gbit_s": Infinity}]}, "enforce": true}',
        '{"claims": {"memlock": 99999999999999999999}, "enforce": true}', '{"claims": {"\\u0000": 1}}',
        '{"claims": {"mounts": ["/no"]}, "enforced": true}', '{"claims": {"mounts": ["/no"]}, "status": "here"}',
    ],
)  # fmt: skip
def test_a_damaged_claims_file_is_no_fault_of_the_node(
    tmp_path: Path, text: str | None, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "claims.json"
    if text is not None:
        file.write_text(text)
    assert prolog.main([str(file)]) == 0
    assert "NOTHING PROVED, own fault" in capfd.readouterr().err


def test_a_check_that_hangs_or_breaks_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(prolog.JUDGES, "mounts", lambda _: time.sleep(60))
    monkeypatch.setitem(prolog.JUDGES, "driver", lambda _: 1 / 0)
    began = time.monotonic()
    verdicts = prolog.judged({"mounts": ["/x"], "driver": "1"}, 0.3)
    assert time.monotonic() - began < 2
    assert verdicts["mounts"] == ("unknown", "no answer within 0.3 s")
    assert verdicts["driver"][0] == "unknown"


def test_the_brake_holds_where_many_are_drained_or_slurm_is_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    drained = [f"n{i}|drained|Prolog error" for i in range(2)]
    _slurm_says(tmp_path, monkeypatch, *drained, *(f"n{i}|idle|none" for i in range(2, 20)))
    assert _ends(tmp_path, GONE, enforce=True) == 0
    assert "2 of 20 nodes are drained by prologs already" in capfd.readouterr().err
    monkeypatch.setattr(prolog, "SINFO", ("sleep", "30"))
    assert _ends(tmp_path, GONE, enforce=True) == 0
    assert "Slurm does not say" in capfd.readouterr().err


@pytest.mark.parametrize("share", [float("nan"), "many", True, 10, 1, 0, -0.5])
def test_a_share_that_is_no_brake_drains_nothing(tmp_path: Path, share: Any, capfd: pytest.CaptureFixture[str]) -> None:
    assert _ends(tmp_path, GONE, enforce=True, max_drain_share=share) == 0
    assert "max_drain_share is" in capfd.readouterr().err


def test_the_last_result_lies_in_the_status_file(tmp_path: Path) -> None:
    assert _ends(tmp_path, {"mounts": ["/proc"]}) == 0
    assert _left(tmp_path)["outcome"] == "proved"
    assert _left(tmp_path)["node"] == "n19"
    assert _ends(tmp_path, GONE, enforce=True, status=str(tmp_path / "elsewhere")) == prolog.DRAIN
    assert _left(tmp_path)["outcome"] == "proved"
    left = json.loads((tmp_path / "elsewhere").read_text())
    assert (left["code"], left["verdicts"]["mounts"][0]) == (prolog.DRAIN, "disproved")
    assert prolog.main([str(tmp_path / "no claims")]) == 0
    assert _left(tmp_path)["outcome"].startswith("NOTHING PROVED, own fault")


def test_a_status_file_that_cannot_be_written_changes_nothing_and_is_said(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert _ends(tmp_path, GONE, enforce=True, status=str(tmp_path / "file" / "s")) == prolog.DRAIN
    assert "no status file" in capfd.readouterr().err


def test_whatever_hangs_the_whole_ends_at_its_own_limit_without_a_drain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(prolog, "WHOLE_S", 2.0)

    def hang(*_: object) -> None:
        (tmp_path / "pid").write_text(str(os.getpid()))
        time.sleep(60)

    monkeypatch.setattr(prolog, "write_atomic", hang)
    began = time.monotonic()
    assert _ends(tmp_path, GONE, enforce=True) == 0
    assert time.monotonic() - began < 10
    said = capfd.readouterr().err
    assert "DISPROVED: not mounted" in said
    assert "no end within 2 s; not acted upon" in said
    # Killed, not left behind: its end can be waited for.
    assert os.WTERMSIG(os.waitpid(int((tmp_path / "pid").read_text()), 0)[1]) == signal.SIGKILL


def test_a_judge_of_judges_that_is_killed_drains_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(prolog, "work", lambda _: os.kill(os.getpid(), 9))
    assert _ends(tmp_path, GONE, enforce=True) == 0
    assert "ended by signal 9" in capfd.readouterr().err


def test_nodes_that_fail_in_the_same_second_are_counted_by_their_markers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    markers = tmp_path / "markers"
    markers.mkdir()
    ends = []
    for index in range(4):
        monkeypatch.setenv("SLURMD_NODENAME", f"n{index}")
        ends.append(_ends(tmp_path, GONE, enforce=True, markers=str(markers)))
    assert ends == [prolog.DRAIN, prolog.DRAIN, 0, 0]  # 0.1 of 20, and sinfo shows none of them yet
    assert "fail now" in capfd.readouterr().err
    for marker in markers.iterdir():
        os.utime(marker, (time.time() - 400, time.time() - 400))
    for stranger in ("README", ".nfs1", "old-node"):
        (markers / stranger).write_text("a name that Slurm does not know counts for nothing")
    assert _ends(tmp_path, GONE, enforce=True, markers=str(markers)) == prolog.DRAIN


def test_where_no_marker_can_be_left_nothing_is_drained(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert _ends(tmp_path, GONE, enforce=True, markers=str(tmp_path / "no")) == 0
    assert "no marker could be left" in capfd.readouterr().err


@pytest.mark.parametrize("plant", ["link", "pipe"])
def test_what_somebody_planted_among_the_markers_is_neither_written_through_nor_waited_for(
    tmp_path: Path, plant: str, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "markers").mkdir()
    (tmp_path / "theirs").write_text("kept")
    if plant == "link":
        (tmp_path / "markers" / "n19").symlink_to(tmp_path / "theirs")
    else:
        os.mkfifo(tmp_path / "markers" / "n19")
    assert _ends(tmp_path, GONE, enforce=True, markers=str(tmp_path / "markers")) == 0
    assert "no marker could be left" in capfd.readouterr().err
    assert (tmp_path / "theirs").read_text() == "kept"


def test_a_node_that_slurm_does_not_know_by_its_name_is_not_drained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its markers and those of its neighbours would be counted as nobody's."""
    monkeypatch.setenv("SLURMD_NODENAME", "host-19")
    assert _ends(tmp_path, GONE, enforce=True) == 0
    assert "Slurm names no node host-19" in capfd.readouterr().err


def test_a_marker_lies_nowhere_but_in_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "markers").mkdir()
    monkeypatch.setenv("SLURMD_NODENAME", "../out")
    assert _ends(tmp_path, GONE, enforce=True, markers=str(tmp_path / "markers")) == 0
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["/no\x1b[31m\nsurefoot prolog: fake", "/no\0", "/no\ud800"])
def test_what_is_said_is_a_line_of_text_whatever_is_in_it(
    tmp_path: Path, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert _ends(tmp_path, {"mounts": [name]}, enforce=True) == prolog.DRAIN
    (said,) = capfd.readouterr().err.splitlines()
    assert said.startswith("surefoot prolog: mounts DISPROVED: not mounted: /no\ufffd")
    assert said.isprintable()


def test_a_device_or_a_pipe_is_not_replaced_by_the_status_file(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert _ends(tmp_path, GONE, enforce=True, status=str(tmp_path / "pipe")) == prolog.DRAIN
    assert (tmp_path / "pipe").is_fifo()
    assert "is no regular file, and is left as it is" in capfd.readouterr().err


def test_a_check_that_has_answered_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its end may be held in the kernel, as when the GPU that it closes is lost."""

    def answers_and_hangs(judge: object, claimed: object, answer: int) -> None:  # noqa: ARG001
        os.write(answer, b'["disproved", "gone"]')
        time.sleep(60)

    monkeypatch.setattr(prolog, "_child", answers_and_hangs)
    began = time.monotonic()
    assert prolog.judged({"gpus": 8}) == {"gpus": ("disproved", "gone")}
    assert time.monotonic() - began < 20


def test_it_needs_the_standard_library_alone(tmp_path: Path) -> None:
    source = str(Path(prolog.__file__).parents[2])
    words = f"import sys; sys.path.insert(0, {source!r}); from surefoot.node.prolog import main; sys.exit(main([{str(tmp_path / 'no')!r}]))"
    done = subprocess.run([sys.executable, "-I", "-S", "-B", "-c", words], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "NOTHING PROVED, own fault" in done.stderr
