"""PyTorch twins: networks that train alike, and functions that give the same numbers.

A network is one definition with the same weights: after three SGD steps loss, parameters and buffers are still
together. PyTorch's momentum 0.1 is minorm's 0.9; its running variance divides by N - 1 (`unbiased_running_var=True`).

Functions are all whose names minorm shares with PyTorch, each called in both with the same arrays
(tests/pytorch/twins): empty and odd ones, NaN, infinities, huge and tiny numbers. Values and gradients agree, but for
the DEVIATIONS.
"""

from __future__ import annotations

import importlib
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm import models

torch = pytest.importorskip("torch")

# Largest |difference| over max(1, max|value|) after three steps: rounding, grown by three steps and sqrt(var) near 0.
TOLERANCE = {"float64": 1e-9, "float32": 2e-4}


def conv_net(nn: Any) -> Any:
    """Strides, groups, average pooling, a BatchNorm that forgets faster."""
    momentum = {"momentum": 0.3 if nn is torch.nn else 0.7}
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1),
        nn.BatchNorm2d(8, **momentum),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, padding=1, groups=4),
        nn.BatchNorm2d(8, affine=False),
        nn.SiLU(),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(8 * 3 * 3, 10),
    )


def volume_net(nn: Any) -> Any:
    """Three spatial axes."""
    return nn.Sequential(
        nn.Conv3d(3, 4, 3, padding=1), nn.BatchNorm3d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 4 * 36, 10)
    )


def signal_net(nn: Any) -> Any:
    """One spatial axis, then vectors."""
    return nn.Sequential(
        nn.Conv1d(3, 6, 5, dilation=2, padding=4),
        nn.BatchNorm1d(6),
        nn.ReLU(),
        nn.MaxPool1d(2),
        nn.Flatten(),
        nn.Linear(6 * 8, 12),
        nn.BatchNorm1d(12),
        nn.Tanh(),
        nn.Linear(12, 10),
    )


def cumulative_net(nn: Any) -> Any:
    """momentum=None, the cumulative average, means the same in both."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 3),
        nn.BatchNorm2d(8, momentum=None),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 10),
    )


def tracked_instance_net(nn: Any) -> Any:
    """InstanceNorm with running statistics."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.InstanceNorm2d(8, affine=True, track_running_stats=True),
        nn.GELU(),
        nn.Flatten(),
        nn.Linear(8 * 144, 10),
    )


NETS = {
    "conv": (conv_net, (6, 3, 12, 12)),
    "volume": (volume_net, (4, 3, 4, 6, 6)),
    "signal": (signal_net, (8, 3, 16)),
    "cumulative": (cumulative_net, (6, 3, 12, 12)),
    "instance": (tracked_instance_net, (4, 3, 12, 12)),
    "digits": (models.digits_cnn, (8, 1, 8, 8)),
    "norms": (lambda nn: models.norms_cnn(nn, size=16), (4, 3, 16, 16)),
    "resnet20": (lambda nn: models.resnet20(nn, size=16), (8, 3, 16, 16)),
}


def twins(name: str, dtype: str) -> tuple[Any, Any, tuple[int, ...]]:
    """A minorm model and its PyTorch twin with the same weights."""
    definition, shape = NETS[name]
    mn.manual_seed(2)  # of some seeds a number of ResNet-20 lies so near a ReLU's 0 that rounding decides
    ours, theirs = definition(mn.nn), definition(torch.nn)
    for module in ours.modules():
        if hasattr(module, "unbiased_running_var"):
            module.unbiased_running_var = True
    ours.to(getattr(mn, dtype))
    theirs.to(getattr(torch, dtype))
    state = {key: torch.from_numpy(np.array(value.numpy())) for key, value in ours.state_dict().items()}
    theirs.load_state_dict(state)
    return ours, theirs, shape


def assert_close(ours: Any, theirs: Any, tolerance: float, what: str) -> None:
    difference = np.abs(np.asarray(ours, np.float64) - np.asarray(theirs, np.float64)).max(initial=0)
    assert difference <= tolerance * max(1, np.abs(theirs).max(initial=0)), f"{what} differs by {difference:.2e}"


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", NETS)
def test_three_steps_keep_the_twins_together(name: str, dtype: str, rng: np.random.Generator) -> None:
    ours, theirs, shape = twins(name, dtype)
    settings = {"lr": 0.01, "momentum": 0.9, "weight_decay": 1e-3}
    our_optimizer = mn.optim.SGD(ours.parameters(), **settings)
    their_optimizer = torch.optim.SGD(theirs.parameters(), **settings)
    for step in range(3):
        images, labels = rng.standard_normal(shape).astype(dtype), rng.integers(0, 10, shape[0])
        our_loss = mn.functional.cross_entropy(ours(mn.tensor(images)), mn.tensor(labels))
        their_loss = torch.nn.functional.cross_entropy(theirs(torch.from_numpy(images)), torch.from_numpy(labels))
        for optimizer, loss in ((our_optimizer, our_loss), (their_optimizer, their_loss)):
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        assert_close(our_loss.numpy(), their_loss.detach().numpy(), TOLERANCE[dtype], f"loss of step {step}")
    expected = {key: value.numpy() for key, value in theirs.state_dict().items()}
    state = ours.state_dict()
    assert list(state) == list(expected)
    for key, value in state.items():
        if not (name == "instance" and key.endswith("num_batches_tracked")):  # PyTorch's InstanceNorm never counts
            assert_close(value.numpy(), expected[key], TOLERANCE[dtype], key)
    images = rng.standard_normal(shape).astype(dtype)
    with torch.no_grad():
        wanted = theirs.eval()(torch.from_numpy(images)).numpy()
    assert_close(ours.eval()(mn.tensor(images)).numpy(), wanted, 10 * TOLERANCE[dtype], "logits in evaluation mode")


@pytest.mark.parametrize("optimizer", ["Adam", "AdamW"])
def test_adam_keeps_the_twins_together(optimizer: str, rng: np.random.Generator) -> None:
    ours, theirs, shape = twins("conv", "float64")
    pairs = [(ours, getattr(mn.optim, optimizer)), (theirs, getattr(torch.optim, optimizer))]
    optimizers = [make(model.parameters(), lr=0.01, weight_decay=0.1) for model, make in pairs]
    for _ in range(3):
        images, labels = rng.standard_normal(shape), rng.integers(0, 10, shape[0])
        losses = [
            mn.functional.cross_entropy(ours(mn.tensor(images)), mn.tensor(labels)),
            torch.nn.functional.cross_entropy(theirs(torch.from_numpy(images)), torch.from_numpy(labels)),
        ]
        for step, loss in zip(optimizers, losses, strict=True):
            step.zero_grad()
            loss.backward()
            step.step()
    for key, value in theirs.state_dict().items():
        if not (key.endswith("bias") and key.startswith(("0.", "3."))):  # its gradient is 0 but for rounding: Adam
            assert_close(ours.state_dict()[key].numpy(), value.numpy(), 1e-6, key)  # makes steps of lr from rounding


def test_weights_go_back_to_torch(rng: np.random.Generator) -> None:
    ours, theirs, shape = twins("digits", "float64")
    theirs(torch.from_numpy(rng.standard_normal(shape)))  # moves the running statistics
    ours.load_state_dict(theirs.state_dict())  # Tensors of torch are arrays to NumPy
    for key, value in theirs.state_dict().items():
        np.testing.assert_array_equal(ours.state_dict()[key].numpy(), value.numpy(), err_msg=key)


# Functions

FAMILIES = ("elementwise", "reductions", "shapes", "layers", "losses")  # modules of tests/pytorch/twins
SAMPLE = 60  # calls of a function that are made unless all are asked for
COUNT = 18_000  # comparisons of the sample, at least: it must not shrink unseen

# Where the two differ on purpose, and why. The table in docs/differences.md says the same.
DEVIATIONS = {
    "F.avg_pool3d": "a window larger than x is allowed if padding or ceil_mode makes room for it, as in one and two "
    "dimensions; PyTorch refuses it in three dimensions",
    "F.batch_norm": "momentum is the share of the old running value, and running_var is the variance of the "
    "population, as in ONNX. A batch whose statistics are not finite changes neither running value. With "
    "update_nonfinite=True it changes both, and an infinity makes the running mean of its channel NaN, like the "
    "output; PyTorch's running mean becomes infinite",
    "F.conv_transpose2d": "a result without positions is an error, even if the batch is empty",
    "F.conv_transpose3d": "a result without positions is an error, even if the batch is empty",
    "F.cross_entropy": "an ignored example has gradient 0, even if its logits are NaN or infinite; 0 * infinity is 0, "
    "so a class masked by -inf costs nothing if its weight is 0; if the weights sum to 0, the mean is NaN and its "
    "gradient is 0",
    "F.elu": "at NaN the gradient is passed on; in PyTorch this depends on the element's position in memory",
    "F.gelu": "with approximate='tanh' the slope far from 0 is its limit, 0 or 1; in PyTorch the cube overflows and "
    "the slope is NaN",
    "F.group_norm": "a group with one value is normalized to 0, as ONNX defines it; PyTorch refuses such groups if "
    "there is only one sample",
    "F.hardsigmoid": "the slope is 1/6 in float64; PyTorch's slope is 1/6 rounded to float32",
    "F.hardswish": "at NaN the gradient is passed on; in PyTorch this depends on the element's position in memory",
    "F.instance_norm": "an empty batch gives an empty result, with weights too; with weights PyTorch raises an "
    "IndexError",
    "F.l1_loss": "input and target do not broadcast, because (N, 1) and (N) would give N x N differences",
    "F.mse_loss": "input and target do not broadcast, because (N, 1) and (N) would give N x N differences",
    "F.nll_loss": "0 * infinity is 0 for a class of weight 0; if the weights sum to 0, the mean is NaN and its "
    "gradient is 0",
    "F.normalize": "p below 1 raises an error, because it gives no norm; powers do not overflow or vanish, because x "
    "is first divided by its largest absolute value; with eps=0 zeros stay zeros",
    "F.relu6": "at NaN the gradient is passed on; in PyTorch this depends on the element's position in memory",
    "F.smooth_l1_loss": "input and target do not broadcast, because (N, 1) and (N) would give N x N differences",
    "Tensor.__add__": "arithmetic with two tensors of different float types raises an error: precision never changes "
    "without your request",
    "Tensor.__getitem__": "an index out of range is an error, even if the result is empty",
    "Tensor.__rtruediv__": "n / x is computed as a division; PyTorch computes n * (1 / x), whose gradient overflows "
    "earlier",
    "Tensor.argmax": "accepts bools, and finds the first True",
    "Tensor.argmin": "accepts bools, and finds the first False",
    "Tensor.gather": "the index must have as many axes as x, even if the index is empty or x has no axes",
    "Tensor.mT": "a tensor without axes raises an error, because it is not a matrix; PyTorch only warns",
    "Tensor.nanmean": "if all elements are NaN, the gradient is 0; PyTorch's gradient is NaN",
    "Tensor.numpy": "works on a tensor that requires grad",
    "Tensor.std": "with dim=() the gradient is computed over all elements; PyTorch computes it as if there were one "
    "element. If x is a single NaN, the gradient is NaN; PyTorch's gradient is infinite",
    "Tensor.var": "with dim=() the gradient is computed over all elements; PyTorch computes it as if there were one "
    "element. If x is a single NaN, the gradient is NaN; PyTorch's gradient is infinite",
    "arange": "if step leads away from end, the result is empty, as in ONNX's Range; PyTorch raises an error",
    "argmax": "accepts bools, and finds the first True",
    "cat": "the axes of an empty tensor must fit, too; PyTorch accepts shape (0,) with any shape",
    "scatter_reduce": "with include_self=False the elements that are equal to the maximum or minimum share its "
    "gradient; PyTorch also counts x's element if it is equal",
    "var": "if x is a single NaN, the gradient is NaN; PyTorch's gradient is infinite",
}

# Shared names without values to compare, or whose values are random or compared by name elsewhere.
ELSEWHERE = {
    "data", "device", "dtype", "grad", "is_cuda", "is_leaf", "requires_grad",  # what a Tensor is: test_tensor.py
    "Tensor", "backward", "requires_grad_", "retain_grad", "cuda", "enable_grad", "is_grad_enabled", "no_grad",
    "add_", "clamp_", "clip_", "copy_", "div_", "fill_", "mul_", "sub_", "zero_",  # in place: test_in_place.py
    "get_autocast_dtype", "is_autocast_enabled",  # amp/test_casting.py
    "__rmatmul__",  # an array @ a Tensor: test_tensor.py
    "load", "save", "manual_seed", "get_num_threads", "set_num_threads",
    "BoolTensor", "ByteTensor", "DoubleTensor", "FloatTensor", "HalfTensor", "IntTensor", "LongTensor", "ShortTensor",
    "autocast", "compile", "set_float32_matmul_precision", "use_deterministic_algorithms",
    "finfo", "iinfo",  # test_places.py
    *" ".join(mn.functional.LATER.values()).split(),  # test_samples.py
}  # fmt: skip


def calls(family: str) -> dict[str, list[Any]]:
    """The twins of a family by the name of their function."""
    found = defaultdict(list)
    for twin in importlib.import_module(f"tests.pytorch.twins.{family}").twins():
        found[twin.name].append(twin)
    return found


@pytest.fixture(scope="module")
def every_call() -> dict[str, list[Any]]:
    """All twins by the name of their function."""
    found: dict[str, list[Any]] = {}
    for family in FAMILIES:
        for name, twins in calls(family).items():
            found[name] = found.get(name, []) + twins
    return found


def compare(twins: list[Any]) -> tuple[int, list[str], set[str]]:
    """How many arrays were compared, what differs against expectation, and which functions as expected."""
    from tests.pytorch.twins.comparing import differences

    threads, count, wrong, deviating = torch.get_num_threads(), 0, [], set()
    torch.set_num_threads(1)
    try:
        for twin in twins:
            compared, found = differences(twin)
            count += compared
            if found and twin.deviates:
                deviating.add(twin.name)
            elif found:
                wrong.append(f"{twin}: {'; '.join(found)}")
    finally:
        torch.set_num_threads(threads)
    return count, wrong, deviating


def test_values_and_gradients_are_pytorchs(every_call: dict[str, list[Any]]) -> None:
    rng = np.random.default_rng(0)
    sample = [twins[i] for twins in every_call.values() for i in sorted(rng.permutation(len(twins))[:SAMPLE])]
    count, wrong, _ = compare(sample)
    assert not wrong, f"{len(wrong)} of {count} comparisons differ:\n" + "\n".join(wrong[:20])
    assert count >= COUNT, f"{count} comparisons, expected {COUNT}"


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_all_values_and_gradients_are_pytorchs(family: str) -> None:
    found = calls(family)
    count, wrong, deviating = compare([twin for twins in found.values() for twin in twins])
    assert not wrong, f"{len(wrong)} of {count} comparisons differ:\n" + "\n".join(wrong[:20])
    assert deviating == DEVIATIONS.keys() & found.keys(), "a deviation that is none any more"


def test_the_deviations_and_no_others_are_marked_and_deviate(every_call: dict[str, list[Any]]) -> None:
    marked = {name: [twin for twin in twins if twin.deviates] for name, twins in every_call.items()}
    marked = {name: twins for name, twins in marked.items() if twins}
    assert marked.keys() == DEVIATIONS.keys()
    some = [twin for twins in marked.values() for twin in twins[:: max(1, len(twins) // 40)]]
    assert compare(some)[2] == DEVIATIONS.keys()


def test_every_shared_name_is_compared(every_call: dict[str, list[Any]]) -> None:
    """Each shared name is compared here, on PyTorch's own samples (test_names.py), or in a separate test."""
    sampled = pytest.importorskip("tests.pytorch.test_names", exc_type=ImportError)
    elsewhere = ELSEWHERE | sampled.names_compared()
    operators = re.compile(r"__(r?(add|sub|mul|truediv|pow|matmul)|neg|abs|[lgn][te]|[lg]e|eq|getitem|len|iter)__")
    for prefix, ours, theirs in (
        ("", mn, torch), ("F.", mn.functional, torch.nn.functional), ("Tensor.", mn.Tensor, torch.Tensor)
    ):  # fmt: skip
        shared = {n for n in dir(ours) if hasattr(theirs, n) and callable(getattr(ours, n))} - elsewhere
        values = {prefix + n for n in shared if operators.fullmatch(n) or not n.startswith("_")}
        assert values <= every_call.keys(), f"no twins of {sorted(values - every_call.keys())}"


def test_the_documentation_lists_the_deviations() -> None:
    text = (Path(__file__).parents[2] / "docs" / "differences.md").read_text(encoding="utf-8")
    section = re.split(r"^## ", text, flags=re.MULTILINE)
    table = next(part for part in section if part.startswith("Deviations\n"))
    rows = re.findall(r"^\| `([^`]+)` \| (.+) \|$", table, flags=re.MULTILINE)
    assert [(name, reason.replace("`", "")) for name, reason in rows] == list(DEVIATIONS.items())
