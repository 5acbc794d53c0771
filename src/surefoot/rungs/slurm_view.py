"""What Slurm says of itself, as records: its configuration, its nodes, its controller. Pure.

Parses what ``scontrol`` prints (20.11 to 26.05: ``Key = value`` and ``Key=value`` lines; new keys are
kept, none is required that has not been there since 20.11). The text comes as the answer of a
command that a node-side program ran.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from pydantic import Field

from surefoot.errors import EvidenceError
from surefoot.hostlist import expand
from surefoot.model.base import Record
from surefoot.model.check import Evidence
from surefoot.model.cluster import Cluster, NodeGroup
from surefoot.rungs.base import View
from surefoot.scheduler.slurm.parse import SIGNS, gpus, pairs


class Answer(Record):
    """One command that a node-side program ran."""

    argv: tuple[str, ...] = Field(min_length=1)
    exit_code: int | None
    """None: it could not be run to its end, and `error` says why."""
    stdout: tuple[str, ...]
    stderr: tuple[str, ...]
    error: str
    started_at: float = Field(gt=0)
    ended_at: float = Field(gt=0)

    @property
    def well(self) -> bool:
        return self.exit_code == 0

    @property
    def said(self) -> str:
        """What it said of why it failed, in one line."""
        start = re.compile(rf"^{re.escape(self.argv[0])}: error: ", re.IGNORECASE)
        lines = [start.sub("", line.strip()) for line in (*self.stderr, *self.stdout) if line.strip()]
        text = "; ".join(lines)
        return self.error or text[:300] or f"exit code {self.exit_code}"


def line_of(view: View, file: str, text: str) -> Evidence:
    """The line of `file` that holds `text` as JSON wrote it, where there is one."""
    needle = text.replace("\\", "\\\\").replace('"', '\\"')
    for number, row in enumerate(view.evidence.blob(file).text().splitlines(), 1):
        if needle and needle in row:
            return view.evidence.ref(file, line=number, text=text)
    return view.evidence.ref(file, text=text)


def field_line(view: View, file: str, key: str, value: str, text: str) -> Evidence:
    """The line of an indented JSON file that holds this key with this value, with `text` said of it."""
    needle = f"{json.dumps(key)}: {json.dumps(value)}"
    rows = view.evidence.blob(file).text().splitlines()
    number = next((number for number, row in enumerate(rows, 1) if needle in row), None)
    return view.evidence.ref(file, line=number, text=text)


# -- scontrol show config

SHOW_CONFIG = ["scontrol", "show", "config"]
"""What `config_of` and `controllers_clock` read."""

_SETTING = re.compile(r"^(\w+(?:\[\d+\])?)\s*=\s*(.*?)\s*$")
_AS_OF = re.compile(r"^Configuration data as of (\d+)$")
_TEMPLATE_NEED = ("ClusterName", "SLURM_VERSION", "SLURM_CONF", "ProctrackType", "AuthType", "AccountingStorageType")


@dataclass(frozen=True)
class Config:
    """``scontrol show config``."""

    values: Mapping[str, str]

    def __getitem__(self, name: str) -> str:
        """A value; empty where Slurm has none."""
        value = self.values.get(name, "")
        return "" if value in ("(null)", "N/A") else value

    @property
    def controllers(self) -> list[str]:
        """Hosts of slurmctld, the primary first."""
        return [value for name, value in self.values.items() if re.fullmatch(r"SlurmctldHost\[\d+\]", name)]

    @property
    def accounting(self) -> bool:
        """Whether the site keeps accounts at all."""
        return self["AccountingStorageType"] not in ("", "accounting_storage/none")

    @property
    def munge(self) -> bool:
        return "munge" in self["AuthType"]


def config_of(answer: Answer, *, file: str) -> Config:
    """Raises EvidenceError where it is not the whole of a configuration."""
    if not answer.well:
        raise EvidenceError(f"scontrol show config: {answer.said}", file=file)
    values: dict[str, str] = {}
    for row in answer.stdout:
        match = _SETTING.match(row)
        if match:
            values.setdefault(match.group(1), match.group(2))
        elif row.strip() and not _prose(row):
            raise EvidenceError("scontrol show config: neither a setting nor a heading", file=file, text=row)
    missing = [name for name in _TEMPLATE_NEED if name not in values]
    if missing:
        raise EvidenceError(f"scontrol show config: no {', '.join(missing)}: the output is not whole", file=file)
    return Config(values)


def controllers_clock(answer: Answer) -> float | None:
    """What the controller's clock said when it gave its configuration: Unix time in whole seconds.

    None where it did not answer, or printed another format.
    """
    match = _AS_OF.match(answer.stdout[0]) if answer.well and answer.stdout else None
    return float(match.group(1)) if match else None


def _prose(row: str) -> bool:
    """Headings, and the line about each controller."""
    return row.startswith(("Configuration data", "Slurmctld(", "Cgroup Support", "*")) or row.rstrip().endswith(":")


def controllers_up(answer: Answer) -> tuple[list[str], list[str]]:
    """Lines of ``scontrol ping`` about controllers that are UP, and about others."""
    rows = [row.strip() for row in answer.stdout if row.startswith("Slurmctld(")]
    up = [row for row in rows if row.endswith(" UP")]
    return up, [row for row in rows if row not in up]


# -- scontrol show node

SHOW_NODES = ["scontrol", "--oneliner", "show", "node"]
"""What `nodes_of_answer` reads."""

FIT = frozenset({"IDLE", "ALLOCATED", "MIXED"})
HARMLESS = frozenset(
    {
        "PLANNED", "COMPLETING", "CLOUD", "RESERVED", "PERFCTRS", "NPC", "DYNAMIC", "DYNAMIC_NORM", "DYNAMIC_FUTURE",
        "POWERED_DOWN", "POWERING_UP", "POWERING_DOWN", "POWER_DOWN", "POWER_UP", "POWER_SAVING",
    }
)  # fmt: skip
"""What may stand beside a state that takes jobs; a node that sleeps wakes for them."""
WORDS: dict[str, str] = {
    "NOT_RESPONDING": "its slurmd does not answer the controller",
    "INVALID_REG": "Slurm refuses what its slurmd registered with",
    "INVAL": "Slurm refuses what its slurmd registered with",
    "DRAIN": "drained: no new job starts there",
    "DOWN": "down",
    "MAINT": "in maintenance",
    "FAIL": "marked as failing",
    "UNKNOWN": "it never registered",
    "FUTURE": "not there yet",
    "REBOOT_ISSUED": "rebooting",
    "REBOOT_REQUESTED": "waits for a reboot",
    "BLOCKED": "blocked",
}


@dataclass(frozen=True)
class Node:
    """One node as the controller sees it."""

    name: str
    state: str
    """As Slurm writes it: ``IDLE+DRAIN+INVALID_REG``."""
    reason: str
    """Why it is out, with who said so and when; empty."""
    gpus: int
    version: str
    row: str

    @property
    def bad(self) -> list[str]:
        """Parts of its state that keep jobs away; parts that this version does not know too."""
        parts: dict[str, None] = {}
        for part in self.state.split("+"):
            word = part.rstrip("".join(SIGNS))
            parts |= dict.fromkeys([word, *(SIGNS[sign] for sign in part[len(word) :])])
        return [part for part in parts if part not in FIT | HARMLESS]

    @property
    def trouble(self) -> str:
        """Why no job starts there, in words; empty for a node that takes jobs."""
        if not self.bad:
            return "" if self.state else "no state"
        words = [WORDS.get(part, "") for part in self.bad]
        text = "; ".join(dict.fromkeys(word for word in words if word))
        reason = f". Slurm's reason: {self.reason}" if self.reason else ""
        return f"{self.state}{f' ({text})' if text else ''}{reason}"


def nodes_of_answer(answer: Answer, *, file: str) -> list[Node]:
    """``scontrol show node --oneliner``. Raises EvidenceError for a row that is none."""
    if not answer.well:
        raise EvidenceError(f"scontrol show node: {answer.said}", file=file)
    found = []
    for row in answer.stdout:
        if not row.strip():
            continue
        values = pairs(row)
        if "NodeName" not in values or "State" not in values:
            raise EvidenceError("scontrol show node: no NodeName and State in it", file=file, text=row[:200])
        found.append(
            Node(
                name=values["NodeName"],
                state=values["State"],
                reason=re.sub(r"\s*\[(\S+?)@\d+\]$", r" [said \1]", values.get("Reason", "")),
                gpus=gpus(values.get("Gres", "")),
                version=values.get("Version", ""),
                row=row,
            )
        )
    if not found:
        raise EvidenceError("scontrol show node: not one node", file=file)
    return found


@dataclass(frozen=True)
class Declared:
    """The nodes of one group of the cluster file, as Slurm has them."""

    group: NodeGroup
    nodes: list[Node]
    """Those of its `hosts`; of groups that name none, each its share of the partition's that no group names."""
    absent: list[str]
    """Hosts that Slurm does not know."""

    @property
    def unfit(self) -> list[Node]:
        return [node for node in self.nodes if node.trouble]

    @property
    def too_few(self) -> bool:
        """Whether fewer nodes than declared take jobs; where hosts are named, each of them must."""
        if self.group.hosts:
            return bool(self.absent or self.unfit)
        return len(self.nodes) - len(self.unfit) < self.group.count


def declared_nodes(cluster: Cluster, nodes: list[Node]) -> list[Declared]:
    """Slurm's nodes by the cluster file's groups. Groups that name no hosts share the others, each node once."""
    by_name = {node.name: node for node in nodes}
    named = {host for group in cluster.node_groups for host in expand(group.hosts)}
    pool = [node for node in nodes if node.name not in named and _in_partition(cluster, node)]
    sharing = [group for group in cluster.node_groups if not group.hosts]
    found = []
    for group in cluster.node_groups:
        hosts = expand(group.hosts)
        if hosts:
            mine = [by_name[host] for host in hosts if host in by_name]
        else:
            pool.sort(key=partial(_unlike, group))
            mine, pool = (pool, []) if group is sharing[-1] else (pool[: group.count], pool[group.count :])
        found.append(Declared(group, mine, [host for host in hosts if host not in by_name]))
    return found


def _unlike(group: NodeGroup, node: Node) -> tuple[bool, bool, int]:
    """Sorts nodes that take jobs and have the group's GPUs first: what is missing shows in the last group."""
    wanted = group.gpus_per_node if isinstance(group.gpus_per_node, int) else 0
    return bool(node.trouble), node.gpus < wanted, abs(node.gpus - wanted)


def _in_partition(cluster: Cluster, node: Node) -> bool:
    wanted = getattr(cluster.scheduler, "partition", "")
    partitions = pairs(node.row).get("Partitions", "").split(",")
    return not wanted or bool(set(wanted.split(",")) & set(partitions))


def named_hosts(cluster: Cluster) -> list[str]:
    """Every host that the cluster file names, in its order; empty unless all groups name theirs."""
    if not all(group.hosts for group in cluster.node_groups):
        return []
    return [host for group in cluster.node_groups for host in expand(group.hosts)]
