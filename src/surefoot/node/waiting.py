"""Waits to be ended by another's hand, together with a child. Standard library only.

``request.json``: ``{"seconds": 600}``. It reports before it waits: who is killed tells nothing more.
"""

from __future__ import annotations

import subprocess
import sys
import time

from surefoot.node.rank import Rank, say


def main() -> None:
    """Report itself and its child, then wait. Ends with 0 only where nobody ended it."""
    rank = Rank.current("surefoot.node.waiting")
    seconds = float(rank.request["seconds"])
    child = subprocess.Popen([sys.executable, "-c", f"import time; time.sleep({seconds})"], stdin=subprocess.DEVNULL)
    rank.report({"rank": rank.rank, "child": child.pid, "seconds": seconds})
    say(f"surefoot rank {rank.rank} waits to be ended")
    rank.progress(0, 1, "waits to be ended")
    time.sleep(seconds)
    child.kill()


if __name__ == "__main__":
    main()
