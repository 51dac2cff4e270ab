"""Expand onnxruntime's normalizations, which have a residual or are older than ONNX's own operators."""

from __future__ import annotations

from minorm.onnx.operators.contributed.fused_operators import MICROSOFT
from minorm.onnx.operators.expansions import Call, expands, integers, number, refuse

OPTIONS = "axis: int = @axis, epsilon: float = @epsilon, stash_type: int = @stash_type"


@expands(MICROSOFT, "SkipLayerNormalization <epsilon: float = 1e-5> "
                    "(input, skip, gamma, beta, bias) => (output, mean, inv_std_var, sum)")  # fmt: skip
def skip_layer_norm(call: Call) -> str:
    norm = "output, mean, inv_std_var = LayerNormalization <axis = -1, epsilon: float = @epsilon> (sum, gamma, beta)"
    return _residual(call, 4) + norm


@expands(MICROSOFT, "SkipSimplifiedLayerNormalization <epsilon: float = 1e-5> "
                    "(input, skip, gamma, bias) => (output, mean, inv_std_var, sum)")  # fmt: skip
def skip_rms_norm(call: Call) -> str:
    norm = "output = RMSNormalization <axis = -1, epsilon: float = @epsilon> (sum, gamma)\n"
    return _residual(call, 3) + norm + (_inverse("sum", call, "[-1]") if call.wants(2) else "")


def _residual(call: Call, bias: int) -> str:
    if call.has(bias):
        return "first = Add(input, skip)  sum = Add(first, bias)\n"
    return "sum = Add(input, skip)\n"


def _inverse(x: str, call: Call, axes: str) -> str:
    """Write 1 / sqrt(mean of squares + eps) in float32."""
    wide = f"wide = Cast <to = 1> ({x})  squares = Mul(wide, wide)\n"
    where = f"where = Constant <value_ints: ints = {axes}> ()\n"
    means = "means = ReduceMean <keepdims = 1> (squares, where)\n"
    eps = number("eps", call.get("epsilon", 1e-5), "means")
    return f"{wide}{where}{means}{eps}safe = Add(means, eps)  root = Sqrt(safe)  inv_std_var = Reciprocal(root)"


@expands("", "SimplifiedLayerNormalization <axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1> "
             "(X, scale) => (Y, inv_std_var)")  # fmt: skip
@expands(MICROSOFT, "SimplifiedLayerNormalization <axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1> "
                    "(X, scale) => (Y, inv_std_var)")  # fmt: skip
def rms_norm(call: Call) -> str:
    norm = f"Y = RMSNormalization <{OPTIONS}> (X, scale)\n"
    axis = call.get("axis", -1)
    if call.wants(1) and axis >= 0:
        raise refuse(
            "SimplifiedLayerNormalization", f"axis={axis} and a second output; expected a negative axis, or one output"
        )
    return norm + (_inverse("X", call, f"[{', '.join(map(str, range(axis, 0)))}]") if call.wants(1) else "")


@expands("", "LayerNormalization <axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1> "
             "(X, Scale, B) => (Y, Mean, InvStdDev)")  # fmt: skip
def layer_norm(call: Call) -> str:
    """Expand onnxruntime's LayerNormalization before opset 17; from 17 on, ONNX has an operator of this name."""
    if call.opset >= 17:
        return ""
    return f"Y, Mean, InvStdDev = LayerNormalization <{OPTIONS}> (X, Scale, B)"


@expands(MICROSOFT, "EmbedLayerNormalization <epsilon: float = 1e-12, mask_index_type: int = 0> "
                    "(input_ids, segment_ids, word, position, segment, gamma, beta, mask, position_ids) => "
                    "(output, mask_index, embedding_sum)")  # fmt: skip
def embed_layer_norm(call: Call) -> str:
    nodes = "words = Gather <axis = 0> (word, input_ids)\n"
    if call.has(8):
        nodes += "places = Gather <axis = 0> (position, position_ids)\n"
    else:  # the first rows, one for each token
        nodes += "length = Shape <start = 1, end = 2> (input_ids)\n" + integers("zero", [0])
        nodes += "places = Slice(position, zero, length, zero)\n"
    nodes += "both = Add(words, places)\n"
    if call.has(1):
        nodes += "segments = Gather <axis = 0> (segment, segment_ids)  embedding_sum = Add(both, segments)\n"
    else:
        nodes += "embedding_sum = Identity(both)\n"
    nodes += "output = LayerNormalization <axis = -1, epsilon: float = @epsilon> (embedding_sum, gamma, beta)\n"
    if call.wants(1):  # the number of tokens of each sample without padding
        counted = "mask_64 = Cast <to = 7> (mask)\n" + integers("last", [1])
        nodes += (
            counted + "mask_sum = ReduceSum <keepdims = 0> (mask_64, last)  mask_index = Cast <to = 6> (mask_sum)\n"
        )
    return nodes
