"""Who is reached is told from who answers, everything ends in time, and who never wrote is named."""

from __future__ import annotations

import ipaddress
import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from surefoot.hardware.network_facts import Reach
from surefoot.node import greeting, reach
from surefoot.node.reach import Limits, Meeting, meet, neighbours

QUICK = Limits(others_s=5, connect_s=2, name_s=2, linger_s=5)


def host(address: str = "127.0.0.1", prefix: int = 8) -> list[dict[str, Any]]:
    """A host whose only network is the loopback, said to be an interface as any other."""
    addresses = [{"address": address, "prefix": prefix, "scope": "global"}]
    return [{"name": "lo", "index": 1, "arphrd": 1, "up": True, "carrier": True, "addresses": addresses}]


def meeting(folder: Path, me: str, *everyone: str, execution: str = "one") -> Meeting:
    return Meeting(folder=folder, me=me, everyone=everyone, execution=execution)


def together(folder: Path, *names: str, limits: Limits = QUICK) -> dict[str, Reach]:
    with ThreadPoolExecutor(len(names)) as pool:
        found = pool.map(lambda name: meet(meeting(folder, name, *names), host(), limits), names)
        return {name: Reach.model_validate(data) for name, data in zip(names, found, strict=True)}


def test_each_reaches_all_others_and_says_so_in_its_file(tmp_path: Path) -> None:
    found = together(tmp_path, "a", "b", "c")
    for name, told in found.items():
        assert {call.node: call.outcome for call in told.calls} == dict.fromkeys(set("abc") - {name}, "reached")
        assert all(call.greeted == found[call.node].nonce for call in told.calls)
        assert told.absent == ()
        assert Reach.model_validate_json((tmp_path / f"reach-{name}.json").read_text()) == told


def test_who_never_wrote_is_named_and_waited_for_no_longer_than_said(tmp_path: Path) -> None:
    begun = time.monotonic()
    found = Reach.model_validate(meet(meeting(tmp_path, "a", "a", "b"), host(), Limits(others_s=0.5, linger_s=5)))
    assert found.absent == ("b",)
    assert found.calls == ()
    assert 0.5 <= found.waited_s < 3
    assert time.monotonic() - begun < 4, "nor is it waited for at the end"


def test_files_of_an_earlier_execution_are_nobody(tmp_path: Path) -> None:
    meet(meeting(tmp_path, "b", "b", execution="earlier"), host(), QUICK)
    found = Reach.model_validate(meet(meeting(tmp_path, "a", "a", "b"), host(), Limits(others_s=0.5)))
    assert found.absent == ("b",)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"execution": "one"}', '{"execution": "one", "me": "c"}'])
def test_a_file_that_is_half_or_anothers_is_nobody(text: str, tmp_path: Path) -> None:
    (tmp_path / "net-b.json").write_text(text)
    found = Reach.model_validate(meet(meeting(tmp_path, "a", "a", "b"), host(), Limits(others_s=0.3)))
    assert found.absent == ("b",)


def card(folder: Path, name: str, nonce: str, port: int, *addresses: str) -> None:
    """What another node wrote."""
    told = {
        "me": name, "execution": "one", "host": name, "nonce": nonce, "ports": {"4": {"value": port}, "6": {"value": None}},
        "addresses": [{"interface": "eth0", "address": address, "prefix": 8} for address in addresses],
    }  # fmt: skip
    (folder / f"net-{name}.json").write_text(json.dumps(told))


def outcome(folder: Path, port: int, address: str = "127.0.0.1") -> tuple[str, str | None]:
    card(folder, "b", "nonce-b", port, address)
    found = Reach.model_validate(
        meet(meeting(folder, "a", "a", "b"), host(), Limits(others_s=2, connect_s=0.5, linger_s=0))
    )
    (call,) = found.calls
    return call.outcome, call.greeted_by


def test_a_right_answer_is_reached_and_another_hosts_is_not(tmp_path: Path) -> None:
    with greeting.listening("nonce-b", "x") as ports:
        assert outcome(tmp_path, ports["4"]["value"]) == ("reached", "b")
    with greeting.listening("nonce-z", "x") as ports:
        assert outcome(tmp_path, ports["4"]["value"]) == ("other host", None)


def test_a_host_that_answers_itself_is_told_from_the_one_it_called(tmp_path: Path) -> None:
    """127.0.0.1 is every host's own: with the port that all listen on, it is this one that greets."""
    with greeting.listening("nobody", "one") as ports:
        first = ports["4"]["value"]
    assert outcome(tmp_path, first) == ("other host", "a")


@pytest.mark.parametrize(
    ("said", "named"),
    [(b"SSH-2.0-OpenSSH_9.2\r\n", "stranger"), (b"", "silent"), (b"surefoot nonce-b\nshort", "cut off")],
)
def test_what_is_no_greeting_is_not_reached(said: bytes, named: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            caller, _ = server.accept()
            with caller:
                caller.sendall(said)

        threading.Thread(target=answer, daemon=True).start()
        assert outcome(tmp_path, server.getsockname()[1])[0] == named


def test_a_host_that_accepts_and_stays_silent_ends_in_time(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        begun = time.monotonic()
        assert outcome(tmp_path, server.getsockname()[1])[0] == "silent"
        assert time.monotonic() - begun < 4


def test_a_greeting_that_never_ends_ends_in_time() -> None:
    stop = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def pour() -> None:
            caller, _ = server.accept()
            with caller:
                while not stop.is_set():
                    try:
                        caller.sendall(bytes(1 << 16))
                    except OSError:
                        return

        threading.Thread(target=pour, daemon=True).start()
        found = greeting.call("127.0.0.1", server.getsockname()[1], 2)
        stop.set()
    assert found["outcome"] == "stranger"


def test_a_port_where_nobody_listens_is_refused(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        free = server.getsockname()[1]
    assert outcome(tmp_path, free) == ("refused", None)


def test_all_hosts_of_a_job_listen_on_one_port_and_a_second_one_beside_it_on_another() -> None:
    with greeting.listening("a", "job") as first:
        pass
    with greeting.listening("b", "job") as again, greeting.listening("c", "job") as beside:
        assert first["4"] == again["4"]
        assert beside["4"]["value"] != again["4"]["value"]


def test_its_own_name_is_resolved_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {"a": "127.0.1.1", "b": "10.0.0.2"}
    monkeypatch.setattr(reach, "_resolve", lambda name: [answers[name]])
    card(tmp_path, "b", "nonce-b", 1, "127.0.0.1")
    found = Reach.model_validate(meet(meeting(tmp_path, "a", "a", "b"), host(), Limits(connect_s=0.2, linger_s=0)))
    assert {name: str((led.value or ())[0]) for name, led in found.names.items()} == answers


def test_a_resolver_that_is_silent_is_unknown_and_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    released = threading.Event()
    monkeypatch.setattr(reach, "_resolve", lambda _: released.wait(30) and [])
    begun = time.monotonic()
    found = reach.resolve(["a"], 0.2)
    released.set()
    assert time.monotonic() - begun < 2
    assert found["a"] == {"value": None, "unknown": "the resolver gave no answer in 0.2 s"}


def test_up_to_sixteen_nodes_call_all_others() -> None:
    assert neighbours(3, 16) == [index for index in range(16) if index != 3]
    assert neighbours(0, 1) == []


@pytest.mark.parametrize("nodes", [17, 18, 100, 512, 1000])
def test_of_many_each_is_called_from_both_sides_and_the_first_by_all(nodes: int) -> None:
    called = {me: set(neighbours(me, nodes)) for me in range(nodes)}
    for me, others in called.items():
        assert {(me + 1) % nodes, (me - 1) % nodes, 0} - {me} <= others
        assert me not in others
        assert len(others) <= nodes.bit_length() + 3
    callers = meeting(Path(), "n0", *(f"n{n}" for n in range(nodes))).callers
    assert len(callers) == nodes - 1


def test_addresses_that_no_other_host_can_use_are_not_told() -> None:
    entries = [
        ("192.168.1.1", "global"), ("127.0.0.2", "host"), ("fe80::1", "link"), ("169.254.3.1", "link"), ("fd00::1", "global")
    ]  # fmt: skip
    addresses = [{"address": a, "prefix": 24, "scope": s} for a, s in entries]
    up = {"name": "eth0", "index": 2, "arphrd": 1, "up": True, "carrier": True, "addresses": addresses}
    told = [row["address"] for row in reach.own_addresses([up])]
    assert told == ["192.168.1.1", "169.254.3.1", "fd00::1"]
    for change in ({"up": False}, {"carrier": False}, {"arphrd": 772}):
        assert reach.own_addresses([{**up, **change}]) == []


def test_every_interface_on_the_subnet_leads_there() -> None:
    own = [
        {"interface": name, "address": address, "prefix": 24}
        for name, address in (("a", "10.0.0.1"), ("b", "10.0.0.2"), ("c", "10.0.1.1"))
    ]
    assert reach.ways("10.0.0.9", own, {}) == [("a", "10.0.0.1"), ("b", "10.0.0.2")]
    assert ipaddress.ip_address("10.0.0.9")


@pytest.mark.parametrize("everyone", [("b",), ("a", "a"), ("a", "../b"), ("a", "")])
def test_names_that_cannot_be_files_of_different_nodes_are_refused(everyone: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="names must differ"):
        meeting(Path(), "a", *everyone)
