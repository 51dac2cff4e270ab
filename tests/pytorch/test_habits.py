"""Habits of people who know PyTorch, or Keras, that mean something else here: each error says what to write instead.

A habit that has one meaning works: its test stands beside what it belongs to. `right` is the line that a message says.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import minorm as mn
import minorm.functional as F
from minorm import data, nn, optim
from minorm.data import DataLoader, TensorDataset, transforms


class Habit(NamedTuple):
    name: str
    wrong: Callable[[], Any]
    error: type[Exception]
    words: str
    right: Callable[[], Any]


def model() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(3, 2, 3), nn.Flatten(), nn.Linear(8, 10))


def images() -> mn.Tensor:
    return mn.ones(5, 3, 4, 4)


def labels() -> mn.Tensor:
    return mn.zeros(5, dtype=mn.int64)


def output() -> mn.Tensor:
    return model()(images())


class Listed(nn.Module):
    """Layers in a list, or in a ModuleList; a Tensor that is no Parameter."""

    def __init__(self, kind: Any) -> None:
        super().__init__()
        self.layers = kind([nn.Linear(2, 2)])
        self.scale = mn.ones(2, requires_grad=True)


class Forgets(nn.Module):
    def forward(self, x: mn.Tensor) -> None:
        F.relu(x)


def sgd() -> optim.SGD:
    return optim.SGD(model().parameters(), lr=0.1)


def loader() -> DataLoader:
    return DataLoader(TensorDataset(images(), labels()), batch_size=5)


LSTM = nn.LSTM(3, 2)
STEPS = mn.ones(4, 1, 3)
STATE = mn.zeros(1, 1, 2)

HABITS = [
    Habit(
        "labels before the output",
        lambda: nn.CrossEntropyLoss()(labels(), output()),
        TypeError,
        "cross_entropy: input is int64 of shape (5,), target is float32 of shape (5, 10); expected the model's output "
        "first, and then the classes: cross_entropy(output, labels)",
        lambda: F.cross_entropy(output(), labels()),
    ),
    Habit(
        "the model in place of its output",
        lambda: nn.CrossEntropyLoss()(model(), labels()),
        TypeError,
        "cross_entropy: input is Sequential; expected a Tensor; pass the result of the model: model(x)",
        lambda: nn.CrossEntropyLoss()(model()(images()), labels()),
    ),
    Habit(
        "the class of a loss as a function",
        lambda: nn.CrossEntropyLoss(output(), labels()),
        TypeError,
        "CrossEntropyLoss: argument 2 is a Tensor; expected a setting of the layer; make the layer first, and then "
        "call it: layer = CrossEntropyLoss(...); layer(x)",
        lambda: nn.CrossEntropyLoss()(output(), labels()),
    ),
    Habit(
        "the class of an activation as a function",
        lambda: nn.ReLU(images()),
        TypeError,
        "ReLU: argument 1 is a Tensor; expected a setting of the layer; make the layer first, and then call it: "
        "layer = ReLU(...); layer(x)",
        lambda: nn.ReLU()(images()),
    ),
    Habit(
        "labels with an axis of length 1",
        lambda: F.cross_entropy(output(), labels()[:, None]),
        ValueError,
        "cross_entropy: target has shape (5, 1), input has shape (5, 10); expected (5,), one class per example; "
        "remove the axis of length 1: target.squeeze(1)",
        lambda: F.cross_entropy(output(), labels()[:, None].squeeze(1)),
    ),
    Habit(
        "labels in a list",
        lambda: F.cross_entropy(output(), [0] * 5),  # type: ignore[arg-type]
        TypeError,
        "cross_entropy: target is list; expected a Tensor of integer classes (5,); make one with minorm.tensor(data)",
        lambda: F.cross_entropy(output(), mn.tensor([0] * 5)),
    ),
    Habit(
        "masks with an axis of channels",
        lambda: F.cross_entropy(mn.ones(2, 3, 4, 4), mn.zeros(2, 1, 4, 4).long()),
        ValueError,
        "cross_entropy: target has shape (2, 1, 4, 4), input has shape (2, 3, 4, 4); expected (2, 4, 4), one class "
        "per example; remove the axis of length 1: target.squeeze(1)",
        lambda: F.cross_entropy(mn.ones(2, 3, 4, 4), mn.zeros(2, 1, 4, 4).long().squeeze(1)),
    ),
    Habit(
        "a model given to the optimizer",
        lambda: optim.SGD(model(), lr=0.1),  # type: ignore[arg-type]
        TypeError,
        "SGD: params is a Sequential; expected a list of Tensors or of dicts, such as model.parameters(); pass the "
        "model's parameters, not the model",
        lambda: optim.SGD(model().parameters(), lr=0.1),
    ),
    Habit(
        "parameters that are not called",
        lambda: optim.Adam(model().parameters, lr=0.1),  # type: ignore[arg-type]
        TypeError,
        "Adam: params is a method; expected a list of Tensors or of dicts, such as model.parameters(); call it, "
        "with ()",
        lambda: optim.Adam(model().parameters(), lr=0.1),
    ),
    Habit(
        "lists of parameters in a list",
        lambda: optim.SGD([model().parameters(), model().parameters()], lr=0.1),
        TypeError,
        "SGD: params[0] is a generator; expected a Tensor; put several lists into one: "
        "[*a.parameters(), *b.parameters()]",
        lambda: optim.SGD([*model().parameters(), *model().parameters()], lr=0.1),
    ),
    Habit(
        "layers in a list",
        lambda: optim.SGD(Listed(list).parameters(), lr=0.1),
        ValueError,
        "SGD: params is empty; expected at least one parameter (model.parameters()); a model finds layers in an "
        "nn.ModuleList, but not in a list, and finds each nn.Parameter, but no other Tensor",
        lambda: optim.SGD(Listed(nn.ModuleList).parameters(), lr=0.1),
    ),
    Habit(
        "Keras' name of the rate",
        lambda: optim.SGD(model().parameters(), learning_rate=0.1),  # type: ignore[call-arg]
        TypeError,
        "SGD: there is no argument 'learning_rate'; did you mean 'lr'?",
        lambda: optim.SGD(model().parameters(), lr=0.1),
    ),
    Habit(
        "the loss given to the step",
        lambda: sgd().step(F.cross_entropy(output(), labels())),  # type: ignore[arg-type]
        TypeError,
        "SGD.step: closure is a Tensor; expected a function, or nothing; call loss.backward(), and then "
        "optimizer.step()",
        lambda: sgd().step(),
    ),
    Habit(
        "a model given to clip_grad_norm_",
        lambda: nn.utils.clip_grad_norm_(model(), 1.0),  # type: ignore[arg-type]
        TypeError,
        "clip_grad_norm_: parameters is a Sequential; expected a list of Tensors; pass the model's parameters, not the "
        "model: model.parameters()",
        lambda: nn.utils.clip_grad_norm_(model().parameters(), 1.0),
    ),
    Habit(
        "channels last in a convolution",
        lambda: nn.Conv2d(3, 2, 3)(mn.ones(5, 4, 4, 3)),
        ValueError,
        "conv2d: weight has 3 input channels per group, x has 4 channels and groups=1; expected weight.shape[1] * "
        "groups == x.shape[1]; x.shape is (5, 4, 4, 3), weight.shape is (2, 3, 3, 3); the channels seem to be last: "
        "x.movedim(-1, -3) puts them first",
        lambda: nn.Conv2d(3, 2, 3)(mn.ones(5, 4, 4, 3).movedim(-1, -3)),
    ),
    Habit(
        "one picture with channels last",
        lambda: nn.Conv2d(3, 2, 3)(mn.ones(4, 4, 3)),
        ValueError,
        "conv2d: weight has 3 input channels per group, x has 4 channels and groups=1; expected weight.shape[1] * "
        "groups == x.shape[1]; x.shape is (1, 4, 4, 3), weight.shape is (2, 3, 3, 3); the channels seem to be last: "
        "x.movedim(-1, -3) puts them first",
        lambda: nn.Conv2d(3, 2, 3)(mn.ones(4, 4, 3).movedim(-1, -3)),
    ),
    Habit(
        "channels last in a BatchNorm",
        lambda: nn.BatchNorm1d(3)(mn.ones(5, 4, 3)),
        ValueError,
        "BatchNorm1d: x has 4 channels, the layer num_features=3; expected x.shape[1] == 3; x.shape is (5, 4, 3); "
        "the channels seem to be last: x.movedim(-1, -2) puts them first",
        lambda: nn.BatchNorm1d(3)(mn.ones(5, 4, 3).movedim(-1, -2)),
    ),
    Habit(
        "grey images without an axis of channels",
        lambda: nn.Conv2d(1, 2, 3)(mn.ones(5, 4, 4)),
        ValueError,
        "conv2d: weight has 1 input channels per group, x has 5 channels and groups=1; expected weight.shape[1] * "
        "groups == x.shape[1]; x.shape is (1, 5, 4, 4), weight.shape is (2, 1, 3, 3); images (N, H, W) need an axis of "
        "channels: x.unsqueeze(1)",
        lambda: nn.Conv2d(1, 2, 3)(mn.ones(5, 4, 4).unsqueeze(1)),
    ),
    Habit(
        "images and labels given to a DataLoader",
        lambda: DataLoader(images(), labels(), batch_size=2),  # type: ignore[misc]
        TypeError,
        "DataLoader: batch_size is a Tensor of shape (5,); expected one dataset, and then an int: "
        "DataLoader(TensorDataset(x, y), batch_size=32)",
        lambda: DataLoader(TensorDataset(images(), labels()), batch_size=32),
    ),
    Habit(
        "a loader given to the model",
        lambda: model()(loader()),
        TypeError,
        "conv2d: x is DataLoader; expected a Tensor; pass batches of the loader: for images, labels in loader: "
        "model(images)",
        lambda: [model()(x) for x, _ in loader()],
    ),
    Habit(
        "a batch given to the model",
        lambda: [model()(batch) for batch in loader()],
        TypeError,
        "conv2d: x is tuple; expected a Tensor; it has 2 elements; unpack them, or pass one element: x[0]",
        lambda: [model()(batch[0]) for batch in loader()],
    ),
    Habit(
        "all that an LSTM gives",
        lambda: nn.Linear(2, 2)(LSTM(STEPS)),
        TypeError,
        "linear: x is tuple; expected a Tensor; it has 2 elements; unpack them, or pass one element: x[0]",
        lambda: nn.Linear(2, 2)(LSTM(STEPS)[0]),
    ),
    Habit(
        "one state for an LSTM",
        lambda: LSTM(STEPS, STATE),
        TypeError,
        "LSTM: hx is Tensor; expected a pair of Tensors, (h_0, c_0)",
        lambda: LSTM(STEPS, (STATE, STATE)),
    ),
    Habit(
        "a forward that returns nothing",
        lambda: nn.Linear(4, 2)(Forgets()(images())),
        TypeError,
        "linear: x is NoneType; expected a Tensor; if a `forward` computed the value, that `forward` must return its "
        "result",
        lambda: nn.Linear(4, 2)(F.relu(images())),
    ),
    Habit(
        "a class among the layers",
        lambda: nn.Sequential(nn.Flatten, nn.Linear(48, 2)),  # type: ignore[arg-type]
        TypeError,
        "add_module: Sequential.0 got a type; expected an nn.Module or None; make one of the class: Flatten()",
        lambda: nn.Sequential(nn.Flatten(), nn.Linear(48, 2)),
    ),
    Habit(
        "a function among the layers",
        lambda: nn.Sequential(nn.Linear(2, 2), F.relu),  # type: ignore[arg-type]
        TypeError,
        "add_module: Sequential.1 got a function; expected an nn.Module or None; take the layer for the function: "
        "nn.ReLU() for F.relu",
        lambda: nn.Sequential(nn.Linear(2, 2), nn.ReLU()),
    ),
    Habit(
        "a size that is a float",
        lambda: nn.Conv2d(3, 2, 3, padding=3 / 2),  # type: ignore[arg-type]
        TypeError,
        "Conv2d: padding is 1.5; expected an int, or 2 ints, one for each axis",
        lambda: nn.Conv2d(3, 2, 3, padding=3 // 2),
    ),
    Habit(
        "the number of a loss as in PyTorch 0.3",
        lambda: F.cross_entropy(output(), labels()).data[0],
        IndexError,
        "index: too many indices for array: array is 0-dimensional, but 1 were indexed; x.shape is (); the number of a "
        "scalar is x.item()",
        lambda: F.cross_entropy(output(), labels()).item(),
    ),
    Habit(
        "the GPU of a Mac",
        lambda: mn.device("mps"),
        ValueError,
        "device: 'mps' is not supported; expected 'cpu', 'cuda' or 'cuda:0'",
        lambda: mn.device("cpu"),
    ),
    Habit(
        "fit, as in Keras",
        lambda: model().fit(images(), labels()),
        AttributeError,
        "Sequential has no attribute 'fit'; write the training loop, or take minorm.training.train_epoch(model, "
        "loader, loss_function, optimizer)",
        lambda: mn.training.train_epoch(net := model(), loader(), F.cross_entropy, optim.SGD(net.parameters(), lr=0.1)),
    ),
    Habit(
        "the device of a model",
        lambda: model().device,
        AttributeError,
        "Sequential has no attribute 'device'; write next(model.parameters()).device",
        lambda: next(model().parameters()).device,
    ),
    Habit(
        "a data set by its name",
        lambda: data.MNIST("root", train=True, download=True),  # type: ignore[attr-defined]
        AttributeError,
        "module 'minorm.data' has no attribute 'MNIST'; minorm.data.load_mnist(folder) reads the files of the data "
        "set, which are not downloaded",
        lambda: data.load_mnist,
    ),
    Habit(
        "a transform among the data sets",
        lambda: data.Resize(8),  # type: ignore[attr-defined]
        AttributeError,
        "module 'minorm.data' has no attribute 'Resize'; write minorm.data.transforms.Resize",
        lambda: transforms.Resize(8),
    ),
    Habit(
        "several GPUs in one process",
        lambda: nn.DataParallel(model()),  # type: ignore[attr-defined]
        AttributeError,
        "module 'minorm.nn' has no attribute 'DataParallel'; processes train together through "
        "minorm.distributed.DistributedDataParallel",
        lambda: mn.distributed.DistributedDataParallel,
    ),
    Habit(
        "the scaler's old address",
        lambda: mn.cuda.amp.GradScaler,  # type: ignore[attr-defined]
        AttributeError,
        "module 'minorm.cuda' has no attribute 'amp'; write minorm.amp.GradScaler and minorm.autocast",
        lambda: (mn.amp.GradScaler, mn.autocast),
    ),
]


@pytest.mark.parametrize("habit", HABITS, ids=[habit.name for habit in HABITS])
def test_the_message_says_the_line_to_write(habit: Habit) -> None:
    with pytest.raises(habit.error) as caught:
        habit.wrong()
    assert str(caught.value) == habit.words
    habit.right()


PROBABILITIES = {
    "cross_entropy": (lambda x: F.softmax(x, 1), labels, "the softmax out of the model", lambda x: x),
    "nll_loss": (lambda x: F.softmax(x, 1), labels, "the output of log_softmax", lambda x: F.log_softmax(x, 1)),
    "binary_cross_entropy_with_logits": (
        F.sigmoid,
        lambda: mn.ones(5, 10),
        "the sigmoid out of the model",
        lambda x: x,
    ),
}


@pytest.mark.parametrize("name", PROBABILITIES)
def test_a_model_that_ends_in_probabilities_trains_with_a_warning(name: str) -> None:
    """PyTorch trains it without a word, to a worse result."""
    wrong, target, words, right = PROBABILITIES[name]
    loss = getattr(F, name)
    with pytest.warns(UserWarning, match=f"{name}: input is the result of .*{words}") as caught:
        loss(wrong(output()), target()).backward()
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loss(right(output()), target()).backward()


def test_a_layer_takes_the_tensors_that_are_settings() -> None:
    weights = mn.ones(10)
    expected = F.cross_entropy(output_ := output(), labels())
    assert mn.equal(nn.CrossEntropyLoss(weights)(output_, labels()), expected)
    assert nn.BCEWithLogitsLoss(mn.ones(1)).weight.shape == (1,)


def test_a_class_of_ones_own_takes_tensors() -> None:
    class Shift(nn.Module):
        def __init__(self, by: float) -> None:
            super().__init__()
            self.by = by

    assert float(Shift(mn.ones(1)).by) == 1.0  # type: ignore[arg-type]


def test_a_missing_name_that_is_nobodys_habit_gets_no_advice() -> None:
    for module in (mn, data, nn, mn.cuda):
        with pytest.raises(AttributeError, match=rf"module '{module.__name__}' has no attribute 'zzz'$"):
            _ = module.zzz  # type: ignore[attr-defined]
    assert not hasattr(model(), "fit")


def test_a_size_of_numpys_is_a_batch_size() -> None:
    assert DataLoader(TensorDataset(images()), np.int64(2)).batch_size == 2
