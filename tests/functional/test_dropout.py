"""F.dropout: evaluation mode, and what it refuses."""

from __future__ import annotations

import pytest

import minorm as mn
import minorm.functional as F


def test_evaluation_returns_x_itself():
    x = mn.ones(3)
    assert F.dropout(x, 0.5, training=False) is x


@pytest.mark.parametrize(
    ("p", "error"), [(1.5, ValueError), (-0.1, ValueError), (float("nan"), ValueError), ("0.5", TypeError)]
)
def test_p_is_a_probability(p, error):
    with pytest.raises(error, match=r"dropout: p is .*; expected a (probability|number)"):
        F.dropout(mn.ones(3), p)
