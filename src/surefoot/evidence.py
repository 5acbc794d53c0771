"""Evidence as judging sees it: files by name, read on demand, each with the digest it really has.

An `EvidenceSet` is one attempt at one rung. It checks the contract between a job and its ranks
(`surefoot.node.rank` writes it): who answered, of which job, of which run. What the figures mean
is for parsers and rungs to say.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ConfigDict, Field, ValidationError

from surefoot.errors import EvidenceError
from surefoot.model.base import Record
from surefoot.model.check import Evidence
from surefoot.model.job import JobSpec
from surefoot.model.run import Plan

R = TypeVar("R", bound=Record)

CODE_VARIABLE = "SUREFOOT_CODE"
"""Variable of a job that holds the tree digest of the code which its ranks are to run."""


@dataclass(frozen=True)
class Blob:
    """One file: from disk, or from memory in tests."""

    name: str
    """Path relative to the attempt's folder (``raw/ddp/rank-0.json``)."""
    path: Path | None = None
    data: bytes | None = None

    def read(self) -> bytes:
        """All bytes. Raises EvidenceError when the file cannot be read."""
        if self.data is not None:
            return self.data
        assert self.path is not None
        try:
            return self.path.read_bytes()
        except OSError as error:
            raise EvidenceError(f"cannot be read: {error.strerror or error}", file=self.name) from error

    def text(self) -> str:
        """The file as UTF-8. Raises EvidenceError on other bytes."""
        try:
            return self.read().decode()
        except UnicodeDecodeError as error:
            raise EvidenceError(f"not UTF-8 at byte {error.start}", file=self.name) from error

    def tail(
        self, lines: int = 5, *, skip: Callable[[Sequence[str]], set[int]] | None = None
    ) -> tuple[int, str] | None:
        """(line number, text) of the last message among the last `lines` lines; None if there is none.

        A message is a non-blank line. Those whose numbers `skip` gives count only where there are no
        others. One that begins with → says what to do about the line before it, and belongs to that.
        """
        rows = [row.strip() for row in self.read().decode(errors="replace").splitlines()]
        skipped = skip(rows) if skip else set()
        numbered = list(enumerate(rows, 1))
        kept = [entry for entry in numbered if entry[0] not in skipped]
        said = [entry for entry in kept[-lines:] if entry[1]] or [entry for entry in numbered[-lines:] if entry[1]]
        for index in range(len(said) - 1, -1, -1):
            number, row = said[index]
            if not row.startswith("→") or index == 0:
                return number, " ".join(text for _, text in said[index:])
        return None

    @property
    def size(self) -> int:
        """Bytes. Raises EvidenceError when it cannot be looked at."""
        if self.data is not None:
            return len(self.data)
        assert self.path is not None
        try:
            return self.path.lstat().st_size
        except OSError as error:
            raise EvidenceError(f"cannot be read: {error.strerror or error}", file=self.name) from error

    @cached_property
    def sha256(self) -> str:
        """sha256 (hex) of the content as it is now."""
        if self.path is not None:
            try:
                with self.path.open("rb") as stream:
                    return hashlib.file_digest(stream, "sha256").hexdigest()
            except OSError as error:
                raise EvidenceError(f"cannot be read: {error.strerror or error}", file=self.name) from error
        return hashlib.sha256(self.read()).hexdigest()


class RankReport(Record):
    """``rank-<r>.json``: one rank's own account. `data` is the program's, the rest is the contract."""

    model_config = ConfigDict(allow_inf_nan=False, frozen=True, extra="forbid")

    program: str
    run: str
    nonce: str
    job: str
    job_id: str
    rank: int = Field(ge=0)
    local_rank: int = Field(ge=0)
    world_size: int = Field(ge=1)
    host: str
    pid: int
    imported_from: str
    """Folder of the ``surefoot`` package that the rank ran."""
    code_digest: str
    """Tree digest of that package when the rank ended."""
    started_at: float
    ended_at: float
    data: dict[str, Any]


def _refuse_constant(text: str) -> float:
    raise ValueError(f"{text} is not a figure")


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError(f"a key stands twice among {sorted(k for k, _ in pairs)}")
    return found


def parse_json(text: str, *, file: str, line: int | None = None) -> Any:
    """JSON, strictly: NaN, infinity and repeated keys are refused. Raises EvidenceError."""
    try:
        return json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_no_duplicates)
    except (ValueError, RecursionError) as error:
        at = line if line is not None else getattr(error, "lineno", None)
        raise EvidenceError(f"not valid JSON: {error}", file=file, line=at, text=text[:120]) from error


def parse_record(kind: type[R], data: Any, *, file: str, line: int | None = None) -> R:
    """Parsed JSON as a record. Raises EvidenceError that names the first field that is wrong."""
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or kind.__name__
        raise EvidenceError(f"{where}: {first['msg']}", file=file, line=line, text=str(first.get("input"))) from error


@dataclass(frozen=True)
class EvidenceSet:
    """The files of one attempt, and what that attempt asked for."""

    plan: Plan
    files: Mapping[str, Blob]
    prefix: str = ""
    """Path of the attempt's folder relative to the run's, for references in checks."""

    def __contains__(self, name: str) -> bool:
        return name in self.files

    def blob(self, name: str) -> Blob:
        """A file by name. Raises EvidenceError when it is not there."""
        try:
            return self.files[name]
        except KeyError:
            raise EvidenceError("missing", file=name) from None

    def under(self, folder: str) -> Iterator[Blob]:
        """Files below `folder` (``raw/finetune``), sorted by name."""
        start = folder.rstrip("/") + "/"
        for name in sorted(self.files):
            if name.startswith(start):
                yield self.files[name]

    def ref(self, name: str, *, line: int | None = None, text: str = "") -> Evidence:
        """A reference to a file of this attempt, for a check. Raises EvidenceError when it is not there."""
        self.blob(name)
        return Evidence(file=f"{self.prefix}/{name}" if self.prefix else name, line=line, text=text[:300])

    def json(self, name: str) -> Any:
        """A JSON file's content. Raises EvidenceError."""
        return parse_json(self.blob(name).text(), file=name)

    def record(self, kind: type[R], name: str) -> R:
        """A JSON file as a record. Raises EvidenceError."""
        return parse_record(kind, self.json(name), file=name)

    def json_lines(self, name: str) -> list[tuple[int, Any]]:
        """(line number, value) of every line. A blank line, or a last line without LF, is an error:
        it is what a killed writer leaves. Raises EvidenceError.
        """
        text = self.blob(name).text()
        if not text:
            raise EvidenceError("empty", file=name)
        rows = text.split("\n")
        if rows.pop() != "":
            raise EvidenceError("cut off: the last line has no end", file=name, line=len(rows) + 1, text=text[-120:])
        return [(number, parse_json(row, file=name, line=number)) for number, row in enumerate(rows, 1)]

    def job(self, name: str) -> JobSpec:
        """A job that the plan asked for, by name. Raises EvidenceError."""
        for spec in self.plan.jobs:
            if spec.name == name:
                return spec
        raise EvidenceError(f"the plan asked for no job named {name!r}", file="plan.json")

    def _code_of(self, spec: JobSpec) -> tuple[str, str]:
        """Digest of the code that a job was asked to run, and the package's folder. Raises EvidenceError."""
        code, path = spec.env.get(CODE_VARIABLE), spec.env.get("PYTHONPATH")
        if not code or not path or self.plan.inputs.get("package", code) != code:
            raise EvidenceError(f"does not say which code job {spec.name!r} runs", file="plan.json")
        return code, f"{path}/surefoot"

    def rank_file(self, job: str, rank: int, element: int | None = None) -> str:
        """Name of a rank's report; of an element's, where the job is an array."""
        within = "" if element is None else f"array-{element}/"
        return f"raw/{job}/{within}rank-{rank}.json"

    def ranks(self, job: str, *, any_code: bool = False, element: int | None = None) -> tuple[RankReport, ...]:
        """The reports of all ranks of a job, or of one element of an array, in order of rank.

        Raises EvidenceError unless there is exactly one report for each rank that was asked for,
        each is of this run, this attempt and this job, ran the code of this run from where it was
        pushed, and no two come from one process. `any_code`: which code a rank ran is for the caller
        to judge.
        """
        spec = self.job(job)
        code, place = self._code_of(spec)
        program = spec.argv[-1]
        wanted = {self.rank_file(job, rank, element) for rank in range(spec.world_size)}
        start = self.rank_file(job, 0, element).removesuffix("0.json")
        present = {blob.name for blob in self.under(f"raw/{job}") if blob.name.startswith(start)}
        for name in sorted(wanted - present):
            raise EvidenceError(f"missing: {spec.world_size} ranks were asked for", file=name)
        for name in sorted(present - wanted):
            raise EvidenceError(f"no such rank was asked for (world size {spec.world_size})", file=name)
        reports = []
        processes: dict[tuple[str, int], str] = {}
        job_ids: dict[str, str] = {}
        for rank in range(spec.world_size):
            name = self.rank_file(job, rank, element)
            report = self.record(RankReport, name)
            asked: dict[str, object] = {
                "run": self.plan.run_id, "nonce": self.plan.nonce, "job": job, "program": program,
                "rank": rank, "world_size": spec.world_size, "local_rank": rank % spec.ranks_per_node,
            }  # fmt: skip
            for key, value in asked.items():
                found = getattr(report, key)
                if found != value:
                    raise EvidenceError(f"{key} is {found!r}, asked for was {value!r}", file=name)
            if not any_code and (report.code_digest, report.imported_from) != (code, place):
                ran = f"{report.code_digest[:16]}… from {report.imported_from}"
                problem = f"ran other code than was pushed: {ran}; asked for was {code[:16]}… from {place}"
                raise EvidenceError(problem, file=name)
            other = processes.setdefault((report.host, report.pid), name)
            if other != name:
                raise EvidenceError(f"same process as {other} (host {report.host}, pid {report.pid})", file=name)
            job_ids.setdefault(report.job_id, name)
            if len(job_ids) > 1:
                raise EvidenceError(f"job id {report.job_id} differs from the other ranks'", file=name)
            if report.ended_at < report.started_at:
                raise EvidenceError("ended before it started", file=name)
            reports.append(report)
        return tuple(reports)
