"""Counters of ports as second witness: merged NICs are settled by them, idle rails and errors named, silence said."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nccl_written import Job
from rungs_harness import planned, with_files
from surefoot.benchmarks.nccl_claims import Finding
from surefoot.benchmarks.nccl_log import read_log
from surefoot.benchmarks.nccl_rails import PortBytes
from surefoot.errors import EvidenceError
from surefoot.hardware.port_counters import PortReadings
from surefoot.model.check import Check
from surefoot.model.status import Status
from surefoot.rungs.collectives import RUNG
from surefoot.rungs.nccl_checks import network_findings
from surefoot.rungs.rail_counters import Witness, errors_check, witness

PASSED, FAILED, OPEN = Status.PASSED, Status.FAILED, Status.INCONCLUSIVE
GIB = 2**30
SPARKS = Job(
    using=" [0]mlx5_0:1/RoCE [1]mlx5_1:1/RoCE [RO]; OOB eth0:10.0.0.1<0>",
    virtual=("NET/IB : Made virtual device [2] name=mlx5_0+mlx5_1 speed=200000 ndevs=2 rail=-1 plane=16385",),
    devices=("IB/2", "IB/2"),
)
"""Two ports made one NIC, as on DGX Spark."""
EXPECT = {"sockets": False, "network": {"rails": ["mlx5_0", "mlx5_1"], "groups": [], "gpudirect": False}}
LEAST = {"n1": PortBytes(GIB, GIB), "n2": PortBytes(GIB, GIB)}
WANTED = dict.fromkeys(("n1", "n2"), ("mlx5_0:1", "mlx5_1:1"))
Json = dict[str, Any]


def readings(*moved: int, **errors: int) -> Json:
    """Ports mlx5_0, mlx5_1, … that moved so many bytes each way; error counters of the last that rose."""
    begin = {"port_xmit_data": 50, "port_rcv_data": 70, "symbol_error": 1, "link_downed": 0}
    after = [{**begin, "port_xmit_data": 50 + amount // 4, "port_rcv_data": 70 + amount // 4} for amount in moved]
    for name, amount in errors.items():
        after[-1][name] += amount
    ports = [[(f"mlx5_{i}:1", {"value": one}) for i, one in enumerate(rows)] for rows in ([begin] * len(moved), after)]
    return {"before": {"value": dict(ports[0])}, "after": {"value": dict(ports[1])}}


UNREAD = {"before": {"value": None, "unknown": "LookupError: no port"}, "after": {"value": None, "unknown": "x"}}


def ranks(n1: Json | None, n2: Json | None) -> list[Any]:
    return [
        SimpleNamespace(
            report=SimpleNamespace(host=host, local_rank=0),
            data=SimpleNamespace(ports=None if told is None else PortReadings.model_validate(told)),
            file=f"raw/collectives/rank-{rank}.json",
        )
        for rank, (host, told) in enumerate({"n1": n1, "n2.example.com": n2}.items())
    ]


def seen(n1: Json, n2: Json) -> Witness:
    found = witness(ranks(n1, n2), asked=True)
    assert found is not None
    return found


def judged(n1: Json, n2: Json, job: Job = SPARKS) -> Finding:
    (rails,) = network_findings(
        read_log({"log": job.text()}), EXPECT, ["n1", "n2.example.com"], seen=seen(n1, n2), least=LEAST
    )
    return rails


EVEN = readings(GIB, GIB)


def test_ports_made_one_pass_where_both_moved_their_share() -> None:
    assert judged(EVEN, EVEN).status is PASSED


def test_ports_made_one_fail_where_one_was_idle_and_the_bytes_of_each_are_named() -> None:
    found = judged(EVEN, readings(2 * GIB, 0))
    assert found.status is FAILED
    assert "n2: mlx5_1:1 sends 0 B" in found.shown
    assert f"mlx5_0:1 {2 * GIB} B" in found.shown
    assert "n1: " not in found.shown


def test_all_rails_that_moved_alike_and_too_little_for_the_collectives_fail() -> None:
    little = readings(GIB // 100, GIB // 100)
    found = judged(EVEN, little)
    assert found.status is FAILED
    assert "n2: mlx5_0:1 sends" in found.shown


def test_counters_contradict_a_log_that_says_both_carry() -> None:
    assert judged(EVEN, readings(GIB, 0), Job()).status is FAILED


def test_counters_that_cannot_be_read_leave_ports_made_one_open_and_the_log_alone_elsewhere() -> None:
    assert judged(EVEN, UNREAD).status is OPEN
    alone = judged(UNREAD, UNREAD, Job())
    assert alone.status is PASSED
    assert "by the log alone: n1: counters not read before: LookupError: no port" in alone.derivation
    assert "by the log alone" not in judged(EVEN, EVEN).derivation


def test_a_counter_that_went_back_is_no_pass_for_ports_made_one() -> None:
    back = readings(GIB, GIB)
    back["after"]["value"]["mlx5_1:1"]["value"]["port_xmit_data"] = 3
    found = judged(EVEN, back)
    assert found.status is OPEN
    assert "n2: mlx5_1:1: port_xmit_data went back from 50 to 3" in found.derivation


def test_a_mesh_counts_ports_made_one_as_one_and_says_so() -> None:
    (found,) = network_findings(read_log({"log": SPARKS.text()}), EXPECT, ["n1", "n2"])
    assert found.status is PASSED
    assert "count as one" in found.claim


def test_two_hosts_that_are_one_name_up_to_the_first_dot_are_not_told_apart_and_prove_nothing() -> None:
    both = ranks(EVEN, EVEN)
    both[0].report.host = "n2.other.org"
    found = witness([*both, *ranks(EVEN, EVEN)[:1]], asked=True)
    assert found is not None
    assert set(found.told) == {"n1"}
    assert "n2.other.org and n2.example.com" in found.unread["n2"]
    assert found.counters.keys() == {"n1"}


def errors(n1: Json, n2: Json, tmp_path: Path) -> list[Check]:
    names = {f"raw/collectives/rank-{rank}.json": b"{}" for rank in range(2)}
    return errors_check("collectives", seen(n1, n2), WANTED, with_files(planned(RUNG, {}, tmp_path), names))


def test_an_error_counter_that_rose_fails_by_node_port_and_amount(tmp_path: Path) -> None:
    (check,) = errors(EVEN, readings(GIB, GIB, symbol_error=12), tmp_path)
    assert (check.status, check.actual) == (FAILED, "n2: mlx5_1:1 symbol_error rose by 12")
    (check,) = errors(EVEN, EVEN, tmp_path)
    assert (check.status, check.actual) == (PASSED, "0 on 4 ports")


def test_errors_that_are_not_known_are_no_pass(tmp_path: Path) -> None:
    (check,) = errors(EVEN, UNREAD, tmp_path)
    assert check.status is OPEN
    assert "n2: counters not read" in str(check.actual)
    assert errors(UNREAD, UNREAD, tmp_path) == []
    (check,) = errors(EVEN, readings(GIB), tmp_path)
    assert (check.status, check.actual) == (OPEN, "n2: mlx5_1:1 not among the ports that were read")


def test_a_node_that_left_no_reading_though_it_was_asked_is_refused() -> None:
    assert witness(ranks(None, None), asked=False) is None
    with pytest.raises(EvidenceError, match="no counters"):
        witness(ranks(EVEN, None), asked=True)
