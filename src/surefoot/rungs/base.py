"""What a rung is: how its evidence is asked for, read and judged. Three functions that do no I/O.

The engine executes what `plan` returns, seals what came back, and calls `read` and `judge` on it,
now or a year later. A rung that needs another's evidence (the gate reads the evaluation's) finds
it in `View.needs`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from surefoot.errors import RequestError
from surefoot.evidence import CODE_VARIABLE, EvidenceSet
from surefoot.model.cluster import Cluster
from surefoot.model.job import ExpectedExit, JobSpec
from surefoot.model.ladder import NodeRungSpec, RungSpec
from surefoot.model.run import Judgement, Plan, RunInputs, Step
from surefoot.paths import AttemptPaths, RootPaths

F = TypeVar("F")
S = TypeVar("S", bound=RungSpec)


@dataclass(frozen=True)
class Layout:
    """Ranks and where they compute."""

    nodes: int
    ranks_per_node: int
    device: str
    """``cuda`` (one GPU per rank) or ``cpu``."""

    @property
    def world_size(self) -> int:
        return self.nodes * self.ranks_per_node

    @property
    def backend(self) -> str:
        """torch.distributed's backend for this device."""
        return "nccl" if self.device == "cuda" else "gloo"


def layout(cluster: Cluster, spec: NodeRungSpec, *, collective: bool = False, computes: bool = True) -> Layout:
    """Ranks of a rung on a cluster.

    ``ranks_per_node: auto`` is one rank per GPU. Without GPUs it is two ranks on the CPU. A rung
    that proves something between ranks (`collective`) on one node with one GPU takes two ranks on
    the CPU too: a world of one proves nothing, and NCCL refuses two ranks on one GPU. What that
    leaves open is for the rung to say (`idle_gpu`).

    Raises RequestError where a rung that `computes` asks for more ranks on a node than the node has
    GPUs: it never moves to the CPU of its own accord.
    """
    gpus, nodes = cluster.gpus_per_node, nodes_of(cluster, spec)
    if spec.ranks_per_node != "auto":
        if computes and 0 < gpus < spec.ranks_per_node:
            raise RequestError(
                f"ranks_per_node: {spec.ranks_per_node}, but a node of cluster {cluster.name!r} has {gpus} "
                f"GPU{'s' if gpus > 1 else ''}, and each rank needs one of its own",
                next_action=f"set ranks_per_node to {gpus} or less, or to auto; a cluster file that declares "
                "gpus_per_node: 0 computes on the CPU",
            )
        device = "cuda" if gpus >= spec.ranks_per_node else "cpu"
        return Layout(nodes, spec.ranks_per_node, device)
    if gpus == 0 or (collective and nodes * gpus < 2):
        return Layout(nodes, 2, "cpu")
    return Layout(nodes, gpus, "cuda")


def nodes_of(cluster: Cluster, spec: NodeRungSpec) -> int:
    """How many nodes a rung is about."""
    return cluster.nodes if spec.nodes == "all" else spec.nodes


def idle_gpu(cluster: Cluster, where: Layout) -> bool:
    """Whether the site has a GPU that ranks which must talk to each other leave alone: one has nobody to talk to."""
    return where.device == "cpu" and cluster.gpus_per_node > 0


@dataclass(frozen=True)
class PlanContext(Generic[S]):
    """Everything a plan may depend on. No clock, no disk."""

    run_id: str
    inputs: RunInputs
    spec: S
    root: RootPaths
    attempt: AttemptPaths
    nonce: str
    python: str
    """Interpreter on the nodes: Python alone is asked of it, where the cluster has an environment."""
    needs: Mapping[str, EvidenceSet]
    """Evidence of every rung below that PASSED."""

    @property
    def cluster(self) -> Cluster:
        return self.inputs.cluster

    @property
    def interpreter(self) -> str:
        """What starts ranks: the node's own environment where the cluster has one, else `python`."""
        digest = self.cluster.environment_digest
        return str(self.root.environment(digest).python) if digest else self.python

    def job(
        self,
        name: str,
        program: str,
        request: dict[str, Any],
        where: Layout,
        *,
        cpus_per_rank: int = 1,
        exclusive: bool = False,
        expect: ExpectedExit | None = None,
        env: dict[str, str] | None = None,
        time_limit_s: int | None = None,
    ) -> JobSpec:
        """A job of ``python -m program`` ranks that run from the synced package."""
        return JobSpec(
            name=name,
            argv=(self.interpreter, "-m", program),
            folder=str(self.attempt.job(name)),
            env={
                **self.cluster.env,
                CODE_VARIABLE: self.inputs.code_digest,
                "PYTHONPATH": str(self.root.pushed(self.inputs.code_digest) / "src"),
                "PYTHONUNBUFFERED": "1",
                "PYTHONDONTWRITEBYTECODE": "1",
                "SUREFOOT_RUN": self.run_id,
                "SUREFOOT_NONCE": self.nonce,
                **(env or {}),
            },
            request=request,
            nodes=where.nodes,
            ranks_per_node=where.ranks_per_node,
            cpus_per_rank=cpus_per_rank,
            gpus_per_node=where.ranks_per_node if where.device == "cuda" else 0,
            exclusive=exclusive,
            launch=self.spec.launch if isinstance(self.spec, NodeRungSpec) else "ranks",
            time_limit_s=time_limit_s or self.spec.time_limit_s,
            expect=expect or ExpectedExit(),
        )


@dataclass(frozen=True)
class Asked:
    """What a plan asks: steps to execute, and what judging will compare the answers with."""

    steps: tuple[Step, ...]
    expect: dict[str, Any]


@dataclass(frozen=True)
class View:
    """What reading and judging see."""

    evidence: EvidenceSet
    inputs: RunInputs
    spec: Any
    """This rung's spec."""
    needs: Mapping[str, EvidenceSet]

    @property
    def plan(self) -> Plan:
        return self.evidence.plan

    @property
    def expect(self) -> dict[str, Any]:
        return self.evidence.plan.expect


class Rung(ABC, Generic[S, F]):
    """One layer of proof. S is its spec, F the facts that its evidence holds."""

    name: ClassVar[str]
    title: ClassVar[str]
    proves: ClassVar[str]
    """One sentence: what is known when this PASSED that was not known before."""
    uses: ClassVar[tuple[str, ...]]
    """Inputs whose change makes the evidence stale: ``cluster``, ``package`` (the code), ``recipe``,
    ``ansible`` (the site's content), ``configuration`` (all four files). A rung that only reads others' evidence uses none."""

    @abstractmethod
    def plan(self, context: PlanContext[S]) -> Asked:
        """What to execute. Pure."""

    @abstractmethod
    def read(self, view: View) -> F:
        """Raw files → facts, complete. Pure. Raises EvidenceError naming file and line."""

    @abstractmethod
    def judge(self, facts: F, view: View) -> Judgement:
        """Facts + what was asked → checks. Pure. May raise EvidenceError for a missing reference."""
