"""What nodes and head of a Slurm site report: files and their digests, secrets masked, credentials handed on."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from surefoot.node import slurm_head, slurm_node, slurm_site
from surefoot.node.rank import Rank
from surefoot.node.runner import knock_at_nodes, slurmd_port
from surefoot.node.slurm_site import configuration, differing, masked


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("StoragePass=hunter2", "StoragePass=***"),
        ("AccountingStoragePass = /run/munge/x", "AccountingStoragePass = ***"),
        ("  JobCompPass=a b # c", "  JobCompPass=***"),
        ("AuthInfo=socket=/x,cred_expire=5", "AuthInfo=***"),
        ("AuthAltParameters=jwt_key=/x", "AuthAltParameters=***"),
        ("SlurmctldParameters=enable_configless,token=abc", "SlurmctldParameters=enable_configless,token=***"),
        ("KillWait=30", "KillWait=30"),
        ("# a comment", "# a comment"),
    ],
)
def test_what_may_be_a_secret_is_not_shown(line: str, shown: str) -> None:
    assert masked(line) == shown


def conf(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> Path:
    file = folder / "slurm.conf"
    file.write_text(text)
    monkeypatch.setenv("SLURM_CONF", str(file))
    monkeypatch.setattr(slurm_site, "slurmd_options", lambda: None)
    return file


def test_digests_are_of_the_raw_files_with_what_they_include(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "ClusterName=c\nStoragePass=hunter2\n  include nodes.conf\n"
    file = conf(tmp_path, monkeypatch, text)
    (tmp_path / "nodes.conf").write_text("NodeName=n1\nInclude absent.conf\n")
    (tmp_path / "gres.conf").write_text("Name=gpu\n")
    found = configuration([])
    assert found["found"] == "SLURM_CONF"
    assert set(found["files"]) == {"slurm.conf", "nodes.conf", "absent.conf", "gres.conf"}
    mine = found["files"]["slurm.conf"]
    assert mine["sha256"] == hashlib.sha256(file.read_bytes()).hexdigest()
    assert mine["lines"][1] == "StoragePass=***"
    assert found["files"]["absent.conf"]["error"] == "No such file or directory"
    assert found["files"]["absent.conf"]["sha256"] is None


def test_files_that_include_each_other_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    conf(tmp_path, monkeypatch, "Include a.conf\n")
    (tmp_path / "a.conf").write_text("Include a.conf\nInclude slurm.conf\n")
    assert set(configuration([])["files"]) == {"slurm.conf", "a.conf"}


def test_slurm_conf_is_where_slurmd_says_then_its_environment_then_scontrol(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = conf(tmp_path, monkeypatch, "ClusterName=c\n")
    monkeypatch.setattr(slurm_site, "slurmd_options", lambda: ["/usr/sbin/slurmd", "-D", "-f", "/etc/other.conf"])
    assert slurm_site.main_file([]) == ("/etc/other.conf", "slurmd -f")
    monkeypatch.setattr(slurm_site, "slurmd_options", lambda: ["/usr/sbin/slurmd", "-D"])
    assert slurm_site.main_file([]) == (str(file), "SLURM_CONF")
    monkeypatch.delenv("SLURM_CONF")
    told = [f"SLURM_CONF              = {file}"]
    assert slurm_site.main_file(told) == (str(file), "scontrol show config")
    monkeypatch.setattr(slurm_site, "PLACES", ())
    assert slurm_site.main_file([]) == ("", "not found")
    assert configuration([])["files"]["slurm.conf"]["sha256"] is None


def test_lines_that_differ_are_told_and_no_more_than_a_screen_of_them() -> None:
    assert differing(["a", "KillWait=31"], ["a", "KillWait=30"]) == ["-KillWait=30", "+KillWait=31"]
    assert differing(["StoragePass=***"], ["StoragePass=***"]) == []
    assert len(differing([str(n) for n in range(100)], [])) == slurm_site.MOST_LINES


def test_a_process_of_a_job_of_this_attempt_is_found_by_its_environment_and_no_other() -> None:
    def start(nonce: str, job: str) -> subprocess.Popen[bytes]:
        env = {**os.environ, "SUREFOOT_NONCE": nonce, "SUREFOOT_JOB_NAME": job}
        return subprocess.Popen([sys.executable, "-c", "import time; print(1, flush=True); time.sleep(60)"], env=env, stdout=subprocess.PIPE)  # fmt: skip

    processes = [start("n0nce", "limit"), start("n0nce", "other"), start("another", "limit")]
    try:
        for process in processes:
            assert process.stdout is not None
            process.stdout.readline()
        found = slurm_node.left_behind(["limit", "cancelled"], "n0nce")
        assert [(entry["pid"], entry["job"]) for entry in found] == [(processes[0].pid, "limit")]
    finally:
        for process in processes:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


FAKE_MUNGE = """#!/bin/sh
case $0 in
*/unmunge) sed "s/^/STATUS: Success (0)\\n/" ;;
*) sed "s/^/MUNGE:/"; echo ;;
esac
"""


def ranks(folder: Path, count: int, wait_s: float) -> list[Rank]:
    request = {"head": str(folder / "head.json"), "jobs": [], "wait_s": wait_s}
    return [Rank("p", number, 0, count, folder, request, 0.0) for number in range(count)]


@pytest.fixture
def munge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A job's folder, and a munge that only puts a word before what it is given."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("munge", "unmunge"):
        (programs / name).write_text(FAKE_MUNGE)
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("SUREFOOT_NONCE", "n0nce")
    monkeypatch.setenv("RANK", "0")
    folder = tmp_path / "job"
    folder.mkdir()
    (folder / "head.json").write_text(json.dumps({"files": {}, "credential": "MUNGE:n0nce"}))
    return folder


def test_every_rank_decodes_rank_0_and_the_head_and_rank_0_all_others(munge: Path) -> None:
    said: dict[int, dict[str, Any]] = {}
    threads = [
        threading.Thread(target=lambda r=rank: said.update({r.rank: slurm_node.exchange(r, [])}))  # type: ignore[misc]
        for rank in ranks(munge, 3, 20)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert {rank: sorted(exchange["others"]) for rank, exchange in said.items()} == {0: ["1", "2"], 1: ["0"], 2: ["0"]}
    assert said[0]["others"]["2"]["stdout"][-1] == "MUNGE:n0nce 2"
    assert said[1]["others"]["0"]["stdout"][-1] == "MUNGE:n0nce 0"
    assert all(exchange["head"]["stdout"][-1] == "MUNGE:n0nce" for exchange in said.values())
    left = munge.parent / "scratch/head.json"
    left.parent.mkdir()
    left.touch()
    asked = {"nonce": "n", "commands": {}, "decode": str(munge), "ranks": 4, "remove": str(left)}
    decoded = slurm_head.look(asked)["decoded"]
    assert not left.parent.exists()
    assert decoded["1"]["stdout"][-1] == "MUNGE:n0nce 1"
    assert decoded["3"] is None
    assert not list(munge.glob(".listing*"))


@pytest.mark.parametrize(
    ("row", "found"),
    [
        ("AuthInfo                = socket=/run/munge/slurm.socket,cred_expire=5", "/run/munge/slurm.socket"),
        ("AuthInfo                = cred_expire=5,socket=/x", "/x"),
        ("AuthInfo                = (null)", ""),
        ("AuthAltParameters       = socket=/other", ""),
    ],
)
def test_munge_is_asked_where_slurm_asks_it(row: str, found: str, munge: Path) -> None:
    assert slurm_site.munge_socket(["AuthAltTypes            = (null)", row]) == found
    said = slurm_node.exchange(ranks(munge, 1, 0.2)[0], [row])
    wanted = [f"--socket={found}"] if found else []
    for answer in (*said["made"].values(), said["head"]):
        assert [word for word in answer["argv"] if word.startswith("--socket")] == wanted


def test_a_credential_that_does_not_come_is_none_and_nobody_waits_for_ever(munge: Path) -> None:
    (munge / "head.json").unlink()
    said = slurm_node.exchange(ranks(munge, 2, 0.2)[0], [])
    assert said["head"] is None
    assert said["others"] == {"1": None}


def test_only_what_listens_is_called_listening() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        rows = [f"NodeName=n1 Arch=x NodeAddr=127.0.0.1 Port={port} State=IDLE", "NodeName=n2 NodeAddr=127.0.0.1"]
        here, gone = knock_at_nodes(rows, 1, ask_each=False)
    assert (here["node"], here["error"], here["refused"]) == ("n1", "", None)
    assert (gone["node"], gone["port"], gone["error"]) == ("n2", 1, "Connection refused")
    assert slurmd_port(["SlurmdPort              = 7000"]) == 7000
    assert slurmd_port([]) == 6818
