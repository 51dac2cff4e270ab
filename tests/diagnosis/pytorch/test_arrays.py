"""Arrays for modules of PyTorch: weights that fit are copied, others are named, and nothing is half done."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm.diagnosis.pytorch import arrays
from tests.diagnosis.pytorch.planting import healthy, network

t = pytest.importorskip("torch")


def weights() -> dict[str, Any]:
    return {key: value.numpy().copy() for key, value in healthy().state_dict().items()}


def test_weights_are_copied() -> None:
    model = network()
    arrays.fill(model, weights(), "w.pt")
    for key, value in healthy().state_dict().items():
        assert t.equal(model.state_dict()[key], value)


def test_older_files_have_no_counter_and_16_bits_are_widened() -> None:
    found = {key: value for key, value in weights().items() if "num_batches" not in key}
    found["0.weight"] = found["0.weight"].astype(mn.bfloat16)
    model = network()
    arrays.fill(model, found, "w.pt")
    assert t.equal(model[0].weight.detach(), healthy()[0].weight.detach().bfloat16().float())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda w: w.pop("4.bias"), r"^w.pt lacks 4.bias; expected"),
        (lambda w: w.update(extra=np.zeros(2)), r"^w.pt has, and the model lacks, extra; expected"),
        (lambda w: w.update({"0.weight": np.zeros((2, 2))}),
         r"^w.pt has in another shape 0.weight \(2, 2\) there, \(16, 3, 3, 3\) here; expected"),
    ],
)  # fmt: skip
def test_weights_that_do_not_fit(change: Any, said: str) -> None:
    model, found = network(), weights()
    before = model[0].weight.detach().clone()
    change(found)
    with pytest.raises(ValueError, match=said):
        arrays.fill(model, found, "w.pt")
    assert t.equal(model[0].weight.detach(), before)


def test_what_is_of_pytorch() -> None:
    assert arrays.is_module(t.nn.ReLU())
    assert not arrays.is_module(mn.nn.ReLU())
    assert arrays.is_tensor(t.nn.Parameter(t.zeros(2)))
    assert not arrays.is_tensor(mn.zeros(2))


def test_there_and_back() -> None:
    for dtype in (t.float16, t.bfloat16, t.float32, t.float64, t.int64):
        x = t.arange(6).reshape(2, 3).to(dtype)
        back = arrays.tensor(mn.Tensor(arrays.array(x)), "cpu", dtype if dtype.is_floating_point else None)
        assert back.dtype == dtype
        assert t.equal(back, x)
