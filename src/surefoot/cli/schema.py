"""``surefoot schema``."""

from __future__ import annotations

import json

import click

from surefoot.config.schema import json_schema


@click.command("schema")
@click.argument("kind", type=click.Choice(["cluster", "ladder", "recipe", "policy"]))
def schema_command(*, kind: str) -> int:
    """Print the JSON schema of a configuration file, for editors: they complete and check it as you type."""
    click.echo(json.dumps(json_schema(kind), indent=2))  # type: ignore[arg-type]
    return 0
