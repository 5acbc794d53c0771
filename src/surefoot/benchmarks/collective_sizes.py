"""Sizes, shapes and bandwidths of collectives, as nccl-tests defines them. Standard library only:
ranks and judges share it.

The size S of a message is (https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md):

=============== ======================================================= =================
collective      S is the bytes of …                                     busbw / algbw
=============== ======================================================= =================
all_reduce      the buffer of each rank (sent and received)             2 (n − 1) / n
all_gather      the gathered result of each rank                        (n − 1) / n
reduce_scatter  the input of each rank                                  (n − 1) / n
alltoall        what each rank sends to all ranks together              (n − 1) / n
broadcast       the buffer                                              1
sendrecv        what each rank sends to its right neighbour             1
=============== ======================================================= =================

algbw = S / time; busbw = algbw × the factor: the rate of the busiest link, whatever n is.
"""

from __future__ import annotations

ELEMENT_BYTES = 4
"""float32, the default of nccl-tests."""

SPLIT = ("all_gather", "reduce_scatter", "alltoall")
"""Collectives whose message is cut into one equal part for each rank."""


def busbw_factor(collective: str, world_size: int) -> float:
    """Ratio busbw / algbw. Raises KeyError for an unknown collective."""
    n = world_size
    return {
        "all_reduce": 2 * (n - 1) / n,
        "all_gather": (n - 1) / n,
        "reduce_scatter": (n - 1) / n,
        "alltoall": (n - 1) / n,
        "broadcast": 1.0,
        "sendrecv": 1.0,
    }[collective]


def part_count(collective: str, size_bytes: int, world_size: int) -> int:
    """Elements of one part of a message of `size_bytes`: the whole message where it is not split."""
    parts = world_size if collective in SPLIT else 1
    return max(1, size_bytes // (ELEMENT_BYTES * parts))


def message_bytes(collective: str, size_bytes: int, world_size: int) -> int:
    """The size nearest below `size_bytes` that is whole parts; at least one element in each part."""
    parts = world_size if collective in SPLIT else 1
    return part_count(collective, size_bytes, world_size) * parts * ELEMENT_BYTES


def result_count(collective: str, size_bytes: int, world_size: int) -> int:
    """Elements of the result on one rank: what a correctness check looks at."""
    count = part_count(collective, size_bytes, world_size)
    return count * world_size if collective in ("all_gather", "alltoall") else count


def sweep(collective: str, minimum: int, maximum: int, factor: int, world_size: int) -> list[int]:
    """Message sizes in bytes from `minimum` by `factor`; `maximum` is always among them, once."""
    asked = []
    size = minimum
    while size < maximum:
        asked.append(size)
        size *= factor
    asked.append(maximum)
    return sorted({message_bytes(collective, size, world_size) for size in asked})


def algbw_gb_s(size_bytes: int, time_us: float) -> float:
    """Decimal GB/s of `size_bytes` in `time_us`."""
    return size_bytes / time_us / 1e3
