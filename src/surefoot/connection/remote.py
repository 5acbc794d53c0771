"""What is said to the shell of the other side, and what comes back. Pure text and bytes, no I/O.

sshd hands one string to the user's login shell. All of it is quoted here, in one place; the
arguments themselves are never part of a script.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from surefoot.errors import ConnectionFailedError

_VARIABLE = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*$")
_HOST = re.compile(r"^[^\s\x00-\x1f\x7f-][^\s\x00-\x1f\x7f]*$")

LONGEST_COMMAND = 120_000
"""Bytes. Linux gives one argument 128 KiB (MAX_ARG_STRLEN), and sshd passes the command as one."""

# $1 is the mark, $2 the number of NAME=VALUE words that follow it, the rest is the command.
# The mark on both streams tells the command's output from what login scripts and ssh print; the
# line after the command tells its exit code from ssh's own 255. env(1) runs files only, never the
# shell's builtins. The shell's own messages ("Killed") go nowhere: fd 3 is the command's stderr.
_WRAPPER = """
m=$1; n=$2; shift 2
while [ "$n" -gt 0 ]; do export "$1"; shift; n=$((n-1)); done
printf %s "$m"
printf '%s begin %s\\n' "$m" "$$" >&2
exec 3>&2 2>/dev/null
(exec env "$@" 2>&3 3>&-)
c=$?
a=
case $c in 126|127) command -v -- "$1" >/dev/null || a=' absent';; esac
printf '\\n%s end %s%s\\n' "$m" "$c" "$a" >&3
exit 0
""".strip()


def check_host(host: str) -> str:
    """`host` when ssh takes it as a destination and nothing else. Raises ConnectionFailedError."""
    if not _HOST.match(host):
        raise ConnectionFailedError(
            f"{host!r} cannot be the name of a host: it is empty, begins with '-' or holds a blank",
            next_action="name the host as in your ssh_config: letters, digits, '.', '-', '_', user@host",
        )
    return host


def command_text(argv: Sequence[str], env: Mapping[str, str], mark: str) -> str:
    """The string for the login shell. Raises ConnectionFailedError for what cannot be carried."""
    if not argv or not argv[0] or argv[0].startswith("-") or "=" in argv[0]:
        raise ConnectionFailedError(f"{list(argv)[:1]!r} cannot be the name of a program")
    for name in env:
        if not _VARIABLE.match(name):
            raise ConnectionFailedError(f"{name!r} cannot be the name of an environment variable")
    words = [mark, str(len(env)), *(f"{name}={value}" for name, value in env.items()), *argv]
    for word in words:
        if "\0" in word:
            raise ConnectionFailedError(
                f"{word[:80]!r} holds a NUL character, which no command line can carry",
                next_action="take it out of the name, path or value",
            )
    text = f"exec /bin/sh -c {shlex.join([_WRAPPER, 'surefoot', *words])}"
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise ConnectionFailedError(f"an argument is no valid text: {error.reason}") from error
    if size > LONGEST_COMMAND:
        raise ConnectionFailedError(
            f"the command for {argv[0]!r} is {size} bytes long; {LONGEST_COMMAND} can be carried",
            next_action="hand the data over as a file",
        )
    return text


@dataclass(frozen=True)
class Heard:
    """What the wrapper said on stderr."""

    begun: bool
    leader: int | None
    """Process id of the command's session on the other side."""
    status: int | None
    """None: the end of the command was not heard."""
    absent: bool
    stderr: bytes
    """The command's own; before it has begun: what ssh said."""


def hear(stderr: bytes, mark: str) -> Heard:
    """Take the wrapper's lines out of stderr."""
    begin = re.search(re.escape(mark.encode()) + rb" begin (\d+)\n", stderr)
    if begin is None:
        return Heard(begun=False, leader=None, status=None, absent=False, stderr=stderr)
    rest = stderr[begin.end() :]
    end = re.search(rb"\n" + re.escape(mark.encode()) + rb" end (\d+)( absent)?\n", rest)
    return Heard(
        begun=True,
        leader=int(begin.group(1)),
        status=None if end is None else int(end.group(1)),
        absent=end is not None and end.group(2) is not None,
        stderr=rest if end is None else rest[: end.start()],
    )


# What ssh says when trying again will not help, and what will.
_HOPELESS = {
    "Permission denied": "check user and key: `ssh HOST true` must work without a question (BatchMode)",
    "Host key verification failed": "connect once by hand and check the host's key, or add it to known_hosts",
    "REMOTE HOST IDENTIFICATION HAS CHANGED": "find out why the host's key changed before you trust it",
    "Could not resolve hostname": "check the name in the cluster file and in your ssh_config",
    "Bad configuration option": "mend your ssh_config",
    "Bad owner or permissions": "mend the permissions of your ssh_config",
    "no such identity": "check IdentityFile in your ssh_config",
    "Too many authentication failures": "name one IdentityFile and IdentitiesOnly in your ssh_config",
    "administratively prohibited": "the host forbids it: ask its administrator",
}


def hopeless(stderr: bytes) -> str | None:
    """What to do, where what ssh printed means that trying again will not help; None where it may."""
    text = stderr.decode(errors="replace")
    return next((advice for words, advice in _HOPELESS.items() if words in text), None)


_NEVER_SENT = (
    b"ssh: connect to host",
    b"mux_client_request_session: session request failed",
    b"kex_exchange_identification",
)


def never_sent(stderr: bytes) -> bool:
    """True where what ssh printed means that the command did not reach the other side. In doubt it did."""
    return any(words in stderr for words in _NEVER_SENT)


def last_line(stderr: bytes) -> str:
    """The last line that says something."""
    rows = [row.strip() for row in stderr.decode(errors="replace").splitlines() if row.strip()]
    return rows[-1][:300] if rows else "it said nothing"
