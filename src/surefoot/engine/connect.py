"""A cluster's connection and scheduler, as its file declares them."""

from __future__ import annotations

import threading
from pathlib import Path

from surefoot.connection.base import Connection
from surefoot.connection.local import LocalConnection
from surefoot.connection.ssh import SshConnection
from surefoot.errors import RequestError
from surefoot.model.cluster import Cluster
from surefoot.scheduler.base import Scheduler
from surefoot.scheduler.local import LocalScheduler
from surefoot.scheduler.slurm.script import Site
from surefoot.scheduler.slurm.slurm import SlurmScheduler


def refuse_unsupported(cluster: Cluster) -> None:
    """Raises RequestError for a pair of connection and scheduler that cannot work together."""
    if cluster.connection.kind == "ssh" and cluster.scheduler.kind == "local":
        raise RequestError(
            f"cluster {cluster.name!r} is reached by ssh, and its scheduler is local processes, which would run here",
            next_action="write `scheduler: {kind: slurm}` in the cluster file",
        )


def connect(
    cluster: Cluster, hurry: threading.Event | None = None, *, patience_s: float = 600
) -> tuple[Connection, Scheduler]:
    """Connection and scheduler, not used yet: nothing is reached before the first command.

    `hurry`: once it is set, a broken link is not waited for as long. `patience_s`: how long a
    scheduler may be too busy to answer.

    Raises RequestError (`refuse_unsupported`, a host name that ssh would take for an option).
    """
    refuse_unsupported(cluster)
    connection: Connection
    if cluster.connection.kind == "ssh":
        config = cluster.connection.config
        connection = SshConnection(cluster.connection.host, config=Path(config) if config else None, hurry=hurry)
    else:
        connection = LocalConnection()
    if cluster.scheduler.kind == "local":
        return connection, LocalScheduler()
    asked = cluster.scheduler
    site = Site(python=cluster.python, partition=asked.partition, account=asked.account, qos=asked.qos)
    return connection, SlurmScheduler(connection, site, patience_s=patience_s)
