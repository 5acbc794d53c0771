"""How commands and jobs ended, as checks: the same for every rung."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from surefoot.errors import EvidenceError
from surefoot.evidence import EvidenceSet
from surefoot.model.check import Check, Evidence
from surefoot.model.job import EndCause, ExpectedExit, JobDone, JobSpec, JobState, JobStatus, RankExit
from surefoot.model.run import CommandStep, JobsStep
from surefoot.model.status import ExitCode, Status
from surefoot.rungs.silent_ranks import told as words_of
from surefoot.rungs.silent_ranks import traces
from surefoot.scheduler.slurm.retry import LAUNCH_ERROR
from surefoot.scheduler.slurm.script import array_elements


def ending_checks(evidence: EvidenceSet) -> list[Check]:
    """One check for each command and each job of the plan. Evidence that is missing is INCONCLUSIVE."""
    checks = []
    for step in evidence.plan.steps:
        if isinstance(step, CommandStep):
            check = partial(_command, evidence, step)
            checks.append(_guarded(f"command.{step.name}.ended", f"command {step.name!r} ended well", check, evidence))
        elif isinstance(step, JobsStep):
            for spec in step.jobs:
                claim = _claim(spec)
                check = partial(_checked, evidence, spec, claim)
                checks.append(_guarded(f"job.{spec.name}.ended", claim, check, evidence))
    return checks


def _claim(spec: JobSpec) -> str:
    if spec.expect.state is not None:
        return f"job {spec.name!r} ended as {spec.expect.state}"
    if spec.array:
        return f"every element of the array {spec.name!r} ended with {_words(spec.expect)}"
    return f"all {spec.world_size} ranks of job {spec.name!r} ended with {_words(spec.expect)}"


def _checked(evidence: EvidenceSet, spec: JobSpec, claim: str) -> Check:
    """How a job ended; and where it took more than one try, why."""
    told = _scheduler_word(evidence, spec)
    if told is not None and told.state is JobState.CANCELLED and told.cause in (EndCause.WAITED, EndCause.NODE):
        # It never ran: also no proof that a job which is to be cancelled can be.
        check = _without_done(evidence, spec, claim, told)
    else:
        check = _kind_of_job(spec)(evidence, spec, claim)
    return _with_tries(check, evidence, spec)


def _with_tries(check: Check, evidence: EvidenceSet, spec: JobSpec) -> Check:
    """Each submission that was set aside (``try-<n>/``), with the reason that the next one was made for."""
    folder = f"raw/{spec.name}"
    names = {blob.name.split("/")[2] for blob in evidence.under(folder) if blob.name.startswith(f"{folder}/try-")}
    if not names:
        return check
    reasons, refs = [], []
    for number in range(2, len(names) + 2):
        place = f"{folder}/try-{number}" if f"try-{number}" in names else folder
        intent = evidence.json(f"{place}/submission.json")
        why = intent.get("why") if isinstance(intent, dict) else None
        reasons.append(f"try {number}: {why or 'no reason was recorded'}")
        refs.append(evidence.ref(f"{place}/submission.json", text=str(why)))
    told = "; ".join(reasons)
    return check.model_copy(
        update={
            "actual": f"{check.actual}, at try {len(names) + 1}",
            "derivation": f"{check.derivation}; {told}" if check.derivation else told,
            "evidence": (*check.evidence, *refs),
        }
    )


def _kind_of_job(spec: JobSpec) -> Callable[[EvidenceSet, JobSpec, str], Check]:
    if spec.expect.state is not None:
        return _ended_by_another
    return _array if spec.array else _job


def _guarded(identifier: str, claim: str, check: Callable[[], Check], evidence: EvidenceSet) -> Check:
    try:
        return check()
    except EvidenceError as error:
        refs = (evidence.ref(error.file, line=error.line, text=error.text),) if error.file in evidence else ()
        return Check(
            id=identifier,
            claim=claim,
            status=Status.INCONCLUSIVE,
            actual=str(error),
            evidence=refs,
            next_action="how it ended is not known: run this rung again (--resume RUN)",
        )


def _command(evidence: EvidenceSet, step: CommandStep) -> Check:
    name = f"raw/{step.name}.exit.json"
    ending = evidence.json(name)
    keys = {"exit_code", "signal", "timed_out", "started_at", "ended_at"}
    if not isinstance(ending, dict) or set(ending) != keys:
        raise EvidenceError(f"does not say how the command ended: wants the keys {sorted(keys)}", file=name)
    passed = ending["exit_code"] == 0 and ending["signal"] is None and ending["timed_out"] is False
    if ending["timed_out"]:
        actual = f"did not end within {step.timeout_s:g} s"
    elif ending["signal"] is not None:
        actual = f"died of signal {ending['signal']}"
    else:
        actual = f"exit code {ending['exit_code']}"
    refs = [evidence.ref(name, text=actual)]
    if not passed:
        refs += _tail(evidence, f"raw/{step.name}.stderr")
    return Check(
        id=f"command.{step.name}.ended",
        claim=f"command {step.name!r} ended well",
        status=Status.PASSED if passed else Status.FAILED,
        expected="exit code 0",
        actual=actual,
        evidence=tuple(refs),
        next_action="" if passed else f"read its stderr; by hand: {' '.join(step.argv)}",
    )


def _job(evidence: EvidenceSet, spec: JobSpec, claim: str) -> Check:
    name = f"raw/{spec.name}/done.json"
    told = _scheduler_word(evidence, spec)
    if name not in evidence and told is not None:
        return _without_done(evidence, spec, claim, told)
    done = evidence.record(JobDone, name)
    identity = _identity(evidence, spec)
    if (done.name, done.id) != (spec.name, identity):
        raise EvidenceError(f"is of job {done.name!r} ({done.id}), not {spec.name!r} ({identity})", file=name)
    if [rank.rank for rank in done.ranks] != list(range(spec.world_size)):
        return _incomplete(evidence, spec, claim, done, told)
    for host in sorted({rank.host for rank in done.ranks}):
        evidence.blob(f"raw/{spec.name}/{spec.name}-{done.id}-{host}.out")  # what it printed was kept
    bad = [rank for rank in done.ranks if not spec.expect.fits(rank)]
    passed = not bad and done.state is spec.expect.final_state
    actual = _words(spec.expect) if passed else _unexpected(done, bad, told)
    refs = [evidence.ref(name, text=f"state {done.state}{', ' + done.reason if done.reason else ''}")]
    if not passed:
        for blob in evidence.under(f"raw/{spec.name}"):
            if blob.name.endswith(".out"):
                refs += _tail(evidence, blob.name)
        if bad and (last := _tail(evidence, f"raw/{spec.name}/{spec.name}-{done.id}-{bad[0].host}.out")):
            actual += f"; the last that {bad[0].host} said: {last[0].text[:200]}"
    codes = {rank.exit_code for rank in bad}
    return Check(
        id=f"job.{spec.name}.ended",
        claim=claim,
        status=Status.PASSED if passed else _not_passed(done, codes, told),
        expected=_words(spec.expect),
        actual=actual,
        evidence=tuple(refs),
        next_action="" if passed else _next_action(done, spec, actual),
    )


def _incomplete(evidence: EvidenceSet, spec: JobSpec, claim: str, done: JobDone, told: JobStatus | None) -> Check:
    """A job that does not tell of each rank once: ended before all of them could tell, or not started everywhere.

    Raises EvidenceError where nothing explains it.
    """
    if done.state is not JobState.COMPLETED:
        if told is not None and _by_cause(told.cause) is not None:
            return _without_done(evidence, spec, claim, told)
        if errors := _launch_errors(evidence, spec):
            return _not_launched(evidence, spec, claim, errors)
        if (silent := _silent(evidence, spec, claim, done)) is not None:
            return silent
    raise EvidenceError(
        f"lists ranks {[rank.rank for rank in done.ranks]}, asked for were 0 to {spec.world_size - 1}",
        file=f"raw/{spec.name}/done.json",
    )


def _ended_by_another(evidence: EvidenceSet, spec: JobSpec, claim: str) -> Check:
    """A job that a scheduler ends, not its ranks: its state, by the scheduler's word and the job's own.

    Where it was killed before it could write ``done.json``, the scheduler's word is what there is.
    """
    name, wanted = f"raw/{spec.name}/done.json", spec.expect.final_state
    told = _scheduler_word(evidence, spec)
    if name not in evidence and told is not None and told.state is not wanted:
        return _without_done(evidence, spec, claim, told)
    words, refs, survived = [], [], ""
    if told is not None:
        words.append(told.state)
        refs.append(evidence.ref(_status_file(spec), text=f"state {told.state}, {told.reason}"))
    if told is None or name in evidence:
        done = evidence.record(JobDone, name)
        identity = _identity(evidence, spec)
        if (done.name, done.id) != (spec.name, identity):
            raise EvidenceError(f"is of job {done.name!r} ({done.id}), not {spec.name!r} ({identity})", file=name)
        words.append(done.state)
        refs.append(evidence.ref(name, text=f"state {done.state}, {done.reason}"))
        survived = ", ".join(f"rank {rank.rank} on {rank.host}" for rank in done.ranks if rank.exit_code == 0)
    passed = all(word is wanted for word in words) and not survived
    unlike = f"the scheduler says {words[0]}, the job itself {words[-1]}" if len(set(words)) > 1 else words[0]
    return Check(
        id=f"job.{spec.name}.ended",
        claim=claim,
        status=Status.PASSED if passed else Status.FAILED,
        expected=wanted,
        actual=wanted if passed else f"{unlike}; {survived} ended with exit code 0" if survived else unlike,
        evidence=tuple(refs),
        next_action="" if passed else "compare `sacct -o JobID,State,ExitCode,Elapsed` with what was asked of the job",
    )


def _array(evidence: EvidenceSet, spec: JobSpec, claim: str) -> Check:
    """Every element by its own ``done.json``: the scheduler's word for all of them hides which."""
    elements, identity = array_elements(spec.array), _identity(evidence, spec)
    refs, bad = [], []
    for element in elements:
        name = f"raw/{spec.name}/array-{element}/done.json"
        done = evidence.record(JobDone, name)
        if (done.name, done.id) != (spec.name, f"{identity}_{element}"):
            problem = f"is of {done.name!r} ({done.id}), not element {element} of {spec.name!r} ({identity})"
            raise EvidenceError(problem, file=name)
        if [rank.rank for rank in done.ranks] != list(range(spec.world_size)):
            raise EvidenceError(f"lists ranks {[rank.rank for rank in done.ranks]}", file=name)
        refs.append(evidence.ref(name, text=f"element {element}: {done.state}"))
        ranks = [rank for rank in done.ranks if not spec.expect.fits(rank)]
        if ranks or done.state is not spec.expect.final_state:
            bad.append(f"element {element}: {_unexpected(done, ranks, None)}")
    return Check(
        id=f"job.{spec.name}.ended",
        claim=claim,
        status=Status.FAILED if bad else Status.PASSED,
        expected=f"{len(elements)} × {_words(spec.expect)}",
        actual="; ".join(bad[:4]) or f"{len(elements)} × {_words(spec.expect)}",
        evidence=tuple(refs),
        next_action="read the element's .out file below its array-N folder" if bad else "",
    )


def _identity(evidence: EvidenceSet, spec: JobSpec) -> str | None:
    """The id that the scheduler gave the job."""
    submitted = evidence.json(f"raw/{spec.name}/job.json")
    return submitted.get("id") if isinstance(submitted, dict) else None


_WHY_NOT_LAUNCHED = (
    ("expired", "its clock is not the controller's: compare `date`, start chrony or timesyncd there"),
    ("rewound", "its clock is not the controller's: compare `date`, start chrony or timesyncd there"),
    ("credential", "another munge key, or another clock: `munge -n | ssh NODE unmunge` from the head, and `date`"),
    ("uthenticat", "another munge key, or another clock: `munge -n | ssh NODE unmunge` from the head, and `date`"),
    ("onnection", "see whether slurmd runs and listens there: `systemctl status slurmd`, port 6818"),
)


def _printed(evidence: EvidenceSet, spec: JobSpec) -> Iterator[tuple[str, list[str]]]:
    """(name, rows) of each output file of a job's last try."""
    for blob in evidence.under(f"raw/{spec.name}"):
        if blob.name.endswith(".out") and not blob.name.startswith(f"raw/{spec.name}/try-"):
            yield blob.name, blob.read().decode(errors="replace").splitlines()


def _launch_errors(evidence: EvidenceSet, spec: JobSpec) -> list[tuple[Evidence, str, str]]:
    """(reference, node, why) of every node on which Slurm could not start ranks, in srun's own words."""
    found = []
    for name, rows in _printed(evidence, spec):
        for number, row in enumerate(rows, 1):
            if match := LAUNCH_ERROR.match(row.strip()):
                found.append((evidence.ref(name, line=number, text=row), match.group(1), match.group(2)))
    return found


def _not_launched(evidence: EvidenceSet, spec: JobSpec, claim: str, errors: list[tuple[Evidence, str, str]]) -> Check:
    """A job of which Slurm could not start ranks: the machinery's fault, and on which node."""
    words = "; ".join(dict.fromkeys(f"{node}: {why}" for _, node, why in errors[:4]))
    action = next((action for word, action in _WHY_NOT_LAUNCHED if word in errors[0][2]), "see slurmd's log there")
    return Check(
        id=f"job.{spec.name}.ended",
        claim=claim,
        status=Status.ERROR,
        expected=_words(spec.expect),
        actual=f"Slurm could not start its ranks on {words}",
        evidence=(*(reference for reference, _, _ in errors[:4]), evidence.ref(f"raw/{spec.name}/done.json")),
        next_action=f"on {errors[0][1]}: {action}",
    )


def _silent(evidence: EvidenceSet, spec: JobSpec, claim: str, done: JobDone) -> Check | None:
    """A job that ended before all of its ranks left a word, by Slurm's lines on them; None where it has none."""
    found, refs = [], []
    for name, rows in _printed(evidence, spec):
        for trace in traces(rows, spec.folder):
            found.append(trace)
            refs.append(evidence.ref(name, line=trace.line, text=trace.text))
    if not found:
        return None
    blind = any(trace.sees_no_folder for trace in found)
    return Check(
        id=f"job.{spec.name}.ended",
        claim=claim,
        status=Status.ERROR if blind else Status.INCONCLUSIVE,
        expected=_words(spec.expect),
        actual=f"{done.state}: {done.reason}; {words_of(found)}",
        evidence=(*refs[:4], evidence.ref(f"raw/{spec.name}/done.json", text=done.reason)),
        next_action=f"on that node: `ls -ld {spec.folder}; df {spec.folder}`, and the same on the login host: the root of "
        "the cluster file must be the same storage on every node, and writable. Mount it there, or take the node out"
        if blind
        else "read the end of its .out file and slurmd's log on that node, mend the cause, resume the run",
    )


def _status_file(spec: JobSpec) -> str:
    return f"raw/{spec.name}.status.json"


def _scheduler_word(evidence: EvidenceSet, spec: JobSpec) -> JobStatus | None:
    """The scheduler's last word, where the engine kept one. It explains a bad end and never shows a good one."""
    name = _status_file(spec)
    return evidence.record(JobStatus, name) if name in evidence else None


def _without_done(evidence: EvidenceSet, spec: JobSpec, claim: str, told: JobStatus) -> Check:
    """A job that could not say itself how it ended."""
    where = f" on {told.nodes}" if told.nodes else ""
    refs = [evidence.ref(_status_file(spec), text=f"state {told.state}, {told.reason}")]
    for blob in evidence.under(f"raw/{spec.name}"):
        if blob.name.endswith(".out"):
            refs += _tail(evidence, blob.name)
    return Check(
        id=f"job.{spec.name}.ended",
        claim=claim,
        status=_by_cause(told.cause) or Status.INCONCLUSIVE,
        expected=_words(spec.expect),
        actual=f"{told.state}{where}: {told.reason}",
        evidence=tuple(refs),
        next_action=_CAUSE_ACTION.get(told.cause) or "how it ended is not known: run this rung again (--resume RUN)",
    )


def _by_cause(cause: EndCause | None) -> Status | None:
    """What the scheduler's cause shows: the machinery broke, the job failed, or nothing; None: there is no cause."""
    if cause in (EndCause.NODE, EndCause.LAUNCH, EndCause.LOST):
        return Status.ERROR
    if cause in (EndCause.CANCELLED, EndCause.PREEMPTED, EndCause.WAITED):
        return Status.INCONCLUSIVE
    return Status.FAILED if cause is not None else None


_CAUSE_ACTION: dict[EndCause | None, str] = {
    EndCause.NODE: "see `sinfo -R` and `scontrol show node`, bring the node back or take it out, then resume the run. "
    "One that is up and yet does not respond has a dead slurmd, another munge key or another time: on it, "
    "`systemctl status slurmd`, `date`, and `munge -n | ssh NODE unmunge` from the head",
    EndCause.LAUNCH: "see slurmd's log on that node; check the shared root and the interpreter there, then resume the run",
    EndCause.MEMORY: "ask for more memory, or for fewer ranks on a node, in the ladder",
    EndCause.TIME: "see what it was doing in its .out file; raise the rung's time_limit_s if it needs longer",
    EndCause.CANCELLED: "somebody cancelled it: resume the run",
    EndCause.WAITED: "mend what it waits for (a limit, a node), give it longer or ask for less (pending, nodes in the "
    "ladder), then resume the run",
    EndCause.PREEMPTED: "it was preempted: resume the run when the cluster is less busy",
}


def _not_passed(done: JobDone, codes: set[int | None], told: JobStatus | None) -> Status:
    """What a job that did not end as it should shows.

    What the scheduler says of the cause, where it says more than the exit codes. Nothing, when somebody
    cancelled it or when its ranks say that what they were asked cannot be done (exit 3). That the
    machinery broke, when they say that (exit 4). Else it failed.
    """
    if told is not None and (shown := _by_cause(told.cause)) is not None:
        return shown
    if done.state is JobState.CANCELLED or codes == {int(ExitCode.REQUEST)}:
        return Status.INCONCLUSIVE
    return Status.ERROR if codes == {int(ExitCode.MACHINERY)} else Status.FAILED


def _words(ending: ExpectedExit | RankExit) -> str:
    if ending.signal is None and ending.exit_code is None:
        return "could not be ended"
    return f"signal {ending.signal}" if ending.signal is not None else f"exit code {ending.exit_code}"


def _unexpected(done: JobDone, bad: list[RankExit], told: JobStatus | None) -> str:
    ranks = "; ".join(f"rank {r.rank} on {r.host}: {_words(r)}" for r in bad[:4])
    more = f" and {len(bad) - 4} more" if len(bad) > 4 else ""
    why = told.reason if told is not None else done.reason
    reason = f" ({why})" if why else ""
    return f"{done.state}{reason}{': ' if ranks else ''}{ranks}{more}"


def _next_action(done: JobDone, spec: JobSpec, said: str) -> str:
    if "No module named 'surefoot'" in said:
        code = spec.env.get("PYTHONPATH", "the pushed code")
        return f"that host does not see {code}: it has another file system mounted there, or an old copy; compare `ls`"
    if done.state is JobState.TIMEOUT:
        return f"see what it was doing in its .out file; its limit is time_limit_s: {spec.time_limit_s} in the ladder"
    if done.state is JobState.CANCELLED:
        return "somebody cancelled it: resume the run"
    return "read the end of its .out file, mend the cause, resume the run"


_AFTERWARDS = re.compile(r"^srun: |^slurmstepd|^[EW]\d{4} .*/torch/distributed/elastic/|^\[[IWE]\d{4} |\bNCCL INFO ")
"""Lines that come after a rank's last word: from Slurm, torchrun, and what PyTorch and NCCL say when a process ends."""
_TORCHRUN = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError"


def _afterwards(rows: Sequence[str]) -> set[int]:
    """Numbers of the lines that no rank said: `_AFTERWARDS`, and torchrun's own traceback and table."""
    found = {number for number, row in enumerate(rows, 1) if _AFTERWARDS.search(row)}
    for number, row in enumerate(rows, 1):
        if row.startswith(_TORCHRUN):
            begun = (n for n in range(number, 0, -1) if rows[n - 1].startswith("Traceback ("))
            rules = (n for n in range(number + 2, len(rows) + 1) if rows[n - 1].startswith("====="))
            found |= set(range(next(begun, number), next(rules, len(rows)) + 1))
    return found


def _tail(evidence: EvidenceSet, name: str) -> list[Evidence]:
    """A reference to the last line that says something, where there is one."""
    if name not in evidence:
        return []
    tail = evidence.blob(name).tail(8, skip=_afterwards)
    return [evidence.ref(name, line=tail[0], text=tail[1])] if tail else []
