"""grid_sample reads images at the positions in a grid. affine_grid computes such a grid."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from minorm.devices import constant_of, dtypes
from minorm.functional.arguments import float_type
from minorm.graph import trace
from minorm.ops.grid_sample import GridSample
from minorm.support.documented import documented
from minorm.tensor.tensor import Tensor

MODES = ("bilinear", "nearest", "bicubic")
PADDINGS = ("zeros", "border", "reflection")


@documented(
    {},
    input="(N, C, H, W), floats; or (N, C, D, H, W)",
    grid="(N, h, w, 2), positions (across, down) for each element of y; or (N, d, h, w, 3), (across, down, deep)",
    mode='how to read between elements: "bilinear", "nearest" (ties go to the even index) or "bicubic"',
    padding_mode='values outside: 0 ("zeros"), the nearest element ("border"), or input mirrored ("reflection")',
    align_corners="-1 and 1 are the centres (True) or the outer edges (False) of the first and the last element",
)
@trace.operation
def grid_sample(
    input: Tensor, grid: Tensor, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: bool = False
) -> Tensor:
    """y[n, c, i, j] = input[n, c] at the position grid[n, i, j] = (across, down), where -1 and 1 are the ends of input.

    y is (N, C, h, w), or (N, C, d, h, w). Gradients flow to input and grid. Raises ValueError if the shapes do not fit
    together.

    Example:
        >>> x = mn.tensor([[[[1.0, 3.0]]]])
        >>> F.grid_sample(x, mn.tensor([[[[-0.5, 0.0], [0.0, 0.0]]]]))  # the centres of a pixel and of the image
        tensor([[[[1., 2.]]]])

    Its ONNX operator is GridSample (opset 20); Jaderberg et al. 2015, arXiv:1506.02025.
    """
    float_type("grid_sample", "input", input)
    float_type("grid_sample", "grid", grid)
    for name, given, known in (("mode", mode, MODES), ("padding_mode", padding_mode, PADDINGS)):
        if given not in known:
            raise ValueError(f"grid_sample: {name} is {given!r}; expected one of {', '.join(known)}")
    axes = input.ndim - 2
    if axes < 1 or grid.ndim != input.ndim or grid.shape[-1] != axes or grid.shape[0] != input.shape[0]:
        raise ValueError(
            f"grid_sample: grid has shape {grid.shape}, input {input.shape}; expected a grid (N, ..., {max(axes, 1)}) "
            "with as many axes as input, which is (N, C, ...)"
        )
    if 0 in input.shape[2:]:
        raise ValueError(f"grid_sample: input has shape {input.shape}; expected at least one element along each axis")
    return GridSample.apply(input, grid, mode=mode, padding_mode=padding_mode, align_corners=bool(align_corners))


@documented(
    {},
    theta="(N, 2, 3), floats, a map of the plane for each image; or (N, 3, 4), a map of space for each volume",
    size="(N, C, H, W), the shape of the result of grid_sample; or (N, C, D, H, W)",
    align_corners="-1 and 1 are the centres (True) or the outer edges (False) of the first and the last element",
)
@trace.operation
def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool = False) -> Tensor:
    """grid[n, i, j] = theta[n] @ (across, down, 1), with across and down from -1 to 1: a grid for grid_sample.

    The grid is (N, H, W, 2), or (N, D, H, W, 3). Raises ValueError if the shapes do not fit together.

    Example:
        >>> still = mn.tensor([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]])
        >>> F.affine_grid(still, (1, 1, 1, 2))
        tensor([[[[-0.5,  0. ],
                  [ 0.5,  0. ]]]])

    Its ONNX operator is AffineGrid (opset 20).
    """
    float_type("affine_grid", "theta", theta)
    lengths = tuple(size[2:])
    if theta.ndim != 3 or len(size) < 3 or theta.shape != (size[0], len(lengths), len(lengths) + 1):
        raise ValueError(
            f"affine_grid: theta has shape {theta.shape}, size is {tuple(size)}; expected theta (N, 2, 3) for size "
            "(N, C, H, W), or (N, 3, 4) for (N, C, D, H, W)"
        )
    wide = dtypes.compute_type(theta.dtype)
    steps = [_positions(n, align_corners) for n in lengths]
    across_first = np.meshgrid(*steps, indexing="ij")[::-1]
    base = np.stack([*across_first, np.ones(lengths)], -1).reshape(-1, len(lengths) + 1).astype(wide)
    grid = Tensor(constant_of(base, theta.array)) @ theta.to(wide).mT
    return grid.to(theta.dtype).reshape(size[0], *lengths, len(lengths))


def _positions(n: int, align_corners: bool) -> np.ndarray:
    """Return the centres of n elements in [-1, 1]; align_corners=True puts the first and the last centre at the ends.
    For n = 1 the only centre is 0.
    """
    if n == 1:
        return np.zeros(1)
    return np.linspace(-1, 1, n) if align_corners else (2 * np.arange(n) + 1) / n - 1
