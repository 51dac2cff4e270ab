"""The linear and the bilinear layer as functions."""

from __future__ import annotations

from minorm.functional.arguments import floats
from minorm.graph import trace
from minorm.ops.linear import Linear
from minorm.support.documented import documented
from minorm.tensor.tensor import Tensor


@documented({}, x="(..., in), floats", weight="(out, in), of x's type", bias="(out), of x's type; None is 0")
@trace.operation
def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """y = x @ weight.T + bias

    y is (..., out). Raises ValueError if the shapes do not fit together, and TypeError if the types differ.

    Example:
        >>> F.linear(mn.tensor([[1.0, 2.0]]), weight=mn.tensor([[3.0, 4.0], [0.0, 1.0]]), bias=mn.tensor([0.0, 10.0]))
        tensor([[11., 12.]])

    Its ONNX operator is Gemm (opset 13) if x is (N, in). For other shapes of x its operators are MatMul (opset 13) and
    Add.
    """
    floats("linear", x=x, weight=weight, bias=bias)
    if weight.ndim != 2:
        raise ValueError(f"linear: weight has shape {weight.shape}; expected 2 dimensions (out, in)")
    if x.ndim == 0 or x.shape[-1] != weight.shape[1]:
        given = x.shape[-1] if x.ndim else "no"
        raise ValueError(
            f"linear: x has {given} features in its last axis, weight takes {weight.shape[1]}; expected x.shape[-1] == "
            f"weight.shape[1]; x.shape is {x.shape}, weight.shape is {weight.shape}"
            + ("; to join all axes after the first, pass x.flatten(1)" if x.ndim > 2 else "")
        )
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ValueError(
            f"linear: bias has shape {bias.shape}; expected {weight.shape[:1]}, one number for each output"
        )
    return Linear.apply(x, weight, bias)


@documented(
    {},
    input1="(..., in1), floats",
    input2="(..., in2), with the leading axes of input1",
    weight="(out, in1, in2)",
    bias="(out); None is 0",
)
@trace.operation
def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """y[..., o] = input1[..., :] @ weight[o] @ input2[..., :] + bias[o]

    y is (..., out). Raises ValueError if the shapes do not fit together.

    Example:
        >>> F.bilinear(mn.tensor([1.0, 2.0]), mn.tensor([3.0]), weight=mn.tensor([[[1.0], [10.0]]]))
        tensor([63.])
    """
    floats("bilinear", input1=input1, input2=input2, weight=weight, bias=bias)
    if (
        weight.ndim != 3
        or input1.shape[:-1] != input2.shape[:-1]
        or ((input1.shape[-1:], input2.shape[-1:]) != (weight.shape[1:2], weight.shape[2:]))
    ):
        raise ValueError(
            f"bilinear: input1 is {input1.shape}, input2 {input2.shape}, weight {weight.shape}; expected (..., in1), "
            "(..., in2) and (out, in1, in2)"
        )
    out, wide, other = weight.shape
    left = input1 @ weight.permute(1, 0, 2).reshape(wide, out * other)
    y = (left.reshape(*input1.shape[:-1], out, other) * input2.unsqueeze(-2)).sum(-1)
    return y if bias is None else y + bias
