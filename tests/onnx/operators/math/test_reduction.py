from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn


@pytest.fixture
def x(rng: np.random.Generator) -> mn.Tensor:
    return mn.tensor(rng.normal(size=(2, 3, 4)).astype(np.float32))


def test_reductions(proved: Any, x: mn.Tensor, opset: int) -> None:
    proved(
        lambda x: (
            x.sum(),
            x.sum((0, 2)),
            x.mean(1, True),
            x.amax((1, 2)),
            x.amin(-1),
            x.mean(()),
            x.flatten(1).sum(1),
        ),
        x,
        opset=opset,
    )


def test_variance_over_the_batch_divides_by_the_batch_at_run_time(proved: Any, x: mn.Tensor, opset: int) -> None:
    proved(lambda x: (x.var(0), x.std((0, 2), unbiased=False), x.var(1)), x, opset=opset)


def test_places_of_extremes(proved: Any, x: mn.Tensor, opset: int) -> None:
    proved(lambda x: (x.argmax(1), x.argmin(-1, keepdim=True), x.argmax()), x, opset=opset)
    if opset >= 11:
        proved(lambda x: x.max(1), x, opset=opset)


def test_counting_what_is_true(proved: Any, x: mn.Tensor, opset: int) -> None:
    proved(lambda x: (x > 0).sum(1), x, opset=opset)
