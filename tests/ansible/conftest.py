"""Tests that provision hosts are marked `sites`: minutes each, with packages that no other test wants."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE) and item.get_closest_marker("lab"):
            item.add_marker(pytest.mark.sites)
