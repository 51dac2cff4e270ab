"""Second gradients on PyTorch's own samples (OpInfo): of all operations whose names the two share, in float64.

Where PyTorch has no second gradient, finite differences of our first one judge.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import minorm as mn

torch = pytest.importorskip("torch")
pytest.importorskip("expecttest", reason="PyTorch's samples import it; it comes with the extra dev")

from tests.pytorch import test_names, test_samples  # noqa: E402  they import PyTorch's tests
from tests.pytorch.twins import operations, second_gradients  # noqa: E402

FEW, MANY = 3, 30  # samples of an operation
LEAST = 290  # operations that are compared
BOUNDS = {"F.hardsigmoid": 1e-7}  # PyTorch's slope is 1/6 in float32
Case = tuple[str, Any, Any, list[Any]]  # the name, PyTorch's function, ours, and the samples


def of_tensors(most: int) -> Iterator[Case]:
    """The operations of a Tensor and of minorm."""
    for name in test_names.shared():
        operation = operations.OPERATIONS[name]
        deviates = test_names.DEVIATIONS.get(name, (lambda dtype, sample: False, ""))[0]
        if operation.supports_autograd:
            theirs = operation.op if operation.op is not None else operation.method_variant
            found = operations.samples(name, torch.float64, most)
            samples = [sample for sample in found if not deviates(torch.float64, sample)]
            yield name, theirs, operations.function(operation.name), samples


def of_functions(most: int) -> Iterator[Case]:
    """Those of minorm.functional."""
    listed = [info for name, info in operations.OPERATIONS.items() if info.supports_autograd]
    for info in listed:
        name = info.name.removeprefix("nn.functional.")
        if name not in test_samples.COMPARED or (name == info.name and name not in test_samples.BY_THEIR_OWN_NAME):
            continue
        refuses = test_samples.REFUSED.get(name, lambda sample: False)
        torch.manual_seed(0)
        samples = itertools.islice(info.sample_inputs_func(info, "cpu", torch.float64, True), most)
        fitting = [one for one in samples if not (refuses(one) or test_samples.drawn(name, one.kwargs))]
        yield f"F.{name}/{info.variant_test_name}".rstrip("/"), info.op, ours(name), fitting


def ours(name: str) -> Any:
    """Our function, called as PyTorch's samples call theirs."""
    function = getattr(mn.functional, name)
    if name.startswith("embedding"):
        return lambda weight, places, *args, **kwargs: function(places, weight, *args, **kwargs)
    if name in test_samples.FROM_PYTORCH:
        given = test_samples.FROM_PYTORCH[name]
        return lambda *args, **kwargs: function(
            *args, **{k: mn.nn.PairwiseDistance() if k == given and v else v for k, v in kwargs.items()}
        )
    return function


def compared(cases: Iterator[Case]) -> tuple[set[str], list[str]]:
    """The names whose second gradients agree, and what differs."""
    threads, agree, wrong = torch.get_num_threads(), set(), []
    torch.set_num_threads(1)
    try:
        for name, theirs, mine, samples in cases:
            count, found = 0, []
            for sample in samples:
                given = sample.input, sample.args, sample.kwargs
                setting = second_gradients.Setting(theirs, mine, given)
                more, texts = second_gradients.differences(setting, name, BOUNDS.get(name, 1e-8))
                count, found = count + more, found + texts
            wrong += found
            if count and not found:
                agree.add(name)
    finally:
        torch.set_num_threads(threads)
    return agree, wrong


@pytest.mark.filterwarnings("ignore")
def test_second_gradients_are_pytorchs_on_its_own_samples() -> None:
    agree, wrong = compared(iter([*of_tensors(FEW), *of_functions(FEW)]))
    assert not wrong, f"{len(wrong)} gradients differ:\n" + "\n".join(wrong[:30])
    assert len(agree) >= LEAST, f"{len(agree)} operations agree, expected {LEAST}"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("family", [of_tensors, of_functions])
def test_second_gradients_are_pytorchs_on_many_samples(family: Any) -> None:
    _, wrong = compared(family(MANY))
    assert not wrong, f"{len(wrong)} gradients differ:\n" + "\n".join(wrong[:30])


# Whole networks

NETWORKS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "images": (
        lambda nn: nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(8), nn.SiLU(), nn.MaxPool2d(2),
            nn.Conv2d(8, 8, 3, groups=4, padding=1), nn.GroupNorm(2, 8), nn.GELU(), nn.AvgPool2d(2), nn.Flatten(),
            nn.Linear(32, 3), nn.Softmax(1),
        ),
        (4, 3, 16, 16),
    ),
    "images made larger": (
        lambda nn: nn.Sequential(
            nn.ConvTranspose2d(3, 4, 3, stride=2, output_padding=1), nn.InstanceNorm2d(4, affine=True), nn.Tanh(),
            nn.Conv2d(4, 4, 3, dilation=2, padding=2, padding_mode="circular"), nn.Softplus(), nn.AdaptiveAvgPool2d(3),
        ),
        (2, 3, 6, 6),
    ),
    "volumes": (
        lambda nn: nn.Sequential(nn.Conv3d(1, 2, 2), nn.BatchNorm3d(2), nn.Sigmoid(), nn.MaxPool3d(2)), (2, 1, 5, 5, 5),
    ),
    "attention": (
        lambda nn: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True, activation="gelu"), (2, 5, 8),
    ),
    "lstm": (lambda nn: nn.LSTM(3, 4, bidirectional=True), (4, 2, 3)),
    "gru": (lambda nn: nn.GRU(3, 4, num_layers=2), (4, 2, 3)),
    "evaluation": (
        lambda nn: nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.SiLU(), nn.Flatten()).eval(), (2, 1, 5, 5),
    ),
}  # fmt: skip


def penalty(library: Any, model: Any, numbers: Any) -> list[Any]:
    """The gradient of sum(y^2) for the input, and that of its norm for the parameters."""
    x = library.tensor(numbers, requires_grad=True)
    y = model(x)
    y = y[0] if isinstance(y, tuple) else y
    (slope,) = library.autograd.grad((y * y).sum(), x, create_graph=True)
    parameters = list(model.parameters())
    found = library.autograd.grad(((slope**2).sum() + 1e-12) ** 0.5, parameters, allow_unused=True)
    arrays = [np.zeros(p.shape) if g is None else g.numpy() for p, g in zip(parameters, found, strict=True)]
    return [slope.detach().numpy(), *arrays]


@pytest.mark.parametrize("name", NETWORKS)
def test_penalties_on_the_gradients_of_networks_are_pytorchs(name: str, rng: np.random.Generator) -> None:
    build, shape = NETWORKS[name]
    mine, theirs = build(mn.nn).double(), build(torch.nn).double()
    theirs.load_state_dict({key: torch.tensor(np.array(value.numpy())) for key, value in mine.state_dict().items()})
    numbers = rng.standard_normal(shape)
    with second_gradients.sdpa_kernel(second_gradients.SDPBackend.MATH):
        expected = penalty(torch, theirs, numbers)
    for found, wanted in zip(penalty(mn, mine, numbers), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-8, atol=1e-9 * (1 + np.abs(wanted).max()))
