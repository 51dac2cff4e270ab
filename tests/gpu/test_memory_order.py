"""Operations keep the order of memory on a GPU: images with channels last give results with channels last.

All public functionals and methods of a Tensor are tried with such images, with each of some arguments that they may
take; so are the gradients. And in training steps of networks nothing is brought into another order.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import cudnn_double
import numpy as np
import pytest

import minorm as mn
import minorm.functional as F
from benchmarks import networks
from minorm import models, nn, optim

SHAPE = (2, 4, 5, 6)
OPERATORS = {
    f"__{name}__"
    for prefix, names in (
        ("", "abs add eq floordiv ge gt le lt mod mul ne neg pow sub truediv"),
        ("i", "add mul sub truediv"),
        ("r", "add mul sub truediv"),
    )
    for name in (prefix + name for name in names.split())
}
OTHERWISE = {  # where the result lies otherwise, and why
    "argsort": "CuPy sorts along the last axis",
    "avg_pool3d": "four axes are one image of three: the last one lies first",
    "bernoulli": "numbers are drawn row by row, as on the CPU",
    "channel_shuffle": "channels are regrouped by a reshape, which goes row by row",
    "contiguous": "it asks for rows",
    "cuda": "it asks for another GPU",
    "lp_pool3d": "four axes are one image of three: the last one lies first",
    "max_pool3d": "four axes are one image of three: the last one lies first",
    "native_channel_shuffle": "channels are regrouped by a reshape, which goes row by row",
    "new_tensor": "it makes a tensor of a list or an array, in rows",
    "roll": "without an axis it goes over all elements, row by row",
    "scaled_dot_product_attention": "a product of matrices",
    "sort": "CuPy sorts along the last axis",
    "tile": "its gradient is added up row by row",
    "unique": "rows are sorted",
}


def images(seed: int, requires_grad: bool = False) -> mn.Tensor:
    """Images whose channels come last in memory."""
    rows = np.random.default_rng(seed).standard_normal([SHAPE[axis] for axis in (0, 2, 3, 1)], np.float32)
    return mn.tensor(rows).to("cuda").permute(0, 3, 1, 2).detach().requires_grad_(requires_grad)


def is_last(x: Any) -> bool:
    return bool(x.array.strides == tuple(x.array.itemsize * step for step in (120, 1, 24, 4)))


def arguments() -> Iterator[tuple[Any, ...]]:
    """Yield the arguments that a function of images may take besides them."""
    y, row, mean, var = images(1), *(mn.ones(4, device="cuda") for _ in range(3))
    yield from [(), (y,), (row.reshape(4, 1, 1),), (0.5,), (2,), (1,), (-1.0, 1.0), (1, 0), ((1, 1),), (3, 1, 1)]
    yield from [(y, y), (y > 0, y), (y > 0, 0.5)]
    yield from [(row, row), (None, None, row, row, True), (mean, var, row, row), (2, row, row)]


def results(function: Any, changes: bool) -> Iterator[tuple[Any, mn.Tensor, mn.Tensor]]:
    """(arguments, images, a result of their shape) for some of the arguments that the function takes."""
    taken = 0
    for given in arguments():
        if taken == 4:
            return
        x = images(0, requires_grad=not changes)
        mn.manual_seed(0)
        try:
            found = function(x, *given)
        except Exception:  # noqa: BLE001
            continue  # it takes others
        for y in found if isinstance(found, tuple) else (found,):
            if isinstance(y, mn.Tensor) and y.shape == SHAPE and y.device != "cpu":
                taken += 1
                yield given, x, y


def gone_astray(function: Any, changes: bool) -> list[str] | None:
    """Results and gradients that lie otherwise; None where the function has no result of the images' shape."""
    astray: list[str] | None = None
    for given, x, y in results(function, changes):
        astray = astray or []
        told = ", ".join("a Tensor" if isinstance(value, mn.Tensor) else repr(value) for value in given)
        if not is_last(y):
            astray.append(f"({told}): result")
        if y.requires_grad and y.dtype == x.dtype and y.device == x.device:
            y.backward(images(2).to(y.device))
            if x.grad is not None and not is_last(x.grad):
                astray.append(f"({told}): gradient")
    return astray


FUNCTIONALS = {name: getattr(F, name) for name in dir(F) if callable(getattr(F, name)) and not name.startswith("_")}
METHODS = {
    name: getattr(mn.Tensor, name)
    for name in dir(mn.Tensor)
    if callable(getattr(mn.Tensor, name)) and (not name.startswith("_") or name in OPERATORS)
}
PARTS = 9
CASTS = {"bfloat16", "bool", "byte", "double", "float", "half", "int", "long", "short"}  # whose argument is an order


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("part", range(PARTS))
def test_what_keeps_the_shape_keeps_the_order(part: int, cuda: Any) -> None:
    found = {}
    for name, function in [*FUNCTIONALS.items(), *METHODS.items()][part::PARTS]:
        changes = name.endswith("_") and (not name.startswith("__") or name.startswith("__i"))
        if name in CASTS:
            function = lambda x, of=function: of(x)  # noqa: E731
        found[name] = gone_astray(function, changes)
    assert {name: places for name, places in found.items() if places and name not in OTHERWISE} == {}
    tried = [name for name, places in found.items() if places is not None]
    assert len(tried) > len(found) / 3  # others take no images, or have results of another shape


def test_the_list_is_no_longer_than_it_needs_to_be(cuda: Any) -> None:
    for name in OTHERWISE:
        assert gone_astray(FUNCTIONALS.get(name) or METHODS[name], False), name


def test_joining_and_casting(cuda: Any) -> None:
    x, y = images(0, True), images(1, True)
    for joined in (mn.cat([x, y], 1), mn.cat([x, y], 0), F.pad(x, (1, 2, 0, 1))):
        steps = joined.array.strides
        assert steps[1] == 4
        assert steps[0] > steps[2] > steps[3] > 4
        joined.backward(joined.detach())
    assert is_last(x.grad)
    for dtype in (mn.bfloat16, mn.float16, mn.float64):
        assert is_last(x.to(dtype))
    x.grad = None
    larger = F.interpolate(x, scale_factor=2)
    assert larger.array.strides == (1920, 4, 192, 16)
    larger.backward(larger.detach())
    assert is_last(x.grad)
    with mn.autocast("cuda", dtype=mn.bfloat16):
        assert is_last(F.relu(x * 0.5 + 1))


@pytest.fixture
def cudnn(cuda: Any, monkeypatch: Any) -> Iterator[Any]:
    from minorm.kernels.gpu import conv_cudnn

    monkeypatch.setattr(conv_cudnn, "cudnn", cudnn_double)
    allowed = mn.backends.cudnn.allow_tf32
    conv_cudnn._call.cache_clear()
    yield cudnn_double
    conv_cudnn._call.cache_clear()
    mn.backends.cudnn.allow_tf32 = allowed


@pytest.mark.parametrize("how", ["float32 by TF32", "bfloat16"])
@pytest.mark.parametrize("name", ["resnet20", "unet", "densenet"])
def test_a_training_step_turns_no_images(name: str, how: str, cudnn: Any, cuda: Any) -> None:
    mn.manual_seed(0)
    mn.backends.cudnn.allow_tf32 = how != "bfloat16"
    model: Any = models.build(name, 3, 8, 10) if name == "resnet20" else getattr(networks, name)(mn)
    model = model.to("cuda")
    loss_function, optimizer = nn.CrossEntropyLoss(), optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    rng, batch = np.random.default_rng(0), 7  # no weights have a first axis of this length
    x = mn.tensor(rng.standard_normal((batch, 3, 8, 8), np.float32)).to("cuda").to(memory_format=mn.channels_last)
    labels = mn.tensor(rng.integers(0, 10, (batch, 8, 8) if name == "unet" else batch)).to("cuda")
    cuda.transfers.clear()
    with mn.autocast("cuda", dtype=mn.bfloat16) if how == "bfloat16" else contextlib.nullcontext():
        loss = loss_function(model(x), labels)
    loss.backward()
    optimizer.step()
    made = {"zeros", "zeros_like"}  # the optimizer's state, once
    assert set(cuda.transfers.launches) - made == {"cudnn", "gemm"} - ({"gemm"} if name == "unet" else set())
    assert [shape for shape in cuda.transfers.turned if shape[0] == batch] == []
    convolutions = sum(isinstance(module, (nn.Conv2d, nn.ConvTranspose2d)) for module in model.modules())
    weights = [shape for shape in cuda.transfers.turned if shape[0] != batch]
    assert len(weights) <= 2 * convolutions  # once forward, and their gradient once


def test_the_double_sees_what_is_turned(cuda: Any) -> None:
    x = images(0)
    cuda.transfers.clear()
    x.contiguous()
    assert cuda.transfers.turned == [SHAPE]  # by a kernel of ours
    x.array.copy()
    x.array.reshape(-1)
    x.array + x.array
    assert len(cuda.transfers.turned) == 5  # and by CuPy: a sum reads two
    cuda.transfers.clear()
    x + x
    x.clone()
    assert cuda.transfers.turned == []
