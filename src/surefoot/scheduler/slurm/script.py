"""The batch script of a job: pure text from a JobSpec.

What ranks run does not stand in it. Their command, environment and parameters lie in ``spec.json``
and ``request.json`` beside it, where any character may stand; the script holds directives, and one
command that starts one task for each rank (or for each node).
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

from surefoot.errors import SchedulerError
from surefoot.model.job import JobSpec

SCRIPT = "job.sh"
LAUNCHER = "launch.py"
STARTER = "start.sh"
OUTPUT = "%x-%j-%N.out"
_UNSAFE_FOLDER = re.compile(r"[%\\\x00-\x1f\x7f]")


@dataclass(frozen=True)
class Site:
    """What a cluster file says for all its jobs."""

    python: str
    """Interpreter on the nodes, for the launcher and torchrun."""
    partition: str = ""
    account: str = ""
    qos: str = ""
    exclude_hosts: str = ""
    """Hostlist: nodes that are not to be used at present, beyond what a job excludes itself."""
    moved_to: str = ""
    """Partition that is asked for in place of the job's own and the site's."""

    def excluding(self, spec: JobSpec) -> str:
        """Hostlist: the nodes that are not to be used for a job."""
        return ",".join(part for part in (spec.exclude_hosts, self.exclude_hosts) if part)

    def partition_of(self, spec: JobSpec) -> str:
        """The partition that is asked for; empty: Slurm's default."""
        return self.moved_to or spec.partition or self.partition


def batch_script(spec: JobSpec, site: Site, tag: str) -> str:
    """The script. Raises SchedulerError for what Slurm would not carry intact."""
    _refuse_unsafe(spec)
    lines = ["#!/bin/bash", *(f"#SBATCH {option}" for option in directives(spec, site, tag))]
    lines += [
        "",
        f"# Written by surefoot for job {spec.name}. What its ranks run stands in spec.json beside this file.",
        f"folder={shlex.quote(spec.folder)}",
        f"python={shlex.quote(site.python)}",
        f'exec /bin/sh "$folder/{STARTER}" "$python" "$folder" job -- \\',
        f"  {' '.join(srun(spec))} \\",
        f'  /bin/sh "$folder/{STARTER}" "$python" "$folder" task {spec.name} {spec.ranks_per_node // tasks_per_node(spec)}',
        "",
    ]
    return "\n".join(lines)


def directives(spec: JobSpec, site: Site, tag: str) -> list[str]:
    """What is asked of Slurm, one option each."""
    tasks = tasks_per_node(spec)
    cpus = spec.cpus_per_rank * (spec.ranks_per_node // tasks)
    asked = {
        "job-name": spec.name,
        "comment": tag,
        "output": OUTPUT,
        "open-mode": "append",
        "nodes": spec.nodes,
        "ntasks-per-node": tasks,
        "cpus-per-task": cpus,
        "gres": f"gpu:{spec.gpus_per_node}" if spec.gpus_per_node else "",
        "mem": f"{spec.memory_mib_per_node}M" if spec.memory_mib_per_node else "",
        "time": minutes(spec.time_limit_s),
        "partition": site.partition_of(spec),
        "account": spec.account or site.account,
        "qos": spec.qos or site.qos,
        "reservation": spec.reservation,
        "constraint": spec.constraint,
        "nodelist": spec.hosts,
        "exclude": site.excluding(spec),
        "array": spec.array,
        "dependency": spec.dependency,
        "signal": spec.signal,
    }
    options = [f"--{name}={value}" for name, value in asked.items() if value != ""]
    options.append("--requeue" if spec.requeue else "--no-requeue")
    if spec.exclusive:
        options.append("--exclusive")
    if spec.dependency:
        options.append("--kill-on-invalid-dep=yes")
    return [*options, *spec.directives]


def srun(spec: JobSpec) -> list[str]:
    """One task for each rank, in blocks: rank r is the (r mod ranks_per_node)-th of its node.

    Options that srun does not take over from the job in every version are said again (from 22.05
    on it forgets --cpus-per-task).
    """
    tasks = tasks_per_node(spec)
    cpus = spec.cpus_per_rank * (spec.ranks_per_node // tasks)
    return [
        "srun",
        f"--nodes={spec.nodes}",
        f"--ntasks={spec.nodes * tasks}",
        f"--ntasks-per-node={tasks}",
        f"--cpus-per-task={cpus}",
        "--distribution=block",
        *([f"--cpu-bind={shlex.quote(spec.cpu_bind)}"] if spec.cpu_bind else []),
        "--kill-on-bad-exit=1",
        "--export=ALL",
        "--unbuffered",
    ]


def tasks_per_node(spec: JobSpec) -> int:
    """One task for each rank, or one for each node, which runs torchrun."""
    return spec.ranks_per_node if spec.launch == "ranks" else 1


def minutes(seconds: int) -> int:
    """Slurm counts time limits in minutes; a part of one counts as one."""
    return -(-seconds // 60)


def _refuse_unsafe(spec: JobSpec) -> None:
    found = _UNSAFE_FOLDER.search(spec.folder)
    if found or not spec.folder.startswith("/"):
        problem = f"holds {found.group()!r}" if found else "is not absolute"
        raise SchedulerError(
            f"folder {spec.folder!r} {problem}: Slurm could not write there (it expands % and \\ in output paths)",
            next_action="give the cluster another root",
        )
    for name, value in spec.env.items():
        if "\0" in value or "=" in name or not name:
            raise SchedulerError(f"environment variable {name!r} cannot be set: empty name, '=' or NUL")
    if any("\0" in word for word in spec.argv):
        raise SchedulerError(f"job {spec.name!r}: its command holds a NUL character, which no command can")


def array_elements(text: str) -> list[int]:
    """``0-7%4,9,10-20:5`` → 0 … 7, 9, 10, 15, 20. Raises SchedulerError."""
    found: list[int] = []
    for part in text.split("%", maxsplit=1)[0].split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+)(?::(\d+))?)?", part, re.ASCII)
        if match is None or (match.group(3) is not None and int(match.group(3)) == 0):
            raise SchedulerError(f"array {text!r}: {part!r} is no element or range", next_action="write it like 0-7%4")
        low, high, step = int(match.group(1)), int(match.group(2) or match.group(1)), int(match.group(3) or 1)
        if high < low or high - low > 100_000:
            raise SchedulerError(f"array {text!r}: {part!r} runs backwards or is too long")
        found += range(low, high + 1, step)
    return sorted(set(found))
