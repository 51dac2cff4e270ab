"""Run cases on PaddlePaddle's functions; layer_norm gets scale and bias as vectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minorm.conformance.adapters import framework_layers as layers
from minorm.conformance.case import Case
from minorm.conformance.formula import trains_batch_norm


def answer(case: Case) -> list[Any]:
    """Run the case on PaddlePaddle; return the outputs that the case asks for."""
    import paddle

    with paddle.no_grad():
        return layers.fetched(case, forward(case, *layers.tensors(make_tensor, case)))


def make_tensor(array: Any, kind: str) -> Any:
    """Turn a NumPy array into a PaddlePaddle tensor."""
    import paddle

    paddle.set_device("cpu")
    return paddle.to_tensor(array).astype(kind)


def forward(case: Case, *given: Any) -> list[Any]:
    """Return y, and for a batch norm also its running statistics."""
    from paddle.nn import functional

    return layers.find(CALLS, case, "PaddlePaddle")(functional, case, case.get("epsilon", 1e-5), *given)


def _batch_norm(functional: Any, case: Case, eps: float, x: Any, s: Any, b: Any, mean: Any, var: Any) -> list[Any]:
    y = functional.batch_norm(x, mean, var, s, b, trains_batch_norm(case), case.get("momentum", 0.9), eps)
    return [y, mean, var]


def _layer_norm(functional: Any, case: Case, eps: float, x: Any, s: Any, b: Any = None) -> list[Any]:
    tail = [x.shape[axis] for axis in layers.axes_of(case)]
    return [functional.layer_norm(x, tail, s.reshape([-1]), None if b is None else b.reshape([-1]), eps)]


def _rms_norm(functional: Any, case: Case, eps: float, x: Any, s: Any) -> list[Any]:
    return [functional.rms_norm(x, [x.shape[axis] for axis in layers.axes_of(case)], s, eps)]


def _normalize(functional: Any, case: Case, eps: float, x: Any) -> list[Any]:  # noqa: ARG001  as the others
    return [functional.normalize(x, float(case.get("p", 2)), case.get("axis", -1))]


CALLS: dict[str, Callable[..., list[Any]]] = {
    "BatchNormalization": _batch_norm, "LayerNormalization": _layer_norm,
    "GroupNormalization": lambda calls, case, eps, x, s, b: [calls.group_norm(x, case.get("num_groups", 1), eps, s, b)],
    "InstanceNormalization": lambda calls, _, eps, x, s, b: [calls.instance_norm(x, None, None, s, b, eps=eps)],
    "RMSNormalization": _rms_norm, "LpNormalization": _normalize,
}  # fmt: skip
