"""Compute: every device multiplies matrices right, the same way twice, at a known speed."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any, ClassVar

from pydantic import Field

from surefoot.benchmarks.device import Device, device_problems
from surefoot.benchmarks.gemm import Copy, Product, bandwidth_gb_s, sample_problems, tflops
from surefoot.errors import EvidenceError
from surefoot.model.check import Check
from surefoot.model.ladder import Compute as ComputeSpec
from surefoot.model.measurement import Fingerprint, Measurement
from surefoot.model.run import JobsStep, Judgement
from surefoot.rungs.base import Asked, PlanContext, Rung, View, layout
from surefoot.rungs.judging import RankData, Said, decide, said, shorten
from surefoot.rungs.precheck import fingerprint_below
from surefoot.rungs.threads import cpus_per_rank
from surefoot.units import MIB

DTYPES = {"cpu": ("float32",), "cuda": ("float32", "tf32", "bf16")}
"""On a CPU only float32: bf16 there is emulated on older CPUs, some fifty times slower."""
MATRIX_SIZE = {"cpu": 1024, "cuda": 8192}
COPY_BYTES = {"cpu": 64 * MIB, "cuda": 1024 * MIB}
"""Well above the last-level cache, so that it is memory that is measured."""
SAMPLES = 32


class Computed(RankData):
    """What ``surefoot.node.compute`` reports."""

    device: Device
    products: tuple[Product, ...] = Field(min_length=1)
    copied: Copy = Field(alias="copy")


Facts = tuple[Said[Computed], ...]


class Compute(Rung[ComputeSpec, Facts]):
    """One rank on each device."""

    name: ClassVar[str] = "compute"
    title: ClassVar[str] = "Compute"
    proves: ClassVar[str] = (
        "Every device computes right and repeatably, at a known speed; like devices, where there are two, run alike."
    )
    uses: ClassVar[tuple[str, ...]] = ("cluster", "package")

    def plan(self, context: PlanContext[ComputeSpec]) -> Asked:
        spec = context.spec
        where = layout(context.cluster, spec)
        size = MATRIX_SIZE[where.device] if spec.matrix_size == "auto" else spec.matrix_size
        request: dict[str, Any] = {
            "device": where.device,
            "matrix_size": size,
            "dtypes": list(DTYPES[where.device]),
            "seconds": spec.seconds,
            "samples": SAMPLES,
            "copy_bytes": COPY_BYTES[where.device],
        }
        cpus = cpus_per_rank(context.cluster, where)
        # cuBLAS promises bit-equal results on one stream only with a fixed workspace.
        env = {"OMP_NUM_THREADS": str(cpus), "MKL_NUM_THREADS": str(cpus), "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
        job = context.job(
            "compute", "surefoot.node.compute", request, where, cpus_per_rank=cpus, exclusive=True, env=env
        )
        expect = {"world_size": where.world_size, "max_spread": spec.max_spread, **request}
        return Asked(steps=(JobsStep(jobs=(job,)),), expect=expect)

    def read(self, view: View) -> Facts:
        expect = view.expect
        ranks = said(view.evidence, "compute", Computed)
        for rank in ranks:
            asked, found = expect["dtypes"], [product.dtype for product in rank.data.products]
            if found != asked:
                raise EvidenceError(f"products of {found}, asked for were {asked}", file=rank.file)
            for product in rank.data.products:
                problem = product.impossible(expect["matrix_size"], expect["samples"], expect["seconds"], rank.rank)
                if problem:
                    raise EvidenceError(f"{product.dtype}: {problem}", file=rank.file)
            problem = rank.data.copied.impossible(expect["copy_bytes"])
            if problem:
                raise EvidenceError(f"copy: {problem}", file=rank.file)
        return ranks

    def judge(self, facts: Facts, view: View) -> Judgement:
        checks = [_devices(facts, view)]
        for rank in facts:
            for product in rank.data.products:
                checks += [_right(rank, product, view), _exact(rank, product, view), _repeatable(rank, product, view)]
            checks.append(_copied(rank, view))
        spreads = [check for dtype in view.expect["dtypes"] for check in _spreads(dtype, facts, view)]
        checks += spreads
        device = facts[0].data.device
        fingerprint = fingerprint_below(
            view,
            device=device.name or device.kind,
            threads=str(device.threads),
            matrix_size=str(view.expect["matrix_size"]),
            world_size=str(len(facts)),
        )
        return Judgement(
            checks=tuple(checks),
            measurements=_measurements(facts, fingerprint),
            fingerprint=fingerprint,
            # Nothing is shown about likeness where there is nothing alike: a reader is told so.
            summary=_summary(facts) + ("" if spreads else "; no two like devices to compare"),
            details={"devices": [_row(rank) for rank in facts], "compared": bool(spreads)},
        )


def _devices(facts: Facts, view: View) -> Check:
    wanted = view.expect["device"]
    problems = device_problems([(r.where, r.report.host, r.report.local_rank, r.data.device) for r in facts], wanted)
    if len(facts) != view.expect["world_size"]:
        problems.append(f"{len(facts)} ranks answered")
    return decide(
        "compute.devices",
        "every rank computed on a GPU of its own" if wanted == "cuda" else "every rank computed on the CPU, as asked",
        not problems,
        expected=f"{view.expect['world_size']} × {wanted}",
        actual=shorten(problems) or ", ".join(r.data.device.shown for r in facts),
        evidence=tuple(view.evidence.ref(r.file, text=r.data.device.uuid or r.data.device.kind) for r in facts),
        next_action="look at CUDA_VISIBLE_DEVICES and the scheduler's GPU binding",
    )


def _right(rank: Said[Computed], product: Product, view: View) -> Check:
    problems = sample_problems(product)
    return decide(
        f"compute.rank{rank.rank}.{product.dtype}.samples",
        f"{rank.where}: {len(product.samples)} sampled entries of a {product.dtype} product lie within rounding of float64",
        not problems,
        expected="|value − reference| ≤ bound",
        actual=shorten(problems) or f"all {len(product.samples)}",
        evidence=(view.evidence.ref(rank.file, text=shorten(problems)),),
        derivation=(
            "bound = (n·u_sum + 2·u_in)·Σ|a·b| + u_out·|reference|; u_sum = 2⁻²³ (truncating float32 sums), "
            "u_in = 2⁻¹⁰ for tf32, u_out = 2⁻⁸ for bf16"
        ),
        next_action=f"this device computes wrong: drain {rank.report.host}, run the vendor's diagnostics (dcgmi diag -r 3)",
    )


def _exact(rank: Said[Computed], product: Product, view: View) -> Check:
    wrong = product.exact_rows_wrong
    return decide(
        f"compute.rank{rank.rank}.{product.dtype}.exact",
        f"{rank.where}: every row of an integer {product.dtype} product is exactly right",
        wrong == 0,
        expected=0,
        actual=wrong,
        unit=f"of {product.exact_rows} rows wrong",
        evidence=(view.evidence.ref(rank.file, text=f"{product.dtype}: exact_rows_wrong {wrong}"),),
        derivation="Freivalds: (A·B)·x = A·(B·x) for 16 vectors of ±1; entries of −1, 0, 1 leave no rounding",
        next_action=f"this device computes wrong: drain {rank.report.host}, run the vendor's diagnostics (dcgmi diag -r 3)",
    )


def _repeatable(rank: Said[Computed], product: Product, view: View) -> Check:
    same = product.digest_before == product.digest_after
    return decide(
        f"compute.rank{rank.rank}.{product.dtype}.repeatable",
        f"{rank.where}: the same {product.dtype} product before and after {product.wall_s:.1f} s of load is bit-equal",
        same,
        expected=product.digest_before,
        actual=product.digest_after,
        evidence=(view.evidence.ref(rank.file, text=f"{product.dtype}: {product.digest_after}"),),
        next_action=f"results change under load: heat, power or memory on {rank.report.host}; run the vendor's diagnostics",
    )


def _copied(rank: Said[Computed], view: View) -> Check:
    copy = rank.data.copied
    return decide(
        f"compute.rank{rank.rank}.copy",
        f"{rank.where}: a copy within the device's memory equals its source",
        copy.equal,
        expected="equal",
        actual="equal" if copy.equal else "different",
        evidence=(view.evidence.ref(rank.file, text=f"{bandwidth_gb_s(copy):.1f} GB/s read and written"),),
        next_action=f"memory of this device loses data: check ECC counters on {rank.report.host}",
    )


def _rate(rank: Said[Computed], dtype: str) -> float:
    return tflops(next(product for product in rank.data.products if product.dtype == dtype))


def _spreads(dtype: str, facts: Facts, view: View) -> list[Check]:
    """One check for each kind of device that there are two or more of.

    CPU ranks of one host share one device: what differs between them is who else was using it.
    """
    kinds: dict[str, list[Said[Computed]]] = {}
    seen_cpus: set[str] = set()
    for rank in facts:
        if rank.data.device.kind == "cpu":
            if rank.report.host in seen_cpus:
                continue
            seen_cpus.add(rank.report.host)
        kinds.setdefault(rank.data.device.name or rank.data.device.kind, []).append(rank)
    return [_spread(dtype, kind, ranks, view) for kind, ranks in sorted(kinds.items()) if len(ranks) > 1]


def _spread(dtype: str, kind: str, ranks: Sequence[Said[Computed]], view: View) -> Check:
    rates = sorted((_rate(rank, dtype), rank.rank, rank) for rank in ranks)
    slowest, fastest = rates[0], rates[-1]
    spread = (fastest[0] - slowest[0]) / fastest[0]
    most = float(view.expect["max_spread"])
    return decide(
        f"compute.{dtype}.spread.{kind.replace(' ', '_')}",
        f"{len(ranks)} like devices ({kind}) differ by at most {most:.0%} in {dtype}",
        spread <= most,
        expected=most,
        actual=round(spread, 4),
        unit="share of the fastest",
        evidence=tuple(view.evidence.ref(rank.file, text=f"{rate:.4g} TFLOP/s") for rate, _, rank in rates),
        derivation=(
            f"(fastest − slowest) / fastest = ({fastest[0]:.4g} − {slowest[0]:.4g}) / {fastest[0]:.4g}; "
            "max_spread of the ladder"
        ),
        next_action=f"{slowest[2].where} is the slow one: look at its clocks, power cap, temperature and neighbours",
    )


def _measurements(facts: Facts, fingerprint: Fingerprint) -> tuple[Measurement, ...]:
    rows = []
    common: dict[str, Any] = {"world_size": len(facts), "fingerprint": fingerprint.content_digest()}
    for rank in facts:
        labels = {"rank": str(rank.rank), "host": rank.report.host, "device": rank.data.device.shown}
        for product in rank.data.products:
            more = {**labels, "dtype": product.dtype}
            rows.append(Measurement(metric="tflops", value=tflops(product), unit="TFLOP/s", labels=more, **common))
        rate, size = bandwidth_gb_s(rank.data.copied), rank.data.copied.bytes
        rows.append(
            Measurement(metric="copy_bandwidth", value=rate, unit="GB/s", size_bytes=size, labels=labels, **common)
        )
    return tuple(rows)


def _summary(facts: Facts) -> str:
    parts = []
    for product in facts[0].data.products:
        rate = statistics.median(_rate(rank, product.dtype) for rank in facts)
        parts.append(f"{product.dtype} {rate:.3g} TFLOP/s")
    copy = statistics.median(bandwidth_gb_s(rank.data.copied) for rank in facts)
    return f"{', '.join(parts)}, copy {copy:.3g} GB/s per rank"


def _row(rank: Said[Computed]) -> dict[str, Any]:
    return {
        "rank": rank.rank,
        "host": rank.report.host,
        "device": rank.data.device.shown,
        "threads": rank.data.device.threads,
        **{f"{p.dtype}_tflop_s": round(tflops(p), 4) for p in rank.data.products},
        "copy_gb_s": round(bandwidth_gb_s(rank.data.copied), 2),
    }


RUNG = Compute()
