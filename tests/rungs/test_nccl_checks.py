"""What NCCL's log settles as checks: with the lines, or with what else there is to look at."""

from __future__ import annotations

from pathlib import Path

from nccl_written import Job
from rungs_harness import planned, with_files
from surefoot.benchmarks.nccl_claims import no_sockets
from surefoot.benchmarks.nccl_log import read_log
from surefoot.model.status import Status
from surefoot.rungs.collectives import RUNG
from surefoot.rungs.nccl_checks import as_check


def test_a_check_names_file_and_line_and_one_without_lines_what_else_to_look_at(tmp_path: Path) -> None:
    name, text = "raw/collectives/x.out", Job().text()
    view = with_files(planned(RUNG, {}, tmp_path), {name: text.encode()})
    good = as_check("a", no_sockets(read_log({name: text})), view, name="transport")
    assert (good.id, good.status, good.next_action) == ("a.transport", Status.PASSED, "")
    first = good.evidence[0]
    assert first.file.endswith(name)
    assert first.line is not None
    assert text.split("\n")[first.line - 1] == first.text
    otherwise = (view.evidence.ref(name),)
    silent = as_check("a", no_sockets(read_log({name: ""})), view, otherwise=otherwise)
    assert (silent.id, silent.status, silent.evidence) == ("a.sockets", Status.INCONCLUSIVE, otherwise)
    assert "NCCL_DEBUG" in silent.next_action
