"""make_graphed_callables captures the forward and the backward pass of a module or function as two CUDA graphs.

    model = mn.cuda.make_graphed_callables(model, (images,))  # a part of a step; make_graphed_step captures all of it
    loss = F.cross_entropy(model(images), labels)
    loss.backward()

Names and rules are PyTorch's. A call returns Tensors whose memory belongs to the graph, and the next call overwrites
this memory.
"""

from __future__ import annotations

import types
from typing import Any

from minorm import devices
from minorm.cuda.graphs import POOL, CUDAGraph, graph, graph_pool_handle
from minorm.devices import generators
from minorm.graph import backward, trace
from minorm.graph.graph import Function
from minorm.support.argument_errors import checked, kind_of
from minorm.support.documented import documented
from minorm.support.nested import mapped
from minorm.tensor.tensor import Tensor

NAME = "make_graphed_callables"


class Graphed(Function):
    """One call of a captured function: replays the forward pass's graph, and later the backward pass's graph."""

    def forward(self, *arrays: Any, captured: Captured) -> Any:
        """Replay the forward pass, and return the results, which are in the memory of the graph."""
        self.captured, self.call = captured, captured.forward(arrays)
        return tuple([y.array for y in captured.outputs])

    def backward(self, *gradients: Any) -> Any:
        """Return the gradients, which the next replay overwrites; raise RuntimeError if a later call was made."""
        if self.call != self.captured.calls:
            raise RuntimeError(
                f"{NAME}: a later call has overwritten the arrays that this backward pass needs; expected the "
                "backward pass of each call before the next call"
            )
        return self.captured.backward(gradients)


class Captured:
    """A callable that was captured as two CUDA graphs, with the memory that the graphs read and write.

    inputs      the inputs of the callable, then the parameters
    outputs     Tensors that hold a call's results
    gradients   an array for each of `inputs`; None for an input without a gradient
    """

    def __init__(self, function: Any, args: tuple[Tensor, ...], unused: bool) -> None:
        self.function, self.unused, self.count = function, unused, len(args)
        device = args[0].device
        self.samples = [x.detach().clone().requires_grad_(x.requires_grad) for x in args]
        parameters = [p for p in function.parameters() if p.requires_grad] if _is_module(function) else []
        self.inputs = [*self.samples, *parameters]
        self.places = [x.array for x in self.inputs]
        self.device, self.calls = device, 0
        self.ends, self.starts = CUDAGraph(), CUDAGraph()

    def warm_up(self, times: int) -> None:
        """Run the callable so that kernels are compiled; restore buffers, random numbers and gradients afterwards."""
        buffers = list(self.function.buffers()) if _is_module(self.function) else []
        kept = [buffer.clone() for buffer in buffers]
        with generators.kept():
            for _ in range(times):
                outputs = _tensors(self.function(*self.samples))
                self._differentiate([(y, y.detach().clone().fill_(0)) for y in outputs if y.requires_grad])
        for buffer, before in zip(buffers, kept, strict=True):
            buffer.detach().copy_(before)

    def capture_forward(self, pool: Any, stream: Any) -> None:
        """Capture the forward pass."""
        with graph(self.starts, pool, stream):
            self.nest = self.function(*self.samples)
            self.outputs = _tensors(self.nest)

    def capture_backward(self, pool: Any, stream: Any) -> None:
        """Capture the backward pass, and release the graph of autograd."""
        with devices.on(self.device):
            self.weights = [y.detach().clone().fill_(0) if y.requires_grad else None for y in self.outputs]
            kept = [x.detach().clone() for x in self.inputs]
        with graph(self.ends, pool, stream):
            seeds = zip(self.outputs, self.weights, strict=True)
            found = self._differentiate([(y, weight) for y, weight in seeds if weight is not None])
            # Copied, as the forward pass uses this graph's memory too, and gradients must outlive its next replay.
            self.gradients = [a if a is None else x.copy_(Tensor(a)).array for x, a in zip(kept, found, strict=True)]
        self.trained = [y.requires_grad for y in self.outputs]
        self.outputs = [y.detach() for y in self.outputs]
        self.nest = mapped(self.nest, Tensor, Tensor.detach)

    def _differentiate(self, seeds: list[tuple[Tensor, Tensor]]) -> list[Any]:
        """Return each input's gradient as an array.

        Raises RuntimeError if an input has no gradient, unless the user allows unused inputs.
        """
        found = {}
        if seeds:
            walked = backward.walk([(y, weight.array) for y, weight in seeds], False)
            found = {id(leaf): array for leaf, array in walked}
        for number, x in enumerate(self.inputs):
            if x.requires_grad and seeds and id(x) not in found and not self.unused:
                what = f"sample_args[{number}]" if number < self.count else f"a parameter of shape {x.shape}"
                raise RuntimeError(
                    f"{NAME}: the outputs do not depend on {what}, so it gets no gradient; to allow this, pass "
                    "allow_unused_input=True"
                )
        return [found.get(id(x)) if x.requires_grad else None for x in self.inputs]

    def __call__(self, *args: Any) -> Any:
        """Replay the callable, as part of autograd's graph."""
        self._check(args)
        made = Graphed.apply(*args, *self.inputs[self.count :], captured=self)
        results = iter([y if trained else y.detach() for y, trained in zip(made, self.trained, strict=True)])
        return mapped(self.nest, Tensor, lambda _: next(results))

    def _check(self, args: tuple[Any, ...]) -> None:
        if len(args) != self.count:
            raise TypeError(
                f"{NAME}: the call has {len(args)} arguments; expected {self.count}, as many as sample_args has"
            )
        for number, (given, sample) in enumerate(zip(args, self.samples, strict=True)):
            if not isinstance(given, Tensor):
                raise TypeError(f"{NAME}: args[{number}] is a {kind_of(given)}; expected a Tensor")
            if _form(given) != _form(sample):
                raise ValueError(
                    f"{NAME}: args[{number}] is {_form(given)}; expected {_form(sample)}, as in sample_args"
                )
        if any(x.array is not place for x, place in zip(self.inputs, self.places, strict=True)):
            raise RuntimeError(
                f"{NAME}: a parameter has moved to other memory since the graphs were captured; call to() before the "
                "capture, and capture again"
            )

    def forward(self, arrays: tuple[Any, ...]) -> int:
        """Replay the forward pass with the inputs `arrays`; return the number of this call."""
        for ours, given in zip(self.samples, arrays, strict=False):
            ours.array[...] = given
        self.starts.replay()
        self.calls += 1
        return self.calls

    def backward(self, gradients: tuple[Any, ...]) -> tuple[Any, ...]:
        """Replay the backward pass on the outputs' gradients."""
        for weight, given in zip(self.weights, gradients, strict=True):
            if weight is not None:
                weight.array[...] = 0 if given is None else given
        for x, ours in zip(self.inputs[self.count :], self.gradients[self.count :], strict=True):
            if x.grad is not None and x.grad.array is ours:  # of an earlier call: a replay would overwrite it
                x.grad.set_array(x.grad.clone().array)
        self.ends.replay()
        # An input's gradient may outlive this call: autograd copies a view before it stores it.
        own = [None if array is None else array[...] for array in self.gradients[: self.count]]
        return (*own, *self.gradients[self.count :])


class GraphedForward:
    """The `forward` of a captured module.

    It replays the graph if each submodule is in the same mode as during the capture; otherwise it runs eagerly.
    """

    def __init__(self, module: Any, captured: Captured) -> None:
        self._module, self._captured = module, captured
        self._modes = [(part, part.training, part.frozen) for part in module.modules()]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Replay the graph.

        Run eagerly if a submodule's mode has changed since the capture, if there are `kwargs`, or if a trace is open.
        """
        same = all(part.training is training and part.frozen is frozen for part, training, frozen in self._modes)
        if kwargs or trace.state.calls is not None or not same:
            return _eager(self._module)(*args, **kwargs)
        return self._captured(*args)

    def __reduce__(self) -> Any:  # a copied module has other parameters: it runs eagerly
        return _eager, (self._module,)


def _eager(module: Any) -> Any:
    """Return the module's `forward` without graphs."""
    return types.MethodType(type(module).forward, module)


def _is_module(function: Any) -> bool:
    return hasattr(function, "named_parameters")


def _tensors(nest: Any) -> list[Tensor]:
    found: list[Tensor] = []
    mapped(nest, Tensor, found.append)
    return found


def _form(x: Tensor) -> str:
    return f"{x.dtype} of shape {x.shape} on {x.device}" + (", requires_grad=True" if x.requires_grad else "")


def _check_module(module: Any) -> None:
    if any(part.__dict__.get("_hooks") for part in module.modules()):
        raise RuntimeError(
            f"{NAME}: the module has hooks; expected a module without hooks; register the hooks after this call"
        )
    if any(buffer.requires_grad for buffer in module.buffers()):
        raise RuntimeError(f"{NAME}: a buffer of the module requires grad; expected only parameters to require grad")


def _samples(functions: tuple[Any, ...], sample_args: Any, single: bool) -> list[tuple[Tensor, ...]]:
    """Return the sample arguments of each callable; raise TypeError if an argument is not a Tensor."""
    given = [sample_args] if single else list(sample_args)
    if len(given) != len(functions):
        raise ValueError(
            f"{NAME}: sample_args has {len(given)} entries; expected {len(functions)}, one for each callable"
        )
    found = []
    for args in given:
        parts = (args,) if isinstance(args, Tensor) else tuple(args)
        for number, x in enumerate(parts):
            if not isinstance(x, Tensor):
                raise TypeError(f"{NAME}: sample_args[{number}] is a {kind_of(x)}; expected a Tensor")
            if not x.is_cuda:
                raise ValueError(f"{NAME}: sample_args[{number}] is on {x.device}; expected a GPU")
        if not parts:
            raise ValueError(f"{NAME}: sample_args is empty; expected at least one Tensor")
        found.append(parts)
    return found


@documented(
    POOL,
    callables="a Module or a function of Tensors, or a tuple of Modules and functions, in the order in which a step "
    "calls them",
    sample_args="the arguments of a sample call, a tuple of Tensors; for a tuple of callables, a tuple of such "
    "tuples. In later calls the arguments must have the same shape, type and requires_grad",
    num_warmup_iters="how many eager calls come before the capture; they do not change running statistics or the "
    "random generator",
    allow_unused_input="what happens if the outputs do not depend on an argument or a parameter: True gives this "
    "argument or parameter no gradient, False raises a RuntimeError",
)
@checked
def make_graphed_callables(
    callables: Any, sample_args: Any, num_warmup_iters: int = 3, allow_unused_input: bool = False, pool: Any = None
) -> Any:
    """Capture forward and backward of callables as CUDA graphs, for a step that cannot be captured as a whole.

    A Module is returned with a new `forward`. This `forward` runs eagerly if the Module's mode (training or evaluation)
    has changed since the capture. In a copy of the Module, `forward` always runs eagerly. Each call overwrites the
    results of the call before it, so run the backward pass of a call before the next call. If there are several
    callables, their backward passes must run in the opposite order of their calls. `make_graphed_step` captures whole
    steps.

    Raises RuntimeError if there are hooks, buffers that require grad, or work that cannot be captured.

    Example:
        >>> mn.cuda.is_available()  # with True: model = mn.cuda.make_graphed_callables(model, (images,))
        False

    torch.cuda.make_graphed_callables.
    """
    single = not isinstance(callables, tuple)
    functions = (callables,) if single else callables
    for function in functions:
        if not callable(function):
            raise TypeError(f"{NAME}: callables holds a {kind_of(function)}; expected Modules and functions")
        if _is_module(function):
            _check_module(function)
    samples = _samples(functions, sample_args, single)
    parts = [Captured(function, args, allow_unused_input) for function, args in zip(functions, samples, strict=True)]
    with devices.on(samples[0][0].device):
        pool = graph_pool_handle() if pool is None else pool
        stream = devices.library().cuda.Stream(non_blocking=True)
        for part in parts:
            part.warm_up(num_warmup_iters)
        for part in parts:
            part.capture_forward(pool, stream)
        for part in reversed(parts):
            part.capture_backward(pool, stream)
    made = []
    for part in parts:
        if _is_module(part.function):
            part.function.forward = GraphedForward(part.function, part)
        made.append(part.function if _is_module(part.function) else part)
    return made[0] if single else tuple(made)
