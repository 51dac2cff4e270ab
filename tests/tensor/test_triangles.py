"""tril_indices and triu_indices; PyTorch's samples are in tests/pytorch."""

from __future__ import annotations

import numpy as np
import pytest

import minorm as mn


@pytest.mark.parametrize("offset", [-3, -1, 0, 1, 9])
@pytest.mark.parametrize("size", [(3, 3), (2, 4), (4, 2), (0, 3), (3, 0)])
def test_they_are_the_places_of_the_triangles(size: tuple[int, int], offset: int) -> None:
    ones = np.ones(size, np.int64)
    for made, cut in ((mn.tril_indices, np.tril), (mn.triu_indices, np.triu)):
        found = made(*size, offset)
        assert found.dtype == mn.int64
        np.testing.assert_array_equal(found.numpy(), np.stack(np.nonzero(cut(ones, offset))))


def test_type_device_and_refusals() -> None:
    assert mn.tril_indices(2, 2, dtype=mn.int32, device="cpu").dtype == mn.int32
    with pytest.raises(ValueError, match="triu_indices: row=-1, col=2; expected numbers of at least 0"):
        mn.triu_indices(-1, 2)
    with pytest.raises(ValueError, match=r"tril_indices: the result would have shape .* expected fewer than 2\^60"):
        mn.tril_indices(2**40, 2**40)
