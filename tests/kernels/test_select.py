"""The array chooses the backend: NumPy's go to the CPU kernels."""

from __future__ import annotations

import numpy as np

from minorm.kernels import cpu, select


def test_numpy_goes_to_the_cpu() -> None:
    class Mine(np.ndarray):
        pass

    for array in (np.ones(3), np.float32(1), np.ones(3).view(Mine)):
        assert select.backend(array) is cpu
    assert [select.is_array(value) for value in (np.ones(3), np.float32(1), 1.0, [1])] == [True, False, False, False]


def test_memory_of_arrays() -> None:
    x = np.ones((2, 3))
    assert select.overlap(x, x[1])
    assert not select.overlap(x[0], x.copy())
    assert select.same(x, x[:])
    assert not select.same(x, x[::-1])
    assert select.contiguous(x) is x
    assert select.contiguous(x.T).flags.c_contiguous
