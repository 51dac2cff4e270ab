"""Transforms of transforms: one after the other, perhaps, or one of several."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from textwrap import indent
from typing import Any

import numpy as np

from minorm import random
from minorm.data.argument_texts import TRANSFORM
from minorm.data.dataset import Array
from minorm.data.showing import Shown
from minorm.data.transforms.base import Generator, ImageTransform, Transform, check_probability
from minorm.documented import documented


@documented(TRANSFORM)
class Compose(Shown):
    """One transform after the other, all with the one generator.

    Example:
        >>> T = mn.data.transforms
        >>> T.Compose([T.Pad(1), T.CenterCrop(4)])(mn.ones(2, 1, 4, 4)).shape
        (2, 1, 4, 4)
    """

    def __init__(self, transforms: Sequence[Transform]) -> None:
        self.transforms = list(transforms)

    def __call__(self, images: Any, generator: Any = None) -> Any:
        """Apply each in turn, with the one generator."""
        source = random.source(generator)
        for transform in self.transforms:
            images = applied(transform, images, source)
        return images

    def __repr__(self) -> str:
        return _listed("Compose", self.transforms)


@documented(TRANSFORM, lambd="f(images) -> images")
class Lambda(Shown):
    """A function of the images alone.

    Example:
        >>> mn.data.transforms.Lambda(lambda images: images * 2)(mn.ones(1, 1, 1, 1))
        tensor([[[[2.]]]])
    """

    def __init__(self, lambd: Callable[[Any], Any]) -> None:
        if not callable(lambd):
            raise TypeError(f"Lambda: lambd is a {type(lambd).__name__}; expected a function of the images")
        self.lambd = lambd

    def __call__(self, images: Any, generator: Any = None) -> Any:  # noqa: ARG002
        """What the function returns."""
        return self.lambd(images)


@documented(TRANSFORM)
class RandomApply(ImageTransform):
    """All transforms in turn on an image with probability p; it keeps its shape.

    ValueError for a transform that changes the shape.

    Example:
        >>> T = mn.data.transforms
        >>> T.RandomApply([T.Lambda(lambda images: images * 0)], p=1.0)(mn.ones(1, 1, 1, 2))
        tensor([[[[0., 0.]]]])
    """

    def __init__(self, transforms: Sequence[Transform], p: float = 0.5) -> None:
        self.transforms, self.p = list(transforms), check_probability("RandomApply", p)

    def apply(self, images: Array, generator: Generator) -> Array:
        """A new choice for each image."""
        chosen = generator.random(len(images)) < self.p
        found = images.copy()
        if chosen.any():
            changed = Compose(self.transforms)(images[chosen], generator)
            if changed.shape[1:] != images.shape[1:]:
                raise ValueError(f"RandomApply: the transforms make {changed.shape[1:]} of {images.shape[1:]}; "
                                 "expected the same shape, as the other images keep theirs")  # fmt: skip
            found[chosen] = changed
        return found

    def __repr__(self) -> str:
        return _listed("RandomApply", self.transforms, f"p={self.p:g}")


@documented(TRANSFORM, p="how likely each transform is; None takes all alike")
class RandomChoice(ImageTransform):
    """One of the transforms, drawn for each image.

    Example:
        >>> T = mn.data.transforms
        >>> choose = T.RandomChoice([T.RandomHorizontalFlip(1.0), T.RandomVerticalFlip(1.0)], p=[1, 0])
        >>> choose(mn.tensor([[[1.0, 2.0]]]))
        tensor([[[2., 1.]]])
    """

    def __init__(self, transforms: Sequence[Transform], p: Sequence[float] | None = None) -> None:
        self.transforms = list(transforms)
        shares = np.ones(len(self.transforms)) if p is None else np.asarray(p, np.float64)
        if len(shares) != len(self.transforms) or not len(shares) or not (shares >= 0).all() or not shares.sum() > 0:
            raise ValueError(f"RandomChoice: p={p} for {len(self.transforms)} transforms; expected a share for each")
        self.p = None if p is None else list(p)
        self._shares = shares / shares.sum()

    def apply(self, images: Array, generator: Generator) -> Array:
        """A new choice for each image."""
        which = generator.choice(len(self.transforms), len(images), p=self._shares)
        parts = {int(i): applied(self.transforms[i], images[which == i], generator) for i in np.unique(which)}
        shapes = {part.shape[1:] for part in parts.values()}
        if len(shapes) > 1:
            raise ValueError(f"RandomChoice: the transforms make images of {sorted(shapes)}; expected the same shape")
        found = np.empty((len(images), *(shapes.pop() if shapes else images.shape[1:])), images.dtype)
        for i, part in parts.items():
            found[which == i] = part
        return found

    def __repr__(self) -> str:
        return _listed("RandomChoice", self.transforms, f"p={self.p}")


def applied(transform: Any, images: Any, generator: Generator) -> Any:
    """transform(images, generator), or transform(images) where it takes no more, as in PyTorch's programs."""
    return transform(images, generator) if takes_generator(transform) else transform(images)


def takes_generator(transform: Any) -> bool:
    """Whether two arguments may be given."""
    if isinstance(transform, (ImageTransform, Compose)):
        return True
    if isinstance(transform, np.ufunc):  # their second argument is where the result goes
        return False
    try:
        inspect.signature(transform).bind(None, None)
    except TypeError:
        return False
    except ValueError:  # a function in C, which shows no signature
        return False
    return True


def _listed(name: str, transforms: Sequence[Any], *settings: str) -> str:
    return "\n".join([f"{name}(", *(indent(text, "    ") for text in (*map(repr, transforms), *settings)), ")"])
