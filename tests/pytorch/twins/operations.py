"""PyTorch's own samples of its operations (OpInfo), called in both libraries: values, types, gradients, in place too.

A sample is compared in float64 with gradients, and in int64 and bool, where PyTorch has the operation for them, by
value alone. Tensors of a sample become Tensors of minorm with the same elements.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch.testing._internal.common_methods_invocations import op_db

import minorm as mn

RELATIVE = {"float64": 1e-9, "float32": 1e-6}
FIRST: dict[str, Any] = {  # what PyTorch's samples call otherwise than by the function of that name
    "where": mn.Tensor.where,
    "einsum": lambda tensors, equation: mn.einsum(equation, *tensors),
} | {
    name: getattr(mn.Tensor, name)
    for name in ("bfloat16", "bool", "double", "float", "half", "int", "long", "short", "trace")
}
OPERATIONS = {f"{op.name}/{op.variant_test_name}".rstrip("/"): op for op in op_db}
DTYPES = {getattr(torch, n): getattr(mn, n) for n in ("float16", "bfloat16", "float32", "float64", "bool", "uint8")}
DTYPES |= {getattr(torch, f"int{n}"): getattr(mn, f"int{n}") for n in (8, 16, 32, 64)}


def samples(name: str, dtype: Any, count: int) -> list[Any]:
    """At most `count` samples of an operation, spread evenly over all that PyTorch has; always the same."""
    operation = OPERATIONS[name]
    if dtype not in operation.supported_dtypes("cpu"):
        return []
    torch.manual_seed(0)
    grad = dtype.is_floating_point and operation.supports_autograd
    found = list(operation.sample_inputs_func(operation, "cpu", dtype, grad))  # sample_inputs notes a stack for each
    return [found[i] for i in sorted({round(i) for i in np.linspace(0, len(found) - 1, min(count, len(found)))})]


def ours(value: Any, made: dict[int, Any]) -> Any:
    """The same value for minorm; `made` remembers which Tensor stands for which, by id."""
    if isinstance(value, torch.Tensor):
        if id(value) not in made:
            elements = value.detach().double() if value.dtype == torch.bfloat16 else value.detach()
            made[id(value)] = mn.tensor(elements.numpy(), DTYPES[value.dtype], requires_grad=value.requires_grad)
        return made[id(value)]
    if isinstance(value, torch.dtype):
        return DTYPES[value]
    if isinstance(value, torch.Size):
        return tuple(value)
    if isinstance(value, (tuple, list)):
        return type(value)([ours(v, made) for v in value])
    if isinstance(value, dict):
        return {key: ours(v, made) for key, v in value.items()}
    return value


def tensors(value: Any, kind: Any) -> list[Any]:
    """The Tensors in a result or in arguments, in order."""
    if isinstance(value, kind):
        return [value]
    if isinstance(value, dict):
        return [x for v in value.values() for x in tensors(v, kind)]
    return [x for v in value for x in tensors(v, kind)] if isinstance(value, (tuple, list)) else []


def function(name: str) -> Callable[..., Any]:
    """minorm's function of this name, or the Tensor's method."""
    if name in FIRST:
        return FIRST[name]
    found: Any = getattr(mn, name, None) or getattr(mn.Tensor, name)
    return found.fget if isinstance(found, property) else found


def aliases(name: str) -> list[str]:
    """PyTorch's other names of an operation that minorm has, too."""
    found = [alias.name for alias in OPERATIONS[name].aliases]
    return [alias for alias in found if "." not in alias and (hasattr(mn, alias) or hasattr(mn.Tensor, alias))]


def compare(name: str, sample: Any, alias: str | None = None) -> Iterator[str]:
    """Yield the differences in words; nothing if the results agree. An alias is called instead of the name."""
    operation = OPERATIONS[name]
    theirs = operation.op if operation.op is not None else operation.method_variant
    yield from _compared(name, sample, theirs, function(alias or operation.name))


def compare_in_place(name: str, sample: Any) -> Iterator[str]:
    """The same of `name_`, on a result in the graph."""
    short = OPERATIONS[name].name
    change = getattr(torch.Tensor, f"{short}_", None)

    def changed(method: Any) -> Any:
        def run(x: Any, *args: Any, **kwargs: Any) -> Any:
            return method(x.clone(), *args, **kwargs)

        return run

    yield from _compared(f"{name}_", sample, changed(change), changed(getattr(mn.Tensor, f"{short}_")))


def _compared(name: str, sample: Any, theirs: Any, mine: Any) -> Iterator[str]:
    made: dict[int, Any] = {}
    given = (sample.input, sample.args, sample.kwargs)
    x, args, kwargs = (ours(v, made) for v in given)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            wanted = theirs(sample.input, *sample.args, **sample.kwargs)
    except Exception:  # noqa: BLE001  what PyTorch refuses is no sample of this form
        return
    setting = f"{name}({describe(given)})"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            got = mine(x, *args, **kwargs)
    except Exception as error:  # noqa: BLE001
        yield f"{setting}: {type(error).__name__}: {error}"
        return
    expected, found = tensors(wanted, torch.Tensor), tensors(got, mn.Tensor)
    if not expected:
        if got != wanted:
            yield f"{setting}: {got}, expected {wanted}"
        return
    if len(found) != len(expected):
        yield f"{setting}: {len(found)} results, expected {len(expected)}"
        return
    for i, (a, b) in enumerate(zip(found, expected, strict=True)):
        if a.shape != tuple(b.shape) or a.dtype != DTYPES[b.dtype]:
            yield f"{setting}: result {i} is {a.dtype}{a.shape}, expected {b.dtype}{tuple(b.shape)}"
        elif (difference := apart(a.double().numpy(), b.detach().double().numpy())) > RELATIVE.get(str(a.dtype), 0):
            yield f"{setting}: result {i} differs by {difference:.1e}"
    leaves = [v for v in tensors(list(given), torch.Tensor) if v.requires_grad]
    ends = [(a, b) for a, b in zip(found, expected, strict=True) if b.requires_grad]
    if not leaves or not ends:
        return
    torch.manual_seed(0)
    weights = [torch.randn(b.shape, dtype=b.dtype) for _, b in ends]
    gradients = torch.autograd.grad([b for _, b in ends], leaves, weights, allow_unused=True)
    if not all(a.requires_grad for a, _ in ends):
        if any(g is not None and g.any() for g in gradients):
            yield f"{setting}: a result does not require grad"
        return
    try:
        answer = mn.autograd.grad(
            [a for a, _ in ends], [made[id(v)] for v in leaves], [ours(w, {}) for w in weights], allow_unused=True
        )
    except Exception as error:  # noqa: BLE001
        yield f"{setting}: backward: {type(error).__name__}: {error}"
        return
    for i, (a, b) in enumerate(zip(answer, gradients, strict=True)):
        one = np.zeros(leaves[i].shape) if a is None else a.numpy()
        other = np.zeros(leaves[i].shape) if b is None else b.numpy()
        if (difference := apart(one, other)) > RELATIVE["float64"]:
            yield f"{setting}: gradient {i} differs by {difference:.1e}"


def apart(a: Any, b: Any) -> float:
    """The largest difference over the largest element, at least 1; infinite where NaN or infinities differ."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    finite = np.isfinite(b)
    if not np.array_equal(np.where(finite, 0, a), np.where(finite, 0, b), equal_nan=True):
        return np.inf
    if not np.isfinite(a[finite]).all():
        return np.inf
    scale = max(1.0, np.abs(b[finite]).max(initial=0))
    return float(np.abs(a[finite] - b[finite]).max(initial=0) / scale)


def describe(value: Any) -> str:
    """Arguments in few words."""
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype)[6:]}{list(value.shape)}"
    if isinstance(value, (tuple, list)):
        return ", ".join(map(describe, value))
    if isinstance(value, dict):
        return ", ".join(f"{k}={describe(v)}" for k, v in value.items())
    return str(value)
