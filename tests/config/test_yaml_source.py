"""YAML becomes data with places, or one sentence that names file and line."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from surefoot.config.yaml_source import Position, parse_value, parse_yaml, read_yaml
from surefoot.errors import ConfigError


def refusal(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_yaml(text, file="f.yaml")
    assert caught.value.next_action
    return caught.value.message


def test_every_key_and_every_item_has_its_line_and_column() -> None:
    source = parse_yaml("# first\na: 1\nb:\n  - x\n  - c: 2\n    d: [p, q]\n", file="f.yaml")
    assert source.data == {"a": 1, "b": ["x", {"c": 2, "d": ["p", "q"]}]}
    assert source.positions == {
        (): Position(2, 1),
        ("a",): Position(2, 1),
        ("b",): Position(3, 1),
        ("b", 0): Position(4, 5),
        ("b", 1): Position(5, 5),
        ("b", 1, "c"): Position(5, 5),
        ("b", 1, "d"): Position(6, 5),
        ("b", 1, "d", 0): Position(6, 9),
        ("b", 1, "d", 1): Position(6, 12),
    }


def test_a_place_that_is_not_in_the_file_takes_the_line_of_what_is_around_it() -> None:
    source = parse_yaml("a: 1\nb:\n  c: 2\n", file="f.yaml")
    assert source.line(("b", "missing", 3)) == 2
    assert source.line(("missing",)) == 1


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5e-5", 5e-5),
        ("1.0", 1.0),
        (".5", 0.5),
        ("017", 17),
        ("0x1f", 31),
        ("0o17", 15),
        ("-3", -3),
        ("true", True),
        ("False", False),
        ("yes", "yes"),
        ("off", "off"),
        ("1:30", "1:30"),
        ("2026-11-29", "2026-11-29"),
        ("1_000", "1_000"),
        ("~", None),
        ("", None),
        ('""', ""),
        ("'8'", "8"),
        ("3.11", 3.11),
        ("32MiB", "32MiB"),
        ("<<", "<<"),
    ],
)
def test_scalars_are_those_of_yaml_1_2(text: str, value: Any) -> None:
    if text == "<<":  # it merges as a key only; as a value it is no value at all
        with pytest.raises(ConfigError, match="!!merge"):
            parse_value(text, file="value")
        return
    found = parse_value(text, file="value")
    assert found == value
    assert type(found) is type(value)


def test_infinity_and_nan_are_read_as_what_they_are() -> None:
    assert parse_value("-.inf", file="v") == -math.inf
    assert math.isnan(parse_value(".nan", file="v"))


def test_a_key_that_stands_twice_is_refused_with_both_lines() -> None:
    assert refusal("a: 1\nb:\n  c: 1\n  d: 2\n  c: 3\n") == "f.yaml:5: key 'c' stands twice (first in line 3); keep one"


@pytest.mark.parametrize(("key", "advice"), [("8", '"8"'), ("true", '"true"'), ("null", '"null"'), ("1.5", '"1.5"')])
def test_a_key_that_is_no_text_is_refused_with_what_to_write(key: str, advice: str) -> None:
    assert refusal(f"a: 1\n{key}: 2\n") == f"f.yaml:2: key {key} is not text; write {advice}"


def test_a_key_that_is_a_list_is_refused() -> None:
    assert refusal("? [a, b]\n: 1\n") == "f.yaml:1: a key is text, not a list"


@pytest.mark.parametrize("text", ["", "\n\n", "# only a comment\n", "---\n", "~\n", "\ufeff"])
def test_a_file_with_nothing_in_it_is_said_to_be_empty(text: str) -> None:
    assert "empty" in refusal(text)


def test_a_file_that_is_no_mapping_is_refused() -> None:
    assert refusal("- a\n- b\n") == "f.yaml:1: the file is a list, not a mapping of keys to values"
    assert "a single value" in refusal("# c\nhello\n")


def test_a_second_document_is_refused_at_its_line() -> None:
    assert refusal("a: 1\n---\nb: 2\n").startswith("f.yaml:3: a second document begins here")


@pytest.mark.parametrize("text", ["a:\n\tb: 1\n", "a: 1\nb:\n  c: 1\n\td: 2\n", "a:\n  - x\n\t- y\n"])
def test_a_tab_is_called_a_tab(text: str) -> None:
    line = next(n for n, row in enumerate(text.split("\n"), 1) if "\t" in row)
    assert refusal(text) == f"f.yaml:{line}: a tab stands where YAML allows only spaces"


@pytest.mark.parametrize(
    ("text", "line"),
    [("a: 1\nb: c: d\n", 2), ("a: [1, 2\nb: 3\n", 2), ('a: "open\n', 2), ("a: 1\n b: 2\n", 2), ("a: *nothing\n", 1)],
)
def test_a_syntax_error_names_its_line(text: str, line: int) -> None:
    assert refusal(text).startswith(f"f.yaml:{line}: not valid YAML: ")


def test_a_character_that_yaml_forbids_names_its_line() -> None:
    assert refusal("a: 1\nb: \x00\n").startswith("f.yaml:2: character ")


@pytest.mark.parametrize("text", ["a: !!python/object:os.system x\n", "a: !mine [1]\n", "a: !!set {x: ~}\n"])
def test_tags_are_refused(text: str) -> None:
    assert refusal(text).startswith("f.yaml:1: tag !")


def test_anchors_and_merges_give_the_data_and_the_lines_where_it_was_written() -> None:
    text = "base: &b\n  x: 1\n  y: 2\nuse:\n  <<: *b\n  y: 3\nlist: [*b]\n"
    source = parse_yaml(text, file="f.yaml")
    assert source.data["use"] == {"x": 1, "y": 3}
    assert source.data["list"] == [{"x": 1, "y": 2}]
    assert source.line(("use", "x")) == 2
    assert source.line(("use", "y")) == 6
    assert not any("<<" in at for at in source.positions)


def test_of_two_merges_the_first_counts() -> None:
    source = parse_yaml("a: &a {x: 1}\nb: &b {x: 2, y: 2}\nc:\n  <<: [*a, *b]\n", file="f.yaml")
    assert source.data["c"] == {"x": 1, "y": 2}
    assert source.line(("c", "x")) == 1


def test_a_merge_of_a_value_is_refused() -> None:
    assert "`<<` takes a mapping" in refusal("a: &a 1\nb:\n  <<: *a\n")


def test_an_alias_inside_what_it_names_is_refused() -> None:
    assert "an alias" in refusal("a: &a [1, *a]\n")
    assert "an alias" in refusal("a: &a\n  b: *a\n")


def test_aliases_that_multiply_are_stopped() -> None:
    rows = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    rows += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    assert "multiply" in refusal("\n".join(rows))


def test_a_number_without_end_is_refused() -> None:
    assert "too many digits" in refusal(f"a: {'9' * 10_000}\n")


def test_deep_nesting_is_refused() -> None:
    assert "too deeply" in refusal("a: " + "[" * 5000 + "]" * 5000)


def test_bytes_that_are_not_utf_8_are_named(tmp_path: Path) -> None:
    path = tmp_path / "latin.yaml"
    path.write_bytes(b"a: 1\nb: caf\xe9\n")
    with pytest.raises(ConfigError, match=r"latin.yaml:2: not UTF-8 \(byte 11 is 0xe9\)"):
        read_yaml(path)


def test_a_file_keeps_its_text_verbatim(tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    raw = "\ufeffa: 1\r\n# end".encode()
    path.write_bytes(raw)
    source = read_yaml(path, file="shown.yaml")
    assert source.text.encode() == raw
    assert source.data == {"a": 1}
    assert source.file == "shown.yaml"


@pytest.mark.parametrize("folder", [True, False])
def test_a_file_that_cannot_be_read_is_an_error_of_the_request(tmp_path: Path, folder: bool) -> None:
    if folder:
        (tmp_path / "f.yaml").mkdir()
    with pytest.raises(ConfigError, match=r"f\.yaml: cannot be read: "):
        read_yaml(tmp_path / "f.yaml")


words = st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"]), max_size=8)
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | words,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(words, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(words, plain, min_size=1, max_size=4))
def test_json_is_yaml_and_comes_back_as_it_was(data: dict[str, Any]) -> None:
    assert parse_yaml(json.dumps(data), file="f").data == data


def test_half_a_character_is_refused() -> None:
    assert "half a character" in refusal('a: "\\ud83d"\n')
    assert parse_yaml('a: "\\U0001f600"\n', file="f").data == {"a": "\U0001f600"}


@given(st.text(max_size=60))
@example("a: &a\n  <<: *a")
@example("? ? a")
@example("- !!binary x")
@example("%YAML 9.9\n---\na: 1")
def test_any_text_is_data_or_a_config_error(text: str) -> None:
    message, places = "", {}
    try:
        places = parse_yaml(text, file="f.yaml").positions
    except ConfigError as error:
        message = error.message
    assert message.startswith("f.yaml:") or () in places


def test_what_pyyaml_writes_is_read_back() -> None:
    data = {"a": [1, 2.5, "yes", "8", None, {"b": True}], "c": "two\nlines"}
    assert parse_yaml(yaml.safe_dump(data), file="f").data == data
