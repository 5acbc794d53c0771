"""A run whose control host is gone, taken up on another one: everything of it lies on shared storage."""

from __future__ import annotations

from pathlib import Path

from surefoot.engine.connect import connect
from surefoot.engine.resolve import resolve_cluster
from surefoot.engine.store import load_manifest
from surefoot.errors import EvidenceError, RequestError, RunNotFoundError
from surefoot.evidence import parse_json, parse_record
from surefoot.model.cluster import Cluster
from surefoot.model.run import RunManifest
from surefoot.paths import RootPaths, RunPaths


def fetch_run(cluster: Cluster, run_id: str, home: RootPaths, *, take_over: bool) -> RunPaths:
    """Copy the run `run_id` (in full) from the cluster's shared root into `home`, every file by its digest.

    The copy is as far as the other machine got: an attempt without a seal is run again, by the same
    rule as after a kill. Raises RunNotFoundError where the cluster has no such run either,
    RequestError without `take_over` (whether the other machine still climbs cannot be known from
    here), MachineryError where the cluster does not answer.
    """
    cluster = resolve_cluster(cluster, root=None)
    there, here = RootPaths(Path(cluster.root)).run(run_id), home.run(run_id)
    connection, _ = connect(cluster)
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
        connection.get_tree(there.folder, here.folder)
    finally:
        connection.close()
    load_manifest(here)
    return here


def _climbed_from(manifest: bytes, file: str) -> str:
    try:
        return parse_record(RunManifest, parse_json(manifest.decode(), file=file), file=file).host
    except (EvidenceError, UnicodeDecodeError) as error:
        raise RunNotFoundError(f"{file}: {error}", next_action="the run's manifest is damaged: climb anew") from error
