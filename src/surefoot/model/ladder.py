"""A ladder: an ordered set of rungs with needs. Parameters of each rung are typed here, so that
an editor completes them and a wrong one is refused before anything runs.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from surefoot.model.base import Record, digest_of
from surefoot.model.job import SchedulerWord
from surefoot.units import parse_size

Collective = Literal["all_reduce", "all_gather", "reduce_scatter", "alltoall", "broadcast", "sendrecv"]

HerdRate = Literal["write", "read", "create", "stat", "unlink"]


def _size(value: Any) -> Any:
    """Bytes of a size in words; what is no text is left for the type to accept or refuse."""
    return parse_size(value) if isinstance(value, str) else value


Size = Annotated[
    int,
    Field(ge=0),
    BeforeValidator(_size),
    WithJsonSchema(
        {
            "description": "a number of bytes, or a size such as 64KiB, 32MiB, 16G",
            "anyOf": [
                {"type": "integer", "minimum": 0},
                {"type": "string", "pattern": r"^\s*[0-9]+(\.[0-9]+)?\s*[KMGTkmgt]?i?[Bb]?\s*$"},
            ],
        }
    ),
]
"""Bytes. A file may say ``32MiB``; the record holds the number."""


class Pending(Record):
    """How long a rung's jobs may wait in the scheduler's queue, and what then."""

    wait_at_most_s: int = Field(ge=1)
    """From submission to start, for each job."""
    then: Literal["cancel", "shrink", "move"] = "cancel"
    """``shrink``: ask again for as many nodes as are free, `min_nodes` at least. ``move``: ask again in
    `partition`. Where that is done already, or does not help, the job is cancelled."""
    min_nodes: Annotated[int, Field(ge=1)] | None = None
    partition: SchedulerWord = ""

    @model_validator(mode="after")
    def _goes_together(self) -> Self:
        if self.then == "shrink" and self.min_nodes is None:
            raise ValueError("then: shrink wants min_nodes, the fewest nodes that still prove something")
        if self.then == "move" and not self.partition:
            raise ValueError("then: move wants partition, the one to move to")
        if self.then != "shrink" and self.min_nodes is not None:
            raise ValueError(f"min_nodes goes with then: shrink, not with {self.then}")
        if self.then != "move" and self.partition:
            raise ValueError(f"partition goes with then: move, not with {self.then}")
        return self


class RungSpec(Record):
    """What every rung takes."""

    needs: tuple[str, ...] = ()
    """Rungs that must have PASSED before this one runs."""
    time_limit_s: int = Field(default=300, ge=5)
    """Limit of each of its jobs."""

    def evidence_digest(self) -> str:
        """sha256 (hex) of what decides what the evidence is. How long its jobs may wait does not."""
        return digest_of({key: value for key, value in self.canonical().items() if key != "pending"})


class NodeRungSpec(RungSpec):
    """A rung whose evidence comes from ranks on nodes."""

    nodes: Annotated[int, Field(ge=1)] | Literal["all"] = "all"
    """``all``: every node that the cluster file declares."""
    ranks_per_node: Annotated[int, Field(ge=1)] | Literal["auto"] = "auto"
    """``auto``: one per GPU where there are enough GPUs, else two on the CPU."""
    launch: Literal["ranks", "torchrun"] = "ranks"
    """On Slurm: one task for each rank, or one for each node that runs torchrun."""
    pending: Pending | None = None
    """None: its jobs wait as long as they must. What can never start is ended in any case."""

    @model_validator(mode="after")
    def _shrinks_to_fewer(self) -> Self:
        least = self.pending.min_nodes if self.pending else None
        if least is not None and self.nodes != "all" and least >= self.nodes:
            raise ValueError(f"pending.min_nodes {least} is not below nodes {self.nodes}")
        return self


class Runner(RungSpec):
    """Commands run where they should, as who they should."""

    rung: Literal["runner"]


class Sync(NodeRungSpec):
    """The code and configuration that jobs run is the code that was sent."""

    rung: Literal["sync"]


class AnsibleRungSpec(RungSpec):
    """A rung about what Ansible provisions."""

    optional: bool = False
    """Leave the rung out, and say so, where the cluster file declares no ``ansible``. Otherwise that is refused."""


class Inventory(AnsibleRungSpec):
    """Ansible's inventory, the cluster file and Slurm tell of the same hosts, and each answers."""

    rung: Literal["inventory"]


class Drift(AnsibleRungSpec):
    """No host differs from what the site's roles make of it."""

    rung: Literal["drift"]
    time_limit_s: int = Field(default=1800, ge=5)
    """Limit of the check run over the whole site."""


class SchedulerSmoke(NodeRungSpec):
    """The scheduler places ranks and tells how they ended."""

    rung: Literal["scheduler"]


class Precheck(NodeRungSpec):
    """Every node has what the cluster file says."""

    rung: Literal["precheck"]
    may_differ: tuple[str, ...] = ()
    """Facts in which nodes of one group need not agree, as the drift matrix calls them; ``*`` stands for anything (``gpu*.vbios``)."""


class Mesh(NodeRungSpec):
    """All ranks start, each on what is its own, find each other and compute together."""

    rung: Literal["mesh"]
    backend: Literal["auto", "gloo"] = "auto"
    """``auto``: NCCL on GPUs, gloo on CPUs. ``gloo``: also on GPUs, to tell what is NCCL's trouble from what is not."""
    max_clock_offset_s: float = Field(default=0.5, gt=0)
    """How far the clock of a node may be from that of the first. Logs of several nodes are read side by side."""


class Storage(NodeRungSpec):
    """Shared storage holds what is written, atomically, for every rank."""

    rung: Literal["storage"]
    file_size: Size = Field(default=64 * 1024**2, ge=4096)
    """Bytes each rank writes and reads back; ``64MiB`` is understood."""
    min_write_mb_s: float = Field(default=1.0, ge=0)
    """Floor for streaming writes with fsync, decimal MB/s for each rank."""
    min_read_mb_s: float = Field(default=1.0, ge=0)
    stream_size: Size = Field(default=64 * 1024**2, ge=1024**2)
    """Bytes each node writes and reads while all do, and once alone. All together are capped at a quarter of
    what is free, and the cap is recorded."""
    imports: tuple[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.]*$")], ...] = ("torch",)
    """Modules that a fresh interpreter imports on every node at once. Empty: not measured."""
    min_peer_share: float = Field(default=0.25, ge=0, lt=1)
    """With three nodes or more: least rate of a node while all work, as a share of the fleet's median (an import
    takes at most the median divided by it). 0: not judged."""
    min_herd: dict[HerdRate, Annotated[float, Field(gt=0)]] = {}
    """Least rate of every node while all work: ``write`` and ``read`` in decimal MB/s, ``create``, ``stat`` and
    ``unlink`` in files/s. What is not named has no floor."""
    max_import_s: Annotated[float, Field(gt=0)] | None = None
    """Longest time that importing may take on any node while all do. None: none."""

    @model_validator(mode="after")
    def _imports_something(self) -> Self:
        if self.max_import_s is not None and not self.imports:
            raise ValueError("max_import_s wants imports, the modules whose import it limits")
        return self


class Collectives(NodeRungSpec):
    """Ranks find each other, collectives complete, give right results, and their speed is known."""

    rung: Literal["collectives"]
    collectives: tuple[Collective, ...] = Field(
        default=("all_reduce", "all_gather", "reduce_scatter", "alltoall", "broadcast"), min_length=1
    )
    min_size: Size = 8
    max_size: Size = 32 * 1024**2
    """Largest message in bytes; ``32MiB`` is understood. Capped by memory, and the cap is recorded."""
    factor: int = Field(default=4, ge=2)
    warmup: int = Field(default=2, ge=0)
    iterations: int = Field(default=8, ge=1)
    min_busbw_gb_s: dict[Collective, float] = {}
    """Floor at the largest size, GB/s. A collective that is not named has no floor."""
    min_link_share: Annotated[float, Field(ge=0, lt=1)] | Literal["auto"] = "auto"
    """With three nodes or more: least speed of a link between two, as a share of what the quickest quarter
    of the links carries. ``auto``: 0.5 on GPUs, 0.2 on CPUs. 0: not judged."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not 8 <= self.min_size <= self.max_size:
            raise ValueError(f"sizes run from 8 B upwards: min_size {self.min_size}, max_size {self.max_size}")
        return self


class Compute(NodeRungSpec):
    """Every device multiplies matrices right, at a known speed."""

    rung: Literal["compute"]
    matrix_size: Annotated[int, Field(ge=64)] | Literal["auto"] = "auto"
    """Side of the square product; ``auto``: 1024 on a CPU, 8192 on a GPU."""
    seconds: float = Field(default=2.0, ge=0.1)
    """How long each dtype is sustained."""
    max_spread: float = Field(default=0.5, gt=0)
    """(fastest - slowest) / fastest over like devices that still counts as alike."""


class Cache(NodeRungSpec):
    """Base model and data lie on shared storage, each file with the digest that was declared."""

    rung: Literal["cache"]


class Ddp(NodeRungSpec):
    """A DistributedDataParallel step gives, on every rank, the value that arithmetic says."""

    rung: Literal["ddp"]


class FakeTrainer(NodeRungSpec):
    """The automation around a training job works: it starts, writes, exits, and its end is seen."""

    rung: Literal["fake_trainer"]
    seconds: float = Field(default=1.0, ge=0)
    fail: bool = False
    """Exit with 1 on purpose: the drill for what a failing training job does to a climb."""


class Finetune(NodeRungSpec):
    """A LoRA fine-tune of the recipe's base model learns, on all ranks alike."""

    rung: Literal["finetune"]
    time_limit_s: int = Field(default=3600, ge=5)
    min_loss_fall: float = Field(default=0.1, ge=0, lt=1)
    """Least fall of the loss, as a share: mean of the last tenth of the steps against that of the first.
    A fine-tune that learns its task halves it or more; one with a learning rate of 0 moves by the
    steps' noise, which is measured beside it."""


class Evaluate(NodeRungSpec):
    """Base and adapter answer the identical held-out prompts, and every answer is accounted for."""

    rung: Literal["evaluate"]
    time_limit_s: int = Field(default=3600, ge=5)
    batch_size: int = Field(default=16, ge=1)
    batch1_sample: int = Field(default=8, ge=0)
    """Items answered again one at a time, to show that batching changes nothing."""


class Gate(RungSpec):
    """The adapter meets the policy, with evidence for each rule."""

    rung: Literal["gate"]


class Review(RungSpec):
    """Everything that a person needs to decide is there and belongs together."""

    rung: Literal["review"]


AnyRung = Annotated[
    Runner | Sync | Inventory | Drift | SchedulerSmoke | Precheck | Mesh | Storage | Collectives | Compute | Cache | Ddp | FakeTrainer
    | Finetune | Evaluate | Gate | Review,
    Field(discriminator="rung"),
]  # fmt: skip


class Ladder(Record):
    """Rungs in order. A need names a rung that stands before it, so there are no cycles."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$")
    description: str = ""
    rungs: tuple[AnyRung, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _needs_stand_before(self) -> Self:
        seen: list[str] = []
        for spec in self.rungs:
            if spec.rung in seen:
                raise ValueError(f"rung {spec.rung!r} stands twice in the ladder")
            for need in spec.needs:
                if need not in seen:
                    raise ValueError(
                        f"rung {spec.rung!r} needs {need!r}, which does not stand before it (before it: {', '.join(seen) or 'nothing'})"
                    )
            seen.append(spec.rung)
        return self

    def spec(self, rung: str) -> AnyRung:
        """The spec of a rung by name. Raises KeyError."""
        for spec in self.rungs:
            if spec.rung == rung:
                return spec
        raise KeyError(rung)

    @property
    def names(self) -> tuple[str, ...]:
        """Rung names in order."""
        return tuple(spec.rung for spec in self.rungs)
