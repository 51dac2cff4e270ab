"""Tensor: an array and its gradient. Its methods are in shapes.py, operators.py, reductions.py and methods/.

    x.array          the NumPy array; on a GPU, the CuPy array
    x.data           a Tensor with the same memory, but outside the graph. Another Tensor or array may be assigned
    x.requires_grad  True lets backward() leave a gradient in x.grad
    x.creator        the Function that computed x; None for a leaf

Names and arguments are PyTorch's, with two differences. `numpy()` works on a tensor that requires grad. Arithmetic with
two float tensors of different types raises TypeError.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from minorm import devices
from minorm.devices import dtypes
from minorm.graph import differentiation, grad_mode, graph
from minorm.graph.graph import Version, View
from minorm.kernels import select
from minorm.kernels.select import backend
from minorm.ops import elementwise
from minorm.support.argument_errors import conversion, is_foreign, kind_of, split_flags
from minorm.support.argument_texts import MEMORY
from minorm.support.documented import documented, documented_methods
from minorm.tensor import printing
from minorm.tensor.methods import Methods

Real: TypeAlias = float  # inside the class, `float` is the method


ARGUMENTS = MEMORY | {
    "dim": "an axis; None gives the whole shape",
    "array": "a NumPy or CuPy array",
    "force": "True copies a Tensor from a GPU; False raises TypeError for a Tensor on a GPU",
    "gradient": "the gradient of the final result with respect to x; None if x has one element",
    "retain_graph": "True keeps the graph for another backward(), False frees it; None means the value of create_graph",
    "inputs": "one or several Tensors that get a gradient; None means every leaf that requires grad",
    "create_graph": "True makes gradients part of the graph, so that they can be differentiated",
    "targets": "an element type, a device, or a Tensor that has both",
    "dtype": "the element type; None is x's type",
    "device": 'the device of the result, "cpu" or "cuda"; None is x\'s device',
    "cuda.device": "the GPU's number or name; None is the current one",
    "copy": "True makes a copy in any case",
}


@documented(
    {},
    data="a NumPy or CuPy array, which is not copied; or a list, which becomes floats",
    requires_grad="True makes backward() store a gradient in x.grad",
)
@documented_methods(ARGUMENTS)
class Tensor(Methods["Tensor"]):
    """An n-dimensional array that remembers how it was computed.

    Tensor(array) wraps an array without copying. `minorm.tensor(data)` copies the data and chooses a type. Raises
    TypeError for anything but an array, and for integers that require grad.

    Example:
        >>> x = mn.Tensor([1.0, 2.0], requires_grad=True)
        >>> (x * x).sum().backward()
        >>> x.grad
        tensor([2., 4.])
    """

    __slots__ = {  # with their docstrings
        "__weakref__": None,
        "_hooks": "Hooks of a leaf, see graph/hooks.py; missing before the first one.",
        "_requires_grad": "The value of `requires_grad`; operations read it without a call.",
        "array": "The elements, a NumPy or CuPy array.",
        "creator": "The Function that computed the Tensor; None for a leaf.",
        "grad": "The gradient from backward(), a Tensor of the same shape; None before.",
        "output_index": "The index of x among the results of its creator.",
        "version": "Counts the in-place changes of x's memory. x and its views share this counter.",
        "view_of": "The call that made x from another Tensor, if x is a view; else None.",
    }
    __array_ufunc__ = None  # so NumPy leaves array + tensor to tensor.__radd__(array)

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name in ("__torch_function__", "__torch_dispatch__"):
            if name in vars(cls):
                raise TypeError(
                    f"{cls.__name__}: {name} would not be called, because operations of minorm return plain Tensors; "
                    f"expected a class without {name}; hold a Tensor in a class with your methods"
                )

    def __init__(self, data: Any, requires_grad: bool = False) -> None:
        if isinstance(data, list):  # as in older PyTorch programs
            data = np.array(data, dtypes.get_default_dtype())
        if not select.is_array(data):
            fix = f"; {conversion('data', data)}" if is_foreign(data) else " (minorm.tensor(data) makes one)"
            raise TypeError(f"Tensor: data is {kind_of(data)}; expected an array of NumPy or of CuPy{fix}")
        if not data.dtype.isnative:
            raise TypeError(
                f"Tensor: data has dtype {data.dtype.str}, the byte order of another machine; expected the byte order "
                "of this machine; use array.astype(array.dtype.newbyteorder('='))"
            )
        if requires_grad and data.dtype not in dtypes.FLOATS:
            raise TypeError(
                f"Tensor: only floats can require grad; dtype is {data.dtype}; use x.to(minorm.float32) first"
            )
        self.array: Any = data
        self._requires_grad = requires_grad
        self.grad: Tensor | None = None
        self.creator: graph.Function | None = None
        self.output_index = 0
        self.version = Version()
        self.view_of: View | None = None

    @staticmethod
    @documented(
        {},
        array="a NumPy or CuPy array",
        creator="the Function that computed the array; None for a leaf",
        index="the index of the array among the creator's results",
    )
    def from_array(array: Any, creator: graph.Function | None = None, index: int = 0) -> Tensor:
        """Make a Tensor around an array.

        If a creator is given, the Tensor is output `index` of this Function. Code that must not import Tensor calls
        this method.

        Example:
            >>> mn.Tensor.from_array(mn.zeros(2).numpy())
            tensor([0., 0.])
        """
        self = Tensor.__new__(Tensor)
        self.array = array if type(array) is np.ndarray else select.as_array(array)
        self._requires_grad = creator is not None
        self.grad = None
        self.creator = creator
        self.output_index = index
        self.version = Version()
        self.view_of = None
        return self

    @staticmethod
    @documented(
        {},
        total="an array",
        gradient="an array of total's shape and type",
        owned="True if backward made total, so that total may be overwritten",
    )
    def accumulate(total: Any, gradient: Any, owned: bool) -> Any:
        """Return the sum of the arrays total and gradient. With owned=True, write the sum into total.

        Example:
            >>> mn.Tensor.accumulate(mn.ones(1).numpy(), mn.ones(1).numpy(), owned=False).tolist()
            [2.0]
        """
        if type(total) is np.ndarray:
            return _accumulated(total, gradient, owned)
        with devices.on_device_of(total):
            return _accumulated(total, gradient, owned)

    @staticmethod
    def _copied(array: Any) -> Any:
        """Copy an array for backward. The copy is on the same device and in the same order in memory."""
        if type(array) is np.ndarray:
            return array.copy()
        with devices.on_device_of(array):
            return backend(array).copying.copy(array)

    def __getstate__(self) -> Any:
        """Return the state for copy and pickle, which is everything but the hooks."""
        state: Any = object.__getstate__(self)
        state[1].pop("_hooks", None)
        return state

    # Properties

    @property
    def data(self) -> Tensor:
        """A Tensor with the same memory as x, but outside the graph. This is the result of x.detach().

        `p.data -= lr * g` changes p, but the graph does not record the change.

        You may assign a Tensor or an array of the same shape and type, on the same device. Then x uses the memory of
        the assigned object. Earlier views and results of detach() keep the old memory. Raises TypeError for other
        objects and types, ValueError for another shape, and RuntimeError for another device.

        Unlike in PyTorch, x.data shares x's version counter: if a change through x.data overwrites values that
        backward() needs, backward() raises an error.
        """
        return self.detach()

    @data.setter
    def data(self, value: Any) -> None:
        given = isinstance(value, Tensor)
        array = value.array if given else value
        if not hasattr(self, "array"):  # unpickled from an old file, where the array was called data
            self.array, self.version, self.view_of = array, Version(), None
            return
        if not select.is_array(array):
            raise TypeError(
                f"x.data = value: value is {kind_of(value)}; expected a Tensor or an array; write x.data.fill_(value)"
            )
        if array.dtype != self.dtype:
            raise TypeError(
                f"x.data = value: value is {array.dtype}, x is {self.dtype}; expected x's type; "
                f"use {'value.to(x.dtype)' if given else 'value.astype(x.dtype)'}"
            )
        if array.shape != self.shape:
            raise ValueError(f"x.data = value: value has shape {array.shape}; expected {self.shape}, x's own")
        if not devices.same_device(array, self.array):
            raise RuntimeError(
                f"x.data = value: value is on {devices.device_of(array)}, x on {self.device}; expected one device"
            )
        if array is not self.array:
            self.set_array(array)
            if given:
                self.version = value.version  # Tensors that share memory share its counter

    def set_array(self, array: Any) -> None:
        """Replace the array by an array of any shape and type.

        A Module calls this method to convert and move parameters.
        """
        if array is not self.array:
            self.array = array
            self.version, self.view_of = Version(), None  # Tensors that shared the old memory keep it

    @property
    def shape(self) -> tuple[int, ...]:
        """The length of each axis."""
        return self.array.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The element type: one of minorm's types, as a NumPy dtype."""
        return self.array.dtype

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return self.array.ndim

    @property
    def device(self) -> devices.device:
        """The device of the elements: "cpu" for a NumPy array, "cuda:0" for a CuPy array on the first GPU."""
        return devices.device_of(self.array)

    @property
    def is_cuda(self) -> bool:
        """Whether the elements are on a GPU."""
        return self.device != "cpu"

    @property
    def requires_grad(self) -> bool:
        """Whether the graph records operations on x, and backward() leaves a gradient in x.

        You may change this flag of a leaf. If x is not a leaf, changing the flag raises RuntimeError, because x would
        lose its gradient. Setting the flag to True raises TypeError if the elements are not floats.
        """
        return self._requires_grad

    @requires_grad.setter
    def requires_grad(self, requires_grad: bool) -> None:
        self._set_requires_grad("x.requires_grad = value", requires_grad)

    @property
    def is_leaf(self) -> bool:
        """True unless a differentiable operation computed x. backward() stops at leaves."""
        return self.creator is None

    def size(self, dim: int | None = None) -> Any:
        """Return the shape, or the length of axis `dim`."""
        return self.shape if dim is None else self.shape[dim]

    def dim(self) -> int:
        """The number of axes."""
        return self.ndim

    def numel(self) -> int:
        """Return the number of elements."""
        return int(self.array.size)

    def __len__(self) -> int:
        if self.ndim == 0:
            raise TypeError("len: a 0-d tensor has no length")
        return self.shape[0]

    def __repr__(self) -> str:
        return printing.text(self)

    def __format__(self, spec: str) -> str:
        """Format a 0-d tensor as a number, as in f"{loss:.4f}".

        For other tensors, the result is their repr, and a format raises TypeError.
        """
        if self.ndim == 0:
            return format(self.item(), spec)
        if spec:
            raise TypeError(f"format: {spec!r} is for a number, shape is {self.shape}; expected a 0-d tensor")
        return repr(self)

    # Out to other libraries

    def numpy(self, *, force: bool = False) -> Any:
        """Return the NumPy array itself, not a copy, even if the tensor requires grad.

        Raises TypeError for a tensor on a GPU. With force=True, the elements are copied from the GPU to the CPU
        instead.
        """
        if backend(self.array) is not select.cpu:
            if force:
                return self.detach().cpu().array
            raise TypeError(
                f"numpy: the tensor is on {self.device!r}, NumPy's arrays are on the CPU; use x.cpu().numpy()"
            )
        return self.array

    def item(self) -> Any:
        """Return the only element as a Python number."""
        if self.array.size != 1:
            raise ValueError(f"item: only a tensor of one element has an item; shape is {self.shape}")
        with devices.on_device_of(self.array):  # CuPy copies on the current stream
            return self.array.reshape(()).item()

    def tolist(self) -> Any:
        """Return nested lists of Python numbers."""
        with devices.on_device_of(self.array):
            return self.array.tolist()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.array(self.numpy(), dtype=dtype, copy=copy)

    def __dlpack__(self, **options: Any) -> Any:
        if self.requires_grad:
            raise BufferError("__dlpack__: the tensor requires grad, which DLPack cannot carry; export x.detach()")
        array = self.array
        if backend(array) is not select.cpu:
            with devices.on_device_of(array):  # the consumer's stream then waits for this device's current stream
                return (array.copy() if any(step < 0 for step in array.strides) else array).__dlpack__(**options)
        if self.dtype == dtypes.bfloat16:
            raise BufferError("__dlpack__: NumPy cannot export bfloat16; export x.to(minorm.float32)")
        if any(step < 0 for step in array.strides) or not array.flags.writeable:
            array = array.copy()  # consumers may fail on negative strides, and must not write to read-only memory
        return array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()

    def __bool__(self) -> bool:
        if self.array.size != 1:
            raise ValueError(f"bool: the truth of {self.numel()} elements is ambiguous; use x.all() or x.any()")
        return bool(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __index__(self) -> int:
        if dtypes.is_float(self.dtype):
            raise TypeError(f"index: a {self.dtype} tensor cannot be an index; expected integers")
        return int(self.item())

    def __hash__(self) -> int:
        return id(self)

    # Gradients

    def backward(
        self, gradient: Any = None, retain_graph: bool | None = None, create_graph: bool = False, inputs: Any = None
    ) -> None:
        """Add dx/d(leaf) to `leaf.grad` of every leaf that requires grad.

        If `inputs` is given, only these Tensors get a gradient; they need not be leaves. Raises RuntimeError if nothing
        requires grad, or if `gradient` is missing and x has more than one element.

        Example:
            >>> x = mn.tensor([1.0, 2.0], requires_grad=True)
            >>> (x * x).backward(mn.tensor([1.0, 10.0]))
            >>> x.grad
            tensor([ 2., 40.])
        """
        if not self.requires_grad:
            raise RuntimeError(
                "backward: the tensor does not require grad, and nothing from which it was computed requires grad; "
                "expected a result that was computed outside minorm.no_grad() from parameters or from tensors made "
                "with requires_grad=True"
            )
        if gradient is None:
            if self.array.size != 1:
                raise RuntimeError(
                    f"backward: gradient is needed for a tensor that is not a scalar; shape is {self.shape}; "
                    "call loss.sum().backward() or pass gradient of that shape"
                )
            with devices.on_device_of(self.array):
                weights = backend(self.array).copying.full_like(self.array, 1)
        else:
            weights = gradient.array if isinstance(gradient, Tensor) else self._array(gradient)
            if not devices.same_device(weights, self.array):
                raise RuntimeError(
                    f"backward: gradient is on {devices.device_of(weights)}, the tensor on {self.device}; "
                    f"use gradient.to({self.device!r})"
                )
            if weights.shape != self.array.shape or weights.dtype != self.array.dtype:
                raise ValueError(
                    f"backward: gradient is {weights.dtype} of shape {weights.shape}; "
                    f"expected {self.dtype} of shape {self.shape}"
                )
        differentiation.start((self,), (weights,), (gradient,), retain_graph, create_graph, inputs)

    def _array(self, value: Any) -> Any:
        """Return `value` as an array of this tensor's type on its device. A CuPy array is not changed."""
        if select.is_array(value) and not isinstance(value, np.ndarray):
            return value
        return devices.to_device_of(np.asarray(value, self.dtype), self.array)

    def detach(self) -> Tensor:
        """Return a Tensor with the same memory, but outside the graph."""
        result = self.from_array(self.array)
        result.version = self.version
        return result

    # Types and devices

    def to(
        self, *targets: Any, dtype: Any = None, device: Any = None, non_blocking: Any = False, copy: Any = False,  # noqa: ARG002
        memory_format: Any = None,
    ) -> Tensor:  # fmt: skip
        """Convert to another element type, device or order in memory. If nothing changes, return x itself.

        Example:
            >>> mn.tensor([1.7]).to(mn.int64)
            tensor([1])
        """
        if any(type(target) is bool for target in targets):  # PyTorch's non_blocking and copy, by position
            targets, (_, *copied) = split_flags("to", targets, "non_blocking", "copy")
            copy = copy or copied == [True]
        if memory_format is not None or copy:
            moved: Any = self.to(*targets, dtype=dtype, device=device)
            if memory_format is not None:
                moved = moved.contiguous(memory_format)
            return moved.clone() if copy and moved is self else moved
        for target in targets:
            if isinstance(target, Tensor):
                dtype, device = target.dtype, target.device
            elif devices.is_device(target):
                device = target
            elif target is not None:
                dtype = target
        if device is not None and device != self.device and (name := devices.device_name(device)) != self.device:
            return elementwise.Move.apply(self, device=name).to(dtype)
        if dtype is None or dtypes.check(dtype) == self.dtype:
            return self
        if dtypes.is_float(dtypes.check(dtype)):
            return elementwise.Cast.apply(self, dtype=dtypes.check(dtype))
        with grad_mode.no_grad():  # integers have no gradient
            return elementwise.Cast.apply(self, dtype=dtypes.check(dtype))

    def cpu(self, memory_format: Any = None) -> Tensor:
        """Move to the CPU."""
        return self.to("cpu", memory_format=memory_format)

    def cuda(self, device: Any = None, non_blocking: Any = False, memory_format: Any = None) -> Tensor:
        """Move to the GPU with this number or name, or to the current GPU if `device` is missing.

        Raises RuntimeError if there is no GPU.

        Example:
            >>> x = mn.zeros(2)
            >>> (x.cuda() if mn.cuda.is_available() else x).shape
            (2,)
        """
        place = "cuda" if device is None else f"cuda:{device}" if isinstance(device, int) else device
        return self.to(place, non_blocking=non_blocking, memory_format=memory_format)


def _accumulated(total: Any, gradient: Any, owned: bool) -> Any:
    kernels = backend(total).elementwise
    if not owned:
        return select.as_array(kernels.add(total, gradient))
    kernels.accumulate(total, gradient)
    return total


def as_tensor(value: Any) -> Tensor:
    """Return a Tensor unchanged. For any other value, return a Tensor around np.asarray(value)."""
    return value if isinstance(value, Tensor) else Tensor(select.as_array(value))
