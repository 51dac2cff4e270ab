"""Expand operators into others: instead of a node with such an operator, `load` reads several equivalent nodes.

Most of these operators are in com.microsoft, the domain of onnxruntime. onnxruntime writes these operators when it
optimizes or quantizes a file. An expansion is a function of a model, in the text form that the onnx package parses:

    @expands("com.microsoft", "BiasGelu (A, B) => (C)")
    def bias_gelu(call: Call) -> str:
        return "s = Add(A, B)  C = Gelu(s)"

The head lists attributes with their defaults, inputs and outputs. A node in the text may name an attribute
(`@epsilon`). An input that a call leaves out is also absent in the nodes. The nodes have the opset OPSET. So `load`
finds weights, layers and training modes in the same way as in a file with these nodes. A file that is written back has
the original operator.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx.parser
from onnx import AttributeProto, helper

from minorm.onnx.graph.errors import LoadError

OPSET = 24


@dataclass(frozen=True)
class Call:
    """A node, with all facts that the rule of its expansion may need.

    inputs        True for each input that is present; `outputs` says the same about the outputs
    ranks         the number of axes of each input; None if the file does not fix this number
    elements      the element type of each input that is an input of the model or an initializer; 0 for other inputs
    sequences     True for each input that is certainly a sequence
    attributes    the attributes of the node, as Python values
    opset         the opset of the operator's domain
    opsets        the opsets of all domains of the model
    """

    inputs: tuple[bool, ...]
    outputs: tuple[bool, ...]
    ranks: tuple[int | None, ...]
    elements: tuple[int, ...]
    sequences: tuple[bool, ...]
    attributes: dict[str, Any]
    opset: int
    opsets: Mapping[str, int]

    def has(self, place: int) -> bool:
        """Return whether input `place` is present."""
        return place < len(self.inputs) and self.inputs[place]

    def wants(self, place: int) -> bool:
        """Return whether the node names output `place`."""
        return place < len(self.outputs) and self.outputs[place]

    def rank(self, place: int) -> int | None:
        """Return the number of axes of input `place`; None if the file does not fix this number."""
        return self.ranks[place] if place < len(self.ranks) else None

    def get(self, name: str, default: Any) -> Any:
        """Return an attribute, or the default."""
        return self.attributes.get(name, default)


Rule = Callable[[Call], Any]  # a rule may also return the FunctionProto itself

EXPANSIONS: dict[tuple[str, str], tuple[str | Callable[[Call], str], Rule]] = {}  # by domain and operator


def expands(domain: str, head: str | Callable[[Call], str]) -> Callable[[Rule], Rule]:
    """Register the rule that expands an operator.

    `head` is a text that begins with the operator's name, or a function that returns such a text. If `head` is a
    function, the rule has the name of the operator.
    """

    def add(rule: Rule) -> Rule:
        name = rule.__name__ if callable(head) else head.split()[0]
        EXPANSIONS[domain, name] = head, rule
        return rule

    return add


def function(domain: str, operator: str, call: Call) -> Any:
    """Return the FunctionProto for a node of EXPANSIONS; None if the node is not expanded.

    Raise LoadError if minorm does not read this form of the node.
    """
    head, rule = EXPANSIONS[domain, operator]
    try:
        body = rule(call)
        if not body or not isinstance(body, str):
            return body or None
        written = head(call) if callable(head) else head
        return parsed(f'<domain: "{domain}", opset_import: ["" : {OPSET}]>\n{written}\n{{\n{body}\n}}')
    except LoadError:
        raise
    except (IndexError, KeyError, TypeError, ValueError, onnx.parser.ParseError) as error:
        raise refuse(operator, f"the arguments of this node ({error})") from error


@functools.lru_cache(maxsize=256)
def parsed(text: str) -> Any:
    """Parse a function from the onnx package's text form."""
    return onnx.parser.parse_function(text)


def number(name: str, value: float, like: str) -> str:
    """Write a constant in the float type of the value `like`."""
    return f"{name}_32 = Constant <value_float: float = {float(value)!r}> ()  {name} = CastLike({name}_32, {like})\n"


def integers(name: str, values: Sequence[int]) -> str:
    """Write a one-dimensional constant of int64."""
    return f"{name} = Constant <value_ints: ints = [{', '.join(map(str, values))}]> ()\n"


def refuse(operator: str, why: str) -> LoadError:
    """Return the error for a form of an operator that minorm does not read."""
    return LoadError(f"load: minorm does not run {operator} with {why}")


def _text(value: Any) -> Any:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def attribute_values(attributes: dict[str, Any]) -> dict[str, Any]:
    """Convert AttributeProtos to Python values; graphs and tensors stay unchanged."""
    found = {}
    for name, attribute in attributes.items():
        value = helper.get_attribute_value(attribute) if attribute.type != AttributeProto.UNDEFINED else None
        found[name] = [_text(part) for part in value] if isinstance(value, list) else _text(value)
    return found
