"""Some neighbours in a Sequential run in one pass with the same bits; each runs by itself if a hook looks between."""

from __future__ import annotations

import copy
import functools

import numpy as np
import pytest

import minorm as mn
import minorm.functional as F
from minorm import nn
from minorm.graph import trace
from minorm.nn.fused_pairs import run_together
from minorm.nn.utils.parametrizations import weight_norm

LAYERS = {
    "batch": (lambda: nn.BatchNorm2d(6), (4, 6, 5, 7)),
    "batch, evaluation": (lambda: nn.BatchNorm2d(6).eval(), (4, 6, 5, 7)),
    "sync": (lambda: nn.SyncBatchNorm(6), (4, 6, 5, 7)),
    "instance": (lambda: nn.InstanceNorm1d(6, affine=True, track_running_stats=True), (4, 6, 35)),
    "instance of one sample": (lambda: nn.InstanceNorm2d(6), (6, 5, 7)),
    "group": (lambda: nn.GroupNorm(2, 6), (4, 6, 5, 7)),
    "layer": (lambda: nn.LayerNorm([5, 7]), (4, 6, 5, 7)),
    "rms": (lambda: nn.RMSNorm(7), (4, 6, 5, 7)),
    "mean and variance": (nn.MeanVarianceNorm, (4, 6, 5, 7)),
    "any axes": (lambda: nn.Normalization([1, 6, 1, 1]), (4, 6, 5, 7)),
    "frozen": (lambda: nn.FrozenBatchNorm2d(6), (4, 6, 5, 7)),
}


def steps(layer, run, x, *others):
    """Return the result, the gradients of all inputs and parameters, and the buffers afterwards."""
    inputs = [mn.Tensor(array.array, requires_grad=True) for array in (x, *others)]
    layer = copy.deepcopy(layer)
    y = run(layer, *inputs)
    (y * y).sum().backward()
    given = [t.grad for t in (*inputs, *layer.parameters())]
    return [y.detach().numpy(), *(g.numpy() for g in given), *(b.numpy() for b in layer.buffers())]


def same(got, want):
    assert len(got) == len(want)
    for g, w in zip(got, want, strict=True):
        np.testing.assert_array_equal(g, w)
        assert g.tobytes() == w.tobytes()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("make", "shape"), LAYERS.values(), ids=LAYERS)
def test_one_pass_has_the_bits_of_its_parts(make, shape, dtype):
    layer = make()
    for parameter in layer.parameters():
        parameter.data.copy_(mn.randn(*parameter.shape))
    x, residual = (mn.randn(*shape).to(dtype) for _ in range(2))
    want = steps(layer, lambda layer, x: F.relu(layer(x)), x)
    same(steps(layer, lambda layer, x: layer(x, activation="relu"), x), want)
    assert run_together(layer, nn.ReLU())
    same(steps(layer, lambda layer, x: nn.Sequential(layer, nn.ReLU(inplace=True))(x), x), want)
    want = steps(layer, lambda layer, x, r: F.relu(layer(x) + r), x, residual)
    same(steps(layer, lambda layer, x, r: layer(x, activation="relu", residual=r), x, residual), want)
    want = steps(layer, lambda layer, x, r: layer(x) + r, x, residual)
    same(steps(layer, lambda layer, x, r: layer(x, residual=r), x, residual), want)


class Own(nn.BatchNorm2d):
    def forward(self, x, mask=None):
        return super().forward(x, mask) * 2


class Wrapped(nn.BatchNorm2d):
    @functools.wraps(nn.BatchNorm2d.forward)
    def forward(self, x, mask=None):
        return super().forward(x, mask) * 2


class Called(nn.BatchNorm2d):
    def __call__(self, x):
        return super().__call__(x) * -1


class Plain(nn.BatchNorm2d):
    """A subclass that inherits BatchNorm2d's forward."""


class OwnReLU(nn.ReLU):
    pass


def hooked(register):
    layer = nn.BatchNorm2d(6)
    getattr(layer, register)(lambda *_: None)
    return layer


def replaced():
    layer = nn.BatchNorm2d(6)
    layer.__dict__["forward"] = lambda x: x
    return layer


def hooked_relu():
    follower = nn.ReLU()
    follower.register_forward_hook(lambda *_: None)
    return follower


@pytest.mark.parametrize(
    ("layer", "follower", "expected"),
    [
        (nn.BatchNorm2d(6), nn.ReLU(), True),
        (Plain(6), nn.ReLU(), True),
        (Own(6), nn.ReLU(), False),
        (Wrapped(6), nn.ReLU(), False),
        (Called(6), nn.ReLU(), False),
        (nn.GhostBatchNorm(6, 2), nn.ReLU(), False),
        (nn.BatchRenorm2d(6), nn.ReLU(), False),
        (nn.FilterResponseNorm2d(6), nn.ReLU(), False),
        (nn.Linear(6, 6), nn.ReLU(), False),
        (nn.BatchNorm2d(6), nn.ReLU6(), False),
        (nn.BatchNorm2d(6), OwnReLU(), False),
        (hooked("register_forward_hook"), nn.ReLU(), False),
        (hooked("register_forward_pre_hook"), nn.ReLU(), False),
        (hooked("register_full_backward_hook"), nn.ReLU(), False),
        (replaced(), nn.ReLU(), False),
        (nn.BatchNorm2d(6), hooked_relu(), False),
        (weight_norm(nn.GroupNorm(2, 6)), nn.ReLU(), False),
    ],
)
def test_who_runs_together(layer, follower, expected):
    assert run_together(layer, follower) is expected
    if type(layer) not in (nn.Linear, nn.GroupNorm):
        x = mn.randn(4, 6, 3, 3)
        want = follower(copy.deepcopy(layer)(x)).detach().numpy()
        np.testing.assert_array_equal(nn.Sequential(layer, follower)(x).detach().numpy(), want)


def test_a_hook_that_is_gone_is_none():
    layer = nn.BatchNorm2d(6)
    handle = layer.register_forward_hook(lambda *_: None)
    assert not run_together(layer, nn.ReLU())
    handle.remove()
    assert run_together(layer, nn.ReLU())


def test_a_relu_that_was_replaced_for_all_is_called(monkeypatch):
    monkeypatch.setattr(nn.ReLU, "forward", lambda self, x: x - x)
    assert not nn.Sequential(nn.BatchNorm1d(3), nn.ReLU())(mn.randn(4, 3)).numpy().any()


def test_a_trace_shows_the_parts():
    layer, x = nn.BatchNorm1d(3), mn.randn(4, 3)
    with trace.record() as calls:
        nn.Sequential(layer, nn.ReLU())(x)
        layer(x, activation="relu", residual=x)
        F.layer_norm(x, 3, activation="relu")
        F.layer_norm(x, 3, residual=x)
    assert [call.target.__name__ for call in calls] == [
        "batch_norm", "relu", "batch_norm", "Add", "relu", "layer_norm", "relu", "layer_norm", "Add",
    ]  # fmt: skip
    assert calls[0].target is F.batch_norm
    assert not {"activation", "residual"} & calls[0].arguments.keys()


def test_a_file_has_the_nodes_that_it_had(tmp_path):
    onnx = pytest.importorskip("onnx")
    import minorm.onnx

    class Parts(nn.Module):
        def __init__(self, apart):
            super().__init__()
            self.norm, self.apart = nn.BatchNorm2d(3), apart

        def forward(self, x):
            return F.relu(self.norm(x) + x) if self.apart else self.norm(x, activation="relu", residual=x)

    def nodes(model):
        minorm.onnx.export(model, mn.ones(2, 3, 4, 4), tmp_path / "file.onnx")
        return [(n.op_type, list(n.input), list(n.output)) for n in onnx.load(tmp_path / "file.onnx").graph.node]

    kinds = [[kind for kind, *_ in nodes(Parts(apart))] for apart in (False, True)]
    assert kinds == [["BatchNormalization", "Add", "Relu"]] * 2
    assert nodes(nn.Sequential(nn.BatchNorm2d(3), nn.ReLU())) == nodes(nn.Sequential(nn.BatchNorm2d(3), hooked_relu()))
