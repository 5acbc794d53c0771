"""The run folder: what is written there, by whom, and how it is found again."""

from __future__ import annotations

import getpass
import json
import os
import secrets
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from surefoot import __version__
from surefoot.errors import EvidenceError, RequestError, RunNotFoundError, StorageError
from surefoot.evidence import Blob, EvidenceSet, parse_json, parse_record
from surefoot.files import write_atomic
from surefoot.model.base import Record
from surefoot.model.run import Collection, Plan, RungResult, RunInputs, RunManifest
from surefoot.paths import AttemptPaths, RootPaths, RunPaths
from surefoot.scheduler.processes import is_alive, start_ticks

R = TypeVar("R", bound=Record)

UNSEALED = ("collection.json", "owner.json")
"""Files of an attempt that are not evidence: the seal itself, and who collects."""


def write_record(path: Path, record: Record) -> None:
    """A record as indented JSON, atomically."""
    write_atomic(path, json.dumps(record.canonical(), indent=1, ensure_ascii=False) + "\n")


def read_record(kind: type[R], path: Path) -> R:
    """A record from its file. Raises EvidenceError."""
    blob = Blob(name=path.name, path=path)
    return parse_record(kind, parse_json(blob.text(), file=path.name), file=path.name)


def new_run_id() -> str:
    """Sorts by time, and two climbs that start in one second differ."""
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"


def create_run(
    root: RootPaths, run_id: str, inputs: RunInputs, sources: Mapping[str, str], command: tuple[str, ...]
) -> RunManifest:
    """Make the run's folder and manifest. `sources`: file name → the user's own text, kept verbatim.

    Raises RequestError when the run exists, StorageError when the root cannot be written.
    """
    manifest = RunManifest(
        run_id=run_id,
        created_at=time.time(),
        surefoot_version=__version__,
        user=getpass.getuser(),
        host=socket.gethostname(),
        command=command,
        inputs=inputs,
    )
    paths = root.run(run_id)
    try:
        root.runs.mkdir(parents=True, exist_ok=True)
        paths.folder.mkdir()
    except FileExistsError as error:
        raise RequestError(f"run {run_id!r} exists already", next_action=f"--resume {run_id}") from error
    except OSError as error:
        raise StorageError(
            f"cannot make {paths.folder}: {error.strerror}", next_action="give a root that can be written: --root DIR"
        ) from error
    save_inputs(paths, manifest, sources)
    return manifest


def save_inputs(paths: RunPaths, manifest: RunManifest, sources: Mapping[str, str]) -> None:
    """The user's files, then the manifest."""
    for name, text in sources.items():
        write_atomic(paths.inputs / name, text)
    write_record(paths.manifest, manifest)


def find_run(root: RootPaths, reference: str) -> RunPaths:
    """A run by id, unique prefix, ``latest``, or path of its folder. Raises RunNotFoundError."""
    folder = Path(reference)
    if (folder / "run.json").is_file():
        return RunPaths(folder.absolute())
    names = sorted(p.parent.name for p in root.runs.glob("*/run.json")) if root.runs.is_dir() else []
    if reference == "latest" and names:
        return root.run(max(names, key=lambda n: ((root.run(n).manifest).stat().st_ctime, n)))
    matching = [name for name in names if name == reference] or [n for n in names if n.startswith(reference)]
    if len(matching) == 1:
        return root.run(matching[0])
    if len(matching) > 1:
        raise RunNotFoundError(f"{reference!r} fits several runs: {', '.join(matching[:8])}")
    known = f"runs there: {', '.join(names[-5:])}" if names else "there are no runs there"
    raise RunNotFoundError(
        f"no run {reference!r} under {root.runs}", next_action=f"{known}; another root is given with --root DIR"
    )


def load_manifest(paths: RunPaths) -> RunManifest:
    """The manifest of a run. Raises RunNotFoundError when it is missing or damaged."""
    try:
        return read_record(RunManifest, paths.manifest)
    except EvidenceError as error:
        raise RunNotFoundError(
            f"{paths.manifest}: {error}", next_action="the run's manifest is damaged: climb anew; its evidence is kept"
        ) from error


def load_results(paths: RunPaths, manifest: RunManifest) -> dict[str, RungResult]:
    """Recorded results by rung, in ladder order; rungs without one are left out. Raises EvidenceError."""
    return {
        name: read_record(RungResult, paths.rung(name).result)
        for name in manifest.inputs.ladder.names
        if paths.rung(name).result.exists()
    }


class Owner(Record):
    """Which process collects an attempt."""

    host: str
    pid: int
    start_ticks: int | None
    at: float

    @classmethod
    def this_process(cls) -> Owner:
        pid = os.getpid()
        return cls(host=socket.gethostname(), pid=pid, start_ticks=start_ticks(pid), at=time.time())

    def alive(self) -> bool:
        """True when it runs on this host. Of other hosts nothing is known: not alive."""
        return self.host == socket.gethostname() and is_alive(self.pid, self.start_ticks)


@dataclass(frozen=True)
class Attempt:
    """One attempt at a rung as it lies on disk."""

    number: int
    paths: AttemptPaths
    evidence: EvidenceSet
    collection: Collection | None
    """None: collecting never ended (killed, or still going on)."""


def load_attempt(run: RunPaths, rung: str, number: int) -> Attempt:
    """An attempt's plan, seal and files. Raises EvidenceError when plan or seal are damaged."""
    paths = run.rung(rung).attempt(number)
    plan = read_record(Plan, paths.plan)
    collection = read_record(Collection, paths.collection) if paths.collection.exists() else None
    files = {
        name: Blob(name, path=paths.folder / name) for name in evidence_files(paths.folder) if name not in UNSEALED
    }
    prefix = paths.folder.relative_to(run.folder).as_posix()
    return Attempt(number, paths, EvidenceSet(plan, files, prefix), collection)


def evidence_files(folder: Path) -> list[str]:
    """Relative names of everything below an attempt's folder that is not a folder."""
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if not p.is_dir())


def claim_attempt(run: RunPaths, rung: str) -> tuple[int, AttemptPaths]:
    """A new attempt's folder, owned by this process. Making the folder is the claim: one process wins.

    Raises RequestError when a live process collects this rung of this run, StorageError.
    """
    numbers = run.rung(rung).attempts()
    if numbers:
        last = run.rung(rung).attempt(numbers[-1])
        owner = None
        if last.owner.exists() and not last.collection.exists():
            owner = read_record(Owner, last.owner)
        if owner is not None and owner.alive() and owner.pid != os.getpid():
            raise RequestError(
                f"rung {rung!r} of this run is being collected by process {owner.pid} on {owner.host}",
                next_action="wait for it, or interrupt it there; a new run is not disturbed by it",
            )
    number = numbers[-1] + 1 if numbers else 1
    paths = run.rung(rung).attempt(number)
    try:
        paths.folder.parent.mkdir(parents=True, exist_ok=True)
        paths.folder.mkdir()
    except FileExistsError as error:
        raise RequestError(f"rung {rung!r} of this run was just started by another process") from error
    except OSError as error:
        raise StorageError(f"cannot make {paths.folder}: {error.strerror}") from error
    write_record(paths.owner, Owner.this_process())
    return number, paths
