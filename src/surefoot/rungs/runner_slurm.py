"""What the runner rung asks of a Slurm site: do its commands, its controller, its accounting and its nodes answer?

A stopped daemon or a node that is out is told here, in seconds, and not by a job that waits.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from pydantic import Field

from surefoot.errors import EvidenceError
from surefoot.model.base import Record
from surefoot.model.check import Check
from surefoot.rungs.base import View
from surefoot.rungs.judging import decide, unproved
from surefoot.rungs.slurm_nodes import DEAF, deaf_nodes, fit_check, silent_nodes
from surefoot.rungs.slurm_view import (
    SHOW_CONFIG,
    SHOW_NODES,
    Answer,
    Config,
    config_of,
    controllers_up,
    line_of,
    nodes_of_answer,
)
from surefoot.versions import at_least

PROGRAMS = ("sbatch", "srun", "squeue", "sacct", "scancel", "sinfo", "scontrol")
COMMANDS: dict[str, list[str]] = {
    "version": ["sbatch", "--version"],
    "ping": ["scontrol", "ping"],
    "config": SHOW_CONFIG,
    "nodes": SHOW_NODES,
    "queue": ["squeue", "--noheader", "--format=%i", "--jobs=1"],
    "accounting": ["sacct", "--noheader", "--parsable2", "--allocations", "--format=JobID", "--starttime=now"],
}
"""Name → command, all of them read-only."""
OLDEST_SLURM = "20.11"
_NO_ACCOUNTING = "accounting storage is disabled"
_UNKNOWN_JOB = "Invalid job id specified"


class Slurmd(Record):
    """Whether somebody listens at a node's slurmd port, tried from the login host."""

    node: str = Field(min_length=1)
    address: str
    port: int
    error: str
    """Empty where it was opened."""
    refused: str | None
    """What it answered instead of its state; None: it was not asked."""

    @property
    def trouble(self) -> str:
        """What is wrong, in words; empty."""
        if self.error:
            return f"slurmd does not listen ({self.error})"
        return f"slurmd listens, and {DEAF} ({self.refused.rsplit(': ', 1)[-1]})" if self.refused else ""


def slurm_checks(
    programs: Mapping[str, str | None],
    answers: Mapping[str, Answer],
    slurmds: tuple[Slurmd, ...],
    view: View,
    file: str,
) -> tuple[list[Check], str]:
    """The checks, and one phrase for the ladder's view. Raises EvidenceError where an answer is not there."""
    if set(answers) != set(COMMANDS) or set(programs) != set(PROGRAMS):
        raise EvidenceError(f"tells of {sorted(answers)}, asked for were {sorted(COMMANDS)}", file=file)
    for name, answer in answers.items():
        if list(answer.argv) != COMMANDS[name]:
            raise EvidenceError(f"{name} is the answer to {' '.join(answer.argv)}", file=file)
    checks = [_commands(programs, answers["version"], view, file), _controller(answers, view, file)]
    config = config_of(answers["config"], file=file) if answers["config"].well else None
    checks.append(_accounting(answers["accounting"], config, view, file))
    if not answers["nodes"].well:
        return checks, "Slurm does not answer"  # the controller's check has failed
    nodes = nodes_of_answer(answers["nodes"], file=file)
    if {slurmd.node for slurmd in slurmds} != {node.name for node in nodes}:
        raise EvidenceError("slurmds: not one for each node", file=file)
    silent = silent_nodes(nodes, {slurmd.node: slurmd.trouble for slurmd in slurmds if slurmd.trouble}, view)
    silent |= deaf_nodes(nodes, {slurmd.node for slurmd in slurmds if not slurmd.error}, view)
    checks.append(fit_check("runner.slurm.nodes", nodes, view, file, silent=silent))
    fit = sum(1 for node in nodes if not node.trouble and node.name not in silent)
    cluster = f" cluster {config['ClusterName']!r}" if config else ""
    return checks, f"Slurm{cluster}: {fit} of {len(nodes)} nodes take jobs"


def _commands(programs: Mapping[str, str | None], version: Answer, view: View, file: str) -> Check:
    missing = [name for name, path in programs.items() if not path]
    match = re.search(r"\b(\d+\.\d+(?:\.\d+)?)", " ".join(version.stdout))
    found = match.group(1) if match else ""
    problems = [f"not on the PATH of a command over ssh: {', '.join(missing)}"] if missing else []
    if not missing and not found:
        problems.append(f"sbatch --version says {version.said!r}")
    elif found and not at_least(found, OLDEST_SLURM):
        problems.append(f"Slurm {found}")
    return decide(
        "runner.slurm.commands",
        f"Slurm's commands are there, of version {OLDEST_SLURM} or newer",
        not problems,
        expected=f"{', '.join(PROGRAMS)}; ≥ {OLDEST_SLURM}",
        actual="; ".join(problems) or f"Slurm {found} in {(programs['sbatch'] or '').rsplit('/', 1)[0]}",
        evidence=(line_of(view, file, version.stdout[0]) if version.stdout else view.evidence.ref(file),),
        next_action="put Slurm's bin folder on the PATH of non-interactive shells there (~/.bashrc before its `return`, "
        "or /etc/environment)"
        if missing
        else "upgrade Slurm, or try it: what it prints may be read all the same",
    )


def _controller(answers: Mapping[str, Answer], view: View, file: str) -> Check:
    up, down = controllers_up(answers["ping"])
    problems = []
    if not up:
        problems.append("; ".join(down) or f"scontrol ping: {answers['ping'].said}")
    for name in ("config", "nodes", "queue"):
        answer = answers[name]
        if not answer.well and not (name == "queue" and _UNKNOWN_JOB in answer.said):
            problems.append(f"{' '.join(answer.argv[:3])}: {answer.said}")
    text = (up or down or [answers["ping"].said])[0]
    return decide(
        "runner.slurm.controller",
        "Slurm's controller answers",
        not problems,
        expected="slurmctld UP, scontrol and squeue answer",
        actual="; ".join(dict.fromkeys(problems)) or "; ".join([*up, *down]),
        evidence=(line_of(view, file, text),),
        next_action="on the controller's host: `systemctl status slurmctld`, and the end of its log; "
        "then `scontrol ping` here",
    )


def _accounting(answer: Answer, config: Config | None, view: View, file: str) -> Check:
    """A second witness of how jobs ended. A site that keeps no accounts has said so, and does without."""
    identifier, claim = "runner.slurm.accounting", "Slurm's accounting answers, or the site keeps none"
    text = next((line for line in (*answer.stderr, *answer.stdout) if line.strip()), "")
    reference = (line_of(view, file, text),)
    none = config is not None and not config.accounting
    if none or _NO_ACCOUNTING in answer.said:
        said = config["AccountingStorageType"] if config else ""
        words = f"switched off by configuration ({said or 'no AccountingStorageType'}): done.json is the witness"
        return decide(identifier, claim, True, actual=words, evidence=reference)
    storage = config["AccountingStorageType"] if config else ""
    if config is None and not answer.well:
        return unproved(
            identifier,
            claim,
            actual=f"sacct: {answer.said}; whether the site keeps accounts is not known",
            evidence=reference,
            next_action="mend slurmctld first",
        )
    host = config["AccountingStorageHost"] if config else ""
    return decide(
        identifier,
        claim,
        answer.well,
        expected="sacct ends with exit code 0",
        actual=f"sacct: {answer.said}" if not answer.well else f"sacct answers ({storage or 'accounting'})",
        evidence=reference,
        derivation=f"AccountingStorageType={storage}, AccountingStorageHost={host}" if config else "",
        next_action=f"on {host or 'the accounting host'}: `systemctl status slurmdbd` and its database. Jobs go on, but "
        "how one ended is then told by done.json alone",
    )
