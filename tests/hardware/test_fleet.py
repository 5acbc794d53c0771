"""The drift matrix: what is told of a fleet, and that no node is ever lost on the way."""

from __future__ import annotations

import json
import random
import re
import time
import tracemalloc
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surefoot.hardware.fleet import Agreement, Fleet, Presence, Row, Unknown, compare
from surefoot.hostlist import expand, natural

Told = dict[str, dict[str, str | Unknown]]

HOSTS = st.lists(st.sampled_from([f"gpu{n}" for n in range(14)]), min_size=1, max_size=14, unique=True)
KEYS = ("driver", "kernel", "gpus", *(f"gpu{n}.{fact}" for n in range(3) for fact in ("vbios", "ecc", "nvlinks")))
VALUES = st.sampled_from(["a", "b", "c d", "", Unknown("no permission"), Unknown("no NVML")])
NODE = st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=len(KEYS))

QUICK = settings(max_examples=60, deadline=None)


@st.composite
def fleets(draw: st.DrawFn) -> Told:
    """Nodes that are like one of two, but for a few facts: so that there is something to fold."""
    kinds = draw(st.lists(NODE, min_size=1, max_size=2))
    return {host: {**draw(st.sampled_from(kinds)), **draw(NODE.filter(lambda n: len(n) < 4))} for host in draw(HOSTS)}


def fleet(hosts: int, *, gpus: int = 8, facts: int = 15) -> Told:
    """Nodes that are all alike."""
    node = {"driver": "580.159.03", "kernel": "6.8.0-45-generic", "os": "Ubuntu 24.04", "nccl": "2.28.3"}
    node |= {f"gpu{g}.{chr(97 + f)}": f"value {f}" for g in range(gpus) for f in range(facts)}
    return {f"gpu{number}": dict(node) for number in range(1, hosts + 1)}


def sentences(told: Mapping[str, object], **how: object) -> list[str]:
    return [row.sentence for row in compare(told, **how).rows]  # type: ignore[arg-type]


def hosts_of(row: Row) -> list[str]:
    return [host for share in row.shares for host in share.hosts]


@QUICK
@given(fleets(), st.data())
def test_every_node_stands_exactly_once_in_each_fact_that_its_group_has(told: Told, data: st.DataObject) -> None:
    group_of = {host: data.draw(st.sampled_from(["a", "b", ""])) for host in told}
    everywhere = data.draw(st.sets(st.sampled_from(KEYS)))
    found = compare(told, group_of=group_of, everywhere=everywhere.__contains__)
    assert sorted([*found.hosts, *(host for host, _ in found.silent)]) == sorted(told)
    for key in KEYS:
        rows = [row for row in found.rows if key in row.keys]
        having = {group_of[host] for host, facts in told.items() if key in facts}
        assert sorted(host for row in rows for host in hosts_of(row)) == sorted(
            host for host in found.hosts if group_of[host] in having
        )
        assert len(rows) == (min(1, len(having)) if key in everywhere else len(having))


@QUICK
@given(fleets())
def test_every_share_is_what_its_nodes_told(told: Told) -> None:
    for row in compare(told).rows:
        for share in row.shares:
            assert list(share.hosts) == sorted(share.hosts, key=natural)
            for key in row.keys:
                values = {told[host].get(key, Presence.MISSING) for host in share.hosts}
                assert len(values) == 1
                (value,) = values
                if share.value in (Presence.THERE, Presence.KNOWN):
                    assert isinstance(value, str)
                else:
                    assert value == share.value


@QUICK
@given(fleets())
def test_a_fleet_agrees_only_where_two_nodes_told_and_all_told_the_same(told: Told) -> None:
    heard = [facts for facts in told.values() if facts]
    alike = len(heard) == len(told) > 1 and all(facts == heard[0] for facts in heard)
    known = not any(isinstance(value, Unknown) for facts in heard for value in facts.values())
    assert (compare(told).agreement is Agreement.AGREES) == (alike and known)


@QUICK
@given(fleets())
def test_a_fact_differs_exactly_where_two_nodes_are_known_to_differ_in_it(told: Told) -> None:
    differing = {key for row in compare(told).that(Agreement.DIFFERS) for key in row.keys}
    heard = [facts for facts in told.values() if facts]
    assert differing == {
        key
        for key in KEYS
        if any(key in facts for facts in heard)
        and len({v for facts in heard if not isinstance(v := facts.get(key, Presence.MISSING), Unknown)}) > 1
    }


@QUICK
@given(st.data())
def test_planted_drifts_are_all_found_and_nothing_else(data: st.DataObject) -> None:
    told = fleet(20)
    keys = st.sampled_from(sorted(told["gpu1"]))
    planted = data.draw(st.sets(st.tuples(st.sampled_from([f"gpu{n}" for n in range(1, 10)]), keys), max_size=9))
    for host, key in planted:
        if data.draw(st.booleans()):
            told[host][key] = "another"
        else:
            del told[host][key]
    rows = compare(told).rows
    assert {(host, key) for row in rows for s in row.minority for host in s.hosts for key in row.keys} == planted
    assert not [row for row in rows if row.agreement not in (Agreement.DIFFERS, Agreement.AGREES)]


@QUICK
@given(fleets())
def test_a_sentence_names_every_node_outside_the_majority_and_counts_the_rest(told: Told) -> None:
    found = compare(told)
    for row in found.rows:
        named: list[str] = []
        counted = 0
        for where in re.findall(r" on (\d+ nodes|both nodes|all \d+ nodes|gpu[\d\[][^ :]*)", row.sentence):
            if where.endswith("nodes"):
                counted += 2 if where.startswith("both") else int(re.findall(r"\d+", where)[0])
            else:
                named += expand(where.rstrip(","))
        most = max((len(share.hosts) for share in row.shares), default=0)
        assert len(named) + counted == row.count
        assert set(named) <= set(hosts_of(row))
        assert len(set(named)) == len(named)
        assert counted in (0, most)


@QUICK
@given(fleets())
def test_the_cells_of_a_table_have_every_node(told: Told) -> None:
    found = compare(told)
    cells = json.loads(json.dumps(found.cells()))
    assert cells["count"] == len(expand(cells["hosts"])) == len(found.hosts)
    for row, cell in zip(found.rows, cells["rows"], strict=True):
        assert len([share for share in cell["shares"] if share["hosts"] is None]) <= 1
        for share, shown in zip(row.shares, cell["shares"], strict=True):
            assert shown["count"] == len(share.hosts)
            assert shown["hosts"] is None or expand(shown["hosts"]) == list(share.hosts)


def test_a_fact_with_a_value_for_each_node_is_cut_in_a_table_but_no_node_is() -> None:
    found = compare({f"n{n}": {"serial": f"s{n}"} for n in range(1000)})
    (row,) = found.cells()["rows"]
    assert len(row["shares"]) == 41
    assert row["shares"][-1] == {"value": "960 more values", "count": 960, "hosts": "n[40-999]"}


def test_the_majority_is_counted_and_the_others_are_named() -> None:
    told = fleet(64, gpus=0)
    told["gpu17"]["driver"] = told["gpu41"]["driver"] = "580.142"
    assert sentences(told)[0] == "driver 580.159.03 on 62 nodes, 580.142 on gpu[17,41]"


def test_a_tie_has_no_majority_and_says_so() -> None:
    (row,) = compare({"n1": {"a": "1"}, "n2": {"a": "2"}}).rows
    assert (row.agreement, row.majority, row.minority) == (Agreement.DIFFERS, None, ())
    assert row.sentence == "a 1 on n1, 2 on n2: no majority"


def test_more_than_any_other_value_is_no_majority() -> None:
    told = {f"n{n}": {"a": value} for n, value in enumerate("xxxyyz")}
    assert sentences(told) == ["a x on n[0-2], y on n[3-4], z on n5: no majority"]


def test_nodes_that_do_not_tell_can_take_a_majority_away() -> None:
    values: list[str | Unknown] = ["x", "x", "y", Unknown("no NVML")]
    (row,) = compare({f"n{n}": {"a": value} for n, value in enumerate(values)}).rows
    assert row.agreement is Agreement.DIFFERS
    assert row.sentence == "a x on n[0-1], y on n2, unknown (no NVML) on n3: no majority"


def test_one_node_proves_no_agreement() -> None:
    found = compare({"n1": {"a": "1"}})
    assert found.agreement is Agreement.ALONE
    assert found.rows[0].sentence == "a 1 on n1 alone: one node proves no agreement"


def test_nothing_told_is_nothing_compared() -> None:
    assert compare({}).agreement is Agreement.NOTHING
    assert compare({"n1": {}, "n2": {}}).agreement is Agreement.UNKNOWN


def test_an_unknown_fact_is_no_agreement_and_no_difference() -> None:
    (row,) = compare({"n1": {"a": "1"}, "n2": {"a": "1"}, "n3": {"a": Unknown("no permission")}}).rows
    assert row.agreement is Agreement.UNKNOWN
    assert row.sentence == "a 1 on 2 nodes, unknown (no permission) on n3"
    assert sentences({"n1": {"a": Unknown("x")}, "n2": {"a": Unknown("x")}}) == ["a unknown (x) on both nodes"]
    few: list[str | Unknown] = [Unknown("x"), "1", Unknown("x"), Unknown("x")]
    assert sentences({f"n{n}": {"a": value} for n, value in enumerate(few)}) == ["a 1 on n1, unknown (x) on n[0,2-3]"]
    (alone,) = compare({"n1": {"a": Unknown("x")}}).rows
    assert alone.agreement is Agreement.UNKNOWN


def test_a_fact_that_a_node_lacks_is_a_difference_and_not_unknown() -> None:
    (row,) = compare({"n1": {"a": "1"}, "n2": {"a": "1"}, "n3": {"b": "1"}}).that(Agreement.DIFFERS)[:1]
    assert row.sentence == "a 1 on 2 nodes, not there on n3"


def test_a_node_that_told_nothing_is_named_once_and_the_fleet_is_not_known_to_agree() -> None:
    told: dict[str, Mapping[str, str] | Unknown] = {**fleet(3), "gpu9": Unknown("timed out"), "gpu10": {}}
    found = compare(told)
    assert found.silent == (("gpu9", "timed out"), ("gpu10", "it told no facts"))
    assert found.agreement is Agreement.UNKNOWN
    assert {row.agreement for row in found.rows} == {Agreement.AGREES}


def test_one_fact_of_eight_gpus_is_one_row() -> None:
    told = fleet(3, facts=1)
    assert "gpu[0-7].a value 0 on all 3 nodes" in sentences(told)
    told["gpu2"]["gpu5.a"] = "worn"
    assert sentences(told)[0] == "gpu5.a value 0 on 2 nodes, worn on gpu2"
    assert "gpu[0-4,6-7].a value 0 on all 3 nodes" in sentences(told)


def test_a_gpu_that_is_gone_is_one_row_and_not_one_for_each_of_its_facts() -> None:
    told = fleet(62)
    for key in [key for key in told["gpu17"] if key.startswith(("gpu6.", "gpu7."))]:
        del told["gpu17"][key]
    found = compare(told)
    assert [row.sentence for row in found.that(Agreement.DIFFERS)] == [
        "gpu[6-7].* (30 facts) there on 61 nodes, not there on gpu17"
    ]
    assert found.odd == (("gpu17", 30),)


@pytest.mark.parametrize("kept", ["value 2", "worn", Unknown("no permission")])
def test_a_thing_of_which_a_node_tells_a_single_fact_is_not_said_to_be_missing(kept: str | Unknown) -> None:
    told = fleet(5, gpus=1, facts=3)
    del told["gpu4"]["gpu0.a"], told["gpu4"]["gpu0.b"]
    told["gpu4"]["gpu0.c"] = kept
    assert {"gpu0.a", "gpu0.b", "gpu0.c"} <= {row.name for row in compare(told).rows}


def test_nodes_of_several_groups_are_named_in_order() -> None:
    told: Told = {f"n{n}": {"a": "1" if n < 7 else "2"} for n in range(10)}
    groups = {host: "xy"[n % 2] for n, host in enumerate(told)}
    (row,) = compare(told, group_of=groups, everywhere=lambda _: True).rows
    assert [list(share.hosts) for share in row.shares] == [[f"n{n}" for n in range(7)], ["n7", "n8", "n9"]]


def test_a_node_that_can_not_list_its_gpus_does_not_lack_them() -> None:
    told = fleet(4)
    told["gpu3"] = {key: value for key, value in told["gpu3"].items() if "." not in key}
    told["gpu3"]["gpu*"] = Unknown("no NVML")
    found = compare(told)
    assert found.agreement is Agreement.UNKNOWN
    assert [row.sentence for row in found.that(Agreement.UNKNOWN)] == [
        "gpu[0-7].* (120 facts) known and alike on 3 nodes, unknown (no NVML) on gpu3"
    ]


def test_what_is_unknown_of_things_that_no_other_node_has_is_still_told() -> None:
    told: Told = {"n1": {"a": "1"}, "n2": {"a": "1", "gpu*": Unknown("no NVML")}}
    assert compare(told).agreement is Agreement.UNKNOWN
    assert sentences(told)[0] == "gpu* not there on n1, unknown (no NVML) on n2"


def test_groups_of_other_hardware_are_no_drift_of_each_other() -> None:
    told = {
        host: {"gpu0.name": kind, "driver": "580"} for kind in ("A100", "H200") for host in (f"{kind}a", f"{kind}b")
    }
    group_of = {host: host[:4] for host in told}
    assert compare(told).agreement is Agreement.DIFFERS
    assert compare(told, group_of=group_of).agreement is Agreement.AGREES
    told["H200b"]["driver"] = told["H200a"]["driver"] = "575"
    assert compare(told, group_of=group_of).agreement is Agreement.AGREES
    apart = compare(told, group_of=group_of, everywhere="driver".__eq__)
    (row,) = apart.that(Agreement.DIFFERS)
    assert row.sentence == "driver 580 on A100a,A100b, 575 on H200a,H200b: no majority"
    assert "H200: gpu0.name H200 on both nodes" in [row.sentence for row in apart.rows]


def test_a_group_that_has_no_such_thing_is_not_compared_in_it() -> None:
    told: Told = {"g1": {"nccl": "1"}, "g2": {"nccl": "1"}, "c1": {"os": "x"}, "c2": {"os": "x"}}
    groups = {"g1": "gpu", "g2": "gpu", "c1": "cpu", "c2": "cpu"}
    assert sentences(told, group_of=groups, everywhere=lambda _: True) == [
        "gpu: nccl 1 on both nodes",
        "cpu: os x on both nodes",
    ]


def test_what_names_an_odd_node_comes_before_what_is_split_and_what_agrees_comes_last() -> None:
    told = fleet(6, gpus=0)
    told["gpu2"]["nccl"] = "2.27"
    for host in ("gpu1", "gpu2"):
        told[host]["kernel"] = "6.8.0-44"
    for host, facts in told.items():
        facts["serial"] = host
    told["gpu3"]["driver"] = Unknown("no NVML")
    assert [row.name for row in compare(told).rows] == ["nccl", "kernel", "serial", "driver", "os"]


def test_the_node_that_differs_most_is_first_among_the_odd() -> None:
    told = fleet(5)
    told["gpu4"] |= {"driver": "x", "kernel": "x"}
    told["gpu2"]["os"] = "x"
    assert compare(told).odd == (("gpu4", 2), ("gpu2", 1))


def test_many_values_are_counted_and_their_nodes_named() -> None:
    told = {f"n{n}": {"serial": f"s{n}"} for n in range(100)}
    assert sentences(told) == ["serial s0 on n0, s1 on n1, s2 on n2, s3 on n3, 96 more values on n[4-99]: no majority"]


@QUICK
@given(st.text(max_size=150), st.text(max_size=150), st.text(max_size=40))
def test_unlike_values_never_look_alike(start: str, one: str, end: str) -> None:
    (row,) = compare({"n1": {"a": f"{start}{one}{end}"}, "n2": {"a": f"{start}x{one}{end}"}}).rows
    shown = [share["value"] for share in row.cells()["shares"]]
    assert len(set(shown)) == 2
    assert all(text.isprintable() for text in shown)


def test_long_values_are_shown_where_they_differ_and_whole_where_that_is_in_several_places() -> None:
    options = "rw,relatime,vers=4.2,rsize=1048576,wsize=1048576,namlen=255,hard,proto=tcp,timeo="
    assert sentences({"n1": {"a": f"{options}600,x"}, "n2": {"a": f"{options}100,x"}}) == [
        "a …o=tcp,timeo=600,x on n1, …o=tcp,timeo=100,x on n2: no majority"
    ]
    values = [f"{options}600", f"{options}100", "ro"]
    (row,) = compare({f"n{n}": {"a": value} for n, value in enumerate(values)}).rows
    assert [share["value"] for share in row.cells()["shares"]] == values


@pytest.mark.parametrize("value", ["unknown (no NVML)", "not there", ""])
def test_a_value_that_reads_like_the_lack_of_one_is_quoted(value: str) -> None:
    assert sentences({"n1": {"a": value}, "n2": {"a": value}}) == [f"a {value!r} on both nodes"]


def large(hosts: int, gpus: int, facts: int, others: int) -> Told:
    """A fleet with a few drifts of each kind, and three facts in which the nodes are of many kinds."""
    dice = random.Random(7)
    node = {f"software{chr(97 + n % 26)}{n}": f"version {n}.0" for n in range(others)}
    node |= {f"gpu{g}.fact{chr(97 + f)}": f"value {f}" for g in range(gpus) for f in range(facts)}
    told: Told = {f"gpu{number:04d}": dict(node) for number in range(hosts)}
    for host in dice.sample(sorted(told), 20):
        told[host][dice.choice(sorted(node))] = dice.choice(["another", Unknown("no permission")])
    for key in dice.sample(sorted(node), 3):
        for facts_of in told.values():
            facts_of[key] = dice.choice("xyz")
    return told


@pytest.mark.slow
@pytest.mark.parametrize(("hosts", "gpus", "facts", "others"), [(1000, 0, 0, 200), (512, 8, 30, 0)])
def test_a_thousand_nodes_are_compared_and_told_within_a_second_and_200_mb(
    hosts: int, gpus: int, facts: int, others: int, record_property: pytest.RecordProperty
) -> None:
    told = large(hosts, gpus, facts, others)

    def work() -> tuple[Fleet, list[str], str]:
        found = compare(told)
        return found, [row.sentence for row in found.rows], json.dumps(found.cells())

    start_s = time.process_time()  # not the wall clock: the machine may be busy with something else
    work()
    took_s = time.process_time() - start_s
    tracemalloc.start()
    kept = work()
    peak_mb = tracemalloc.get_traced_memory()[1] / 1e6
    tracemalloc.stop()
    record_property("seconds", took_s)
    print(f"{took_s:.2f} s of CPU, {peak_mb:.0f} MB at most, {len(kept[0].rows)} rows, {len(kept[2]):,} bytes of JSON")  # noqa: T201
    assert took_s < 1
    assert peak_mb < 200
