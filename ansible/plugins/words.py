"""What several filters say alike. Each takes it by `runpy.run_path`: Ansible loads a filter by its path, in no package."""

from __future__ import annotations

from collections.abc import Sequence


def few(hosts: Sequence[str]) -> str:
    """``n1, n2, n3, n4 and 96 more``."""
    return ", ".join(hosts[:4]) + (f" and {len(hosts) - 4} more" if len(hosts) > 4 else "")


def true(value: object) -> bool:
    """Whether a variable says yes, as Ansible takes it: also as a text of an INI inventory."""
    return str(value).lower() in ("true", "yes", "on", "1")
