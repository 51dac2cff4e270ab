"""Products of bytes as Functions: onnxruntime's integers, for all shapes of scales and zero points."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm_ext
from minorm.ops.applications import Application, Prepared
from minorm.ops.fusing import fused
from minorm.ops.quantization import IntegerConvolution, IntegerMatMul, QuantizedAdd, ToIntegers
from minorm.tensor.tensor import Tensor
from tests.onnx.runtime import expected

F, B = np.float32, np.uint8


def test_every_pair_of_bytes_is_added_as_onnxruntime_does() -> None:
    """Multiply-adds on processors with AVX2: elsewhere it rounds otherwise."""
    if "v3" not in minorm_ext.levels():
        pytest.skip("onnxruntime rounds otherwise here")
    onnx = pytest.importorskip("onnx")
    rng = np.random.default_rng(3)
    a, b = np.repeat(np.arange(256), 256).astype(B), np.tile(np.arange(256), 256).astype(B)
    names = ["a", "as", "az", "b", "bs", "bz", "ys", "yz"]
    types = [onnx.TensorProto.FLOAT if name.endswith("s") else onnx.TensorProto.UINT8 for name in names]
    inputs = [
        onnx.helper.make_tensor_value_info(name, kind, [a.size] if name in "ab" else [])
        for name, kind in zip(names, types, strict=True)
    ]
    node = onnx.helper.make_node("QLinearAdd", names, ["y"], domain="com.microsoft")
    output = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.UINT8, None)
    opsets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("com.microsoft", 1)]
    proto = onnx.helper.make_model(onnx.helper.make_graph([node], "g", inputs, [output]), opset_imports=opsets)
    proto.ir_version = 8
    for _ in range(5):
        scales = [np.array(s, F) for s in rng.uniform(0.003, 0.03, 3)]
        zeros = [np.array(z, B) for z in rng.integers(0, 256, 3)]
        given = a, scales[0], zeros[0], b, scales[1], zeros[1], scales[2], zeros[2]
        [want] = expected(proto, *given)
        got = QuantizedAdd.apply(*(Tensor(given[i]) for i in (0, 3, 1, 2, 4, 5, 6, 7))).numpy()
        np.testing.assert_array_equal(got, want)


def test_no_gradient_passes_integers() -> None:
    """A scale that requires one changes nothing: bytes have no slope, and a walk back has nothing to call."""
    scale = Tensor(np.array(0.1, F), requires_grad=True)
    a, b, zero = (Tensor(np.ones(shape, B)) for shape in ((2, 3), (3, 2), ()))
    w = Tensor(np.ones((1, 1, 1, 1), np.int8))
    form = (1, 1), ((0, 0),) * 2, (1, 1), 1
    found = (
        IntegerMatMul.apply(a, b, zero, zero, None, scale, scale, scale, zero),
        IntegerConvolution.apply(a.reshape(1, 1, 2, 3), w, zero, None, None, scale, scale, scale, zero, form=form),
        QuantizedAdd.apply(a, a, scale, zero, scale, zero, scale, zero),
    )
    assert not any(y.requires_grad for y in found)


@pytest.mark.parametrize("rare", [False, True])
def test_rows_and_columns_with_parameters(rare: bool) -> None:
    """The same numbers, said once or for every row, which the kernels do not take."""
    rng = np.random.default_rng(1)
    a, b = rng.integers(0, 256, (5, 40)).astype(B), rng.integers(-128, 128, (40, 6)).astype(np.int8)
    bias = rng.integers(-3000, 3000, 6).astype(np.int32)
    of_rows: Any = (lambda x: np.full(5, x)) if rare else np.array
    given = [
        of_rows(B(7)), rng.integers(-5, 5, 6).astype(np.int8), bias, of_rows(F(0.02)),
        rng.uniform(0.01, 0.02, 6).astype(F), np.array(0.4, F), np.array(100, B),
    ]  # fmt: skip
    exact = (a.astype(np.int64) - 7) @ (b.astype(np.int64) - given[1]) + bias
    scale = (F(0.02) * given[4]) / F(0.4)
    wanted = np.clip(np.round((exact.astype(F) * scale).astype(np.float64)) + 100, 0, 255)
    tensors = [Tensor(array) for array in (a, b, *given)]
    np.testing.assert_array_equal(IntegerMatMul.apply(*tensors).numpy(), wanted)
    np.testing.assert_array_equal(IntegerMatMul.apply(*tensors, relu=True).numpy(), np.maximum(wanted, 100))
    np.testing.assert_array_equal(IntegerMatMul.apply(*tensors[:4]).numpy(), exact - bias)


def test_a_scale_that_is_no_number_makes_zeros() -> None:
    """As NumPy's: NaN becomes 0, and infinity is cut off."""
    x, w = np.full((1, 1, 1, 2), 3, B), np.ones((2, 1, 1, 1), np.int8)
    zero, one = np.array(0, B), np.array(1, F)
    given = x, w, zero, np.array(0, np.int8), None, one, np.array([np.nan, np.inf], F), one, zero
    form = (1, 1), ((0, 0),) * 2, (1, 1), 1
    y = IntegerConvolution.apply(*(None if array is None else Tensor(array) for array in given), form=form)
    np.testing.assert_array_equal(y.numpy(), [[[[0, 0]], [[255, 255]]]])


def test_weights_that_change_are_prepared_again() -> None:
    a, b = np.ones((2, 3), B), np.ones((3, 4), np.int8)
    zero = np.array(0, np.int8)
    product = Prepared(Application(IntegerMatMul, (1, 2, 0, 3), {}, (4,)))
    registers = [None, a, b, zero, None]
    for change in (lambda: None, lambda: b.fill(5), lambda: zero.fill(1), lambda: b.setflags(write=False)):
        change()
        product.run(registers)
        np.testing.assert_array_equal(registers[4], a.astype(np.int32) @ (b.astype(np.int32) - zero))
    before = product.known[1]
    product.run(registers)
    assert product.known[1] is before


def test_weights_that_are_given_with_each_run_are_not_prepared() -> None:
    """Neither are integers that something other than a product reads: all readers would get the same array."""
    product = [Application(IntegerMatMul, (1, 2, 0, 0), {}, (3,))]
    known = {1: ((2, 3), B), 2: ((3, 4), B), 3: ((2, 4), np.int32)}
    assert [type(a) for a in fused(product, known, (3,), (1, 2))] == [Application]
    assert [type(a) for a in fused(product, known, (3,), (1,))] == [Prepared]
    known[4], options = ((3, 4), np.float32), {"dtype": np.dtype(B), "axis": 0, "block": 0}
    both = [Application(ToIntegers, (4, 5, 0), options, (2,)), *product]
    known[5] = (), np.float32
    assert [type(a) for a in fused(both, known, (3,), (1,))] == [Prepared, Prepared]
    assert [type(a) for a in fused(both, known, (2, 3), (1,))] == [Application, Application]
    assert [type(a) for a in fused(both, known, (3,), (1, 4))] == [Application, Application]


@pytest.mark.parametrize("value", [3e9, -3e9])
def test_integers_of_a_bias_do_not_change_their_sign(value: float) -> None:
    """2^31 - 1 is no float32: the nearest one is 2^31, which int32 holds as -2^31."""
    x, scale, zero = np.array([value], np.float32), np.array(1, np.float32), np.array(0, np.int32)
    [q] = ToIntegers().forward(x, scale, zero, dtype=np.dtype(np.int32), axis=0, block=0)
    assert abs(int(q) - np.clip(value, -(2**31), 2**31 - 1)) <= 128
