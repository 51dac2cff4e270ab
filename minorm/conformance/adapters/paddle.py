"""PaddlePaddle's functions. Translated: scale and bias of layer_norm are flat."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minorm.conformance.adapters import framework_layers as layers
from minorm.conformance.case import Case
from minorm.conformance.formula import trains_batch_norm


def answer(case: Case) -> list[Any]:
    """The outputs that are fetched."""
    import paddle

    paddle.set_device("cpu")
    call = layers.find(CALLS, case, "PaddlePaddle")
    with paddle.no_grad():
        given = [layers.to_tensor(lambda a, kind: paddle.to_tensor(a).astype(kind), array) for array in case.inputs]
        results = call(paddle.nn.functional, case, case.get("epsilon", 1e-5), *given)
    return [layers.to_array(results[place]) for place, _ in case.wanted]


def _batch_norm(functional: Any, case: Case, eps: float, x: Any, s: Any, b: Any, mean: Any, var: Any) -> list[Any]:
    y = functional.batch_norm(x, mean, var, s, b, trains_batch_norm(case), case.get("momentum", 0.9), eps)
    return [y, mean, var]


def _instance_norm(functional: Any, case: Case, eps: float, x: Any, s: Any, b: Any) -> list[Any]:  # noqa: ARG001
    return [functional.instance_norm(x, weight=s, bias=b, eps=eps)]


def _group_norm(functional: Any, case: Case, eps: float, x: Any, s: Any, b: Any) -> list[Any]:
    return [functional.group_norm(x, case.attributes["num_groups"], eps, s, b)]


def _layer_norm(functional: Any, case: Case, eps: float, x: Any, s: Any, b: Any = None) -> list[Any]:
    tail = [x.shape[axis] for axis in layers.axes_of(case)]
    return [functional.layer_norm(x, tail, s.reshape([-1]), None if b is None else b.reshape([-1]), eps)]


def _rms_norm(functional: Any, case: Case, eps: float, x: Any, s: Any) -> list[Any]:
    return [functional.rms_norm(x, [x.shape[axis] for axis in layers.axes_of(case)], s, eps)]


def _normalize(functional: Any, case: Case, eps: float, x: Any) -> list[Any]:  # noqa: ARG001  as the others
    return [functional.normalize(x, float(case.get("p", 2)), case.get("axis", -1))]


CALLS: dict[str, Callable[..., list[Any]]] = {
    "BatchNormalization": _batch_norm, "InstanceNormalization": _instance_norm, "GroupNormalization": _group_norm,
    "LayerNormalization": _layer_norm, "RMSNormalization": _rms_norm, "LpNormalization": _normalize,
}  # fmt: skip
