"""How a rank ends: its word and its exit code come out, and nothing of the interpreter is taken apart (that hangs)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from textwrap import indent

import pytest

HEAD = """
import ctypes
from surefoot.errors import MachineryError, RequestError, SurefootError
from surefoot.node import program

class Tensor:
    def __del__(self):
        print("torn down", flush=True)

kept = Tensor()

def main(rank):
    ctypes.CDLL(None).puts(b"NCCL INFO held back by C")
    print("held back by Python", end="")
"""


def ended(tmp_path: Path, body: str) -> tuple[int, str]:
    """(exit code, output) of a rank whose `main` ends with `body`."""
    (tmp_path / "request.json").write_text(json.dumps({"backend": "gloo", "init_timeout_s": 20}))
    job = {
        "SUREFOOT_JOB_FOLDER": str(tmp_path), "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0",
    }  # fmt: skip
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run(
        [sys.executable, "-c", f"{HEAD}{indent(body, '    ')}\nprogram.run('a.program', main)\n"],
        env={**buffered, **job}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout


@pytest.mark.parametrize(
    ("body", "code", "told"),
    [
        ("pass", 0, ""),
        ("raise SurefootError('it diverged', next_action='lower it')", 1, "a.program: it diverged\n  → lower it"),
        ("raise RequestError('no such file')", 3, "a.program: no such file"),
        ("raise MachineryError('no answer')", 4, "a.program: no answer"),
        ("raise ValueError('unforeseen')", 1, "Traceback (most recent call last)"),
        ("raise KeyboardInterrupt", 1, "KeyboardInterrupt"),
    ],
)
def test_a_rank_says_why_and_ends_without_taking_anything_apart(
    tmp_path: Path, body: str, code: int, told: str
) -> None:
    found, output = ended(tmp_path, body)
    assert found == code, output
    assert told in output
    assert "held back by C" in output
    assert "held back by Python" in output
    assert "torn down" not in output


def test_a_rank_whose_word_cannot_be_written_ends_all_the_same(tmp_path: Path) -> None:
    code, output = ended(tmp_path, "import sys; was = sys.stdout; sys.stdout = open('/dev/full', 'w'); print('lost')")
    assert code == 0
    assert "held back by C" in output
    assert "torn down" not in output


def test_the_group_outlives_everything_that_used_it(tmp_path: Path) -> None:
    body = """
import gc, torch
import torch.distributed as dist
from surefoot.node import group
group.join(rank, torch.device("cpu"))
world = id(dist.group.WORLD)
group.leave()
gc.collect()
print("still there:", [id(held) for held in group._held] == [world])
"""
    code, output = ended(tmp_path, body)
    assert code == 0, output
    assert "still there: True" in output
