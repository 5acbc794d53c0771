"""Which files make a host of the lab out of the base root. Pure, but for `write_files`."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from surefoot.lab import configuration as text
from surefoot.lab import scripts
from surefoot.lab.base_root import RESTD, identity
from surefoot.lab.spec import HEAD, LabSpec, Tier

_WAIT_FOR_DATABASE_DAEMON = (
    "[Service]\nExecStartPost=/usr/bin/timeout 60 "
    "/bin/bash -c 'until (exec 3<>/dev/tcp/127.0.0.1/6819) 2>/dev/null; do sleep 0.1; done'\n"
)
_MARIADB = """\
[mariadbd]
init_file=/etc/mysql/lab.sql
innodb_buffer_pool_size=64M
innodb_flush_log_at_trx_commit=2
performance_schema=off
# slurmdbd wants it off; older servers do not know it.
loose_innodb_snapshot_isolation=OFF
"""
_EARLY = "[Unit]\nDefaultDependencies=no\n"
_RESTD_UNIT = f"""\
[Service]
User={RESTD}
Group={RESTD}
Environment=SLURM_JWT=daemon
ExecStart=
ExecStart=/usr/sbin/slurmrestd -a rest_auth/jwt 0.0.0.0:6820
"""


@dataclass(frozen=True)
class HostFile:
    """A file of one host. `owner` is a user of the base root; with `link` the content is where it points to."""

    path: str
    content: str | bytes
    mode: int = 0o644
    owner: str = "root"
    link: bool = False


@dataclass(frozen=True)
class Secrets:
    """What the hosts of one lab share and nobody else has."""

    munge_key: bytes
    jwt_key: bytes
    database_password: str


@dataclass(frozen=True)
class Identity:
    """Who a host is: its keys, and what it knows of the others."""

    machine_id: str
    ssh_host_key: str
    authorized_keys: str
    known_hosts: str


def services(tier: Tier, host: str) -> tuple[str, ...]:
    """Services of a host beyond those that every base root starts, in the order they are started in."""
    if tier is Tier.NAMESPACES:
        return ("munge", "ssh", "slurmctld" if host == HEAD else "slurmd")
    return ("mariadb", "slurmdbd", "slurmctld", "slurmrestd") if host == HEAD else ("slurmd",)


def host_files(
    spec: LabSpec,
    slot: int,
    host: str,
    secrets: Secrets,
    who: Identity,
    *,
    release: text.Release = text.DEFAULT_RELEASE,
) -> list[HostFile]:
    """All files of one host that the base root does not have, or not so."""
    if spec.bare:
        return _bare_files(spec, host, who)
    if spec.by_roles:
        return [*_bare_files(spec, host, who), HostFile(scripts.SERVICE, scripts.SERVICE_SYSTEMD, mode=0o755)]
    files = [
        *_reachable(host, who),
        HostFile("/etc/hosts", text.hosts_file(spec, slot)),
        HostFile("/etc/ssh/ssh_known_hosts", who.known_hosts),
        HostFile("/etc/munge/munge.key", secrets.munge_key, mode=0o400, owner="munge"),
        HostFile(text.SLURM_CONF, text.slurm_conf(spec, slot, release)),
        HostFile(text.GRES_CONF, text.gres_conf(spec)),
        HostFile(text.CGROUP_CONF, text.cgroup_conf(release)),
        HostFile(text.JWT_KEY, secrets.jwt_key, mode=0o600, owner="slurm"),
        HostFile(scripts.DEVICES, scripts.devices_script(0 if host == HEAD else spec.gpus_per_node), mode=0o755),
    ]
    if spec.tier is Tier.NAMESPACES:
        return [
            *files,
            HostFile(scripts.SERVICE, scripts.SERVICE_PLAIN, mode=0o755),
            HostFile(scripts.INIT, scripts.INIT_PLAIN, mode=0o755),
            HostFile("/etc/lab-services", "".join(f"{name}\n" for name in services(spec.tier, host))),
        ]
    files += [
        HostFile(scripts.SERVICE, scripts.SERVICE_SYSTEMD, mode=0o755),
        *_enabled(spec.tier, host),
    ]
    return files + (
        _head_files(secrets)
        if host == HEAD
        else [_drop_in("slurmd", "[Service]\nExecStartPre=/usr/local/sbin/lab-devices\n")]
    )


def _reachable(host: str, who: Identity) -> list[HostFile]:
    """Who the host is, and its door for root."""
    return [
        HostFile("/etc/hostname", f"{host}\n"),
        HostFile("/etc/machine-id", f"{who.machine_id}\n", mode=0o444),
        HostFile("/etc/ssh/ssh_host_ed25519_key", who.ssh_host_key, mode=0o600),
        HostFile("/root/.ssh/authorized_keys", who.authorized_keys, mode=0o600),
    ]


def _bare_files(spec: LabSpec, host: str, who: Identity) -> list[HostFile]:
    """What Debian's installer leaves, its line for 127.0.1.1 included; and GPUs, which a machine has before its system."""
    unit = "lab-devices.service"
    return [
        *_reachable(host, who),
        HostFile("/etc/hosts", f"127.0.0.1\tlocalhost\n127.0.1.1\t{host}\n"),
        HostFile(scripts.DEVICES, scripts.devices_script(0 if host == HEAD else spec.gpus_per_node), mode=0o755),
        HostFile(f"/etc/systemd/system/{unit}", f"{_EARLY}[Service]\nType=oneshot\nExecStart={scripts.DEVICES}\n"),
        HostFile(f"/etc/systemd/system/sysinit.target.wants/{unit}", f"/etc/systemd/system/{unit}", link=True),
    ]


def _enabled(tier: Tier, host: str) -> Iterable[HostFile]:
    for name in services(tier, host):
        unit = f"{name}.service"
        yield HostFile(f"/etc/systemd/system/multi-user.target.wants/{unit}", f"/lib/systemd/system/{unit}", link=True)


def _head_files(secrets: Secrets) -> list[HostFile]:
    password = secrets.database_password
    return [
        HostFile("/etc/slurm/slurmdbd.conf", text.slurmdbd_conf(password), mode=0o600, owner="slurm"),
        HostFile("/etc/mysql/lab.sql", text.database_sql(password), mode=0o600, owner="mysql"),
        HostFile("/etc/mysql/mariadb.conf.d/99-lab.cnf", _MARIADB),
        # slurmctld gives up at its first start when the database daemon does not answer yet.
        _drop_in("slurmdbd", _WAIT_FOR_DATABASE_DAEMON),
        _drop_in("slurmctld", "[Unit]\nAfter=slurmdbd.service\n"),
        _drop_in("slurmrestd", _RESTD_UNIT),
    ]


def _drop_in(service: str, content: str) -> HostFile:
    return HostFile(f"/etc/systemd/system/{service}.service.d/lab.conf", content)


def write_files(files: Iterable[HostFile], *, upper: Path, base: Path) -> None:
    """Write a host's files into its upper layer, before it starts."""
    upper.mkdir(parents=True, exist_ok=True)
    for file in files:
        target = upper / file.path.lstrip("/")
        _make_folders(target.parent, upper, base)
        if file.link:
            target.symlink_to(str(file.content))
            continue
        target.write_bytes(file.content if isinstance(file.content, bytes) else file.content.encode())
        os.chown(target, *identity(base, file.owner))
        target.chmod(file.mode)


def make_reachable(folder: Path, *, upper: Path, base: Path) -> None:
    """Let every user of a host come to a folder that will be mounted there: /root is closed to others by itself."""
    parent = upper / folder.parent.relative_to("/")
    _make_folders(parent, upper, base)
    while parent != upper:
        parent.chmod(parent.stat().st_mode | 0o111)
        parent = parent.parent


def _make_folders(folder: Path, upper: Path, base: Path) -> None:
    """Folders of the upper layer hide those of the base root: they take over owner and mode (munge insists on its own)."""
    if folder.exists():
        return
    _make_folders(folder.parent, upper, base)
    folder.mkdir()
    below = base / folder.relative_to(upper)
    if below.is_dir():
        shutil.copystat(below, folder)
        facts = below.stat()
        os.chown(folder, facts.st_uid, facts.st_gid)
    elif folder.name == ".ssh":
        folder.chmod(0o700)
