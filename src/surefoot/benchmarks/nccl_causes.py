"""What a moved curve means, in words: what was seen, what it speaks for, what to look at. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from surefoot.benchmarks.nccl_curve import Part
from surefoot.benchmarks.nccl_log_links import Kind

FALL_BACK = 8.0
"""A transport that falls back to host memory or TCP costs more than this factor of the bandwidth; links that
are lost leave at least one of them."""
_INSTEAD = {
    Kind.SHM: "through the host's memory (SHM)",
    Kind.NET: "over the network",
}
_LOOK_LINKS = (
    "look at the links (`nvidia-smi nvlink -s`, `ibstat`, `ethtool`), the rails in NCCL's log, and NCCL_MAX_NCHANNELS, "
    "NCCL_IB_HCA and NCCL_NET of the job"
)


@dataclass(frozen=True)
class Seen:
    """All that moved, of one collective. Values are logarithms of time."""

    slower: Mapping[Part, float] = field(default_factory=dict)
    sizes: tuple[int, ...] = ()
    """Single sizes that stand out."""
    unsteady: bool = False
    kinds: frozenset[Kind] = frozenset()
    """Slower ways that the candidate uses and the baseline does not."""
    sockets: bool = False
    channels: tuple[int, int] | None = None
    """Baseline's and candidate's, where both logs tell and they differ."""
    settings: tuple[str, ...] = ()
    """``NAME=value`` that NCCL heeded in the candidate alone."""

    @property
    def floor(self) -> bool:
        """Whether the latency is worse."""
        return Part.FLOOR in self.slower

    @property
    def factor(self) -> float:
        """By how much the bandwidth is lower; 1 where it is not."""
        return math.exp(self.slower.get(Part.PLATEAU, 0.0))

    @property
    def fewer(self) -> str:
        """That channels are missing, where the logs say so."""
        if self.channels is None or self.channels[1] >= self.channels[0]:
            return ""
        return f"{self.channels[1]} channels carry the data, {self.channels[0]} in the baseline"


def cause(seen: Seen) -> str:
    """One sentence or a few: of the first rule that holds. Empty where nothing moved."""
    words = next((words(seen) for holds, words in _RULES if holds(seen)), "")
    settings = f"{', '.join(seen.settings)} is set in the candidate alone" if words and seen.settings else ""
    return "; ".join(filter(None, (words, settings)))


def _fell_back(seen: Seen) -> str:
    way = "over TCP sockets" if seen.sockets else " and ".join(sorted(_INSTEAD[kind] for kind in seen.kinds))
    return (
        f"the transport fell back: data goes {way}, in the baseline it did not; look at NCCL_P2P_DISABLE, "
        "NCCL_SHM_DISABLE, NCCL_IB_DISABLE, the IOMMU and ACS, and whether the network plugin is found"
    )


def _collapsed(seen: Seen) -> str:
    if seen.fewer:
        return f"bandwidth is {seen.factor:.0f} times lower: {seen.fewer}; {_LOOK_LINKS}"
    return (
        f"bandwidth is {seen.factor:.0f} times lower: more than a lost link costs, as when the transport falls back to "
        "host memory (SHM) or TCP, or one channel is left; run again with NCCL_DEBUG=INFO to see over what the data goes"
    )


def _lost(seen: Seen) -> str:
    half = ", about half of them" if 1.7 < seen.factor < 2.4 else ""
    return f"bandwidth is lost and latency is intact: {seen.fewer or f'channels, rails or links are missing{half}'}; {_LOOK_LINKS}"


_RULES: tuple[tuple[Callable[[Seen], bool], Callable[[Seen], str]], ...] = (
    (lambda seen: bool(seen.kinds) or seen.sockets, _fell_back),
    (lambda seen: seen.factor >= FALL_BACK, _collapsed),
    (
        lambda seen: seen.floor and seen.factor > 1 and seen.unsteady,
        lambda _: (
            "everything is slower and unsteady: something else uses the same GPUs, links or CPUs; look at other jobs "
            "on these nodes and on the same switches"
        ),
    ),
    (lambda seen: seen.factor > 1 and not seen.floor, _lost),
    (
        lambda seen: seen.factor > 1,
        lambda _: (
            "latency and bandwidth are both worse, steadily: look at clocks and power limits of GPUs and CPUs "
            "(`nvidia-smi -q -d PERFORMANCE,CLOCK`), and at a change of driver, NCCL or algorithm"
        ),
    ),
    (
        lambda seen: seen.floor,
        lambda _: (
            "latency is up and bandwidth intact: another protocol (NCCL_PROTO, NCCL_ALGO), slower CPUs (governor, "
            "affinity), or the interrupt path"
        ),
    ),
    (
        lambda seen: Part.KNEE in seen.slower or bool(seen.sizes),
        lambda _: (
            "only some sizes are slower: NCCL chooses another protocol or algorithm there; compare NCCL's version and "
            "tuner, NCCL_PROTO and NCCL_ALGO, and its log with NCCL_DEBUG_SUBSYS=TUNING"
        ),
    ),
    (
        lambda seen: seen.unsteady,
        lambda _: "times scatter more than they did: something else uses the same GPUs, links or CPUs now and then",
    ),
)
