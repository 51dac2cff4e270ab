"""The generator: the same seed, the same numbers; a state that can be kept and put back."""

from __future__ import annotations

import json

import numpy as np
import pytest

import minorm as mn
from minorm import random


def test_the_same_seed_gives_the_same_numbers() -> None:
    mn.manual_seed(3)
    first = mn.randn(5).tolist()
    mn.manual_seed(3)
    assert mn.randn(5).tolist() == first
    mn.manual_seed(4)
    assert mn.randn(5).tolist() != first


def test_the_state_survives_json() -> None:
    state = json.loads(json.dumps(random.get_state()))
    first = random.generator().random(4)
    random.set_state(state)
    np.testing.assert_array_equal(random.generator().random(4), first)


@pytest.mark.parametrize("seed", [-1, 1.5, "x", True])
def test_a_wrong_seed_is_named(seed) -> None:
    with pytest.raises(ValueError, match="manual_seed: seed must be a non-negative int; got"):
        mn.manual_seed(seed)
