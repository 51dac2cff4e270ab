"""GhostBatchNorm: a BatchNorm over groups of the batch. A large batch then has the noise of small batches."""

from __future__ import annotations

from typing import Any

import minorm.functional as F
from minorm.functional.norm.texts import LAYER, NONFINITE_GROUPS
from minorm.nn.norm.batch import _Variant
from minorm.nn.parameter import check_sizes
from minorm.support.documented import documented
from minorm.tensor.tensor import Tensor


@documented(LAYER, update_nonfinite=NONFINITE_GROUPS)
class GhostBatchNorm(_Variant):
    """y = (x - mean) / sqrt(var + eps) * weight + bias, with mean and var of each channel over a group of the batch.

    x (N, C) or (N, C, *positions) is cut along N into groups of virtual_batch_size. In training one call gives the same
    result as one call of BatchNorm for each group in turn, and updates the running statistics the same way. In
    evaluation the layer computes the same as BatchNorm. The parameters and the state are the same as in BatchNorm. y
    has x's shape and type. See `F.ghost_batch_norm`.

    Example:
        >>> layer = nn.GhostBatchNorm(3, virtual_batch_size=4)
        >>> layer(mn.randn(8, 3, 5, 5)).shape
        (8, 3, 5, 5)
        >>> layer.num_batches_tracked.item()
        2

    An ONNX export writes one BatchNormalization (opset 15) for each group, so a file fixes the number of groups;
    Hoffer, Hubara and Soudry 2017, arXiv:1705.08741.
    """

    ranks, form = (2, 3, 4, 5), "(N, C) or (N, C, *positions)"

    def __init__(
        self,
        num_features: int | tuple[int, ...],
        virtual_batch_size: int,
        eps: float = 1e-5,
        momentum: float | None = 0.9,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
        unbiased_running_var: bool = False,
        update_nonfinite: bool = False,
        compute_dtype: Any = None,
        backend: Any = None,
    ) -> None:
        check_sizes("GhostBatchNorm", virtual_batch_size=virtual_batch_size)
        super().__init__(
            num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias,
            unbiased_running_var=unbiased_running_var, update_nonfinite=update_nonfinite,
            compute_dtype=compute_dtype, backend=backend,
        )  # fmt: skip
        self.virtual_batch_size = virtual_batch_size

    def normalize(self, x: Tensor, mean: Any, var: Any, *args: Any, **options: Any) -> Tensor:
        """Call F.ghost_batch_norm with the size of a group."""
        return F.ghost_batch_norm(x, mean, var, self.virtual_batch_size, *args, **self._without(options))

    def extra_repr(self) -> str:
        """Return the options as text for `repr`."""
        features, rest = super().extra_repr().split(", eps=", 1)
        return f"{features}, virtual_batch_size={self.virtual_batch_size}, eps={rest}"
