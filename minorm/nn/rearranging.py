"""Layers that give an image other lengths, or arrange its elements anew; they hold no weights."""

from __future__ import annotations

from typing import Any

from minorm.functional import rearranging as F
from minorm.functional.resizing import interpolate
from minorm.nn.options import Options

Size = int | tuple[int, ...] | None
Factor = float | tuple[float, ...] | None


class Upsample(Options):
    """(N, C, *lengths) with the lengths `size`, or lengths times scale_factor; see `F.interpolate`."""

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
        """The lengths or the factor, and the mode."""
        given = self.options()
        name = "size" if given["scale_factor"] is None else "scale_factor"
        return f"{name}={given[name]}, mode={given['mode']!r}"


class UpsamplingNearest2d(Upsample):
    """`Upsample(mode="nearest")` of images."""

    def __init__(self, size: Size = None, scale_factor: Factor = None) -> None:
        super().__init__(size, scale_factor)


class UpsamplingBilinear2d(Upsample):
    """`Upsample(mode="bilinear", align_corners=True)` of images."""

    def __init__(self, size: Size = None, scale_factor: Factor = None) -> None:
        super().__init__(size, scale_factor, "bilinear", align_corners=True)


class PixelShuffle(Options):
    """(*, C * r^2, H, W) -> (*, C, H * r, W * r), r = upscale_factor"""

    function = staticmethod(F.pixel_shuffle)
    shown = "upscale_factor"

    def __init__(self, upscale_factor: int) -> None:
        super().__init__(upscale_factor=upscale_factor)


class PixelUnshuffle(Options):
    """(*, C, H * r, W * r) -> (*, C * r^2, H, W), r = downscale_factor"""

    function = staticmethod(F.pixel_unshuffle)
    shown = "downscale_factor"

    def __init__(self, downscale_factor: int) -> None:
        super().__init__(downscale_factor=downscale_factor)


class ChannelShuffle(Options):
    """The channels of `groups` groups, dealt in turn"""

    function = staticmethod(F.channel_shuffle)
    shown = "groups"

    def __init__(self, groups: int) -> None:
        super().__init__(groups=groups)


class Unfold(Options):
    """(N, C, H, W) -> (N, C * kh * kw, L): the windows of an image as columns"""

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


class Fold(Options):
    """(N, C * kh * kw, L) -> (N, C, *output_size): windows put back, added up where they overlap"""

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
