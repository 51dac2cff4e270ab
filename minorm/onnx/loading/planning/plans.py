"""Run inference by a plan: record which Functions a graph applies to inputs of given shapes, and apply these again.

A node's rule checks its arguments, reads axes and sizes, and applies Functions to arrays. In evaluation mode and
without gradients, all this depends on shapes alone, except the results of the Functions. So we trace the second run
with inputs of the same shapes and types. A Plan holds the Functions of this run, with their options and the registers
of their arrays. Later runs apply these Functions in the same order to arrays in the same registers, and give the same
bits.

A plan is made only if it certainly gives the same bits. Some rules read elements of their arguments themselves, not
through a Function. These arguments must depend on shapes alone; watched.py notices such reads. The shapes of results
must also depend on shapes alone; OPERATORS_WITHOUT_PLAN lists operators for which this is not certain. Arrays among a
Function's options must not come from the run, except the indices of a Take. A run neither makes nor uses a plan if it
records gradients, has an open trace or a watcher of its nodes, trains a layer, calls hooks, or uses arrays on a GPU. A
graph without a plan runs node by node. If a run by plan fails, the graph also runs node by node, so that the error
names the node. A graph that was converted to another type has separate plans for this type. These plans also convert
the values that nodes read.
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

KEPT = 8  # the most plans of a graph; a new shape replaces the oldest


class Plans:
    """Keeps the plans of a graph.

    The key of a plan is the shapes and types of the inputs, and the type to which the graph was converted.

    After the first run with such inputs, the entry of the key is True. After the second run, the entry is a Plan, or
    False if no plan is possible.
    """

    def __init__(self) -> None:
        self._known: dict[Any, Plan | bool] = {}

    def __reduce__(self) -> Any:
        return Plans, ()  # a copy of the graph makes its own plans

    def run(self, given: Sequence[Tensor], dtype: Any) -> list[Tensor] | None:
        """Run the plan for these inputs and return the outputs; None if no plan exists or the plan may not run now."""
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
        except Exception:  # noqa: BLE001  a run node by node raises it again, or succeeds
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
        """Return a Recorder if this is the second run with inputs of this kind and a plan is possible; else None."""
        if not _may_repeat(given) or any(map(is_active, layers)):
            return None
        places = [*map(id, given)]  # if one Tensor is two inputs, we cannot tell which input a node reads
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
        """Return the shapes of each plan's inputs, and the number of passes into which the nodes were fused.

        For example, `(1, 3, 224, 224): 85 passes`.
        """
        made = [(key, plan) for key, plan in self._known.items() if isinstance(plan, Plan)]
        return ", ".join(
            f"{' '.join(str(shape) for shape, _ in key[1])}: {len(plan.applications)} passes" for key, plan in made
        )

    def keep(self, given: Sequence[Tensor], dtype: Any, plan: Plan | None) -> None:
        """Use this plan from now on for inputs like `given`; if `plan` is None, run such inputs node by node."""
        self._known[_key(given, dtype)] = False if plan is None else plan


def _key(given: Sequence[Tensor], dtype: Any) -> Any:
    return dtype, tuple([(x.array.shape, x.array.dtype) for x in given])


def _may_repeat(given: Sequence[Tensor]) -> bool:
    """Return True if a run with the inputs `given` may use a plan.

    The run must not record gradients, must not be traced or watched, and must compute with arrays of NumPy.
    """
    if is_grad_enabled() or trace.state.calls is not None or trace.state.cast is not None or memory_budget.is_watched():
        return False
    return all(isinstance(x, Tensor) and type(x.array) is np.ndarray and x.array.flags.c_contiguous for x in given)
