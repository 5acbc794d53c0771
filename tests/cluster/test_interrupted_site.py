"""Plays that are killed: the next run makes good whatever lay between two tasks, on hosts that began with nothing.

The tests stand in the order of a site's life, and use one lab. A node stands in for a file server: no kernel's
NFS is at hand, so its units are stand-ins that note what they read.
"""

from __future__ import annotations

import base64
import json
import random
import re
import sys
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import yaml

from bare_site import BareSite, bare_site
from held import Held
from surefoot.lab.provisioning import SITE

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.sites, pytest.mark.long, pytest.mark.timeout(2400)]

SEED = 20261130
KILLS = 2
NFS = {
    "storage_server": {"hosts": {"n1": {"storage_server_packages": [], "storage_exports": [{"path": "/srv/export"}]}}}
}
FILE_SERVER = """\
set -e
cat >/usr/sbin/exportfs <<'X'
#!/bin/sh
mkdir -p /var/lib/nfs
cat /etc/exports.d/*.exports | tee /var/lib/nfs/etab >/run/exported
X
chmod +x /usr/sbin/exportfs
mkdir -p /etc/exports.d
cat >/etc/systemd/system/nfs-server.service <<'X'
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStartPre=-/usr/sbin/exportfs -r
ExecStart=/bin/sh -c 'cp /etc/nfs.conf.d/surefoot.conf /run/threads; true'
ExecReload=/usr/sbin/exportfs -r
[Install]
WantedBy=multi-user.target
X
systemctl daemon-reload
"""


@pytest.fixture(scope="module")
def site(held: Held) -> Iterator[BareSite]:
    with bare_site(held, "i", NFS) as made:
        made.on("n1", FILE_SERVER)
        yield made


def test_a_site_that_is_killed_again_and_again_is_finished_by_the_next_run(
    site: BareSite, capsys: pytest.CaptureFixture[str]
) -> None:
    dice = random.Random(SEED)
    at = [round(dice.uniform(5, 60), 1) for _ in range(KILLS)]
    last = []
    for seconds in at:
        killed = site.play(kill_after=seconds)
        assert killed.code == -9, f"ended before it was killed: {killed.text[-2000:]}"
        tasks = [event for event in killed.events if event["event"] == "task"]
        last.append(f"{seconds} s: {tasks[-1]['task'] if tasks else 'before the first task'}")
    with capsys.disabled():
        sys.stdout.write("\nkilled after " + "; ".join(last) + "\n")
    site.play().well()
    site.play().well(changed=0)


@dataclass(frozen=True)
class Moment:
    """A file is written, and what reads it is not told."""

    role: str
    host: str
    task: str
    change: dict[str, Any]
    shows: str
    """A script that prints what the daemon has in force."""
    before: str
    after: str
    unit: str


MOMENTS = [
    Moment(
        "munge", "n1", "Munged has the declared options", {"munge_threads": 7},
        "tr '\\0' ' ' </proc/$(pgrep -x munged)/cmdline", "--num-threads 10", "--num-threads 7", "munge",
    ),
    Moment(
        "common", "n1", "Chrony has the declared servers", {"common_chrony_servers": ["n2"]},
        "chronyc -n sources | grep -c '^^' || true", "0", "1", "chrony",
    ),
    Moment(
        "storage", "n1", "Exports are as declared", {"storage_export_options": "ro,sync"},
        "grep -o '(r[ow]' /run/exported | head -1", "(rw", "(ro", "nfs-server",
    ),
    Moment(
        "storage", "n1", "The NFS server has the declared number of threads", {"storage_server_threads": 9},
        "grep threads /run/threads", "threads = 64", "threads = 9", "nfs-server",
    ),
    Moment(
        "monitoring", "n2", "The node exporter has its arguments", {"monitoring_exporter_port": 9111},
        "tr '\\0' ' ' </proc/$(pgrep -f prometheus-node-exporter | head -1)/cmdline", ":9100", ":9111", "prometheus-node-exporter",
    ),
    Moment(
        "monitoring", "head", "Prometheus knows its targets", {"monitoring_scrape_interval_s": 3},
        "python3 -c \"import urllib.request as r; print(r.urlopen('http://127.0.0.1:9090/api/v1/status/config').read().decode())\"",
        "scrape_interval: 2s", "scrape_interval: 3s", "prometheus",
    ),
    Moment(
        "monitoring", "head", "Its service and its timer are there", {"monitoring_slurm_interval_s": 4},
        "systemctl show surefoot-slurm-metrics.timer -p TimersMonotonic", "OnUnitActiveUSec=2s", "OnUnitActiveUSec=4s", "",
    ),
    Moment(
        "runner", "n2", "The service of the runner is there", {"runner_writable_folders": ["/srv"]},
        "tr '\\0' '\\n' </proc/$(systemctl show -p MainPID --value surefoot-runner)/mountinfo | grep -c ' /srv rw' || true",
        "0", "1", "surefoot-runner",
    ),
    Moment(
        "runner", "n2", "The login host looks for the key there", {"runner_login_own_keys": True},
        "", "", "", "ssh",
    ),
]  # fmt: skip


DECLARED: dict[str, Any] = {}
"""What the moments so far have changed: each stays, so that nothing is undone by the next one."""


@pytest.mark.parametrize("moment", MOMENTS, ids=lambda each: f"{each.role}-{each.task}".replace(" ", "-"))
def test_a_play_killed_between_a_file_and_its_daemon_is_drift_and_the_next_run_makes_it_good(
    site: BareSite, moment: Moment
) -> None:
    def shown() -> str:
        return site.on(moment.host, moment.shows).strip() if moment.shows else ""

    DECLARED.update(moment.change)
    words = ("--extra-vars", json.dumps(DECLARED), "--tags", moment.role, "--limit", moment.host)
    assert moment.before in shown()
    killed = site.play(*words, kill_after=(moment.host, moment.task))
    assert killed.code == -9, killed.text[-3000:]
    assert any(f"{moment.host}: {moment.role}: {moment.task}" in row for row in killed.changed), killed.changed
    assert moment.before in shown(), "the daemon has the new file already: nothing is left to make good"
    drift = site.play("--check", *words).well().changed
    assert [row for row in drift if moment.task in row] == [], "the file is right, and yet it is drift"
    told = f"{moment.unit}: it read " if moment.unit else "Systemd has read the files of its units"
    assert [row for row in drift if told in row], drift
    made_good = site.play(*words).well().changed
    assert [row for row in made_good if told in row], made_good
    assert moment.after in shown()


def test_after_all_of_them_nothing_is_left_to_change(site: BareSite) -> None:
    site.play("--check", "--extra-vars", json.dumps(DECLARED)).well(changed=0)


# --- a host that is away, or has another folder -----------------------------------------------------


def test_a_host_that_is_away_is_named_last_and_the_others_are_finished(site: BareSite) -> None:
    DECLARED["munge_threads"] = 6
    site.on("n2", "systemctl stop ssh.socket ssh; pkill -x sshd || true")
    try:
        person = {"ANSIBLE_STDOUT_CALLBACK": "default", "ANSIBLE_CALLBACK_PLUGINS": str(SITE / "plugins/callback")}
        told = site.play("--extra-vars", json.dumps(DECLARED), env=person)
    finally:
        site.on("n2", "systemctl start ssh")
    assert told.code == 4, told.text[-3000:]
    lines = [line for line in told.text.splitlines() if line]
    assert lines[-3] == "NOT FINISHED: 1 of 3 hosts. The others are.", lines[-8:]
    assert lines[-2].startswith('n2: unreachable at "Gathering Facts" (site.yml:'), lines[-2]
    assert lines[-1].endswith("--limit n2")
    for host in ("head", "n1"):
        assert "--num-threads 6" in site.on(host, "tr '\\0' ' ' </proc/$(pgrep -x munged)/cmdline")
        assert [
            line for line in lines if line.startswith(f"{host} ") and "failed=0" in line and "unreachable=0" in line
        ]
    site.play("--extra-vars", json.dumps(DECLARED), "--limit", "n2").well()


@pytest.mark.parametrize(
    ("host", "options", "said"),
    [("head", "ro", "root cannot write into"), ("head", "rw", "does not see what n1, n2 wrote, and most others do")],
)
def test_a_host_with_another_folder_is_named_and_the_others_are_finished(
    site: BareSite, host: str, options: str, said: str
) -> None:
    root = site.paths.shared
    site.on(host, f"mount -t tmpfs -o {options} tmpfs {root}")
    try:
        told = site.play("--tags", "storage", "--extra-vars", json.dumps(DECLARED | {"storage_check_within_s": 2}))
    finally:
        site.on(host, f"umount {root}")
    assert told.code == 2
    assert [row.partition(":")[0] for row in told.problems] == [host], told.problems
    assert said in told.problems[0]
    assert {name: row["failures"] for name, row in told.stats.items()} == {"head": 1, "n1": 0, "n2": 0}
    assert not list(root.glob(".surefoot-storage-check*")), "a file of the proof was left"


# --- rolling ----------------------------------------------------------------------------------------


def nodes(site: BareSite) -> dict[str, str]:
    """Node → its state and the reason for it."""
    rows = site.on("head", "sinfo -h -N -p long -o '%N|%T|%E'").split("\n")
    return {name: rest for name, _, rest in (row.partition("|") for row in rows if row)}


def test_a_rolling_change_killed_over_a_drained_node_resumes_it_later_and_no_other(site: BareSite) -> None:
    site.on("head", "scontrol update nodename=n2 state=drain reason='fan is loud'")
    words = ("--extra-vars", json.dumps(DECLARED))
    last = "Slurm knows the node, with all its GPUs"
    killed = site.play(*words, playbook="rolling.yml", kill_after=("n1", last))
    assert killed.code == -9, killed.text[-3000:]
    assert nodes(site) == {"n1": "drained|surefoot rolling change", "n2": "drained|fan is loud"}
    site.play(*words, playbook="rolling.yml").well()
    assert nodes(site) == {"n1": "idle|none", "n2": "drained|fan is loud"}
    site.on("head", "scontrol update nodename=n2 state=resume")


def test_without_accounting_a_rolling_change_counts_gpus_by_the_nodes_own_line(site: BareSite) -> None:
    tree = yaml.safe_load(site.inventory.read_text())
    whole = site.inventory.read_text()
    for group in ("slurm_database", "slurm_rest"):  # slurmrestd wants accounting
        del tree["all"]["children"][group]
    site.inventory.write_text(yaml.safe_dump(tree))
    try:
        words = ("--extra-vars", json.dumps(DECLARED))
        site.play(*words, playbook="rolling.yml").well()
        assert "gres/gpu" not in site.on("head", "scontrol show node n1 -o")
        assert nodes(site) == {"n1": "idle|none", "n2": "idle|none"}
    finally:
        site.inventory.write_text(whole)


# --- secrets ----------------------------------------------------------------------------------------


def forms(name: str, value: str) -> dict[str, bytes]:
    """Ways in which a secret may stand in a log."""
    raw = base64.b64decode(value) if name.endswith("BASE64") else value.encode()
    found = {
        "itself": value.encode(),
        "its bytes": raw,
        "its bytes as UTF-8": raw.decode("latin-1").encode(),
        "base64": base64.b64encode(raw),
        "base64 of the text": base64.b64encode(value.encode()),
        "base64 for addresses": base64.urlsafe_b64encode(raw).rstrip(b"="),
        "hex": raw.hex().encode(),
        "as an address has it": urllib.parse.quote_from_bytes(raw, safe="").encode(),
        "the text as an address has it": urllib.parse.quote(value, safe="").encode(),
        "as Python shows it": repr(raw)[2:-1].encode(),
        "as JSON has it": json.dumps(raw.decode("latin-1"))[1:-1].encode(),
    }
    # Parts of 24 bytes, from the beginning: a line that was cut holds enough of it.
    return {form: text[:24] for form, text in found.items()}


def slips(secret: dict[str, str], places: dict[str, bytes]) -> list[str]:
    """Which secret stands where, and in which form; a credential of munge is one as well."""
    found = [
        f"{name} ({form}) in {place}"
        for place, text in places.items()
        for name, value in secret.items()
        for form, part in forms(name, value).items()
        if part in text
    ]
    return found + [
        f"a credential in {place}" for place, text in places.items() if re.search(rb"MUNGE:[A-Za-z0-9+/]{20}", text)
    ]


def test_no_secret_is_in_what_ansible_prints_nor_in_any_hosts_journal_and_logs(site: BareSite) -> None:
    script = (
        "{ journalctl --no-pager -o cat; find /var/log -type f -not -path '*/journal/*' -exec cat {} +; } | base64 -w0"
    )
    places = {host: base64.b64decode(site.on(host, script)) for host in site.state.spec.hosts}
    for host, text in places.items():
        assert b"ansible" in text, f"the journal of {host} says nothing of Ansible: it is not what is looked for"
    places["the output"] = "\n".join(site.told).encode()
    assert b"The key is the cluster's" in places["the output"]
    assert slips(site.secret, places) == []


def test_a_secret_in_a_log_is_seen_in_each_form() -> None:
    secret = {"A_BASE64": base64.b64encode(bytes(range(200, 250))).decode(), "B_TOKEN": "glrt-0123456789/+abcdefghij"}
    for name, value in secret.items():
        for form, part in forms(name, value).items():
            assert slips(secret, {"a log": b"word " + part + b" word"}), f"{name} as {form}"
    assert slips(secret, {"a log": b"stdin=MUNGE:AwQFAAAlxxxxxxxxxxxxxxxxxxxxx:"}) == ["a credential in a log"]
    assert slips(secret, {"a log": b"word"}) == []
