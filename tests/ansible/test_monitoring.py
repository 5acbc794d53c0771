"""The role monitoring: its files are what Prometheus, Alertmanager and their own checkers take, and its dashboard shows data.

The programs come from Debian's packages and are not installed (`prometheus_here`).
"""

from __future__ import annotations

import functools
import http.server
import json
import re
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from held import Held, remove_folder, start
from prometheus_here import ROLE, ask, rendered, unpacked, without_an_answer
from surefoot.lab.places import DEFAULT_HOME, lab_home

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.sites, pytest.mark.long]

HERE = Path(__file__).parent
GOLDEN = Path(__file__).parents[1] / "golden/dcgm_exporter/written-by-hand.prom"
HOSTS = {name: {"common_address": "127.0.0.1"} for name in ("head", "n1")}
DASHBOARD = ROLE / "files/cluster.json"


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpacked(lab_home(DEFAULT_HOME), tmp_path_factory.mktemp("prometheus"))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def expressions() -> list[str]:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    return [target["expr"] for panel in panels for target in panel["targets"]]


def test_every_alert_is_raised_by_what_it_is_for_and_by_nothing_else(programs: Path, tmp_path: Path) -> None:
    done = rendered(tmp_path, programs, ["surefoot.yml"], HOSTS)
    assert done.returncode == 0, done.stdout
    text = (tmp_path / "surefoot.yml").read_text()
    alerts = set(re.findall(r"alert: (\w+)", text))
    tested = (HERE / "rules_test.yml").read_text()
    assert alerts == {name for name in alerts if f'alertname="{name}"' in tested}
    shutil.copy(HERE / "rules_test.yml", tmp_path)
    promtool = [str(programs / "promtool"), "test", "rules", "rules_test.yml"]
    said = subprocess.run(promtool, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert said.returncode == 0, said.stdout + said.stderr
    # The same test sees a threshold that was turned around.
    (tmp_path / "surefoot.yml").write_text(text.replace("< 0.1\n", "> 0.1\n").replace("< 0.1 ", "> 0.1 "))
    assert (tmp_path / "surefoot.yml").read_text() != text
    said = subprocess.run(promtool, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert said.returncode != 0
    assert "FilesystemNearlyFull" in said.stdout + said.stderr


def test_targets_are_the_hosts_of_the_inventory_and_gpu_exporters_those_that_are_declared(
    programs: Path, tmp_path: Path
) -> None:
    hosts = {
        "head": {"ansible_host": "10.1.1.1"},
        "n1": {"common_address": "10.1.1.2", "ansible_host": "192.0.2.7", "monitoring_dcgm_exporter": True},
        "n2": {},
    }
    done = rendered(tmp_path, programs, ["prometheus.yml"], hosts)
    assert done.returncode == 0, done.stdout
    jobs = {job["job_name"]: job for job in yaml.safe_load((tmp_path / "prometheus.yml").read_text())["scrape_configs"]}
    found = {
        name: {row["labels"]["instance"]: row["targets"] for row in jobs[name]["static_configs"]}
        for name in ("node", "dcgm")
    }
    assert found["node"] == {"head": ["10.1.1.1:9100"], "n1": ["10.1.1.2:9100"], "n2": ["n2:9100"]}
    assert found["dcgm"] == {"n1": ["10.1.1.2:9400"]}


@pytest.mark.parametrize(
    ("file", "broken", "said"),
    [
        ("prometheus.yml", {"monitoring_scrape_interval_s": "often"}, "not a valid duration"),
        ("surefoot.yml", {"monitoring_alert_clock_offset_s": "a bit +"}, "could not parse expression"),
        ("alertmanager.yml", {"monitoring_receivers": [{"name": "me", "telegraph": 1}]}, "telegraph"),
    ],
)
def test_a_file_that_its_reader_would_refuse_does_not_replace_the_one_that_works(
    programs: Path, tmp_path: Path, file: str, broken: dict[str, object], said: str
) -> None:
    assert rendered(tmp_path, programs, [file], HOSTS).returncode == 0
    before = (tmp_path / file).read_bytes()
    done = rendered(tmp_path, programs, [file], HOSTS, **broken)
    assert done.returncode != 0
    assert "failed to validate" in done.stdout
    assert said in done.stdout, done.stdout
    assert (tmp_path / file).read_bytes() == before


@pytest.fixture(scope="module")
def live(programs: Path, held: Held) -> Iterator[int]:
    """The port of a Prometheus that watches this machine, a Slurm's counts and a GPU exporter's recorded text."""
    folder = held.folder("prom-")
    node, dcgm, own = free_port(), free_port(), free_port()
    hosts = {name: {"common_address": "127.0.0.1", "monitoring_dcgm_exporter": True} for name in ("head",)}
    ports = {"monitoring_exporter_port": node, "monitoring_dcgm_port": dcgm, "monitoring_prometheus_port": own}
    done = rendered(
        folder, programs, ["prometheus.yml", "surefoot.yml"], hosts, monitoring_scrape_interval_s=1, **ports
    )
    assert done.returncode == 0, done.stdout
    config = folder / "prometheus.yml"
    config.write_text(config.read_text().replace("/etc/prometheus/rules/*.yml", str(folder / "surefoot.yml")))
    rules = folder / "surefoot.yml"
    rules.write_text(re.sub(r"(?m)^ +for: .*\n", "", rules.read_text()))  # raised at once
    (folder / "counts").mkdir()
    counts = _slurm_counts(folder / "slurm")
    (folder / "counts/surefoot_slurm.prom").write_text(counts)
    (folder / "gpus").mkdir()
    shutil.copy(GOLDEN, folder / "gpus/metrics")
    serve = functools.partial(_Plain, directory=str(folder / "gpus"))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", dcgm), serve)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    exporter = [str(programs / "prometheus-node-exporter"), f"--web.listen-address=127.0.0.1:{node}"]
    prometheus = [str(programs / "prometheus"), f"--config.file={config}", f"--web.listen-address=127.0.0.1:{own}"]
    running = [
        start([*exporter, f"--collector.textfile.directory={folder / 'counts'}"], folder, folder / "exporter.log"),
        start([*prometheus, f"--storage.tsdb.path={folder / 'data'}"], folder, folder / "prometheus.log"),
    ]
    try:
        yield own
    finally:
        server.shutdown()
        server.server_close()
        remove_folder(str(folder))
        for process in running:
            process.wait()


class _Plain(http.server.SimpleHTTPRequestHandler):
    """Files, told to be text, without a line for each on the console."""

    extensions_map = {"": "text/plain"}

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        pass


def _slurm_counts(folder: Path) -> str:
    """What the role's own program counts of a Slurm with a drained node."""
    folder.mkdir()
    for name, text in (("sinfo", "n1|idle\nn2|drained\n"), ("squeue", "RUNNING\nPENDING\n")):
        (folder / name).write_text(f"#!/bin/sh\nprintf '{text}'\n")
        (folder / name).chmod(0o755)
    program = [str(ROLE / "files/slurm_metrics.py"), str(folder / "out.prom")]
    subprocess.run(program, env={"PATH": f"{folder}:/usr/bin:/bin"}, check=True, timeout=60)
    return (folder / "out.prom").read_text()


def test_every_expression_of_the_dashboard_has_data_in_a_live_prometheus(live: int) -> None:
    assert len(expressions()) > 10
    assert without_an_answer(live, expressions(), timeout_s=40) == []
    (power,) = ask(live, 'sum by (instance) (DCGM_FI_DEV_POWER_USAGE{job="dcgm"})')
    assert (power["metric"], power["value"][1]) == ({"instance": "head"}, "810.75")
    (drained,) = ask(live, 'ALERTS{alertname="SlurmNodeDrained",alertstate="firing"}')
    assert drained["metric"]["node"] == "n2"


def test_an_expression_over_a_metric_that_is_not_there_is_found(live: int) -> None:
    wrong = [expressions()[0], expressions()[0].replace("up", "uq")]
    started = time.monotonic()
    assert without_an_answer(live, wrong, timeout_s=5) == wrong[1:]
    assert time.monotonic() - started < 20
