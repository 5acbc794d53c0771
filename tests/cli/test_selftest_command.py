"""``surefoot selftest verdicts``: rates with intervals and targets, of shipped captures or one's own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nccl_tests_written import GOLDEN
from surefoot.cli import run

CORPUS = Path(__file__).parents[3] / "shared" / "data" / "nccl-h200x2"


def test_few_trials_prove_nothing_and_say_so(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["selftest", "verdicts", "--trials", "5"]) == 2
    out = capfd.readouterr().out
    assert "plateau" in out
    assert "more" in out


def test_the_document_has_each_rate_with_its_interval(capfd: pytest.CaptureFixture[str]) -> None:
    files = [word for file in sorted(CORPUS.glob("healthy-*.json")) for word in ("--captures", str(file))]
    code = run(["selftest", "verdicts", "--trials", "10", "--seed", "2", "--json", *files])
    said = json.loads(capfd.readouterr().out)
    assert code == said["exit_code"] == 2
    healthy = said["rates"][0]
    assert (healthy["fault"], healthy["trials"], healthy["failed"]) == ("healthy", 10, 0)
    assert healthy["interval"][1] == pytest.approx(0.2775, abs=1e-3)


def test_too_few_captures_are_a_wrong_request(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["selftest", "verdicts", "--captures", str(GOLDEN / "all_reduce.log")]) == 3
    assert "1 healthy sweeps; 4 of a collective are needed" in capfd.readouterr().err
