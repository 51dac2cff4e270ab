"""Reductions: over everything, an axis, several; kept or dropped; of floats, integers and bools."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from tests.pytorch.twins.comparing import KINDS, SHAPES, Twin, array
from tests.pytorch.twins.elementwise import function, method

SEVERAL = ("sum", "mean", "amax", "amin", "var", "std", "nansum", "nanmean")  # take several axes
ONE = ("max", "min", "argmax", "argmin")


def twins() -> Iterator[Twin]:
    """All of them."""
    for shape in SHAPES:
        for kind in KINDS:
            yield from _of(array(kind, shape), f"{kind} {shape}", kind)
        yield from _of(array("ties", shape).astype(np.int64), f"integers {shape}", "integers")
        yield from _of(array("ties", shape) > 0, f"bools {shape}", "bools")
    for kind, shape in product(KINDS, ((), (7,), (0,), (3, 5))):
        x = array(kind, shape)
        for other in (array("special", shape, 1), array(kind, shape, 1), x):
            for options in ({}, {"rtol": 0.5}, {"atol": 1.0}):
                yield Twin(
                    "allclose", f"{options}, {kind} {shape}", partial(function, "allclose", **options), (x, other)
                )


def _of(x: Any, what: str, kind: str) -> Iterator[Twin]:
    for name in (*SEVERAL, *ONE, "all", "any"):
        if kind in ("integers", "bools") and name in ("mean", "var", "std", "nanmean"):
            continue
        given: list[dict[str, Any]] = [{}]
        if name not in ("all", "any"):
            given += [{"dim": d, "keepdim": k} for d, k in product((0, -1, 1, 2), (False, True))]
        if name in SEVERAL:
            given += [{"dim": d, "keepdim": k} for d, k in product(((0, 1), (0, -1), (1,), (), (0, 0)), (False, True))]
        if name in ("var", "std"):
            given += [{"dim": d, "unbiased": False} for d in (None, 0, -1, (0, 1), ())]
        for options in given:
            spread = name in ("var", "std") and (np.isnan(x).any() or options.get("dim") == ())
            spread = spread or (name == "nanmean" and np.isnan(x).any())
            bools = name in ("argmax", "argmin") and kind == "bools"
            run = partial(method, name, **options)
            yield Twin(f"Tensor.{name}", f"{options}, {what}", run, (x,), summed=True, deviates=spread or bools)
    for name in ("sum", "mean", "argmax", "var"):
        if kind not in ("integers", "bools") or name in ("sum", "argmax"):
            for options in ({}, {"dim": 0, "keepdim": True}):
                run = partial(function, name, **options)
                deviates = (name, kind) in (("argmax", "bools"), ("var", "one NaN"), ("var", "special"))
                yield Twin(name, f"{options}, {what}", run, (x,), summed=True, deviates=deviates)
