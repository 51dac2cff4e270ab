"""Orders in memory beside PyTorch's: strides and answers are the same, and no number changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import minorm as mn

torch = pytest.importorskip("torch")

FORMS: dict[str, Callable[[Any, Any], Any]] = {
    "to": lambda m, x: x.to(memory_format=m.channels_last),
    "to with a type": lambda m, x: x.to(m.float64, memory_format=m.channels_last),
    "to with a copy": lambda m, x: x.to("cpu", copy=True, memory_format=m.channels_last),
    "a copy": lambda m, x: x.to("cpu", m.float32, False, True),
    "another type": lambda m, x: x.double(),
    "to row-major": lambda m, x: x.to(memory_format=m.contiguous_format),
    "contiguous": lambda m, x: x.contiguous(),
    "contiguous, channels last": lambda m, x: x.contiguous(memory_format=m.channels_last),
    "clone": lambda m, x: x.clone(),
    "clone, kept": lambda m, x: x.clone(memory_format=m.preserve_format),
    "clone, row-major": lambda m, x: x.clone(memory_format=m.contiguous_format),
    "clone, channels last": lambda m, x: x.clone(memory_format=m.channels_last),
    "cpu": lambda m, x: (
        x.cpu(memory_format=m.channels_last) if m is mn else x.contiguous(memory_format=m.channels_last)
    ),
    "arithmetic": lambda m, x: (x * 2 + x).exp().relu(),
    "a type that changes nothing": lambda m, x: x.float(),
    **{
        f"{name} {kind}": lambda m, x, name=name, kind=kind: getattr(m, name)(
            x,
            *((3,) if name in ("full_like", "randint_like") else ()),
            **({"memory_format": getattr(m, kind)} if kind else {}),
        )
        for name in ("zeros_like", "ones_like", "empty_like", "full_like", "rand_like", "randn_like", "randint_like")
        for kind in ("", "preserve_format", "contiguous_format", "channels_last")
    },
}
ORDERS: dict[str, Callable[[Any, Any], Any]] = {
    "rows": lambda m, x: x,
    "channels last": lambda m, x: x.to(memory_format=m.channels_last),
    "turned": lambda m, x: x.transpose(0, 2),
    "with gaps": lambda m, x: x[:, ::2],
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("form", FORMS)
def test_strides_and_numbers(form: str, order: str, rng: np.random.Generator) -> None:
    if order == "with gaps" and form in ("clone", "clone, kept", "arithmetic", "another type", "a copy"):
        pytest.skip("NumPy keeps the order of axes where there are gaps, PyTorch takes row-major; both without gaps")
    values = rng.standard_normal((2, 3, 4, 5)).astype(np.float32)
    x, theirs = ORDERS[order](mn, mn.tensor(values)), ORDERS[order](torch, torch.tensor(values))
    assert x.stride() == theirs.stride()
    found, expected = FORMS[form](mn, x), FORMS[form](torch, theirs)
    if form == "to row-major" and order in ("turned", "with gaps"):
        assert found.is_contiguous()  # PyTorch's is x itself, which is not
        return
    assert found.stride() == expected.stride()
    assert (found is x) == (expected is theirs)
    if "empty" not in form and "rand" not in form:
        np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-6)
    for name in ("contiguous_format", "channels_last", "channels_last_3d"):
        answer = found.is_contiguous(memory_format=getattr(mn, name))
        assert answer == expected.is_contiguous(memory_format=getattr(torch, name)), name


def test_volumes(rng: np.random.Generator) -> None:
    values = rng.standard_normal((2, 3, 2, 4, 5))
    x, theirs = mn.tensor(values), torch.tensor(values)
    y, expected = x.to(memory_format=mn.channels_last_3d), theirs.to(memory_format=torch.channels_last_3d)
    assert y.stride() == expected.stride()
    assert y.is_contiguous(memory_format=mn.channels_last_3d)
    assert not x.is_contiguous(memory_format=mn.channels_last_3d)
    assert y.contiguous(memory_format=mn.channels_last_3d) is y
    np.testing.assert_array_equal(y.numpy(), values)


def test_gradients_pass() -> None:
    x = mn.ones(1, 2, 2, 2, requires_grad=True)
    (x.clone(memory_format=mn.channels_last) * 3).sum().backward()
    assert x.grad.numpy().tolist() == np.full((1, 2, 2, 2), 3.0).tolist()
    made = mn.zeros_like(x.to(memory_format=mn.channels_last), requires_grad=True)
    assert made.is_leaf
    assert made.requires_grad


@pytest.mark.parametrize(
    "call",
    [
        lambda m: m.ones(2, 3).to(memory_format=m.channels_last),
        lambda m: m.ones(2, 3).contiguous(memory_format=m.channels_last),
        lambda m: m.ones(2, 3, 4, 5).contiguous(memory_format=m.channels_last_3d),
        lambda m: m.zeros_like(m.ones(2), memory_format=m.channels_last),
    ],
)
def test_another_number_of_axes(call: Callable[[Any], Any]) -> None:
    with pytest.raises(RuntimeError):
        call(torch)
    with pytest.raises(ValueError, match=r"memory_format='channels_last\w*' orders [45] axes; x.shape is \(2"):
        call(mn)


def test_no_order() -> None:
    with pytest.raises(
        ValueError, match=r"contiguous: memory_format='NHWC'; expected minorm.contiguous_format, channels_"
    ):
        mn.ones(2).contiguous(memory_format="NHWC")


def test_pytorchs_own_objects_are_taken() -> None:
    x = mn.ones(1, 2, 3, 4)
    assert x.to(memory_format=torch.channels_last).is_contiguous(memory_format=torch.channels_last)
    assert x.contiguous(memory_format=torch.preserve_format) is x
    assert mn.zeros_like(x, memory_format=torch.channels_last).stride() == (24, 1, 8, 2)
