"""Loading a state_dict: all of it, or one error that names every problem and nothing changed."""

from __future__ import annotations

import re
from collections import OrderedDict

import numpy as np
import pytest

import minorm as mn
from minorm import nn
from tests.interrupts import at_every_line


def fails(error, message):
    return pytest.raises(error, match=re.escape(message))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, bias=False)
        self.register_buffer("scale", mn.tensor([2.0]))
        self.gain = nn.Parameter(mn.ones(4))
        self.head = nn.Sequential(OrderedDict(pool=nn.AdaptiveAvgPool2d(1), flat=nn.Flatten(), fc=nn.Linear(4, 2)))


def test_load_copies_in_place_and_takes_arrays_and_tensors():
    net, other = Net(), Net()
    before, weight = net.head.fc.weight, net.head.fc.weight.array
    version = before.version.count
    state = other.state_dict()
    result = net.load_state_dict({k: (v if "fc" in k else v.numpy()) for k, v in state.items()})
    assert result == ([], [])
    assert net.head.fc.weight is before
    assert before.array is weight
    assert before.version.count == version + 1
    for key, value in net.state_dict().items():
        np.testing.assert_array_equal(value.array, state[key].array)
        assert not np.shares_memory(value.array, state[key].array)


def test_load_takes_pytorch_s_tensors_even_ones_that_require_grad():
    torch = pytest.importorskip("torch")
    theirs, ours = torch.nn.Linear(3, 2), nn.Linear(3, 2)
    ours.load_state_dict(theirs.state_dict())
    np.testing.assert_array_equal(ours.weight.array, theirs.weight.detach().numpy())
    ours.load_state_dict(dict(theirs.named_parameters()))
    theirs.load_state_dict({k: torch.from_numpy(v.numpy()) for k, v in ours.state_dict().items()})


def test_load_names_every_problem_and_changes_nothing():
    net = Net()
    before = {k: v.array.copy() for k, v in net.state_dict().items()}
    state = {
        "gain": np.zeros(4, np.float32),
        "scale": np.zeros(1),
        "conv.weight": np.zeros((4, 3, 5, 5), np.float32),
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
        "scale: dtype is float64, expected float32",
        "conv.weight: shape is (4, 3, 5, 5), expected (4, 3, 3, 3)",
        "head.fc.bias: ",
        "strict=False",
    ):
        assert line in message
    for key, value in net.state_dict().items():
        np.testing.assert_array_equal(value.array, before[key])


def test_load_not_strict_reports_what_it_left_out():
    net = Net()
    result = net.load_state_dict({"head.fc.bias": np.array([5, 6], np.float32), "extra": np.zeros(1)}, strict=False)
    assert result.unexpected_keys == ["extra"]
    assert result.missing_keys == ["gain", "scale", "conv.weight", "head.fc.weight"]
    np.testing.assert_array_equal(net.head.fc.bias.array, [5, 6])
    with fails(ValueError, "head.fc.bias: shape is (3,), expected (2,)"):
        net.load_state_dict({"head.fc.bias": np.zeros(3, np.float32)}, strict=False)


def test_load_finds_a_prefix_and_refuses_what_is_no_mapping():
    net = nn.Linear(2, 1)
    with fails(ValueError, "remove the prefix 'module.' from the state's keys"):
        net.load_state_dict({f"module.{k}": v for k, v in net.state_dict().items()})
    with fails(TypeError, "load_state_dict: state is a Linear; expected a mapping of names to tensors"):
        net.load_state_dict(nn.Linear(2, 1))


def arrays(net):
    return {key: value.numpy().copy() for key, value in net.state_dict().items() if hasattr(value, "numpy")}


@pytest.mark.parametrize("assign", [False, True])
def test_ctrl_c_at_any_line_loads_all_or_nothing(assign):
    new = {key: array + 1 for key, array in arrays(Net()).items()}
    loaded = set()

    def ones():
        net = Net()
        for value in net.state_dict().values():
            value.fill_(1)
        return net

    for net in at_every_line(lambda net: net.load_state_dict(new, assign=assign), make=ones):
        found = arrays(net)
        same = {np.array_equal(found[key], new[key]) for key in new}
        assert len(same) == 1, same
        loaded |= same
    assert loaded == {False, True}


class Extra(Net):
    """Keeps two texts beside the tensors, in two modules, and refuses an empty one."""

    def __init__(self, text="", inner=True):
        super().__init__()
        self.text = text
        if inner:
            self.inner = Extra(text, inner=False)

    def get_extra_state(self):
        return {"text": self.text}

    def set_extra_state(self, state):
        if not state["text"]:
            raise ValueError("an empty text")
        self.text = state["text"]


@pytest.mark.parametrize("assign", [False, True])
def test_an_extra_state_that_is_refused_changes_nothing(assign):
    net, state = Extra("old"), Extra("new").state_dict()
    state["inner._extra_state"] = {"text": ""}
    before, identity = arrays(net), net.gain.array
    with fails(ValueError, "an empty text"):
        net.load_state_dict(state, assign=assign)
    assert (net.text, net.inner.text) == ("old", "old")
    assert net.gain.array is identity
    for key, array in arrays(net).items():
        np.testing.assert_array_equal(array, before[key])
