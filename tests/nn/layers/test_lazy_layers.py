"""A lazy layer becomes the layer that its first input asks for."""

from __future__ import annotations

import pytest

import minorm as mn
from minorm import nn

CASES = {
    "LazyLinear": ((4,), (2, 3), nn.Linear),
    **{f"LazyConv{r}d": ((4, 2), (2, 3, *(5,) * r), getattr(nn, f"Conv{r}d")) for r in (1, 2, 3)},
    **{f"LazyConvTranspose{r}d": ((4, 2), (2, 3, *(5,) * r), getattr(nn, f"ConvTranspose{r}d")) for r in (1, 2, 3)},
    **{f"LazyBatchNorm{r}d": ((), (2, 3, *(5,) * r), getattr(nn, f"BatchNorm{r}d")) for r in (1, 2, 3)},
    **{f"LazyInstanceNorm{r}d": ((), (2, 3, *(5,) * r), getattr(nn, f"InstanceNorm{r}d")) for r in (1, 2, 3)},
}


@pytest.mark.parametrize("name", CASES)
def test_it_becomes_the_layer(name: str) -> None:
    arguments, shape, kind = CASES[name]
    model = nn.Sequential(getattr(nn, name)(*arguments)).double().eval()
    assert not list(model.parameters())
    y = model(mn.ones(*shape, dtype=mn.float64))
    assert type(model[0]) is kind
    assert not model[0].training
    assert repr(model[0]) == repr(kind(3, *arguments))
    assert all(p.dtype == mn.float64 for p in model.parameters())
    assert y.dtype == mn.float64


@pytest.mark.parametrize("name", [name for name in CASES if "Conv" in name or "Instance" in name])
def test_an_input_without_a_batch_axis_tells_its_channels_too(name: str) -> None:
    arguments, shape, kind = CASES[name]
    layer = getattr(nn, name)(*arguments)
    y = layer(mn.ones(*shape[1:]))
    assert repr(layer) == repr(kind(3, *arguments))
    assert y.shape == layer(mn.ones(*shape)).shape[1:]


@pytest.mark.parametrize(("name", "axes"), [("LazyLinear", 1), ("LazyConv2d", 3), ("LazyBatchNorm1d", 2)])
def test_too_few_axes_are_named_and_change_nothing(name: str, axes: int) -> None:
    layer = getattr(nn, name)(*CASES[name][0])
    with pytest.raises(ValueError, match=rf"{name}: input has shape \(.*\); expected at least {axes} axes"):
        layer(mn.ones((5,) * (axes - 1)))
    assert layer.has_uninitialized_params()


def test_what_is_no_tensor_is_named() -> None:
    with pytest.raises(TypeError, match="LazyLinear: input"):
        nn.LazyLinear(2)([1.0])
