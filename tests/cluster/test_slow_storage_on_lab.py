"""One node whose shared storage is slow is named by the storage rung, among three that do the same at once.

The kernel itself holds what n2 reads from the disk to a rate (``surefoot lab break disk-slow``). Three nodes, as of
two that differ nobody knows which one is wrong.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from held import Held
from lab_drill import LabDrill, lab, lab_here
from surefoot.lab.places import LabPaths

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.alone, pytest.mark.timeout(900)]

SETTINGS = {
    "stream_size": "8MiB",
    "file_size": "1MiB",
    "imports": "[]",
    "min_peer_share": "0.1",  # nodes of a lab share few cores, and are less alike than those of a cluster
    "min_read_mb_s": "0.1",  # two ranks of n2 share its rate
}
QUICK = [word for key, value in SETTINGS.items() for word in ("--set", f"storage.{key}={value}")]


@pytest.fixture(scope="module")
def three_nodes(held: Held) -> Iterator[LabPaths]:
    with lab_here(held, "t", "--plain", "--nodes", "3", "--gpus-per-node", "0") as paths:
        yield paths


@pytest.fixture
def drill(three_nodes: LabPaths, tmp_path: Path) -> LabDrill:
    return LabDrill(tmp_path / "root", lab=three_nodes)


def storage(drill: LabDrill) -> Any:
    return json.loads((drill.run_folder() / "rungs/storage/result.json").read_text())


def test_the_node_that_reads_slowly_is_named_and_no_other_and_passes_after_mend(
    drill: LabDrill, tmp_path: Path
) -> None:
    rungs = ("runner", "sync", "precheck", "storage")
    ladder = tmp_path / "ladder.yaml"
    rows = [{"rung": rung, "needs": list(rungs[max(0, i - 1) : i])} for i, rung in enumerate(rungs)]
    ladder.write_text(yaml.safe_dump({"name": "storage", "rungs": rows}))
    name = drill.paths.folder.name
    lab("break", "disk-slow", "n2", "--set", "2MB", name=name)
    try:
        done = drill.run("climb", *drill.on_lab, "--ladder", str(ladder), *QUICK, "--json")
    finally:
        lab("mend", name=name)
    found = storage(drill)
    assert found["status"] == "FAILED", done.stdout[-3000:] + done.stderr[-2000:]
    assert done.returncode == 1
    failed = {check["id"]: check for check in found["judgement"]["checks"] if check["status"] == "FAILED"}
    assert set(failed) == {"storage.herd.read"}
    (check,) = failed.values()
    assert check["nodes"] == ["n2"]
    assert " on n2: " in check["actual"]
    assert not any(f"on {other}" in check["actual"] for other in ("n1", "n3"))
    assert "n2" in check["next_action"]
    # It is the rate that it was held to, and not a slow machine.
    rates = {row["host"]: row["read"] for row in found["judgement"]["details"]["herd"]["nodes"]}
    assert 1 < rates["n2"] < 4 < min(rates["n1"], rates["n3"])
    assert drill.queue() == []

    again = drill.run("climb", "--resume", drill.run_folder().name, "--json")
    assert again.returncode == 0, again.stdout[-3000:] + again.stderr[-2000:]
    assert storage(drill)["status"] == "PASSED"
