"""Softmax, pooling, products and convolutions, normalizations: functions of windows, rows and channels."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from tests.pytorch.twins.comparing import KINDS, Twin, array
from tests.pytorch.twins.elementwise import function, functional, method, operation

FACTORS = [kind for kind in KINDS if kind not in ("huge", "special")]  # whose products do not overflow
FINITE = ("normal", "ties", "huge", "tiny", "zeros")

PLANES = {
    1: ((2, 3, 7), (1, 1, 1), (0, 2, 5), (1, 2, 4)),
    2: ((2, 3, 5, 7), (1, 1, 1, 1), (0, 2, 4, 4), (1, 2, 3, 1), (1, 1, 4, 4)),
    3: ((1, 2, 3, 4, 5), (1, 1, 1, 1, 1), (0, 1, 2, 2, 2), (2, 1, 3, 3, 3)),
}


def twins() -> Iterator[Twin]:
    """All of them."""
    yield from _softmax()
    yield from _pooling()
    yield from _products()
    yield from _convolutions()
    yield from _batch_norms()
    yield from _norms()
    yield from _responses()


def _softmax() -> Iterator[Twin]:
    shapes = ((), (1,), (7,), (0,), (3, 5), (4, 1), (0, 4), (4, 0), (2, 3, 5), (2, 0, 3), (33,))
    for name, dim, kind, shape in product(("softmax", "log_softmax"), (0, 1, -1, 2), KINDS, shapes):
        run = partial(functional, name, dim=dim)
        yield Twin(f"F.{name}", f"dim={dim}, {kind} {shape}", run, (array(kind, shape),), summed=True)


def _pooling() -> Iterator[Twin]:
    windows = product((1, 2, 3), (None, 1, 2, 3), (0, 1), (False, True))
    for (k, s, p, c), (rank, shapes) in product(windows, PLANES.items()):
        given: dict[str, Any] = {"kernel_size": k, "stride": s, "padding": p, "ceil_mode": c}
        calls: list[tuple[str, dict[str, Any]]] = [
            ("max_pool", {"return_indices": True}),
            ("max_pool", {"dilation": 2}),
            ("avg_pool", {}),
            ("avg_pool", {"count_include_pad": False}),
        ]
        calls += [("avg_pool", {"divisor_override": 3})] if rank > 1 else []
        for (name, more), shape, kind in product(calls, shapes, KINDS):
            if name == "max_pool" and not _all_meet(shape[2:], k, s, p, more.get("dilation", 1)):
                continue
            yield Twin(
                f"F.{name}{rank}d", f"{given | more}, {kind} {shape}",
                partial(functional, f"{name}{rank}d", **given, **more), (array(kind, shape),),
                summed=name == "avg_pool",
                deviates=f"{name}{rank}d" == "avg_pool3d" and min(shape[2:]) < k,
            )  # fmt: skip
    for rank, sizes in ((1, (1, 2, 3, 7, 9)), (2, (1, 2, 3, (2, 5), (None, 2), (7, 1)))):
        name = f"adaptive_avg_pool{rank}d"
        for size, shape, kind in product(sizes, PLANES[rank], KINDS):
            run = partial(functional, name, output_size=size)
            yield Twin(f"F.{name}", f"{size}, {kind} {shape}", run, (array(kind, shape),), summed=True)


def _all_meet(size: tuple[int, ...], kernel: int, stride: int | None, padding: int, dilation: int) -> bool:
    """Does every window meet an element? PyTorch's maximum of none stands outside x, and its backward writes there."""
    for n in size:
        starts = np.arange(0, n + 2 * padding, stride or kernel)[:, None]  # more than there are: ceil_mode
        places = starts[starts[:, 0] < n + padding] + np.arange(kernel) * dilation - padding
        if not ((places >= 0) & (places < n)).any(axis=1).all():
            return False
    return True


def _products() -> Iterator[Twin]:
    shapes = (
        ((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 2)), ((2, 3), (3, 4)), ((5, 2, 3), (3, 4)), ((5, 2, 3), (5, 3, 4)),
        ((1, 2, 3), (5, 3, 1)), ((0, 3), (3, 4)), ((2, 0), (0, 4)), ((2, 3), (3, 0)), ((0,), (0,)), ((1,), (1,)),
        ((0, 2, 3), (3, 4)), ((2, 1, 2, 3), (5, 3, 2)), ((2, 3), (2, 3)), ((), (3,)), ((17, 33), (33, 9)),
    )  # fmt: skip
    calls = {
        "matmul": partial(function, "matmul"),
        "Tensor.matmul": partial(method, "matmul"),
        "Tensor.__matmul__": partial(operation, "matmul"),
    }
    for (name, run), (a, b), kind in product(calls.items(), shapes, FACTORS):
        yield Twin(name, f"{kind} {a} {b}", run, (array(kind, a, 0), array(kind, b, 1)), summed=True)
    for x, w, kind in product(((2, 3), (3,), (0, 3), (2, 5, 3), (2, 4)), ((4, 3), (0, 3), (1, 3)), FACTORS):
        arrays = array(kind, x, 0), array(kind, w, 1), array("normal", w[:1], 2)
        for count in (2, 3):
            yield Twin(
                "F.linear", f"{count}, {kind} {x} {w}", partial(functional, "linear"), arrays[:count], summed=True
            )


def _convolutions() -> Iterator[Twin]:
    how = ((1, 0, 1), (2, 1, 1), (1, 2, 2), (3, 1, 2))
    for (rank, shapes), kernel, (stride, padding, dilation), groups in product(PLANES.items(), (1, 2, 3), how, (1, 2)):
        options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
        for shape, kind in product(shapes, FINITE if rank < 3 else FINITE[:2]):
            channels = shape[1]
            for name, weight, outputs in (
                (f"conv{rank}d", (4, max(1, channels // groups), *(kernel,) * rank), 4),
                (f"conv_transpose{rank}d", (channels, 2, *(kernel,) * rank), 2 * groups),
            ):
                arrays = array(kind, shape, 0), array("normal", weight, 1), array("normal", (outputs,), 2)
                yield Twin(
                    f"F.{name}", f"{options}, {kind} {shape} {weight}", partial(functional, name, **options), arrays,
                    summed=True, deviates=name > "conv_transpose1d" and shape[0] == 0,
                )  # fmt: skip


KINDS_OF_NORMS = ("normal", "ties", "constant", "zeros", "tiny", "one NaN", "one infinity", "two infinities")
INFINITE = ("one infinity", "two infinities")
SHAPES_OF_NORMS = ((4, 3), (2, 4, 5), (2, 4, 3, 5), (1, 2, 3), (0, 4, 3), (3, 1, 2), (1, 4), (2, 4, 1))


def _inputs() -> Iterator[tuple[str, str, float, tuple[Any, ...]]]:
    for kind, shape, eps, affine in product(KINDS_OF_NORMS, SHAPES_OF_NORMS, (1e-5, 0.1), (False, True)):
        c = shape[1:2]
        arrays = array(kind, shape), array("normal", c, 1), array("normal", c, 2)
        yield f"{kind} {shape}, eps={eps}, affine={affine}", kind, eps, arrays[: 3 if affine else 1]


def _batch_norms() -> Iterator[Twin]:
    for what, kind, eps, arrays in _inputs():
        c = arrays[0].shape[1:2]
        stats = array("normal", c, 3), abs(array("normal", c, 4)) + 0.5
        for how in ("training", "moving", "evaluation", "moving by default"):
            yield Twin(
                "F.batch_norm", f"{how}, {what}", partial(_batch_norm, how, eps, *stats), arrays, summed=True,
                deviates=how == "moving by default" or (how == "moving" and kind in INFINITE),
            )  # fmt: skip
        yield Twin(
            "F.instance_norm", what, partial(_instance_norm, eps), arrays, summed=True,
            deviates=arrays[0].shape[0] == 0 and len(arrays) > 1,
        )  # fmt: skip


def _batch_norm(how: str, eps: float, mean: Any, var: Any, lib: Any, x: Any, w: Any = None, b: Any = None) -> Any:
    """`moving` translates: minorm's momentum is 1 minus PyTorch's, its running variance is the population's."""
    if how == "training":
        return lib.F.batch_norm(x, None, None, w, b, training=True, eps=eps)
    mean, var = lib.tensor(mean), lib.tensor(var)
    options: dict[str, Any] = {}
    if how == "moving":
        minorms = {"momentum": 0.75, "unbiased_running_var": True, "update_nonfinite": True}
        options = minorms if hasattr(lib.m, "no_stats_update") else {"momentum": 0.25}
    return lib.F.batch_norm(x, mean, var, w, b, training=how != "evaluation", eps=eps, **options), mean, var


def _instance_norm(eps: float, lib: Any, x: Any, w: Any = None, b: Any = None) -> Any:
    return lib.F.instance_norm(x, weight=w, bias=b, eps=eps)


def _norms() -> Iterator[Twin]:
    for what, _, eps, arrays in _inputs():
        x = arrays[0]
        for groups in (1, 2, 3, x.shape[1]):
            yield Twin(
                "F.group_norm", f"{groups} groups, {what}", partial(_group_norm, groups, eps), arrays, summed=True,
                deviates=x.shape == (1, 4) and groups == 4,
            )  # fmt: skip
        for tail in (x.shape[-1:], x.shape[-2:]):
            some = (x, array("normal", tail, 1), array("normal", tail, 2))[: len(arrays)]
            yield Twin("F.layer_norm", f"{tail}, {what}", partial(_layer_norm, tail, eps), some, summed=True)
            yield Twin("F.rms_norm", f"{tail}, {what}", partial(_rms_norm, tail, eps), some[:2], summed=True)


def _group_norm(groups: int, eps: float, lib: Any, x: Any, w: Any = None, b: Any = None) -> Any:
    return lib.F.group_norm(x, groups, w, b, eps=eps)


def _layer_norm(tail: tuple[int, ...], eps: float, lib: Any, x: Any, w: Any = None, b: Any = None) -> Any:
    return lib.F.layer_norm(x, tail, w, b, eps=eps)


def _rms_norm(tail: tuple[int, ...], eps: float, lib: Any, x: Any, w: Any = None) -> Any:
    return lib.F.rms_norm(x, tail, w, eps=eps if eps > 0.01 else None)


def _responses() -> Iterator[Twin]:
    planes = ((2, 7, 3), (1, 1, 1), (0, 3, 2), (2, 3, 2, 3), (2, 4, 1, 1, 2))
    for kind, shape, size, options in product(
        KINDS, planes, (1, 2, 3, 5, 9), ({}, {"alpha": 0.5, "beta": 0.5, "k": 2.0})
    ):
        run = partial(functional, "local_response_norm", size=size, **options)
        yield Twin(
            "F.local_response_norm", f"{size}, {options}, {kind} {shape}", run, (array(kind, shape),), summed=True
        )
    shapes = ((2, 7, 3), (5,), (1, 1), (0, 3), (3, 0), (4, 2))
    for kind, shape, p, dim, eps in product(KINDS, shapes, (1.0, 2.0, 3.0, 1.5, 0.5), (0, 1, -1), (1e-12, 0.5, 0.0)):
        run = partial(functional, "normalize", p=p, dim=dim, eps=eps)
        yield Twin(
            "F.normalize", f"p={p}, dim={dim}, eps={eps}, {kind} {shape}", run, (array(kind, shape),), summed=True,
            deviates=p < 1 or kind in ("special", "huge", "tiny") or eps == 0,
        )  # fmt: skip
