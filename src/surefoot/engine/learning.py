"""A cluster file from what the pre-check of a run saw (``surefoot preflight --learn``), to be reviewed by a person."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from surefoot.config.load import load_cluster
from surefoot.config.written import END, cluster_text
from surefoot.config.yaml_source import At
from surefoot.engine.session import Session
from surefoot.engine.store import load_attempt, load_results
from surefoot.errors import ConfigError, EvidenceError, RequestError, StorageError
from surefoot.files import write_atomic
from surefoot.hardware.learnt import Learnt, NodeSeen, learn
from surefoot.model.cluster import Cluster
from surefoot.model.run import RungResult
from surefoot.model.status import Status
from surefoot.rungs.base import View
from surefoot.rungs.precheck_seen import seen

_MOST_CHECKS = 40
"""Checks that the file's head names; the run has all."""


def refuse_existing(path: Path) -> None:
    """A file that somebody wrote, or reviewed, is not written over. Raises RequestError, before anything is run."""
    if path.exists() or path.is_symlink():
        raise RequestError(
            f"--learn {path}: it exists already, and may have been reviewed",
            next_action="name another file, then compare: diff OLD NEW",
        )
    if not path.parent.is_dir():
        raise RequestError(
            f"--learn {path}: there is no folder {path.parent}", next_action="make it, or name another file"
        )


def write_learnt(session: Session, declared: Cluster, path: Path) -> str:
    """Write what the pre-check of this run saw; a sentence about it. `declared`: the cluster before it was resolved.

    Raises EvidenceError where the pre-check told nothing (then there is no file), StorageError.
    """
    results = load_results(session.run_paths, session.manifest)
    nodes = _nodes(session, results.get("precheck"))
    learnt = learn(declared, nodes) if nodes else None
    if learnt is None:
        why = "no node told how many GPUs it has" if nodes else _why_nothing(results.get("precheck"))
        raise EvidenceError(
            f"{path} is not written: {why}; `surefoot show {session.manifest.run_id}` tells more",
            file=f"rungs/precheck of run {session.manifest.run_id}",
        )
    text = cluster_text(learnt.cluster, {(): [*_head(session, learnt, results, len(nodes))], **_comments(learnt)})
    _write_new(path, text)
    try:
        load_cluster(path)
    except ConfigError as error:  # a lock that is gone by now, say: people can mend the file, and are told
        raise StorageError(
            f"{path} is written, and does not load: {error.message}", next_action="correct it"
        ) from error
    groups = ", ".join(f"{group.name} ({group.count})" for group in learnt.cluster.node_groups)
    left = f"; left out: {'; '.join(learnt.left_out)}" if learnt.left_out else ""
    return f"Learnt: {path}, from {len(nodes)} node(s), groups {groups}{left}. Review it, then: surefoot preflight --cluster {path}"


def _write_new(path: Path, text: str) -> None:
    """Raises StorageError where the file is there by now: another run may have learnt it meanwhile."""
    try:
        path.touch(exist_ok=False)
    except FileExistsError:
        raise StorageError(f"{path} exists by now, and is not written over", next_action="name another file") from None
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror or error}", next_action="name another file") from None
    try:
        write_atomic(path, text)
    except StorageError:
        path.unlink(missing_ok=True)
        raise


def _nodes(session: Session, result: RungResult | None) -> tuple[NodeSeen, ...]:
    if result is None or result.attempt is None or result.status in (Status.BLOCKED, Status.SKIPPED):
        return ()
    attempt = load_attempt(session.run_paths, result.rung, result.attempt)
    inputs = session.manifest.inputs
    view = View(evidence=attempt.evidence, inputs=inputs, spec=inputs.ladder.spec(result.rung), needs={})
    return seen(view, result.judgement)


def _why_nothing(result: RungResult | None) -> str:
    if result is None:
        return "this run has no pre-check"
    return f"the pre-check told nothing of any node: {result.status}{f', {result.reason}' if result.reason else ''}"


def _head(session: Session, learnt: Learnt, results: Mapping[str, RungResult], nodes: int) -> Iterator[str]:
    manifest = session.manifest
    day = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(manifest.created_at))
    yield f"TO BE REVIEWED. Written by surefoot preflight --learn: run {manifest.run_id}, {day}."
    yield f"What {nodes} node(s) told of themselves, not what they should be: a fault that most of them share stands here as"
    yield "expected. Remove what may change. Beside each claim: how many nodes have it, and which have something else."
    for text in learnt.left_out:
        yield f"Left out: {text}"
    wrong = [
        f"{check.id} {check.status}: {check.actual if check.actual is not None else check.claim}"
        for result in results.values()
        for check in result.judgement.checks
        if check.status is not Status.PASSED
    ]
    wrong += [f"{result.rung} {result.status}: {result.reason}" for result in results.values() if result.reason]
    if wrong:
        yield f"The run did not pass; look at these {len(wrong)} before anything here is accepted:"
        yield from (f"  {text}" for text in wrong[:_MOST_CHECKS])
    if len(wrong) > _MOST_CHECKS:
        yield f"  and {len(wrong) - _MOST_CHECKS} more: surefoot show {manifest.run_id}"


def _comments(learnt: Learnt) -> dict[At, tuple[str, ...]]:
    """Notes of each group, by the place that they stand at in the file."""
    found: dict[At, tuple[str, ...]] = {}
    for number, (group, notes) in enumerate(zip(learnt.cluster.node_groups, learnt.notes, strict=True)):
        here: At = ("node_groups", number)
        for key, texts in notes.items():
            if key.startswith("expect."):
                found[(*here, "expect", key.removeprefix("expect."))] = texts
            elif key == "expect":
                found[(*here, "expect", END) if group.expect else (*here, END)] = texts
            elif key == "rails" and not group.rails:
                found[here] = (*found.get(here, ()), *texts)
            else:
                place = (*here, key) if key else here
                found[place] = (*found.get(place, ()), *texts)
    return found
