"""``surefoot nccl compare``: lists of files as a shell gives them, exit codes, words and documents."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from surefoot.cli import run

CORPUS = Path(__file__).parents[3] / "shared" / "data" / "nccl-h200x2"


def files(*names: str) -> list[str]:
    return [str(CORPUS / f"{name}-all_reduce.log") for name in names]


HEALTHY = files("healthy-1", "healthy-2", "healthy-3", "healthy-4")


def compare(capfd: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = run(["nccl", "compare", *words])
    out, err = capfd.readouterr()
    return code, out, err


def test_a_pattern_of_a_shell_gives_several_files_to_one_option(capfd: pytest.CaptureFixture[str]) -> None:
    for words in (
        ["--baseline", *HEALTHY, "--candidate", *files("healthy-5", "healthy-6")],
        ["--candidate", *files("healthy-5", "healthy-6"), "--baseline", *HEALTHY[:2], "--baseline", *HEALTHY[2:]],
    ):
        code, out, _ = compare(capfd, *words)
        assert code == 0
        assert out.splitlines()[-1] == "✓ PASSED: 2 captures against 4 healthy"


def test_what_is_worse_is_told_with_its_cause(capfd: pytest.CaptureFixture[str]) -> None:
    code, out, _ = compare(capfd, "--baseline", *HEALTHY, "--candidate", *files("half_channels-1"))
    assert code == 1
    words = " ".join(out.split())
    assert "bandwidth is lost and latency is intact: 8 channels carry the data, 24 in the baseline" in words
    assert "✗ FAILED: 1 capture against 4 healthy" in words


def test_the_document_has_status_and_findings_and_nothing_else_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    code, out, err = compare(capfd, "--json", "--baseline", *HEALTHY, "--candidate", *files("p2p_disabled-1"))
    said = json.loads(out)
    assert (code, said["exit_code"], said["status"], err) == (1, 1, "FAILED", "")
    (transport,) = (one for one in said["findings"] if one["part"] == "transport")
    assert set(transport) == {"collective", "part", "status", "expected", "actual", "cause", "file", "line"}
    assert Path(transport["file"]).read_text().splitlines()[transport["line"] - 1].endswith("via SHM/direct/direct")


def test_too_little_or_cut_off_is_no_pass(capfd: pytest.CaptureFixture[str]) -> None:
    code, out, _ = compare(capfd, "--baseline", *HEALTHY[:2], "--candidate", HEALTHY[2])
    assert code == 2
    assert "1 more healthy repeat would tell" in " ".join(out.split())
    for name in ("truncated.log", "too_many_gpus.log"):
        code, out, _ = compare(capfd, "--json", "--baseline", *HEALTHY, "--candidate", str(CORPUS / name))
        assert (code, json.loads(out)["status"]) == (2, "INCONCLUSIVE")


def test_a_wrong_request_is_told_as_such(capfd: pytest.CaptureFixture[str]) -> None:
    for words in (
        ["--baseline", *HEALTHY],
        ["--baseline", "--candidate", HEALTHY[0]],
        ["--candidate", HEALTHY[0]],
        [HEALTHY[0]],
    ):
        code, _, err = compare(capfd, *words)
        assert (code, bool(err)) == (3, True), words
    code, _, err = compare(capfd, "--baseline", "nothing.log", "--candidate", HEALTHY[0])
    assert (code, "nothing.log" in err) == (3, True)
