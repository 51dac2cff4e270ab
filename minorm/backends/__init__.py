"""PyTorch's switches of its backends, so that programs that set them run: here they change nothing.

`backends.cudnn.benchmark = True` is taken, since nothing has to be tried out; results are deterministic anyway.
"""

from __future__ import annotations

from typing import Any

from minorm.backends import cudnn, mkldnn, mps
from minorm.documented import documented
from minorm.mistakes import checked

__all__ = ["compile", "cudnn", "mkldnn", "mps", "set_float32_matmul_precision", "use_deterministic_algorithms"]


@documented({}, mode="taken, without effect", warn_only="taken, without effect")
@checked
def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Nothing: results have the same bits on every run anyway.

    Example:
        >>> mn.use_deterministic_algorithms(True)
    """


@documented({}, precision="taken, without effect")
@checked
def set_float32_matmul_precision(precision: str) -> None:
    """Nothing: float32 is computed in float32."""


@documented(
    {}, model="a model or a function; None gives a decorator that does nothing", options="taken, without effect"
)
def compile(model: Any = None, **options: Any) -> Any:
    """The model itself, which runs as it is.

    Example:
        >>> model = nn.Linear(2, 1)
        >>> mn.compile(model, mode="max-autotune") is model
        True
    """
    return model if model is not None else lambda function: compile(function, **options)
