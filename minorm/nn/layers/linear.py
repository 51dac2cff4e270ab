"""The layers Linear, Identity, Flatten and Unflatten."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import minorm.functional as F
from minorm.functional.argument_texts import PLACE
from minorm.nn import init
from minorm.nn.attributes import MadeBy
from minorm.nn.module import Module
from minorm.nn.parameter import check_sizes, uninitialized
from minorm.support.argument_errors import not_a_tensor
from minorm.support.documented import documented
from minorm.tensor.tensor import Tensor


@documented(
    PLACE,
    in_features="the length of the last axis of x",
    out_features="the length of the last axis of y",
    bias="False leaves the bias out",
)
class Linear(Module):
    """y = x @ weight.T + bias along the last axis: each feature of y is a weighted sum of the features of x.

    x is (..., in_features); y is (..., out_features) and has x's type. weight (out_features, in_features) and bias
    (out_features) are learned. Their starting values are uniform between -b and b, with b = 1 / sqrt(in_features). A
    call raises ValueError if the last axis of x does not have length in_features, and TypeError if x does not have
    weight's type.

    Example:
        >>> layer = nn.Linear(3, 2)
        >>> layer(mn.randn(8, 3)).shape
        (8, 2)
        >>> layer.weight.shape, layer.bias.shape
        ((2, 3), (2,))

    Written to ONNX as Gemm (opset 13), or as MatMul (opset 13) and Add (opset 14) if x has more than two axes.
    """

    _made_by: ClassVar[MadeBy] = {
        "in_features": lambda layer: layer.weight.shape[1],
        "out_features": lambda layer: layer.weight.shape[0],
    }

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        check_sizes("Linear", in_features=in_features, out_features=out_features)
        self.in_features, self.out_features = in_features, out_features
        self.weight = uninitialized((out_features, in_features), dtype, device)
        self.register_parameter("bias", uninitialized((out_features,), dtype, device) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw weight and bias again."""
        init.default_(self.weight, self.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Map x (..., in_features) to (..., out_features)."""
        return F.linear(x, self.weight, self.bias)

    def extra_repr(self) -> str:
        """Return in_features, out_features and bias as text for `repr`."""
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


@documented({}, args="accepted but ignored", kwargs="accepted but ignored")
class Identity(Module):
    """y = x: a placeholder for a layer that is left out. It accepts any arguments.

    x can be anything.

    Example:
        >>> model = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
        >>> model[1] = nn.Identity()  # instead of the ReLU
        >>> model(mn.randn(8, 3)).shape
        (8, 3)

    Written to ONNX as Identity (opset 25).
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ARG002
        super().__init__()

    def forward(self, x: Any) -> Any:
        """Return x."""
        return x


@documented(
    {}, start_dim="the first axis to join", end_dim="the last axis to join; negative numbers count from the end"
)
class Flatten(Module):
    """y = x with the axes start_dim to end_dim joined: (N, C, H, W) becomes (N, C * H * W) by default.

    The elements keep their order. x is copied only if its elements do not lie in memory in this order.

    Example:
        >>> nn.Flatten()(mn.randn(8, 3, 4, 4)).shape
        (8, 48)

    Written to ONNX as Reshape (opset 25).
    """

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, x: Tensor) -> Tensor:
        """Return the elements of x with fewer axes."""
        if not isinstance(x, Tensor):
            raise not_a_tensor("Flatten", "x", x)
        return x.flatten(self.start_dim, self.end_dim)

    def extra_repr(self) -> str:
        """Return start_dim and end_dim as text for `repr`."""
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


@documented(
    {},
    dim="the axis to split; negative numbers count from the end",
    unflattened_size="the lengths of the new axes; one length may be -1, and is computed from the others",
)
class Unflatten(Module):
    """y = x with axis `dim` split into several axes: (N, C * H * W) becomes (N, C, H, W). This is the inverse of
    Flatten.

    The elements keep their order. A call raises IndexError if x has no axis `dim`, and ValueError if the product of the
    sizes is not the length of that axis.

    Example:
        >>> nn.Unflatten(1, (3, 4, 4))(mn.randn(8, 48)).shape
        (8, 3, 4, 4)

    Written to ONNX as Reshape (opset 25).
    """

    def __init__(self, dim: int, unflattened_size: Sequence[int]) -> None:
        super().__init__()
        self.dim, self.unflattened_size = dim, tuple(unflattened_size)

    def forward(self, x: Tensor) -> Tensor:
        """Return the elements of x with more axes."""
        if not isinstance(x, Tensor):
            raise not_a_tensor("Unflatten", "x", x)
        if not -x.ndim <= self.dim < x.ndim:
            raise IndexError(f"Unflatten: dim={self.dim} is out of range for shape {x.shape}")
        dim = self.dim % x.ndim
        return x.reshape(*x.shape[:dim], *self.unflattened_size, *x.shape[dim + 1 :])

    def extra_repr(self) -> str:
        """Return the axis and its new sizes as text for `repr`."""
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"
