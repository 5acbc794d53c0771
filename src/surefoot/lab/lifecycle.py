"""Up, down and status of a lab."""

from __future__ import annotations

import os
import secrets
import shutil
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from surefoot.errors import MachineryError, RequestError, SurefootError
from surefoot.files import write_atomic
from surefoot.lab import configuration, hosts, machine, network, provisioning
from surefoot.lab.base_root import ensure_base, identity, version
from surefoot.lab.commands import remove_tree, run
from surefoot.lab.host_files import Identity, Secrets, host_files, make_reachable, write_files
from surefoot.lab.hosts import on_host
from surefoot.lab.places import LabHome, LabPaths
from surefoot.lab.slurm import NodeState, add_accounts, node_states, wait_until_working
from surefoot.lab.spec import CLIMBER, CLIMBER_UID, HEAD, LabSpec, Tier
from surefoot.lab.state import AppliedFault, LabState, claim_slot, load, locked, release_slot, save
from surefoot.versions import at_least

Say = Callable[[str], None]
"""Takes a line for the person who waits."""

_UP_S = 120.0
_CONSOLE_LINES = 8


def up(home: LabHome, spec: LabSpec, *, mirror: str, say: Say) -> LabState:
    """Make a lab and wait until all its nodes are idle.

    Raises RequestError where this machine can't or a lab of that name exists, MachineryError where
    something broke on the way; what is there by then is removed by `down`.
    """
    machine.require(spec.tier, home.folder)
    tool = provisioning.require() if spec.by_roles else ""
    paths = home.lab(spec.name)
    for folder in spec.binds:
        if not Path(folder).is_dir():
            raise RequestError(f"--bind {folder}: no such folder", next_action="name a folder of this machine")
    with locked(paths.lock, f"surefoot lab up --name {spec.name}"):
        _refuse_existing(home, spec.name)
        base = ensure_base(home, spec.suite, mirror, say, bare=spec.bare)
        slot = claim_slot(home, spec.name)
        state = save(paths, LabState(spec=spec, slot=slot, base=base, phase="starting", made_at=time.time()))
        try:
            _write_lab(home, state)
            network.up(spec, slot)
            for host in spec.hosts:
                process = hosts.start(home, spec, base, host)
                state = save(paths, state.model_copy(update={"processes": {**state.processes, host: process}}))
            if spec.bare:
                say(f"{len(spec.hosts)} bare hosts started, waiting for their sshd")
                hosts.wait_until_reachable(state, timeout_s=_UP_S)
                return save(paths, state.model_copy(update={"phase": "up"}))
            if spec.by_roles:
                hosts.wait_until_reachable(state, timeout_s=_UP_S)
                provisioning.provision(tool, paths, say=say)
            say(f"{len(spec.hosts)} hosts started, waiting for Slurm")
            wait_until_working(state, timeout_s=_UP_S)
            if spec.tier is Tier.HOSTS and not spec.by_roles:
                add_accounts(state)
            state = _with_a_python_that_starts(paths, state, say)
            return save(paths, state.model_copy(update={"phase": "up"}))
        except SurefootError as error:
            error.message += "".join(f"\n  {line}" for line in _last_words(paths, state))
            error.next_action = f"look at {paths.hosts}, then: surefoot lab down --name {spec.name}"
            raise


def _with_a_python_that_starts(paths: LabPaths, state: LabState, say: Say) -> LabState:
    """This machine's Python may not start on older hosts (their C library): the cluster file then names their own."""
    from surefoot.rungs.runner import OLDEST_PYTHON

    spec = state.spec
    if not spec.python or on_host(state, HEAD, [spec.python, "-V"], check=False).returncode == 0:
        return state
    own = on_host(state, HEAD, ["python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]).stdout.strip()
    say(f"the Python of this machine does not start on {spec.suite}: the cluster file names the hosts' own, {own}")
    spec = spec.model_copy(update={"python": ""})
    oldest = "" if at_least(own, OLDEST_PYTHON) else own
    _write_cluster_file(spec, paths, oldest_python=oldest)
    return state.model_copy(update={"spec": spec})


def _refuse_existing(home: LabHome, name: str) -> None:
    if not home.lab(name).state.exists():
        return
    phase = load(home, name).phase
    if phase == "up":
        raise RequestError(
            f"the lab {name!r} exists already",
            next_action=f"surefoot lab status --name {name}; lab down removes it; --name OTHER makes another one",
        )
    raise RequestError(
        f"the lab {name!r} is half there: its `{'up' if phase == 'starting' else 'down'}` did not end",
        next_action=f"surefoot lab down --name {name}",
    )


def _last_words(paths: LabPaths, state: LabState) -> list[str]:
    """The ends of the consoles of hosts that died."""
    lines = []
    for host in state.processes:
        console = paths.host(host).console
        if not state.alive(host) and console.exists():
            said = console.read_text(errors="replace").splitlines()[-_CONSOLE_LINES:]
            lines += [f"{host}: {line}" for line in said]
    return lines


def _write_lab(home: LabHome, state: LabState) -> None:
    """Everything that lies in files: keys, the user's ssh_config, each host's own layer over the base root."""
    spec, slot = state.spec, state.slot
    paths, base = home.lab(spec.name), home.bases / state.base
    paths.secrets.mkdir(mode=0o700, exist_ok=True)
    shared = Secrets(secrets.token_bytes(1024), secrets.token_bytes(32), secrets.token_hex(16))
    for name, secret in provisioning.secret_files(shared).items():
        place = paths.secrets / name  # the folder is closed to others
        place.write_text(secret)
        place.chmod(0o400)
    private = paths.secrets / "munge.key"
    private.write_bytes(shared.munge_key)
    private.chmod(0o400)
    login_key = _new_key(paths.key, f"surefoot-lab-{spec.name}")
    host_keys = {host: _new_key(paths.secrets / f"{host}.key", host) for host in spec.hosts}
    known = configuration.known_hosts(spec, slot, host_keys)
    write_atomic(paths.known_hosts, known)
    write_atomic(paths.ssh_config, configuration.ssh_config(spec, slot, key=paths.key, known_hosts=paths.known_hosts))
    _write_cluster_file(spec, paths)
    release = configuration.DEFAULT_RELEASE if spec.bare else version(base, "slurmctld")
    if spec.by_roles:
        write_atomic(paths.inventory, provisioning.inventory(spec, slot, paths, release))
    _make_shared(paths, (CLIMBER_UID, CLIMBER_UID) if spec.bare else identity(base, CLIMBER), login_key)
    for host in spec.hosts:
        who = Identity(uuid.uuid4().hex, (paths.secrets / f"{host}.key").read_text(), login_key, known)
        upper = paths.host(host).upper
        write_files(host_files(spec, slot, host, shared, who, release=release), upper=upper, base=base)
        for folder in spec.binds:
            make_reachable(Path(folder), upper=upper, base=base)


def _write_cluster_file(spec: LabSpec, paths: LabPaths, *, oldest_python: str = "") -> None:
    ansible = provisioning.cluster_section(paths) if spec.by_roles else ""
    text = configuration.cluster_yaml(spec, shared=paths.shared, oldest_python=oldest_python, ansible=ansible)
    write_atomic(paths.cluster, text)


def _new_key(path: Path, comment: str) -> str:
    """Make an ssh key pair; the public key's line."""
    for stale in (path, path.with_name(f"{path.name}.pub")):
        stale.unlink(missing_ok=True)
    run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path)])
    return path.with_name(f"{path.name}.pub").read_text()


def _make_shared(paths: LabPaths, owner: tuple[int, int], login_key: str) -> None:
    """The shared root and, in it, the home of the lab's user, who may log in everywhere and from everywhere."""
    ssh = paths.user_homes / CLIMBER / ".ssh"
    ssh.mkdir(parents=True, exist_ok=True)
    (ssh / "authorized_keys").write_text(login_key)
    shutil.copyfile(paths.key, ssh / "id_ed25519")
    (ssh / "id_ed25519").chmod(0o600)
    ssh.chmod(0o700)
    for place in (paths.shared, ssh.parent, ssh, *ssh.iterdir()):
        os.chown(place, *owner)


def down(home: LabHome, name: str, *, purge: bool, say: Say) -> None:
    """Remove a lab: hosts, network, cgroups, files. The shared root stays, as runs lie there, unless `purge` is set.

    Takes away what an interrupted `up` or `down` left, too. Nothing to do is no error.
    """
    machine.require_root()
    paths = home.lab(name)
    if not paths.folder.exists() and not paths.lock.exists():
        say(f"there is no lab {name!r} in {home.folder}: nothing to do")
        return
    with locked(paths.lock, f"surefoot lab down --name {name}"):
        if paths.state.exists():
            state = save(paths, load(home, name).model_copy(update={"phase": "stopping"}))
            hosts.end(state)
            network.down(state.spec)
        _remove_files(paths, purge=purge)
        release_slot(home, name)
        if paths.shared.exists():
            say(f"the shared root stays: {paths.shared} (surefoot lab down --name {name} --purge removes it)")
        paths.lock.unlink()


def _remove_files(paths: LabPaths, *, purge: bool) -> None:
    """The state file goes last: whatever interrupts this, the next `down` goes on."""
    if not paths.folder.exists():
        return
    keep = {paths.state, paths.shared}
    for entry in paths.folder.iterdir():
        if entry not in keep:
            remove_tree(entry)
    if purge or not _holds_something(paths):
        remove_tree(paths.shared)
    paths.state.unlink(missing_ok=True)
    if not any(paths.folder.iterdir()):
        paths.folder.rmdir()


def _holds_something(paths: LabPaths) -> bool:
    """Whether the shared root holds more than the home that `up` put there."""
    return paths.shared.exists() and any(entry != paths.user_homes for entry in paths.shared.iterdir())


@dataclass(frozen=True)
class LabStatus:
    """A lab as it is now. `problem` is empty where Slurm answered and every node works."""

    state: LabState
    dead: tuple[str, ...]
    nodes: tuple[NodeState, ...]
    problem: str

    @property
    def faults(self) -> tuple[AppliedFault, ...]:
        return self.state.faults


def status(home: LabHome, name: str) -> LabStatus:
    """Look at a lab. Raises RequestError where there is none."""
    state = load(home, name)
    dead = tuple(host for host in state.spec.hosts if not state.alive(host))
    nodes: tuple[NodeState, ...] = ()
    problem = ""
    if state.phase != "up":
        problem = f"half there: its `{'up' if state.phase == 'starting' else 'down'}` did not end"
    elif dead:
        problem = f"not running: {', '.join(dead)}"
    else:
        try:
            nodes = tuple(node_states(state))
        except MachineryError as error:
            problem = f"Slurm does not answer: {error.message}"
        else:
            problem = ", ".join(str(node) for node in nodes if not node.works)
    return LabStatus(state, dead, nodes, problem)
