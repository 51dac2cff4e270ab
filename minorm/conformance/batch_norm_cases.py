"""Make the cases of BatchNormalization. Only this operator has two modes, which its versions express differently."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from minorm.conformance.case import Case, draw
from minorm.devices.dtypes import bfloat16, float16, float32, float64

OPSETS = (1, 6, 7, 9, 14, 15)
OFFSETS = (1e2, 1e4, 1e6)
BATCH_NORM_OUTPUTS = ("y", "mean", "var", "saved_mean", "saved_var")  # from version 14 on, only the first three
CONSUMED = {"consumed_inputs": [0, 0, 0, 1, 1]}


def batch_norm_cases() -> Iterator[Case]:
    """Yield the cases of every version, for inference and training."""
    for opset in OPSETS:
        yield from inference(opset)
        yield from training(opset)


def build(
    opset: int,
    name: str,
    x: Any,
    trains: bool,
    *,
    types: Any = None,
    spatial: int | None = None,
    saved: bool = False,
    **more: Any,
) -> Case:
    """Build a case of BatchNormalization; the node says whether it `trains` in the way of the opset's version.

    types     (type of scale and B, type of the statistics), if these differ from the type of x
    spatial   None to leave the attribute out, so that its default of 1 applies; 0 for statistics of every position
    saved     True to fetch the batch's statistics too, which are outputs 4 and 5 in versions before 14
    """
    offset, held, fetched = more.pop("offset", 0.0), more.pop("held", ()), more.pop("fetched", None)
    shape = (1,) if x.ndim == 1 else x.shape[1:] if spatial == 0 else x.shape[1:2]
    t1, t2 = types or (x.dtype, x.dtype)
    inputs = more.pop("inputs", None) or (
        x,
        draw(shape, t1, seed="scale"),
        draw(shape, t1, seed="B"),
        draw(shape, t2, seed="mean", offset=offset),
        np.exp(draw(shape, float64, seed="var")).astype(t2),
    )
    given = {**(CONSUMED if opset == 1 else {}), **more}
    outputs: tuple[str, ...] = ("y",)
    if spatial is not None:
        given["spatial"] = spatial
    if trains:
        outputs = BATCH_NORM_OUTPUTS[: 5 if opset < 14 else 3]
        fetched = fetched or (None if saved else 3)
        if opset >= 14:
            given["training_mode"] = 1
    elif opset < 7:
        given["is_test"] = 1
    return Case("BatchNormalization", opset, name, inputs, given, outputs, fetched, held, offset)


def floats(opset: int) -> list[Any]:
    """Return the element types, other than float32, that BatchNormalization takes at this opset."""
    return [float64, float16, *[bfloat16] * (opset >= 14)]


def inference(opset: int) -> Iterator[Case]:
    """Yield cases that use the stored statistics; the batch's own statistics have no effect."""

    def case(name: str, x: Any, **more: Any) -> Case:
        return build(opset, f"inference, {name}", x, False, **more)

    yield case("float32", draw((4, 3, 5, 2)))
    for dtype in floats(opset):
        yield case(str(dtype), draw((4, 3, 5, 2), dtype))
    for offset in OFFSETS:
        yield case(f"offset {offset:.0e}", draw((4, 3, 5, 2), offset=offset), offset=offset)
    yield case("N = 1", draw((1, 3, 5, 2)))
    yield case("empty batch", draw((0, 3, 5, 2)))
    yield case("epsilon 1", draw((4, 3, 5, 2)), epsilon=1.0)
    x, *parameters = build(opset, "", draw((4, 3, 5, 2)), False).inputs
    yield case("epsilon 1e-12, variance 0", x, inputs=(x, *parameters[:3], np.zeros(3, np.float32)), epsilon=1e-12)
    if opset > 1:
        yield case("rank 2", draw((4, 3)))
        yield case("rank 5", draw((2, 3, 4, 3, 2)))
    if opset >= 9:
        yield case("rank 1", draw((7,)))
    if opset < 9:
        yield case("spatial 0", draw((4, 3, 5, 2)), spatial=0)
    if opset == 14:
        yield case("float16, statistics float32", draw((4, 3, 5, 2), float16), types=(float16, float32))
    if opset == 15:
        yield case("float16, the rest float32", draw((4, 3, 5, 2), float16), types=(float32, float32))
        yield case("bfloat16, the rest float32", draw((4, 3, 5, 2), bfloat16), types=(float32, float32))


def training(opset: int) -> Iterator[Case]:
    """Yield cases with the batch's statistics and updated running statistics."""

    def case(name: str, x: Any, **more: Any) -> Case:
        return build(opset, f"training, {name}", x, True, **more)

    yield case("float32", draw((4, 3, 5, 2)))
    for dtype in floats(opset):  # 0.5, as a float32 attribute cannot hold 0.9 exactly, and float64 shows that
        yield case(str(dtype), draw((4, 3, 5, 2), dtype), momentum=0.5)
    for offset in OFFSETS:
        yield case(f"offset {offset:.0e}", draw((4, 3, 8, 8), offset=offset), offset=offset)
    yield case("float16, offset 1e+02", draw((4, 3, 8, 8), float16, offset=100), offset=100.0)
    for momentum in (0.0, 0.5, 1.0):
        yield case(f"momentum {momentum:g}", draw((4, 3, 5, 2)), momentum=momentum)
    yield case("N = 1", draw((1, 3, 5, 2)))
    yield case("one value a channel", draw((1, 3, 1, 1)))
    yield case("equal values", np.full((4, 3, 5, 2), 12345.678, np.float32))
    yield case("empty batch", draw((0, 3, 5, 2)))
    yield case("epsilon 1", draw((4, 3, 5, 2)), epsilon=1.0)
    yield case("epsilon 0", draw((4, 3, 5, 2)), epsilon=0.0)
    yield case("epsilon 1e-12, values 1e-4", draw((4, 3, 5, 2)) * np.float32(1e-4), epsilon=1e-12)
    yield case("values 1e20", draw((4, 3, 5, 2)) * np.float32(1e20))
    yield case("y alone is fetched", draw((4, 3, 5, 2)), fetched=1)
    ones, zeros = np.ones(3, np.float32), np.zeros(3, np.float32)
    x = draw((4, 3, 5, 2))
    yield case(
        "a fresh layer, y alone is fetched", x, inputs=(x, ones, zeros, zeros, ones), held=(1, 2, 3, 4), fetched=1
    )
    if opset > 1:
        yield case("rank 2", draw((8, 3)))
        yield case("rank 5", draw((2, 3, 4, 3, 2)))
    if opset >= 9:
        yield case("rank 1", draw((7,)))
    if opset < 9:
        yield case("spatial 0", draw((6, 3, 5, 2)), spatial=0)
    if opset < 14:
        yield case("the batch's statistics", draw((4, 3, 5, 2)), saved=True)
    if opset == 14:
        yield case("float16, statistics float32", draw((4, 3, 5, 2), float16), types=(float16, float32))
    if opset == 15:
        yield case("float16, the rest float32", draw((4, 3, 5, 2), float16), types=(float32, float32))
        yield case("bfloat16, the rest float32", draw((4, 3, 5, 2), bfloat16), types=(float32, float32))
