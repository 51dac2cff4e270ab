"""The operations besides normalizations: each is compared with float64 on the CPU, and timed beside PyTorch's.

A family is one call of functions whose names and arguments minorm and PyTorch share. The CPU's results are tested
against formulas and PyTorch; here they say what a device should give for the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import minorm as mn
import minorm.functional as F
from benchmarks.gpu.agreement import BOUNDS, poison
from benchmarks.gpu.training import channels_last, stepping
from minorm import models, nn, optim

Shapes = tuple[tuple[int, ...], ...]
Passes = tuple[float, float] | Callable[[int], tuple[float, float]]  # or of the bytes of an element
NETWORK = 8, 3, 16  # images of a batch, their channels, their height and width
STEPS = 3
ROUNDINGS = 4  # of a result in its type: products, a bias, a sum over windows, three steps of an optimizer


class Family(NamedTuple):
    """An operation: `call` gets the module of functions, then one Tensor for each shape."""

    name: str
    call: Callable[..., Any]
    small: Shapes  # compared with the CPU; empty if the result is drawn, or rounded to another type
    large: Shapes = ()  # measured; empty if the speed does not matter
    passes: Passes | None = None  # how often the first input must move; None where arithmetic takes longer
    classes: int = 0  # where the last input holds whole numbers below this
    last: bool = False  # images have their channels last

    def floors(self, dtype: str) -> list[float]:
        """Return the bytes that must move forward and backward; an empty list where arithmetic takes longer."""
        if self.passes is None:
            return []
        itemsize = np.dtype(dtype).itemsize
        passes = self.passes(itemsize) if callable(self.passes) else self.passes
        return [times * int(np.prod(self.large[0])) * itemsize for times in passes]


def normalized_relu(f: Any, x: Any, scale: Any, bias: Any, residual: Any = None) -> Any:
    """BatchNorm, the sum with a residual and a ReLU: one pass in minorm, three operations in PyTorch."""
    if f is F:
        return F.batch_norm(x, None, None, scale, bias, True, activation="relu", residual=residual)
    y = f.batch_norm(x, None, None, scale, bias, True)
    return f.relu(y if residual is None else y + residual)


def convolution(f: Any, x: Any, w: Any, b: Any) -> Any:
    return f.conv2d(x, w, b, padding=1)


def cast(f: Any, x: Any) -> Any:  # noqa: ARG001  a method, in both libraries
    return x.float() if str(x.dtype).endswith(("bfloat16", "float16")) else x.bfloat16()


def pooling(last: bool) -> list[Family]:
    """Windows that leave nothing out. The place of each window's maximum is kept as an int32."""
    small, large = ((2, 3, 9, 7),), (IMAGES,)
    order = ", channels last" if last else ""
    return [
        Family(f"max_pool2d{order}", lambda f, x: f.max_pool2d(x, 3, 2, 1), small, large, largest, last=last),
        Family(f"max_pool2d 2x2{order}", lambda f, x: f.max_pool2d(x, 2), small, large, largest, last=last),
        Family(f"avg_pool2d{order}", lambda f, x: f.avg_pool2d(x, 3, 2, 1), small, large, (1.25, 1.25), last=last),
        Family(
            f"adaptive_avg_pool2d{order}", lambda f, x: f.adaptive_avg_pool2d(x, 1), small, large, (1, 1), last=last
        ),
    ]


def largest(size: int) -> tuple[float, float]:
    return 1.25 + 1 / size, 1.25 + 1 / size


VECTOR, ROWS, IMAGES = (2**26,), (2**16, 1024), (64, 64, 112, 112)
CONVOLUTION = ((2, 8, 9, 7), (12, 8, 3, 3), (12,)), ((64, 64, 56, 56), (64, 64, 3, 3), (64,))
PRODUCTS = ("conv2d", "conv2d, channels last", "linear")  # which are measured in TF32 too
FAMILIES = [
    Family("relu", lambda f, x: f.relu(x), ((3, 5, 7),), (VECTOR,), (2, 3)),
    Family("gelu", lambda f, x: f.gelu(x), ((3, 5, 7),), (VECTOR,), (2, 3)),
    Family("silu", lambda f, x: f.silu(x), ((1025,),)),
    Family("a * b", lambda f, a, b: a * b, ((5, 7), (5, 7)), (VECTOR, VECTOR), (3, 5)),
    Family("a * b, broadcast", lambda f, a, b: a * b, ((5, 7), (7,))),
    Family("softmax", lambda f, x: f.softmax(x, -1), ((33, 1001),), (ROWS,), (2, 3)),
    Family("softmax, long rows", lambda f, x: f.softmax(x, -1), ((3, 40_000),), ((1024, 65536),), (2, 3)),
    Family("softmax, columns", lambda f, x: f.softmax(x, 1), ((4, 37, 9),)),
    Family("log_softmax", lambda f, x: f.log_softmax(x, -1), ((33, 100),), (ROWS,), (2, 3)),
    Family("cross_entropy", lambda f, x, t: f.cross_entropy(x, t, label_smoothing=0.1),
           ((33, 1001), (33,)), (ROWS, ROWS[:1]), (1, 2), 1000),
    Family("batch_norm + relu", normalized_relu, ((6, 5, 9, 7), (5,), (5,)), (IMAGES, (64,), (64,)), (3, 7)),
    Family("batch_norm + residual + relu", normalized_relu,
           ((6, 5, 9, 7), (5,), (5,), (6, 5, 9, 7)), (IMAGES, (64,), (64,), IMAGES), (4, 7)),
    Family("sum of images", lambda f, x: x.sum((0, 2, 3)), ((6, 5, 9, 7),), (IMAGES,), (1, 1)),
    Family("mean of rows", lambda f, x: x.mean(1), ((33, 1001),), (ROWS,), (1, 1)),
    *pooling(False), *pooling(True),
    Family("dropout", lambda f, x: f.dropout(x, 0.5), (), (VECTOR,), lambda size: (2 + 1 / size, 2 + 1 / size)),
    Family("cast", cast, (), (VECTOR,), lambda size: (1.5, 1.5) if size > 2 else (3, 3)),
    Family("to channels last", lambda f, x: x.permute(0, 2, 3, 1).contiguous(), ((2, 3, 9, 7),), (IMAGES,), (2, 2)),
    Family("a bias of channels", lambda f, x, b: x + b.reshape(1, -1, 1, 1),
           ((2, 3, 9, 7), (3,)), (IMAGES, (64,)), (2, 1)),
    Family("conv2d", convolution, *CONVOLUTION),
    Family("conv2d, channels last", convolution, *CONVOLUTION, last=True),
    Family("conv2d, strides, groups", lambda f, x, w: f.conv2d(x, w, None, 2, 1, groups=4),
           ((2, 8, 9, 7), (12, 2, 3, 3))),
    Family("conv1d", lambda f, x, w, b: f.conv1d(x, w, b, dilation=2), ((2, 4, 31), (6, 4, 3), (6,))),
    Family("conv_transpose2d", lambda f, x, w, b: f.conv_transpose2d(x, w, b, 2, 1),
           ((2, 8, 5, 7), (8, 6, 3, 3), (6,))),
    Family("linear", lambda f, x, w, b: f.linear(x, w, b),
           ((33, 65), (17, 65), (17,)), ((2**14, 1024), (1024, 1024), (1024,))),
    Family("products of stacks", lambda f, a, b: a @ b, ((3, 5, 7), (3, 7, 4))),
    Family("x[places]", lambda f, x, places: x[places], ((50, 6), (200,)), classes=50),
]  # fmt: skip


def inputs(family: Family, shapes: Shapes, dtype: str) -> list[np.ndarray]:
    """Random arrays of these shapes."""
    rng = np.random.default_rng(1)
    arrays = [rng.standard_normal(shape).astype(dtype) for shape in shapes]
    if family.classes:
        arrays[-1] = rng.integers(0, family.classes, shapes[-1])
    return arrays


def spread(family: Family, dtype: str) -> list[mn.Tensor]:
    """Make the large inputs on the GPU: one block of random numbers repeats, as drawing more would take longer."""
    tensors = []
    for number, shape in enumerate(family.large):
        count, whole = int(np.prod(shape)), family.classes and number == len(family.large) - 1
        block = inputs(family, ((min(count, 1 << 20),),) * 2, dtype)[-1 if whole else 0]
        tensor = mn.tensor(block, device="cuda").repeat(-(-count // len(block)))[:count].reshape(*shape)
        if family.last and tensor.ndim == 4:
            tensor = channels_last(tensor)
        tensors.append(tensor if whole else tensor.requires_grad_())
    return tensors


def results(family: Family, arrays: list[np.ndarray], device: str, dtype: Any) -> list[np.ndarray]:
    """y and the gradients of all inputs that have one."""
    tensors = [mn.Tensor(a).to(device) if a.dtype.kind == "i" else mn.Tensor(a).to(dtype).to(device) for a in arrays]
    if family.last:
        tensors = [channels_last(t) if t.ndim == 4 else t for t in tensors]
    for tensor in tensors:
        tensor.requires_grad = tensor.dtype.kind != "i"
    y = family.call(F, *tensors)
    weights = np.random.default_rng(2).standard_normal(y.shape).astype(arrays[0].dtype)
    y.backward(mn.Tensor(weights).to(dtype).to(device))
    return [t.detach().cpu().numpy() for t in (y, *(t.grad for t in tensors if t.grad is not None))]


def trained(make: Callable[[Any], Any], dtype: Any, device: str) -> list[np.ndarray]:
    """Parameters of odd sizes after three steps of an optimizer, with their gradients clipped."""
    rng = np.random.default_rng(3)
    drawn = rng.standard_normal((2, 5000)).astype(np.float32)
    parameters = [nn.Parameter(mn.tensor(drawn[0, :n], dtype, device)) for n in (1, 7, 64, 4099)]
    optimizer = make(parameters)
    for _ in range(3):
        for p in parameters:
            p.grad = mn.tensor(drawn[1, : p.numel()], dtype, device)
        nn.utils.clip_grad_norm_(parameters, 50.0)
        optimizer.step()
    return [p.detach().cpu().numpy() for p in parameters]


OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "SGD": lambda p: optim.SGD(p, 0.1, momentum=0.9, weight_decay=1e-3, nesterov=True),
    "AdamW": lambda p: optim.AdamW(p, 0.01),
}


def network(device: str) -> list[np.ndarray]:
    """Return the losses of a few steps of ResNet-20, and its whole state afterwards."""
    mn.manual_seed(0)
    rng = np.random.default_rng(4)
    batch, channels, size = NETWORK
    images = mn.tensor(rng.standard_normal((batch, channels, size, size)), mn.float32)
    labels = mn.tensor(rng.integers(0, 10, batch))
    net = models.build("resnet20", channels, size, 10).to(device)
    step = stepping(net, optim.SGD(net.parameters(), 0.01, momentum=0.9), F, images.to(device), labels.to(device))
    losses = [step() for _ in range(STEPS)]
    return [np.array([loss.item() for loss in losses]), *(t.cpu().numpy() for t in net.state_dict().values())]


def judge(run: Callable[[str], list[np.ndarray]], exact: list[np.ndarray], bound: float) -> dict[str, Any]:
    """Run twice on the GPU, in poisoned memory; the worst error as a share of `bound`, and whether the bits repeat."""
    runs = []
    for _ in range(2):
        poison("cuda", 1 << 20)
        runs.append(run("cuda"))
    shares = [
        float(np.linalg.norm(one.astype(np.float64) - other) / max(1e-6, np.linalg.norm(other))) / bound
        for one, other in zip(runs[0], (e.astype(np.float64) for e in exact), strict=True)
    ]
    worst = max(share if np.isfinite(share) else float("inf") for share in shares)
    repeats = all(one.tobytes() == other.tobytes() for one, other in zip(*runs, strict=True))
    return {"share": worst, "repeats": repeats, "passed": worst <= 1 and repeats}


def family_parity(family: Family, dtype: str) -> dict[str, Any]:
    """A family's results and gradients in a type, against the CPU's in float64."""
    arrays = inputs(family, family.small, dtype)
    exact = results(family, [a if a.dtype.kind == "i" else a.astype(np.float64) for a in arrays], "cpu", mn.float64)
    return judge(lambda device: results(family, arrays, device, arrays[0].dtype), exact, ROUNDINGS * BOUNDS[dtype])


def optimizer_parity(name: str, dtype: str) -> dict[str, Any]:
    """Parameters after some steps of an optimizer in a type, against the CPU's in float64."""
    make, kind = OPTIMIZERS[name], np.dtype(dtype)
    exact = trained(make, mn.float64, "cpu")
    return judge(lambda device: trained(make, kind, device), exact, ROUNDINGS * BOUNDS[dtype])


def network_parity() -> dict[str, Any]:
    """Some steps of ResNet-20 in float32, against the CPU's."""
    return judge(network, network("cpu"), 1e-3)
