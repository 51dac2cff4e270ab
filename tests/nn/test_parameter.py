"""Parameter: a Tensor that requires grad."""

from __future__ import annotations

import re

import numpy as np
import pytest

import minorm as mn
from minorm import nn


def fails(error, message):
    return pytest.raises(error, match=re.escape(message))


def test_a_parameter():
    p = nn.Parameter(mn.ones(2))
    assert p.requires_grad
    assert isinstance(p, mn.Tensor)
    assert repr(p).startswith("Parameter containing:\ntensor([1., 1.]")
    assert nn.Parameter(np.ones(2, np.float32)).shape == (2,)
    assert nn.Parameter([1.0, 2.0]).dtype == mn.float32
    assert nn.Parameter(mn.tensor([1]), requires_grad=False).dtype == mn.int64
    assert type(p * 2) is mn.Tensor
    with fails(TypeError, "Parameter: data is int64; expected a float type"):
        nn.Parameter(mn.tensor([1]))
