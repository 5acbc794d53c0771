"""A Python file of ``ansible/`` as a module: there it is a plugin or a program of a role, and in no package."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

ANSIBLE = Path(__file__).parents[1] / "ansible"


def loaded(name: str) -> ModuleType:
    """`name`: the file's path below ``ansible/``. Another module of this name, as of another role's, is not disturbed."""
    path = ANSIBLE / name
    spec = importlib.util.spec_from_file_location("ansible_" + name.removesuffix(".py").replace("/", "_"), path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look for their own
    spec.loader.exec_module(module)
    return module
