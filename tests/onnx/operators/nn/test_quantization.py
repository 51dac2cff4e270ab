"""QuantizeLinear and DequantizeLinear: written, and files with them fine-tuned."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import onnx
import pytest

import minorm as mn
import minorm.onnx as mo
from minorm.functional import quantization as F


def pair(x: mn.Tensor, scale: Any, zero: Any, axis: int = 1, block: int = 0) -> mn.Tensor:
    s, z = mn.tensor(np.array(scale, np.float32)), mn.tensor(np.array(zero))
    return F.dequantize(F.quantize(x, s, z, axis=axis, block_size=block), s, z, axis, block)


CASES = {
    "one scale": (10, 0.05, np.uint8(128)),
    "signed": (10, 0.05, np.int8(-3)),
    "channels": (13, [0.05, 0.1, 0.02], np.array([0, 3, -9], np.int8)),
    "16 bits": (21, 0.0005, np.int16(-300)),
    "blocks": (21, np.full((2, 2, 4), 0.05), np.zeros((2, 2, 4), np.int8), 1, 2),
}


@pytest.mark.parametrize("name", CASES)
def test_written(proved: Any, rng: np.random.Generator, name: str, opset: int) -> None:
    since, scale, zero, *places = CASES[name]
    x = mn.tensor(rng.normal(size=(2, 3, 4)).astype(np.float32))
    if opset < since:
        with pytest.raises(mo.ExportError, match=r"of opset 10 on|from opset (13|21) on|does not take int16"):
            mo.export(lambda x: pair(x, scale, zero, *places), x, None, opset_version=opset)
        return
    free = {"dynamic_axes": {}, "batches": ()} if name == "blocks" else {}
    proto = proved(lambda x: pair(x, scale, zero, *places), x, opset=opset, must_run=False, **free)
    assert [n.op_type for n in proto.graph.node if n.op_type != "Constant"] == ["QuantizeLinear", "DequantizeLinear"]


def test_dynamic(proved: Any, rng: np.random.Generator) -> None:
    x = mn.tensor(rng.normal(size=(2, 3)).astype(np.float32))
    proto = proved(F.dynamic_quantize, x, opset=13)
    assert [n.op_type for n in proto.graph.node] == ["DynamicQuantizeLinear"]


def qat(rng: np.random.Generator) -> tuple[Any, Any, Any]:
    """A network of PyTorch whose weights and activations are quantized and back, and its file."""
    torch = pytest.importorskip("torch")

    class Net(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.head = torch.nn.Conv2d(2, 4, 3), torch.nn.Linear(4, 3)

        def forward(self, x: Any) -> Any:
            fake, each = torch.fake_quantize_per_tensor_affine, torch.fake_quantize_per_channel_affine
            x = fake(x, 0.02, 128, 0, 255)
            w = each(self.conv.weight, torch.full((4,), 0.003), torch.zeros(4, dtype=torch.int32), 0, -128, 127)
            x = torch.relu(torch.nn.functional.conv2d(x, w, self.conv.bias))
            x = fake(x.mean((2, 3)), 0.01, 0, 0, 255)
            return torch.nn.functional.linear(x, fake(self.head.weight, 0.005, 0, -128, 127), self.head.bias)

    torch.manual_seed(3)
    net = Net()
    x = torch.tensor(rng.normal(size=(3, 2, 6, 6)).astype(np.float32))
    file = io.BytesIO()
    torch.onnx.export(net, (x,), file, dynamo=False, opset_version=17, do_constant_folding=False)
    return net, x, file.getvalue()


@pytest.mark.filterwarnings("ignore")
def test_a_file_of_quantization_aware_training_is_fine_tuned(rng: np.random.Generator) -> None:
    """Values, trainable tensors and gradients are PyTorch's, which go straight through; then it is written back."""
    net, x, file = qat(rng)
    loaded = mo.load(file)
    weights = dict(net.named_parameters())
    assert {name for name, _ in loaded.named_parameters()} == set(weights)
    given, ours = mn.tensor(x.numpy()), loaded(mn.tensor(x.numpy()))
    theirs = net(x)
    np.testing.assert_allclose(ours.array, theirs.detach().numpy(), rtol=1e-5, atol=1e-6)
    (theirs**2).sum().backward()
    (ours * ours).sum().backward()
    for name, p in loaded.named_parameters():
        np.testing.assert_allclose(p.grad.array, weights[name].grad.numpy(), rtol=2e-4, atol=1e-5)
    before = [n.op_type for n in mo.export(loaded, given, None, opset_version=17).graph.node]
    assert before.count("QuantizeLinear") == before.count("DequantizeLinear") == 4


def test_integers_of_the_file_stay(one_node: Any) -> None:
    """Weights that are stored as integers are constants, and so are scales."""
    q = np.array([[1, -2]], np.int8)
    model = mo.load(one_node("DequantizeLinear", [q, np.float32(0.1)], 13, held=(1,)))
    assert not list(model.parameters())
    assert not model(mn.tensor(q)).requires_grad


@pytest.mark.parametrize(("attribute", "code"), [("output_dtype", 8), ("output_dtype", 77), ("saturate", 0)])
def test_types_that_minorm_has_not(one_node: Any, attribute: str, code: int) -> None:
    x, scale = np.ones(2, np.float32), np.float32(1)
    message = r"output_dtype is (STRING|77), which minorm does not have|saturate is 0; minorm cuts off"
    with pytest.raises(mo.LoadError, match=message):
        mo.load(one_node("QuantizeLinear", [x, scale], 21, held=(1,), **{attribute: code}))


@pytest.mark.parametrize("name", ["int4", "uint4", "int2", "float8_e4m3fn", "float8_e5m2", "float4_e2m1fn"])
def test_weights_in_a_few_bits_are_trained_straight_through(graph_of: Any, name: str) -> None:
    """They are the nearest numbers of the type, and what a step changes goes out again and comes in."""
    ml_dtypes, onnx = pytest.importorskip("ml_dtypes"), pytest.importorskip("onnx")
    dtype = np.dtype(getattr(ml_dtypes, name))
    weight = np.linspace(-0.9, 1.1, 12).reshape(4, 3).astype(np.float32)
    scale = np.float32(0.2)
    nodes = [
        onnx.helper.make_node("QuantizeLinear", ["f.weight", "s", "z"], ["q"]),
        onnx.helper.make_node("DequantizeLinear", ["q", "s", "z"], ["w"]),
        onnx.helper.make_node("MatMul", ["x", "w"], ["y"]),
    ]
    held = {"f.weight": weight, "s": scale, "z": np.zeros((), dtype)}
    loaded = mo.load(graph_of(nodes, {"x": (np.float32, ["n", 4])}, ["y"], held, opset=25))
    ends = ml_dtypes.iinfo(dtype) if "int" in name else ml_dtypes.finfo(dtype)
    kept = (weight / scale >= float(ends.min)) & (weight / scale <= float(ends.max))
    rounded = np.rint(weight / scale) if "int" in name else weight / scale
    stored = np.clip(rounded, float(ends.min), float(ends.max)).astype(dtype).astype(np.float32) * scale
    y = loaded(mn.tensor(np.eye(4, dtype=np.float32)))
    np.testing.assert_allclose(y.array, stored, rtol=1e-6)
    y.sum().backward()
    [parameter] = loaded.parameters()
    kept = kept if "int" not in name else (rounded >= float(ends.min)) & (rounded <= float(ends.max))
    np.testing.assert_array_equal(parameter.grad.array, kept)
    with mn.no_grad():
        parameter *= 0.5
    again = mo.load(mo.export(loaded, None))
    np.testing.assert_array_equal(again(mn.ones(1, 4)).array, loaded(mn.ones(1, 4)).array)


def test_weights_of_4_bits_lie_two_in_a_byte(one_node: Any) -> None:
    onnx = pytest.importorskip("onnx")
    proto = one_node("DequantizeLinear", [np.zeros(5, np.uint8), np.float32(0.5)], 21, held=(0, 1))
    proto.graph.initializer[0].CopyFrom(
        onnx.TensorProto(name="i0", dims=[5], data_type=onnx.TensorProto.INT4, raw_data=bytes([0x21, 0xF8, 0x07]))
    )
    np.testing.assert_array_equal(mo.load(proto)().array, [0.5, 1, -4, -0.5, 3.5])


def test_a_negative_block(one_node: Any) -> None:
    x, scale = np.ones(2, np.float32), np.ones(2, np.float32)
    with pytest.raises(mo.LoadError, match="block_size is -1; expected at least 0"):
        mo.load(one_node("QuantizeLinear", [x, scale], 21, held=(1,), block_size=-1))


@pytest.mark.parametrize("shapes", [((1,), ()), ((), (1,)), ((1,), (1,)), ((), ())])
def test_one_zero_point_beside_one_scale_may_have_another_shape(shapes: Any, graph_of: Any) -> None:
    """As onnxruntime's quantizer writes a bias; what it computes is the formula's."""
    scale, zero = np.full(shapes[0], 0.25, np.float32), np.full(shapes[1], 3, np.uint8)
    nodes = [
        onnx.helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        onnx.helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"]),
    ]
    x = np.array([[-1, 0.3, 0.125], [2, 90, -0.6]], np.float32)
    model = mo.load(graph_of(nodes, {"x": (np.float32, [2, 3])}, ["y"], {"s": scale, "z": zero}))
    want = (np.clip(np.rint(x / 0.25) + 3, 0, 255) - 3) * 0.25
    np.testing.assert_array_equal(model(mn.tensor(x)).array, want)
    again = mo.load(mo.export(model, None))
    np.testing.assert_array_equal(again(mn.tensor(x)).array, want)
