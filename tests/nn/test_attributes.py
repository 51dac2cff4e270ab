"""Assigning to a Module files parameters, buffers and modules, and explains common mistakes."""

from __future__ import annotations

import re
from collections import OrderedDict

import numpy as np
import pytest

import minorm as mn
from minorm import nn


def fails(error, message):
    return pytest.raises(error, match=re.escape(message))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, bias=False)
        self.register_buffer("scale", mn.tensor([2.0]))
        self.gain = nn.Parameter(mn.ones(4))
        self.head = nn.Sequential(OrderedDict(pool=nn.AdaptiveAvgPool2d(1), flat=nn.Flatten(), fc=nn.Linear(4, 2)))


def test_replacing_and_deleting():
    net = Net()
    net.head.fc = nn.Linear(4, 9)
    assert net.state_dict()["head.fc.weight"].shape == (9, 4)
    net.gain = None
    assert "gain" not in net.state_dict()
    net.gain = nn.Parameter(mn.ones(4))
    del net.gain
    assert not hasattr(net, "gain")
    net.scale = mn.tensor([3.0])
    assert net.state_dict()["scale"].item() == 3
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
    with fails(TypeError, "Net.scale is a buffer; got a float; expected a Tensor"):
        net.scale = 2.0
    with fails(TypeError, "Net.scale is a buffer; got a Parameter; expected a Tensor (not a Parameter) or None"):
        net.scale = nn.Parameter(mn.ones(1))
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
    with fails(
        AttributeError,
        "get_submodule: target is 'head.fd', but Sequential has no child 'fd'; its children are: pool, flat, fc",
    ):
        net.get_submodule("head.fd")
    with fails(NotImplementedError, "Module has no forward"):
        nn.Module()(1)
