"""Which operations become one step of integers: models whose graphs are easy to misread.

The oracle is the float model itself, and onnxruntime for what a file says.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn
import minorm.functional as F
from minorm import nn
from minorm import quantization as Q
from tests.onnx.runtime import expected
from tests.quantized_models import images


def norm(layer: Any, seed: int = 3) -> Any:
    """Give the BatchNorm statistics and parameters that are not 0 or 1."""
    rng = np.random.default_rng(seed)
    shape = layer.running_mean.shape
    layer.running_mean.set_array(rng.normal(size=shape).astype(np.float32))
    layer.running_var.set_array(rng.uniform(0.5, 2, shape).astype(np.float32))
    layer.weight.set_array(rng.uniform(0.5, 2, shape).astype(np.float32))
    layer.bias.set_array(rng.normal(size=shape).astype(np.float32))
    return layer


class TwoArms(nn.Module):
    """Both convolutions run before either BatchNorm does; their biases are far apart."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 4, 3), nn.Conv2d(3, 4, 3)
        self.norm_a, self.norm_b = norm(nn.BatchNorm2d(4), 1), norm(nn.BatchNorm2d(4), 2)
        self.a.bias.set_array(np.full(4, 5, np.float32))
        self.b.bias.set_array(np.full(4, -7, np.float32))

    def forward(self, x: mn.Tensor) -> mn.Tensor:
        a, b = self.a(x), self.b(x)
        return self.norm_a(a) + self.norm_b(b)


class OneName(nn.Module):
    """A module where `conv.1` and `conv_1` become one name with _ for each dot, as do their weights."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 6, 3))
        self.conv_1 = nn.Conv2d(6, 2, 1)

    def forward(self, x: mn.Tensor) -> mn.Tensor:
        return self.conv_1(self.conv(x))


class Recurrent(nn.Module):
    """A layer that returns several Tensors, of which a linear layer reads two."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head, self.last = nn.LSTM(4, 5, batch_first=True), nn.Linear(5, 3), nn.Linear(5, 3)

    def forward(self, x: mn.Tensor) -> mn.Tensor:
        y, (h, _) = self.lstm(x)
        return self.head(y).mean(1) + self.last(h[0])


class Tokens(nn.Module):
    """Parameters beside activations: a scale of channels, a class token, positions."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 4, 3, padding=1), nn.Linear(4, 3)
        self.gamma = nn.Parameter(mn.full((4, 1, 1), 0.5))
        self.token, self.positions = nn.Parameter(mn.randn(1, 1, 4)), nn.Parameter(mn.randn(1, 65, 4))

    def forward(self, x: mn.Tensor) -> mn.Tensor:
        y = (self.conv(x) * self.gamma).flatten(2).transpose(1, 2)
        y = mn.cat([self.token.expand(x.shape[0], -1, -1), y], 1) + self.positions
        return self.head(y)


class Named(nn.Module):
    """A module whose layers and Parameters have the names of methods and attributes of modules."""

    def __init__(self) -> None:
        super().__init__()
        self.keys, self.values = nn.Linear(4, 4), nn.Linear(4, 4)
        self.plan, self.items = nn.Parameter(mn.randn(3, 4)), nn.Parameter(mn.randn(3, 3))

    def forward(self, x: mn.Tensor) -> mn.Tensor:
        return F.linear(F.linear(self.keys(x) + self.values(x), self.plan), self.items)


class Tied(nn.Module):
    """One layer that runs twice."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 4)

    def forward(self, x: mn.Tensor) -> mn.Tensor:
        return self.a(F.relu(self.a(x)))


EASY_TO_MISREAD = {
    "tied": (Tied, (6, 4), ()),
    "names of attributes": (Named, (6, 4), ()),
    "tokens": (Tokens, (4, 3, 8, 8), ()),
    "two arms": (TwoArms, (4, 3, 8, 8), ()),
    "one name": (OneName, (4, 3, 8, 8), ()),
    "several results": (Recurrent, (4, 6, 4), ("lstm",)),
    # BatchNorm's channels are axis 1 of N x C x L, the linear layer's the last: as many, and not as many
    "another axis": (lambda: nn.Sequential(nn.Linear(5, 4), norm(nn.BatchNorm1d(4))), (6, 4, 5), ()),
    "another length": (lambda: nn.Sequential(nn.Linear(5, 7), norm(nn.BatchNorm1d(4))), (6, 4, 5), ()),
}


@pytest.mark.parametrize("name", list(EASY_TO_MISREAD))
def test_each_form_is_the_float_model_but_for_rounding(name: str) -> None:
    mn.manual_seed(0)
    make, shape, exclude = EASY_TO_MISREAD[name]
    model, x = make().eval(), images(*shape)
    qat = Q.calibrate(Q.prepare_qat(model, x, exclude=exclude), [x])
    want = model(x).array
    for form in (qat.eval(), Q.convert(qat)):
        assert np.abs(form(x).array - want).max() < 0.03 * np.abs(want).max()


class Masked(nn.Module):
    """A weight that is computed from two Parameters, and one behind a transposition."""

    def __init__(self, product: bool) -> None:
        super().__init__()
        self.conv, self.matrix, self.product = nn.Conv2d(3, 4, 1), nn.Parameter(mn.randn(4, 4)), product
        self.mask = nn.Parameter(mn.ones(4))

    def forward(self, x: mn.Tensor) -> mn.Tensor:
        y = self.conv(x).flatten(2).transpose(1, 2)
        return y @ self.matrix.mT if self.product else F.linear(y, self.matrix * self.mask)


@pytest.mark.parametrize("product", [False, True])
def test_a_matrix_that_would_stay_float_is_named(product: bool) -> None:
    with pytest.raises(ValueError, match="layer '' is a Masked, whose matrix cannot be converted to integers"):
        Q.prepare_qat(Masked(product), images(2, 3, 4, 4))


class Shown(nn.Module):
    """A module that returns the results of its convolution, its BatchNorm and its ReLU."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), norm(nn.BatchNorm2d(4))

    def forward(self, x: mn.Tensor) -> dict[str, Any]:
        y = self.conv(x)
        z = self.norm(y)
        return {"features": [y, z], "result": F.relu(z)}


def test_what_a_model_returns_is_not_folded_into_what_follows() -> None:
    mn.manual_seed(0)
    model, x = Shown().eval(), images(4, 3, 8, 8)
    qat = Q.calibrate(Q.prepare_qat(model, x), [x])
    want = model(x)
    for form in (qat.eval(), Q.convert(qat)):
        found = form(x)
        pairs = [*zip(found["features"], want["features"], strict=True), (found["result"], want["result"])]
        for ours, theirs in pairs:
            assert np.abs(ours.array - theirs.array).max() < 0.03 * np.abs(theirs.array).max()


class Weighed(nn.Module):
    """A module whose second argument has no batch."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 4)

    def forward(self, x: mn.Tensor, matrix: mn.Tensor) -> mn.Tensor:
        return self.a(x) @ matrix


def test_an_argument_without_a_batch_stays_whole() -> None:
    mn.manual_seed(0)
    model, x, matrix = Weighed().eval(), images(6, 4), images(4, 4, seed=1)
    qat = Q.prepare_qat(model, (x, matrix))
    qat(x, matrix)
    want = model(x, matrix).array
    assert np.abs(Q.convert(qat)(x, matrix).array - want).max() < 0.03 * np.abs(want).max()


def test_a_clip_at_the_end_gives_what_integers_stand_for() -> None:
    pytest.importorskip("onnx")
    import minorm.onnx

    class Clipped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3)

        def forward(self, x: mn.Tensor) -> mn.Tensor:
            return self.conv(x).clamp(-0.3, 0.37)

    mn.manual_seed(0)
    x = images(4, 3, 8, 8)
    int8 = Q.convert(Q.calibrate(Q.prepare_qat(Clipped(), x), [x]))
    np.testing.assert_array_equal(int8(x).array, expected(minorm.onnx.export(int8, x), x.array, exact=True)[0])


def test_a_layer_in_evaluation_stays_so_after_calibration_and_measuring() -> None:
    x = images(4, 3, 8, 8)
    qat: Any = Q.prepare_qat(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Conv2d(4, 2, 1)), x).train()
    qat.model[1].eval()
    modes = [module.training for module in qat.modules()]
    Q.calibrate(qat, [x])
    Q.measure_noise(qat, [x])
    Q.folding_gap(qat, [x])
    assert [module.training for module in qat.modules()] == modes
    before = qat.model[1].running_mean.array.copy()
    qat(x)  # in training, with one BatchNorm that is not
    np.testing.assert_array_equal(qat.model[1].running_mean.array, before)
