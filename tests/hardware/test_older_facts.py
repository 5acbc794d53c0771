"""Runs that the first probe left can still be judged; a report that lacks a fact of today cannot."""

from __future__ import annotations

from typing import Any

import pytest

from node_views import known
from surefoot.hardware.facts import NodeFacts
from surefoot.hardware.older_facts import FIRST, NOT_LOOKED_FOR


def first() -> dict[str, Any]:
    """What the first probe reported of a node with two GPUs."""
    facts = dict.fromkeys(FIRST, known(1)) | dict.fromkeys(
        ("cpu", "kernel", "machine", "os", "python", "driver", "torch", "cuda", "nccl"), known("1.2")
    )
    smi = {"index": 0, "name": "NVIDIA H200", "uuid": "GPU-a", "pci_bus_id": "00000000:1B:00.0", "memory_mib": 143771}
    torch = {"name": "NVIDIA H200", "uuid": "a", "memory_bytes": 1}
    facts["gpus"] = known([smi, {**smi, "index": 1, "name": "NVIDIA GB10", "memory_mib": None}])
    return facts | {"own_name": known(["10.0.0.1"]), "torch_gpus": known([torch])}


def test_the_first_probes_facts_are_read_and_what_it_did_not_look_for_is_unknown() -> None:
    facts = NodeFacts.model_validate(first())
    assert facts.gpu_names == ("NVIDIA H200", "NVIDIA GB10")
    assert facts.gpus.value is not None
    assert [gpu.memory_bytes.value for gpu in facts.gpus.value] == [143771 * 1024**2, None]
    assert facts.gpus.value[0].vbios.unknown == NOT_LOOKED_FOR
    assert facts.clock.unknown == NOT_LOOKED_FOR


@pytest.mark.parametrize("name", ["clock", "hostname", "xids"])
def test_a_report_that_merely_lacks_a_fact_is_refused(name: str) -> None:
    whole = {key: {"value": None, "unknown": "because"} for key in NodeFacts.model_fields}
    NodeFacts.model_validate(whole)
    with pytest.raises(ValueError, match=name):
        NodeFacts.model_validate({key: value for key, value in whole.items() if key != name})
    with pytest.raises(ValueError, match="cores"):
        NodeFacts.model_validate({**first(), name: {"value": None, "unknown": "because"}})
