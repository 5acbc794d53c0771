"""What nccl-tests writes with ``-J`` (2.17.3 and later; format versions 1 to 3): from the text to `NcclTest`. Pure.

The block ``env`` is the whole environment of the process, secrets too: nothing here looks at it.
Booleans are words, ``root`` is a padded word, and one device a process is listed.
"""

from __future__ import annotations

import json
from pathlib import PurePath
from typing import Any

from surefoot.benchmarks.nccl_tests import (
    PLACEMENTS,
    NcclTest,
    Options,
    Row,
    Spread,
    TestDevice,
    Timing,
    complete,
    factors,
    named_in,
    unfit,
)
from surefoot.errors import EvidenceError

_ROUNDED = 1e-6
"""GB/s: the last printed digit of a bandwidth."""


def read_json(text: str, file: str) -> NcclTest:
    """The test. Raises EvidenceError where it is not whole, of another form, or does not fit its own arithmetic."""
    try:
        said = json.loads(text)
    except (ValueError, RecursionError) as error:  # a number of thousands of digits is a bare ValueError
        line = getattr(error, "lineno", None)
        raise EvidenceError(
            f"is no whole JSON document ({error}): was the test killed?", file=file, line=line
        ) from None
    try:
        return complete(_test(said, file))
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, ArithmeticError) as error:
        problem = f"is not what nccl-tests writes: {type(error).__name__}: {str(error)[:200]}"
        raise EvidenceError(problem, file=file) from None


def _test(said: dict[str, Any], file: str) -> NcclTest:
    if told := [text for text in map(str, said["errors"]) if text.strip()]:
        raise EvidenceError(f"tells of errors: {'; '.join(told)[:300]}", file=file)
    if not said.get("end_time"):
        raise EvidenceError("has no end: the test was killed", file=file)
    config, program = said["config"], PurePath(said["args"][0]).name
    devices = tuple(_device(device) for device in config["devices"])
    world = len(devices) * int(config["nthreads"]) * int(config["ngpus"])
    collective = named_in(program) or named_in(PurePath(file).name)
    rows = tuple(_row(row, number, collective, world) for number, row in enumerate(said["results"], 1))
    factor = float(config["step_factor"]) if config.get("step_factor") else None
    return NcclTest(
        file=file, line=1, collective=collective, version=None, nccl=str(said["nccl_version"]), world_size=world,
        options=Options(
            threads=config["nthreads"], gpus=config["ngpus"], min_bytes=config["minimum_bytes"],
            max_bytes=config["maximum_bytes"], factor=factor, step_bytes=config.get("step_bytes"),
            warmup=config["warmup_iters"], iterations=config["iterations"], validated=str(config["validation"]).lower() not in ("0", "false", ""),
            graph=int(config.get("graph") or 0),
        ),
        devices=devices, reduced_to=None, rows=rows, out_of_bounds=int(said["out_of_bounds"]["count"]),
        average_gb_s=float(said["average_bus_bandwidth"]["bandwidth"]),
    )  # fmt: skip


def _device(said: dict[str, Any]) -> TestDevice:
    return TestDevice(
        rank=said["rank"], group=said["group"], pid=said["pid"], host=said["hostname"], device=said["device"],
        pci=said["device_hex"].lower(), name=said["device_info"],
    )  # fmt: skip


def _row(said: dict[str, Any], number: int, collective: str | None, world: int) -> Row:
    size = said["size"]
    redop, root = str(said["redop"]).strip(), str(said["root"]).strip()
    first, second = (
        _timing(said[place], said.get(f"{place}_per_iter"), size, factors(collective, world)) for place in PLACEMENTS
    )
    return Row(
        size_bytes=size, count=said["count"], datatype=said["type"], redop=redop if redop not in ("", "none") else None,
        root=int(root) if root else None, out_of_place=first, in_place=second, line=number,
    )  # fmt: skip


def _timing(said: dict[str, Any], each: dict[str, Any] | None, size: int, on_bus: set[float]) -> Timing:
    time_us = float(said["time"] if "time" in said else said["cpu_time"])
    algbw, busbw, wrong = float(said["alg_bw"]), float(said["bus_bw"]), said["nwrong"]
    fits = abs(algbw - size / 1e3 / time_us) <= _ROUNDED + 1e-4 * algbw
    if not fits or not any(abs(busbw - algbw * factor) <= _ROUNDED * 2 + 1e-5 * busbw for factor in on_bus):
        raise unfit(size, time_us, algbw, busbw)
    spread = None
    if each is not None:
        spread = Spread(
            min_us=each["min_us"], max_us=each["max_us"], p99_us=each["p99_us"], cv_percent=float(each["cv_pct"])
        )
    unknown = wrong is None or str(wrong).lower() in ("nan", "n/a", "-1", "-1.0")
    return Timing(
        time_us=time_us, algbw_gb_s=algbw, busbw_gb_s=busbw, wrong=None if unknown else float(wrong), spread=spread
    )
