"""The evaluation's evidence as facts: for the evaluation, and for the gate and the review above it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from surefoot.errors import EvidenceError
from surefoot.evaluation.records import (
    MODELS,
    EvaluationReport,
    Model,
    answers_file,
    check_header,
    merge_parts,
    read_answers,
)
from surefoot.evidence import EvidenceSet, RankReport
from surefoot.files import tree_digest
from surefoot.model.check import Evidence
from surefoot.model.score import AnswerSet, Task
from surefoot.rungs.judging import RankData, said

# Reading the staged prompt set as it was written: one format, one parser (pure, no torch).
from surefoot.training.tasks import TASKS_FILE, parse_tasks

JOB = "evaluate"
TASKS = f"raw/{JOB}/{TASKS_FILE}"


class RankEvaluation(RankData, EvaluationReport):
    """What ``surefoot.evaluation.run`` reports from each rank."""


@dataclass(frozen=True)
class EvaluateFacts:
    """The evaluation's evidence, complete."""

    tasks: tuple[Task, ...]
    tasks_digest: str
    """Tree digest of the copied prompt set, computed from the copy's bytes."""
    answers: Mapping[Model, AnswerSet]
    single: Mapping[Model, AnswerSet]
    """The sample that was answered one item at a time."""
    ranks: tuple[RankReport, ...]
    reports: tuple[EvaluationReport, ...]


def need(needs: Mapping[str, EvidenceSet], rung: str) -> EvidenceSet:
    """Evidence of a rung below. Raises EvidenceError when that rung did not pass or is not below."""
    try:
        return needs[rung]
    except KeyError:
        raise EvidenceError(
            f"no evidence: the rung {rung!r} must stand below this one and have PASSED", file=f"rungs/{rung}"
        ) from None


def answer_name(model: Model, rank: int, *, single: bool = False) -> str:
    """An answers file's name in the evidence."""
    return f"raw/{JOB}/{answers_file(model, rank, single=single)}"


def read_evidence(evidence: EvidenceSet) -> EvaluateFacts:
    """The evaluation's evidence as facts: for this rung, and for the gate and the review above it.

    Raises EvidenceError where a file is missing, incomplete, of another run, or not the bytes that
    its rank says it wrote.
    """
    found = said(evidence, JOB, RankEvaluation)
    ranks, reports = tuple(rank.report for rank in found), tuple(rank.data for rank in found)
    for rank, report in enumerate(reports):
        _files_are_as_written(evidence, rank, report)
    tasks_name = f"raw/{JOB}/{TASKS_FILE}"
    tasks_blob = evidence.blob(tasks_name)
    return EvaluateFacts(
        tasks=parse_tasks(tasks_blob.text(), file=tasks_name),
        tasks_digest=tree_digest({TASKS_FILE: tasks_blob.sha256}),
        answers={model: _merged(evidence, len(ranks), model) for model in MODELS},
        single={model: _singles(evidence, len(ranks), model) for model in MODELS},
        ranks=ranks,
        reports=reports,
    )


def _files_are_as_written(evidence: EvidenceSet, rank: int, report: EvaluationReport) -> None:
    """Each answers file has the sha256 that its rank reported last, and there is no other."""
    wanted = {answers_file(model, rank, single=single) for model in MODELS for single in (False, True)}
    if set(report.files) != wanted:
        raise EvidenceError(
            f"names {sorted(report.files)}, a rank writes {sorted(wanted)}", file=evidence.rank_file(JOB, rank)
        )
    for name, sha256 in report.files.items():
        file = f"raw/{JOB}/{name}"
        if evidence.blob(file).sha256 != sha256:
            raise EvidenceError(f"is not the file that rank {rank} wrote (sha256 differs from its report)", file=file)


def _part(evidence: EvidenceSet, name: str, model: Model) -> AnswerSet:
    part = read_answers(evidence.blob(name).text(), file=name)
    check_header(part, file=name, model=model, run=evidence.plan.run_id, nonce=evidence.plan.nonce)
    return part


def _merged(evidence: EvidenceSet, world_size: int, model: Model) -> AnswerSet:
    names = [answer_name(model, rank) for rank in range(world_size)]
    return merge_parts([_part(evidence, name, model) for name in names], files=names)


def _singles(evidence: EvidenceSet, world_size: int, model: Model) -> AnswerSet:
    """The sample's answers of all ranks, one after another: the sample is not split evenly."""
    names = [answer_name(model, rank, single=True) for rank in range(world_size)]
    parts = [_part(evidence, name, model) for name in names]
    answers = tuple(answer for part in parts for answer in part.answers)
    first = parts[0].header
    for part, name in zip(parts, names, strict=True):
        if part.header.model_copy(update={"count": first.count}) != first:
            raise EvidenceError(f"the header differs from {names[0]}", file=name, line=1)
    return AnswerSet(header=first.model_copy(update={"count": len(answers)}), answers=answers)


def item_ref(evidence: EvidenceSet, model: Model, position: int, world_size: int, text: str = "") -> Evidence:
    """Where the answer to the item at `position` of the prompt set stands: part, and line below its header."""
    name = answer_name(model, position % world_size)
    return evidence.ref(name, line=position // world_size + 2, text=text)
