"""The folder of a prolog: it runs alone, for the nodes that it names; it is the same each time, and spares what others wrote."""

from __future__ import annotations

import ast
import io
import json
import os
import re
import stat
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from surefoot.engine import prolog_written
from surefoot.engine.prolog_files import MODULES, OLDEST_PYTHON, archive
from surefoot.engine.prolog_written import WrittenProlog, fitting_share, write_prolog
from surefoot.errors import RequestError, StorageError
from surefoot.files import tree_files
from surefoot.model.cluster import Cluster

GROUPS: list[dict[str, Any]] = [
    {"name": "good", "count": 20, "hosts": "n[01-20]", "expect": {"mount /proc": "x"}},
    {"name": "bad", "count": 1, "hosts": "n21", "expect": {"mount /no/such": "x"}},
    {"name": "silent", "count": 1, "hosts": "n22"},
]


def cluster(*groups: dict[str, Any]) -> Cluster:
    return Cluster.model_validate({"name": "c", "root": "/srv/c", "node_groups": list(groups or GROUPS)})


def write(folder: Path, *groups: dict[str, Any], **more: Any) -> WrittenProlog:
    asked: dict[str, Any] = {"markers": None, "enforce": False, "share": None, **more}
    return write_prolog(cluster(*groups), folder, **asked)


def enforcing(tmp_path: Path, *groups: dict[str, Any]) -> Path:
    (tmp_path / "markers").mkdir()
    write(tmp_path / "p", *groups, markers=str(tmp_path / "markers"), enforce=True, share=0.9)
    return tmp_path / "p"


def run(folder: Path, node: str, tmp_path: Path, *, python: str = "") -> subprocess.CompletedProcess[str]:
    """The script as Slurm starts it, with a Slurm that knows 22 nodes."""
    tools = tmp_path / "tools"
    tools.mkdir(exist_ok=True)
    for name, does in {
        "sinfo": 'for i in $(seq -w 1 22); do echo "n$i|idle|none"; done',
        "logger": f'echo "$@" >> {tmp_path}/syslog',
    }.items():  # fmt: skip
        (tools / name).write_text(f"#!/bin/sh\n{does}\n")
        (tools / name).chmod(0o755)
    text = (folder / "prolog.sh").read_text()
    if python:
        assert "/usr/bin/python3 " in text
        (folder / "prolog.sh").write_text(text.replace("/usr/bin/python3 ", f"{python} "))
    env = {"PATH": f"{tools}:/usr/bin:/bin", "SLURMD_NODENAME": node, "PYTHONPATH": "/no/such", "SLURM_JOB_ID": "7"}
    return subprocess.run(
        [str(folder / "prolog.sh")], capture_output=True, text=True, timeout=30, check=False, env=env, cwd="/"
    )


def test_the_archive_has_all_that_the_prolog_imports() -> None:
    code = "import sys, surefoot.node.prolog; print(*sorted(n for n in sys.modules if n.split('.')[0] == 'surefoot'))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == sorted(MODULES)


def test_it_drains_for_a_disproved_claim_and_for_nothing_else(tmp_path: Path) -> None:
    folder = enforcing(tmp_path)
    proved = run(folder, "n07", tmp_path)
    assert (proved.returncode, proved.stdout, proved.stderr) == (0, "", "")
    bad = run(folder, "n21", tmp_path)
    assert bad.returncode == 1
    assert "mounts DISPROVED: not mounted: /no/such" in bad.stderr
    assert (tmp_path / "markers" / "n21").exists()
    for node, words in {
        "n22": "the cluster file claims nothing of group silent",
        "n23": "n23 is in no node group of c",
    }.items():
        other = run(folder, node, tmp_path)
        assert other.returncode == 0
        assert f"NOTHING PROVED, own fault: {words}" in other.stderr
        assert words in (tmp_path / "syslog").read_text()


def test_a_prolog_that_only_reports_drains_nothing(tmp_path: Path) -> None:
    write(tmp_path / "p")
    done = run(tmp_path / "p", "n21", tmp_path)
    assert done.returncode == 0
    assert "DISPROVED" in done.stderr
    assert "not acted upon" in done.stderr


def _no_claims(folder: Path) -> None:
    (folder / "claims/bad.json").unlink()


def _garbled_claims(folder: Path) -> None:
    (folder / "claims/bad.json").write_text('{"claims": {"mounts": ')


def _half_an_archive(folder: Path) -> None:
    archive = folder / "prolog.pyz"
    archive.write_bytes(archive.read_bytes()[:9000])


def _no_archive(folder: Path) -> None:
    (folder / "prolog.pyz").unlink()


@pytest.mark.parametrize("damage", [_no_claims, _garbled_claims, _half_an_archive, _no_archive])
def test_its_own_faults_drain_nothing_and_are_said(tmp_path: Path, damage: Any) -> None:
    folder = enforcing(tmp_path)
    damage(folder)
    done = run(folder, "n21", tmp_path)
    assert done.returncode == 0
    assert "NOTHING PROVED, own fault" in done.stderr


def test_a_python_that_is_missing_drains_nothing(tmp_path: Path) -> None:
    folder = enforcing(tmp_path)
    gone = run(folder, "n21", tmp_path, python="/no/such/python")
    assert gone.returncode == 0
    assert "NOTHING PROVED, own fault: /no/such/python" in gone.stderr
    assert "ended 127" in gone.stderr


def test_the_archive_says_what_is_wrong_with_an_older_python(tmp_path: Path) -> None:
    """By the version that it is told: no older Python is on every machine."""
    folder = enforcing(tmp_path)
    code = (
        "import sys, runpy; sys.version_info = (3, 6, 8); sys.argv = ['prolog.pyz', 'x'];"
        f" runpy.run_path({str(folder / 'prolog.pyz')!r}, run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "NOTHING PROVED, own fault: Python" in done.stderr
    assert "is older than 3.9" in done.stderr


def test_all_nodes_of_a_large_group_are_named(tmp_path: Path) -> None:
    folder = enforcing(tmp_path, {**GROUPS[1], "count": 1000, "hosts": "n[0001-1000]"})
    assert run(folder, "n1000", tmp_path).returncode in (0, 1)
    assert "DISPROVED" in run(folder, "n0009", tmp_path).stderr
    assert "in no node group" in run(folder, "n1001", tmp_path).stderr


def test_the_same_cluster_file_gives_the_same_bytes_and_touches_nothing(tmp_path: Path) -> None:
    first = write(tmp_path / "a")
    write(tmp_path / "b")
    assert tree_files(tmp_path / "a") == tree_files(tmp_path / "b")
    assert set(first.changed) == set(tree_files(tmp_path / "a"))
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "a").rglob("*")}
    assert write(tmp_path / "a").changed == ()
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "a").rglob("*")} == before
    assert stat.S_IMODE((tmp_path / "a/prolog.sh").stat().st_mode) == 0o755
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_what_changed_is_written_again_and_what_is_gone_is_removed(tmp_path: Path) -> None:
    write(tmp_path / "p")
    (tmp_path / "p/prolog.sh").chmod(0o644)
    changed = write(tmp_path / "p", GROUPS[0], GROUPS[2]).changed
    assert set(changed) == {"claims/bad.json", "prolog.sh", "README", "written.json"}
    assert not (tmp_path / "p/claims/bad.json").exists()
    assert os.access(tmp_path / "p/prolog.sh", os.X_OK)
    fresh = write(tmp_path / "q", GROUPS[0], GROUPS[2])
    assert tree_files(tmp_path / "p") == tree_files(fresh.folder)


@pytest.mark.parametrize("at", range(5))
def test_a_write_that_was_interrupted_is_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    write(tmp_path / "p")
    real, calls = prolog_written.write_atomic, iter(range(100))

    def full(path: Path, data: bytes | str, *, mode: int = 0o644) -> None:
        if next(calls) >= at:
            raise StorageError("the disk is full")
        real(path, data, mode=mode)

    other = [{**GROUPS[0], "expect": {"mount /sys": "x"}}, {**GROUPS[1], "name": "worse"}, GROUPS[2]]
    with monkeypatch.context() as patched:
        patched.setattr(prolog_written, "write_atomic", full)
        with pytest.raises(StorageError):
            write(tmp_path / "p", *other)
        with pytest.raises(StorageError):
            write(tmp_path / "new", *other)
    assert not (tmp_path / "new").exists()
    write(tmp_path / "p", *other)
    assert tree_files(tmp_path / "p") == tree_files(write(tmp_path / "fresh", *other).folder)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_a_folder_with_anything_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    write(tmp_path / "mine")  # an empty one is fine
    (tmp_path / "mine/notes.txt").write_text("x")
    (tmp_path / "other").mkdir()
    (tmp_path / "other/prolog.sh").write_text("#!/bin/sh\n")
    write(tmp_path / "linked")
    (tmp_path / "linked/README").rename(tmp_path / "kept")
    (tmp_path / "linked/README").symlink_to(tmp_path / "kept")
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name, words in {
        "mine": "did not write: notes.txt", "other": "did not write: prolog.sh", "linked": "did not write: README",
        "file": "that is no folder", "link": "that is no folder",
    }.items():  # fmt: skip
        with pytest.raises(RequestError, match=re.escape(words)):
            write(tmp_path / name)
    assert (tmp_path / "other/prolog.sh").read_text() == "#!/bin/sh\n"


def test_a_change_by_hand_is_not_written_over(tmp_path: Path) -> None:
    write(tmp_path / "p")
    claims = tmp_path / "p/claims/bad.json"
    claims.write_text(claims.read_text().replace("false", "true"))
    with pytest.raises(RequestError, match=r"changed by hand since it was written: claims/bad\.json"):
        write(tmp_path / "p")
    assert "true" in claims.read_text()


def test_a_cluster_file_that_claims_nothing_makes_no_prolog(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="a prolog without claims proves nothing"):
        write(tmp_path / "p", GROUPS[2])
    assert not (tmp_path / "p").exists()


def test_nothing_drains_where_nodes_could_not_count_each_other(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="would drain the whole cluster"):
        write(tmp_path / "p", enforce=True)
    assert not (tmp_path / "p").exists()


def test_the_share_allows_one_of_few_nodes_and_never_all() -> None:
    shares = {nodes: fitting_share(nodes) for nodes in (1, 2, 3, 7, 9, 10, 1000)}
    assert shares == {1: 0.1, 2: 0.5, 3: 0.34, 7: 0.15, 9: 0.12, 10: 0.1, 1000: 0.1}
    assert [nodes for nodes, share in shares.items() if 1 < nodes < 10 and not 1 / nodes <= share < 2 / nodes] == []


def test_the_record_says_whose_nodes_are_whose(tmp_path: Path) -> None:
    write(tmp_path / "p")
    record = json.loads((tmp_path / "p/written.json").read_text())
    assert record["groups"]["good"] == {"hosts": "n[01-20]", "claims": ["mounts"]}
    assert record["groups"]["silent"]["claims"] == []
    assert record["sha256"] == {k: v for k, v in tree_files(tmp_path / "p").items() if k != "written.json"}
    assert "NOTHING is claimed of it" in (tmp_path / "p/README").read_text()


def test_python_3_9_can_read_the_archive_and_any_python_3_its_beginning() -> None:
    with zipfile.ZipFile(io.BytesIO(archive())) as packed:
        assert {entry.date_time[0] for entry in packed.infolist()} == {1980}, "or it would be another each time"
        for name in packed.namelist():
            oldest = (3, 4) if name == "__main__.py" else OLDEST_PYTHON
            ast.parse(packed.read(name), name, feature_version=oldest)


def test_a_node_may_have_a_name_that_the_shell_reads_otherwise(tmp_path: Path) -> None:
    folder = enforcing(tmp_path, {"name": "g", "count": 2, "hosts": "esac,in", "expect": {"mount /proc": "x"}})
    for node in ("esac", "in"):
        assert (run(folder, node, tmp_path).returncode, run(folder, node, tmp_path).stderr) == (0, "")


def test_names_in_the_readme_are_text_of_one_line(tmp_path: Path) -> None:
    rail = {"name": "r\x1b[31m\r\nfake", "rate_gbit_s": 400}
    write(tmp_path / "p", {"name": "g", "count": 1, "hosts": "n1", "gpus_per_node": 8, "rails": [rail]})
    lines = (tmp_path / "p" / "README").read_bytes().decode().split("\n")
    assert [line for line in lines if not line.isprintable()] == []
    assert "not of r\ufffd[31m\ufffd\ufffdfake" in "\n".join(lines)


@pytest.mark.parametrize("text", ["", "[]", '{"sha256": 1}', "[" * 100_000, "\x00"])
def test_a_record_that_is_none_makes_the_folder_somebody_elses(tmp_path: Path, text: str) -> None:
    write(tmp_path / "p")
    (tmp_path / "p" / "written.json").write_text(text)
    before = tree_files(tmp_path)
    with pytest.raises(RequestError, match="did not write"):
        write(tmp_path / "p")
    assert tree_files(tmp_path) == before
