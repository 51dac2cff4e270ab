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
    """A network with two texts beside the tensors, in two modules; it refuses an empty text."""

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


# Overrides, as PyTorch's programs write them


def with_state_dict(library):
    class Half(library.nn.Linear):
        def state_dict(self, *args, **kwargs):
            state = super().state_dict(*args, **kwargs)
            for key in [key for key in state if key.endswith("bias")]:
                del state[key]
            return state

    return Half


def with_saving(library):
    class Noted(library.nn.Linear):
        def _save_to_state_dict(self, destination, prefix, keep_vars):
            super()._save_to_state_dict(destination, prefix, keep_vars)
            destination[prefix + "scale"] = library.ones(1)

        def _load_from_state_dict(self, state_dict, prefix, *args):
            state_dict.pop(prefix + "scale", None)
            for name in ("weight", "bias"):  # an older name
                if prefix + "old_" + name in state_dict:
                    state_dict[prefix + name] = state_dict.pop(prefix + "old_" + name)
            super()._load_from_state_dict(state_dict, prefix, *args)

    return Noted


@pytest.mark.parametrize("make", [with_state_dict, with_saving])
def test_what_a_child_says_of_its_state_counts(make):
    torch = pytest.importorskip("torch")
    ours, theirs = (
        library.nn.Sequential(make(library)(2, 2), library.nn.Sequential(make(library)(2, 1)))
        for library in (mn, torch)
    )
    if make is with_saving:
        assert list(ours.state_dict()) == list(theirs.state_dict())
        assert str(ours.load_state_dict(ours.state_dict())) == str(theirs.load_state_dict(theirs.state_dict()))
        old = {key.replace("weight", "old_weight"): value for key, value in ours.state_dict().items()}
        old["0.old_weight"] = mn.full((2, 2), 5.0)
        before = dict(old)
        ours.load_state_dict(old)
        assert ours[0].weight.numpy().tolist() == [[5.0, 5.0], [5.0, 5.0]]
        assert old == before
    else:
        assert list(ours.state_dict()) == list(theirs.state_dict()) == ["0.weight", "1.0.weight"]
        with fails(ValueError, "missing keys: 0.bias, 1.0.bias"):
            ours.load_state_dict(ours.state_dict())


def test_what_an_override_says_against_a_state_is_the_error():
    class Strict(nn.Linear):
        def _load_from_state_dict(self, state_dict, prefix, metadata, strict, missing, unexpected, error_msgs):
            error_msgs.append(f"{prefix}weight is of version 1")

    model = nn.Sequential(Strict(2, 2))
    with fails(ValueError, "nothing was loaded\n  0.weight is of version 1"):
        model.load_state_dict(model.state_dict())


def forgiving(base, state, prefix, *rest):
    """Forgive a state without `bias` (adapters) or with an old `table`."""
    base(state, prefix, *rest)
    missing, unexpected = rest[2:4]
    for lines, key in ((missing, prefix + "bias"), (unexpected, prefix + "table")):
        if key in lines:
            lines.remove(key)


def complaining(base, state, prefix, *rest):
    base(state, prefix, *rest)
    rest[2].append(prefix + "scale")
    rest[3].append("stale")


def skipping(base, state, prefix, *rest):
    """Load nothing, so that the module keeps its numbers."""


def silent(base, state, prefix, metadata, strict, missing, unexpected, errors):
    base(state, prefix, metadata, strict, [], [], errors)


def quiet(base, state, prefix, metadata, strict, *lists):
    base(state, prefix, metadata, False, *lists)


def converting(base, state, prefix, *rest):
    base({key: value * 2 for key, value in state.items()}, prefix, *rest)


def clearing(base, state, prefix, *rest):
    """Drop the old `table`; a module sees only its own keys, as in PyTorch."""
    state.pop(prefix + "table", None)
    assert all(key.startswith(prefix) for key in state)
    base(state, prefix, *rest)


def all_new(base, state, prefix, *rest):
    base(state, prefix, {}, True, [], [], [])


OVERRIDES = [forgiving, complaining, skipping, silent, quiet, converting, clearing, all_new]
STATES = [
    ("0.weight", "0.bias", "1.0.weight", "1.0.bias"),
    ("0.weight", "1.0.weight", "1.0.table", "1.more", "2.weight"),
    ("0.bias", "0.below.weight", "1.0.bias", "1.0.weight", "stale"),
    (),
]


@pytest.mark.parametrize("override", OVERRIDES)
@pytest.mark.parametrize("keys", STATES)
def test_what_an_override_makes_of_the_lists_is_reported_as_in_pytorch(override, keys):
    torch = pytest.importorskip("torch")

    def model(library):
        class Own(library.nn.Linear):
            def _load_from_state_dict(self, *args):
                override(super()._load_from_state_dict, *args)

        made = library.nn.Sequential(library.nn.Linear(1, 1), library.nn.Sequential(Own(1, 1)))
        for p in made.parameters():
            p.requires_grad_(False)
            p.fill_(7.0)
        return made

    def filled(library):
        return {
            key: library.full((1, 1) if key.endswith("weight") else (1,), float(i + 1)) for i, key in enumerate(keys)
        }

    ours, theirs = model(mn), model(torch)
    found, expected = (m.load_state_dict(filled(n), strict=False) for m, n in ((ours, mn), (theirs, torch)))
    assert (found.missing_keys, found.unexpected_keys) == (expected.missing_keys, expected.unexpected_keys)
    values = [[p.item() for p in m.parameters()] for m in (ours, theirs)]
    assert values[0] == values[1]
    ours, theirs = model(mn), model(torch)
    refused = []
    for library, made, error in ((mn, ours, ValueError), (torch, theirs, RuntimeError)):
        try:
            made.load_state_dict(filled(library))
        except error as caught:
            refused.append(str(caught))
    assert len(refused) != 1
    assert bool(refused) == bool(expected.missing_keys or expected.unexpected_keys)
    if refused:
        for key in (*expected.missing_keys, *expected.unexpected_keys):
            assert key in refused[0]
        assert [p.item() for p in ours.parameters()] == [7.0] * 4


def test_a_module_alone_is_loaded_by_load_state_dict():
    layer = nn.Linear(1, 1)
    with fails(TypeError, "_load_from_state_dict of Linear: neither the state nor one of the lists"):
        layer._load_from_state_dict(layer.state_dict(), "", {}, True, [], [], [])


def test_prefix_destination_and_keep_vars_are_pytorchs():
    torch = pytest.importorskip("torch")
    ours, theirs = (library.nn.Sequential(library.nn.BatchNorm1d(2)) for library in (mn, torch))
    for options in ({"prefix": "model."}, {"prefix": "model.", "keep_vars": True}):
        destinations = {"first": 1}, {"first": 1}
        states = [
            model.state_dict(destination=at, **options) for model, at in zip((ours, theirs), destinations, strict=True)
        ]
        assert [*states[0]] == [*states[1]]
        assert (states[0] is destinations[0]) is (states[1] is destinations[1]) is True
        flags = [[getattr(value, "requires_grad", None) for value in state.values()] for state in states]
        assert flags[0] == flags[1]
    assert list(ours.state_dict("model")) == list(ours.state_dict("model."))


def test_num_batches_tracked_may_be_missing_as_in_old_files():
    model = nn.Sequential(nn.BatchNorm2d(2), nn.InstanceNorm1d(2, track_running_stats=True))
    model[0].num_batches_tracked.fill_(3)
    old = {key: value + 1 for key, value in model.state_dict().items() if "num_batches" not in key}
    result = model.load_state_dict(old)
    assert str(result) == "<All keys matched successfully>"
    assert (model[0].num_batches_tracked.item(), model[0].running_var.numpy().tolist()) == (3, [2.0, 2.0])
    with fails(ValueError, "missing keys: 0.running_var"):
        model.load_state_dict({key: value for key, value in old.items() if key != "0.running_var"})
