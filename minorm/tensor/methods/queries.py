"""What a Tensor is, said in PyTorch's words, and other Tensors of its kind."""

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
        "is_contiguous.memory_format": "the order that is asked for; None is row-major order",
        "clone.memory_format": "the order of the copy; None and minorm.preserve_format keep it",
        "contiguous.memory_format": "minorm.channels_last for images whose channels lie last, channels_last_3d for "
        "volumes; None is row-major order, preserve_format keeps it",
        "pin_memory.device": "taken, without effect",
        "rtol": "how far apart they may be, as a share of |other|",
        "atol": "how far apart they may be beside that",
        "equal_nan": "True takes NaN for equal to NaN",
        "type.dtype": "an element type, or minorm.FloatTensor and its kin; None asks for x's",
        "data": "numbers, nested lists, an array or a Tensor",
        "fill_value": "the number that each element is",
        "dtype": "the element type; None is x's",
        "device": 'where it is made, "cpu" or "cuda"; None is where x is',
        "requires_grad_.requires_grad": "True: backward() should leave a gradient in x.grad",
        "hook": "called with the gradient; gives another one, or None to keep it",
    }
)


@documented_methods(ARGUMENTS)
class Queries(Operators[TensorT], Generic[TensorT]):
    """Questions, conversions, and new Tensors of the same type on the same device."""

    __slots__ = ()

    if TYPE_CHECKING:  # what the Tensor provides
        creator: Any
        requires_grad: Any
        _requires_grad: Any
        output_index: Any

        def to(self, *targets: Any, dtype: Any = None, device: Any = None, memory_format: Any = None) -> TensorT: ...  # noqa: D102

    @property
    def grad_fn(self) -> Any:
        """The Function that computed x; None for a leaf."""
        return self.creator

    @property
    def itemsize(self) -> int:
        """How many bytes an element takes."""
        return int(self.array.dtype.itemsize)

    @property
    def nbytes(self) -> int:
        """How many bytes all elements take."""
        return int(self.array.nbytes)

    def element_size(self) -> int:
        """How many bytes an element takes."""
        return self.itemsize

    def nelement(self) -> int:
        """How many elements."""
        return self.numel()

    def ndimension(self) -> int:
        """How many axes."""
        return self.ndim

    def stride(self, dim: int | None = None) -> Any:
        """How many elements further in memory the next one along each axis, or along `dim`, is."""
        steps = tuple(step // self.itemsize for step in self.array.strides)
        return steps if dim is None else steps[dim]

    def is_contiguous(self, memory_format: Any = None) -> bool:
        """True where the elements lie in row-major order without gaps, or in the order of memory_format."""
        if memory_format is None:
            return bool(self.array.flags.c_contiguous)
        return lies_in(self.array, memory_format)

    def is_floating_point(self) -> bool:
        """True for the four float types."""
        return bool(dtypes.is_float(self.array.dtype))

    @property
    def is_cpu(self) -> Any:
        """True where the elements are on the CPU."""
        return devices.device_of(self.array) == "cpu"

    def get_device(self) -> Any:
        """The number of the GPU, -1 for the CPU."""
        index = devices.device_of(self.array).index
        return -1 if index is None else index

    def is_signed(self) -> Any:
        """True for types that hold negative numbers."""
        return self.array.dtype.kind not in "ub"

    def is_complex(self) -> Any:
        """False: there are no complex types."""
        return False

    def is_same_size(self, other: Any) -> Any:
        """True where `other` has the same shape."""
        return self.shape == other.shape

    def pin_memory(self, device: Any = None) -> TensorT:  # noqa: ARG002
        """x itself: memory is not pinned."""
        return self  # type: ignore[return-value]

    def equal(self, other: Any) -> bool:
        """True where `other` has the same shape and the same elements."""
        return bool(self.shape == other.shape and (self == other).all())

    def allclose(self, other: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> bool:
        """True where every |x - other| <= atol + rtol * |other|.

        An infinity is close to itself alone.

        Example:
            >>> mn.tensor([1.0]).allclose(mn.tensor([1.001]), rtol=0.01)
            True
        """
        close: Any = self.isclose(other, rtol, atol, equal_nan)
        return bool(close.all())

    def isclose(self, other: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> TensorT:
        """|x - other| <= atol + rtol * |other|, element by element; an infinity is close to itself alone.

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
        """value in x: whether an element equals it."""
        found: Any = compare("equal", self, value).any()
        return bool(found)

    # Conversions

    def type(self, dtype: Any = None, non_blocking: Any = False) -> Any:  # noqa: ARG002
        """x in another type, or in that of minorm.LongTensor and its kin; without one, the name of x's.

        Example:
            >>> mn.tensor([1.5]).type(), mn.tensor([1.5]).type(mn.int64)
            ('float32', tensor([1]))
        """
        return str(self.array.dtype) if dtype is None else self.to(getattr(dtype, "makes", dtype))

    def type_as(self, other: Any) -> TensorT:
        """x in the type of `other`."""
        return self.to(other.dtype)

    def clone(self, *, memory_format: Any = None) -> TensorT:
        """The same values in memory of their own, channels-last if self is; gradients pass through."""
        ordered: Any = self if memory_format is None else self.contiguous(memory_format)
        if ordered is not self:
            return ordered
        return elementwise.Copy.apply(self, order="K")

    def contiguous(self, memory_format: Any = None) -> Any:
        """Self, or a copy in row-major order or with the channels last; ValueError for another number of axes."""
        order = order_of("contiguous", memory_format, self.shape)
        if named(memory_format) == dtypes.preserve_format or lies_in(self.array, memory_format):
            return self
        if order is not None:
            rows: Any = self.permute(*order)
            return rows.contiguous().permute(0, self.ndim - 1, *range(1, self.ndim - 1))
        return elementwise.Copy.apply(self, order="C")

    def float(self, memory_format: Any = None) -> TensorT:
        """As float32."""
        return self.to(dtypes.float32, memory_format=memory_format)

    def double(self, memory_format: Any = None) -> TensorT:
        """As float64."""
        return self.to(dtypes.float64, memory_format=memory_format)

    def half(self, memory_format: Any = None) -> TensorT:
        """As float16."""
        return self.to(dtypes.float16, memory_format=memory_format)

    def bfloat16(self, memory_format: Any = None) -> TensorT:
        """As bfloat16."""
        return self.to(dtypes.bfloat16, memory_format=memory_format)

    def long(self, memory_format: Any = None) -> TensorT:
        """As int64."""
        return self.to(dtypes.int64, memory_format=memory_format)

    def int(self, memory_format: Any = None) -> TensorT:
        """As int32."""
        return self.to(dtypes.int32, memory_format=memory_format)

    def short(self, memory_format: Any = None) -> TensorT:
        """As int16."""
        return self.to(dtypes.int16, memory_format=memory_format)

    def byte(self, memory_format: Any = None) -> TensorT:
        """As uint8."""
        return self.to(dtypes.uint8, memory_format=memory_format)

    def bool(self, memory_format: Any = None) -> TensorT:
        """As bool: whether each element is not 0."""
        return self.to(dtypes.bool, memory_format=memory_format)

    # Of the same kind

    def new_tensor(self, data: Any, dtype: Any = None, device: Any = None, requires_grad: Any = False) -> TensorT:
        """A Tensor with a copy of `data`, of x's type and on its device unless told otherwise.

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
        """`size` elements of `fill_value`, of x's type and on its device unless told otherwise.

        Example:
            >>> mn.zeros(1).new_full((2,), 7)
            tensor([7., 7.])
        """
        kind = self.array.dtype if dtype is None else dtypes.check(dtype)
        return self._new(np.full(shape_of("new_full", (size,)), fill_value, kind), device, requires_grad)

    def new_zeros(self, *size: Any, dtype: Any = None, device: Any = None, requires_grad: Any = False) -> TensorT:
        """`size` zeros, of x's type and on its device unless told otherwise.

        Example:
            >>> mn.ones(1).new_zeros(2)
            tensor([0., 0.])
        """
        return self.new_full(shape_of("new_zeros", size), 0, dtype=dtype, device=device, requires_grad=requires_grad)

    def new_ones(self, *size: Any, dtype: Any = None, device: Any = None, requires_grad: Any = False) -> TensorT:
        """`size` ones, of x's type and on its device unless told otherwise.

        Example:
            >>> mn.zeros(1).new_ones(2)
            tensor([1., 1.])
        """
        return self.new_full(shape_of("new_ones", size), 1, dtype=dtype, device=device, requires_grad=requires_grad)

    def new_empty(self, *size: Any, dtype: Any = None, device: Any = None, requires_grad: Any = False) -> TensorT:
        """`size` elements, of x's type and on its device unless told otherwise; here they are zeros.

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
        """Set requires_grad on a leaf; returns self."""
        self._set_requires_grad("requires_grad_", requires_grad)
        return self  # type: ignore[return-value]

    def _set_requires_grad(self, operation: str, requires_grad: Any) -> None:
        """Only a leaf's flag can be changed; whether a result joins the graph does not depend on it."""
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
        """Keep the gradient of this intermediate result in `.grad` when backward passes through."""
        if not self.requires_grad:
            raise RuntimeError("retain_grad: the tensor does not require grad")
        if self.creator is not None:
            self.creator.retain(self)

    def detach_(self) -> TensorT:
        """Leave the graph: x is a leaf from here on, and does not require grad."""
        if getattr(self, "view_of", None) is not None:
            raise RuntimeError("detach_: x is a view; expected a tensor of its own memory; use x.detach()")
        self.creator, self._requires_grad, self.output_index = None, False, 0
        return self  # type: ignore[return-value]

    def register_hook(self, hook: Any) -> hooks.RemovableHandle:
        """Call hook(gradient) when backward has x's gradient; what it returns, if anything, takes its place."""
        return hooks.register(self, hook)
