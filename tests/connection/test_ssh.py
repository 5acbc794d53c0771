"""Against a real sshd on this machine."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import sshd
from held import Held, remove_folder
from surefoot.connection.ssh import SshConnection
from surefoot.errors import ConnectionFailedError, StorageError
from surefoot.scheduler.processes import start_ticks

pytestmark = pytest.mark.lab  # wants root and OpenSSH's server
SHOW = "import sys; sys.stdout.buffer.write(b'\\0'.join(a.encode('utf-8', 'surrogateescape') for a in sys.argv[1:]))"


@pytest.fixture(scope="module")
def server(held: Held) -> Iterator[sshd.Sshd]:
    if missing := sshd.problems():
        pytest.fail("this machine cannot run an sshd for tests: " + "; ".join(missing), pytrace=False)
    folder = held.folder("sshd-")
    try:
        with sshd.running(folder) as running:
            yield running
    finally:
        remove_folder(str(folder))


@pytest.fixture
def there(server: sshd.Sshd) -> Iterator[SshConnection]:
    connection = SshConnection("there", config=server.config, patience_s=20)
    yield connection
    connection.close()


@pytest.fixture(scope="module")
def shared(server: sshd.Sshd) -> Iterator[SshConnection]:
    connection = SshConnection("there", config=server.config)
    yield connection
    connection.close()


WORDS = st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30), max_size=4)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(WORDS)
def test_arguments_arrive_as_they_are(shared: SshConnection, words: list[str]) -> None:
    result = shared.run([sys.executable, "-c", SHOW, *words])
    assert result.stdout == "\0".join(words).encode()
    assert result.exit_code == 0


@pytest.mark.parametrize(
    "word", ["$(id)", "`id`", "a\nb", "'", '"', "\\", "!x", "-n", "*", "ü€😀", "~", "%s", "\r\n", "#"]
)
def test_what_a_shell_would_interpret_arrives_as_it_is(shared: SshConnection, word: str) -> None:
    assert shared.run(["printf", "%s", word], env={"WORD": word}).stdout == word.encode()
    assert shared.run([sys.executable, "-c", "import os; print(os.environ['W'])"], env={"W": word}).stdout == (
        word.encode() + b"\n"
    )


@pytest.mark.parametrize(
    ("argv", "env"),
    [
        (["echo", "a\0b"], {}),
        (["echo"], {"A B": "x"}),
        (["a=b"], {}),
        ([], {}),
        (["-x"], {}),
        (["echo", "x" * 200_000], {}),
    ],
)
def test_what_cannot_be_carried_is_refused_before_anything_runs(
    shared: SshConnection, argv: list[str], env: dict[str, str]
) -> None:
    with pytest.raises(ConnectionFailedError):
        shared.run(argv, env=env)


@pytest.mark.parametrize("code", [0, 1, 7, 126, 127, 128, 254, 255])
def test_every_exit_code_comes_back_also_ssh_s_own_255(shared: SshConnection, code: int) -> None:
    result = shared.run(["sh", "-c", f"echo out; echo err >&2; exit {code}"])
    assert (result.exit_code, result.signal, result.stdout, result.stderr) == (code, None, b"out\n", b"err\n")


def test_a_command_that_a_signal_ended_says_so(shared: SshConnection) -> None:
    result = shared.run(["sh", "-c", "kill -9 $$"])
    assert (result.exit_code, result.signal, result.stderr) == (None, 9, b"")


def test_a_program_that_is_not_there_is_an_error_not_a_result(shared: SshConnection) -> None:
    with pytest.raises(ConnectionFailedError, match="cannot start '/no/such/program' on there"):
        shared.run(["/no/such/program"])


def test_what_login_scripts_print_is_not_the_command_s_output(
    server: sshd.Sshd, there: SshConnection, tmp_path: Path
) -> None:
    talkative = server.folder / "authorized_keys"
    before = talkative.read_text()
    talkative.write_text(f'command="echo noise; echo noise >&2; eval \\"$SSH_ORIGINAL_COMMAND\\"" {before}')
    try:
        result = there.run(["echo", "hello"])
        there.write({tmp_path / "f": b"content"})
        assert there.read_many([tmp_path / "f"]) == {tmp_path / "f": b"content"}
    finally:
        talkative.write_text(before)
    assert (result.stdout, result.stderr) == (b"hello\n", b"")


@contextmanager
def forced(server: sshd.Sshd, command: str) -> Iterator[None]:
    """A login that does `command` first, as a start-up file of the shell would."""
    keys = server.folder / "authorized_keys"
    before = keys.read_text()
    keys.write_text(f'command="{command}; eval \\"$SSH_ORIGINAL_COMMAND\\"" {before}')
    try:
        yield
    finally:
        keys.write_text(before)


@pytest.mark.parametrize("code", [0, 1])
def test_a_login_shell_that_exits_before_the_command_is_told_at_once_and_in_its_words(
    server: sshd.Sshd, code: int
) -> None:
    connection = SshConnection("there", config=server.config)
    began = time.monotonic()
    try:
        with (
            forced(server, f"echo This account is closed.; exit {code}"),
            pytest.raises(ConnectionFailedError) as told,
        ):
            connection.run(["true"], repeatable=True)
        assert f"its login shell ended with exit code {code} before it came to the command" in str(told.value)
        assert "the last it printed: This account is closed." in str(told.value)
        assert "~/.bashrc" in told.value.next_action
        assert time.monotonic() - began < 10
    finally:
        connection.close()


def test_a_login_shell_that_never_comes_to_the_command_is_not_waited_for_for_ever(
    server: sshd.Sshd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("surefoot.connection.ssh._SHELL_S", 1.0)
    connection = SshConnection("there", config=server.config)
    try:
        with (
            forced(server, "sleep 20"),
            pytest.raises(ConnectionFailedError, match="login shell did not come to the command in 1 s"),
        ):
            connection.run(["true"], repeatable=True)
    finally:
        connection.close()


def test_a_command_that_has_begun_may_take_its_time(there: SshConnection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("surefoot.connection.ssh._SHELL_S", 0.5)
    assert there.run(["sh", "-c", "sleep 1; echo slow"]).stdout == b"slow\n"


def test_standard_input_arrives(shared: SshConnection) -> None:
    data = bytes(range(256)) * 1000
    assert shared.run(["cat"], stdin=data).stdout == data
    assert shared.run(["cat"]).stdout == b""


def test_a_command_over_its_time_is_ended_on_the_other_side(shared: SshConnection, tmp_path: Path) -> None:
    result = shared.run(["sh", "-c", "echo $$ >$0; sleep 600 & sleep 600", str(tmp_path / "pid")], timeout_s=0.5)
    assert result.timed_out
    assert alive_after(tmp_path / "pid") == []


def alive_after(pids: Path, within_s: float = 5) -> list[int]:
    """Of the processes in a file those that are still there then. Who was killed leaves when a busy machine gets to it."""
    deadline = time.monotonic() + within_s
    while True:
        alive = [pid for pid in map(int, pids.read_text().split()) if start_ticks(pid) is not None]
        if not alive or time.monotonic() > deadline:
            return alive
        time.sleep(0.02)


def test_cancel_ends_the_command_and_its_children_on_the_other_side(shared: SshConnection, tmp_path: Path) -> None:
    cancel = threading.Event()
    threading.Timer(0.5, cancel.set).start()
    script = "trap '' TERM; sleep 600 & echo $$ $! >$0; wait; sleep 600"
    result = shared.run(["sh", "-c", script, str(tmp_path / "pids")], cancel=cancel)
    assert (result.exit_code, result.signal) == (None, 15)
    assert len((tmp_path / "pids").read_text().split()) == 2
    assert alive_after(tmp_path / "pids") == []


def cut_soon(server: sshd.Sshd, marker: Path) -> threading.Thread:
    def work() -> None:
        deadline = time.monotonic() + 10
        while not marker.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        assert server.cut() > 0

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_a_link_that_breaks_under_a_repeatable_command_is_made_again(
    server: sshd.Sshd, there: SshConnection, tmp_path: Path
) -> None:
    thread = cut_soon(server, tmp_path / "begun")
    script = '[ -e "$0" ] && { echo second; exit 3; }; touch "$0"; sleep 30'
    result = there.run(["sh", "-c", script, str(tmp_path / "begun")], repeatable=True)
    thread.join()
    assert (result.exit_code, result.stdout) == (3, b"second\n")


def test_a_link_that_breaks_under_another_command_is_an_error_and_it_is_not_run_again(
    server: sshd.Sshd, there: SshConnection, tmp_path: Path
) -> None:
    thread = cut_soon(server, tmp_path / "runs")
    with pytest.raises(ConnectionFailedError, match="may have run"):
        there.run(["sh", "-c", 'echo x >>"$0"; sleep 30', str(tmp_path / "runs")])
    thread.join()
    assert there.run(["cat", str(tmp_path / "runs")]).stdout == b"x\n"  # and the next command finds a new link


def test_a_server_that_is_away_for_a_while_is_waited_for(server: sshd.Sshd, there: SshConnection) -> None:
    there.run(["true"])
    server.stop()
    threading.Timer(1.5, server.start).start()
    assert there.run(["echo", "back"]).stdout == b"back\n"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("Port 1", "Connection refused"),
        ("IdentityFile /no/such/key", "Permission denied"),
        ("UserKnownHostsFile /dev/null", "Host key verification failed"),
        ("HostName no-such-host.invalid", "Could not resolve"),
    ],
)
def test_a_host_that_cannot_be_reached_at_all_is_said_at_once(
    server: sshd.Sshd, tmp_path: Path, line: str, says: str
) -> None:
    key = line.split(maxsplit=1)[0]
    rows = [row for row in server.config.read_text().splitlines() if not row.strip().startswith(key + " ")]
    config = tmp_path / "config"
    config.write_text("\n".join([*rows, f"  {line}"]) + "\n")
    connection = SshConnection("there", config=config)
    started = time.monotonic()
    with pytest.raises(ConnectionFailedError, match=says):
        connection.run(["true"], repeatable=True)
    assert time.monotonic() - started < 15
    connection.close()


@pytest.mark.parametrize("host", ["", "-oProxyCommand=id", "a b", "a\nb"])
def test_a_host_that_ssh_would_take_for_something_else_is_refused(host: str) -> None:
    with pytest.raises(ConnectionFailedError, match="cannot be the name of a host"):
        SshConnection(host)


NAMES = {
    "a b.txt": b"1",
    "d/é 'q' \"x\".bin": bytes(range(256)),
    "d/e/new\nline": b"",
    "back\\slash": b"2",
    "$(id)": b"3",
}


def test_a_tree_arrives_whole_and_comes_back_the_same(shared: SshConnection, tmp_path: Path) -> None:
    source = tmp_path / "big"
    source.write_bytes(b"x" * 3_000_000)
    there_folder = tmp_path / "deep er" / "$(tree)"
    assert shared.put_tree({**NAMES, "big": source}, there_folder) is True
    assert {p.relative_to(there_folder).as_posix() for p in there_folder.rglob("*") if p.is_file()} == {*NAMES, "big"}
    assert (there_folder / "d/é 'q' \"x\".bin").read_bytes() == bytes(range(256))
    assert shared.put_tree({"other": b""}, there_folder) is False
    back = tmp_path / "back"
    back.mkdir()
    (back / "stale").write_text("of another attempt")
    digests = shared.get_tree(there_folder, back)
    assert set(digests) == {*NAMES, "big"}
    assert not (back / "stale").exists()
    assert (back / "big").read_bytes() == source.read_bytes()
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


def test_a_tree_of_nothing_is_a_tree(shared: SshConnection, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert shared.get_tree(tmp_path / "empty", tmp_path / "copy") == {}
    assert (tmp_path / "copy").is_dir()


def test_a_tree_that_is_not_there_or_has_no_room_is_an_error(shared: SshConnection, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot read"):
        shared.get_tree(tmp_path / "none", tmp_path / "copy")
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot copy"):
        shared.put_tree({"a": b"1"}, tmp_path / "file" / "below")
    assert not (tmp_path / "copy").exists()


def test_a_link_out_of_the_tree_is_refused(shared: SshConnection, tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "out").symlink_to("/etc/passwd")
    with pytest.raises(StorageError):
        shared.get_tree(tmp_path / "tree", tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_a_file_that_changes_while_it_is_fetched_is_noticed(shared: SshConnection, tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    stop = threading.Event()

    def write() -> None:
        count = 0
        while not stop.is_set():
            (tmp_path / "tree" / "log").write_text(str(count := count + 1))
            time.sleep(0.001)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        with pytest.raises(StorageError, match=r"differ|no whole tar|changed"):
            shared.get_tree(tmp_path / "tree", tmp_path / "copy")
    finally:
        stop.set()
        thread.join()


def test_files_are_read_in_one_question_and_missing_ones_left_out(shared: SshConnection, tmp_path: Path) -> None:
    wanted = {tmp_path / name.replace("/", "_"): data for name, data in NAMES.items()}
    shared.write(wanted)
    assert shared.read_many([*wanted, tmp_path / "none", tmp_path]) == wanted
    assert shared.exists(next(iter(wanted)))
    assert not shared.exists(tmp_path / "none")


def test_writing_replaces_a_file_at_once_and_makes_its_folder(shared: SshConnection, tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "file"
    for data in (b"old", b"", b"new\n"):
        shared.write({path: data})
        assert path.read_bytes() == data
    assert [p.name for p in path.parent.iterdir()] == ["file"]
    with pytest.raises(StorageError, match="cannot write"):
        shared.write({path / "below": b""})


def test_more_files_than_a_command_line_holds_are_written(shared: SshConnection, tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 40)
    files = {folder / f"{number}.json": f"{number}".encode() for number in range(300)}
    shared.write(files)
    assert shared.read_many(files) == files


def test_many_threads_share_one_link(there: SshConnection) -> None:
    codes: list[int | None] = []
    work = [
        threading.Thread(target=lambda i=i: codes.append(there.run(["sh", "-c", f"exit {i}"]).exit_code))
        for i in range(12)
    ]
    for thread in work:
        thread.start()
    for thread in work:
        thread.join()
    assert sorted(code for code in codes if code is not None) == list(range(12))


def test_a_master_that_hangs_is_given_up_and_its_socket_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = SshConnection("nowhere.invalid")

    def hang(_what: str) -> None:
        raise subprocess.TimeoutExpired("ssh", 15)

    monkeypatch.setattr(connection, "_tell_master", hang)
    try:
        connection._socket.touch()
        connection._forget_dead_master()
        assert not connection._socket.exists()
    finally:
        connection.close()


def test_closing_leaves_no_master_behind(server: sshd.Sshd) -> None:
    connection = SshConnection("there", config=server.config)
    connection.run(["true"])
    folder = connection._folder
    assert list(folder.iterdir())
    connection.close()
    assert not folder.exists()
