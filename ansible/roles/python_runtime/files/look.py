"""Looks at a Python interpreter of a host, changes nothing, prints one JSON document. Python 3.9 or newer.

    look.py INTERPRETER

``{"version": …, "venv": …, "pip": …, "machine": …}``, each ``{"value": …, "from": …}`` or with ``unknown``
in place of a guess. ``pip`` is what ``surefoot.node.venv_build`` will build with: an own one that knows
``--python`` (22.3), or ``ensurepip``.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from typing import Any


def ask(*command: str) -> tuple[int, str]:
    """(exit code, what was said). 127 where there is no such program."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=60, check=False)
    except OSError as error:
        return 127, f"{command[0]}: {error.strerror or error}"
    except subprocess.SubprocessError as error:
        return 126, str(error)
    return done.returncode, (done.stdout.strip() or done.stderr.strip()).split("\n")[-1]


def fact(source: str, value: str, why: str) -> dict[str, Any]:
    """A value, or why there is none."""
    return {"value": value, "from": source} if value else {"value": None, "unknown": why, "from": source}


def version(python: str) -> dict[str, Any]:
    """``3.12.3``, as the interpreter itself says."""
    code, said = ask(python, "-I", "-c", "import platform; print(platform.python_version())")
    return fact(f"{python} -c …python_version()", said if code == 0 else "", said or f"ends with {code}")


def venv(python: str) -> dict[str, Any]:
    """Whether virtual environments can be made."""
    code, said = ask(python, "-I", "-c", "import venv; print('venv')")
    return fact(f"{python} -c 'import venv'", said if code == 0 else "", said or f"ends with {code}")


def pip(python: str) -> dict[str, Any]:
    """The pip that an environment is built with."""
    code, said = ask(python, "-m", "pip", "--python", python, "--version")
    if code == 0:
        return fact(f"{python} -m pip", said.split(" from ")[0], "")
    code, also = ask(python, "-I", "-c", "import ensurepip; print('ensurepip, pip ' + ensurepip.version())")
    return fact(f"{python} -m pip, -m ensurepip", also if code == 0 else "", f"{said}; {also}")


if __name__ == "__main__":
    interpreter = sys.argv[1]
    facts = {
        "version": version(interpreter),
        "venv": venv(interpreter),
        "pip": pip(interpreter),
        "machine": {"value": platform.machine(), "from": "uname -m"},
    }
    sys.stdout.write(json.dumps(facts) + "\n")
