"""The run folder: what is written there, by whom, and how it is found again."""

from __future__ import annotations

import contextlib
import difflib
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

from pydantic import ValidationError

from surefoot import __version__
from surefoot.engine.package import CONFIGURATION, configuration_tree
from surefoot.errors import EvidenceError, RequestError, RunNotFoundError, StorageError
from surefoot.evidence import Blob, EvidenceSet, parse_json, parse_record
from surefoot.files import entries, write_atomic
from surefoot.model.base import Record
from surefoot.model.run import Collection, Plan, RungResult, RunInputs, RunManifest
from surefoot.paths import AttemptPaths, RootPaths, RunPaths

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
    try:
        manifest = RunManifest(
            run_id=run_id,
            created_at=time.time(),
            surefoot_version=__version__,
            user=_user(),
            host=socket.gethostname(),
            command=command,
            inputs=inputs,
        )
    except ValidationError as error:
        if any(problem["loc"] == ("run_id",) for problem in error.errors()):
            raise RequestError(
                f"{run_id!r} cannot be the name of a run",
                next_action="use letters, digits, '.', '_' and '-', at most 81, a letter or digit first",
            ) from error
        raise
    paths = root.run(run_id)
    try:
        root.runs.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _cannot_make(root.runs, error) from error
    try:
        paths.folder.mkdir()
    except FileExistsError as error:
        if paths.manifest.exists():
            raise RequestError(f"run {run_id!r} exists already", next_action=f"--resume {run_id}") from error
        raise RequestError(
            f"{paths.folder} exists and is no run yet: another process is making it, or one died while it did",
            next_action="try again; when that says the same, remove that folder: nothing was recorded in it",
        ) from error
    except OSError as error:
        raise _cannot_make(paths.folder, error) from error
    save_inputs(paths, manifest, sources)
    return manifest


def _cannot_make(folder: Path, error: OSError) -> StorageError:
    return StorageError(
        f"cannot make {folder}: {error.strerror or error}", next_action="give a root that can be written: --root DIR"
    )


def _user() -> str:
    """Name of who runs this; the number where the number has no name (a container with a user of its own)."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def save_inputs(paths: RunPaths, manifest: RunManifest, sources: Mapping[str, str]) -> None:
    """The user's files, then the manifest."""
    for name, text in sources.items():
        write_atomic(paths.inputs / name, text)
    write_record(paths.manifest, manifest)


def find_run(root: RootPaths, reference: str) -> RunPaths:
    """A run by id, unique prefix, ``latest``, or path of its folder. Raises RunNotFoundError."""
    with contextlib.suppress(OSError, ValueError):  # what cannot be a path is looked for as an id
        if reference and (Path(reference) / "run.json").is_file():
            return RunPaths(Path(reference).resolve())
    names = sorted(p.parent.name for p in root.runs.glob("*/run.json")) if root.runs.is_dir() else []
    if reference == "latest" and names:
        return root.run(max(names, key=lambda n: ((root.run(n).manifest).stat().st_ctime, n)))
    matching = [name for name in names if name == reference]
    matching = matching or [name for name in names if reference and name.startswith(reference)]
    if len(matching) == 1:
        return root.run(matching[0])
    if len(matching) > 1:
        raise RunNotFoundError(
            f"{reference!r} fits {len(matching)} runs: {', '.join(matching[-8:])}",
            next_action="name one of them in full",
        )
    near = difflib.get_close_matches(reference, names, 3)
    known = f"runs there: {', '.join(names[-5:])}" if names else "there are no runs there"
    known = f"nearest: {', '.join(near)}" if near else known
    raise RunNotFoundError(
        f"no run {reference!r} under {root.runs}",
        next_action=f"{known}; another root is given with --root DIR",
    )


def load_manifest(paths: RunPaths) -> RunManifest:
    """The manifest of a run. Raises RunNotFoundError when it is missing, damaged, or contradicts itself."""
    try:
        data = parse_json(Blob(paths.manifest.name, path=paths.manifest).text(), file=paths.manifest.name)
        manifest = parse_record(RunManifest, data, file=paths.manifest.name)
    except EvidenceError as error:
        raise _damaged(paths, str(error)) from error
    # As it was written: a newer version may know keys that the run's own did not have.
    recorded = {name: data["inputs"][name] for name in CONFIGURATION}
    if configuration_tree(recorded).digest != manifest.inputs.configuration_digest:
        raise _damaged(paths, "its cluster, ladder, recipe or policy is not the one whose digest it records")
    return manifest


def _damaged(paths: RunPaths, problem: str) -> RunNotFoundError:
    return RunNotFoundError(
        f"{paths.manifest}: {problem}",
        next_action="the run's manifest is damaged: climb anew; its evidence is kept",
    )


def load_results(paths: RunPaths, manifest: RunManifest) -> dict[str, RungResult]:
    """Recorded results by rung, in ladder order; rungs without one are left out. Raises EvidenceError."""
    return {
        name: read_record(RungResult, paths.rung(name).result)
        for name in manifest.inputs.ladder.names
        if paths.rung(name).result.exists()
    }


@dataclass(frozen=True)
class Attempt:
    """One attempt at a rung as it lies on disk."""

    number: int
    paths: AttemptPaths
    evidence: EvidenceSet
    collection: Collection | None
    """None: collecting never ended (killed, or still going on)."""
    strange: Mapping[str, str]
    """What lies there and is no evidence: name → what it is."""


def load_attempt(run: RunPaths, rung: str, number: int) -> Attempt:
    """An attempt's plan, seal and files. Raises EvidenceError when plan or seal are damaged."""
    paths = run.rung(rung).attempt(number)
    plan = read_record(Plan, paths.plan)
    collection = read_record(Collection, paths.collection) if paths.collection.exists() else None
    files = {
        name: Blob(name, path=paths.folder / name) for name in evidence_files(paths.folder) if name not in UNSEALED
    }
    prefix = paths.folder.relative_to(run.folder).as_posix()
    return Attempt(number, paths, EvidenceSet(plan, files, prefix), collection, strange_files(paths.folder))


def evidence_files(folder: Path) -> list[str]:
    """Relative names of the regular files below an attempt's folder."""
    return [name for name, kind in _named(folder) if kind == "file"]


def strange_files(folder: Path) -> dict[str, str]:
    """Name → what is wrong with it, of everything there that can be no evidence. It is never opened:
    a pipe would hang its reader, a link leads out of the run.
    """
    return {name: kind for name, kind in _named(folder) if kind != "file"}


def _named(folder: Path) -> list[tuple[str, str]]:
    found = []
    for path, kind in entries(folder):
        name = path.relative_to(folder).as_posix()
        try:
            name.encode()
        except UnicodeEncodeError:
            shown = name.encode(errors="surrogateescape").decode(errors="backslashreplace")
            found.append((shown, "its name is not UTF-8"))
        else:
            found.append((name, kind))
    return sorted(found)
