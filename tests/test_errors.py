"""The usual mistakes and the library's answers: the operation, the argument, its value, the expected one, the fix.

Each case pins the whole message, so that no change makes it worse by accident. Modules test their own rarer errors.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import minorm as mn
import minorm.functional as F
from minorm import nn, optim
from minorm.data import ArrayDataset, DataLoader


class Case(NamedTuple):
    mistake: str
    make: Callable[[], Any]
    error: type[Exception]
    message: str


def images(*shape: int, dtype: Any = None) -> mn.Tensor:
    return mn.ones(*(shape or (2, 3, 8, 8)), dtype=dtype)


def leaf(*shape: int) -> mn.Tensor:
    return mn.ones(*shape, requires_grad=True)


def parameters() -> Any:
    return nn.Linear(2, 2).parameters()


def backward_twice() -> None:
    w = leaf(3)
    loss = (w * w).sum()
    loss.backward()
    loss.backward()


def change_before_backward() -> None:
    w = leaf(3)
    loss = (w * w).sum()
    with mn.no_grad():
        w.mul_(2)
    loss.backward()


def forget_super() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            self.fc = nn.Linear(1, 1)

    Net()


def step_with_a_wrong_gradient() -> None:
    w = leaf(3)
    w.grad = mn.ones(2)
    optim.SGD([w], lr=0.1).step()


def assign_a_tensor_to_a_parameter() -> None:
    nn.Linear(2, 3).weight = mn.ones(3, 2)


LAYERS = [
    Case(
        "an image without a channel axis",
        lambda: nn.Conv2d(3, 4, 3)(images(8, 8)),
        ValueError,
        "conv2d: x has 2 dimensions; expected 4, (N, C, H, W); x.shape is (8, 8)",
    ),
    Case(
        "another number of channels",
        lambda: nn.Conv2d(4, 8, 3)(images()),
        ValueError,
        "conv2d: weight has 4 input channels per group, x has 3 channels and groups=1; expected weight.shape[1] * "
        "groups == x.shape[1]; x.shape is (2, 3, 8, 8), weight.shape is (8, 4, 3, 3)",
    ),
    Case(
        "channels that groups do not divide",
        lambda: nn.Conv2d(3, 8, 3, groups=2),
        ValueError,
        "Conv2d: groups=2 must divide in_channels=3 and out_channels=8",
    ),
    Case(
        "a kernel larger than the image",
        lambda: nn.Conv2d(3, 8, 11)(images()),
        ValueError,
        "conv2d: the kernel is larger than the padded input: the kernel spans (11, 11), and the input with padding "
        "((0, 0), (0, 0)) spans (8, 8); expected a kernel that fits into the padded input; use a smaller kernel or "
        "more padding",
    ),
    Case(
        "a pooling window larger than what is left",
        lambda: nn.MaxPool2d(9)(images()),
        ValueError,
        "max_pool2d: the kernel is larger than the padded input: the kernel spans (9, 9), and the input with padding "
        "((0, 0), (0, 0)) spans (8, 8); expected a kernel that fits into the padded input; use a smaller kernel or "
        "more padding",
    ),
    Case(
        "padding='same' with a stride",
        lambda: nn.Conv2d(3, 8, 3, stride=2, padding="same"),
        ValueError,
        "Conv2d: padding='same' needs stride 1, because the output has the input's size; stride is (2, 2)",
    ),
    Case(
        "three sizes for two axes",
        lambda: nn.Conv2d(3, 8, (3, 3, 3)),
        TypeError,
        "Conv2d: kernel_size is (3, 3, 3); expected an int, or 2 ints, one for each axis",
    ),
    Case(
        "a NumPy array for a Tensor",
        lambda: nn.Conv2d(3, 8, 3)(np.ones((2, 3, 8, 8), np.float32)),
        TypeError,
        "conv2d: x is ndarray; expected a Tensor; make one with minorm.tensor(data)",
    ),
    Case(
        "an argument misspelt",
        lambda: nn.Conv2d(1, 8, kernal_size=3),
        TypeError,
        "Conv2d: there is no argument 'kernal_size'; did you mean 'kernel_size'?",
    ),
    Case(
        "an argument of another library",
        lambda: nn.Linear(2, 2, activation="relu"),
        TypeError,
        "Linear: there is no argument 'activation'; expected Linear(in_features, out_features, bias=True, device=None, "
        "dtype=None)",
    ),
    Case(
        "an argument left out",
        lambda: nn.Conv2d(3, 8),
        TypeError,
        "Conv2d: missing a required argument: 'kernel_size'; expected Conv2d(in_channels, out_channels, kernel_size, "
        "stride=1, padding=0, dilation=1, groups=1, bias=True, padding_mode='zeros', device=None, dtype=None)",
    ),
    Case(
        "bytes for floats",
        lambda: nn.Conv2d(3, 8, 3)(images(dtype=mn.uint8)),
        TypeError,
        "conv2d: x is uint8; expected a float type; convert it with x.float()",
    ),
    Case(
        "float64 data in a float32 model",
        lambda: nn.Linear(8, 3)(images(dtype=mn.float64)),
        TypeError,
        "linear: weight is float32, x is float64; expected one float type; convert one, for example "
        "x.to(minorm.float32) or module.to(minorm.float64)",
    ),
    Case(
        "no flatten before the linear layer",
        lambda: nn.Linear(192, 10)(images()),
        ValueError,
        "linear: x has 8 features in its last axis, weight takes 192; expected x.shape[-1] == weight.shape[1]; "
        "x.shape is (2, 3, 8, 8), weight.shape is (10, 192); to join all axes after the first, pass x.flatten(1)",
    ),
    Case(
        "softmax without an axis",
        lambda: F.softmax(images(), None),
        TypeError,
        "softmax: dim is None; expected an int, the axis along which y sums to one, usually dim=1 or -1",
    ),
    Case(
        "a probability above one",
        lambda: nn.Dropout(50),
        ValueError,
        "Dropout: p is 50; expected a probability, 0 <= p <= 1",
    ),
]

NORMS = [
    Case(
        "a batch of one without positions",
        lambda: nn.BatchNorm1d(3)(mn.ones(1, 3)),
        ValueError,
        "batch_norm: one value per channel has no variance to normalize with in training; x.shape is (1, 3); expected "
        "more than one value per channel: a larger batch, or training=False",
    ),
    Case(
        "an instance of one position",
        lambda: nn.InstanceNorm2d(3)(images(2, 3, 1, 1)),
        ValueError,
        "instance_norm: one position per channel has no variance to normalize with; x.shape is (2, 3, 1, 1); expected "
        "more than one position",
    ),
    Case(
        "BatchNorm after the flatten",
        lambda: nn.BatchNorm2d(192)(images().flatten(1)),
        ValueError,
        "BatchNorm2d: x has 2 axes; expected (N, C, H, W); x.shape is (2, 192)",
    ),
    Case(
        "BatchNorm of other channels",
        lambda: nn.BatchNorm2d(4)(images()),
        ValueError,
        "BatchNorm2d: x has 3 channels, the layer num_features=4; expected x.shape[1] == 4; x.shape is (2, 3, 8, 8)",
    ),
    Case(
        "evaluation without running statistics",
        lambda: F.batch_norm(images(), None, None),
        ValueError,
        "batch_norm: running_mean or running_var is None and training=False; expected both, or training=True to "
        "normalize with the statistics of x",
    ),
    Case(
        "groups that do not divide the channels",
        lambda: nn.GroupNorm(3, 8),
        ValueError,
        "GroupNorm: num_groups=3 must divide num_channels=8",
    ),
    Case(
        "LayerNorm of another length",
        lambda: nn.LayerNorm(10)(images()),
        ValueError,
        "layer_norm: normalized_shape is (10,), x ends in (8,); expected normalized_shape == x.shape[-1:]; x.shape is "
        "(2, 3, 8, 8)",
    ),
]

LOSSES = [
    Case(
        "a label that is no class",
        lambda: F.cross_entropy(mn.ones(2, 3), mn.tensor([0, 3])),
        ValueError,
        "cross_entropy: target[1] is 3; expected a class from 0 to 2 (input (2, 3) has 3 classes), or "
        "ignore_index=-100; give the model as many outputs as there are classes, and count classes from 0",
    ),
    Case(
        "labels as floats",
        lambda: F.cross_entropy(mn.ones(2, 3), mn.tensor([0.0, 1.0])),
        TypeError,
        "cross_entropy: target is float32 of shape (2,); expected classes as integers of shape (2,) (target.long()), "
        "or probabilities of input's shape (2, 3)",
    ),
    Case(
        "labels with an axis too many",
        lambda: F.cross_entropy(mn.ones(2, 3), mn.tensor([[0], [1]])),
        ValueError,
        "cross_entropy: target has shape (2, 1), input has shape (2, 3); expected (2,), one class per example; "
        "remove the axis of length 1: target.squeeze(1)",
    ),
    Case(
        "one-hot labels as integers",
        lambda: F.cross_entropy(mn.ones(2, 3), mn.tensor([[1, 0, 0], [0, 1, 0]])),
        ValueError,
        "cross_entropy: target has shape (2, 3), input has shape (2, 3); expected (2,), one class per example; for "
        "one-hot targets pass target.argmax(1), or probabilities in input's float type",
    ),
    Case(
        "N x 1 against N",
        lambda: F.mse_loss(mn.ones(4, 1), mn.ones(4)),
        ValueError,
        "mse_loss: target has shape (4,), input has shape (4, 1); expected equal shapes; reshape one, for example "
        "target.reshape(input.shape)",
    ),
    Case(
        "a reduction there is not",
        lambda: nn.MSELoss(reduction="avg"),
        ValueError,
        "MSELoss: reduction is 'avg'; expected 'mean', 'sum' or 'none'",
    ),
]

TENSORS = [
    Case(
        "two float types",
        lambda: mn.ones(2) + mn.ones(2, dtype=mn.float64),
        TypeError,
        "add: operands are float32 and float64; expected one float type; convert one with x.to(dtype)",
    ),
    Case(
        "shapes that do not broadcast",
        lambda: mn.ones(2, 3) * mn.ones(2),
        ValueError,
        "mul: shapes (2, 3) and (2,) do not broadcast; expected lengths that are equal or 1, compared from the last "
        "axis",
    ),
    Case(
        "factors in the wrong order",
        lambda: mn.ones(2, 3) @ mn.ones(2, 3),
        ValueError,
        "matmul: a is (2, 3), b is (2, 3); expected a's last axis to equal b's last but one; transpose one with .mT, "
        "or check the order of the factors",
    ),
    Case(
        "a shape of another size",
        lambda: images().reshape(2, 100),
        ValueError,
        "reshape: shape (2, 100) does not hold the 384 elements of (2, 3, 8, 8); expected sizes whose product is the "
        "number of elements; one size may be -1",
    ),
    Case(
        "an axis there is not",
        lambda: images().sum(4),
        IndexError,
        "sum: dim=4 is out of range for shape (2, 3, 8, 8); expected -4 to 3",
    ),
    Case(
        "joining along the wrong axis",
        lambda: mn.cat([mn.ones(2, 3), mn.ones(2, 4)]),
        ValueError,
        "cat: tensor 1 is (2, 4), tensor 0 is (2, 3); expected shapes that differ in axis 0 alone; pass the dim along "
        "which they are joined",
    ),
    Case(
        "the item of many",
        lambda: images().item(),
        ValueError,
        "item: only a tensor of one element has an item; shape is (2, 3, 8, 8)",
    ),
    Case(
        "if over many",
        lambda: bool(mn.ones(3) > 0),
        ValueError,
        "bool: the truth of 3 elements is ambiguous; use x.all() or x.any()",
    ),
    Case(
        "a device that is none",
        lambda: nn.Linear(2, 2).to("cuda:x"),
        ValueError,
        "device: 'cuda:x' is not supported; expected 'cpu', 'cuda' or 'cuda:0'",
    ),
    Case(
        "gradients of integers",
        lambda: mn.tensor([1, 2], requires_grad=True),
        TypeError,
        "Tensor: only floats can require grad; dtype is int64; use x.to(minorm.float32) first",
    ),
    Case(
        "a condition of numbers",
        lambda: mn.where(mn.ones(2), mn.ones(2), mn.ones(2)),
        TypeError,
        "where: condition is float32; expected bool; compare first, as in x > 0",
    ),
    Case(
        "a negative seed",
        lambda: mn.manual_seed(-1),
        ValueError,
        "manual_seed: seed must be a non-negative int; got -1",
    ),
]

GRADIENTS = [
    Case(
        "backward of many",
        lambda: (leaf(3) * 2).backward(None),
        RuntimeError,
        "backward: gradient is needed for a tensor that is not a scalar; shape is (3,); call loss.sum().backward() or "
        "pass gradient of that shape",
    ),
    Case(
        "backward of a constant",
        lambda: mn.ones(3).sum().backward(),
        RuntimeError,
        "backward: the tensor does not require grad, and nothing from which it was computed requires grad; expected "
        "a result that was computed outside minorm.no_grad() from parameters or from tensors made with "
        "requires_grad=True",
    ),
    Case(
        "backward twice",
        backward_twice,
        RuntimeError,
        "backward: the graph of Sum was freed by an earlier backward(); to use the graph twice, call "
        "backward(retain_graph=True) the first time",
    ),
    Case(
        "an input changed before backward",
        change_before_backward,
        RuntimeError,
        "backward of Mul: an input it needs was changed in place after the forward pass (version 1, expected 0); work "
        "on a copy, or change it after backward()",
    ),
    Case(
        "a parameter changed inside the graph",
        lambda: leaf(3).mul_(2),
        RuntimeError,
        "mul_: the tensor is a leaf that requires grad, and no recorded operation may change a leaf; change the "
        "tensor inside minorm.no_grad(), or compute a new tensor",
    ),
    Case(
        "a view of a parameter changed inside the graph",
        lambda: leaf(3)[1:].fill_(2),
        RuntimeError,
        "fill_: the tensor is a view of a leaf that requires grad, and no recorded operation may change a leaf; "
        "change the tensor inside minorm.no_grad(), or compute a new tensor",
    ),
    Case(
        "a change in place to a type that does not fit",
        lambda: operator.itruediv(images(2, dtype=mn.int64), 2),
        TypeError,
        "x /= y: the result is float32, x is int64; expected a result that x's type can hold; compute a new tensor, or "
        "convert x first",
    ),
    Case(
        "a change in place with another float type",
        lambda: operator.iadd(images(2), images(2, dtype=mn.float64)),
        TypeError,
        "x += y: operands are float32 and float64; expected one float type; convert one with x.to(dtype)",
    ),
    Case(
        "a change in place that would make the tensor larger",
        lambda: operator.iadd(images(1), images(3)),
        ValueError,
        "x += y: x has shape (1,), y has (3,); expected a y that broadcasts to x's shape, because a method in place "
        "cannot enlarge x",
    ),
    Case(
        "a change in place of an expanded tensor",
        lambda: images(1).expand(3).add_(1),
        RuntimeError,
        "add_: several elements of x share one place in memory (expand); expected a separate place for each element; "
        "work on x.clone()",
    ),
    Case(
        "a change in place that no gradient passes",
        lambda: operator.ifloordiv(leaf(2) * 1, 2),
        RuntimeError,
        "x //= y: FloorDivide has no gradient, and x is a result in the graph; compute on x.detach(), or inside "
        "minorm.no_grad()",
    ),
    Case(
        "bits of floats",
        lambda: images(2) & images(2),
        TypeError,
        "bitwise_and: an operand is float32; expected bools or integers",
    ),
    Case(
        "a Tensor of another type assigned to data",
        lambda: setattr(leaf(3), "data", mn.zeros(3, dtype=mn.float64)),
        TypeError,
        "x.data = value: value is float64, x is float32; expected x's type; use value.to(x.dtype)",
    ),
    Case(
        "a number assigned to data",
        lambda: setattr(leaf(3), "data", 0.0),
        TypeError,
        "x.data = value: value is float; expected a Tensor or an array; write x.data.fill_(value)",
    ),
    Case(
        "an array of another type assigned to data",
        lambda: setattr(leaf(3), "data", np.zeros(3)),
        TypeError,
        "x.data = value: value is float64, x is float32; expected x's type; use value.astype(x.dtype)",
    ),
    Case(
        "an array of another shape assigned to data",
        lambda: setattr(leaf(3), "data", np.zeros(4, np.float32)),
        ValueError,
        "x.data = value: value has shape (4,); expected (3,), x's own",
    ),
]

MODULES = [
    Case(
        "no super().__init__()",
        forget_super,
        AttributeError,
        "Net.fc: assigned before Module.__init__ has run; make super().__init__() the first line of Net.__init__",
    ),
    Case(
        "a Tensor where a parameter was",
        assign_a_tensor_to_a_parameter,
        TypeError,
        "Linear.weight is a parameter; got a Tensor; expected an nn.Parameter or None; wrap it, nn.Parameter(tensor), "
        "or change it in place",
    ),
    Case(
        "a list for Sequential",
        lambda: nn.Sequential([nn.ReLU(), nn.ReLU()]),
        TypeError,
        "Sequential: got one list; expected modules as separate arguments; unpack it: Sequential(*layers)",
    ),
    Case(
        "missing keys and other shapes",
        lambda: nn.Linear(2, 3).load_state_dict({"weight": np.zeros((3, 4), np.float32)}),
        ValueError,
        "load_state_dict: the state does not fit Linear; nothing was loaded\n  missing keys: bias\n"
        "  weight: shape is (3, 4), expected (3, 2)\nbuild the model as it was when the state was saved, or pass "
        "strict=False to load what matches; give the layers the sizes they had when the state was saved",
    ),
    Case(
        "an optimizer given the model",
        lambda: optim.SGD(nn.Linear(2, 2), lr=0.1),
        TypeError,
        "SGD: params is a Linear; expected a list of Tensors or of dicts, such as model.parameters(); pass the model's "
        "parameters, not the model",
    ),
    Case(
        "an optimizer given names too",
        lambda: optim.SGD(nn.Linear(2, 2).named_parameters(), lr=0.1),
        TypeError,
        "SGD: params[0] is a tuple; expected a Tensor; pass model.parameters(), without the names",
    ),
    Case(
        "an optimizer given nothing",
        lambda: optim.Adam(nn.ReLU().parameters()),
        ValueError,
        "Adam: params is empty; expected at least one parameter (model.parameters()); a model finds layers in an "
        "nn.ModuleList, but not in a list, and finds each nn.Parameter, but no other Tensor",
    ),
    Case(
        "a negative learning rate",
        lambda: optim.Adam(parameters(), lr=-1e-3),
        ValueError,
        "Adam: lr=-0.001; expected at least 0",
    ),
    Case(
        "a computed tensor to optimize",
        lambda: optim.SGD([leaf(2) * 2], lr=0.1),
        ValueError,
        "SGD: params[0] of shape (2,) was computed by Mul; expected a leaf, because only a leaf has its own gradient",
    ),
    Case(
        "a gradient of another shape",
        step_with_a_wrong_gradient,
        ValueError,
        "SGD: the gradient of a parameter is float32 of shape (2,); expected float32 of shape (3,), as for the "
        "parameter; set p.grad to None to drop the gradient",
    ),
    Case(
        "a schedule of a model",
        lambda: optim.lr_scheduler.StepLR(nn.Linear(2, 2), 3),
        TypeError,
        "StepLR: optimizer is a Linear; expected an Optimizer",
    ),
]

DATA = [
    Case(
        "a batch of nothing",
        lambda: DataLoader([1, 2], batch_size=0),
        ValueError,
        "DataLoader: batch_size=0; expected an int of at least 1",
    ),
    Case(
        "a generator as a dataset",
        lambda: DataLoader((i for i in range(3)), batch_size=2),
        TypeError,
        "DataLoader: dataset is a generator; expected an object with len(dataset) and dataset[i]; put arrays into an "
        "ArrayDataset, and the samples of a generator into a list",
    ),
    Case(
        "more images than labels",
        lambda: ArrayDataset(np.ones((3, 1)), np.ones(4)),
        ValueError,
        "ArrayDataset: the arrays have shapes [(3, 1), (4,)]; expected at least one array, and the same first axis in "
        "all arrays",
    ),
    Case(
        "samples of different shapes",
        lambda: next(iter(DataLoader([np.ones(2), np.ones(3)], batch_size=2))),
        ValueError,
        "DataLoader: the sample has shapes [(2,), (3,)] within one batch; expected the same shape in every sample",
    ),
]

CASES = LAYERS + NORMS + LOSSES + TENSORS + GRADIENTS + MODULES + DATA


@pytest.mark.parametrize("case", CASES, ids=[c.mistake for c in CASES])
def test_the_message(case: Case) -> None:
    with pytest.raises(case.error) as caught:
        case.make()
    assert type(caught.value) is case.error
    assert str(caught.value) == case.message


def test_there_are_enough_of_them() -> None:
    assert len(CASES) >= 30
    assert len({c.mistake for c in CASES}) == len(CASES)
