"""Asks oracles what a node computes: onnx's ReferenceEvaluator, onnxruntime, minorm. In lab 11 they disagree.

A case is one node with its numbers, as a dict that can be sent: operator, opset, inputs, attributes, outputs.
onnxruntime answers in a separate process, because some models crash it. The oracles import the onnx package only when
they answer, so that other labs do not need this package.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from minorm.labs import suspects
from minorm.tensor.creation import tensor

Case = dict[str, Any]
ELEMENTS = 1000  # more than enough to show a bug
KINDS: dict[str, dict[str, type]] = {
    "LpNormalization": {"axis": int, "p": int},
    "LRN": {"size": int, "alpha": float, "beta": float, "bias": float},
    "MeanVarianceNormalization": {"axes": list},
    "BatchNormalization": {"epsilon": float, "momentum": float, "training_mode": int},
    "GroupNormalization": {"epsilon": float, "num_groups": int, "stash_type": int},
}


class NoAnswer(Exception):
    """Raised if the oracle refused the case or crashed on it."""

    def __init__(self, message: str, crashed: bool = False) -> None:
        super().__init__(message)
        self.crashed = crashed


def case(operator: str, opset: int, *inputs: Any, outputs: Sequence[str] = ("y",), **attributes: Any) -> Case:
    """Make a node: case("LRN", 13, x, size=3). Inputs become float32, but arrays of float16 keep their type."""
    kinds = [np.float16 if getattr(v, "dtype", None) == np.float16 else np.float32 for v in inputs]
    arrays = [np.asarray(v, kind) for v, kind in zip(inputs, kinds, strict=True)]
    return {
        "operator": operator,
        "opset": opset,
        "inputs": arrays,
        "attributes": attributes,
        "outputs": list(outputs),
    }


def size(found: Mapping[str, Any]) -> int:
    """Return the number of elements in all inputs of a case."""
    return int(sum(np.size(array) for array in found["inputs"]))


def suspect(name: str) -> Callable[[Case], list[Any]]:
    """Return one of the implementations "A" to "F", each with a planted bug, as a function of a case.

    Variants of the lab have the implementations "A2" to "F2" or "A3" to "F3". Each implementation takes cases of one
    operator.
    """
    return lambda found: suspects.run(name, found)


def model(found: Mapping[str, Any]) -> Any:
    """Return the case as a ModelProto; raise ValueError if the oracles cannot take the case."""
    from onnx import helper

    checked(found)
    arrays = found["inputs"]
    names = [f"x{place}" for place in range(len(arrays))]
    node = helper.make_node(found["operator"], names, list(found["outputs"]), **found["attributes"])
    kinds = [helper.np_dtype_to_tensor_dtype(array.dtype) for array in arrays]
    graph = helper.make_graph(
        [node],
        "case",
        [helper.make_tensor_value_info(*each) for each in zip(names, kinds, [a.shape for a in arrays], strict=True)],
        [
            helper.make_tensor_value_info(name, kinds[0], arrays[0].shape if place == 0 else arrays[-1].shape)
            for place, name in enumerate(found["outputs"])
            if name
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", found["opset"])], ir_version=10)


def check(found: Mapping[str, Any]) -> None:
    """Run the onnx package's checker on the case; raise the checker's error if the case is invalid."""
    importlib.import_module("onnx.checker").check_model(model(found))


def checked(found: Any) -> None:
    """Raise ValueError unless the case is a small node of a known operator whose attributes have the right types."""
    keys = {"operator", "opset", "inputs", "attributes", "outputs"}
    if not isinstance(found, dict) or set(found) != keys:
        raise ValueError(f"expected a case with {', '.join(sorted(keys))}, as oracles.case makes it")
    known = KINDS.get(found["operator"]) if isinstance(found["operator"], str) else None
    if known is None:
        raise ValueError(f"operator {found['operator']!r}; expected one of {', '.join(KINDS)}")
    if type(found["opset"]) is not int or not 7 <= found["opset"] <= 22:
        raise ValueError(f"opset {found['opset']!r}; expected 7 to 22, the opsets that all oracles support")
    arrays, outputs, attributes = found["inputs"], found["outputs"], found["attributes"]
    if not isinstance(arrays, (list, tuple)) or not arrays or not all(_is_floats(array) for array in arrays):
        raise ValueError("inputs: expected a list of arrays of float16, float32 or float64")
    if not 1 <= size(found) <= ELEMENTS or max(np.ndim(array) for array in arrays) > 5:
        raise ValueError(f"{size(found)} elements; expected 1 to {ELEMENTS}, in at most 5 axes")
    if not all(np.isfinite(array).all() for array in arrays):
        raise ValueError("inputs hold NaN or infinity")
    if not isinstance(outputs, (list, tuple)) or not all(isinstance(name, str) for name in outputs) or not outputs[:5]:
        raise ValueError("outputs: expected a list of names")
    if not isinstance(attributes, dict):
        raise ValueError("attributes: expected a dict")
    for name, value in attributes.items():
        _attribute(found["operator"], known, name, value)


def reference(found: Mapping[str, Any]) -> list[Any]:
    """Return the answer of onnx's ReferenceEvaluator."""
    proto = model(found)
    evaluation = importlib.import_module("onnx.reference").ReferenceEvaluator
    try:
        with np.errstate(all="ignore"):
            return [np.asarray(value) for value in evaluation(proto).run(None, _feeds(found))]
    except Exception as error:  # noqa: BLE001  whatever it says, it is no answer
        raise NoAnswer(f"{type(error).__name__}: {error}"[:200]) from None


def runtime(found: Mapping[str, Any]) -> list[Any]:
    """Return onnxruntime's answer."""
    sandbox = importlib.import_module("minorm.onnx.checking.sandbox")
    answer = sandbox.ask(model(found), _feeds(found), checker="", seconds=60.0)
    if answer.outputs is None:
        stages = [stage for stage in answer.stages.values() if not stage.passed]
        text = stages[-1].text if stages else "no answer"
        raise NoAnswer(text[:200], "crashed" in text)
    return list(answer.outputs)[: len([name for name in found["outputs"] if name])]


def minorm(found: Mapping[str, Any]) -> list[Any]:
    """Return minorm's answer."""
    loading = importlib.import_module("minorm.onnx")
    try:
        with np.errstate(all="ignore"):
            answer = loading.load(model(found))(*[tensor(array) for array in found["inputs"]])
    except Exception as error:  # noqa: BLE001  whatever it says, it is no answer
        raise NoAnswer(f"{type(error).__name__}: {error}"[:200]) from None
    return [value.numpy() for value in (answer if isinstance(answer, tuple) else (answer,))]


def formula(found: Mapping[str, Any]) -> list[Any]:
    """Compute the result in float64 by lab 10's formulas, for BatchNormalization 7 to 15 and GroupNormalization."""
    said = found["attributes"]
    x, s, b, *running = (np.asarray(array, np.float64) for array in found["inputs"])
    eps = said.get("epsilon", 1e-5)
    if found["operator"] == "GroupNormalization":
        rows = x.reshape(len(x), said["num_groups"], -1)
        xhat = (rows - rows.mean(-1, keepdims=True)) / np.sqrt(rows.var(-1, keepdims=True) + eps)
        parts = xhat.reshape(len(x), len(s), -1) * s[:, None] + b[:, None]
        return [parts.reshape(x.shape)]
    trains = bool(said.get("training_mode")) if found["opset"] >= 14 else len(found["outputs"]) > 1
    rows = x.reshape(len(x), len(s), -1)
    batch = [rows.mean((0, 2)), rows.var((0, 2))]
    mean, var = batch if trains else running
    y = ((rows - mean[:, None]) / np.sqrt(var[:, None] + eps) * s[:, None] + b[:, None]).reshape(x.shape)
    keep = said.get("momentum", 0.9)
    new = [old * keep + now * (1 - keep) for old, now in zip(running, batch, strict=True)]
    results = [y, *new, *batch]
    return [value for name, value in zip(found["outputs"], results, strict=False) if name]


ORACLES: dict[str, Callable[[Mapping[str, Any]], list[Any]]] = {
    "reference": reference,
    "onnxruntime": runtime,
    "minorm": minorm,
}


def _feeds(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return a dict from names to copies of the inputs.

    They are copies because onnxruntime may write into its inputs.
    """
    return {f"x{place}": array.copy() for place, array in enumerate(found["inputs"])}


def _is_floats(array: Any) -> bool:
    return isinstance(array, np.ndarray) and str(array.dtype) in ("float16", "float32", "float64")


def _attribute(operator: str, known: Mapping[str, Any], name: Any, value: Any) -> None:
    """Raise ValueError unless the operator has this attribute and all tools accept the value."""
    kind = known.get(name)
    if kind is None:
        raise ValueError(f"{operator} has no attribute {name!r} in the versions that are checked")
    if kind is list:
        if not isinstance(value, (list, tuple)) or not all(type(v) is int and -5 <= v <= 4 for v in value):
            raise ValueError(f"{name}={value!r}; expected a list of axes")
    elif type(value) is bool or not isinstance(value, (int, float) if kind is float else kind):
        raise ValueError(f"{name}={value!r}; expected {kind.__name__}")
    elif not -100 <= value <= 100 or (name in ("size", "num_groups") and value < 1):
        raise ValueError(f"{name}={value!r} is out of bounds")
