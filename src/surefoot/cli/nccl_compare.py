"""``surefoot nccl compare``: captures of nccl-tests against healthy ones, without a cluster and without a store."""

from __future__ import annotations

import json
from collections.abc import Iterable

import click
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from surefoot.benchmarks.nccl_compare import Capture, Comparison, Finding, compare, refused
from surefoot.cli.captures import captures_in
from surefoot.cli.options import json_option
from surefoot.errors import EvidenceError
from surefoot.model.status import exit_code
from surefoot.reports.live import never_fail_to_print
from surefoot.reports.text import STATUS_GLYPHS, STATUS_STYLES, terminal_safe


class _Lists(click.Command):
    """Options that take several words, as a shell's pattern gives them: ``--baseline healthy-*.log``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        several = {word for option in self.params if getattr(option, "multiple", False) for word in option.opts}
        return super().parse_args(ctx, list(_repeated(args, several)))


def _repeated(args: list[str], several: set[str]) -> Iterable[str]:
    """``--a x y`` as ``--a x --a y``."""
    option, fresh = "", False
    for word in args:
        if word.startswith("--"):
            option, fresh = (word, True) if word in several else ("", False)
            yield word
        else:
            if option and not fresh:
                yield option
            fresh = False
            yield word


@click.command("compare", cls=_Lists)
@click.option("--baseline", multiple=True, required=True, metavar="FILE…", help="Captures of when all was well.")
@click.option("--candidate", multiple=True, required=True, metavar="FILE…", help="What is judged.")
@json_option
def compare_command(*, baseline: tuple[str, ...], candidate: tuple[str, ...], as_json: bool) -> int:
    """Judge captures of nccl-tests by healthy ones of the same machines.

    Latency floor, knee and plateau of the curve, scatter and transport are judged apart, each with what it means.
    Three healthy repeats are needed, nine are plenty. Exit code 1: something is worse; 2: too little is known.
    """
    unread: list[Finding] = []
    healthy, new = ([one for file in files for one in _captures(file, unread)] for files in (baseline, candidate))
    found = compare(healthy, new, unread)
    if as_json:
        code = int(exit_code([found.status]))
        click.echo(json.dumps({**found.canonical(), "exit_code": code}, indent=1, ensure_ascii=False))
    else:
        _print(found, len(healthy), len(new))
    return int(exit_code([found.status]))


def _captures(file: str, unread: list[Finding]) -> list[Capture]:
    """Of one file; what cannot be read goes to `unread`."""
    try:
        return captures_in(file)
    except EvidenceError as error:
        unread.append(refused(error, file))
        return []


def _print(found: Comparison, healthy: int, candidates: int) -> None:
    console = Console()
    never_fail_to_print(console)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("", "collective", "part", "expected", "actual"):
        table.add_column(name, overflow="fold")
    for one in found.findings:
        status = Text(f"{STATUS_GLYPHS[one.status]} {one.status}", style=STATUS_STYLES[one.status])
        words = (one.collective or f"{one.file}:{one.line or ''}", one.part, one.expected, one.actual)
        table.add_row(status, *(Text(terminal_safe(word)) for word in words))
    console.print(table)
    for cause in dict.fromkeys(f"{one.collective}: {one.cause}" for one in found.findings if one.cause):
        console.print(Text(terminal_safe(cause), style="yellow"))
    sides = f"{candidates} capture{'s'[: candidates != 1]} against {healthy} healthy"
    console.print(Text(f"{STATUS_GLYPHS[found.status]} {found.status}: {sides}", style=STATUS_STYLES[found.status]))
