"""What nccl-tests prints, by version, made up: tables of any collective with the columns and words of that version."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from surefoot.benchmarks.collective_sizes import busbw_factor

GOLDEN = Path(__file__).parent / "golden" / "nccl_tests" / "h200-x2"
"""Captures of nccl-tests 2.19.6 on two H200."""
_REDUCE = ("all_reduce", "reduce_scatter")


@dataclass(frozen=True)
class Printed:
    """One test, as a version prints it."""

    collective: str = "all_reduce"
    world: int = 2
    sizes: tuple[int, ...] = (1024, 2048, 4096, 8192)
    times_us: tuple[float, ...] = (21.51, 23.02, 30.13, 44.44)
    style: str = "2.19"
    """1.x, 2.0, 2.13 or 2.19."""
    wrong: str = "0"
    spread: bool = False
    stamped: bool = False
    hosts: Sequence[str] = ("n1",)
    max_bytes: int | None = None
    """As the banner has it; the largest size where it is None."""
    bounds: str = "0 OK"
    notes: Sequence[str] = field(default=())
    """Lines before the table."""

    def text(self) -> str:
        """All of it."""
        return "\n".join([*self.head(), *self.rows(), *self.foot()]) + "\n"

    def head(self) -> list[str]:
        old = self.style == "1.x"
        more = {"1.x": "", "2.0": "", "2.13": " agg iters: 1", "2.19": " agg iters: 1"}[self.style]
        end = {"1.x": " ", "2.0": " ", "2.13": " graph: 0", "2.19": " graph: 0 unalign: 0"}[self.style]
        most = self.max_bytes or self.sizes[-1]
        lines = []
        if self.style == "2.19":
            lines += ["# nccl-tests version 2.19.6 nccl-headers=22809 nccl-library=22809"]
            lines += [f"# Collective test starting: {self.collective}_perf"]
        banner = f"nThread 1 nGpus 1 minBytes {self.sizes[0]} maxBytes {most} step: 2(factor)"
        lines += [f"{'' if old else '# '}{banner} warmup iters: 5 iters: 20{more} validation: 1{end}", "#"]
        lines += ["# Using devices"]
        for rank in range(self.world):
            host, group = self.hosts[rank % len(self.hosts)], " Group  0" if self.style in ("2.13", "2.19") else ""
            pci = f"0x{27 + rank:02x}" if self.style != "2.19" else f"0000:{27 + rank:02x}:00"
            lines += [f"#  Rank {rank:2}{group} Pid {4000 + rank:6} on {host:>10} device {rank:2} [{pci}] A GPU"]
        return [*lines, "#", *self.notes, self._header()]

    def _header(self) -> str:
        last = " ".join(self._columns())
        stamp = "  timestamp" if self.stamped else ""
        return f"#  {' '.join(self._first())}  {last}  {last}{stamp}"

    def _first(self) -> list[str]:
        if self.style == "1.x":
            return ["bytes", "N", "type", "op"] if self.collective in _REDUCE else ["bytes", "N", "type"]
        if self.style == "2.0":
            redop = ["redop"] if self.collective in (*_REDUCE, "alltoall") else []
            return ["size", "count", "type", *redop, *(["root"] if self.collective == "broadcast" else [])]
        return ["size", "count", "type", "redop", "root"]

    def _columns(self) -> list[str]:
        last = {"1.x": "res", "2.0": "error", "2.13": "#wrong", "2.19": "#wrong"}[self.style]
        return ["time", "algbw", "busbw", last, *(["i_min", "i_max", "i_p99", "i_cv%"] if self.spread else [])]

    def rows(self) -> list[str]:
        return [self._row(size, time) for size, time in zip(self.sizes, self.times_us, strict=True)]

    def _row(self, size: int, time_us: float) -> str:
        words = {"size": str(size), "bytes": str(size), "count": str(size // 4), "N": str(size // 4), "type": "float"}
        reduces = self.collective in _REDUCE
        blank = self.style == "2.0" and not reduces
        words |= {"op": "sum", "redop": "sum" if reduces else "" if blank else "none"}
        words |= {"root": "0" if self.collective == "broadcast" else "-1"}
        first = [words[name].rjust(12) for name in self._first()]
        halves = [self._half(size, time_us, in_place) for in_place in (False, True)]
        return " ".join([*first, *halves, *(["2026-11-30", "20:00:00"] if self.stamped else [])])

    def bandwidths(self, size: int, time_us: float) -> tuple[float, float]:
        """GB/s of the algorithm and of the bus, as printed."""
        algbw = size / 1e3 / time_us
        return round(algbw, 2), round(algbw * busbw_factor(self.collective, self.world), 2)

    def _half(self, size: int, time_us: float, in_place: bool) -> str:
        algbw, busbw = self.bandwidths(size, time_us)
        time = f"{time_us / 1000:.5f}" if self.style == "1.x" else f"{time_us:.2f}"
        wrong = "N/A" if in_place and self.collective in ("alltoall", "sendrecv") else self.wrong
        spread = [f"{time_us - 1:.2f}", f"{time_us + 1:.2f}", f"{time_us + 0.9:.2f}", "3.10"] if self.spread else []
        return " ".join([time.rjust(9), f"{algbw:7.2f}", f"{busbw:7.2f}", wrong, *spread])

    def foot(self) -> list[str]:
        bus = [self.bandwidths(*row)[1] for row in zip(self.sizes, self.times_us, strict=True)]
        mark = "" if self.style == "1.x" else "#"
        lines = [f"{mark} Out of bounds values : {self.bounds}"]
        return [*lines, f"{mark} Avg bus bandwidth    : {sum(bus) / len(bus):g} ", f"{mark}"]
