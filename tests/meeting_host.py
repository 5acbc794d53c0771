"""A host of a test's network: what a node of a preflight does first, as a program. Arguments as JSON on the command line."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from surefoot.files import write_atomic
from surefoot.node.facts import fabric, network
from surefoot.node.reach import Limits, Meeting, meet


def main() -> None:
    asked = json.loads(sys.argv[1])
    facts = {**network.facts(), **fabric.facts()}
    folder = Path(asked["folder"])
    write_atomic(folder / f"facts-{asked['me']}.json", json.dumps(facts))
    meeting = Meeting(folder=folder, me=asked["me"], everyone=tuple(asked["everyone"]), execution=asked["execution"])
    meet(meeting, facts["interfaces"]["value"], Limits(**asked["limits"]))


if __name__ == "__main__":
    main()
