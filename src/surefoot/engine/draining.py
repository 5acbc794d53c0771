"""What a run found at fault, taken out of service: looked at before each change and after the last."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from surefoot.connection.base import Connection
from surefoot.engine.connect import connect
from surefoot.errors import MachineryError, SchedulerError
from surefoot.hostlist import folded
from surefoot.model.cluster import Cluster
from surefoot.model.run import RungResult
from surefoot.scheduler.slurm import commands, parse
from surefoot.scheduler.slurm.controller import Controller, words
from surefoot.scheduler.slurm.drain import Fault, Proposal, Proposals, by_reason, faults, proposals
from surefoot.scheduler.slurm.parse import NodeRow

PATIENCE_S = 60.0
"""How long a controller may be too busy to answer."""


@dataclass(frozen=True)
class Stands:
    """What Slurm says of a node after it was asked to drain it."""

    node: str
    drained: bool
    """It is drained, or drains: by us, or by who came between, whose reason `told` shows."""
    told: str


@dataclass(frozen=True)
class Draining:
    """What came of it."""

    faults: tuple[Fault, ...]
    asked: Proposals | None = None
    """By what Slurm told before anything was changed. None: nobody is at fault, or Slurm did not answer."""
    stands: tuple[Stands, ...] = ()
    """Of each node that Slurm was asked to drain."""
    left_alone: tuple[tuple[str, str], ...] = ()
    """Node, and why."""
    to_do: tuple[Proposal, ...] = ()
    """Not drained, for a person to set."""
    problems: tuple[str, ...] = ()
    withheld: bool = False
    """More would be out than may be: nothing at all was drained, or nothing more."""


def drain(cluster: Cluster, results: Iterable[RungResult], run_id: str, share: float, *, act: bool) -> Draining:
    """Propose, or with `act` drain, the nodes that checks which FAILED name. `share`: see `proposals`.

    What Slurm refuses or does not answer is a problem of the answer, never an error that hides what was done.
    """
    assert cluster.scheduler.kind == "slurm", "asked before anything ran"
    found = faults(results, run_id)
    if not found:
        return Draining(())
    connection, _ = connect(cluster, patience_s=PATIENCE_S)
    try:
        return _Drainer(connection, found, cluster.scheduler.partition, share).run(act=act)
    finally:
        connection.close()


class _Drainer:
    """One round of it. Each look is at the whole partition: what others drain meanwhile counts."""

    def __init__(self, connection: Connection, found: Sequence[Fault], partition: str, share: float) -> None:
        self._connection = connection
        self._controller = Controller(connection, {}, PATIENCE_S)
        self._found = tuple(found)
        self._partition = partition
        self._share = share
        self._tried: list[str] = []
        """Nodes that Slurm was asked to drain."""

    def run(self, *, act: bool) -> Draining:
        try:
            asked = plan = self._look()
        except MachineryError as error:
            return Draining(
                self._found, problems=(f"{len(self._found)} node(s) at fault, and nothing was changed: {_said(error)}",)
            )
        left_alone, problems = dict(plan.left_alone), []
        while act and plan.commands:
            try:
                self._set(plan.commands[0])
                plan = self._look()
            except MachineryError as error:
                problems.append(_said(error))
                break
            left_alone |= plan.left_alone
        if self._tried and plan.withheld:
            problems.append(f"stopped: others went out of service meanwhile. {over(plan)}")
        stands = self._stands()
        done = {each.node for each in stands if each.drained} | left_alone.keys()
        to_do = [] if plan.withheld else [fault for fault in self._found if fault.node not in done]
        return Draining(
            self._found, asked, stands, tuple(left_alone.items()), by_reason(to_do), tuple(problems), plan.withheld
        )

    def _rows(self) -> list[NodeRow]:
        return parse.nodes(self._controller.output(commands.sinfo(), patiently=True))

    def _look(self) -> Proposals:
        """By what Slurm tells now, what is left to do. Raises SchedulerError, ConnectionFailedError."""
        left = [fault for fault in self._found if fault.node not in self._tried]
        return proposals(left, self._rows(), self._partition, self._share)

    def _set(self, proposal: Proposal) -> None:
        """Raises SchedulerError where Slurm refuses. Not repeated over a link that broke: somebody may have acted since."""
        self._tried += proposal.nodes
        result = self._connection.run(proposal.argv, timeout_s=90)
        if result.exit_code != 0:
            raise SchedulerError(
                f"scontrol did not drain {folded(proposal.nodes)}: {words(result)}",
                next_action="only root, SlurmUser and users with the admin level Administrator may: hand the commands to one",
            )

    def _stands(self) -> tuple[Stands, ...]:
        """What stands there now: Slurm's word, whatever scontrol said."""
        if not self._tried:
            return ()
        try:
            rows = {row.name: row for row in self._rows()}
        except MachineryError as error:
            return tuple(Stands(node, False, f"not known: {error.message}") for node in self._tried)
        return tuple(_stands(node, rows.get(node)) for node in self._tried)


def _stands(node: str, row: NodeRow | None) -> Stands:
    if row is None:
        return Stands(node, drained=False, told=f"sinfo does not show {node} any more")
    return Stands(node, drained=row.state.startswith("drain"), told=row.told)


def _said(error: MachineryError) -> str:
    return f"{error.message}. Next: {error.next_action}" if error.next_action else error.message


def over(plan: Proposals) -> str:
    """Why nothing is drained, and what to do, for people."""
    already = f", and out already: {folded(plan.out)}" if plan.out else ""
    return (
        f"At fault: {folded(plan.nodes)}{already}. That makes {plan.would_be_out} of {plan.count} nodes of partition "
        f"{plan.partition}, and at most {plan.most} may be out. A fault of many nodes is mostly a fault of something that "
        f"they share (a switch, storage, an update): look there first. To drain them all the same: --drain-share "
        f"{plan.share_needed:g}"
    )
