"""A case that does not fit its function is refused with a sentence; distances."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from minorm.labs import museum

ONE, FIVE = np.ones(1), np.ones(5)
BATCH = {"x": np.ones((2, 1)), "s": ONE, "b": ONE, "running_mean": ONE, "running_var": ONE}
GROUP = {"x": np.ones((2, 4, 3)), "s": np.ones(2), "b": np.ones(2), "num_groups": 2}
LAYER = {"x": np.ones((2, 5)), "s": FIVE, "b": FIVE}
LP = {"x": FIVE}


@pytest.mark.parametrize(
    ("function", "case", "changes", "said"),
    [
        ("batch_norm", BATCH, {"s": FIVE}, r"s must have shape \(1,\); got \(5,\)"),
        ("batch_norm", BATCH, {"running_var": -ONE}, "running_var must not be negative"),
        ("batch_norm", BATCH, {"momentum": 2}, "momentum must be a number from 0 to 1; got 2"),
        ("batch_norm", BATCH, {"x": FIVE}, r"got shape \(5,\)"),
        ("batch_norm", BATCH, {"num_groups": 1}, "batch_norm takes x, s, b, running_mean, running_var"),
        ("group_norm", GROUP, {"num_groups": 3}, "num_groups=3 must divide channels=4"),
        ("group_norm", GROUP, {"num_groups": 2.0}, "num_groups must be a whole number from 1 to 4; got 2.0"),
        ("group_norm", GROUP, {"b": np.ones(4)}, "s and b must have the same shape"),
        ("group_norm", GROUP, {"s": np.ones(3)}, r"s must have shape \(2,\) or \(4,\); got \(3,\)"),
        ("layer_norm", LAYER, {"axis": 2}, "axis must be a whole number from -2 to 1; got 2"),
        ("layer_norm", LAYER, {"axis": 0}, r"s must have shape \(2, 5\); got \(5,\)"),
        ("layer_norm", LAYER, {"x": [1, 2]}, "x must be an array of float16, float32 or float64; got"),
        ("lp_norm", LP, {"p": 3}, "p must be a whole number from 1 to 2; got 3"),
        ("lp_norm", LP, {"x": np.array([np.inf])}, "x must be finite"),
        ("lp_norm", LP, {"x": np.ones(5000)}, "x must have 1 to 4096 elements"),
        ("lp_norm", LP, {"x": np.ones(5, int)}, "x must be an array of float16"),
    ],
)
def test_what_does_not_fit_is_refused(function: str, case: dict[str, Any], changes: dict[str, Any], said: str) -> None:
    assert museum.checked(function, case) == case
    with pytest.raises(ValueError, match=said):
        museum.checked(function, {**case, **changes})


def test_a_case_that_is_no_dict() -> None:
    with pytest.raises(ValueError, match="lp_norm takes x and may take p, axis; got list"):
        museum.checked("lp_norm", [1])  # type: ignore[arg-type]


def test_distances() -> None:
    a = np.array([1.0, 20.0])
    assert museum.distance(a, a) == 0
    assert museum.distance(a + 1, a) == 0.05
    assert museum.distance(a / 100 + 1, a / 100) == 1
    assert museum.distance((a, a), (a, a + 1)) == pytest.approx(1 / 21)
    for other in (a[:1], a * np.nan, (a, a)):
        assert museum.distance(other, a) == np.inf
