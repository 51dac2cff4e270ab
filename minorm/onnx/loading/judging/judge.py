"""Judge whether each tensor of a file is a Parameter, a buffer or a constant, and say why.

A file has no parameters, only tensors. Some are a network's weights. Others are numbers that a program wrote: the 0.5
of a GELU, the eps of a norm, the exponent of a square. If these numbers were trained, the network would break. The
judge asks these questions in this order:

1. What does the file say? minorm writes Constants for numbers; PyTorch's newer exporter marks each tensor as PARAMETER,
   BUFFER or CONSTANT_TENSOR; PyTorch never writes a Parameter as a Constant node.
2. What does the tensor's name say (naming.py)? Buffers have their usual names; a module's tensor has a module's path in
   its name.
3. What numbers does the tensor hold (tables.py)? Numbers from a formula (sines, filter banks, windows, masks, ranges)
   were not trained.
4. What do nodes use the tensor for (weights_by_input.py)? A tensor trains under any name if an operator reads it as a
   weight. It also trains if nodes combine it with values of the network and its numbers are not all equal. A single
   number in arithmetic trains only if it has the name of a module's tensor.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from minorm.devices import dtypes
from minorm.onnx.graph.reading import Node
from minorm.onnx.loading.judging import naming, tables, weights_by_input
from minorm.onnx.loading.judging.naming import Form, Origin
from minorm.onnx.loading.judging.weights_by_input import Kind, Place

ROLES = PARAMETER, BUFFER, CONSTANT = "Parameter", "buffer", "constant"
_SAID = {naming.PARAMETER: PARAMETER, "BUFFER": BUFFER}  # CONSTANT_TENSOR is a constant


class Verdict(NamedTuple):
    """Holds the role of a tensor, and the reason as a phrase."""

    role: str  # Parameter, buffer or constant
    why: str

    @property
    def trains(self) -> bool:
        """Return whether the tensor is a Parameter."""
        return self.role == PARAMETER


ASKED = Verdict(PARAMETER, "load(trainable=...) asks for it")
NOT_ASKED = Verdict(CONSTANT, "load(trainable=...) does not ask for it")


def others_of(array: Any, is_state: bool) -> Verdict:
    """Return the verdict on a tensor that cannot train, whatever its name is.

    is_state    True if a layer keeps the tensor as running statistics
    """
    if is_state:
        return Verdict(BUFFER, "running statistics of a normalization")
    if not dtypes.is_float(array.dtype):
        return Verdict(CONSTANT, f"it holds {array.dtype}, not floats")
    return Verdict(CONSTANT, "no gradient reaches it from the outputs")


class Judge:
    """Judges the float tensors of a file.

    inputs          the inputs of the graph
    initializers    all initializers of the file, in its order
    arrays          the float tensors of the file, including those in Constant nodes
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        inputs: Iterable[str],
        initializers: Mapping[str, Any],
        arrays: Mapping[str, Any],
        origin: Origin,
    ) -> None:
        self.arrays, self.origin = arrays, origin
        self.held = {node.outputs[0] for node in nodes if node.operator == "Constant" and not node.is_initializer}
        # value -> the initializer's own name, for the initializers of branches and bodies
        self.own = {node.outputs[0]: node.name for node in nodes if node.operator == "Constant" and node.is_initializer}
        self.known = {*initializers, *self.own.values()}
        self.after: Mapping[str, str] = buffers_of(initializers) if origin.scripted else {}
        self.places = {} if origin.ours else weights_by_input.places(nodes, inputs, arrays)
        self.makers = {name: node for node in nodes for name in node.outputs}
        self.bases: dict[str, str] = {}  # an exponent -> its base
        for node in nodes:
            if node.operator == "Pow" and len(node.inputs) == 2 and node.inputs[1] in arrays:
                self.bases.setdefault(node.inputs[1], node.inputs[0])

    def of(self, name: str) -> Verdict:
        """Return the verdict on the tensor with this name, which must be one of `arrays`."""
        array, place = self.arrays[name], self.places.get(name)
        own = self.own.get(name, name)
        found = self._said(name) or self._impossible(name, own)
        if found is None:
            form = self.origin.form(own)
            if name in self.held and form is Form.PLAIN:
                form = Form.TOOL  # a name without a dot says nothing about a number in a node
            found = self._one(own, array, place, form) if array.size == 1 else self._many(own, array, place, form)
        return found

    def _said(self, name: str) -> Verdict | None:
        """Return what the file says about the role of this tensor; None if it says nothing."""
        if self.origin.ours:
            if name in self.held:
                return Verdict(CONSTANT, "minorm writes no Parameter as a Constant node")
            return Verdict(PARAMETER, "minorm wrote it as a tensor of the model")
        kind = self.origin.kinds.get(name)
        if kind is not None:
            return Verdict(_SAID.get(kind, CONSTANT), f"the file calls it {kind}")
        if name in self.held and (self.origin.kinds or self.origin.producer == "pytorch"):
            return Verdict(CONSTANT, "PyTorch writes no Parameter as a Constant node")
        return None

    def _impossible(self, name: str, own: str) -> Verdict | None:
        """Return the verdict if the tensor cannot be a Parameter, whatever its name is; else None."""
        if naming.is_named_as_buffer(own, self.known):
            return Verdict(BUFFER, "it has the name of a buffer")
        if own in self.after:
            return Verdict(BUFFER, self.after[own])
        base = self.bases.get(name)
        if base is not None and not weights_by_input.is_positive(base, self.makers, self.arrays):
            return Verdict(
                CONSTANT, "it is the exponent of a value that may be negative, and there the exponent has no gradient"
            )
        if self.arrays[name].size == 0:
            return Verdict(CONSTANT, "it is empty")
        return None

    def _one(self, own: str, array: Any, place: Place | None, form: Form) -> Verdict:
        """Return the verdict on a single number."""
        if form is Form.MODULE and (self.origin.producer == "pytorch" or not naming.is_literal(own)):
            return Verdict(PARAMETER, "it has the name of a module's tensor")
        if place is not None and place.kind is Kind.WEIGHT and array.ndim:
            return Verdict(PARAMETER, str(place))
        if form is Form.PLAIN and own in ("weight", "bias", "w"):
            return Verdict(PARAMETER, "it has a usual name of a module's tensor")
        return Verdict(CONSTANT, "one number in arithmetic")

    def _many(self, own: str, array: Any, place: Place | None, form: Form) -> Verdict:
        named = form is Form.MODULE or (form is Form.PLAIN and not naming.is_literal(own))
        made = self._formula(own, array, place, named)
        if made:
            return Verdict(BUFFER if form is Form.MODULE else CONSTANT, f"its numbers have a formula: {made}")
        if named:
            weight = place is not None and place.kind is Kind.WEIGHT
            return Verdict(PARAMETER, str(place) if weight else "it has the name of a module's tensor")
        found = self._placed(array, place)
        if place is not None and place.kind is Kind.AFFINE and naming.is_literal(own) and tables.is_all_equal(array):
            return Verdict(CONSTANT, "its name is a number, and all its elements are equal")
        return found

    def _formula(self, own: str, array: Any, place: Place | None, named: bool) -> str:
        """Return the formula that made the numbers, in words; "" if they have no formula.

        In a weight, or in a tensor whose name is a word, a range or a few different numbers do not count as a formula,
        because an author may have chosen these numbers as initial values.
        """
        kind = None if place is None else place.kind
        is_weight = own.rpartition(".")[2] == "weight"
        if kind is Kind.FREQUENCY and not is_weight:
            return "frequencies"
        if kind is Kind.WEIGHT:
            fixed = "" if is_weight or array.ndim < 3 else tables.fixed_filters(array)
            return fixed or (tables.basis(array) if array.ndim > 1 else "")
        if kind in (Kind.STATE, Kind.IMAGE) or (named and not self.origin.scripted):
            return tables.basis(array)
        few = tables.few_numbers(array, 4) if named and array.ndim > 1 and kind not in (Kind.PART, Kind.AFFINE) else ""
        return tables.formula(array) or few

    def _placed(self, array: Any, place: Place | None) -> Verdict:
        """Return the verdict that follows from the use of a tensor and from its numbers alone."""
        if place is None:
            return Verdict(
                CONSTANT, "its operator does not use it as weights, and its name is not that of a module's tensor"
            )
        if place.kind is Kind.WEIGHT:
            if array.ndim > 1 and tables.is_binary(array):
                return Verdict(CONSTANT, f"{tables.BINARY}, {place}")
            return Verdict(PARAMETER, str(place))
        if place.kind in (Kind.NEUTRAL, Kind.SCALING, Kind.EXPONENT, Kind.FREQUENCY):
            return Verdict(CONSTANT, str(place))
        if tables.is_all_equal(array) and not (place.kind is Kind.AFFINE and weights_by_input.is_channel(array.shape)):
            return Verdict(CONSTANT, f"all its numbers are equal, {place}")
        if few := tables.few_numbers(array):
            return Verdict(CONSTANT, f"{few}, {place}")
        return Verdict(PARAMETER, str(place))


def buffers_of(initializers: Mapping[str, Any]) -> dict[str, str]:
    """Find the buffers among the tensors in a file of PyTorch's older exporter; return the reasons by name.

    initializers    the tensors, in the order of the file

    This exporter writes Parameters and buffers in the same way. But a module's buffers come after its Parameters, so
    every tensor of the module after its first buffer is a buffer too.
    """
    found: dict[str, str] = {}
    closed: dict[str, str] = {}
    for name, array in initializers.items():
        module, _, last = name.rpartition(".")
        if not naming.is_module_name(name):  # a name by the exporter or a simplifier
            continue
        if last in ("weight", "bias") and f"{module}.running_mean" in initializers:  # last in a scripted module
            continue
        if not dtypes.is_float(array.dtype):
            why = "it holds no floats"
        elif module in closed:
            why = f"it comes after the buffer {closed[module]!r} of its module"
        elif naming.is_named_as_buffer(name, initializers):
            why = "it has the name of a buffer"
        else:
            made = tables.formula(array)
            why = f"its numbers have a formula: {made}" if made else ""
        if why:
            found[name] = why
            closed.setdefault(module, name)
    return found
