"""Matrix products and copies as records, and what follows from their raw values. Pure."""

from __future__ import annotations

import statistics

from pydantic import Field

from surefoot.benchmarks.positions import sample_positions
from surefoot.model.base import Record

SUM_ROUNDOFF = 2.0**-23
"""Relative error of one addition in float32 when it truncates, as tensor cores may; rounding has half."""
INPUT_ROUNDOFF = {"float32": 0.0, "tf32": 2.0**-10, "bf16": 0.0}
"""Relative error of an input as the device sees it: TF32 keeps ten bits; bf16 inputs are bf16 already."""
OUTPUT_ROUNDOFF = {"float32": 2.0**-24, "tf32": 2.0**-24, "bf16": 2.0**-8}

_DIGEST = "^[0-9a-f]{64}$"


class Sample(Record):
    """One entry of a product: its value, its float64 reference, and Σ|a·b| over its terms."""

    row: int = Field(ge=0)
    column: int = Field(ge=0)
    value: float
    reference: float
    magnitude: float = Field(gt=0)


class Sustained(Record):
    """Something run over and over: seconds of one run, averaged in batches."""

    batch: int = Field(ge=1)
    times_s: tuple[float, ...] = Field(min_length=1)
    wall_s: float = Field(gt=0)

    def impossible_times(self) -> str:
        """Why the times cannot be; empty when they can."""
        if min(self.times_s) <= 0:
            return f"a time of {min(self.times_s)} s is none"
        total = self.batch * sum(self.times_s)
        # Little happens between two batches: the batches fill the wall time, and never exceed it.
        if not 0.8 * self.wall_s <= total <= 1.01 * self.wall_s:
            return f"batches add up to {total:.3f} s within {self.wall_s:.3f} s"
        return ""


class Product(Sustained):
    """A square product of one dtype, sustained."""

    dtype: str
    size: int = Field(ge=1)
    digest_before: str = Field(pattern=_DIGEST)
    digest_after: str = Field(pattern=_DIGEST)
    samples: tuple[Sample, ...]
    exact_rows: int
    exact_rows_wrong: int = Field(ge=0)

    def impossible(self, size: int, samples: int, seconds: float, rank: int) -> str:
        """Why this is not what was asked for, or cannot be; empty when it can."""
        if self.size != size or self.exact_rows != size:
            return f"size {self.size}, {self.exact_rows} rows checked; asked for was {size}"
        if [(sample.row, sample.column) for sample in self.samples] != sample_positions(size, samples, rank):
            return f"the {len(self.samples)} samples are not the {samples} entries of this rank"
        if any(abs(sample.reference) > sample.magnitude * (1 + 1e-9) for sample in self.samples):
            return "a reference is larger than the sum of its terms' magnitudes"
        # Terms are products of two standard normal numbers: the mean magnitude is 2/π. Four is far off.
        if any(sample.magnitude > 4 * size for sample in self.samples):
            return "the terms of a sample are larger than its data can be"
        if self.wall_s < seconds:
            return f"sustained for {self.wall_s:.3f} s, asked for were {seconds:g} s"
        return self.impossible_times()


class Copy(Sustained):
    """Copies within a device's memory."""

    bytes: int = Field(ge=1)
    equal: bool

    def impossible(self, size_bytes: int) -> str:
        """Why this is not what was asked for, or cannot be; empty when it can."""
        if self.bytes != size_bytes:
            return f"{self.bytes} bytes, asked for were {size_bytes}"
        return self.impossible_times()


def tflops(product: Product) -> float:
    """TFLOP/s: 2 n³ operations in the median time."""
    return 2 * product.size**3 / statistics.median(product.times_s) / 1e12


def bandwidth_gb_s(copy: Copy) -> float:
    """Decimal GB/s of memory traffic: every byte is read once and written once."""
    return 2 * copy.bytes / statistics.median(copy.times_s) / 1e9


def sample_bound(product: Product, sample: Sample) -> float:
    """How far a value may lie from its float64 reference.

    Standard error of an inner product of n terms (Higham, Accuracy and Stability of Numerical
    Algorithms, §3.1): |fl(x·y) − x·y| ≤ n u Σ|x y| for any order of summation; rounded inputs add
    2 u_in Σ|x y|, a rounded output u_out |x y|.
    """
    inner = (product.size * SUM_ROUNDOFF + 2 * INPUT_ROUNDOFF[product.dtype]) * sample.magnitude
    return inner + OUTPUT_ROUNDOFF[product.dtype] * abs(sample.reference)


def sample_problems(product: Product) -> list[str]:
    """Sampled entries that lie outside their bound."""
    return [
        f"[{s.row}, {s.column}] is {s.value:.6g}, {s.reference:.6g} ± {sample_bound(product, s):.2g} is right"
        for s in product.samples
        if abs(s.value - s.reference) > sample_bound(product, s)
    ]
