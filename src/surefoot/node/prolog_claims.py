"""Claims that one node can decide about itself: how each is written, and how it is judged. Standard library alone.

A judge gives DISPROVED only for a value that was read; what cannot be read is UNKNOWN, and where a judge
raises, its caller makes UNKNOWN of it. The one exception is `judge_gpus`: see there.
"""

from __future__ import annotations

import resource
from collections.abc import Callable
from typing import Any

from surefoot.node.facts import clock, fabric, gpus, limits, mounts, network, nvml

PROVED, DISPROVED, UNKNOWN = "proved", "disproved", "unknown"
Verdict = tuple[str, str]


def judge_gpus(count: int) -> Verdict:
    """A driver that cannot be asked where GPUs are claimed is this node's fault, so it disproves."""
    try:
        found = gpus.gpus()
    except (OSError, nvml.NvmlError) as e:
        return DISPROVED, f"{count} GPUs are claimed, and the driver cannot be asked: {e}"
    if len(found) != count:
        return DISPROVED, f"the driver sees {len(found)} GPUs, {count} are claimed"
    return PROVED, f"the driver sees {count} GPUs"


def _each_gpu(key: str, wrong: Callable[[Any], str], good: str) -> Verdict:
    """A fact of every GPU; `wrong` gives words for a value that disproves. One that does not tell is no proof."""
    told = [gpu[key] for gpu in gpus.gpus()]
    known = [(index, fact["value"]) for index, fact in enumerate(told) if fact["value"] is not None]
    bad = [f"GPU {index}: {wrong(value)}" for index, value in known if wrong(value)]
    if bad:
        return DISPROVED, "; ".join(bad)
    silent = [
        f"GPU {index} does not tell: {fact.get('unknown')}" for index, fact in enumerate(told) if fact["value"] is None
    ]
    if silent or not told:
        return UNKNOWN, "; ".join(silent) or "the driver lists no GPU"
    return PROVED, f"{good}, {len(told)} GPUs"


def judge_gpu_model(part: str) -> Verdict:
    """`part` stands in the driver's name of every GPU."""
    return _each_gpu("name", lambda name: "" if part in name else f"{name}, {part} is claimed", f"{part} in each name")


def judge_rows(_: bool) -> Verdict:
    """No GPU has a row whose remapping is pending or failed."""
    return _each_gpu(
        "remapped_rows",
        lambda rows: f"remapping of rows: {rows}" if rows["pending"] or rows["failed"] else "",
        "no row waits for remapping",
    )


def judge_ecc(_: bool) -> Verdict:
    """No GPU had an uncorrected memory error since the driver was loaded."""
    return _each_gpu(
        "ecc_uncorrected_volatile",
        lambda count: f"{count} uncorrected memory error(s) since the driver was loaded" if count else "",
        "no uncorrected memory error since the driver was loaded",
    )


def judge_persistence(_: bool) -> Verdict:
    """Persistence mode is on at every GPU."""
    return _each_gpu("persistence", lambda on: "" if on else "persistence mode is off", "persistence mode is on")


def judge_xids(fatal: list[int]) -> Verdict:
    """None of these Xids since boot, as far back as the kernel's log (a ring) reaches."""
    bad = [
        f"{address}: Xid {xid}"
        for address, found in gpus.xids().items()
        for xid in dict.fromkeys(found)
        if xid in fatal
    ]
    if bad:
        return DISPROVED, f"since boot, by the kernel's log: {', '.join(bad)}"
    return PROVED, f"the kernel's log holds none of {len(fatal)} Xids"


def judge_driver(version: str) -> Verdict:
    """The driver's version, exactly."""
    found = gpus.driver_versions()["driver"]
    return (PROVED if found == version else DISPROVED), f"driver {found}, claimed {version}"


def judge_mounts(places: list[str]) -> Verdict:
    """From the kernel's table alone: no file system is touched, so none that hangs can hold this."""
    there = {row["place"] for row in mounts.mounts()}
    gone = [place for place in places if place not in there]
    return (DISPROVED, f"not mounted: {', '.join(gone)}") if gone else (PROVED, f"mounted: {', '.join(places)}")


def judge_interfaces(names: list[str]) -> Verdict:
    """Each is there, up and has a carrier."""
    found = {row["name"]: row for row in network.interfaces()}
    bad = [name for name in names if name not in found or not (found[name]["up"] and found[name]["carrier"])]
    return (DISPROVED, f"not there, or down: {', '.join(bad)}") if bad else (PROVED, f"up: {', '.join(names)}")


def judge_rails(rails: list[dict[str, Any]]) -> Verdict:
    """Each RDMA device (``mlx5_0``, or one port of it: ``mlx5_0:1``) is active at its rate, in Gbit/s, or more."""
    devices = {device["name"]: device for device in fabric.hcas()}
    found = [_rail(devices, rail["hca"], rail["rate_gbit_s"]) for rail in rails]
    for state in (DISPROVED, UNKNOWN):
        words = [text for verdict, text in found if verdict == state]
        if words:
            return state, "; ".join(words)
    return PROVED, "; ".join(text for _, text in found)


def _rail(devices: dict[str, Any], hca: str, rate: float) -> Verdict:
    name, _, number = hca.partition(":")
    if name not in devices:
        return DISPROVED, f"{hca} is not there; RDMA devices here: {', '.join(sorted(devices)) or 'none'}"
    ports = devices[name]["ports"]
    if ports["value"] is None:
        return UNKNOWN, f"{hca}: {ports['unknown']}"
    asked = [port for port in ports["value"] if not number or str(port["number"]) == number]
    if not asked:
        return DISPROVED, f"{hca}: no such port"
    for port in asked:
        if port["state"]["value"] == "ACTIVE" and (port["rate_gbit_s"]["value"] or 0) >= rate:
            return PROVED, f"{hca} active at {port['rate_gbit_s']['value']:g} Gbit/s"
    # A port whose rate is not told while its state disproves is disproved all the same.
    words = f"{hca}, {rate:g} Gbit/s claimed: " + ", ".join(
        f"port {port['number']} {_told(port['state'])} at {_told(port['rate_gbit_s'])} Gbit/s" for port in asked
    )
    silent = any(
        port["state"]["value"] is None or (port["state"]["value"] == "ACTIVE" and port["rate_gbit_s"]["value"] is None)
        for port in asked
    )
    return (UNKNOWN if silent else DISPROVED), words


def _told(fact: dict[str, Any]) -> str:
    return f"{fact['value']}" if fact["value"] is not None else "?"


def judge_memlock(claimed: int | str) -> Verdict:
    """Bytes that a process may lock, at least. Slurm's Prolog has slurmd's limit, which no job exceeds."""
    found = limits.limit(resource.RLIMIT_MEMLOCK)
    enough = found is None or (claimed != "unlimited" and found >= int(claimed))
    return (PROVED if enough else DISPROVED), f"memlock {'unlimited' if found is None else found}, claimed {claimed}"


def judge_clock(_: bool) -> Verdict:
    """The kernel believes its clock to be synchronised."""
    found = clock.clock()
    if found["synchronised"]:
        return PROVED, "the clock is synchronised"
    return DISPROVED, "the kernel says that its clock is not synchronised: chronyd, ntpd or systemd-timesyncd"


def _true(claimed: Any) -> bool:
    return claimed is True


def _text(claimed: Any) -> bool:
    return type(claimed) is str and bool(claimed)


def _count(claimed: Any) -> bool:
    return type(claimed) is int and claimed > 0


def _several(form: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda claimed: type(claimed) is list and bool(claimed) and all(form(item) for item in claimed)


def _is_rail(claimed: Any) -> bool:
    return (
        type(claimed) is dict
        and sorted(claimed) == ["hca", "rate_gbit_s"]
        and _text(claimed["hca"])
        and type(claimed["rate_gbit_s"]) in (int, float)
        and 0 < claimed["rate_gbit_s"] < float("inf")
    )


def _limit(claimed: Any) -> bool:
    return claimed == "unlimited" or (_count(claimed) and claimed < 1 << 63)


CLAIMS: dict[str, tuple[Callable[[Any], Verdict], Callable[[Any], bool], str]] = {
    "gpus": (judge_gpus, _count, "a number, 1 or more"),
    "gpu_model": (judge_gpu_model, _text, "part of the driver's name for it"),
    "rows": (judge_rows, _true, "true"),
    "ecc": (judge_ecc, _true, "true"),
    "xids": (judge_xids, _several(_count), "a list of Xids that must not have been"),
    "persistence": (judge_persistence, _true, "true"),
    "driver": (judge_driver, _text, "a version"),
    "mounts": (judge_mounts, _several(_text), "a list of folders"),
    "interfaces": (judge_interfaces, _several(_text), "a list of names"),
    "rails": (judge_rails, _several(_is_rail), 'a list of {"hca": NAME, "rate_gbit_s": NUMBER}'),
    "memlock": (judge_memlock, _limit, 'a number of bytes, or "unlimited"'),
    "clock": (judge_clock, _true, "true"),
}
"""Name of a claim → its judge, whether a value is of its form, that form in words."""
JUDGES = {name: judge for name, (judge, _, _) in CLAIMS.items()}


def problem(name: str, claimed: Any) -> str:
    """What is wrong with how a claim is written; empty: nothing."""
    if name not in CLAIMS:
        return f"no such claim: {name}; there are {', '.join(CLAIMS)}"
    _, form, words = CLAIMS[name]
    return "" if form(claimed) else f"{name} is {claimed!r}; allowed: {words}"
