"""Writing a run's reports into its folder."""

from __future__ import annotations

import json
from collections.abc import Sequence

from surefoot.files import write_atomic
from surefoot.model.run import RungResult, RunManifest
from surefoot.model.status import whole
from surefoot.paths import RunPaths
from surefoot.reports.html import render as render_html
from surefoot.reports.junit import render as render_junit
from surefoot.reports.summary import summary


def write_reports(paths: RunPaths, manifest: RunManifest, results: Sequence[RungResult]) -> None:
    """``report.html``, ``junit.xml`` and ``summary.json``, each atomically. Raises StorageError."""
    overall = whole(result.status for result in results)
    write_atomic(paths.summary, json.dumps(summary(manifest, results), indent=1) + "\n")
    write_atomic(paths.junit, render_junit(manifest, results))
    write_atomic(paths.report, render_html(manifest, results, overall))
