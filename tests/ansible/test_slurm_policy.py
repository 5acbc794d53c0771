"""Mistakes in partitions, QOS and accounts are named by validate.yml's filter, and what Slurm would take is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from loaded import ANSIBLE, loaded

POLICY = loaded("plugins/filter/slurm_policy.py")
GROUPS = {"slurm": ["head"], "slurm_controller": ["head"], "slurm_database": ["head"]}
SHIPPED = {
    name: yaml.safe_load((ANSIBLE / path).read_text())
    for name, path in {
        "defaults": "roles/slurm/defaults/main.yml",
        "lab": "inventory/lab/group_vars/all/slurm.yml",
        "two-sparks": "inventory/two-sparks/group_vars/all/slurm.yml",
    }.items()
}


def said(variables: dict[str, Any], groups: dict[str, list[str]] = GROUPS) -> list[str]:
    found: list[str] = POLICY.slurm_policy_problems({"head": variables}, groups, str(ANSIBLE))
    return found


def partition(name: str, **options: Any) -> dict[str, Any]:
    return {"name": name, "options": options}


def qos(**options: Any) -> dict[str, Any]:
    return {"slurm_qos": [{"name": "short", "options": options}, {"name": "guest"}]}


def account(**options: Any) -> dict[str, Any]:
    return {"slurm_accounts": [{"name": "lab", "users": ["ada"], "options": options}]}


LOW, HIGH = partition("low", PriorityTier=1, PreemptMode="requeue"), partition("high", PriorityTier=10)
MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "unknown target of preemption": (
        {"slurm_config": {"PreemptType": "preempt/qos"}, **qos(Preempt="guset")},
        "QOS short (Preempt) names the QOS guset, which slurm_qos does not define: is guest meant?",
    ),
    "negative limit": (qos(MaxJobsPerUser=-5), "slurm_qos: of short MaxJobsPerUser is '-5': write a number; -1 for none"),
    "limit in words": (qos(MaxJobsPU="four"), "MaxJobsPU is 'four': write a number"),
    "negative resources": (qos(MaxTRESPU="gres/gpu=-3"), "MaxTRESPU is 'gres/gpu=-3': write resources such as gres/gpu=8"),
    "resources without name": (qos(GrpTRES="8"), "GrpTRES is '8': write resources such as gres/gpu=8"),
    "no time": (qos(MaxWall="2h"), "MaxWall is '2h': write minutes, or days-hours:minutes:seconds"),
    "negative time": (qos(GraceTime="-60"), "GraceTime is '-60': write seconds, or hours:minutes:seconds"),
    "misspelt limit": (qos(MaxJobPerUser=3), "MaxJobPerUser is no option that sacctmgr sets and shows: is MaxJobsPerUser meant?"),
    "misspelt flag": (qos(Flags="DenyLimit"), "of short the flag denylimit is unknown; there are DenyOnLimit"),
    "no mode": (qos(PreemptMode="kill"), "PreemptMode is 'kill': write cluster, cancel, requeue"),
    "big letters": ({"slurm_qos": [{"name": "Short"}, {"name": "short"}, {"name": "guest"}]}, "the name 'Short': accounting keeps small letters"),
    "QOS twice": ({"slurm_qos": [{"name": "short"}, {"name": "short"}, {"name": "guest"}]}, "slurm_qos has short 2 times"),
    "circle": (
        {"slurm_config": {"PreemptType": "preempt/qos"}, "slurm_partitions": [partition("a")],
         "slurm_qos": [{"name": "a", "options": {"Preempt": "b"}}, {"name": "b"}, {"name": "c", "options": {"Preempt": "c"}}]},
        "slurm_qos: c preempts itself, by c",
    ),
    "preemption that nothing does": (qos(Preempt="guest"), "PreemptType is preempt/partition_prio, by which QOS preempt nothing"),
    "preemption by QOS of nothing": ({"slurm_config": {"PreemptType": "preempt/qos"}}, "no QOS of slurm_qos says Preempt"),
    "half of preemption": ({"slurm_config": {"PreemptMode": "OFF"}}, "PreemptType is partition_prio and PreemptMode is off"),
    "other half": ({"slurm_config": {"preempttype": None}}, "PreemptType is none and PreemptMode is not off"),
    "nobody preempts": (
        {"slurm_partitions": [partition("a", PriorityTier=5, PreemptMode="requeue"), partition("b", PriorityTier=5)]},
        "jobs of a make room (PreemptMode requeue), and no partition has a higher PriorityTier than its 5",
    ),
    "grace in hours": ({"slurm_partitions": [HIGH, partition("low", PriorityTier=1, GraceTime="00:01:00")]},
                       "of low GraceTime is '00:01:00': write seconds, as a number"),
    "negative grace": ({"slurm_partitions": [HIGH, partition("low", GraceTime=-1)]}, "of low GraceTime is '-1': write seconds"),
    "tier": ({"slurm_partitions": [partition("a", PriorityTier=70000)]}, "PriorityTier is '70000': write a number from 0 to"),
    "time of partition": ({"slurm_partitions": [partition("a", MaxTime="7d")]}, "of a MaxTime is '7d': write minutes"),
    "usual time above the limit": (
        {"slurm_partitions": [partition("a", MaxTime="01:00:00", DefaultTime="02:00:00")]},
        "of a DefaultTime is 02:00:00 and MaxTime 01:00:00",
    ),
    "misspelt option": ({"slurm_partitions": [partition("a", MaxTiem=60)]}, "MaxTiem is no option that slurm.conf knows: is MaxTime meant?"),
    "mode of partition": ({"slurm_partitions": [HIGH, partition("a", PreemptMode="kill", PriorityTier=1)]}, "PreemptMode is 'kill', and allowed are"),
    "default that it does not have": (account(QOS="normal", DefaultQOS="short"), "DefaultQOS is short, which is none of its QOS (normal)"),
    "no default": ({**account(QOS=["short", "guest"]), "slurm_partitions": [partition("a")]}, "has the QOS short, guest and no DefaultQOS"),
    "sign": (account(QOS="+normal"), "QOS has +normal: write all that its jobs may have"),
    "misspelt option of account": (account(DefaultQSO="normal"), "DefaultQSO is no option that sacctmgr sets and shows: is DefaultQOS meant?"),
    "child before parent": (
        {"slurm_accounts": [{"name": "a", "parent": "b"}, {"name": "b"}]}, "a lies below b, which is declared after it"),
    "partition of nobody": (
        {**account(QOS="normal"), "slurm_partitions": [HIGH, partition("vip", AllowQos="short")]},
        "slurm_partitions: vip lets in the QOS short, and no account of slurm_accounts has one",
    ),
    "account of nowhere": (
        {"slurm_accounts": [{"name": "lab"}, {"name": "late", "options": {"QOS": "guest"}}],
         "slurm_partitions": [partition("a", AllowQos="normal")]},
        "slurm_accounts: late has the QOS guest, and no partition of slurm_partitions lets it in",
    ),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_said_with_what_to_write_and_nothing_else(mistake: str) -> None:
    variables, words = MISTAKES[mistake]
    found = said(variables)
    assert len(found) == 1, found
    assert words in found[0]


@pytest.mark.parametrize("site", SHIPPED)
def test_what_ships_has_no_mistake(site: str) -> None:
    assert said(SHIPPED[site]) == []


@pytest.mark.parametrize(
    "variables",
    [
        qos(MaxJobsPerUser=-1, MaxWall=-1, GrpTRES="node=-1,mem=2T", Flags=["DenyOnLimit", "nodecay"], UsageFactor=0.25),
        qos(PreemptMode=False, GraceTime="00:02:00", Priority=0),
        {"slurm_partitions": [partition("a", MaxTime="UNLIMITED", DefaultTime=60, SomethingNew=1, PreemptMode=False)]},
        {"slurm_partitions": [HIGH, LOW, partition("c", PriorityTier=1, PreemptMode="cluster", AllowQos="ALL")]},
        {"slurm_config": {"PreemptType": "preempt/qos"}, **qos(Preempt="guest,normal")},
        {"slurm_config": {"PreemptType": "preempt/none", "PreemptMode": "OFF"}},
        {"slurm_config": {"PreemptType": "preempt/none", "PreemptMode": False}},
        {**account(QOS=["normal", "guest"], Fairshare="parent", MaxJobs=3)},
        {"slurm_accounts": [{"name": "a", "options": {"QOS": "guest"}}, {"name": "b", "parent": "a"}, {"name": "c"}]},
        {"slurm_accounts": [{"name": "a", "options": {"QOS": "normal", "GrpTRES": {"gres/gpu": 64}}}]},
    ],
)  # fmt: skip
def test_what_slurm_would_take_is_not_refused(variables: dict[str, Any]) -> None:
    assert said(variables) == []


def test_without_accounting_the_roles_own_qos_are_no_mistake_and_the_sites_are() -> None:
    alone = {"slurm": ["head"], "slurm_controller": ["head"]}
    assert said({}, alone) == []
    (told,) = said({"slurm_partitions": [partition("a", QOS="short")]}, alone)
    assert "partition a (QOS) names the QOS short, and slurm_database is empty" in told


@pytest.mark.parametrize("site", SHIPPED)
def test_what_ships_has_a_short_a_long_and_one_that_makes_room_and_says_who_may_use_them(site: str) -> None:
    variables = {**SHIPPED["defaults"], **SHIPPED[site]}
    first, second, last = (one["options"] for one in variables["slurm_partitions"])
    assert first["PriorityTier"] > second["PriorityTier"] > last["PriorityTier"]
    assert (first["PreemptMode"], second["PreemptMode"], last["PreemptMode"]) == ("off", "off", "requeue")
    assert last["GraceTime"] > 0
    seconds = [loaded("plugins/filter/slurm_accounting.py").seconds_of(one["MaxTime"]) for one in (first, second)]
    assert seconds[0] < seconds[1]
    assert "guest" in last["AllowQos"]
    assert "guest" not in (*first["AllowQos"].split(","), *second["AllowQos"].split(","))


def test_the_filter_is_part_of_validate_yml() -> None:
    assert "slurm_policy_problems(groups, playbook_dir)" in Path(ANSIBLE / "validate.yml").read_text()
