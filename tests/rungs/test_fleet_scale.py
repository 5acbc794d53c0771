"""Evidence of 512 nodes of eight GPUs is read and judged within the memory of a small control host.

In a process of its own, from files on disk, as a climb does: what a test before it took is not counted.
"""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from recorded_fleet import mesh_view, nodes, on_disk, precheck_view

NODES = 512
MOST_MB = 430
"""Of the 500 MB that gather, judge and render may take. Reports kept in both forms are 472 MB."""
MOST_S = 30.0
"""Of CPU. Three to five are usual; the machine that tests is shared."""
CHILD = """
import json, pickle, resource, sys, time
from importlib import import_module
from pathlib import Path

view = pickle.loads(Path(sys.argv[1]).read_bytes())
rung = import_module(f"surefoot.rungs.{sys.argv[2]}").RUNG
begun = time.process_time()
facts = rung.read(view)
read_s = time.process_time() - begun
begun = time.process_time()
judgement = rung.judge(facts, view)
judge_s = time.process_time() - begun
peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"read_s": read_s, "judge_s": judge_s, "peak_mb": peak_mb, "checks": len(judgement.checks)}))
"""


@pytest.mark.slow
@pytest.mark.parametrize("rung", ["precheck", "mesh"])
def test_512_nodes_are_read_and_judged_in_430_mb(rung: str, tmp_path: Path) -> None:
    fleet = nodes(NODES)
    view = precheck_view(fleet, tmp_path) if rung == "precheck" else mesh_view(list(fleet), tmp_path)
    recorded = tmp_path / "view.pickle"
    recorded.write_bytes(pickle.dumps(on_disk(view, tmp_path / "evidence")))
    path = f"import sys; sys.path[:0] = {sys.path!r}\n"
    command = [sys.executable, "-c", path + CHILD, str(recorded), rung]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    sys.stdout.write(f"{rung}: {found}\n")
    assert found["checks"] > 0
    assert found["peak_mb"] <= MOST_MB
    assert found["read_s"] + found["judge_s"] <= MOST_S
