"""Hosts of a lab as processes of this machine: start, enter, end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from surefoot.errors import MachineryError
from surefoot.lab import scripts
from surefoot.lab.base_root import version
from surefoot.lab.commands import run
from surefoot.lab.disk import groups as disk_groups
from surefoot.lab.machine import cgroup_folders
from surefoot.lab.places import LabHome
from surefoot.lab.spec import CLIMBER, LabSpec, Tier, namespace
from surefoot.lab.state import HostProcess, LabState, observed

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_END_S = 10.0


def start_command(home: LabHome, spec: LabSpec, base: str, host: str) -> list[str]:
    """The command that becomes the host: one process, whose namespaces hold all mounts. Pure but for the cgroups' place."""
    folder = home.lab(spec.name).host(host)
    groups = " ".join(str(group) for group in cgroup_folders(spec.name, host))
    return [
        *("nsenter", f"--net=/run/netns/{namespace(spec.name, host)}"),
        *("unshare", "--mount", "--propagation", "slave", "--"),
        *("sh", "-c", scripts.START_HOST, "sh", groups, str(home.bases / base), str(folder.folder)),
        *(_nspawn(home, spec, base, host) if spec.tier is Tier.HOSTS else _plain(home, spec, host)),
    ]


_V2_ALONE = 258
"""Since this version systemd does not start where it sees a hierarchy of cgroup v1."""


def _nspawn(home: LabHome, spec: LabSpec, base: str, host: str) -> list[str]:
    lab = home.lab(spec.name)
    only_v2 = version(home.bases / base, "systemd")[0] >= _V2_ALONE
    return [
        *(("env", "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1") if only_v2 else ()),
        *("systemd-nspawn", "--quiet", f"--directory={lab.host(host).root}"),
        *(f"--machine=surefoot-{spec.name}-{host}", f"--hostname={host}"),
        *("--register=no", "--keep-unit", "--kill-signal=SIGRTMIN+3", "--capability=CAP_NET_ADMIN"),
        *("--resolv-conf=off", "--timezone=off", "--link-journal=no"),
        *(f"--bind={lab.shared}", f"--bind={lab.user_homes}:/home"),
        *(f"--bind-ro={folder}" for folder in spec.binds),
        "--boot",
    ]


def _plain(home: LabHome, spec: LabSpec, host: str) -> list[str]:
    lab = home.lab(spec.name)
    return [
        *("unshare", "--uts", "--ipc", "--pid", "--fork", "--kill-child", "--"),
        *("sh", "-c", scripts.ENTER_ROOT, "sh"),
        *(str(lab.host(host).root), host, str(lab.shared), scripts.INIT, *spec.binds),
    ]


def start(home: LabHome, spec: LabSpec, base: str, host: str) -> HostProcess:
    """Start a host. It lives on when this command has ended."""
    folder = home.lab(spec.name).host(host)
    folder.work.mkdir(parents=True, exist_ok=True)
    folder.root.mkdir(exist_ok=True)
    with folder.console.open("wb") as console:
        process = subprocess.Popen(
            start_command(home, spec, base, host),
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    found = observed(process.pid)
    process.returncode = 0  # nobody waits for it: it is the lab's now, not this command's
    return found


def leader(process: HostProcess) -> int | None:
    """Process 1 of a host, by its number on this machine; None where it is not there (yet)."""
    if not process.alive():
        return None
    try:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        for child in children:
            for line in Path(f"/proc/{child}/status").read_text().splitlines():
                if line.startswith("NSpid:") and line.split()[-1] == "1" and len(line.split()) > 2:
                    return int(child)
    except OSError:  # it ended meanwhile
        return None
    return None


def enter_command(state: LabState, host: str, argv: Sequence[str], *, user: str = "root") -> list[str]:
    """The command that runs `argv` on a host without its network and sshd. Raises MachineryError where it is dead."""
    process = state.processes.get(host)
    inside = None if process is None else leader(process)
    if inside is None:
        raise MachineryError(
            f"the host {host} is not running",
            next_action=f"surefoot lab status --name {state.spec.name}, then lab down and lab up",
        )
    account = [] if user == "root" else ["runuser", "-u", user, "--"]
    user_home = "/root" if user == "root" else f"/home/{user}"
    return [
        *("nsenter", f"--target={inside}", "--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--root"),
        # nsenter --wd would open the folder on this machine, outside of the host's root.
        *("env", "-i", "-C", user_home, f"PATH={_PATH}", f"HOME={user_home}", "LANG=C.UTF-8"),
        *(f"TERM={os.environ.get('TERM', 'dumb')}", *account, *argv),
    ]


def on_host(
    state: LabState, host: str, argv: Sequence[str], *, timeout_s: float = 30, check: bool = True, user: str = "root"
) -> subprocess.CompletedProcess[str]:
    """Run a command on a host to its end. Raises MachineryError as `commands.run` does."""
    return run(enter_command(state, host, argv, user=user), timeout_s=timeout_s, check=check, name=f"{host}: {argv[0]}")


def script_on_host(
    state: LabState, host: str, script: str, *arguments: str, timeout_s: float = 30, check: bool = True
) -> subprocess.CompletedProcess[str]:
    """Run a shell script on a host; `arguments` are its ``$1 …``."""
    return on_host(state, host, ["bash", "-euc", script, "bash", *arguments], timeout_s=timeout_s, check=check)


def as_climber(state: LabState, host: str, argv: Sequence[str], *, timeout_s: float = 60) -> str:
    """What a command says that runs as the lab's ordinary user."""
    return on_host(state, host, argv, timeout_s=timeout_s, user=CLIMBER).stdout


def wait_until_reachable(state: LabState, *, timeout_s: float) -> None:
    """Wait until every host's sshd runs. Raises MachineryError naming the host that did not come to that."""
    deadline = time.monotonic() + timeout_s
    for host in state.spec.hosts:
        while True:
            if not state.alive(host):
                raise MachineryError(f"the host {host} ended")
            inside = leader(state.processes[host])
            asked = None if inside is None else on_host(state, host, ["systemctl", "is-active", "ssh"], check=False)
            if asked is not None and asked.returncode == 0:
                break
            if time.monotonic() > deadline:
                said = "it did not begin to boot" if asked is None else (asked.stdout + asked.stderr).strip()
                raise MachineryError(f"{host}: sshd does not run after {timeout_s:.0f} s: {said}")
            time.sleep(0.1)


def end(state: LabState) -> None:
    """End every host at once, with all it runs. Raises MachineryError where something will not end."""
    for process in state.processes.values():
        inside = leader(process)
        with contextlib.suppress(ProcessLookupError):
            if inside is not None:  # its end takes everything in the host along; its parent then ends by itself
                os.kill(inside, signal.SIGKILL)
            elif process.alive():
                os.kill(process.pid, signal.SIGKILL)
    deadline = time.monotonic() + _END_S
    while alive := [host for host, process in state.processes.items() if process.alive()]:
        if time.monotonic() > deadline:
            raise MachineryError(f"hosts that will not end: {', '.join(alive)}", next_action="look at ps and dmesg")
        time.sleep(0.02)
    name = state.spec.name
    for host in state.spec.hosts:
        for group in (*cgroup_folders(name, host), *disk_groups(name, host)):
            _empty(group)
    for group in (*cgroup_folders(name, "any"), *disk_groups(name, "any")):
        for folder in (group.parent, group.parent.parent):
            with contextlib.suppress(OSError):  # another lab is below it, or it was never made
                folder.rmdir()


def _empty(group: Path) -> None:
    """End what is left in a host's cgroup (an `up` that was killed before it wrote a process down), then remove it."""
    deadline = time.monotonic() + _END_S
    while group.exists():
        for folder in sorted([group, *(path for path in group.rglob("*") if path.is_dir())], reverse=True):
            try:
                for pid in (folder / "cgroup.procs").read_text().split():
                    if int(pid) not in (0, os.getpid()):
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(int(pid), signal.SIGKILL)
                folder.rmdir()
            except OSError:  # processes are still ending
                continue
        if time.monotonic() > deadline:
            raise MachineryError(f"the cgroup {group} will not empty", next_action=f"see {group}/cgroup.procs")
        if group.exists():
            time.sleep(0.02)
