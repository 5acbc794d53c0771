"""Whether a job that ended badly is tried again: by its cause, never blindly. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from surefoot.hostlist import compress, expand
from surefoot.model.job import EndCause, JobSpec, JobStatus

MOST_TRIES = 3
"""Submissions of one job, the first among them."""


LAUNCH_ERROR = re.compile(r"^srun: error: Task launch for StepId=\S+ failed on node (\S+): (.+)$")
"""What srun prints, once for each node on which it could not start ranks."""


def not_launched(spec: JobSpec, status: JobStatus, output: str) -> tuple[JobStatus, str] | None:
    """(The status with its cause, hostlist) of a job whose ranks some nodes would not start; None where that is not so.

    Slurm calls such a job FAILED. `output` is what its batch script's host printed.
    """
    if status.cause is not EndCause.EXIT or status.done is None or len(status.done.ranks) >= spec.world_size:
        return None
    found = {m.group(1): m.group(2) for line in output.splitlines() if (m := LAUNCH_ERROR.match(line.strip()))}
    if not found:
        return None
    reason = "Slurm could not start its ranks on " + "; ".join(
        f"{node}: {why}" for node, why in list(found.items())[:4]
    )
    return status.model_copy(update={"cause": EndCause.NODE, "reason": reason}), compress(sorted(found))


@dataclass(frozen=True)
class Retry:
    """The same job again, on other nodes, and why."""

    exclude_hosts: str
    """Hostlist, beyond the spec's own."""
    reason: str


def retry(spec: JobSpec, status: JobStatus, tries: int, bad_nodes: str = "", most: int = MOST_TRIES) -> Retry | None:
    """Where to submit a job again that ended as `status`; None: it is not tried again.

    A node's failure: without the nodes at fault (`bad_nodes`, a hostlist, those of the tries before
    too; where nobody knows, nothing is excluded). Everything else is the job's own: it would end at
    its time limit, for want of memory or with its error again, and a preempted job waits for the
    scheduler's requeue.
    """
    if status.cause is not EndCause.NODE or tries >= most:
        return None
    at_fault = sorted(set(expand(bad_nodes)))
    if set(expand(spec.hosts)) & set(at_fault):
        return None  # asked for by name: without it, it is another job
    without = f" without {compress(at_fault)}" if at_fault else ""
    return Retry(compress(at_fault), f"{status.reason}: try {tries + 1} of {most}{without}")
