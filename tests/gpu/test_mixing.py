"""Operands on two devices are one clear error, which says who is where and what to do."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import minorm as mn
import minorm.functional as F

pytestmark = pytest.mark.usefixtures("cuda")


def pair(*shapes: tuple[int, ...]) -> list[mn.Tensor]:
    """Tensors in turn on the GPU and on the CPU."""
    return [mn.rand(*shape, device=("cuda", "cpu")[i % 2]) for i, shape in enumerate(shapes)]


MIXED: dict[str, Callable[..., Any]] = {
    "add": lambda x, y: x + y,
    "mul": lambda x, y: x * y,
    "matmul": lambda x, y: x @ y,
    "cat": lambda x, y: mn.cat([x, y]),
    "where": lambda x, y: mn.where(x > 0, x, y),
    "maximum": mn.maximum,
    "compare": lambda x, y: x < y,
    "gather": lambda x, y: x.gather(0, y.long()),
    "linear": F.linear,
    "mse_loss": F.mse_loss,
    "cross_entropy": lambda x, y: F.cross_entropy(x, y[0].long()),
    "nll_loss": lambda x, y: F.nll_loss(x, y[0].long()),
    "binary_cross_entropy_with_logits": F.binary_cross_entropy_with_logits,
    "layer_norm": lambda x, y: F.layer_norm(x, 4, y[0]),
    "batch_norm": lambda x, y: F.batch_norm(x, y[0], y[1] + 1, training=True),
    "batch_norm in evaluation": lambda x, y: F.batch_norm(x, y[0], y[1] + 1),
    "group_norm": lambda x, y: F.group_norm(x, 2, y[0], y[1]),
    "conv1d": lambda x, y: F.conv1d(x.reshape(1, 4, 4), y.reshape(4, 4, 1)),
    "conv_transpose1d": lambda x, y: F.conv_transpose1d(x.reshape(1, 4, 4), y.reshape(4, 4, 1)),
}


@pytest.mark.parametrize("name", MIXED)
@pytest.mark.parametrize("swapped", [False, True])
def test_mixing_devices_is_one_clear_error(name: str, swapped: bool) -> None:
    x, y = pair((4, 4), (4, 4))
    if swapped:
        x, y = y, x
    operation = re.split("[_ ]", name)[0]
    with pytest.raises(RuntimeError, match=rf"(?i)^{operation}\w*: .* is on c.* is on c.*; expected one device"):
        MIXED[name](x, y)


def test_mixing_says_which_argument_is_where() -> None:
    x, weight, bias = mn.ones(2, 3, device="cuda"), mn.ones(5, 3, device="cuda"), mn.ones(5)
    with pytest.raises(RuntimeError) as error:
        F.linear(x, weight, bias)
    assert str(error.value) == (
        "linear: x is on cuda:0, weight is on cuda:0, bias is on cpu; expected one device; move them with .to(device)"
    )
    with pytest.raises(RuntimeError, match=r"x is on cuda:0, weight is on cuda:1"):
        F.linear(x, weight.to("cuda:1"))
    with pytest.raises(
        RuntimeError, match=r"add: operands are on cuda:0 and cpu.*minorm.tensor\(array, device='cuda:0'"
    ):
        x + np.ones((2, 3), np.float32)
    with pytest.raises(RuntimeError, match=r"index: x is on cpu, the index on cuda:0; .*use index.to\('cpu'\)"):
        mn.ones(4)[mn.arange(2, device="cuda")]
    with pytest.raises(RuntimeError, match=r"backward: gradient is on cpu, the tensor on cuda:0"):
        (weight.requires_grad_() * 2).backward(mn.ones(5, 3))
