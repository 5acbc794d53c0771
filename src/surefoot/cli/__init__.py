"""The command line: parse, call one engine function, map the outcome to an exit code.

A command's module is imported when that command is asked for: ``surefoot --help`` imports click
and this file, nothing else.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import sys
from collections.abc import Sequence

import click

from surefoot import __version__
from surefoot.cli.node_prolog import claims_asked, judge
from surefoot.cli.streams import say
from surefoot.errors import MachineryError, RequestError, SurefootError

# The same numbers as model.status.ExitCode, which would import pydantic here.
_UNPROVED, _REQUEST, _MACHINERY, _INTERRUPTED = 2, 3, 4, 130
_EXIT_CODES = {RequestError: _REQUEST, MachineryError: _MACHINERY}

GARBAGE = (200_000, 50, 100)
"""For `gc.set_threshold`. Records are made by the million and hold no cycles: looking for those took four
fifths of the time in which the facts of 512 nodes were read (docs/log.md)."""

COMMANDS: dict[str, tuple[str, str]] = {
    "climb": ("surefoot.cli.climb", "Climb the ladder: collect, judge and report every rung."),
    "rung": ("surefoot.cli.climb", "Run one rung of a run, as a CI job does it."),
    "preflight": ("surefoot.cli.preflight", "Prove every node and every rank, before the expensive job."),
    "judge": ("surefoot.cli.runs", "Judge recorded evidence again, offline."),
    "runs": ("surefoot.cli.runs", "List the runs under a root."),
    "show": ("surefoot.cli.runs", "Show what a run proved, rung by rung."),
    "report": ("surefoot.cli.runs", "Write a run's report.html, junit.xml and summary.json again."),
    "jobs": ("surefoot.cli.jobs", "List a cluster's jobs that climbs submitted, and end those left behind."),
    "inventory": ("surefoot.cli.provision", "Compare the Ansible inventory, the cluster file and Slurm."),
    "drift": ("surefoot.cli.provision", "Tell what a run of the Ansible site would change, and who changed it."),
    "nccl": ("surefoot.cli.nccl", "Read captures of nccl-tests, and judge them by healthy ones."),
    "selftest": ("surefoot.cli.selftest", "Measure how often verdicts are wrong."),
    "schema": ("surefoot.cli.schema", "Print the JSON schema of a configuration file."),
    "lab": ("surefoot.cli.lab", "A real multi-host Slurm cluster on this machine."),
}
"""Command → (module, what it does). The module holds a click command of that name."""


class _Lazy(click.Group):
    """A group whose commands are imported when they are asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        command = getattr(importlib.import_module(COMMANDS[cmd_name][0]), f"{cmd_name}_command")
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in COMMANDS:
            import difflib

            near = difflib.get_close_matches(args[0], COMMANDS, 1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise click.UsageError(f"No such command {args[0]!r}.{hint} Commands: {', '.join(COMMANDS)}.", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


_EPILOG = """\b
Exit codes, the same for every command:
  0    proved
  1    disproved: a check failed
  2    not proved either way: evidence missing, or nothing was run
  3    the request is wrong (usage, configuration)
  4    the machinery broke (scheduler, disk)
  130  interrupted"""


@click.command(cls=_Lazy, epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="surefoot")
def cli() -> None:
    """Prove that a GPU cluster can train, and never say "pass" without evidence."""


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit with one of the exit codes above."""
    from surefoot.cli.streams import forgive_lost_readers

    forgive_lost_readers()
    code = run(arguments)
    try:
        for stream in (sys.stderr, sys.stdout):
            if stream is not None:
                stream.flush()
    except OSError:  # told by run(); the interpreter would try again and end with 120
        os._exit(code or _MACHINERY)
    sys.exit(code)


def run(arguments: list[str] | None = None) -> int:
    """Run the command line; its exit code. Nothing escapes: a fault of ours is 4, not Python's 1 (disproved)."""
    given = sys.argv[1:] if arguments is None else arguments
    gc.set_threshold(*GARBAGE)
    try:
        if (claims := claims_asked(given)) is not None:
            outcome = judge(claims)
        else:
            outcome = cli.main(list(given), prog_name="surefoot", standalone_mode=False, obj=tuple(given))
        if sys.stdout is not None:
            sys.stdout.flush()  # a full disk behind it is told here, not by the interpreter on its way out
    except click.ClickException as error:
        error.show()
        return _failed(given, _REQUEST, "UsageError", error.format_message())
    except (click.Abort, KeyboardInterrupt):
        click.echo("surefoot: interrupted", err=True)
        return _failed(given, _INTERRUPTED, "Interrupted", "interrupted")
    except SurefootError as error:
        say(f"surefoot: {error}", err=True)
        code = next((code for kind, code in _EXIT_CODES.items() if isinstance(error, kind)), _UNPROVED)
        return _failed(given, code, type(error).__name__, error.message, error.next_action)
    except OSError as error:
        message = f"{error.filename or 'this machine'}: {error.strerror or error}"
        say(f"surefoot: {message}\n  → mend that (space, permissions), then run it again", err=True)
        return _failed(given, _MACHINERY, type(error).__name__, message)
    except Exception as error:  # noqa: BLE001 - the last line of defence
        import traceback

        say(traceback.format_exc(), err=True)
        message = f"{type(error).__name__}: {error}"
        say(f"surefoot: this is a fault of Surefoot's, please report it: {message}", err=True)
        return _failed(given, _MACHINERY, type(error).__name__, message)
    return int(outcome) if outcome is not None else 0


def _failed(given: Sequence[str], code: int, kind: str, message: str, next_action: str = "") -> int:
    """The exit code of what went wrong; with ``--json`` a program is told as JSON what people are told on stderr."""
    if "--json" in given:
        import json

        error = {"kind": kind, "message": message, "next_action": next_action}
        with contextlib.suppress(OSError):  # what is wrong may be standard output itself
            click.echo(json.dumps({"exit_code": code, "error": error}, indent=1))
    return code
