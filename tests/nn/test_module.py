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
    assert state["head.fc.weight"].data is net.head.fc.weight.data
    assert not state["head.fc.weight"].requires_grad
    assert type(state["head.fc.weight"]) is mn.Tensor


def test_load_copies_in_place_and_takes_arrays_and_tensors():
    net, other = Net(), Net()
    before, weight = net.head.fc.weight, net.head.fc.weight.data
    version = before.version.count
    state = other.state_dict()
    result = net.load_state_dict({k: (v if "fc" in k else v.numpy()) for k, v in state.items()})
    assert result == ([], [])
    assert net.head.fc.weight is before
    assert before.data is weight
    assert before.version.count == version + 1
    for key, value in net.state_dict().items():
        np.testing.assert_array_equal(value.data, state[key].data)
        assert not np.shares_memory(value.data, state[key].data)


def test_load_takes_pytorch_s_tensors_even_ones_that_require_grad():
    torch = pytest.importorskip("torch")
    theirs, ours = torch.nn.Linear(3, 2), nn.Linear(3, 2)
    ours.load_state_dict(theirs.state_dict())
    np.testing.assert_array_equal(ours.weight.data, theirs.weight.detach().numpy())
    ours.load_state_dict(dict(theirs.named_parameters()))
    theirs.load_state_dict({k: torch.from_numpy(v.numpy()) for k, v in ours.state_dict().items()})


def test_load_names_every_problem_and_changes_nothing():
    net = Net()
    before = {k: v.data.copy() for k, v in net.state_dict().items()}
    state = {
        "first.gain": np.zeros(4, np.float32),
        "first.scale": np.zeros(1),
        "first.conv.weight": np.zeros((4, 3, 5, 5), np.float32),
        "fc.weight": np.zeros(1, np.float32),
        "head.fc.bias": object(),
    }
    with pytest.raises(ValueError) as caught:
        net.load_state_dict(state)
    message = str(caught.value)
    for line in (
        "load_state_dict: the state does not fit Net; nothing was loaded",
        "missing keys: head.fc.weight",
        "unexpected keys: fc.weight",
        "first.scale: dtype is float64, expected float32",
        "first.conv.weight: shape is (4, 3, 5, 5), expected (4, 3, 3, 3)",
        "head.fc.bias: ",
        "strict=False",
    ):
        assert line in message
    for key, value in net.state_dict().items():
        np.testing.assert_array_equal(value.data, before[key])


def test_load_not_strict_reports_what_it_left_out():
    net = Net()
    result = net.load_state_dict({"head.fc.bias": np.array([5, 6], np.float32), "extra": np.zeros(1)}, strict=False)
    assert result.unexpected_keys == ["extra"]
    assert result.missing_keys == ["first.gain", "first.scale", "first.conv.weight", "head.fc.weight"]
    np.testing.assert_array_equal(net.head.fc.bias.data, [5, 6])
    with fails(ValueError, "head.fc.bias: shape is (3,), expected (2,)"):
        net.load_state_dict({"head.fc.bias": np.zeros(3, np.float32)}, strict=False)


def test_load_finds_a_prefix_and_refuses_what_is_no_mapping():
    net = nn.Linear(2, 1)
    with fails(ValueError, "remove the prefix 'module.' from the state's keys"):
        net.load_state_dict({f"module.{k}": v for k, v in net.state_dict().items()})
    with fails(TypeError, "load_state_dict: state is a Linear; expected a mapping of names to tensors"):
        net.load_state_dict(nn.Linear(2, 1))


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
    assert all((p.grad.data == 0).all() for p in net.parameters())
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
    with fails(TypeError, "Module.to: dtype is int64; expected a float type"):
        net.to(mn.int64)


def test_deepcopy_is_independent():
    net = Net()
    twin = copy.deepcopy(net)
    assert type(twin.head.fc.weight) is nn.Parameter
    twin.head.fc.weight.data[...] = 7
    assert not (net.head.fc.weight.data == 7).any()
    assert list(twin.state_dict()) == list(net.state_dict())


def test_replacing_and_deleting():
    net = Net()
    net.head.fc = nn.Linear(4, 9)
    assert net.state_dict()["head.fc.weight"].shape == (9, 4)
    net.first.gain = None
    assert "first.gain" not in net.state_dict()
    net.first.gain = nn.Parameter(mn.ones(4))
    del net.first.gain
    assert not hasattr(net.first, "gain")
    net.first.scale = mn.tensor([3.0])
    assert net.state_dict()["first.scale"].item() == 3
    net.plain = 3
    net.plain = nn.Linear(1, 1)  # a plain attribute may become a module
    assert "plain.weight" in net.state_dict()


def test_forgetting_super_init():
    class Forgetful(nn.Module):
        def __init__(self):
            self.fc = nn.Linear(1, 1)

    with fails(AttributeError, "make super().__init__() the first line of Forgetful.__init__"):
        Forgetful()

    class Later(nn.Module):
        def __init__(self):
            self.size = 3

    with fails(AttributeError, "was super().__init__() called in Later.__init__?"):
        Later().parameters().__next__()


def test_wrong_assignments():
    net = Net()
    with fails(TypeError, "Linear.weight is a parameter; got a Tensor; expected an nn.Parameter or None; wrap it"):
        net.head.fc.weight = mn.ones(2, 4)
    with fails(TypeError, "Net.head is a module; got a function; expected an nn.Module or None"):
        net.head = lambda x: x
    with fails(TypeError, "Block.scale is a buffer; got a float; expected a Tensor"):
        net.first.scale = 2.0
    with fails(TypeError, "Block.scale is a buffer; got a Parameter; expected a Tensor that is no Parameter, or None"):
        net.first.scale = nn.Parameter(mn.ones(1))
    with fails(TypeError, "register_parameter: Net.w got a Tensor; expected an nn.Parameter or None; wrap it"):
        net.register_parameter("w", mn.ones(1))
    with fails(TypeError, "register_buffer: Net.b got a ndarray; expected a Tensor or None"):
        net.register_buffer("b", np.ones(1))
    with fails(TypeError, "add_module: Net.m got a str; expected an nn.Module or None"):
        net.add_module("m", "conv")
    with fails(ValueError, "register_buffer: Net already has an attribute 'eval'; choose another name"):
        net.register_buffer("eval", mn.ones(1))
    with fails(ValueError, "setattr: Net already has an attribute 'modules'; choose another name"):
        net.modules = nn.ModuleList()
    for name in ("", "a.b"):
        with fails(ValueError, f"add_module: name is {name!r}; expected a non-empty str without '.'"):
            net.add_module(name, nn.Identity())


def test_missing_attributes():
    net = Net()
    with fails(AttributeError, "Net has no attribute 'haed'"):
        net.haed  # noqa: B018
    with fails(AttributeError, "get_submodule: Sequential has no child 'fd' of 'head.fd'; it has: pool, flat, fc"):
        net.get_submodule("head.fd")
    with fails(NotImplementedError, "Module has no forward"):
        nn.Module()(1)


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
