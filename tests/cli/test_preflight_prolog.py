"""``surefoot preflight --prolog`` and ``--write-prolog``: a claims file judged here at once, and a Prolog written without a run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from surefoot.cli import run
from surefoot.model.status import ExitCode
from surefoot.node import prolog

CLUSTER = """
name: site
root: {root}
node_groups:
  - {{name: gpu, count: 2, hosts: "gpu[1-2]", gpus_per_node: 8, gpu_model: H200, expect: {{"mount /home": nfs4}}}}
{more}"""
SILENT = "  - {name: cpu, count: 1, hosts: cpu1}\n"


def cluster(folder: Path, more: str = "") -> str:
    path = folder / "site.yaml"
    path.write_text(CLUSTER.format(root=folder / "root", more=more))
    return str(path)


def claims(folder: Path, **more: Any) -> str:
    path = folder / "claims.json"
    path.write_text(
        json.dumps({"claims": {"mounts": ["/no/such"]}, "status": str(folder / "status.json"), "enforce": True, **more})
    )
    return str(path)


@pytest.mark.parametrize("form", [["--prolog", "{}"], ["--prolog={}"]])
def test_a_claims_file_is_judged_on_this_node_with_the_prologs_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(prolog, "SINFO", ("printf", "n1|idle|none\\nn2|idle|none\\n"))
    monkeypatch.setenv("SLURMD_NODENAME", "n1")
    asked = claims(tmp_path, max_drain_share=0.5)
    assert run(["preflight", *(word.format(asked) for word in form)]) == prolog.DRAIN
    assert "DISPROVED: not mounted: /no/such" in capfd.readouterr().err
    assert json.loads((tmp_path / "status.json").read_text())["code"] == prolog.DRAIN


@pytest.mark.parametrize(
    "words",
    [["--prolog"], ["--prolog="], ["--prolog", "--prolog"], ["--prolog", "{}", "--nodes", "2"], ["--json", "--prolog", "{}"],
     ["--prolog", "/no/such.json"], ["--prolog={}", "--no-such"]],
    ids=" ".join,
)  # fmt: skip
def test_a_call_that_is_written_wrongly_is_no_verdict_and_no_3(
    tmp_path: Path, words: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    asked = claims(tmp_path)
    assert run(["preflight", *(word.format(asked) for word in words)]) == 0
    assert "NOTHING PROVED, own fault" in capfd.readouterr().err
    assert not (tmp_path / "status.json").exists()


def test_the_check_imports_nothing_that_is_slow(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom surefoot.cli import run\n"
        f"assert run(['preflight', '--prolog', {claims(tmp_path, enforce=False)!r}]) == 0\n"
        "print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert {"pydantic", "yaml", "rich", "jinja2", "torch"} & set(done.stdout.split()) == set()
    assert "DISPROVED" in done.stderr


def test_a_prolog_is_written_and_no_run_is_started(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["preflight", "--cluster", cluster(tmp_path), "--write-prolog", str(tmp_path / "p")]
    assert run(asked) == ExitCode.PROVED
    said = capsys.readouterr().out
    assert "gpu, gpu[1-2]: gpus, gpu_model, xids, mounts" in said
    assert "not claimed: memlock: expect has no memlock" in said
    assert "It reports, and drains nothing." in said
    assert not (tmp_path / "root").exists()
    told = json.loads((tmp_path / "p/claims/gpu.json").read_text())
    assert (told["enforce"], told["max_drain_share"], told["group"]) == (False, 0.5, "gpu")
    assert "markers" not in told
    assert prolog.read_claims(tmp_path / "p/claims/gpu.json") == told
    assert run(asked) == ExitCode.PROVED
    assert "as it was" in capsys.readouterr().out


def test_one_that_drains_has_markers_and_a_share(tmp_path: Path) -> None:
    more = ["--prolog-enforce", "--prolog-markers", "/srv/markers", "--prolog-share", "0.25"]
    assert run(["preflight", "--cluster", cluster(tmp_path), "--write-prolog", str(tmp_path / "p"), *more]) == 0
    told = prolog.read_claims(tmp_path / "p/claims/gpu.json")
    assert (told["enforce"], told["max_drain_share"], told["markers"]) == (True, 0.25, "/srv/markers")
    assert "at most" not in (tmp_path / "p/README").read_text()
    assert "no more than 0.25 of Slurm's nodes" in (tmp_path / "p/README").read_text()


def test_a_group_of_which_nothing_is_claimed_is_no_success(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["preflight", "--cluster", cluster(tmp_path, SILENT), "--write-prolog", str(tmp_path / "p")]
    assert run(asked) == ExitCode.UNPROVED
    assert "cpu, cpu1: NOTHING is claimed, so nothing is proved there" in capsys.readouterr().out
    assert run([*asked, "--json"]) == ExitCode.UNPROVED
    told = json.loads(capsys.readouterr().out)
    assert (told["exit_code"], told["changed"]) == (2, [])
    assert [(group["group"], bool(group["claims"])) for group in told["groups"]] == [("gpu", True), ("cpu", False)]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--write-prolog", "{}/p"], "none is named"),
        (["--cluster", "{}/site.yaml", "--write-prolog", "{}/p", "--nodes", "2"], "--nodes asks for a run"),
        (["--cluster", "{}/site.yaml", "--write-prolog", "{}/p", "--set", "mesh.nodes=2"], "--set asks for a run"),
        (["--cluster", "{}/site.yaml", "--write-prolog", "{}/p", "--prolog-markers", "here"], "an absolute path"),
        (["--cluster", "{}/site.yaml", "--write-prolog", "{}/p", "--prolog-share", "1"], "that is every node"),
        (["--cluster", "{}/site.yaml", "--write-prolog", "{}/p", "--prolog-share", "nan"], "more than 0"),
        (["--cluster", "{}/site.yaml", "--write-prolog", "{}/p", "--prolog-enforce"], "drain the whole cluster"),
        (["--cluster", "{}/site.yaml", "--prolog-enforce"], "--prolog-enforce goes with --write-prolog"),
        (["--cluster", "{}/no.yaml", "--write-prolog", "{}/p"], "no.yaml"),
    ],
)
def test_wrong_requests_write_nothing(
    tmp_path: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster(tmp_path)
    assert run(["preflight", *(word.format(tmp_path) for word in words)]) == ExitCode.REQUEST
    assert said in capsys.readouterr().err
    assert not (tmp_path / "p").exists()
    assert not (tmp_path / "root").exists()


def test_names_of_the_cluster_file_do_not_rule_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("click.utils.should_strip_ansi", lambda *_: False)  # as on a terminal
    rails = '  - {name: g, count: 1, hosts: g1, gpus_per_node: 8, rails: [{name: "r\\e[31m", rate_gbit_s: 400}]}\n'
    assert run(["preflight", "--cluster", cluster(tmp_path, rails), "--write-prolog", str(tmp_path / "p")]) == 0
    said = capsys.readouterr().out
    assert "not of r\ufffd[31m" in said
    assert "\x1b" not in said
