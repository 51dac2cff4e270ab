"""Convert a node from one version of its operator to the next, by the operator's rule or by the general rule.

Most steps between neighbouring versions add element types or clearer words. The general rule compares the schemas. It
handles such steps, and steps that add attributes whose default is the older behaviour. In the second case, a step up
changes nothing, and a step down is possible if the attribute is missing or has the default. An operator that kept its
signature but changed its meaning has a separate rule.
"""

from __future__ import annotations

import functools
from typing import Any

import onnx
from onnx import TensorProto, helper
from onnx.defs import OpSchema

from minorm.onnx.graph.errors import RuleNotApplicable
from minorm.onnx.graph.node_rewriter import HALVES, Kind, NodeRewriter, type_of
from minorm.onnx.graph.registry import CONVERTERS
from minorm.onnx.operators import rules  # noqa: F401  registers the rules

OPTIONAL = OpSchema.FormalParameterOption.Optional
VARIADIC = OpSchema.FormalParameterOption.Variadic

# Attributes that mean nothing at versions that lack them: a hint for old runtimes; the rounding of 8-bit floats (those
# versions do not take 8-bit floats); the order of indices (MaxPool 1 does not return indices).
MEANINGLESS = {"consumed_inputs", "saturate", "round_mode", "storage_order"}

# Operator -> the attribute with axes; these may be negative from version 11 on, and not before.
_REDUCE = [f"Reduce{x}" for x in ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")]
NEGATIVE = {
    **dict.fromkeys(("ArgMax", "ArgMin", "Concat", "Flatten", "Hardmax", "LogSoftmax", "Softmax", "Split"), "axis"),
    **dict.fromkeys((*_REDUCE, "Squeeze", "Unsqueeze"), "axes"),
    "Compress": "axis",
}

# Steps, up and down, that change the meaning and have no rule.
CHANGED = {
    ("Scan", 8, 9): "version 8 has a batch axis, later ones have none",
    ("Scan", 9, 8): "version 8 has a batch axis, later ones have none",
    ("OptionalHasElement", 18, 15): "version 15 accepts only optional values",
    ("OptionalGetElement", 18, 15): "version 15 accepts only optional values",
}


@functools.cache
def _schemas() -> dict[str, dict[int, Any]]:
    found: dict[str, dict[int, Any]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain == "":
            found.setdefault(schema.name, {})[schema.since_version] = schema
    return {name: dict(sorted(versions.items())) for name, versions in found.items()}


def published(operator: str) -> dict[int, Any]:
    """Return the schemas of an operator of ONNX's own domain, by opset, in ascending order.

    The opset of a schema is the opset that introduced the schema.
    """
    return _schemas().get(operator, {})


def since(operator: str, opset: int) -> int:
    """Return the version that an operator has at an opset; 0 if the operator does not exist yet."""
    return max((version for version in published(operator) if version <= opset), default=0)


def walk(d: NodeRewriter) -> None:
    """Convert a node to its target version, step by step; raise RuleNotApplicable if a step is not possible."""
    start, given = (d.node.op_type, d.since), list(d.node.input)
    while d.node.input and not d.node.input[-1]:
        d.node.input.pop()  # an empty name at the end is an absent input
    named = list(d.node.input)
    while d.node is not None:
        operator = d.node.op_type
        goal = since(operator, d.opset)
        if goal == d.since:
            break
        ladder = [0, *published(operator)]
        place = ladder.index(d.since)
        d.schema = published(operator)[d.since]
        if operator in CONVERTERS and goal:
            d.goal = goal
            CONVERTERS[operator](d)
            d.since = goal
            continue
        d.goal = ladder[place + 1 if goal > d.since else place - 1]
        old = d.since
        d.since = d.goal
        step(d, operator, old, d.goal)
    if d.node is not None and (d.node.op_type, d.since) != start:
        d.schema = published(d.node.op_type)[d.since]
        fit_types(d)
        if d.node.op_type == start[0] and list(d.node.input) == named and len(given) <= d.schema.max_input:
            d.node.input.extend(given[len(named) :])  # with the empty names that it had


def step(d: NodeRewriter, operator: str, old: int, new: int) -> None:
    """Convert a node from version `old` of its operator to version `new`, by a rule or else by `general`.

    A rule that changes `d.node.op_type` sets `d.since` to the version of the new operator.
    """
    name = NEGATIVE.get(operator)
    if name is not None and new and new < 11 <= old:
        _count_from_the_front(d, name)
    rule = CONVERTERS.get((operator, old, new))
    if rule is not None:
        rule(d)
    elif new == 0:
        raise RuleNotApplicable(f"it exists from opset {min(published(operator))} on")
    elif (operator, old, new) in CHANGED:
        raise RuleNotApplicable(CHANGED[operator, old, new])
    else:
        general(d, published(operator)[old], published(operator)[new])


def _count_from_the_front(d: NodeRewriter, name: str) -> None:
    """Make the negative axes in the attribute `name` positive."""
    if not d.has(name):
        return
    value = d.get(name)
    numbers = value if isinstance(value, list) else [value]
    if all(n >= 0 for n in numbers):
        return
    rank = d.rank(d.input(0)) + (len(numbers) if d.node.op_type == "Unsqueeze" else 0)
    counted = [n + rank if n < 0 else n for n in numbers]
    d.set(name, counted if isinstance(value, list) else counted[0])


# The general rule


def general(d: NodeRewriter, old: Any, new: Any) -> None:
    """Convert a node by the general rule, which compares the schemas `old` and `new`.

    The rule can convert a node if the versions differ in types, or in features that the node does not use.
    """
    version = f"version {new.since_version}"
    for attribute in list(d.node.attribute):
        name = attribute.name
        if name in new.attributes:
            continue
        if name not in MEANINGLESS:
            value = d.get(name)
            default = _default(old, name)
            if value != default and not (name == "dilations" and set(value) <= {1}):
                raise RuleNotApplicable(f"{version} has no attribute {name}, but the node sets it to {value!r:.60}")
        d.drop(name)
    for name, attribute in new.attributes.items():
        if d.has(name) or name not in old.attributes:
            if attribute.required and not d.has(name):
                raise RuleNotApplicable(f"{version} needs the attribute {name}")
            continue
        before = _default(old, name)
        if before is not None and before != _default(new, name):
            d.set(name, before)
        elif attribute.required:
            raise RuleNotApplicable(f"{version} needs the attribute {name}")
    _fit_inputs(d, new, version)
    _fit_outputs(d, new, version)


def _default(schema: Any, name: str) -> Any:
    given = schema.attributes[name].default_value if name in schema.attributes else None
    if given is None or not given.type:
        return None
    value = helper.get_attribute_value(given)
    return value.decode() if isinstance(value, bytes) else value


def _fit_inputs(d: NodeRewriter, new: Any, version: str) -> None:
    names = list(d.node.input)
    while names and not names[-1]:
        names.pop()
    if not new.min_input <= len(names) <= new.max_input:
        raise RuleNotApplicable(f"{version} takes {new.min_input} to {new.max_input} inputs, not {len(names)}")
    for place, name in enumerate(names):
        if not name and new.inputs[min(place, len(new.inputs) - 1)].option != OPTIONAL:
            raise RuleNotApplicable(f"{version} needs input {place}")


def _fit_outputs(d: NodeRewriter, new: Any, version: str) -> None:
    while len(d.node.output) > new.max_output:
        name = d.node.output[-1]
        if name in d.values.read:
            raise RuleNotApplicable(
                f"{version} has no output {len(d.node.output) - 1}, but the model reads this output as {name!r}"
            )
        d.node.output.pop()


# Types


def fit_types(d: NodeRewriter) -> None:
    """If the version lacks 16-bit floats, compute in float32: cast the inputs to float32, and the results back.

    Raise RuleNotApplicable if the node has another type that this version of the operator lacks.
    """
    bad = [*_misfits(d, d.node.input, d.schema.inputs), *_misfits(d, d.node.output, d.schema.outputs)]
    if not bad:
        return
    name, elem = bad[0]
    floats = {TensorProto.FLOAT, *HALVES}
    inputs = [d.kind(name).elem for name in d.node.input if name]
    if any(e not in floats for _, e in bad) or d.node.op_type == "Cast" or not set(HALVES) & set(inputs):
        raise RuleNotApplicable(f"version {d.since} does not take {type_of(elem)} ({name!r}) here")
    for place, name in enumerate(d.node.input):
        if name and d.kind(name).elem in HALVES:
            d.feed(place, d.emit("Cast", name, elem=TensorProto.FLOAT))
    for place, name in enumerate(d.node.output):
        if name and d.kind(name).elem in HALVES:
            kind = d.kind(name)
            inner = d.divert(place, Kind(TensorProto.FLOAT, kind.shape))
            d.after("Cast", inner, to=name, elem=kind.elem)
    still = [*_misfits(d, d.node.input, d.schema.inputs), *_misfits(d, d.node.output, d.schema.outputs)]
    if still:
        raise RuleNotApplicable(f"version {d.since} does not take {type_of(still[0][1])} ({still[0][0]!r}) here")


def _misfits(d: NodeRewriter, names: Any, formal: Any) -> list[tuple[str, int]]:
    """Return values whose type the version does not allow, and values whose types differ but must be equal."""
    bound: dict[str, int] = {}
    found = []
    for place, name in enumerate(names):
        elem = d.kind(name).elem if name else 0
        if not elem or not formal:
            continue
        parameter = formal[min(place, len(formal) - 1)]
        same = parameter.option != VARIADIC or parameter.is_homogeneous
        if type_of(elem) not in parameter.types or (same and bound.setdefault(parameter.type_str, elem) != elem):
            found.append((name, elem))
    return found
