"""NormCall: no array, one for each order in memory, and all that is chosen chosen once."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

from minorm.kernels import cpu
from minorm.kernels.activated import ActivatedBackend
from minorm.kernels.bound import BoundBackend
from minorm.kernels.checked import CheckedBackend
from minorm.kernels.masked import MaskedBackend
from minorm.kernels.partial import PartialBackend
from minorm.normalization.call import MOST_ORDERS, NormCall
from minorm.normalization.equation import Equation

Shape = tuple[int, ...]


def call_for(shape: Shape = (4, 3, 5), **options: Any) -> NormCall:
    """Return the NormCall of a BatchNorm."""
    return NormCall(np.empty(shape, np.float32), Equation(1e-3), (0, *range(2, len(shape))), (1,), **options)


def reachable(root: Any) -> list[Any]:
    """Return all objects that `root` refers to, directly or not, but for modules, classes and functions."""
    found: dict[int, Any] = {}
    pending = [root]
    while pending:
        one = pending.pop()
        if id(one) not in found and not isinstance(one, type) and type(one).__module__ != "builtins":
            found[id(one)] = one
        elif id(one) in found or not isinstance(one, (tuple, list, dict)):
            continue
        pending += gc.get_referents(one)
    return list(found.values())


def test_it_holds_no_array() -> None:
    x = np.random.default_rng(0).standard_normal((4, 5, 3)).astype(np.float32)
    call = call_for(masked=True, activation="relu")
    turned, y = call.arranged(x.transpose(0, 2, 1))
    assert turned is not call
    assert y.shape == (4, 3, 5)
    assert any(isinstance(one, NormCall) for one in reachable(call.orders))
    assert not [one for one in reachable(call) if isinstance(one, np.ndarray)]


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 2, 3, 1), (3, 1, 2, 0)])
def test_each_order_in_memory_has_its_own_loops_once(order: Shape) -> None:
    call = call_for((4, 3, 5, 2))
    values = np.arange(120, dtype=np.float32).reshape(4, 3, 5, 2)
    x = np.ascontiguousarray(values.transpose(order)).transpose(np.argsort(order))
    turned, same = call.arranged(x)
    assert same is x
    assert (turned is call) == (order == (0, 1, 2, 3))
    assert call.arranged(x.copy("K"))[0] is turned
    assert turned.nest.shape == x.shape
    assert [loop.data for loop in turned.nest.keep] == [x.strides[1] // 4]


def test_gaps_are_copied_away() -> None:
    call = call_for()
    x = np.arange(120, dtype=np.float32).reshape(4, 3, 10)[..., ::2]
    turned, copy = call.arranged(x)
    assert turned is call
    assert copy.flags.c_contiguous
    np.testing.assert_array_equal(copy, x)
    bytes_ = np.zeros(241, np.uint8)[1:]
    unaligned = bytes_.view(np.float32).reshape(4, 3, 5)
    assert not unaligned.flags.aligned
    assert call.arranged(unaligned)[1].flags.aligned


@pytest.mark.parametrize("x", [np.empty((4, 3, 6), np.float32), np.empty((4, 3, 5))])
def test_another_form_is_refused(x: Any) -> None:
    with pytest.raises(ValueError, match=r"NormCall: x is float.*; expected float32\(4, 3, 5\), the type"):
        call_for().arranged(x)


def test_an_equal_type_is_the_same_type() -> None:
    """NumPy makes a second float32 that is equal, and another object."""
    x = np.random.default_rng(0).standard_normal((4, 3, 5)).astype(np.float32)
    other = x.view(x.dtype.newbyteorder("="))
    assert other.dtype is not x.dtype
    call = call_for()
    assert call.arranged(other)[0] is call
    made = NormCall(other, Equation(1e-3), (0, 2), (1,))
    np.testing.assert_array_equal(made.norm.forward(other, None, None)[0], call.norm.forward(x, None, None)[0])


def test_few_orders_are_kept() -> None:
    call = call_for()
    for i in range(MOST_ORDERS + 3):
        call.orders[i] = call  # type: ignore[index]  # so many layouts take many axes
    call.arranged(np.empty((4, 5, 3), np.float32).transpose(0, 2, 1))
    assert len(call.orders) == 1


@pytest.mark.parametrize(
    ("options", "wrappers"),
    [
        ({}, []),
        ({"activation": "relu"}, []),
        ({"masked": True}, []),
        ({"masked": True, "activation": "relu"}, [ActivatedBackend]),
        ({"backend": PartialBackend()}, [CheckedBackend]),
        ({"backend": PartialBackend(), "masked": True}, [MaskedBackend, CheckedBackend]),
        ({"backend": PartialBackend(), "activation": "relu"}, [ActivatedBackend, CheckedBackend]),
    ],
)
def test_the_backend_is_chosen_and_wrapped_when_it_is_made(options: Any, wrappers: list[type]) -> None:
    norm = call_for(**options).norm
    if not wrappers:
        assert type(norm) is getattr(cpu.norm, "BoundKernels", BoundBackend)  # a wheel without kernels has none
        return
    assert type(norm) is BoundBackend
    for wrapper in wrappers:
        norm = norm.norm
        assert type(norm) is wrapper
