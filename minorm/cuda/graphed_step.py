"""Makes a training step that captures itself: the first calls run eagerly, and later calls replay a CUDA graph.

    step = mn.cuda.make_graphed_step(step, images, labels)
    for batch in loader:
        loss = step(*batch)

A replay repeats the work of the GPU, and runs no Python. So before each replay, the step checks that an eager step
would give the same bits: the modes of modules, the memory of parameters and gradients, casts and switches must not have
changed.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from minorm import devices
from minorm.cuda.graphs import POOL, CUDAGraph, graph
from minorm.devices import capture
from minorm.graph import trace
from minorm.graph.grad_mode import mode, no_grad
from minorm.kernels import switches
from minorm.support.argument_errors import checked, kind_of
from minorm.support.documented import documented
from minorm.support.nested import mapped
from minorm.tensor.tensor import Tensor

Part = Callable[..., Any]


class GraphedStep:
    """The result of `make_graphed_step`; a call runs the step, eagerly or as a CUDA graph.

    A step may have several parts. The host checks the result of the first part before the other parts begin. So the
    training loop can stop before a NaN loss changes the parameters.
    """

    def __init__(
        self,
        parts: Sequence[Part],
        inputs: Sequence[Tensor],
        num_warmup_iters: int = 3,
        pool: Any = None,
        name: str = "make_graphed_step",
    ) -> None:
        self._parts, self._left, self._pool, self._name = parts, num_warmup_iters, pool, name
        self._form = [_form(x) for x in inputs]
        self._device = inputs[0].device if inputs else "cuda"
        self._why_not = ""  # why the last attempt to capture failed
        self._given_up = False
        self._before: Touched | None = None  # what the last eager step touched
        self._captured: Captured | None = None
        self._expect_gpu(inputs)

    @property
    def captured(self) -> bool:
        """Whether there is a graph. Calls replay it if their inputs have the shapes and types of the samples."""
        return self._captured is not None

    def __call__(self, *inputs: Any) -> Any:
        """Run a step with `inputs`; return a detached copy of the step's result, outside the memory of the graph."""
        return self.run(inputs)

    def run(self, inputs: Sequence[Any], look: Callable[[Any], None] | None = None) -> Any:
        """Run a step; before its second part begins, call `look` with the result of the first part."""
        if self._given_up or capture.recording() is not None or [*map(_form, inputs)] != self._form:
            return self._eager(inputs, look)
        if self._captured is not None and self._captured.is_stale():
            self._captured, self._left = None, 1
        if self._captured is None and not self._left:
            self._try_to_capture(inputs)
        if self._captured is None:
            return self._warm_up(inputs, look)
        if self._captured.fits(inputs):
            return self._captured.replay(inputs, look)
        return self._eager(inputs, look)

    def _eager(self, inputs: Sequence[Any], look: Callable[[Any], None] | None) -> Any:
        result = self._parts[0](*[x.to(self._device) if isinstance(x, Tensor) else x for x in inputs])
        if look is not None:
            look(mapped(result, Tensor, Tensor.detach))
        for part in self._parts[1:]:
            part()
        return mapped(result, Tensor, Tensor.detach)

    def _warm_up(self, inputs: Sequence[Tensor], look: Callable[[Any], None] | None) -> Any:
        """Run an eager step, and record the gradients and modules that the step touches.

        A capture follows only after two steps in a row that touch the same gradients and modules.
        """
        with capture.watched() as watch:
            result = self._eager(inputs, look)
        if self._why_not:  # the eager step did not fail, so only the capture failed
            self._give_up(self._why_not)
        touched = Touched(watch)
        self._left = max(self._left - 1, int(self._before is not None and touched.order != self._before.order))
        self._before = touched
        return result

    def _try_to_capture(self, inputs: Sequence[Tensor]) -> None:
        assert self._before is not None
        try:
            self._captured = Captured(self._parts, inputs, self._device, self._before, self._pool)
        except Exception as error:  # noqa: BLE001  the user's step may raise anything
            self._why_not = str(error) or kind_of(error)

    def _expect_gpu(self, inputs: Sequence[Tensor]) -> None:
        places = sorted({x.device for x in inputs})
        if len(places) > 1 or "cpu" in places:
            self._give_up(f"inputs are on {', '.join(places)}; expected all of them on one GPU")
        elif any(x.requires_grad for x in inputs):
            self._give_up("an input requires grad, but a replay gives inputs no gradient; see make_graphed_callables")

    def _give_up(self, why: str) -> None:
        self._given_up, self._why_not = True, ""
        warnings.warn(f"{self._name}: the step is not captured, so each call runs it eagerly: {why}", stacklevel=5)


class Captured:
    """A step as CUDA graphs, one graph for each part, with the memory that the graphs read and write."""

    def __init__(
        self, parts: Sequence[Part], inputs: Sequence[Tensor], device: str, before: Touched, pool: Any
    ) -> None:
        self._graphs: list[CUDAGraph] = []
        gradients = [(leaf, leaf.grad) for leaf in before.leaves]
        with devices.on(device), capture.watched() as watch:
            self._inputs = [x.detach().to(device).clone() for x in inputs]
            stream = devices.library().cuda.Stream(non_blocking=True)
            try:
                results = [self._capture(part, pool, stream) for part in parts]
                touched = Touched(watch)
                if touched.order != before.order:
                    raise RuntimeError(
                        "the step differs from the previous step: other modules were called, or other parameters got "
                        "gradients"
                    )
                self._gradients = [Gradient(leaf, grad, touched) for leaf, grad in gradients]
            finally:
                for leaf, grad in reversed([*gradients, *watch.gradients]):
                    leaf.grad = grad  # nothing was computed
        self._result = results[0]
        self._strides = [*map(_strides, inputs)]
        self._modes = [(module, module.training, module.frozen) for module in touched.modules]
        self._held = [(tensor, tensor.array) for tensor in touched.held]
        self._around = _around()

    def _capture(self, part: Part, pool: Any, stream: Any) -> Any:
        """Capture one part, in the same memory pool as earlier parts; only the first part has inputs."""
        made, first = CUDAGraph(), not self._graphs
        with graph(made, pool if first else self._graphs[0].pool(), stream):
            result = part(*self._inputs) if first else part()
        self._graphs.append(made)
        return mapped(result, Tensor, Tensor.detach)

    def is_stale(self) -> bool:
        """Return whether parameters, buffers or the optimizer's state have moved, so that the graph is useless."""
        return any(tensor.array is not array for tensor, array in self._held) or any(
            g._is_stale() for g in self._graphs
        )

    def fits(self, inputs: Sequence[Tensor]) -> bool:
        """Return True if an eager step with `inputs` would now do the same as the captured step."""
        return (
            [*map(_strides, inputs)] == self._strides
            and _around() == self._around
            and all(gradient.fits() for gradient in self._gradients)
            and all(module.training is training and module.frozen is frozen for module, training, frozen in self._modes)
        )

    def replay(self, inputs: Sequence[Tensor], look: Callable[[Any], None] | None) -> Any:
        """Replay the step with `inputs`; before this, `fits` must return True and `is_stale` False."""
        with no_grad():
            for ours, given in zip(self._inputs, inputs, strict=True):
                ours.copy_(given)
            self._graphs[0]._launch()
            if look is not None:
                look(self._result)
            for made in self._graphs[1:]:
                made._launch()
            for gradient in self._gradients:
                gradient.put()
            return mapped(self._result, Tensor, Tensor.clone)


class Touched:
    """Holds the leaves that got gradients or were updated in a step, and the modules that the step called."""

    def __init__(self, watch: capture.Watch) -> None:
        self.gradients = watch.gradients
        self.leaves = _once(leaf for leaf, _ in watch.gradients)
        self.modules = _once(watch.modules)
        # Types and shapes, not identities: a step may make a new leaf or module each time.
        self.order = [*map(type, watch.modules)], [(leaf.shape, leaf.dtype) for leaf, _ in watch.gradients]

    @property
    def held(self) -> list[Any]:
        """The tensors whose memory the step has read or written."""
        parts = [(*module.parameters(recurse=False), *module.buffers(recurse=False)) for module in self.modules]
        return _once((*self.leaves, *itertools.chain.from_iterable(parts)))


class Gradient:
    """A leaf's gradient before and after the captured step.

    A replay is allowed only if the leaf's gradient is then the same as before the captured step.
    """

    def __init__(self, leaf: Any, before: Any, touched: Touched) -> None:
        self._leaf, self._before, self._after = leaf, before, leaf.grad
        # If the step did not read the earlier gradient, it dropped it first, and would drop any gradient.
        self._is_free = before is not None and all(
            grad is not before for seen, grad in touched.gradients if seen is leaf
        )

    def fits(self) -> bool:
        """Return True if the gradient is as before the captured step, or if the step does not read the gradient."""
        return self._is_free or self._leaf.grad is self._before

    def put(self) -> None:
        """Give the leaf the gradient that a replay has computed."""
        self._leaf.grad = self._after
        if self._after is not None:
            self._after.version.count += 1


def _once(items: Iterable[Any]) -> list[Any]:
    return list({id(item): item for item in items}.values())


def _form(x: Any) -> Any:
    """Return the form of `x`: the shape, type and requires_grad of a Tensor, or the type of another object.

    An input must have the same form as its sample.
    """
    return (x.shape, x.dtype, x.requires_grad) if isinstance(x, Tensor) else type(x)


def _strides(x: Tensor) -> list[int]:
    """Return the strides of all axes but those of length 1, whose strides have no meaning."""
    return [stride for stride, length in zip(x.array.strides, x.shape, strict=True) if length > 1]


def _around() -> tuple[Any, ...]:
    """Return the settings outside the step that affect how operations compute."""
    casts = trace.state.cast is not None, dict(trace.state.cast_types)
    return mode.recording, *casts, switches.matmul_tf32, switches.conv_tf32, switches.cudnn, switches.cudnn_benchmark


@documented(
    POOL,
    step="a function of Tensors that runs a whole training step, such as zero_grad, forward, loss, backward and "
    "optimizer.step(), and does the same in each call",
    inputs="samples of the step's arguments, on the GPU; a later call is replayed if its arguments have the same "
    "shapes and types",
    num_warmup_iters="how many calls run eagerly before the call that captures the step, at least 1",
)
@checked
def make_graphed_step(
    step: Callable[..., Any], *inputs: Tensor, num_warmup_iters: int = 3, pool: Any = None
) -> GraphedStep:
    """Return a step that runs as a CUDA graph from its fourth call on, so that all its kernels are launched at once.

    This function computes nothing, and every call of the returned step is one training step. Parameters, the
    optimizer's state, running statistics and random numbers have the same bits as in an ordinary loop. A call runs
    eagerly if a replay would do something else: if inputs have another shape, type or layout, if modules are in another
    mode, if another autocast is active, or if gradients are added to earlier gradients. A step cannot be captured if it
    has `loss.item()`, a GradScaler or an optimizer other than SGD, Adam and AdamW; then a warning names the cause, and
    every call runs eagerly.

    A replay copies the inputs, which may be on the CPU, into the memory of the graph, and copies the results from
    there. Changes of learning rates and step counts take effect. All other Python code of the step runs only in eager
    calls and during the capture. So the step must not contain an `if` whose condition is true only in some calls.

    Raises TypeError if the step is not a function or a sample is not a Tensor.

    Example:
        >>> mn.cuda.is_available()  # with True: step = mn.cuda.make_graphed_step(step, images, labels)
        False
    """
    if not callable(step):
        raise TypeError(f"make_graphed_step: step is a {kind_of(step)}; expected a function of the inputs")
    for number, x in enumerate(inputs):
        if not isinstance(x, Tensor):
            raise TypeError(f"make_graphed_step: inputs[{number}] is a {kind_of(x)}; expected a Tensor")
    if not isinstance(num_warmup_iters, int) or num_warmup_iters < 1:
        raise ValueError(f"make_graphed_step: num_warmup_iters is {num_warmup_iters!r}; expected an int of at least 1")
    return GraphedStep([step], inputs, num_warmup_iters, pool)
