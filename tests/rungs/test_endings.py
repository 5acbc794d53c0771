"""Jobs that a scheduler ends, and arrays: how they ended, judged by each word there is."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rungs_harness import NONCE, RUN
from surefoot.evidence import Blob, EvidenceSet
from surefoot.model.check import Check
from surefoot.model.job import EndCause, ExpectedExit, Job, JobDone, JobSpec, JobState, JobStatus, RankExit
from surefoot.model.run import JobsStep, Plan
from surefoot.model.status import Status
from surefoot.rungs.endings import ending_checks

SPEC = JobSpec(name="j", argv=("x",), folder="/f")
ENDED = {
    "cancelled": (SPEC.model_copy(update={"expect": ExpectedExit(state=JobState.CANCELLED)}), JobState.CANCELLED),
    "limit": (SPEC.model_copy(update={"expect": ExpectedExit(state=JobState.TIMEOUT)}), JobState.TIMEOUT),
}
ARRAY = SPEC.model_copy(update={"array": "0-2"})


def done(state: JobState, *, identifier: str = "7", **rank: Any) -> dict[str, Any]:
    ranks = (RankExit(rank=0, host="n1", **(rank or {"signal": 15})),)
    return JobDone(id=identifier, name="j", state=state, started_at=1, ended_at=2, ranks=ranks).canonical()


def word(state: JobState) -> dict[str, Any]:
    return JobStatus(state=state, reason="so it is").canonical()


def ended(spec: JobSpec, files: dict[str, Any], logs: dict[str, str] | None = None) -> Check:
    plan = Plan(run_id=RUN, rung="r", attempt=1, nonce=NONCE, steps=(JobsStep(jobs=(spec,)),))
    content = {"raw/j/job.json": Job(id="7", spec=spec, submitted_at=1).canonical(), **files}
    blobs = {name: Blob(name=name, data=json.dumps(data).encode()) for name, data in content.items()}
    blobs |= {name: Blob(name=name, data=text.encode()) for name, text in (logs or {}).items()}
    (check,) = ending_checks(EvidenceSet(plan=plan, files=blobs))
    return check


@pytest.mark.parametrize("case", ENDED)
def test_a_job_that_ended_as_it_was_to_be_ended_passes(case: str) -> None:
    spec, state = ENDED[case]
    for files in (
        {"raw/j/done.json": done(state), "raw/j.status.json": word(state)},
        {"raw/j/done.json": done(state)},
        {"raw/j.status.json": word(state)},  # killed before it could write
    ):
        check = ended(spec, files)
        assert (check.status, check.actual) == (Status.PASSED, state)
        assert check.evidence


@pytest.mark.parametrize("case", ENDED)
@pytest.mark.parametrize("other", [JobState.COMPLETED, JobState.FAILED])
def test_a_job_that_ended_otherwise_fails_by_either_word(case: str, other: JobState) -> None:
    spec, state = ENDED[case]
    for mine, told in ((other, other), (other, state), (state, other)):
        check = ended(spec, {"raw/j/done.json": done(mine), "raw/j.status.json": word(told)})
        assert check.status is Status.FAILED
        assert str(other) in str(check.actual)
        assert check.next_action


@pytest.mark.parametrize("case", ENDED)
def test_a_rank_that_ended_by_itself_was_not_ended(case: str) -> None:
    spec, state = ENDED[case]
    check = ended(spec, {"raw/j/done.json": done(state, exit_code=0)})
    assert check.status is Status.FAILED
    assert "rank 0 on n1 ended with exit code 0" in str(check.actual)


def test_without_any_word_and_with_another_jobs_nothing_is_proved() -> None:
    spec, state = ENDED["cancelled"]
    assert ended(spec, {}).status is Status.INCONCLUSIVE
    assert ended(spec, {"raw/j/done.json": done(state, identifier="8")}).status is Status.INCONCLUSIVE


def test_a_job_that_a_node_took_down_before_its_ranks_could_tell_is_the_machinerys_fault_and_names_it() -> None:
    told = JobStatus(
        state=JobState.FAILED, reason="a node failed: n2 is down (Not responding)", cause=EndCause.NODE, nodes="n[1-2]"
    )
    silent = {**done(JobState.CANCELLED), "ranks": []}
    check = ended(SPEC, {"raw/j/done.json": silent, "raw/j.status.json": told.canonical()})
    assert check.status is Status.ERROR
    assert "n2 is down (Not responding)" in str(check.actual)
    assert "munge" in check.next_action
    completed = {**done(JobState.COMPLETED), "ranks": []}
    assert ended(SPEC, {"raw/j/done.json": completed}).status is Status.INCONCLUSIVE


SRUN = {
    "Job credential expired": "chrony",
    "Communication connection failure": "slurmd",
    "Invalid job credential": "munge",
}


@pytest.mark.parametrize("why", SRUN)
def test_a_node_on_which_slurm_could_not_start_ranks_is_named_with_sruns_reason(why: str) -> None:
    said = f"srun: error: Task launch for StepId=14.0 failed on node n1: {why}\nsrun: Job step aborted\n"
    silent = {**done(JobState.FAILED), "ranks": []}
    check = ended(SPEC, {"raw/j/done.json": silent}, {"raw/j/j-7-n1.out": said})
    assert check.status is Status.ERROR
    assert check.actual == f"Slurm could not start its ranks on n1: {why}"
    assert SRUN[why] in check.next_action
    assert check.evidence[0].line == 1


NOT_SHARED = """srun: error: n2: task 1: Exited with exit code 2
srun: launch/slurm: _step_signal: Terminating StepId=21.0
slurmstepd-n2: error: couldn't chdir to `/f': No such file or directory: going to /tmp instead
/bin/sh: 0: cannot open /f/start.sh: No such file
slurmstepd-n1: error: *** STEP 21.0 ON n1 CANCELLED AT 2026-11-29T22:09:06 ***
srun: error: n1: task 0: Terminated
"""
READ_ONLY = """Traceback (most recent call last):
srun: error: n2: task 1: Exited with exit code 1
  File "/f/launch.py", line 350, in into_file
OSError: [Errno 30] Read-only file system: '/f/j-22-n2.out'
srun: error: n1: task 0: Killed
"""


@pytest.mark.parametrize(
    ("said", "told", "line"),
    [
        (NOT_SHARED, "n2: Exited with exit code 2, it does not see the job's folder (No such file or directory)", 1),
        (READ_ONLY, "n2: Exited with exit code 1, it cannot use the job's folder (Read-only file system)", 2),
    ],
)
def test_a_node_that_does_not_see_the_job_s_folder_is_named_although_it_could_leave_no_word_there(
    said: str, told: str, line: int
) -> None:
    silent = {**done(JobState.FAILED), "ranks": [], "reason": "no word from rank 0, 1; srun ended with 143"}
    check = ended(SPEC, {"raw/j/done.json": silent}, {"raw/j/j-7-n1.out": said})
    assert check.status is Status.ERROR
    assert check.actual == f"FAILED: no word from rank 0, 1; srun ended with 143; {told}"
    assert "must be the same storage on every node" in check.next_action
    assert check.evidence[0].line == line


def test_a_task_that_ended_without_a_word_is_named_and_nothing_is_made_of_another_folder() -> None:
    said = NOT_SHARED.replace("`/f'", "`/home/x'")
    silent = {**done(JobState.FAILED), "ranks": []}
    check = ended(SPEC, {"raw/j/done.json": silent}, {"raw/j/j-7-n1.out": said})
    assert (check.status, "n2: Exited with exit code 2" in str(check.actual)) == (Status.INCONCLUSIVE, True)
    assert "same storage" not in check.next_action
    quiet = ended(SPEC, {"raw/j/done.json": silent}, {"raw/j/j-7-n1.out": "hello\n"})
    assert (quiet.status, "lists ranks []" in str(quiet.actual)) == (Status.INCONCLUSIVE, True)


def test_a_rank_that_failed_is_told_with_its_own_last_line_and_not_with_sruns() -> None:
    said = "starting\nNo module named 'surefoot'\nsrun: error: n1: task 0: Exited with exit code 1\n"
    failed = done(JobState.FAILED, exit_code=1)
    check = ended(SPEC, {"raw/j/done.json": failed}, {"raw/j/j-7-n1.out": said})
    assert check.actual == "FAILED: rank 0 on n1: exit code 1; the last that n1 said: No module named 'surefoot'"
    assert "does not see the pushed code" in check.next_action
    only = ended(SPEC, {"raw/j/done.json": failed}, {"raw/j/j-7-n1.out": "srun: error: n1\n"})
    assert str(only.actual).endswith("srun: error: n1")


NCCLS = """Last error:
Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 60
[W1129 20:25:33.777818779 ProcessGroupNCCL.cpp:1575] Warning: WARNING: destroy_process_group() was not called
[W1129 20:25:33.779510629 ProcessGroupNCCL.cpp:1575] Warning: WARNING: destroy_process_group() was not called
vm:6343:6343 [0] NCCL INFO ENV/Plugin: Closing env plugin ncclEnvDefault
vm:6342:6342 [0] NCCL INFO ENV/Plugin: Closing env plugin ncclEnvDefault
srun: error: g0: task 0: Exited with exit code 1
srun: launch/slurm: _step_signal: Terminating StepId=16.0
srun: error: g1: task 1: Exited with exit code 1
"""
TORCHRUNS = """ValueError: boom
E1129 20:37:49.637000 30641 /x/site-packages/torch/distributed/elastic/multiprocessing/api.py:1002] failed
Traceback (most recent call last):
  File "/x/site-packages/torch/distributed/run.py", line 1032, in <module>
    main()
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
launch.py FAILED
------------------------------------------------------------
Failures:
  <NO_OTHER_FAILURES>
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-29_20:37:49
  exitcode  : 3 (pid: 30887)
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
============================================================
srun: error: n1: task 0: Exited with exit code 1
"""


@pytest.mark.parametrize(
    ("log", "line", "said"),
    [
        (NCCLS, 2, "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 60"),
        (TORCHRUNS, 1, "ValueError: boom"),
    ],
)
def test_what_libraries_and_launchers_add_when_a_rank_has_failed_is_not_its_word(
    log: str, line: int, said: str
) -> None:
    check = ended(SPEC, {"raw/j/done.json": done(JobState.FAILED, exit_code=1)}, {"raw/j/j-7-n1.out": log})
    assert str(check.actual).endswith(f"the last that n1 said: {said}")
    assert (check.evidence[1].line, check.evidence[1].text) == (line, said)


def elements(**changes: Any) -> dict[str, Any]:
    """Three elements that completed; element 1 changed."""
    found = {}
    for number in range(3):
        content = done(JobState.COMPLETED, identifier=f"7_{number}", exit_code=0)
        found[f"raw/j/array-{number}/done.json"] = {**content, **(changes if number == 1 else {})}
    return found


def test_an_array_passes_when_every_element_tells_its_own_end() -> None:
    check = ended(ARRAY, elements())
    assert check.status is Status.PASSED
    assert len(check.evidence) == 3


def test_an_element_that_failed_is_named() -> None:
    failed = {"state": "FAILED", "ranks": [{"rank": 0, "host": "n2", "exit_code": 3, "signal": None}]}
    check = ended(ARRAY, elements(**failed))
    assert check.status is Status.FAILED
    assert "element 1: FAILED: rank 0 on n2: exit code 3" in str(check.actual)


@pytest.mark.parametrize("change", [{"id": "7_2"}, {"id": "7"}, {"name": "k"}, {"ranks": []}])
def test_an_element_that_is_another_proves_nothing(change: dict[str, Any]) -> None:
    assert ended(ARRAY, elements(**change)).status is Status.INCONCLUSIVE


def test_an_element_that_told_nothing_proves_nothing() -> None:
    files = elements()
    del files["raw/j/array-2/done.json"]
    check = ended(ARRAY, files)
    assert check.status is Status.INCONCLUSIVE
    assert "array-2" in str(check.actual)


@pytest.mark.parametrize("spec", [SPEC, ENDED["cancelled"][0], ARRAY])
@pytest.mark.parametrize(("cause", "status"), [(EndCause.WAITED, Status.INCONCLUSIVE), (EndCause.NODE, Status.ERROR)])
def test_a_job_that_was_cancelled_because_it_waited_never_passes_and_says_for_what(
    spec: JobSpec, cause: EndCause, status: Status
) -> None:
    reason = "waited 61 s of at most 60 for 2 nodes: n1 is down"
    told = JobStatus(state=JobState.CANCELLED, reason=reason, cause=cause).canonical()
    check = ended(spec, {"raw/j.status.json": told})
    assert (check.status, reason in str(check.actual)) == (status, True)
    assert check.next_action


def tries(*reasons: str) -> dict[str, Any]:
    """Files of a job that was submitted again for each of these reasons."""
    places = [*(f"raw/j/try-{n}" for n in range(1, len(reasons) + 1)), "raw/j"]
    return {f"{place}/submission.json": {"why": why} for place, why in zip(places, ("", *reasons), strict=True)}


GOOD = {"raw/j/done.json": done(JobState.COMPLETED, exit_code=0), "raw/j/j-7-n1.out": ""}


def test_a_job_that_took_several_tries_says_how_many_and_why() -> None:
    assert ended(SPEC, GOOD).actual == "exit code 0"
    check = ended(SPEC, {**GOOD, **tries("a node failed: without n1", "a node failed: without n[1-2]")})
    assert (check.status, check.actual) == (Status.PASSED, "exit code 0, at try 3")
    assert check.derivation == "try 2: a node failed: without n1; try 3: a node failed: without n[1-2]"
    assert [seen.file for seen in check.evidence[-2:]] == ["raw/j/try-2/submission.json", "raw/j/submission.json"]


def test_a_try_that_does_not_say_why_it_was_made_proves_nothing() -> None:
    files = tries("a node failed")
    del files["raw/j/submission.json"]
    assert ended(SPEC, {**GOOD, **files}).status is Status.INCONCLUSIVE
