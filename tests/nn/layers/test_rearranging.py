"""Layers that move elements: against PyTorch's."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("expecttest")

from tests.pytorch.twins.samples import numbers, same_function, same_layer

WINDOWS: list[dict[str, Any]] = [
    {"kernel_size": 2},
    {"kernel_size": 3, "padding": 1},
    {"kernel_size": (2, 3), "stride": (2, 1), "padding": (0, 1)},
    {"kernel_size": (3, 2), "stride": (3, 2), "padding": (2, 1), "dilation": (1, 2)},
]


@pytest.mark.parametrize("settings", WINDOWS)
def test_unfold_and_fold(settings: dict[str, Any]) -> None:
    x = numbers(2, 3, 6, 7)
    columns = same_layer("Unfold", x, **settings)
    same_function("unfold", x, **settings)
    same_function("unfold", numbers(3, 6, 7), **settings)
    rows, places = columns(_ours(x)).shape[1:]
    for shape in ((2, rows, places), (rows, places)):
        same_layer("Fold", numbers(*shape), output_size=(6, 7), **settings)
        same_function("fold", numbers(*shape), (6, 7), **settings)


def _ours(x: Any) -> Any:
    import minorm as mn

    return mn.tensor(x.detach().numpy())


def test_shuffles() -> None:
    for groups in (1, 2, 3, 6):
        same_layer("ChannelShuffle", numbers(2, 6, 3, 2), given=(groups,))
        same_function("channel_shuffle", numbers(2, 6, 3, 2), groups)
        same_function("native_channel_shuffle", numbers(2, 6, 3, 2, grad=False), groups)
    same_function("channel_shuffle", numbers(2, 6, 2, 3, 2), 3)
    for factor in (1, 2, 3):
        for lead in ((), (2,), (2, 1)):
            same_layer("PixelShuffle", numbers(*lead, 2 * factor**2, 3, 2), given=(factor,))
            same_layer("PixelUnshuffle", numbers(*lead, 2, 3 * factor, 2 * factor), given=(factor,))


@pytest.mark.filterwarnings("ignore")  # PyTorch's: these two are deprecated
@pytest.mark.parametrize("settings", [{"size": (7, 5)}, {"scale_factor": 2}, {"scale_factor": (1.5, 2.0)}])
def test_upsampling(settings: dict[str, Any]) -> None:
    x = numbers(2, 3, 4, 3)
    same_layer("UpsamplingNearest2d", x, **settings)
    same_layer("UpsamplingBilinear2d", x, **settings)
    same_function("upsample_nearest", x, **settings)
    same_function("upsample_bilinear", x, **settings)
    for mode in ("nearest", "bilinear", "bicubic"):
        same_layer("Upsample", x, mode=mode, **settings)
        same_function("upsample", x, mode=mode, **settings)


@pytest.mark.parametrize(("mode", "axes"), [("nearest", 1), ("linear", 1), ("nearest", 3), ("trilinear", 3)])
def test_upsampling_of_other_dimensions(mode: str, axes: int) -> None:
    x = numbers(2, 3, *(4, 3, 2)[:axes])
    same_layer("Upsample", x, mode=mode, scale_factor=2.0)
    if mode != "nearest":
        same_layer("Upsample", x, mode=mode, scale_factor=1.6, align_corners=True)
        same_layer("Upsample", x, mode=mode, scale_factor=1.6, recompute_scale_factor=True)
