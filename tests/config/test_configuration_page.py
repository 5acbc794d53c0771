"""docs/configuration.md says what is so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from surefoot.config.load import Kind, load_cluster, load_ladder, shipped_names
from surefoot.errors import ConfigError

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "configuration.md").read_text()


def block(language: str, containing: str) -> str:
    blocks = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    return next(text for text in blocks if containing in text)


def test_the_example_of_a_wrong_ladder_gives_the_errors_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text(block("yaml", "runer"))
    with pytest.raises(ConfigError) as caught:
        load_ladder("mine.yaml")
    assert f"{caught.value}\n" == block("text", "mine.yaml:5")


@pytest.mark.parametrize(
    ("option", "kind"),
    [("--cluster", "cluster"), ("--ladder", "ladder"), ("--recipe", "recipe"), ("--policy", "policy")],
)
def test_the_table_names_the_shipped_files(option: str, kind: Kind) -> None:
    row = next(line for line in PAGE.splitlines() if line.startswith(f"| `{option}`"))
    assert sorted(re.findall(r"`([\w-]+)`", row.split("|")[3])) == shipped_names(kind)


def test_the_example_of_an_environment_is_a_part_of_a_cluster_file(tmp_path: Path) -> None:
    (tmp_path / "train.lock").write_text("torch==2.13.0\n")
    more = "name: mine\nroot: /srv/surefoot\nnode_groups: [{name: nodes, count: 2}]\n"
    (tmp_path / "cluster.yaml").write_text(block("yaml", "train.lock") + more)
    found = load_cluster(tmp_path / "cluster.yaml").record.environment
    assert found is not None
    assert (found.requirements, found.build_limit_s) == (("torch==2.13.0",), 3600)
