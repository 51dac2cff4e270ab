"""Calls that together use every kernel, at sizes that are odd, or one; compare their results on the CPU and
elsewhere."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import minorm as mn
import minorm.functional as F
from minorm import nn, optim
from minorm.devices import dtypes
from minorm.functional.norm import call_table
from minorm.kernels import select
from minorm.ops import special

CLOSE = {mn.float64: 1e-10, mn.float32: 3e-5, mn.float16: 5e-3, mn.bfloat16: 4e-2}
ACTIVATIONS = ["relu", "relu6", "leaky_relu", "hardswish", "sigmoid", "tanh", "silu", "elu", "gelu"]
OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "SGD": lambda p: optim.SGD(p, 0.1),
    "SGD with momentum": lambda p: optim.SGD(p, 0.1, momentum=0.9),
    "Nesterov": lambda p: optim.SGD(p, 0.1, momentum=0.9, nesterov=True),
    "Adam": lambda p: optim.Adam(p, 0.1),
    "Adam with peaks": lambda p: optim.Adam(p, 0.1, amsgrad=True),
}
Call = Callable[[], list[mn.Tensor]]


class Numbers:
    """Random Tensors of a type on a device, the same on each."""

    def __init__(self, dtype: Any, device: str) -> None:
        self.dtype, self.device, self.rng = dtype, device, np.random.default_rng(3)

    def __call__(self, *shape: int) -> mn.Tensor:
        return mn.tensor(self.rng.standard_normal(shape).astype(self.dtype), device=self.device, requires_grad=True)

    def images(self) -> dict[str, mn.Tensor]:
        """Return images of eight channels."""
        last = self(3, 5, 7, 8).detach().permute(0, 3, 1, 2)
        return {"one": self(1, 8, 1, 2), "some": self(6, 8, 3, 5), "vectors": self(41, 8), "channels last": last}


def both(function: Callable[..., mn.Tensor], *inputs: mn.Tensor) -> Call:
    """Return a call that gives the result and the gradients of all inputs."""

    def run() -> list[mn.Tensor]:
        y = function(*inputs)
        y.backward(y.detach() * 0.5 + 1)
        return [y, *(x.grad for x in inputs if x.grad is not None)]

    return run


def norms(numbers: Numbers) -> Iterator[tuple[str, Call]]:
    for shape in ((1, 1), (5, 33), (9, 64), (9, 600)):
        n = shape[1]
        inputs = numbers(*shape), numbers(n), numbers(n)
        yield f"layer_norm {shape}", both(lambda x, s, b, n=n: F.layer_norm(x, (n,), s, b, 0.1), *inputs)
        yield f"rms_norm {shape}", both(lambda x, s, n=n: F.rms_norm(x, (n,), s, 0.1), numbers(*shape), numbers(n))
    for name, x in numbers.images().items():
        running = [mn.full((8,), value, dtype=numbers.dtype, device=numbers.device) for value in (0.0, 1.0)]
        for way, training in (("training", True), ("evaluation", False)):
            norm = functools.partial(F.batch_norm, training=training, eps=0.1)
            inputs = x.detach().requires_grad_(), numbers(8), numbers(8)
            yield f"batch_norm, {way}, {name}", both(lambda x, s, b, f=norm, r=running: f(x, *r, s, b), *inputs)
        ended = functools.partial(F.batch_norm, training=True, eps=0.1, activation="relu")
        for lines in (0, 1):
            inputs = x.detach().requires_grad_(), numbers(8), numbers(8), *[x.detach().requires_grad_()] * lines
            call = both(lambda x, s, b, r=None, f=ended: f(x, None, None, s, b, residual=r), *inputs)
            yield f"batch_norm with a ReLU, {lines} residuals, {name}", call
        yield f"running statistics, {name}", lambda r=running: r
        if x.ndim > 2:
            inputs = x.detach().requires_grad_(), numbers(8), numbers(8)
            yield f"group_norm, {name}", both(lambda x, s, b: F.group_norm(x, 2, s, b, 0.1), *inputs)


def others(numbers: Numbers) -> Iterator[tuple[str, Call]]:
    for name in ACTIVATIONS:
        yield name, both(getattr(F, name), numbers(3, 13))
    yield "gelu by tanh", both(lambda x: F.gelu(x, approximate="tanh"), numbers(3, 13))
    yield "erf", both(special.Erf.apply, numbers(3, 13))
    for axis in (0, 1):
        yield f"softmax {axis}", both(lambda x, a=axis: F.softmax(x, a), numbers(5, 13))
        yield f"log_softmax {axis}", both(lambda x, a=axis: F.log_softmax(x, a), numbers(5, 13))
        yield f"sum {axis}", both(lambda x, a=axis: x.sum(a) + x.mean(a), numbers(5, 13))
    labels = mn.tensor(numbers.rng.integers(0, 13, 5), device=numbers.device)
    yield "cross_entropy", both(lambda x: F.cross_entropy(x, labels, label_smoothing=0.1), numbers(5, 13))
    yield "dropout", both(lambda x: seeded(F.dropout, x), numbers(9, 13))
    yield "uniform", lambda: [seeded(mn.rand, 9, 13, dtype=numbers.dtype, device=numbers.device)]
    yield "arithmetic", both(lambda a, b: (a + b) * a / 3 - a.mean(0), numbers(3, 5), numbers(3, 5))
    yield "casts", functools.partial(casts, numbers.images()["channels last"])
    last = numbers(2, 5, 7, 8).detach().permute(0, 3, 1, 2).requires_grad_()
    for order, x in {"odd": numbers(2, 3, 5, 7), "columns": numbers(2, 3, 4, 16), "channels last": last}.items():
        yield f"max_pool2d, {order}", both(lambda x: F.max_pool2d(x, 3, 2, 1), x)
        yield f"avg_pool2d, {order}", both(lambda x: F.avg_pool2d(x, 3, 2, 1), x)
        yield f"avg_pool2d of taps, {order}", both(lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False), x)
        yield f"max_pool2d of other windows, {order}", both(lambda x: F.max_pool2d(x, (3, 2), 2), x)
        yield f"avg_pool2d of other windows, {order}", both(lambda x: F.avg_pool2d(x, (3, 2), 2), x)
        yield f"adaptive_avg_pool2d, {order}", both(lambda x: F.adaptive_avg_pool2d(x, 1), x)
    images = numbers(2, 3, 5, 7), numbers(4, 3, 3, 3), numbers(4)
    yield "conv2d", both(lambda x, w, b: F.conv2d(x, w, b, 2, 1), *images)
    for name, make in OPTIMIZERS.items():
        for step in (stepped, captured):
            yield (
                f"{name}, {step.__name__}",
                functools.partial(step, make, nn.Parameter(numbers(7, 5).detach()), numbers(7, 5)),
            )
    yield "clipping", functools.partial(clipped, numbers(7, 5), numbers(3))
    yield "the backend", functools.partial(of_backend, numbers(5, 13), numbers(5, 13), labels)


def seeded(function: Callable[..., mn.Tensor], *args: Any, **options: Any) -> mn.Tensor:
    """Call the function with the same seed each time."""
    mn.manual_seed(3)
    return function(*args, **options)


def stepped(make: Callable[[Any], Any], p: nn.Parameter, gradient: mn.Tensor) -> list[mn.Tensor]:
    p.grad = gradient.detach()
    make([p]).step()
    return [p]


def captured(make: Callable[[Any], Any], p: nn.Parameter, gradient: mn.Tensor) -> list[mn.Tensor]:
    """Take a step eagerly, and another as a CUDA graph."""
    p.grad = gradient.detach()
    optimizer = make([p])
    optimizer.step()
    if p.device == "cpu":
        optimizer.step()
    else:
        graph = mn.cuda.CUDAGraph()
        with mn.cuda.graph(graph):
            optimizer.step()
        graph.replay()
    return [p]


def clipped(*gradients: mn.Tensor) -> list[mn.Tensor]:
    """Clip copies of the gradients by each norm and by value."""
    found = []
    for p in (1.0, 2.0, 3.0, float("inf"), None):
        parameters = [nn.Parameter(mn.zeros_like(gradient)) for gradient in gradients]
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient.detach().clone()
        if p is None:
            nn.utils.clip_grad_value_(parameters, 0.5)
        else:
            found.append(nn.utils.clip_grad_norm_(parameters, 0.5, p).reshape(1))
        found += [parameter.grad for parameter in parameters]
    return found


def casts(x: mn.Tensor) -> list[mn.Tensor]:
    """Cast to each other type and back, and between channels last and rows."""
    copying, found = select.backend(x.array).copying, []
    for other in CLOSE:
        rows = copying.full(x.shape, 0.5, other)
        copying.assign(rows, x.array)
        found += [mn.Tensor(copying.cast(copying.cast(x.array, other), x.dtype)), mn.Tensor(rows).to(x.dtype)]
    return [*found, x.contiguous() + x, x + x.contiguous()]


def of_backend(x: mn.Tensor, y: mn.Tensor, labels: mn.Tensor) -> list[mn.Tensor]:
    """Call a backend's functions that operations do not call, or not in 16 bits."""
    a, b = x.detach().array, y.detach().array
    backend = select.backend(a)
    maths, wide = backend.elementwise, dtypes.compute_type(a.dtype)
    losses, lse = maths.cross_entropy(a, labels.array)
    loss, count = maths.reduce_losses(losses, labels.array, -100, True, a.dtype)
    y = maths.log_softmax(a, dtype=wide)
    found = [
        losses.astype(a.dtype),
        loss.reshape(1),
        maths.cross_entropy_grad(losses, a, labels.array, lse, count=count),
        y.astype(a.dtype),
        maths.log_softmax_grad(y, y, dtype=a.dtype),
        maths.sub(a, b),
        maths.scale(a, 0.3),
    ]
    backend.update.scale([b], 0.7)
    return [mn.Tensor(array) for array in (*found, b)]


def calls(dtype: Any, device: str) -> Iterator[tuple[str, Call]]:
    """Yield calls that together use all kernels."""
    numbers = Numbers(dtype, device)
    yield from norms(numbers)
    yield from others(numbers)


def compare(dtype: Any, way: str) -> None:
    """Compare each call on the GPU with the CPU's own kernels."""
    for (name, here), (_, there) in zip(calls(dtype, "cpu"), calls(dtype, "cuda:0"), strict=True):
        for one, other in zip(here(), there(), strict=True):
            expected, found = (t.detach().cpu().numpy() for t in (one, other))
            assert found.dtype == expected.dtype == dtype
            expected, close = expected.astype(np.float64), CLOSE[dtype]
            bound = close * max(1.0, abs(expected).max())
            np.testing.assert_allclose(found.astype(np.float64), expected, close, bound, err_msg=f"{name}, {way}")


def by_chunks(norm: Any, monkeypatch: Any) -> None:
    """Cut rows into as many chunks as possible, however short they are, and let many threads merge them."""
    from minorm.kernels.gpu import softmax

    monkeypatch.setattr(softmax, "CHUNK", 2)
    monkeypatch.setattr(norm.norm_forward, "PACKS", 0)
    monkeypatch.setattr(norm.norm_backward, "PACKS", 0)
    monkeypatch.setattr(norm.norm_forward.norm_plan, "BATCH", 1)
    monkeypatch.setattr(norm.norm_forward.norm_plan, "SERIAL", 1)
    monkeypatch.setattr(norm.norm_forward.norm_cluster.cluster_plan, "FULL", 1 << 60)
    forget(norm)


def in_clusters(norm: Any, monkeypatch: Any, few: int = 500) -> None:
    """Keep every row in the shared memory of a cluster, if its nest allows it; `few` bytes or less in each block."""
    plan = norm.norm_forward.norm_cluster.cluster_plan
    for name, value in {"FULL": 1, "LONG": 0, "SHORT": 0, "FEW": few}.items():
        monkeypatch.setattr(plan, name, value)
    forget(norm)


def forget(norm: Any) -> None:
    """Clear the caches, so that plans are made anew."""
    call_table.calls.found.clear()  # which keep the plans of their calls
    for module in (norm, norm.norm_forward, norm.norm_backward):
        for function in vars(module).values():
            getattr(function, "cache_clear", int)()
