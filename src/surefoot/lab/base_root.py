"""The base root: a Debian with Slurm, built once, that every host of every lab lies over as a read-only layer."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from surefoot.errors import MachineryError
from surefoot.files import sha256_file, write_atomic
from surefoot.lab.commands import ALONE, remove_tree, run
from surefoot.lab.places import LabHome
from surefoot.lab.spec import CLIMBER, CLIMBER_UID, DEFAULT_SUITE
from surefoot.lab.state import load, locked
from surefoot.model.base import digest_of
from surefoot.scheduler.processes import start_ticks

SUITES: dict[str, str] = {"bullseye": "20.11", "bookworm": "22.05", "trixie": "24.11", "sid": "newest"}
"""Debian suites that a lab was brought up with, and the release of Slurm in each."""
PACKAGES = (
    *("systemd", "systemd-sysv", "dbus", "mount", "procps", "less", "ca-certificates", "curl", "rsync"),
    *("iproute2", "iputils-ping", "openssh-server", "openssh-client"),
    *("python3", "python3-venv", "python3-apt"),
    "chrony",
    *("munge", "slurm-client", "slurmd", "slurmctld", "slurmdbd", "slurmrestd"),
    *("slurm-wlm-jwt-plugin", "slurm-wlm-mysql-plugin", "mariadb-server"),
    "tcc",  # a small C compiler, for the library behind the fault clock-off
)
BARE_PACKAGES = ("systemd", "systemd-sysv", "openssh-server", "python3")
"""Of hosts that a lab starts bare: what Ansible needs to come in, and nothing that a role installs."""
_NOT_IN: dict[str, tuple[str, ...]] = {"bullseye": ("slurm-wlm-jwt-plugin", "slurm-wlm-mysql-plugin")}
"""Packages that a suite does not have: in Debian 11 the plugin for MariaDB is in slurm-wlm-basic-plugins."""
_RELEASE_ALONE: dict[str, str] = {"bullseye": "http://deb.debian.org/debian"}
"""Mirror of suites whose security archive is being taken down: its index names packages that are gone."""
RESTD = "slurmrestd"
"""The user that slurmrestd runs as: it refuses root and SlurmUser."""
RESTD_UID = 2002

CLOCK_LIBRARY = "/usr/local/lib/lab-clock.so"
"""Preloaded by the fault clock-off; made from clock.c when the base root is built."""

_CLOCK_SOURCE = Path(__file__).with_name("clock.c")
_REVISION = 3
"""Raise it when `_settle` changes: a base root of another revision is another one."""

_DISABLED = (
    *("mariadb.service", "slurmd.service", "slurmctld.service", "slurmdbd.service", "slurmrestd.service"),
    *("apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "fstrim.timer", "e2scrub_all.timer"),
    *("systemd-pstore.service", "systemd-timesyncd.service", "systemd-networkd.service", "getty@tty1.service"),
    *("chrony.service", "chronyd.service"),  # started by the role common: without a right to set the clock, set up so
)
_MASKED = (
    *(
        "console-getty.service",
        "getty.target",
        "sys-kernel-debug.mount",
        "dev-hugepages.mount",
        "sys-fs-fuse-connections.mount",
    ),
    *("systemd-update-utmp.service", "systemd-update-utmp-runlevel.service", "systemd-logind.service"),
)
_FORWARDED = ("Acquire::Check-Valid-Until", "Acquire::Check-Date", "Acquire::http::Proxy", "Acquire::https::Proxy")
"""How apt on this machine is set up to reach its mirror; the base root is fetched the same way."""


def packages(suite: str, *, bare: bool = False) -> tuple[str, ...]:
    """What is installed in a base root of this suite, with all that it needs."""
    if bare:
        return BARE_PACKAGES
    return tuple(name for name in PACKAGES if name not in _NOT_IN.get(suite, ()))


def base_key(mirror: str, suite: str = DEFAULT_SUITE, *, bare: bool = False) -> str:
    """Name of the base root that this version of Surefoot builds: the digest of what goes into it."""
    named = packages(suite, bare=bare)
    parts: dict[str, object] = {"suite": suite, "packages": named, "revision": _REVISION, "mirror": mirror}
    parts |= {} if bare else {"clock": sha256_file(_CLOCK_SOURCE)}
    return digest_of(parts)[:12]


def build_command(
    target: Path, mirror: str, apt_options: dict[str, str], suite: str = DEFAULT_SUITE, *, bare: bool = False
) -> list[str]:
    """The command that fills `target`. Pure."""
    source = mirror or _RELEASE_ALONE.get(suite, "")
    options = {"APT::Install-Recommends": "false", "Acquire::Languages": "none", **apt_options}
    command = [*ALONE, "mmdebstrap", "--quiet", "--variant=apt"]
    command.append(f"--include={','.join(packages(suite, bare=bare))}")
    command += [f'--aptopt={name} "{value}"' for name, value in options.items()]
    command += [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in ("man", "locale", "doc")]
    command.append("--dpkgopt=force-unsafe-io")  # half a base root is thrown away, not repaired
    return [*command, suite, str(target), *([source] if source else [])]


def machine_apt_options() -> dict[str, str]:
    """The settings of apt on this machine that decide whether a mirror is reached (`_FORWARDED`)."""
    options = {}
    for line in run(["apt-config", "dump"], check=False).stdout.splitlines():
        name, _, value = line.rstrip(";").partition(" ")
        if name in _FORWARDED:
            options[name] = value.strip('"')
    return options


def ensure_base(home: LabHome, suite: str, mirror: str, say: Callable[[str], None], *, bare: bool = False) -> str:
    """Key of the base root, built first where it is not there yet. Two labs that ask at once build it once."""
    key = base_key(mirror, suite, bare=bare)
    record = home.bases / f"{key}.json"
    if record.exists():  # nobody waits for another suite's base root to be built
        return key
    with locked(home.base_lock, "building the base root", wait=True):
        _remove_halves(home)
        if not record.exists():
            say(f"building the base root (Debian {suite}, {'bare' if bare else 'with Slurm'}, once)")
            _build(home, key, suite, mirror, bare=bare)
            say(f"base root built in {json.loads(record.read_text())['seconds']:.0f} s")
            _remove_unused(home, key, suite, bare=bare)
    return key


def _build(home: LabHome, key: str, suite: str, mirror: str, *, bare: bool) -> None:
    started = time.monotonic()
    home.bases.mkdir(parents=True, exist_ok=True)
    draft = home.bases / f"{key}.{os.getpid()}-{start_ticks(os.getpid())}.half"
    run(
        build_command(draft, mirror, machine_apt_options(), suite, bare=bare),
        timeout_s=900,
        name=f"mmdebstrap {suite}",
        next_action=f"see that apt-get update works here, and that the mirror has {suite} (tried: {', '.join(SUITES)});"
        " another mirror is named with --mirror URL",
    )
    _settle(draft, bare=bare)
    final = home.bases / key
    if final.exists():  # its record is missing: it was never whole
        remove_tree(final)
    draft.rename(final)
    facts: dict[str, object] = {"suite": suite, "packages": packages(suite, bare=bare), "revision": _REVISION}
    facts |= {"bare": bare, "seconds": time.monotonic() - started}
    write_atomic(home.bases / f"{key}.json", json.dumps(facts, indent=1) + "\n")


def _settle(root: Path, *, bare: bool) -> None:
    """What all hosts share beyond packages: users, what starts, what must not be shared."""
    if not bare:
        _add_users(root)
        _add_clock_library(root)
    system = root / "etc/systemd/system"
    disable(system)
    for unit in _MASKED:
        (system / unit).symlink_to("/dev/null")
    for key in (root / "etc/ssh").glob("ssh_host_*"):
        key.unlink()
    (root / "etc/munge/munge.key").unlink(missing_ok=True)
    _write(
        root / "etc/systemd/journald.conf.d/lab.conf",
        "[Journal]\nStorage=volatile\nRuntimeMaxUse=16M\nRateLimitBurst=0\n",
    )
    _write(
        root / "etc/ssh/sshd_config.d/lab.conf",
        "UseDNS no\nPasswordAuthentication no\nPermitRootLogin prohibit-password\nMaxStartups 200\nMaxSessions 200\n",
    )
    _write(root / "etc/systemd/system.conf.d/lab.conf", "[Manager]\nDefaultTimeoutStopSec=10s\nShowStatus=no\n")


def _add_users(root: Path) -> None:
    for user, uid, shell in ((CLIMBER, CLIMBER_UID, "/bin/bash"), (RESTD, RESTD_UID, "/usr/sbin/nologin")):
        run(["chroot", str(root), "useradd", "-u", str(uid), "-U", "-M", "-s", shell, user])


def _add_clock_library(root: Path) -> None:
    shutil.copyfile(_CLOCK_SOURCE, root / "usr/local/src/lab-clock.c")
    compiler = ["tcc", "-shared", "-nostdlib", "-o", CLOCK_LIBRARY, "/usr/local/src/lab-clock.c"]
    run(["chroot", str(root), *compiler, *dlsym_library(root)])


def dlsym_library(root: Path) -> list[str]:
    """What a library that calls dlsym is linked with: in older versions of the C library it is not in libc itself."""
    if version(root, "libc6") >= (2, 34):
        return []
    return [f"/{path.relative_to(root)}" for path in root.glob("lib/*/libdl.so.2")]


def disable(system: Path) -> None:
    """Unlink what is not to start by itself from a folder of systemd's units."""
    # Looked at one by one: a pattern that ends in a plain name finds no link that leads nowhere on this machine.
    for link in [link for folder in system.glob("*.wants") for link in folder.iterdir()]:
        if link.name in _DISABLED:
            link.unlink()


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _remove_halves(home: LabHome) -> None:
    """Base roots that an interrupted build left. The lock is held: nobody is building now."""
    for half in home.bases.glob("*.half"):
        remove_tree(half)


def _remove_unused(home: LabHome, key: str, suite: str, *, bare: bool) -> None:
    """Base roots of the same suite and kind, of other versions of Surefoot, that no lab stands on."""
    used = {key} | {load(home, name).base for name in home.names()}
    for record in home.bases.glob("*.json"):
        facts = json.loads(record.read_text())
        same = facts.get("suite", DEFAULT_SUITE) == suite and facts.get("bare", False) == bare
        if record.stem not in used and same:
            record.unlink()
            remove_tree(record.with_suffix(""))


def identity(root: Path, user: str) -> tuple[int, int]:
    """User and group number of a user of the base root. Raises MachineryError where it has no such user."""
    for line in (root / "etc/passwd").read_text().splitlines():
        fields = line.split(":")
        if fields[0] == user:
            return int(fields[2]), int(fields[3])
    raise MachineryError(f"{root} has no user {user}", next_action="remove that folder; surefoot lab up builds it anew")


def version(root: Path, package: str) -> tuple[int, int]:
    """Version of a package of the base root, ``(22, 5)``, as dpkg has it. Raises MachineryError where it has none."""
    status = (root / "var/lib/dpkg/status").read_text()
    row = rf"^Package: {re.escape(package)}\n(?:.+\n)*?Version: (?:\d+:)?(\d+)(?:\.(\d+))?"
    found = re.search(row, status, re.MULTILINE)
    if found is None:
        raise MachineryError(
            f"{root} has no package {package}", next_action="remove that folder; surefoot lab up builds it anew"
        )
    return int(found.group(1)), int(found.group(2) or 0)
