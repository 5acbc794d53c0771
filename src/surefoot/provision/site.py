"""What an Ansible site holds, as one digest: a role or an inventory that was edited is a changed input."""

from __future__ import annotations

from pathlib import Path

from surefoot.errors import RequestError
from surefoot.files import sha256_file, tree_digest, tree_files
from surefoot.model.base import digest_of
from surefoot.model.cluster import Ansible

NO_CONTENT = ("__pycache__", ".git", ".ansible", ".cache", "molecule")
"""Folders that do not change what a site does to a host."""
INVENTORIES = "inventory"
"""Folder of a site that holds its inventories: of those only the ones that the cluster file names count."""


def site_digest(asked: Ansible) -> str:
    """sha256 (hex) of the site's files, of the inventories, and of what is asked of them.

    Where the site lies does not count. Raises RequestError where a file cannot be read.
    """
    site = Path(asked.site)
    try:
        files = {
            f"site/{name}": digest
            for name, digest in tree_files(site, skip=NO_CONTENT).items()
            if not name.startswith(f"{INVENTORIES}/") and not name.endswith((".retry", "~"))
        }
        for number, inventory in enumerate(asked.inventory):
            place = Path(inventory)
            if place.is_dir():
                found = tree_files(place, skip=NO_CONTENT)
                files |= {f"inventory/{number}/{name}": digest for name, digest in found.items()}
            else:
                files[f"inventory/{number}"] = sha256_file(place)
                files |= _beside(place.parent, f"inventory/{number}")
    except OSError as error:
        raise RequestError(
            f"the Ansible site cannot be read: {error.filename or site}: {error.strerror or error}",
            next_action="check `ansible:` in the cluster file, and the permissions of what it names",
        ) from error
    words = {"playbook": asked.playbook, "limit": asked.limit, "node_group": asked.node_group}
    return digest_of({"files": tree_digest(files), **words})


def _beside(folder: Path, name: str) -> dict[str, str]:
    """Variables that Ansible reads beside an inventory that is a file."""
    return {
        f"{name}/{variables}/{path}": digest
        for variables in ("group_vars", "host_vars")
        if (folder / variables).is_dir()
        for path, digest in tree_files(folder / variables, skip=NO_CONTENT).items()
    }
