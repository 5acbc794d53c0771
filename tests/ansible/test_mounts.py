"""Live mounts and packages are held against declared ones."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from loaded import loaded

mounts, packages = loaded("plugins/filter/mounts.py"), loaded("plugins/filter/packages.py")
NFS = "rw,noatime,vers=4.2,rsize=1048576,wsize=1048576,hard,proto=tcp,nconnect=8,timeo=600,retrans=2,sec=sys"
WANTED = "rw,hard,noatime,vers=4.2,proto=tcp,nconnect=8,rsize=1048576,_netdev"


def test_what_the_kernel_leaves_out_is_no_drift() -> None:
    assert mounts.option_drift(NFS, WANTED, "nfs4") == []
    assert mounts.option_drift("rw,relatime,size=32768k,mode=755", "size=32m,mode=0755,nofail", "tmpfs") == []


@pytest.mark.parametrize(
    ("found", "declared"),
    [("rw,", "ro,"), ("hard", "soft"), ("noatime", "relatime"), ("nconnect=8,", ""), ("vers=4.2", "vers=3")],
)
def test_a_changed_option_is_drift(found: str, declared: str) -> None:
    assert mounts.option_drift(NFS.replace(found, declared), WANTED, "nfs4") != []


def test_the_mount_on_top_counts_and_its_line_is_shown_as_it_would_read() -> None:
    declared = mounts.mounts_completed([{"src": "tmpfs", "path": "/srv/a/", "fstype": "tmpfs"}], WANTED)
    text = "x /srv/a ext4 rw,relatime 0 0\ntmpfs /srv/a tmpfs ro,relatime 0 0\n"
    (row,) = mounts.mount_drift(declared, text)
    assert (row["says"], row["line"]) == ("ro instead of rw", "tmpfs /srv/a tmpfs rw,relatime 0 0")
    assert mounts.mounts_missing(declared, "x /srv/ab ext4 rw 0 0\n") == declared


@pytest.mark.skipif(shutil.which("systemd-escape") is None, reason="systemd-escape is not here")
@pytest.mark.parametrize("path", ["/", "/srv/data-1", "/srv//a_b.c/", "/.hidden/é", "/a@b"])
def test_units_are_named_as_systemd_names_them(path: str) -> None:
    argv = ["systemd-escape", "--path", "--suffix=mount", path]
    assert mounts.mount_unit(path) == subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()


def test_packages_that_are_missing_or_of_another_version_are_named() -> None:
    dpkg = ["installed munge=0.5.15-2", "config-files chrony=4.3-2", "installed curl=7.88"]
    rows = packages.packages_to_change(["munge=0.5.14*", "chrony", "curl", "curl=7.8*"], dpkg)
    assert [(row["name"], row["found"]) for row in rows] == [("munge", "0.5.15-2"), ("chrony", "not installed")]
