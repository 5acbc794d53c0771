"""The folder that a Slurm's Prolog runs from: what its files hold. Pure, but for reading this package's own modules.

::

    prolog.sh            what Prolog= of slurm.conf names; finds the group of its node
    prolog.pyz           the prolog, with all that it imports; any Python from 3.9 on, nothing beside it
    claims/GROUP.json    one for each node group that the cluster file claims something of
    README               what to write into slurm.conf, and what is not claimed
    written.json         the sha256 of each file as it was written, and whose nodes are whose

The same cluster file and the same version give the same bytes.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import surefoot
from surefoot.engine.prolog_derived import Derived
from surefoot.hostlist import folded

SCRIPT, ARCHIVE, README, RECORD = "prolog.sh", "prolog.pyz", "README", "written.json"
MODULES = (
    "surefoot", "surefoot.errors", "surefoot.files", "surefoot.node", "surefoot.node.facts", "surefoot.node.facts.clock",
    "surefoot.node.facts.fabric", "surefoot.node.facts.gpus", "surefoot.node.facts.limits", "surefoot.node.facts.mounts",
    "surefoot.node.facts.netlink", "surefoot.node.facts.network", "surefoot.node.facts.nvml", "surefoot.node.prolog",
    "surefoot.node.prolog_claims",
)  # fmt: skip
"""All that the prolog imports."""
OLDEST_PYTHON = (3, 9)
_A_LINE = 8
"""Nodes on one line of the script."""
_MAIN = f"""\
# What any Python 3 can read: an older one is this program's fault, and no verdict on the node.
import sys

if sys.version_info < {OLDEST_PYTHON}:
    import syslog

    words = "surefoot prolog: NOTHING PROVED, own fault: Python %s is older than {OLDEST_PYTHON[0]}.{OLDEST_PYTHON[1]}" % sys.version.split()[0]
    sys.stderr.write(words + "\\n")
    syslog.syslog(syslog.LOG_WARNING, words)
    sys.exit(0)

from surefoot.node.prolog import main

sys.exit(main(sys.argv[1:]))
"""
_SCRIPT = """\
#!/bin/sh
# Slurm's Prolog: claims about this node, judged before each job. README beside this file says what to write into
# slurm.conf. Written by surefoot preflight --write-prolog from the cluster file of {cluster}; a change by hand stops
# the next one. It ends 1, so that Slurm drains this node, only where the program ends 3, which no broken Python gives.
here=${{0%/*}}
PATH=${{PATH:-/usr/bin:/bin}}:/usr/sbin:/sbin:/usr/local/bin:/opt/slurm/bin
export PATH
node=${{SLURMD_NODENAME:-$(hostname -s)}}

nothing() {{
    echo "surefoot prolog: NOTHING PROVED, own fault: $1" >&2
    timeout 1 logger -t surefoot-prolog -p daemon.warning -- "NOTHING PROVED, own fault: $1" 2>/dev/null
    exit 0
}}

case $node in
{cases}
*) nothing "$node is in no node group of {cluster}" ;;
esac
# Nothing of the site's own Python is looked at (-I -S), and nothing is written beside it (-B).
timeout -k 1 5 /usr/bin/python3 -I -S -B "$here/{archive}" "$here/claims/$group.json"
code=$?
[ $code -eq 3 ] && exit 1
[ $code -eq 0 ] || nothing "/usr/bin/python3 $here/{archive} ended $code"
exit 0
"""
_README = """\
Slurm's Prolog of {cluster}, written by surefoot preflight --write-prolog.

Put this folder on every node's own disk, owned by root and at the same place, here /etc/slurm/surefoot-prolog;
only then, as Slurm drains a node that cannot run its Prolog, write into slurm.conf:

    Prolog=/etc/slurm/surefoot-prolog/prolog.sh
    PrologFlags=Alloc
    PrologEpilogTimeout=10

{acting}
Each node needs /usr/bin/python3 of {python} or newer, and nothing beside it. What it found last is in
/run/surefoot-prolog.json there, and in syslog what is not proved. To try it on a node, as root:

    /etc/slurm/surefoot-prolog/prolog.sh; echo $?; cat /run/surefoot-prolog.json

{groups}"""
_REPORTS = """\
Nothing is drained: what is disproved is said in syslog. When you have seen what it says on every node, write it
again with --prolog-enforce and --prolog-markers.
"""
_ACTS = """\
It drains: a node that disproves a claim is drained, as long as no more than {share:g} of Slurm's nodes are by prologs. They
count those that fail at once in {markers}: make that folder on storage that all nodes share, writable for
their root (mode 1777 where root is squashed). Without it nothing is drained.
"""


def folder_files(cluster: str, groups: Sequence[Derived], head: dict[str, Any]) -> dict[str, bytes]:
    """Name below the folder → its content. `head`: what each claims file says beside its claims."""
    made = {
        SCRIPT: script(cluster, groups).encode(),
        ARCHIVE: archive(),
        README: readme(cluster, groups, head).encode(),
    }
    for one in groups:
        if one.claims:
            text = json.dumps({"claims": one.claims, **head, "group": one.group}, indent=1) + "\n"
            made[f"claims/{one.group}.json"] = text.encode()
    record = {
        "written_by": "surefoot preflight --write-prolog",
        "cluster": cluster,
        "groups": {one.group: {"hosts": folded(one.hosts), "claims": sorted(one.claims)} for one in groups},
        "sha256": {name: hashlib.sha256(content).hexdigest() for name, content in sorted(made.items())},
    }
    return {**made, RECORD: (json.dumps(record, indent=1) + "\n").encode()}


def mode_of(name: str) -> int:
    """Permissions of a file of the folder."""
    return 0o755 if name == SCRIPT else 0o644


def archive() -> bytes:
    """The prolog as one file that Python runs. Without dates and compression, so that it is the same each time."""
    package = Path(surefoot.__file__).parents[1]
    content = {"__main__.py": _MAIN.encode()}
    for module in MODULES:
        path = Path(*module.split("."))
        here = path / "__init__.py" if (package / path).is_dir() else path.with_suffix(".py")
        content[here.as_posix()] = (package / here).read_bytes()
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as packed:
        for name, data in content.items():
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.create_system, entry.external_attr = 3, 0o644 << 16
            packed.writestr(entry, data)
    return stream.getvalue()


def script(cluster: str, groups: Sequence[Derived]) -> str:
    """The shell script: every node is named, so that none is judged by claims that were made for others."""
    cases = []  # each with its first bracket, so that a node may be called esac
    for one in groups:
        rows = ["|".join(one.hosts[at : at + _A_LINE]) for at in range(0, len(one.hosts), _A_LINE)]
        does = f"group={one.group}" if one.claims else f'nothing "the cluster file claims nothing of group {one.group}"'
        cases.append("(" + "|\\\n".join(rows) + f") {does} ;;")
    return _SCRIPT.format(cluster=cluster, cases="\n".join(cases), archive=ARCHIVE)


def _shown(text: str) -> str:
    """Words with names of the cluster file in them, which may hold anything, as a line that a terminal shows."""
    return "".join(each if each.isprintable() else "\ufffd" for each in text)


def readme(cluster: str, groups: Sequence[Derived], head: dict[str, Any]) -> str:
    """What to write into slurm.conf, what is claimed of whom, and what is not."""
    acting = _ACTS.format(share=head["max_drain_share"], markers=head["markers"]) if head["enforce"] else _REPORTS
    parts = []
    for one in groups:
        rows = [f"  {name} = {json.dumps(value)}  ({one.why[name]})" for name, value in one.claims.items()]
        rows = rows or ["  NOTHING is claimed of it, so nothing is proved there."]
        parts.append(
            f"Group {one.group}, {folded(one.hosts)}:\n"
            + "".join(f"{row}\n" for row in rows)
            + "  Not claimed:\n"
            + "".join(f"    {_shown(text)}\n" for text in one.not_claimed)
        )
    python = ".".join(map(str, OLDEST_PYTHON))
    return _README.format(cluster=cluster, acting=acting, python=python, groups="\n".join(parts))
