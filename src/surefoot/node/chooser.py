"""Which kind of node this is, and the script that starts the environment built for it. Standard library only.

A kind is written ``x86_64-debian12-py3.11``: architecture, operating system, and the version of the
interpreter that environments are built on. One shell function says it, for the builder, for the
script and for the rank that verifies, so that they cannot differ.
"""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

WRONG_NODE = 78
"""Exit code of the script on a node that it has no environment for (EX_CONFIG of sysexits.h)."""

# In a shell of its own ($(…)): its LC_ALL and names don't reach what is started afterwards.
KEY_FUNCTION = r"""surefoot_key() {
  LC_ALL=C
  export LC_ALL
  machine=$(uname -m) || { echo "uname -m does not say what this machine is"; return 1; }
  system=$(ID=; VERSION_ID=; if [ -r /etc/os-release ]; then . /etc/os-release; fi; printf '%s%s' "$ID" "$VERSION_ID")
  [ -n "$system" ] || system=$(uname -s)
  version=$("$1" -V 2>&1)
  code=$?
  case "$code $version" in
    "0 Python 3."*) ;;
    "126 "*) echo "$1 cannot be run here (exit code 126: for another machine, or no permission): ${version##*: }"; return 1 ;;
    "127 "*) echo "$1 is not here (exit code 127)"; return 1 ;;
    *) echo "$1 -V ends with $code and says: $version"; return 1 ;;
  esac
  minor=${version#Python 3.}
  minor=${minor%%[!0-9]*}
  key="$machine-$system-py3.$minor"
  case $key in
    *[!A-Za-z0-9._-]*) echo "this kind of node has no name that a folder could have: $key"; return 1 ;;
  esac
  printf '%s\n' "$key"
}
"""
"""Shell function ``surefoot_key INTERPRETER``: prints the kind of this node, or why it cannot be said and fails."""

_SCRIPT = r"""#!/bin/sh
# Written by surefoot: starts the Python environment that was built for the kind of node it runs on.
# What it needs of the shell has long names, so that no variable of the job is changed.
surefoot_base=@BASE@
surefoot_home=@HOME@

@KEY@
surefoot_fail() {
  printf 'surefoot: %s\n  → %s\n' "$1" "$2" >&2
  exit @CODE@
}

surefoot_found=$(surefoot_key "$surefoot_base") ||
  surefoot_fail "host $(uname -n): $surefoot_found" \
    "install that interpreter there, or name one that every node has as python: in the cluster file"

if [ ! -f "$surefoot_home/$surefoot_found/ready.json" ]; then
  surefoot_there=
  for surefoot_one in "$surefoot_home"/*/ready.json; do
    [ -f "$surefoot_one" ] || continue
    surefoot_one=${surefoot_one%/ready.json}
    surefoot_there="$surefoot_there ${surefoot_one##*/}"
  done
  surefoot_fail "host $(uname -n) is $surefoot_found, and has no environment in $surefoot_home; there are:${surefoot_there:- none}" \
    "run the rung sync again, it builds what is missing: surefoot climb --resume RUN --again sync"
fi

[ -x "$surefoot_home/$surefoot_found/bin/python" ] ||
  surefoot_fail "host $(uname -n): $surefoot_home/$surefoot_found/bin/python leads to no interpreter on this host" \
    "install $surefoot_base at the same place on all nodes that are $surefoot_found"

exec "$surefoot_home/$surefoot_found/bin/python" "$@"
"""


def script(base: str, home: Path) -> str:
    """The script ``<root>/envs/<digest>/python``. Pure.

    `base`: the interpreter on the nodes that environments are built on. `home`: its folder, with one
    environment for each kind of node. It hands its arguments on as they are, and ends with
    `WRONG_NODE` and a message on stderr where there is no environment for the node.
    """
    parts = {
        "@BASE@": shlex.quote(base),
        "@HOME@": shlex.quote(str(home)),
        "@KEY@": KEY_FUNCTION,
        "@CODE@": str(WRONG_NODE),
    }
    text = _SCRIPT
    for name in ("@KEY@", "@CODE@", "@BASE@", "@HOME@"):
        head, _, tail = text.partition(name)  # once each: a path may hold anything
        text = head + parts[name] + tail
    return text


def node_key(base: str) -> tuple[str, str]:
    """(kind of this node, empty), or (empty, why it cannot be said)."""
    asked = ["/bin/sh", "-c", f'{KEY_FUNCTION}\nsurefoot_key "$1"', "sh", base]
    answer = subprocess.run(asked, capture_output=True, text=True, errors="replace", timeout=60, check=False)
    said = answer.stdout.strip()
    if answer.returncode == 0:
        return said, ""
    return "", said or answer.stderr.strip() or f"/bin/sh ends with {answer.returncode}"
