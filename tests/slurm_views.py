"""Views of rungs on a Slurm site, from what real labs answered (``golden/slurm/22.05.8-lab`` and other versions)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rungs_harness import NONCE, RUN, planned, with_files
from surefoot.model.job import Job, JobDone, JobSpec, JobState, JobStatus, RankExit
from surefoot.model.run import Plan
from surefoot.rungs.base import Rung, View
from surefoot.rungs.scheduler_slurm import LIMIT_S
from surefoot.rungs.scheduler_smoke import RUNG as SCHEDULER
from surefoot.scheduler.slurm.script import array_elements

GOLDEN = Path(__file__).parent / "golden/slurm/22.05.8-lab"
GROUP: dict[str, Any] = {"name": "nodes", "count": 2, "hosts": "n[1-2]", "gpus_per_node": 0}
SITE: dict[str, Any] = {
    "connection": {"kind": "ssh", "host": "lab-head"},
    "scheduler": {"kind": "slurm", "partition": "gpu"},
    "python": "/usr/bin/python3",
}


def site(rung: Rung[Any, Any], *groups: dict[str, Any], **asked: Any) -> View:
    """A plan for the lab, without evidence. `groups`: other node groups than n[1-2] without GPUs."""
    return planned(rung, asked, Path("/shared"), node_groups=list(groups) or [GROUP], **SITE)


def document(name: str, golden: Path = GOLDEN) -> dict[str, Any]:
    """What a program printed on a lab, with this attempt's nonce."""
    found: dict[str, Any] = json.loads((golden / f"{name}.json").read_text().replace("NONCE", NONCE))
    return found


def runner_document(case: str, golden: Path = GOLDEN) -> dict[str, Any]:
    """What ``surefoot.node.runner`` printed on the lab's head."""
    return document(f"runner-{case}", golden)


def ending(start: float, seconds: float = 1.0) -> bytes:
    """``<command>.exit.json`` of a command that ended with 0."""
    end = {"exit_code": 0, "signal": None, "timed_out": False, "started_at": start, "ended_at": start + seconds}
    return json.dumps(end).encode()


def answered(view: View, document: dict[str, Any]) -> View:
    """The view with this document as the runner's answer, in time, asked from another machine."""
    start = document["clock"] - 0.5
    return with_files(
        view,
        {
            "raw/here.stdout": b"my-laptop\n0123\n4567\n",
            "raw/here.stderr": b"",
            "raw/here.exit.json": ending(start - 1),
            "raw/runner.stdout": json.dumps(document, indent=1).encode(),
            "raw/runner.stderr": b"",
            "raw/runner.exit.json": ending(start),
        },
    )


def scheduler_view(*groups: dict[str, Any], golden: Path = GOLDEN) -> View:
    """The scheduler rung's evidence on the lab: head and nodes as they answered, jobs as Slurm would run them."""
    view = site(SCHEDULER, *groups)
    # Just after the golden head answered, and before the golden nodes did.
    start = float(int(document("scheduler-node-0", golden)["config"]["started_at"]) - 13)
    files: dict[str, bytes] = {}
    for name in ("head", "decoded"):
        files[f"raw/{name}.stdout"] = json.dumps(document(f"scheduler-{name}", golden), indent=1).encode()
        files[f"raw/{name}.stderr"] = b""
        files[f"raw/{name}.exit.json"] = ending(start)
    for spec in view.plan.jobs:
        files |= _job_files(view.plan, spec, golden, start)
    return with_files(view, files)


_ENDS = {"exit7": {"exit_code": 7}, "killed": {"signal": 9}, "limit": {"signal": 15}, "cancelled": {"signal": 15}}
_STATES = {
    "exit7": JobState.FAILED,
    "killed": JobState.FAILED,
    "limit": JobState.TIMEOUT,
    "cancelled": JobState.CANCELLED,
}


def _job_files(plan: Plan, spec: JobSpec, golden: Path, start: float) -> dict[str, bytes]:
    """What a job leaves: two hosts, ranks in blocks; an array in folders of its elements."""
    begin = start + (12 if spec.name == "nodes" else 0)
    job = Job(id=f"1{len(spec.name)}", spec=spec, submitted_at=begin)
    found: dict[str, Any] = {"job.json": job.canonical(), "request.json": spec.request}
    if spec.name in ("limit", "cancelled"):
        word = JobStatus(state=_STATES[spec.name], reason="so it is")
        found["../" + spec.name + ".status.json"] = word.canonical()
    for element in array_elements(spec.array) if spec.array else [None]:
        below = "" if element is None else f"array-{element}/"
        identifier = job.id if element is None else f"{job.id}_{element}"
        hosts = ["n1" if rank < spec.ranks_per_node else "n2" for rank in range(spec.world_size)]
        end: dict[str, Any] = _ENDS.get(spec.name, {"exit_code": 0})
        done = JobDone(
            id=identifier,
            name=spec.name,
            state=_STATES.get(spec.name, JobState.COMPLETED),
            started_at=begin,
            ended_at=begin + (LIMIT_S if spec.name == "limit" else 5),
            ranks=tuple(RankExit(rank=rank, host=host, **end) for rank, host in enumerate(hosts)),
        )
        found[f"{below}done.json"] = done.canonical()
        for rank, host in enumerate(hosts):
            found[f"{below}rank-{rank}.json"] = {
                "program": spec.argv[-1], "run": RUN, "nonce": plan.nonce, "job": spec.name, "job_id": identifier,
                "rank": rank, "local_rank": rank % spec.ranks_per_node, "world_size": spec.world_size, "host": host,
                "pid": 100 + rank + 10 * (element or 0), "imported_from": f"{spec.env['PYTHONPATH']}/surefoot",
                "code_digest": spec.env["SUREFOOT_CODE"], "started_at": begin + 1, "ended_at": begin + 2,
                "data": _rank_data(spec, rank, host, golden),
            }  # fmt: skip
        for host in dict.fromkeys(hosts):
            rows = [_line(plan, spec, rank) for rank, where in enumerate(hosts) if where == host]
            found[f"{below}{spec.name}-{identifier}-{host}.out"] = "".join(rows)
    return {
        f"raw/{spec.name}/{name}".replace(f"/{spec.name}/../", "/"): (
            content if isinstance(content, str) else json.dumps(content, indent=1)
        ).encode()
        for name, content in found.items()
    }


def _rank_data(spec: JobSpec, rank: int, host: str, golden: Path) -> dict[str, Any]:
    if spec.name == "nodes":
        return document(f"scheduler-node-{rank}", golden)
    if spec.name in ("limit", "cancelled"):
        return {"rank": rank, "child": 9, **spec.request}
    if spec.name != "environment":
        return {"rank": rank, **spec.request}
    environment = {
        "RANK": str(rank), "LOCAL_RANK": str(rank % spec.ranks_per_node), "WORLD_SIZE": str(spec.world_size),
        "LOCAL_WORLD_SIZE": str(spec.ranks_per_node), "MASTER_ADDR": "n1", "MASTER_PORT": "20022",
        "SUREFOOT_ECHO": spec.env["SUREFOOT_ECHO"],
    }  # fmt: skip
    return {
        "rank": rank,
        "environment": environment,
        "host": host,
        "pid": 100 + rank,
        "cwd": spec.folder,
        "cpus": [rank],
    }


def _line(plan: Plan, spec: JobSpec, rank: int) -> str:
    start = f"surefoot rank {rank} of {plan.nonce}"
    if spec.name == "environment":
        return f"{start} has its environment\n"
    how = {"exit7": "exit code 7", "killed": "signal 9"}.get(spec.name, "exit code 0")
    return f"{start} ends with {how}\n"
