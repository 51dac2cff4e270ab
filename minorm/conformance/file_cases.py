"""Read the normalizations of a user's file as cases: each case is a node with its input arrays in one run.

minorm computes these numbers: `minorm.onnx.load`, with its limits, loads the file with outputs for all values that the
normalizations read.
"""

from __future__ import annotations

import dataclasses
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from minorm.conformance.batch_norm_cases import BATCH_NORM_OUTPUTS
from minorm.conformance.case import Case
from minorm.conformance.formula import FORMULAS, due
from minorm.conformance.verdict import STASHED
from minorm.onnx import backend, load
from minorm.onnx.checking.inspection import Inspection, inspect
from minorm.onnx.checking.required import Required
from minorm.onnx.exporting import examples
from minorm.onnx.graph.errors import LoadError
from minorm.onnx.graph.reading import Node
from minorm.serialization import limits
from minorm.support.argument_errors import kind_of

PLAIN = int, float, str  # the types of normalizations' attributes, or of the items if these are lists
MIN_OFFSET = 10.0  # standard deviations; for data closer to 0 than this, the offset counts as 0


@dataclass(frozen=True)
class FileCases:
    """Holds the normalizations of a file: the cases, and the nodes that are left out.

    cases       a case for each node, with the node's name
    since       the version of each case's operator, in the order of the cases
    left_out    name of a node -> why the node is not judged
    """

    cases: list[Case] = field(default_factory=list)
    since: list[int] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)


def read(
    path: str | os.PathLike[str],
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    values: Mapping[str, Any] | None = None,
    max_bytes: int = limits.ONNX,
    external_root: str | os.PathLike[str] | None = None,
) -> FileCases:
    """Read the normalizations of a file; a second node with the same name is called `name (2)`.

    Raise LoadError if the file is not an ONNX file, or if minorm cannot run it up to its normalizations.

    shapes    known lengths of inputs or free axes, which are not guessed
    values    numbers or lists for inputs, by name; all other inputs get random numbers, which are the same in each call
    """
    found = inspect(path, max_bytes, external_root, "conform")
    nodes = _named([node for node in found.nodes if node.operator in FORMULAS and not node.domain])
    fed = {entry.name for entry in found.proto.graph.input}
    weights = {tensor.name for tensor in found.proto.graph.initializer}
    known, held = fed.union(weights, *(node.outputs for node in found.nodes)), weights - fed
    result = FileCases()
    judged = {}
    for name, node in nodes.items():
        why = _why_left_out(node, known)
        if why:
            result.left_out[name] = why
        else:
            judged[name] = node
    if not judged:
        return result
    guess = examples.Guess(shapes or {}, values or {}, Required(found.proto.graph).lengths)
    arrays = _arrays(path, found, list(judged.values()), guess, max_bytes, external_root)
    for name, node in judged.items():
        try:
            case = _case(name, node, [arrays[value] for value in _given(node)], held)
            due(case)
        except KeyError as error:
            result.left_out[name] = f"the node lacks the attribute {error}"
            continue
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            result.left_out[name] = f"the formula has no result for this node: {error}"
            continue
        result.cases.append(case)
        result.since.append(node.since)
    return result


def _named(nodes: Iterable[Node]) -> dict[str, Node]:
    """Give each node a unique name. Return a dict from these names to the nodes."""
    found: dict[str, Node] = {}
    called: Counter[str] = Counter()
    for node in nodes:
        given = name = node.name or next(filter(None, node.outputs), "")
        while name in found:
            called[given] += 1
            name = f"{given} ({called[given] + 1})"
        found[name] = node
    return found


def _given(node: Node) -> list[str]:
    return [name for name in node.inputs if name]


def _why_left_out(node: Node, known: set[str]) -> str:
    if not node.inputs or "" in node.inputs[: len(_given(node))]:
        return "the node lacks a required input"
    if not any(node.outputs):
        return "the node has no output"
    for name, value in node.attributes.items():
        for part in value if isinstance(value, list) else [value]:
            if not isinstance(part, PLAIN):
                return f"the node's attribute {name!r} is or contains {kind_of(part)}; expected numbers or texts"
    if node.conditions or node.body is not None or node.enters:
        return "the node is inside a branch or a loop"
    if not known.issuperset(_given(node)):
        return "the node reads a value that exists only inside a branch or a loop"
    return ""


def _arrays(
    path: Any, found: Inspection, nodes: list[Node], guess: examples.Guess, max_bytes: int, external_root: Any
) -> dict[str, Any]:
    """Compute the arrays of all values that the nodes read."""
    names = list(dict.fromkeys(name for node in nodes for name in _given(node)))
    module = load(path, names, max_bytes, external_root=external_root)
    reached = {entry.name for entry in module.inputs}
    examples.settled(found.inputs, guess)  # raises for a name that is not an input
    needed = dataclasses.replace(guess, values={n: v for n, v in guess.values.items() if n in reached})
    first: Exception | None = None
    for args in examples.guesses(module.inputs, needed):
        error = examples.fails(module, args)
        first = first or error
        if error is None:
            results = backend.Prepared(module).run([x.array for x in args])
            return dict(zip(names, results, strict=True))
    raise LoadError(f"conform: {os.fspath(path)!r} does not run on inputs of the shapes it declares: {first}")


def _case(name: str, node: Node, inputs: list[Any], held: set[str]) -> Case:
    outputs = tuple(name if given else "" for name, given in zip(BATCH_NORM_OUTPUTS, node.outputs, strict=False))
    if node.operator in STASHED:
        outputs = tuple("inverse" if value == "var" else value for value in outputs)
    weights = tuple(place for place, value in enumerate(_given(node)) if value in held and place)
    fetched = None if any(node.wants(place) for place in range(1, len(outputs))) else 1
    attributes = dict(node.attributes)
    case = Case(node.operator, node.opset, name, tuple(inputs), attributes, outputs, fetched, weights)
    return dataclasses.replace(case, offset=_offset(case))


def _offset(case: Case) -> float:
    """Return the largest |mean| / standard deviation of the case's data, over the axes that the operator reduces."""
    x = case.inputs[0].astype(np.float64)
    if x.ndim < 2 or not x.size or not np.isfinite(x).all():
        return 0.0
    if case.operator == "BatchNormalization":
        over: tuple[int, ...] = (0, *range(2, x.ndim))
    elif case.operator in ("LayerNormalization", "RMSNormalization"):
        over = tuple(range(case.get("axis", -1) % x.ndim, x.ndim))
    elif case.operator == "GroupNormalization":
        x, over = x.reshape(x.shape[0], case.attributes["num_groups"], -1), (2,)
    elif case.operator == "MeanVarianceNormalization":
        over = tuple(case.get("axes", [0, 2, 3]))
    else:
        over = tuple(range(2, x.ndim))
    if not over:
        return 0.0
    mean, std = np.abs(x.mean(over)), x.std(over)
    far = float(np.divide(mean, std, out=np.zeros_like(mean), where=std > 0).max())
    return far if far > MIN_OFFSET else 0.0
