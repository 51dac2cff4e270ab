"""All optimizers share groups, checks, zero_grad, versions, closures, and a state that is saved and loaded."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import minorm as mn
from minorm import optim
from minorm.checkpoint import load_training, save_training

KINDS = [
    lambda p: optim.SGD(p, lr=0.1),
    lambda p: optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.1),
    lambda p: optim.Adam(p, lr=0.1, amsgrad=True),
    lambda p: optim.AdamW(p, lr=0.1),
]


def parameters(*shapes, seed=0):
    rng = np.random.default_rng(seed)
    return [mn.tensor(rng.standard_normal(s).astype(np.float32), requires_grad=True) for s in shapes or [(3, 4), (5,)]]


def run(optimizer, steps, seed):
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        for group in optimizer.param_groups:
            for p in group["params"]:
                p.grad = mn.tensor(rng.standard_normal(p.shape).astype(np.float32))
        optimizer.step()


@pytest.mark.parametrize("make", KINDS)
def test_state_comes_back_to_the_same_bits(make, tmp_path):
    a = parameters()
    optimizer = make(a)
    run(optimizer, 3, seed=1)
    save_training(tmp_path / "run.safetensors", optimizer=optimizer, model={str(i): p for i, p in enumerate(a)})
    saved = load_training(tmp_path / "run.safetensors")
    b = [mn.tensor(saved["model"][str(i)], requires_grad=True) for i in range(len(a))]
    resumed = make(b)
    resumed.load_state_dict(saved["optimizer"])
    run(optimizer, 3, seed=2)
    run(resumed, 3, seed=2)
    for p, q in zip(a, b, strict=True):
        np.testing.assert_array_equal(p.array, q.array)


def test_state_dict_has_pytorchs_structure():
    torch = pytest.importorskip("torch")
    ours = parameters((3, 4), (5,), (2,))
    theirs = [torch.tensor(p.array, requires_grad=True) for p in ours]

    def groups(p):
        return [{"params": p[:1], "lr": 0.5}, {"params": p[1:]}]

    for name in ("SGD", "Adam"):
        options = {"momentum": 0.9} if name == "SGD" else {}
        a, b = getattr(optim, name)(groups(ours), **options), getattr(torch.optim, name)(groups(theirs), **options)
        for p, q in zip(ours, theirs, strict=True):
            p.grad, q.grad = mn.tensor(np.ones(p.shape, np.float32)), torch.ones(q.shape)
        a.step()
        b.step()
        x, y = a.state_dict(), b.state_dict()
        assert x.keys() == y.keys()
        assert {k: v.keys() for k, v in x["state"].items()} == {k: v.keys() for k, v in y["state"].items()}
        for group, other in zip(x["param_groups"], y["param_groups"], strict=True):
            assert {k: v for k, v in other.items() if k in group} == group
        # and PyTorch's loads here, arrays for tensors
        y["state"] = {
            k: {name: v.numpy() if hasattr(v, "numpy") else v for name, v in values.items()}
            for k, values in y["state"].items()
        }
        a.load_state_dict(y)
        again = a.state_dict()
        for k, values in again["state"].items():
            for key, value in values.items():
                np.testing.assert_allclose(value, y["state"][k][key], rtol=1e-6)


def test_state_is_copied_in_and_not_out():
    p = parameters()
    optimizer = optim.SGD(p, lr=0.1, momentum=0.9)
    run(optimizer, 1, seed=0)
    state = optimizer.state_dict()
    buffer = state["state"][0]["momentum_buffer"]
    assert buffer is optimizer.state[p[0]]["momentum_buffer"]
    other = optim.SGD(p, lr=0.1, momentum=0.9)
    other.load_state_dict(state)
    assert other.state[p[0]]["momentum_buffer"] is not buffer
    state["param_groups"][0]["lr"] = 5.0
    assert optimizer.param_groups[0]["lr"] == 0.1


def test_load_state_dict_checks_before_it_changes_anything():
    optimizer = optim.Adam(parameters(), lr=0.1)
    run(optimizer, 2, seed=0)
    before = copy.deepcopy(optimizer.state_dict())

    def broken(change):
        state = copy.deepcopy(before)
        change(state)
        return state

    def wrong_shape(state):
        state["state"][1]["exp_avg"] = np.zeros((6,), np.float32)

    cases = [
        (wrong_shape, r"Adam.load_state_dict: exp_avg of parameter 1 has shape \(6,\); expected \(5,\)"),
        (lambda s: s["param_groups"].append({"params": []}), "the state has 2 parameter groups; expected 1"),
        (lambda s: s["param_groups"][0]["params"].append(2), "group 0 of the state has 3 parameters; expected 2"),
        (lambda s: s["state"].update({9: {}}), "the state has a parameter 9 that is in no group"),
        (lambda s: s["param_groups"][0].update(lr=-1), "lr=-1"),
        (lambda s: s.pop("state"), "expected a dict with 'state' and 'param_groups'.*got a dict with 'param_groups'"),
    ]
    for change, message in cases:
        with pytest.raises(ValueError, match=message):
            optimizer.load_state_dict(broken(change))
    with pytest.raises(ValueError, match="got a list"):
        optimizer.load_state_dict([])
    with pytest.raises(ValueError, match=r"group 0 of the state has no amsgrad, betas, .*; expected the state of Adam"):
        optimizer.load_state_dict(optim.SGD(parameters(), lr=0.1).state_dict())
    after = optimizer.state_dict()
    assert after["param_groups"] == before["param_groups"]
    np.testing.assert_array_equal(after["state"][1]["exp_avg"], before["state"][1]["exp_avg"])


def test_zero_grad():
    (p, q) = parameters()
    optimizer = optim.SGD([p, q], lr=0.1)
    p.grad = mn.tensor(np.ones(p.shape, np.float32))
    kept = p.grad
    optimizer.zero_grad(set_to_none=False)
    assert p.grad is kept
    assert not kept.array.any()
    assert kept.version.count == 1
    assert q.grad is None
    optimizer.zero_grad()
    assert p.grad is None


def test_a_step_changes_in_place_and_counts():
    (p, q) = parameters()
    data, before = p.array, p.array.copy()
    optimizer = optim.SGD([p, q], lr=0.1)
    p.grad = mn.tensor(np.ones(p.shape, np.float32))
    assert optimizer.step() is None
    assert p.array is data
    np.testing.assert_allclose(p.array, before - 0.1, rtol=1e-6)
    assert (p.version.count, q.version.count) == (1, 0)


def test_backward_through_what_a_step_changed_is_an_error():
    p = mn.tensor([1.0, 2.0], requires_grad=True)
    loss = (p * p).sum()
    loss.backward(retain_graph=True)
    optim.SGD([p], lr=0.1).step()
    with pytest.raises(RuntimeError, match="changed in place"):
        loss.backward()


def test_closure():
    p = mn.tensor([3.0], requires_grad=True)
    optimizer = optim.SGD([p], lr=0.25)

    def closure():
        optimizer.zero_grad()
        loss = (p * p).sum()
        loss.backward()
        return loss

    assert optimizer.step(closure).item() == 9.0
    assert p.item() == 1.5


@pytest.mark.parametrize("make", KINDS)
def test_downhill(make):
    p = mn.tensor([3.0, -4.0], requires_grad=True)
    optimizer = make([p])
    for _ in range(300):
        optimizer.zero_grad()
        ((p - mn.tensor([1.0, 2.0])) ** 2).sum().backward()
        optimizer.step()
    np.testing.assert_allclose(p.array, [1, 2], atol=0.05)


def test_wrong_parameters():
    (p, q) = parameters()
    SGD = optim.SGD
    cases = [
        (lambda: SGD([]), ValueError, "SGD: params is empty; expected at least one parameter"),
        (lambda: SGD(p), TypeError, "SGD: params is a Tensor; expected a list"),
        (lambda: SGD([p.array]), TypeError, r"SGD: params\[0\] is a ndarray; expected a Tensor"),
        (lambda: SGD([p, p]), ValueError, r"SGD: params\[1\] of shape \(3, 4\) appears twice"),
        (lambda: SGD([{"params": [p]}, {"params": [q, p]}]), ValueError, r"params\[1\] .*appears twice"),
        (lambda: SGD([{"params": []}]), ValueError, "a parameter group has no parameters"),
        (lambda: SGD([{"lr": 1.0}]), TypeError, "a parameter group is a dict with 'params'; got a dict with 'lr'"),
        (lambda: SGD([{"params": [p], "rate": 1.0}]), ValueError, "parameter group has 'rate'; expected 'params' and"),
        (lambda: SGD([{"params": [p], "lr": -1.0}]), ValueError, "SGD: lr=-1.0"),
        (lambda: SGD([p * 2]), ValueError, r"SGD: params\[0\] of shape \(3, 4\) was computed by Mul; expected a leaf"),
    ]
    for make, error, message in cases:
        with pytest.raises(error, match=message):
            make()


def test_add_param_group():
    (p, q) = parameters()
    optimizer = optim.SGD([p], lr=0.1)
    optimizer.add_param_group({"params": [q], "lr": 1.0})
    assert [group["lr"] for group in optimizer.param_groups] == [0.1, 1.0]
    with pytest.raises(ValueError, match="appears twice"):
        optimizer.add_param_group({"params": [p]})
    assert len(optimizer.param_groups) == 2


@pytest.mark.parametrize("gradient", [np.ones((4, 3), np.float32), np.ones((3, 4), np.float64)])
def test_a_gradient_of_another_shape_or_type(gradient):
    (p, _) = parameters()
    p.grad = mn.Tensor(gradient)
    with pytest.raises(ValueError, match=r"SGD: the gradient of a parameter is .*expected float32 of shape \(3, 4\)"):
        optim.SGD([p], lr=0.1).step()


def test_repr():
    text = repr(optim.SGD(parameters(), lr=0.1))
    assert "group 0: 2 parameters, 17 numbers; lr=0.1" in text


@pytest.mark.parametrize(
    "name", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam", "Lion", "LAMB"]
)
def test_maximize_climbs(name):
    up, down = parameters((3,), seed=1), parameters((3,), seed=1)
    for weights, sign in ((up, 1), (down, -1)):
        optimizer = getattr(optim, name)(weights, lr=0.1, maximize=sign == 1)
        for _ in range(3):
            weights[0].grad = mn.tensor(np.float32([1.0, -2.0, 0.5]) * sign)
            optimizer.step()
    assert np.array_equal(up[0].numpy(), down[0].numpy())


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adamax", "NAdam", "RAdam"])
def test_how_pytorch_computes_a_step_is_taken(name):
    torch = pytest.importorskip("torch")
    optimizer = getattr(optim, name)
    taken = optimizer(parameters(), lr=0.1, foreach=True, fused=False)
    group = {"params": parameters((2,), seed=1), "foreach": False, "capturable": True, "fused": None}
    taken.add_param_group(group)
    ours = optimizer([mn.ones(2, requires_grad=True)], lr=0.1)
    theirs = getattr(torch.optim, name)([torch.ones(2, requires_grad=True)], lr=0.1, foreach=True)
    theirs.param_groups[0]["params"][0].grad = torch.ones(2)
    theirs.step()
    state = theirs.state_dict()
    kept = {key: value.numpy() for key, value in state["state"].get(0, {}).items() if value is not None}
    ours.load_state_dict({**state, "state": {0: kept} if kept else {}})
    with pytest.raises(NotImplementedError, match=f"{name}: differentiable is True; expected False"):
        optimizer(parameters(), lr=0.1, differentiable=True)
