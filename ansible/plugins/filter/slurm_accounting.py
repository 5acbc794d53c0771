"""What accounting must be told so that it holds what is declared, and nothing else about that. Pure: nothing here asks it.

A QOS that is declared is declared whole: an option that the inventory does not name is to be as Slurm makes
it, so that a limit which somebody added by hand is seen as well as one that was changed. Of an account what
is named counts; its users have no QOS of their own where it names its QOS. QOS, accounts and users that
nobody declares stay.

Filters:

- ``surefoot_accounting_columns``: the options of QOS and accounts that sacctmgr is asked for
- ``surefoot_accounting_commands``: what sacctmgr must be told
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple

DOCUMENTATION = """
name: slurm_accounting
short_description: What accounting must be told so that it holds what is declared
"""


class Kind(Enum):
    """How the value of an option is written, and so which two mean the same."""

    NUMBER = "a number"
    FACTOR = "a number, also with a fraction"
    SECONDS = "seconds, or hours:minutes:seconds"
    MINUTES = "minutes, or days-hours:minutes:seconds"
    TRES = "resources such as gres/gpu=8,node=2"
    NAMES = "names with commas between them"
    MODE = "cluster, cancel, requeue, suspend, gang or within"
    TEXT = "a text"


_QOS_TABLE: tuple[tuple[Kind, str], ...] = (
    (Kind.NUMBER, "Priority"),
    (Kind.SECONDS, "GraceTime"),
    (Kind.NAMES, "Preempt Flags"),
    (Kind.MINUTES, "PreemptExemptTime MaxWall=MaxWallDurationPerJob GrpWall"),
    (Kind.MODE, "PreemptMode"),
    (Kind.FACTOR, "UsageFactor UsageThreshold LimitFactor"),
    (Kind.TRES, "GrpTRES GrpTRESMins GrpTRESRunMins MaxTRESPerJob=MaxTRES MaxTRESPerNode"),
    (Kind.TRES, "MaxTRESMinsPerJob=MaxTRESMins MaxTRESPerUser=MaxTRESPU MaxTRESPerAccount=MaxTRESPA"),
    (Kind.TRES, "MaxTRESRunMinsPU MaxTRESRunMinsPA MinTRESPerJob=MinTRES"),
    (Kind.NUMBER, "GrpJobs GrpSubmitJobs=GrpSubmit GrpJobsAccrue MinPrioThresh"),
    (Kind.NUMBER, "MaxJobsPerUser=MaxJobsPU=MaxJobs MaxSubmitJobsPerUser=MaxSubmitJobsPU=MaxSubmitPU=MaxSubmitJobs"),
    (Kind.NUMBER, "MaxJobsPerAccount=MaxJobsPA MaxSubmitJobsPerAccount=MaxSubmitJobsPA=MaxSubmitPA"),
    (Kind.NUMBER, "MaxJobsAccruePU=MaxJobsAccruePerUser MaxJobsAccruePA=MaxJobsAccruePerAccount"),
)
"""Options of a QOS that ``sacctmgr`` sets and shows by the same name (tried with Slurm 22.05), others of its names after =."""
_ACCOUNT_TABLE: tuple[tuple[Kind, str], ...] = (
    (Kind.TEXT, "Fairshare=Share"),  # a number, or parent
    (Kind.NAMES, "QOS=QOSLevel DefaultQOS"),
    (Kind.MINUTES, "MaxWall=MaxWallDurationPerJob GrpWall"),
    (
        Kind.TRES,
        "GrpTRES GrpTRESMins GrpTRESRunMins MaxTRESPerJob=MaxTRES MaxTRESPerNode MaxTRESMinsPerJob=MaxTRESMins",
    ),
    (Kind.NUMBER, "GrpJobs GrpSubmitJobs GrpJobsAccrue MaxJobs MaxJobsAccrue MaxSubmitJobs MinPrioThreshold Priority"),
)

_SINCE = {"LimitFactor": (21, 8)}
"""The first release of Slurm that knows an option of a QOS: sacctmgr 20.11 refuses the whole table for one that it does not."""


class Option(NamedTuple):
    """An option by the name that it is asked for and told by."""

    name: str
    kind: Kind


def _table(rows: Iterable[tuple[Kind, str]]) -> dict[str, Option]:
    """Every name of an option, in small letters, to the option."""
    found = {}
    for kind, words in rows:
        for names in words.split():
            first, *_ = all_names = names.split("=")
            found.update({name.lower(): Option(first, kind) for name in all_names})
    return found


QOS_OPTIONS = _table(_QOS_TABLE)
ACCOUNT_OPTIONS = _table(_ACCOUNT_TABLE)

_BY_ITSELF = {"PreemptMode": "cluster", "UsageFactor": "1", "Priority": "0", "GraceTime": "0"}
"""What an option of a QOS is that nobody set; all others are empty."""
_NONE = ("", "-1")


def text_of(value: Any) -> str:
    """A value as sacctmgr is told it. YAML reads ``off`` and ``no`` as false."""
    if isinstance(value, bool):
        return "off" if value is False else "yes"
    if isinstance(value, list | tuple):
        return ",".join(text_of(each) for each in value)
    if isinstance(value, Mapping):
        return ",".join(f"{key}={text_of(each)}" for key, each in value.items())
    return "" if value is None else str(value).strip()


_TIME = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?")


def seconds_of(text: str, *, plain_s: int = 60) -> int | None:
    """Seconds of Slurm's ways to write a time, None for what is none.

    Minutes, minutes:seconds, hours:minutes:seconds, days-hours[:minutes[:seconds]]. `plain_s`: what a number
    alone counts, a minute unless said otherwise.
    """
    found = _TIME.fullmatch(text)
    if found is None:
        return None
    days, *parts = found.groups()
    given = [int(part) for part in parts if part is not None]
    if days is not None:
        hours, minutes, seconds = [*given, 0, 0][:3]
    elif len(given) == 1:
        return given[0] * plain_s
    elif len(given) == 2:
        hours, minutes, seconds = 0, given[0], given[1]
    else:
        hours, minutes, seconds = given
    return int(days or 0) * 86400 + hours * 3600 + minutes * 60 + seconds


def tres_of(text: str) -> dict[str, str]:
    """Resource → amount of ``gres/gpu=8,node=2``. One that is lifted (``node=-1``) is none."""
    pairs = (item.partition("=") for item in text.lower().split(",") if item.strip())
    return {name.strip(): amount.strip() for name, _, amount in pairs if amount.strip() not in _NONE}


def _meaning(option: Option, text: str) -> Any:
    """What a value means, so that two ways to write it are equal."""
    if option.kind is Kind.TRES:
        return tres_of("" if text in _NONE else text)
    if text in _NONE:
        text = _BY_ITSELF.get(option.name, "")
    if option.kind is Kind.MODE:
        return "cluster" if text.lower() in ("", "off") else text.lower()
    if option.kind in (Kind.SECONDS, Kind.MINUTES):
        # sacctmgr shows an unset grace time as 00:00:00, and any other unset time as nothing.
        return seconds_of(text, plain_s=1 if option.kind is Kind.SECONDS else 60) if text else text
    try:
        return float(text)
    except ValueError:
        return sorted(text.lower().split(","))


def _same(option: Option, declared: str, shown: str) -> bool:
    return bool(_meaning(option, declared) == _meaning(option, shown))


def _told(option: Option, declared: str, shown: str) -> str:
    """``Key=Value`` that makes `declared` of `shown`."""
    if option.kind is Kind.TRES:
        wanted = tres_of("" if declared in _NONE else declared)
        lifted = {name: "-1" for name in tres_of(shown) if name not in wanted}  # else it would stay beside
        return f"{option.name}=" + ",".join(f"{name}={amount}" for name, amount in (wanted | lifted).items())
    if declared in _NONE:
        # Names are cleared by nothing at all, flags and numbers by -1.
        nothing = "" if option.name in ("Preempt", "QOS") else "-1"
        declared = _BY_ITSELF.get(option.name) or nothing
    return f"{option.name}={declared}"


def _rows(text: str) -> list[list[str]]:
    """Cells of ``sacctmgr -P list …``, without its header. Raises ValueError for a row that was cut."""
    lines = [each for each in text.splitlines() if each]
    head = lines[0].count("|") + 1 if lines else 0
    rows = [each.split("|") for each in lines[1:]]
    for number, cells in enumerate(rows, start=2):
        if len(cells) != head:
            raise ValueError(f"sacctmgr, line {number}: {len(cells)} cells under {head} titles: {lines[number - 1]!r}")
    return rows


def columns(declared: Mapping[str, Any]) -> dict[str, list[str]]:
    """The options that sacctmgr is asked for. `declared`: ``accounts``, and ``release`` (``"22.05"``) where it is known.

    Of a QOS all that this Slurm knows, as one that is not declared counts too; of an account those that any names.
    """
    release = tuple(int(part) for part in re.findall(r"\d+", str(declared.get("release") or "")))
    named = [_option(ACCOUNT_OPTIONS, key) for one in declared["accounts"] for key in one.get("options") or {}]
    return {
        "qos": sorted(
            {each.name for each in QOS_OPTIONS.values() if not release or release >= _SINCE.get(each.name, ())}
        ),
        "accounts": sorted({option.name for option in named} | {"QOS", "DefaultQOS"}),
    }


def _option(table: Mapping[str, Option], key: str) -> Option:
    """Raises ValueError for an option that nothing is known of: validate.yml has named it before."""
    try:
        return table[str(key).lower()]
    except KeyError:
        raise ValueError(f"{key} is no option that sacctmgr sets and shows; there are {', '.join(table)}") from None


def _differences(options: Mapping[Option, str], shown: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """What must be told (``Key=Value``), and what is there in its place."""
    other = [(o, text, shown[o.name]) for o, text in options.items() if not _same(o, text, shown[o.name])]
    return [_told(*each) for each in other], [f"{option.name}={there}" for option, _, there in other]


def commands(shown: Mapping[str, str], declared: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The sacctmgr commands that are still missing, in the order in which they must run.

    Each has ``argv``, the words after sacctmgr, and ``now``, what is there in place of what it sets.
    `shown`: what sacctmgr lists under ``cluster``, ``qos``, ``account`` and ``assoc``, with headers: the
    columns of ``qos`` are Name and those of `columns`, of ``assoc`` Account, User, Partition and those.
    `declared`: ``cluster``, ``qos``, ``accounts``. Raises ValueError for a row that was cut.
    """
    asked = columns(declared)
    found: list[tuple[list[str], list[str]]] = []
    cluster = declared["cluster"]
    if [cluster] not in _rows(shown["cluster"]):
        found.append((["add", "cluster", cluster], []))
    found += _qos_commands(_rows(shown["qos"]), declared["qos"], asked["qos"])
    known = {cells[0] for cells in _rows(shown["account"])}
    rows = {
        (account, user): dict(zip(asked["accounts"], cells, strict=True))
        for account, user, partition, *cells in _rows(shown["assoc"])
        if not partition  # of a user in one partition alone: not ours
    }
    for account in declared["accounts"]:
        found += _account_commands(account, known, rows, cluster)
    return [{"argv": argv, "now": " ".join(now)} for argv, now in found]


def _qos_commands(
    found: Sequence[Sequence[str]], qos: Sequence[Mapping[str, Any]], keys: Sequence[str]
) -> Iterator[tuple[list[str], list[str]]]:
    rows = {name: dict(zip(keys, cells, strict=True)) for name, *cells in found}
    # All are there before one is told whom it preempts.
    yield from ((["add", "qos", one["name"]], []) for one in qos if one["name"] not in rows)
    for one in qos:
        name = one["name"]
        options = dict.fromkeys((option for option in QOS_OPTIONS.values() if option.name in keys), "")
        options |= {_option(QOS_OPTIONS, key): text_of(value) for key, value in (one.get("options") or {}).items()}
        if newer := [option.name for option in options if option.name not in keys]:
            raise ValueError(
                f"the QOS {name} sets {', '.join(newer)}, which slurm_release does not know yet: leave it out"
            )
        other, now = _differences(options, rows.get(name, dict.fromkeys(keys, "")))
        if other:
            yield ["modify", "qos", name, "set", *other], now if name in rows else []


def _account_commands(
    account: Mapping[str, Any], known: set[str], rows: Mapping[tuple[str, str], Mapping[str, str]], cluster: str
) -> Iterator[tuple[list[str], list[str]]]:
    name = account["name"]
    options = {_option(ACCOUNT_OPTIONS, key): text_of(value) for key, value in (account.get("options") or {}).items()}
    where = [f"Account={name}", f"Cluster={cluster}"]
    there = rows.get((name, ""))
    if name not in known or there is None:
        words = ["add", "account", name, f"Cluster={cluster}"]
        words += [f"Description={account.get('description', name)}"]
        words += [f"Organization={account.get('organization', name)}"]
        yield [*words, *([f"Parent={account['parent']}"] if account.get("parent") else [])], []
    other, now = _differences(options, there or {option.name: "" for option in options})
    if other:
        yield ["modify", "account", "where", *where, "set", *other], now if there else []
    missing = [user for user in account.get("users") or [] if (name, user) not in rows]
    if missing:
        yield ["add", "user", ",".join(missing), *where], []
    if not any(option.name == "QOS" for option in options):
        return
    own = {option: "" for option in ACCOUNT_OPTIONS.values() if option.name in ("QOS", "DefaultQOS")}
    for user in account.get("users") or []:
        other, now = _differences(own, rows.get((name, user), {"QOS": "", "DefaultQOS": ""}))
        if other:
            yield ["modify", "user", "where", f"Name={user}", *where, "set", *other], now


class FilterModule:
    """The filters by their names."""

    def filters(self) -> dict[str, Any]:
        return {"surefoot_accounting_commands": commands, "surefoot_accounting_columns": columns}
