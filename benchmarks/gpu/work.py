"""The cases that run on a GPU, the most important first.

A family is a name and its cases: the name of each, and a function that gives a line of figures. A worker runs one
family (worker.py), the supervisor one after the other (__main__.py).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import minorm as mn
import minorm.functional as F
from benchmarks.gpu import agreement, device_timing, operations, training
from benchmarks.gpu.cases import LARGE, QUICK, SMALL, TYPES, Case, arrays, cases, forward, peer, spread, tensors
from benchmarks.gpu.device_timing import both_ways, copies, copy_rate, microseconds
from benchmarks.gpu.operations import FAMILIES, OPTIMIZERS, PRODUCTS, Family

Run = Callable[[], dict[str, Any]]
TINY = (("layer", (32, 64)), ("rms", (32, 64)), ("batch", (8, 16, 4, 4)), ("group", (8, 16, 4, 4)))


def torch_with_gpu() -> Any:
    """Return PyTorch if it is installed and can use the GPU; it has no kernels to compile first."""
    return None if device_timing.WARMING else _torch()


@functools.cache
def _torch() -> Any:
    try:
        import torch
    except ImportError:
        return None
    return torch if torch.cuda.is_available() else None


def families(quick: bool = False) -> dict[str, list[tuple[str, Run]]]:
    """The cases of each family, by its name; in a quick run fewer of some."""
    found: dict[str, list[tuple[str, Run]]] = {"copy": [("1 GiB", lambda: {"bytes a second": copy_rate()})]}
    for dtype in TYPES[:2]:
        found[f"parity {dtype}"] = list(parity(dtype))
    networks = [network for network in training.NETWORKS if network.quick or not quick]
    found["training"] = [
        (network.title(kind), functools.partial(train, network, kind))
        for network in networks
        for kind in training.TYPES
    ]
    for dtype in TYPES[:2]:
        found[f"speed {dtype}"] = list(speed(dtype, QUICK if quick else LARGE))
    found["speed TF32"] = [
        case for family in FAMILIES if family.name in PRODUCTS for case in family_case(family, "float32", "TF32")
    ]
    found["overhead"] = [(str(Case(*tiny, "float32")), functools.partial(overhead, *tiny)) for tiny in TINY]
    found["compile"] = [
        (network.title(kind), functools.partial(compile_and_train, network, kind))
        for network in networks
        for kind in training.TYPES[:0:-1]
    ]
    for dtype in TYPES[2:]:
        found[f"parity {dtype}"] = list(parity(dtype))
        found[f"speed {dtype}"] = list(speed(dtype, LARGE))
    return found


def parity(dtype: str) -> Iterator[tuple[str, Run]]:
    """Is each result right, in poisoned memory, and the same twice? Normalizations against formulas, else the CPU."""
    for case in cases(SMALL, (dtype,)):
        yield str(case), functools.partial(normalization_parity, case)
    for family in FAMILIES:
        if family.small:
            yield f"{family.name} {dtype}", functools.partial(operations.family_parity, family, dtype)
    for name in OPTIMIZERS:
        yield f"{name} {dtype}", functools.partial(operations.optimizer_parity, name, dtype)
    if dtype == "float32":
        yield "steps of ResNet-20", operations.network_parity


def normalization_parity(case: Case) -> dict[str, Any]:
    verdict = agreement.judge(case)
    return {"worst": verdict.worst, "share": verdict.share, "repeats": verdict.repeats, "passed": verdict.passed}


def speed(dtype: str, table: Any) -> Iterator[tuple[str, Run]]:
    """Milliseconds of each operation on large tensors, and the bytes that must move at least, forward and backward."""
    for case in cases(table, (dtype,)):
        yield str(case), functools.partial(normalization_speed, case)
    for family in FAMILIES:
        yield from family_case(family, dtype, dtype)


def family_case(family: Family, dtype: str, kind: str) -> Iterator[tuple[str, Run]]:
    """Measure a family that has large shapes; return nothing for the others."""
    if family.large:
        name = f"{family.name} {'x'.join(map(str, family.large[0]))} {kind}"
        yield name, functools.partial(family_speed, family, dtype, kind)


def normalization_speed(case: Case) -> dict[str, Any]:
    torch = torch_with_gpu()
    ours = [spread(case) for _ in range(copies(case.bytes))]
    leaves = [[t[name] for name in ("x", "scale", "bias")] for t in ours]
    found: dict[str, Any] = {"floors": [passes * case.bytes for passes in case.passes]}
    found |= both_ways("minorm", [forward(case, t) for t in ours], leaves)
    if torch is not None:
        theirs = [{name: torch.from_dlpack(value.detach()) for name, value in t.items()} for t in ours]
        leaves = [[t[name].requires_grad_(True) for name in ("x", "scale", "bias")] for t in theirs]
        found |= both_ways("torch", [peer(case, t) for t in theirs], leaves)
    return found


def family_speed(family: Family, dtype: str, kind: str) -> dict[str, Any]:
    torch = torch_with_gpu()
    size = int(np.prod(family.large[0])) * np.dtype(dtype).itemsize
    ours = [operations.spread(family, dtype) for _ in range(copies(size))]
    floors = family.floors(dtype)
    found: dict[str, Any] = {"floors": floors} if floors else {}
    with training.precision(mn, kind):
        found |= both_ways("minorm", [lambda t=t: family.call(F, *t) for t in ours], ours)
    if torch is not None:
        theirs = [[torch.from_dlpack(t.detach()).requires_grad_(t.requires_grad) for t in inputs] for inputs in ours]
        functions = torch.nn.functional
        with training.precision(torch, kind):
            found |= both_ways("torch", [lambda t=t: family.call(functions, *t) for t in theirs], theirs)
    return found


def train(network: training.Network, kind: str) -> dict[str, Any]:
    """Measure the milliseconds of a step, of minorm and of PyTorch."""
    torch = torch_with_gpu()
    found: dict[str, Any] = training.with_minorm(network, kind)
    if torch is not None:
        found |= training.with_torch(torch, network, kind)
    return found


def compile_and_train(network: training.Network, kind: str) -> dict[str, Any]:
    """Measure the same with torch.compile, which takes half a minute to compile."""
    torch = torch_with_gpu()
    if torch is None:
        return {}
    return dict(training.compiled(torch, network, kind))


def overhead(op: str, shape: tuple[int, ...]) -> dict[str, Any]:
    """Microseconds of a small operation from Python, without waiting for the device."""
    torch = torch_with_gpu()
    case = Case(op, shape, "float32")
    t = tensors(arrays(case), "cuda")
    found = {"minorm": microseconds(forward(case, t))}
    if torch is not None:
        found["torch"] = microseconds(peer(case, {name: torch.from_dlpack(v.detach()) for name, v in t.items()}))
    return found
