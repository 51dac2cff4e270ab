"""PyTorch's backend switches, so that programs that set these switches run. Most switches have no effect here.

These switches have an effect on a GPU: `backends.cuda.matmul.allow_tf32`, and `allow_tf32`, `enabled` and `benchmark`
of `backends.cudnn`.
"""

from __future__ import annotations

from typing import Any

from minorm.backends import cuda, cudnn, mkldnn, mps
from minorm.support.argument_errors import checked
from minorm.support.documented import documented

__all__ = ["compile", "cuda", "cudnn", "mkldnn", "mps", "set_float32_matmul_precision", "use_deterministic_algorithms"]


@documented({}, mode="accepted, without effect", warn_only="accepted, without effect")
@checked
def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Do nothing, because results have the same bits in every run anyway.

    Example:
        >>> mn.use_deterministic_algorithms(True)
    """


@documented(
    {},
    precision='"highest" for float32, "high" or "medium" for TF32, which keeps 10 bits after the point of each number',
)
@checked
def set_float32_matmul_precision(precision: str) -> None:
    """Choose how a GPU computes products of float32 matrices: set `backends.cuda.matmul.allow_tf32`.

    Raises:
        ValueError: `precision` is not one of PyTorch's names for a precision.
    """
    if precision not in ("highest", "high", "medium"):
        raise ValueError(
            f"set_float32_matmul_precision: precision={precision!r}; expected 'highest', 'high' or 'medium'"
        )
    cuda.matmul.allow_tf32 = precision != "highest"


@documented(
    {}, model="a model or a function; None gives a decorator that does nothing", options="accepted, without effect"
)
def compile(model: Any = None, **options: Any) -> Any:
    """Return the model itself; nothing is compiled.

    Example:
        >>> model = nn.Linear(2, 1)
        >>> mn.compile(model, mode="max-autotune") is model
        True
    """
    return model if model is not None else lambda function: compile(function, **options)
