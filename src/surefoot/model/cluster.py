"""A cluster: a declared site. What is asked of it comes from the ladder; what it is stands here."""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from surefoot.model.base import Record, digest_of


class Rail(Record):
    """One network rail: a port of every node in the group that carries training traffic."""

    name: str
    rate_gbit_s: float = Field(gt=0)
    """Line rate one way, decimal Gb/s."""
    hca: str = ""
    """RDMA device (``rocep1s0f1``); empty where it is to be found on the node."""
    subnet: str = ""


class NodeGroup(Record):
    """Nodes that are alike."""

    name: str
    count: int = Field(ge=1)
    hosts: str = ""
    """Slurm hostlist (``gpu[01-32]``); empty where the scheduler knows them."""
    gpus_per_node: Annotated[int, Field(ge=0)] | Literal["detect"] = 0
    """``detect``: what the operating system of this machine reports (local clusters only)."""
    gpus_on_bus: Annotated[int, Field(ge=0)] | None = None
    """GPUs on each node's PCI bus; None: as many as `gpus_per_node`. Where jobs are meant to see only
    a part of them, or a GPU that is no PCI device."""
    gpu_model: str = ""
    """Substring of the driver's own name for it (``GB10``, ``H200``)."""
    min_cpus: int = Field(default=1, ge=1)
    min_memory_gib: float = Field(default=1, gt=0)
    min_free_disk_gib: float = Field(default=1, ge=0)
    rails: tuple[Rail, ...] = ()
    gpudirect: Literal["expected", "never", "unknown"] = "unknown"
    """Whether the network reaches GPU memory itself (GPUDirect RDMA). ``expected``: claimed of every connection
    between nodes; where only some groups say so, of the nodes that these name in `hosts`. ``never``: host memory is
    right (GB10). ``unknown``: not claimed."""
    expect: dict[str, str] = {}
    """What the pre-check's facts must say on each node, by the drift matrix's names: ``gpu*.vbios: 96.00.A5.00.1A``.
    ``surefoot preflight --learn FILE`` writes them from what was seen, to be reviewed."""


class LocalConnection(Record):
    """Commands run on this machine."""

    kind: Literal["local"] = "local"


class SshConnection(Record):
    """Commands run on the login host, by the system's OpenSSH and the user's own ssh_config."""

    kind: Literal["ssh"]
    host: str
    """Host alias as ``ssh`` knows it; user, port, jump host and key belong in ssh_config."""
    config: str = ""
    """Another ssh_config than the user's own (``ssh -F``); a relative path is below the cluster file's folder."""


class LocalScheduler(Record):
    """Ranks are processes of this machine."""

    kind: Literal["local"] = "local"


class SlurmScheduler(Record):
    """Slurm, by its command line."""

    kind: Literal["slurm"]
    partition: str = ""
    account: str = ""
    qos: str = ""


class Software(Record):
    """Versions expected on every node. Empty means: not claimed."""

    python: str = ""
    """Oldest version that counts, like ``3.11``."""
    torch: str = ""
    """Oldest version that counts, like ``2.10``."""
    driver: str = ""
    """The driver's exact version."""
    cuda: str = ""
    nccl: str = ""


class Environment(Record):
    """The Python environment of jobs: built from a lock, once for each kind of node."""

    lock: str = Field(min_length=1)
    """File of ``name==version`` lines, one for each distribution; relative to the cluster file."""
    index: str = ""
    """URL of a package index that nodes can reach; empty: as pip is set up on them. No secrets: it is recorded."""
    wheels: str = ""
    """Folder of wheels that all nodes see, in place of an index."""
    build_limit_s: int = Field(default=3600, ge=30)
    """Limit of the job that builds it."""
    requirements: tuple[str, ...] = ()
    """What the lock held, one line each. Read from the lock, never written by hand."""

    @model_validator(mode="after")
    def _one_source_without_secrets(self) -> Self:
        if self.index and self.wheels:
            raise ValueError("index and wheels are two sources; keep one")
        if re.match(r"[^/]*//[^/]*@", self.index) or "?" in self.index:
            raise ValueError(
                "index holds a password or token, which every run would record; allowed: a URL without one; "
                "pip finds passwords in a .netrc or pip.conf on the nodes"
            )
        if self.index and not re.fullmatch(r"https?://[!-~]+", self.index):
            raise ValueError("index is no URL; allowed: https://HOST/PATH")
        return self


PLAYBOOK = r"^[A-Za-z0-9_][A-Za-z0-9_./-]*$"
"""What a playbook below a site may be called."""


class Ansible(Record):
    """The Ansible site that provisions a cluster. It is run where ``surefoot`` runs."""

    site: str = Field(min_length=1)
    """Folder of ``ansible.cfg`` and of the playbook; relative to the cluster file."""
    inventory: tuple[Annotated[str, Field(min_length=1)], ...] = Field(min_length=1)
    """Inventories, each over the one before, as ``ansible-playbook -i`` takes them; relative to the cluster file."""
    playbook: str = Field(default="site.yml", pattern=PLAYBOOK)
    """The whole site, below `site`."""
    limit: str = Field(default="", pattern=r"^([^\x00-\x1f\x7f-][^\x00-\x1f\x7f]*)?$")
    """Hosts that belong to this cluster, as an Ansible pattern; empty: all of the inventory."""
    node_group: str = Field(default="slurm_node", pattern=r"^[A-Za-z_][A-Za-z0-9_-]*$")
    """Group of the inventory that holds the compute nodes."""
    python: str = ""
    """Interpreter on this machine with Surefoot, and Ansible beside it; empty: the one that runs ``surefoot``."""


class Cluster(Record):
    """A declared site: where commands run, who places work, where durable files lie, what is there."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$")
    description: str = ""
    connection: Annotated[LocalConnection | SshConnection, Field(discriminator="kind")] = LocalConnection()
    scheduler: Annotated[LocalScheduler | SlurmScheduler, Field(discriminator="kind")] = LocalScheduler()
    root: str = Field(min_length=1)
    """Shared root. A relative path is below the working directory (local clusters only)."""
    python: str = ""
    """Interpreter on the nodes; empty: the one that runs ``surefoot``, and over ssh ``python3``."""
    node_groups: tuple[NodeGroup, ...] = Field(min_length=1)
    environment: Environment | None = None
    """What jobs' Python environment is built from; None: `python` has what they need."""
    software: Software = Software()
    env: dict[str, str] = {}
    """Environment of every job (interfaces, HCAs). No secrets: it is recorded."""
    ansible: Ansible | None = None
    """What the rungs inventory and drift compare the hosts with; None: they are left out."""

    @property
    def environment_digest(self) -> str:
        """sha256 (hex) of all that decides what is built: lock, source, interpreter; empty without `environment`."""
        asked = self.environment
        if asked is None:
            return ""
        parts = {"requirements": list(asked.requirements), "index": asked.index, "wheels": asked.wheels}
        return digest_of({**parts, "python": self.python})

    def evidence_digest(self) -> str:
        """sha256 (hex) of what jobs depend on: all but `ansible`, whose content the rungs that use it depend on."""
        return self.model_copy(update={"ansible": None}).content_digest()

    @property
    def nodes(self) -> int:
        """Nodes declared in all groups."""
        return sum(group.count for group in self.node_groups)

    @property
    def gpus_per_node(self) -> int:
        """GPUs of a node that every group has; 0 before `detect` is resolved."""
        counts = [g.gpus_per_node for g in self.node_groups]
        return min((c for c in counts if isinstance(c, int)), default=0)
