"""Range of 16-bit floats, whose numbers are made in the wider type that the node names."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

import minorm as mn  # noqa: E402  after importorskip
import minorm.onnx as mo  # noqa: E402
from minorm.devices import dtypes  # noqa: E402


def model(elem: int, **attributes: int) -> Any:
    h = onnx.helper
    inputs = [h.make_tensor_value_info(name, elem, []) for name in ("start", "limit", "delta")]
    node = h.make_node("Range", ["start", "limit", "delta"], ["y"], **attributes)
    graph = h.make_graph([node], "graph", inputs, [h.make_tensor_value_info("y", elem, ["n"])])
    return h.make_model(graph, opset_imports=[h.make_opsetid("", 27)], ir_version=13)


@pytest.mark.parametrize("stash", [None, 1, 11])
@pytest.mark.parametrize(("elem", "dtype"), [(10, dtypes.float16), (16, dtypes.bfloat16)])
@pytest.mark.parametrize("numbers", [(0, 1, 0.1), (3.25, -40, -0.7), (0, 300, 1), (1000, 1100, 0.3)])
def test_it_counts_in_the_type_that_the_node_names(elem: int, dtype: Any, numbers: Any, stash: int | None) -> None:
    arrays = [np.array(number).astype(dtype) for number in numbers]
    first, last, step = (float(array) for array in arrays)
    count = int(np.ceil((last - first) / step))
    wide = np.float64 if stash == 11 else np.float32
    want = (wide(first) + np.arange(count, dtype=wide) * wide(step)).astype(dtype)
    proto = model(elem, **({} if stash is None else {"stash_type": stash}))
    np.testing.assert_array_equal(mo.load(proto)(*map(mn.Tensor, arrays)).array, want)


def test_another_type_to_count_in_is_an_error() -> None:
    with pytest.raises(mo.LoadError, match=r"stash_type is 10; expected 1 \(float32\) or 11 \(float64\)"):
        mo.load(model(10, stash_type=10))
