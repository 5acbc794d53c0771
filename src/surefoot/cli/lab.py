"""``surefoot lab``."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import time
from typing import Any

import click

from surefoot.cli.options import json_option
from surefoot.errors import RequestError
from surefoot.lab import lifecycle, machine
from surefoot.lab.base_root import SUITES
from surefoot.lab.breaking import break_lab, mend_lab
from surefoot.lab.faults import FAULTS
from surefoot.lab.hosts import enter_command
from surefoot.lab.interpreter import running_environment
from surefoot.lab.places import DEFAULT_HOME, HOME_VARIABLE, LabHome, lab_home
from surefoot.lab.spec import CLIMBER, DEFAULT_SUITE, HEAD, MAX_NODES, LabSpec, Tier, address
from surefoot.lab.state import LabState, load
from surefoot.units import format_duration

_NAME = click.option("--name", metavar="NAME", default="lab", show_default=True, help="Which lab.")
_HOME = click.option(
    "--home", metavar="DIR", default=DEFAULT_HOME, envvar=HOME_VARIABLE, show_default=True, help="Where labs live."
)


def _say(text: str) -> None:
    click.echo(f"surefoot lab: {text}", err=True)


def _fault_list() -> str:
    """The faults for ``--help``, as click prints them line by line."""
    lines = (f"  {name:<18} {fault.where}  {fault.what.partition(':')[0]}" for name, fault in FAULTS.items())
    return "\b\nFaults:\n" + "\n".join(lines)


@click.group("lab")
def lab_command() -> None:
    """A real multi-host Slurm cluster on this machine: to climb on, and to break on purpose.

    Needs root and Linux namespaces. Nothing of this machine's own network or services is touched.
    """


@lab_command.command("up")
@_NAME
@_HOME
@click.option("--nodes", type=click.IntRange(1, MAX_NODES), default=2, show_default=True, help="Compute nodes.")
@click.option("--gpus-per-node", type=click.IntRange(0, 16), default=8, show_default=True, help="Pretended GPUs.")
@click.option(
    "--tier",
    type=click.Choice([tier.value for tier in Tier]),
    default=Tier.HOSTS.value,
    show_default=True,
    help="hosts: systemd, accounting, everything. namespaces: scheduler and ssh only, up in seconds.",
)
@click.option(
    "--bind",
    "binds",
    multiple=True,
    metavar="DIR",
    help="A folder of this machine that every host sees, read-only, under the same path (may be repeated).",
)
@click.option(
    "--python/--no-python",
    "with_python",
    default=True,
    show_default=True,
    help="Hosts see the Python environment that runs surefoot, and the cluster file names it.",
)
@click.option(
    "--suite",
    metavar="SUITE",
    default=DEFAULT_SUITE,
    show_default=True,
    help=f"Debian suite of the hosts, and so their Slurm: {', '.join(f'{k} {v}' for k, v in SUITES.items())}.",
)
@click.option(
    "--by-roles/--plain",
    default=None,
    help="Hosts are made a cluster by ansible/site.yml, as any other site's would be; or by files that are written "
    f"before they start.  [default: by roles for hosts with {DEFAULT_SUITE}, else plain]",
)
@click.option(
    "--bare",
    is_flag=True,
    help="Hosts with systemd, sshd and Python alone, as a machine just installed: up ends when root can log in.",
)
@click.option("--mirror", default="", metavar="URL", help="Debian mirror for the base root; default: mmdebstrap's own.")
def up_command(
    *,
    name: str,
    home: str,
    mirror: str,
    with_python: bool,
    binds: tuple[str, ...],
    by_roles: bool | None,
    **spec: Any,
) -> int:
    """Make a lab and wait until all its nodes are idle; with --bare: until root can log in to its hosts."""
    started = time.monotonic()
    python, folders = running_environment() if with_python else ("", ())
    place = lab_home(home)
    if by_roles is None:  # another Debian is asked for its Slurm, and plain is quicker
        by_roles = (spec["tier"], spec["suite"], spec["bare"]) == (Tier.HOSTS.value, DEFAULT_SUITE, False)
    asked = _spec(name=name, python=python, binds=(*binds, *folders), by_roles=by_roles, **spec)
    state = lifecycle.up(place, asked, mirror=mirror, say=_say)
    paths = place.lab(name)
    took = format_duration(time.monotonic() - started)
    if state.spec.bare:
        click.echo(f"The lab {name!r} is up: {HEAD} and {state.spec.nodes} bare hosts after {took}.")
        click.echo(f"  ssh -F {paths.ssh_config} root@{HEAD}")
        return 0
    click.echo(f"The lab {name!r} is up: {HEAD} and {state.spec.nodes} nodes idle after {took}.")
    click.echo(f"  ssh -F {paths.ssh_config} {HEAD}     as {CLIMBER}; root@{HEAD} works too")
    click.echo(f"  shared root   {paths.shared}")
    click.echo(f"  cluster file  {paths.cluster}")
    click.echo(f"  surefoot climb --cluster {paths.cluster}")
    return 0


def _spec(**values: Any) -> LabSpec:
    """The spec, with pydantic's words made ours. Raises RequestError."""
    from pydantic import ValidationError

    try:
        return LabSpec(**values)
    except ValidationError as error:
        first = error.errors()[0]
        raise RequestError(
            f"{first['loc'][0]} {first['input']!r}: {first['msg']}",
            next_action="a name is a small letter, then at most eleven small letters and digits",
        ) from error


@lab_command.command("down")
@_NAME
@_HOME
@click.option("--purge", is_flag=True, help="Remove the shared root as well, with the runs in it.")
def down_command(*, name: str, home: str, purge: bool) -> int:
    """Remove a lab, also one whose `up` was interrupted."""
    lifecycle.down(lab_home(home), name, purge=purge, say=_say)
    return 0


@lab_command.command("status")
@click.option("--name", metavar="NAME", help="Which lab; default: all.")
@_HOME
@json_option
def status_command(*, name: str | None, home: str, as_json: bool) -> int:
    """Show what labs there are and how they are: exit 1 where one does not work as it should, or is broken on purpose."""
    machine.require_root()
    place = lab_home(home)
    found = [lifecycle.status(place, each) for each in ([name] if name is not None else place.names())]
    if as_json:
        click.echo(json.dumps([_as_data(place, each) for each in found], indent=1))
    elif not found:
        click.echo(f"No lab in {place.folder}. One is made by: surefoot lab up")
    else:
        for each in found:
            _show(place, each)
    return 1 if any(each.problem or each.faults for each in found) else 0


def _as_data(home: LabHome, found: lifecycle.LabStatus) -> dict[str, Any]:
    spec = found.state.spec
    return {
        "name": spec.name,
        "phase": found.state.phase,
        "problem": found.problem,
        "spec": spec.canonical(),
        "hosts": {host: address(found.state.slot, host) for host in spec.hosts},
        "dead": list(found.dead),
        "nodes": [dataclasses.asdict(node) for node in found.nodes],
        "faults": [fault.canonical() for fault in found.faults],
        "ssh_config": str(home.lab(spec.name).ssh_config),
        "cluster": str(home.lab(spec.name).cluster),
        "shared": str(home.lab(spec.name).shared),
    }


def _show(home: LabHome, found: lifecycle.LabStatus) -> None:
    spec = found.state.spec
    states = {node.name: str(node).partition(" ")[2] for node in found.nodes}
    click.echo(f"{spec.name}: {found.problem or 'all nodes work'} (tier {spec.tier}, {spec.gpus_per_node} GPUs a node)")
    for host in spec.hosts:
        word = "not running" if host in found.dead else states.get(host, "running")
        click.echo(f"  {host:<6} {address(found.state.slot, host):<14} {word}")
    for fault in found.faults:
        click.echo(
            f"  broken on purpose: {fault.fault} on {fault.host}{f' ({fault.setting})' if fault.setting else ''}"
        )
    click.echo(f"  ssh -F {home.lab(spec.name).ssh_config} {HEAD}")


_PASSED_ON = {"ignore_unknown_options": True, "allow_interspersed_args": False}


@lab_command.command("ssh", context_settings=_PASSED_ON)
@_NAME
@_HOME
@click.argument("host")
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
def ssh_command(*, name: str, home: str, host: str, words: tuple[str, ...]) -> int:
    """Log in to a host, or run WORDS there, by ssh through the lab's network. Ends as ssh ends."""
    machine.require_root()
    place = lab_home(home)
    _check_host(load(place, name), host.rpartition("@")[2])
    return subprocess.run(["ssh", "-F", str(place.lab(name).ssh_config), host, *words], check=False).returncode


@lab_command.command("exec", context_settings=_PASSED_ON)
@_NAME
@_HOME
@click.option("--user", type=click.Choice(["root", CLIMBER]), default="root", show_default=True, help="As whom.")
@click.argument("host")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def exec_command(*, name: str, home: str, user: str, host: str, command: tuple[str, ...]) -> int:
    """Run a COMMAND on a HOST, or on all, without network and ssh: works when those are broken.

    Ends as the command ends; on all hosts, 0 when it ended with 0 on each, else 1.
    """
    machine.require_root()
    state = load(lab_home(home), name)
    command = command[1:] if command[0] == "--" else command
    if host != "all":
        _check_host(state, host)
        return _ending(subprocess.run(enter_command(state, host, command, user=user), check=False).returncode)
    codes = []
    for each in state.spec.hosts:
        done = subprocess.run(
            enter_command(state, each, command, user=user),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        for line in done.stdout.decode(errors="replace").splitlines():
            click.echo(f"{each}: {line}")
        if done.returncode != 0:
            click.echo(f"{each}: ended with {_ending(done.returncode)}", err=True)
        codes.append(done.returncode)
    return 1 if any(codes) else 0


def _ending(code: int) -> int:
    """A shell's way to put a signal into an exit code."""
    return code if code >= 0 else 128 - code


def _check_host(state: LabState, host: str) -> None:
    if host not in state.spec.hosts:
        raise RequestError(
            f"the lab {state.spec.name!r} has no host {host!r}", next_action=f"hosts: {', '.join(state.spec.hosts)}"
        )


@lab_command.command("break", epilog=_fault_list())
@_NAME
@_HOME
@click.option("--set", "setting", metavar="VALUE", help="A fault's rate or offset, where it has one.")
@click.argument("fault")
@click.argument("host", required=False)
def break_command(*, name: str, home: str, fault: str, host: str | None, setting: str | None) -> int:
    """Break something on purpose: put FAULT on HOST, or on all that it goes with (default: on the first)."""
    machine.require_root()
    broken, where = break_lab(lab_home(home), name, fault, host, setting)
    click.echo(f"{fault} on {', '.join(where)}: {broken.what}.")
    click.echo(f"  seen: {broken.seen}")
    click.echo(f"  undone by: surefoot lab mend --name {name}")
    return 0


@lab_command.command("mend")
@_NAME
@_HOME
@json_option
def mend_command(*, name: str, home: str, as_json: bool) -> int:
    """Undo all that was broken, and prove that the lab is whole. Exit 1 where a proof fails."""
    machine.require_root()
    proofs = mend_lab(lab_home(home), name, _say)
    if as_json:
        click.echo(json.dumps([dataclasses.asdict(proof) for proof in proofs], indent=1))
    else:
        for proof in proofs:
            click.echo(f" {'✓' if proof.holds else '✗'} {proof.claim:<12} {proof.found}")
    return 0 if all(proof.holds for proof in proofs) else 1
