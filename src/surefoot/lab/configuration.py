"""Configuration files of a lab, as text. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from surefoot.lab.spec import CLIMBER, HEAD, MGMT, LabSpec, Tier, address, namespace

GPU_TYPE = "h100"
GPU_DEVICE = "/dev/fakegpu"
"""Device files of pretended GPUs: NVIDIA's major number, with nothing behind it."""
JWT_KEY = "/var/lib/slurm/jwt_hs256.key"
DATABASE = "slurm_acct_db"
PARTITION = "gpu"
LOW_PARTITION = "low"
ACCOUNT = "lab"
SPOOL = "/var/lib/slurm/slurmd"
SLURM_CONF = "/etc/slurm/slurm.conf"
GRES_CONF = "/etc/slurm/gres.conf"
CGROUP_CONF = "/etc/slurm/cgroup.conf"

_SLURM_CONF = f"""\
SlurmctldHost={HEAD}
AuthType=auth/munge
CredType=cred/munge
# A requeued job waits until its old credential has expired: 121 s unless told otherwise.
AuthInfo=cred_expire=5
AuthAltTypes=auth/jwt
AuthAltParameters=jwt_key={JWT_KEY}
SlurmUser=slurm
StateSaveLocation=/var/lib/slurm/slurmctld
SlurmdSpoolDir={SPOOL}
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmctldLogFile=/var/log/slurm/slurmctld.log
SlurmdLogFile=/var/log/slurm/slurmd.log
# Nodes are larger than this machine: what they declare is believed, and nothing is pinned.
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=1
JobAcctGatherParams=OverMemoryKill
MpiDefault=none
ReturnToService=1
SlurmctldTimeout=30
SlurmdTimeout=15
MessageTimeout=10
InactiveLimit=0
KillWait=5
MinJobAge=300
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=2,sched_min_interval=0,batch_sched_delay=0
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
GresTypes=gpu
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PrologFlags=Alloc
JobCompType=jobcomp/filetxt
JobCompLoc=/var/log/slurm/jobcomp.log
"""

_ACCOUNTING = f"""\
PriorityType=priority/multifactor
PriorityWeightQOS=1000
PriorityWeightAge=100
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost={HEAD}
AccountingStorageEnforce=associations,limits,qos
AccountingStorageTRES=gres/gpu
"""

Release = tuple[int, int]
"""Of Slurm: ``(22, 5)``. What configuration files may say follows from it."""
DEFAULT_RELEASE: Release = (22, 5)
_STORE_FLAGS: Release = (21, 8)
"""Since then AccountingStoreFlags (before: AccountingStoreJobComment, on by itself), and CgroupPlugin."""

_NO_CGROUPS: Release = (24, 11)
"""Tried since then: a cgroup plugin that is none."""


def slurm_conf(spec: LabSpec, slot: int, release: Release = DEFAULT_RELEASE) -> str:
    """slurm.conf: the same on every host of the lab."""
    gres = f" Gres=gpu:{GPU_TYPE}:{spec.gpus_per_node}" if spec.gpus_per_node else ""
    nodes = "".join(
        f"NodeName={name} NodeAddr={address(slot, name)} CPUs={spec.cpus_per_node}"
        f" RealMemory={spec.memory_mib}{gres} State=UNKNOWN\n"
        for name in spec.node_names
    )
    return (
        f"ClusterName={spec.name}\n"
        + _SLURM_CONF
        + (_accounting(release) if spec.tier is Tier.HOSTS else "")
        + nodes
        + f"PartitionName={PARTITION} Nodes=ALL Default=YES MaxTime=1-00:00:00 PriorityTier=10 PreemptMode=off\n"
        + f"PartitionName={LOW_PARTITION} Nodes=ALL MaxTime=1-00:00:00 PriorityTier=1 PreemptMode=requeue\n"
    )


def _accounting(release: Release) -> str:
    flags = "AccountingStoreFlags=job_script,job_comment,job_env\n"
    return _ACCOUNTING + (flags if release >= _STORE_FLAGS else "")


def gres_conf(spec: LabSpec) -> str:
    """gres.conf: the GPUs of every node by device file. A count without files would be refused by slurmd."""
    if not spec.gpus_per_node:
        return "# no GPUs\n"
    last = spec.gpus_per_node - 1
    return "".join(f"NodeName={name} Name=gpu Type={GPU_TYPE} File={_device(0, last)}\n" for name in spec.node_names)


def cgroup_conf(release: Release = DEFAULT_RELEASE) -> str:
    """cgroup.conf: no cgroup is touched.

    The plugin that slurmd finds by itself on a machine with cgroup v2 alone wants systemd and a tree of
    its own, also where nothing is constrained; without them slurmd does not start. Where none can be
    asked for, the one for v1 does nothing until a job is to be constrained.
    """
    if release < _STORE_FLAGS:  # it knows v1 alone, and not this setting
        return "# nothing is constrained\n"
    return f"CgroupPlugin={'disabled' if release >= _NO_CGROUPS else 'cgroup/v1'}\n"


def _device(first: int, last: int) -> str:
    return f"{GPU_DEVICE}{first}" if first == last else f"{GPU_DEVICE}[{first}-{last}]"


def slurmdbd_conf(password: str) -> str:
    """slurmdbd.conf, readable by the user slurm alone."""
    return f"""\
AuthType=auth/munge
AuthAltTypes=auth/jwt
AuthAltParameters=jwt_key={JWT_KEY}
DbdHost={HEAD}
SlurmUser=slurm
LogFile=/var/log/slurm/slurmdbd.log
PidFile=/run/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=slurm
StoragePass={password}
StorageLoc={DATABASE}
"""


def database_sql(password: str) -> str:
    """What MariaDB runs at every start: the database and its user, where they are not there yet."""
    return (
        f"CREATE DATABASE IF NOT EXISTS {DATABASE};\n"
        f"CREATE USER IF NOT EXISTS 'slurm'@'localhost' IDENTIFIED BY '{password}';\n"
        f"GRANT ALL ON {DATABASE}.* TO 'slurm'@'localhost';\n"
    )


def hosts_file(spec: LabSpec, slot: int) -> str:
    """/etc/hosts: every host by its address on the lab's network, itself included."""
    lines = ["127.0.0.1 localhost", f"{address(slot, MGMT)} {MGMT}"]
    lines += [f"{address(slot, host)} {host}" for host in spec.hosts]
    return "\n".join(lines) + "\n"


def ssh_config(spec: LabSpec, slot: int, *, key: Path, known_hosts: Path) -> str:
    """A configuration file for ``ssh -F``: enters the lab's network through its management namespace.

    The hosts are reached as the lab's ordinary user; ``root@head`` works too.
    """
    text = f"# The lab {spec.name!r}: ssh -F THIS {HEAD}\n"
    for host in spec.hosts:
        text += f"Host {host} {spec.name}-{host}\n  HostName {address(slot, host)}\n"
    aliases = " ".join(f"{host} {spec.name}-{host}" for host in spec.hosts)
    return text + (
        f"Host {aliases}\n"
        f"  User {CLIMBER}\n"
        f"  IdentityFile {key}\n"
        "  IdentitiesOnly yes\n"
        f"  UserKnownHostsFile {known_hosts}\n"
        "  GlobalKnownHostsFile /dev/null\n"
        "  StrictHostKeyChecking yes\n"
        "  ConnectTimeout 10\n"
        f"  ProxyCommand nsenter --net=/run/netns/{namespace(spec.name, MGMT)} socat - TCP:%h:%p\n"
    )


def known_hosts(spec: LabSpec, slot: int, keys: Mapping[str, str]) -> str:
    """known_hosts from each host's public key line (``ssh-ed25519 AAAA…``)."""
    return "".join(f"{address(slot, host)},{host} {' '.join(keys[host].split()[:2])}\n" for host in spec.hosts)


def cluster_yaml(spec: LabSpec, *, shared: Path, oldest_python: str = "", ansible: str = "") -> str:
    """The lab as a cluster file, which lies beside the lab's ssh_config.

    `oldest_python`: of the hosts' own Python, where it is older than what a whole climb needs.
    `ansible`: the section of that name, where the lab is a site of Ansible's.
    """
    python = f"python: {json.dumps(spec.python)}\n" if spec.python else ""
    if oldest_python:
        python += f"software:\n  python: \"{oldest_python}\"  # the hosts' own: enough for Slurm's part, not to train\n"
    account = f"  account: {ACCOUNT}\n" if spec.tier is Tier.HOSTS else ""
    return (
        f"# Written by surefoot lab up --name {spec.name}\n"
        f"name: {spec.name}\n"
        f"description: the lab on this machine, {spec.nodes} nodes with {spec.gpus_per_node} pretended GPUs each\n"
        f"connection:\n  kind: ssh\n  host: {spec.name}-{HEAD}\n  config: ssh_config\n"
        f"scheduler:\n  kind: slurm\n  partition: {PARTITION}\n{account}"
        f"root: {shared}\n{python}"
        f"node_groups:\n  - name: nodes\n    count: {spec.nodes}\n"
        f"    hosts: {_hostlist(spec)}\n"
        f"    gpus_per_node: 0  # {spec.gpus_per_node} are pretended: Slurm places by them, no program can use them\n"
        f"{ansible}"
    )


def _hostlist(spec: LabSpec) -> str:
    return "n1" if spec.nodes == 1 else f"n[1-{spec.nodes}]"
