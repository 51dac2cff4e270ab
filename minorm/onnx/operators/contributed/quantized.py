"""Expand products with quantized weights, and the QLinear operators of onnxruntime that ONNX does not have."""

from __future__ import annotations

from minorm.onnx.graph.node_rewriter import FLOATS
from minorm.onnx.operators.contributed.fused_operators import MICROSOFT
from minorm.onnx.operators.expansions import Call, expands, integers, refuse

# Floats that are quantized at run time and multiplied with integers


def product(y: str, a: str, b: str, scale_b: str, zero_b: str) -> str:
    """Write y = a b in float32; a is quantized at run time, and the file holds b as integers."""
    n = f"_{y}"
    return (
        f"q{n}, s{n}, z{n} = DynamicQuantizeLinear({a})\n"
        f"i{n} = MatMulInteger(q{n}, {b}, z{n}, {zero_b})  f{n} = Cast <to = 1> (i{n})\n"
        f"t{n} = Mul(s{n}, {scale_b})  {y} = Mul(f{n}, t{n})\n"
    )


@expands(MICROSOFT, "DynamicQuantizeMatMul (A, B, b_scale, b_zero_point, bias) => (Y)")
def dynamic_quantize_matmul(call: Call) -> str:
    zero = "b_zero_point" if call.has(3) else '""'
    return product("p", "A", "B", "b_scale", zero) + ("Y = Add(p, bias)" if call.has(4) else "Y = Identity(p)")


@expands(MICROSOFT, "MatMulIntegerToFloat (A, B, a_scale, b_scale, a_zero_point, b_zero_point, bias) => (Y)")
def matmul_integer_to_float(call: Call) -> str:
    zeros = [name if call.has(place) else '""' for place, name in ((4, "a_zero_point"), (5, "b_zero_point"))]
    nodes = (
        f"i = MatMulInteger(A, B, {zeros[0]}, {zeros[1]})  f = CastLike(i, a_scale)\n"
        "s = Mul(a_scale, b_scale)  p = Mul(f, s)\n"
    )
    return nodes + ("Y = Add(p, bias)" if call.has(6) else "Y = Identity(p)")


@expands(
    MICROSOFT,
    "MatMulNBits <K, N, bits: int = 4, block_size, accuracy_level: int = 0, weight_prepacked: int = 0> "
    "(A, B, scales, zero_points, g_idx, bias) => (Y)",
)
def matmul_n_bits(call: Call) -> str:
    """Write a product with weights of 2, 4 or 8 bits.

    The weights have the shape (N, blocks, bytes); each block along K has one scale.
    """
    bits, block, rows, columns = (
        call.get(name, 4 if name == "bits" else 0) for name in ("bits", "block_size", "K", "N")
    )
    if call.has(4) or bits not in (2, 4, 8) or block < 1 or rows < 1 or columns < 1 or (block * bits) % 8:
        raise refuse("MatMulNBits", f"bits={bits}, block_size={block}, K={rows}, N={columns}, "
                     f"{'g_idx' if call.has(4) else 'no g_idx'}; expected 2, 4 or 8 bits and no g_idx")  # fmt: skip
    blocks = -(-rows // block)
    nodes = _unpacked("whole", "B", bits) + integers("shape", [columns, blocks, block])
    nodes += "parts = Reshape(whole, shape)  steps = CastLike(parts, A)\n" + integers("each", [columns, blocks, 1])
    nodes += "scale = Reshape(scales, each)  factor = CastLike(scale, A)\n"
    if not call.has(3):
        nodes += f"middle_32 = Constant <value_float: float = {2.0 ** (bits - 1)}> ()  zero = CastLike(middle_32, A)\n"
    elif call.elements[3] in FLOATS:
        nodes += "zero_parts = Reshape(zero_points, each)  zero = CastLike(zero_parts, A)\n"
    else:
        width = -(-blocks * bits // 8)  # the zero points of a row fill whole bytes
        count = width * 8 // bits
        nodes += integers("bytes", [columns, width])
        nodes += "zero_bytes = Reshape(zero_points, bytes)\n" + _unpacked("zero_whole", "zero_bytes", bits)
        nodes += integers("counts", [columns, count, 1]) + "zero_all = Reshape(zero_whole, counts)\n"
        nodes += integers("first", [0]) + integers("end", [blocks]) + integers("along", [1])
        nodes += "zero_parts = Slice(zero_all, first, end, along)  zero = CastLike(zero_parts, A)\n"
    nodes += "centred = Sub(steps, zero)  scaled = Mul(centred, factor)\n"
    nodes += integers("flat", [columns, blocks * block]) + "padded = Reshape(scaled, flat)\n"
    nodes += integers("begin", [0]) + integers("stop", [rows]) + integers("axis", [1])
    nodes += "weight = Slice(padded, begin, stop, axis)  turned = Transpose <perm = [1, 0]> (weight)\n"
    return nodes + "p = MatMul(A, turned)\n" + ("Y = Add(p, bias)" if call.has(5) else "Y = Identity(p)")


def _unpacked(y: str, packed: str, bits: int) -> str:
    """Unpack the numbers of `bits` bits from bytes to a new last axis; the lowest bits come first."""
    if bits == 8:
        return f"{y} = Identity({packed})\n"
    nodes, parts = integers(f"{y}_end", [-1]), []
    nodes += f"{y}_bits_64 = Constant <value_int: int = {2**bits - 1}> ()  {y}_bits = Cast <to = 2> ({y}_bits_64)\n"
    for i in range(8 // bits):
        nodes += (
            f"{y}_by_{i}_64 = Constant <value_int: int = {i * bits}> ()  {y}_by_{i} = Cast <to = 2> ({y}_by_{i}_64)\n"
        )
        nodes += f'{y}_moved_{i} = BitShift <direction = "RIGHT"> ({packed}, {y}_by_{i})\n'
        nodes += f"{y}_low_{i} = BitwiseAnd({y}_moved_{i}, {y}_bits)  {y}_{i} = Unsqueeze({y}_low_{i}, {y}_end)\n"
        parts.append(f"{y}_{i}")
    return nodes + f"{y} = Concat <axis = -1> ({', '.join(parts)})\n"


# QLinear: dequantize, compute in floats, quantize, as onnxruntime does


def _floats(*names: str) -> str:
    return "".join(f"{n}_f = DequantizeLinear({n}, {n}_scale, {n}_zero_point)\n" for n in names)


QUANTIZED = "C = QuantizeLinear(C_f, C_scale, C_zero_point)"


@expands(
    MICROSOFT,
    "QLinearAdd (A, A_scale, A_zero_point, B, B_scale, B_zero_point, C_scale, C_zero_point) => (C)",
)
def qlinear_add(call: Call) -> str:
    return f"{_floats('A', 'B')} C_f = Add(A_f, B_f)  {QUANTIZED}"


@expands(
    MICROSOFT,
    "QLinearMul (A, A_scale, A_zero_point, B, B_scale, B_zero_point, C_scale, C_zero_point) => (C)",
)
def qlinear_mul(call: Call) -> str:
    return f"{_floats('A', 'B')} C_f = Mul(A_f, B_f)  {QUANTIZED}"


@expands(
    MICROSOFT,
    "QGemm <alpha: float = 1.0, transA: int = 0, transB: int = 0> "
    "(A, A_scale, A_zero_point, B, B_scale, B_zero_point, C, Y_scale, Y_zero_point) => (Y)",
)
def q_gemm(call: Call) -> str:
    """Write Gemm of quantized factors; y is quantized only if the node has Y_scale.

    C is int32, and its scale is the product of the scales of A and B.
    """
    axis = 0 if call.get("transB", 0) else 1
    nodes = _floats("A") + f"B_f = DequantizeLinear <axis = {axis}> (B, B_scale, B_zero_point)\n"
    if call.has(6):
        nodes += "C_scale = Mul(A_scale, B_scale)  C_f = DequantizeLinear <axis = 0> (C, C_scale)\n"
    result = "Y_f" if call.has(7) else "Y"
    how = "<alpha: float = @alpha, transA: int = @transA, transB: int = @transB>"
    nodes += f"{result} = Gemm {how} (A_f, B_f{', C_f' if call.has(6) else ''})\n"
    return nodes + ("Y = QuantizeLinear(Y_f, Y_scale, Y_zero_point)" if call.has(7) else "")


ONE = "(A, A_scale, A_zero_point, C_scale, C_zero_point) => (C)"


@expands(MICROSOFT, f"QLinearSigmoid {ONE}")
def qlinear_sigmoid(call: Call) -> str:
    return f"{_floats('A')} C_f = Sigmoid(A_f)  {QUANTIZED}"


@expands(MICROSOFT, f"QLinearLeakyRelu <alpha: float = 0.01> {ONE}")
def qlinear_leaky_relu(call: Call) -> str:
    return f"{_floats('A')} C_f = LeakyRelu <alpha: float = @alpha> (A_f)  {QUANTIZED}"


@expands(MICROSOFT, f"QLinearGlobalAveragePool <channels_last: int = 0> {ONE}")
def qlinear_global_average_pool(call: Call) -> str:
    if call.get("channels_last", 0):
        raise refuse("QLinearGlobalAveragePool", "channels_last=1")
    return f"{_floats('A')} C_f = GlobalAveragePool(A_f)  {QUANTIZED}"


def _concat_head(call: Call) -> str:
    parts = ", ".join(f"x{i}, x{i}_scale, x{i}_zero_point" for i in range((len(call.inputs) - 2) // 3))
    return f"QLinearConcat <axis> (C_scale, C_zero_point, {parts}) => (C)"


def QLinearConcat(call: Call) -> str:
    names = [f"x{i}" for i in range((len(call.inputs) - 2) // 3)]
    return f"{_floats(*names)} C_f = Concat <axis: int = @axis> ({', '.join(f'{n}_f' for n in names)})  {QUANTIZED}"


expands(MICROSOFT, _concat_head)(QLinearConcat)


@expands(MICROSOFT, "QuantizeLinear <axis: int = 1, block_size: int = 0> (x, y_scale, y_zero_point) => (y)")
def quantize(call: Call) -> str:
    return "y = QuantizeLinear <axis: int = @axis, block_size: int = @block_size> (x, y_scale, y_zero_point)"


@expands(MICROSOFT, "DequantizeLinear <axis: int = 1, block_size: int = 0> (x, x_scale, x_zero_point) => (y)")
def dequantize(call: Call) -> str:
    return "y = DequantizeLinear <axis: int = @axis, block_size: int = @block_size> (x, x_scale, x_zero_point)"
