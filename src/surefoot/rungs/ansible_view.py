"""What the rungs inventory and drift share: the document of their program, and what hosts said through Ansible. Pure."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar

from pydantic import Field

from surefoot.errors import EvidenceError, RequestError
from surefoot.evidence import parse_json, parse_record
from surefoot.model.base import Record
from surefoot.model.check import Evidence
from surefoot.model.cluster import Ansible
from surefoot.model.run import CommandStep
from surefoot.provision.events import Playbook, Told, playbook_of
from surefoot.provision.listing import Listed, inventory_of
from surefoot.provision.masks import masked_texts
from surefoot.rungs.base import PlanContext, View
from surefoot.rungs.slurm_view import Answer, line_of

_EXTRA_S = 30.0
"""The program ends by itself at the rung's limit; this much later it is ended."""
_ENDED = (0, 2, 4)
"""Exit codes of a playbook that ran to its end: well, with tasks that failed, with hosts out of reach."""

D = TypeVar("D", bound="Document")


class Document(Record):
    """What a program of `surefoot.provision` prints."""

    nonce: str


class PathFacts(Record):
    """What a path is on a host."""

    there: bool
    owner: str
    mode: str
    changed_at: float | None


class HostSaid(Record):
    """What ``surefoot.provision.at_host`` printed on one host."""

    host: str = Field(min_length=1)
    addresses: tuple[str, ...]
    distribution: str
    paths: dict[str, PathFacts]
    versions: dict[str, str]
    history: dict[str, str]


def site_of(context: PlanContext[Any]) -> Ansible:
    """The cluster's Ansible site. Raises RequestError where it has none."""
    site = context.cluster.ansible
    if site is None:
        raise RequestError(
            f"cluster {context.cluster.name!r} declares no ansible",
            next_action="declare `ansible:` in the cluster file",
        )
    return site


def program_step(context: PlanContext[Any], name: str, program: str, **asked: Any) -> CommandStep:
    """The step that runs a program of `surefoot.provision` on the machine that climbs."""
    site = site_of(context)
    document = {"nonce": context.nonce, "ansible": site.canonical(), "limit_s": context.spec.time_limit_s, **asked}
    argv = (site.python, "-m", program, json.dumps(document))
    return CommandStep(name=name, argv=argv, timeout_s=context.spec.time_limit_s + _EXTRA_S, here=True)


def document(kind: type[D], view: View, name: str) -> D:
    """The program's document. Raises EvidenceError where it is none, or another attempt's."""
    file = f"raw/{name}.stdout"
    text = view.evidence.blob(file).text()
    if not text:
        last = view.evidence.blob(f"raw/{name}.stderr").tail()
        raise EvidenceError(f"the program printed nothing: {last[1] if last else 'and did not say why'}", file=file)
    found = parse_record(kind, parse_json(text, file=file), file=file)
    if found.nonce != view.plan.nonce:
        raise EvidenceError(f"repeats {found.nonce!r}, asked for was {view.plan.nonce!r}: another attempt's", file=file)
    return found


def refuse_other_command(answer: Answer, view: View, file: str, *words: str, limit: str | None = None) -> None:
    """Raises EvidenceError where the answer is not that of a command of this site with these words in it.

    `limit`: another one than the cluster file's; ``@`` for any file that lists hosts.
    """
    site = view.inputs.cluster.ansible
    assert site is not None
    asked = list(answer.argv)
    pairs = list(pairwise(asked))
    given = [value for word, value in pairs if word == "-i"]
    limits = ["@" if value.startswith("@") else value for word, value in pairs if word == "--limit"]
    wanted = site.limit if limit is None else limit
    missing = [word for word in words if word not in asked]
    if given != list(site.inventory) or limits != ([wanted] if wanted else []) or missing:
        raise EvidenceError("is the answer to another command", file=file, text=" ".join(asked))


def listed(answer: Answer, view: View, file: str, *, limit: str | None = None) -> Listed:
    """The inventory. Raises EvidenceError."""
    refuse_other_command(answer, view, file, "--list", limit=limit)
    complaint = next((row for row in answer.stderr if "Unable to parse" in row), "")
    if complaint:
        raise EvidenceError(f"ansible-inventory did not read all of the inventory: {complaint}", file=file)
    if not answer.well or answer.error:
        raise EvidenceError(f"ansible-inventory: {answer.said}", file=file)
    return inventory_of("\n".join(answer.stdout), file=file, recorded=True)


def playbook(answer: Answer, file: str) -> Playbook:
    """A playbook that ran to its end. Raises EvidenceError with what Ansible said where it did not."""
    if answer.exit_code not in _ENDED:
        raise EvidenceError(f"{answer.argv[0]}: {answer.said}", file=file)
    try:
        run = playbook_of(answer.stdout, file=file)
    except EvidenceError as error:
        said = f"; it said: {answer.said}" if answer.stderr or answer.error else ""
        raise EvidenceError(f"{error.problem}{said}", file=file, text=error.text) from error
    bad = any(total.failures or total.unreachable for total in run.totals.values())
    if bad != (answer.exit_code != 0):
        problem = f"{answer.argv[0]} ended with {answer.exit_code}, and its totals say {'otherwise' if bad else 'all is well'}"
        raise EvidenceError(problem, file=file)
    return run


def event_line(view: View, file: str, answer: Answer, told: Told) -> Evidence:
    """The line of `file` with this event, and in short what it says."""
    said = told.result
    words = f"{said.host}: {said.status}: {said.where}{', ' + said.path if said.path else ''}"
    return line_of(view, file, answer.stdout[told.line - 1]).model_copy(update={"text": words[:300]})


def unpacked(told: Told, file: str) -> Any:
    """The JSON that a host's message holds as base64, secrets masked. Raises EvidenceError."""
    try:
        text = base64.b64decode(told.result.message, validate=True).decode()
    except (ValueError, binascii.Error) as error:
        problem = f"what {told.result.host} answered is no base64"
        raise EvidenceError(problem, file=file, text=told.result.message) from error
    return masked_texts(parse_json(text, file=file))


def hosts_said(run: Playbook, file: str) -> dict[str, HostSaid]:
    """Host → what it answered; hosts that did not answer are not among them. Raises EvidenceError."""
    return {
        host: parse_record(HostSaid, unpacked(told, file), file=file) for host, told in run.messages("Answered").items()
    }


def named(run: Playbook, file: str) -> dict[str, dict[str, tuple[str, ...]]]:
    """Host → variable of a role → packages that it names. Raises EvidenceError."""
    found: dict[str, dict[str, tuple[str, ...]]] = {}
    for host, told in run.messages("Named").items():
        of = unpacked(told, file)
        if not isinstance(of, dict) or not all(isinstance(names, list) for names in of.values()):
            raise EvidenceError(f"what {host}'s roles name are no lists", file=file, text=str(of))
        found[host] = {variable: tuple(str(name) for name in names) for variable, names in of.items()}
    return found


def trouble(run: Playbook, host: str) -> Told | None:
    """Why a host did not answer to the end: its last result that went wrong; None where all went well."""
    bad = [t for t in run.results if t.result.host == host and t.result.status in ("unreachable", "failed")]
    return bad[-1] if bad else None


@dataclass(frozen=True)
class Named:
    """A host and what is wrong with it, in words."""

    host: str
    what: str

    def __str__(self) -> str:
        return f"{self.host}: {self.what}"


def short(name: str) -> str:
    """A host's name without its domain."""
    return name.split(".", maxsplit=1)[0]


def declared(run: Playbook, file: str) -> dict[str, Mapping[str, Any]]:
    """Host → the variables that were asked for, templates worked out; those that are not set are left out."""
    found: dict[str, Mapping[str, Any]] = {}
    for host, told in run.messages("Declared").items():
        values = unpacked(told, file)
        if not isinstance(values, dict):
            raise EvidenceError(f"what is declared of {host} is no JSON object", file=file, text=str(values))
        found[host] = {name: value for name, value in values.items() if value not in ("", None)}
    return found
