"""Every rail in use: by the lines of connections, and where ports are made one by their counters too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from nccl_written import Job, golden
from surefoot.benchmarks.nccl_claims import Finding
from surefoot.benchmarks.nccl_log import NcclLog, read_log
from surefoot.benchmarks.nccl_rails import Counters, PortBytes, rails
from surefoot.model.status import Status

PASSED, FAILED, OPEN = Status.PASSED, Status.FAILED, Status.INCONCLUSIVE
MERGED = Job(
    using=" [0]mlx5_0:1/RoCE [1]mlx5_1:1/RoCE [RO]; OOB eth0:10.0.0.1<0>",
    virtual=("NET/IB : Made virtual device [2] name=mlx5_0+mlx5_1 speed=200000 ndevs=2 rail=-1 plane=16385",),
    devices=("IB/2/GDRDMA", "IB/2/GDRDMA"),
)
BRACED = Job(
    using=" [0]={[0] mlx5_0:1/RoCE, [1] mlx5_1:1/RoCE} [RO]; OOB eth0:10.0.0.1<0>",
    devices=("IBext_v8/0", "IBext_v8/0"),
    network="IBext_v8",
)
GIB = 2**30


def read(job: Job | str) -> NcclLog:
    return read_log({"log": job if isinstance(job, str) else job.text()})


def moved(**ports: tuple[int, int]) -> Counters:
    """Counters of a node whose ports (``mlx5_0=(sent, received)``) moved that much."""
    names = {f"{name}:1": amounts for name, amounts in ports.items()}
    start = {name: PortBytes(5 * GIB, 7 * GIB) for name in names}
    end = {name: PortBytes(5 * GIB + sent, 7 * GIB + received) for name, (sent, received) in names.items()}
    return Counters(before=start, after=end)


def both(counted: Counters) -> dict[str, Counters]:
    return {"n1": counted, "n2": counted}


def test_every_rail_in_use_both_ways_passes_with_a_line_of_each() -> None:
    found = rails(read(Job()))
    assert (found.status, found.shown) == (PASSED, "4 ports of 2 nodes, sending and receiving")
    assert all("via NET/IB/" in line.text for line in found.lines)


def test_a_rail_that_is_there_and_unused_is_named_by_node_and_direction() -> None:
    found = rails(read(Job(devices=("IB/0/GDRDMA", "IB/0/GDRDMA"))))
    assert found.status is FAILED
    assert "n1: nothing sends over mlx5_1:1" in found.shown
    assert "n2: nothing receives over mlx5_1:1" in found.shown
    assert "NET/IB : Using" in found.lines[0].text


def test_a_rail_that_is_used_one_way_only_is_named() -> None:
    rows = [row for row in Job().text().split("\n") if not ("[send] via NET/IB/1" in row and row.startswith("n2:"))]
    found = rails(read("\n".join(rows)))
    assert (found.status, found.shown) == (FAILED, "n2: nothing sends over mlx5_1:1")


def test_a_nic_for_storage_is_not_missed_where_the_rails_are_named() -> None:
    job = Job(using=" [0]mlx5_0:1/IB [1]mlx5_1:1/IB [2]mlx5_9:1/RoCE [RO]; OOB ib0:10.0.0.1<0>")
    assert "mlx5_9:1" in rails(read(job)).shown
    named = {"n1": ["mlx5_0:1", "mlx5_1"], "n2.example.com": ["mlx5_0", "mlx5_1:1"]}
    assert rails(read(job), expected=named).status is PASSED


def test_a_rail_that_nccl_did_not_find_is_named() -> None:
    found = rails(read(Job()), expected={"n1": ["mlx5_0", "mlx5_1", "mlx5_2"]})
    assert (found.status, found.shown) == (FAILED, "n1: NCCL did not find mlx5_2:1, only mlx5_0:1, mlx5_1:1")


@pytest.mark.parametrize("job", [MERGED, BRACED])
def test_ports_made_one_are_not_shown_to_carry_both_by_the_log_alone(job: Job) -> None:
    found = rails(read(job))
    assert found.status is OPEN
    assert "mlx5_0:1 and mlx5_1:1 made one; the log does not say that mlx5_0:1 sends" in found.shown
    assert "counters" in found.next_action


@pytest.mark.parametrize("job", [MERGED, BRACED])
def test_counters_show_that_both_ports_carry_or_which_does_not(job: Job) -> None:
    even = moved(mlx5_0=(GIB, GIB), mlx5_1=(GIB, GIB))
    assert rails(read(job), counters=both(even)).status is PASSED
    found = rails(read(job), counters={"n1": even, "n2": moved(mlx5_0=(2 * GIB, GIB), mlx5_1=(4096, GIB))})
    assert found.status is FAILED
    assert found.shown.startswith("n2: mlx5_1:1 sends 4096 B")
    assert "via NET/" in found.lines[0].text


def test_counters_of_one_node_leave_the_other_open() -> None:
    found = rails(read(MERGED), counters={"n1": moved(mlx5_0=(GIB, GIB), mlx5_1=(GIB, GIB))})
    assert (found.status, "n2: " in found.shown, "n1: " in found.shown) == (OPEN, True, False)


def test_a_counter_that_was_set_back_or_not_read_is_not_known() -> None:
    back = Counters({"mlx5_0:1": PortBytes(9, 9), "mlx5_1:1": PortBytes(0, 0)}, {"mlx5_0:1": PortBytes(1, 1)})
    assert (back.moved("mlx5_0:1", sent=True), back.moved("mlx5_1:1", sent=True)) == (None, None)
    assert rails(read(MERGED), counters=both(back)).status is OPEN


def test_counters_contradict_a_log_that_names_a_port() -> None:
    idle = moved(mlx5_0=(GIB, GIB), mlx5_1=(0, 0))
    found = rails(read(Job()), counters=both(idle))
    assert (found.status, "n1: mlx5_1:1 sends 0 B" in found.shown) == (FAILED, True)


def test_counters_alone_do_not_show_that_nccl_used_a_port() -> None:
    busy = moved(mlx5_0=(GIB, GIB), mlx5_1=(GIB, GIB))
    found = rails(read(Job(devices=("IB/0", "IB/0"))), counters=both(busy))
    assert (found.status, "n1: nothing sends over mlx5_1:1" in found.shown) == (FAILED, True)


def test_a_device_of_unknown_ports_leaves_it_open_unless_counters_show_each() -> None:
    job = replace(MERGED, virtual=())  # NCCL_DEBUG_SUBSYS without NET
    found = rails(read(job))
    assert (found.status, "does not tell of which ports" in found.shown) == (OPEN, True)
    assert rails(read(job), counters=both(moved(mlx5_0=(GIB, GIB), mlx5_1=(GIB, GIB)))).status is PASSED
    assert rails(read(job), counters=both(moved(mlx5_0=(GIB, GIB), mlx5_1=(0, GIB)))).status is FAILED


def test_a_device_used_through_another_rank_counts_where_that_rank_is() -> None:
    # rank 0 sends over the device of rank 1's process, and that counts the same ports in another order
    text = Job(devices=("IB/0(?)", "IB/1(?)")).text()
    assert "[send] via NET/IB/0(1)" in text
    assert rails(read(text)).status is PASSED
    one = "NET/IB : Using [0]mlx5_1:1/IB [1]mlx5_0:1/IB [RO]; OOB ib0:10.0.0.1<0>"
    rows = [
        row.split("NET/IB : Using")[0] + one if "NET/IB : Using" in row and row.startswith("n1:101") else row
        for row in text.split("\n")
    ]
    found = rails(read("\n".join(rows)))
    # rank 0's device 0 is rank 1's mlx5_1, and rank 1's device 1 is rank 0's mlx5_1: mlx5_0 sends nothing
    assert (found.status, "n1: nothing sends over mlx5_0:1" in found.shown) == (FAILED, True)


def test_a_network_that_reduces_counts_its_devices_itself_and_leaves_them_open() -> None:
    job = Job(devices=("IB/0", "IB/0"), using=" [0]mlx5_0:1/IB/SHARP [1]mlx5_1:1/IB/SHARP [RO]; OOB ib0:10.0.0.1<0>")
    rows = "".join(
        f"n{rank // 2 + 1}:{100 + rank}:1 [{rank % 2}] NCCL INFO CollNet 00/0 : {rank} [{way}] via COLLNET/SHARP/1/GDRDMA\n"
        for rank in (0, 2) for way in ("send", "receive")
    )  # fmt: skip
    found = rails(read(job.text() + rows))
    assert (found.status, "counted by its plugin" in found.shown) == (OPEN, True)


def test_libfabrics_nics_are_counted_by_number() -> None:
    job = Job(using="", network="AWS Libfabric", devices=("AWS Libfabric/0/GDRDMA", "AWS Libfabric/1/GDRDMA"))
    rows = "".join(
        f"n{rank // 2 + 1}:{100 + rank}:1 [0] NCCL INFO NET/OFI Selected Provider is efa (found {{}} nics)\n"
        for rank in range(4)
    )
    assert rails(read(job.text() + rows.format(*[2] * 4))).status is PASSED
    found = rails(read(job.text() + rows.format(*[3] * 4)))
    assert (found.status, "nothing sends over nic 2" in found.shown) == (FAILED, True)


def test_sockets_are_no_rail() -> None:
    found = rails(read_log(golden("hosts.out")))
    assert (found.status, found.shown) == (FAILED, "vm: TCP sockets carry, no rail does")
    assert "via NET/Socket" in found.lines[0].text


def without_network() -> str:
    return "\n".join(row for row in Job().text().split("\n") if "via NET" not in row)


OPEN_ONES: dict[str, Callable[[], NcclLog]] = {
    "nothing": lambda: read(""),
    "one node": lambda: read_log(golden("p2p.out")),
    "a rank that wrote nothing": lambda: read(Job(devices=("IB/0", "IB/0"), silent={3})),
    "a node that wrote nothing": lambda: read(Job(silent={2, 3})),
    "no list of NICs": lambda: read(Job(using="")),
    "no connection over a network": lambda: read(without_network()),
    "cut off": lambda: read(Job(devices=("IB/0", "IB/0")).text() + "n1:100:200 [0] NCCL INFO Con"),
    "cut off before the mark": lambda: read(Job(devices=("IB/0", "IB/0")).text() + "n1:100:200 [0] NC"),
}


@pytest.mark.parametrize("name", OPEN_ONES)
def test_what_is_not_told_is_open_not_unused(name: str) -> None:
    found: Finding = rails(OPEN_ONES[name]())
    assert found.status is OPEN, found.shown
    assert found.shown
    assert found.next_action


def test_a_node_that_was_to_be_there_and_is_not_in_the_log_is_open() -> None:
    found = rails(read(Job()), expected={"n3": ["mlx5_0"]})
    assert (found.status, found.shown.startswith("n3: no line tells of")) == (OPEN, True)
