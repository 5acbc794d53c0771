"""Secrets do not pass: by the name before them, by their form, and by what this environment knows."""

from __future__ import annotations

import base64
import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from surefoot.model.cluster import Ansible
from surefoot.provision.events import Difference
from surefoot.provision.masks import MASK, known_secrets, longest_first, masked, masked_data, masked_texts, secrets_in
from surefoot.provision.running import Running
from surefoot.rungs.drift_view import difference


@pytest.mark.parametrize(
    "text",
    [
        "StoragePass=hunter22", "password: hunter22", "munge_key_base64: hunter22", '"api_key": "hunter22"',
        "token='hunter22'", "slurm_database_password = hunter22", "AuthKey=hunter22",
        "-----BEGIN OPENSSH PRIVATE KEY-----\nhunter22\n-----END OPENSSH PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----\nhunter22",
    ],
)  # fmt: skip
def test_what_stands_behind_a_word_for_a_secret_is_masked(text: str) -> None:
    assert "hunter22" not in masked(text)
    assert MASK in masked(text)


@pytest.mark.parametrize("text", ["StoragePort=6819", "AuthType=auth/munge", "nofile = 65536", "compression: none"])
def test_other_text_stays(text: str) -> None:
    assert masked(text) == text


def test_known_values_are_masked_wherever_they_stand_also_what_their_base64_holds() -> None:
    environment = {
        "SUREFOOT_MUNGE_KEY_BASE64": base64.b64encode(b"the-plain-key").decode(),
        "DB_PASSWORD": "geheim-und-lang",
        "KEY_FILE": "/etc/key",
        "HOME": "/root",
        "SHORT_TOKEN": "abc",
    }
    known = known_secrets(environment)
    text = f"a {environment['SUREFOOT_MUNGE_KEY_BASE64']} b the-plain-key c geheim-und-lang d /etc/key /root abc"
    assert masked(text, known) == f"a {MASK} b {MASK} c {MASK} d /etc/key /root abc"


def test_base64_that_looks_like_a_path_is_a_secret_all_the_same() -> None:
    assert known_secrets({"SUREFOOT_MUNGE_KEY_BASE64": "/abcdefg+/=", "TOKEN_FILE": "/run/token"}) == ("/abcdefg+/=",)


def test_values_of_keys_are_masked_in_data_also_templates_as_a_default_may_stand_in_one() -> None:
    template = "{{ lookup('ansible.builtin.env', 'X') | default('hunter22') }}"
    data = {
        "a_password": "x",
        "b": ["token=y", 1],
        "c": {"jwt_key_base64": "z", "d_secret": template},
        "e_password": "",
        "ask_password": True,
        "private_key": "/etc/ssl/private/host.key",
        "webhook_configs": [{"url": "https://alerts.example/x"}],
    }
    assert masked_data(data) == {
        "a_password": MASK, "b": [f"token={MASK}", 1], "c": {"jwt_key_base64": MASK, "d_secret": MASK}, "e_password": "",
        "ask_password": True, "private_key": "/etc/ssl/private/host.key", "webhook_configs": MASK,
    }  # fmt: skip


# --- any secret, under any such name, in any form that a difference shows ---------------------------

NAMES = [
    "password", "smtp_auth_password", "StoragePass", "dbPassword", "passphrase", "db_pass", "secret", "client_secret",
    "secretAccessKey", "token", "bearer_token", "RUNNER_TOKEN", "_authToken", "api_key", "apiKey", "X-Api-Key",
    "routing_key", "service_key", "opsgenie_api_key", "private_key", "munge_key_base64", "jwt_key_base64", "AuthKey",
    "AccountKey", "encryption-key", "credentials", "basic_auth", "authorization", "webhook_url", "webhook_configs",
    "slack_api_url", "vault_database", "session_cookie", "password2",
]  # fmt: skip
PARTS = st.from_regex(r"[A-Za-z]{3}Z[0-9]{3}", fullmatch=True)
"""A secret is made of parts, of which none may be left."""
BETWEEN = st.sampled_from([*" ;#,\"'\\$`{}[]=:@/&%|>!*?+-", "  ", " #", ": ", ", ", "''", '\\"'])


@st.composite
def secrets(draw: st.DrawFn, between: st.SearchStrategy[str] = BETWEEN) -> tuple[str, list[str]]:
    """(secret, its parts)"""
    parts = draw(st.lists(PARTS, min_size=1, max_size=4, unique=True))
    seams = [draw(between) for _ in parts]
    lead = draw(st.sampled_from(["", "", "", '"', "'", "{", "-", "$"]))
    return lead + "".join(part + seam for part, seam in zip(parts, seams, strict=True)).strip(), parts


def _nested(name: str, secret: Any, depth: int) -> dict[str, Any]:
    inner: Any = {"before": "kept", name: secret, "port": 9093}
    for level in range(depth):
        inner = {"name": f"level-{level}", "items": [inner]} if level % 2 else {f"group{level}": inner}
    found: dict[str, Any] = inner
    return found


def _ini(name: str, secret: str) -> str:
    return f"[server]\nport = 9093\n{name} = {secret.splitlines()[0]}\n" + "".join(
        f"\t{row}\n" for row in secret.splitlines()[1:]
    )


def _quoted(secret: str) -> str:
    return secret.replace("\\", "\\\\").replace('"', '\\"')


FORMS: dict[str, Callable[[str, str, int], str]] = {
    "YAML": lambda name, secret, depth: yaml.safe_dump(_nested(name, secret, depth)),
    "YAML, narrow": lambda name, secret, depth: yaml.safe_dump(_nested(name, secret, depth), width=8),
    "YAML, quoted": lambda name, secret, depth: yaml.safe_dump(
        _nested(name, secret, depth), default_style='"', width=8
    ),
    "YAML, block": lambda name, secret, depth: yaml.safe_dump(_nested(name, secret + "\n", depth), default_style="|"),
    "YAML, flow": lambda name, secret, depth: yaml.safe_dump(_nested(name, secret, depth), default_flow_style=True),
    "YAML, a list": lambda name, secret, depth: yaml.safe_dump(_nested(name, ["x", secret], depth)),
    "YAML, a mapping": lambda name, secret, depth: yaml.safe_dump(_nested(name, {"a": {"b": secret}}, depth)),
    "JSON": lambda name, secret, depth: json.dumps(_nested(name, secret, depth)),
    "JSON, indented": lambda name, secret, depth: json.dumps(_nested(name, secret, depth), indent=2),
    "JSON, a list": lambda name, secret, depth: json.dumps(_nested(name, ["x", secret], depth), indent=1),
    "JSON, a mapping": lambda name, secret, depth: json.dumps(_nested(name, {"a": [{"b": secret}]}, depth)),
    "JSON in JSON": lambda name, secret, depth: json.dumps({"text": json.dumps(_nested(name, secret, depth))}),
    "JSON, cut off": lambda name, secret, depth: json.dumps({"t": yaml.safe_dump(_nested(name, secret, depth))})[:-2],
    "Python": lambda name, secret, depth: str(_nested(name, secret, depth)),
    "INI": lambda name, secret, _: _ini(name, secret),
    "shell": lambda name, secret, _: f"export {name.replace('-', '_')}={shlex.quote(secret)}\nPORT=9093\n",
    "shell, double": lambda name, secret, _: f'{name.replace("-", "_")}="{_quoted(secret)}" command --port 9093\n',
    "systemd": lambda name, secret, _: f'[Service]\nEnvironment=PORT=1 "{name}={_quoted(secret)}"\nUser=x\n',
    "a pair": lambda name, secret, _: yaml.safe_dump([{"name": name, "value": secret}]),
    "a pair in JSON": lambda name, secret, _: json.dumps([{"name": name, "value": secret}], indent=1),
}


def recorded(text: str) -> str:
    """Everything that is recorded of a text in a difference, and of one that a command printed."""
    run = Running(asked=Ansible(site="/s", inventory=("/i",)), folder=Path("/none"), deadline=0.0, known=())
    event = {"event": "result", "host": "n1", "diff": [{"after": masked(text)}], "message": masked(text)}
    shown = difference(Difference(before="", after=text))
    return "\n".join([*run.mask(json.dumps(event)), *run.mask(text), *shown])


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=25, deadline=None)
@given(name=st.sampled_from(NAMES), secret=secrets(), depth=st.integers(0, 4))
def test_no_part_of_a_secret_is_recorded(form: str, name: str, secret: tuple[str, list[str]], depth: int) -> None:
    text = FORMS[form](name, secret[0], depth)
    found = recorded(text)
    assert not [part for part in secret[1] if part in found], (text, found)


@settings(max_examples=100, deadline=None)
@given(
    name=st.sampled_from(NAMES),
    secret=secrets(st.just("\n")),
    form=st.sampled_from(sorted(FORMS)),
    depth=st.integers(0, 3),
)
def test_no_line_of_a_secret_of_several_is_recorded(
    name: str, secret: tuple[str, list[str]], form: str, depth: int
) -> None:
    text = FORMS[form](name, secret[0], depth)
    found = recorded(text)
    assert not [part for part in secret[1] if part in found], (text, found)


@settings(max_examples=25, deadline=None)
@given(secret=secrets(), form=st.sampled_from(["YAML", "JSON", "INI", "shell", "systemd"]))
def test_no_password_in_a_url_is_recorded_whatever_it_stands_under(secret: tuple[str, list[str]], form: str) -> None:
    url = f"https://deploy:{quote(secret[0], safe='')}@packages.example/debian"
    found = recorded(FORMS[form]("repository", url, 1))
    assert not [part for part in secret[1] if part in found], found
    assert "packages.example/debian" in found


@pytest.mark.parametrize(
    "text",
    [
        "url: https://hooks.slack.com/services/T000/B000/hunter22", "url=https://discord.com/api/webhooks/1/hunter22",
        "- url: https://chat.example/hooks/hunter22", "url: https://api.telegram.org/bot123:hunter22/send",
        "uri https://x.webhook.office.com/webhookb2/hunter22", "GET /?token=hunter22&x=1", "https://h/x?sig=hunter22",
        "remote = https://hunter22@git.example/x.git", "Authorization: Bearer hunter22", "curl -H 'X-Auth-Token: hunter22'",
        "dsn: postgres://slurm:hunter22@db:5432/x", "login --password hunter22 --user x", "--token=hunter22",
        "x glpat-hunter22hunter22", "ghp_hunter22hunter22hunter", "hf_hunter22hunter22",
        "-----BEGIN PGP PRIVATE KEY BLOCK-----\nhunter22\n-----END PGP PRIVATE KEY BLOCK-----",
        '"key": "-----BEGIN RSA PRIVATE KEY-----\\nhunter22\\n-----END RSA PRIVATE KEY-----\\n"',
        "AuthInfo=x;AccountKey=hunter22;y", "api key: hunter22", "password[1]=hunter22",
        "webhook_configs:\n  - send_resolved: true\n    url: https://alerts.example/hunter22\nport: 1",
        "basic_auth:\n  username: prometheus\n  password: hunter22",
    ],
)  # fmt: skip
def test_what_says_of_itself_that_it_is_a_secret_is_masked(text: str) -> None:
    assert "hunter22" not in masked(text)


@pytest.mark.parametrize(
    "text",
    [
        "key_file: /etc/x/k.pem", "public_key: ssh-ed25519 AAAAC3Nz x", "ssl_key: /etc/ssl/private/a.key",
        "AuthAltParameters=jwt_key=/var/spool/slurm/jwt_hs256.key", "/etc/munge/munge.key: mode 0640",
        "munge.key: mode 0600", "password_file = /run/secrets/x", "PasswordAuthentication: no", "token_ttl: 3600",
        "secret_name: grafana", "max_tokens: 4096", "pad_token: <pad>", "pass: 1", "AuthType = auth/munge",
        "PWD=/root", "compass: north", "authorized_keys: a b", "aws_access_key_id: AKIAEXAMPLE", "turkey: 1",
        "2026-11-30 upgrade passwd:amd64 1:4.13 1:4.14", "https://host:8080/path", "ssh://git@host/x", "key: value",
        "credentials_file: x", "SUREFOOT_RUNNER_TOKEN is empty for n1", "the password is not told",
    ],
)  # fmt: skip
def test_what_only_looks_like_a_secret_stays(text: str) -> None:
    assert masked(text) == text


def test_what_stands_after_a_secret_of_json_or_below_one_of_yaml_stays() -> None:
    assert masked('{"password": "a\\"b", "port": 1}') == f'{{"password": "{MASK}", "port": 1}}'
    assert masked("password: a\nport: 1\n") == f"password: {MASK}\nport: 1\n"
    assert masked("tokens:\n- a\n- b\nport: 1\n") == f"tokens:{MASK}\nport: 1\n"


def test_secrets_of_an_inventory_are_known_afterwards_wherever_they_stand() -> None:
    data = {
        "_meta": {
            "hostvars": {"n1": {"x_password": "geheim-und-lang", "y": {"api_key": ["abcdefgh"]}, "z": "plain-value"}}
        }
    }
    known = longest_first(secrets_in(data))
    assert masked("--login geheim-und-lang abcdefgh plain-value", known) == f"--login {MASK} {MASK} plain-value"


def test_hosts_and_packages_that_are_named_like_secrets_keep_their_figures() -> None:
    said = {"versions": {"passwd": "1:4.13", "libsecret-1-0": "0.20"}, "hosts": {"token": {"ok": 3}}}
    assert masked_texts(said) == said
