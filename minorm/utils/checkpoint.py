"""Activation checkpointing: a part of the model keeps only its inputs, and runs a second time during backward().

A checkpoint costs a second forward pass of this part, and saves the memory of all results inside the part. The numbers
and the graph are the same, because only the state of the graph's nodes is dropped and restored
(graph/recomputation.py). The second pass draws the same random numbers, uses the same autocast, and does not change
running statistics.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import minorm_ext
from minorm.devices import generators
from minorm.graph import trace
from minorm.graph.grad_mode import enable_grad, mode
from minorm.graph.graph import serial
from minorm.graph.recomputation import Recomputation
from minorm.normalization.running import no_stats_update
from minorm.support.argument_errors import checked
from minorm.support.documented import documented
from minorm.support.nested import mapped
from minorm.tensor.tensor import Tensor

__all__ = ["checkpoint", "checkpoint_sequential"]

Contexts = Callable[[], tuple[AbstractContextManager[Any], AbstractContextManager[Any]]]
SHARED_ARGUMENTS = {
    "use_reentrant": "accepted, without effect: the function always works like use_reentrant=False in PyTorch",
    "preserve_rng_state": "True draws the same random numbers again, False goes on with new ones",
}


@documented(
    SHARED_ARGUMENTS,
    function="the function to compute; it is called a second time for backward()",
    args="the arguments of the function",
    context_fn="a function that returns two contexts, for the first and the second call of `function`; None uses none",
    determinism_check='"default" raises an error if the second call computes something else; any other value is a '
    "ValueError",
    debug="accepted, without effect: the error always names the operations",
    early_stop="accepted, without effect: the second call runs to its end",
    kwargs="the keyword arguments of the function",
)
@checked
def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool | None = None,  # noqa: ARG001
    preserve_rng_state: bool = True,
    context_fn: Contexts | None = None,
    determinism_check: str = "default",
    debug: bool = False,  # noqa: ARG001
    early_stop: bool = True,  # noqa: ARG001
    **kwargs: Any,
) -> Any:
    """Return function(*args, **kwargs), but keep only the arguments for backward(), not the intermediate results.

    backward() calls `function` again. In this second call, dropout draws the same numbers, autocast is the same, and
    running statistics do not change. Any other state that `function` changes is changed twice. Results may be nested in
    tuples, lists and dicts, and checkpoints may contain checkpoints. Raises RuntimeError if `function` changes an
    argument in place, or if the second call computes something else.

    Example:
        >>> block = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
        >>> x = mn.ones(2, 8)
        >>> y = mn.utils.checkpoint.checkpoint(block, x)
        >>> y.sum().backward()
        >>> block[0].weight.grad.shape
        (8, 8)

    Chen et al. 2016, arXiv:1604.06174.
    """
    if determinism_check != "default":
        raise ValueError(f"checkpoint: determinism_check={determinism_check!r}; expected 'default'")
    first, second = (nullcontext(), nullcontext()) if context_fn is None else context_fn()
    if not mode.recording or trace.state.calls is not None:  # nothing is kept, or a trace records the model
        with first:
            return function(*args, **kwargs)
    given = [(x, x.version, x.version.count) for x in _tensors((args, kwargs))]
    random = generators.own_state() if preserve_rng_state else None
    casts = {"cast": trace.state.cast, "cast_types": trace.state.cast_types}
    begun = serial()
    with first:
        results = function(*args, **kwargs)
    _check_unchanged(given, "by the function itself, which would change it again in the second call")

    def again() -> list[Tensor]:
        _check_unchanged(given, "after the first call of the function")
        drawing = nullcontext() if random is None else generators.replayed(random)
        with enable_grad(), minorm_ext.Switch(trace.state, casts), no_stats_update(), drawing, second:
            return _tensors(function(*args, **kwargs))

    Recomputation(_tensors(results), begun, again)
    return results


@documented(
    SHARED_ARGUMENTS,
    functions="a Sequential, or a list of functions of one argument each",
    segments="the number of parts, of about equal length; all but the last are checkpointed",
    input="the argument of the first function",
)
@checked
def checkpoint_sequential(
    functions: Any,
    segments: int,
    input: Any,
    use_reentrant: bool | None = None,  # noqa: ARG001
    *,
    preserve_rng_state: bool = True,
) -> Any:
    """Apply the functions one after another, in `segments` parts. Each part, except for the last, keeps only its input.

    Raises ValueError if there are fewer functions than parts.

    Example:
        >>> model = nn.Sequential(*[nn.Linear(4, 4) for _ in range(6)])
        >>> mn.utils.checkpoint.checkpoint_sequential(model, 3, mn.ones(2, 4)).shape
        (2, 4)
    """
    chosen = [*functions]
    if not 1 <= segments <= len(chosen):
        raise ValueError(
            f"checkpoint_sequential: segments={segments}; expected 1 to {len(chosen)}, the number of functions"
        )
    length = len(chosen) // segments
    starts = [i * length for i in range(segments)]
    for start in starts[:-1]:
        input = checkpoint(_chain(chosen[start : start + length]), input, preserve_rng_state=preserve_rng_state)
    return _chain(chosen[starts[-1] :])(input)


def _chain(functions: Sequence[Callable[[Any], Any]]) -> Callable[[Any], Any]:
    def run(x: Any) -> Any:
        for function in functions:
            x = function(x)
        return x

    return run


def _tensors(values: Any) -> list[Tensor]:
    """Return the Tensors in nested tuples, lists and dicts, in order."""
    found: list[Tensor] = []
    mapped(values, Tensor, found.append)
    return found


def _check_unchanged(given: list[tuple[Tensor, Any, int]], how: str) -> None:
    for tensor, version, count in given:
        if tensor.version is not version or version.count != count:
            raise RuntimeError(
                f"checkpoint: an argument of shape {tensor.shape} was changed in place {how}; expected a function that "
                "does not change its arguments; use a copy: x.clone()"
            )
