"""Inference by plan: what a graph applied to inputs of these shapes is written down once, and applied again.

A node's rule checks its arguments, reads axes and sizes, and applies Functions to arrays. In evaluation mode and
without gradients all of that but the Functions follows from shapes. So the second run with inputs of the same shapes
and types is traced, and the Functions it applied, with the numbers of their arrays and their options, are a Plan; the
runs after it are these Functions, in the same order, on the same arrays: the same bits.

A plan is made only where that is certain. What a rule reads itself of the elements of its arguments, instead of giving
them to a Function, must follow from shapes; watched.py notices. So must the shapes of results, which some operators
cannot promise (UNSTEADY). Indices of a Take are the one array among options that a run may give. No plan is made, and
none used, while gradients are recorded, where a layer trains or has hooks, while a trace is open, where the nodes are
being watched, and for arrays on a GPU. A graph without a plan runs node by node, as it always can, and so does a run in
which anything goes wrong, for the error that names the node. A graph that was converted to another type has plans of
that type: the conversions of what a node reads are Functions of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from minorm.graph import trace
from minorm.graph.grad_mode import is_grad_enabled
from minorm.nn import Module
from minorm.onnx.graph import memory_budget
from minorm.onnx.loading.planning.plan import Plan, is_active
from minorm.onnx.loading.planning.recorder import Recorder
from minorm.tensor.tensor import Tensor

KEPT = 8  # plans of a graph; a new shape takes the place of the oldest


class Plans:
    """The plans of a graph, by the shapes and types of its inputs and the type that it was converted to.

    True for inputs that came once, False for those without a plan.
    """

    def __init__(self) -> None:
        self._known: dict[Any, Plan | bool] = {}

    def __reduce__(self) -> Any:
        return Plans, ()  # a copy of the graph makes its own

    def run(self, given: Sequence[Tensor], dtype: Any) -> list[Tensor] | None:
        """The outputs by the plan for these inputs; None where there is none, or where it may not be used now."""
        if not self._known or not _may_repeat(given):
            return None
        key = _key(given, dtype)
        plan = self._known.get(key)
        if not isinstance(plan, Plan):
            return None
        try:
            if plan.is_current():
                return plan.run(given)
            self._known.pop(key, None)
        except Exception:  # noqa: BLE001  node by node it is raised again, or not
            pass
        return None

    def recorder(
        self,
        given: Sequence[Tensor],
        dtype: Any,
        held: Sequence[Tensor],
        constants: Sequence[Tensor],
        layers: Sequence[Module],
    ) -> Recorder | None:
        """What writes down this run, if these inputs have come once before and nothing is against it."""
        if not _may_repeat(given) or any(map(is_active, layers)):
            return None
        places = [*map(id, given)]  # one Tensor in two of them hides which one a node reads
        if len(set(places)) < len(places) or not {*map(id, held), *map(id, constants)}.isdisjoint(places):
            return None
        key = _key(given, dtype)
        if key in self._known:
            return Recorder(given, held, constants, layers) if self._known[key] is True else None
        while len(self._known) >= KEPT:
            self._known.pop(next(iter(self._known)), None)
        self._known[key] = True
        return None

    def __repr__(self) -> str:
        """`(1, 3, 224, 224): 85 passes` for each plan: to how many passes the nodes came together."""
        made = [(key, plan) for key, plan in self._known.items() if isinstance(plan, Plan)]
        return ", ".join(
            f"{' '.join(str(shape) for shape, _ in key[1])}: {len(plan.applications)} passes" for key, plan in made
        )

    def keep(self, given: Sequence[Tensor], dtype: Any, plan: Plan | None) -> None:
        """From now on runs with inputs like these go by this plan; None: node by node."""
        self._known[_key(given, dtype)] = False if plan is None else plan


def _key(given: Sequence[Tensor], dtype: Any) -> Any:
    return dtype, tuple([(x.array.shape, x.array.dtype) for x in given])


def _may_repeat(given: Sequence[Tensor]) -> bool:
    """Whether a run may be one by a plan: it is only computed, by our own kernels, and is not watched."""
    if is_grad_enabled() or trace.state.calls is not None or trace.state.cast is not None or memory_budget.is_watched():
        return False
    return all(isinstance(x, Tensor) and type(x.array) is np.ndarray and x.array.flags.c_contiguous for x in given)
