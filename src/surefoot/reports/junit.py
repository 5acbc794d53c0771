"""junit.xml: one suite for each rung, one test case for each check. What did not pass is never green.

FAILED becomes ``<failure>``; ERROR, INCONCLUSIVE and BLOCKED become ``<error>`` of that type (CI
systems show them red, and tell them apart by the type); SKIPPED becomes ``<skipped>``, and so does
a rung that is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from xml.etree import ElementTree as ET

from surefoot.model.check import Check
from surefoot.model.run import RungResult, RunManifest
from surefoot.model.status import Status, whole
from surefoot.reports.figures import rung_order, span
from surefoot.reports.text import value_pair, xml_safe

_NO_RESULT = "stands in the ladder, but this run recorded no result of it"


def render(manifest: RunManifest, results: Sequence[RungResult], overall: Status | None = None) -> str:
    """The run as JUnit XML (with declaration).

    Where everything recorded is green and `overall` (default: the combined statuses) is not
    PASSED, a suite ``surefoot`` carries the status, so that a CI system can't show success.
    """
    status = overall or whole(result.status for result in results)
    root = ET.Element("testsuites", name=xml_safe(f"surefoot {manifest.run_id}"))
    for name, result in rung_order(manifest, results):
        _suite(root, manifest, name, result)
    for name in manifest.inputs.left_out:
        suite = ET.SubElement(root, "testsuite", name=xml_safe(name))
        _case(suite, f"surefoot.{name}", name, Status.SKIPPED, manifest.inputs.left_out_note)
    if status is not Status.PASSED and root.find(".//failure") is None and root.find(".//error") is None:
        suite = ET.SubElement(root, "testsuite", name="surefoot")
        _case(suite, "surefoot", "run", status, f"the run as a whole is {status}")
    for element in (*root, root):
        _count(element)
    seconds = span(results).seconds
    if seconds is not None:
        root.set("time", f"{seconds:.3f}")
    ET.indent(root, " ")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _suite(root: ET.Element, manifest: RunManifest, name: str, result: RungResult | None) -> None:
    suite = ET.SubElement(root, "testsuite", name=xml_safe(name), hostname=xml_safe(manifest.host))
    classname = f"surefoot.{name}"
    if result is None:
        _case(suite, classname, name, Status.INCONCLUSIVE, _NO_RESULT)
        return
    if result.duration_s is not None:
        suite.set("time", f"{result.duration_s:.3f}")
    if result.started_at is not None:
        suite.set("timestamp", datetime.fromtimestamp(result.started_at, UTC).isoformat(timespec="seconds"))
    checks = result.judgement.checks
    for check in checks:
        _case(suite, classname, check.id, check.status, check.claim, account=_account(check))
    # The rung's own status, where no check shows it: it has none, or it fell for another reason.
    told = any(check.status is result.status for check in checks)
    if not told:
        case = _case(suite, classname, name, result.status, result.reason or result.proves)
        if result.duration_s is not None and not checks:
            case.set("time", f"{result.duration_s:.3f}")


def _account(check: Check) -> str:
    """What a person reads in the CI system: figures, where they stand, what to do."""
    expected, actual = value_pair(check.expected, check.actual, check.unit)
    lines = [f"expected: {expected}", f"actual:   {actual}"]
    if check.derivation:
        lines.append(f"because:  {check.derivation}")
    for seen in check.evidence:
        where = seen.file if seen.line is None else f"{seen.file}:{seen.line}"
        lines.append(f"evidence: {where}" + (f"  {seen.text}" if seen.text else ""))
    if check.next_action:
        lines.append(f"next:     {check.next_action}")
    return "\n".join(lines)


def _case(
    suite: ET.Element, classname: str, name: str, status: Status, message: str, *, account: str = ""
) -> ET.Element:
    case = ET.SubElement(suite, "testcase", classname=xml_safe(classname), name=xml_safe(name))
    if status is Status.PASSED:
        return case
    tag = {Status.FAILED: "failure", Status.SKIPPED: "skipped"}.get(status, "error")
    outcome = ET.SubElement(case, tag, message=xml_safe(message))
    if tag != "skipped":
        outcome.set("type", status.value)
    if account:
        outcome.text = xml_safe(account)
    return case


def _count(element: ET.Element) -> None:
    for name, path in (("tests", "testcase"), ("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        element.set(name, str(len(element.findall(f".//{path}"))))
