"""Explain a normalization without computing it: its loops, the kernels' plan, and the memory that must be moved.

    print(mn.explain(F.group_norm, (8, 64, 56, 56), 8))

The function really runs, on arrays of the right shape whose memory is never touched. Its backend computes nothing, but
records the arguments that the kernels would get. So the explanation always shows the actual arguments.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from minorm import functional as family
from minorm.devices import dtypes
from minorm.diagnosis import explain_convolution
from minorm.graph.grad_mode import enable_grad
from minorm.kernels import cpu
from minorm.kernels.protocol import Statistics
from minorm.normalization.equation import Equation
from minorm.normalization.nest import Nest
from minorm.support.argument_errors import checked
from minorm.support.documented import documented
from minorm.tensor.tensor import Tensor

Array = Any
CACHE = 1_000_000  # bytes that most of today's processors keep in a core's own cache between two phases
FUNCTIONS = (
    family.batch_norm,
    family.instance_norm,
    family.group_norm,
    family.layer_norm,
    family.rms_norm,
    family.mean_variance_norm,
    family.normalization,
)
TENSORS = {"weight", "bias", "scale", "running_mean", "running_var", "residual"}
SCALES = ("weight", "scale")
STORES = {
    "cached": "into the cache",
    "nt_rows": "around the cache, the whole lines of each row",
    "nt_vectors": "around the cache, vector by vector",
    "nt_gathered": "around the cache, gathered from some rows",
}


@dataclass(frozen=True)
class Phase:
    """One pass over all of x.
    again  True if the previous phase has just read the same arrays, row by row, so that their rows may be in cache
    first  arrays that this phase reads but the previous phase has not read
    """

    name: str
    reads: tuple[str, ...]
    writes: tuple[str, ...] = ()
    again: bool = False
    first: tuple[str, ...] = ()


RELU_GRAD = Phase("relu", ("dy", "y"), ("dy",))


@dataclass(frozen=True, repr=False)
class Explanation:
    """How a call of a normalization will run: print the explanation, or read its attributes.

    nest          the loops over x, or over its copy if x is copied first
    plan          how the CPU kernels run the loops: the strategy, how work is divided, how results are stored
    equation      eps, centered and guard; None if the caller gives the statistics
    forward       the phases of the forward pass
    backward      the phases of the backward pass, if all inputs get gradients
    nbytes        the size of x in bytes
    row_bytes     the bytes of x and dy (and of y if there is an activation) that the first phase reads and that must
                  fit in the cache, so that the second phase can read them there
    stored        the type of x
    computed      the type in which the kernels compute
    copied        why x is copied first; None if x is not copied
    saved         how many more passes it would take to compute the activation and the addition of a residual separately
    """

    title: str
    nest: Nest
    plan: dict[str, Any]
    equation: Equation | None
    forward: tuple[Phase, ...]
    backward: tuple[Phase, ...]
    nbytes: int
    row_bytes: int
    stored: Any
    computed: Any
    copied: str | None
    saved: int

    @property
    def strategy(self) -> str:
        """One of "resident", "streamed" and "columns"; kernels/README.md says when each strategy is used, and why.

        The strategy is "reference" if minorm was built without kernels: then NumPy runs each operation over all of x.
        """
        return str(self.plan["strategy"])

    @property
    def in_cache(self) -> bool:
        """Whether a row that the first phase has read is still in cache when the second phase reads the row."""
        return self.row_bytes <= CACHE and self.strategy != "reference"

    @property
    def passes(self) -> int:
        """How many times an array of x's size must move between memory and processor.

        Both passes count: forward and backward.
        """
        return sum(
            len(phase.writes) + len(phase.first) + (0 if phase.again and self.in_cache else len(phase.reads))
            for phase in self.forward + self.backward
        )

    @property
    def floor(self) -> int:
        """passes * nbytes: the bytes that must move if x is much larger than the cache."""
        return self.passes * self.nbytes

    def __str__(self) -> str:
        lines = [self.title, *(f"  {line}" for line in str(self.nest).splitlines())]
        lines += [f"  {self.equation}" if self.equation is not None else "  statistics are given"]
        lines += [f"  x is copied first: {self.copied}"] if self.copied is not None else []
        lines += [f"  {'strategy':10}  {_strategy(self.plan)}"]
        if self.strategy != "reference":
            lines += [
                f"  {'cut':10}  {_division_of_work(self.plan)}",
                f"  {'results':10}  {STORES[self.plan['stores']]}",
            ]
        lines += [f"  {'computed':10}  in {self.computed}"] if self.computed != self.stored else []
        for name, phases in (("forward", self.forward), ("backward", self.backward)):
            for phase in phases:
                again = " again" if phase.again else ""
                again += f" and {_listed(phase.first)}" if phase.first else ""
                writes = f", writes {_listed(phase.writes)}" if phase.writes else ""
                lines.append(f"  {name:10}  {phase.name:8}reads {_listed(phase.reads)}{again}{writes}")
                name = ""
        if any(phase.again for phase in self.forward + self.backward):
            lines.append(f"  {'cache':10}  {self._cache()}")
        if self.saved:
            lines.append(f"  {'activation':10}  in the same passes: separate operations would take {self.saved} more")
        lines.append(f"  {'floor':10}  {self.passes} passes over {amount(self.nbytes)} = {amount(self.floor)}")
        return "\n".join(lines)

    __repr__ = __str__

    def _cache(self) -> str:
        """Say whether the second phase reads its numbers from cache or from memory, and why."""
        if self.strategy == "reference":
            return 'NumPy finishes each operation before the next, so "again" reads from memory'
        unit = "the columns of a tile take" if self.strategy == "columns" else "a row takes"
        more = f'more than {amount(CACHE)}, so "again" reads from memory'
        where = 'so "again" reads from cache' if self.in_cache else more
        which = "x, dy and y" if self.saved else "x and dy"
        return f"{unit} {amount(self.row_bytes)} of {which}, {where}"


@documented(
    {"shape": "the shape of x, a tuple"},
    function="one of the normalizations of minorm.functional, or conv1d, conv2d, conv3d",
    args="the function's positional arguments, with shapes in place of tensors",
    dtype="the element type of x",
    memory_format='"contiguous", or "channels_last", which lays x out as N, positions, C',
    options="the function's keyword arguments, with shapes in place of tensors. If weight or bias is not given, it "
    "has its usual shape; None leaves it out. batch_norm is in training mode unless training=False",
)
@checked
def explain(
    function: Callable[..., Tensor],
    shape: tuple[int, ...],
    *args: Any,
    dtype: Any = "float32",
    memory_format: str = "contiguous",
    **options: Any,
) -> Explanation | explain_convolution.ConvolutionExplanation:
    """Explain function(x, *args, **options) for x of this shape: the loops, the CPU kernels' plan, the memory floor.

    For a convolution, the result says how each sum is computed, such as by `winograd`, and how the work is divided.
    Nothing is computed, and memory is only reserved. Raises TypeError if the function cannot be explained, TypeError or
    ValueError if a shape is wrong, and the errors of the function itself.

    Example:
        >>> plan = mn.explain(F.layer_norm, (32, 768), 768)
        >>> plan.nbytes == 32 * 768 * 4, plan.passes
        (True, 5)
        >>> mn.explain(F.conv2d, (64, 32, 16, 16), (32, 32, 3, 3), padding=1).strategies["forward"]
        'winograd'
    """
    if function not in FUNCTIONS and function not in explain_convolution.FUNCTIONS:
        names = ", ".join("F." + known.__name__ for known in (*FUNCTIONS, *explain_convolution.FUNCTIONS))
        raise TypeError(f"explain: function is {getattr(function, '__name__', function)!r}; expected one of {names}")
    if memory_format not in ("contiguous", "channels_last"):
        raise ValueError(f"explain: memory_format={memory_format!r}; expected 'contiguous' or 'channels_last'")
    if not isinstance(shape, Iterable) or not all(hasattr(n, "__index__") for n in shape):
        raise TypeError(f"explain: shape is {shape!r}; expected a tuple of ints, x's shape")
    shape = tuple(shape)
    if any(n < 1 for n in shape):
        raise ValueError(f"explain: shape {shape} has no elements; expected every length to be at least 1")
    if function in explain_convolution.FUNCTIONS:
        return explain_convolution.explained(function, shape, args, dtypes.check(dtype), options)
    last = memory_format == "channels_last" and len(shape) > 2
    memory: Any = np.zeros((shape[0], *shape[2:], shape[1]) if last else shape, dtypes.check(dtype))
    x = Tensor(np.moveaxis(memory, -1, 1) if last else memory, requires_grad=True)
    arguments = _arguments(function, x, args, options)
    watch = _Watch(x.array)
    with enable_grad(), np.errstate(all="ignore"):  # the numbers have no meaning
        y = function(**arguments, backend=watch)
        forward = watch.take()
        y.backward(Tensor(np.empty_like(y.array)))
        backward = watch.take()
        if watch.equation is None and options.get("activation") is not None:  # statistics are given
            backward = (RELU_GRAD, *backward)
    nest: Any = watch.nest
    computed = watch.dtype or dtypes.compute_type(x.dtype)
    scale, bias = (any(arguments.get(name) is not None for name in names) for names in (SCALES, ("bias",)))
    found = cpu.norm.plan_of(nest, x.dtype, computed, scale, bias)
    together = found["together"] if found["strategy"] == "columns" else 1
    return Explanation(
        title=f"{function.__name__} of {'x'.join(map(str, shape))} {x.dtype}" + (", channels last" if last else ""),
        nest=nest,
        plan=found,
        equation=watch.equation,
        forward=forward,
        backward=backward,
        nbytes=x.array.nbytes,
        row_bytes=(3 if watch.saved else 2) * nest.columns * together * x.array.itemsize,
        stored=x.dtype,
        computed=computed,
        copied=watch.copied,
        saved=watch.saved,
    )


def amount(count: int) -> str:
    """Return a number of bytes with a unit: 12345678 becomes "12.3 MB"."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count} bytes"


def _strategy(plan: dict[str, Any]) -> str:
    """Return the name of the strategy, and whether the rows are short or long."""
    if plan["strategy"] == "reference":
        return "reference: there are no kernels, NumPy takes each operation over all of x"
    if plan["strategy"] == "columns":
        return "columns"
    return f"{plan['strategy']}: {'short' if plan['short'] else 'long'} rows, a parameter for {plan['parameters']}"


def _division_of_work(plan: dict[str, Any]) -> str:
    """Say how the work is divided: how many statistics or rows are computed together, and how many parts there are."""
    if plan["strategy"] == "columns":
        fold = f", {plan['fold']} columns for each" if plan["fold"] > 1 else ""
        wide = f", {plan['rows_at_once']} rows as one" if plan["rows_at_once"] > 1 else ""
        return f"{_count(plan['together'], 'statistic')} side by side{fold}{wide}, {_count(plan['parts'], 'part')}"
    if plan["short"]:
        return f"{_count(plan['together'], 'row')} together"
    return f"a row is {_count(plan['chunks'], 'chunk')} in {_count(plan['parts'], 'part')}"


def _listed(names: tuple[str, ...]) -> str:
    """Return the names as a list in words: ("dy", "y", "x") becomes "dy, y and x"."""
    return " and ".join(part for part in (", ".join(names[:-1]), names[-1]) if part)


def _count(number: int, unit: str) -> str:
    return f"{number} {unit}{'' if number == 1 else 's'}"


def _arguments(
    function: Callable[..., Tensor], x: Tensor, args: tuple[Any, ...], options: dict[str, Any]
) -> dict[str, Any]:
    """Return the function's arguments by name; shapes become tensors, and missing tensors get the usual shape."""
    signature = inspect.signature(function)
    given = signature.bind_partial(x, *args, **options).arguments
    if function is family.batch_norm:
        given.setdefault("training", True)
    evaluates = given.get("training") is False or given.get("use_input_stats") is False
    if "normalized_shape" in signature.parameters:
        usual = given.get("normalized_shape", ())
    else:
        usual = x.shape[1:2]
    for name in TENSORS & signature.parameters.keys():
        absent = (
            name in ("scale", "residual") or function is family.normalization or ("running" in name and not evaluates)
        )
        shape = given.get(name, None if absent else usual)
        if shape is not None:
            shape = (shape,) if type(shape) is int else shape
            if not isinstance(shape, Iterable) or not all(hasattr(n, "__index__") for n in shape):
                raise TypeError(f"explain: {name} is {shape!r}; expected a tuple of ints, its shape")
            given[name] = Tensor(np.zeros(tuple(shape), x.dtype), requires_grad="running" not in name)
        else:
            given[name] = None
    return given


class _Watch:
    """A backend (kernels/protocol.py) that computes nothing, but records the phases that real kernels would run."""

    activations: tuple[str, ...] = cpu.norm.activations

    def __init__(self, x: Array) -> None:
        self.x = x
        self.nest: Nest | None = None
        self.equation: Equation | None = None
        self.dtype: Any = None
        self.copied: str | None = None
        self.saved = 0
        self.phases: list[Phase] = []

    def take(self) -> tuple[Phase, ...]:
        """Return the phases that were recorded since the last call of `take`."""
        phases, self.phases = tuple(self.phases), []
        return phases

    def _note(self, nest: Nest, x: Array, *phases: Phase) -> None:
        self.nest = nest
        self.phases += phases
        if not np.may_share_memory(x, self.x):
            self.copied = "the memory order of x needs more loops than a kernel has"

    def forward(
        self,
        nest: Nest,
        x: Array,
        s: Array,  # noqa: ARG002
        b: Array,  # noqa: ARG002
        equation: Equation,
        dtype: Any = None,
        activation: str | None = None,
        residual: Array | None = None,
    ) -> tuple[Array, Statistics]:
        first, apart = self._followed(x, dtype, activation, residual)
        self._note(nest, x, Phase("moments", ("x",)), Phase("apply", ("x",), ("y",), again=True, first=first), *apart)
        self.equation, self.dtype = equation, dtype
        return np.empty_like(x), Statistics(np.ones((4, nest.rows)))

    def apply(
        self,
        nest: Nest,
        x: Array,
        *_: Any,
        dtype: Any = None,
        activation: str | None = None,
        residual: Array | None = None,
    ) -> Array:
        first, apart = self._followed(x, dtype, activation, residual)
        self._note(nest, x, Phase("apply", ("x", *first), ("y",)), *apart)
        return np.empty_like(x)

    def _followed(
        self, x: Array, dtype: Any, activation: str | None, residual: Array | None
    ) -> tuple[tuple[str, ...], tuple[Phase, ...]]:
        """Decide how an activation and the addition of a residual are computed.

        Return the arrays that the kernel adds in the pass that computes y, and the phases that need separate passes.
        """
        adds = () if residual is None else (Phase("add", ("y", "residual"), ("y",)),)
        own = () if activation is None else (*adds, Phase("relu", ("y",), ("y",)))
        if own and cpu.norm.is_one_pass(x, dtype):
            self.saved += 2 * len(own)  # each separate phase would read y and write it
            return ("residual",) if adds else (), ()
        return (), own

    def backward(
        self,
        nest: Nest,
        dy: Array,  # noqa: ARG002
        x: Array,
        *_: Any,
        dtype: Any = None,
        y: Array | None = None,
        dresidual: Array | None = None,
    ) -> tuple[Array, Array, Array]:
        together = y is not None and cpu.norm.is_one_pass(x, dtype)
        reads = ("dy", "y", "x") if together else ("dy", "x")
        writes = ("dx", "dresidual") if together and dresidual is not None else ("dx",)
        self.saved += 3 - len(writes) if together else 0  # a separate ReLU would write its gradient, to be read next
        first = () if y is None or together else (RELU_GRAD,)
        self._note(nest, x, *first, Phase("sums", reads), Phase("input", reads, writes, again=True))
        return np.empty_like(x), np.zeros(nest.param_size, x.dtype), np.zeros(nest.param_size, x.dtype)

    def grad_input(self, nest: Nest, dy: Array, x: Array, *_: Any) -> Array:  # noqa: ARG002
        self._note(nest, x, Phase("input", ("dy",), ("dx",)))
        return np.empty_like(x)

    def grad_params(self, nest: Nest, dy: Array, x: Array, *_: Any) -> tuple[Array, Array]:  # noqa: ARG002
        self._note(nest, x, Phase("sums", ("dy", "x")))
        return np.zeros(nest.param_size, x.dtype), np.zeros(nest.param_size, x.dtype)
