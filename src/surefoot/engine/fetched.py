"""A run whose control host is gone, taken up on another one: everything of it lies on shared storage."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from surefoot.engine.connect import connect
from surefoot.engine.jobs import bring_home
from surefoot.engine.orphans import Jobs
from surefoot.engine.resolve import resolve_cluster
from surefoot.engine.store import load_manifest
from surefoot.errors import EvidenceError, RequestError, RunNotFoundError, SchedulerError
from surefoot.evidence import parse_json, parse_record
from surefoot.model.cluster import Cluster
from surefoot.model.run import RunManifest
from surefoot.paths import RootPaths, RunPaths


def fetch_run(
    cluster: Cluster, run_id: str, home: RootPaths, *, take_over: bool, tell: Callable[[str], None] = lambda _: None
) -> RunPaths:
    """Copy the run `run_id` (in full) from the cluster's shared root into `home`, every file by its digest.

    The copy is as far as the other machine got: an attempt without a seal is run again, by the same
    rule as after a kill. Jobs of the run that are not over are ended first, and told of by `tell`:
    nobody waits for them, and they would write into what is copied.

    Raises RunNotFoundError where the cluster has no such run either, RequestError without
    `take_over` (whether the other machine still climbs cannot be known from here), MachineryError
    where the cluster does not answer, or a job does not end.
    """
    cluster = resolve_cluster(cluster, root=None)
    there, here = RootPaths(Path(cluster.root)).run(run_id), home.run(run_id)
    connection, scheduler = connect(cluster)
    try:
        found = connection.read_many([there.manifest]).get(there.manifest)
        if found is None:
            raise RunNotFoundError(
                f"no run {run_id!r} here ({home.runs}) and none on {connection.host} ({there.folder.parent})",
                next_action="a run that another machine climbed is named in full: `ls` that folder",
            )
        host = _climbed_from(found, str(there.manifest))
        if not take_over:
            raise RequestError(
                f"run {run_id!r} was climbed from {host}, and lies on {connection.host} in {there.folder}",
                next_action=f"resume it on {host}; if that machine is surely gone, go on here with --take-over",
            )
        _end_jobs(Jobs(connection, scheduler, home, take_over=True), run_id, host, tell)
        bring_home(connection, there.folder, here.folder)
    finally:
        connection.close()
    load_manifest(here)
    return here


def _end_jobs(jobs: Jobs, run_id: str, host: str, tell: Callable[[str], None]) -> None:
    """End what the lost machine left in the scheduler. Raises SchedulerError where something stays."""
    orphans = [found for found in jobs.found(run_id) if found.orphan]
    if not orphans:
        return
    named = ", ".join(f"{found.job.id} ({found.job.rung or found.job.name})" for found in orphans)
    tell(f"jobs that {host} left of run {run_id!r}, ended before it goes on here: {named}")
    left = [found.job.id for found in jobs.reap(orphans)]
    if left:
        raise SchedulerError(
            f"of run {run_id!r}, which {host} climbed, these jobs do not end: {', '.join(left)}",
            next_action=f"end them (scancel {' '.join(left)}; an administrator may have to), then resume again",
        )


def _climbed_from(manifest: bytes, file: str) -> str:
    try:
        return parse_record(RunManifest, parse_json(manifest.decode(), file=file), file=file).host
    except (EvidenceError, UnicodeDecodeError) as error:
        raise RunNotFoundError(f"{file}: {error}", next_action="the run's manifest is damaged: climb anew") from error
