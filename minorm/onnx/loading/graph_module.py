"""Run a loaded graph as a Module, node by node, and drop every value after its last use.

The graph lists all Parameters and buffers under their initializers' names, whatever characters these contain. The
modules below the graph (places.py) stand for nodes that have a mode (BatchNormalization, Dropout) and for the modules
that names in the file mention, so that `model.get_submodule("layer1.0.bn1").freeze()` works.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Self

import numpy as np

from minorm.devices import dtypes
from minorm.graph import trace
from minorm.graph.grad_mode import is_grad_enabled
from minorm.nn import Module, Parameter
from minorm.nn.attributes import BUFFER, PARAMETER
from minorm.normalization import running
from minorm.onnx.graph import memory_budget
from minorm.onnx.graph.node_layers import Sealed
from minorm.onnx.graph.step import Step, converted, mark_last_uses, unconverted
from minorm.onnx.graph.tensors import Budget
from minorm.onnx.loading.exchange import replacing
from minorm.onnx.loading.float_type import FloatType
from minorm.onnx.loading.graph_inputs import Input
from minorm.onnx.loading.judging.judge import Verdict
from minorm.onnx.loading.original import Original, Placed
from minorm.onnx.loading.planning.plans import Plans
from minorm.onnx.loading.planning.recorder import Recorder
from minorm.onnx.loading.quantized.fused_steps import Fused, inference_steps
from minorm.onnx.operators.norm.batch_statistics import put
from minorm.support.safe_names import printable
from minorm.support.states import completed
from minorm.tensor.tensor import Tensor


def _unshared(result: Any, held: Container[int]) -> Any:
    """Return a result that the caller may change: a copy, if the result shares memory with the graph.

    held    the ids of the version counters of the graph's tensors; a view has the same counter as its tensor
    """
    if not isinstance(result, Tensor):  # a sequence, or nothing
        return [_unshared(item, held) for item in result] if isinstance(result, list) else result
    return result.clone() if id(result.version) in held else result


class GraphModule(Sealed):
    """Runs a loaded graph: `model(*inputs)` returns its output, or a tuple of several. `minorm.onnx.load` makes it.

    input_names, output_names    in the order of the file
    inputs                       the declared name, type and shape of each input

    `to(mn.float16)` converts the graph, like any Module. After that, the inputs, the outputs and all floats that a node
    reads have this type, even constants of the file and results of a Cast. If the file has several float types, the
    converted graph has only this one. Types that ONNX prescribes stay (the scales of a Resize). A result that depends
    on shapes alone (the padding of TensorFlow's SAME) is still computed in the types of the file.
    """

    def __init__(
        self,
        inputs: Sequence[Input],
        output_names: Sequence[str],
        ends: Sequence[str],
        steps: Sequence[Step],
        slots: Mapping[str, int],
        state: Mapping[str, Tensor],
        constants: Mapping[str, Tensor],
        budget: Budget,
    ) -> None:
        super().__init__()
        self.inputs = list(inputs)
        self.input_names = [entry.name for entry in inputs]
        self.output_names = list(output_names)
        returned = set(output_names)
        self.updated_names = [name for name in ends if name not in returned]  # the next contents of buffers
        self.updates: list[tuple[Tensor, int, Module]] = []  # a buffer, the slot of its next value, the layer
        self.snapshots: list[tuple[Tensor, int]] = []  # a buffer, the slot of its value when a run begins
        self.verdicts: dict[str, Verdict] = {}  # for every tensor of the file: its role, and the reason
        self.constants = dict(constants)  # the fixed numbers of the file: shapes, indices, bounds
        self.original: Original | None = None  # the rest of the file, for `export`
        self.placed: list[Placed] = []  # the nodes in the file of the layers with a mode
        self._budget = budget
        self._plans = Plans()
        self.stores_integers = False  # a file of minorm holds the weights as integers: quantized/integer_weights.py
        self.metadata: dict[str, Any] = {}  # the file's entries, without those that minorm writes for itself
        self.layers_put_in: dict[str, Module] = {}  # in the place of nodes, by their paths
        self._state = dict(state)
        self._steps = list(steps)
        self._fused: list[Fused] = []
        self._fused_steps: list[Step] | None = None
        self._size = len(slots)
        self._value_names = {slot: name for name, slot in slots.items()}
        self._given = [(slots[name], tensor) for name, tensor in {**constants, **state}.items() if name in slots]
        self._input_slots = [slots[name] for name in self.input_names]
        self._output_slots = [slots[name] for name in output_names]
        self._as_converted: tuple[Any, list[tuple[int, Tensor]]] | None = None
        fixed = [x.dtype for x in constants.values() if dtypes.is_float(x.dtype)]
        self._float_type = FloatType(self._state.values(), self._input_types(), fixed)
        mark_last_uses(self._steps, {*(slots[name] for name in ends), *(slot for slot, _ in self._given)})

    def forward(self, *inputs: Any) -> Any:
        """Run the graph on these inputs and return its outputs."""
        dtype = self.converted_to()
        steps = self._steps if dtype is not None else self._inference_steps(inputs)
        # If the graph has fused steps, plans are made from the fused steps.
        by_plan = dtype is not None or self._fused_steps is None or steps is self._fused_steps
        if by_plan:  # the check took place when the plan for such inputs was made
            given = inputs if all(isinstance(x, Tensor) for x in inputs) else self.check(inputs)
            planned = self._plans.run(given, dtype)
            if planned is not None:
                return planned[0] if len(planned) == 1 else tuple(planned)
        given = self.check(inputs)
        recorder = self._recorder(given, dtype) if by_plan else None
        values: list[Any] = [None] * self._size
        for slot, tensor in self._tensors(dtype):
            values[slot] = tensor
        for slot, x in zip(self._input_slots, given, strict=True):
            values[slot] = x
        for buffer, slot in self.snapshots:
            values[slot] = buffer.clone()
        weights = {id(tensor) for _, tensor in self._tensors(dtype)} | set(map(id, self._of_layers()))
        # A division by 0 has a value in ONNX, so it needs no warning.
        with self._budget.run(given, weights), np.errstate(all="ignore"):
            for step in steps:
                step.run(values, dtype) if recorder is None else recorder.run(step, values, dtype)
        for buffer, slot, layer in self.updates:
            if layer.training and not layer.frozen and running.is_updating():
                put(buffer, values[slot])
            elif not layer.training or layer.frozen:
                values[slot] = buffer.clone()  # the statistics stay as they are
        held = set() if trace.state.calls is not None else {id(tensor.version) for _, tensor in self._tensors(dtype)}
        results = tuple(
            _unshared(values[slot] if dtype is None else converted(values[slot], dtype), held)
            for slot in self._output_slots
        )
        if recorder is not None:
            self._plans.keep(given, dtype, recorder.plan(results))
        return results[0] if len(results) == 1 else results

    def fuse(self, fused: Sequence[Fused]) -> None:
        """Run the fused steps in inference instead of the steps that they replace."""
        self._fused = list(fused)
        self._set_fused_steps()

    def _set_fused_steps(self) -> None:
        self._fused_steps = inference_steps(self._steps, self._fused, self._kept_slots())

    def _kept_slots(self) -> set[int]:
        """Return the slots that are filled before a run or read after a run."""
        updated = (slot for _, slot, _ in self.updates)
        return {*self._output_slots, *updated, *(slot for slot, _ in self._given)}

    def _inference_steps(self, inputs: Sequence[Any]) -> list[Step]:
        """Return the fused steps if the run needs no gradients and is not watched; otherwise the steps of the file."""
        if self._fused_steps is None or self.training or trace.state.calls is not None or memory_budget.is_watched():
            return self._steps
        given = (*inputs, *self.parameters()) if is_grad_enabled() else ()
        trains = any(isinstance(x, Tensor) and x.requires_grad for x in given)
        return self._steps if trains else self._fused_steps

    def _recorder(self, given: Sequence[Tensor], dtype: Any) -> Recorder | None:
        """Return the recorder that makes a plan from this run; None if this run makes no plan, as most runs do."""
        layers = [step.operation for step in self._steps if isinstance(step.operation, Module)]
        layers += [module for layer in self.layers_put_in.values() for module in layer.modules() if module is not layer]
        state = set(map(id, self._state.values()))
        held = [tensor for _, tensor in self._tensors(dtype) if id(tensor) in state] + self._of_layers()
        constants = [tensor for _, tensor in self._tensors(dtype) if id(tensor) not in state]
        return self._plans.recorder(given, dtype, held, constants, [*layers, *(layer for *_, layer in self.updates)])

    def replace(self, name: str, layer: Module) -> None:
        """Put a layer in the place of nodes: `model.replace("fc", nn.Linear(512, 5))`.

        `name` is the name of a module of the file, of a node, of a value or of a tensor. The name of a value stands for
        the node that computes the value. The name of a tensor stands for the tensor's module. MatMul and the Add of its
        bias are one node here. The graph calls the layer with the values that the nodes read from the network, in the
        same order. The layer must return one Tensor. The network then reads this Tensor instead of the nodes' value.
        The layer is set to the mode of the graph, training or inference. Nodes and tensors that the graph no longer
        needs are dropped. The layer's parameters are parameters of the graph, and `export` writes the layer.

        Raise ValueError for an unknown name; the message proposes names. Raise ValueError also if the rest of the
        network reads several values of the named nodes. Raise TypeError for a layer that is not a Module. After an
        error the graph is unchanged.

        Example:
            >>> body = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 10))
            >>> model = mn.onnx.load(mn.onnx.export(body, mn.ones(1, 4)))
            >>> model.replace("2", nn.Linear(3, 5))
            >>> model(mn.ones(2, 4)).shape, list(model.state_dict())
            ((2, 5), ['0.weight', '0.bias', '2.weight', '2.bias'])
        """
        part = replacing.found(self, name, layer)
        completed(replacing.Replacement(self, part, layer, part.path or replacing.flat(name)).make)

    def _rewire(self, new: replacing.Replacement) -> None:
        """Run the steps of a replacement from now on, and drop the tensors that the graph no longer needs."""
        self._steps, self.updates, self.snapshots = new.steps, new.updates, new.snapshots
        self.updated_names, self.original = new.updated_names, new.file
        self._given = [(slot, tensor) for slot, tensor in self._given if id(tensor) not in new.lost]
        self._state = {name: tensor for name, tensor in self._state.items() if id(tensor) not in new.lost}
        self.constants = {name: tensor for name, tensor in self.constants.items() if id(tensor) not in new.lost}
        steps = {id(step.operation) for step in self._steps}
        layers = {**self.layers_put_in, new.step.module: new.layer}
        self.layers_put_in = {path: layer for path, layer in layers.items() if id(layer) in steps}
        self._plans, self._as_converted = Plans(), None
        self._float_type = self._float_type.with_parameters(
            [*self._state.values(), *self._of_layers()], self._input_types()
        )
        mark_last_uses(self._steps, self._kept_slots())
        self._set_fused_steps()

    def _of_layers(self) -> list[Tensor]:
        """Return the parameters and buffers of the layers that replace nodes."""
        return [tensor for layer in self.layers_put_in.values() for tensor in (*layer.parameters(), *layer.buffers())]

    def check(self, inputs: Sequence[Any]) -> list[Any]:
        """Return the inputs as Tensors; raise TypeError or ValueError if they do not fit the file's declarations."""
        if len(inputs) != len(self.inputs):
            names = ", ".join(map(printable, self.input_names))
            raise TypeError(f"the graph takes {len(self.inputs)} inputs ({names}); got {len(inputs)}")
        dtype = self.converted_to()
        return [entry.check(x, dtype) for entry, x in zip(self.inputs, inputs, strict=True)]

    def tensors_by_name(self) -> dict[str, Tensor]:
        """Return parameters and buffers under the names of the file; a shared tensor appears under all its names."""
        return dict(self._state)

    def watching(self, see: memory_budget.See) -> AbstractContextManager[None]:
        """Call `see(step, arguments, results, multiplications)` for every node that runs inside this context."""
        return memory_budget.watching(see)

    def held_names(self) -> set[str]:
        """Return the names of the file's tensors whose contents this module holds."""
        return {*self._state, *self.constants}

    def converted_to(self) -> Any:
        """Return the type of all floats after `to` was called here or on an outer module; None before such a call."""
        return self._float_type.converted_to()

    def _input_types(self) -> list[Any]:
        return [entry.dtype for entry in self.inputs]

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(fn, recurse)
        self._float_type.apply(fn)
        return self

    def _tensors(self, dtype: Any) -> Sequence[tuple[int, Tensor]]:
        """Return (slot, tensor) for each slot to fill before a run; a converted graph has its constants in `dtype`.

        Arithmetic on shapes stays in the types of the file, because float16 cannot represent 2049. So the constants for
        this arithmetic keep their types. All other nodes convert the values that they read, including the results of
        this arithmetic.
        """
        if dtype is None:
            return self._given
        if self._as_converted is None or self._as_converted[0] != dtype:
            kept = unconverted(self._steps)
            given = [(slot, x if slot in kept else converted(x, dtype)) for slot, x in self._given]
            self._as_converted = dtype, given
        return self._as_converted[1]

    def _own(self, *kinds: str) -> Iterator[tuple[str, Any]]:
        """Yield the graph's tensors under the names of their initializers, and then the modules below the graph."""
        for name, tensor in self._state.items():
            if (PARAMETER if isinstance(tensor, Parameter) else BUFFER) in kinds:
                yield name, tensor
        yield from super()._own(*kinds)

    def extra_repr(self) -> str:
        """Return the inputs with types and shapes, the outputs, the number of nodes, and the plans of inference."""
        dtype, plans = self.converted_to(), repr(self._plans)
        inputs = ", ".join(entry.described(dtype) for entry in self.inputs)
        nodes = f"{len(self._steps)} nodes" + (f"; in inference with input {plans}" if plans else "")
        return f"{inputs} -> {', '.join(map(printable, self.output_names))}; {nodes}"
