"""PyTorch's names for properties of a Tensor, conversions, and new Tensors of the same type."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Generic

import numpy as np

from minorm import devices
from minorm.devices import dtypes
from minorm.graph import grad_mode, hooks
from minorm.kernels import select
from minorm.ops import elementwise
from minorm.ops.operands import shape_of
from minorm.support.argument_texts import MADE, MEMORY
from minorm.support.documented import documented_methods
from minorm.tensor.memory_formats import lies_in, named, order_of
from minorm.tensor.operators import Operators, compare
from minorm.tensor.shapes import TensorT

ARGUMENTS = (
    MADE
    | MEMORY
    | {
        "dim": "an axis; None is all",
        "other": "a Tensor",
        "is_contiguous.memory_format": "the order to check for; None is row-major order",
        "clone.memory_format": "the order of the copy; None and minorm.preserve_format keep x's order",
        "contiguous.memory_format": "minorm.channels_last for images with channels last, channels_last_3d for "
        "volumes; None is row-major order, preserve_format keeps x's order",
        "pin_memory.device": "accepted but ignored",
        "rtol": "the allowed difference, as a share of |other|",
        "atol": "the allowed difference that is added to rtol * |other|",
        "equal_nan": "True treats NaN as equal to NaN",
        "type.dtype": "an element type, or a constructor such as minorm.FloatTensor; None returns the name of x's type",
        "data": "numbers, nested lists, an array or a Tensor",
        "fill_value": "the value of each element",
        "dtype": "the element type; None is x's type",
        "device": 'the device of the result, "cpu" or "cuda"; None is x\'s device',
        "requires_grad_.requires_grad": "True lets backward() leave a gradient in x.grad",
        "hook": "a function of the gradient; it returns a new gradient, or None to keep the old one",
    }
)


@documented_methods(ARGUMENTS)
class Queries(Operators[TensorT], Generic[TensorT]):
    """Methods that return properties of a Tensor, convert a Tensor, or make new Tensors of the same type and device."""

    __slots__ = ()

    if TYPE_CHECKING:  # provided by the Tensor
        creator: Any
        requires_grad: Any
        _requires_grad: Any
        output_index: Any

        def to(self, *targets: Any, dtype: Any = None, device: Any = None, memory_format: Any = None) -> TensorT: ...  # noqa: D102

    @property
    def grad_fn(self) -> Any:
        """The Function that computed x, or None if x is a leaf."""
        return self.creator

    @property
    def itemsize(self) -> int:
        """The size of an element in bytes."""
        return int(self.array.dtype.itemsize)

    @property
    def nbytes(self) -> int:
        """The size of all elements in bytes."""
        return int(self.array.nbytes)

    def element_size(self) -> int:
        """The size of an element in bytes."""
        return self.itemsize

    def nelement(self) -> int:
        """Return the number of elements."""
        return self.numel()

    def ndimension(self) -> int:
        """Return the number of axes."""
        return self.ndim

    def stride(self, dim: int | None = None) -> Any:
        """Return the distance in memory between neighbours, counted in elements, for each axis or only for `dim`."""
        steps = tuple(step // self.itemsize for step in self.array.strides)
        return steps if dim is None else steps[dim]

    def is_contiguous(self, memory_format: Any = None) -> bool:
        """Return whether the elements lie in memory without gaps, in row-major order or in the order memory_format."""
        if memory_format is None:
            return bool(self.array.flags.c_contiguous)
        return lies_in(self.array, memory_format)

    def is_floating_point(self) -> bool:
        """Return True if x has one of the four float types."""
        return bool(dtypes.is_float(self.array.dtype))

    @property
    def is_cpu(self) -> Any:
        """Whether the elements are on the CPU."""
        return devices.device_of(self.array) == "cpu"

    def get_device(self) -> Any:
        """Return the number of the GPU, or -1 for the CPU."""
        index = devices.device_of(self.array).index
        return -1 if index is None else index

    def is_signed(self) -> Any:
        """Return True if x's type can hold negative numbers."""
        return self.array.dtype.kind not in "ub"

    def is_complex(self) -> Any:
        """Return False, because there are no complex types."""
        return False

    def is_same_size(self, other: Any) -> Any:
        """Return True if `other` has the same shape."""
        return self.shape == other.shape

    def pin_memory(self, device: Any = None) -> TensorT:  # noqa: ARG002
        """Return x itself. Memory is not pinned."""
        return self  # type: ignore[return-value]

    def equal(self, other: Any) -> bool:
        """Return True if `other` has the same shape and the same elements."""
        return bool(self.shape == other.shape and (self == other).all())

    def allclose(self, other: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> bool:
        """Return True if every |x - other| <= atol + rtol * |other|.

        An infinity is close only to itself.

        Example:
            >>> mn.tensor([1.0]).allclose(mn.tensor([1.001]), rtol=0.01)
            True
        """
        close: Any = self.isclose(other, rtol, atol, equal_nan)
        return bool(close.all())

    def isclose(self, other: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> TensorT:
        """|x - other| <= atol + rtol * |other|, element by element. An infinity is close only to itself.

        Example:
            >>> mn.tensor([1.0, 1.0]).isclose(mn.tensor([1.001, 2.0]), rtol=0.01)
            tensor([ True, False])
        """
        with grad_mode.no_grad():
            x: Any = self.to(dtypes.float64)
            y = other.to(dtypes.float64)
            difference = abs(x - y)
            close = (x == y) | ((difference < math.inf) & (difference <= abs(y) * rtol + atol))
            return close | ((x != x) & (y != y)) if equal_nan else close

    def __contains__(self, value: Any) -> bool:
        """Return whether any element equals the value: `value in x`."""
        found: Any = compare("equal", self, value).any()
        return bool(found)

    # Conversions

    def type(self, dtype: Any = None, non_blocking: Any = False) -> Any:  # noqa: ARG002
        """Convert x to another type, or to the type of a constructor such as minorm.LongTensor. If dtype is None,
        return the name of x's type.

        Example:
            >>> mn.tensor([1.5]).type(), mn.tensor([1.5]).type(mn.int64)
            ('float32', tensor([1]))
        """
        return str(self.array.dtype) if dtype is None else self.to(getattr(dtype, "makes", dtype))

    def type_as(self, other: Any) -> TensorT:
        """Convert x to the type of `other`."""
        return self.to(other.dtype)

    def clone(self, *, memory_format: Any = None) -> TensorT:
        """Return a copy with separate memory. Gradients flow through the copy. The copy of a channels-last tensor is
        channels-last too.
        """
        ordered: Any = self if memory_format is None else self.contiguous(memory_format)
        if ordered is not self:
            return ordered
        return elementwise.Copy.apply(self, order="K")

    def contiguous(self, memory_format: Any = None) -> Any:
        """Return x in row-major order or in the order memory_format. If x has this order, x itself is returned, else a
        copy.

        Raises ValueError if memory_format is for another number of axes.
        """
        order = order_of("contiguous", memory_format, self.shape)
        if named(memory_format) == dtypes.preserve_format or lies_in(self.array, memory_format):
            return self
        if order is not None:
            rows: Any = self.permute(*order)
            return rows.contiguous().permute(0, self.ndim - 1, *range(1, self.ndim - 1))
        return elementwise.Copy.apply(self, order="C")

    def float(self, memory_format: Any = None) -> TensorT:
        """Convert to float32."""
        return self.to(dtypes.float32, memory_format=memory_format)

    def double(self, memory_format: Any = None) -> TensorT:
        """Convert to float64."""
        return self.to(dtypes.float64, memory_format=memory_format)

    def half(self, memory_format: Any = None) -> TensorT:
        """Convert to float16."""
        return self.to(dtypes.float16, memory_format=memory_format)

    def bfloat16(self, memory_format: Any = None) -> TensorT:
        """Convert to bfloat16."""
        return self.to(dtypes.bfloat16, memory_format=memory_format)

    def long(self, memory_format: Any = None) -> TensorT:
        """Convert to int64."""
        return self.to(dtypes.int64, memory_format=memory_format)

    def int(self, memory_format: Any = None) -> TensorT:
        """Convert to int32."""
        return self.to(dtypes.int32, memory_format=memory_format)

    def short(self, memory_format: Any = None) -> TensorT:
        """Convert to int16."""
        return self.to(dtypes.int16, memory_format=memory_format)

    def byte(self, memory_format: Any = None) -> TensorT:
        """Convert to uint8."""
        return self.to(dtypes.uint8, memory_format=memory_format)

    def bool(self, memory_format: Any = None) -> TensorT:
        """Convert to bool: True where an element is not 0."""
        return self.to(dtypes.bool, memory_format=memory_format)

    # New Tensors of the same type

    def new_tensor(self, data: Any, dtype: Any = None, device: Any = None, requires_grad: Any = False) -> TensorT:
        """Make a Tensor with a copy of `data`, by default of x's type and on x's device.

        Example:
            >>> mn.zeros(1, dtype=mn.float64).new_tensor([1, 2]).dtype
            dtype('float64')
        """
        kind = self.array.dtype if dtype is None else dtypes.check(dtype)
        array = np.array(data.cpu().array if hasattr(data, "from_array") else data, kind)
        return self._new(array, device, requires_grad)

    def new_full(
        self, size: Any, fill_value: Any, *, dtype: Any = None, device: Any = None, requires_grad: Any = False
    ) -> TensorT:
        """Make a Tensor of shape `size` filled with `fill_value`, by default of x's type and on x's device.

        Example:
            >>> mn.zeros(1).new_full((2,), 7)
            tensor([7., 7.])
        """
        kind = self.array.dtype if dtype is None else dtypes.check(dtype)
        return self._new(np.full(shape_of("new_full", (size,)), fill_value, kind), device, requires_grad)

    def new_zeros(self, *size: Any, dtype: Any = None, device: Any = None, requires_grad: Any = False) -> TensorT:
        """Make a Tensor of zeros, by default of x's type and on x's device.

        Example:
            >>> mn.ones(1).new_zeros(2)
            tensor([0., 0.])
        """
        return self.new_full(shape_of("new_zeros", size), 0, dtype=dtype, device=device, requires_grad=requires_grad)

    def new_ones(self, *size: Any, dtype: Any = None, device: Any = None, requires_grad: Any = False) -> TensorT:
        """Make a Tensor of ones, by default of x's type and on x's device.

        Example:
            >>> mn.zeros(1).new_ones(2)
            tensor([1., 1.])
        """
        return self.new_full(shape_of("new_ones", size), 1, dtype=dtype, device=device, requires_grad=requires_grad)

    def new_empty(self, *size: Any, dtype: Any = None, device: Any = None, requires_grad: Any = False) -> TensorT:
        """Make a Tensor of shape `size`, by default of x's type and on x's device. Its elements are 0 in minorm.

        Example:
            >>> mn.ones(1).new_empty(2).shape
            (2,)
        """
        return self.new_full(shape_of("new_empty", size), 0, dtype=dtype, device=device, requires_grad=requires_grad)

    def _new(self, array: Any, device: Any, requires_grad: Any) -> TensorT:
        place = devices.device_of(self.array) if device is None else device
        made: Any = self.from_array(devices.to_device(select.as_array(array), place))
        return made.requires_grad_(requires_grad)

    # Gradients

    def requires_grad_(self, requires_grad: Any = True) -> TensorT:
        """Set requires_grad of a leaf, and return the leaf."""
        self._set_requires_grad("requires_grad_", requires_grad)
        return self  # type: ignore[return-value]

    def _set_requires_grad(self, operation: str, requires_grad: Any) -> None:
        """Set requires_grad. Only the requires_grad of a leaf can be changed."""
        if not isinstance(requires_grad, (bool, np.bool_)):
            raise TypeError(f"{operation}: requires_grad is {requires_grad!r}; expected a bool")
        if self.creator is not None:
            raise RuntimeError(
                f"{operation}: x is a result in the graph; only a leaf's flag can be changed; use x.detach() for a leaf"
            )
        if requires_grad and not dtypes.is_float(self.array.dtype):
            raise TypeError(f"{operation}: only floats can require grad; dtype is {self.array.dtype}")
        self._requires_grad = bool(requires_grad)

    def retain_grad(self) -> None:
        """Let backward store the gradient of this intermediate result in `.grad`."""
        if not self.requires_grad:
            raise RuntimeError("retain_grad: the tensor does not require grad")
        if self.creator is not None:
            self.creator.retain(self)

    def detach_(self) -> TensorT:
        """Leave the graph: x becomes a leaf that does not require grad."""
        if getattr(self, "view_of", None) is not None:
            raise RuntimeError("detach_: x is a view; expected a tensor that is not a view; use x.detach()")
        self.creator, self._requires_grad, self.output_index = None, False, 0
        return self  # type: ignore[return-value]

    def register_hook(self, hook: Any) -> hooks.RemovableHandle:
        """Call hook(gradient) when backward has computed x's gradient.

        A Tensor that the hook returns replaces the gradient.
        """
        return hooks.register(self, hook)
