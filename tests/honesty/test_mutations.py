"""Damaged evidence is never judged PASSED.

A real climb's evidence is damaged in every way that `mutations` generates, one at a time, and
judged again. With the seal as it was, no damage at all may pass. With the seal forged (evidence
that was wrong when it was collected), nothing may pass but what stands in the lists below, each
with the reason why the rung's claims still hold.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from climbed import Climbed
from mutations import Mutation, forge_seal, is_listed, mutations
from surefoot.engine.judge import Judge
from surefoot.evidence import EvidenceSet
from surefoot.model.run import RungResult
from surefoot.model.status import Status
from surefoot.paths import RunPaths
from surefoot.rungs.table import RUNGS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

NOT_EVIDENCE = {
    r"raw/[^/]+/supervisor\.(json|log)": "the local scheduler's notes to itself, for ending a job that it lost",
    r"raw/[^/]+/progress\.json": "for people who watch; may be missing at any time",
    r"raw/runner\.stderr": "kept for diagnosis: the exit code and the document on stdout are what is judged",
    r"raw/precheck/(net|reach)-[^/]+\.json": "what nodes write for each other while they meet; what came of it stands in "
    "each node's report",
    r"raw/(?!exit0|exit7|killed|environment)[^/]+/[^/]+\.out": "a job's log, kept for diagnosis; "
    "the scheduler rung judges its own",
}
"""Files that no claim rests on."""

STILL_TRUE = {
    (r".*\.json|raw/runner\.stdout", r"", r"extra whitespace.*"): "white space around a JSON document says nothing",
    (r"raw/(exit0|exit7|killed|environment)/.*\.out", r"", r"extra whitespace.*"): "the printed line is still there",
    (
        r"raw/push-(code|configuration)\.json",
        r"pushed",
        r"flip",
    ): "pushed now or found there: the digests are judged either way",
    (r"raw/push-(code|configuration)\.json", r"", r"stale.*"): "the same trees, sent to the same place by another run: "
    "their digests are judged, and only whether they lay there already differs",
    (r"raw/storage/rank-\d+\.json", r"data\.watching\.versions_seen\.0", r"zero.*"): "which version a reader saw first "
    "is chance; that all were whole, none older than one before, and the last one the last, is judged",
    (
        r"raw/precheck/rank-0\.json",
        r"data\.facts\.(cpus_online|cores|memory_available|own_name|memlock|nofile|clock|mounts|root_mount)\..*",
        r".*",
    ): "shown in the report; the cluster file requires nothing of it",
    (
        r"raw/precheck/rank-0\.json",
        r"data\.facts\.(interfaces|routes|reach)\..*",
        r".*",
    ): "one node has no other to reach; of several, tests/rungs/test_precheck_network damages them",
    (r"raw/mesh/trail-\d+\.json", r"facts\.(affinity|binding|limits)\..*", r".*"): "where a rank ran is "
    "shown; claims on it are of ranks on GPUs or several nodes, which tests/rungs/test_mesh damages",
    (
        r"raw/mesh/trail-\d+\.json",
        r"facts\.network\..*",
        r".*",
    ): "a trail tells how far a rank came; what it set for its network is judged in its report",
    (r"raw/mesh/rank-\d+\.json", r"data\.(affinity|binding|limits)\..*", r".*"): "as in its trail",
    (r"raw/mesh/trail-\d+\.json", r"phases\.\d+\.took_s", r"zero.*"): "shown; only a rank that is slower than the "
    "others is a claim",
    (r"raw/mesh/rank-\d+\.json", r"data\.took_s\..*", r"zero.*"): "as in its trail",
    (r"raw/mesh/rank-\d+\.json", r"data\.clocks\.\d+\.within_s", r"zero.*"): "the same offset, known better",
    (r"raw/mesh/rank-\d+\.json", r"data\.summed\.first\.\d+", r"zero.*"): "shown beside a wrong sum; the digest is "
    "over all of it",
    (r"raw/(finetune|evaluate)/rank-\d+\.json", r"data\.(versions\..*|load_s)", r".*"): "shown "
    "in the report; no claim rests on it",
    (r"raw/evaluate/rank-\d+\.json", r"data\.probes\.\d+\.(base_argmax|adapter_argmax|adapter_max)", r"zero.*"): "the "
    "adapter is shown to act by the largest difference of the logits, which is judged",
}
"""(file, figure, kind of damage) → why the claims hold all the same."""


def explained(mutation: Mutation) -> bool:
    """Whether a mutation may pass with a forged seal."""
    if any(re.fullmatch(pattern, mutation.file) for pattern in NOT_EVIDENCE):
        return mutation.kind != "delete" or not mutation.file.endswith(".out")
    return is_listed(replace(mutation, where=mutation.where.split(" in line ")[0]), STILL_TRUE)


def damaged(
    climbs: tuple[Climbed, Climbed], work: Path, *, forged: bool, figures: int = 1
) -> Iterator[tuple[Mutation, RungResult]]:
    """Every mutation of every rung, judged; of those of single figures every `figures`-th."""
    session, stale = climbs[0].session, climbs[1].session
    judge = Judge(session.run_paths, session.manifest, RUNGS)
    evidence: dict[str, EvidenceSet] = {}
    for spec in session.manifest.inputs.ladder.rungs:
        result = judge.attempt(spec, 1, evidence)
        assert result.status is Status.PASSED, f"{spec.rung} must pass before it is damaged: {result.reason}"
    copied = RunPaths(work / "copy")
    for spec in session.manifest.inputs.ladder.rungs:
        source = session.run_paths.rung(spec.rung).attempt(1).folder
        target = copied.rung(spec.rung).attempt(1).folder
        below = {name: found for name, found in evidence.items() if name != spec.rung}
        stale_folder = stale.run_paths.rung(spec.rung).attempt(1).folder
        for number, mutation in enumerate(mutations(spec.rung, source, stale_folder)):
            if mutation.where and number % figures:
                continue
            shutil.rmtree(copied.folder, ignore_errors=True)
            shutil.copytree(source, target)
            mutation.apply(target)
            if forged:
                forge_seal(target)
            yield mutation, Judge(copied, session.manifest, RUNGS).attempt(spec, 1, dict(below))


def test_nothing_damaged_after_it_was_sealed_passes(
    two_climbs: tuple[Climbed, Climbed], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    counts: Counter[str] = Counter()
    passed = []
    # The seal is over bytes: every 20th damage to a figure shows as much as all of them.
    for mutation, result in damaged(two_climbs, tmp_path, forged=False, figures=20):
        counts[mutation.rung] += 1
        if result.status is Status.PASSED:
            passed.append(str(mutation))
    _tell(capsys, "sealed", counts)
    assert passed == []
    assert counts.total() >= 200
    assert set(counts) == set(two_climbs[0].session.manifest.inputs.ladder.names)


def test_nothing_that_was_wrong_when_it_was_sealed_passes(
    two_climbs: tuple[Climbed, Climbed], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    counts: Counter[str] = Counter()
    passed, crashed = [], []
    for mutation, result in damaged(two_climbs, tmp_path, forged=True):
        counts[mutation.rung] += 1
        if result.status is Status.PASSED and not explained(mutation):
            passed.append(str(mutation))
        if "judging failed" in result.reason:
            crashed.append(f"{mutation}: {result.reason}")
    _tell(capsys, "seal forged", counts)
    assert passed == []
    assert crashed == []


def _tell(capsys: pytest.CaptureFixture[str], what: str, counts: Counter[str]) -> None:
    with capsys.disabled():
        sys.stdout.write(
            f"\n{counts.total()} mutations ({what}): {', '.join(f'{rung} {n}' for rung, n in counts.items())}\n"
        )
