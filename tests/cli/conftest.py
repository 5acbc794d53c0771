"""The command line on the toy ladder."""

from __future__ import annotations

from pathlib import Path

import pytest

from toy_cli import LADDER, ToyCli


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> ToyCli:
    monkeypatch.delenv("SUREFOOT_ROOT", raising=False)
    monkeypatch.chdir(tmp_path)
    ladder = tmp_path / "toy.yaml"
    ladder.write_text(LADDER)
    cli = ToyCli(tmp_path / "root", ladder, monkeypatch, capsys)
    cli.set()
    return cli
