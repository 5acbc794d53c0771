"""What a lab is made of, as text: names, addresses, configuration files, commands."""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from surefoot.errors import MachineryError, RequestError
from surefoot.lab import configuration, scripts
from surefoot.lab.base_root import PACKAGES, SUITES, base_key, build_command, disable, dlsym_library, packages, version
from surefoot.lab.faults import FAULTS, chosen
from surefoot.lab.host_files import HostFile, Identity, Secrets, host_files, services
from surefoot.lab.machine import PACKAGES as PACKAGES_OF_THE_MACHINE
from surefoot.lab.network import namespaces, up_commands
from surefoot.lab.places import lab_home
from surefoot.lab.slurm import parse_nodes
from surefoot.lab.spec import HEAD, MAX_NODES, MAX_SLOTS, MGMT, LabSpec, Tier, address, port
from surefoot.lab.state import LabState
from surefoot.model.cluster import Cluster

SPEC = LabSpec(name="red", nodes=3, gpus_per_node=4)
QUICK = LabSpec(name="red", nodes=3, gpus_per_node=4, tier=Tier.NAMESPACES)
SECRETS = Secrets(b"\x00munge\xff", b"\x01jwt\xfe", "password-of-the-database")
WHO = Identity("0" * 32, "PRIVATE HOST KEY", "ssh-ed25519 LOGIN", "known")


def settings(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines() if re.match(r"^[A-Z]\w+=", line))


def content(files: list[HostFile], path: str) -> str:
    found = next(file.content for file in files if file.path == path)
    return found if isinstance(found, str) else found.decode("latin-1")


# --- names and addresses --------------------------------------------------------------------------


@given(st.integers(0, MAX_SLOTS - 1), st.integers(0, MAX_SLOTS - 1))
def test_no_two_hosts_of_any_two_labs_share_an_address(one: int, other: int) -> None:
    hosts = (MGMT, *LabSpec(nodes=MAX_NODES).hosts)
    first = [address(one, host) for host in hosts]
    second = [address(other, host) for host in hosts]
    assert len(set(first)) == len(hosts)
    assert all(ipaddress.ip_address(each).is_private for each in first)
    assert one == other or not set(first) & set(second)


def test_namespaces_of_two_labs_have_different_names_even_where_one_name_begins_the_other() -> None:
    labs = [LabSpec(name=name, nodes=3) for name in ("a", "ab", "n1", "head")]
    names = [name for lab in labs for name in namespaces(lab)]
    assert len(set(names)) == len(names)


def test_interface_names_fit_into_the_kernels_fifteen_characters() -> None:
    assert max(len(port(host)) for host in LabSpec(nodes=MAX_NODES).hosts) <= 15


@pytest.mark.parametrize("name", ["", "Lab", "a-b", "1a", "a b", "a/b", "../x", "ä", "abcdefghijklm", "a\n"])
def test_a_name_that_a_path_or_a_namespace_could_not_hold_is_refused(name: str) -> None:
    with pytest.raises(ValidationError):
        LabSpec(name=name)


@pytest.mark.parametrize("home", ["lab", "/a:b", "/a,b", "/a b", "/a/../b", "/a\n", "/" + "x" * 80, "/ü", ""])
def test_a_home_that_overlayfs_or_ssh_could_not_spell_is_refused(home: str) -> None:
    with pytest.raises(RequestError, match="cannot live in"):
        lab_home(home)


def test_every_command_that_makes_the_network_works_inside_a_namespace_of_the_lab() -> None:
    """None may touch an interface, an address or a route of this machine itself."""
    own = set(namespaces(SPEC))
    for command in up_commands(SPEC, 7):
        assert command[:3] == ["ip", "netns", "add"] or (command[:2] == ["ip", "-n"] and command[2] in own)
        assert command[:3] != ["ip", "netns", "add"] or command[3] in own


# --- configuration files --------------------------------------------------------------------------


@pytest.mark.parametrize("spec", [SPEC, QUICK], ids=["hosts", "namespaces"])
def test_slurm_conf_declares_every_node_with_its_address_and_gpus(spec: LabSpec) -> None:
    text = configuration.slurm_conf(spec, 5)
    nodes = re.findall(r"^NodeName=(\S+) NodeAddr=(\S+) CPUs=96 RealMemory=2000000 Gres=gpu:h100:4", text, re.MULTILINE)
    assert nodes == [(f"n{number}", f"10.77.5.{10 + number}") for number in (1, 2, 3)]
    assert settings(text)["SlurmctldHost"] == HEAD
    assert settings(text)["ClusterName"] == "red"


def test_accounting_is_enforced_where_there_is_a_database_and_absent_where_there_is_none() -> None:
    assert settings(configuration.slurm_conf(SPEC, 0))["AccountingStorageEnforce"] == "associations,limits,qos"
    assert "AccountingStorage" not in configuration.slurm_conf(QUICK, 0)


@pytest.mark.parametrize(
    ("release", "flags", "cgroups"),
    [
        ((20, 11), False, ""),
        ((21, 8), True, "cgroup/v1"),
        ((22, 5), True, "cgroup/v1"),
        ((24, 11), True, "disabled"),
        ((26, 5), True, "disabled"),
    ],
)
def test_a_release_of_slurm_is_told_only_what_it_knows(release: tuple[int, int], flags: bool, cgroups: str) -> None:
    """An unknown key in slurm.conf or cgroup.conf ends every daemon and every command."""
    assert ("AccountingStoreFlags" in settings(configuration.slurm_conf(SPEC, 0, release))) is flags
    assert settings(configuration.cgroup_conf(release)).get("CgroupPlugin", "") == cgroups


@pytest.mark.parametrize(
    ("gpus", "expected"),
    [(0, "# no GPUs\n"), (1, "File=/dev/fakegpu0\n"), (8, "File=/dev/fakegpu[0-7]\n")],
)
def test_gres_conf_names_a_device_file_for_every_gpu(gpus: int, expected: str) -> None:
    assert configuration.gres_conf(LabSpec(nodes=1, gpus_per_node=gpus)).endswith(expected)
    assert ("Gres=" in configuration.slurm_conf(LabSpec(nodes=1, gpus_per_node=gpus), 0)) is (gpus > 0)


def test_no_host_is_its_own_loopback_in_etc_hosts() -> None:
    lines = [line.split() for line in configuration.hosts_file(SPEC, 2).splitlines()]
    assert lines[0] == ["127.0.0.1", "localhost"]
    assert {name: ip for ip, name in lines[1:]} == {host: address(2, host) for host in (MGMT, HEAD, "n1", "n2", "n3")}


def test_ssh_config_reaches_hosts_of_the_lab_and_says_nothing_about_others() -> None:
    text = configuration.ssh_config(SPEC, 2, key=Path("/k"), known_hosts=Path("/kh"))
    patterns = [word for line in re.findall(r"^Host (.+)$", text, re.MULTILINE) for word in line.split()]
    assert set(patterns) == {each for host in SPEC.hosts for each in (host, f"red-{host}")}
    assert "StrictHostKeyChecking yes" in text
    assert "nsenter --net=/run/netns/surefoot-red-mgmt " in text


def test_known_hosts_holds_each_hosts_key_without_its_comment() -> None:
    keys = {host: f"ssh-ed25519 KEY{host} someone@somewhere" for host in SPEC.hosts}
    lines = configuration.known_hosts(SPEC, 2, keys).splitlines()
    assert lines == [f"{address(2, host)},{host} ssh-ed25519 KEY{host}" for host in SPEC.hosts]


@pytest.mark.parametrize("spec", [SPEC, QUICK, LabSpec(nodes=1)], ids=["hosts", "namespaces", "one node"])
def test_the_cluster_file_is_one_that_surefoot_reads(spec: LabSpec) -> None:
    cluster = Cluster.model_validate(yaml.safe_load(configuration.cluster_yaml(spec, shared=Path("/lab/shared"))))
    assert cluster.nodes == spec.nodes
    assert cluster.root == "/lab/shared"


def test_where_hosts_have_an_older_python_the_cluster_file_says_which() -> None:
    text = configuration.cluster_yaml(SPEC, shared=Path("/lab/shared"), oldest_python="3.9")
    assert Cluster.model_validate(yaml.safe_load(text)).software.python == "3.9"


# --- files of hosts -------------------------------------------------------------------------------


def test_secrets_are_readable_by_their_owner_alone() -> None:
    for host in SPEC.hosts:
        for file in host_files(SPEC, 0, host, SECRETS, WHO):
            raw = file.content if isinstance(file.content, bytes) else file.content.encode()
            secret = any(
                each in raw
                for each in (SECRETS.munge_key, SECRETS.jwt_key, b"password-of-the-database", b"PRIVATE HOST KEY")
            )
            if secret:
                assert file.mode & 0o077 == 0, file.path


def test_slurm_conf_is_the_same_on_every_host() -> None:
    texts = {content(host_files(SPEC, 0, host, SECRETS, WHO), "/etc/slurm/slurm.conf") for host in SPEC.hosts}
    assert len(texts) == 1


def test_the_database_password_is_on_the_head_alone() -> None:
    for host in SPEC.hosts:
        text = "".join(str(file.content) for file in host_files(SPEC, 0, host, SECRETS, WHO))
        assert (SECRETS.database_password in text) is (host == HEAD)


def test_a_bare_host_has_nothing_of_slurm_and_no_name_of_another_host() -> None:
    bare = SPEC.model_copy(update={"bare": True})
    for host in bare.hosts:
        files = host_files(bare, 0, host, SECRETS, WHO)
        assert not [file.path for file in files if re.search("slurm|munge|mysql|known_hosts", file.path)]
        assert content(files, "/etc/hosts") == f"127.0.0.1\tlocalhost\n127.0.1.1\t{host}\n"


def test_bare_hosts_without_systemd_are_refused() -> None:
    with pytest.raises(ValidationError, match="tier hosts"):
        LabSpec(bare=True, tier=Tier.NAMESPACES)


@pytest.mark.parametrize("tier", list(Tier))
def test_the_head_runs_the_controller_and_the_nodes_run_slurmd(tier: Tier) -> None:
    assert "slurmctld" in services(tier, HEAD)
    assert "slurmd" not in services(tier, HEAD)
    assert "slurmd" in services(tier, "n1")
    assert "slurmctld" not in services(tier, "n1")


def test_units_that_a_host_enables_are_of_packages_in_the_base_root() -> None:
    for host in (HEAD, "n1"):
        for name in services(Tier.HOSTS, host):
            assert any(package.startswith(name) for package in PACKAGES), name


# --- commands and scripts -------------------------------------------------------------------------


def test_no_mount_and_no_process_outlives_the_build_of_a_base_root() -> None:
    command = build_command(Path("/x"), "http://mirror", {"Acquire::Check-Date": "false"})
    before = command[: command.index("mmdebstrap")]
    assert before[:4] == ["setpriv", "--pdeathsig", "KILL", "unshare"]
    assert {"--pid", "--kill-child", "--mount", "private"} <= set(before)
    assert command[-3:] == ["bookworm", "/x", "http://mirror"]
    assert '--aptopt=Acquire::Check-Date "false"' in command


def test_another_mirror_is_another_base_root() -> None:
    assert base_key("") != base_key("http://mirror")


def test_every_suite_is_another_base_root_with_the_packages_that_it_has() -> None:
    assert len({base_key("", suite) for suite in SUITES}) == len(SUITES)
    for suite in SUITES:
        command = build_command(Path("/x"), "http://mirror", {}, suite)
        assert command[-3:] == [suite, "/x", "http://mirror"]
        assert f"--include={','.join(packages(suite))}" in command
    assert "slurm-wlm-jwt-plugin" not in packages("bullseye")
    assert packages("bookworm") == PACKAGES


def test_a_bare_base_root_is_another_one_and_holds_nothing_that_a_role_installs() -> None:
    assert base_key("", bare=True) not in {base_key("", suite) for suite in SUITES}
    assert base_key("", bare=True) != base_key("", "trixie", bare=True)
    command = build_command(Path("/x"), "", {}, bare=True)
    assert "--include=systemd,systemd-sysv,openssh-server,python3" in command


def test_an_archived_suite_is_fetched_without_its_security_archive() -> None:
    assert build_command(Path("/x"), "", {}, "bullseye")[-2:] == ["/x", "http://deb.debian.org/debian"]
    assert build_command(Path("/x"), "", {}, "trixie")[-2:] == ["trixie", "/x"]


STATUS = """\
Package: slurm-client
Version: 1.0-1

Package: slurmctld
Status: install ok installed
Version: {version}
"""


@pytest.mark.parametrize(
    ("written", "release"),
    [
        ("20.11.7+really20.11.4-2+deb11u1", (20, 11)),
        ("22.05.8-4+deb12u3", (22, 5)),
        ("1:26.05.5-1", (26, 5)),
        ("262.1-1", (262, 1)),
        ("262-1", (262, 0)),
    ],
)
def test_the_version_of_a_package_is_what_dpkg_has(tmp_path: Path, written: str, release: tuple[int, int]) -> None:
    (tmp_path / "var/lib/dpkg").mkdir(parents=True)
    (tmp_path / "var/lib/dpkg/status").write_text(STATUS.format(version=written))
    assert version(tmp_path, "slurmctld") == release
    with pytest.raises(MachineryError, match="no package slurmd"):
        version(tmp_path, "slurmd")


@pytest.mark.parametrize(("libc", "linked"), [("2.31-13+deb11u11", True), ("2.36-9", False), ("2.43-7", False)])
def test_the_library_behind_clock_off_is_linked_with_what_holds_dlsym(tmp_path: Path, libc: str, linked: bool) -> None:
    for folder in ("var/lib/dpkg", "usr/lib/x86_64-linux-gnu"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "lib").symlink_to("usr/lib")
    (tmp_path / "usr/lib/x86_64-linux-gnu/libdl.so.2").touch()
    (tmp_path / "var/lib/dpkg/status").write_text(f"Package: libc6\nVersion: {libc}\n")
    assert dlsym_library(tmp_path) == (["/lib/x86_64-linux-gnu/libdl.so.2"] if linked else [])


def test_what_a_host_is_not_to_start_is_disabled_also_where_this_machine_has_no_such_unit(tmp_path: Path) -> None:
    """Links of a base root lead nowhere on this machine, mostly."""
    wants = tmp_path / "multi-user.target.wants"
    wants.mkdir()
    for name in ("mariadb.service", "slurmrestd.service", "munge.service"):
        (wants / name).symlink_to(f"/no/such/{name}")
    disable(tmp_path)
    assert [link.name for link in wants.iterdir()] == ["munge.service"]


def test_the_namespaces_tier_never_shows_a_host_this_machines_devices() -> None:
    """A device file made on a host would appear in this machine's /dev."""
    assert not re.search(r"mount --?r?bind /dev\b", scripts.ENTER_ROOT)
    assert re.search(r"^mount -t tmpfs .* dev$", scripts.ENTER_ROOT, re.MULTILINE)


def test_nodes_are_parsed_once_each_with_state_and_reason() -> None:
    nodes = parse_nodes("n1|IDLE|none\nn1|IDLE|none\nn2|DOWN*|Not responding\nn3|drained|a|b\n")
    assert [(node.name, node.state, node.reason, node.works) for node in nodes] == [
        ("n1", "idle", "", True),
        ("n2", "down*", "Not responding", False),
        ("n3", "drained", "a|b", False),
    ]


# --- faults ---------------------------------------------------------------------------------------


def state(spec: LabSpec) -> LabState:
    return LabState(spec=spec, slot=0, base="b", phase="up", made_at=0)


def test_a_fault_goes_to_the_first_host_it_goes_with_and_to_no_other_kind() -> None:
    for name, fault in FAULTS.items():
        _, hosts, setting = chosen(state(SPEC), name, None, None)
        assert hosts == (HEAD if fault.where == "head" else "n1",)
        assert chosen(state(SPEC), name, "all", None)[1] == ((HEAD,) if fault.where == "head" else ("n1", "n2", "n3"))
        assert setting == fault.setting
        with pytest.raises(RequestError, match="does not go with"):
            chosen(state(SPEC), name, "n1" if fault.where == "head" else HEAD, None)


@pytest.mark.parametrize("setting", ["", "fast", "200mbit; rm -rf /", "-5mbit", "200mbit\n", "0mbit"])
def test_a_rate_that_is_none_is_refused(setting: str) -> None:
    with pytest.raises(RequestError, match="does not take"):
        chosen(state(SPEC), "link-shaped", "n1", setting)


def test_a_fault_that_takes_no_setting_refuses_one() -> None:
    with pytest.raises(RequestError, match="does not take"):
        chosen(state(SPEC), "link-cut", "n1", "1")


def test_a_default_setting_is_one_that_is_allowed() -> None:
    for name, fault in FAULTS.items():
        assert bool(fault.setting) is bool(fault.allowed), name
        if fault.allowed:
            assert re.fullmatch(fault.allowed, fault.setting), name


def test_a_fault_that_this_tier_does_not_have_says_which_has_it() -> None:
    with pytest.raises(RequestError, match="needs a lab of the tier hosts"):
        chosen(state(QUICK), "slurmdbd-stopped", None, None)
    assert chosen(state(SPEC), "slurmdbd-stopped", None, None)[1] == (HEAD,)


def test_an_unknown_fault_names_those_that_exist() -> None:
    with pytest.raises(RequestError) as refused:
        chosen(state(SPEC), "gremlins", None, None)
    assert all(name in refused.value.next_action for name in FAULTS)


# --- documentation --------------------------------------------------------------------------------

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "lab.md").read_text()


def test_the_page_lists_every_fault_with_its_place_and_setting() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \| (head|node) \| (.*) \|$", PAGE, re.MULTILINE)
    assert [(name, where) for name, where, _ in rows] == [(name, fault.where) for name, fault in FAULTS.items()]
    for name, _, seen in rows:
        assert not FAULTS[name].setting or f"`--set {FAULTS[name].setting}`" in seen, name


def test_the_page_lists_every_package_that_a_machine_needs() -> None:
    line = re.search(r"^apt-get install --no-install-recommends (.+)$", PAGE, re.MULTILINE)
    assert line is not None
    assert sorted(line[1].split()) == PACKAGES_OF_THE_MACHINE
