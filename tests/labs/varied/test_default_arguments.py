"""A variant's defaults replace a function's own defaults, but never the arguments of a call."""

from __future__ import annotations

from typing import Any

import pytest

from minorm.labs.varied.default_arguments import given


def norm(x: Any, axes: Any, eps: float = 1e-5) -> Any:
    return x, axes, eps


def test_defaults() -> None:
    for args, options, expected in (
        ((1, 2), {}, (1, 2, 0.1)),
        ((1, 2, 0.5), {}, (1, 2, 0.5)),
        ((1,), {"axes": 2, "eps": 0.5}, (1, 2, 0.5)),
    ):
        bound = given(norm, args, options, eps=0.1, momentum=0.9)
        assert norm(*bound.args, **bound.kwargs) == expected
    with pytest.raises(TypeError):
        given(norm, (1, 2, 3, 4), {})
