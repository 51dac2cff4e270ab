"""Find a BatchNorm that is missing in a file because an exporter folded it into a convolution or two constants.

To fold a norm, the exporter changed the weights of the convolution before the norm: it multiplied them by the norm's
scale, and divided them by the norm's standard deviation. So the file computes the same result, but the norm can no
longer train. If there is no convolution, tf2onnx and Keras write a product and a sum with constants, and keep the
layer's name. Exporters leave traces of the folding. PyTorch's older exporter calls weight and bias of such a
convolution `onnx::Conv_193` and `onnx::Conv_194`; in a convolution without a folded norm, the bias at least keeps the
module's name. The newer exporter leaves the call of batch_norm in the convolution's metadata. tf2onnx writes names that
end in `fused_bn`.
"""

from __future__ import annotations

import re
from typing import Any

from onnx import TensorProto

from minorm.onnx.graph import paths

_COUNTED = re.compile(r"(?:onnx::Conv_)?(\d{1,18})")
_PARTS = {"Mul": "/batchnorm/mul_1", "Add": "/batchnorm/add_1"}
_OF_INTEGERS = ("Integer", "NBits", "QuantizeLinear", "DequantizeLinear")
_SMALL = (TensorProto.INT8, TensorProto.UINT8, TensorProto.INT4, TensorProto.UINT4)
_FUSED = ("_weights_fused_bn", "_bias_fused_bn")


def folded(proto: Any) -> list[str]:
    """Return the names of the convolutions that contain a folded BatchNorm."""
    names = [str(tensor.name) for tensor in proto.graph.initializer]
    named = any("." in name and "::" not in name for name in names)
    numbers = proto.producer_name == "pytorch" and named  # then folded weights have numbers as names
    return [
        str(node.name or next(iter(node.output), node.op_type))
        for node in proto.graph.node
        if node.op_type in ("Conv", "ConvTranspose") and _fused(node, numbers)
    ]


def written_out(proto: Any) -> list[str]:
    """Return the names of Keras's BatchNorms that the file writes as a product and a sum.

    A product and a sum have no mode, so such a norm is always in inference mode.
    """
    held = {tensor.name for tensor in proto.graph.initializer}
    held |= {node.output[0] for node in proto.graph.node if node.op_type == "Constant" and node.output}
    found: dict[str, None] = {}
    for node in proto.graph.node:
        if node.op_type in _PARTS and any(name in held for name in node.input):  # Keras's LayerNorm computes its factor
            for name in map(str, (node.name, *node.output)):
                scope, part, rest = name.rpartition(_PARTS[node.op_type])
                if part and (not rest or rest.startswith(":")):
                    found[scope] = None
                    break
    return list(found)


def quantized(proto: Any) -> int:
    """Count a quantized model's weights of type int8, uint8, int4 or uint4; return 0 if the model is not quantized."""
    operators = {node.op_type for node in proto.graph.node}
    if not any(name.startswith("QLinear") or name.endswith(_OF_INTEGERS) for name in operators):
        return 0
    return sum(tensor.data_type in _SMALL and len(tensor.dims) > 1 for tensor in proto.graph.initializer)


def _fused(node: Any, numbers: bool) -> bool:
    if "batch_norm" in paths.call(node):
        return True
    weight, bias = (*map(str, node.input[1:3]), "", "")[:2]
    if weight.endswith(_FUSED[0]) and bias.endswith(_FUSED[1]):
        return True
    first, second = _COUNTED.fullmatch(weight), _COUNTED.fullmatch(bias)
    if first is None or second is None or int(second[1]) != int(first[1]) + 1:
        return False
    return numbers or (weight.startswith("onnx::") and bias.startswith("onnx::"))
