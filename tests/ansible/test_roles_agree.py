"""Every role says what it can be told: defaults, their comments and the argument specs agree."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

ROLES = sorted(path.parents[1] for path in (Path(__file__).parents[2] / "ansible/roles").glob("*/defaults/main.yml"))


def test_there_are_roles() -> None:
    assert {"common", "munge", "storage"} <= {role.name for role in ROLES}


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_each_default_is_typed_and_described_and_has_the_prefix_of_its_role(role: Path) -> None:
    defaults = yaml.safe_load((role / "defaults/main.yml").read_text())
    options = yaml.safe_load((role / "meta/argument_specs.yml").read_text())["argument_specs"]["main"]["options"]
    assert set(defaults) - set(options) == set(), "in defaults, and not in argument_specs"
    for name, option in options.items():
        assert name.startswith(f"{role.name}_")
        assert option.get("type"), name
        assert option.get("description"), name


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_each_default_is_explained_by_a_comment(role: Path) -> None:
    lines = (role / "defaults/main.yml").read_text().splitlines()
    assert undocumented(lines) == []


def test_a_default_without_a_comment_is_seen() -> None:
    assert undocumented(["# why", "a_b: 1", "", "a_c: 2"]) == ["a_c"]


def undocumented(lines: list[str]) -> list[str]:
    """Names without a comment in the block of lines that they stand in."""
    found, explained = [], False
    for line in lines:
        if not line.strip():
            explained = False
        elif line.startswith("#"):
            explained = True
        elif (name := re.match(r"(\w+):", line)) and not explained and "#" not in line:
            found.append(name[1])
    return found
