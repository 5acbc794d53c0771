"""What the rung sync would have built for a cluster file, for the role python_runtime. Runs beside Ansible.

    order.py CLUSTER_FILE [ARCHIVE]

Prints ``{"request": …, "key": …}``: the request of ``surefoot.node.build_environment`` and the few lines of
shell that say which kind of node one is on. ARCHIVE: where the code of jobs is put, as a .tar.gz with
``src/surefoot``. Everything comes from Surefoot itself, so that Ansible and a climb build the same.
"""

from __future__ import annotations

import io
import json
import sys
import tarfile
from pathlib import Path

from surefoot.config.load import load_cluster
from surefoot.engine.package import build
from surefoot.errors import SurefootError
from surefoot.node.chooser import KEY_FUNCTION
from surefoot.paths import RootPaths
from surefoot.rungs.sync_environment import environment_request


def order(cluster_file: str) -> dict[str, object]:
    """The order. Raises SurefootError, ValueError."""
    cluster = load_cluster(cluster_file).record
    if cluster.environment is None:
        raise ValueError(f"{cluster_file} has no environment: its jobs run on {cluster.python or 'python3'} as it is")
    for name, path in (("root", cluster.root), ("python", cluster.python)):
        if not Path(path).is_absolute():
            raise ValueError(f"{cluster_file} has {name}: {path or 'nothing'}; allowed: an absolute path")
    return {
        "request": environment_request(cluster, cluster.environment, RootPaths(Path(cluster.root))),
        "key": f'{KEY_FUNCTION}\nsurefoot_key "$1"',
    }


def archive(path: Path) -> None:
    """The code that jobs run from."""
    with tarfile.open(path, "w:gz") as tar:
        for name, content in sorted(build({}).code.files.items()):
            data = content if isinstance(content, bytes) else content.read_bytes()
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(data), 0o644
            tar.addfile(member, io.BytesIO(data))


if __name__ == "__main__":
    try:
        said = order(sys.argv[1])
        if len(sys.argv) > 2:
            archive(Path(sys.argv[2]))
    except (SurefootError, ValueError, OSError) as error:
        sys.exit(str(error))
    sys.stdout.write(json.dumps(said) + "\n")
