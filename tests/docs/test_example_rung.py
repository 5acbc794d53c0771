"""The example rung in docs/architecture.md works as it stands there."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest
from pydantic import Field

from recorded import demo_recipe, inputs_of, job_files, plan_of
from surefoot.errors import EvidenceError
from surefoot.evidence import Blob, EvidenceSet
from surefoot.model.ladder import Ladder, NodeRungSpec, Runner
from surefoot.model.run import JobsStep, Judgement
from surefoot.model.status import Status
from surefoot.node.rank import Rank
from surefoot.rungs.base import Asked, PlanContext, Rung, View, layout
from surefoot.rungs.judging import RankData, Said, decide, said

PAGE = Path(__file__).resolve().parents[2] / "docs" / "architecture.md"
IMPORTED: dict[str, Any] = {
    "Asked": Asked, "ClassVar": ClassVar, "Field": Field, "JobsStep": JobsStep, "Judgement": Judgement,
    "Literal": Literal, "NodeRungSpec": NodeRungSpec, "PlanContext": PlanContext, "Rank": Rank, "RankData": RankData,
    "Rung": Rung, "Said": Said, "View": View, "decide": decide, "layout": layout, "said": said, "time": time,
}  # fmt: skip
"""What a reader would import; the example leaves it out."""


def block(containing: str) -> str:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return next(text for text in blocks if containing in text)


def run_block(containing: str, **more: Any) -> dict[str, Any]:
    names = {**IMPORTED, **more, "__name__": "example"}
    exec(compile(block(containing), "<architecture.md>", "exec", dont_inherit=True), names)  # noqa: S102 - our own page
    return names


def view_of(tmp_path: Path, clocks: list[float]) -> tuple[Rung[Any, Any], View]:
    """The example's rung, and a view of a job whose ranks told these clocks."""
    spec_class = run_block("class Clock(NodeRungSpec)")["Clock"]
    rung = run_block("RUNG = Clock()", ClockSpec=spec_class)["RUNG"]
    spec = spec_class(rung="clock")
    inputs = inputs_of(demo_recipe(), Ladder(name="l", rungs=(Runner(rung="runner"),)))
    plan = plan_of(rung, spec, inputs, tmp_path, nonce="0123456789abcdef", needs={})
    data = [{"clock": clock} for clock in clocks]
    files = {name: Blob(name, data=content) for name, content in job_files(plan, plan.jobs[0], data).items()}
    return rung, View(evidence=EvidenceSet(plan, files), inputs=inputs, spec=spec, needs={})


def judge(tmp_path: Path, clocks: list[float]) -> Judgement:
    rung, view = view_of(tmp_path, clocks)
    return rung.judge(rung.read(view), view)


def test_clocks_that_agree_pass(tmp_path: Path) -> None:
    (check,) = judge(tmp_path, [1_796_000_000.0, 1_796_000_000.5]).checks
    assert check.status is Status.PASSED
    assert len(check.evidence) == 2


def test_clocks_that_differ_fail(tmp_path: Path) -> None:
    (check,) = judge(tmp_path, [1_796_000_000.0, 1_796_000_001.5]).checks
    assert check.status is Status.FAILED
    assert check.actual == 1.5


def test_a_rank_that_said_nothing_is_no_pass(tmp_path: Path) -> None:
    with pytest.raises(EvidenceError, match="2 ranks were asked for"):
        judge(tmp_path, [1_796_000_000.0])


def test_the_program_reports_its_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "request.json").write_text("{}")
    environment = {
        "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "SUREFOOT_JOB_FOLDER": str(tmp_path),
        "SUREFOOT_JOB_ID": "1", "SUREFOOT_JOB_NAME": "clock", "SUREFOOT_RUN": "run-1", "SUREFOOT_NONCE": "0123456789abcdef",
    }  # fmt: skip
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    run_block("surefoot.node.clock")["main"]()
    assert '"clock": ' in (tmp_path / "rank-0.json").read_text()
