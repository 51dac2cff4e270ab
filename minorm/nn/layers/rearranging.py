"""Layers without weights that resize an image or rearrange its elements."""

from __future__ import annotations

from typing import Any

from minorm.functional import rearranging as F
from minorm.functional.resizing import interpolate
from minorm.nn.options import Options
from minorm.support.documented import arguments_of, documented

Size = int | tuple[int, ...] | None
Factor = float | tuple[float, ...] | None


@documented(arguments_of(interpolate))
class Upsample(Options):
    """y[i] = x at the position (i + 1/2) / scale - 1/2 along each axis, computed from the elements around it.

    This resizes a signal, an image or a volume. x is (N, C, L), (N, C, H, W) or (N, C, D, H, W); y has the lengths
    `size`, or floor(length * scale_factor). A call raises ValueError if `mode` does not fit the number of axes, or if
    size and scale_factor are both given or both missing. See `F.interpolate`.

    Example:
        >>> x = mn.tensor([[[0.0, 4.0]]])
        >>> nn.Upsample(scale_factor=2)(x)
        tensor([[[0., 0., 4., 4.]]])
        >>> nn.Upsample(size=4, mode="linear")(x)
        tensor([[[0., 1., 3., 4.]]])

    Written to ONNX as Resize (opset 19). The bicubic mode is from Keys 1981.
    """

    function = staticmethod(interpolate)

    def __init__(
        self,
        size: Size = None,
        scale_factor: Factor = None,
        mode: str = "nearest",
        align_corners: bool | None = None,
        recompute_scale_factor: bool | None = None,
    ) -> None:
        factor: Any = scale_factor
        if factor is not None:
            factor = tuple(map(float, factor)) if isinstance(factor, (tuple, list)) else float(factor)
        super().__init__(
            size=size,
            scale_factor=factor,
            mode=mode,
            align_corners=align_corners,
            recompute_scale_factor=recompute_scale_factor,
        )

    def extra_repr(self) -> str:
        """Return `size` or `scale_factor`, and the mode, as text for `repr`."""
        given = self._arguments()
        name = "size" if given["scale_factor"] is None else "scale_factor"
        return f"{name}={given[name]}, mode={given['mode']!r}"


@documented(arguments_of(interpolate))
class UpsamplingNearest2d(Upsample):
    """y[n, c, i, j] = x[n, c, floor(i / scale), floor(j / scale)]: `Upsample(mode="nearest")` for images.

    x is (N, C, H, W); y has the lengths `size`, or floor(length * scale_factor).

    Example:
        >>> nn.UpsamplingNearest2d(scale_factor=2)(mn.randn(2, 3, 4, 4)).shape
        (2, 3, 8, 8)

    Written to ONNX as Resize (opset 19).
    """

    def __init__(self, size: Size = None, scale_factor: Factor = None) -> None:
        super().__init__(size, scale_factor)


@documented(arguments_of(interpolate))
class UpsamplingBilinear2d(Upsample):
    """y[n, c, i, j] is a mean of four elements of x: `Upsample(mode="bilinear", align_corners=True)` for images.

    x is (N, C, H, W); y has the lengths `size`, or floor(length * scale_factor). The corners of y are the corners of x.

    Example:
        >>> nn.UpsamplingBilinear2d(size=(2, 3))(mn.tensor([[[[0.0, 4.0], [8.0, 12.0]]]]))
        tensor([[[[ 0.,  2.,  4.],
                  [ 8., 10., 12.]]]])

    Written to ONNX as Resize (opset 19).
    """

    def __init__(self, size: Size = None, scale_factor: Factor = None) -> None:
        super().__init__(size, scale_factor, "bilinear", align_corners=True)


@documented(arguments_of(F.pixel_shuffle))
class PixelShuffle(Options):
    """y[c, h * r + i, w * r + j] = x[c * r^2 + i * r + j, h, w], where r = upscale_factor.

    x is (*, C * r^2, H, W); y is (*, C, H * r, W * r). Channels become pixels: after a convolution, this layer gives an
    image that is larger than the convolution's input. A call raises ValueError if r^2 does not divide the number of
    channels.

    Example:
        >>> nn.PixelShuffle(2)(mn.randn(2, 12, 4, 4)).shape
        (2, 3, 8, 8)

    Written to ONNX as Reshape (opset 25) and Transpose (opset 25); Shi et al. 2016, arXiv:1609.05158.
    """

    function = staticmethod(F.pixel_shuffle)
    shown = "upscale_factor"

    def __init__(self, upscale_factor: int) -> None:
        super().__init__(upscale_factor=upscale_factor)


@documented(arguments_of(F.pixel_unshuffle))
class PixelUnshuffle(Options):
    """y[c * r^2 + i * r + j, h, w] = x[c, h * r + i, w * r + j], where r = downscale_factor.

    x is (*, C, H * r, W * r); y is (*, C * r^2, H, W). Pixels become channels: this is the inverse of PixelShuffle. A
    call raises ValueError if r does not divide height and width.

    Example:
        >>> nn.PixelUnshuffle(2)(mn.randn(2, 3, 8, 8)).shape
        (2, 12, 4, 4)

    Written to ONNX as Reshape (opset 25) and Transpose (opset 25); Shi et al. 2016, arXiv:1609.05158.
    """

    function = staticmethod(F.pixel_unshuffle)
    shown = "downscale_factor"

    def __init__(self, downscale_factor: int) -> None:
        super().__init__(downscale_factor=downscale_factor)


@documented(arguments_of(F.channel_shuffle))
class ChannelShuffle(Options):
    """y[:, i * groups + g] = x[:, g * n + i] with n = C / groups: y takes one channel from each group in turn.

    x is (N, C, ...); y has x's shape. Between two grouped convolutions, this layer mixes the groups: each group of the
    second convolution gets channels from all groups of the first convolution. A call raises ValueError if groups does
    not divide the number of channels.

    Example:
        >>> nn.ChannelShuffle(2)(mn.arange(4).reshape(1, 4, 1)).flatten()
        tensor([0, 2, 1, 3])

    Written to ONNX as Reshape (opset 25) and Transpose (opset 25); Zhang et al. 2018, arXiv:1707.01083.
    """

    function = staticmethod(F.channel_shuffle)
    shown = "groups"

    def __init__(self, groups: int) -> None:
        super().__init__(groups=groups)


@documented(arguments_of(F.unfold))
class Unfold(Options):
    """y[n, :, l] = window l of x[n], as a column. A convolution multiplies these columns by its weight.

    x is (N, C, H, W), or one image (C, H, W); y is (N, C * kernel elements, L), where L is the number of windows. The
    padding is zeros. A call raises ValueError if the windows do not fit.

    Example:
        >>> nn.Unfold(3)(mn.randn(2, 3, 8, 8)).shape  # 3 * 9 numbers, 6 * 6 windows
        (2, 27, 36)

    Written to ONNX as Pad (opset 25) and Gather (opset 13).
    """

    function = staticmethod(F.unfold)
    shown = "kernel_size dilation padding stride"

    def __init__(
        self,
        kernel_size: int | tuple[int, ...],
        dilation: int | tuple[int, ...] = 1,
        padding: int | tuple[int, ...] = 0,
        stride: int | tuple[int, ...] = 1,
    ) -> None:
        super().__init__(kernel_size=kernel_size, dilation=dilation, padding=padding, stride=stride)


@documented(arguments_of(F.fold))
class Fold(Options):
    """y = the sum of the windows x[n, :, l], each at its position in the image. This is the transpose of Unfold.

    x is (N, C * kernel elements, L), and y is (N, C, *output_size). For a single image neither shape has N. A call
    raises ValueError if the windows do not fit.

    Example:
        >>> x = nn.Unfold(2)(mn.ones(1, 1, 3, 3))
        >>> nn.Fold(3, 2)(x)  # the number of windows that see each pixel
        tensor([[[[1., 2., 1.],
                  [2., 4., 2.],
                  [1., 2., 1.]]]])

    Written to ONNX as ScatterElements (opset 18).
    """

    function = staticmethod(F.fold)
    shown = "output_size kernel_size dilation padding stride"

    def __init__(
        self,
        output_size: int | tuple[int, ...],
        kernel_size: int | tuple[int, ...],
        dilation: int | tuple[int, ...] = 1,
        padding: int | tuple[int, ...] = 0,
        stride: int | tuple[int, ...] = 1,
    ) -> None:
        super().__init__(
            output_size=output_size, kernel_size=kernel_size, dilation=dilation, padding=padding, stride=stride
        )
