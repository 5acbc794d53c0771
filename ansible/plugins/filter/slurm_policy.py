"""Who may run what, who waits and who makes room: what an inventory says of it and cannot hold.

Partitions, QOS and accounts are told to Slurm in three places, and a slip in one shows as a job that is refused,
or that waits for ever, or that nobody ever preempts. Used by validate.yml, before any host is touched. Pure.
"""

from __future__ import annotations

import difflib
import importlib.util
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

DOCUMENTATION = """
name: slurm_policy
short_description: What an inventory says of partitions, QOS and accounts and cannot hold
"""


def _beside(name: str) -> ModuleType:
    """Another file of this folder: Ansible gives filters no package to import from."""
    spec = importlib.util.spec_from_file_location(f"surefoot_{name}", Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_inventory = _beside("slurm_problems")
_accounting = _beside("slurm_accounting")
Kind = _accounting.Kind

Variables = Mapping[str, Any]
Groups = Mapping[str, Sequence[str]]

_NAMES_QOS = (
    ("slurm_partitions", "partition", ("qos", "allowqos", "denyqos")),
    ("slurm_accounts", "account", ("qos", "qoslevel", "defaultqos")),
    ("slurm_qos", "QOS", ("preempt",)),
)
_PARTITION_OPTIONS = (
    "AllocNodes", "AllowAccounts", "AllowGroups", "AllowQos", "Alternate", "CpuBind", "DefaultTime", "DefCpuPerGPU",
    "DefMemPerCPU", "DefMemPerGPU", "DefMemPerNode", "DenyAccounts", "DenyQos", "DisableRootJobs", "ExclusiveUser",
    "GraceTime", "Hidden", "JobDefaults", "LLN", "MaxCPUsPerNode", "MaxCPUsPerSocket", "MaxMemPerCPU", "MaxMemPerNode",
    "MaxNodes", "MaxTime", "MinNodes", "OverSubscribe", "OverTimeLimit", "PowerDownOnIdle", "PreemptMode",
    "PriorityJobFactor", "PriorityTier", "QOS", "ReqResv", "ResumeTimeout", "RootOnly", "SelectTypeParameters", "State",
    "SuspendTime", "SuspendTimeout", "TRESBillingWeights",
)  # fmt: skip
"""Of slurm.conf's manual page. One that is none of these and like none may be a newer Slurm's."""
_FLAGS = (
    "DenyOnLimit", "EnforceUsageThreshold", "NoDecay", "NoReserve", "OverPartQOS", "PartitionMaxNodes",
    "PartitionMinNodes", "PartitionTimeLimit", "Relative", "RequiresReservation", "UsageFactorSafe",
)  # fmt: skip
_MODES = ("off", "cluster", "cancel", "gang", "requeue", "suspend", "within")
_ENDLESS = ("unlimited", "infinite", "none")
_NAME = re.compile(r"[a-z0-9_.+-]+")
_AMOUNT = re.compile(r"\d+(\.\d+)?[KMGTP]?|-1", re.IGNORECASE)
_TIER = 65_533
"""The highest PriorityTier that Slurm's 16 bits leave."""


def slurm_policy_problems(hostvars: Mapping[str, Variables], groups: Groups, folder: str) -> list[str]:
    """Everything about who may run what that must be changed first. `folder` is that of the playbooks."""
    if not groups.get("slurm"):
        return []
    variables = hostvars[groups["slurm"][0]]
    said = _inventory.said_of(variables, folder)
    return [
        *_qos_named(said, variables, groups),
        *_partitions(said),
        *_preemption(said, groups),
        *_qos(said),
        *_accounts(said),
        *_entitled(said),
    ]


# --- names ---------------------------------------------------------------------------------------


def _qos_named(said: Variables, variables: Variables, groups: Groups) -> Iterator[str]:
    if not groups.get("slurm_database"):
        # What the role says by itself is left out without accounting. Accounting that another site keeps
        # (slurm_config) has QOS that nothing is known of here.
        named = _named_qos({name: value for name, value in said.items() if name in variables})
        elsewhere = any(str(key).lower().startswith("accountingstorage") for key in said.get("slurm_config") or {})
        if named and not elsewhere:
            yield (
                f"{next(iter(named.values()))[0]} names the QOS {next(iter(named))}, and slurm_database is empty: QOS are"
                " kept by accounting; put a host into slurm_database, or name no QOS"
            )
        return
    defined = _defined(said)
    for qos, where in _named_qos(said).items():
        if qos not in defined:
            near = difflib.get_close_matches(qos, defined, 1)
            hint = f"is {near[0]} meant?" if near else f"add it to slurm_qos, which has {', '.join(sorted(defined))}"
            yield f"{', '.join(where)} names the QOS {qos}, which slurm_qos does not define: {hint}"


def _defined(said: Variables) -> set[str]:
    return {str(one.get("name") or "").lower() for one in _inventory.rows(said, "slurm_qos")} | {"normal"}


def _named_qos(said: Variables) -> dict[str, list[str]]:
    """Every QOS that something names, in small letters as Slurm has them, with what names it."""
    named: dict[str, list[str]] = {}
    for variable, word, keys in _NAMES_QOS:
        for one in _inventory.rows(said, variable):
            for key, value in _options(one).items():
                for qos in _names(value) if key.lower() in keys else []:
                    named.setdefault(qos.lstrip("+-="), []).append(f"{word} {one.get('name')} ({key})")
    named.pop("all", None)
    named.pop("", None)
    return named


def _options(one: Variables) -> dict[str, Any]:
    found = one.get("options")
    return {str(key): value for key, value in found.items()} if isinstance(found, Mapping) else {}


def _option(one: Variables, name: str) -> Any:
    """An option, whatever the case of its name; None where it is not said."""
    return next((value for key, value in _options(one).items() if key.lower() == name.lower()), None)


def _names(value: Any) -> list[str]:
    return [each.lower() for each in _inventory.listed(value)]


# --- partitions ----------------------------------------------------------------------------------


def _partitions(said: Variables) -> Iterator[str]:
    for one in _inventory.rows(said, "slurm_partitions"):
        where = f"slurm_partitions: of {one.get('name')}"
        for key, value in _options(one).items():
            if value is not None:
                yield from _partition_option(where, key, _accounting.text_of(value))
        limit, usual = (_time(_option(one, key)) for key in ("MaxTime", "DefaultTime"))
        if limit is not None and usual is not None and usual > limit:
            yield (
                f"{where} DefaultTime is {_option(one, 'DefaultTime')} and MaxTime {_option(one, 'MaxTime')}: a job that"
                " names no time would be refused; make DefaultTime the smaller one"
            )


def _partition_option(where: str, key: str, text: str) -> Iterator[str]:
    name = key.lower()
    known = {each.lower(): each for each in _PARTITION_OPTIONS}
    if name not in known:
        if near := difflib.get_close_matches(name, known, 1):
            yield f"{where} {key} is no option that slurm.conf knows: is {known[near[0]]} meant?"
    elif name in ("maxtime", "defaulttime"):
        if text.lower() not in _ENDLESS and _accounting.seconds_of(text) is None:
            yield f"{where} {key} is {text!r}: write minutes, hours:minutes:seconds or days-hours:minutes:seconds"
    elif name in ("gracetime", "prioritytier", "priorityjobfactor"):
        if not text.isdecimal() or (name != "gracetime" and int(text) > _TIER):
            what = "seconds, as a number" if name == "gracetime" else f"a number from 0 to {_TIER}"
            yield f"{where} {key} is {text!r}: write {what}"
    elif name == "preemptmode" and (wrong := [each for each in _names(text) if each not in _MODES]):
        yield f"{where} {key} is {wrong[0]!r}, and allowed are {', '.join(_MODES)}"


def _time(value: Any) -> float | None:
    """Seconds of a limit; None for one that is not said, or is none."""
    text = _accounting.text_of(value).lower()
    if text in _ENDLESS and value is not None:
        return float("inf")
    found = _accounting.seconds_of(text)
    return None if found is None else float(found)


def _preemption(said: Variables, groups: Groups) -> Iterator[str]:
    kind = str(_setting(said, "PreemptType") or "preempt/none").lower().removeprefix("preempt/")
    off = _names(_accounting.text_of(_setting(said, "PreemptMode") or False)) == ["off"]
    if (kind == "none") != off:
        yield (
            f"slurm_config: PreemptType is {kind} and PreemptMode is {'off' if off else 'not off'}: either both say that"
            " jobs make room, or PreemptType: preempt/none and PreemptMode: 'OFF'"
        )
    partitions = _inventory.rows(said, "slurm_partitions")
    if kind == "partition_prio":
        tiers = [_tier(one) for one in partitions]
        for one, tier in zip(partitions, tiers, strict=True):
            mode = _accounting.text_of(_option(one, "PreemptMode")).lower()
            if mode not in ("", "off", "cluster") and tier >= max(tiers):
                yield (
                    f"slurm_partitions: jobs of {one.get('name')} make room (PreemptMode {mode}), and no partition has a"
                    f" higher PriorityTier than its {tier}: nothing would preempt them; raise that of the others"
                )
    preempting = [str(one.get("name")) for one in _inventory.rows(said, "slurm_qos") if _names(_option(one, "Preempt"))]
    if preempting and kind != "qos":
        yield (
            f"slurm_qos: {', '.join(preempting)} names jobs to preempt, and PreemptType is preempt/{kind}, by which QOS"
            " preempt nothing: set slurm_config PreemptType: preempt/qos, or leave Preempt out"
        )
    if kind == "qos" and not preempting and groups.get("slurm_database"):
        yield "slurm_config: PreemptType is preempt/qos, and no QOS of slurm_qos says Preempt: no job would make room"


def _tier(one: Variables) -> int:
    text = _accounting.text_of(_option(one, "PriorityTier"))
    return int(text) if text.isdecimal() else 1


def _setting(said: Variables, name: str) -> Any:
    """A setting of slurm.conf: the site's, else the role's."""
    for variable in ("slurm_config", "slurm_default_config"):
        found = said.get(variable)
        for key, value in found.items() if isinstance(found, Mapping) else ():
            if str(key).lower() == name.lower():
                return value
    return None


# --- QOS and accounts ----------------------------------------------------------------------------


def _qos(said: Variables) -> Iterator[str]:
    qos = _inventory.rows(said, "slurm_qos")
    yield from _once("slurm_qos", qos)
    for one in qos:
        yield from _options_of("slurm_qos", one, _accounting.QOS_OPTIONS)
        for flag in _names(_option(one, "Flags")):
            if flag not in ("-1", "") and flag not in map(str.lower, _FLAGS):
                yield f"slurm_qos: of {one.get('name')} the flag {flag} is unknown; there are {', '.join(_FLAGS)}"
    over = {
        str(one.get("name")).lower(): {each.lstrip("+-=") for each in _names(_option(one, "Preempt"))} for one in qos
    }
    for name, below in over.items():
        if name in _below(name, over):
            yield f"slurm_qos: {name} preempts itself, by {_few_names(below)}: Slurm takes no circle"


def _below(name: str, over: Mapping[str, set[str]]) -> set[str]:
    """All that a QOS preempts, also by way of others."""
    found: set[str] = set()
    new = set(over[name])
    while new:
        found |= new
        new = {each for one in new for each in over.get(one, ())} - found
    return found


def _few_names(names: Iterable[str]) -> str:
    return str(_inventory.few(sorted(names)))


def _once(variable: str, entries: Sequence[Variables]) -> Iterator[str]:
    names = [str(one.get("name") or "") for one in entries]
    for name in dict.fromkeys(names):
        if names.count(name) > 1:
            yield f"{variable} has {name} {names.count(name)} times: leave one"
        if name and not _NAME.fullmatch(name):
            yield f"{variable}: the name {name!r}: accounting keeps small letters, digits and _ . + - alone; write it so"


def _options_of(variable: str, one: Variables, table: Mapping[str, Any]) -> Iterator[str]:
    """Options that sacctmgr does not know, and values that are none."""
    for key, value in _options(one).items():
        where = f"{variable}: of {one.get('name')} {key}"
        option = table.get(key.lower())
        if option is None:
            near = difflib.get_close_matches(key.lower(), table, 1)
            names = sorted({each.name for each in table.values()})
            hint = f"is {table[near[0]].name} meant?" if near else f"there are {', '.join(names)}"
            yield f"{where} is no option that sacctmgr sets and shows: {hint}"
        elif problem := _value_problem(option.kind, _accounting.text_of(value)):
            yield f"{where} is {_accounting.text_of(value)!r}: {problem}"


def _value_problem(kind: Any, text: str) -> str:
    """What is wrong with a value of an option, as what to write; empty where nothing is."""
    lifted = text in ("", "-1")  # so sacctmgr is told that there is none
    if kind is Kind.TRES:
        items = [item.partition("=") for item in text.split(",") if not lifted]
        good = all(name and _AMOUNT.fullmatch(amount.strip()) for name, _, amount in items)
    elif kind in (Kind.SECONDS, Kind.MINUTES):
        good = lifted or _accounting.seconds_of(text) is not None
    elif kind is Kind.MODE:
        good = lifted or all(each in _MODES for each in _names(text))
    elif kind in (Kind.NUMBER, Kind.FACTOR):
        good = lifted or re.fullmatch(r"\d+" if kind is Kind.NUMBER else r"\d+(\.\d+)?", text) is not None
    else:
        good = True
    # sacctmgr takes any number below 0 for "no limit", and says nothing.
    return "" if good else f"write {kind.value}; -1 for none"


def _accounts(said: Variables) -> Iterator[str]:
    accounts = _inventory.rows(said, "slurm_accounts")
    yield from _once("slurm_accounts", accounts)
    names = [str(one.get("name")) for one in accounts]
    for place, one in enumerate(accounts):
        yield from _options_of("slurm_accounts", one, _accounting.ACCOUNT_OPTIONS)
        if (parent := str(one.get("parent") or "")) in names[place:]:
            yield f"slurm_accounts: {one.get('name')} lies below {parent}, which is declared after it: put {parent} first"
        qos, default = _qos_of(one), _names(_option(one, "DefaultQOS"))
        if signed := [each for each in qos if each[:1] in "+-="]:
            yield f"slurm_accounts: of {one.get('name')} QOS has {signed[0]}: write all that its jobs may have, without signs"
        elif qos and default and default[0] not in qos and default[0] in _defined(said):
            yield (
                f"slurm_accounts: of {one.get('name')} DefaultQOS is {default[0]}, which is none of its QOS"
                f" ({', '.join(qos)}): a job that names none would be refused; add it there, or take one of them"
            )
        elif len(qos) > 1 and not default and "normal" not in qos:
            yield (
                f"slurm_accounts: {one.get('name')} has the QOS {', '.join(qos)} and no DefaultQOS: a job that names none"
                " would be refused; say DefaultQOS"
            )


def _qos_of(account: Variables) -> list[str]:
    return _names(_option(account, "QOS") if _option(account, "QOS") is not None else _option(account, "QosLevel"))


def _entitled(said: Variables) -> Iterator[str]:
    """Partitions that let nobody in, and accounts that no partition lets in."""
    accounts = _inventory.rows(said, "slurm_accounts")
    partitions = _inventory.rows(said, "slurm_partitions")
    if not accounts or not partitions:
        return
    own = {str(one.get("name")): _effective(one, accounts) for one in accounts}
    defined = _defined(said)
    allowed = {str(one.get("name")): _allowed(one, defined) for one in partitions}
    for name, qos in allowed.items():
        if not any(qos & each for each in own.values()):
            yield (
                f"slurm_partitions: {name} lets in the QOS {', '.join(sorted(qos)) or 'of nobody'}, and no account of"
                " slurm_accounts has one: nobody could submit there; add it to an account's QOS, or to AllowQos"
            )
    for name, qos in own.items():
        if qos <= defined and not any(qos & each for each in allowed.values()):
            yield (
                f"slurm_accounts: {name} has the QOS {', '.join(sorted(qos))}, and no partition of slurm_partitions lets"
                " it in: add it to the AllowQos of one"
            )


def _effective(account: Variables, accounts: Sequence[Variables]) -> set[str]:
    """The QOS of an account: its own, else those of the one above, else Slurm's own."""
    seen: list[Variables] = []
    while account not in seen:
        seen.append(account)
        if own := _qos_of(account):
            return {each.lstrip("+-=") for each in own}
        account = next((one for one in accounts if one.get("name") == account.get("parent")), account)
    return {"normal"}


def _allowed(partition: Variables, defined: set[str]) -> set[str]:
    allowed, denied = _names(_option(partition, "AllowQos")), _names(_option(partition, "DenyQos"))
    if allowed and "all" not in allowed:
        return set(allowed)
    return defined - set(denied)


class FilterModule:
    """What Ansible asks a file of filters for."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"slurm_policy_problems": slurm_policy_problems}
