"""Combines transforms: applies all of them in sequence, all with a probability, or one that is chosen at random."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from textwrap import indent
from typing import Any

import numpy as np

from minorm.data.argument_texts import TRANSFORM
from minorm.data.dataset import Array
from minorm.data.settings_repr import Shown
from minorm.data.transforms.argument_checks import check_probability, functions, is_number
from minorm.data.transforms.transform import Generator, ImageTransform, Transform
from minorm.devices import generators
from minorm.support.documented import documented
from minorm.tensor.tensor import Tensor


@documented(TRANSFORM)
class Compose(Shown):
    """Applies transforms one after another, all with the same generator.

    Example:
        >>> T = mn.data.transforms
        >>> T.Compose([T.Pad(1), T.CenterCrop(4)])(mn.ones(2, 1, 4, 4)).shape
        (2, 1, 4, 4)
    """

    def __init__(self, transforms: Sequence[Transform]) -> None:
        self.transforms = functions("Compose", transforms)

    def __call__(self, images: Any, generator: Any = None) -> Any:
        """Apply the transforms in turn, with the same generator."""
        source = generators.source(generator)
        for transform in self.transforms:
            images = applied(transform, images, source)
        return images

    def __repr__(self) -> str:
        return _listed("Compose", self.transforms)


@documented(TRANSFORM, lambd="f(images) -> images")
class Lambda(Shown):
    """Applies a function of the images.

    Example:
        >>> mn.data.transforms.Lambda(lambda images: images * 2)(mn.ones(1, 1, 1, 1))
        tensor([[[[2.]]]])
    """

    def __init__(self, lambd: Callable[[Any], Any]) -> None:
        if not callable(lambd):
            raise TypeError(f"Lambda: lambd is a {type(lambd).__name__}; expected a function of the images")
        self.lambd = lambd

    def __call__(self, images: Any, generator: Any = None) -> Any:  # noqa: ARG002
        """Return the function's result."""
        return self.lambd(images)


@documented(TRANSFORM)
class RandomApply(ImageTransform):
    """Applies all transforms in turn to each image with probability p; images keep their shape.

    Raises ValueError for a transform that changes the shape.

    Example:
        >>> T = mn.data.transforms
        >>> T.RandomApply([T.Lambda(lambda images: images * 0)], p=1.0)(mn.ones(1, 1, 1, 2))
        tensor([[[[0., 0.]]]])
    """

    def __init__(self, transforms: Sequence[Transform], p: float = 0.5) -> None:
        self.transforms, self.p = functions("RandomApply", transforms), check_probability("RandomApply", p)

    def apply(self, images: Array, generator: Generator) -> Array:
        """Draw which images to change, and apply all transforms to them."""
        chosen = generator.random(len(images)) < self.p
        found = images.copy()
        if chosen.any():
            changed = Compose(self.transforms)(images[chosen], generator)
            if changed.shape[1:] != images.shape[1:]:
                raise ValueError(f"RandomApply: for images of shape {images.shape[1:]} the transforms' result has "
                                 f"shape {changed.shape[1:]}; expected the same shape, because the other images are "
                                 "not transformed")  # fmt: skip
            found[chosen] = changed
        return found

    def __repr__(self) -> str:
        return _listed("RandomApply", self.transforms, f"p={self.p:g}")


@documented(TRANSFORM, p="the probability of each transform; None gives all transforms the same probability")
class RandomChoice(ImageTransform):
    """Applies one of the transforms, drawn for each image.

    Example:
        >>> T = mn.data.transforms
        >>> choose = T.RandomChoice([T.RandomHorizontalFlip(1.0), T.RandomVerticalFlip(1.0)], p=[1, 0])
        >>> choose(mn.tensor([[[1.0, 2.0]]]))
        tensor([[[2., 1.]]])
    """

    def __init__(self, transforms: Sequence[Transform], p: Sequence[float] | None = None) -> None:
        self.transforms = functions("RandomChoice", transforms)
        if not self.transforms:
            raise ValueError("RandomChoice: transforms is empty; expected at least one")
        given = np.ones(len(self.transforms)).tolist() if p is None else p
        listed = isinstance(given, (Sequence, np.ndarray)) and len(given) == len(self.transforms)
        if not (listed and all(is_number(n) and n >= 0 for n in given) and sum(given) > 0):
            raise ValueError(f"RandomChoice: p={p!r} for {len(self.transforms)} transforms; expected a number of at "
                             "least 0 for each transform, with a sum above 0")  # fmt: skip
        shares = np.asarray(given, np.float64)
        self.p = None if p is None else list(p)
        self._shares = shares / shares.sum()

    def apply(self, images: Array, generator: Generator) -> Array:
        """Draw a transform for each image, and apply it."""
        which = generator.choice(len(self.transforms), len(images), p=self._shares)
        parts = {int(i): applied(self.transforms[i], images[which == i], generator) for i in np.unique(which)}
        shapes = {part.shape[1:] for part in parts.values()}
        if len(shapes) > 1:
            raise ValueError(f"RandomChoice: the transforms' results have shapes {sorted(shapes)}; expected one shape")
        found = np.empty((len(images), *(shapes.pop() if shapes else images.shape[1:])), images.dtype)
        for i, part in parts.items():
            found[which == i] = part
        return found

    def __repr__(self) -> str:
        return _listed("RandomChoice", self.transforms, f"p={self.p}")


def applied(transform: Any, images: Any, generator: Generator) -> Any:
    """Return transform(images). Pass the generator too if the transform takes a generator.

    A transform takes a generator if it has an argument called `generator`, or a second argument without a default. A
    second argument that has another name and a default, such as `vertical=False`, does not get the generator.
    """
    if type(transform).__call__ in (ImageTransform.__call__, Compose.__call__):
        return transform(images, generator)
    if hasattr(transform, "forward") and isinstance(images, np.ndarray):  # a Module, which computes with Tensors
        images = Tensor(images)
    parameters = _parameters(transform)
    named = parameters.get("generator")
    if named is not None and named.kind is not named.POSITIONAL_ONLY:
        bound = named.kind is named.KEYWORD_ONLY and named.default not in (None, named.empty)  # a functools.partial
        return transform(images) if bound else transform(images, generator=generator)
    placed = [p for p in parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if len(placed) > 1 and placed[1].default is inspect.Parameter.empty:
        return transform(images, generator)
    return transform(images)


def _parameters(transform: Any) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of a transform, or of a Module's `forward`; return {} for a function without signature."""
    if isinstance(transform, np.ufunc):  # its second argument is the output
        return {}
    try:
        return inspect.signature(getattr(transform, "forward", transform)).parameters
    except ValueError:
        return {}


def _listed(name: str, transforms: Sequence[Any], *settings: str) -> str:
    return "\n".join([f"{name}(", *(indent(text, "    ") for text in (*map(repr, transforms), *settings)), ")"])
