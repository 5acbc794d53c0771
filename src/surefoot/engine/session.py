"""From a request to a climb: a new run or an old one taken up again, on the cluster that it names."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from surefoot.engine.claims import refuse_if_climbed
from surefoot.engine.climb import Climb
from surefoot.engine.connect import connect, refuse_unsupported
from surefoot.engine.inputs import differences
from surefoot.engine.left_out import fitting, refuse_missing_ansible
from surefoot.engine.package import Package
from surefoot.engine.planning import Planner
from surefoot.engine.resolve import home_of, refuse_missing_sources, resolve, resolve_cluster
from surefoot.engine.store import create_run, load_manifest, new_run_id, save_inputs
from surefoot.errors import EvidenceError, RequestError
from surefoot.model.base import Record
from surefoot.model.cluster import Cluster
from surefoot.model.events import Event
from surefoot.model.ladder import AnyRung, Ladder
from surefoot.model.policy import Policy
from surefoot.model.recipe import Recipe
from surefoot.model.run import Plan, RunInputs, RunManifest
from surefoot.paths import RootPaths, RunPaths
from surefoot.rungs.base import Rung


@dataclass(frozen=True)
class Chosen:
    """What a user named; None: what the run has recorded, or the shipped default."""

    cluster: Cluster | None = None
    ladder: Ladder | None = None
    recipe: Recipe | None = None
    policy: Policy | None = None
    root: str | None = None
    sources: Mapping[str, str] = field(default_factory=dict)
    """File name → the user's own text, for the run's ``inputs/``."""


def ladders(chosen: Chosen, recorded: RunInputs | None = None) -> tuple[Ladder, Ladder]:
    """The ladder that will be climbed, and the one that was asked for: see `engine.left_out`. Raises RequestError."""
    ladder, cluster = chosen.ladder, chosen.cluster
    if recorded is not None:
        ladder = ladder or recorded.asked_ladder or recorded.ladder
        cluster = cluster or recorded.cluster
    assert ladder is not None
    assert cluster is not None
    return fitting(ladder, cluster), ladder


@dataclass(frozen=True)
class Session:
    """A run that can be climbed."""

    manifest: RunManifest
    root: RootPaths
    """The cluster's shared root."""
    home: RootPaths
    """Where this machine keeps the run: the shared root too, or over ssh a folder of its own."""
    package: Package
    changes: tuple[str, ...] = ()
    """What differs from the inputs that this run had before."""

    @property
    def run_paths(self) -> RunPaths:
        """The run's folder on this machine."""
        return self.home.run(self.manifest.run_id)

    def planner(self, rungs: Mapping[str, Rung[Any, Any]]) -> Planner:
        """Plans attempts of this run."""
        return Planner(self.manifest, self.root, rungs)

    def climb(
        self,
        rungs: Mapping[str, Rung[Any, Any]],
        selected: frozenset[str],
        emit: Callable[[Event], None],
        stop: threading.Event | None = None,
        *,
        again: frozenset[str] = frozenset(),
        take_over: bool = False,
    ) -> Climb:
        """A climb of this run, ready to `run`; setting `stop` interrupts it.

        `again`: rungs to run although they PASSED. `take_over`: see `surefoot.engine.claims`.

        Raises RequestError for a cluster that cannot be reached, and where Ansible is asked for and not here.
        """
        stop = stop or threading.Event()
        refuse_missing_ansible(self.manifest.inputs, selected)
        connection, scheduler = connect(self.manifest.inputs.cluster, hurry=stop)
        return Climb(
            manifest=self.manifest,
            root=self.root,
            run_paths=self.run_paths,
            rungs=rungs,
            selected=selected,
            connection=connection,
            scheduler=scheduler,
            package=self.package,
            emit=emit,
            stop=stop,
            again=again,
            take_over=take_over,
        )


def start(chosen: Chosen, command: tuple[str, ...], *, run_id: str | None = None, record: bool = True) -> Session:
    """A new run. `record=False` makes nothing on disk (a dry run). Raises RequestError, StorageError.

    All four of cluster, ladder, recipe and policy must be chosen.
    """
    assert chosen.cluster is not None
    assert chosen.ladder is not None
    assert chosen.recipe is not None
    assert chosen.policy is not None
    cluster = resolve_cluster(chosen.cluster, root=chosen.root)
    refuse_unsupported(cluster)
    if cluster.connection.kind == "local":
        refuse_missing_sources(chosen.recipe)
    inputs, package = resolve(cluster, chosen.ladder, chosen.recipe, chosen.policy)
    root, home = RootPaths(Path(cluster.root)), home_of(cluster, chosen.root)
    identifier = new_run_id() if run_id is None else run_id
    if record:
        manifest = create_run(home, identifier, inputs, chosen.sources, command)
    else:
        manifest = RunManifest(
            run_id=identifier,
            created_at=0,
            surefoot_version="",
            user="",
            host="",
            command=command,
            inputs=inputs,
        )
    return Session(manifest, root, home, package)


def resume(run_paths: RunPaths, chosen: Chosen) -> Session:
    """An old run, with what is chosen in place of what it recorded. Raises RunNotFoundError, RequestError."""
    before = load_manifest(run_paths)
    if run_paths.folder.name != before.run_id:
        raise RequestError(
            f"{run_paths.folder} is a copy of run {before.run_id!r}",
            next_action="a copy can be shown and judged; resume the run where it was made, or climb anew",
        )
    old = before.inputs
    if chosen.cluster is not None or chosen.root is not None:
        cluster = resolve_cluster(chosen.cluster or old.cluster, root=chosen.root or old.cluster.root)
    else:
        cluster = old.cluster
    ladder = chosen.ladder or old.asked_ladder or old.ladder
    inputs, package = resolve(cluster, ladder, chosen.recipe or old.recipe, chosen.policy or old.policy)
    refuse_unsupported(cluster)
    root, home = RootPaths(Path(cluster.root)), run_paths.root
    if cluster.connection.kind == "local" and root != home:
        raise RequestError(
            f"run {before.run_id!r} lies under {home.root}, and the cluster's root is {cluster.root}",
            next_action="a run stays under its root: start a new run there",
        )
    manifest = before.model_copy(update={"inputs": inputs})
    changes = [
        f"{name}: {line}"
        for name in ("cluster", "ladder", "recipe", "policy")
        for line in differences(_plain(getattr(old, name)), _plain(getattr(inputs, name)))
    ]
    changes += [f"source of {line}" for line in differences(old.source_digests, inputs.source_digests)]
    if old.ansible_digest != inputs.ansible_digest and cluster.ansible is not None:
        changes.append(f"Ansible site: {old.ansible_digest[:12] or 'none'} → {inputs.ansible_digest[:12]}")
    if old.code_digest != inputs.code_digest:
        changes.append(f"code: {old.code_digest[:12]} → {inputs.code_digest[:12]}")
    if changes:
        refuse_if_climbed(run_paths)
        save_inputs(run_paths, manifest, chosen.sources)
    return Session(manifest, root, home, package, tuple(changes))


def _plain(record: Record) -> dict[str, Any]:
    return record.canonical()


def dry_plan(session: Session, rungs: Mapping[str, Rung[Any, Any]], spec: AnyRung) -> Plan | str:
    """The plan of a rung's first attempt, or why it cannot be known before the rungs below have run."""
    try:
        return session.planner(rungs).plan(spec, 1, {})
    except KeyError as error:
        return f"depends on the evidence of {error.args[0]}: planned when that has PASSED"
    except EvidenceError as error:
        return f"depends on evidence that is not there yet ({error.problem})"
