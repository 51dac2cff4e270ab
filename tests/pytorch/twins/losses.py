"""Losses, with every option; targets ignored, classes that weigh nothing, logits at the ends of the range."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from tests.pytorch.twins.comparing import KINDS, Twin, array, generator

REDUCTIONS = ("mean", "sum", "none")
LOGITS = ((4, 3), (3,), (0, 3), (2, 3, 5), (2, 3, 2, 2), (1, 1), (5, 1), (2, 3, 0))
WEIGHTS = {"none": None, "some": [0.5, 2.0, 1.25], "a zero": [0.0, 1.0, 2.0], "zeros": [0.0, 0.0, 0.0]}
BROKEN = ("special", "one NaN", "one infinity", "two infinities", "minus infinity")  # softmax of these may be NaN


def twins() -> Iterator[Twin]:
    """All of them."""
    yield from _labels()
    yield from _probabilities()
    yield from _numbers()
    yield from _logits()


def _loss(name: str, options: dict[str, Any], lib: Any, x: Any, target: Any, *factors: Any) -> Any:
    weight = {"weight": factors[0].detach()} if factors else {}  # minorm asks for one without a gradient
    return getattr(lib.F, name)(x, target, **weight, **options)


def _labels() -> Iterator[Twin]:
    calls: list[tuple[str, dict[str, Any]]] = [
        *[("nll_loss", {"ignore_index": i}) for i in (-100, 1)],
        *[
            ("cross_entropy", {"ignore_index": i, "label_smoothing": s})
            for i, s in ((-100, 0.0), (-100, 0.1), (1, 0.0), (-1, 1.0))
        ],
    ]
    for (name, given), shape, kind, (key, weight), ignored, reduction in product(
        calls, LOGITS, KINDS, WEIGHTS.items(), ("none", "some", "all"), REDUCTIONS
    ):
        axis = min(1, len(shape) - 1)
        labels = np.array(generator(shape).integers(0, shape[axis], shape[:axis] + shape[axis + 1 :]), np.int64)
        if ignored != "none":
            labels.reshape(-1)[:: 2 if ignored == "some" else 1] = given["ignore_index"]
        factors = [] if weight is None else [np.array(weight[: shape[axis]])]
        options = given | {"reduction": reduction}
        counted = labels[labels != given["ignore_index"]]
        weightless = weight is not None and counted.size > 0 and (np.array(weight)[counted] == 0).any()
        yield Twin(
            f"F.{name}", f"{options}, weights {key}, {ignored} ignored, {kind} {shape}", partial(_loss, name, options),
            (array(kind, shape), labels, *factors), summed=True,
            deviates=(weightless and (kind in BROKEN or (reduction == "mean" and not np.array(weight)[counted].any())))
            or (
                kind in BROKEN
                and name == "cross_entropy"
                and (counted.size < labels.size or given["label_smoothing"] == 1)
            ),
        )  # fmt: skip


def _probabilities() -> Iterator[Twin]:
    for shape, kind, (key, weight), reduction, smoothing in product(
        LOGITS, KINDS, WEIGHTS.items(), REDUCTIONS, (0.0, 0.2)
    ):
        classes = shape[min(1, len(shape) - 1)]
        target = abs(array("ties", shape, 1)) / 3
        factors = [] if weight is None else [np.array(weight[:classes])]
        options = {"reduction": reduction, "label_smoothing": smoothing}
        yield Twin(
            "F.cross_entropy", f"{options}, probabilities, weights {key}, {kind} {shape}",
            partial(_loss, "cross_entropy", options), (array(kind, shape), target, *factors), summed=True,
            deviates=kind in BROKEN,
        )  # fmt: skip


def _numbers() -> Iterator[Twin]:
    calls: list[tuple[str, dict[str, Any]]] = [("mse_loss", {}), ("l1_loss", {})]
    calls += [("smooth_l1_loss", {"beta": beta}) for beta in (1.0, 0.5, 0.0, 3.0)]
    for (name, given), reduction in product(calls, REDUCTIONS):
        options = given | {"reduction": reduction}
        run = partial(_loss, name, options)
        for kind, shape in product(KINDS, ((), (7,), (0,), (3, 5), (2, 3, 2))):
            x = array(kind, shape)
            for other in (array("normal", shape, 1), array(kind, shape, 1), array("special", shape, 1), x):
                yield Twin(f"F.{name}", f"{options}, {kind} {shape}", run, (x, other), summed=True)
        pair = array("normal", (4, 1)), array("normal", (4,))
        yield Twin(f"F.{name}", f"{options}, (4, 1) and (4,)", run, pair, summed=True, deviates=True)


def _logits() -> Iterator[Twin]:
    name = "binary_cross_entropy_with_logits"
    for kind, shape, reduction, factors in product(
        KINDS, ((), (7,), (0,), (3, 5)), REDUCTIONS, ((), ("weight",), ("pos_weight",), ("weight", "pos_weight"))
    ):
        given = {"weight": abs(array("ties", shape, 3)) + 0.25, "pos_weight": abs(array("ties", shape[-1:], 2))}
        run = partial(_binary, name, reduction, {key: given[key] for key in factors})
        arrays = array(kind, shape), abs(array("ties", shape, 1)) / 2
        yield Twin(f"F.{name}", f"{reduction}, {factors}, {kind} {shape}", run, arrays, summed=True)


def _binary(name: str, reduction: str, factors: dict[str, Any], lib: Any, x: Any, y: Any) -> Any:
    given = {key: lib.tensor(value) for key, value in factors.items()}
    return getattr(lib.F, name)(x, y, reduction=reduction, **given)
