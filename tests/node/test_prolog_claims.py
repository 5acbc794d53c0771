"""Claims of the prolog: proved by a value, disproved by a value, and unknown where there is none."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any

import pytest

from surefoot.node import prolog_claims
from surefoot.node.facts import clock, fabric, gpus, limits, nvml
from surefoot.node.prolog_claims import CLAIMS, JUDGES, problem

ROWS = {"correctable": 0, "uncorrectable": 0, "pending": 0, "failed": 0}


@pytest.mark.parametrize(
    ("claim", "claimed", "fact", "good", "bad"),
    [
        ("rows", True, "remapped_rows", ROWS, {**ROWS, "pending": 1}),
        ("rows", True, "remapped_rows", ROWS, {**ROWS, "failed": 1}),
        ("ecc", True, "ecc_uncorrected_volatile", 0, 2),
        ("persistence", True, "persistence", True, False),
        ("gpu_model", "H200", "name", "NVIDIA H200", "NVIDIA H100"),
    ],
)
def test_one_gpu_that_is_wrong_disproves_and_one_that_is_silent_is_no_proof(
    monkeypatch: pytest.MonkeyPatch, *, claim: str, claimed: Any, fact: str, good: Any, bad: Any
) -> None:
    def told(*values: Any) -> str:
        found = [{fact: {"value": value, "unknown": "Not Supported"}} for value in values]
        monkeypatch.setattr(gpus, "gpus", lambda: found)
        return JUDGES[claim](claimed)[0]

    assert told(good, good) == "proved"
    assert told(good, bad) == told(None, bad) == "disproved"
    assert told(good, None) == told() == "unknown"


def test_the_gpu_at_fault_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "gpus", lambda: [{"persistence": {"value": on}} for on in (True, False)])
    assert JUDGES["persistence"](True) == ("disproved", "GPU 1: persistence mode is off")


def test_a_fatal_xid_since_boot_disproves_and_others_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "xids", lambda: {"0000:1b:00": [31, 79, 79]})
    assert JUDGES["xids"]([48]) == ("proved", "the kernel's log holds none of 1 Xids")
    assert JUDGES["xids"]([48, 79]) == ("disproved", "since boot, by the kernel's log: 0000:1b:00: Xid 79")


def _device(folder: Path, name: str, state: str = "4: ACTIVE", rate: str = "400 Gb/sec (4X NDR)") -> None:
    port = folder / "class" / "infiniband" / name / "ports" / "1"
    port.mkdir(parents=True)
    (folder / "class" / "net").mkdir(exist_ok=True)
    for file, text in (("state", state), ("rate", rate)):
        if text:
            (port / file).write_text(f"{text}\n")


@pytest.mark.parametrize(
    ("state", "rate", "verdict", "words"),
    [
        ("4: ACTIVE", "400 Gb/sec (4X NDR)", "proved", "mlx5_0 active at 400 Gbit/s"),
        ("4: ACTIVE", "200 Gb/sec (2X NDR)", "disproved", "port 1 ACTIVE at 200.0 Gbit/s"),
        ("1: DOWN", "400 Gb/sec (4X NDR)", "disproved", "port 1 DOWN"),
        ("1: DOWN", "", "disproved", "port 1 DOWN at ? Gbit/s"),
        ("4: ACTIVE", "", "unknown", "port 1 ACTIVE at ? Gbit/s"),
        ("", "400 Gb/sec (4X NDR)", "unknown", "port 1 ? at"),
    ],
)
def test_a_rail_is_active_at_its_rate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, state: str, rate: str, verdict: str, words: str
) -> None:
    _device(tmp_path, "mlx5_0", state, rate)
    _device(tmp_path, "mlx5_1")
    found = fabric.hcas(tmp_path)
    monkeypatch.setattr(fabric, "hcas", lambda: found)
    asked = [{"hca": "mlx5_1:1", "rate_gbit_s": 400}, {"hca": "mlx5_0", "rate_gbit_s": 400.0}]
    said = JUDGES["rails"](asked)
    assert said[0] == verdict
    assert words in said[1]
    assert JUDGES["rails"]([{"hca": "mlx5_1:2", "rate_gbit_s": 400}])[0] == "disproved"
    assert JUDGES["rails"]([{"hca": "mlx5_9", "rate_gbit_s": 400}]) == (
        "disproved", "mlx5_9 is not there; RDMA devices here: mlx5_0, mlx5_1",
    )  # fmt: skip


def test_ports_that_cannot_be_read_are_no_proof(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _device(tmp_path, "mlx5_0")
    (tmp_path / "class/infiniband/mlx5_0/ports").rename(tmp_path / "away")
    found = fabric.hcas(tmp_path)
    monkeypatch.setattr(fabric, "hcas", lambda: found)
    assert JUDGES["rails"]([{"hca": "mlx5_0", "rate_gbit_s": 1}])[0] == "unknown"


def test_memory_that_may_be_locked_is_as_much_as_claimed_or_more(monkeypatch: pytest.MonkeyPatch) -> None:
    def verdict(limit: int | None, claimed: int | str) -> str:
        monkeypatch.setattr(limits, "limit", {resource.RLIMIT_MEMLOCK: limit}.__getitem__)
        return JUDGES["memlock"](claimed)[0]

    assert verdict(None, "unlimited") == verdict(None, 9) == verdict(9, 9) == "proved"
    assert verdict(8 << 20, "unlimited") == verdict(8, 9) == "disproved"


def test_a_clock_that_nobody_sets_disproves(monkeypatch: pytest.MonkeyPatch) -> None:
    for synchronised, verdict in ((True, "proved"), (False, "disproved")):
        monkeypatch.setattr(clock, "clock", lambda known=synchronised: {"synchronised": known})
        assert JUDGES["clock"](True)[0] == verdict


def test_a_driver_that_is_lost_disproves_the_count_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "LIBRARY", "libno-such.so")
    assert JUDGES["gpus"](8)[0] == "disproved"
    for claim in ("rows", "ecc", "persistence", "gpu_model", "driver"):  # their caller makes "unknown" of it
        with pytest.raises(OSError, match="no-such"):
            JUDGES[claim]("1")


WRONG: dict[str, tuple[Any, ...]] = {
    "gpus": (0, True, "8", 8.0),
    "gpu_model": ("", 1),
    "rows": (False, 1),
    "ecc": (False, "yes"),
    "xids": ([], [0], ["79"], 79),
    "persistence": (False, None),
    "driver": ("", 580.95),
    "mounts": ([], "/home", [1]),
    "interfaces": ([], "eth0", [""]),
    "rails": ([], [{}], ["mlx5_0"], [{"hca": "mlx5_0"}], [{"hca": "mlx5_0", "rate_gbit_s": 0}]),
    "memlock": (0, "plenty", True, -1),
    "clock": (False, 1),
}


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_claim_of_another_form_is_named_with_what_is_allowed(claim: str) -> None:
    for claimed in WRONG[claim]:
        assert problem(claim, claimed).startswith(f"{claim} is {claimed!r}; allowed: ")
    assert problem("gpu", 8).startswith("no such claim: gpu; there are gpus, ")


def test_the_page_has_every_claim() -> None:
    page = (Path(prolog_claims.__file__).parents[3] / "docs" / "prolog.md").read_text()
    assert [claim for claim in CLAIMS if f"| `{claim}` |" not in page] == []
