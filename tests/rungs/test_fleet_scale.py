"""Evidence of 512 nodes of eight GPUs becomes a report within the memory of a small control host.

In a process of its own, from files on disk, as a climb does: what a test before it took is not counted.
"""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from recorded_fleet import mesh_view, nodes, on_disk, planted, precheck_view
from sample_run import passed_run

NODES = 512
MOST_MB = 430
"""Of the 500 MB that gather, judge and render may take. Reports kept in both forms are 472 MB."""
MOST_S = 30.0
"""Of CPU. Three to six are usual; the machine that tests is shared."""
CHILD = """
import gc, io, json, pickle, sys, time
from importlib import import_module
from pathlib import Path

from rich.console import Console

from surefoot.cli import GARBAGE
from surefoot.model.run import RungResult
from surefoot.model.status import combine
from surefoot.reports.fleet import show_fleet, view as fleet_view
from surefoot.reports.html import render
from surefoot.reports.terminal import show_rung

gc.set_threshold(*GARBAGE)
took = {}
def timed(name, do):
    begun = time.process_time()
    done = do()
    took[name] = round(time.process_time() - begun, 2)
    return done

view, manifest = pickle.loads(Path(sys.argv[1]).read_bytes())
rung = import_module(f"surefoot.rungs.{sys.argv[2]}").RUNG
facts = timed("read_s", lambda: rung.read(view))
judgement = timed("judge_s", lambda: rung.judge(facts, view))
result = RungResult(rung=rung.name, title=rung.title, proves=rung.proves, status=combine(c.status for c in judgement.checks), judgement=judgement)

def draw():
    console = Console(file=io.StringIO(), width=100)
    show_rung(console, result)
    matrix = fleet_view(judgement.details)
    if matrix is not None:
        show_fleet(console, matrix)
    return console.file.getvalue() + render(manifest, [result], result.status)

drawn = timed("render_s", draw)
# VmHWM and not ru_maxrss, which starts with what the parent had at the fork
peak_mb = next(int(line.split()[1]) // 1024 for line in open("/proc/self/status") if line.startswith("VmHWM:"))
print(json.dumps({**took, "peak_mb": peak_mb, "checks": len(judgement.checks), "status": result.status, "drawn": drawn}))
"""


@pytest.mark.slow
@pytest.mark.parametrize("rung", ["precheck", "mesh"])
def test_512_nodes_are_read_judged_and_drawn_in_430_mb(rung: str, tmp_path: Path) -> None:
    fleet = nodes(NODES)
    drifts = planted(fleet, 20)
    view = precheck_view(fleet, tmp_path) if rung == "precheck" else mesh_view(list(fleet), tmp_path)
    recorded = tmp_path / "view.pickle"
    recorded.write_bytes(pickle.dumps((on_disk(view, tmp_path / "evidence"), passed_run().manifest)))
    path = f"import sys; sys.path[:0] = {sys.path!r}\n"
    command = [sys.executable, "-c", path + CHILD, str(recorded), rung]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    drawn = found.pop("drawn")
    sys.stdout.write(f"{rung}: {found}\n")
    assert found["checks"] > 0
    if rung == "precheck":
        assert [host for host, _ in drifts if host not in drawn] == []
    assert found["peak_mb"] <= MOST_MB
    assert found["read_s"] + found["judge_s"] + found["render_s"] <= MOST_S
