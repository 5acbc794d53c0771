"""Rungs that a ladder may leave out where the cluster has nothing for them: said aloud, never a pass."""

from __future__ import annotations

from surefoot.errors import RequestError
from surefoot.model.cluster import Cluster
from surefoot.model.ladder import AnsibleRungSpec, Ladder
from surefoot.model.run import RunInputs
from surefoot.provision.tools import NOT_FOUND_ACTION, find_tool

DECLARE = "declare the site under `ansible:` in the cluster file (docs/ansible.md)"
_TOOLS = ("ansible-playbook", "ansible-inventory")


def fitting(ladder: Ladder, cluster: Cluster) -> Ladder:
    """The ladder without its optional Ansible rungs, where the cluster declares no Ansible; else as it is.

    What needed a rung that is left out needs what that one needed. Raises RequestError where such a
    rung is not optional.
    """
    if cluster.ansible is not None:
        return ladder
    about = [spec for spec in ladder.rungs if isinstance(spec, AnsibleRungSpec)]
    demanded = [spec.rung for spec in about if not spec.optional]
    if demanded:
        raise RequestError(
            f"ladder {ladder.name!r} asks for {', '.join(demanded)}, and cluster {cluster.name!r} declares no ansible",
            next_action=f"{DECLARE}; or write `optional: true` at the rung, and it is left out where there is none",
        )
    instead: dict[str, tuple[str, ...]] = {spec.rung: spec.needs for spec in about}
    if not instead:
        return ladder
    kept = [
        spec.model_copy(update={"needs": _needs(spec.needs, instead)})
        for spec in ladder.rungs
        if spec.rung not in instead
    ]
    if not kept:
        raise RequestError(
            f"nothing is left of ladder {ladder.name!r}: cluster {cluster.name!r} declares no ansible",
            next_action=DECLARE,
        )
    return ladder.model_copy(update={"rungs": tuple(kept)})


def refuse_missing_ansible(inputs: RunInputs, selected: frozenset[str]) -> None:
    """Raises RequestError where a selected rung runs Ansible and there is none: told before anything runs."""
    asked = [spec.rung for spec in inputs.ladder.rungs if isinstance(spec, AnsibleRungSpec) and spec.rung in selected]
    site = inputs.cluster.ansible
    if not asked or site is None:
        return
    missing = [tool for tool in _TOOLS if find_tool(tool, site.python) is None]
    if missing:
        raise RequestError(
            f"{', '.join(asked)}: no {' and no '.join(missing)} on this machine, neither beside {site.python} nor on the PATH",
            next_action=NOT_FOUND_ACTION,
        )


def _needs(needs: tuple[str, ...], instead: dict[str, tuple[str, ...]]) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for need in needs:
        found |= dict.fromkeys(_needs(instead[need], instead) if need in instead else (need,))
    return tuple(found)
