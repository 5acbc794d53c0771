"""What ``nccl-tests -J`` writes is read like its table, and nothing of the environment in it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from nccl_tests_written import GOLDEN
from surefoot.benchmarks.nccl_tests import doubts, wrong_values
from surefoot.benchmarks.nccl_tests_json import read_json
from surefoot.benchmarks.nccl_tests_text import read_text
from surefoot.errors import EvidenceError

NAME = "healthy-1-all_reduce"
CAPTURE = (GOLDEN / f"{NAME}.json").read_text()


def changed(change: Callable[[dict[str, Any]], Any]) -> str:
    said = json.loads(CAPTURE)
    change(said)
    return json.dumps(said)


def test_it_tells_what_the_table_of_the_same_test_tells() -> None:
    said = read_json(CAPTURE, f"{NAME}.json")
    (printed,) = read_text((GOLDEN / f"{NAME}.log").read_text(), f"{NAME}.log")
    assert (said.collective, said.world_size, said.nccl) == (printed.collective, printed.world_size, printed.nccl)
    assert len(said.rows) == len(printed.rows) == 30
    for ours, theirs in zip(said.rows, printed.rows, strict=True):
        assert (ours.size_bytes, ours.count, ours.datatype, ours.redop, ours.root) == (
            theirs.size_bytes, theirs.count, theirs.datatype, theirs.redop, theirs.root,
        )  # fmt: skip
        for one, two in zip(ours.placements, theirs.placements, strict=True):
            assert one.time_us == pytest.approx(two.time_us, abs=0.051, rel=1e-4)
            assert one.busbw_gb_s == pytest.approx(two.busbw_gb_s, abs=0.0051)
            assert (one.wrong, one.spread is None) == (two.wrong, two.spread is None)
    assert doubts(said, ranks=2) == []


def test_nothing_of_the_environment_is_kept() -> None:
    said = read_json(changed(lambda said: said["env"].append("HF_TOKEN=hf_not_for_you")), f"{NAME}.json")
    assert "hf_not_for_you" not in json.dumps(said.canonical())


DAMAGES: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "no end": (lambda said: said.update(end_time=""), "has no end"),
    "no such key": (lambda said: said.pop("end_time"), "has no end"),
    "an error": (lambda said: said["errors"].append("unhandled cuda error"), "unhandled cuda error"),
    "no results": (lambda said: said.update(results=[]), "no row"),
    "a size less": (lambda said: said["results"].pop(7), "has 29 sizes of 30"),
    "a size twice": (lambda said: said["results"].insert(7, said["results"][7]), "has 31 sizes of 30"),
    "sizes changed places": (lambda said: said["results"].reverse(), "bytes where 8 follow"),
    "another time": (lambda said: said["results"][20]["out_of_place"].update(time=1.0), "are not"),
    "another bandwidth": (lambda said: said["results"][20]["in_place"].update(bus_bw=999.0), "is not"),
    "another mean": (lambda said: said["average_bus_bandwidth"].update(bandwidth=1.0), "rows were changed"),
    "more ranks": (lambda said: said["config"].update(ngpus=8), "is not"),
    "no time": (lambda said: said["results"][3]["in_place"].update(time=None), "is not what nccl-tests writes"),
    "a list for a size": (lambda said: said["results"][3].update(size=[8]), "is not what nccl-tests writes"),
    "not a number": (lambda said: said["results"][3]["in_place"].update(time="nan"), "nccl-tests writes"),
    "no configuration": (lambda said: said.pop("config"), "is not what nccl-tests writes"),
    "no count out of bounds": (lambda said: said.pop("out_of_bounds"), "is not what nccl-tests writes"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_what_is_not_whole_is_refused(name: str) -> None:
    change, told = DAMAGES[name]
    with pytest.raises(EvidenceError, match=told) as caught:
        read_json(changed(change), f"{NAME}.json")
    assert caught.value.file == f"{NAME}.json"


@pytest.mark.parametrize("cut", [1, 100, len(CAPTURE) // 2, len(CAPTURE) - 3])
def test_a_document_that_was_cut_off_is_refused_with_its_line(cut: int) -> None:
    with pytest.raises(EvidenceError, match="no whole JSON document") as caught:
        read_json(CAPTURE[:cut], "x.json")
    assert caught.value.line is not None


def test_wrong_elements_disprove_and_values_not_validated_are_doubted() -> None:
    wrong = read_json(changed(lambda said: said["results"][9]["in_place"].update(nwrong=4)), f"{NAME}.json")
    assert "elements came out wrong at 4 KiB" in wrong_values(wrong)
    assert wrong_values(read_json(changed(lambda said: said["out_of_bounds"].update(count=2)), f"{NAME}.json"))
    for no in (0, "0", "false"):
        unseen = read_json(changed(lambda said, no=no: said["config"].update(validation=no)), f"{NAME}.json")  # type: ignore[misc]
        assert doubts(unseen) == ["values were not validated (-c 0)"]


def test_a_number_of_thousands_of_digits_is_refused() -> None:
    with pytest.raises(EvidenceError, match="no whole JSON document"):
        read_json(re.sub(r'("rank": *)0', rf"\g<1>{'9' * 5000}", CAPTURE), f"{NAME}.json")
