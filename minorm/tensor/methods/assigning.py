"""A table of the in-place methods. x.exp_() writes x.exp() into x, and gives x the graph history of the result."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar

import numpy as np

from minorm import devices
from minorm.devices import dtypes, generators
from minorm.graph import trace
from minorm.kernels import draws, select
from minorm.support.argument_texts import DRAWN, OTHER_IN_PLACE
from minorm.support.documented import documented_methods, introduced
from minorm.tensor import history
from minorm.tensor.in_place import InPlace
from minorm.tensor.methods.matrices import Matrices
from minorm.tensor.methods.pointwise import Pointwise
from minorm.tensor.methods.products import Products
from minorm.tensor.methods.scattering import Scattering
from minorm.tensor.methods.special_functions import SpecialFunctions
from minorm.tensor.methods.sums_and_products import SumsAndProducts
from minorm.tensor.operators import Operators
from minorm.tensor.shapes import TensorT

if TYPE_CHECKING:
    from typing import Self

P = ParamSpec("P")
SelfT = TypeVar("SelfT")


def in_place(method: Callable[Concatenate[Any, P], Any]) -> Callable[Concatenate[SelfT, P], SelfT]:
    """Return the in-place form of a method, whose result must have x's shape and a type that x can hold."""
    name = method.__name__.strip("_") + "_"

    @functools.wraps(method)
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        recorded = history.is_recorded(self, name, (*args, *kwargs.values()))
        if not recorded and trace.state.calls is None:
            result = method(self, *args, **kwargs)
            _check(name, self, result)
            with devices.on_device_of(self.array):
                self.array[...] = result.array.astype(self.dtype, copy=False)
            self.version.count += 1
            return self
        before = self.clone()  # the method may keep x for its gradient, so x must not be overwritten
        result = method(before, *[before if a is self else a for a in args], **kwargs)
        _check(name, self, result)
        history.go_on_as(self, result.to(self.dtype))
        return self

    run.__name__, run.__qualname__ = name, f"Tensor.{name}"
    about = introduced(f"x.{name[:-1]}(...) in place: ", method.__doc__).replace(
        "broadcasts with x", "broadcasts to x's shape"
    )
    head, example, rest = about.partition("Example:")
    run.__doc__ = head + example + rest.replace(f".{method.__name__}(", f".{name}(")
    return run  # type: ignore[return-value]


def _check(operation: str, x: Any, result: Any) -> None:
    if result.shape != x.shape:
        raise ValueError(
            f"{operation}: x has shape {x.shape}, the result would have {result.shape}; expected x's shape, because a "
            "method in place cannot enlarge x"
        )
    if dtypes.is_float(result.dtype) and not dtypes.is_float(x.dtype):
        raise TypeError(
            f"{operation}: the result is {result.dtype}, x is {x.dtype}; expected a result that x's type can hold; "
            "compute a new tensor, or convert x first"
        )


ARGUMENTS = (
    OTHER_IN_PLACE
    | DRAWN
    | {
        "rounding_mode": 'None divides exactly, "floor" rounds down, "trunc" rounds towards 0',
        "min": "the lower bound: a number, or a Tensor that broadcasts to x's shape; None means no bound",
        "max": "the upper bound: a number, or a Tensor that broadcasts to x's shape; None means no bound",
        "mean": "the mean of the draws",
        "std": "the standard deviation of the draws",
        "from_": "the lowest number that can be drawn",
        "to": "the bound that all numbers stay below",
        "random_.to": "the bound that all numbers stay below; None makes from_ the bound, and 0 the lowest number",
        "p": "the probability of 1: a number, or a Tensor that broadcasts to x's shape",
    }
)


@documented_methods(ARGUMENTS)
class Assigning(InPlace, Generic[TensorT]):
    """The in-place methods that have no counterpart in the other files."""

    __slots__ = ()

    abs_ = in_place(Operators.abs)
    exp_ = in_place(Operators.exp)
    log_ = in_place(Operators.log)
    sqrt_ = in_place(Operators.sqrt)
    sin_ = in_place(Operators.sin)
    cos_ = in_place(Operators.cos)
    pow_ = in_place(Operators.pow)

    neg_ = in_place(Pointwise.neg)
    square_ = in_place(Pointwise.square)
    reciprocal_ = in_place(Pointwise.reciprocal)
    rsqrt_ = in_place(Pointwise.rsqrt)
    lerp_ = in_place(Pointwise.lerp)
    addcmul_ = in_place(Pointwise.addcmul)
    addcdiv_ = in_place(Pointwise.addcdiv)
    remainder_ = in_place(Pointwise.remainder)
    floor_divide_ = in_place(Pointwise.floor_divide)
    tan_ = in_place(Pointwise.tan)
    atan_ = in_place(Pointwise.atan)
    log1p_ = in_place(Pointwise.log1p)
    expm1_ = in_place(Pointwise.expm1)
    tanh_ = in_place(Pointwise.tanh)
    sigmoid_ = in_place(Pointwise.sigmoid)
    relu_ = in_place(Pointwise.relu)
    floor_ = in_place(Pointwise.floor)
    ceil_ = in_place(Pointwise.ceil)
    trunc_ = in_place(Pointwise.trunc)
    round_ = in_place(Pointwise.round)
    sign_ = in_place(Pointwise.sign)
    nan_to_num_ = in_place(Pointwise.nan_to_num)
    absolute_, arctan_, negative_ = abs_, atan_, neg_
    fmod_ = in_place(Pointwise.fmod)
    clamp_min_ = in_place(Pointwise.clamp_min)
    clamp_max_ = in_place(Pointwise.clamp_max)
    log2_ = in_place(Pointwise.log2)
    log10_ = in_place(Pointwise.log10)
    exp2_ = in_place(Pointwise.exp2)
    sinh_ = in_place(Pointwise.sinh)
    cosh_ = in_place(Pointwise.cosh)
    bitwise_not_ = in_place(Pointwise.bitwise_not)
    bitwise_and_ = in_place(Pointwise.bitwise_and)
    bitwise_or_ = in_place(Pointwise.bitwise_or)
    bitwise_xor_ = in_place(Pointwise.bitwise_xor)
    eq_ = in_place(Pointwise.eq)
    ne_ = in_place(Pointwise.ne)
    lt_ = in_place(Pointwise.lt)
    le_ = in_place(Pointwise.le)
    gt_ = in_place(Pointwise.gt)
    ge_ = in_place(Pointwise.ge)
    greater_, greater_equal_, less_, less_equal_, not_equal_ = gt_, ge_, lt_, le_, ne_
    logical_not_ = in_place(Pointwise.logical_not)
    logical_and_ = in_place(Pointwise.logical_and)
    logical_or_ = in_place(Pointwise.logical_or)
    logical_xor_ = in_place(Pointwise.logical_xor)
    masked_fill_ = in_place(Pointwise.masked_fill)

    erf_ = in_place(SpecialFunctions.erf)
    erfc_ = in_place(SpecialFunctions.erfc)
    erfinv_ = in_place(SpecialFunctions.erfinv)

    tril_ = in_place(Matrices.tril)
    triu_ = in_place(Matrices.triu)
    scatter_ = in_place(Scattering.scatter)
    scatter_add_ = in_place(Scattering.scatter_add)
    scatter_reduce_ = in_place(Scattering.scatter_reduce)
    masked_scatter_ = in_place(Scattering.masked_scatter)
    index_put_ = in_place(Scattering.index_put)
    index_add_ = in_place(Scattering.index_add)
    index_copy_ = in_place(Scattering.index_copy)
    index_fill_ = in_place(Scattering.index_fill)

    cumsum_ = in_place(SumsAndProducts.cumsum)
    cumprod_ = in_place(SumsAndProducts.cumprod)

    addmm_ = in_place(Products.addmm)
    baddbmm_ = in_place(Products.baddbmm)

    _divide = in_place(Pointwise.div)
    _clip = in_place(Operators.clip)

    def div_(self, other: Any, *, rounding_mode: str | None = None) -> Self:
        """x /= other. rounding_mode "floor" rounds the quotient down, and "trunc" rounds it towards 0.

        Example:
            >>> mn.tensor([7.0]).div_(2, rounding_mode="floor")
            tensor([3.])
        """
        return super().div_(other) if rounding_mode is None else self._divide(other, rounding_mode=rounding_mode)

    def clip_(self, min: Any = None, max: Any = None) -> Self:
        """x = min(max(x, min), max), in place.

        Example:
            >>> mn.tensor([-3.0, 3.0]).clip_(-1, 1)
            tensor([-1.,  1.])
        """
        tensors = hasattr(min, "from_array") or hasattr(max, "from_array")
        return self._clip(min, max) if tensors else super().clip_(min, max)

    clamp_ = clip_
    multiply_, subtract_, divide_, true_divide_ = InPlace.mul_, InPlace.sub_, div_, div_

    # Random numbers, from minorm's generator or from `generator`

    def normal_(self, mean: float = 0, std: float = 1, *, generator: Any = None) -> Self:
        """x = mean + std * z, with z drawn from the normal distribution.

        Example:
            >>> mn.zeros(2).normal_(mean=5.0, std=0.0)
            tensor([5., 5.])
        """
        return self._draw("normal_", generators.source(generator).normal(mean, std, self.shape))

    def uniform_(self, from_: float = 0, to: float = 1, *, generator: Any = None) -> Self:
        """Fill x with draws from the uniform distribution on [from_, to).

        Example:
            >>> x = mn.zeros(100).uniform_(2.0, 3.0)
            >>> bool((x >= 2).all() and (x < 3).all())
            True
        """
        wide = dtypes.float64 if self.dtype == dtypes.float64 else dtypes.float32  # a double below 1 may round to 1
        with devices.on_device_of(self.array):
            return self._filled("uniform_", draws.uniform(self.shape, wide, self.device, generator, from_, to))

    def bernoulli_(self, p: Any = 0.5, *, generator: Any = None) -> Self:
        """Set each element to 1 with probability p, and otherwise to 0.

        Example:
            >>> mn.zeros(2).bernoulli_(mn.tensor([0.0, 1.0]))
            tensor([0., 1.])
        """
        share = p.to(self.device).array if hasattr(p, "from_array") else p
        with devices.on_device_of(self.array):
            numbers = draws.uniform(self.shape, dtypes.float64, self.device, generator)
            return self._filled("bernoulli_", select.as_array(numbers < share))

    def random_(self, from_: int = 0, to: int | None = None, *, generator: Any = None) -> Self:
        """Fill x with random integers of at least from_ and below to; random_(n) draws from 0 to n - 1.

        random_() draws from 0 to a limit. For an integer type, the limit is its largest number. For a float type, the
        limit is the largest number up to which the type holds all whole numbers. Raises ValueError for numbers that x's
        type cannot hold.

        Example:
            >>> mn.zeros(2).random_(7, 8)
            tensor([7., 7.])
        """
        low, high = (0, from_) if to is None and from_ else (from_, _whole_numbers(self.dtype) if to is None else to)
        least, most = _limits(self.dtype)
        if not (least <= low and high - 1 <= most):
            raise ValueError(
                f"random_: from_={low}, to={high}, x is {self.dtype}; expected from_ >= {least} and to <= {most} + 1"
            )
        return self._draw("random_", generators.source(generator).integers(low, high, self.shape))

    def _draw(self, operation: str, numbers: Any) -> Self:
        return self._filled(operation, devices.to_device_of(np.asarray(numbers), self.array))

    def _filled(self, operation: str, numbers: Any) -> Self:
        return self._put(operation, ..., self.from_array(numbers.astype(self.dtype)))


def _whole_numbers(kind: Any) -> int:
    """Return the largest number up to 2^63 such that the type holds every smaller whole number."""
    if not dtypes.is_float(kind):
        return min(_limits(kind)[1] + 1, 2**63)
    return 2 ** {2: 11 if kind == dtypes.float16 else 8, 4: 24, 8: 53}[kind.itemsize]


def _limits(kind: Any) -> tuple[int, int]:
    """Return the smallest and the largest whole number that a type holds."""
    if kind == dtypes.bool:
        return 0, 1
    if dtypes.is_float(kind):
        most = int(float(dtypes.largest(kind)))
        return -most, most
    return int(dtypes.iinfo(kind).min), int(dtypes.iinfo(kind).max)
