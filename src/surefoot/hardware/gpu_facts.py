"""Facts of one GPU as records: what ``surefoot.node.facts.gpus`` reports."""

from __future__ import annotations

from surefoot.hardware.fact import Fact, Natural, Positive, TextFact
from surefoot.model.base import Record


class Mode(Record):
    """A switch that takes a reset to change."""

    current: bool
    pending: bool
    """What it will be after the next reset."""


class RemappedRows(Record):
    """Rows of memory that were replaced by spare ones."""

    correctable: Natural
    uncorrectable: Natural
    pending: Natural
    """1: a replacement waits for a reset."""
    failed: Natural
    """1: a replacement failed; the GPU's memory is no longer to be trusted."""


class Gpu(Record):
    """One GPU as NVML sees it. Clocks in MHz, power in W, temperature in °C, memory in bytes."""

    name: TextFact
    uuid: TextFact
    serial: TextFact
    pci_bus_id: TextFact
    numa_node: Fact[Natural]
    cpus: TextFact
    """CPUs next to it, as the kernel lists them."""
    memory_bytes: Fact[Positive]
    """Unknown on GPUs that share the host's memory."""
    vbios: TextFact
    ecc: Fact[Mode]
    ecc_corrected_volatile: Fact[Natural]
    ecc_corrected_aggregate: Fact[Natural]
    ecc_uncorrected_volatile: Fact[Natural]
    ecc_uncorrected_aggregate: Fact[Natural]
    remapped_rows: Fact[RemappedRows]
    sm_clock_mhz: Fact[Natural]
    sm_clock_max_mhz: Fact[Natural]
    memory_clock_mhz: Fact[Natural]
    memory_clock_max_mhz: Fact[Natural]
    clock_reasons: Fact[tuple[str, ...]]
    """Why clocks are held down now; empty: they are not."""
    temperature_c: Fact[int]
    power_limit_w: Fact[float]
    power_limit_default_w: Fact[float]
    pcie_generation: Fact[Natural]
    """Now: an idle GPU may have let it fall."""
    pcie_generation_max: Fact[Natural]
    pcie_width: Fact[Natural]
    pcie_width_max: Fact[Natural]
    pcie_replays: Fact[Natural]
    nvlinks: Fact[tuple[bool, ...]]
    """Each link's state; empty: there are none."""
    fabric: TextFact
    mig: Fact[Mode]
    persistence: Fact[bool]
    compute_mode: TextFact
    processes: Fact[tuple[int, ...]]
    """Process ids that compute on it."""
