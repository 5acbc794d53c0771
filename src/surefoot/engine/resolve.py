"""From what a user wrote to what a run records: no detection and no relative path is left."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from surefoot.engine.left_out import fitting
from surefoot.engine.package import Package, build
from surefoot.errors import MachineryError, RequestError
from surefoot.files import sha256_file
from surefoot.model.cluster import Cluster
from surefoot.model.ladder import Ladder
from surefoot.model.policy import Policy
from surefoot.model.recipe import Recipe
from surefoot.model.run import RunInputs
from surefoot.node.pci import DEVICES, gpus_on_bus
from surefoot.paths import DEFAULT_ROOT, RootPaths, usable_root
from surefoot.provision.site import site_digest

DRIVER = Path("/proc/driver/nvidia/gpus")
"""One folder for each GPU, while NVIDIA's driver is loaded."""


def detect_gpus(
    declared_on_bus: int | None = None, *, devices: Path = DEVICES, driver: Path = DRIVER, smi: str = "nvidia-smi"
) -> int:
    """NVIDIA GPUs of this machine, as its driver lists them; 0 only where the PCI bus has none either.

    Two witnesses must agree, so that a dead driver is no machine without GPUs. `declared_on_bus`:
    GPUs that the cluster file says are on the bus, where the driver is meant to have fewer. Raises
    MachineryError where the number is not known or the witnesses contradict.
    """
    try:
        on_bus = len(gpus_on_bus(devices))
    except OSError as error:
        raise _unknown(f"the PCI bus cannot be read: {error}") from error
    found = sum(1 for entry in driver.iterdir() if entry.is_dir()) if driver.is_dir() else _smi_gpus(smi)
    if found is None:
        if on_bus:
            raise _unknown(f"{_gpus(on_bus)} on the PCI bus, and no NVIDIA driver is loaded", on_bus)
        return 0
    if on_bus not in (found, declared_on_bus):
        raise _unknown(f"{_gpus(on_bus)} on the PCI bus, {found} with the driver", on_bus)
    return found


def _smi_gpus(smi: str) -> int | None:
    """GPUs that nvidia-smi lists; None where there is no nvidia-smi. Raises MachineryError where it fails."""
    if shutil.which(smi) is None:
        return None
    try:
        answer = subprocess.run([smi, "-L"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _unknown(f"nvidia-smi does not answer: {error}") from error
    if answer.returncode != 0:
        said = (answer.stdout + answer.stderr).strip().splitlines()
        raise _unknown(f"nvidia-smi ends with {answer.returncode}: {said[0] if said else 'no output'}")
    return sum(line.startswith("GPU ") for line in answer.stdout.splitlines())


def _gpus(count: int) -> str:
    return f"{count} NVIDIA GPU{'s' if count > 1 else ''}"


def _unknown(why: str, on_bus: int | None = None) -> MachineryError:
    bus = "the number on the bus" if on_bus is None else on_bus
    return MachineryError(
        f"how many GPUs this machine has is not known: {why}",
        next_action="see nvidia-smi and dmesg, and mend the driver. To climb without these GPUs all the same, "
        f"write gpus_per_node: (the number to use, 0 for the CPU) and gpus_on_bus: {bus} in a cluster file",
    )


def resolve_cluster(cluster: Cluster, *, root: str | None) -> Cluster:
    """The cluster with an absolute root, a known interpreter and counted GPUs.

    Raises RequestError where a remote cluster leaves something to detection, MachineryError where
    this machine's GPUs cannot be counted.
    """
    local = cluster.connection.kind == "local"
    here = local and cluster.scheduler.kind == "local"
    given = (root if local else None) or cluster.root
    if not local and not given.startswith("/"):
        raise RequestError(f"cluster {cluster.name!r}: root {given!r} must be absolute on a remote cluster")
    ansible = cluster.ansible
    groups = []
    for group in cluster.node_groups:
        gpus = group.gpus_per_node
        if gpus == "detect":
            if not here:
                raise RequestError(
                    f"cluster {cluster.name!r}: gpus_per_node: detect looks at this machine, and jobs run on others",
                    next_action=f"write the number of GPUs of each node of group {group.name!r}",
                )
            gpus = detect_gpus(group.gpus_on_bus)
        groups.append(group.model_copy(update={"gpus_per_node": gpus}))
    return cluster.model_copy(
        update={
            "root": str(usable_root(given)) if local else given,
            "python": cluster.python or (sys.executable if local else "python3"),
            "node_groups": tuple(groups),
            "ansible": ansible.model_copy(update={"python": ansible.python or sys.executable}) if ansible else None,
        }
    )


def home_of(cluster: Cluster, root: str | None) -> RootPaths:
    """Where this machine keeps the runs of a resolved cluster: its root, or over ssh a folder of its own (`root`)."""
    local = cluster.connection.kind == "local"
    return RootPaths(Path(cluster.root) if local else usable_root(root or DEFAULT_ROOT))


def resolve(cluster: Cluster, ladder: Ladder, recipe: Recipe, policy: Policy) -> tuple[RunInputs, Package]:
    """Resolved inputs and the package that carries them to where jobs run.

    Raises RequestError where the ladder asks for what the cluster does not have, or the Ansible site
    cannot be read.
    """
    asked, ladder = ladder, fitting(ladder, cluster)
    package = build({"cluster": cluster, "ladder": ladder, "recipe": recipe, "policy": policy})
    inputs = RunInputs(
        cluster=cluster,
        ladder=ladder,
        recipe=recipe,
        policy=policy,
        code_digest=package.code.digest,
        configuration_digest=package.configuration.digest,
        source_digests=source_digests(recipe) if cluster.connection.kind == "local" else {},
        ansible_digest=site_digest(cluster.ansible) if cluster.ansible else "",
        asked_ladder=None if ladder == asked else asked,
    )
    return inputs, package


def refuse_missing_sources(recipe: Recipe) -> None:
    """Raises RequestError for a ``path:`` of the recipe that is not there: told before anything runs."""
    sources = {"base": recipe.base, "train.source": recipe.train.source, "evaluate.source": recipe.evaluate.source}
    missing = [
        f"{key}: {source.removeprefix('path:')}"
        for key, source in sources.items()
        if source.startswith("path:") and not Path(source.removeprefix("path:")).exists()
    ]
    if missing:
        raise RequestError(
            f"recipe {recipe.name!r}: not there: {'; '.join(missing)}",
            next_action="correct the path in the recipe (relative ones are below the recipe's own folder)",
        )


def source_digests(recipe: Recipe) -> dict[str, str]:
    """sha256 of the recipe's own data files as they are now, so that an edited file is a changed input.

    A file that is not there is left out: staging it says so, with the path.
    """
    sources = {"train": recipe.train.source, "evaluate": recipe.evaluate.source}
    paths = {name: Path(source.removeprefix("path:")) for name, source in sources.items() if source.startswith("path:")}
    try:
        return {name: sha256_file(path) for name, path in paths.items() if path.is_file()}
    except OSError as error:
        raise RequestError(
            f"recipe {recipe.name!r}: its data cannot be read: {error}",
            next_action="check the path and its permissions",
        ) from error
