"""Cache: base model and data lie on shared storage, each file with the digest that was declared.

One job stages, a second one on every node reads everything again. `docs/rungs/cache.md` is for people.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import Field

from surefoot.errors import EvidenceError
from surefoot.evidence import EvidenceSet, parse_record
from surefoot.files import tree_digest
from surefoot.model.base import Record
from surefoot.model.check import Check, Evidence
from surefoot.model.ladder import Cache as CacheSpec
from surefoot.model.measurement import Measurement
from surefoot.model.recipe import Recipe, TaskSource
from surefoot.model.run import JobsStep, Judgement
from surefoot.rungs.base import Asked, Layout, PlanContext, Rung, View, nodes_of
from surefoot.rungs.judging import RankData, Said, decide, said, shorten
from surefoot.training.assets import KINDS, StagedAsset, StagedAssets
from surefoot.training.shipped_demo import builtin_digest
from surefoot.training.tasks import TASKS_FILE, keys_digest

STAGE = "cache-stage"
VERIFY = "cache-verify"
PROMPTS = f"raw/{VERIFY}/prompts.json"


class StageData(RankData, StagedAssets):
    """What ``surefoot.training.stage`` reports."""


class SeenAsset(Record):
    """One staged folder as a node reads it."""

    path: str
    files: dict[str, str]
    size_bytes: int
    rows: int | None = None
    prompts_digest: str = ""


class VerifyData(RankData):
    """What ``surefoot.training.verify_cache`` reports from each node."""

    assets: dict[str, SeenAsset]
    overlap: tuple[str, ...]
    """Training ids whose prompt is an evaluation prompt, as this node computed it."""


class Prompts(Record):
    """``prompts.json``: (id, prompt key) of every row of both data sets."""

    nonce: str
    train: tuple[tuple[str, str], ...] = Field(min_length=1)
    evaluate: tuple[tuple[str, str], ...] = Field(min_length=1)


@dataclass(frozen=True)
class Facts:
    """What was staged, what each node has, and the prompts of both data sets."""

    staged: Said[StageData]
    nodes: tuple[Said[VerifyData], ...]
    prompts: Prompts


def staged_assets(evidence: EvidenceSet) -> StagedAssets:
    """What a cache rung that PASSED has staged: for the plans of rungs above. Raises EvidenceError."""
    name = evidence.rank_file(STAGE, 0)
    data = parse_record(StageData, evidence.ranks(STAGE)[0].data, file=name)
    return StagedAssets(base=data.base, train=data.train, evaluate=data.evaluate, dropped=data.dropped)


def _as_is(source: TaskSource) -> bool:
    """True when a source is taken whole and in its own form."""
    return source.rows is None and not (source.prompt or source.answer or source.category or source.scorer)


def shipped_digests(recipe: Recipe) -> dict[str, dict[str, Any]]:
    """What the package's manifest says of the recipe's ``builtin:`` sources.

    ``source``: tree digest of the source's files. ``staged``: digest of the staged folder, where the
    source is taken as it is; None where the recipe transforms it.
    """
    found: dict[str, dict[str, Any]] = {}
    if recipe.base.startswith("builtin:"):
        digest = builtin_digest(recipe.base.removeprefix("builtin:"), kind="models")
        found["base"] = {"source": digest, "staged": digest}
    for name, source in (("train", recipe.train), ("evaluate", recipe.evaluate)):
        if source.source.startswith("builtin:"):
            digest = builtin_digest(source.source.removeprefix("builtin:"), kind="data")
            found[name] = {"source": digest, "staged": digest if _as_is(source) else None}
    return found


class CacheRung(Rung[CacheSpec, Facts]):
    """Stage once, verify on every node."""

    name: ClassVar[str] = "cache"
    title: ClassVar[str] = "Model and data cache"
    proves: ClassVar[str] = (
        "Base model and data lie on shared storage, every node reads the same bytes, and no evaluation "
        "prompt is among the training rows."
    )
    uses: ClassVar[tuple[str, ...]] = ("cluster", "package", "recipe", "sources")

    def plan(self, context: PlanContext[CacheSpec]) -> Asked:
        """Two jobs one after the other: the second finds in the first one's report where to look."""
        recipe, cache = context.inputs.recipe, str(context.root.cache)
        request = {
            "cache": cache,
            "base": recipe.base,
            "train": recipe.train.canonical(),
            "evaluate": recipe.evaluate.canonical(),
            "overlap": recipe.overlap,
        }
        stage = context.job(STAGE, "surefoot.training.stage", request, Layout(1, 1, "cpu"))
        report = f"{stage.folder}/rank-0.json"
        verify = context.job(
            VERIFY,
            "surefoot.training.verify_cache",
            {"staged": report},
            Layout(nodes_of(context.cluster, context.spec), 1, "cpu"),
        )
        expect = {
            "cache": cache,
            "nodes": nodes_of(context.cluster, context.spec),
            "sources": {"base": recipe.base, "train": recipe.train.source, "evaluate": recipe.evaluate.source},
            "rows": {"train": recipe.train.rows, "evaluate": recipe.evaluate.rows},
            "overlap": recipe.overlap,
            "shipped": shipped_digests(recipe),
        }
        return Asked(steps=(JobsStep(jobs=(stage,)), JobsStep(jobs=(verify,))), expect=expect)

    def read(self, view: View) -> Facts:
        """Both jobs' reports and the prompt keys. Raises EvidenceError where they contradict themselves."""
        nodes = said(view.evidence, VERIFY, VerifyData)
        for node in nodes:
            if set(node.data.assets) != set(KINDS):
                raise EvidenceError(f"speaks of {sorted(node.data.assets)}, not of {sorted(KINDS)}", file=node.file)
        prompts = view.evidence.record(Prompts, PROMPTS)
        if prompts.nonce != view.plan.nonce:
            raise EvidenceError("is of another attempt: its nonce differs", file=PROMPTS)
        first = nodes[0].data.assets
        for name, rows in (("train", prompts.train), ("evaluate", prompts.evaluate)):
            if len(rows) != first[name].rows or keys_digest(rows) != first[name].prompts_digest:
                raise EvidenceError(f"its {name} rows are not those that rank 0 reports", file=PROMPTS)
        staged = said(view.evidence, STAGE, StageData)[0]
        for name, asset in staged.data.items():
            if (asset.rows is None) == (KINDS[name] == "data"):
                raise EvidenceError(f"says {asset.rows} rows of {name}", file=staged.file)
        return Facts(staged=staged, nodes=nodes, prompts=prompts)

    def judge(self, facts: Facts, view: View) -> Judgement:
        """Every digest recomputed, every node compared, the overlap counted again."""
        assets = facts.staged.data.items()
        checks = [check for name, asset in assets for check in _asset_checks(name, asset, facts, view)]
        checks += [
            _complete(facts.staged, view),
            _distinct(facts, view),
            _overlap(facts, view),
            _repeated(facts, view),
            _dropped(facts, view),
        ]
        base, train, evaluate = (asset for _, asset in assets)
        return Judgement(
            checks=tuple(checks),
            measurements=tuple(_size(name, asset) for name, asset in assets),
            summary=f"base {base.size_bytes / 1e6:,.1f} MB, {train.rows:,} training and {evaluate.rows:,} evaluation "
            f"rows, the same on {len(facts.nodes)} node{'s' if len(facts.nodes) > 1 else ''}",
            details={
                "assets": {
                    name: {"source": a.source, "path": a.path, "digest": a.digest, "rows": a.rows, "state": a.state}
                    for name, a in assets
                },
                "dropped": list(facts.staged.data.dropped),
            },
        )


def _size(name: str, asset: StagedAsset) -> Measurement:
    return Measurement(
        metric="size", value=asset.size_bytes / 1e6, unit="MB", labels={"asset": name}, size_bytes=asset.size_bytes
    )


def _asset_checks(name: str, asset: StagedAsset, facts: Facts, view: View) -> list[Check]:
    checks = [_placed(name, asset, facts, view), _same_everywhere(name, asset, facts, view)]
    shipped: Mapping[str, Any] | None = view.expect["shipped"].get(name)
    if shipped is not None:
        checks.append(_as_shipped(name, asset, shipped, facts, view))
    if name in view.inputs.source_digests:
        checks.append(_as_started(name, asset, facts, view))
    if KINDS[name] == "data":
        checks.append(_rows(name, asset, facts, view))
    return checks


def _placed(name: str, asset: StagedAsset, facts: Facts, view: View) -> Check:
    digest = tree_digest(asset.files)
    wanted = f"{view.expect['cache']}/{KINDS[name]}/{digest}"
    problems = []
    if asset.digest != digest:
        problems.append(f"reported digest {asset.digest[:16]}… is not that of its files, {digest[:16]}…")
    if asset.path != wanted:
        problems.append(f"lies at {asset.path}")
    if asset.source != view.expect["sources"][name]:
        problems.append(f"comes from {asset.source}")
    if KINDS[name] == "data" and set(asset.files) != {TASKS_FILE}:
        problems.append(f"holds {', '.join(sorted(asset.files))}")
    return decide(
        f"cache.{name}.placed",
        f"{name} was staged from {view.expect['sources'][name]} under the name of its content",
        not problems,
        expected=wanted,
        actual=shorten(problems) or asset.path,
        evidence=(view.evidence.ref(facts.staged.file, text=asset.path),),
        derivation="folder name = sha256 over the sorted lines `path NUL sha256 LF` of its files",
        next_action="run the cache rung again; if it comes back, look at the staging job's log",
    )


def _same_everywhere(name: str, asset: StagedAsset, facts: Facts, view: View) -> Check:
    problems = []
    for node in facts.nodes:
        seen = node.data.assets[name]
        differ = sorted(f for f in set(seen.files) | set(asset.files) if seen.files.get(f) != asset.files.get(f))
        if seen.path != asset.path:
            problems.append(f"{node.where} looked at {seen.path}")
        if differ:
            problems.append(f"{node.where} reads {shorten(differ)} differently")
        if (seen.rows, seen.prompts_digest) != (asset.rows, asset.prompts_digest):
            problems.append(f"{node.where} reads {seen.rows} rows, staged were {asset.rows}, or other prompts")
        if seen.size_bytes != asset.size_bytes:
            problems.append(f"{node.where} reads {seen.size_bytes} bytes, staged were {asset.size_bytes}")
    refs = tuple(view.evidence.ref(node.file) for node in facts.nodes[:3])
    return decide(
        f"cache.{name}.verified",
        f"every node reads {name} from storage as it was staged, all {len(asset.files)} files",
        not problems,
        expected=asset.digest,
        actual=shorten(problems) or tree_digest(facts.nodes[0].data.assets[name].files),
        evidence=(view.evidence.ref(facts.staged.file, text=asset.digest), *refs),
        derivation="sha256 of every file, computed on every node after dropping the node's cached pages",
        next_action=f"a node mounts another file system or holds stale pages: compare `sha256sum {asset.path}/*` there; "
        "a damaged folder is replaced when the cache rung runs again",
    )


def _as_shipped(name: str, asset: StagedAsset, shipped: Mapping[str, Any], facts: Facts, view: View) -> Check:
    identical = shipped["staged"] is not None and not (name == "train" and facts.staged.data.dropped)
    ok = asset.source_digest == shipped["source"] and (not identical or tree_digest(asset.files) == shipped["staged"])
    return decide(
        f"cache.{name}.shipped",
        f"{asset.source} is what the package was released with",
        ok,
        expected=shipped["source"],
        actual=tree_digest(asset.files) if identical else asset.source_digest,
        evidence=(view.evidence.ref(facts.staged.file, text=asset.source_digest),),
        derivation="from MANIFEST.json beside the shipped files, sealed into this attempt's plan",
        next_action="the package's demo files were changed: install it again",
    )


def _as_started(name: str, asset: StagedAsset, facts: Facts, view: View) -> Check:
    digest = view.inputs.source_digests[name]
    wanted = tree_digest({TASKS_FILE: digest}) if KINDS[name] == "data" else digest
    return decide(
        f"cache.{name}.source",
        f"{name} was read from {asset.source} as it was when this run was started or resumed last",
        asset.source_digest == wanted,
        expected=wanted,
        actual=asset.source_digest,
        evidence=(view.evidence.ref(facts.staged.file, text=asset.source_digest),),
        derivation=f"tree digest of a folder with this one file, whose sha256 was {digest[:16]}… then; the stager computed "
        "its own from the bytes that it read",
        next_action="the file was changed after the run was started: --resume RUN takes it as it is now",
    )


def _rows(name: str, asset: StagedAsset, facts: Facts, view: View) -> Check:
    asked: int | None = view.expect["rows"][name]
    listed = len(facts.prompts.train if name == "train" else facts.prompts.evaluate)
    dropped = len(facts.staged.data.dropped) if name == "train" else 0
    ok = asset.rows == listed and listed > 0 and (asked is None or listed + dropped == asked)
    return decide(
        f"cache.{name}.rows",
        f"{name} has the rows that the recipe asks for"
        + (f", less {dropped} whose prompt is in the evaluation" if dropped else ""),
        ok,
        expected=asked - dropped if asked is not None else "all, at least 1",
        actual=listed if asset.rows == listed else f"{asset.rows} staged, {listed} listed",
        unit="rows",
        evidence=(view.evidence.ref(facts.staged.file), view.evidence.ref(PROMPTS, text=f"{listed} rows")),
        next_action="run the cache rung again; if it comes back, look at the staging job's log",
    )


def _complete(staged: Said[StageData], view: View) -> Check:
    files = staged.data.base.files
    parts = {
        "config.json": "config.json" in files,
        "weights (*.safetensors)": any(name.endswith(".safetensors") for name in files),
        "a tokenizer": any(name.startswith("tokenizer") for name in files),
    }
    missing = [part for part, there in parts.items() if not there]
    return decide(
        "cache.base.complete",
        "the base model has its configuration, weights and tokenizer",
        not missing,
        expected=", ".join(parts),
        actual=f"without {', '.join(missing)}" if missing else f"{len(files)} files",
        evidence=(view.evidence.ref(staged.file, text=", ".join(sorted(files))),),
        next_action="give the recipe a base folder that save_pretrained wrote",
    )


def _distinct(facts: Facts, view: View) -> Check:
    hosts = sorted({node.report.host for node in facts.nodes})
    return decide(
        "cache.nodes",
        "the verification ran on as many different nodes as asked",
        len(hosts) == view.expect["nodes"] == len(facts.nodes),
        expected=view.expect["nodes"],
        actual=len(hosts),
        unit="nodes",
        evidence=tuple(view.evidence.ref(node.file, text=node.report.host) for node in facts.nodes),
        next_action="the scheduler put two ranks on one node: look at the partition and the hostlist",
    )


def _overlap(facts: Facts, view: View) -> Check:
    held = {key: name for name, key in facts.prompts.evaluate}
    shared = [f"{name} = {held[key]}" for name, key in facts.prompts.train if key in held]
    told = {name for node in facts.nodes for name in node.data.overlap}
    evidence: list[Evidence] = [view.evidence.ref(PROMPTS, text=shorten(shared))]
    evidence += [view.evidence.ref(node.file) for node in facts.nodes[:1]]
    return decide(
        "cache.no_overlap",
        "no evaluation prompt is among the training rows",
        not shared and not told,
        expected=0,
        actual=max(len(shared), len(told)),
        unit="rows",
        evidence=tuple(evidence),
        derivation=f"{len(facts.prompts.train)} training prompts against {len(facts.prompts.evaluate)} evaluation "
        "prompts; white space, case and invisible characters do not tell two prompts apart",
        next_action=f"take these rows out of the training data, or let the recipe say overlap: drop: {shorten(shared)}",
    )


def _repeated(facts: Facts, view: View) -> Check:
    first: dict[str, str] = {}
    again = [f"{name} = {first[key]}" for name, key in facts.prompts.evaluate if first.setdefault(key, name) != name]
    return decide(
        "cache.evaluation_distinct",
        "no evaluation prompt stands twice: as many items as there are questions",
        not again,
        expected=0,
        actual=len(again),
        unit="rows",
        evidence=(view.evidence.ref(PROMPTS, text=shorten(again)),),
        derivation=f"{len(facts.prompts.evaluate)} evaluation prompts, compared as for the overlap",
        next_action=f"take the repeated rows out of the evaluation data: {shorten(again)}",
    )


def _dropped(facts: Facts, view: View) -> Check:
    dropped = facts.staged.data.dropped
    still = sorted(set(dropped) & {name for name, _ in facts.prompts.train})
    ok = not still and (view.expect["overlap"] == "drop" or not dropped)
    return decide(
        "cache.dropped",
        f"training rows were left out only as the recipe says (overlap: {view.expect['overlap']}), and are gone",
        ok,
        expected="those in the evaluation" if view.expect["overlap"] == "drop" else 0,
        actual=f"{len(dropped)}" + (f", still there: {shorten(still)}" if still else ""),
        unit="rows",
        evidence=(view.evidence.ref(facts.staged.file, text=shorten(list(dropped))),),
        next_action="run the cache rung again; if it comes back, look at the staging job's log",
    )


RUNG: Rung[Any, Any] = CacheRung()
