"""Mesh: what NCCL's own log says of the ranks: that they formed one communicator, and over what they reach each other."""

from __future__ import annotations

from surefoot.benchmarks.mesh import Trail
from surefoot.benchmarks.nccl_claims import bootstrap, inside_nodes, no_sockets, ranks
from surefoot.benchmarks.nccl_log_lines import Process
from surefoot.benchmarks.nccl_log_links import Kind
from surefoot.model.check import Check
from surefoot.rungs.base import View
from surefoot.rungs.nccl_checks import as_check, job_log, network_findings


def process_of(trail: Trail) -> Process:
    """A rank's process, as NCCL names it."""
    return Process(trail.host.split(".")[0], trail.pid)


def environment_of(trail: Trail) -> dict[str, str]:
    """What the rank set of what the pre-check found."""
    return (trail.facts.get("network") or {}).get("set") or {}


def log_checks(trails: dict[int, Trail], view: View) -> list[Check]:
    """Checks of a job on GPUs whose ranks got so far as to load NCCL. Raises EvidenceError for a damaged log.

    That ranks of one node reach each other by P2P is claimed where the GPUs themselves say that they can.
    """
    processes = {process_of(trail): rank for rank, trail in trails.items()}
    log = job_log(view, "mesh", processes)
    world, per_node = view.expect["world_size"], view.expect["ranks_per_node"]
    found = [ranks(log, world, processes), no_sockets(log, allowed=view.expect["sockets"], processes=processes)]
    if per_node > 1 and any(trail.facts.get("peers") for trail in trails.values()):
        found.append(inside_nodes(log, Kind.P2P))
    asked = {
        trail.host: [name.lstrip("=")]
        for trail in trails.values()
        if (name := environment_of(trail).get("NCCL_SOCKET_IFNAME"))
    }
    if view.expect["nodes"] > 1 and asked:
        found.append(bootstrap(log, asked))
    found += network_findings(log, view.expect, [trail.host for trail in trails.values()])
    files = tuple(view.evidence.ref(f"raw/mesh/trail-{rank}.json") for rank in sorted(trails)[:16])
    return [as_check("mesh.nccl", finding, view, otherwise=files) for finding in found]
