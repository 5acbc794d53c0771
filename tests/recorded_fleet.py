"""Telemetry of a fleet of eight-GPU nodes as the pre-check and the mesh would record it, with drifts planted in it.

Made up, in the form that the probe and the ranks write (the GPUs are a recorded H200, the networks a DGX's):
for what must be fast, small and true of 512 nodes × 8 ranks where nobody has them to hand.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import network_sites
from node_views import gpu, known, unknown
from rungs_harness import NONCE, RUN, planned
from surefoot.benchmarks.ddp_step import expected_step
from surefoot.benchmarks.mesh_steps import Phase, digest_text, summed_values
from surefoot.evidence import CODE_VARIABLE, Blob, EvidenceSet
from surefoot.hostlist import folded
from surefoot.model.job import JobSpec
from surefoot.rungs import mesh, precheck
from surefoot.rungs.base import View

Json = dict[str, Any]
GPUS = 8
JOB_ID = "4711"
BEGUN = 1_796_030_000.0

_SHARED = {
    "place": "/lustre", "kind": "lustre", "source": "10.208.0.1@tcp:/scratch", "options": ["rw", "flock", "lazystatfs"],
}  # fmt: skip
_NODE: Json = {
    "cpu": "Intel(R) Xeon(R) Platinum 8480C", "cpus": 224, "cpus_online": 224, "sockets": 2, "cores": 112,
    "numa_nodes": {"0": "0-55,112-167", "1": "56-111,168-223"}, "microcode": "0x2b000603", "memory_total": 2164130000000,
    "memory_available": 2000000000000, "memory_limit": None, "disk_free": 812_000_000_000_000, "kernel": "6.8.0-87-generic",
    "machine": "x86_64", "os": "Ubuntu 24.04.3 LTS", "memlock": 2**64 - 1, "nofile": 1048576, "processes": 8_000_000,
    "stack": 8388608, "cpu_quota": None, "cgroup_cpus": "0-223", "shared_memory": 1082065000000,
    "variables": {"NCCL_DEBUG": "WARN"},
    "root_mount": {**_SHARED, "free_bytes": 812 * 10**12, "total_bytes": 10**15, "free_inodes": 4 * 10**9},
    "mounts": [_SHARED],
    "clock": {"synchronised": True, "offset_s": 1e-5, "estimated_error_s": 1e-5, "greatest_error_s": 0.01},
    "python": "3.12.3", "interpreter": "/lustre/envs/0f1e/bin/python", "driver": "580.159.03",
    "driver_versions": {"driver": "580.159.03", "cuda": "13.0"}, "pci_gpus": GPUS, "xids": {}, "torch": "2.10.0+cu130",
    "cuda": "13.0", "nccl": "2.28.3", "nccl_library": {"file": "/lustre/envs/0f1e/libnccl.so.2", "version": "2.28.3"},
}  # fmt: skip


def nodes(count: int) -> dict[str, Json]:
    """Host → its facts, as its probe reports them; all alike."""
    site = network_sites.h100(count)
    reaches = {network.node: network.reach for network in site.nodes()}
    found = {}
    for number, host in enumerate(site.names):
        reach = reaches[host]
        assert reach is not None
        own = {
            "hostname": host, "slurm": {"SLURMD_NODENAME": host, "SLURM_JOB_ID": JOB_ID}, "boot_id": f"boot-{number}",
            "own_name": [f"10.0.{number >> 8}.{number & 255}"], "interfaces": site.interfaces[host],
            "routes": site.routes[host], "hcas": site.hcas[host], "reach": reach.canonical(),
            "gpus": [gpu(index, uuid=_uuid(host, index), serial=f"16538{number:04d}{index}") for index in range(GPUS)],
            "torch_gpus": [
                {"name": "NVIDIA H200", "uuid": _uuid(host, index), "memory_bytes": 150_000_000_000}
                for index in range(GPUS)
            ],
        }  # fmt: skip
        found[host] = copy.deepcopy({name: known(value) for name, value in {**_NODE, **own}.items()})
    return found


def _uuid(host: str, index: int) -> str:
    digest = hashlib.sha256(f"{host} {index}".encode()).hexdigest()
    return f"GPU-{digest[:8]}-{digest[8:12]}-{digest[12:16]}-{digest[16:20]}-{digest[20:32]}"


def _set(*names: str, value: Any) -> Callable[[Json], None]:
    def change(facts: Json) -> None:
        for name in names:
            facts[name] = known(value)

    return change


def _inside(name: str, key: str, value: Any) -> Callable[[Json], None]:
    return lambda facts: facts[name]["value"].update({key: value})


def _on_gpu(number: int, name: str, fact: Json) -> Callable[[Json], None]:
    return lambda facts: facts["gpus"]["value"][number].update({name: fact})


PLANTS: dict[str, Callable[[Json], None]] = {
    "driver": _set("driver", value="580.142"),
    "driver.library": _inside("driver_versions", "driver", "580.142"),
    "kernel": _set("kernel", value="6.8.0-85-generic"),
    "microcode": _set("microcode", value="0x2b000590"),
    "os": _set("os", value="Ubuntu 24.04.2 LTS"),
    "python": _set("python", value="3.12.1"),
    "nccl": _set("nccl", value="2.27.7"),
    "nccl.library": _inside("nccl_library", "version", "2.27.7"),
    "memlock": _set("memlock", value=65536),
    "memory_total": _set("memory_total", value=2027000000000),
    "shared_memory": _set("shared_memory", value=67108864),
    "clock.synchronised": _inside("clock", "synchronised", value=False),
    "root.options": _inside("root_mount", "options", ["rw", "lazystatfs"]),
    "variable NCCL_DEBUG": _inside("variables", "NCCL_DEBUG", "INFO"),
    "gpu3.vbios": _on_gpu(3, "vbios", known("96.00.99.00.01")),
    "gpu0.ecc": _on_gpu(0, "ecc", known({"current": False, "pending": False})),
    "gpu5.pcie_width": _on_gpu(5, "pcie_width", known(8)),
    "gpu6.nvlinks": _on_gpu(6, "nvlinks", known([True] * 17 + [False])),
    "gpu2.power_limit": _on_gpu(2, "power_limit_w", known(500.0)),
    "gpu7.persistence": _on_gpu(7, "persistence", known(value=False)),
}
"""Fact, as the drift matrix calls it → what makes a node differ in it and in nothing else that is compared."""
UNREADABLE = "NvmlError: no permission"


def planted(fleet: dict[str, Json], drifts: int, *, unreadable: int = 0) -> set[tuple[str, str]]:
    """Plant so many drifts, on a node each where there are enough, and facts that cannot be read. (host, fact) of the drifts."""
    hosts = list(fleet)
    found = set()
    for number in range(drifts):
        fact = list(PLANTS)[number % len(PLANTS)]
        host = hosts[(7 + number * 41) % len(hosts)]
        PLANTS[fact](fleet[host])
        found.add((host, fact))
    for number in range(unreadable):
        fleet[hosts[(3 + number * 29) % len(hosts)]]["gpus"]["value"][1]["fabric"] = unknown(UNREADABLE)
    return found


def precheck_view(fleet: Mapping[str, Json], root: Path) -> View:
    """The evidence of a pre-check of these nodes, in memory."""
    count = len(fleet)
    group = {
        "name": "hgx", "count": count, "hosts": folded(fleet), "gpus_per_node": GPUS, "gpu_model": "H200", "min_cpus": 1,
    }  # fmt: skip
    view = planned(precheck.RUNG, {"nodes": count}, root, node_groups=[group])
    request = view.evidence.job("precheck").request
    data = [
        {"rank": rank, "node": host, "root": request["root"], "facts": facts}
        for rank, (host, facts) in enumerate(fleet.items())
    ]
    return _with(view, "precheck", list(fleet), data, {})


def mesh_view(hosts: list[str], root: Path) -> View:
    """The evidence of a mesh of eight ranks on each of these hosts, in memory: all of them met and computed."""
    group = {"name": "hgx", "count": len(hosts), "gpus_per_node": GPUS, "gpu_model": "H200", "min_cpus": 1}
    asked = {"nodes": len(hosts), "ranks_per_node": GPUS}
    view = planned(mesh.RUNG, asked, root, node_groups=[group])
    seed, world = view.expect["seed"], len(hosts) * GPUS
    step, summed = expected_step(seed, world), summed_values(seed, world)
    digest = hashlib.sha256(digest_text(summed).encode()).hexdigest()
    took = {phase.name: 0.5 for phase in Phase}
    data, trails = [], {}
    for rank in range(world):
        host, local = hosts[rank // GPUS], rank % GPUS
        device = _device(host, local)
        placed = {
            "affinity": {"cpus": "0-55,112-167" if local < 4 else "56-111,168-223", "numa_nodes": known([str(local // 4)])},
            "limits": {}, "binding": {"SLURM_PROCID": str(rank)},
        }  # fmt: skip
        near = {"numa_node": known(local // 4), "cpus": known("0-55,112-167" if local < 4 else "56-111,168-223")}
        peers = [index for index in range(GPUS) if index != local]
        data.append({
            "rank": rank, "took_s": took, **placed, "near": near, "peers": peers,
            "step": {
                "rank": rank, "backend": view.expect["backend"], "world_size": world, "device": device,
                "parameter_device": f"cuda:{local}", "loss": step.losses[rank], "loss_sum": step.loss_sum,
                "weight_gradient": step.weight_gradient, "bias_gradient": step.bias_gradient,
                "weight_after": step.weight_after, "bias_after": step.bias_after, "parameter_digest": "0" * 64,
            },
            "summed": {"first": summed[:8], "digest": digest},
            "clocks": [{"at": BEGUN + 9 + n, "within_s": 0.0005} for n in range(7)],
        })  # fmt: skip
        trails[f"trail-{rank}.json"] = {
            "rank": rank, "local_rank": local, "world_size": world, "nonce": NONCE, "job_id": JOB_ID, "host": host,
            "slurm_node": host, "pid": 1000 + local, "facts": {**placed, "device": device, "near": near, "peers": peers},
            "phases": [{"name": p.name, "began": BEGUN + 2 + n, "took_s": 0.5, "problem": None} for n, p in enumerate(Phase)],
        }  # fmt: skip
    return _with(view, "mesh", hosts, data, trails)


def _device(host: str, local: int) -> Json:
    return {
        "kind": "cuda", "index": local, "name": "NVIDIA H200", "uuid": _uuid(host, local), "threads": 1, "cuda": "13.0",
        "pci_bus_id": f"0000:{0x10 + local:02x}:00", "memory_bytes": 150_000_000_000, "torch": "2.10.0", "nccl": "2.28.3",
    }  # fmt: skip


def _with(view: View, job: str, hosts: list[str], data: list[Json], more: Mapping[str, Json]) -> View:
    """The view with what its job, and each of its ranks, left."""
    spec: JobSpec = view.evidence.job(job)
    account = {
        "program": spec.argv[-1], "run": RUN, "nonce": NONCE, "job": job, "job_id": JOB_ID, "world_size": spec.world_size,
        "imported_from": f"{spec.env['PYTHONPATH']}/surefoot", "code_digest": spec.env[CODE_VARIABLE],
        "started_at": BEGUN + 1, "ended_at": BEGUN + 20,
    }  # fmt: skip
    files: dict[str, Any] = {"request.json": spec.request, **more}
    ends = []
    for rank, told in enumerate(data):
        host, local = hosts[rank // spec.ranks_per_node], rank % spec.ranks_per_node
        where = {"rank": rank, "local_rank": local, "host": host, "pid": 1000 + local}
        files[f"rank-{rank}.json"] = {**account, **where, "data": told}
        ends.append({"rank": rank, "host": host, "exit_code": 0})
    files["job.json"] = {"id": JOB_ID, "spec": spec.canonical(), "submitted_at": BEGUN}
    files["done.json"] = {
        "id": JOB_ID, "name": job, "state": "COMPLETED", "started_at": BEGUN + 0.5, "ended_at": BEGUN + 21, "ranks": ends,
    }  # fmt: skip
    blobs = [Blob(name=f"raw/{job}/{name}", data=json.dumps(content).encode()) for name, content in files.items()]
    return replace(view, evidence=EvidenceSet(plan=view.plan, files={blob.name: blob for blob in blobs}))


def on_disk(view: View, folder: Path) -> View:
    """The same evidence as files below `folder`, to be gathered from there."""
    blobs = {}
    for name, blob in view.evidence.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(blob.read())
        blobs[name] = Blob(name=name, path=path)
    return replace(view, evidence=EvidenceSet(plan=view.plan, files=blobs))
