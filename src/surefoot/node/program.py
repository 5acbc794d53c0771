"""How a program of a job that loads torch ends: at once, with a message and an exit code, and nothing torn down.

``~ProcessGroupGloo`` joins its threads, and Python calls it with the GIL held; one of them may be about to
free a tensor, and waits for the GIL: the rank hangs with its last word said (pytorch/pytorch#56297,
seen in 14 of about 45 pairs of ranks that ended with an error on a busy machine). At the interpreter's own
end the same thread aborts the process instead (pytorch/pytorch#179291). So `surefoot.node.group.join` holds
the group, and `run` ends the process before anything lets go of it.
"""

from __future__ import annotations

import ctypes
import os
import sys
import traceback
from collections.abc import Callable
from typing import NoReturn

from surefoot.errors import MachineryError, RequestError, SurefootError
from surefoot.model.status import ExitCode
from surefoot.node.rank import Rank, say


def run(program: str, main: Callable[[Rank], None]) -> NoReturn:
    """Run `main` as this process's rank, and end the process.

    Exit codes: 3 wrong request, 4 machinery, 1 any other error. An error of ours is told in one line, any other as
    a traceback.
    """
    code = 0
    try:
        main(Rank.current(program))
    except SurefootError as error:
        say(f"{program}: {error}", sys.stderr)
        code = ExitCode.DISPROVED
        if isinstance(error, RequestError):
            code = ExitCode.REQUEST
        elif isinstance(error, MachineryError):
            code = ExitCode.MACHINERY
    except BaseException:  # noqa: BLE001  the last frame: whatever it is, it is told, and the process ends here
        say(traceback.format_exc().rstrip(), sys.stderr)
        code = ExitCode.DISPROVED
    end(code)


def end(code: int) -> NoReturn:
    """End this process now. What Python and C libraries (NCCL's log) hold back is written first."""
    try:
        ctypes.CDLL(None).fflush(None)
        sys.stderr.flush()
        sys.stdout.flush()
    finally:  # a full disk, a reader that is gone: what is lost is lost, and nothing is torn down
        os._exit(code)
