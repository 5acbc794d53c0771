"""Interface and rails that the pre-check found, in the jobs of other rungs: asked for, and that each rank took them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

from surefoot.evidence import EvidenceSet
from surefoot.model.base import Record
from surefoot.model.check import Check
from surefoot.rungs.base import View
from surefoot.rungs.judging import decide, shorten
from surefoot.rungs.precheck import environments


class Taken(Record):
    """What ``surefoot.node.found_network`` set on a rank, and from where."""

    source: Literal["precheck"] | None
    """None: there was no pre-check below."""
    node: str
    """The rank's node, as the scheduler calls it."""
    set: dict[str, str]
    kept: dict[str, str]
    """Variables that were found too, but were set before: by the cluster file's `env`, or on the node."""


class Network(Record):
    """Part of a rank's data."""

    network: Taken | None = None
    """None in evidence of a version that did not tell."""


class Rank(Protocol):
    """A rank that told: `Said`, of any program."""

    @property
    def where(self) -> str: ...
    @property
    def file(self) -> str: ...
    @property
    def data(self) -> Any: ...


def asked(needs: Mapping[str, EvidenceSet]) -> dict[str, dict[str, str]] | None:
    """For a request, as ``environment``: node → variables; None where no pre-check that PASSED stands below."""
    return environments(needs["precheck"]) if "precheck" in needs else None


def network_checks(prefix: str, job: str, ranks: Sequence[Rank], view: View) -> list[Check]:
    """That each rank took what was found for its node. None where nothing was asked."""
    spec = view.evidence.job(job)
    found: dict[str, dict[str, str]] | None = spec.request.get("environment")
    if found is None:
        return []
    problems, pinned, names = [], {}, set()
    for rank in ranks:
        told: Taken | None = rank.data.network
        if told is None:
            problems.append(f"{rank.where} does not tell what it took")
            continue
        wanted = found.get(told.node, {})
        names |= set(wanted)
        problems += [f"{rank.where}: {problem}" for problem in _problems(told, wanted, spec.env)]
        pinned.update({f"{name}={value}": _by(name, spec.env) for name, value in told.kept.items()})
    said = [f"{pin} by {who}" for pin, who in sorted(pinned.items())]
    taken = f"{', '.join(sorted(names)) or 'nothing was found'} on {len(ranks)} ranks"
    return [
        decide(
            f"{prefix}.network",
            "every rank took the interface and the rails that the pre-check found for its node, but for what is pinned",
            not problems,
            expected=", ".join(sorted(names)) or "nothing was found",
            actual=shorten(problems) or taken + (f"; pinned: {shorten(said)}" if said else ""),
            evidence=tuple(view.evidence.ref(rank.file, text=_text(rank.data.network)) for rank in ranks),
            derivation="found: by the pre-check's evidence, in the job's request; a variable that the cluster file's env "
            "or the node's own environment sets stays as it is",
            next_action="the rank ran with another interface or other rails than were proved: see `network` in its report, "
            "and what sets these variables there (Slurm's TaskProlog, a wrapper, /etc/environment)",
        )
    ]


def _problems(told: Taken, wanted: Mapping[str, str], pins: Mapping[str, str]) -> list[str]:
    """What a rank did otherwise than it was asked."""
    found = [] if told.source == "precheck" else ["knew of no pre-check"]
    for name, value in wanted.items():
        if name in pins:
            if told.kept.get(name) != pins[name]:
                found.append(
                    f"{name} is {told.kept.get(name) or told.set.get(name)}, the cluster file pins {pins[name]}"
                )
        elif name not in told.kept and told.set.get(name) != value:
            found.append(f"{name} is {told.set.get(name, 'not set')}, found was {value}")
    return found + [f"{name} was not asked for" for name in {**told.set, **told.kept} if name not in wanted]


def _by(name: str, pins: Mapping[str, str]) -> str:
    return "the cluster file's env" if name in pins else "the node's own environment"


def _text(told: Taken | None) -> str:
    if told is None:
        return ""
    parts = [f"{name}={value}" for name, value in told.set.items()]
    parts += [f"{name}={value} (kept)" for name, value in told.kept.items()]
    return ", ".join(parts) or "nothing"


def network_details(job: str, ranks: Sequence[Rank], view: View) -> dict[str, Any]:
    """For a judgement's details: per node what was set and what was kept, and from where, or why nothing was."""
    if view.evidence.job(job).request.get("environment") is None:
        return {"source": "no pre-check below: libraries chose interface and rails by themselves", "nodes": {}}
    told = [rank.data.network for rank in ranks if rank.data.network is not None]
    return {"source": "precheck", "nodes": {one.node: {"set": one.set, "kept": one.kept} for one in told}}
