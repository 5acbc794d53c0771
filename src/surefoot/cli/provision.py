"""``surefoot inventory`` and ``surefoot drift``: the two rungs about what Ansible provisions, without a run."""

from __future__ import annotations

import json
import threading
from typing import Any

import click
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from surefoot.cli.chosen import command_line
from surefoot.cli.options import json_option
from surefoot.cli.running import interruptible
from surefoot.config.load import load_cluster, load_policy, load_recipe
from surefoot.engine.left_out import DECLARE
from surefoot.engine.probe import probe
from surefoot.engine.session import Chosen, start
from surefoot.errors import RequestError
from surefoot.model.ladder import AnsibleRungSpec, Drift, Inventory, Ladder
from surefoot.model.run import RungResult
from surefoot.model.status import exit_code
from surefoot.reports.live import never_fail_to_print
from surefoot.reports.terminal import show_rung
from surefoot.reports.text import one_line
from surefoot.rungs.table import RUNGS

_COLUMNS = {
    "inventory": ("host", "what", "inventory", "cluster file", "slurm"),
    "drift": ("host", "role", "what", "task"),
}
_CLUSTER = click.option(
    "--cluster", metavar="FILE|NAME", required=True, help="The cluster file, with `ansible:` in it."
)


@click.command("inventory")
@_CLUSTER
@click.option("--all", "everything", is_flag=True, help="Show what agrees, too.")
@click.option("--limit-s", type=click.IntRange(5), default=300, show_default=True, help="Limit of each command.")
@json_option
def inventory_command(*, cluster: str, everything: bool, limit_s: int, as_json: bool) -> int:
    """Compare the Ansible inventory, the cluster file and Slurm, and ask every host who it is.

    Names every difference. Changes nothing and records nothing: the rung inventory of a climb does.
    """
    result = _look(cluster, Inventory(rung="inventory", time_limit_s=limit_s))
    rows = result.judgement.details.get("rows", [])
    return _show(result, [row for row in rows if everything or row["problem"]], as_json=as_json)


@click.command("drift")
@_CLUSTER
@click.option("--limit-s", type=click.IntRange(5), default=1800, show_default=True, help="Limit of the check run.")
@json_option
def drift_command(*, cluster: str, limit_s: int, as_json: bool) -> int:
    """Tell what a run of the Ansible site would change on which host, and who changed it last.

    Changes nothing and records nothing: the rung drift of a climb does.
    """
    result = _look(cluster, Drift(rung="drift", time_limit_s=limit_s))
    return _show(result, result.judgement.details.get("drifts", []), as_json=as_json)


def _look(cluster: str, spec: Inventory | Drift) -> RungResult:
    """Raises RequestError, MachineryError."""
    found = load_cluster(cluster).record
    if found.ansible is None:
        raise RequestError(f"cluster {found.name!r} declares no ansible", next_action=DECLARE)
    made = Chosen(
        cluster=found,
        ladder=Ladder(name=spec.rung, rungs=(spec,)),
        recipe=load_recipe("demo").record,
        policy=load_policy("seed").record,
    )
    assert isinstance(spec, AnsibleRungSpec)
    stop = threading.Event()
    with interruptible(stop):
        return probe(start(made, command_line(), record=False), RUNGS[spec.rung], stop)


def _show(result: RungResult, rows: list[dict[str, Any]], *, as_json: bool) -> int:
    code = exit_code([result.status])
    if as_json:
        checks = [check.canonical() for check in result.judgement.checks]
        told = {"rung": result.rung, "status": result.status.value, "exit_code": int(code)}
        click.echo(json.dumps({**told, "summary": result.judgement.summary, "rows": rows, "checks": checks}, indent=1))
        return code
    console = Console()
    never_fail_to_print(console)
    if rows:
        columns = _COLUMNS[result.rung]
        table = Table(*columns, box=box.SIMPLE_HEAD, pad_edge=False)
        for row in rows:
            table.add_row(*(Text(one_line(str(row.get(column, "")), 60)) for column in columns))
        console.print(table)
    show_rung(console, result)
    return code
