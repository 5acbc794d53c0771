"""``surefoot preflight`` over two nodes of a lab: clean it ends with SUCCESS; what is broken on one of them is caught and named.

The GPUs are pretended (`fake_gpus`), and ranks meet over gloo. Beside eth0 each node has a second interface, eth1,
on a switch of its own: a rail. What can't be broken for real is broken where the node tells of it: driver and NCCL in
the files that its pretended GPUs are read from; the kernel's release by the kernel's own UNAME26 personality.
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from fake_gpus import FakeGpus
from lab_drill import LabDrill, lab
from surefoot.benchmarks.ddp_step import SUCCESS
from surefoot.lab.network import SWITCH, namespace
from surefoot.lab.places import LabPaths
from tampered_rank import tampered

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.timeout(600)]

NODES = ("n1", "n2")
FACTS, MESH, LINKS = ("runner", "sync", "precheck"), ("runner", "sync", "mesh"), ("runner", "sync", "collectives")
GLOO = ("--set", "mesh.backend=gloo")


@dataclass(frozen=True)
class Site:
    """A lab with pretended GPUs and a rail."""

    paths: LabPaths
    fake: FakeGpus
    folder: Path

    @property
    def name(self) -> str:
        return self.paths.folder.name

    def cluster(self, gpus: int, python: str = "", **more: Any) -> str:
        """Path of the lab's cluster file with so many GPUs on each node (0: none are pretended)."""
        told = yaml.safe_load(self.paths.cluster.read_text())
        told["connection"]["config"] = str(self.paths.ssh_config)
        told["node_groups"][0]["gpus_per_node"] = gpus
        if gpus:
            told |= {"python": self.fake.python(), "software": {"driver": "580.95.05"}}
        told |= {"python": python or told["python"], **more}
        told.pop("ansible", None)
        path = self.folder / "cluster.yaml"
        path.write_text(yaml.safe_dump(told))
        return str(path)

    def ladder(self, *rungs: str) -> str:
        """Path of a ladder of these, each needing the one before."""
        path = self.folder / "ladder.yaml"
        rows = [{"rung": rung, "needs": list(rungs[max(0, i - 1) : i])} for i, rung in enumerate(rungs)]
        path.write_text(yaml.safe_dump({"name": "some", "rungs": rows}))
        return str(path)

    def whole(self, gpus: int = 2) -> None:
        """Pretended GPUs of all nodes as they should be."""
        for node in NODES:
            self.fake.node(node, count=gpus)

    def ip(self, node: str, *words: str) -> None:
        """``ip`` in a node's network, from outside."""
        subprocess.run(["ip", "-n", namespace(self.name, node), *words], check=True)

    def on(self, node: str, script: str) -> str:
        """A script run on a node, as root."""
        return lab("exec", node, "--", "sh", "-c", script, name=self.name)


@pytest.fixture(scope="module")
def railed(breaking_lab: LabPaths, tmp_path_factory: pytest.TempPathFactory) -> Site:
    site = Site(breaking_lab, FakeGpus(breaking_lab.shared / "fake"), tmp_path_factory.mktemp("site"))
    switch = namespace(site.name, SWITCH)
    site.ip(SWITCH, "link", "add", "br1", "type", "bridge")
    site.ip(SWITCH, "link", "set", "br1", "up")
    for number, node in enumerate(NODES, 1):
        port = f"rail-{node}"
        site.ip(node, "link", "add", "eth1", "type", "veth", "peer", "name", port, "netns", switch)
        site.ip(node, "addr", "add", f"10.99.0.{number}/24", "dev", "eth1")
        site.ip(node, "link", "set", "eth1", "up")
        site.ip(SWITCH, "link", "set", port, "master", "br1", "up")
    return site


@pytest.fixture
def site(railed: Site, tmp_path: Path) -> Site:
    railed.whole()
    return Site(railed.paths, railed.fake, tmp_path)


@pytest.fixture
def drill(site: Site, tmp_path: Path) -> LabDrill:
    return LabDrill(tmp_path / "root", lab=site.paths)


def result(drill: LabDrill, rung: str) -> Any:
    return json.loads((drill.run_folder() / f"rungs/{rung}/result.json").read_text())


def test_sixteen_ranks_on_two_nodes_of_eight_gpus_end_with_success(site: Site, drill: LabDrill) -> None:
    """The known-good output of the validator that this command grew out of."""
    site.whole(8)
    done = drill.run("preflight", "--cluster", site.cluster(8), *GLOO)
    assert done.returncode == 0, done.stdout[-4000:]
    assert done.stdout.splitlines()[-1] == SUCCESS
    rows = result(drill, "mesh")["judgement"]["details"]["ranks"]
    assert [(row["rank"], row["host"], row["local_rank"], row["uuid"]) for row in rows] == [
        (8 * n + i, node, i, f"{node}-{i}") for n, node in enumerate(NODES) for i in range(8)
    ]


@dataclass(frozen=True)
class Fault:
    """What is done to one node, and how it shows."""

    check: str
    words: tuple[str, ...]
    rungs: tuple[str, ...] = FACTS
    gpus: int = 2
    node: dict[str, Any] | None = None
    """Other pretended GPUs, of n2."""
    link: tuple[tuple[str, ...], ...] = ()
    """``ip`` in n2's network."""
    mended: tuple[tuple[str, ...], ...] = ()
    settings: tuple[str, ...] = ()
    pinned: bool = False
    """Whether the cluster file names eth1."""


def _ranks(shell: str) -> dict[str, Any]:
    return {"ranks": shell}


FAULTS = {
    "another driver": Fault("precheck.node1.driver", ("580.65.06",), node={"driver": "580.65.06"}),
    "another driver than its neighbour": Fault(
        "precheck.alike.driver", ("580.95.05 on n1", "580.65.06 on n2"), node={"driver": "580.65.06"}
    ),
    "another NCCL": Fault("precheck.alike.nccl", ("2.27.3 on n1", "2.26.2 on n2"), node={"nccl": "2.26.2"}),
    "another kernel": Fault(
        "precheck.alike.kernel",
        ("on n1", "2.6.", "on n2"),
        node=_ranks('[ -n "$AGAIN" ] || AGAIN=1 exec setarch --uname-2.6 "$0" "$@"'),
    ),
    "a GPU missing": Fault("precheck.node1.gpus_agree", ("driver has 1", "PyTorch has 1"), node={"missing": [1]}),
    "two ranks on one GPU": Fault(
        "mesh.devices",
        ("rank 3 on n2 used the same GPU as rank 2 on n2 (n2-1)",),
        MESH,
        node=_ranks("export CUDA_VISIBLE_DEVICES=1"),
    ),
    "a rank on the wrong GPU": Fault(
        "mesh.placed",
        ("rank 3 on n2 has LOCAL_RANK 0, its place is 1",),
        MESH,
        node=_ranks('[ "$RANK" = 3 ] && export LOCAL_RANK=0'),
    ),
    "an interface renamed": Fault(
        "precheck.network.pin-missing",
        ("eth1", "n2"),
        gpus=0,
        link=(("link", "set", "eth1", "down"), ("link", "set", "eth1", "name", "eth9"), ("link", "set", "eth9", "up")),
        mended=(
            ("link", "set", "eth9", "down"),
            ("link", "set", "eth9", "name", "eth1"),
            ("link", "set", "eth1", "up"),
        ),
        pinned=True,
    ),
    "a link down": Fault(
        "precheck.network.subnet-partial",
        ("10.99.0.0/24 is on n1 (eth1)", "no interface of n2"),
        gpus=0,
        link=(("link", "set", "eth1", "down"),),
        mended=(("link", "set", "eth1", "up"),),
    ),
    "another MTU": Fault(
        "precheck.network.mtu-differs",
        ("10.99.0.0/24: the MTU is", "1400 on n2"),
        gpus=0,
        link=(("link", "set", "eth1", "mtu", "1400"),),
        mended=(("link", "set", "eth1", "mtu", "1500"),),
    ),
}


def _climb(site: Site, drill: LabDrill, fault: Fault, *words: str, python: str = "") -> Any:
    pins = dict.fromkeys(("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"), "eth1") if fault.pinned else {}
    cluster = site.cluster(fault.gpus, python, env=pins)
    words = (*words, *(GLOO if "mesh" in fault.rungs else ()))
    return drill.run("preflight", "--cluster", cluster, "--ladder", site.ladder(*fault.rungs), *words, "--json")


def _is_named(drill: LabDrill, done: Any, fault: Fault) -> None:
    """The fault's check FAILED, says what it should, tells what to do; and nowhere is success."""
    assert SUCCESS not in done.stdout + done.stderr
    assert done.returncode == 1, (done.stdout + done.stderr)[-3000:]
    found = result(drill, fault.rungs[-1])
    assert found["status"] == "FAILED", done.stdout[-3000:]
    checks = {each["id"]: each for each in found["judgement"]["checks"]}
    failed = {name: check["actual"] for name, check in checks.items() if check["status"] == "FAILED"}
    assert fault.check in failed, failed
    check = checks[fault.check]
    said = f"{check['claim']}: {check['actual']}"
    assert [word for word in fault.words if word not in said] == [], said
    assert check["next_action"]
    assert drill.queue() == []


def _is_whole_again(drill: LabDrill, rung: str) -> None:
    again = drill.run("climb", "--resume", drill.run_folder().name, "--json")
    assert again.returncode == 0, again.stdout[-3000:] + again.stderr[-2000:]
    assert result(drill, rung)["status"] == "PASSED"


@pytest.mark.parametrize("name", FAULTS)
def test_what_is_broken_on_one_node_is_named_and_gone_after_mend(site: Site, drill: LabDrill, name: str) -> None:
    fault = FAULTS[name]
    if fault.node is not None:
        site.fake.node("n2", **{"count": fault.gpus, **fault.node})
    try:
        for words in fault.link:
            site.ip("n2", *words)
        done = _climb(site, drill, fault)
    finally:
        for words in fault.mended:
            site.ip("n2", *words)
        site.whole()
    _is_named(drill, done, fault)
    if fault.link:  # what pretended GPUs tell is whole again by being written so
        _is_whole_again(drill, fault.rungs[-1])


@pytest.mark.alone
def test_a_rail_that_is_shaped_is_named(site: Site, drill: LabDrill) -> None:
    fault = Fault("collectives.all_reduce.busbw", (), LINKS, gpus=0, pinned=True)
    quick = ("iterations=1", "warmup=0", "max_size=4MiB", "min_busbw_gb_s={all_reduce: 0.05}")
    words = [word for setting in quick for word in ("--set", f"collectives.{setting}")]
    tc = ["tc", "-n", namespace(site.name, "n2"), "qdisc"]
    held = ["tbf", "rate", "200mbit", "burst", "64kb", "latency", "50ms"]
    subprocess.run([*tc, "add", "dev", "eth1", "root", *held], check=True)
    try:
        done = _climb(site, drill, fault, *words)
    finally:
        subprocess.run([*tc, "del", "dev", "eth1", "root"], check=True)
    _is_named(drill, done, fault)
    _is_whole_again(drill, "collectives")


@pytest.mark.parametrize(
    ("act", "check", "words"),
    [
        ("os.kill(os.getpid(), signal.SIGSTOP)", "mesh.complete", "rank 3 on n2 came as far as"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "mesh.complete", "rank 3 on n2"),
    ],
    ids=["hangs", "dies"],
)
def test_a_rank_that_hangs_or_dies_is_named_and_those_that_waited_are_not(
    site: Site, drill: LabDrill, act: str, check: str, words: str
) -> None:
    python = tampered(site.paths.shared / "inject", 3, "ALL_REDUCE", act)
    fault = Fault(check, (words,), MESH, gpus=0)
    done = _climb(site, drill, fault, "--set", "mesh.time_limit_s=90", python=python)
    _is_named(drill, done, fault)
    (found,) = [c for c in result(drill, "mesh")["judgement"]["checks"] if c["id"] == check]
    assert "on n1" not in str(found["actual"])


def test_a_memlock_limit_that_is_low_on_one_node_is_named(site: Site, drill: LabDrill) -> None:
    fault = Fault("precheck.alike.memlock", ("65536 on n2",), gpus=0)
    unit = "/run/systemd/system/slurmd.service.d/memlock.conf"
    again = "systemctl daemon-reload && systemctl restart slurmd && sleep 2"
    site.on("n2", f"mkdir -p {Path(unit).parent} && printf '[Service]\\nLimitMEMLOCK=65536\\n' >{unit} && {again}")
    try:
        done = _climb(site, drill, fault)
    finally:
        site.on("n2", f"rm {unit} && {again}")
    _is_named(drill, done, fault)
    _is_whole_again(drill, "precheck")


def test_a_clock_that_is_off_on_one_node_is_named(site: Site, drill: LabDrill) -> None:
    fault = Fault("mesh.clocks", ("on n2 is ", "s ahead of rank 0"), MESH, gpus=0)
    lab("break", "clock-off", "n2", "--set", "+5s", name=site.name)
    try:
        done = _climb(site, drill, fault)
    finally:
        lab("mend", name=site.name)
    _is_named(drill, done, fault)
    _is_whole_again(drill, "mesh")
