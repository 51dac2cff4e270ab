"""A Module is a tree of attributes. The class Module knows which attributes are parameters, buffers and child modules.

attributes.py sorts the attributes; the methods here (parameters(), state_dict(), train(), to() ...) walk over the tree.
Names and keys are PyTorch's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar, TypeVar

from minorm import devices
from minorm.devices import capture, dtypes
from minorm.nn import module_hooks, offer, state_dicts
from minorm.nn.attributes import BUFFER, BUFFERS, MODULE, MOVED, PARAMETER, Attributes
from minorm.nn.conversion import Conversion
from minorm.nn.module_arguments import METHODS
from minorm.nn.parameter import Parameter
from minorm.nn.state_dicts import LoadResult
from minorm.support.argument_errors import split_flags
from minorm.support.documented import documented_methods
from minorm.support.safe_names import printable
from minorm.support.states import completed
from minorm.tensor.tensor import Tensor

Self = TypeVar("Self", bound="Module")


@documented_methods(METHODS)
class Module(Attributes):
    """y = forward(x): the base class of all layers and models. A model is a tree of modules.

    Assign parameters and layers as attributes, and write `forward`. `train()` and `eval()` set `training`; `freeze()`
    and `unfreeze()` set `frozen`. A frozen module always computes as in evaluation; `train()` does not change this.

    Example:
        >>> class Net(nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.fc = nn.Linear(64, 10)
        ...
        ...     def forward(self, x):
        ...         return self.fc(x)
        >>> net = Net()
        >>> net(mn.randn(8, 64)).shape
        (8, 10)
        >>> [name for name, _ in net.named_parameters()]
        ['fc.weight', 'fc.bias']
    """

    training: bool = True  #: Set by `train()` and `eval()`.
    frozen: bool = False  #: Set by `freeze()` and `unfreeze()`.
    ignored_keys: ClassVar[tuple[str, ...]] = ()  #: Keys of older layers, which `load_state_dict` skips.
    _optional_keys: ClassVar[tuple[str, ...]] = ()  #: Keys that older files may lack: the module keeps its values.

    _of_convolutions: ClassVar[tuple[str, ...]] = ()  #: Names of parameters that a convolution reads as its weights.

    def __init__(self) -> None:
        super().__init__()
        self.__dict__["training"] = True
        self.__dict__["frozen"] = False

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the module's result. Every subclass defines this method. layer(x) calls `forward` and the hooks.

        Example:
            >>> nn.Linear(4, 2).forward(mn.randn(3, 4)).shape
            (3, 2)
        """
        raise NotImplementedError(
            f"{type(self).__name__} has no forward; write `def forward(self, x): ...` in the class"
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call `forward` and the hooks, and return the result."""
        if capture.watches and (watch := capture.watch()) is not None:
            watch.modules.append(self)
        registered = self.__dict__.get("_hooks")
        if registered is None:
            return self.forward(*args, **kwargs)
        return module_hooks.call(self, registered, args, kwargs)

    # Hooks

    def register_forward_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> module_hooks.RemovableHandle:
        """Call hook(module, args, output) after every `forward`. If the hook returns a value, this value replaces the
        output.

        The method returns a handle. `handle.remove()` removes the hook.

        Example:
            >>> layer = nn.Linear(4, 2)
            >>> handle = layer.register_forward_hook(lambda module, args, output: print(output.shape))
            >>> y = layer(mn.randn(3, 4))
            (3, 2)
            >>> handle.remove()
        """
        return module_hooks.register(self._own_hooks(), module_hooks.AFTER, hook, prepend, with_kwargs=with_kwargs)

    def register_forward_pre_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> module_hooks.RemovableHandle:
        """Call hook(module, args) before every `forward`. If the hook returns a value, this value replaces the
        arguments.

        With with_kwargs=True the call is hook(module, args, kwargs), and the hook returns (args, kwargs) or None.

        Example:
            >>> layer = nn.Linear(4, 2)
            >>> handle = layer.register_forward_pre_hook(lambda module, args: (args[0] * 0,))
            >>> (layer(mn.randn(3, 4)) == layer.bias).all().item()
            True
            >>> handle.remove()
        """
        return module_hooks.register(self._own_hooks(), module_hooks.BEFORE, hook, prepend, with_kwargs=with_kwargs)

    def register_full_backward_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> module_hooks.RemovableHandle:
        """Call hook(module, grad_input, grad_output) when backward has passed the module. A value that the hook returns
        replaces grad_input.

        grad_input and grad_output are tuples, with None in place of a missing gradient.

        Example:
            >>> layer = nn.Linear(4, 2)
            >>> handle = layer.register_full_backward_hook(lambda module, into, out: print(out[0].shape))
            >>> layer(mn.randn(3, 4)).sum().backward()
            (3, 2)
        """
        return module_hooks.register(self._own_hooks(), module_hooks.BACKWARD, hook, prepend)

    def _own_hooks(self) -> dict[str, dict[int, Any]]:
        return self.__dict__.setdefault("_hooks", {})

    # Walks over the tree

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """Yield a pair (name, module) for each child module. A module with two names appears once."""
        yield from _once(self._own(MODULE))

    def children(self) -> Iterator[Module]:
        """Yield the child modules. A module with two names appears once."""
        for _, module in self.named_children():
            yield module

    def named_modules(self, prefix: str = "") -> Iterator[tuple[str, Module]]:
        """Yield a pair (path, module) for this module, whose path is `prefix`, and for all modules below it. Parents
        come first. A shared module appears once.
        """
        yield from _once(self._named_modules(prefix))

    def _named_modules(self, prefix: str) -> Iterator[tuple[str, Module]]:
        yield prefix, self
        for name, child in self._own(MODULE):
            yield from child._named_modules(_join(prefix, name))

    def modules(self) -> Iterator[Module]:
        """Yield this module and all modules below it, parents first. A shared module appears once."""
        for _, module in self.named_modules():
            yield module

    def _named(self, prefix: str, recurse: bool, *kinds: str) -> Iterator[tuple[str, Any]]:
        for path, module in self._named_modules(prefix) if recurse else [(prefix, self)]:
            for name, value in module._own(*kinds):
                yield _join(path, name), value

    def named_parameters(self, prefix: str = "", recurse: bool = True) -> Iterator[tuple[str, Parameter]]:
        """Yield all parameters with their state_dict keys. A shared parameter appears once, under its first name.

        Example:
            >>> [name for name, _ in nn.Sequential(nn.Linear(4, 2)).named_parameters(prefix="model")]
            ['model.0.weight', 'model.0.bias']
        """
        yield from _once(self._named(prefix, recurse, PARAMETER))

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """Yield all parameters. A shared parameter appears once."""
        for _, parameter in self.named_parameters(recurse=recurse):
            yield parameter

    def named_buffers(self, prefix: str = "", recurse: bool = True) -> Iterator[tuple[str, Tensor]]:
        """Yield all buffers with their state_dict keys, even buffers that are not saved. A shared buffer appears once.

        Example:
            >>> [name for name, _ in nn.Sequential(nn.BatchNorm1d(4)).named_buffers()]
            ['0.running_mean', '0.running_var', '0.num_batches_tracked']
        """
        yield from _once(self._named(prefix, recurse, *BUFFERS))

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """Yield all buffers. A shared buffer appears once."""
        for _, buffer in self.named_buffers(recurse=recurse):
            yield buffer

    def get_submodule(self, target: str) -> Module:
        """Return the module at a dotted path: `model.get_submodule("layer1.0.conv")`. The path "" is the module
        itself.
        """
        module = self
        for name in target.split(".") if target else []:
            if module._kinds.get(name) != MODULE:
                names = printable(", ".join(child for child, _ in module.named_children()) or "none")
                owner = type(module).__name__
                raise AttributeError(
                    f"get_submodule: target is {target!r}, but {owner} has no child {name!r}; its children are: {names}"
                )
            module = module.__dict__[name]
        return module

    def get_parameter(self, target: str) -> Parameter:
        """Return the parameter of that name: `model.get_parameter("layer1.0.conv.weight").requires_grad_(False)`.

        Example:
            >>> nn.Sequential(nn.Linear(4, 2)).get_parameter("0.bias").shape
            (2,)
        """
        return self._get("get_parameter", "parameter", target, self.named_parameters(), PARAMETER)

    def get_buffer(self, target: str) -> Tensor:
        """Return the buffer of that name, even a buffer that is not saved: `model.get_buffer("bn.running_mean")`.

        Example:
            >>> nn.Sequential(nn.BatchNorm1d(2)).get_buffer("0.running_var")
            tensor([1., 1.])
        """
        return self._get("get_buffer", "buffer", target, self.named_buffers(), *BUFFERS)

    def _get(self, operation: str, what: str, target: str, named: Iterable[tuple[str, Any]], *kinds: str) -> Any:
        found = {**dict(self._named("", True, *kinds)), **dict(named)}  # a shared tensor has several names
        if target not in found:
            import difflib  # late: only a wrong name needs it

            near = difflib.get_close_matches(str(target)[:100], found, n=3)
            hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
            raise AttributeError(f"{operation}: {type(self).__name__} has no {what} {target!r}{hint}")
        return found[target]

    def apply(self: Self, fn: Callable[[Module], Any]) -> Self:
        """Call `fn` on every module, children before their parents. Returns this module."""
        for child in self.children():
            child.apply(fn)
        fn(self)
        return self

    # State

    def state_dict(
        self, prefix: str = "", *, destination: dict[str, Any] | None = None, keep_vars: bool = False
    ) -> dict[str, Any]:
        """Return a dict of all parameters and saved buffers. The tensors are detached, but share memory with the
        module.

        Keys and order are PyTorch's: a module's parameters, then its buffers, then the entries of its children. A
        shared parameter appears under each of its names. A child that overrides `state_dict` or `_save_to_state_dict`
        decides which entries are saved for this child.

        Example:
            >>> list(nn.Linear(4, 2).state_dict(prefix="head."))
            ['head.weight', 'head.bias']
        """
        entries = {} if destination is None else destination
        state_dicts.save(self, entries, prefix.removesuffix("."), keep_vars)
        return entries

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        """Save this module's entries, but no entries of the modules below. prefix is empty or ends with a dot."""
        for kind in (PARAMETER, BUFFER):
            for name, value in self._own(kind):
                destination[prefix + name] = value if keep_vars else value.detach()
        if self._has_extra_state():
            destination[prefix + offer.EXTRA] = self.get_extra_state()

    def _save_below(self, destination: dict[str, Any], path: str, keep_vars: bool) -> None:
        """Add the entries of this module and of the modules below it to `destination`, under keys that begin with
        `path`. If the class overrides `state_dict`, the override is called.
        """
        if type(self).state_dict is Module.state_dict:
            state_dicts.save(self, destination, path, keep_vars)
        else:
            destination.update({f"{path}.{key}": value for key, value in self.state_dict().items()})

    def _loadable(self) -> dict[str, Tensor]:
        """Return a dict from the keys of the state_dict to the tensors that `load_state_dict` fills."""
        places = self._named_modules("")
        own = [(path, kind, place) for path, place in places for kind in (PARAMETER, BUFFER)]
        return {_join(path, name): value for path, kind, place in own for name, value in place._own(kind)}

    def _has_extra_state(self) -> bool:
        return type(self).get_extra_state is not Module.get_extra_state

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],  # noqa: ARG002  PyTorch's, empty here
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Take this module's entries from the state, and report missing and unexpected keys.

        Before `load_state_dict` copies anything, it calls this method for each module, with the keys of this module and
        of the modules below. An override may rename keys and then call this method. Afterwards the override may change
        the lists of keys, and add to error_msgs. If the override does not call this method, the module loads nothing.
        """
        offer.take(self, state_dict, prefix, strict, missing_keys, unexpected_keys, error_msgs)

    def get_extra_state(self) -> Any:
        """Return extra state, which is saved in the state_dict under the key "_extra_state". A subclass defines this
        method.
        """
        raise NotImplementedError(
            f"{type(self).__name__} has no get_extra_state; define both get_extra_state and set_extra_state"
        )

    def set_extra_state(self, state: Any) -> None:
        """Restore the state that `get_extra_state` returned."""
        raise NotImplementedError(
            f"{type(self).__name__} has no set_extra_state; define both get_extra_state and set_extra_state"
        )

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> LoadResult:
        """Copy a state into the parameters and buffers. If the state does not fit, a ValueError lists all problems and
        nothing changes.

        Problems are missing keys, unexpected keys, wrong shapes and wrong types. The result lists missing and
        unexpected keys. With strict=False these keys raise no error. The module is also unchanged after Ctrl-C, and
        after an error in `set_extra_state`.

        Example:
            >>> a, b = nn.Linear(4, 2), nn.Linear(4, 2)
            >>> b.load_state_dict(a.state_dict())
            <All keys matched successfully>
            >>> (a.weight == b.weight).all().item()
            True
        """
        return state_dicts.load(self, state_dict, strict, assign)

    # Modes

    def train(self: Self, mode: bool = True) -> Self:
        """Switch this module and all modules below it to training mode. Frozen modules stay frozen."""
        if not isinstance(mode, bool):
            raise TypeError(f"train: mode is {mode!r}; expected a bool")
        self.training = mode
        for child in self.children():
            child.train(mode)
        return self

    def eval(self: Self) -> Self:
        """Switch to evaluation mode: normalizations use their running statistics, and dropout does nothing."""
        return self.train(False)

    def freeze(self: Self) -> Self:
        """Freeze this module and all modules below it, so that each of these modules computes a fixed function. A later
        `train()` does not change this.

        No parameter requires grad. Normalizations use their running statistics and never update them, and dropout does
        nothing. Gradients still flow through to the input.
        """
        return self._set_frozen(True)

    def unfreeze(self: Self) -> Self:
        """Undo `freeze()`: every parameter requires grad again, and `training` decides the module's mode again."""
        return self._set_frozen(False)

    def _set_frozen(self: Self, frozen: bool) -> Self:
        for module in self.modules():
            module.frozen = frozen
        return self.requires_grad_(not frozen)

    def requires_grad_(self: Self, requires_grad: bool = True) -> Self:
        """Choose whether gradients are computed for the parameters. Returns this module."""
        for parameter in self.parameters():
            parameter.requires_grad = requires_grad
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Set the gradients of all parameters to None. `set_to_none=False` fills the gradients with zeros instead."""
        for parameter in self.parameters():
            if set_to_none:
                parameter.grad = None
            elif parameter.grad is not None:
                with devices.on_device_of(parameter.grad.array):
                    parameter.grad.array.fill(0)

    def to(
        self: Self,
        *args: Any,
        device: Any = None,
        dtype: Any = None,
        non_blocking: bool = False,  # noqa: ARG002
        memory_format: Any = None,
    ) -> Self:
        """Move to a device or convert to a float type, in place: `to("cuda")`, `to(mn.float16)`, or both.

        Integer buffers (counters) keep their type. Parameters stay the same objects, so an optimizer that was made
        earlier still updates the parameters. Raises TypeError if dtype is not a float type. If one tensor cannot be
        converted, the whole module is unchanged.

        On a GPU, memory_format=mn.channels_last lays tensors of four axes with the channels last. Convolutions do this
        for their weights by themselves where it is faster.

        Example:
            >>> nn.Linear(4, 2).to(mn.float64).weight.dtype
            dtype('float64')
        """
        if any(type(value) is bool for value in args):  # PyTorch's non_blocking, by position
            args, _ = split_flags("Module.to", args, "non_blocking")
        for value in args:
            if isinstance(value, Tensor):
                device, dtype = value.device, value.dtype
            elif devices.is_device(value):
                device = value
            elif value is not None:
                dtype = value
        if dtype is not None:
            dtype = dtypes.check_float("Module.to", dtype)
        weights = [module.__dict__.get(name) for module in self.modules() for name in module._of_convolutions]
        tensors = (tensor for _, tensor in self._named("", True, *MOVED))
        convert = Conversion(tensors, device, dtype, memory_format, weights)

        def swap() -> None:
            self._apply(convert)

        completed(swap)
        return self

    def _apply(self: Self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Replace the array of every parameter, buffer and gradient by the array of the Tensor that `fn` returns. The
        parameters and buffers stay the same objects.
        """
        for child in self.children() if recurse else ():
            child._apply(fn)
        for _, tensor in self._own(*MOVED):
            tensor.set_array(fn(tensor).array)
            if tensor.grad is not None:
                tensor.grad.set_array(fn(tensor.grad).array)
        return self

    def cuda(self: Self, device: Any = None) -> Self:
        """Move this module to a GPU. `device` is a number or a name, and the default is the current GPU."""
        return self.to("cuda" if device is None else f"cuda:{device}" if isinstance(device, int) else device)

    def cpu(self: Self) -> Self:
        """Move this module to the CPU."""
        return self.to("cpu")

    def half(self: Self) -> Self:
        """Convert float parameters and buffers to float16."""
        return self.to(dtypes.float16)

    def float(self: Self) -> Self:
        """Convert float parameters and buffers to float32."""
        return self.to(dtypes.float32)

    def double(self: Self) -> Self:
        """Convert float parameters and buffers to float64."""
        return self.to(dtypes.float64)

    # Printing

    def extra_repr(self) -> str:
        """Return the text that `repr` shows between the brackets."""
        return ""

    def _get_name(self) -> str:
        """Return the name that `repr` shows before the brackets. PyTorch models may override this method."""
        return type(self).__name__

    def __repr__(self) -> str:
        lines = [f"({printable(name)}): {_indent(repr(child))}" for name, child in self._own(MODULE)]
        extra = self.extra_repr()
        name = self._get_name()
        if not lines:
            return f"{name}({extra})"
        if extra:
            lines.insert(0, extra)
        return f"{name}(\n  " + "\n  ".join(lines) + "\n)"


Module._reserved = frozenset(dir(Module))


def _join(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name


def _once(pairs: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    seen: set[int] = set()
    for name, value in pairs:
        if id(value) not in seen:
            seen.add(id(value))
            yield name, value


def _indent(text: str) -> str:
    return text.replace("\n", "\n  ")
