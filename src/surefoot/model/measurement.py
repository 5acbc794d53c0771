"""A measurement and the fingerprint of what it was measured on."""

from __future__ import annotations

from pydantic import Field

from surefoot.model.base import Record


class Fingerprint(Record):
    """The facts that make two measurements comparable. Unlike fingerprints are not compared."""

    facts: dict[str, str]
    """Name to value: ``gpu``, ``driver``, ``nccl``, ``torch``, ``kernel``, ``cpu``, ``backend``, …"""


class Measurement(Record):
    """One figure, with what is needed to know what it means."""

    metric: str
    """Field's own name: ``busbw``, ``algbw``, ``time``, ``tflops``, ``copy_bandwidth``, …"""
    value: float | None
    """None where it was not measured: rendered as ``-``, never as 0.00."""
    unit: str
    """``GB/s`` (decimal), ``us``, ``TFLOP/s``, ``MB/s``, …"""
    labels: dict[str, str] = {}
    """What distinguishes it inside its rung: collective, dtype, device, direction, …"""
    size_bytes: int | None = Field(default=None, ge=0)
    """Message or file size."""
    world_size: int | None = Field(default=None, ge=1)
    repeat: int = Field(default=0, ge=0)
    fingerprint: str = ""
    """Digest of the Fingerprint that it was taken under."""
