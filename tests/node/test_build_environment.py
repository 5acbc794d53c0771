"""Environments are built from real wheels by real pip: once for each kind of node, by whoever is alive to do it."""

from __future__ import annotations

import functools
import http.server
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from surefoot.node.build_environment import Claim, Order, Watched, provide, put_chooser, ready
from surefoot.node.chooser import node_key
from surefoot.node.venv_build import BuildError, Source, failing_line, move_in, settle
from wheels import hash_option, wheel

SRC = str(Path(__file__).resolve().parents[2] / "src")
KEY, _ = node_key(sys.executable)


def nothing(_done: int, _text: str) -> None:
    """Nobody to tell."""


def order(root: Path, *requirements: str, attempt: str = "a1", stale_s: float = 1.5, **source: str) -> Order:
    """What is wanted below `root`; its wheels lie in ``root/wheels``."""
    (root / "envs").mkdir(exist_ok=True)
    parts = {"base": sys.executable, "index": "", "wheels": str(root / "wheels"), **source}
    made = Source(requirements=requirements or ("Tiny.One==1.0", "tiny-two==2.0"), **parts)
    return Order(root / "envs", "digest", made, attempt, stale_s)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two wheels, one with a command."""
    folder = tmp_path / "r"
    wheel(folder / "wheels", "Tiny.One", "1.0", script="tiny")
    wheel(folder / "wheels", "tiny-two", "2.0", needs=("tiny-one>=1",))
    return folder


def left(home: Path) -> list[str]:
    """What lies in the folder of environments, finished ones aside."""
    return sorted(path.name for path in home.iterdir() if not (path / "ready.json").exists())


# -- one rank


@pytest.mark.slow
def test_it_holds_the_lock_and_nothing_else_and_works_where_it_stands(root: Path) -> None:
    answer = provide(order(root), KEY, nothing)
    place = root / "envs" / KEY
    assert answer["outcome"] == "built"
    assert answer["ready"] == ready(order(root), KEY)
    assert sorted(answer["ready"]["distributions"]) == [["Tiny.One", "1.0"], ["tiny-two", "2.0"]]
    assert answer["ready"]["conflicts"] == []
    said = subprocess.run([place / "bin" / "tiny"], capture_output=True, text=True, check=True)
    assert said.stdout == "1.0\n"  # its shebang names the place, not where it was built
    where = "import sys, tiny_two; print(sys.prefix)"
    said = subprocess.run([place / "bin" / "python", "-c", where], capture_output=True, text=True, check=True)
    assert said.stdout == f"{place}\n"
    assert list(place.rglob("tiny_one*.pyc"))  # compiled once, not by every rank
    naming = [path for path in (place / "bin").iterdir() if path.is_file() and b".building-" in path.read_bytes()]
    assert naming == []
    assert left(root / "envs") == []


@pytest.mark.slow
def test_the_second_time_it_is_there(root: Path) -> None:
    provide(order(root), KEY, nothing)
    assert provide(order(root, attempt="b2"), KEY, nothing)["outcome"] == "there"


@pytest.mark.slow
def test_a_place_that_was_taken_apart_is_built_anew(root: Path) -> None:
    provide(order(root), KEY, nothing)
    (root / "envs" / KEY / "ready.json").write_text("{cut o")
    (root / "envs" / KEY / "stale").write_text("")
    assert provide(order(root, attempt="b2"), KEY, nothing)["outcome"] == "built"
    assert not (root / "envs" / KEY / "stale").exists()
    assert left(root / "envs") == []


def refused(wanted: Order, log: Path) -> BuildError:
    with pytest.raises(BuildError) as caught:
        provide(Order(**{**wanted.__dict__, "log": log}), KEY, nothing)
    assert not (wanted.folder / KEY).exists()
    return caught.value


@pytest.mark.slow
@pytest.mark.parametrize(
    ("requirements", "step", "words"),
    [
        (
            ("Tiny.One==1.0", "missing==3.1"),
            "pip install",
            "Could not find a version that satisfies the requirement missing==3.1",
        ),
        (("Tiny.One==9",), "pip install", "(from versions: 1.0)"),
        (("tiny-two==2.0",), "pip check", "tiny-two 2.0 requires tiny-one, which is not installed."),
        ((f"Tiny.One==1.0 --hash=sha256:{'0' * 64}",), "pip install", "THESE PACKAGES DO NOT MATCH THE HASHES"),
    ],
)
def test_a_build_that_fails_names_the_step_and_pips_line(
    root: Path, tmp_path: Path, requirements: tuple[str, ...], step: str, words: str
) -> None:
    log = tmp_path / "pip.log"
    error = refused(order(root, *requirements), log)
    assert error.step == step
    assert words in error.text
    assert error.line is not None
    assert log.read_text().splitlines()[error.line - 1].strip() in error.text


def test_a_folder_of_wheels_that_this_host_does_not_see_is_told_as_that(root: Path, tmp_path: Path) -> None:
    error = refused(order(root, wheels="/srv/nowhere"), tmp_path / "pip.log")
    assert error.text == "/srv/nowhere is no folder on this host"
    assert "all nodes see them" in error.advice


@pytest.mark.slow
def test_only_what_the_hash_pins_is_installed(root: Path) -> None:
    good = root / "wheels" / "Tiny.One-1.0-py3-none-any.whl"
    made = order(root, f"Tiny.One==1.0 {hash_option(good)}")
    assert provide(made, KEY, nothing)["outcome"] == "built"


@pytest.mark.slow
def test_versions_that_do_not_go_together_are_told_and_no_obstacle(root: Path) -> None:
    wheel(root / "wheels", "picky", "1.0", needs=("tiny-one>=7",))
    answer = provide(order(root, "Tiny.One==1.0", "picky==1.0"), KEY, nothing)
    assert answer["ready"]["conflicts"] == [
        "picky 1.0 has requirement tiny-one>=7, but you have tiny-one 1.0."
    ] or answer["ready"]["conflicts"] == ["picky 1.0 has requirement tiny-one>=7, but you have Tiny.One 1.0."]


@pytest.mark.slow
def test_an_interpreter_without_pip_and_ensurepip_is_told_with_what_to_install(root: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    bare.write_text(f'#!/bin/sh\ncase "$*" in *ensurepip*|"-m pip"*) exit 1;; *) exec {sys.executable} "$@";; esac\n')
    bare.chmod(0o755)
    error = refused(order(root, base=str(bare)), tmp_path / "pip.log")
    assert error.step == "finding pip"
    assert "neither ensurepip nor a pip" in error.text
    assert "python3-venv" in error.advice


@pytest.mark.slow
def test_an_interpreter_without_pip_builds_with_a_pip_that_is_thrown_away(root: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    bare.write_text(f'#!/bin/sh\ncase "$*" in "-m pip"*) exit 1;; *) exec {sys.executable} "$@";; esac\n')
    bare.chmod(0o755)
    answer = provide(order(root, base=str(bare)), KEY, nothing)
    assert [name for name, _ in sorted(answer["ready"]["distributions"])] == ["Tiny.One", "tiny-two"]
    assert left(root / "envs") == []


@pytest.mark.slow
def test_pip_settings_of_the_caller_do_not_move_what_is_installed(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PIP_TARGET", "PIP_PREFIX", "PYTHONPATH", "PYTHONHOME"):
        monkeypatch.setenv(name, str(tmp_path / "elsewhere"))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    assert provide(order(root), KEY, nothing)["outcome"] == "built"
    assert not (tmp_path / "elsewhere").exists()
    assert list((root / "envs" / KEY).rglob("tiny_one*.pyc"))


@pytest.fixture
def index(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """URL of a package index that has the wheels: a real HTTP server on this machine."""
    for path in (root / "wheels").glob("*.whl"):
        name = path.name.partition("-")[0].replace("_", "-").replace(".", "-").lower()
        page = root / "www" / "simple" / name / "index.html"
        page.parent.mkdir(parents=True)
        page.write_text(f'<!DOCTYPE html><html><body><a href="../../{path.name}">{path.name}</a></body></html>')
        (root / "www" / path.name).write_bytes(path.read_bytes())
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(root / "www"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/simple"
        server.shutdown()
        thread.join()


@pytest.mark.slow
def test_it_is_built_from_an_index(root: Path, index: str) -> None:
    answer = provide(order(root, index=index, wheels=""), KEY, nothing)
    assert sorted(answer["ready"]["distributions"]) == [["Tiny.One", "1.0"], ["tiny-two", "2.0"]]


# -- several at once

PROVIDE = """
import json, sys
from pathlib import Path
from surefoot.node.build_environment import Order, provide
from surefoot.node.venv_build import BuildError, Source
asked = json.loads(sys.argv[1])
source = Source(sys.executable, tuple(asked["requirements"]), "", asked["wheels"])
order = Order(Path(asked["envs"]), "digest", source, asked["attempt"], asked["stale_s"])
try:
    answer = provide(order, asked["key"], lambda done, text: None)
    print(json.dumps([answer["outcome"], answer["ready"]["attempt"], answer["ready"]["ended_at"]]))
except BuildError as error:
    print(json.dumps(["failed", error.step, error.text]))
"""


def begin(
    root: Path, attempt: str, *, key: str = KEY, stale_s: float = 30, requirements: Any = ()
) -> subprocess.Popen[str]:
    asked = {
        "requirements": requirements or ["Tiny.One==1.0", "tiny-two==2.0"], "wheels": str(root / "wheels"),
        "envs": str(root / "envs"), "attempt": attempt, "key": key, "stale_s": stale_s,
    }  # fmt: skip
    (root / "envs").mkdir(exist_ok=True)
    return subprocess.Popen(
        [sys.executable, "-c", PROVIDE, json.dumps(asked)],
        stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": SRC}, start_new_session=True,
    )  # fmt: skip


@pytest.fixture
def ended() -> Iterator[list[subprocess.Popen[str]]]:
    """Processes that are gone after the test."""
    children: list[subprocess.Popen[str]] = []
    yield children
    for child in children:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
        child.communicate()


def answers(children: list[subprocess.Popen[str]]) -> list[list[Any]]:
    return [json.loads(child.communicate(timeout=120)[0].splitlines()[-1]) for child in children]


@pytest.mark.slow
def test_ranks_of_one_attempt_build_once(root: Path, ended: list[subprocess.Popen[str]]) -> None:
    ended += [begin(root, "a1") for _ in range(4)]
    found = answers(ended)
    assert sorted(outcome for outcome, *_ in found) == ["built", "waited", "waited", "waited"]
    assert len({tuple(rest) for _, *rest in found}) == 1
    assert left(root / "envs") == []


@pytest.mark.slow
def test_two_attempts_at_once_build_once(root: Path, ended: list[subprocess.Popen[str]]) -> None:
    ended += [begin(root, attempt) for attempt in ("b2", "a1", "c3")]
    found = answers(ended)
    assert len({tuple(rest) for _, *rest in found}) == 1  # whoever built it, one environment stands
    assert sorted(outcome for outcome, *_ in found) == ["built", "waited", "waited"]
    assert left(root / "envs") == []


@pytest.mark.slow
def test_every_kind_of_node_has_its_own_builder(root: Path, ended: list[subprocess.Popen[str]]) -> None:
    ended += [begin(root, "a1", key=key) for key in (KEY, KEY, "other-os1-py3.1", "other-os1-py3.1")]
    assert sorted(outcome for outcome, *_ in answers(ended)) == ["built", "built", "waited", "waited"]
    assert sorted(path.parent.name for path in (root / "envs").glob("*/ready.json")) == sorted([KEY, "other-os1-py3.1"])


@pytest.mark.slow
def test_the_builders_failure_is_that_of_those_who_wait(root: Path, ended: list[subprocess.Popen[str]]) -> None:
    ended += [begin(root, "a1", requirements=["missing==1"]) for _ in range(3)]
    found = answers(ended)
    assert {outcome for outcome, *_ in found} == {"failed"}
    assert len({tuple(rest) for _, *rest in found}) == 1
    assert "missing==1" in found[0][2]


@pytest.mark.slow
def test_what_a_killed_builder_left_blocks_nobody_and_is_removed(
    root: Path, ended: list[subprocess.Popen[str]]
) -> None:
    first = begin(root, "a1")
    ended.append(first)
    claim = root / "envs" / f".building-{KEY}-a1"
    deadline = time.monotonic() + 60
    while not (claim / "venv" / "pyvenv.cfg").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    assert left(root / "envs") == [claim.name]
    started = time.monotonic()
    second = begin(root, "b2", stale_s=4)
    ended.append(second)
    (found,) = answers([second])
    assert found[0] == "built"
    assert time.monotonic() - started >= 4  # it might have been alive
    assert left(root / "envs") == []


@pytest.mark.slow
def test_what_a_failed_attempt_left_is_removed_at_once(root: Path) -> None:
    with pytest.raises(BuildError):
        provide(order(root, "missing==1"), KEY, nothing)
    assert left(root / "envs") == [f".building-{KEY}-a1"]
    assert provide(order(root, attempt="b2", stale_s=60), KEY, nothing)["outcome"] == "built"
    assert left(root / "envs") == []


def test_a_builder_of_this_attempt_that_stopped_is_not_waited_for_to_the_end(root: Path) -> None:
    wanted = order(root, stale_s=0.6)
    wanted.claim(KEY).mkdir()
    with pytest.raises(BuildError) as caught:
        provide(wanted, KEY, nothing)
    assert "stopped without a word" in caught.value.text


def test_a_claim_stirs_while_it_is_held_and_not_afterwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("surefoot.node.build_environment.BEAT_S", 0.05)
    watched = Watched(stale_s=0.4)
    claim = Claim(tmp_path)
    assert all(watched.alive(tmp_path) for _ in range(20) if not time.sleep(0.05))
    claim.stop()
    time.sleep(0.1)
    assert watched.alive(tmp_path)
    time.sleep(0.5)
    assert not watched.alive(tmp_path)


def test_a_claim_without_its_folder_makes_none(tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    claim = Claim(tmp_path / "c")
    claim.stop()
    (tmp_path / "c" / "alive.json").unlink()
    (tmp_path / "c").rmdir()
    claim.beat()
    assert not (tmp_path / "c").exists()


# -- pieces


def test_an_environment_of_another_lock_or_kind_is_not_ready(root: Path) -> None:
    wanted = order(root)
    (wanted.folder / KEY).mkdir()
    for text in (
        "",
        "[]",
        "{}",
        json.dumps({"key": KEY, "digest": "other"}),
        json.dumps({"key": "k", "digest": "digest"}),
    ):
        (wanted.folder / KEY / "ready.json").write_text(text)
        assert ready(wanted, KEY) is None
    (wanted.folder / KEY / "ready.json").write_text(json.dumps({"key": KEY, "digest": "digest"}))
    assert ready(wanted, KEY) is not None


def test_the_script_is_put_once_and_mended_where_it_was_changed(root: Path) -> None:
    wanted = order(root)
    put_chooser(wanted)
    path = wanted.folder / "python"
    before = path.stat()
    put_chooser(wanted)
    assert path.stat().st_ino == before.st_ino
    path.chmod(0o644)
    put_chooser(wanted)
    assert os.access(path, os.X_OK)
    path.write_text("#!/bin/sh\nexec python3\n")
    put_chooser(wanted)
    assert "surefoot_key" in path.read_text()


def test_the_first_error_of_pip_is_the_line_that_counts() -> None:
    assert failing_line(["Looking", "ERROR: a", "ERROR: b", "after"]) == (1, "ERROR: a")
    assert failing_line(["Traceback", "OSError: full", "", " "]) == (1, "OSError: full")
    assert failing_line([]) == (0, "")


def test_scripts_are_mended_and_programs_are_not(tmp_path: Path) -> None:
    old, new = tmp_path / "old", Path("/new place")
    (old / "bin").mkdir(parents=True)
    (old / "pyvenv.cfg").write_text(f"command = python -m venv {old}\n")
    (old / "bin" / "x").write_text(f"#!{old}/bin/python\n")
    (old / "bin" / "program").write_bytes(b"\x7fELF\0" + os.fsencode(old))
    (old / "bin" / "python").symlink_to(sys.executable)
    settle(old, new)
    assert (old / "bin" / "x").read_text() == "#!/new place/bin/python\n"
    assert (old / "pyvenv.cfg").read_text() == "command = python -m venv /new place\n"
    assert (old / "bin" / "program").read_bytes() == b"\x7fELF\0" + os.fsencode(old)


def test_the_first_to_move_in_stays(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "ready.json").write_text(name)
    place, aside = tmp_path / "place", tmp_path / "aside"
    assert move_in(tmp_path / "one", place, aside, lambda: True)
    assert not move_in(tmp_path / "two", place, aside, lambda: True)
    assert (place / "ready.json").read_text() == "one"
    assert move_in(tmp_path / "two", place, aside, lambda: False)
    assert (place / "ready.json").read_text() == "two"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["place"]
    (tmp_path / "file").write_text("")
    with pytest.raises(BuildError, match="moving it into place"):
        move_in(tmp_path / "three", tmp_path / "file" / "x", aside, lambda: False)
