"""`surefoot --help` is there at once: nothing heavy is imported before it is needed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

COMMAND = [str(Path(sys.executable).with_name("surefoot"))]
HEAVY = {"pydantic", "torch", "yaml", "rich", "jinja2", "numpy", "matplotlib", "transformers"}
LIMIT_S = 0.3


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\nfrom surefoot.cli import main\nsys.argv = ['surefoot', '--help']\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print('IMPORTED', *sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    help_text, _, imported = done.stdout.partition("IMPORTED")
    assert "climb" in help_text
    assert "click" in imported.split()
    assert HEAVY & set(imported.split()) == set()


@pytest.mark.slow
def test_help_takes_no_longer_than_three_tenths_of_a_second() -> None:
    def once() -> float:
        start = time.perf_counter()
        subprocess.run([*COMMAND, "--help"], stdout=subprocess.DEVNULL, timeout=60, check=True, env=dict(os.environ))
        return time.perf_counter() - start

    assert min(once() for _ in range(5)) <= LIMIT_S
