"""Pre-check: what the driver says of each GPU's health. One check a topic and node; the GPUs at fault are named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from surefoot.hardware.fact import Fact
from surefoot.hardware.facts import NodeFacts
from surefoot.hardware.gpu_facts import Gpu
from surefoot.hardware.older_facts import NOT_LOOKED_FOR
from surefoot.model.check import Check, Evidence
from surefoot.rungs.judging import decide, shorten, unproved

HELD_DOWN = ("hardware slowdown", "hardware thermal slowdown", "hardware power brake", "software thermal slowdown")
"""Reasons for low clocks that mean heat, power supply or a fault; not those of an idle GPU or of a power limit."""

FATAL_XIDS = {
    31: "a process read or wrote where it may not",
    48: "an uncorrectable memory error",
    62: "the GPU's own controller halted",
    63: "a row of memory was remapped",
    64: "a row of memory could not be remapped",
    74: "an NVLink error",
    79: "the GPU fell off the bus",
    92: "many correctable memory errors",
    94: "a contained memory error",
    95: "an uncontained memory error",
    119: "the GPU's system processor does not answer",
    120: "an error of the GPU's system processor",
    137: "an NVLink privilege error",
    140: "an uncorrected memory error not yet dealt with",
    143: "the GPU could not be initialised",
    145: "an NVLink error that needs the fabric restarted",
    149: "an NVLink error that needs the GPU reset",
    154: "the driver asks for a reset or a reboot",
}
"""NVIDIA's Xid catalogue, those after which a GPU or its link is not to be trusted until somebody has looked.
31 is mostly a program's fault and is told, never judged."""
PROGRAMS_OWN = (31,)


NO_CLAIM = (": Not Supported", NOT_LOOKED_FOR)
"""How the reason ends where a GPU of this kind has no such thing, or an older version's probe did not ask."""


@dataclass(frozen=True)
class Where:
    """The node that is judged."""

    rank: int
    host: str
    reference: Callable[[str], Evidence]
    """A reference to the node's file, with the text that shows it."""


@dataclass(frozen=True)
class Topic:
    """One claim about every GPU of a node."""

    name: str
    claim: str
    read: Callable[[Gpu], list[Fact[Any]]]
    """What it rests on."""
    problem: Callable[[Gpu], str]
    """What is wrong with a GPU, in words; empty: nothing."""
    action: str


def gpu_health(where: Where, facts: NodeFacts) -> list[Check]:
    """Checks of a node that has GPUs, as far as its driver answers; where it doesn't, `gpus_agree` says so."""
    gpus = {f"GPU {i} ({gpu.pci_bus_id.shown})": gpu for i, gpu in enumerate(facts.gpus.value or ())}
    checks = [_topic(topic, where, gpus) for topic in TOPICS] if gpus else []
    return [*(check for check in checks if check is not None), *(_xids(where, facts) if gpus else [])]


def _topic(topic: Topic, where: Where, gpus: dict[str, Gpu]) -> Check | None:
    """None where no GPU of this kind has such a thing (a GB10 counts no memory errors)."""
    identifier, claim = f"precheck.node{where.rank}.{topic.name}", f"{topic.claim} on {where.host}"
    wrong = [f"{name}: {problem}" for name, gpu in gpus.items() if (problem := topic.problem(gpu))]
    if wrong:
        text = shorten(wrong)
        return decide(
            identifier, claim, False, actual=text, evidence=(where.reference(text),), next_action=topic.action
        )
    reasons = {name: _unread(topic.read(gpu)) for name, gpu in gpus.items()}
    silent = [f"{name}: {reason}" for name, reason in reasons.items() if reason]
    if len(silent) == len(gpus) and all(reason.endswith(NO_CLAIM) for reason in reasons.values()):
        return None
    if silent:
        text = shorten(silent)
        return unproved(
            identifier, claim, actual=f"not told of {text}", evidence=(where.reference(text),),
            next_action="find out why the driver does not answer: nvidia-smi -q on the node",
        )  # fmt: skip
    text = f"{len(gpus)} GPU(s)"
    return decide(identifier, claim, True, actual=text, evidence=(where.reference(text),))


def _unread(facts: list[Fact[Any]]) -> str:
    """Why none of these could be read; empty where one could."""
    reasons = [fact.unknown for fact in facts if fact.unknown is not None]
    return reasons[0] if len(reasons) == len(facts) else ""


def _memory(gpu: Gpu) -> str:
    rows, words = gpu.remapped_rows.value, []
    if rows and rows.failed:
        words.append("a row could not be remapped: replace it")
    if rows and rows.pending:
        words.append("a remapped row waits for a reset")
    if gpu.ecc_uncorrected_volatile.value:
        words.append(f"{gpu.ecc_uncorrected_volatile.value} uncorrected memory error(s) since the driver was loaded")
    return ", ".join(words)


def _clocks(gpu: Gpu) -> str:
    held = [reason for reason in gpu.clock_reasons.value or () if reason in HELD_DOWN]
    return (
        f"{', '.join(held)} at {gpu.temperature_c.shown} °C, {gpu.sm_clock_mhz.shown} of {gpu.sm_clock_max_mhz.shown} MHz"
        if held
        else ""
    )


def _pcie(gpu: Gpu) -> str:
    now, most = gpu.pcie_width.value, gpu.pcie_width_max.value
    return f"×{now} of ×{most}" if now is not None and most is not None and now < most else ""


def _links(gpu: Gpu) -> str:
    links = gpu.nvlinks.value or ()
    down = [str(number) for number, up in enumerate(links) if not up]
    # All of them down is a board without a bridge, or MIG: what is expected then stands in the cluster file.
    words = [f"NVLink {', '.join(down)} of {len(links)} down"] if down and len(down) < len(links) else []
    if gpu.fabric.value in ("not started", "in progress") or ", status" in (gpu.fabric.value or ""):
        words.append(f"fabric: {gpu.fabric.value}")
    return "; ".join(words)


def _whole(gpu: Gpu) -> str:
    words = []
    if gpu.mig.value and (gpu.mig.value.current or gpu.mig.value.pending):
        words.append("divided by MIG" if gpu.mig.value.current else "to be divided by MIG at the next reset")
    if gpu.compute_mode.value == "prohibited":
        words.append("compute mode prohibited")
    if gpu.ecc.value and gpu.ecc.value.current != gpu.ecc.value.pending:
        words.append("ECC changes at the next reset")
    return ", ".join(words)


def _idle(gpu: Gpu) -> str:
    others = gpu.processes.value or ()
    return f"process {', '.join(str(pid) for pid in others)} computes on it" if others else ""


TOPICS = (
    Topic(
        "gpu_memory",
        "no GPU has lost memory",
        lambda gpu: [gpu.remapped_rows, gpu.ecc_uncorrected_volatile],
        _memory,
        "drain the node, reset the GPU (nvidia-smi -r -i N, or reboot); where a row could not be remapped, have it replaced",
    ),
    Topic(
        "gpu_clocks",
        "no GPU is held down by heat, power or a fault",
        lambda gpu: [gpu.clock_reasons],
        _clocks,
        "nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER; look at fans, inlet air, power cables and supplies",
    ),
    Topic(
        "gpu_pcie",
        "every GPU has all its PCIe lanes",
        lambda gpu: [gpu.pcie_width],
        _pcie,
        "reseat the card or riser; lspci -vv shows LnkSta against LnkCap",
    ),
    Topic(
        "gpu_links",
        "no GPU has lost an NVLink or its place in the fabric",
        lambda gpu: [gpu.nvlinks, gpu.fabric],
        _links,
        "nvidia-smi nvlink -s -i N and -e for errors; systemctl status nvidia-fabricmanager",
    ),
    Topic(
        "gpu_whole",
        "every GPU is whole and may compute",
        lambda gpu: [gpu.mig, gpu.compute_mode],
        _whole,
        "nvidia-smi -mig 0, nvidia-smi -c DEFAULT, then reset the GPU; or give such nodes a cluster file of their own",
    ),
    Topic(
        "gpu_idle",
        "nobody else computes on the GPUs of the job",
        lambda gpu: [gpu.processes],
        _idle,
        "find whose process it is (ps -fp PID): a job that was not ended, or somebody around the scheduler; then kill it",
    ),
)


def _xids(where: Where, facts: NodeFacts) -> list[Check]:
    """One check where the kernel's log may be read; no claim where it may not (users mostly may not)."""
    if facts.xids.value is None:
        return []
    found = [
        f"{address}: Xid {xid}, {FATAL_XIDS[xid]}"
        for address, xids in facts.xids.value.items()
        for xid in dict.fromkeys(xids)
        if xid in FATAL_XIDS and xid not in PROGRAMS_OWN
    ]
    text = shorten(found)
    return [
        decide(
            f"precheck.node{where.rank}.gpu_xids",
            f"the kernel's log of {where.host} tells of no GPU fault since boot",
            not found,
            actual=text or "none",
            evidence=(where.reference(f"xids: {text or 'none'}"),),
            next_action="drain the node, reset the GPU or reboot; one that comes back needs replacing",
        )
    ]
