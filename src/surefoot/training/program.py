"""How a program of a job ends: an error of ours as a message and an exit code, never as a traceback."""

from __future__ import annotations

import sys
from collections.abc import Callable

from surefoot.errors import MachineryError, RequestError, SurefootError
from surefoot.model.status import ExitCode
from surefoot.node.rank import Rank, say


def run(program: str, main: Callable[[Rank], None]) -> None:
    """Run `main` as this process's rank. Exit codes: 3 wrong request, 4 machinery, 1 any other error of ours."""
    try:
        main(Rank.current(program))
    except SurefootError as error:
        say(f"{program}: {error}", sys.stderr)
        if isinstance(error, RequestError):
            sys.exit(ExitCode.REQUEST)
        sys.exit(ExitCode.MACHINERY if isinstance(error, MachineryError) else ExitCode.DISPROVED)
