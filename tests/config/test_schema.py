"""The printed schemas accept what the loader accepts, and say what each key is for."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest

from surefoot.config.load import Kind, shipped_folder, shipped_names
from surefoot.config.schema import DIALECT, json_schema
from surefoot.config.yaml_source import parse_yaml, read_yaml

KINDS: list[Kind] = ["cluster", "ladder", "recipe", "policy"]


def problems(kind: Kind, data: Any) -> list[str]:
    return [error.message for error in jsonschema.Draft202012Validator(json_schema(kind)).iter_errors(data)]


@pytest.mark.parametrize("kind", KINDS)
def test_the_schema_is_a_schema_with_a_name(kind: Kind) -> None:
    schema = json_schema(kind)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == DIALECT
    assert schema["$id"] == f"urn:surefoot:schema:{kind}"
    assert schema["title"] == f"Surefoot {kind}"
    assert schema["description"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_shipped_file_is_valid_by_its_schema(kind: Kind) -> None:
    for name in shipped_names(kind):
        data = read_yaml(shipped_folder(kind) / f"{name}.yaml").data
        assert problems(kind, data) == [], name


def ladder(**keys: Any) -> dict[str, Any]:
    return {"name": "x", "rungs": [{"rung": "collectives", **keys}]}


@pytest.mark.parametrize("size", [8, 0, "8", "64K", "32MiB", "1.5 GiB", "16g", "8B"])
def test_sizes_in_words_are_valid(size: Any) -> None:
    assert problems("ladder", ladder(max_size=size)) == []


@pytest.mark.parametrize(
    "keys",
    [
        {"max_size": "1 cow"},
        {"max_size": -1},
        {"max_size": True},
        {"max_sise": 8},
        {"ranks_per_node": "atuo"},
        {"ranks_per_node": 0},
        {"collectives": ["all_gathr"]},
        {"min_busbw_gb_s": {"all_redcue": 1}},
        {"rung": "colectives"},
    ],
)
def test_what_the_loader_refuses_is_invalid(keys: dict[str, Any]) -> None:
    assert problems("ladder", ladder(**keys))


def test_keys_are_described_by_the_records_own_words() -> None:
    schema = json_schema("ladder")
    keys = schema["$defs"]["Collectives"]["properties"]
    assert keys["max_size"]["description"].startswith("Largest message in bytes")
    assert schema["$defs"]["Collectives"]["description"].startswith("Ranks find each other")
    assert json_schema("cluster")["properties"]["env"]["description"].startswith("Environment of every job")


def test_yaml_that_pyyaml_would_read_as_text_is_a_number_here() -> None:
    data = parse_yaml(
        "name: x\nbase: hf:a/b\ntrain: {source: 'hf:a/c'}\nevaluate: {source: 'hf:a/d'}\nlearning_rate: 5e-5\n",
        file="f",
    ).data
    assert problems("recipe", data) == []
