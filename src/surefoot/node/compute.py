"""Matrix products and memory copies on one device: times, repeatability, sampled results. Needs torch.

``request.json``: ``{"device", "matrix_size", "dtypes": ["float32" | "tf32" | "bf16", …], "seconds",
"samples", "copy_bytes"}``. Nothing here decides whether a result is right: sampled entries are
reported with their float64 reference and magnitude, and the judge derives how far apart they may be.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from typing import Any

import torch

from surefoot.benchmarks.positions import sample_positions
from surefoot.node import program
from surefoot.node.group import device_facts, device_of
from surefoot.node.rank import Rank, say

PROGRAM = "surefoot.node.compute"
TORCH_DTYPES = {"float32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16}
BATCH_S = 0.01
"""Products are timed in batches of about this long, so that events and clocks cost nothing beside them."""


def set_precision(dtype: str) -> None:
    """Make float32 products mean float32, or TF32 where that is asked for; bf16 sums stay in float32."""
    torch.set_float32_matmul_precision("high" if dtype == "tf32" else "highest")
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False


def synchronize(device: torch.device) -> None:
    """Wait for the device; a CPU has nothing outstanding."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def sustain(work: Callable[[], Any], device: torch.device, seconds: float) -> dict[str, Any]:
    """Run `work` over and over for `seconds`: ``{"batch": k, "times_s": [per run], "wall_s"}``."""
    work()
    synchronize(device)
    begun = time.perf_counter()
    work()
    synchronize(device)
    batch = max(1, round(BATCH_S / max(time.perf_counter() - begun, 1e-7)))
    times: list[float] = []
    start = time.perf_counter()
    while not times or time.perf_counter() - start < seconds:
        begun = time.perf_counter()
        for _ in range(batch):
            work()
        synchronize(device)
        times.append((time.perf_counter() - begun) / batch)
    return {"batch": batch, "times_s": times, "wall_s": time.perf_counter() - start}


def digest(matrix: torch.Tensor) -> str:
    """sha256 (hex) over the bytes of a matrix."""
    return hashlib.sha256(matrix.cpu().contiguous().view(torch.uint8).numpy()).hexdigest()


def sampled(left: torch.Tensor, right: torch.Tensor, product: torch.Tensor, count: int, rank: int) -> list[Any]:
    """``count`` entries of the product: value, float64 reference, and Σ|a·b| for the error bound."""
    found = []
    for row, column in sample_positions(product.shape[0], count, rank):
        terms = left[row].double().cpu() * right[:, column].double().cpu()
        found.append(
            {
                "row": row, "column": column, "value": float(product[row, column]),
                "reference": float(terms.sum()), "magnitude": float(terms.abs().sum()),
            }
        )  # fmt: skip
    return found


def wrong_rows(size: int, dtype: torch.dtype, device: torch.device, generator: torch.Generator) -> int:
    """Rows of an exactly representable product that are wrong, over the whole matrix.

    Freivalds' check: (A·B)·x against A·(B·x), with x of ±1. A and B are sparse in {−1, 0, 1}, so
    every entry of A·B is a small integer that even bf16 holds exactly, in any order of summation,
    and the check's own float64 arithmetic is exact too. A wrong row escapes with probability ≤ 1/2
    for each x; sixteen are used.
    """

    def sparse() -> torch.Tensor:
        draw = torch.randint(0, 32, (size, size), generator=generator, device=device)
        return (draw == 0).to(dtype) - (draw == 1).to(dtype)

    left, right = sparse(), sparse()
    x = torch.randint(0, 2, (size, 16), generator=generator, device=device).double() * 2 - 1
    product = (left @ right).double() @ x
    expected = left.double() @ (right.double() @ x)
    return int((product != expected).any(dim=1).sum())


def product_of(dtype: str, rank: Rank, device: torch.device) -> dict[str, Any]:
    """One dtype: sustained products, the same product twice, sampled entries, the exact check."""
    set_precision(dtype)
    size = rank.request["matrix_size"]
    generator = torch.Generator(device=device)
    generator.manual_seed(1 + rank.rank)
    left, right = (
        torch.randn(size, size, generator=generator, device=device).to(TORCH_DTYPES[dtype]) for _ in range(2)
    )
    out = torch.empty(size, size, dtype=TORCH_DTYPES[dtype], device=device)
    torch.mm(left, right, out=out)
    first = digest(out)
    timing = sustain(lambda: torch.mm(left, right, out=out), device, rank.request["seconds"])
    second = digest(out)
    return {
        "dtype": dtype, "size": size, **timing, "digest_before": first, "digest_after": second,
        "samples": sampled(left, right, out, rank.request["samples"], rank.rank),
        "exact_rows": size, "exact_rows_wrong": wrong_rows(size, TORCH_DTYPES[dtype], device, generator),
    }  # fmt: skip


def copy_of(size_bytes: int, device: torch.device, seconds: float) -> dict[str, Any]:
    """Copying `size_bytes` within the device's memory: each copy reads and writes that many bytes."""
    source = torch.arange(size_bytes // 4, dtype=torch.int32, device=device)
    target = torch.zeros_like(source)
    timing = sustain(lambda: target.copy_(source), device, seconds)
    return {"bytes": source.numel() * 4, **timing, "equal": bool(torch.equal(source, target))}


def main(rank: Rank) -> None:
    """Products of every dtype asked for, then the copy."""
    device = device_of(rank)
    products = []
    for number, dtype in enumerate(rank.request["dtypes"]):
        rank.progress(number, len(rank.request["dtypes"]) + 1, dtype)
        products.append(product_of(dtype, rank, device))
        say(f"rank {rank.rank}: {dtype} done")
    copy = copy_of(rank.request["copy_bytes"], device, min(0.5, rank.request["seconds"]))
    rank.report({"rank": rank.rank, "device": device_facts(device), "products": products, "copy": copy})


if __name__ == "__main__":
    program.run(PROGRAM, main)
