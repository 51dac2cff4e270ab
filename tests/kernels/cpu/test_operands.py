"""Arrays as kernels take them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from minorm.devices import dtypes
from minorm.kernels.cpu.elementwise import FEW, LARGE, mul
from minorm.kernels.cpu.operands import plain


@pytest.mark.parametrize("dtype", ["bool", "uint8", "float16", "bfloat16", "float32", "float64"])
def test_copies_of_rows_of_few_elements(dtype: str) -> None:
    """By words where a row is one, element by element elsewhere."""
    kind = dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    x = (np.random.default_rng(0).standard_normal((5, 7, 9)) * 5).astype(kind)
    for n in (1, 2, 3, 4):
        for view in (
            x[..., 1 : 1 + n],
            x[::-1, :, :n],
            x.transpose(1, 0, 2)[..., :n],
            x[..., ::-1][..., :n],
            x[:0, :, :n],
        ):
            copy = plain(view)
            assert copy.flags.c_contiguous
            assert copy.dtype == view.dtype
            np.testing.assert_array_equal(copy, view)


@pytest.mark.parametrize("n", range(1, FEW + 2))
def test_arithmetic_with_a_number_keeps_the_order_of_memory(n: int) -> None:
    x = np.random.default_rng(0).standard_normal((2, LARGE, 6)).astype(np.float32)
    number: Any = np.float32(0.3).reshape(())
    for view in (x[..., 1 : 1 + n], x.transpose(1, 0, 2)[..., :n], x[::-1, :, :n]):
        np.testing.assert_array_equal(mul(view, number), view * number)
        assert np.argsort(mul(view, number).strides).tolist() == np.argsort((view * number).strides).tolist()
