"""Muon: the step of a matrix is the momentum, after all singular values of the momentum have been moved near 1.

    b = momentum * b + (1 - momentum) * g        the average of the gradients
    p -= lr * weight_decay * p
    p -= lr * adjusted * orthogonal(b)           every direction of the matrix takes a step of the same size

`orthogonal` does not compute the singular values. It applies an odd polynomial to the matrix a few times, and this
moves all singular values towards 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from minorm.devices import dtypes
from minorm.kernels.select import backend
from minorm.optim.argument_texts import OPTIMIZER
from minorm.optim.per_element import Elementwise, blend
from minorm.support.documented import documented

ADJUSTMENTS = (None, "original", "match_rms_adamw")


@documented(
    OPTIMIZER,
    weight_decay="at each step p is reduced by lr * weight_decay * p",
    momentum="the share of the old average b that is kept, 0 to 1",
    nesterov="True steps along (1 - momentum) g + momentum b instead of b",
    ns_coefficients="(a, b, c) of the polynomial a X + b (X X') X + c (X X')^2 X",
    eps="before the first polynomial, a matrix is divided by its norm, but by eps if the norm is smaller",
    ns_steps="how many times the polynomial is applied, below 100",
    adjust_lr_fn='how lr depends on the shape m x n: None and "original" multiply lr by sqrt(max(1, m / n)); '
    '"match_rms_adamw" multiplies lr by 0.2 sqrt(max(m, n)), so that lr and weight_decay may be those of AdamW',
)
class Muon(Elementwise):
    """p -= lr * adjusted * orthogonal(b)  with  b = momentum b + (1 - momentum) g, for the matrices of hidden layers.

    Give embeddings, biases and the last layer to another optimizer, such as AdamW. As in PyTorch, the polynomials are
    computed in bfloat16. Raises ValueError for a parameter that is not a matrix, for a negative setting and for an
    unknown adjust_lr_fn.

    Example:
        >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
        >>> hidden = [model[2].weight]
        >>> others = [p for p in model.parameters() if p is not model[2].weight]
        >>> optimizers = mn.optim.Muon(hidden, lr=0.02), mn.optim.AdamW(others)
        >>> model(mn.ones(1, 4)).sum().backward()
        >>> for optimizer in optimizers:
        ...     optimizer.step()

    Jordan et al. 2024, kellerjordan.github.io/posts/muon; for match_rms_adamw Liu et al. 2025,
    arXiv:2502.16982.
    """

    names, decoupled = ("momentum_buffer",), True
    _counts = ("ns_steps",)

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315),
        eps: float = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
    ) -> None:
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, "momentum": momentum, "nesterov": nesterov,
                                  "ns_coefficients": tuple(ns_coefficients), "eps": eps, "ns_steps": ns_steps,
                                  "adjust_lr_fn": adjust_lr_fn})  # fmt: skip

    def _check(self, group: dict[str, Any]) -> None:
        super()._check(group)
        for index, p in enumerate(group["params"]):
            if p.ndim != 2:
                raise ValueError(
                    f"Muon: params[{index}] has shape {p.shape}; expected a matrix; use another optimizer for other "
                    "shapes"
                )
        if group["adjust_lr_fn"] not in ADJUSTMENTS:
            raise ValueError(
                f"Muon: adjust_lr_fn={group['adjust_lr_fn']!r}; expected None, 'original' or 'match_rms_adamw'"
            )
        if len(group["ns_coefficients"]) != 3:
            raise ValueError(f"Muon: ns_coefficients={group['ns_coefficients']}; expected three numbers")
        self._require(group, "ns_steps")
        if not group["ns_steps"] < 100:
            raise ValueError(f"Muon: ns_steps={group['ns_steps']}; expected 0 <= ns_steps < 100")

    def move(self, group: dict[str, Any], p: Any, g: Any, state: dict[str, Any], t: int) -> Any:  # noqa: ARG002
        """Return p after step t, by the formula of the class."""
        lr, momentum = group["lr"], group["momentum"]
        direction = blend(state["momentum_buffer"], g, momentum)
        if group["nesterov"]:
            direction = (1 - momentum) * g + momentum * direction.astype(p.dtype, copy=False)
        step = orthogonal(direction, group["ns_coefficients"], group["ns_steps"], group["eps"])
        return p * (1 - lr * group["weight_decay"]) - adjusted(lr, group["adjust_lr_fn"], p.shape) * step.astype(
            p.dtype
        )


def adjusted(lr: float, how: str | None, shape: tuple[int, ...]) -> float:
    """Return the learning rate for a matrix of this shape; `how` is the setting adjust_lr_fn."""
    rows, columns = shape
    return lr * (0.2 * math.sqrt(max(rows, columns)) if how == "match_rms_adamw" else math.sqrt(max(1, rows / columns)))


def orthogonal(matrix: Any, coefficients: tuple[float, float, float], steps: int, eps: float) -> Any:
    """Return the matrix in float32 after moving its singular values towards 1; every step rounds to bfloat16."""
    a, b, c = coefficients
    kernels = backend(matrix)
    half = dtypes.check("bfloat16", "Muon")

    def rounded(x: Any) -> Any:
        return kernels.copying.cast(kernels.copying.cast(x, half), dtypes.float32)

    tall = matrix.shape[0] > matrix.shape[1]
    x = rounded(matrix.T if tall else matrix)
    size = rounded(np.sqrt((x * x).sum(keepdims=True)))
    x = rounded(x / np.maximum(size, np.float32(eps)))
    multiply = kernels.matmul.matmul
    for _ in range(steps):
        gram = rounded(multiply(x, x.T))
        higher = rounded(np.float32(b) * gram + np.float32(c) * multiply(gram, gram))
        x = rounded(np.float32(a) * x + multiply(higher, x))
    return x.T if tall else x
