"""Data sources: templates, formats, samples; errors name file, line and column."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from surefoot.errors import RequestError
from surefoot.model.recipe import TaskSource
from surefoot.model.score import Task
from surefoot.training.rows import read_rows, tasks_of

OWN = {"id": "a", "category": "closed_qa", "prompt": "Who?", "answer": "Ada"}


def tasks(path: Path, **source: Any) -> list[Task]:
    asked = TaskSource(source=f"path:{path}", **source)
    return tasks_of(read_rows(path, asked.format)[0], asked, name=str(path))


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_rows_in_our_own_form_need_nothing_but_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, "own.jsonl", json.dumps(OWN) + "\n")
    assert tasks(path) == [Task(**OWN, scorer="qa")]


def test_csv_with_templates_keeps_commas_quotes_and_line_ends(tmp_path: Path) -> None:
    path = write(tmp_path, "b.csv", 'text,category\n"I still, have ""not""\nreceived it",card_arrival\nHello,greet\n')
    found = tasks(path, format="csv", prompt="Message: {text}", answer="{category}", category="classification")
    assert [t.prompt for t in found] == ['Message: I still, have "not"\nreceived it', "Message: Hello"]
    assert [t.id for t in found] == ["b-000001", "b-000002"]
    assert {(t.category, t.scorer) for t in found} == {("classification", "exact")}


def test_nested_json_is_reached_by_dots_and_written_as_json(tmp_path: Path) -> None:
    rows = [{"userInput": {"text": "13 people"}, "labels": [{"slot": "people", "span": {"end": 2}}]}]
    path = write(tmp_path, "r.json", json.dumps(rows))
    found = tasks(
        path, format="json", prompt="{userInput.text}", category="json_extraction", scorer="json",
        answer='{{"slot": "{labels[0].slot}", "all": {labels!j}}}',
    )  # fmt: skip
    assert json.loads(found[0].answer) == {"slot": "people", "all": rows[0]["labels"]}


@pytest.mark.parametrize(
    ("name", "text", "source", "told"),
    [
        ("a.jsonl", '{"id": "a"}\n', {}, r"a\.jsonl:1: no text in column 'category'"),
        ("a.jsonl", json.dumps(OWN) + "\n{oops\n", {}, r"a\.jsonl:2: not valid JSON"),
        ("a.jsonl", json.dumps(OWN) + "\n\n" + json.dumps(OWN) + "\n", {}, r"a\.jsonl:2: not valid JSON"),
        ("a.jsonl", "[1]\n", {}, r"a\.jsonl:1: a row is a JSON object"),
        ("a.jsonl", "", {}, r"a\.jsonl: holds no rows"),
        ("a.jsonl", json.dumps(OWN) + "\n" + json.dumps(OWN) + "\n", {}, r"a\.jsonl:2: id 'a' stands at .*:1 too"),
        ("a.jsonl", json.dumps({**OWN, "prompt": ""}) + "\n", {}, r"a\.jsonl:1: prompt: "),
        ("a.jsonl", json.dumps({**OWN, "scorer": "fuzzy"}) + "\n", {}, r"a\.jsonl:1: scorer: "),
        ("a.jsonl", json.dumps(OWN) + "\n", {"prompt": "{txt}"}, r"a\.jsonl:1: the prompt template .* asks for 'txt'"),
        ("a.jsonl", json.dumps(OWN) + "\n", {"prompt": "{id"}, r"the prompt template '\{id' is not a template"),
        ("a.jsonl", json.dumps(OWN) + "\n", {"rows": 2}, "2 rows are asked for, it holds 1"),
        ("a.json", "{}", {"format": "json"}, r"a\.json: a data file in JSON is a list of objects"),
        ("a.json", json.dumps([OWN, 3]), {"format": "json"}, r"a\.json item 2: a row is a JSON object"),
        ("a.csv", "x,y\n1,2\n3\n", {"format": "csv"}, r"a\.csv:3: fewer fields than the header's 2"),
        ("a.csv", "x,y\n1,2,3\n", {"format": "csv"}, r"a\.csv:2: more fields than the header's 2"),
        ("a.csv", 'x,y\n"1,2\n', {"format": "csv"}, r"a\.csv:2: not valid CSV"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_as_asked_names_its_place(
    tmp_path: Path, name: str, text: str, source: dict[str, Any], told: str
) -> None:
    path = write(tmp_path, name, text)
    with pytest.raises(RequestError, match=told):
        tasks(path, **source)


def test_a_missing_file_and_one_in_another_encoding_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="No such file"):
        read_rows(tmp_path / "none.jsonl", "jsonl")
    path = tmp_path / "latin.jsonl"
    path.write_bytes(b'{"a": "\xe9"}\n')
    with pytest.raises(RequestError, match="not UTF-8 at byte 7"):
        read_rows(path, "jsonl")


def test_a_sample_is_stable_in_order_and_hardly_moves_when_rows_are_added(tmp_path: Path) -> None:
    def sample(count: int, seed: int) -> list[str]:
        lines = [json.dumps({**OWN, "id": f"{n:03d}"}) + "\n" for n in range(count)]
        return [t.id for t in tasks(write(tmp_path, "s.jsonl", "".join(lines)), rows=20, seed=seed)]

    first = sample(100, 1)
    assert first == sample(100, 1) == sorted(first)
    assert len(first) == 20
    assert first != sample(100, 2)
    assert len(set(first) - set(sample(101, 1))) <= 1
