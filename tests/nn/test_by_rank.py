"""Families of layers that differ in how many axes they have."""

from __future__ import annotations

import copy
import inspect
import pickle

import pytest

import minorm as mn
from minorm import nn

FAMILIES = {
    "Conv": (4, 2, 3), "ConvTranspose": (4, 2, 3), "MaxPool": (2,), "AvgPool": (2,), "AdaptiveAvgPool": (2,),
    "AdaptiveMaxPool": (2,), "LPPool": (2, 2), "ZeroPad": (1,), "ConstantPad": (1, 2.0), "CircularPad": (1,),
}  # fmt: skip


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_member_is_a_class_in_words_of_its_rank(family, rank):
    layer_class = getattr(nn, f"{family}{rank}d")
    assert isinstance(layer_class, type)
    assert layer_class.__qualname__ == layer_class.__name__ == f"{family}{rank}d"
    text = inspect.getdoc(layer_class)
    assert text.startswith("y")
    assert {1: "(C, L)", 2: "(C, H, W)", 3: "(C, D, H, W)"}[rank] in text
    layer, x = layer_class(*FAMILIES[family]), mn.randn(1, 4, *(6,) * rank)
    expected = layer(x).tolist()
    for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert type(twin) is layer_class
        assert repr(twin) == repr(layer)
        assert twin(x).tolist() == expected


def test_a_subclass_may_keep_attributes_under_any_name():
    class LowRank(nn.Conv2d):
        """A convolution with a rank, as programs for adapters write it."""

        def __init__(self, channels: int, rank: int) -> None:
            super().__init__(channels, 2, 3, padding="same")
            self.rank, self.family, self.arguments = rank, "adapters", {}

    layer = LowRank(4, rank=7)
    assert layer(mn.randn(1, 4, 6, 6)).shape == (1, 2, 6, 6)
    assert inspect.getdoc(LowRank).startswith("A convolution with a rank")
    with pytest.raises(TypeError, match="expected an int, or 2 ints"):
        layer.stride = (1, 2, 3)


def test_the_functions_of_a_family_are_functions_with_their_own_signatures():
    for rank in (1, 2, 3):
        function = getattr(nn.functional, f"max_pool{rank}d")
        assert inspect.isfunction(function)
        assert function.__name__ == f"max_pool{rank}d"
        assert list(inspect.signature(function).parameters)[:2] == ["x", "kernel_size"]
        assert pickle.loads(pickle.dumps(function)) is function
        assert "MaxPool.apply(" in inspect.getsource(function)
        with pytest.raises(TypeError, match=f"max_pool{rank}d: there is no argument 'kernel'; did you mean"):
            function(mn.randn(1, 1, *(4,) * rank), kernel=2)
