"""Expand fused operators: Gelu variants with and without a bias, products and convolutions with an activation."""

from __future__ import annotations

from minorm.onnx.operators.expansions import Call, expands, number, refuse

MICROSOFT = "com.microsoft"


@expands(MICROSOFT, "Gelu (X) => (Y)")
def gelu(call: Call) -> str:
    return "Y = Gelu(X)"


@expands(MICROSOFT, "BiasGelu (A, B) => (C)")
def bias_gelu(call: Call) -> str:
    return "s = Add(A, B)  C = Gelu(s)"


@expands(MICROSOFT, "FastGelu (X, bias) => (Y)")
def fast_gelu(call: Call) -> str:
    return _biased(call, 'Y = Gelu <approximate = "tanh"> (s)')


def _biased(call: Call, rest: str) -> str:
    return ("s = Add(X, bias)  " if call.has(1) else "s = Identity(X)  ") + rest


@expands(MICROSOFT, "QuickGelu <alpha: float = 1.702> (X) => (Y)")
def quick_gelu(call: Call) -> str:
    return "Y = Swish <alpha: float = @alpha> (X)"


# The activations that a fused operator may name; the numbers are its activation_params.
_PLAIN = ("Relu", "Sigmoid", "Tanh", "Softplus", "Softsign")
_WITH_NUMBERS = {
    "LeakyRelu": ("alpha",),
    "Elu": ("alpha",),
    "ThresholdedRelu": ("alpha",),
    "HardSigmoid": ("alpha", "beta"),
}


def activated(call: Call, x: str, y: str) -> str:
    """Write the nodes that compute y from x with the activation that the call names."""
    name, numbers = call.get("activation", ""), list(call.get("activation_params", []))
    numbers = numbers or [
        call.attributes[n] for n in (f"activation_{k}" for k in ("alpha", "beta")) if n in call.attributes
    ]
    if not name:
        return f"{y} = Identity({x})"
    if name in _PLAIN:
        return f"{y} = {name}({x})"
    if name == "Clip" and len(numbers) == 2:
        return f"{number('low', numbers[0], x)} {number('high', numbers[1], x)} {y} = Clip({x}, low, high)"
    if name in _WITH_NUMBERS:
        given = zip(_WITH_NUMBERS[name], numbers, strict=False)
        said = ", ".join(f"{key}: float = {float(value)!r}" for key, value in given)
        return f"{y} = {name} <{said}> ({x})" if said else f"{y} = {name}({x})"
    raise refuse("an activation", f"the name {name!r} and the numbers {numbers}; expected one of "
                 f"{', '.join((*_PLAIN, *_WITH_NUMBERS, 'Clip'))}")  # fmt: skip


WINDOW = ("auto_pad: string = @auto_pad, dilations: ints = @dilations, group: int = @group, "
          "kernel_shape: ints = @kernel_shape, pads: ints = @pads, strides: ints = @strides")  # fmt: skip
WINDOW_NAMES = "auto_pad, dilations, group, kernel_shape, pads, strides"


@expands(MICROSOFT, f"FusedConv <{WINDOW_NAMES}, activation, activation_params> (X, W, B, Z) => (Y)")
def fused_conv(call: Call) -> str:
    conv = f"c = Conv <{WINDOW}> (X, W, B)\n"
    return conv + ("s = Add(c, Z)\n" if call.has(3) else "s = Identity(c)\n") + activated(call, "s", "Y")


@expands(
    MICROSOFT,
    "FusedGemm <alpha, beta, transA, transB, activation, activation_alpha, activation_beta, activation_gamma> "
    "(A, B, C) => (Y)",
)
def fused_gemm(call: Call) -> str:
    options = "alpha: float = @alpha, beta: float = @beta, transA: int = @transA, transB: int = @transB"
    gemm = f"s = Gemm <{options}> (A, B, C)\n"
    return gemm + activated(call, "s", "Y")


MATMUL = "alpha: float = 1.0, transA: int = 0, transB: int = 0, transBatchA: int = 0, transBatchB: int = 0"


@expands(MICROSOFT, f"FusedMatMul <{MATMUL}> (A, B) => (Y)")
@expands(MICROSOFT, f"TransposeMatMul <{MATMUL}> (A, B) => (Y)")
def fused_matmul(call: Call) -> str:
    return _matmul(call, "Y")


@expands(
    MICROSOFT,
    f"FusedMatMulActivation <{MATMUL}, activation, activation_alpha, activation_beta, activation_gamma, "
    "activation_axis> (A, B) => (Y)",
)
def fused_matmul_activation(call: Call) -> str:
    return f"{_matmul(call, 's')}\n{activated(call, 's', 'Y')}"


def _matmul(call: Call, y: str) -> str:
    factors = []
    nodes = ""
    for place, name in enumerate("AB"):
        nodes += _turned(call, place, name)
        factors.append(f"{name}_turned" if call.get(f"trans{name}", 0) or call.get(f"transBatch{name}", 0) else name)
    product = f"MatMul({', '.join(factors)})"
    alpha = call.get("alpha", 1.0)
    if alpha == 1:
        return f"{nodes} {y} = {product}"
    return f"{nodes} p = {product}  {number('factor', alpha, 'p')} {y} = Mul(p, factor)"


def _turned(call: Call, place: int, name: str) -> str:
    """Return the text of a Transpose of factor `name`, or "" if the node's attributes ask for no Transpose.

    The attribute trans exchanges the last two axes. The attribute transBatch makes axis 0 the last batch axis.
    """
    swap, batch, rank = call.get(f"trans{name}", 0), call.get(f"transBatch{name}", 0), call.rank(place)
    if not swap and not batch:
        return ""
    if rank is None:  # without the rank a permutation is impossible, but Einsum's letters work
        given = "j...i" if batch else "...ji"
        wanted = "...ij" if swap else "...ji"
        return f'{name}_turned = Einsum <equation = "{given}->{wanted}"> ({name})  '
    order = [*range(1, rank - 1), 0, rank - 1] if batch else [*range(rank)]
    if swap and rank > 1:
        order[-2:] = order[:-3:-1]
    return f"{name}_turned = Transpose <perm = [{', '.join(map(str, order))}]> ({name})  "
