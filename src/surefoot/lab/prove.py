"""Whether a lab is whole: looked at from outside, host by host. Every proof says what was found."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from surefoot.errors import MachineryError
from surefoot.lab import disk, network
from surefoot.lab.commands import run
from surefoot.lab.configuration import SLURM_CONF, SPOOL
from surefoot.lab.hosts import as_climber, on_host, script_on_host
from surefoot.lab.places import LabHome
from surefoot.lab.slurm import node_states
from surefoot.lab.spec import HEAD, Tier, address
from surefoot.lab.state import LabState

_CLOCK_S = 2.0
_FREE_MIB = 64


@dataclass(frozen=True)
class Proof:
    """One claim about the lab, whether it holds, and what was found."""

    claim: str
    holds: bool
    found: str


class _NotSoError(Exception):
    """A claim does not hold; the message says what was found."""


def prove(home: LabHome, state: LabState, *, only: str | None = None) -> list[Proof]:
    """Every claim of `_CLAIMS`, tried once, or one of them. None is left out: what can't be looked at does not hold."""
    proofs = []
    for claim, look in _CLAIMS.items() if only is None else [(only, _CLAIMS[only])]:
        try:
            proofs.append(Proof(claim, True, look(home, state)))
        except (_NotSoError, MachineryError) as error:
            proofs.append(Proof(claim, False, str(error)))
    return proofs


def prove_patiently(home: LabHome, state: LabState, *, timeout_s: float) -> list[Proof]:
    """`prove`, again and again until all claims hold or the time is over: daemons need seconds to find each other."""
    deadline = time.monotonic() + timeout_s
    while True:
        proofs = prove(home, state)
        if all(proof.holds for proof in proofs) or time.monotonic() > deadline:
            return proofs
        time.sleep(0.5)


def _on_all(state: LabState, hosts: tuple[str, ...], script: str, wanted: Callable[[str], str | None]) -> None:
    """Run a script on hosts; `wanted` says of its output what is wrong, or None."""
    wrong = []
    for host in hosts:
        problem = wanted(script_on_host(state, host, script).stdout.strip())
        if problem is not None:
            wrong.append(f"{host}: {problem}")
    if wrong:
        raise _NotSoError("; ".join(wrong))


def _ssh(home: LabHome, state: LabState) -> str:
    config = home.lab(state.spec.name).ssh_config
    for host in state.spec.hosts:
        said = run(["ssh", "-F", str(config), host, "hostname"], timeout_s=20).stdout.strip()
        if said != host:
            raise _NotSoError(f"{host} says that it is {said!r}")
    return f"{len(state.spec.hosts)} hosts say their own names"


def _nodes(_: LabHome, state: LabState) -> str:
    nodes = node_states(state)
    if len(nodes) != state.spec.nodes or not all(node.works and not node.reason for node in nodes):
        raise _NotSoError(", ".join(str(node) for node in nodes) or "no node")
    return ", ".join(str(node) for node in nodes)


def _configuration(_: LabHome, state: LabState) -> str:
    digests = {}
    for host in state.spec.hosts:
        digests[host] = on_host(state, host, ["sha256sum", SLURM_CONF]).stdout[:12]
    other = [host for host in state.spec.node_names if digests[host] != digests[HEAD]]
    if other:
        raise _NotSoError(f"differs from the head's on {', '.join(other)}")
    return f"sha256 {digests[HEAD]}… on {len(digests)} hosts"


def _munge(_: LabHome, state: LabState) -> str:
    for host in state.spec.hosts:
        credential = on_host(state, host, ["munge", "-n"]).stdout
        done = script_on_host(state, HEAD, 'printf %s "$1" | unmunge', credential, check=False)
        if done.returncode != 0:
            raise _NotSoError(f"made on {host}, read on {HEAD}: {(done.stderr or done.stdout).strip()[:120]}")
    return f"made on each of {len(state.spec.hosts)} hosts, read on {HEAD}"


def _names(_: LabHome, state: LabState) -> str:
    for host in state.spec.hosts:
        own = address(state.slot, host)
        said = script_on_host(state, host, 'getent ahostsv4 "$(hostname)" | cut -d " " -f 1 | sort -u').stdout.split()
        if said != [own]:
            raise _NotSoError(f"{host} has {own}, its own name leads to {' '.join(said) or 'nothing'}")
    return "every host's name leads to its address on the lab's network"


def _links(_: LabHome, state: LabState) -> str:
    for host in state.spec.hosts:
        if not network.port_is_up(state.spec, host):
            raise _NotSoError(f"{host} has no carrier")
        if network.is_shaped(state.spec, host):
            raise _NotSoError(f"{host}'s link is held to a rate")
    return f"{len(state.spec.hosts)} links up, none held to a rate"


def _clocks(_: LabHome, state: LabState) -> str:
    worst = 0.0
    for host in state.spec.hosts:
        before = time.time()
        said = float(on_host(state, host, ["date", "+%s.%N"]).stdout)
        off = max(before - said, said - time.time(), 0.0)
        if off > _CLOCK_S:
            raise _NotSoError(f"{host} is {off:.0f} s off")
        worst = max(worst, off)
    return f"at most {worst:.1f} s off"


def _disks(_: LabHome, state: LabState) -> str:
    def too_little(said: str) -> str | None:
        free = {line.split()[1]: int(line.split()[0]) for line in said.splitlines()}
        full = [f"{place} has {free_mib} MiB free" for place, free_mib in free.items() if free_mib < _FREE_MIB]
        return "; ".join(full) or (None if free else "no answer")

    script = f"for place in {SPOOL} /tmp; do echo $(df -BM --output=avail $place | tail -n 1 | tr -d M) $place; done"
    _on_all(state, state.spec.node_names, script, too_little)
    held = [host for host in state.spec.hosts if disk.is_held(state.spec.name, host)]
    if held:
        raise _NotSoError(f"reads are held to a rate on {', '.join(held)}")
    return f"at least {_FREE_MIB} MiB free in {SPOOL} and /tmp of every node, no host's reads held to a rate"


def _shared(home: LabHome, state: LabState) -> str:
    """The same folder everywhere: a host with a mount over part of it, or another folder, is found by device and inode."""
    shared = home.lab(state.spec.name).shared
    script = 'find "$1" -maxdepth 1 -type d -printf "%D:%i %p\\n" | sort'
    seen = {host: script_on_host(state, host, script, str(shared)).stdout for host in state.spec.hosts}
    other = [host for host in state.spec.hosts if seen[host] != seen[HEAD]]
    if other:
        raise _NotSoError(f"{', '.join(other)} sees another folder below {shared} than {HEAD}")
    return f"{shared} is the same on {len(seen)} hosts"


def _accounting(_: LabHome, state: LabState) -> str:
    if state.spec.tier is not Tier.HOSTS:
        return "none in this tier"
    said = on_host(state, HEAD, ["sacctmgr", "-n", "-P", "list", "cluster", "format=cluster"]).stdout.split()
    if said != [state.spec.name]:
        raise _NotSoError(f"clusters known: {' '.join(said) or 'none'}")
    return "sacctmgr answers"


def _job(_: LabHome, state: LabState) -> str:
    spec = state.spec
    gpus = [f"--gres=gpu:{spec.gpus_per_node}"] if spec.gpus_per_node else []
    command = ["srun", "--chdir=/tmp", "--immediate=20", f"-N{spec.nodes}", "--ntasks-per-node=1", *gpus]
    script = 'echo "$(hostname) ${CUDA_VISIBLE_DEVICES:-}"'
    lines = as_climber(state, HEAD, [*command, "bash", "-c", script], timeout_s=40).splitlines()
    devices = ",".join(str(number) for number in range(spec.gpus_per_node))
    if sorted(line.strip() for line in lines) != sorted(f"{name} {devices}".strip() for name in spec.node_names):
        raise _NotSoError(f"a job on all nodes said: {'; '.join(lines) or 'nothing'}")
    return f"one job ran on all {spec.nodes} nodes with {spec.gpus_per_node} GPUs each"


_CLAIMS: dict[str, Callable[[LabHome, LabState], str]] = {
    "links": _links,
    "ssh": _ssh,
    "names": _names,
    "clocks": _clocks,
    "disks": _disks,
    "shared root": _shared,
    "slurm.conf": _configuration,
    "munge": _munge,
    "nodes": _nodes,
    "accounting": _accounting,
    "job": _job,
}
