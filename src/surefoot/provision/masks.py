"""Secrets out of what Ansible prints, before it is recorded. Standard library only: the callback uses it too.

A name says that its value is a secret (``smtp_auth_password``, ``routing_key``, ``bearer_token``, a receiver's
``webhook_url``); some values say so themselves (a private key, ``https://user:password@host``, a GitLab token).
Of a text it is not known whether it is YAML, JSON, INI or a shell's, so from the value on the rest of its line is
masked, and with it whatever belongs to the value in any of those: what is indented deeper, up to the quote or
bracket that closes, after a backslash at the line's end. Rather too much than too little: whether something would
change is judged by what Ansible counts, not by the texts that are left.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import re
from collections.abc import Iterable, Mapping
from typing import Any

MASK = "********"
_SHORTEST = 6
"""A shorter known value is not looked for: it would be found everywhere."""
_KEYS = (
    "api|private|secret|access|account|routing|service|integration|auth|authentication|authorization|signing|encryption"
    "|shared|preshared|psk|munge|jwt|master|license|session|hmac|user|deploy|app|client|bot|write|admin|storage|database"
    "|vault"
)
_NAMED = re.compile(
    r"passw|passphrase|passcode|secret|credential|bearer|cookie|basicauth|token|"
    r"(?:^|proxy|http)authorization|(?:pass|pwd|psk)$|^auth$|npmauth$|connectionstring|"
    r"(?:webhook|hook|slackapi|slack|discord|teams)urls?$|webhook(?:config)?s?$|"
    rf"(?:{_KEYS})keys?$|key(?:base64|b64|data|value|content|text|pem)$|^vault(?!addr)"
)
_HARMLESS = re.compile(
    r"(?:file|path|dir|director(?:y|ies)|folder|name|type|length|len|size|bytes|bits|mode|owner|group|age|ttl|expires"
    r"|expiry|expiration|lifetime|timeout|days|count|limit|policy|algorithm|format|version|endpoint|host|port|user"
    r"|issuer|audience|required|enabled|rotation|authentication|prompt|checksum|fingerprint|header|command|socket"
    r"|bypass|compass|oldpwd|^pwd|public\w*key|authorizedkeys|(?:pad|bos|eos|unk|cls|sep|mask)token"
    r"|(?:token)(?:url|uri|izer\w*|typeids)|accesskeyid|(?:max|min|num|new|total)tokens|tokens(?:per\w+|seen))s?$"
)
"""Ends of names whose value is none, though a word for one stands in them: where it lies, how long it holds."""
_PEM = re.compile(
    r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY[A-Z ]*-----.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY[A-Z ]*-----|\Z)", re.DOTALL
)
_USERINFO = re.compile(
    r"(?i)\b(https?://)[^\s/?#'\"]{1,2000}@|\b([a-z][a-z0-9+.-]{0,20}://[^\s/?#'\":@]{0,200}):[^\s'\"]{0,2000}@"
)
_PASSWORD_WITH_SLASH = re.compile(r"(?i)\b(https?://)[^\s/?#'\":@]{1,200}:[^\s'\"]{0,2000}@")
_HOOK = re.compile(
    r"(?i)\b(https?://[^\s/'\"]{1,300})/(?=[^\s'\"]{0,2000}hook|bot\d+:)[^\s'\"]*"
    r"|\b(https?://[^\s/'\"]{0,300}hook[^\s/'\"]{0,300})/[^\s'\"]+"
)
_QUERY = re.compile(
    r"(?i)([?&](?:key|sig|signature|auth|code|access|sas|[\w-]*(?:token|secret|passw\w*|api_?key))=)[^\s&'\"]+"
)
_FORMS = re.compile(
    r"(?<![\w-])(?:gh[pousr]_|github_pat_|gl(?:pat|rt|dt|cbt|ptt|ft|soat|imt|agent)-|xox[a-z]-|hf_|npm_|pypi-)[\w-]{10,}"
    r"|(?<![\w-])sk-[A-Za-z0-9_-]{20,}|\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"
)
"""Tokens that say by themselves what they are: GitHub's, GitLab's, Slack's, Hugging Face's, a JWT."""
_SCHEME = re.compile(r"(?i)\b((?:bearer|basic|token)\s+)(?=[\w.~+/=-]*\d)[\w.~+/=-]{16,}")
_FLAG = re.compile(r"(?<![\w-])--?(?P<key>[A-Za-z][\w-]*)[ \t]+(?P<value>'[^']*'|\"(?:[^\"\\]|\\.)*\"|[^\s'\"-][^\s]*)")
_MEMBER = re.compile(
    r"(?P<open>\\*[\"'])(?P<quoted>[^\"'\\\n]{1,80})\\*[\"'][ \t]*(?::|=>|=)[ \t]*"
    r"|(?:(?<=\\)[nrt]|(?<![\w/.-]))-{0,2}(?P<bare>(?:(?:api|private|secret|access|routing|shared|auth)[ ])?[A-Za-z_][\w.-]*(?:\[[\w\"']*\])?)"
    r"[ \t]*(?::=|[:=?+]?=|:)[ \t]*",
    re.IGNORECASE,
)
_BASE64_NAME = re.compile(r"(?i)base64$|b64$")
_PLACE = re.compile(r"/(?:etc|var|run|root|home|usr|opt|srv|tmp|mnt|dev|proc|data|shared|lib)/[\w./@+~%-]*")
_NO_SECRET = re.compile(r"(?i)(?:true|false|yes|no|none|null|~|\*{8}|-?\d{1,2})")
_ARCHITECTURE = re.compile(r"(?:amd64|arm64|i386|all|any)\b(?!=)")
_VARIABLE = re.compile(r"(?i)pass|secret|token|key|credential|webhook|psk")


def is_secret(name: str) -> bool:
    """Whether a variable, key or setting of this name holds a secret."""
    plain = re.sub(r"[^a-z0-9]", "", re.sub(r"\[.*\]$", "", name).lower())
    if re.search(r"(?i)[^_-]\.(?:key|pem|crt|pub|conf|cfg|ya?ml|json|txt|sh|py)$", name) and "_" not in name:
        return False  # a file's name
    plain = plain.rstrip("0123456789") if not _BASE64_NAME.search(name) else plain
    return bool(_NAMED.search(plain)) and not _HARMLESS.search(plain)


def known_secrets(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Values of this environment's variables that are named as secrets, longest first; of base64 also what it holds."""
    found: set[str] = set()
    for name, value in environment.items():
        a_path = value.startswith(("/", "~")) and not name.upper().endswith("BASE64")
        if _VARIABLE.search(name) and not a_path:
            found |= _ways_to_write(value)
    return longest_first(found)


def secrets_in(value: Any) -> set[str]:
    """Texts that stand behind names for secrets in JSON data, each in the ways in which it is written elsewhere."""
    found: set[str] = set()
    for name, item in _members(value):
        if is_secret(name):
            for text in _texts(item):
                if not text.startswith(("{{", "/")) and not _NO_SECRET.fullmatch(text):
                    found |= _ways_to_write(text)
    return found


def longest_first(secrets: Iterable[str]) -> tuple[str, ...]:
    """The order in which they are replaced: one may be a part of another."""
    return tuple(sorted(set(secrets), key=lambda text: (-len(text), text)))


def masked(text: str, known: Iterable[str] = ()) -> str:
    """The text without known secrets, private keys, passwords in URLs, and values that stand behind a name for a secret."""
    for secret in known:
        text = text.replace(secret, MASK)
    text = _PEM.sub(MASK, text)
    text = _HOOK.sub(lambda match: f"{match[1] or match[2]}/{MASK}", text)
    text = _USERINFO.sub(lambda match: f"{match[1]}{MASK}@" if match[1] else f"{match[2]}:{MASK}@", text)
    text = _PASSWORD_WITH_SLASH.sub(rf"\g<1>{MASK}@", text)
    text = _QUERY.sub(rf"\g<1>{MASK}", _SCHEME.sub(rf"\g<1>{MASK}", _FORMS.sub(MASK, text)))
    return _FLAG.sub(_flag, _members_masked(text))


def masked_data(value: Any, known: Iterable[str] = ()) -> Any:
    """JSON data with the values of keys that are named as secrets masked, and every text as `masked` has it."""
    known = tuple(known)
    if isinstance(value, dict):
        named = next((value[key] for key in ("name", "key", "var") if isinstance(value.get(key), str)), "")
        told = is_secret(named) and "value" in value
        return {
            key: MASK
            if (told and key == "value") or (is_secret(str(key)) and _holds_one(item))
            else masked_data(item, known)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [masked_data(item, known) for item in value]
    return masked(value, known) if isinstance(value, str) else value


def masked_texts(value: Any, known: Iterable[str] = ()) -> Any:
    """JSON data whose keys are no names of settings (hosts, packages, paths): every text as `masked` has it."""
    known = tuple(known)
    if isinstance(value, dict):
        return {key: masked_texts(item, known) for key, item in value.items()}
    if isinstance(value, list):
        return [masked_texts(item, known) for item in value]
    return masked(value, known) if isinstance(value, str) else value


def _holds_one(value: Any) -> bool:
    if isinstance(value, str):
        return bool(value) and not _PLACE.fullmatch(value) and not _NO_SECRET.fullmatch(value)
    return value not in (None, [], {}) and not isinstance(value, bool)


def _ways_to_write(value: str) -> set[str]:
    """A secret, each of its lines if there are several, and what it holds as base64; too short ones are left out."""
    found = {value, value.strip(), *(line.strip() for line in value.splitlines())}
    with contextlib.suppress(ValueError, binascii.Error):
        found.add(base64.b64decode(value, validate=True).decode().strip())
    return {text for text in found if len(text) >= _SHORTEST}


def _members(value: Any) -> Iterable[tuple[str, Any]]:
    if isinstance(value, dict):
        for name, item in value.items():
            yield str(name), item
            yield from _members(item)
    elif isinstance(value, list):
        for item in value:
            yield from _members(item)


def _texts(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)


# --- texts ------------------------------------------------------------------------------------------


def _flag(match: re.Match[str]) -> str:
    """``--password VALUE`` of a command line."""
    if not is_secret(match["key"]) or _PLACE.fullmatch(match["value"]):
        return match[0]
    return f"{match[0][: match.start('value') - match.start()]}{MASK}"


def _members_masked(text: str) -> str:
    """Names that are followed by ``:`` or ``=``, one after the other; from a secret one on to where its value ends."""
    kept: list[str] = []
    at, named = 0, False
    while match := _MEMBER.search(text, at):
        name = (match["quoted"] or match["bare"]).strip()
        start, stop = match.end(), _end_of_line(text, match.end())
        secret = is_secret(name) or (named and name.lower() == "value")
        said = text[start:stop].strip().rstrip(",;\"'}])").strip("\"'\\ ")
        if name.lower() in ("name", "key", "var"):  # of a pair: {name: DB_PASSWORD, value: …}
            named = is_secret(re.split(r"[\"',\s]", said, maxsplit=1)[0])
        if not secret or _left_as_it_is(text, match, said):
            kept.append(text[at:start])
            at = start
            continue
        end = _end_of_value(text, match)
        if end == start:
            kept.append(text[at:start])
        else:
            quote = text[start] if match["quoted"] and text[start] in "\"'" and end < len(text) + 1 else ""
            kept.append(f"{text[at:start]}{quote}{MASK}{quote}")
        at = end
    return "".join(kept) + text[at:]


def _left_as_it_is(text: str, match: re.Match[str], said: str) -> bool:
    """Whether behind a name for a secret stands what is none: yes or no, or the path of a file."""
    if text[match.end() - 1] == ":" and _ARCHITECTURE.match(text, match.end()):
        return True  # dpkg's log: passwd:amd64 1:4.13
    if _deeper(text, match) > _end_of_line(text, match.end()):
        return False
    name = match["quoted"] or match["bare"]
    return bool(_NO_SECRET.fullmatch(said) or (_PLACE.fullmatch(said) and not _BASE64_NAME.search(name)))


def _end_of_line(text: str, at: int) -> int:
    """Of the line at `at`; one that ends with a backslash goes on."""
    while (end := text.find("\n", at)) > 0 and text[end - 1] == "\\":
        at = end + 1
    return len(text) if end < 0 else end


def _column(line: str) -> int | None:
    """Where a line's words begin, behind a list's or a difference's marks; None for one without any."""
    inner = line.lstrip(" \t+-")
    return len(line) - len(inner) if inner.strip() else None


def _deeper(text: str, match: re.Match[str]) -> int:
    """The end of the lines below that are indented deeper than the name's own: blocks, lists, continued lines."""
    begin = text.rfind("\n", 0, match.start()) + 1
    own = _column(text[begin : _end_of_line(text, match.start())]) or 0
    end = seen = _end_of_line(text, match.end())
    empty = not text[match.end() : end].strip(" \t|>+-0123456789")
    while seen < len(text):
        stop = _end_of_line(text, seen + 1)
        line = text[seen + 1 : stop]
        column = _column(line)
        # YAML: a list may begin where its name does.
        listed = empty and column is not None and line[:column].count("-") > 0 and column > own
        if column is not None and column <= own and not listed:
            break
        seen = stop
        if column is not None:
            end = stop
    return end


def _end_of_value(text: str, match: re.Match[str]) -> int:
    start = match.end()
    if start >= len(text):
        return start
    first = text[start]
    if match["quoted"] and len(match["open"]) == 1:  # JSON, Python, YAML: a quoted value ends with its quote
        if first in "\"'":
            return _closing_quote(text, start)
        if first in "[{":
            return _closing_bracket(text, start)
        if number := re.compile(r"-?\d[\d.eE+-]*(?=\s*[,}\]]|\s*$)", re.MULTILINE).match(text, start):
            return number.end()
    end = _deeper(text, match)
    if first in "\"'":
        end = max(end, _end_of_line(text, _closing_quote(text, start)))
    elif first in "[{":
        end = max(end, _end_of_line(text, _closing_bracket(text, start)))
    elif text[max(match.start() - 1, 0)] in "\"'":  # systemd: the whole assignment is quoted
        end = max(end, _end_of_line(text, _closing_quote(text, match.start() - 1)))
    elif (open_ := _open_quote(text, start)) is not None:
        end = max(end, _end_of_line(text, _closing_quote(text, open_)))
    return end


def _open_quote(text: str, start: int) -> int | None:
    """A double quote within the line that is not closed on it: a shell's value goes on below."""
    line = text[start : _end_of_line(text, start)]
    quotes = [at for at, letter in enumerate(line) if letter == '"' and line[at - 1 : at] != "\\"]
    return start + quotes[-1] if len(quotes) % 2 else None


def _closing_quote(text: str, at: int) -> int:
    """Behind the quote that closes the one at `at`, and whatever a shell or YAML joins to it; else the end of the text."""
    while at < len(text) and text[at] in "\"'":
        quote, at = text[at], at + 1
        while at < len(text) and text[at] != quote:
            at += 2 if text[at] == "\\" else 1
        at += 1
    return min(at, len(text))


def _closing_bracket(text: str, at: int) -> int:
    """Behind the bracket that closes the one at `at`; else the end of the text."""
    depth = 0
    while at < len(text):
        letter = text[at]
        if letter in "\"'":
            at = _closing_quote(text, at)
            continue
        depth += (letter in "[{") - (letter in "]}")
        at += 1
        if depth == 0:
            return at
    return len(text)
