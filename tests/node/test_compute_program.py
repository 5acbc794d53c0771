"""The exact check finds a wrong row, and a right product has none."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from surefoot.node import compute

pytestmark = pytest.mark.slow  # imports torch
CPU = torch.device("cpu")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_right_product_has_no_wrong_rows(dtype: Any) -> None:
    assert compute.wrong_rows(96, dtype, CPU, torch.Generator().manual_seed(1)) == 0


def test_one_wrong_entry_is_one_wrong_row(monkeypatch: pytest.MonkeyPatch) -> None:
    right = torch.Tensor.__matmul__

    def faulty(left: Any, other: Any) -> Any:
        product = right(left, other)
        if product.dtype is torch.float32:
            product[5, 7] += 1
        return product

    monkeypatch.setattr(torch.Tensor, "__matmul__", faulty)
    assert compute.wrong_rows(96, torch.float32, CPU, torch.Generator().manual_seed(1)) == 1
