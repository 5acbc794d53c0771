"""A wrong file is refused with one line for each thing that is wrong; a right one becomes a record."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from surefoot.config.explain import PATTERN_WORDS
from surefoot.config.load import (
    Kind,
    apply_overrides,
    load,
    load_cluster,
    load_ladder,
    load_policy,
    load_recipe,
    shipped_folder,
    shipped_names,
)
from surefoot.config.schema import json_schema
from surefoot.errors import ConfigError

LADDER = """\
name: mine
rungs:
  - rung: runner
  - rung: sync
    needs: [runner]
  - rung: collectives
    needs: [sync]
"""

CLUSTER = """\
name: site
connection: {kind: ssh, host: login}
scheduler:
  kind: slurm
root: /srv/surefoot
node_groups:
  - name: gpu
    count: 2
    gpus_per_node: 8
"""

RECIPE = """\
name: tune
base: path:models/base
train: {source: "path:../rows.jsonl"}
evaluate:
  source: ${ROWS}/held-out.jsonl
learning_rate: 5e-5
"""


@pytest.fixture
def lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Lines of the error that a file makes."""
    monkeypatch.chdir(tmp_path)

    def attempt(kind: Kind, text: str) -> list[str]:
        Path("f.yaml").write_text(text)
        with pytest.raises(ConfigError) as caught:
            load(kind, "f.yaml")
        assert f"`surefoot schema {kind}`" in caught.value.next_action
        return caught.value.message.splitlines()

    return attempt


def test_an_unknown_key_names_the_keys_of_that_very_rung_and_the_nearest(lines: Any) -> None:
    assert lines("ladder", LADDER + "    max_sise: 8\n") == [
        (
            "f.yaml:8: rungs[collectives].max_sise: unknown key; allowed: needs, time_limit_s, nodes, ranks_per_node, "
            "launch, pending, rung, collectives, min_size, max_size, factor, warmup, iterations, min_busbw_gb_s, "
            "min_link_share; did you mean max_size?"
        )
    ]


def test_a_key_of_one_rung_is_unknown_to_another(lines: Any) -> None:
    assert lines("ladder", LADDER.replace("rung: runner", "rung: runner\n    nodes: 2")) == [
        "f.yaml:4: rungs[runner].nodes: unknown key; allowed: needs, time_limit_s, rung"
    ]


def test_a_wrong_kind_of_connection_names_the_kinds(lines: Any) -> None:
    assert lines("cluster", CLUSTER.replace("kind: ssh", "kind: shh")) == [
        "f.yaml:2: connection.kind: is 'shh'; allowed: local, ssh; did you mean ssh?"
    ]


def test_an_unknown_key_of_a_connection_names_the_keys_of_its_kind(lines: Any) -> None:
    assert lines("cluster", CLUSTER.replace("host: login", "hots: login")) == [
        "f.yaml:2: connection.host: missing; allowed: text",
        "f.yaml:2: connection.hots: unknown key; allowed: kind, host, config; did you mean host?",
    ]
    assert lines("cluster", CLUSTER.replace("kind: slurm", "kind: slurm\n  partion: debug")) == [
        "f.yaml:5: scheduler.partion: unknown key; allowed: kind, partition, account, qos; did you mean partition?"
    ]


def test_a_missing_kind_names_the_kinds_at_the_line_of_its_mapping(lines: Any) -> None:
    assert lines("cluster", CLUSTER.replace("  kind: slurm", "  partition: debug")) == [
        "f.yaml:3: scheduler.kind: missing; allowed: local, slurm"
    ]


def test_a_missing_key_is_told_at_the_line_of_its_parent(lines: Any) -> None:
    assert lines("cluster", CLUSTER.replace("    count: 2\n", "").replace("root: /srv/surefoot\n", "")) == [
        "f.yaml:1: root: missing; allowed: text of at least one",
        "f.yaml:6: node_groups[gpu].count: missing; allowed: a whole number ≥ 1",
    ]


def test_everything_wrong_is_told_at_once_in_the_order_of_the_file(lines: Any) -> None:
    found = lines(
        "ladder",
        LADDER + "    factor: 1\n    collectives: [all_gathr]\n    ranks_per_node: atuo\n    nodes: true\n"
        '    iterations: "8"\n    max_size: 1 cow\n    min_busbw_gb_s: {all_redcue: 1, alltoall: fast}\nnme: x\n',
    )
    assert found == [
        "f.yaml:8: rungs[collectives].factor: is 1; allowed: a whole number ≥ 2",
        (
            "f.yaml:9: rungs[collectives].collectives[0]: is 'all_gathr'; allowed: all_reduce, all_gather, "
            "reduce_scatter, alltoall, broadcast, sendrecv; did you mean all_gather?"
        ),
        (
            "f.yaml:10: rungs[collectives].ranks_per_node: is 'atuo'; allowed: a whole number ≥ 1 or auto; "
            "did you mean auto?"
        ),
        "f.yaml:11: rungs[collectives].nodes: is true; allowed: a whole number ≥ 1 or all",
        (
            "f.yaml:12: rungs[collectives].iterations: is '8'; allowed: a whole number ≥ 1; "
            "did you mean 8, without quotes?"
        ),
        "f.yaml:13: rungs[collectives].max_size: not a size: '1 cow' (8, 64K, 32MiB and 16G are sizes)",
        (
            "f.yaml:14: rungs[collectives].min_busbw_gb_s.all_redcue: is 'all_redcue'; allowed: all_reduce, all_gather, "
            "reduce_scatter, alltoall, broadcast, sendrecv; did you mean all_reduce?"
        ),
        "f.yaml:14: rungs[collectives].min_busbw_gb_s.alltoall: is 'fast'; allowed: a number",
        "f.yaml:15: nme: unknown key; allowed: name, description, rungs; did you mean name?",
    ]


def test_a_rung_that_does_not_exist_names_the_nearest(lines: Any) -> None:
    (line,) = lines("ladder", LADDER.replace("rung: sync", "rung: synch").replace("needs: [sync]", "needs: []"))
    assert line.startswith(
        "f.yaml:4: rungs[synch].rung: is 'synch'; allowed: runner, sync, inventory, drift, scheduler, "
    )
    assert line.endswith("; did you mean sync?")


@pytest.mark.parametrize(
    ("needs", "what"),
    [
        ("snyc", "no rung 'snyc' stands before this one; allowed: runner, sync; did you mean sync?"),
        ("ddp", "no rung 'ddp' stands before this one; allowed: runner, sync"),
        ("collectives", "'collectives' is this rung itself; allowed: runner, sync"),
    ],
)
def test_a_wrong_need_is_told_at_its_own_line(lines: Any, needs: str, what: str) -> None:
    text = LADDER.replace("needs: [sync]", f"needs:\n      - runner\n      - {needs}")
    assert lines("ladder", text) == [f"f.yaml:9: rungs[collectives].needs[1]: {what}"]


def test_a_need_that_stands_later_says_so_and_a_second_rung_of_one_name_too(lines: Any) -> None:
    text = LADDER.replace("needs: [runner]", "needs: [collectives]") + "  - rung: sync\n"
    assert lines("ladder", text) == [
        (
            "f.yaml:5: rungs[sync].needs[0]: 'collectives' stands after this rung; move it up, "
            "so that no rung waits for itself"
        ),
        "f.yaml:8: rungs[sync].rung: 'sync' stands twice in the ladder; keep one",
    ]


def test_a_rule_between_two_keys_is_told_at_one_of_them(lines: Any) -> None:
    assert lines("ladder", LADDER + "    max_size: 16\n    min_size: 32\n") == [
        "f.yaml:9: rungs[collectives].min_size: sizes run from 8 B upwards: min_size 32, max_size 16"
    ]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("name: mine", "name: two words", f"f.yaml:1: name: is 'two words'; allowed: text ({next(iter(PATTERN_WORDS.values()))})"),
        ("needs: [sync]", "needs: sync", "is 'sync'; allowed: a list, each item text; did you mean [sync]?"),
        ("needs: [sync]", "needs:", "is empty; allowed: a list, each item text"),
        ("needs: [sync]", "time_limit_s: 1.5", "is 1.5; allowed: a whole number ≥ 5"),
        ("needs: [sync]", "warmup: {}", "is a mapping; allowed: a whole number ≥ 0"),
        ("needs: [sync]", "max_size: 1.5", "is 1.5; allowed: a number of bytes, or a size such as 64KiB, 32MiB, 16G"),
        ("needs: [sync]", "max_size: true", "is true; allowed: a number of bytes, or a size such as"),
        ("needs: [sync]", "max_size: -1", "is -1; allowed: a number of bytes, or a size such as"),
        ("needs: [sync]", "min_busbw_gb_s: {alltoall: .nan}", "alltoall: is NaN; allowed: a number"),
        ("  - rung: runner\n", "  - runner\n", "rungs[0]: is 'runner'; allowed: a mapping with the key rung (runner, "),
        ("rung: sync", "rung:", "f.yaml:4: rungs[1].rung: is empty; allowed: runner, sync, "),
        ("rung: sync", "rnug: sync", "f.yaml:4: rungs[1].rung: missing; allowed: runner, sync, "),
        ("rung: collectives", "rung: fake_trainer\n    fail: yes", "is 'yes'; allowed: true or false; did you mean true?"),
    ],
)  # fmt: skip
def test_a_wrong_value_names_what_is_allowed(lines: Any, old: str, new: str, expected: str) -> None:
    found = lines("ladder", LADDER.replace(old, new))
    assert any(expected in line for line in found), found


@pytest.mark.parametrize("text", ["name: x\nrungs: []\n", "name: x\nrungs:\n", "name: x\nrungs: 7\n", "name: x\n"])
def test_a_ladder_without_rungs_is_refused(lines: Any, text: str) -> None:
    (line,) = lines("ladder", text)
    assert line.startswith(f"f.yaml:{2 if 'rungs' in text else 1}: rungs: ")
    assert "a list of at least one" in line


def test_text_that_looks_like_a_number_asks_for_quotes(lines: Any) -> None:
    assert lines("cluster", CLUSTER + "env: {NCCL_DEBUG: 1}\nsoftware: {python: 3.12}\n") == [
        'f.yaml:10: env.NCCL_DEBUG: is 1; allowed: text; did you mean "1", in quotes?',
        'f.yaml:11: software.python: is 3.12; allowed: text; did you mean "3.12", in quotes?',
    ]


def test_only_a_local_cluster_may_detect_and_have_a_relative_root(lines: Any) -> None:
    text = CLUSTER.replace("root: /srv/surefoot", "root: .surefoot").replace("node: 8", "node: detect")
    assert lines("cluster", text) == [
        "f.yaml:5: root: '.surefoot' is relative; with connection: ssh it must be absolute",
        (
            "f.yaml:9: node_groups[gpu].gpus_per_node: 'detect' looks at this machine; with connection: ssh write the "
            "number of GPUs of a node"
        ),
    ]


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("/srv/surefoot", "/srv/a/../b", "root: '/srv/a/../b' holds '..'"),
        ("/srv/surefoot", "/srv/50%", "root: '/srv/50%' holds '%', which Slurm expands"),
        ("/srv/surefoot", r"/srv/a\b", r"root: '/srv/a\b' holds '\'"),
        ("/srv/surefoot", '"/srv/a\\nb"', "holds a line break"),
        ("host: login", "host: -oProxyCommand=id", "connection.host: is '-oProxyCommand=id'; allowed: a name without"),
        ("host: login", "host: a b", "connection.host: is 'a b'"),
        ("kind: slurm", 'kind: slurm\n  partition: "gpu\\n#SBATCH -x"', "scheduler.partition: is 'gpu"),
        ("kind: slurm", "kind: slurm\n  account: my lab", "scheduler.account: is 'my lab'"),
    ],
)
def test_names_that_ssh_or_slurm_would_take_for_something_else_are_refused_with_their_line(
    lines: Any, old: str, new: str, told: str
) -> None:
    assert old in CLUSTER
    (line,) = lines("cluster", CLUSTER.replace(old, new))
    assert told in line


def test_hosts_that_are_no_list_or_stand_in_two_groups_are_refused_with_their_line(lines: Any) -> None:
    (line,) = lines("cluster", CLUSTER + "    hosts: gpu[01-\n")
    assert line.startswith("f.yaml:")
    assert "node_groups[gpu].hosts: " in line
    assert "like gpu[01-32]" in line
    two = "    hosts: gpu[01-04]\n  - name: more\n    count: 3\n    hosts: gpu[03-05]\n"
    (line,) = lines("cluster", CLUSTER + two)
    assert "node_groups[more].hosts: gpu[03-04] stands in the group gpu too" in line


def test_gpudirect_that_only_some_groups_expect_wants_their_hosts(lines: Any) -> None:
    two = CLUSTER + "    gpudirect: expected\n  - name: more\n    count: 3\n    gpus_per_node: 8\n"
    (line,) = lines("cluster", two)
    assert line.startswith("f.yaml:10: node_groups[gpu].gpudirect: expected here and not of every group")
    Path("f.yaml").write_text(two.replace("    gpudirect", "    hosts: gpu[1-2]\n    gpudirect"))
    assert load("cluster", "f.yaml").record.node_groups[0].gpudirect == "expected"


def test_every_pattern_of_the_models_has_words() -> None:
    def patterns(data: Any) -> list[str]:
        if isinstance(data, list):
            return [found for item in data for found in patterns(item)]
        if not isinstance(data, dict):
            return []
        own = [data["pattern"]] if isinstance(data.get("pattern"), str) and "anyOf" not in data else []
        return own + [found for item in data.values() for found in patterns(item)]

    found = {p for kind in ("cluster", "ladder", "recipe", "policy") for p in patterns(json_schema(kind))}  # type: ignore[arg-type]
    sizes = {p for p in found if "KMGT" in p}
    assert sizes
    assert found - sizes == set(PATTERN_WORDS)


def write_recipe(folder: Path, text: str = RECIPE) -> Path:
    path = folder / "recipes" / "tune.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def test_a_recipes_paths_are_relative_to_its_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROWS", "path:data")
    monkeypatch.chdir(tmp_path)
    write_recipe(tmp_path)
    loaded = load_recipe("recipes/tune.yaml")
    assert loaded.record.base == f"path:{tmp_path}/recipes/models/base"
    assert loaded.record.train.source == f"path:{tmp_path}/rows.jsonl"
    assert loaded.record.evaluate.source == f"path:{tmp_path}/recipes/data/held-out.jsonl"
    assert loaded.text == RECIPE
    assert loaded.path == tmp_path / "recipes" / "tune.yaml"
    assert loaded.record.learning_rate == 5e-5


def test_other_sources_stay_as_they_are(tmp_path: Path) -> None:
    text = RECIPE.replace("path:models/base", "hf:org/model").replace("${ROWS}/held-out.jsonl", "builtin:demo-eval")
    recipe = load_recipe(write_recipe(tmp_path, text)).record
    assert (recipe.base, recipe.evaluate.source) == ("hf:org/model", "builtin:demo-eval")


def test_variables_stand_for_values_in_sources_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROWS", "path:/data")
    text = RECIPE.replace("name: tune", "name: tune\ndescription: ${ROWS}")
    recipe = load_recipe(write_recipe(tmp_path, text)).record
    assert recipe.description == "${ROWS}"
    assert recipe.evaluate.source == "path:/data/held-out.jsonl"


@pytest.mark.parametrize(("value", "state"), [(None, "not set"), ("", "empty")])
def test_a_variable_without_a_value_names_itself_and_its_line(
    monkeypatch: pytest.MonkeyPatch, lines: Any, value: str | None, state: str
) -> None:
    monkeypatch.delenv("ROWS", raising=False)
    if value is not None:
        monkeypatch.setenv("ROWS", value)
    (line,) = lines("recipe", RECIPE)
    assert line.startswith(
        f"f.yaml:5: evaluate.source: the environment variable ROWS is {state}; set it: export ROWS=…"
    )


@pytest.mark.parametrize("source", ["${}", "${A B}", "path:${OPEN", "${1X}"])
def test_a_malformed_variable_is_refused(lines: Any, source: str) -> None:
    (line,) = lines("recipe", RECIPE.replace("${ROWS}/held-out.jsonl", f'"{source}"'))
    assert "is no variable" in line


def test_a_source_of_no_known_kind_is_refused(lines: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROWS", "/plain/path")
    assert lines("recipe", RECIPE.replace("path:models/base", "models/base")) == [
        "f.yaml:2: base: a source starts with builtin:, path: or hf:, not 'models/base'",
        "f.yaml:5: evaluate.source: a source starts with builtin:, path: or hf:, not '/plain/path/held-out.jsonl'",
    ]


@pytest.mark.parametrize("kind", ["cluster", "ladder", "recipe", "policy"])
def test_every_shipped_file_loads_by_its_name(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    names = shipped_names(kind)
    assert names
    for name in names:
        for variable in re.findall(r"\$\{(\w+)\}", (shipped_folder(kind) / f"{name}.yaml").read_text()):
            monkeypatch.setenv(variable, "/data")
        loaded = load(kind, name)
        assert loaded.record.name == name
        assert loaded.shipped
        assert loaded.text == loaded.path.read_text()
    if kind == "cluster":
        assert names == ["local", "two-sparks"]
    if kind == "ladder":
        assert names == ["full", "local", "preflight"]


def test_the_shipped_ladders_have_the_same_rungs_and_needs() -> None:
    local, full = load_ladder("local").record, load_ladder("full").record
    assert {s.rung: s.needs for s in local.rungs} == {s.rung: s.needs for s in full.rungs}
    assert len(local.rungs) == 17
    assert (full.spec("collectives").min_size, full.spec("collectives").max_size) == (8, 16 * 1024**3)  # type: ignore[union-attr]


def test_the_seed_system_is_described_as_it_is() -> None:
    cluster = load_cluster("two-sparks").record
    assert (cluster.nodes, cluster.gpus_per_node, cluster.scheduler.kind) == (2, 1, "slurm")
    assert [rail.hca for rail in cluster.node_groups[0].rails] == cluster.env["NCCL_IB_HCA"].split(",")


def test_a_name_that_is_not_shipped_names_those_that_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        ConfigError, match=r"no cluster is called 'lcoal'; shipped are: local, two-sparks; did you mean local\?"
    ):
        load_cluster("lcoal")
    with pytest.raises(ConfigError, match=r"cluster file gone/local.yaml does not exist; did you mean local "):
        load_cluster("gone/local.yaml")
    with pytest.raises(ConfigError, match=r"policy file \./x does not exist"):
        load_policy("./x")


def test_a_file_without_a_suffix_is_found_and_a_shipped_name_outweighs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine").write_text(LADDER)
    Path("local").write_text(LADDER)
    assert load_ladder("mine").record.name == "mine"
    assert load_ladder("local").shipped
    assert load_ladder("./local").record.name == "mine"


def test_overrides_replace_values_and_leave_the_text() -> None:
    base = load_ladder("local")
    changed = apply_overrides(
        base,
        ["collectives.max_size=1MiB", "fake_trainer.fail=true", "collectives.collectives=[all_reduce]"],
    )
    changed = apply_overrides(changed, ["collectives.min_busbw_gb_s.all_reduce=0.5"])
    spec = changed.record.spec("collectives").canonical()
    assert (spec["max_size"], spec["collectives"], spec["min_busbw_gb_s"]) == (
        1024**2,
        ["all_reduce"],
        {"all_reduce": 0.5},
    )
    assert changed.record.spec("fake_trainer").canonical()["fail"] is True
    assert changed.text == base.text
    assert changed.overrides[-1] == "collectives.min_busbw_gb_s.all_reduce=0.5"
    assert len(changed.overrides) == 4
    assert base.record.spec("fake_trainer").canonical()["fail"] is False
    assert apply_overrides(base, []) is base


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("collectives.max_sise=1MiB", ": unknown key; allowed: needs, time_limit_s, "),
        ("collectives.max_sise=1MiB", "; did you mean max_size?"),
        ("colectives.max_size=1", ": no rung 'colectives' in this ladder; allowed: runner, "),
        ("colectives.max_size=1", "; did you mean collectives?"),
        ("collectives.max_size=1 cow", ": not a size: '1 cow'"),
        ("collectives.max_size=4", ": rungs[collectives].min_size: sizes run from 8 B upwards: min_size 8, max_size 4"),
        ("collectives.max_size=", ": is empty; allowed: a number of bytes"),
        ("fake_trainer.fail=yes", ": is 'yes'; allowed: true or false; did you mean true?"),
        ("fake_trainer.fail=[", ": value:1: not valid YAML"),
        ("fake_trainer.fail", ": not a setting; allowed: RUNG.KEY=VALUE"),
        ("fake_trainer=true", ": not a setting; allowed: RUNG.KEY=VALUE"),
        ("=true", ": not a setting; allowed: RUNG.KEY=VALUE"),
        ("fake_trainer..x=true", ": not a setting; allowed: RUNG.KEY=VALUE"),
        ("fake_trainer.rung=runner", ": what a rung is cannot be set"),
        ("fake_trainer.seconds.x=1", ": fake_trainer.seconds has no keys below it"),
        ("storage.needs=[ddp]", ": rungs[storage].needs[0]: 'ddp' stands after this rung"),
        ("storage.needs=[precheck, chache]", ": rungs[storage].needs[1]: no rung 'chache' stands before"),
    ],
)
def test_a_wrong_override_is_told_by_the_same_words(setting: str, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        apply_overrides(load_ladder("local"), [setting])
    (line,) = caught.value.message.splitlines()
    assert line.startswith(f"--set {setting}: ")
    assert expected in line


def test_all_wrong_overrides_are_told_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        apply_overrides(load_ladder("local"), ["storage.file_sise=1", "compute.seconds=-1"])
    assert len(caught.value.message.splitlines()) == 2


keys = st.sampled_from(["name", "rungs", "rung", "needs", "kind", "root", "connection", "train", "source", "env", "x"])
junk = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(allow_nan=False) | st.sampled_from(["", "sync", "local", "${X}"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=10,
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(["cluster", "ladder", "recipe", "policy"]), st.dictionaries(keys, junk, min_size=1, max_size=5))
def test_any_mapping_is_a_record_or_a_config_error(kind: Kind, data: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "f.yaml"
        path.write_text(yaml.safe_dump(data))
        message = ""
        try:
            load(kind, path)
        except ConfigError as error:
            message = error.message
        assert [line for line in message.splitlines() if not line.startswith(f"{path}:")] == []
