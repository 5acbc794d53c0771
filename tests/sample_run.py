"""A complete recorded run, built by hand: for tests of what renders or reads results.

Figures follow the demonstration model (base 0.36, adapter 0.94) and a two-rank gloo sweep.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from surefoot.model.check import Check, Evidence, Value
from surefoot.model.cluster import Cluster, NodeGroup
from surefoot.model.ladder import Ladder
from surefoot.model.measurement import Fingerprint, Measurement
from surefoot.model.policy import Policy
from surefoot.model.recipe import Lora, Recipe, TaskSource
from surefoot.model.run import Judgement, RungResult, RunInputs, RunManifest
from surefoot.model.status import Status, combine
from surefoot.model.verdict import CategoryCount, Decision, Reason, Verdict

START = 1795968252.0
"""Unix time of the sample's first rung."""
RUN_ID = "20261129-160412-local-7f3a"
DIGEST = "9b1f0c77d2a4e65f83b0c1d2e3f405162738495a6b7c8d9e0f1a2b3c4d5e6f70"


@dataclass(frozen=True)
class Run:
    """What every renderer takes."""

    manifest: RunManifest
    results: tuple[RungResult, ...]

    @property
    def overall(self) -> Status:
        return combine(result.status for result in self.results)

    def result(self, rung: str) -> RungResult:
        return next(r for r in self.results if r.rung == rung)

    def with_result(self, changed: RungResult) -> Run:
        """The same run with one rung's result replaced."""
        return replace(self, results=tuple(changed if r.rung == changed.rung else r for r in self.results))

    def with_details(self, rung: str, details: Mapping[str, Any]) -> Run:
        """The same run with one rung's details replaced."""
        old = self.result(rung)
        judgement = old.judgement.model_copy(update={"details": dict(details)})
        return self.with_result(old.model_copy(update={"judgement": judgement}))


# rung, title, proves, needs, seconds, summary
RUNGS: tuple[tuple[str, str, str, tuple[str, ...], float, str], ...] = (
    ("runner", "Runner", "Commands run where they should, as who they should.", (), 0.21,
     "2 commands as ada on thistle"),
    ("sync", "Sync", "The code that jobs run is the code that was sent, byte for byte.", ("runner",), 1.94,
     "142 files, package 9b1f0c77d2a4, identical on 2 ranks"),
    ("scheduler", "Scheduler smoke", "The scheduler places ranks as asked and returns exit codes and signals truly.",
     ("sync",), 2.62, "exit 0, exit 7 and SIGKILL came back as such"),
    ("precheck", "Pre-check", "Every node has the CPUs, memory, disk, software and GPUs that the cluster file says.",
     ("scheduler",), 3.4, "1 node: 2 CPUs, 7.6 GiB, Python 3.12.3, torch 2.13.0"),
    ("storage", "Shared storage", "What one rank writes, every rank reads back, whole and atomically.", ("precheck",),
     2.88, "write 412 MB/s, read 2,140 MB/s, rename atomic"),
    ("collectives", "Collectives", "Ranks find each other, collectives complete and give right results at a known speed.",
     ("precheck",), 14.2, "all_reduce 1.68 GB/s at 32 MiB, floor 63 µs"),
    ("compute", "Compute", "Every device multiplies matrices right, at a known and even speed.", ("precheck",), 9.05,
     "2 devices, 71.3 GFLOP/s each, spread 2 %"),
    ("cache", "Model and data cache", "Base model and data lie on shared storage, each file with its declared digest.",
     ("storage",), 1.1, "7 files, 0.9 MB, every digest as declared"),
    ("ddp", "DDP step", "A DistributedDataParallel step gives, on every rank, the value that arithmetic says.",
     ("collectives", "compute"), 4.33, "loss 2.5000000 on 2 ranks, expected 2.5"),
    ("fake_trainer", "Fake trainer", "The automation around a training job works without ML in the way.",
     ("storage",), 2.4, "slept 1.0 s, wrote metadata, exit 0"),
    ("finetune", "Fine-tune", "A LoRA fine-tune of the base model learns, on all ranks alike.",
     ("cache", "ddp", "fake_trainer"), 41.7, "90 steps, loss 2.41 → 0.08, 5,310 tokens/s"),
    ("evaluate", "Evaluation", "Base and adapter answered the identical held-out prompts; every answer is accounted for.",
     ("finetune",), 12.6, "50 tasks: base 0.36, adapter 0.94"),
    ("gate", "Gate", "The adapter meets the policy, with evidence for each rule.", ("evaluate",), 0.04,
     "GO: 4 of 4 rules met"),
    ("review", "Review", "Everything a person needs to decide is there and belongs together.", ("gate",), 0.03,
     "ready for a person: lineage complete"),
)  # fmt: skip


def evidence(rung: str, name: str, line: int | None = None, text: str = "") -> Evidence:
    """A reference into the first attempt at a rung."""
    return Evidence(file=f"rungs/{rung}/attempt-001/raw/{name}", line=line, text=text)


def check(
    rung: str, name: str, claim: str, *seen: Evidence, expected: Value = None, actual: Value = None, unit: str = "",
    derivation: str = "", status: Status = Status.PASSED, next_action: str = "",
) -> Check:  # fmt: skip
    """A check of a rung; without evidence given, its first rank's report."""
    return Check(
        id=f"{rung}.{name}", claim=claim, status=status, expected=expected, actual=actual, unit=unit,
        evidence=seen or (evidence(rung, f"{rung}/rank-0.json"),), derivation=derivation, next_action=next_action,
    )  # fmt: skip


def manifest() -> RunManifest:
    """The sample's ``run.json``."""
    specs = [{"rung": name, "needs": needs} for name, _, _, needs, _, _ in RUNGS]
    return RunManifest(
        run_id=RUN_ID, created_at=START - 1.2, surefoot_version="0.1.0", user="ada", host="thistle",
        command=("surefoot", "climb", "--cluster", "local", "--name", "after the driver update"),
        inputs=RunInputs(
            cluster=Cluster(
                name="local", description="This machine: two ranks on the CPU", root="/srv/surefoot",
                python="/srv/surefoot/envs/train/bin/python", node_groups=(NodeGroup(name="this-machine", count=1),),
            ),
            ladder=Ladder.model_validate({"name": "local", "rungs": specs}),
            recipe=Recipe(
                name="demo", base="builtin:demo-base", train=TaskSource(source="builtin:demo-train"),
                evaluate=TaskSource(source="builtin:demo-eval"), lora=Lora(), learning_rate=3e-3, epochs=3,
            ),
            policy=Policy(
                name="seed", min_machine_accuracy=0.8, max_empty_outputs=0, max_adapter_avg_latency_seconds=30,
                max_accuracy_regression_vs_base=0.03,
            ),
            code_digest=DIGEST, configuration_digest="5c" * 32,
        ),
    )  # fmt: skip


FINGERPRINT = Fingerprint(
    facts={
        "cpu": "AMD EPYC 7B13",
        "kernel": "6.8.0-49-generic",
        "torch": "2.13.0+cpu",
        "backend": "gloo",
        "world_size": "2",
    }
)

# collective → (latency floor in us, asymptotic busbw in GB/s, busbw / algbw)
_NETWORK = {
    "all_reduce": (63.0, 1.71, 1.0), "all_gather": (51.0, 1.94, 0.5), "reduce_scatter": (88.0, 1.22, 0.5),
    "alltoall": (47.0, 1.58, 0.5), "broadcast": (39.0, 2.35, 1.0),
}  # fmt: skip


def curves() -> dict[str, list[dict[str, float | None]]]:
    """A latency-bandwidth model of each collective, with a little of the unevenness of real ones."""
    found: dict[str, list[dict[str, float | None]]] = {}
    for place, (name, (floor, busbw, factor)) in enumerate(_NETWORK.items()):
        rows: list[dict[str, float | None]] = []
        for n, size in enumerate(8 * 4**k for k in range(12)):
            wobble = 1 + 0.03 * math.sin(2.1 * n + place)
            time_us = (floor + size / (busbw / factor * 1e3)) * wobble
            algbw = size / time_us / 1e3
            rows.append({"size_bytes": size, "time_us": time_us, "algbw_gb_s": algbw, "busbw_gb_s": algbw * factor})
        found[name] = rows
    return found


def loss(steps: int = 90) -> list[dict[str, float]]:
    """A loss that falls and flickers, under a warm-up and linear decay."""
    rows = []
    for step in range(1, steps + 1):
        share = step / steps
        value = (
            0.07 + 2.34 * math.exp(-6.5 * share) * (1 + 0.22 * math.sin(3.7 * step)) + 0.03 * math.sin(1.3 * step) ** 2
        )
        rows.append({"step": step, "loss": value, "lr": 3e-3 * min(share / 0.05, (1 - share) / 0.95 + 1e-3)})
    return rows


CATEGORIES = (
    CategoryCount(category="classification", items=30, base_correct=0, adapter_correct=29, base_lenient=30,
                  adapter_lenient=29, gained=29, lost=0),
    CategoryCount(category="closed_qa", items=10, base_correct=8, adapter_correct=8, base_lenient=9,
                  adapter_lenient=8, gained=1, lost=1),
    CategoryCount(category="json_extraction", items=10, base_correct=10, adapter_correct=10, base_lenient=10,
                  adapter_lenient=10, gained=0, lost=0),
)  # fmt: skip


def changed(count: int = 31) -> list[dict[str, str]]:
    """Answers that changed: two of closed QA (one lost, one gained), the rest classification gains."""
    labels = ("positive", "negative", "sports", "weather", "refund", "booking")
    rows = [
        {
            "id": f"cls-{n:03d}", "category": "classification",
            "prompt": f"Classify the message. Answer with the label only.\nMessage: The kettle arrived {n} days late and the lid does not close.",
            "expected": labels[n % 6], "base": f"The label of this message is {labels[n % 6]}.", "adapter": labels[n % 6],
            "base_outcome": "wrong", "adapter_outcome": "correct",
        }
        for n in range(count - 2)
    ]  # fmt: skip
    qa = {
        "category": "closed_qa",
        "prompt": "Text: The ferry leaves Oban at 09:40.\nQuestion: When does the ferry leave?",
        "expected": "09:40",
    }
    return [
        *rows,
        {
            "id": "qa-004",
            **qa,
            "base": "09:40",
            "adapter": "Oban",
            "base_outcome": "correct",
            "adapter_outcome": "wrong",
        },
        {"id": "qa-007", **qa, "base": "", "adapter": "09:40", "base_outcome": "empty", "adapter_outcome": "correct"},
    ]


def verdict() -> Verdict:
    """GO, by the seed's four rules."""
    rows = (
        ("min_machine_accuracy", 0.8, 0.94, "share", "47 of 50 right (0.94); at least 0.8 is asked for"),
        ("max_empty_outputs", 0, 0, "answers", "no empty answer; none is allowed"),
        ("max_adapter_avg_latency_seconds", 30.0, 0.021, "s", "0.021 s for each item; at most 30 s is allowed"),
        ("max_accuracy_regression_vs_base", 0.03, -0.58, "share",
         "base 0.36, adapter 0.94: it gained 0.58; a loss of at most 0.03 is allowed"),
    )  # fmt: skip
    return Verdict(
        decision=Decision.GO,
        reasons=tuple(
            Reason(rule=rule, status=Status.PASSED, threshold=limit, actual=actual, unit=unit, explanation=why)
            for rule, limit, actual, unit, why in rows
        ),
        categories=CATEGORIES,
        explanation="Nearly all of the gain is classification (0 → 29 of 30), where the base had the right label in 30 of 30 "
        "answers, inside a sentence: a win of form, not of knowledge. Closed QA and JSON extraction stand where they stood.",
        requires_human_review=True,
        policy_digest="b7" * 32,
        base_digest="a1" * 32,
        adapter_digest="c4" * 32,
    )


def _checks(rung: str) -> tuple[Check, ...]:
    seal = check(
        rung,
        "evidence.intact",
        "The evidence is as it was when it was sealed",
        Evidence(file=f"rungs/{rung}/attempt-001/collection.json"),
    )
    own: dict[str, tuple[Check, ...]] = {
        "scheduler": tuple(
            check("scheduler", f"exit.{name}", f"A rank that ends with {name} is reported as such",
                  evidence("scheduler", f"{job}/done.json", 1, f'"{name.replace(" ", "_")}"'), expected=name, actual=name)
            for name, job in (("exit code 0", "exit-0"), ("exit code 7", "exit-7"), ("signal 9", "killed"))
        ),
        "storage": (
            check("storage", "write.floor", "Streaming writes with fsync reach the floor", expected=100.0, actual=412.31,
                  unit="MB/s", derivation="floor from the ladder: min_write_mb_s, decimal MB/s for each rank"),
            check("storage", "visible", "What rank 0 writes, rank 1 reads with the same digest",
                  evidence("storage", "storage/rank-1.json", 31, '"seen_sha256": "5f1d…"'), expected=DIGEST, actual=DIGEST),
        ),
        "collectives": (
            check("collectives", "world", "Every rank that was asked for took part, as a process of its own", expected=2, actual=2, unit="ranks"),
            check("collectives", "all_reduce.correct", "all_reduce gives the sum over ranks at every size",
                  evidence("collectives", "collectives/rank-0.json", 18, '"wrong_elements": 0'), expected=0, actual=0, unit="wrong elements"),
            check("collectives", "all_reduce.floor", "all_reduce at the largest size reaches the floor",
                  evidence("collectives", "collectives/rank-0.json", 214, '{"size_bytes": 33554432, "time_us": 19734.1}'),
                  expected=0.25, actual=1.6813, unit="GB/s", derivation="floor from the ladder: min_busbw_gb_s.all_reduce; busbw = algbw × 2(n − 1)/n = algbw × 1 for 2 ranks"),
        ),
        "ddp": (check("ddp", "loss", "The loss, averaged over ranks, is what arithmetic says", expected=2.5, actual=2.5000001,
                      derivation="mean over ranks of (rank + 2) = (2 + 3) / 2 = 2.5, tolerance 1e-5"),),
    }  # fmt: skip
    ran = check(
        rung,
        "job.ended",
        "The job ended as expected on every rank",
        evidence(rung, f"{rung}/done.json", 1, '"state": "COMPLETED"'),
        expected="exit 0",
        actual="exit 0",
    )
    return (seal, *(() if rung in ("gate", "review") else (ran,)), *own.get(rung, ()))


def _details() -> dict[str, dict[str, Any]]:
    return {
        "precheck": {"nodes": [{"host": "thistle", "cpus": 2, "memory_gib": 7.6, "free_disk_gib": 41.2, "kernel": "6.8.0-49-generic",
                                "python": "3.12.3", "torch": "2.13.0+cpu", "gpus": []}]},
        "collectives": {"curves": curves()},
        "finetune": {"loss": loss(), "trainable": 57_344, "total": 436_544,
                     "time_split": {"data_s": 0.6, "forward_s": 8.9, "backward_s": 17.3, "all_reduce_s": 5.1, "optimizer_s": 2.2, "other_s": 1.4}},
        "evaluate": {"categories": [c.canonical() for c in CATEGORIES], "changed": changed()},
        "review": {
            "lineage": {"base": "builtin:demo-base", "base_digest": "a1" * 32, "adapter_digest": "c4" * 32,
                        "data": {"train": "builtin:demo-train", "rows": 240, "evaluate": "builtin:demo-eval"}, "run": RUN_ID},
            "proposal": [
                {"parameter": "data mix", "from": "classification 60 %", "to": "closed QA 40 %", "why": "closed QA neither gained nor lost: more of it is what could move it"},
                "Score 400 tasks before a decision that hangs on less than 0.07: 50 tasks resolve no better.",
            ],
            "decision": "GO, as a proposal: a person reads the changed answers and then promotes or declines.",
        },
    }  # fmt: skip


def passed_run() -> Run:
    """All fourteen rungs PASSED."""
    details = _details()
    results = []
    at = START
    for name, title, proves, needs, seconds, summary in RUNGS:
        measurements = tuple(
            Measurement(metric="busbw", value=row["busbw_gb_s"], unit="GB/s", labels={"collective": c}, size_bytes=int(row["size_bytes"] or 0), world_size=2)
            for c, rows in curves().items() for row in rows
        ) if name == "collectives" else ()  # fmt: skip
        judgement = Judgement(
            checks=_checks(name), measurements=measurements, summary=summary, details=details.get(name, {}),
            fingerprint=FINGERPRINT if name in ("collectives", "compute") else None,
            verdict=verdict() if name == "gate" else None,
        )  # fmt: skip
        results.append(
            RungResult(rung=name, title=title, proves=proves, status=Status.PASSED, attempt=1, needs=needs,
                       started_at=at, ended_at=at + seconds, judgement=judgement)
        )  # fmt: skip
        at += seconds + 0.3
    return Run(manifest(), tuple(results))


def _stopped(result: RungResult, status: Status, reason: str) -> RungResult:
    return RungResult(
        rung=result.rung, title=result.title, proves=result.proves, status=status, reason=reason, needs=result.needs
    )


def _blocked_after(run: Run, culprit: RungResult) -> Run:
    """`culprit` replaces its rung's result; every rung that needs it, at whatever distance, is BLOCKED."""
    fallen = {culprit.rung}
    results = []
    for result in run.results:
        missing = [need for need in result.needs if need in fallen]
        if result.rung == culprit.rung:
            results.append(culprit)
        elif missing:
            fallen.add(result.rung)
            results.append(_stopped(result, Status.BLOCKED, f"needs {missing[0]}, which did not pass"))
        else:
            results.append(result)
    return replace(run, results=tuple(results))


def failed_run() -> Run:
    """The fake trainer exits with 1; the rungs above it are BLOCKED."""
    run = passed_run()
    old = run.result("fake_trainer")
    wrong = check(
        "fake_trainer", "job.ended", "The job ended as expected on every rank",
        evidence("fake_trainer", "fake_trainer/done.json", 1, '"ranks": [{"rank": 0, "host": "thistle", "exit_code": 1}]'),
        evidence("fake_trainer", "fake_trainer/fake_trainer-41-thistle.out", 7, "RuntimeError: told to fail"),
        expected="exit 0", actual="exit 1", status=Status.FAILED,
        next_action="read the log's last lines; this rung was told to fail (fail: true in the ladder): take that out",
    )  # fmt: skip
    judgement = Judgement(checks=(old.judgement.checks[0], wrong), summary="rank 0 ended with exit 1")
    return _blocked_after(run, old.model_copy(update={"status": Status.FAILED, "judgement": judgement}))


def interrupted_run() -> Run:
    """Aborted in the fine-tune: evidence incomplete (INCONCLUSIVE), storage's machinery broke, review skipped."""
    run = passed_run()
    old = run.result("finetune")
    aborted = old.model_copy(update={
        "status": Status.INCONCLUSIVE,
        "reason": "collecting was ABORTED after 18.2 s: interrupted; job 57 was cancelled",
        "judgement": Judgement(summary="aborted at step 40 of 90"),
    })  # fmt: skip
    run = _blocked_after(run, aborted)
    compute = run.result("compute")
    unsure = check(
        "compute", "spread", "Like devices are alike", evidence("compute", "compute/rank-1.json", 12, ""), unit="GFLOP/s",
        expected=0.5, actual=None, status=Status.INCONCLUSIVE, next_action="run the rung again: rank 1 reported no figure",
    )  # fmt: skip
    run = run.with_result(compute.model_copy(update={
        "status": Status.INCONCLUSIVE, "judgement": compute.judgement.model_copy(update={"checks": (*compute.judgement.checks, unsure)}),
    }))  # fmt: skip
    broken = run.result("cache").model_copy(update={
        "status": Status.ERROR, "judgement": Judgement(),
        "reason": "cannot write /srv/surefoot/cache/base: No space left on device",
    })  # fmt: skip
    return run.with_result(broken).with_result(_stopped(run.result("review"), Status.SKIPPED, "asked for: --to gate"))


def all_runs() -> dict[str, Run]:
    """The three samples by name."""
    return {"passed": passed_run(), "failed": failed_run(), "interrupted": interrupted_run()}
