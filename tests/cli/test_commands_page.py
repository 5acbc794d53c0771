"""docs/commands.md tells of every command and every option, and of none that is not there."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from surefoot.cli import COMMANDS, cli

PAGE = (Path(__file__).parents[2] / "docs" / "commands.md").read_text()


def command(name: str) -> click.Command:
    found = cli.get_command(click.Context(cli), name)
    assert found is not None
    return found


def parameters(name: str) -> list[click.Option]:
    """Options of a command, and of the commands below it where it is a group."""
    found = command(name)
    parts = [found, *found.commands.values()] if isinstance(found, click.Group) else [found]
    return [p for part in parts for p in part.params if isinstance(p, click.Option)]


def options(name: str) -> set[str]:
    return {word for p in parameters(name) for word in p.opts} - {"--help"}


def opposites(name: str) -> set[str]:
    """``--no-python`` of ``--python/--no-python``."""
    return {word for p in parameters(name) for word in p.secondary_opts}


def section(name: str) -> str:
    match = re.search(rf"^## `{name}`\n(.*?)(?=^## )", PAGE, re.MULTILINE | re.DOTALL)
    assert match, f"no section of {name}"
    return match.group(1)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_page_has_every_option_of_a_command(name: str) -> None:
    told = set(re.findall(r"--[a-z][a-z-]+", section(name)))
    assert options(name) <= told


def test_the_page_has_no_option_that_is_not_there() -> None:
    there = set().union(*(options(name) | opposites(name) for name in COMMANDS)) | {"--help"}
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", PAGE)) <= there


def test_every_command_in_the_page_exists() -> None:
    assert set(re.findall(r"^(?:\$ )?surefoot ([a-z]+)", PAGE, re.MULTILINE)) <= set(COMMANDS)
