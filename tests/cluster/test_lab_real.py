"""A real lab on this machine: up, broken in every way that it knows, mended, down, and nothing left behind.

Needs root and the packages of ``scripts/setup.sh lab``: ``make test-lab``. Builds the base root at
first (about a minute); it stays for the next time.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from held import Held
from ready_for_lab import lab_problems
from surefoot.lab.faults import FAULTS
from surefoot.lab.network import NETNS
from surefoot.lab.places import DEFAULT_HOME, HOME_VARIABLE, lab_home
from surefoot.lab.prove import prove
from surefoot.lab.spec import Tier
from surefoot.lab.state import load

pytestmark = [
    pytest.mark.lab,
    pytest.mark.timeout(600),
]

HOME = lab_home(os.environ.get(HOME_VARIABLE, DEFAULT_HOME))
COMMAND = [sys.executable, "-m", "surefoot", "lab"]
UP_S = 60

SHOWN_BY = {
    "slurmd-killed": "job",
    "link-cut": "links",
    "link-shaped": "links",
    "loopback-name": "names",
    "munge-key": "munge",
    "gres-missing": "nodes",
    "slurm-conf-edited": "slurm.conf",
    "disk-full": "disks",
    "disk-slow": "disks",
    "clock-off": "clocks",
    "stale-job-folder": "shared root",
    "slurmctld-stopped": "nodes",
    "slurmdbd-stopped": "accounting",
}
"""Fault → the proof that must fail while it is there."""


def lab(*words: str, name: str, expect: int | None = 0) -> subprocess.CompletedProcess[str]:
    command, *rest = words
    done = subprocess.run(
        [*COMMAND, command, "--name", name, *rest], capture_output=True, text=True, timeout=300, check=False
    )
    assert expect is None or done.returncode == expect, done.stdout + done.stderr
    return done


def traces(name: str) -> list[str]:
    """Everything of a lab that this machine can show: namespaces, mounts, cgroups, processes, files."""
    word = f"surefoot-{name}-"
    found = [f"namespace {path.name}" for path in NETNS.glob(f"{word}*")]
    found += [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if word in line]
    found += [str(path) for path in Path("/sys/fs/cgroup").glob(f"*/surefoot-lab/{name}")]
    for process in Path("/proc").glob("[0-9]*"):
        try:
            line = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if word in line or f"/labs/{name}/" in line:
            found.append(f"process {process.name} {line[:80]}")
    found += [str(path) for path in (HOME.lab(name).folder, HOME.lab(name).lock) if path.exists()]
    return found + [str(path) for path in HOME.slots.glob("*") if path.read_text() == name]


@dataclass(frozen=True)
class Up:
    name: str
    took_s: float


def made(name: str, *words: str) -> Iterator[Up]:
    started = time.monotonic()
    try:
        lab("up", *words, name=name)
        yield Up(name, time.monotonic() - started)
    finally:
        lab("down", "--purge", name=name)
        assert traces(name) == []


@pytest.fixture(scope="module")
def base(held: Held) -> Held:
    """The base root is there: what it costs is no part of what `up` takes."""
    if missing := lab_problems():
        pytest.fail("this machine cannot hold a lab:\n" + "\n".join(missing), pytrace=False)
    name = held.lab("b")
    lab("up", "--nodes", "1", "--tier", "namespaces", name=name)
    lab("down", "--purge", name=name)
    return held


@pytest.fixture(scope="module")
def hosts(base: Held) -> Iterator[Up]:
    yield from made(base.lab("h"), "--nodes", "2", "--gpus-per-node", "4", "--plain")


@pytest.fixture(scope="module")
def quick(base: Held) -> Iterator[Up]:
    yield from made(base.lab("q"), "--nodes", "2", "--gpus-per-node", "4", "--tier", "namespaces")


@pytest.fixture(params=["hosts", "quick"])
def either(request: pytest.FixtureRequest) -> Up:
    return request.getfixturevalue(request.param)  # type: ignore[no-any-return]


def status(name: str, expect: int = 0) -> dict[str, Any]:
    return json.loads(lab("status", "--json", name=name, expect=expect).stdout)[0]  # type: ignore[no-any-return]


# --- up -------------------------------------------------------------------------------------------


def test_a_lab_is_idle_within_a_minute_once_the_base_root_is_there(hosts: Up) -> None:
    assert hosts.took_s <= UP_S
    assert [node["state"] for node in status(hosts.name)["nodes"]] == ["idle", "idle"]


def test_the_quick_tier_is_idle_within_ten_seconds(quick: Up) -> None:
    assert quick.took_s <= 10


def test_labs_side_by_side_do_not_see_each_other(hosts: Up, quick: Up) -> None:
    one, other = status(hosts.name), status(quick.name)
    assert not set(one["hosts"].values()) & set(other["hosts"].values())
    unreachable = ["bash", "-c", f"exec 3<>/dev/tcp/{other['hosts']['head']}/22"]
    assert lab("exec", "head", "--", *unreachable, name=hosts.name, expect=1).stderr


def test_this_machine_has_no_interface_mount_or_device_of_a_lab(either: Up) -> None:
    links = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout
    mounts = Path("/proc/self/mountinfo").read_text()
    assert "br0" not in links
    assert "v-n1" not in links
    assert f"/labs/{either.name}/" not in mounts
    assert not list(Path("/dev").glob("fakegpu*"))


def test_the_users_ssh_reaches_every_host_with_the_file_that_up_wrote(either: Up) -> None:
    config = status(either.name)["ssh_config"]
    for host in ("head", "n1", "n2"):
        done = subprocess.run(
            ["ssh", "-F", config, host, "hostname; id -un"], capture_output=True, text=True, check=True
        )
        assert done.stdout.split() == [host, "climber"]


def test_a_job_gets_its_gpus_and_sees_the_shared_root_under_the_same_path(either: Up) -> None:
    shared = Path(status(either.name)["shared"])
    script = f"cd {shared} && srun -N2 --gres=gpu:h100:3 bash -c 'echo $CUDA_VISIBLE_DEVICES >$(hostname)'"
    lab("ssh", "head", script, name=either.name)
    assert (shared / "n1").read_text() == (shared / "n2").read_text() == "0,1,2\n"


def test_an_exit_code_comes_through_ssh_and_exec(either: Up) -> None:
    assert lab("ssh", "n1", "exit 7", name=either.name, expect=None).returncode == 7
    assert lab("exec", "n1", "--", "sh", "-c", "exit 7", name=either.name, expect=None).returncode == 7
    assert lab("exec", "all", "--", "sh", "-c", "[ $(hostname) != n2 ]", name=either.name, expect=None).returncode == 1


def test_accounting_and_the_rest_interface_answer(hosts: Up) -> None:
    lab("ssh", "head", "sbatch --wait -o /dev/null --wrap 'exit 7'", name=hosts.name, expect=7)
    deadline = time.monotonic() + 20
    while "FAILED|7:0" not in lab("ssh", "head", "sacct -X -n -P -o state,exitcode", name=hosts.name).stdout:
        assert time.monotonic() < deadline
    token = lab("exec", "head", "--", "scontrol", "token", "username=climber", name=hosts.name).stdout.strip()
    ask = ["curl", "-sS", "-H", "X-SLURM-USER-NAME: climber"]
    ask += ["-H", f"X-SLURM-USER-TOKEN: {token.removeprefix('SLURM_JWT=')}"]
    said = lab("exec", "head", "--", *ask, "http://head:6820/slurm/v0.0.38/ping", name=hosts.name).stdout
    assert '"ping": "UP"' in said


# --- break and mend -------------------------------------------------------------------------------


def test_every_fault_has_a_proof_that_shows_it() -> None:
    assert list(SHOWN_BY) == list(FAULTS)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_seen_while_it_is_there_and_gone_after_mend(fault: str, either: Up) -> None:
    tier = load(HOME, either.name).spec.tier
    if tier not in FAULTS[fault].tiers:
        lab("break", fault, name=either.name, expect=3)
        return
    lab("break", fault, name=either.name)
    try:
        assert [each["fault"] for each in status(either.name, expect=1)["faults"]] == [fault]
        assert not prove(HOME, load(HOME, either.name), only=SHOWN_BY[fault])[0].holds
    finally:
        proofs = json.loads(lab("mend", "--json", name=either.name).stdout)
    assert len(proofs) >= 10
    assert all(proof["holds"] for proof in proofs)
    assert status(either.name)["faults"] == []


def test_all_faults_at_once_are_mended(hosts: Up) -> None:
    for fault in FAULTS:
        lab("break", fault, name=hosts.name)
    lab("mend", name=hosts.name)
    assert status(hosts.name)["faults"] == []


def test_a_fault_on_all_is_on_every_node_and_mended_on_every_node(quick: Up) -> None:
    lab("break", "loopback-name", "all", name=quick.name)
    assert [each["host"] for each in status(quick.name, expect=1)["faults"]] == ["n1", "n2"]
    lab("mend", name=quick.name)
    assert status(quick.name)["faults"] == []


def test_a_fault_is_not_put_on_a_host_twice(quick: Up) -> None:
    lab("break", "link-shaped", "n2", "--set", "1gbit", name=quick.name)
    assert "already" in lab("break", "link-shaped", "n2", name=quick.name, expect=3).stderr
    lab("mend", name=quick.name)


# --- other machines -------------------------------------------------------------------------------

CGROUP_V2_ALONE = """
name=$1 tier=$2; shift 2
umount -R /sys/fs/cgroup
mount -t cgroup2 none /sys/fs/cgroup
trap '"$@" down --purge --name $name' EXIT
"$@" up --nodes 1 --tier $tier --name $name
"$@" mend --json --name $name >&3
"""
"""In a mount namespace of its own: a lab as on a machine that has cgroup v2 and nothing else, whatever this one has."""


@pytest.mark.parametrize("tier", list(Tier))
def test_a_lab_works_where_there_is_cgroup_v2_alone(base: Held, tier: Tier) -> None:
    name = base.lab("v")
    inside = [
        "unshare",
        "--mount",
        "--propagation",
        "private",
        "--",
        "bash",
        "-euc",
        f"{{ {CGROUP_V2_ALONE} }} 3>&1 >&2",
    ]
    done = subprocess.run(
        [*inside, "bash", name, tier, *COMMAND], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    proofs = json.loads(done.stdout)
    assert len(proofs) >= 10
    assert all(proof["holds"] for proof in proofs)
    assert traces(name) == []


# --- interrupted ----------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT], ids=["KILL", "INT"])
@pytest.mark.parametrize("tier", list(Tier))
@pytest.mark.parametrize("turn", range(4))
def test_down_takes_away_all_that_an_interrupted_up_left(
    base: Held,
    tier: Tier,
    number: signal.Signals,
    turn: int,
) -> None:
    name = base.lab("i")
    chance = random.Random(f"{tier}{number}{turn}")
    process = subprocess.Popen(
        [*COMMAND, "up", "--name", name, "--tier", tier], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    time.sleep(chance.uniform(0.15, 1.2))
    process.send_signal(number)
    process.wait(60)
    if HOME.lab(name).state.exists() and load(HOME, name).phase == "starting":
        assert "half there" in lab("up", "--tier", tier, name=name, expect=3).stderr
    lab("down", "--purge", name=name)
    assert traces(name) == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM], ids=["KILL", "INT", "TERM"])
def test_ansible_ends_with_the_up_that_started_it(base: Held, number: signal.Signals) -> None:
    name = base.lab("a")
    process = subprocess.Popen(
        [*COMMAND, "up", "--name", name, "--nodes", "1"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    try:
        assert any("role storage" in line for line in process.stderr), "it provisions"
        process.send_signal(number)
        process.stderr.close()
        process.wait(60)
        gone = time.monotonic() + 10
        while left := [row for row in traces(name) if "ansible-playbook" in row]:
            assert time.monotonic() < gone, left
            time.sleep(0.1)
    finally:
        process.kill()
        process.wait()
        lab("down", "--purge", name=name)
    assert traces(name) == []


def test_a_run_on_the_shared_root_outlives_the_lab(base: Held) -> None:
    name = base.lab("k")
    lab("up", "--tier", "namespaces", "--nodes", "1", name=name)
    try:
        run = HOME.lab(name).shared / "runs" / "r" / "run.json"
        run.parent.mkdir(parents=True)
        run.write_text("{}")
        assert "the shared root stays" in lab("down", name=name).stderr
        assert run.exists()
        lab("up", "--tier", "namespaces", "--nodes", "1", name=name)
        assert run.exists()
    finally:
        lab("down", "--purge", name=name)
    assert traces(name) == []
