"""Distinct devices are proved by identity, not by index."""

from __future__ import annotations

from typing import Any

from surefoot.benchmarks.device import Device, device_problems


def gpu(index: int, uuid: str, **changes: Any) -> Device:
    base: dict[str, Any] = {
        "kind": "cuda", "index": index, "name": "NVIDIA H200", "uuid": uuid, "pci_bus_id": f"0000:{index:02x}:00",
        "memory_bytes": 1, "torch": "2.13.0", "cuda": "13.0", "nccl": "2.30.1", "threads": 1,
    }  # fmt: skip
    return Device.model_validate({**base, **changes})


def two(first: Device, second: Device) -> list[tuple[str, str, int, Device]]:
    return [("rank 0", "a", 0, first), ("rank 1", "a", 1, second)]


def test_two_gpus_of_one_host_are_fine() -> None:
    assert device_problems(two(gpu(0, "A"), gpu(1, "B")), "cuda") == []


def test_ranks_that_see_one_gpu_each_call_it_0_and_it_must_still_be_another() -> None:
    bound = gpu(0, "B", pci_bus_id="0000:01:00")
    assert device_problems(two(gpu(0, "A"), bound), "cuda") == []
    assert "same GPU" in device_problems(two(gpu(0, "A"), gpu(0, "A")), "cuda")[0]


def test_an_index_that_is_neither_its_own_nor_the_only_one_shows() -> None:
    assert "rank 1 used cuda:2, its local rank is 1" in device_problems(two(gpu(0, "A"), gpu(2, "B")), "cuda")


def test_the_same_uuid_under_two_indices_is_one_gpu() -> None:
    assert "same GPU" in device_problems(two(gpu(0, "A"), gpu(1, "A")), "cuda")[0]


def test_the_same_bus_id_on_one_host_is_one_gpu_and_on_two_hosts_is_two() -> None:
    first, second = gpu(0, "A"), gpu(1, "B", pci_bus_id="0000:00:00")
    assert "same GPU" in device_problems(two(first, second), "cuda")[0]
    elsewhere = [("rank 0", "a", 0, first), ("rank 1", "b", 0, gpu(0, "B"))]
    assert device_problems(elsewhere, "cuda") == []


def test_a_quiet_fall_back_to_the_cpu_shows() -> None:
    cpu = gpu(0, "A").model_copy(
        update={"kind": "cpu", "index": None, "uuid": None, "name": None, "pci_bus_id": None, "memory_bytes": None}
    )
    assert len(device_problems(two(cpu, cpu), "cuda")) == 2
    assert device_problems(two(cpu, cpu), "cpu") == []


def test_a_gpu_without_identity_proves_nothing() -> None:
    assert "does not say" in device_problems(two(gpu(0, "A"), gpu(1, "B").model_copy(update={"uuid": None})), "cuda")[0]


def test_ranks_with_unequal_software_show() -> None:
    assert "differ in torch" in device_problems(two(gpu(0, "A"), gpu(1, "B", torch="2.12.0")), "cuda")[0]
