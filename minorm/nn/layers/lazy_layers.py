"""Lazy layers. They take the number of input features or channels from the first input.

When a LazyLinear gets its first input, the layer becomes a Linear. In the same way a LazyConv2d becomes a Conv2d, and
so on. Before its first input a lazy layer has no parameters, so run one batch through a model before you make its
optimizer.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from minorm.devices import dtypes
from minorm.functional.argument_texts import AXES
from minorm.nn.layers.convolution import Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from minorm.nn.layers.linear import Linear
from minorm.nn.module import Module
from minorm.nn.norm import BatchNorm1d, BatchNorm2d, BatchNorm3d, InstanceNorm1d, InstanceNorm2d, InstanceNorm3d
from minorm.support.argument_errors import not_a_tensor
from minorm.support.documented import documented
from minorm.tensor.tensor import Tensor


class _Lazy(Module):
    """Base of the lazy layers. The attribute `size` is the name of the argument that the first input decides. The
    attribute `becomes` is the class of the layer that a lazy layer becomes.

    The family's docstring is appended to the docstring of each class, with the words for the number of axes filled in.
    """

    becomes: ClassVar[type[Module]]
    size: ClassVar[str]
    axis: ClassVar[int] = 1  # the axis of the input whose length is the size; it is negative if a single image may come
    like: Tensor

    def __init_subclass__(cls, becomes: type[Module] | None = None) -> None:
        super().__init_subclass__()
        if becomes is None:  # a family, or a user's subclass
            return
        cls.becomes = becomes
        name = becomes.__name__
        texts = {
            "args": f"the arguments of {name} that follow {cls.size}, in their order",
            "kwargs": f"arguments of {name} by name",
        }
        family = cls.__mro__[1]
        if family is _Lazy:
            documented(texts)(cls)
        else:
            documented(texts, base=family, words={**AXES[int(name[-2])], "becomes": name})(cls)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        self.given = args, kwargs
        nothing = Tensor(np.zeros(0, kwargs.get("dtype") or dtypes.float32)).to(device=kwargs.get("device"))
        self.register_buffer("like", nothing, persistent=False)  # moves with the model

    def initialize_parameters(self, input: Tensor) -> None:
        """Turn this lazy layer into a layer whose sizes fit `input`, but do not run the layer."""
        if not isinstance(input, Tensor):
            raise not_a_tensor(type(self).__name__, "input", input)
        (args, kwargs), training, like = self.given, self.training, self.like
        if not -input.ndim <= self.axis < input.ndim:
            least = max(self.axis + 1, -self.axis)
            raise ValueError(
                f"{type(self).__name__}: input has shape {input.shape}; expected at least {least} axes, of which axis "
                f"{self.axis} has length {self.size}"
            )
        size = input.shape[self.axis]
        for name in list(vars(self)):
            del self.__dict__[name]
        self.__class__ = self.becomes  # type: ignore[assignment]
        self.__init__(size, *args, **kwargs)  # type: ignore[misc]
        self.to(dtype=like.dtype, device=like.device)
        self.train(training)

    def has_uninitialized_params(self) -> bool:
        """Return True, since a lazy layer has no parameters before its first input."""
        return True

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Turn this lazy layer into a layer whose sizes fit the first input, and run the layer."""
        self.initialize_parameters(*args, **kwargs)
        return self(*args, **kwargs)


class _LazyNorm(_Lazy):
    """Before the first input the layer has no parameters. For the formula, the other arguments, the ONNX operator and
    the paper, see {becomes}.

    Example:
        >>> layer = nn.{name}()
        >>> layer(mn.randn(2, 3, {full})).shape
        (2, 3, {full})
        >>> layer.num_features
        3
    """

    size = "num_features"


class _LazyConv(_Lazy):
    """Before the first input the layer has no parameters, so run a batch through a model before you make its optimizer.
    For the formula, the other arguments and the ONNX operator, see {becomes}.

    Example:
        >>> layer = nn.{name}(6, 3)
        >>> layer(mn.randn(2, 3, {full})).shape[:2]
        (2, 6)
        >>> layer.in_channels
        3
    """

    size = "in_channels"


class LazyLinear(_Lazy, becomes=Linear):
    """A Linear whose in_features is the length of the first input's last axis.

    Before the first input the layer has no parameters, so run a batch through a model before you make its optimizer.
    See Linear for the formula, the other arguments and the ONNX operator.

    Example:
        >>> layer = nn.LazyLinear(2)
        >>> layer(mn.randn(8, 3)).shape
        (8, 2)
        >>> layer
        Linear(in_features=3, out_features=2, bias=True)
    """

    axis, size = -1, "in_features"


class LazyConv1d(_LazyConv, becomes=Conv1d):
    """A Conv1d that gets in_channels from the shape of the first input, (N, C, L) or (C, L)."""

    axis = -2


class LazyConv2d(_LazyConv, becomes=Conv2d):
    """A Conv2d that gets in_channels from the shape of the first input, (N, C, H, W) or (C, H, W)."""

    axis = -3


class LazyConv3d(_LazyConv, becomes=Conv3d):
    """A Conv3d that gets in_channels from the shape of the first input, (N, C, D, H, W) or (C, D, H, W)."""

    axis = -4


class LazyConvTranspose1d(_LazyConv, becomes=ConvTranspose1d):
    """A ConvTranspose1d that gets in_channels from the shape of the first input, (N, C, L) or (C, L)."""

    axis = -2


class LazyConvTranspose2d(_LazyConv, becomes=ConvTranspose2d):
    """A ConvTranspose2d that gets in_channels from the shape of the first input, (N, C, H, W) or (C, H, W)."""

    axis = -3


class LazyConvTranspose3d(_LazyConv, becomes=ConvTranspose3d):
    """A ConvTranspose3d that gets in_channels from the shape of the first input, (N, C, D, H, W) or (C, D, H, W)."""

    axis = -4


class LazyBatchNorm1d(_LazyNorm, becomes=BatchNorm1d):
    """A BatchNorm1d whose num_features is the number of channels of the first input."""


class LazyBatchNorm2d(_LazyNorm, becomes=BatchNorm2d):
    """A BatchNorm2d whose num_features is the number of channels of the first input."""


class LazyBatchNorm3d(_LazyNorm, becomes=BatchNorm3d):
    """A BatchNorm3d whose num_features is the number of channels of the first input."""


class LazyInstanceNorm1d(_LazyNorm, becomes=InstanceNorm1d):
    """An InstanceNorm1d whose num_features is the number of channels of the first input."""

    axis = -2


class LazyInstanceNorm2d(_LazyNorm, becomes=InstanceNorm2d):
    """An InstanceNorm2d whose num_features is the number of channels of the first input."""

    axis = -3


class LazyInstanceNorm3d(_LazyNorm, becomes=InstanceNorm3d):
    """An InstanceNorm3d whose num_features is the number of channels of the first input."""

    axis = -4
