"""The modules that the walk recognises and refuses; most through `export`, whose writer it is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn
import minorm.functional as F
import minorm.onnx as mo
from minorm import nn
from minorm.autograd import Function
from minorm.graph import trace

onnx = pytest.importorskip("onnx")


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(4, 4, 3, padding=1)
        self.conv2 = nn.Conv2d(4, 4, 3, padding=1, bias=False)
        self.same = self.conv1  # shared weights

    def forward(self, x: mn.Tensor) -> mn.Tensor:
        y = self.conv2(F.relu(self.conv1(x)))
        y = self.same(y) + x
        return F.relu(mn.cat([y, x], 1))


@pytest.fixture
def image(rng: np.random.Generator) -> mn.Tensor:
    return mn.tensor(rng.normal(size=(2, 4, 6, 6)).astype(np.float32))


def names(proto: Any) -> list[str]:
    return [t.name for t in proto.graph.initializer]


def test_residual_shared_weights_and_concatenation(proved: Any, operators: Any, image: mn.Tensor, opset: int) -> None:
    proto = proved(Residual(), image, opset=opset)
    assert operators(proto) == ["Conv", "Relu", "Conv", "Conv", "Add", "Concat", "Relu"]
    assert names(proto) == ["conv1.weight", "conv1.bias", "conv2.weight"]
    assert proto.graph.node[2].name == "conv2/Conv"
    assert proto.graph.node[2].output[0] == "conv2/Conv_output"


def test_detached_and_wrapped_tensors_are_the_same_value(proved: Any, operators: Any) -> None:
    layer = nn.Linear(3, 2)
    proto = proved(lambda x: F.linear(x.detach(), layer.weight.detach(), mn.Tensor(layer.bias.array)), mn.ones(2, 3))
    assert operators(proto) == ["Gemm"]


def test_a_tensor_kept_as_an_attribute_gives_its_name(proved: Any, numbers: Any) -> None:
    class Normalizer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mean = mn.tensor([1.0, 2.0, 3.0])

        def forward(self, x: mn.Tensor) -> mn.Tensor:
            return (x - self.mean) / mn.tensor([3.0, 3.0, 3.0])

    proto = proved(nn.Sequential(Normalizer()), mn.ones(2, 3))
    assert list(numbers(proto)) == ["0.mean", "0.constant"]
    assert names(proto) == []  # they are no initializers: who loads the file would train them


def test_an_output_that_is_an_input_or_a_parameter(proved: Any, operators: Any) -> None:
    layer = nn.Linear(3, 3)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, x: mn.Tensor) -> Any:
            y = self.layer(x)
            return x, y, y, self.layer.bias

    proto = proved(Net(), mn.ones(2, 3))
    assert operators(proto) == ["Gemm", "Identity", "Identity", "Identity"]


def test_what_nobody_asks_for_is_left_out(proved: Any, operators: Any) -> None:
    def forward(x: mn.Tensor) -> mn.Tensor:
        F.softmax(x * 3, 1)
        return F.relu(x)

    assert operators(proved(forward, mn.ones(2, 3))) == ["Relu"]


class Strange(Function):
    def forward(self, x: Any, *, power: int) -> Any:
        return x**power

    def backward(self, dy: Any) -> Any:
        return dy


class Odd(Function):
    def forward(self, x: Any) -> Any:
        return x + 1

    def backward(self, dy: Any) -> Any:
        return dy


@trace.operation
def hidden(x: mn.Tensor) -> mn.Tensor:
    return mn.Tensor(np.sort(x.array))


def test_everything_that_cannot_be_written_is_listed_at_once() -> None:
    class Net(nn.Module):
        def forward(self, x: mn.Tensor) -> mn.Tensor:
            y = Strange.apply(x, power=3)
            y = Odd.apply(F.relu(y))
            return y + F.gelu(x) + hidden(x)

    with pytest.raises(mo.ExportError) as caught:
        mo.export(nn.Sequential(nn.Identity(), Net()), mn.ones(2, 3, dtype=mn.float64), None, opset_version=8)
    lines = str(caught.value).splitlines()
    assert lines[0] == "export: 4 operation(s) cannot be written at opset 8:"
    assert lines[1] == "  Strange(x (2, 3)) in 1: minorm has no ONNX form for it"
    assert lines[2] == "  Odd(x (2, 3)) in 1: minorm has no ONNX form for it"
    assert "Gelu" in lines[3]
    assert "Erf exists from opset 9 on" in lines[3]
    assert lines[4].startswith("  hidden(x (2, 3)) in 1")


@pytest.mark.parametrize(
    "forward",
    [
        lambda x: x * float(x.array.max()),
        lambda x: x + mn.tensor(np.sort(x.numpy(), 0)),
        lambda x: x * x.sum().item(),
        lambda x: x + mn.randn(2, 3) if x.shape[0] == 2 else x + mn.randn(4, 3),
    ],
)
def test_numbers_taken_from_the_input_are_refused(forward: Any) -> None:
    with pytest.raises(mo.ExportError, match="outside minorm's operations"):
        mo.export(forward, mn.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]), None)


def test_a_path_that_depends_on_the_values_is_refused() -> None:
    with pytest.raises(mo.ExportError, match=r"the operation depends on the input's values.*minorm.where"):
        mo.export(lambda x: F.relu(x) if x.array[0, 0] > 2 else F.tanh(x), mn.tensor([[1.0, 2.0, 3.0]]), None)


def test_a_model_for_one_batch_size_only_is_written_for_it() -> None:
    x = mn.tensor(np.arange(6, dtype=np.float32).reshape(2, 3))
    for forward in (lambda x: x.reshape(2, 3) + 1, lambda x: mn.cat([row * i for i, row in enumerate(x)])):
        with pytest.warns(UserWarning, match="export: the batch size is fixed at 2: .* 4"):
            proto = mo.export(forward, x, None)
        assert [d.dim_value for d in proto.graph.input[0].type.tensor_type.shape.dim] == [2, 3]


def test_that_is_an_error_where_the_axis_was_asked_to_be_free() -> None:
    with pytest.raises((mo.ExportError, ValueError)):
        mo.export(lambda x: x.reshape(2, 3) + 1, mn.ones(2, 3), None, dynamic_axes={"x": [0]})


# Changes in place


class Shortcut(nn.Module):
    """A module with `out += shortcut(x)`, as residual networks have it."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 3, padding=1)
        self.shortcut = nn.Conv2d(4, 4, 1)

    def forward(self, x: mn.Tensor) -> mn.Tensor:
        out = F.relu(self.conv(x))
        before = out * 1
        out += self.shortcut(x)
        out *= 0.5
        return F.relu(out) - before


def test_a_shortcut_added_in_place(proved: Any, operators: Any, image: mn.Tensor, opset: int) -> None:
    proto = proved(Shortcut(), image, opset=opset)
    assert operators(proto) == ["Conv", "Relu", "Mul", "Conv", "Add", "Mul", "Relu", "Sub"]


def test_every_operator_in_place(proved: Any, operators: Any) -> None:
    def model(x: mn.Tensor) -> mn.Tensor:
        y = x * 1
        y -= x.mean()
        y /= x * x + 1
        y **= 2
        mask = y > 0.1
        mask &= y < 0.5
        mask |= x > 1
        mask ^= x < -1
        y.clamp_(0.05, 0.4)
        return mn.where(mask, y, x)

    proto = proved(model, mn.randn(3, 4))
    expected = "Mul ReduceMean Sub Mul Add Div Pow Greater Less And Greater Or Less Xor Clip Where"
    assert sorted(operators(proto)) == sorted(expected.split())


def test_views_and_aliases_see_the_change(proved: Any) -> None:
    def model(x: mn.Tensor) -> tuple[mn.Tensor, ...]:
        y = x * 2
        row, turned, alias = y[0], y.T, y.detach()
        inner = turned[1:]
        first = row + 1  # of the old value
        y += x
        return first, row * 1, turned * 1, inner * 1, alias * 1, y

    proved(model, mn.randn(3, 4))


def test_a_constant_is_what_it_was_before_it_changed(proved: Any) -> None:
    def model(x: mn.Tensor) -> tuple[mn.Tensor, mn.Tensor]:
        total = mn.zeros(4)
        alias = total.detach()
        early = x + total
        total += x[0]
        total += x[1]
        return early, alias * 2

    proved(model, mn.randn(3, 4))


def test_what_is_overwritten_as_a_whole(proved: Any, opset: int) -> None:
    def model(x: mn.Tensor) -> tuple[mn.Tensor, ...]:
        y, z, u = x * 2, x * 3, x * 4
        y.copy_(x[0])
        z.zero_()
        u[...] = x + 1
        return y, z, u

    proved(model, mn.randn(3, 4), opset=opset)


def test_a_change_of_a_part_is_refused_by_name() -> None:
    def paint(x: mn.Tensor) -> mn.Tensor:
        y = x * 2
        y[:, 0] = 0
        return y

    def shift(x: mn.Tensor) -> mn.Tensor:
        y = x * 2
        y[0] += 1
        return y

    for model in (paint, shift):
        with pytest.raises(mo.ExportError, match=r"SetItem\(x \(2, 3\).*a graph cannot change a part of a tensor.*cat"):
            mo.export(model, mn.ones(2, 3), None)


class Counting(nn.Module):
    """A module whose forward changes buffers: the result needs one of them, and not the others."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("steps", mn.zeros(1))
        self.register_buffer("history", mn.zeros(8))
        self.register_buffer("kept", mn.zeros(3))

    def forward(self, x: mn.Tensor) -> mn.Tensor:
        self.steps += 1
        self.history[0] += 1
        self.kept.copy_(x[0])
        return x * self.steps


def test_buffers_that_change(operators: Any) -> None:
    model = Counting()
    proto = mo.export(model, mn.ones(2, 3), None, verify=True)
    assert operators(proto) == ["Add", "Mul"]
    assert model.steps.tolist() == [0]
    assert model.history.tolist() == [0] * 8
    assert mo.load(proto)(mn.ones(2, 3)).tolist() == [[1, 1, 1]] * 2
