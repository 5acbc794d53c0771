"""Secrets out of what Ansible prints, before it is recorded. The callback masks already; this is the second wall."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Mapping
from typing import Any

MASK = "********"
_NAME = r"(?:pass(?:word|wd|phrase)?|secret|token|credentials?|api[_-]?key|private[_-]?key|key[_-]?base64|munge[_-]?key|auth[_-]?key)"
_SECRET = re.compile(rf"(?i)(\w*{_NAME}(?:_?base64)?[\"']?\s*[=:]\s*)(\"[^\"]*\"|'[^']*'|[^\s,;\"'}}\\]+)")
_PEM = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL)
_KEY = re.compile(rf"(?i){_NAME}(?:_?base64)?$|^vault_")
_VARIABLE = re.compile(r"(?i)pass|secret|token|key|credential")
_SHORTEST = 6
"""A shorter value of a variable is not looked for: it would be found everywhere."""


def known_secrets(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Values of this environment's variables that are named as secrets, longest first; of base64 also what it holds."""
    found: set[str] = set()
    for name, value in environment.items():
        a_path = value.startswith(("/", "~")) and not name.upper().endswith("BASE64")
        if not _VARIABLE.search(name) or len(value) < _SHORTEST or a_path:
            continue
        found.add(value)
        try:
            plain = base64.b64decode(value, validate=True).decode()
        except (ValueError, binascii.Error):
            continue
        if len(plain.strip()) >= _SHORTEST:
            found.add(plain.strip())
    return tuple(sorted(found, key=lambda text: (-len(text), text)))


def masked(text: str, known: Iterable[str] = ()) -> str:
    """The text without known secrets, private keys, and values that stand behind a word for a secret."""
    for secret in known:
        text = text.replace(secret, MASK)
    return _SECRET.sub(_hide, _PEM.sub(MASK, text))


def _hide(match: re.Match[str]) -> str:
    """Quotes stay, so that JSON stays JSON; a template says where a secret comes from, and is none."""
    value = match.group(2)
    if value.startswith("{{"):
        return match.group(0)
    quote = value[0] if value[0] in "\"'" else ""
    return f"{match.group(1)}{quote}{MASK}{quote}"


def masked_data(value: Any, known: Iterable[str] = ()) -> Any:
    """JSON data with the values of keys that are named as secrets masked, and every text as `masked` has it."""
    known = tuple(known)
    if isinstance(value, dict):
        return {key: _member(key, item, known) for key, item in value.items()}
    if isinstance(value, list):
        return [masked_data(item, known) for item in value]
    return masked(value, known) if isinstance(value, str) else value


def _member(key: str, value: Any, known: tuple[str, ...]) -> Any:
    if _KEY.search(key) and value not in (None, "", [], {}) and not isinstance(value, bool):
        return value if isinstance(value, str) and value.startswith("{{") else MASK
    return masked_data(value, known)
