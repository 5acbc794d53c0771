"""``surefoot preflight --drain`` on a real Slurm: n2's own name leads to 127.0.1.1, and n2 alone is drained for it.

In order: proposed; refused to a user who may not; done by the same user as an administrator; and never over what a person set.
"""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from drilling import wait_until
from held import Held
from lab_drill import LabDrill, lab, lab_here
from surefoot.engine.draining import Draining, drain
from surefoot.engine.store import load_manifest, load_results
from surefoot.lab.places import LabPaths
from surefoot.lab.spec import CLIMBER
from surefoot.paths import RunPaths

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.timeout(600)]

LADDER = """name: some
rungs: [{rung: runner}, {rung: sync, needs: [runner]}, {rung: precheck, needs: [sync]}]
"""
CHECK = "precheck.node1.own_name"


class Site:
    """A lab whose n2 is broken."""

    def __init__(self, paths: LabPaths, folder: Path) -> None:
        self.paths = paths
        self.name = paths.folder.name
        self.folder = folder
        self.ladder = folder / "some.yaml"
        self.ladder.write_text(LADDER)

    def root(self, script: str) -> str:
        """A script on the head, by root, as an admin would."""
        return lab("exec", "head", "--", "sh", "-c", script, name=self.name)

    def nodes(self) -> dict[str, tuple[str, str]]:
        """Node → state and reason, by sinfo's own words."""
        rows = self.root("sinfo -h -N -p gpu -o '%N|%T|%E'").split("\n")
        return {name: (state, why) for name, state, why in (row.split("|", 2) for row in rows if row)}

    def preflight(self, number: int, *words: str) -> tuple[LabDrill, subprocess.CompletedProcess[str]]:
        drill = LabDrill(self.folder / f"run-{number}", lab=self.paths)
        return drill, drill.run("preflight", *drill.on_lab, "--ladder", str(self.ladder), "--drain", *words)


@pytest.fixture(scope="module")
def site(held: Held, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with lab_here(held, "d", "--plain") as paths:
        lab("break", "loopback-name", "n2", name=paths.folder.name)
        yield Site(paths, tmp_path_factory.mktemp("drain"))


def test_one_broken_node_is_proposed_then_drained_and_what_a_person_set_stays(site: Site) -> None:
    fine = {"n1": ("idle", "none"), "n2": ("idle", "none")}
    assert site.nodes() == fine

    # Proposed: nothing is changed, and the command is one to paste.
    drill, done = site.preflight(1)
    assert done.returncode == 1, done.stdout + done.stderr
    (line,) = [line.strip() for line in done.stdout.splitlines() if line.strip().startswith("scontrol")]
    reason = f"surefoot: {CHECK}: n2 -> 127.0.1.1 on n2"
    assert shlex.split(line)[:4] == ["scontrol", "update", "nodename=n2", "state=drain"]
    assert shlex.split(line)[4].startswith(f"reason={reason}"), line
    assert site.nodes() == fine

    # Refused: an ordinary user may not, is told so with the command, and nothing is changed.
    _, done = site.preflight(2, "--yes", "--json")
    assert done.returncode == 1
    told = json.loads(done.stdout)["drain"]
    assert (told["drained"], told["stands"][0]["drained"]) == ([], False)
    assert "scontrol did not drain n2" in told["problems"][0]
    assert told["to_do"][0]["nodes"] == ["n2"]
    assert site.nodes() == fine

    # Done: n2 with check, run and evidence in its reason; n1 as it was.
    site.root(f"sacctmgr -i modify user where name={CLIMBER} set adminlevel=Administrator")
    drill, done = site.preflight(3, "--yes", "--json")
    assert done.returncode == 1
    told = json.loads(done.stdout)["drain"]
    assert (told["drained"], told["problems"], told["to_do"]) == (["n2"], [], [])
    assert CHECK in told["at_fault"][0]["checks"]
    after = site.nodes()
    assert after["n1"] == ("idle", "none")
    state, why = after["n2"]
    assert state.startswith("drain")
    assert why.startswith(f"surefoot: {CHECK}: n2 -> 127.0.1.1 on n2")
    path = why.split()[-1]
    assert path.startswith(f"{drill.run_folder().name}/rungs/precheck/")
    assert (drill.run_folder().parent / path).is_file()

    # A second time, and over what a person wrote since: nothing is overwritten.
    assert "out of service already: n2 is drained (surefoot: " in dict(drained_again(drill).left_alone)["n2"]
    assert site.nodes() == after
    site.root("scontrol update nodename=n2 reason='jo: bad rail'")
    assert dict(drained_again(drill).left_alone) == {"n2": "out of service already: n2 is drained (jo: bad rail)"}
    assert site.nodes()["n2"] == (state, "jo: bad rail")

    # In service again, it may be drained again; but with n1 out it would be the whole partition, and nothing is drained.
    site.root("scontrol update nodename=n2 state=resume")
    wait_until(lambda: site.nodes() == fine)
    site.root("scontrol update nodename=n1 state=down reason='jo: power'")
    over: Any = drained_again(drill)
    assert (over.withheld, over.asked.would_be_out, over.asked.most) == (True, 2, 1)
    assert site.nodes()["n2"] == ("idle", "none")
    site.root("scontrol update nodename=n1 state=resume")
    wait_until(lambda: site.nodes() == fine)
    assert [each.drained for each in drained_again(drill).stands] == [True]
    site.root("scontrol update nodename=n2 state=resume")
    lab("mend", name=site.name)
    assert site.nodes() == fine


def drained_again(drill: LabDrill) -> Draining:
    """The same run's faults, drained once more on the lab's Slurm."""
    paths = RunPaths(drill.run_folder())
    manifest = load_manifest(paths)
    return drain(manifest.inputs.cluster, load_results(paths, manifest).values(), manifest.run_id, 0.1, act=True)
