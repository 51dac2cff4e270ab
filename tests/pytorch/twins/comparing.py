"""One call in minorm and in PyTorch: the same names, the same arrays, and results that must agree.

A twin is a call `run(lib, *tensors)` in which `lib` is either library, so the same code runs in both. Compared are the
shape, the type and the elements of every result, and of the gradient of every float input, element by element: NaN and
infinities must stand in the same places, the rest must agree to nine digits. Where one library refuses the call the
other has to refuse it too.
"""

from __future__ import annotations

import functools
import warnings
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

import minorm as mn

MINORM = SimpleNamespace(m=mn, F=mn.functional, tensor=lambda a, grad=False: mn.tensor(a, requires_grad=grad))
TORCH = SimpleNamespace(
    m=torch, F=torch.nn.functional, tensor=lambda a, grad=False: torch.tensor(a, requires_grad=grad)
)

RELATIVE = {"float64": 1e-9, "float32": 1e-6, "float16": 1e-3}
SMALLEST = 0.03  # of that, times the largest finite element, where terms of different size are added up


@dataclass(frozen=True, slots=True)
class Twin:
    """A call that both libraries know.

    name      the function: "Tensor.amax", "F.softmax", "cat"
    setting   what it is given, for the reader of a failure
    run       the call
    inputs    its arrays; gradients are asked for those of floats
    summed    results are sums, whose rounding errors are as large as their largest terms
    deviates  the two may differ here: DEVIATIONS says why
    """

    name: str
    setting: str
    run: Callable[..., Any]
    inputs: tuple[Any, ...]
    summed: bool = False
    deviates: bool = False

    def __str__(self) -> str:
        return f"{self.name}: {self.setting}"


class Refused:
    """The error that a library raised instead of a result."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __repr__(self) -> str:
        return f"{type(self.error).__name__}: {str(self.error)[:150]}"


def outcome(lib: Any, twin: Twin) -> Any:
    """Named arrays, values first and gradients after them; or the error."""
    tensors = [lib.tensor(a, a.dtype == np.float64) for a in twin.inputs]
    try:
        results = _flat(twin.run(lib, *tensors))
        found = {f"result {i}": _array(r) for i, r in enumerate(results)}
        for i, result in enumerate(results):
            if getattr(result, "requires_grad", False):
                y = found[f"result {i}"]
                weights = np.random.default_rng(i).uniform(0.5, 1.5, y.shape)
                result.backward(lib.tensor(np.array(weights, y.dtype)), retain_graph=True)
    except (ValueError, TypeError, RuntimeError, IndexError, OverflowError) as error:
        return Refused(error)
    for i, (x, array) in enumerate(zip(tensors, twin.inputs, strict=True)):
        if array.dtype == np.float64:  # no gradient is a gradient of zeros
            found[f"gradient {i}"] = np.zeros(array.shape) if x.grad is None else x.grad.numpy()
    return found


def _flat(result: Any) -> list[Any]:
    return [r for part in result for r in _flat(part)] if isinstance(result, (tuple, list)) else [result]


def _array(result: Any) -> Any:
    return np.array(result.detach().numpy() if hasattr(result, "detach") else result)


def differences(twin: Twin) -> tuple[int, list[str]]:
    """How many arrays were compared, and what is wrong with those that differ."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        ours, theirs = outcome(MINORM, twin), outcome(TORCH, twin)
    if isinstance(ours, Refused) or isinstance(theirs, Refused):
        both = isinstance(ours, Refused) and isinstance(theirs, Refused)
        return 1, [] if both else [f"minorm {_short(ours)}, PyTorch {_short(theirs)}"]
    if list(ours) != list(theirs):
        return 1, [f"minorm has {list(ours)}, PyTorch {list(theirs)}"]
    found = [(what, difference(ours[what], theirs[what], twin.summed)) for what in ours]
    return len(found), [f"{what} {wrong}" for what, wrong in found if wrong]


def _short(found: Any) -> str:
    return repr(found) if isinstance(found, Refused) else f"gives {[a.tolist() for a in found.values()]}"[:200]


def difference(ours: Any, theirs: Any, summed: bool) -> str:
    """Describe how two arrays differ; "" if they agree."""
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return f"is {ours.dtype}{ours.shape}, expected {theirs.dtype}{theirs.shape}"
    if ours.dtype.kind != "f":
        wrong = ours != theirs
    else:
        finite = np.isfinite(theirs)
        relative = RELATIVE[str(ours.dtype)]
        absolute = relative * SMALLEST * np.abs(theirs[finite]).max(initial=1) if summed else 1e-15
        with np.errstate(all="ignore"):
            close = np.abs(ours - theirs) <= relative * np.abs(theirs) + absolute
        wrong = ~np.where(finite, close, (ours == theirs) | (np.isnan(ours) & np.isnan(theirs)))
    if not wrong.any():
        return ""
    return f"has {ours[wrong][:4].tolist()}, expected {theirs[wrong][:4].tolist()}, in {wrong.sum()} of {wrong.size}"


# Inputs


def generator(*words: Any) -> np.random.Generator:
    """Random numbers that these words alone decide."""
    return np.random.default_rng(zlib.crc32(repr(words).encode()))


SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e300, -1e300, 1e-300, -1e-300, 1.0, -1.0, 0.5, 3.0, -3.0, 6.0, 2.0]

KINDS: dict[str, Callable[[Any, Any], Any]] = {
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "ties": lambda rng, shape: rng.integers(-2, 3, shape).astype(np.float64),
    "special": lambda rng, shape: rng.choice(SPECIAL, shape),
    "one NaN": lambda rng, shape: _with(rng, shape, [np.nan]),
    "one infinity": lambda rng, shape: _with(rng, shape, [np.inf]),
    "two infinities": lambda rng, shape: _with(rng, shape, [np.inf, -np.inf]),
    "minus infinity": lambda rng, shape: np.full(shape, -np.inf),
    "huge": lambda rng, shape: rng.standard_normal(shape) * 1e300,
    "tiny": lambda rng, shape: rng.standard_normal(shape) * 1e-300,
    "zeros": lambda rng, shape: rng.choice([0.0, -0.0], shape),
    "constant": lambda rng, shape: np.full(shape, 2.5),
}


def _with(rng: np.random.Generator, shape: Any, extras: list[float]) -> Any:
    x = np.array(rng.standard_normal(shape))
    places = rng.permutation(x.size)[: len(extras)]
    x.reshape(-1)[places] = extras[: len(places)]
    return x


@functools.lru_cache(maxsize=4096)
def array(kind: str, shape: tuple[int, ...], *seed: Any) -> Any:
    """An array of one of KINDS; the seed distinguishes the inputs of one call."""
    x = np.array(KINDS[kind](generator(kind, shape, *seed), shape))
    x.flags.writeable = False  # the same for all
    return x


SHAPES = ((), (1,), (7,), (0,), (3, 5), (1, 4), (4, 1), (0, 4), (4, 0), (2, 3, 5), (2, 0, 3), (1, 1, 1), (33,))
