"""report.html: one page that opens offline, with every claim beside the evidence that shows it.

The page has no external resource and says so to the browser (a Content-Security-Policy without
any source but itself). All text is escaped by Jinja2; paths become links only when they lie
inside the run folder.
"""

from __future__ import annotations

import base64
import hashlib
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from surefoot.model.check import Check
from surefoot.model.run import RungResult, RunManifest
from surefoot.model.status import Status, exit_code
from surefoot.reports import charts, details, sweeps
from surefoot.reports import fleet as fleets
from surefoot.reports import text as words
from surefoot.reports.figures import headline, key_figures, rung_order, span
from surefoot.units import format_size

CHANGED_SHOWN = 8
"""Changed answers that stand open on the page."""
CHANGED_MOST = 200
"""Changed answers on the page at all; the rest lies in the evidence."""
MEASUREMENTS_MOST = 120
CHECKS_MOST = 400
"""Checks of one rung on the page; those that did not pass come first when there are more."""
FACTS_MOST = 200
"""Rows of a drift matrix that stand open, and as many of those that agree."""
TEXT_MOST = 600

_DIGEST = re.compile(r"[0-9a-f]{40,}")


@dataclass(frozen=True)
class RungView:
    """A rung as the page shows it. `result` is None where the run recorded none."""

    name: str
    result: RungResult | None

    @property
    def status(self) -> Status | None:
        return self.result.status if self.result else None

    @property
    def slug(self) -> str:
        """CSS class of the status."""
        return self.status.value.lower() if self.status else "missing"

    @property
    def checks(self) -> tuple[Check, ...]:
        """Its checks; where there are too many for a page, those that did not pass come first."""
        checks = self.result.judgement.checks if self.result else ()
        if len(checks) > CHECKS_MOST:
            checks = tuple(sorted(checks, key=lambda check: check.status is Status.PASSED))
        return checks

    @property
    def open(self) -> bool:
        """Unfolded from the start: what did not pass, unless its reason on the folded row says it all."""
        if self.status in (Status.BLOCKED, Status.SKIPPED):
            return bool(self.checks)
        return self.status is not Status.PASSED

    @property
    def fleet(self) -> fleets.FleetView | None:
        """Its drift matrix, where it recorded one."""
        return fleets.view(self.result.judgement.details) if self.result else None

    @property
    def passed_checks(self) -> int:
        return sum(check.status is Status.PASSED for check in self.checks)


@dataclass(frozen=True)
class Problem:
    """Where a reader looks first when the run did not pass."""

    rung: RungView
    check: Check | None


def render(manifest: RunManifest, results: Sequence[RungResult], overall: Status, *, evidence_root: str = "") -> str:
    """The report of a run, as HTML.

    `overall` and every status are shown as they are given. `evidence_root` is put before every
    path of evidence in links; empty when the page lies in the run folder.
    """
    rungs = tuple(RungView(name, result) for name, result in rung_order(manifest, results))
    script = _file("print.js")
    page = _environment().get_template("report.html.j2").render(
        manifest=manifest,
        overall=overall,
        headline=headline(manifest, results),
        exit=exit_code([overall]),
        exit_meaning=words.EXIT_MEANINGS[exit_code([overall])],
        span=span(results),
        rungs=rungs,
        first_problem=None if overall is Status.PASSED else _first_problem(rungs, overall),
        figures=tuple(f for f in key_figures(results) if f.label)[:4],
        curves=details.curves(results),
        training=details.training(results),
        categories=details.categories(results),
        changed=details.changed_answers(results),
        evaluated=details.by_rung(results).get("evaluate"),
        verdict=details.verdict(results),
        review=details.review(results),
        node_facts=details.node_facts(results),
        fingerprint=_fingerprint(results),
        command=shlex.join(manifest.command),
        evidence_root=evidence_root.rstrip("/") + "/" if evidence_root else "",
        charts=charts,
        limits={"shown": CHANGED_SHOWN, "most": CHANGED_MOST, "measurements": MEASUREMENTS_MOST, "checks": CHECKS_MOST, "facts": FACTS_MOST},
        style=Markup(_file("style.css")),  # noqa: S704 (our own file)
        script=Markup(script),  # noqa: S704 (our own file)
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )  # fmt: skip
    return words.xml_safe(page)


def render_sweeps(curves: Sequence[details.Curve], captures: Sequence[sweeps.Capture]) -> str:
    """Captures of nccl-tests as a page of its own: both curves, the table, and what speaks against using them."""
    page = (
        _environment()
        .get_template("sweeps.html.j2")
        .render(
            curves=curves,
            captures=captures,
            charts=charts,
            style=Markup(_file("style.css")),  # noqa: S704 (our own file)
        )
    )
    return words.xml_safe(page)


def evidence_link(path: str, root: str = "") -> str | None:
    """A relative link to a file of the run; None when `path` does not lie inside the run folder."""
    if not path or path.startswith("/") or "\\" in path or ".." in path.split("/"):
        return None
    clean = path.encode("utf-8", "replace")
    return f"{root or './'}{quote(clean, safe='/')}"


def _first_problem(rungs: Sequence[RungView], overall: Status) -> Problem | None:
    """The first rung that has the run's own status, else the first that did not pass."""
    wrong = [rung for rung in rungs if rung.status not in (Status.PASSED, Status.SKIPPED)]
    rung = next((r for r in wrong if r.status is overall), wrong[0] if wrong else None)
    if rung is None:
        return None
    checks = [c for c in rung.checks if c.status not in (Status.PASSED, Status.SKIPPED)]
    check = next((c for c in checks if c.status is rung.status), checks[0] if checks else None)
    return Problem(rung, check)


def _fingerprint(results: Sequence[RungResult]) -> tuple[tuple[str, tuple[tuple[str, tuple[str, ...]], ...]], ...]:
    """(fact, ((value, rungs), …)): what measurements were taken on; two values where rungs differ."""
    facts: dict[str, dict[str, list[str]]] = {}
    for result in results:
        if result.judgement.fingerprint is not None:
            for name, value in result.judgement.fingerprint.facts.items():
                facts.setdefault(name, {}).setdefault(value, []).append(result.rung)
    return tuple((name, tuple((v, tuple(on)) for v, on in seen.items())) for name, seen in sorted(facts.items()))


def _shorten(value: object, limit: int = TEXT_MOST) -> str:
    return words.shorten(str(value), limit)


@cache
def _file(name: str) -> str:
    return (files("surefoot.reports") / "templates" / name).read_text(encoding="utf-8")


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("surefoot.reports"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "duration": words.duration,
        "moment": words.moment,
        "shorten": _shorten,
        "one_line": words.one_line,
        "figure": words.figure,
        "rate": words.rate,
        "microseconds": words.microseconds,
        "size": format_size,
        "quoted": lambda value: shlex.quote(str(value)),
    }
    environment.tests["digest"] = lambda value: bool(_DIGEST.fullmatch(str(value)))
    environment.globals |= {
        "evidence_link": evidence_link,
        "value_pair": words.value_pair,
    }
    return environment
