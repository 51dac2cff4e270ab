"""minorm/backends: switches that may be read and set under PyTorch's names, on machines without a GPU too."""

from __future__ import annotations

from typing import Any

import pytest

import minorm as mn
from minorm.kernels import switches


@pytest.mark.parametrize(
    ("place", "name", "kept", "default"),
    [
        (mn.backends.cuda.matmul, "allow_tf32", "matmul_tf32", False),
        (mn.backends.cudnn, "allow_tf32", "conv_tf32", False),
        (mn.backends.cudnn, "benchmark", "cudnn_benchmark", False),
        (mn.backends.cudnn, "enabled", "cudnn", True),
    ],
)
def test_a_switch_is_what_kernels_read(place: Any, name: str, kept: str, default: bool) -> None:
    assert getattr(place, name) is getattr(switches, kept) is default
    try:
        setattr(place, name, not default)
        assert getattr(place, name) is getattr(switches, kept) is not default
        with pytest.raises(TypeError, match=rf"{name} is 'yes', of type str; expected True or False"):
            setattr(place, name, "yes")
    finally:
        setattr(place, name, default)


def test_the_precision_of_products_is_the_same_switch() -> None:
    try:
        for precision, tf32 in (("high", True), ("highest", False), ("medium", True)):
            mn.set_float32_matmul_precision(precision)
            assert mn.backends.cuda.matmul.allow_tf32 is tf32
    finally:
        mn.backends.cuda.matmul.allow_tf32 = False
    with pytest.raises(ValueError, match="precision='low'; expected 'highest', 'high' or 'medium'"):
        mn.set_float32_matmul_precision("low")
