"""What accounting is told, from what it holds and what is declared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from loaded import loaded

ACCOUNTING = loaded("plugins/filter/slurm_accounting.py")

DECLARED: dict[str, Any] = {
    "cluster": "c",
    "qos": [
        {"name": "normal", "options": {"Priority": 100}},
        {"name": "short", "options": {"MaxJobsPU": 4, "MaxWall": "120", "MaxTRESPU": "gres/gpu=8,node=2", "GraceTime": 60}},
    ],
    "accounts": [{"name": "lab", "users": ["root", "climber"], "options": {"QOS": ["normal", "short"], "DefaultQOS": "normal"}}],
}  # fmt: skip
COLUMNS: dict[str, list[str]] = ACCOUNTING.columns(DECLARED)
AS_SLURM_MAKES_IT = {"GraceTime": "00:00:00", "PreemptMode": "cluster", "UsageFactor": "1.000000", "Priority": "0"}
SHORT = {"MaxJobsPerUser": "4", "MaxWall": "02:00:00", "MaxTRESPerUser": "node=2,gres/gpu=8", "GraceTime": "00:01:00"}


def qos(name: str, **shown: str) -> list[str]:
    """A row as sacctmgr lists it: what is not said is as Slurm makes it."""
    return [name, *({**AS_SLURM_MAKES_IT, **shown}.get(column, "") for column in COLUMNS["qos"])]


def assoc(account: str, user: str = "", partition: str = "", **shown: str) -> list[str]:
    return [account, user, partition, *(shown.get(column, "") for column in COLUMNS["accounts"])]


def table(*rows: Sequence[str]) -> str:
    return "".join("|".join(cells) + "\n" for cells in (["title"] * len(rows[0]), *rows))


QOS = [qos("normal", Priority="100"), qos("short", **SHORT)]
ASSOC = [
    assoc("root"),
    assoc("lab", "root"),
    assoc("lab", "climber"),
    assoc("lab", QOS="short,normal", DefaultQOS="normal"),
]


def told(rows: Sequence[Sequence[str]] = QOS, assocs: Sequence[Sequence[str]] = ASSOC, **declared: Any) -> list[str]:
    """The commands, a line each."""
    shown = {
        "cluster": table(["c"]),
        "qos": table(*rows),
        "account": table(["root"], ["lab"]),
        "assoc": table(*assocs),
    }
    return [" ".join(each["argv"]) for each in ACCOUNTING.commands(shown, {**DECLARED, **declared})]


def test_accounting_as_declared_needs_no_command() -> None:
    assert told() == []


@pytest.mark.parametrize(
    ("shown", "command"),
    [
        ({"MaxJobsPerUser": ""}, "MaxJobsPerUser=4"),
        ({"MaxJobsPerUser": "5"}, "MaxJobsPerUser=4"),
        ({"MaxWall": "02:00:01"}, "MaxWall=120"),
        ({"GraceTime": "01:00:00"}, "GraceTime=60"),  # seconds are told, and shown as hours
        ({"MaxTRESPerUser": "gres/gpu=8"}, "MaxTRESPerUser=gres/gpu=8,node=2"),
        # Slurm keeps what it is not told of: it must be lifted by name.
        ({"MaxTRESPerUser": "cpu=3,gres/gpu=8,node=2"}, "MaxTRESPerUser=gres/gpu=8,node=2,cpu=-1"),
    ],
)
def test_a_limit_that_somebody_changed_by_hand_is_put_back(shown: dict[str, str], command: str) -> None:
    assert told([QOS[0], qos("short", **{**SHORT, **shown})]) == [f"modify qos short set {command}"]


@pytest.mark.parametrize(
    ("shown", "command"),
    [
        ({"GrpJobs": "3"}, "GrpJobs=-1"),
        ({"Flags": "DenyOnLimit"}, "Flags=-1"),
        ({"Preempt": "short"}, "Preempt="),
        ({"PreemptMode": "requeue"}, "PreemptMode=cluster"),
        ({"UsageFactor": "0.500000"}, "UsageFactor=1"),
        ({"GrpTRES": "gres/gpu=4"}, "GrpTRES=gres/gpu=-1"),
        ({"PreemptExemptTime": "01:30:00"}, "PreemptExemptTime=-1"),
    ],
)
def test_a_limit_that_somebody_added_by_hand_is_taken_away(shown: dict[str, str], command: str) -> None:
    assert told([qos("normal", Priority="100", **shown), QOS[1]]) == [f"modify qos normal set {command}"]


def test_what_is_there_in_place_of_a_declared_limit_is_said() -> None:
    shown = {"cluster": table(["c"]), "qos": table(QOS[0], qos("short", **{**SHORT, "MaxJobsPerUser": "9"}))}
    shown |= {"account": table(["root"], ["lab"]), "assoc": table(*ASSOC)}
    assert [each["now"] for each in ACCOUNTING.commands(shown, DECLARED)] == ["MaxJobsPerUser=9"]


def test_every_qos_exists_before_one_is_told_whom_it_preempts() -> None:
    new = [{"name": "a", "options": {"Preempt": ["b"]}}, {"name": "b"}]
    assert told([QOS[0]], qos=new) == ["add qos a", "add qos b", "modify qos a set Preempt=b"]


@pytest.mark.parametrize(
    ("assocs", "commands"),
    [
        ([*ASSOC[:2], ASSOC[3]], ["add user climber Account=lab Cluster=c"]),
        # One who is there in one partition alone is not there.
        ([*ASSOC[:2], assoc("lab", "climber", "long"), ASSOC[3]], ["add user climber Account=lab Cluster=c"]),
        (
            [*ASSOC[:3], assoc("lab", QOS="normal", DefaultQOS="normal")],
            ["modify account where Account=lab Cluster=c set QOS=normal,short"],
        ),
        (
            [*ASSOC[:2], assoc("lab", "climber", QOS="+urgent", DefaultQOS="urgent"), ASSOC[3]],
            ["modify user where Name=climber Account=lab Cluster=c set DefaultQOS=-1 QOS="],
        ),
    ],
)
def test_users_have_the_qos_of_their_account_and_no_others(assocs: list[list[str]], commands: list[str]) -> None:
    assert [sorted(line.split()) for line in told(assocs=assocs)] == [sorted(line.split()) for line in commands]


def test_an_account_that_names_no_qos_leaves_its_users_theirs() -> None:
    own = [assoc("lab", "climber", QOS="urgent"), assoc("lab", QOS="normal")]
    assert told(assocs=own, accounts=[{"name": "lab", "users": ["climber"]}]) == []


def test_two_ways_to_write_an_option_are_one_and_minus_one_is_none() -> None:
    as_long = {"MaxJobsPerUser": 4, "MaxWallDurationPerJob": "0-2", "MaxTRESPerUser": {"node": 2, "gres/gpu": 8}, "GraceTime": "00:01:00"}  # fmt: skip
    rest = {"GrpJobs": -1, "PreemptMode": "off", "Flags": -1, "GrpTRES": "node=-1"}
    assert told(qos=[DECLARED["qos"][0], {"name": "short", "options": {**as_long, **rest}}]) == []


@pytest.mark.parametrize("rows", [[QOS[0], QOS[1][:-1]], [QOS[0], ["short"]]])
def test_a_row_that_was_cut_is_an_error(rows: list[list[str]]) -> None:
    with pytest.raises(ValueError, match=r"line 3: .* cells under .* titles"):
        told(rows)


def test_an_option_that_nothing_is_known_of_is_an_error() -> None:
    with pytest.raises(ValueError, match="MaxWal is no option that sacctmgr sets"):
        told(qos=[{"name": "short", "options": {"MaxWal": 3}}])


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 5400), ("1:30", 90), ("02:00:00", 7200), ("7-00:00:00", 604800), ("1-12", 129600), ("soon", None), ("-5", None)]
)  # fmt: skip
def test_times_are_read_as_slurm_reads_them(text: str, seconds: int | None) -> None:
    assert ACCOUNTING.seconds_of(text) == seconds


def test_a_slurm_is_not_asked_for_what_it_does_not_know_yet() -> None:
    older = {**DECLARED, "release": "20.11"}
    assert set(COLUMNS["qos"]) - set(ACCOUNTING.columns(older)["qos"]) == {"LimitFactor"}
    for release in ("21.08", "22.05", "24.11"):
        assert ACCOUNTING.columns({**DECLARED, "release": release}) == COLUMNS
    where = COLUMNS["qos"].index("LimitFactor") + 1
    rows = [[*row[:where], *row[where + 1 :]] for row in QOS]
    assert told(rows, release="20.11") == []
    newer = [{"name": "normal", "options": {"LimitFactor": 2}}]
    with pytest.raises(ValueError, match="the QOS normal sets LimitFactor, which slurm_release does not know"):
        told(rows, release="20.11", qos=newer)
