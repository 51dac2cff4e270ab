"""Filter response normalization: divides each channel of each sample by the channel's root mean square."""

from __future__ import annotations

from typing import Any

from minorm.functional.norm.call_table import calls, form_of
from minorm.functional.norm.checks import check_per_channel, check_types, equation
from minorm.functional.norm.texts import ARGUMENTS
from minorm.graph import trace
from minorm.normalization.call import NormCall
from minorm.normalization.normalize import Normalize
from minorm.support.documented import documented
from minorm.tensor.tensor import Tensor


@documented(ARGUMENTS, x="(N, C, *positions)", eps="added to the mean of squares")
@trace.operation
def filter_response_norm(
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-6,
    *,
    compute_dtype: Any = None,
    backend: Any = None,
) -> Tensor:
    """y = x / sqrt(mean(x^2) + eps) * weight + bias, with the mean over all positions of each channel in each sample.

    y does not depend on other samples, so training and evaluation are the same. If a channel has a single position, y
    is almost the sign of x, and hardly any gradient passes. For such inputs choose an eps near 1, as the paper does. y
    has x's shape and type. Raises ValueError if the shapes do not fit together.

    Example:
        >>> F.filter_response_norm(mn.tensor([[[3.0, 4.0]]]))
        tensor([[[0.8485, 1.1314]]])

    An ONNX export writes the formula's operations; Singh and Krishnan 2019, arXiv:1911.09737.
    """
    form = form_of("filter_response_norm", backend, (x, weight, bias), (eps, compute_dtype))
    call = calls.get(form, backend)
    if call is None:
        computed = check_types("filter_response_norm", x, compute_dtype, weight=weight, bias=bias)
        rule = equation("filter_response_norm", eps, False)
        if x.ndim < 3:
            raise ValueError(
                f"filter_response_norm: x has shape {x.shape}; expected (N, C, *positions) with at least 3 axes"
            )
        check_per_channel("filter_response_norm", x, weight=weight, bias=bias)
        param = () if weight is None and bias is None else (1,)
        made = NormCall(x.array, rule, tuple(range(2, x.ndim)), param, compute_dtype=computed, backend=backend)
        call = calls.keep(form, made)
    return Normalize.apply(x, weight, bias, call=call)
