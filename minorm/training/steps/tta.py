"""Test-time augmentation: average a model's probabilities over several views of each image."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import minorm.functional as F
from minorm.devices import dtypes
from minorm.nn import Module
from minorm.support.documented import documented
from minorm.tensor.tensor import Tensor

CROP = 7 / 8  # of both sides


def _hflip(x: Tensor) -> Iterator[Tensor]:
    yield from (x, x.flip((3,)))


def _vflip(x: Tensor) -> Iterator[Tensor]:
    yield from (x, x.flip((2,)))


def _rotations(x: Tensor) -> Iterator[Tensor]:
    """Yield the images turned by 0, 1, 2 and 3 quarter turns."""
    turned = x.transpose(2, 3)
    yield from (x, turned.flip((2,)), x.flip((2, 3)), turned.flip((3,)))


def _crops(x: Tensor) -> Iterator[Tensor]:
    """Yield the whole images, and then the four corners and the middle of each image, enlarged to the full size."""
    yield x
    height, width = (max(1, round(length * CROP)) for length in x.shape[2:])
    down, right = x.shape[2] - height, x.shape[3] - width
    for top, left in ((0, 0), (0, right), (down, 0), (down, right), (down // 2, right // 2)):
        window = x[:, :, top : top + height, left : left + width]
        yield F.interpolate(window, x.shape[2:], mode="bilinear", align_corners=False)


VIEWS: dict[str, Callable[[Tensor], Iterator[Tensor]]] = {
    "hflip": _hflip, "vflip": _vflip, "rotations": _rotations, "crops": _crops,
}  # fmt: skip


@documented(
    {},
    model="a Module that computes logits (N, C) for images (N, channels, H, W)",
    views='"hflip" or "vflip" adds the mirror image, "rotations" the quarter turns, "crops" the four corners and the '
    'middle; "hflip,crops" stands for all combinations of both',
    gives_probabilities="True if the model ends in a softmax, so that its results are probabilities",
)
class TTA(Module):
    """A model that returns log(mean of softmax(model(view))) over several views of each image.

    The result can be used as logits: its softmax is the mean of the probabilities. So a TTA can be given to `evaluate`,
    `predict` and other functions in place of a model. Raises ValueError for an unknown view, and for quarter turns of
    images that are not square.

    Example:
        >>> model = nn.Sequential(nn.Flatten(), nn.Linear(4, 3))
        >>> image = mn.rand(1, 1, 2, 2)
        >>> mirrored = mn.training.TTA(model, "hflip")(image.flip((3,)))
        >>> mirrored.allclose(mn.training.TTA(model, "hflip")(image))
        True
    """

    def __init__(self, model: Module, views: str = "hflip", gives_probabilities: bool = False) -> None:
        super().__init__()
        self.gives_probabilities = gives_probabilities
        self.views = checked_views(views)
        self.model = model
        self.training = model.training

    def forward(self, x: Tensor) -> Tensor:
        """Return the logarithm of the mean probabilities, in float32 or float64."""
        if x.ndim != 4 or ("rotations" in self.views and x.shape[2] != x.shape[3]):
            raise ValueError(f"TTA: images have shape {x.shape}; expected (N, channels, H, W)"
                             f"{', H = W for rotations' if 'rotations' in self.views else ''}")  # fmt: skip
        shares = [self._probabilities(view) for view in self._seen(x)]
        total = shares[0]
        for share in shares[1:]:
            total = total + share
        return (total / len(shares)).clamp_min(float(np.finfo(total.dtype).tiny)).log()

    def _probabilities(self, view: Tensor) -> Tensor:
        found: Any = self.model(view)
        logits = found[0] if isinstance(found, tuple) else found
        wide = logits.to(dtypes.compute_type(logits.dtype))
        return wide if self.gives_probabilities else F.softmax(wide, dim=1)

    def _seen(self, x: Tensor) -> list[Tensor]:
        """Return all views of the images. If there are several kinds of views, return all combinations."""
        found = [x]
        for name in self.views:
            found = [view for image in found for view in VIEWS[name](image)]
        return found


def checked_views(views: str) -> list[str]:
    """Return the names of views in a text with commas; raise ValueError for a name that is unknown or repeated."""
    names = [name.strip() for name in views.split(",")]
    if len({*names}) < len(names) or not {*names} <= VIEWS.keys():
        raise ValueError(
            f"TTA: views is {views!r}; expected one or more of {', '.join(VIEWS)}, separated by commas, "
            "each at most once"
        )
    return names
