"""Which kernels the benchmark's operations launch, and how: found without a GPU, on the double of CuPy.

An operation runs forward and backward on arrays of the benchmark's shape. No kernel runs: each launch is only noted,
with its grid, its block and the bytes of the arrays that it reads and writes. Use a process for this alone, because
minorm keeps the kernels that it was given.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.gpu.cases import Case
from benchmarks.gpu.operations import PRODUCTS, Family

DOUBLES = Path(__file__).parents[2] / "tests" / "gpu" / "doubles"
FORWARD, BACKWARD = "forward", "backward"
PARAMETERS = 2**26  # of an optimizer
OPTIMIZERS = ("SGD with momentum", "AdamW")
UPDATES = {"sgd": (3, 2), "adam": (4, 3)}  # arrays that an optimizer reads and writes; a struct holds their addresses


class Launch(NamedTuple):
    """A launch of a kernel. The numbers of bytes count each array once."""

    way: str
    file: str
    kernel: str  # the instance, such as map_one<op::relu, float, float, 4, int>
    blocks: int
    threads: int  # of a block
    read: int
    written: int
    room: int = 0  # bytes of shared memory that the launch gives a block; asynchronous copies fill it


class Noted:
    """Replaces a kernel: a call notes the launch in the list."""

    def __init__(self, launches: list[Launch], way: Callable[[], str], file: str, kernel: str) -> None:
        self.launches, self.way, self.file, self.kernel = launches, way, file, kernel

    def __call__(self, grid: Any, block: Any, arguments: Any, shared_mem: int = 0) -> None:
        read, written = moved(self.file, self.kernel, arguments)
        sizes = int(np.prod(grid)), int(np.prod(block))
        self.launches.append(Launch(self.way(), self.file, self.kernel, *sizes, read, written, shared_mem))


def parameters(file: str, kernel: str) -> list[str]:
    """Return the declarations of a kernel's parameters, such as ["const T* x", "T* y", "I n"]."""
    from minorm.kernels.gpu.source import source

    bounds = r"(?:__\w+__\((?:[^()]|\([^()]*\))*\)\s+)*"  # __launch_bounds__(...), __cluster_dims__(...)
    found = re.search(rf"__global__ void {bounds}{kernel.partition('<')[0]}\(([^)]*)\)", source(file))
    assert found, f"{file} has no kernel {kernel}"
    return [" ".join(part.split()) for part in re.sub(r"<[^<>]*>", "", found[1]).split(",")]


def moved(file: str, kernel: str, arguments: Any) -> tuple[int, int]:
    """Return the bytes that a launch reads and writes: arrays of `const` parameters are read, the others written."""
    name, kind = kernel.replace(",", "<").split("<")[:2]
    if name in UPDATES:
        size = int(arguments[0].fields["size"].sum()) * _itemsize(kind)
        return UPDATES[name][0] * size, UPDATES[name][1] * size
    read: dict[int, int] = {}  # by address: some kernels get an array twice
    written: dict[int, int] = {}
    for declaration, argument in zip(parameters(file, kernel), arguments, strict=True):
        if "*" in declaration and getattr(argument, "nbytes", 0):
            given_back = name == "dropout" and "false" in kernel and "kept" in declaration
            kept = declaration.startswith("const") or given_back
            (read if kept else written)[argument.memory.ctypes.data] = argument.nbytes
    return sum(read.values()), sum(written.values())


def _itemsize(kind: str) -> int:
    from minorm.kernels.gpu.source import C_NAMES

    return next(dtype.itemsize for dtype, name in C_NAMES.items() if name == kind)


@contextlib.contextmanager
def recording(architecture: str) -> Iterator[Callable[[Callable[[], Any]], list[Launch]]]:
    """Put the double in CuPy's place; yield a function that runs a call with its backward pass and returns its
    launches. minorm chooses the kernels of the architecture, such as sm_90.

    Memory keeps what it holds, so that large arrays take none.
    """
    sys.path[:0] = [str(DOUBLES)]
    import cupy_cuda
    import cupy_double
    import cupy_functions

    launches: list[Launch] = []
    way = [FORWARD]
    cupy_double.poison = lambda memory: None
    cupy_cuda.alloc.__globals__["np"] = _Lazy()
    cupy_cuda.Device.compute_capability = architecture.removeprefix("sm_")
    with cupy_functions.installed():
        from minorm.kernels.gpu.program import Program
        from minorm.kernels.gpu.source import expression

        Program._compile = lambda self, key: Noted(  # type: ignore[method-assign]
            launches, lambda: way[0], self.name, expression(*key)
        )

        def run(call: Callable[[], Any]) -> list[Launch]:
            launches.clear()
            way[0] = FORWARD
            y = call()
            if y is not None:  # an optimizer's step gives nothing
                way[0] = BACKWARD
                y.backward(_like(y))
            return list(launches)

        yield run


class _Lazy:
    """NumPy, whose `full` gives memory that takes no room until it is written."""

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    @staticmethod
    def full(size: int, value: int, dtype: Any) -> Any:  # noqa: ARG004
        return np.empty(size, dtype)


def _empty(shape: tuple[int, ...], dtype: str, last: bool = False) -> Any:
    import minorm as mn

    if last and len(shape) == 4:
        return mn.empty(shape[0], *shape[2:], shape[1], dtype=dtype, device="cuda").permute(0, 3, 1, 2)
    return mn.empty(*shape, dtype=dtype, device="cuda")


def _like(y: Any) -> Any:
    """Return a gradient of y, in y's order of memory."""
    import minorm as mn

    return mn.Tensor(np.empty_like(y.detach().array))


def of_case(case: Case) -> Callable[[], Any]:
    """Return the call of a normalization, on empty arrays."""
    from benchmarks.gpu.cases import forward, width

    t = {name: _empty((width(case),), case.dtype) for name in ("scale", "bias", "mean", "var")}
    t["x"] = _empty(case.shape, case.dtype, case.last)
    for name in ("x", "scale", "bias"):
        t[name].requires_grad = True
    call: Callable[[], Any] = forward(case, t)
    return call


def of_family(family: Family, dtype: str, last: bool) -> Callable[[], Any]:
    """Return the call of another operation, on empty arrays."""
    import minorm.functional as F

    inputs = []
    for number, shape in enumerate(family.large):
        whole = bool(family.classes) and number == len(family.large) - 1
        x = _empty(shape, "int64" if whole else dtype, last)
        x.requires_grad = not whole
        inputs.append(x)
    return lambda: family.call(F, *inputs)


def of_optimizer(name: str, dtype: str) -> Callable[[], Any]:
    """Return the step of an optimizer for one large parameter."""
    from minorm import nn, optim

    p = nn.Parameter(_empty((PARAMETERS,), dtype))
    p.grad = _empty((PARAMETERS,), dtype)
    made: Any = optim.SGD([p], 0.1, momentum=0.9) if name == OPTIMIZERS[0] else optim.AdamW([p], 0.01)
    step: Callable[[], Any] = made.step
    return step


def is_measured(family: Family) -> bool:
    """Return whether the table has this family: products are libraries' kernels."""
    return bool(family.large) and family.name not in PRODUCTS
