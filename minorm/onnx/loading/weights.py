"""Which of a file's float tensors are weights, as far as its author says so: by names, by metadata, by places.

A file knows no parameters, only tensors. Some are a network's weights, others numbers that an exporter wrote down: the
0.5 of a GELU, the eps of a norm, the exponent of a square. To train these breaks the network. So a tensor is a weight

- if the file says that it is: PyTorch's newer exporter calls each tensor PARAMETER, BUFFER or CONSTANT_TENSOR;
- else if it has a name that people give, `layer1.0.conv1.weight`, and not one that tools count up, `onnx::Mul_7`;
- else if it stands where an operator has its weights, perhaps behind a Transpose or a Reshape, or is added to values of
  the network, or multiplied with them, one number a channel.

Tensors in Constant nodes are held to the same, but a name without a dot says nothing of them; and what PyTorch writes
as a Constant is never a Parameter.
"""

from __future__ import annotations

import difflib
import fnmatch
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from minorm import dtypes
from minorm.onnx.graph.errors import LoadError
from minorm.onnx.graph.reading import Node
from minorm.onnx.loading import metadata, tables

# What `load(trainable=...)` takes: names and patterns, or a function of a name and its array.
Trainable = str | Iterable[str] | Callable[[str, np.ndarray[Any, Any]], bool] | None

KIND = "pkg.torch.export.graph_signature.InputSpec.kind"
PARAMETER = "PARAMETER"

# The inputs where an operator has its weights.
PLACES: Mapping[str, tuple[int, ...]] = {
    **dict.fromkeys(("Conv", "ConvTranspose"), (1, 2)),
    **dict.fromkeys(
        ("BatchNormalization", "InstanceNormalization", "LayerNormalization", "GroupNormalization"), (1, 2)
    ),
    **dict.fromkeys(("RMSNormalization", "PRelu"), (1,)),
    **dict.fromkeys(("RNN", "GRU"), (1, 2, 3)),
    "LSTM": (1, 2, 3, 7),
    "Gemm": (0, 1, 2),
    "MatMul": (0, 1),
    "Gather": (0,),
}
NORMS = frozenset(name for name in PLACES if name.endswith("Normalization"))
MOVES = frozenset(("Transpose", "Reshape", "Expand", "Unsqueeze", "Squeeze", "Flatten", "Identity", "Cast", "CastLike"))
BESIDE = frozenset(("Add", "Mul", "Concat"))  # where a vector, one number a channel, is a bias, a scale or a token
LENGTHS = frozenset(("Shape", "Size"))

_GIVEN = re.compile(r"[^\W\d]\w*|\w+(\.\w+)+")
_COUNTED = re.compile(r"p2o\..*|scalar_tensor_default|lifted_tensor|_tensor_constant\d*|[Cc]onst\d*|\w*[^\W\d](_\d+)+")
_VARIABLE = re.compile(r".*\bReadVariableOp\b.*")  # TensorFlow's variables: `model/norm/mul/ReadVariableOp:0`


@dataclass
class Origin:
    """What a file says about itself.

    kinds      name -> PARAMETER and the like; empty where the file does not say
    scripted   written by PyTorch's older exporter: only its own names have colons and slashes
    """

    producer: str = ""
    kinds: Mapping[str, str] = field(default_factory=dict)
    scripted: bool = False

    @property
    def ours(self) -> bool:
        """Whether minorm wrote it: then every initializer is a tensor of the model, and a Constant none."""
        return self.producer == metadata.OURS

    @classmethod
    def of(cls, model: Any) -> Origin:
        """What this model says."""
        kinds = {}
        for entry in (*model.graph.input, *model.graph.value_info, *model.graph.initializer):
            for item in entry.metadata_props:
                if item.key == KIND:
                    kinds[entry.name] = item.value
        newer = bool(kinds) or any(node.metadata_props for node in model.graph.node[:1])
        return cls(model.producer_name, kinds, scripted=model.producer_name == "pytorch" and not newer)

    def names(self, name: str) -> bool:
        """Whether a person named it so: a module's tensor `layer1.0.conv1.weight`, or `cls_token` of the outermost."""
        if self.kinds:
            return self.kinds.get(name) == PARAMETER
        if tables.is_statistic(name):
            return False
        if _GIVEN.fullmatch(name):
            return self.scripted or not _COUNTED.fullmatch(name)
        return _VARIABLE.fullmatch(name) is not None


def constants(nodes: Iterable[Node]) -> dict[str, Any]:
    """The float tensors that Constant nodes hold, by the names of their values."""
    found = {}
    for node in nodes:
        if node.operator == "Constant" and len(node.attributes) == 1:
            [value] = node.attributes.values()
            numbers = {"value_float", "value_floats"} & node.attributes.keys()
            array = np.array(value, dtypes.float32) if numbers else value
            if isinstance(array, np.ndarray) and dtypes.is_float(array.dtype):
                found[node.outputs[0]] = array
    return found


def copies(nodes: Iterable[Node], arrays: Mapping[str, Any], origin: Origin) -> dict[str, str]:
    """Names of tensors that a tool found equal to another and hands on by Identity -> the other.

    PyTorch's exporter writes the equal weights of a fresh model once. A tensor that two modules really share has one
    name there, and no Identity.
    """
    found: dict[str, str] = {}
    for node in () if origin.ours else nodes:
        name, source = node.outputs[0], node.inputs[0] if node.inputs else ""
        if node.operator == "Identity" and (source in arrays or source in found) and "." in name and origin.names(name):
            found[name] = found.get(source, source)
    return found


def of(
    nodes: Sequence[Node],
    inputs: Iterable[str],
    initializers: Mapping[str, Any],
    arrays: Mapping[str, Any],
    origin: Origin,
) -> set[str]:
    """The names of `arrays` that are weights.

    inputs          of the graph
    initializers    all of the file, in its order
    arrays          the float tensors of the file, Constants among them
    """
    held = {node.outputs[0] for node in nodes if node.operator == "Constant"}
    if origin.ours:
        return set(arrays) - held
    if origin.kinds or origin.producer == "pytorch":
        arrays = {name: array for name, array in arrays.items() if name not in held}
    if origin.scripted:
        buffers = tables.buffers(initializers)
        arrays = {name: array for name, array in arrays.items() if name not in buffers}
    placed = _placed(nodes, inputs, arrays)
    return {
        name
        for name in arrays
        if ((name not in held or "." in name) and origin.names(name))
        or (name in placed and origin.kinds.get(name, PARAMETER) == PARAMETER and not tables.is_statistic(name))
    }


def _placed(nodes: Sequence[Node], inputs: Iterable[str], arrays: Mapping[str, Any]) -> set[str]:
    """The arrays that stand where an operator has weights, or beside the network's values, one number a channel."""
    live = set(inputs)
    for node in nodes:
        if node.operator not in LENGTHS and any(name in live for name in node.inputs):
            live.update(node.outputs)
    weights, beside, tokens = set[str](), set[str](), set[str]()
    for node in reversed(nodes):
        if node.operator in MOVES:
            for found in (weights, beside, tokens):
                found.update(node.inputs[:1] if node.outputs[0] in found else ())
        elif not any(name in live for name in node.inputs):
            continue
        elif node.operator in BESIDE:
            beside.update(node.inputs)
            tokens.update(node.inputs if node.operator == "Concat" else ())
        elif node.operator in PLACES and not (node.operator in NORMS and _is_neutral(node, arrays)):
            weights.update(node.inputs[place] for place in PLACES[node.operator] if place < len(node.inputs))
    return {
        name
        for name, array in arrays.items()
        if (name in weights and array.size > 0 and array.ndim > 0)
        or (name in beside and (_is_channel(array.shape) or tables.repeats(array)))
        if not (name in tokens and (array == array.flat[:1]).all())  # padding
    }


def expanded(name: str, array: Any, origin: Origin) -> bool:
    """Whether folding wrote a weight once for each sample of a fixed batch: it trains as the one that it was."""
    return not origin.ours and not origin.names(name) and tables.repeats(array)


def _is_neutral(node: Node, arrays: Mapping[str, Any]) -> bool:
    """Whether a normalization multiplies with ones and adds zeros: it has no weights, but the operator wants some.

    So exporters write a norm without weights, and the first part of a GroupNorm: Reshape, InstanceNormalization.
    """
    scale, bias = (arrays.get(name) for name in (*node.inputs[1:3], "")[:2])
    return scale is not None and bool((scale == 1).all()) and (bias is None or not bias.any())


def _is_channel(shape: tuple[int, ...]) -> bool:
    return sum(length != 1 for length in shape) == 1 and 0 not in shape


# What the caller says


def asked(trainable: Trainable, arrays: Mapping[str, Any], others: Collection[str]) -> set[str]:
    """The names of `arrays` that the caller wants to train; LoadError for a name or pattern that matches none.

    arrays    what can be trained: gradient reaches it
    others    further values of the graph, for the message
    """
    if callable(trainable):
        found = set()
        for name, array in arrays.items():
            view = array.view()
            view.flags.writeable = False
            answer = trainable(name, view)
            if not isinstance(answer, (bool, np.bool_)):
                raise TypeError(f"load: trainable({name!r}, array) returned {answer!r:.80}; expected True or False")
            found.update([name] if answer else [])
        return found
    if not isinstance(trainable, Iterable):
        raise TypeError(f"load: trainable is {type(trainable).__name__}; expected names and patterns, or a function")
    patterns = [trainable] if isinstance(trainable, str) else list(trainable)
    found = set()
    for pattern in patterns:
        if not isinstance(pattern, str):
            raise TypeError(f"load: trainable holds {pattern!r:.80}; expected names and patterns, or a function")
        matched = {pattern} & arrays.keys() or set(fnmatch.filter(arrays, pattern))
        if not matched:
            raise LoadError(f"load: trainable asks for {pattern!r:.200}, {_why_none(pattern, arrays, others)}")
        found |= matched
    return found


def _why_none(pattern: str, arrays: Iterable[str], others: Collection[str]) -> str:
    if pattern in others:
        return "which cannot train: it is no float tensor of the file, or no gradient reaches it from the outputs"
    known = [name for name in list(arrays)[:1000] if len(name) < 100]
    near = difflib.get_close_matches(pattern[:100], known, n=3)
    hint = f"did you mean {' or '.join(map(repr, near))}?" if near else "`minorm check` lists what would train"
    return f"which matches no tensor that can train; {hint}"
