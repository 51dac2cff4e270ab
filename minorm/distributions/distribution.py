"""Base class of all distributions: shapes, checks of arguments and samples, and the expansion of a batch.

sample_shape   how many draws            batch_shape   how many distributions, with separate parameters
event_shape    the shape of one draw     a sample has the shape sample_shape + batch_shape + event_shape
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from minorm.devices import dtypes
from minorm.graph.grad_mode import no_grad
from minorm.support.argument_errors import Checked
from minorm.support.documented import documented, documented_methods
from minorm.tensor.combining import broadcast_tensors
from minorm.tensor.tensor import Tensor

if TYPE_CHECKING:
    from typing import Self

VALIDATE = {
    "validate_args": "True checks arguments and samples, False does not; None is True unless Python runs with -O"
}
METHODS = {
    "sample_shape": "the number of draws, as a shape; the result has this shape, followed by the shape of the batch",
    "value": "a sample, or samples: a Tensor whose shape broadcasts with the batch's",
    "batch_shape": "the new shape of the batch",
    "expand": "True repeats the values for each distribution of the batch",
}


@documented(
    {}, batch_shape="the shape of the parameters", event_shape="the shape of one draw",
    validate_args="whether arguments and samples are checked; None is the default",
)  # fmt: skip
@documented_methods(METHODS)
class Distribution(Checked):
    """Base class. A subclass defines `rsample` or `sample`, and `log_prob`, `entropy`, `mean` and `variance`.

    Example:
        >>> p = mn.distributions.Normal(mn.zeros(3), mn.ones(3))
        >>> isinstance(p, mn.distributions.Distribution), p.batch_shape, p.event_shape
        (True, (3,), ())
        >>> p.sample((2,)).shape
        (2, 3)
    """

    has_rsample = False
    has_enumerate_support = False
    parameters: tuple[str, ...] = ()  # names of parameters that may be given; `expand` repeats them
    _validate_args = __debug__

    def __init__(
        self, batch_shape: tuple[int, ...] = (), event_shape: tuple[int, ...] = (), validate_args: bool | None = None
    ) -> None:
        self._batch_shape, self._event_shape = tuple(batch_shape), tuple(event_shape)
        if validate_args is not None:
            self._validate_args = validate_args
        if self._validate_args:
            for name in self.parameters:
                if name in self.__dict__:
                    self._check_parameter(name, self.__dict__[name])

    @property
    def _name(self) -> str:
        return type(self).__name__

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The shape of the parameters."""
        return self._batch_shape

    @property
    def event_shape(self) -> tuple[int, ...]:
        """The shape of one draw."""
        return self._event_shape

    @property
    def mean(self) -> Tensor:
        """The mean of a draw."""
        raise NotImplementedError(f"{self._name} has no mean")

    @property
    def mode(self) -> Tensor:
        """The most likely draw."""
        raise NotImplementedError(f"{self._name} has no mode")

    @property
    def variance(self) -> Tensor:
        """The mean squared distance of a draw from the mean."""
        raise NotImplementedError(f"{self._name} has no variance")

    @property
    def stddev(self) -> Tensor:
        """The square root of the variance."""
        return self.variance.sqrt()

    def sample(self, sample_shape: tuple[int, ...] = ()) -> Tensor:
        """Return draws without a gradient."""
        with no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape: tuple[int, ...] = ()) -> Tensor:
        """Return draws that are differentiable with respect to the parameters."""
        raise NotImplementedError(f"{self._name}.rsample: its draws have no gradient; expected sample()")

    def log_prob(self, value: Tensor) -> Tensor:
        """Return the logarithm of the density (or of the probability) of `value`."""
        raise NotImplementedError(f"{self._name} has no log_prob")

    def cdf(self, value: Tensor) -> Tensor:
        """Return the probability that a draw is at most value."""
        raise NotImplementedError(f"{self._name} has no cdf")

    def entropy(self) -> Tensor:
        """Return the mean of -log_prob over draws."""
        raise NotImplementedError(f"{self._name} has no entropy")

    def perplexity(self) -> Tensor:
        """Return e^entropy."""
        return self.entropy().exp()

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """Return all values that a draw can have, along a new first axis."""
        raise NotImplementedError(f"{self._name} has no enumerate_support, because its values cannot be listed")

    def expand(self, batch_shape: tuple[int, ...]) -> Self:
        """Return the distribution with its parameters expanded to another batch shape, without copying them."""
        other = object.__new__(type(self))
        vars(other).update(vars(self))
        other._batch_shape = tuple(batch_shape)
        for name in self.parameters:
            if name in self.__dict__:
                vars(other)[name] = self.__dict__[name].expand(*batch_shape, *self._parameter_event())
        return other

    def _parameter_event(self) -> tuple[int, ...]:
        """Return the shape that the parameter of one distribution of the batch has."""
        return ()

    def _shape(self, sample_shape: Any) -> tuple[int, ...]:
        """Return the shape of samples."""
        return (*sample_shape, *self._batch_shape, *self._event_shape)

    def _check_parameter(self, name: str, value: Tensor) -> None:
        """Raise ValueError if a parameter is outside its range."""

    def _expect(self, what: str, value: Tensor, good: Callable[[Any], Any], expected: str) -> None:
        """Unless good(value) is True everywhere, raise a ValueError that names the first wrong number."""
        array = value.detach().cpu().numpy().astype(np.float64)
        fine = good(array)
        if not np.all(fine):
            first = array[np.broadcast_to(fine, array.shape) == 0].flat[0] if fine.shape == array.shape else "a row"
            raise ValueError(f"{self._name}: {what} of shape {value.shape} holds {first}; expected {expected}")

    def _checked_value(self, value: Any, good: Callable[[Any], Any], expected: str) -> Tensor:
        """Return a sample as a Tensor; if validation is on, a wrong shape or impossible numbers raise ValueError."""
        if not isinstance(value, Tensor):
            value = as_parameter(self._name, "value", value, self._of_type())
        if self._validate_args:
            try:
                np.broadcast_shapes(value.shape, self._batch_shape)
            except ValueError:
                raise ValueError(
                    f"{self._name}.log_prob: value.shape is {value.shape}, batch_shape is {self._batch_shape}; "
                    "expected shapes that broadcast"
                ) from None
            self._expect("value", value, good, expected)
        return value

    def _of_type(self) -> Tensor:
        """Return the parameter from which new Tensors take their type and device."""
        return next(self.__dict__[name] for name in self.parameters if name in self.__dict__)

    def __repr__(self) -> str:
        given = [(name, self.__dict__[name]) for name in self.parameters if name in self.__dict__]
        shown = [f"{name}: {p.item() if p.numel() == 1 else p.shape}" for name, p in given]
        return f"{self._name}({', '.join(shown)})"


def as_parameter(operation: str, name: str, value: Any, like: Tensor | None = None) -> Tensor:
    """Return `value` as a Tensor of floats; a number gets the type and device of `like`, or else the defaults."""
    if isinstance(value, Tensor):
        return (
            value
            if dtypes.is_float(value.dtype)
            else value.to(dtypes.get_default_dtype() if like is None else like.dtype)
        )
    if not isinstance(value, (int, float, np.number)):
        raise TypeError(f"{operation}: {name} is a {type(value).__name__}; expected a Tensor or a number")
    made = Tensor(np.asarray(value, dtypes.get_default_dtype() if like is None else like.dtype))
    return made if like is None else made.to(like.device)


def broadcast_parameters(operation: str, **given: Any) -> list[Tensor]:
    """Return the parameters broadcast to one shape; numbers get the type and device of the first Tensor of floats."""
    like = next((value for value in given.values() if isinstance(value, Tensor) and dtypes.is_float(value.dtype)), None)
    return list(broadcast_tensors(*[as_parameter(operation, name, value, like) for name, value in given.items()]))


def one_of(operation: str, **given: Any) -> str:
    """Return the name of the argument that is not None; raise ValueError unless exactly one is given."""
    names = [name for name, value in given.items() if value is not None]
    if len(names) != 1:
        both = " and ".join(given)
        raise ValueError(f"{operation}: {'both' if names else 'neither'} of {both} given; expected one of them")
    return names[0]
