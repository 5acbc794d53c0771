"""Secrets do not pass: by the name before them, by their form, and by what this environment knows."""

from __future__ import annotations

import base64

import pytest

from surefoot.provision.masks import MASK, known_secrets, masked, masked_data


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


def test_values_of_keys_are_masked_in_data_and_templates_stay() -> None:
    template = "{{ lookup('ansible.builtin.env', 'X') }}"
    data = {
        "a_password": "x",
        "b": ["token=y", 1],
        "c": {"jwt_key_base64": "z"},
        "d_secret": template,
        "e_password": "",
    }
    assert masked_data(data) == {
        "a_password": MASK, "b": [f"token={MASK}", 1], "c": {"jwt_key_base64": MASK}, "d_secret": template, "e_password": "",
    }  # fmt: skip
