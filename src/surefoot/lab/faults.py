"""What can be broken in a lab on purpose, how, and how it is undone. The table FAULTS is all there is."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from surefoot.errors import RequestError
from surefoot.lab import disk, network
from surefoot.lab.base_root import CLOCK_LIBRARY
from surefoot.lab.configuration import GRES_CONF, SLURM_CONF, SPOOL, gres_conf
from surefoot.lab.hosts import script_on_host
from surefoot.lab.places import LabPaths
from surefoot.lab.spec import CLIMBER, HEAD, Tier
from surefoot.lab.state import LabState

ALL = "all"
"""In place of a host: every host that a fault goes with."""

_STALE = "/var/lib/lab-stale"
_EDIT = "KillWait=31"


@dataclass(frozen=True)
class Place:
    """Where a fault is: a host of a lab, and what was asked of the fault."""

    state: LabState
    paths: LabPaths
    host: str
    setting: str


Act = Callable[[Place], None]
Look = Callable[[Place], bool]


@dataclass(frozen=True)
class Fault:
    """One thing to break. `present` looks at the lab itself, not at what was recorded."""

    what: str
    """What is done, for people."""
    seen: str
    """How a cluster shows it, and when."""
    where: Literal["node", "head"]
    apply: Act
    mend: Act
    present: Look
    setting: str = ""
    """Default of what can be set; empty where nothing can."""
    allowed: str = ""
    """Pattern of the settings that are taken."""
    tiers: tuple[Tier, ...] = tuple(Tier)
    registers_anew: bool = False
    """Whether slurmd must be started again once this is mended, with all else that is on the host."""


def _script(text: str, *arguments: Callable[[Place], str]) -> Act:
    """An act that is a shell script on the host; `arguments` make its ``$1 …``."""

    def act(place: Place) -> None:
        script_on_host(place.state, place.host, text, *(make(place) for make in arguments), timeout_s=60)

    return act


def _true(text: str, *arguments: Callable[[Place], str]) -> Look:
    """A look that is a shell script on the host: exit 0 when the fault is there."""

    def look(place: Place) -> bool:
        made = [make(place) for make in arguments]
        return script_on_host(place.state, place.host, text, *made, check=False).returncode == 0

    return look


def _setting(place: Place) -> str:
    return place.setting


def _jobs(place: Place) -> str:
    return str(place.paths.shared / "jobs")


def _one_gpu_fewer(place: Place) -> str:
    """gres.conf as it would be with one GPU fewer. Raises RequestError where there is none to lose."""
    spec = place.state.spec
    if spec.gpus_per_node == 0:
        raise RequestError("this lab has no GPUs to lose", next_action="surefoot lab up --gpus-per-node 8")
    return gres_conf(spec.model_copy(update={"gpus_per_node": spec.gpus_per_node - 1}))


def _save(path: str) -> str:
    """Shell: keep a file as it is, once."""
    return f"[ -e {path}.lab-saved ] || cp -p {path} {path}.lab-saved\n"


def _restore(path: str) -> str:
    """Shell: put a kept file back. Over the file itself, so that it keeps what is mounted or open."""
    return f"if [ -e {path}.lab-saved ]; then cp -p {path}.lab-saved {path}; rm {path}.lab-saved; fi\n"


def register_anew(state: LabState, host: str) -> None:
    """Start a node's slurmd again, so that it registers with what the node has now. Its jobs go on.

    Killed first: a slurmd that could not register ignores TERM.
    """
    script_on_host(state, host, "lab-service kill slurmd || true\nlab-service restart slurmd", timeout_s=60)


FAULTS: dict[str, Fault] = {
    "slurmd-killed": Fault(
        what="slurmd is killed; what runs under it goes on",
        seen="down* after 15 to 35 s; jobs there: NODE_FAIL, requeued",
        where="node",
        apply=_script("lab-service kill slurmd"),
        mend=lambda place: register_anew(place.state, place.host),
        present=_true("! lab-service active slurmd"),
    ),
    "link-cut": Fault(
        what="the host's cable is pulled: eth0 has no carrier",
        seen="ssh and MPI hang at once; down* after 15 to 35 s",
        where="node",
        apply=lambda place: network.set_port(place.state.spec, place.host, up=False),
        mend=lambda place: network.set_port(place.state.spec, place.host, up=True),
        registers_anew=True,
        present=lambda place: not network.port_is_up(place.state.spec, place.host),
    ),
    "link-shaped": Fault(
        what="the host's link is held to a rate, both ways",
        seen="at once: collectives and storage across hosts slow down, nothing fails",
        where="node",
        apply=lambda place: network.shape(place.state.spec, place.host, place.setting),
        mend=lambda place: network.unshape(place.state.spec, place.host),
        present=lambda place: network.is_shaped(place.state.spec, place.host),
        setting="200mbit",
        allowed=r"[1-9]\d{0,5}(kbit|mbit|gbit)",
    ),
    "loopback-name": Fault(
        what="/etc/hosts gives the host's own name 127.0.1.1, as Debian's installer does",
        seen="by the name's address, at once; gloo fails between two such hosts, one alone opens its connections itself",
        where="node",
        apply=_script(_save("/etc/hosts") + r'sed -i "s/^.* $(hostname)\$/127.0.1.1 $(hostname)/" /etc/hosts'),
        mend=_script(_restore("/etc/hosts")),
        present=_true("grep -q '^127[.]0[.]1[.]1' /etc/hosts"),
    ),
    "munge-key": Fault(
        what="munge has another key than the rest of the cluster",
        seen="munge credentials do not decode at once; down* after 15 to 35 s",
        where="node",
        apply=_script(
            _save("/etc/munge/munge.key") + "head -c 1024 /dev/urandom >/etc/munge/munge.key\nlab-service restart munge"
        ),
        mend=_script(_restore("/etc/munge/munge.key") + "lab-service restart munge"),
        registers_anew=True,
        present=_true("[ -e /etc/munge/munge.key.lab-saved ] && ! cmp -s /etc/munge/munge.key{,.lab-saved}"),
    ),
    "gres-missing": Fault(
        what="slurmd finds one GPU fewer than slurm.conf declares",
        seen="within seconds: the node is drained, 'gres/gpu count reported lower than configured'",
        where="node",
        apply=_script(_save(GRES_CONF) + f'printf %s "$1" >{GRES_CONF}\nlab-service restart slurmd', _one_gpu_fewer),
        mend=_script(_restore(GRES_CONF)),
        registers_anew=True,
        present=_true(f"[ -e {GRES_CONF}.lab-saved ] && ! cmp -s {GRES_CONF}{{,.lab-saved}}"),
    ),
    "slurm-conf-edited": Fault(
        what=f"slurm.conf on one host is edited by hand ({_EDIT})",
        seen="by its digest at once; slurmctld logs it when the node registers next",
        where="node",
        apply=_script(_save(SLURM_CONF) + f"sed -i 's/^KillWait=.*/{_EDIT}/' {SLURM_CONF}"),
        mend=_script(_restore(SLURM_CONF)),
        present=_true(f"grep -q '^{_EDIT}$' {SLURM_CONF}"),
    ),
    "disk-full": Fault(
        what=f"{SPOOL} and /tmp lie on a full disk of 1 MiB",
        seen="at the next batch job: it is requeued and held, the node drained: 'SlurmdSpoolDir is full'; what needs /tmp fails",
        where="node",
        apply=_script(
            f"for place in {SPOOL} /tmp; do\n"
            '    mount -t tmpfs -o size=1m,mode=1777 lab-full "$place"\n'
            '    head -c 2M /dev/zero >"$place/full" 2>/dev/null || true\ndone'
        ),
        mend=_script(
            "grep '^lab-full ' /proc/mounts | cut -d ' ' -f 2 | while read -r place; do umount -l $place; done"
        ),
        registers_anew=True,
        present=_true("grep -q '^lab-full ' /proc/mounts"),
    ),
    "disk-slow": Fault(
        what="what the host reads from the disk below the shared root is held to a rate, by the kernel",
        seen="at once: what is not in memory already is read slowly on that host alone; nothing fails",
        where="node",
        apply=lambda place: disk.hold(place.state.spec.name, place.host, place.paths.shared, place.setting),
        mend=lambda place: disk.let_go(place.state.spec.name, place.host, place.paths.shared),
        present=lambda place: disk.is_held(place.state.spec.name, place.host),
        setting="2MB",
        allowed=disk.RATES,
    ),
    "clock-off": Fault(
        what="every program started from now on sees another time (a preloaded library; the kernel has one clock for all hosts)",
        seen="date and munge at once: credentials are rewound or expired; static programs and file times keep the true time",
        where="node",
        apply=_script(
            f'echo "$1" >/etc/lab-clock\n[ -e {CLOCK_LIBRARY} ]\necho {CLOCK_LIBRARY} >/etc/ld.so.preload\n'
            "lab-service kill slurmd || true\nfor name in munge slurmd ssh; do lab-service restart $name; done",
            _setting,
        ),
        mend=_script(
            "rm -f /etc/ld.so.preload /etc/lab-clock\nfor name in munge ssh; do lab-service restart $name; done"
        ),
        registers_anew=True,
        present=_true("[ -s /etc/ld.so.preload ]"),
        setting="+600s",
        allowed=r"[+-][1-9]\d{0,6}s",
    ),
    "stale-job-folder": Fault(
        what="the host sees an old copy of <shared>/jobs: one file of each package differs, new packages are missing",
        seen="when files are verified from every node; without that, not at all",
        where="node",
        apply=_script(
            f'[ -d "$1" ] || install -d -o {CLIMBER} -g {CLIMBER} "$1"\n'
            f'mkdir -p {_STALE}\ncp -a "$1/." {_STALE}/\n'
            f"for package in {_STALE}/*/; do\n"
            "    file=$(find \"$package\" -name '*.py' -type f | sort | head -n 1)\n"
            '    [ -z "$file" ] || echo "# an older copy" >>"$file"\ndone\n'
            f'mount --bind {_STALE} "$1"',
            _jobs,
        ),
        mend=_script(f'while mountpoint -q "$1"; do umount -l "$1"; done\nrm -rf {_STALE}', _jobs),
        present=_true('mountpoint -q "$1"', _jobs),
    ),
    "slurmctld-stopped": Fault(
        what="slurmctld is stopped: nothing is placed, asked or cancelled",
        seen="at once: every Slurm command says 'Unable to contact slurm controller'; running jobs go on",
        where="head",
        apply=_script("lab-service stop slurmctld"),
        mend=_script("lab-service start slurmctld"),
        present=_true("! lab-service active slurmctld"),
    ),
    "slurmdbd-stopped": Fault(
        what="slurmdbd is stopped: accounting does not answer",
        seen="at once: sacct and sacctmgr fail; jobs go on, their records come later",
        where="head",
        apply=_script("lab-service stop slurmdbd"),
        mend=_script("lab-service start slurmdbd"),
        present=_true("! lab-service active slurmdbd"),
        tiers=(Tier.HOSTS,),
    ),
}
"""Name → fault, in the order of the documentation."""


def chosen(state: LabState, name: str, host: str | None, setting: str | None) -> tuple[Fault, tuple[str, ...], str]:
    """The fault, the hosts (``all`` means all it goes with) and the setting that a request means. Raises RequestError saying what is allowed."""
    if name not in FAULTS:
        raise RequestError(f"no such fault: {name!r}", next_action=f"faults: {', '.join(FAULTS)}")
    fault = FAULTS[name]
    if state.spec.tier not in fault.tiers:
        raise RequestError(
            f"{name} needs a lab of the tier {' or '.join(fault.tiers)}, this one is {state.spec.tier}",
            next_action=f"surefoot lab up --tier {fault.tiers[0]} --name OTHER",
        )
    possible = (HEAD,) if fault.where == "head" else state.spec.node_names
    host = host or possible[0]
    if host not in (*possible, ALL):
        raise RequestError(
            f"{name} does not go with the host {host!r}", next_action=f"hosts: {', '.join(possible)}, or {ALL}"
        )
    if setting is not None and not (fault.allowed and re.fullmatch(fault.allowed, setting)):
        raise RequestError(
            f"{name} does not take the setting {setting!r}",
            next_action=f"one like {fault.setting!r}" if fault.allowed else "leave --set out",
        )
    return fault, possible if host == ALL else (host,), setting or fault.setting
