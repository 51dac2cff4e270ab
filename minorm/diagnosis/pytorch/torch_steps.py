"""Records the steps of a PyTorch module: hooks show which module runs, and a TorchFunctionMode shows its calls.

torch.overrides.TorchFunctionMode sees every call of torch and torch.nn.functional. So F.relu in a forward is recorded
like nn.ReLU. Arrays are copied before the call, because an activation may work in place.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from minorm.diagnosis import recording
from minorm.diagnosis.pytorch import arrays
from minorm.diagnosis.recording import REACH, See, Step
from minorm.tensor.tensor import Tensor

NORMS = {f"{kind}_norm": kind for kind in ("batch", "instance", "group", "layer", "rms")}
ACTIVATIONS = frozenset(recording.ACTIVATIONS.values())
AFFINE = {"linear": -1, "conv1d": 1, "conv2d": 1, "conv3d": 1}  # the axis of their channels
PASSING = frozenset(
    (
        *(f"{kind}_pool{rank}d" for kind in ("max", "avg") for rank in (1, 2, 3)),
        *(f"adaptive_{kind}_pool{rank}d" for kind in ("max", "avg") for rank in (1, 2, 3)),
        *("dropout", "feature_dropout", "alpha_dropout"),
    )
)
STATISTICS = "input weight bias running_mean running_var training momentum eps cudnn_enabled"
ORDER = {  # the arguments of functions whose signature Python does not know
    "batch_norm": STATISTICS,
    "instance_norm": STATISTICS.replace("training", "use_input_stats"),
    "group_norm": "input num_groups weight bias eps",
    "layer_norm": "input normalized_shape weight bias eps",
    "rms_norm": "input normalized_shape weight eps",
    **dict.fromkeys(AFFINE, "input weight bias"),
}
FROM_BATCH = {"batch": "training", "instance": "use_input_stats"}  # the argument that asks for the batch's statistics


class Watcher:
    """Calls `see` for every step.

    tensor    a function that converts our Tensor to a tensor for the model
    kept      the layers that use their running statistics while all other layers use the batch's statistics; None if
              every layer uses its running statistics
    frozen    the layers that were in evaluation mode while other layers were in training mode
    """

    def __init__(
        self,
        model: Any,
        see: See,
        tensor: Callable[[Tensor], Any],
        kept: Collection[str] | None,
        frozen: Collection[str],
    ) -> None:
        self.torch: Any = sys.modules["torch"]
        self.model, self.see, self.tensor, self.kept, self.frozen = model, see, tensor, kept, frozen
        self.modules = dict(model.named_modules())
        named = (model.named_parameters(), model.named_buffers())
        self.paths = {id(t): key.rpartition(".")[0] for tensors in named for key, t in tensors}
        self.places: list[tuple[str, int]] = []  # the modules that run now, and how many norms had run before each
        self.norms = 0
        self.met = Counter[str]()
        self.last: deque[tuple[Any, Step]] = deque(maxlen=REACH)  # PyTorch's result, and the step that made it

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch all steps that the model runs during the block."""
        visit = self._visit

        class Mode(self.torch.overrides.TorchFunctionMode):  # type: ignore[misc,name-defined]
            def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                return visit(function, args, kwargs or {})

        with ExitStack() as stack:
            for name, module in self.modules.items():
                stack.callback(module.register_forward_pre_hook(self._entering(name)).remove)
                stack.callback(module.register_forward_hook(self._leaving, with_kwargs=True).remove)
            stack.enter_context(Mode())
            yield

    def _entering(self, name: str) -> Callable[[Any, Any], None]:
        return lambda module, args: self.places.append((name, self.norms))  # noqa: ARG005

    def _leaving(self, module: Any, args: Any, kwargs: Any, y: Any) -> None:
        """If the module has running statistics but never called batch_norm, report it as one step.

        An example is FrozenBatchNorm2d.
        """
        name, before = self.places.pop()
        if self.norms > before or not (args and arrays.is_tensor(y) and _holds_statistics(module)):
            return
        given = {key: getattr(module, key, None) for key in ("weight", "bias", "running_mean", "running_var", "eps")}
        options = {key: _ours(value) for key, value in given.items() if value is not None}
        self._show(
            y,
            Step(
                "norm", name, _ours(args[0]), _ours(y), lambda x: _ours(module(self.tensor(x), *args[1:], **kwargs)),
                what="batch", options=options, before=self._maker(args[0]), facts={"frozen": True},
            ),
        )  # fmt: skip

    def _visit(self, function: Any, args: Any, kwargs: Mapping[str, Any]) -> Any:
        operation = getattr(function, "__name__", "").split(".")[0].rstrip("_")
        kind = _kind(operation)
        given = {} if kind is None else _named(function, operation, args, kwargs)
        x = next(iter(given.values()), None)
        if kind is None or not arrays.is_tensor(x):
            return function(*args, **kwargs)
        name = self._name(given, operation)
        what = NORMS.get(operation, operation)
        if kind == "norm" and given.get("running_mean") is not None and self.kept is not None and name not in self.kept:
            call: dict[str, Any] = {**given, "running_mean": None, "running_var": None, FROM_BATCH[what]: True}
            first = next(iter(call))
            run = functools.partial(function, **{key: value for key, value in call.items() if key != first})
        else:
            run = functools.partial(_called, function, args[1:], kwargs)
        before, copied = self._maker(x), _ours(x)
        y = run(x)
        result = y[0] if isinstance(y, tuple) else y
        if not arrays.is_tensor(result):
            return y
        options = {key: _ours(value) for key, value in given.items()}
        facts = self._facts(what, name, given) if kind == "norm" else {}
        self.norms += kind == "norm"
        step = Step(kind, name, copied, _ours(result), lambda x: _ours(run(self.tensor(x))),
                    self._axis(operation, kind, before), what, options, before=before, facts=facts)  # fmt: skip
        self._show(result, step)
        return y

    def _show(self, result: Any, step: Step) -> None:
        self.last.append((result, step))
        self.see(step)
        if step.kind != "passing" or step.before is None or step.before.kind not in ("norm", "passing"):
            step.before = None

    def _maker(self, x: Any) -> Step | None:
        return next((step for result, step in reversed(self.last) if result is x), None)

    def _name(self, given: Mapping[str, Any], operation: str) -> str:
        """Return a name for a call: that of the module that owns one of its tensors.

        If there is no such module, return the name of the module that is running, or else the name of the function.
        """
        for value in given.values():
            if path := self.paths.get(id(value), ""):
                return path
        otherwise = (self.places[-1][0] if self.places else "") or operation
        self.met[otherwise] += 1
        return otherwise if self.met[otherwise] == 1 else f"{otherwise} ({self.met[otherwise]})"

    def _axis(self, operation: str, kind: str, before: Step | None) -> int:
        if kind == "affine":
            return AFFINE[operation]
        if NORMS.get(operation) in ("layer", "rms"):
            return -1
        return 1 if before is None else before.axis

    def _facts(self, what: str, name: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return momentum, number of batches and similar facts of a batch norm.

        They come from the module, because PyTorch may call the function with a momentum of 0 in evaluation.
        """
        if given.get("running_mean") is None:
            return {}
        module = self.modules.get(name)
        has = hasattr(module, "momentum")
        momentum = getattr(module, "momentum", None) if has else given.get("momentum")
        batches = getattr(module, "num_batches_tracked", None)
        trains = bool(getattr(given.get("weight"), "requires_grad", False))  # an exported module has no momentum
        return {
            "momentum": None if momentum is None else round(1 - float(momentum), 9),
            "batches": None if batches is None else int(batches),
            "frozen": name in self.frozen or momentum == 0.0 or (module is not None and not has and not trains),
            "per_sample": what == "instance",
        }


def _called(function: Any, rest: Any, kwargs: Mapping[str, Any], x: Any) -> Any:
    """Call the function with x in place of its first argument, which the caller may have given by name."""
    return function(**{**kwargs, "input": x}) if "input" in kwargs else function(x, *rest, **kwargs)


def _kind(operation: str) -> str | None:
    if operation in NORMS:
        return "norm"
    if operation in ACTIVATIONS:
        return "activation"
    return "affine" if operation in AFFINE else "passing" if operation in PASSING else None


def _named(function: Any, operation: str, args: Any, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments by name, with the input first."""
    names = _parameters(function) or ORDER.get(operation, "input").split()
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    first = "input" if "input" in given else next(iter(given), "")
    return {first: given.pop(first), **given} if given else {}


@functools.cache
def _parameters(function: Any) -> tuple[str, ...]:
    """Return the names of a function's parameters.

    The result is empty if Python does not know the function's signature.
    """
    try:
        found = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return ()
    return () if any(p.kind is p.VAR_POSITIONAL for p in found.values()) else tuple(found)


def _holds_statistics(module: Any) -> bool:
    return arrays.is_tensor(getattr(module, "running_mean", None)) and arrays.is_tensor(
        getattr(module, "running_var", None)
    )


def _ours(value: Any) -> Any:
    """Convert a tensor of PyTorch to our Tensor.

    Of a tuple of tensors, take the first; return any other value unchanged.
    """
    value = value[0] if isinstance(value, tuple) and value and arrays.is_tensor(value[0]) else value
    return Tensor(arrays.array(value)) if arrays.is_tensor(value) else value
