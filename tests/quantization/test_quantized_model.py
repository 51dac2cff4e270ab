"""The int8 model: equal to onnxruntime's integer kernels, and what training computed but for ties."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm import models, nn
from minorm import quantization as Q
from tests.onnx.runtime import expected
from tests.quantized_models import images, trained, zoo

onnx = pytest.importorskip("onnx")
import minorm.onnx as mo  # noqa: E402  after importorskip

ZOO = list(zoo())
FLOAT_BETWEEN = {"joined", "hardswish", "tokens", "group norm"}  # whose last bits are each library's own


@pytest.mark.parametrize("learned", [False, True], ids=["observed", "learned"])
@pytest.mark.parametrize("activation", ["uint8", "int8"])
@pytest.mark.parametrize("name", ZOO)
def test_integers_are_onnxruntimes(name: str, activation: str, learned: bool) -> None:
    mn.manual_seed(0)
    model, shape = zoo()[name]
    qat = trained(model, images(*shape), Q.get_default_qat_qconfig(activation, learned))
    int8, x = Q.convert(qat), images(*shape, seed=1)
    y = int8(x).array
    want = expected(mo.export(int8, x, opset_version=13), x.array, exact=True)[0]
    apart = (y != want).mean()
    assert apart <= (1e-3 if name in FLOAT_BETWEEN else 0)
    assert len(np.unique(y)) > 10  # not all cut off
    far = np.abs(qat(x).array - y)
    assert (far > 0).mean() <= 0.01, "fake quantization in float32 differs in ties alone"


def test_one_layer_of_fake_quantization_differs_in_ties_alone() -> None:
    """In fewer than 1 of 10,000 numbers, by one step; later layers pass such a step on."""
    mn.manual_seed(0)
    model, x = nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU()), images(20, 3, 32, 32)
    qat = trained(model, x[:8])
    with mn.no_grad():
        floats, y = qat(x).array, Q.convert(qat)(x).array
    apart = np.abs(floats - y)
    assert (apart > 0).mean() < 1e-4
    assert apart.max() < 1.01 * qat.fake_quant["0"].scale.item()
    assert len(np.unique(y)) > 100


@pytest.mark.parametrize("opset", [13, 19, 21, 23])
def test_every_opset_says_the_same(opset: int) -> None:
    mn.manual_seed(0)
    x = images(6, 1, 8, 8)
    int8 = Q.convert(trained(models.digits_cnn(), x))
    proto = mo.export(int8, x, opset_version=opset)
    onnx.checker.check_model(proto, full_check=True)
    np.testing.assert_array_equal(expected(proto, x.array, exact=True)[0], int8(x).array)


def test_the_residual_network_of_ours() -> None:
    """relu(norm(body(x)) + shortcut(x)) in one call, which is three operations here."""
    mn.manual_seed(0)
    x = images(2, 3, 16, 16)
    int8 = Q.convert(trained(models.resnet20(), x, steps=2))
    proto = mo.export(int8, x)
    np.testing.assert_array_equal(expected(proto, x.array, exact=True)[0], int8(x).array)
    kinds = [node.op_type for node in proto.graph.node]
    assert "BatchNormalization" not in kinds
    assert kinds.count("Conv") == 21


@pytest.mark.slow
@pytest.mark.parametrize(("name", "convolutions"), [("resnet18", 20), ("mobilenet_v2", 52)])
def test_networks_with_torchvisions_keys(name: str, convolutions: int) -> None:
    mn.manual_seed(0)
    x = images(4, 3, 64, 64)
    int8 = Q.convert(trained(models.build(name, 3, 64, 5), x, steps=2))
    proto = mo.export(int8, x)
    np.testing.assert_array_equal(expected(proto, x.array, exact=True)[0], int8(x).array)
    kinds = [node.op_type for node in proto.graph.node]
    assert "BatchNormalization" not in kinds
    assert kinds.count("Conv") == convolutions
    assert len(np.unique(int8(x).array)) > 5


@pytest.mark.parametrize("within", [False, True], ids=["the file", "within a model"])
def test_a_loaded_file_becomes_int8(within: bool, tmp_path: Any) -> None:
    x = images(4, 1, 8, 8)
    path = tmp_path / "float.onnx"
    mo.export(models.digits_cnn().eval(), x, path)
    loaded = mo.load(path)
    model = nn.Sequential(loaded, nn.Linear(10, 3)) if within else loaded
    int8 = Q.convert(Q.calibrate(Q.prepare_qat(model, x), [x]))
    proto = mo.export(int8, x)
    np.testing.assert_array_equal(expected(proto, x.array, exact=True)[0], int8(x).array)
    assert "BatchNormalization" not in [node.op_type for node in proto.graph.node]
    weights = [tensor for tensor in proto.graph.initializer if len(tensor.dims) > 1]
    assert {tensor.data_type for tensor in weights} == {onnx.TensorProto.INT8}
    again = mo.export(model.eval(), x)  # the float model is written as its file has it, as before
    assert "BatchNormalization" in [node.op_type for node in again.graph.node]


def test_the_file_holds_int8_weights_and_int32_biases() -> None:
    x = images(4, 1, 8, 8)
    int8 = Q.convert(trained(models.digits_cnn(), x))
    proto = mo.export(int8, x)
    types = {tensor.name: tensor.data_type for tensor in proto.graph.initializer}
    assert types["0_weight"] == onnx.TensorProto.INT8
    assert types["0_bias"] == onnx.TensorProto.INT32
    float_file = mo.export(models.digits_cnn(), x)
    assert proto.ByteSize() < 0.4 * float_file.ByteSize()


def test_the_sum_is_exact_where_16_bits_would_saturate() -> None:
    """255 * 127 * 18, which vpmaddubsw adds up in pairs of at most 32767."""
    conv = nn.Conv2d(2, 3, 3, bias=False)
    mn.nn.init.constant_(conv.weight, 1.0)
    x = mn.full((1, 2, 5, 5), 2.0)
    qat = Q.prepare_qat(nn.Sequential(conv), x)
    qat(x)
    int8 = Q.convert(qat)
    y = int8(x).array
    want = (2.0 * conv.weight.array.astype(np.float64)).sum((1, 2, 3))
    np.testing.assert_allclose(y[0, :, 0, 0], want, rtol=0.01)
    np.testing.assert_array_equal(expected(mo.export(int8, x), x.array, exact=True)[0], y)


def test_a_negative_and_a_vanished_scale_of_the_norm() -> None:
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3))
    model[1].weight.set_array(np.array([1.5, -0.7, 0], np.float32))
    model[1].bias.set_array(np.array([0.1, 0.2, 0.3], np.float32))
    x = images(4, 2, 6, 6)
    qat = Q.prepare_qat(model, x)
    qat(x)
    int8 = Q.convert(qat.eval())
    y = int8(x).array
    np.testing.assert_array_equal(expected(mo.export(int8, x), x.array, exact=True)[0], y)
    want = qat.model(x).array  # the float model itself
    assert np.abs(y - want).max() < 0.1
    np.testing.assert_allclose(y[:, 2], 0.3, atol=0.03)


@pytest.mark.parametrize("normalized", [False, True])
def test_a_bias_is_whole_where_weights_are_nearly_0(normalized: bool) -> None:
    """In steps of such weights' scales int32 would end far below the bias."""
    mn.manual_seed(0)
    bias = np.array([30, -3, 2, 1], np.float32)
    small = np.array([0, 1e-12, 1e-6, 1], np.float32)
    model = nn.Sequential(nn.Conv2d(2, 4, 3), *([nn.BatchNorm2d(4)] if normalized else [nn.ReLU6()])).eval()
    if normalized:
        model[1].weight.set_array(small)
        model[1].bias.set_array(bias)
    else:
        model[0].weight.set_array(model[0].weight.array * small.reshape(-1, 1, 1, 1))
        model[0].bias.set_array(bias)
    x = images(4, 2, 6, 6)
    qat = Q.calibrate(Q.prepare_qat(model, x), [x])
    int8, want = Q.convert(qat), model(x).array
    step = (want.max() - want.min()) / 255
    for form in (qat.eval(), int8):
        assert np.abs(form(x).array - want).max() < 1.5 * step
    np.testing.assert_array_equal(expected(mo.export(int8, x), x.array, exact=True)[0], int8(x).array)


def test_a_bias_gets_its_gradient_where_weights_are_nearly_0() -> None:
    """The last BatchNorm of a residual block often begins with weights of 0."""
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3))
    mn.nn.init.zeros_(model[1].weight)
    model[1].bias.set_array(np.array([0.5, -1, 2], np.float32))
    x = images(4, 2, 6, 6)
    qat = Q.calibrate(Q.prepare_qat(model, x), [x])
    Q.freeze_bn_stats(qat)
    qat.train()(x).sum().backward()
    np.testing.assert_allclose(qat.model[1].bias.grad.array, 4 * 4 * 4, rtol=0.35)  # but for what is cut off


def test_it_stays_in_evaluation_and_has_a_state() -> None:
    x = images(4, 1, 8, 8)
    qat = trained(models.digits_cnn(), x)
    int8 = Q.convert(qat)
    assert not int8.train().training
    assert not [p for p in int8.parameters() if p.requires_grad]
    other = Q.convert(trained(models.digits_cnn(), x, steps=1))
    other.load_state_dict(int8.state_dict())
    np.testing.assert_array_equal(other(x).array, int8(x).array)


def test_what_cannot_be_converted_is_named() -> None:
    with pytest.raises(TypeError, match="convert: model is a Linear; expected what prepare_qat returns"):
        Q.convert(nn.Linear(2, 2))  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="the activation 'input' has no scale"):
        Q.convert(Q.prepare_qat(nn.Sequential(nn.Linear(2, 2)), mn.ones(3, 2)))
    x = images(4, 2)
    for name, wrong in (("0.weight", np.inf), ("0.bias", np.nan), ("1.running_var", np.nan)):
        model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
        qat = Q.calibrate(Q.prepare_qat(model, x), [x])
        qat.model.state_dict()[name].array.flat[0] = wrong
        with pytest.raises(ValueError, match=r"convert: 0\.weight, or the bias or BatchNorm after it, has a NaN"):
            Q.convert(qat)
