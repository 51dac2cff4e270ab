"""Module: the tree of attributes, its walks, its state, and the mistakes people make with it."""

from __future__ import annotations

import copy
import re
from collections import OrderedDict

import numpy as np
import pytest

import minorm as mn
from minorm import nn


def fails(error, message):
    return pytest.raises(error, match=re.escape(message))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, bias=False)
        self.register_buffer("scale", mn.tensor([2.0]))
        self.register_buffer("cache", mn.tensor([0.0]), persistent=False)
        self.gain = nn.Parameter(mn.ones(4))
        self.name = "block"

    def forward(self, x):
        return self.conv(x) * self.scale * self.gain.reshape(1, 4, 1, 1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = Block()
        self.head = nn.Sequential(OrderedDict(pool=nn.AdaptiveAvgPool2d(1), flat=nn.Flatten(), fc=nn.Linear(4, 2)))

    def forward(self, x):
        return self.head(self.first(x))


def test_walks_give_pytorch_s_names_in_pytorch_s_order():
    net = Net()
    assert [n for n, _ in net.named_parameters()] == [
        "first.gain",
        "first.conv.weight",
        "head.fc.weight",
        "head.fc.bias",
    ]
    assert [n for n, _ in net.named_buffers()] == ["first.scale", "first.cache"]
    names = ["", "first", "first.conv", "head", "head.pool", "head.flat", "head.fc"]
    assert [n for n, _ in net.named_modules()] == names
    assert [n for n, _ in net.named_children()] == ["first", "head"]
    assert list(net.children()) == [net.first, net.head]
    assert next(iter(net.modules())) is net
    assert list(net.state_dict()) == [
        "first.gain",
        "first.scale",
        "first.conv.weight",
        "head.fc.weight",
        "head.fc.bias",
    ]
    assert [n for n, _ in net.first.named_parameters(recurse=False)] == ["gain"]
    assert [n for n, _ in net.first.named_parameters(prefix="x")] == ["x.gain", "x.conv.weight"]
    assert len(list(net.parameters())) == 4
    assert len(list(net.buffers())) == 2
    assert net.get_submodule("head.fc") is net.head.fc
    assert net.get_submodule("") is net


def test_parameters_and_buffers_by_name() -> None:
    inner = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    net = nn.Sequential(inner, inner[0])
    assert net.get_parameter("0.0.weight") is inner[0].weight
    assert net.get_parameter("1.weight") is inner[0].weight  # its other name
    assert net.get_buffer("0.1.running_mean") is inner[1].running_mean
    with pytest.raises(
        AttributeError, match=r"get_parameter: Sequential has no parameter '0.0.weigth'; did you mean '0.0.w"
    ):
        net.get_parameter("0.0.weigth")
    with pytest.raises(AttributeError, match=r"get_parameter: Sequential has no parameter '0.1.running_mean'"):
        net.get_parameter("0.1.running_mean")
    with pytest.raises(AttributeError, match=r"get_buffer: ReLU has no buffer 'mean'$"):
        nn.ReLU().get_buffer("mean")


def test_the_same_walks_in_pytorch():
    torch = pytest.importorskip("torch")

    class Theirs(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = torch.nn.Conv2d(3, 4, 3, bias=False)
            self.register_buffer("scale", torch.ones(1))
            self.gain = torch.nn.Parameter(torch.ones(4))
            self.head = torch.nn.Sequential(torch.nn.Linear(4, 2), torch.nn.ReLU())

    class Ours(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3, bias=False)
            self.register_buffer("scale", mn.ones(1))
            self.gain = nn.Parameter(mn.ones(4))
            self.head = nn.Sequential(nn.Linear(4, 2), nn.ReLU())

    ours, theirs = Ours(), Theirs()
    assert list(ours.state_dict()) == list(theirs.state_dict())
    for walk in ("named_parameters", "named_buffers", "named_modules", "named_children"):
        assert [n for n, _ in getattr(ours, walk)()] == [n for n, _ in getattr(theirs, walk)()]
    assert repr(ours).replace("Ours", "Theirs") == repr(theirs)


def test_shared_parameters_and_modules_are_listed_once():
    net = nn.Module()
    net.a = nn.Linear(2, 2)
    net.b = nn.Linear(2, 2, bias=False)
    net.b.weight = net.a.weight
    net.c = net.a
    assert [n for n, _ in net.named_parameters()] == ["a.weight", "a.bias"]
    assert [n for n, _ in net.named_modules()] == ["", "a", "b"]
    assert list(net.state_dict()) == ["a.weight", "a.bias", "b.weight", "c.weight", "c.bias"]
    net.load_state_dict(net.state_dict())


def test_state_dict_shares_memory_and_is_detached():
    net = Net()
    state = net.state_dict()
    assert state["head.fc.weight"].array is net.head.fc.weight.array
    assert not state["head.fc.weight"].requires_grad
    assert type(state["head.fc.weight"]) is mn.Tensor


def test_train_eval_and_freeze():
    net = Net()
    assert net.training
    assert net.eval() is net
    assert not any(m.training for m in net.modules())
    net.train()
    assert all(m.training for m in net.modules())
    net.first.freeze()
    net.train()
    assert net.first.frozen
    assert net.first.conv.frozen
    assert not net.frozen
    assert [n for n, p in net.named_parameters() if p.requires_grad] == ["head.fc.weight", "head.fc.bias"]
    net(mn.ones(1, 3, 4, 4)).sum().backward()
    assert net.first.gain.grad is None
    net.first.unfreeze()
    assert not net.first.conv.frozen
    assert all(p.requires_grad for p in net.parameters())
    with fails(TypeError, "train: mode is 'yes'; expected a bool"):
        net.train("yes")


def test_gradients_pass_through_a_frozen_module():
    net = Net().freeze()
    x = mn.ones(1, 3, 4, 4, requires_grad=True)
    net(x).sum().backward()
    assert x.grad is not None
    assert all(p.grad is None for p in net.parameters())


def test_zero_grad():
    net = Net()
    net(mn.ones(1, 3, 4, 4)).sum().backward()
    assert all(p.grad is not None for p in net.parameters())
    net.zero_grad(set_to_none=False)
    assert all((p.grad.array == 0).all() for p in net.parameters())
    net.zero_grad()
    assert all(p.grad is None for p in net.parameters())


def test_apply_visits_children_first():
    seen = []
    net = Net()
    assert net.apply(lambda m: seen.append(type(m).__name__)) is net
    assert seen == ["Conv2d", "Block", "AdaptiveAvgPool2d", "Flatten", "Linear", "Sequential", "Net"]


def test_to_converts_floats_in_place_and_leaves_integers():
    net = Net()
    net.register_buffer("count", mn.tensor(3))
    weight = net.head.fc.weight
    net(mn.ones(1, 3, 4, 4)).sum().backward()
    assert net.double() is net
    assert net.head.fc.weight is weight
    assert weight.dtype == mn.float64
    assert weight.grad.dtype == mn.float64
    assert net.first.scale.dtype == mn.float64
    assert net.count.dtype == mn.int64
    assert net(mn.ones(1, 3, 4, 4, dtype=mn.float64)).dtype == mn.float64
    assert net.half().head.fc.weight.dtype == mn.float16
    assert net.to(mn.bfloat16).head.fc.weight.dtype == mn.bfloat16
    assert net.to("cpu", mn.float32).head.fc.weight.dtype == mn.float32
    assert net.to(dtype=np.float64).float().head.fc.weight.dtype == mn.float32
    assert net.to("cpu", mn.float64, True).head.fc.weight.dtype == mn.float64
    assert net.to(mn.ones(1), True).head.fc.weight.dtype == mn.float32
    assert net.to(None, mn.float64).head.fc.weight.dtype == mn.float64
    with fails(TypeError, "Module.to: dtype is int64; expected a float type"):
        net.to(mn.int64)
    with fails(TypeError, "True, True; expected a device, a type or a Tensor, then bools for non_blocking"):
        net.to("cpu", mn.float32, True, True)


def test_deepcopy_is_independent():
    net = Net()
    twin = copy.deepcopy(net)
    assert type(twin.head.fc.weight) is nn.Parameter
    twin.head.fc.weight.array[...] = 7
    assert not (net.head.fc.weight.array == 7).any()
    assert list(twin.state_dict()) == list(net.state_dict())


def test_a_frozen_normalization_uses_and_keeps_its_running_statistics_also_in_training():
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Dropout(0.9))
    model(mn.randn(4, 1, 5, 5))
    x = mn.randn(4, 1, 5, 5)
    expected = model.eval()(x).array
    model.freeze().train()
    before = {k: v.array.copy() for k, v in model.state_dict().items()}
    np.testing.assert_array_equal(model(x).array, expected)
    for key, value in model.state_dict().items():
        np.testing.assert_array_equal(value.array, before[key])
    model.unfreeze()
    assert (model(x).array != expected).any()
    assert (model[1].running_mean.array != before["1.running_mean"]).any()


@pytest.mark.parametrize("model", ["digits_cnn", "lenet", "resnet20", "norms_cnn"])
def test_whole_models_exchange_states_with_pytorch(model):
    torch = pytest.importorskip("torch")
    from minorm import models

    ours, theirs = getattr(models, model)(nn), getattr(models, model)(torch.nn)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    ours.load_state_dict(theirs.state_dict())
    theirs.load_state_dict({k: torch.from_numpy(v.numpy()) for k, v in ours.state_dict().items()})
    size = {"digits_cnn": 8, "lenet": 28}.get(model, 32)
    channels = 1 if size < 32 else 3
    x = np.random.default_rng(0).standard_normal((2, channels, size, size)).astype(np.float32)
    expected = theirs.eval()(torch.from_numpy(x)).detach().numpy()
    np.testing.assert_allclose(ours.eval()(mn.tensor(x)).array, expected, rtol=1e-4, atol=1e-5)


def test_a_name_from_a_file_cannot_steer_a_terminal() -> None:
    net = nn.Module()
    net.add_module("bn\x1b[31m\nFORGED", nn.ReLU())
    assert repr(net) == "Module(\n  (bn\\x1b[31m\\nFORGED): ReLU()\n)"
    summary = nn.summary(nn.Sequential(OrderedDict([("bn\x1b[31m\nFORGED", nn.ReLU())])), (1, 2))
    assert r"bn\x1b[31m\nFORGED" in repr(summary)
    held = {"bn\x1b[31m\nFORGED": mn.ones(2)}
    assert "\x1b" not in repr(nn.ParameterDict(held))
    for asked in (
        lambda: net.get_submodule("fc"),
        lambda: nn.ModuleDict({"bn\x1b[31m\nFORGED": nn.ReLU()})["fc"],
        lambda: nn.ParameterDict(held)["fc"],
    ):
        with pytest.raises((AttributeError, KeyError)) as caught:
            asked()
        assert r"bn\x1b[31m\nFORGED" in caught.value.args[0]


def test_a_childs_train_counts():
    class Still(nn.Sequential):
        def train(self, mode=True):
            super().train(mode)
            self[0].eval()
            return self

    model = nn.Sequential(Still(nn.BatchNorm1d(2), nn.Dropout()), nn.Dropout())
    assert [module.training for module in model.train().modules()] == [True, True, False, True, True]
    assert not any(module.training for module in model.eval().modules())


def test_a_childs_apply_moves_what_is_no_parameter():
    class Anchored(nn.Linear):
        def __init__(self):
            super().__init__(2, 2)
            self.anchors = mn.ones(3)

        def _apply(self, fn):
            super()._apply(fn)
            self.anchors = fn(self.anchors)
            return self

    model = nn.Sequential(Anchored())
    weight = model[0].weight
    weight.grad = mn.ones(2, 2)
    gradient = weight.grad
    model.double()
    assert (model[0].anchors.dtype, weight.dtype, gradient.dtype) == (mn.float64,) * 3
    assert model[0].weight is weight


def test_a_name_of_ones_own_is_shown():
    class Named(nn.Linear):
        def _get_name(self):
            return "Mine"

    assert repr(nn.Sequential(Named(1, 1))) == ("Sequential(\n  (0): Mine(in_features=1, out_features=1, bias=True)\n)")
