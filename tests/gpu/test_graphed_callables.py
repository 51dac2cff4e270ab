"""make_graphed_callables on the double that captures: results and gradients have the bits of eager ones."""

from __future__ import annotations

import copy
import inspect
import pickle
from typing import Any

import numpy as np
import pytest

import minorm as mn
import minorm.functional as F
from minorm import nn, optim


class Two(nn.Module):
    """Two outputs in a dict, one of them without gradient, and a buffer that moves."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.norm, self.drop = nn.Linear(5, 6), nn.BatchNorm1d(6), nn.Dropout(0.4)
        self.b = nn.Linear(6, 3)

    def forward(self, x: Any) -> Any:
        y = self.b(self.drop(F.relu(self.norm(self.a(x)))))
        return {"logits": y, "rest": [y.argmax(1), (x * 2).sum(1)]}


def model() -> Any:
    mn.manual_seed(1)
    return Two().to("cuda")


def inputs(count: int, size: int = 4) -> list[Any]:
    rng = np.random.default_rng(count)
    return [mn.tensor(rng.standard_normal((size, 5), np.float32)).to("cuda") for _ in range(count)]


def array(x: Any) -> Any:
    return None if x is None else x.detach().cpu().numpy()


def trained(graphed: bool, add_up: int = 1) -> list[Any]:
    """Train some steps; return each step's results and state."""
    net, found = model(), []
    if graphed:
        assert mn.cuda.make_graphed_callables(net, (inputs(1)[0].requires_grad_(),)) is net
    optimizer = optim.RMSprop(net.parameters(), lr=0.01)
    for number, x in enumerate(inputs(6)):
        x.requires_grad_()
        result = net(x)
        labels = mn.tensor([0, 1, 2, 0]).to("cuda")
        loss = F.cross_entropy(result["logits"], labels) + result["rest"][1].mean()
        assert not result["rest"][0].requires_grad
        loss.backward()
        found += [array(loss), array(result["rest"][0]), array(x.grad), *map(array, net.buffers())]
        found += [array(p.grad) for p in net.parameters()]
        if (number + 1) % add_up == 0:
            optimizer.step()
            optimizer.zero_grad()
    return [*found, *map(array, net.parameters()), np.array(repr(mn.random.get_state()))]


@pytest.mark.parametrize("add_up", [1, 3])
def test_steps_have_the_bits_of_eager_ones(add_up: int, cuda: Any) -> None:
    for found, expected in zip(trained(True, add_up), trained(False, add_up), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_a_call_is_two_launches(cuda: Any) -> None:
    net = mn.cuda.make_graphed_callables(nn.Linear(5, 3).to("cuda"), (inputs(1)[0],))
    launches = []
    launch = cuda.cuda.Graph.launch

    def counted(graph: Any, stream: Any = None) -> None:
        launches.append(graph)
        launch(graph, stream)

    cuda.cuda.Graph.launch = counted
    try:
        net(inputs(1)[0]).sum().backward()
    finally:
        cuda.cuda.Graph.launch = launch
    assert len(launches) == 2


def test_several_callables_share_memory_and_are_called_in_their_order(cuda: Any) -> None:
    def steps(graphed: bool) -> list[Any]:
        mn.manual_seed(3)
        first, last = nn.Linear(5, 4).to("cuda"), nn.Linear(4, 2).to("cuda")
        scaled: Any = lambda x: x * x + 1  # noqa: E731
        if graphed:
            hidden = mn.ones(4, 4, device="cuda", requires_grad=True)
            samples = ((inputs(1)[0],), (hidden,), (mn.ones(4, 4, device="cuda", requires_grad=True),))
            first, scaled, last = mn.cuda.make_graphed_callables((first, scaled, last), samples)
        found = []
        for x in inputs(3):
            y = last(scaled(first(x)))
            (y * y).sum().backward()
            found += [array(y), *map(array, (first.weight.grad, last.bias.grad))]
        return found

    for found, expected in zip(steps(True), steps(False), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_another_mode_a_copy_and_a_file_compute_eagerly(cuda: Any) -> None:
    net, plain, x = model(), model(), inputs(1)[0]
    mn.cuda.make_graphed_callables(net, (x,))
    for each in (net, plain):
        each.eval()
    np.testing.assert_array_equal(array(net(x)["logits"]), array(plain(x)["logits"]))
    for again in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        with mn.no_grad():
            again.b.bias.fill_(7)
            again.b.weight.fill_(0)
        for mode in (True, False):
            assert (array(again.train(mode)(x)["logits"]) == 7).all()
    net.train()
    net.norm.eval()
    before = array(net.norm.running_mean)
    net(x)
    np.testing.assert_array_equal(array(net.norm.running_mean), before)


def test_warm_ups_change_nothing(cuda: Any) -> None:
    net = model()
    before, state = [array(value) for value in net.state_dict().values()], mn.random.get_state()
    mn.cuda.make_graphed_callables(net, (inputs(1)[0],), num_warmup_iters=5)
    for value, expected in zip(net.state_dict().values(), before, strict=True):
        np.testing.assert_array_equal(array(value), expected)
    assert mn.random.get_state() == state
    assert all(p.grad is None for p in net.parameters())


def test_what_is_wrong_is_named(cuda: Any) -> None:
    x = inputs(1)[0]
    make = mn.cuda.make_graphed_callables
    with pytest.raises(TypeError, match=r"sample_args\[0\] is a list; expected a Tensor"):
        make(model(), ([1.0],))
    with pytest.raises(ValueError, match=r"sample_args\[0\] is on cpu; expected a GPU"):
        make(model(), (x.cpu(),))
    with pytest.raises(ValueError, match="sample_args has 1 entries; expected 2, one for each callable"):
        make((model(), model()), ((x,),))
    with pytest.raises(TypeError, match="callables holds a int; expected Modules and functions"):
        make(3, (x,))
    hooked = model()
    hooked.a.register_forward_hook(print)
    with pytest.raises(RuntimeError, match="the module has hooks"):
        make(hooked, (x,))
    unused = model()
    unused.never = nn.Parameter(mn.ones(2, device="cuda"))
    with pytest.raises(RuntimeError, match=r"do not depend on a parameter of shape \(2,\).*allow_unused_input=True"):
        make(unused, (x,))
    assert make(unused, (x,), allow_unused_input=True) is unused
    unused(x)["logits"].sum().backward()
    assert unused.never.grad is None
    net = make(model(), (x,))
    with pytest.raises(ValueError, match=r"args\[0\] is float32 of shape \(3, 5\) on cuda:0; expected .*\(4, 5\)"):
        net(inputs(1, 3)[0])
    with pytest.raises(ValueError, match=r"requires_grad=True; expected float32 of shape"):
        net(x.detach().requires_grad_())
    with pytest.raises(TypeError, match="the call has 2 arguments; expected 1"):
        net(x, x)
    first, _ = net(x)["logits"], net(x)
    with pytest.raises(RuntimeError, match="expected the backward pass of each call before the next call"):
        first.sum().backward()
    net.to("cpu").to("cuda")
    with pytest.raises(RuntimeError, match="a parameter has moved to other memory since the graphs"):
        net(x)
    asks = nn.Sequential(nn.Linear(5, 5)).to("cuda")
    with pytest.raises(RuntimeError, match="cannot be captured"):
        make(lambda x: asks(x) * x.sum().item(), (x,))


def test_the_signature_is_pytorchs() -> None:
    torch = pytest.importorskip("torch")
    ours, theirs = (inspect.signature(m.cuda.make_graphed_callables).parameters for m in (mn, torch))
    assert [(p.name, p.default) for p in ours.values()] == [(p.name, p.default) for p in theirs.values()]
