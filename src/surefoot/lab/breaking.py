"""Break a lab and mend it: what was broken is recorded before it is, so that `mend` finds all of it."""

from __future__ import annotations

import time
from collections.abc import Callable

from surefoot.errors import MachineryError, RequestError
from surefoot.lab.faults import FAULTS, Fault, Place, chosen, register_anew
from surefoot.lab.places import LabHome
from surefoot.lab.prove import Proof, prove_patiently
from surefoot.lab.slurm import resume
from surefoot.lab.state import AppliedFault, LabState, load, locked, save

Say = Callable[[str], None]

_WHOLE_S = 60.0


def break_lab(
    home: LabHome, name: str, fault_name: str, host: str | None, setting: str | None
) -> tuple[Fault, tuple[str, ...]]:
    """Put a fault into a lab; the fault and its hosts. `host` may be ``all``: every host that it goes with.

    Raises RequestError before anything is changed, or MachineryError where it did not take.
    """
    paths = home.lab(name)
    with locked(paths.lock, f"surefoot lab break --name {name}"):
        state = _whole(home, name)
        fault, hosts, setting = chosen(state, fault_name, host, setting)
        already = [each.host for each in state.faults if each.fault == fault_name and each.host in hosts]
        if already:
            raise RequestError(
                f"{fault_name} is on {', '.join(already)} already", next_action=f"surefoot lab mend --name {name}"
            )
        for where in hosts:
            applied = AppliedFault(fault=fault_name, host=where, setting=setting, at=time.time())
            state = save(paths, state.model_copy(update={"faults": (*state.faults, applied)}))
            place = Place(state, paths, where, setting)
            fault.apply(place)
            if not fault.present(place):
                raise MachineryError(
                    f"{fault_name} did not take on {where}", next_action=f"surefoot lab mend --name {name}"
                )
    return fault, hosts


def mend_lab(home: LabHome, name: str, say: Say) -> list[Proof]:
    """Undo every fault, the last first, and prove that the lab is whole. Raises MachineryError where one stays."""
    paths = home.lab(name)
    with locked(paths.lock, f"surefoot lab mend --name {name}"):
        state = _whole(home, name)
        places = {applied: Place(state, paths, applied.host, applied.setting) for applied in reversed(state.faults)}
        for applied, place in places.items():
            FAULTS[applied.fault].mend(place)
        # Once, when all is mended: a slurmd that finds another fault on its host would wait for it in vain.
        for host in sorted({applied.host for applied in places if FAULTS[applied.fault].registers_anew}):
            register_anew(state, host)
        for applied, place in places.items():
            if FAULTS[applied.fault].present(place):
                raise MachineryError(
                    f"{applied.fault} is still on {applied.host}",
                    next_action=f"surefoot lab down --name {name}, then lab up",
                )
            remaining = tuple(each for each in state.faults if each != applied)
            state = save(paths, state.model_copy(update={"faults": remaining}))
            say(f"mended: {applied.fault} on {applied.host}")
        return _prove_whole(home, state)


def _prove_whole(home: LabHome, state: LabState) -> list[Proof]:
    """Nodes that a fault left drained or down go back into service; then everything is proved."""
    deadline = time.monotonic() + _WHOLE_S
    while True:
        for host in state.spec.node_names:
            try:
                resume(state, host)
            except MachineryError:  # the controller is still starting; the proofs tell if it stays so
                break
        proofs = prove_patiently(home, state, timeout_s=3)
        if all(proof.holds for proof in proofs) or time.monotonic() > deadline:
            return proofs


def _whole(home: LabHome, name: str) -> LabState:
    """State of a lab that is up. Raises RequestError for one that is half there."""
    state = load(home, name)
    if state.phase != "up":
        raise RequestError(f"the lab {name!r} is half there", next_action=f"surefoot lab down --name {name}, then up")
    return state
