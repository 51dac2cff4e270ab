"""A backend that a user builds from some custom functions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn
import minorm.functional as F
from minorm.kernels.partial import NAMES, PartialBackend
from minorm.kernels.reference import norm


def both(backend: Any, function: Any, *args: Any, **options: Any) -> list[Any]:
    rng = np.random.default_rng(0)
    x = mn.tensor(rng.standard_normal((3, 4, 5)), requires_grad=True)
    y = function(x, *args, backend=backend, **options)
    y.backward(mn.tensor(rng.standard_normal(y.shape)))
    return [y.numpy(), x.grad.numpy()]


@pytest.mark.parametrize("name", NAMES)
def test_each_function_can_be_given_and_is_called(name: str) -> None:
    calls = []

    def counted(*args: Any, **options: Any) -> Any:
        calls.append(name)
        return getattr(norm, name)(*args, **options)

    weight = mn.tensor(np.linspace(0.5, 2, 4), requires_grad=True)
    for given, expected in zip(
        both(PartialBackend(**{name: counted}), F.batch_norm, None, None, weight, training=True),
        both(None, F.batch_norm, None, None, weight, training=True),
        strict=True,
    ):
        np.testing.assert_allclose(given, expected, rtol=1e-10, atol=1e-12)
    assert calls


@pytest.mark.parametrize("function", [F.mean_variance_norm, F.rms_norm])
def test_guard_and_no_centering_come_through(function: Any) -> None:
    args = ((0, 2),) if function is F.mean_variance_norm else (5,)
    for given, expected in zip(both(PartialBackend(), function, *args), both(None, function, *args), strict=True):
        np.testing.assert_allclose(given, expected, rtol=1e-10, atol=1e-12)


def test_what_the_protocol_does_not_have_is_refused() -> None:
    with pytest.raises(TypeError, match="no function 'moment'"):
        PartialBackend(moment=norm.moments)
    with pytest.raises(TypeError, match="apply is a int"):
        PartialBackend(apply=3)  # type: ignore[arg-type]
