"""``surefoot preflight --drain``: nodes that the run shows to be at fault are proposed for draining, or drained."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import click

from surefoot.cli.options import C, together
from surefoot.cli.streams import say
from surefoot.engine.draining import Draining, drain, over
from surefoot.engine.session import Session
from surefoot.engine.store import load_results
from surefoot.errors import RequestError
from surefoot.model.cluster import Cluster
from surefoot.model.status import ExitCode
from surefoot.scheduler.slurm.drain import SHARE


def drain_options(command: C) -> C:
    """``--drain --yes --drain-share``."""
    return together(
        click.option("--drain", is_flag=True, help="Propose to drain each node that a FAILED check names."),
        click.option("--yes", is_flag=True, help="With --drain: do it."),
        click.option(
            "--drain-share",
            type=float,
            metavar="SHARE",
            help=f"With --drain: so many of the partition's nodes may be out, 0 to 1.  [default: {SHARE:g}, always one]",
        ),
    )(command)


@dataclass(frozen=True)
class Remedy:
    """What was asked for. One that was not asked for does nothing."""

    asked: bool
    yes: bool
    share: float

    @classmethod
    def of(cls, *, drain: bool, yes: bool, share: float | None) -> Remedy:
        """From options. Raises RequestError where they contradict each other."""
        if not drain and (yes or share is not None):
            raise RequestError("--yes and --drain-share go with --drain", next_action="add --drain, or leave them out")
        share = SHARE if share is None else share
        if not 0 < share <= 1:
            raise RequestError(f"--drain-share {share:g}: a share of the nodes", next_action="above 0, at most 1: 0.1")
        return cls(drain, yes, share)

    def refuse_local(self, cluster: Cluster | None) -> None:
        """Raises RequestError where there is no Slurm to drain a node in, before anything is run."""
        if self.asked and (cluster is None or cluster.scheduler.kind != "slurm"):
            name = f"cluster {cluster.name!r}" if cluster is not None else "this machine"
            raise RequestError(
                f"--drain needs Slurm, and the scheduler of {name} is local processes",
                next_action="leave --drain out, or name a Slurm cluster: --cluster FILE, or --slurm on its login node",
            )

    def told(self, session: Session, code: int, *, err: bool) -> dict[str, Any]:
        """Do what was asked after a run that ended with `code`, tell people, and answer programs: ``{"drain": {…}}``.

        The exit code stays the run's: only FAILED checks propose anything, so it is never 0 where a node is at fault.
        """
        if not self.asked:
            return {}
        if code == ExitCode.INTERRUPTED:
            click.echo("Drain: the run was interrupted; nothing is proposed, nothing was changed.", err=True)
            return {"drain": None}
        manifest = session.manifest
        results = load_results(session.run_paths, manifest)
        found = drain(manifest.inputs.cluster, results.values(), manifest.run_id, self.share, act=self.yes)
        for line in _lines(found, act=self.yes):
            say(line, err=err)
        return {"drain": {"yes": self.yes, "share": self.share, **_document(found)}}


def _lines(found: Draining, *, act: bool) -> Iterator[str]:
    """For people: what was done, what was left, and the commands of what is left to do."""
    plan = found.asked
    if not found.faults:
        yield "Drain: no check that FAILED names a node at fault. Nothing was changed."
        return
    for each in found.stands:
        yield f"{'Drained' if each.drained else 'NOT drained'}: {each.told}"
    for node, why in found.left_alone:
        yield f"Left as it is: {node}: {why}"
    for problem in found.problems:
        yield f"Drain: {problem}"
    if found.withheld and not found.stands and plan is not None:
        yield f"Drain: nothing is drained. {over(plan)}"
    elif found.to_do:
        count = (
            f" (at most {plan.most} of {plan.count} nodes of {plan.partition} may be out, {len(plan.out)} are)"
            if plan
            else ""
        )
        yield f"Drain: {'not done' if act else 'proposed, nothing was changed'}{count}:"
        yield from (f"  {proposal.shell}" for proposal in found.to_do)
        if not act:
            yield "Paste these, or let the same command do it with --yes: it looks at each node just before."


def _document(found: Draining) -> dict[str, Any]:
    """For programs."""
    plan = found.asked
    return {
        "at_fault": [{"node": fault.node, "checks": list(fault.checks)} for fault in found.faults],
        "partition": plan.partition if plan else None,
        "nodes": plan.count if plan else None,
        "most": plan.most if plan else None,
        "out_before": list(plan.out) if plan else None,
        "withheld": found.withheld,
        "drained": [each.node for each in found.stands if each.drained],
        "stands": [{"node": each.node, "drained": each.drained, "told": each.told} for each in found.stands],
        "left_alone": dict(found.left_alone),
        "to_do": [
            {"nodes": list(each.nodes), "reason": each.reason, "checks": list(each.checks), "command": each.shell}
            for each in found.to_do
        ],
        "problems": list(found.problems),
    }
