"""Reading safetensors without torch: exact, and damaged files are refused."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

import trained_run
from surefoot.errors import EvidenceError
from surefoot.training.shipped_demo import FOLDER
from surefoot.training.tensors import file_parameter_digest, read_tensors

GOOD = trained_run.safetensors({"a": ((2, 2), [1.0, 2.0, 3.0, 4.0]), "b": ((3,), [0.0, 0.0, 5.0])})


def test_names_shapes_and_values_are_read() -> None:
    found = read_tensors(GOOD, file="f")
    assert {name: tensor.shape for name, tensor in found.items()} == {"a": (2, 2), "b": (3,)}
    assert found["a"].square_sum() == 30
    assert found["b"].square_sum() == 25


def test_the_shipped_base_has_the_parameters_it_is_said_to_have() -> None:
    found = read_tensors((FOLDER / "base" / "model.safetensors").read_bytes(), file="base")
    assert sum(tensor.count for tensor in found.values()) == 379_104


@given(st.integers(0, len(GOOD) - 1))
def test_a_file_that_was_cut_is_refused(length: int) -> None:
    with pytest.raises(EvidenceError):
        read_tensors(GOOD[:length], file="f")


def _with_header(change: dict[str, object]) -> bytes:
    length = int.from_bytes(GOOD[:8], "little")
    header = {**json.loads(GOOD[8 : 8 + length]), **change}
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + GOOD[8 + length :]


@pytest.mark.parametrize(
    "entry",
    [
        {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 16]},
        {"dtype": "F32", "shape": [2, 2], "data_offsets": [12, 28]},
        {"dtype": "F32", "shape": [2, 2], "data_offsets": [-16, 0]},
        {"dtype": "X1", "shape": [2, 2], "data_offsets": [0, 16]},
        {"shape": [2, 2]},
        "nothing",
    ],
)
def test_a_header_that_does_not_fit_the_data_is_refused(entry: object) -> None:
    with pytest.raises(EvidenceError):
        read_tensors(_with_header({"a": entry}), file="f")


def test_bytes_after_the_last_tensor_are_refused() -> None:
    with pytest.raises(EvidenceError, match="unused"):
        read_tensors(GOOD + b"\0", file="f")


def test_the_parameter_digest_changes_with_every_byte_and_not_with_the_order() -> None:
    turned = trained_run.safetensors({"b": ((3,), [0.0, 0.0, 5.0]), "a": ((2, 2), [1.0, 2.0, 3.0, 4.0])})
    other = trained_run.safetensors({"a": ((2, 2), [1.0, 2.0, 3.0, 4.5]), "b": ((3,), [0.0, 0.0, 5.0])})
    digest = file_parameter_digest(read_tensors(GOOD, file="f"))
    assert digest == file_parameter_digest(read_tensors(turned, file="f"))
    assert digest != file_parameter_digest(read_tensors(other, file="f"))


def test_a_sum_over_values_that_are_no_figures_is_no_figure() -> None:
    found = read_tensors(trained_run.safetensors({"a": ((2,), [1.0, math.nan])}), file="f")
    assert math.isnan(found["a"].square_sum())
