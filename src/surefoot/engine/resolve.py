"""From what a user wrote to what a run records: no detection and no relative path is left."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from surefoot.engine.package import Package, build
from surefoot.errors import RequestError
from surefoot.files import sha256_file
from surefoot.model.cluster import Cluster
from surefoot.model.ladder import Ladder
from surefoot.model.policy import Policy
from surefoot.model.recipe import Recipe
from surefoot.model.run import RunInputs
from surefoot.paths import usable_root


def detect_gpus() -> int:
    """NVIDIA GPUs of this machine, as its driver lists them. 0 where there is no driver."""
    listed = Path("/proc/driver/nvidia/gpus")
    if listed.is_dir():
        return sum(1 for entry in listed.iterdir() if entry.is_dir())
    try:
        answer = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    return sum(line.startswith("GPU ") for line in answer.stdout.splitlines())


def resolve_cluster(cluster: Cluster, *, root: str | None) -> Cluster:
    """The cluster with an absolute root, a known interpreter and counted GPUs.

    Raises RequestError where a remote cluster leaves something to detection.
    """
    local = cluster.connection.kind == "local"
    given = root or cluster.root
    if not local and not given.startswith("/"):
        raise RequestError(f"cluster {cluster.name!r}: root {given!r} must be absolute on a remote cluster")
    groups = []
    for group in cluster.node_groups:
        gpus = group.gpus_per_node
        if gpus == "detect":
            if not local:
                raise RequestError(
                    f"cluster {cluster.name!r}: gpus_per_node: detect works on this machine only",
                    next_action=f"write the number of GPUs of each node of group {group.name!r}",
                )
            gpus = detect_gpus()
        groups.append(group.model_copy(update={"gpus_per_node": gpus}))
    return cluster.model_copy(
        update={
            "root": str(usable_root(given)) if local else given,
            "python": cluster.python or (sys.executable if local else "python3"),
            "node_groups": tuple(groups),
        }
    )


def resolve(cluster: Cluster, ladder: Ladder, recipe: Recipe, policy: Policy) -> tuple[RunInputs, Package]:
    """Resolved inputs and the package that carries them to where jobs run."""
    package = build({"cluster": cluster, "ladder": ladder, "recipe": recipe, "policy": policy})
    inputs = RunInputs(
        cluster=cluster,
        ladder=ladder,
        recipe=recipe,
        policy=policy,
        code_digest=package.code.digest,
        configuration_digest=package.configuration.digest,
        source_digests=source_digests(recipe) if cluster.connection.kind == "local" else {},
    )
    return inputs, package


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
