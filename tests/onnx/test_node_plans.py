"""Plans of the node tests of the onnx package: with other numbers a plan gives the bits of node by node, or its error.

That no rule decides by elements that a plan takes from its recording is seen here for each operator that there is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

import minorm as mn  # noqa: E402
import minorm.onnx as mo  # noqa: E402
from minorm.devices import dtypes  # noqa: E402
from minorm.onnx.loading.planning.plans import Plan  # noqa: E402
from tests.onnx.test_node_tests import considered, everything, plain  # noqa: E402

Arrays = Sequence[Any]


def cases() -> list[Any]:
    """Those whose inputs are arrays, and no sequences."""
    return [
        case
        for case in everything()
        if considered(case.model) and all(isinstance(plain(value), np.ndarray) for value in case.data_sets[0][0])
    ]


def with_integers_held(case: Any) -> tuple[Any, list[Any]]:
    """The model with inputs of integers and of one number in the file, as they are shapes, axes, bounds; the others."""
    model, left = onnx.ModelProto.FromString(case.model.SerializeToString()), []
    for entry, value in zip(list(model.graph.input), case.data_sets[0][0], strict=True):
        array = plain(value)
        if array.ndim and array.dtype.kind != "i":
            left.append(array)
        else:
            model.graph.initializer.append(onnx.numpy_helper.from_array(array, entry.name))
            model.graph.input.remove(entry)
    return model, left


def others(arrays: Arrays) -> Iterator[list[Any]]:
    """The arrays, then with their elements elsewhere, negated, and 0."""
    yield list(arrays)
    yield [np.ascontiguousarray(a.reshape(-1)[::-1]).reshape(a.shape) for a in arrays]
    yield [-a if a.dtype.kind in "fi" else ~a if a.dtype == bool else a for a in arrays]
    yield [np.zeros_like(a) for a in arrays]


def found(model: Any, arrays: Arrays) -> Any:
    try:
        results = model(*[mn.from_numpy(np.array(a)) for a in arrays])
    except (ValueError, TypeError, ZeroDivisionError) as error:
        return type(error)
    results = results if isinstance(results, tuple) else (results,)
    return [bits(y) if isinstance(y, mn.Tensor) else list(map(bits, y)) for y in results]


def bits(y: Any) -> tuple[Any, ...]:
    return y.dtype, y.shape, y.numpy().tobytes()


def in_type(array: Any, dtype: Any) -> Any:
    return array.astype(dtype) if dtype is not None and dtypes.is_float(array.dtype) else array


def differences(chosen: Sequence[Any], dtype: Any = None) -> tuple[list[str], int]:
    """The cases in which a plan gives something else, and how many plans there were. dtype: the type they are loaded
    in."""
    bad, planned = [], 0
    for case in chosen:
        as_given = case.model, [plain(value) for value in case.data_sets[0][0]]
        for model_file, arrays in (as_given, with_integers_held(case)):
            try:
                model = mo.load(model_file, dtype=dtype).eval()
            except (ValueError, TypeError):
                continue
            arrays = [in_type(array, dtype) for array in arrays]
            for _ in range(2):
                found(model, arrays)
            if not any(isinstance(plan, Plan) for plan in model._plans._known.values()):
                continue
            planned += 1
            for given in others(arrays):
                by_plan = found(model, given)
                with model.watching(lambda *_: None):
                    by_node = found(model, given)
                if by_plan != by_node:
                    bad.append(case.name)
    return bad, planned


@pytest.mark.filterwarnings("ignore")
def test_some_node_tests() -> None:
    with mn.no_grad():
        bad, planned = differences(cases()[::37])
    assert bad == []
    assert planned > 16


@pytest.mark.filterwarnings("ignore")
def test_some_node_tests_in_another_type() -> None:
    """The conversions of what nodes read are a part of the plan."""
    with mn.no_grad():
        bad, planned = differences(cases()[5::40], mn.bfloat16)
    assert bad == []
    assert planned > 10


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", [None, mn.bfloat16, mn.float64], ids=str)
def test_all_node_tests(dtype: Any) -> None:
    with mn.no_grad():
        bad, planned = differences(cases(), dtype)
    assert bad == []
    assert planned > 1000
