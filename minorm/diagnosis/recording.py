"""Record the steps of a running model: normalizations, activations, and the steps just before these.

There are three sources. Hooks tell which module runs. A trace tells which functions the module calls, so that F.relu in
a forward is seen in the same way as nn.ReLU. A loaded ONNX graph tells which of its nodes has run. Each step is
reported once and then dropped, so only the last few steps stay in memory.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import minorm.functional as F
from minorm.graph import trace
from minorm.graph.trace import Call
from minorm.nn import Module
from minorm.ops import pooling
from minorm.tensor.tensor import Tensor

NORMS: dict[Any, str] = {
    F.batch_norm: "batch",
    F.instance_norm: "instance",
    F.group_norm: "group",
    F.layer_norm: "layer",
    F.rms_norm: "rms",
    F.mean_variance_norm: "mean_variance",
    F.filter_response_norm: "filter_response",
    F.normalization: "general",
}
AFFINE: dict[Any, int] = {F.linear: -1, F.conv1d: 1, F.conv2d: 1, F.conv3d: 1}  # the axis of their channels
ACTIVATIONS: dict[Any, str] = {
    function: function.__name__
    for function in (
        F.relu,
        F.relu6,
        F.leaky_relu,
        F.elu,
        F.celu,
        F.selu,
        F.gelu,
        F.silu,
        F.mish,
        F.hardswish,
        F.sigmoid,
        F.tanh,
        F.hardsigmoid,
        F.hardtanh,
        F.softsign,
    )
}
PASSING: set[Any] = {
    *(getattr(F, f"{kind}{rank}d") for kind in ("max_pool", "avg_pool") for rank in (1, 2, 3)),
    *(F.adaptive_avg_pool1d, F.adaptive_avg_pool2d, F.dropout, pooling.MaxPool, pooling.AvgPool),
}
KINDS: dict[Any, str] = {
    **dict.fromkeys(NORMS, "norm"),
    **dict.fromkeys(ACTIVATIONS, "activation"),
    **dict.fromkeys(AFFINE, "affine"),
    **dict.fromkeys(PASSING, "passing"),
}
WHAT = {**NORMS, **ACTIVATIONS}
REACH = 4  # steps that are kept, to find the step before a step


@dataclass
class Step:
    """One step that ran.

    again    a function that repeats the step with another x
    axis     the axis of the channels
    facts    for a module of PyTorch, values for fields of the Norm that cannot be read from the step itself
    """

    kind: str  # "norm", "activation", "affine" or "passing"
    name: str
    x: Tensor
    y: Tensor
    again: Callable[[Tensor], Any]
    axis: int = 1
    what: str = ""  # the kind of norm or activation
    options: Mapping[str, Any] = field(default_factory=dict)  # the arguments of the call
    holder: Module | None = None  # the module with the running statistics
    before: Step | None = None  # the step that made x, if it was one of the last few steps
    facts: Mapping[str, Any] = field(default_factory=dict)


See = Callable[[Step], None]


def holds_statistics(module: Module) -> bool:
    """Return whether a module has its own running statistics."""
    return isinstance(getattr(module, "running_mean", None), Tensor) or bool(
        getattr(module, "has_running_stats", False)
    )


@contextmanager
def watched(model: Module, see: See) -> Iterator[None]:
    """Call `see` for every step that the model runs in this thread during the block."""
    watcher = _Watcher(model, see)
    modules = list(model.named_modules())
    with ExitStack() as stack, trace.record():
        trace.state.calls = watcher.calls
        for name, module in modules:
            stack.callback(_put_back, module, module.__dict__.get("_hooks"))
            module.__dict__["_hooks"] = {
                when: dict(own) for when, own in module.__dict__.get("_hooks", {}).items()
            }  # a copy of its hooks: those registered here go away with the copy
            module.register_forward_pre_hook(watcher.entering(name), with_kwargs=True)
            module.register_forward_hook(watcher.leaving, with_kwargs=True)
        if graph := next((module for _, module in modules if hasattr(module, "watching")), None):
            stack.enter_context(graph.watching(watcher.node))
        yield
        watcher.flush()


def _put_back(module: Module, hooks: Any) -> None:
    if hooks is None:
        module.__dict__.pop("_hooks", None)
    else:
        module.__dict__["_hooks"] = hooks


class _Calls(list[Call]):
    """The list of calls in a trace.

    Before a call is added, `flush` reports the calls in the list, because these are complete.
    """

    def __init__(self, flush: Callable[[], None]) -> None:
        super().__init__()
        self.flush = flush

    def append(self, call: Call) -> None:
        self.flush()
        super().append(call)


class _Watcher:
    def __init__(self, model: Module, see: See) -> None:
        self.see = see
        self.calls = _Calls(lambda: None if self.graphs else self.flush())
        self.places: list[tuple[str, Module, Any]] = []  # the modules that run now, and the trace around each
        self.graphs = 0  # how many of them are loaded graphs, whose nodes get names when they have run
        self.again = False  # True while a step is repeated: steps in it are not recorded
        self.met = Counter[str]()  # how often each name of a call without named tensors was used
        self.last: deque[Step] = deque(maxlen=REACH)
        self.named = {id(module): name for name, module in model.named_modules()}
        self.keys = {id(t): key for tensors in (model.named_parameters(), model.named_buffers()) for key, t in tensors}

    # Callbacks of the sources

    def entering(self, name: str) -> Callable[..., None]:
        def enter(module: Module, args: Any, kwargs: Any) -> None:  # noqa: ARG001
            if self.again:
                return
            if not self.graphs:
                self.flush()
            self.places.append((name, module, trace.state.calls))
            self.graphs += hasattr(module, "watching")
            if holds_statistics(module):
                trace.state.calls = None  # the whole module is one step

        return enter

    def leaving(self, module: Module, args: Any, kwargs: Any, result: Any) -> None:
        if self.again:
            return
        if not self.graphs or hasattr(module, "watching"):
            self.flush()
        name, _, trace.state.calls = self.places.pop()
        self.graphs -= hasattr(module, "watching")
        y = result[0] if isinstance(result, tuple) else result
        if holds_statistics(module) and args and isinstance(y, Tensor):
            names = ("x", "weight", "bias", "running_mean", "running_var") if len(args) > 2 else ("x", "mask")
            options = {**dict(zip(names, args, strict=False)), **kwargs}
            self._show(
                Step("norm", name, args[0], y, lambda x: module(x, *args[1:], **kwargs), what="batch",
                     options=options, holder=module)
            )  # fmt: skip

    def node(self, step: Any, arguments: Any, results: Any, worked: int) -> None:  # noqa: ARG002
        """Report a node of a loaded graph that has run."""
        if not self.again:
            self.flush(step.place)

    def flush(self, name: str | None = None) -> None:
        """Report the calls that have run. A step gets `name` if neither its tensors nor its module have a name."""
        calls = list(self.calls)
        self.calls.clear()
        for call in calls:
            self._visit(call, name)

    # Steps from calls

    def _visit(self, call: Call, name: str | None) -> None:
        target, given = call.target, call.arguments
        kind = KINDS.get(target)
        if kind is None:
            for child in call.children:
                self._visit(child, name)
            return
        first, *rest = given
        x, y = given[first], call.result
        y = y[0] if isinstance(y, tuple) else y
        if not isinstance(x, Tensor) or not isinstance(y, Tensor):
            return
        run: Any = getattr(target, "apply", target)  # a Function, or a functional
        others = {key: given[key] for key in rest}
        named, axis = self._name(given, name or self._place(run.__name__)), self._axis(kind, target, x, given)
        self._show(Step(kind, named, x, y, lambda x: run(x, **others), axis, WHAT.get(target, ""), given))

    def _axis(self, kind: str, target: Any, x: Tensor, given: Mapping[str, Any]) -> int:
        if kind == "affine":
            return AFFINE[target]
        before = self._maker(x)
        if NORMS.get(target) in ("layer", "rms"):
            weight = given["weight"]
            return -1 if weight is None or weight.ndim == 1 else 1
        return 1 if before is None else before.axis

    def _place(self, function: str) -> str:
        """Return a name for a call whose tensors have no names: that of the running module, or else of the function."""
        return self.places[-1][0] or function if self.places else function

    def _name(self, given: Mapping[str, Any], otherwise: str) -> str:
        for value in given.values():
            if isinstance(value, Tensor) and (path := self.keys.get(id(value), "").rpartition(".")[0]):
                return path
        self.met[otherwise] += 1
        return otherwise if self.met[otherwise] == 1 else f"{otherwise} ({self.met[otherwise]})"

    def _maker(self, x: Tensor) -> Step | None:
        return next((step for step in reversed(self.last) if step.y is x), None)

    def _show(self, step: Step) -> None:
        step.before = self._maker(step.x)
        run = step.again

        def again(x: Tensor) -> Any:
            outer, trace.state.calls, self.again = trace.state.calls, None, True
            try:
                y = run(x)
            finally:
                trace.state.calls, self.again = outer, False
            return y[0] if isinstance(y, tuple) else y

        step.again = again
        self.last.append(step)
        self.see(step)
        if step.kind != "passing" or step.before is None or step.before.kind not in ("norm", "passing"):
            step.before = None  # no longer needed: drop the references to earlier steps
