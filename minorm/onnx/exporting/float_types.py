"""Find the float types of a node's inputs and outputs, if the whole network is to use one float type.

The schema of the node's version decides. Inputs and outputs with the same letter, such as T, share one type. This is
the wanted type if the schema allows it. Otherwise it is float32, and Casts are put around the node. If the schema has a
type such as tensor(float) instead of a letter, the type is fixed. Attributes can name types too: `to` of Cast, `dtype`
of RandomNormal, `value` of ConstantOfShape.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from onnx import AttributeProto, TensorProto, helper
from onnx.defs import OpSchema

from minorm.onnx.graph.encoding import describe, fill
from minorm.onnx.graph.model_graph import ELEMENT_TYPES
from minorm.onnx.graph.node_rewriter import FLOATS, HALVES
from minorm.onnx.graph.tensors import DTYPES, Budget, read

ELEMENTS = {name: code for code, name in ELEMENT_TYPES.values()}  # tensor(float) -> 1
SUBSTITUTES = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16)  # the best first

# Operator -> the attribute that says the type of a result, and the default: a type, or the place of an input.
NAMED: dict[str, tuple[str, int, int | None]] = {
    "Cast": ("to", 0, None),
    "ConstantOfShape": ("value", TensorProto.FLOAT, None),
    **dict.fromkeys(("RandomNormal", "RandomUniform", "SequenceEmpty"), ("dtype", TensorProto.FLOAT, None)),
    **dict.fromkeys(("RandomNormalLike", "RandomUniformLike", "EyeLike", "Bernoulli"), ("dtype", 0, 0)),
    "Multinomial": ("dtype", TensorProto.INT32, None),
    "QuantizeLinear": ("output_dtype", TensorProto.UINT8, 2),
    "DequantizeLinear": ("output_dtype", 0, 1),
    **dict.fromkeys(
        ("HannWindow", "HammingWindow", "BlackmanWindow", "MelWeightMatrix"),
        ("output_datatype", TensorProto.FLOAT, None),
    ),
}

# Operators that onnxruntime (1.32, on a CPU) computes only in float32 although ONNX has other types -> the first
# version with the other type. onnxruntime casts 16-bit floats itself.
NEVER = 1 << 30
_NO_DOUBLE = (
    "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "AveragePool", "Clip", "Col2Im", "Conv", "ConvTranspose", "Cosh",
    "Det", "Elu", "Erf", "GRU", "Gelu", "GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool", "HardSigmoid",
    "HardSwish", "Hardmax", "InstanceNormalization", "LRN", "LSTM", "LeakyRelu", "LpPool", "MaxUnpool", "Mean", "Mish",
    "Multinomial", "NonZero", "OneHot", "PRelu", "RNN", "Resize", "Selu", "Sinh", "Softplus", "Softsign", "Tan",
    "ThresholdedRelu", "Upsample",
)  # fmt: skip
_DOUBLE_SINCE = {"GridSample": 20, "Max": 8, "MaxPool": 8, "Min": 8}
_FLOAT_ALONE = {"MeanVarianceNormalization": NEVER}  # its published body mixes types
ONNXRUNTIME_LACKS: dict[int, Mapping[str, int]] = {
    TensorProto.DOUBLE: {**dict.fromkeys(_NO_DOUBLE, NEVER), **_DOUBLE_SINCE, **_FLOAT_ALONE},
    TensorProto.FLOAT16: {"ScatterElements": NEVER, "ScatterND": NEVER, **_FLOAT_ALONE},
    TensorProto.BFLOAT16: _FLOAT_ALONE,
    TensorProto.FLOAT: {},
}

# Operators that compute in the type of their attribute stash_type and give results in the type of their inputs.
STASHING = ("GroupNormalization", "RMSNormalization")

# Operators whose inputs under another letter than the first keep their type, since they are parameters, not data.
EXACT = ("Dropout", "Resize")


class Given(NamedTuple):
    """Describes an input: its element type (0 if unknown); `sequence` is True for a sequence."""

    elem: int = 0
    sequence: bool = False


class Made(NamedTuple):
    """Describes an output; `rounded` is True if the node makes a wider type because it cannot make the wanted one."""

    elem: int = 0
    sequence: bool = False
    rounded: bool = False


class Types(NamedTuple):
    """The types of a node.

    reads    the type in which the node reads each input; 0 if the type of the input stays unchanged
    makes    the types of the outputs
    names    the type that the node's attribute must name; 0 if no attribute exists or it need not change
    """

    reads: list[int]
    makes: list[Made]
    names: int


class Signature:
    """Finds the types of the inputs and outputs of one node.

    given      the types of its inputs
    wanted     the type for all floats; 0 to leave their types unchanged
    named      the type that the node's attribute names
    guess      a function that returns the type of an output that the schema does not fix
    lacking    operator -> the first version that can compute in the wanted type
    """

    def __init__(
        self,
        node: Any,
        schema: Any,
        given: Sequence[Given],
        wanted: int,
        named: int | None,
        guess: Callable[[str], int],
        lacking: Mapping[str, int],
    ) -> None:
        self.node, self.schema, self.given, self.wanted, self.named, self.guess = (
            node, schema, given, wanted, named, guess,
        )  # fmt: skip
        formal = [*schema.inputs, *schema.outputs]
        self.sequences = any(name.startswith("seq(") for f in formal for name in f.types) and node.op_type != "Identity"
        since = lacking.get(node.op_type, 0)
        self.lacks = (
            bool(wanted)
            and schema.since_version < since
            and not (node.op_type.startswith("Scatter") and self._is_plain())
        )
        self.bound: dict[str, int] = {}

    def _is_plain(self) -> bool:
        """Return True if the node, a Scatter, has no reduction, so that it only stores elements."""
        return all(attribute.name != "reduction" or attribute.s == b"none" for attribute in self.node.attribute)

    def types(self) -> Types:
        """Return the types that the node reads and makes."""
        reads = [self._input(place, given) for place, given in enumerate(self.given)]
        names = self._named(reads)
        return Types(reads, [self._output(place, names) for place in range(len(self.node.output))], names)

    def _formal(self, formal: Any, place: int) -> tuple[str, set[int]]:
        """Return the type letter of an input or output, and the element types that this letter allows."""
        own = formal[min(place, len(formal) - 1)]
        allowed = {ELEMENTS[inner] for name in own.types if (inner := element_of(name)) in ELEMENTS}
        if self.sequences and allowed & set(FLOATS):
            return "", allowed  # T and S, a sequence of T
        many = own.option == OpSchema.FormalParameterOption.Variadic and not own.is_homogeneous
        return f"{own.type_str} {place}" if many else own.type_str, allowed

    def _input(self, place: int, given: Given) -> int:
        if not given.elem or not self.schema.inputs:
            return 0
        letter, allowed = self._formal(self.schema.inputs, place)
        if given.elem not in FLOATS:
            self.bound.setdefault(letter, given.elem)
            return 0
        exact = self.node.op_type in EXACT and letter != self.schema.inputs[0].type_str
        best = given.elem if exact or not self.wanted else self.wanted
        if self.lacks and allowed & set(FLOATS) > {self.wanted}:
            allowed -= {self.wanted}
        if self.bound.get(letter) not in FLOATS:
            self.bound[letter] = best if best in allowed else self._substitute(allowed)
        return self.bound[letter]

    def _substitute(self, allowed: set[int]) -> int:
        """Return an allowed type to use instead of the wanted type; the wanted type itself if no float is allowed."""
        return next((elem for elem in SUBSTITUTES if elem in allowed), self.wanted)

    def _named(self, reads: Sequence[int]) -> int:
        """Return the type that the node's attribute must name; 0 if no attribute exists or it need not change."""
        name, default, like = NAMED.get(self.node.op_type, ("", 0, None))
        if name not in self.schema.attributes:
            return 0
        says = self.named
        if not says and like is not None and like < len(self.given):
            says = reads[like] or self.given[like].elem
        says = says or default
        if not self.wanted or says not in FLOATS:
            return 0
        _, allowed = self._formal(self.schema.outputs, 0)
        new = self.wanted if self.wanted in allowed else self._substitute(allowed)
        return 0 if not self.named and new == says else new

    def _output(self, place: int, names: int) -> Made:
        own = self.schema.outputs[min(place, len(self.schema.outputs) - 1)]
        letter, allowed = self._formal(self.schema.outputs, place)
        shapes = {name.startswith("tensor(") for name in own.types}
        sequence = self.given[0].sequence if len(shapes) > 1 and self.given else shapes == {False}
        by_letter = True
        if not place and NAMED.get(self.node.op_type, ("",))[0] in self.schema.attributes:
            elem = names or self._said()
        elif letter in self.bound:
            elem = self.bound[letter]
        else:
            by_letter = False
            elem = next(iter(allowed)) if len(allowed) == 1 else self._stash() or self._guessed(place, allowed)
        rounded = by_letter and self.wanted in HALVES and elem in FLOATS and elem != self.wanted and not sequence
        return Made(elem, sequence, rounded and "(" not in letter)

    def _said(self) -> int:
        """Return the type that the attribute names now."""
        _, default, like = NAMED[self.node.op_type]
        if not self.named and like is not None and like < len(self.given) and self.given[like].elem:
            letter = self._formal(self.schema.inputs, like)[0]
            return self.bound.get(letter, self.given[like].elem)
        return self.named or default

    def _stash(self) -> int:
        """Return the stash_type (LayerNormalization's type for mean and deviation), or 0 if the operator has none."""
        found = next((a for a in self.node.attribute if a.name == "stash_type"), None)
        return 0 if "stash_type" not in self.schema.attributes else TensorProto.FLOAT if found is None else found.i

    def _guessed(self, place: int, allowed: set[int]) -> int:
        elem = self.guess(self.node.output[place])
        if elem not in FLOATS or not self.wanted:
            return elem
        return self.wanted if self.wanted in allowed else self._substitute(allowed)


def element_of(name: str) -> str:
    """Return the element type in the name of a type, such as `tensor(float)` in `seq(tensor(float))`."""
    return name[name.rfind("tensor(") :].rstrip(")") + ")" if "tensor(" in name else ""


# The attribute that names a type


def named_type(node: Any, passed: Mapping[str, Any]) -> int | None:
    """Return the element type that a node's attribute names; None if the attribute is missing.

    passed    the attributes that the call of the surrounding function passes
    """
    name = NAMED.get(node.op_type, ("",))[0]
    found = next((a for a in node.attribute if a.name == name), None)
    if found is not None and found.ref_attr_name:
        found = passed.get(found.ref_attr_name)
    if found is None:
        return None
    if found.HasField("t"):
        return int(found.t.data_type)
    if found.type == AttributeProto.STRING:  # Cast 1
        return dict(TensorProto.DataType.items()).get(found.s.decode("utf-8", "replace").upper(), 0)
    return int(found.i)


def constant_type(node: Any, passed: Mapping[str, Any]) -> int:
    """Return the element type of a Constant; 0 if the type is not known."""
    found = node.attribute[0] if len(node.attribute) == 1 else None
    if found is None or found.name.startswith(("value_int", "value_float", "value_string")):
        name = "" if found is None else found.name.removeprefix("value_").removesuffix("s")
        return {"int": TensorProto.INT64, "float": TensorProto.FLOAT, "string": TensorProto.STRING}.get(name, 0)
    if found.ref_attr_name:
        found = passed.get(found.ref_attr_name, found)
    return int(found.sparse_tensor.values.data_type or found.t.data_type)


def compute_in_double(node: Any, schema: Any) -> None:
    """Set the stash_type of a node with float64 data, so that the node computes in float64 too."""
    if node.op_type in STASHING and "stash_type" in schema.attributes:
        for attribute in [a for a in node.attribute if a.name == "stash_type"]:
            node.attribute.remove(attribute)
        node.attribute.append(helper.make_attribute("stash_type", TensorProto.DOUBLE))


def name_type(node: Any, elem: int) -> None:
    """Write this type into the attribute that names a node's type."""
    name = NAMED[node.op_type][0]
    found = next((a for a in node.attribute if a.name == name), None) or node.attribute.add(name=name)
    found.ClearField("ref_attr_name")
    if name == "value":
        if not found.HasField("t"):
            found.CopyFrom(helper.make_attribute(name, helper.make_tensor("value", TensorProto.FLOAT, [1], [0.0])))
        retype_tensor(found.t, elem)
    elif found.type == AttributeProto.STRING:
        found.s = TensorProto.DataType.Name(elem).encode()
    else:
        found.i, found.type = elem, AttributeProto.INT


def nameable(schema: Any) -> frozenset[int]:
    """Return the float types in which an operator can make its result."""
    return frozenset(ELEMENTS.get(element_of(name), 0) for name in schema.outputs[0].types) & frozenset(FLOATS)


# Contents


def retype_tensor(tensor: Any, elem: int) -> None:
    """Convert a tensor to another float type; numbers that are too large for this type become infinite."""
    array = read(tensor, f"tensor {tensor.name!r}", None, Budget(1 << 62))
    with np.errstate(over="ignore"):
        array = array.astype(DTYPES[elem])
    describe(tensor, array)
    fill([(tensor, array)])
