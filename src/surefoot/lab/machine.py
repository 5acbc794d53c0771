"""Whether this machine can hold a lab, and what it lacks. Looks, changes nothing."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from surefoot.errors import RequestError
from surefoot.lab.commands import found, run
from surefoot.lab.spec import Tier

PROGRAMS: dict[str, str] = {
    "mmdebstrap": "mmdebstrap",
    "ip": "iproute2",
    "tc": "iproute2",
    "nsenter": "util-linux",
    "unshare": "util-linux",
    "setpriv": "util-linux",
    "socat": "socat",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
}
"""Program → Debian package that holds it: what every lab needs of this machine."""

NSPAWN = ("systemd-nspawn", "systemd-container")
KEYRING = (Path("/usr/share/keyrings/debian-archive-keyring.gpg"), "debian-archive-keyring")
PACKAGES = sorted({*PROGRAMS.values(), NSPAWN[1], KEYRING[1]})
"""All packages of this machine that a lab uses (Debian and Ubuntu names)."""

_NAMESPACES = ("net", "mnt", "uts", "pid", "ipc")
_NO_UPPER = ("overlay", "nfs", "nfs4", "fuse", "cifs", "9p", "virtiofs", "vfat")
"""File systems that overlayfs can't put its upper layer on."""
_MIN_FREE_GIB = 3.0
CGROUP = Path("/sys/fs/cgroup")
_PRIVILEGED = "use a virtual machine, or a container of root's started with --privileged"


@dataclass(frozen=True)
class Problem:
    """What this machine lacks, and what helps."""

    what: str
    remedy: str


def problems(tier: Tier, home: Path) -> list[Problem]:
    """Everything that stands in the way of a lab of this tier in `home`; empty where nothing does."""
    return [*_rights(), *_programs(tier), *_kernel(), *_namespaces(), *_disk(home)]


def require(tier: Tier, home: Path) -> None:
    """Raises RequestError naming everything that is missing, at once."""
    missing = problems(tier, home)
    if missing:
        raise RequestError(
            "this machine cannot hold a lab:\n" + "\n".join(f"  - {problem.what}" for problem in missing),
            next_action="\n    ".join(dict.fromkeys(problem.remedy for problem in missing)),
        )


def require_root() -> None:
    """Raises RequestError unless run as root: namespaces, mounts and device files need it."""
    if os.geteuid() != 0:
        raise RequestError("the lab needs root: it makes namespaces, mounts and device files", next_action="use sudo")


def _rights() -> Iterable[Problem]:
    if os.geteuid() != 0:
        yield Problem("not root: the lab makes namespaces, mounts and device files", "run it with sudo")
    elif not _has_capability(21):
        yield Problem(
            "root without CAP_SYS_ADMIN, as in an unprivileged container",
            _PRIVILEGED,
        )
    elif Path("/proc/self/uid_map").read_text().split() != ["0", "0", "4294967295"]:
        yield Problem("root of a user namespace only: device files cannot be made in it", _PRIVILEGED)


def _has_capability(number: int) -> bool:
    """Whether this process holds a capability (capabilities(7)): its bit of CapEff in /proc/self/status."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> number & 1)
    return False


def _programs(tier: Tier) -> Iterable[Problem]:
    wanted = dict(PROGRAMS) | (dict([NSPAWN]) if tier is Tier.HOSTS else {})
    missing = {program: package for program, package in wanted.items() if not found(program)}
    packages = set(missing.values())
    if not KEYRING[0].exists():
        packages.add(KEYRING[1])
    if packages:
        lacking = ", ".join(sorted(missing)) or KEYRING[1]
        remedy = f"apt-get update && apt-get install --no-install-recommends {' '.join(sorted(packages))}"
        yield Problem(f"not installed: {lacking}", remedy)


def _kernel() -> Iterable[Problem]:
    lacking = [name for name in _NAMESPACES if not Path(f"/proc/self/ns/{name}").exists()]
    if lacking:
        yield Problem(f"the kernel has no {', '.join(lacking)} namespaces", "use a kernel that has them")
    if not _has_overlay():
        yield Problem("the kernel knows no overlayfs", "use a kernel that has it (modprobe overlay must work)")
    if not cgroup_folders("probe", "probe"):
        yield Problem(f"no cgroup hierarchy is mounted on {CGROUP}", f"mount -t cgroup2 none {CGROUP}")


def _has_overlay() -> bool:
    """Whether overlayfs is there or, as on a machine just started, would be loaded when it is mounted."""
    if "\toverlay\n" in Path("/proc/filesystems").read_text():
        return True
    ask = "PATH=$PATH:/usr/sbin:/sbin; modprobe --dry-run --quiet overlay"
    return run(["sh", "-c", ask], check=False).returncode == 0


def _namespaces() -> Iterable[Problem]:
    """Tried, not read: a container's seccomp filter or user namespace forbids what capabilities seem to allow."""
    if os.geteuid() != 0 or not _has_capability(21) or not found("unshare"):  # said already
        return
    done = run(
        ["unshare", "--mount", "--uts", "--ipc", "--pid", "--net", "--fork", "--kill-child", "true"], check=False
    )
    if done.returncode != 0:
        yield Problem(f"namespaces cannot be made: {done.stderr.strip()}", _PRIVILEGED)


def _disk(home: Path) -> Iterable[Problem]:
    place = home
    while not place.exists():
        place = place.parent
    kind = filesystem(place)
    if kind.split(".")[0] in _NO_UPPER:
        yield Problem(
            f"{home} lies on {kind}, which overlayfs cannot write to",
            "name a folder on a local disk with --home or SUREFOOT_LAB_HOME; in a container, one on a volume",
        )
    disk = os.statvfs(place)
    free_gib = disk.f_bavail * disk.f_frsize / 2**30
    if free_gib < _MIN_FREE_GIB:
        yield Problem(f"{free_gib:.1f} GiB free in {place}, {_MIN_FREE_GIB:.0f} needed", "free space, or use --home")


def filesystem(place: Path) -> str:
    """Type of the file system that holds `place`, from /proc/self/mountinfo (proc(5))."""
    best, kind = "", ""
    text = str(place.resolve())
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        left, _, right = line.partition(" - ")
        point = left.split()[4]
        inside = text == point or text.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):  # a later mount hides an earlier one
            best, kind = point, right.split()[0]
    return kind


def cgroup_folders(lab: str, host: str, top: Path = CGROUP) -> list[Path]:
    """The cgroups of one host: one in each hierarchy that systemd keeps account of processes in.

    Hybrid machines have two (``unified`` and ``systemd``), old ones ``systemd``, new ones the top
    itself. Empty where no hierarchy is mounted.
    """
    if (top / "cgroup.controllers").exists():
        tops = [top]
    else:
        tops = [top / name for name in ("unified", "systemd") if (top / name / "cgroup.procs").exists()]
    return [folder / "surefoot-lab" / lab / host for folder in tops]
