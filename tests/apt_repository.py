"""A local apt repository: packages with all that they need, for hosts that reach nothing else.

They are fetched once, by apt's own means, into a folder of the lab's home, for a base root and its
suite; what is in that base root already is not fetched. Any change of what is asked for is another folder.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

from surefoot.lab.base_root import machine_apt_options
from surefoot.lab.places import LabHome
from surefoot.lab.state import locked


def repository(home: LabHome, base: str, packages: Iterable[str], *, own: ModuleType | None = None) -> Path:
    """The folder of a repository that has these packages; fetched first where it is not there.

    `own`: a module whose ``write_package(folder, work)`` builds one more.
    """
    wanted = sorted(set(packages))
    made = Path(str(own.__file__)).read_text() if own else ""
    key = hashlib.sha256("\n".join([base, *wanted, made]).encode()).hexdigest()[:12]
    folder = home.folder / "apt" / key
    with locked(folder.with_suffix(".lock"), "fetching packages", wait=True):  # tests run side by side
        if not (folder / "Packages").exists():
            _fetch(folder, home.bases / base, wanted, own)
    return folder


def _fetch(folder: Path, base: Path, wanted: list[str], own: ModuleType | None) -> None:
    draft = folder.with_suffix(".half")
    shutil.rmtree(draft, ignore_errors=True)
    (draft / "lists/partial").mkdir(parents=True)
    (draft / "partial").mkdir()
    options = _apt_options(base, draft)
    _run("apt-get", *options, "update")
    _run("apt-get", *options, "--download-only", "--no-install-recommends", "--yes", "install", *wanted)
    for rest in ("lists", "partial", "lock"):
        path = draft / rest
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    if own is not None:
        own.write_package(draft, draft / "work")
        shutil.rmtree(draft / "work")
    write_index(draft)
    draft.rename(folder)


def write_index(folder: Path) -> None:
    """The index of the packages in a folder, as apt reads it."""
    done = subprocess.run(
        ["dpkg-scanpackages", "--multiversion", "."],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    (folder / "Packages").write_text(done.stdout)


def _apt_options(base: Path, draft: Path) -> list[str]:
    """Apt as it is on this machine, but with the base root's sources and what is installed there, and files of its own."""
    (draft / "lists/sources").mkdir()
    for number, source in enumerate([base / "etc/apt/sources.list", *(base / "etc/apt/sources.list.d").glob("*")]):
        if source.exists():
            shutil.copyfile(source, draft / f"lists/sources/{number}{source.suffix}")
    options = {
        "Dir::State::status": base / "var/lib/dpkg/status",
        "Dir::State::lists": draft / "lists",
        "Dir::State::extended_states": "/dev/null",
        "Dir::Cache::archives": draft,
        "Dir::Cache::pkgcache": "",
        "Dir::Cache::srcpkgcache": "",
        "Dir::Etc::sourcelist": "/dev/null",
        "Dir::Etc::sourceparts": draft / "lists/sources",
        "Dir::Etc::preferencesparts": "/dev/null",
        "Dir::Etc::trustedparts": base / "etc/apt/trusted.gpg.d",
        "APT::Sandbox::User": "root",
        "Debug::NoLocking": "1",  # nothing is installed: another download beside the same base is no matter
        "Acquire::Languages": "none",
        **machine_apt_options(),
    }
    return [word for name, value in options.items() for word in ("-o", f"{name}={value}")]


def _run(*argv: str) -> None:
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, f"{' '.join(argv)}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
