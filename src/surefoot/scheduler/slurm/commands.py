"""Argument lists of Slurm's commands. Pure; options that 20.11 knows already."""

from __future__ import annotations

from collections.abc import Sequence

SEPARATOR = "\x1f"
"""ASCII unit separator: stands in no name, reason or comment."""

TIMES = {"SLURM_TIME_FORMAT": "%s"}
"""Environment of the asking commands: times as Unix times, whatever the zone of the login host."""

QUEUE_FIELDS = ("%i", "%T", "%r", "%V", "%S", "%M", "%l", "%N", "%j", "%k")
USER_FIELDS = (*QUEUE_FIELDS, "%Z")
"""The working directory is the job's folder (`sbatch`)."""
HOLDER_FIELDS = ("%i", "%u", "%j", "%N", "%L")
ACCOUNTING_FIELDS = ("JobID", "State", "ExitCode", "Submit", "Start", "End", "NodeList", "Reason")
NODE_FIELDS = ("%N", "%P", "%T", "%c", "%m", "%G", "%E")

# Set where surefoot itself was started inside a job or by a careful user: they would override the script.
_LEAKING = (
    "SBATCH_ACCOUNT", "SBATCH_ARRAY_INX", "SBATCH_CONSTRAINT", "SBATCH_CPU_BIND", "SBATCH_CPUS_PER_TASK",
    "SBATCH_EXCLUSIVE", "SBATCH_EXPORT", "SBATCH_GPUS", "SBATCH_GRES", "SBATCH_JOB_NAME", "SBATCH_MEM_PER_NODE",
    "SBATCH_NO_REQUEUE", "SBATCH_OPEN_MODE", "SBATCH_OUTPUT", "SBATCH_PARTITION", "SBATCH_QOS", "SBATCH_REQUEUE",
    "SBATCH_RESERVATION", "SBATCH_SIGNAL", "SBATCH_TIMELIMIT", "SBATCH_WAIT", "SLURM_TIME_FORMAT",
)  # fmt: skip


def sbatch(folder: str, script: str) -> list[str]:
    """Submit `script` of `folder`. The folder travels here: directives in a script have no quoting that holds."""
    unset = [word for name in _LEAKING for word in ("-u", name)]
    return ["env", *unset, "sbatch", "--parsable", f"--chdir={folder}", script]


def squeue(ids: Sequence[str]) -> list[str]:
    """These jobs in the queue, also those that ended a while ago (MinJobAge), arrays by element."""
    return [
        "squeue", "--noheader", "--array", "--states=all", f"--format={SEPARATOR.join(QUEUE_FIELDS)}",
        f"--jobs={','.join(ids)}",
    ]  # fmt: skip


def squeue_of_user(uid: str) -> list[str]:
    """Every active job of a user."""
    return ["squeue", "--noheader", "--array", f"--format={SEPARATOR.join(USER_FIELDS)}", f"--user={uid}"]


def squeue_of_holders() -> list[str]:
    """Every job that holds nodes, whoever's it is."""
    states = "--states=RUNNING,COMPLETING,SUSPENDED"
    return ["squeue", "--noheader", "--array", "--all", states, f"--format={SEPARATOR.join(HOLDER_FIELDS)}"]


def sacct(ids: Sequence[str]) -> list[str]:
    """Every life of these jobs in accounting, without their steps."""
    return [
        "sacct", "--noheader", "--parsable2", f"--delimiter={SEPARATOR}", "--duplicates", "--allocations",
        f"--format={','.join(ACCOUNTING_FIELDS)}", f"--jobs={','.join(ids)}",
    ]  # fmt: skip


def scancel(ids: Sequence[str]) -> list[str]:
    """End these jobs. Quiet: that one is over already is no error."""
    return ["scancel", "--quiet", *ids]


def sinfo() -> list[str]:
    """Every node, once for each of its partitions."""
    return ["sinfo", "--noheader", "--Node", "--all", f"--format={SEPARATOR.join(NODE_FIELDS)}"]


def show_partitions() -> list[str]:
    return ["scontrol", "--oneliner", "show", "partition"]


def drain(nodes: str, reason: str) -> list[str]:
    """Start nothing more on these nodes (a hostlist that sinfo's own names make up); what runs there ends by itself."""
    return ["scontrol", "update", f"nodename={nodes}", "state=drain", f"reason={reason}"]
