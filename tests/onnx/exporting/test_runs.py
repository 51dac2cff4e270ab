from __future__ import annotations

import pytest

pytest.importorskip("onnx")

import minorm as mn
import minorm.functional as F
from minorm import nn, random
from minorm.onnx.exporting.runs import Scope, record, same_random_numbers_after, tensors_of, untouched
from minorm.onnx.graph.errors import ExportError


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 2)
        self.register_buffer("seen", mn.zeros(1))
        self.register_buffer("mean", mn.zeros(2))

    def forward(self, x: mn.Tensor) -> mn.Tensor:
        y = F.dropout(self.fc(x), 0.5, self.training)
        self.seen.add_(1)
        self.mean = y.mean(0).detach()
        return y


def test_modules_are_calls_with_their_operations_inside() -> None:
    net = nn.Sequential(nn.Linear(3, 2), nn.Sequential(nn.ReLU()))
    (root,) = record(net, (mn.ones(1, 3),)).calls
    assert root.target == Scope("")
    linear, inner = root.children
    assert linear.target == Scope("0")
    assert linear.children[0].target is F.linear
    assert inner.target == Scope("1")
    assert inner.children[0].target == Scope("1.0")
    assert "forward" not in vars(net)
    assert "forward" not in vars(net[1][0])


def test_a_forward_that_fails_leaves_no_wrapper_behind() -> None:
    net = nn.Sequential(nn.Linear(3, 2))
    with pytest.raises(ValueError, match="linear"):
        record(net, (mn.ones(1, 4),))
    assert "forward" not in vars(net[0])


def test_modes_and_buffers_are_put_back() -> None:
    net = nn.Sequential(Counting(), nn.ReLU().eval())
    mean, before = net[0].mean, net[0].seen.version.count
    with untouched(net, training=True):
        assert net[1].training
        record(net, (mn.ones(4, 3),))
        assert net[0].seen.item() == 1
        assert net[0].mean is not mean
    assert [m.training for m in net.modules()] == [True, True, True, False]
    assert net[0].seen.item() == 0
    assert net[0].seen.version.count == before
    assert net[0].mean is mean


def test_random_numbers_go_on_as_if_nothing_had_been_drawn() -> None:
    before = random.get_state()
    with same_random_numbers_after():
        mn.randn(3)
        assert random.get_state() != before
    assert random.get_state() == before


def test_a_change_in_place_is_a_call_whose_result_is_the_tensor_itself() -> None:
    kept = {}

    def change(x: mn.Tensor) -> mn.Tensor:
        kept["y"] = y = x * 2
        kept["view"] = view = y[0]
        y += 1
        return view

    run = record(change, (mn.ones(2, 3),))
    assert [(call.target.__name__, call.changed) for call in run.calls] == [
        ("Mul", False),
        ("GetItem", False),
        ("Add", True),
        ("GetItem", True),  # the view, viewed anew
    ]
    assert run.calls[2].result is kept["y"]
    assert run.calls[3].result is kept["view"]
    array, before = run.originals[id(kept["y"].array)]
    assert array is kept["y"].array
    assert before.tolist() == [[2, 2, 2], [2, 2, 2]]


def test_a_change_that_no_call_tells_of_is_refused() -> None:
    def paint(x: mn.Tensor) -> mn.Tensor:
        y = x * 2
        nn.init.zeros_(y)
        return y

    def paint_over(x: mn.Tensor) -> mn.Tensor:
        x += 1
        return x * 2

    with pytest.raises(ExportError, match=r"a result of Mul of shape \(2, 3\) was changed in place"):
        record(paint, (mn.ones(2, 3),))
    with pytest.raises(ExportError, match=r"an input or a parameter of shape \(2, 3\) was changed in place"):
        record(paint_over, (mn.ones(2, 3),))


def test_results_may_be_nested() -> None:
    a, b = mn.ones(1), mn.ones(2)
    assert tensors_of({"x": a, "y": [b, (a, None)]}) == [a, b, a]
    assert tensors_of("none") == []
