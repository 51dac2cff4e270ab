"""Every node test of the onnx package once more, for its gradients: backward against central differences, in float64.

The slope along a random direction of all float inputs together, of a random sum of all float outputs. Where no gradient
is recorded (Floor, Hardmax) the slope must be 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm.devices import dtypes

onnx = pytest.importorskip("onnx")

from minorm.onnx import backend  # noqa: E402  after importorskip
from minorm.onnx.graph import registry  # noqa: E402
from minorm.onnx.graph.storage import narrow  # noqa: E402
from minorm.onnx.operators import expansions  # noqa: E402
from tests.onnx.node_tests import considered, everything, plain  # noqa: E402

# The weights of classes have no gradient, in PyTorch either: inputs of these tests called `w` and `weight`.
LOSSES = ("test_sce_", "test_nllloss_")

# Operators whose node tests say nothing of slopes, and why.
RANDOM = "each run draws other numbers"
STEPS = (
    "made of steps; the gradient goes straight through, as if it did not round: tests/functional/test_quantization.py"
)
NOT_SMOOTH = {
    "Bernoulli": RANDOM,
    "QuantizeLinear": STEPS, "DynamicQuantizeLinear": STEPS,
    "BitCast": "of floats with other bits",
    "Range": "how many numbers there are follows from the inputs",
}  # fmt: skip

# Tests of these names, and why.
EMPTY = "a softmax of nothing is NaN, and so is its slope, as in PyTorch; Attention itself has 0 for both"
EXCEPT = {
    **dict.fromkeys(("test_training_dropout", "test_training_dropout_default", "test_training_dropout_default_mask",
                     "test_training_dropout_mask"), RANDOM),
    **dict.fromkeys((f"test_bernoulli{kind}_expanded" for kind in ("", "_double", "_seed")), RANDOM),
    **dict.fromkeys(
        (f"test_dynamicquantizelinear{kind}_expanded" for kind in ("", "_max_adjusted", "_min_adjusted")), STEPS
    ),
    **dict.fromkeys(
        (f"test_attention_{kind}_expanded" for kind in (
            "4d_causal_padded_kv_bf16", "causal_boolmask_nan_robustness",
            "23_boolmask_fullymasked_row_nan_robustness", "4d_causal_nonpad_negative_offset_structural_empty",
            "23_fullymasked_qk_matmul_output_mode3_zero", "24_fullymasked_qk_matmul_output_mode3_zero",
            "24_qk_matmul_output_mode3_softmax_precision", "local_window_gqa_rank4_mask",
        )), EMPTY,
    ),
    **dict.fromkeys((f"test_mod_float_edge_cases_fmod_0_float{bits}" for bits in (16, 32, 64)), "of infinities"),
}  # fmt: skip

# Numbers are moved a little, off the kinks that examples like to stand on; a norm that is nearly 0 is moved further.
MOVED = {"LpNormalization": 0.3}
STEP = 1e-6
CHUNKS = 12


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_gradients(chunk: int) -> None:
    cases = [case for case in everything() if considered(case.model) and case.name not in EXCEPT]
    checked, bad = 0, []
    for case in cases[chunk::CHUNKS]:
        if case.model.graph.node[0].op_type in NOT_SMOOTH:
            continue
        with np.errstate(all="ignore"):
            slopes = slope(case)
        if slopes is None:
            continue
        checked += 1
        backwards, numeric, size = slopes
        if not abs(backwards - numeric) <= 1e-5 * size:
            bad.append(f"{case.name}: backward says {backwards:.8g}, differences {numeric:.8g}")
    assert bad == []
    assert checked > 90


def slope(case: Any) -> tuple[float, float, float] | None:
    """The slope by backward and by differences, and how large they may be; None without floats in and out."""
    model = in_float64(case.model)
    inputs = inputs_of(case)
    leaves = [x for x in flat(inputs) if x.requires_grad]
    rng = np.random.default_rng(1)
    ways = [rng.standard_normal(x.shape) for x in leaves]
    seen: list[Any] = []  # the weights of the outputs' elements, 0 where they are not finite

    def loss() -> Any:
        outputs = [y for y in flat(model(*inputs)) if y.dtype == np.float64 and y.numel()]
        if not seen:
            seen.extend(np.where(np.isfinite(y.array), rng.standard_normal(y.shape), 0) for y in outputs)
        parts = [
            (mn.nan_to_num(y, 0.0, 0.0, 0.0) * mn.Tensor(np.asarray(w))).sum()
            for y, w in zip(outputs, seen, strict=True)
        ]
        return sum(parts[1:], parts[0]) if parts else None

    total = loss()
    if not leaves or total is None:
        return None
    if total.requires_grad:
        total.backward()
    parts = [x.grad.array * way for x, way in zip(leaves, ways, strict=True) if x.grad is not None]
    ends = []
    with mn.no_grad():
        for step in (STEP, -2 * STEP):
            for x, way in zip(leaves, ways, strict=True):
                x += mn.Tensor(np.asarray(step * way))
            ends.append(loss().item())
    numeric = (ends[0] - ends[1]) / (2 * STEP)
    return sum(part.sum() for part in parts), numeric, 1 + abs(numeric) + sum(abs(part).sum() for part in parts)


def in_float64(proto: Any) -> Any:
    """The model, converted."""
    proto = onnx.ModelProto.FromString(proto.SerializeToString())
    for node in proto.graph.node:
        if node.op_type == "LayerNormalization":  # whose other outputs are of the type that it names
            node.attribute.append(onnx.helper.make_attribute("stash_type", onnx.TensorProto.DOUBLE))
    return backend.prepare(proto).module.to(mn.float64)


def inputs_of(case: Any) -> list[Any]:
    """The inputs in float64, with a gradient and moved a little where they are not held."""
    first = case.model.graph.node[0]
    held = {name for place, name in enumerate(first.input) if place in fixed(case.model)}
    held |= {"w", "weight"} if case.name.startswith(LOSSES) else set()  # written out they are read by other nodes
    rng, far = np.random.default_rng(0), MOVED.get(first.op_type, 1e-3)

    def given(x: Any, fixed: bool) -> Any:
        if isinstance(x, list) or x is None:
            return x if x is None else [given(element, fixed) for element in x]
        if not dtypes.is_float(x.dtype):
            return narrow.tensor(x)
        x = x.astype(np.float64)
        return mn.Tensor(x if fixed else np.asarray(x + far * rng.standard_normal(x.shape)), requires_grad=not fixed)

    names = [entry.name for entry in case.model.graph.input]
    return [given(plain(x), name in held) for name, x in zip(names, case.data_sets[0][0], strict=True)]


def fixed(model: Any) -> Any:
    """The inputs of the first node that the table of operators calls fixed, where those are some and not all."""
    node, opsets = model.graph.node[0], {entry.domain: entry.version for entry in model.opset_import}
    if (node.domain, node.op_type) in expansions.EXPANSIONS:
        return ()
    places = registry.reader(node.op_type, opsets[""]).fixed
    return places if isinstance(places, tuple) else ()


def flat(values: Any) -> Iterator[Any]:
    """The Tensors among values, and in sequences."""
    for value in values if isinstance(values, (list, tuple)) else [values]:
        if isinstance(value, list):
            yield from flat(value)
        elif value is not None:
            yield value


def test_what_is_left_out_is_there() -> None:
    cases = {case.name: case for case in everything()}
    assert set(EXCEPT) <= cases.keys()
    operators = {case.model.graph.node[0].op_type for case in cases.values() if considered(case.model)}
    assert set(NOT_SMOOTH) <= operators
