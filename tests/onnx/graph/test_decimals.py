"""Float attributes are read as what their authors wrote, and training goes on to the same bits after a file."""

from __future__ import annotations

import hashlib
import itertools
import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minorm as mn
import minorm.functional as F
from minorm import nn, optim

onnx = pytest.importorskip("onnx")

import minorm.onnx as mo  # noqa: E402  after importorskip
from minorm.onnx.graph.decimals import changed, shortest  # noqa: E402

# (eps, momentum): usual ones, and some that float32 rounds up, or down, or far from 1
VALUES = [
    (1e-5, 0.9), (1e-3, 0.99), (1e-6, 0.95), (1e-8, 0.999), (1e-12, 0.1), (0.1, 0.7), (2.5e-7, 0.5), (3e-5, 0.123),
    (1e-4, 0.8), (2e-5, 0.6), (7e-6, 0.3), (1.5e-5, 0.997), (0.01, 0.9997), (1e-7, 0.85), (1.1e-5, 0.01),
    (6.25e-2, 0.75), (0.3, 0.0), (1e-10, 1.0), (4.7e-5, 0.33), (1.0, 0.66),
]  # fmt: skip

Make = Callable[[float, float], nn.Module]
LAYERS: dict[str, tuple[Make, tuple[int, ...]]] = {  # and the opsets whose versions carry its numbers
    "BatchNorm": (lambda eps, m: nn.BatchNorm2d(3, eps, m), (7, 9, 14, 15, 22)),
    "BatchNorm unbiased": (lambda eps, m: nn.BatchNorm2d(3, eps, m, unbiased_running_var=True), (9, 15)),
    "InstanceNorm": (lambda eps, m: nn.InstanceNorm2d(3, eps, affine=True), (7, 22)),
    "InstanceNorm tracked": (lambda eps, m: nn.InstanceNorm2d(3, eps, m, True, True), (7, 22)),
    "GroupNorm": (lambda eps, m: nn.GroupNorm(3, 3, eps), (21,)),
    "LayerNorm": (lambda eps, m: nn.LayerNorm((3, 4, 4), eps), (17,)),
    "RMSNorm": (lambda eps, m: nn.RMSNorm((3, 4, 4), eps), (23,)),
    "LocalResponseNorm": (lambda eps, m: nn.LocalResponseNorm(3, eps, m, k=2.3), (7, 13)),
    "MeanVarianceNorm": (lambda eps, m: nn.MeanVarianceNorm(), (9, 13)),
}
CASES = [
    (name, opset, training, dtype)
    for name, (_, opsets) in LAYERS.items()
    for opset, training in itertools.product(opsets, (False, True))
    # In float64 all but BatchNorm are written as formulas: their operators compute in float32, or no runtime has them.
    for dtype in (("float32", "float64") if name == "BatchNorm" else ("float32",))
]


def warmed_up(name: str, eps: float, momentum: float, dtype: str) -> nn.Module:
    mn.manual_seed(0)
    make, _ = LAYERS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # momentum below 0.5
        net = nn.Sequential(nn.Conv2d(2, 3, 1), make(eps, momentum), nn.ReLU(), nn.Flatten(), nn.Linear(48, 3))
    net.to(getattr(mn, dtype))
    history(net, dtype, 3)
    return net


def history(net: Any, dtype: str, steps: int) -> list[str]:
    """A digest of loss and gradients for each step of training, then one of weights and running statistics."""
    rng = np.random.default_rng(1)
    optimizer = optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
    net.train()
    digests = []
    for _ in range(steps):
        x, labels = rng.normal(0.5, 2, (4, 2, 4, 4)).astype(dtype), rng.integers(0, 3, 4)
        loss = F.cross_entropy(net(mn.tensor(x)), mn.tensor(labels))
        optimizer.zero_grad()
        loss.backward()
        digests.append(digest({"": loss, **{key: p.grad for key, p in net.named_parameters()}}))
        optimizer.step()
    state = {key: value for key, value in net.state_dict().items() if not key.endswith("num_batches_tracked")}
    return [*digests, digest(state)]


def digest(tensors: dict[str, Any]) -> str:
    """Of names and bits."""
    return hashlib.sha256(
        b"".join(key.encode() + t.numpy().tobytes() for key, t in sorted(tensors.items()))
    ).hexdigest()


def check(case: tuple[str, int, bool, str], values: tuple[float, float]) -> None:
    name, opset, training, dtype = case
    net = warmed_up(name, *values, dtype)
    example = mn.tensor(np.ones((4, 2, 4, 4), dtype))
    loaded = mo.load(mo.export(net, example, opset_version=opset, training=training))
    assert history(net, dtype, 300) == history(loaded, dtype, 300), (case, values)


SAMPLE = [case for name in LAYERS for case in [c for c in CASES if c[0] == name][:: 5 if name == "BatchNorm" else 3]]


@pytest.mark.parametrize("case", SAMPLE, ids=lambda case: "-".join(map(str, case)))
def test_training_goes_on_to_the_same_bits(case: Any) -> None:
    check(case, VALUES[CASES.index(case) % len(VALUES)])


@pytest.mark.slow
@pytest.mark.parametrize("values", VALUES, ids=str)
def test_training_goes_on_to_the_same_bits_with_every_value(values: tuple[float, float]) -> None:
    for case in CASES:
        check(case, values)


@pytest.mark.parametrize(("eps", "momentum"), VALUES)
def test_eps_and_momentum_come_back_as_python_floats(eps: float, momentum: float) -> None:
    net = warmed_up("BatchNorm", eps, momentum, "float32")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        layer = mo.load(mo.export(net, mn.ones(4, 2, 4, 4), training=True)).get_submodule("1")
    assert (layer.eps, layer.momentum) == (eps, momentum)


@pytest.mark.parametrize("alpha", [0.01, 0.1, 0.2, 0.3, 1e-3, 1.7])
def test_alpha_comes_back(alpha: float, graph_of: Any) -> None:
    x = mn.tensor(np.array([-3.0, -1.0, 2.0]))
    for function in (F.leaky_relu, F.elu):
        loaded = mo.load(mo.export(lambda x, f=function: f(x, alpha), x))
        np.testing.assert_array_equal(loaded(x).array, function(x, alpha).array)  # float64: an alpha of float32 shows


def test_a_number_that_will_come_back_as_another_is_said() -> None:
    layer = nn.BatchNorm2d(2, eps=1e-5 / 3, momentum=2 / 3)
    with pytest.warns(UserWarning, match="export: ") as said:
        proto = mo.export(layer, mn.ones(2, 2, 3, 3))
    assert [str(warning.message) for warning in said] == [
        f"export: BatchNormalization: {name} does not fit ONNX's float32; the file will hold {back}"
        for name, back in (
            ("epsilon=3.3333333333333337e-06", "3.3333333e-06"),
            ("momentum=0.6666666666666666", "0.6666667"),
        )
    ]
    loaded = mo.load(proto)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # what came from a file fits
        again = mo.export(loaded, mn.ones(2, 2, 3, 3))
    assert [node.attribute for node in again.graph.node] == [node.attribute for node in proto.graph.node]


def test_what_we_write_ourselves_is_no_news() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        x = mn.ones(2, 4)
        mo.export(F.hardsigmoid, x)
        mo.export(F.hardswish, x, opset_version=13)
        layer = mo.load(mo.export(nn.RMSNorm(4), x, opset_version=23))
    x = mn.tensor(np.full((1, 4), 1e-4, np.float32))
    np.testing.assert_array_equal(layer(x).array, nn.RMSNorm(4)(x).array)


@given(st.floats(width=32))
def test_shortest_names_the_same_float32(number: float) -> None:
    found = shortest(number)
    if math.isnan(number):
        assert math.isnan(found)
        return
    assert np.float32(found) == np.float32(number)
    digits = len(repr(abs(found)).split("e")[0].replace(".", "").strip("0"))
    assert digits <= 9
    assert shortest(found) == found  # what was read is written and read again as it is


@given(st.integers(1, 999999), st.integers(-30, 30))
def test_six_digits_always_come_back(digits: int, exponent: int) -> None:
    number = float(f"{digits}e{exponent}")
    assert shortest(float(np.float32(number))) == number
    assert list(changed(number)) == []


def test_changed_lists_what_will_not() -> None:
    assert list(changed([0.1, 1 / 3, 2, math.nan, math.inf])) == [(1 / 3, 0.33333334)]
    assert list(changed(1e300)) == [(1e300, math.inf)]
