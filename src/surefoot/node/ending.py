"""Ends as it was asked to: with an exit code, or killed by a signal. Standard library only.

``request.json``: ``{"exit_code": 7}`` or ``{"signal": 9}``.
"""

from __future__ import annotations

import os
import sys

from surefoot.node.rank import Rank, say


def main() -> None:
    """Report what was asked, print one line, end that way."""
    rank = Rank.current("surefoot.node.ending")
    asked = {"exit_code": rank.request.get("exit_code"), "signal": rank.request.get("signal")}
    rank.report({"rank": rank.rank, **asked})
    how = f"signal {asked['signal']}" if asked["signal"] is not None else f"exit code {asked['exit_code']}"
    say(f"surefoot rank {rank.rank} of {os.environ['SUREFOOT_NONCE']} ends with {how}")
    if asked["signal"] is not None:
        os.kill(os.getpid(), asked["signal"])
    sys.exit(asked["exit_code"])


if __name__ == "__main__":
    main()
