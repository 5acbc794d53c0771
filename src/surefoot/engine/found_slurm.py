"""The cluster as the Slurm of this host tells it (``surefoot preflight --slurm``), where no cluster file is there yet."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from surefoot.config.load import load_cluster
from surefoot.config.written import cluster_text
from surefoot.connection.local import LocalConnection
from surefoot.errors import ConfigError, RequestError
from surefoot.paths import usable_root
from surefoot.scheduler.slurm import commands, parse
from surefoot.scheduler.slurm.controller import Controller
from surefoot.scheduler.slurm.found import Found, cluster_of

SHARED_ROOT = "~/surefoot"
"""Where everything durable lies unless told otherwise: a home that all nodes see is what most sites have."""
_PATIENCE_S = 60
"""How long a controller may be too busy to answer."""


def found_here(partition: str, root: str) -> Found:
    """The cluster of a partition (empty: the default one). Raises RequestError off a login node, SchedulerError."""
    if shutil.which("sinfo") is None:
        raise RequestError(
            "--slurm asks the Slurm of this host, and there is no sinfo on its PATH",
            next_action="run it on a login node, or name a cluster file, over ssh too: --cluster FILE",
        )
    answer = Controller(LocalConnection(), {}, _PATIENCE_S).output(commands.sinfo(), patiently=True)
    return cluster_of(parse.nodes(answer), partition, str(usable_root(root)))


@contextlib.contextmanager
def as_file(found: Found) -> Iterator[str]:
    """A cluster file of it, while it is loaded: the run keeps its text. Raises ConfigError for what no file may hold."""
    head = [
        "What Slurm told (sinfo): no GPU model, rail or version is claimed. A file to begin with;",
        "surefoot preflight --slurm --learn FILE writes one with what the nodes told of themselves.",
        found.told,
    ]
    with tempfile.TemporaryDirectory(prefix="surefoot-") as folder:
        path = Path(folder) / "slurm.yaml"
        path.write_text(cluster_text(found.cluster, {(): head}), encoding="utf-8")
        try:
            load_cluster(path)
        except ConfigError as error:
            told = error.message.replace(f"{path}:", "line ")
            raise ConfigError(
                f"the cluster that Slurm tells of makes no cluster file: {told}",
                next_action="name another --shared-root, or write a cluster file and name it: --cluster FILE",
            ) from error
        yield str(path)
