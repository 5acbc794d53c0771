"""The GPUs that tests pretend: real code finds them by NVML, on the bus and by torch, and takes them for what they say."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from fake_gpus import DRIVER, FakeGpus

pytestmark = pytest.mark.slow  # a compiler runs, and torch is imported

ASK = """
import json, torch
from surefoot.node.facts import gpus, software
from surefoot.node.pci import gpus_on_bus
print(json.dumps({
    "bus": len(gpus_on_bus()), "gpus": gpus.gpus(), "driver": software.driver(), "versions": gpus.driver_versions(),
    "torch": software.torch_gpus(), "tensor": torch.ones(2, device=torch.device("cuda", 1)).tolist(),
}))
"""


def asked(fake: FakeGpus, **env: str) -> Any:
    done = subprocess.run(
        [fake.python(), "-c", ASK], capture_output=True, text=True, check=True, env={**os.environ, **env}
    )
    return json.loads(done.stdout)


def test_eight_gpus_are_told_by_the_bus_the_driver_and_torch_alike(tmp_path: Path) -> None:
    fake, host = FakeGpus(tmp_path / "fake"), socket.gethostname()
    fake.node(host)
    found = asked(fake)
    assert found["bus"] == 8
    assert [gpu["uuid"]["value"] for gpu in found["gpus"]] == [f"GPU-{host}-{i}" for i in range(8)]
    assert [gpu["uuid"] for gpu in found["torch"]] == [f"{host}-{i}" for i in range(8)]
    assert {found["driver"], found["versions"]["driver"]} == {DRIVER}
    unread = {name for gpu in found["gpus"] for name, fact in gpu.items() if "unknown" in fact}
    assert unread == {"serial", "fabric"}
    assert found["tensor"] == [1.0, 1.0]


def test_a_gpu_that_the_driver_lost_is_still_on_the_bus_and_a_rank_sees_what_it_is_shown(tmp_path: Path) -> None:
    fake = FakeGpus(tmp_path / "fake")
    fake.node(socket.gethostname(), missing=[3])
    found = asked(fake, CUDA_VISIBLE_DEVICES="5,2")
    assert (found["bus"], len(found["gpus"])) == (8, 7)
    assert [gpu["uuid"].rsplit("-", 1)[1] for gpu in found["torch"]] == ["6", "2"]
