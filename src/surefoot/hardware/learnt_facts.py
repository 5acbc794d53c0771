"""Which facts of a group's nodes a cluster file may expect of them: those that more than half of them have. Pure."""

from __future__ import annotations

import glob
import re
from collections.abc import Mapping

from surefoot.hardware.comparable import comparable
from surefoot.hardware.facts import NodeFacts
from surefoot.hardware.fleet_rows import Row, shares_of
from surefoot.hardware.fleet_values import Presence, Unknown, Value, shown
from surefoot.hostlist import folded, natural

OF_THE_JOB = ("cpus", "cpu_quota", "memory_limit", "variable *")
"""What a job is given by what it asks for, and by who starts it: no property of a node. ``*`` at the end: all such."""
NEVER_RIGHT = {"clock.synchronised": "no"}
"""A state that may be seen, and is not to be expected."""

Told = Mapping[str, Mapping[str, "str | Unknown"]]
_GPU = re.compile(r"gpu\d+\.(.+)")


def claims(nodes: Mapping[str, NodeFacts]) -> tuple[dict[str, str], dict[str, tuple[str, ...]]]:
    """(`NodeGroup.expect`, notes). Notes are under ``expect.FACT`` beside a claim, and under ``expect`` for what is none."""
    return claims_of({name: comparable(facts) for name, facts in nodes.items()})


def claims_of(facts: Told) -> tuple[dict[str, str], dict[str, tuple[str, ...]]]:
    """As `claims`, of facts that are texts already: node → fact → text."""
    told = dict(sorted(facts.items(), key=lambda item: natural(item[0])))
    rows = {key: _row(key, told) for key in _keys(told)}
    expect: dict[str, str] = {}
    notes: dict[str, tuple[str, ...]] = {}
    not_claimed: list[str] = []
    for key, row in _with_patterns(rows, told).items():
        value, why = _claim(key, row)
        if value is None:
            alone = f"{key} {shown([row.shares[0].value])[0]} on {row.shares[0].hosts[0]}"
            not_claimed.append(f"not claimed{why}: {alone if row.count == 1 else row.sentence}")
        else:
            name = key if key not in rows else glob.escape(key)  # a path may hold what is a pattern here
            expect[name] = value
            notes[f"expect.{name}"] = (_seen(row),)
    return expect, notes | ({"expect": tuple(not_claimed)} if not_claimed else {})


def _claim(key: str, row: Row) -> tuple[str | None, str]:
    """What may be claimed, or None and why not."""
    if any(key.startswith(name[:-1]) if name.endswith("*") else key == name for name in OF_THE_JOB):
        return None, ", as it depends on the job"
    majority = row.majority.value if row.majority else None
    if not isinstance(majority, str):
        return None, ""
    return (None, ", as it is not to be so") if NEVER_RIGHT.get(key) == majority else (majority, "")


def _seen(row: Row) -> str:
    """``62 of 64 nodes; 580.142 on gpu[17,41]``."""
    assert row.majority is not None
    others = [share for share in row.shares if share is not row.majority]
    words = shown([share.value for share in row.shares])
    told = [f"{words[row.shares.index(share)]} on {folded(share.hosts)}" for share in others]
    return "; ".join([f"{len(row.majority.hosts)} of {row.count} nodes", *told])


def _keys(told: Told) -> list[str]:
    """Every fact that a node tells; what covers others (``gpu*``) where no node tells one of them."""
    every = list(dict.fromkeys(key for facts in told.values() for key in facts))
    covers = {key for facts in told.values() for key, value in facts.items() if _is_cover(key, value)}
    plain = [key for key in every if key not in covers]
    return [key for key in every if key not in covers or not any(_covers(key, name) for name in plain)]


def _covers(cover: str, key: str) -> bool:
    """Whether ``gpu*`` stands for a fact; the number of GPUs is told beside it."""
    return key.startswith(cover[:-1]) and key != "gpus"


def _row(key: str, told: Told) -> Row:
    split: dict[Value, list[str]] = {}
    for host, facts in told.items():
        split.setdefault(_value(key, facts), []).append(host)
    return Row(name=key, keys=(key,), shares=shares_of(split))


def _value(key: str, facts: Mapping[str, str | Unknown]) -> Value:
    if key in facts:
        return facts[key]
    covers = (why for name, why in facts.items() if _is_cover(name, why) and _covers(name, key))
    return next(covers, Presence.MISSING)


def _is_cover(name: str, value: str | Unknown) -> bool:
    return name.endswith("*") and isinstance(value, Unknown)


def _with_patterns(rows: Mapping[str, Row], told: Told) -> dict[str, Row]:
    """``gpu*.vbios`` in place of ``gpu0.vbios`` to ``gpu7.vbios``, where the majority has one value for all of them."""
    families: dict[str, list[str]] = {}
    for key in rows:
        if match := _GPU.fullmatch(key):
            families.setdefault(f"gpu*.{match[1]}", []).append(key)
    found: dict[str, Row] = {}
    for key, row in rows.items():
        match = _GPU.fullmatch(key)
        pattern = f"gpu*.{match[1]}" if match else ""
        if pattern in found:
            continue
        shares = [rows[name].majority for name in families.get(pattern, ())]
        values = {share.value if share else None for share in shares}
        whole = _whole(pattern, families[pattern], told) if len(values) == 1 else None
        if whole is not None and whole.majority and {whole.majority.value} == values:
            found[pattern] = whole
        else:
            found[key] = row
    return found


def _whole(pattern: str, keys: list[str], told: Told) -> Row:
    """All GPUs of a node as one fact: their value, or their values where they differ."""
    split: dict[Value, list[str]] = {}
    for host, facts in told.items():
        values = list(dict.fromkeys(_value(key, facts) for key in keys))
        value = values[0] if len(values) == 1 else " and ".join(shown(values))
        split.setdefault(value, []).append(host)
    return Row(name=pattern, keys=tuple(keys), shares=shares_of(split))
