"""Options that several commands take."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

import click

from surefoot.paths import DEFAULT_ROOT, RootPaths, usable_root

C = TypeVar("C", bound=Callable[..., Any])


def together(*options: Callable[[C], C]) -> Callable[[C], C]:
    """Options that go with each other, as one decorator; help lists them in this order."""

    def with_all(command: C) -> C:
        for option in reversed(options):
            command = option(command)
        return command

    return with_all


def configuration_options(command: C) -> C:
    """``--cluster --ladder --recipe --policy --root --set``."""
    return together(
        click.option("--cluster", metavar="FILE|NAME", help="Where to climb.  [default: local]"),
        click.option("--ladder", metavar="FILE|NAME", help="Which rungs, in which order.  [default: local]"),
        click.option("--recipe", metavar="FILE|NAME", help="What is fine-tuned.  [default: demo]"),
        click.option("--policy", metavar="FILE|NAME", help="The gate's policy.  [default: seed]"),
        click.option(
            "--root",
            metavar="DIR",
            envvar="SUREFOOT_ROOT",
            help="Where runs lie on this machine: the shared root, or over ssh the folder that records are kept in.",
        ),
        click.option("--set", "settings", multiple=True, metavar="RUNG.KEY=VALUE", help="Set a rung's parameter."),
    )(command)


def root_option(command: C) -> C:
    """``--root`` of commands that look at runs."""
    return click.option(
        "--root", metavar="DIR", envvar="SUREFOOT_ROOT", default=DEFAULT_ROOT, show_default=True, help="Where runs lie."
    )(command)


def json_option(command: C) -> C:
    """``--json``."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON for programs, and nothing else.")(command)


def root_paths(root: str | None) -> RootPaths:
    """Paths below `root`, the environment's, or the default. Raises RequestError for a name that cannot be used."""
    return RootPaths(usable_root(root or os.environ.get("SUREFOOT_ROOT") or DEFAULT_ROOT))


def take_over_option(command: C) -> C:
    """``--take-over``."""
    return click.option(
        "--take-over", is_flag=True, help="A process on another host that holds this run is gone: take its place."
    )(command)
