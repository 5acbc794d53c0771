"""junit.xml and summary.json: what CI systems and programs read is never greener than the run."""

from __future__ import annotations

import json
from xml.etree import ElementTree as ET

import pytest

import sample_run
from sample_run import Run
from surefoot.model.check import Check
from surefoot.model.run import Judgement
from surefoot.model.status import Status
from surefoot.reports import junit
from surefoot.reports.summary import summary


def suites(run: Run, overall: Status | None = None) -> ET.Element:
    return ET.fromstring(junit.render(run.manifest, run.results, overall))  # noqa: S314 (our own output)


def test_a_passed_run_has_a_case_for_each_check_and_nothing_red() -> None:
    run = sample_run.passed_run()
    root = suites(run)
    assert len(root.findall("testsuite")) == 14
    assert root.get("tests") == str(sum(len(r.judgement.checks) for r in run.results))
    assert (root.get("failures"), root.get("errors"), root.get("skipped")) == ("0", "0", "0")
    case = root.find("./testsuite[@name='storage']/testcase[@name='storage.write.floor']")
    assert case is not None
    assert case.get("classname") == "surefoot.storage"
    assert root.find("testsuite[@name='storage']").get("time") == "2.880"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("status", "tag"),
    [
        (Status.FAILED, "failure"),
        (Status.ERROR, "error"),
        (Status.INCONCLUSIVE, "error"),
        (Status.BLOCKED, "error"),
        (Status.SKIPPED, "skipped"),
    ],
)
def test_a_rung_without_checks_carries_its_own_status(status: Status, tag: str) -> None:
    run = sample_run.passed_run()
    run = run.with_result(
        run.result("ddp").model_copy(update={"status": status, "judgement": Judgement(), "reason": "why"})
    )
    cases = suites(run).findall("testsuite[@name='ddp']/testcase")
    assert len(cases) == 1
    found = cases[0].find(tag)
    assert found is not None
    assert found.get("message") == "why"
    assert found.get("type") == (None if tag == "skipped" else status.value)


def test_a_rung_that_fell_though_its_checks_passed_is_red() -> None:
    run = sample_run.passed_run()
    run = run.with_result(run.result("ddp").model_copy(update={"status": Status.INCONCLUSIVE, "reason": "aborted"}))
    suite = suites(run).find("testsuite[@name='ddp']")
    assert suite is not None
    assert suite.get("errors") == "1"


def test_a_rung_of_the_ladder_without_a_result_is_red() -> None:
    run = sample_run.passed_run()
    root = suites(Run(run.manifest, run.results[:-1]))
    assert root.find("testsuite[@name='review']/testcase/error") is not None


def test_a_run_that_is_not_passed_as_a_whole_is_red_whatever_its_parts_say() -> None:
    root = suites(sample_run.passed_run(), Status.INCONCLUSIVE)
    assert root.find("testsuite[@name='surefoot']/testcase/error[@type='INCONCLUSIVE']") is not None
    assert root.get("errors") == "1"


def test_a_failure_tells_figures_evidence_and_what_to_do() -> None:
    failure = suites(sample_run.failed_run()).find(".//failure")
    assert failure is not None
    told = failure.text or ""
    for part in ("expected: exit 0", "actual:   exit 1", "done.json:1", "told to fail", "next:"):
        assert part in told


def test_characters_that_xml_forbids_are_replaced() -> None:
    run = sample_run.passed_run()
    bad = "a\x00b\x1b[0m\ufffe\ud800<&>\"'"
    check = Check(id=bad, claim=bad, status=Status.FAILED, actual=bad, next_action=bad)
    run = run.with_result(
        run.result("ddp").model_copy(update={"status": Status.FAILED, "judgement": Judgement(checks=(check,))})
    )
    text = junit.render(run.manifest, run.results)
    text.encode()
    failure = ET.fromstring(text).find(".//failure")  # noqa: S314 (our own output)
    assert failure is not None
    assert failure.get("message") == "a\ufffdb\ufffd[0m\ufffd\ufffd<&>\"'"


@pytest.mark.parametrize(("name", "code"), [("passed", 0), ("failed", 1), ("interrupted", 4)])
def test_the_summary_is_json_with_status_and_exit_code(name: str, code: int) -> None:
    run = sample_run.all_runs()[name]
    found = json.loads(json.dumps(summary(run.manifest, run.results), allow_nan=False))
    assert (found["status"], found["exit_code"]) == (run.overall.value, code)
    assert [row["rung"] for row in found["rungs"]] == [r.rung for r in run.results]
    assert sum(found["counts"].values()) == 14


def test_the_summary_holds_key_figures_with_units() -> None:
    run = sample_run.passed_run()
    figures = {f["name"]: f for f in summary(run.manifest, run.results)["figures"]}
    assert figures["accuracy.base"]["value"] == pytest.approx(0.36)
    assert figures["accuracy.adapter"]["value"] == pytest.approx(0.94)
    assert figures["gate.decision"]["value"] == "GO"
    assert figures["all_reduce.busbw_peak"]["unit"] == "GB/s"
    assert figures["alltoall.latency_floor"]["unit"] == "us"


def test_the_summary_leaves_out_what_was_not_measured_and_names_what_did_not_pass() -> None:
    run = sample_run.failed_run()
    found = summary(run.manifest, run.results)
    assert not any(f["name"].startswith(("accuracy", "loss", "gate")) for f in found["figures"])
    assert found["decision"] is None
    row = next(r for r in found["rungs"] if r["rung"] == "fake_trainer")
    assert [check["id"] for check in row["not_passed"]] == ["fake_trainer.job.ended"]


def test_the_summary_of_nothing_is_inconclusive() -> None:
    found = summary(sample_run.manifest(), ())
    assert (found["status"], found["exit_code"], found["duration_s"]) == ("INCONCLUSIVE", 2, None)
    assert all(row["status"] is None for row in found["rungs"])
