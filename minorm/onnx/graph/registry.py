"""Register the rules that write calls as ONNX nodes, read nodes, convert them to other versions and set their mode.

A rule is registered with an operator and the first version of this operator that the rule applies to. The rule also
applies to later versions, until a version that has another rule. A rule without a version applies to all versions. The
rules that write and read an operator are in the same file, for old and new versions.

    @writes(F.batch_norm, "BatchNormalization", since=14)           # used from opset 14 on, for versions 14 and 15
    def write_14(g, x, running_mean, running_var, weight, bias, training, momentum, eps): ...

    @writes(F.batch_norm, "BatchNormalization", since=7)            # used at opset 7 to 13, for versions 7 and 9
    def write_7(g, x, ...): ...

    @lowers(F.batch_norm)                                           # tried after these two rules, at every opset
    def lower(g, x, ...): ...

    @reads("BatchNormalization", since=14, fixed=(3, 4))            # what the importer calls for such a node
    def read_14(node): ...

A tuple of versions means exactly these versions: a rule with since=(6,) does not apply to version 13, even if no other
rule applies to version 13.

A writing rule gets the graph and the call's arguments under the names of the function's parameters, with a `Value` for
each Tensor. The rule returns the Value of the call's result, or a tuple of Values. A rule that cannot write the call,
for example because ONNX cannot express an option, raises `RuleNotApplicable`. Then the writer tries the next rule:
first the rules of `writes` in their order, then the rules of `lowers`. If all rules raise `RuleNotApplicable`, the
writer writes the calls that were made inside this call.

A reading rule gets a `reading.Node` and returns the function or Module that computes the node. This function takes the
node's inputs as Tensors (None for an absent input) and returns a Tensor, or a tuple for several outputs. `fixed` lists
the inputs through which no gradient flows (Clip's bounds, Resize's scales; EVERY for all). An initializer that only
such inputs read stays a constant and does not become a Parameter.

A converting rule changes a node from one version of its operator to the next or the previous version, with the methods
in node_rewriter.py. Version 0 means that the operator did not exist yet.

    @converts("Clip", 6, 11)                                        # attributes become inputs
    @converts("Gelu", 20, 0)                                        # written in older operators
    @converts("BatchNormalization")                                 # one rule for all versions

Steps that change neither signature nor meaning need no rule (conversion/steps.py).

A mode rule changes a node to the form that the node's version has for training or for inference:

    @sets_mode("Dropout")                                           # at every version
    def mode(d, trains, updates, statistics): ...

If `updates` is True, the node must also compute new running statistics. `statistics` has the names of the present
statistics. The rule returns the names of the new running mean and variance, or () if the node does not compute them.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

import onnx

from minorm.onnx.graph import versions
from minorm.support.safe_names import printable

Rule = Callable[..., Any]
Since = int | tuple[int, ...] | None  # an int: from this version on; a tuple: exactly these; None: every version


class Every:
    """Stands for all inputs of a node."""

    def __contains__(self, place: object) -> bool:
        return True


EVERY = Every()
AnyRule = TypeVar("AnyRule", bound=Rule)


@dataclass(frozen=True)
class Writer:
    """A rule that writes calls of `target`.

    operator    the operator that the rule writes; None if the rule may write any operators
    since       the first version of the operator for which the rule is used, or a tuple with all versions
    """

    target: Any
    operator: str | None
    since: int | tuple[int, ...]
    rule: Rule

    def versions(self) -> tuple[int, ...]:
        """Return the versions of the operator that the rule applies to."""
        if self.operator is None:
            return ()
        return _covered(
            self.operator, self.since, [w.since for w in WRITERS[self.target] if w.operator == self.operator]
        )

    def fits(self, opset: int) -> bool:
        """Return whether the rule applies to the version of the operator that `opset` uses."""
        if self.operator is None:
            return True
        return versions.exists(self.operator, opset) and versions.resolve(self.operator, opset) in self.versions()


@dataclass(frozen=True)
class Reader:
    """A rule that reads nodes.

    fixed    the indices of the inputs through which no gradient flows, or a function that returns them for a node
    """

    rule: Rule
    fixed: Container[int] | Callable[[Any], Container[int]] = ()

    def fixed_inputs(self, node: Any) -> Container[int]:
        """Return the inputs of `node` through which no gradient flows."""
        return self.fixed(node) if callable(self.fixed) else self.fixed


WRITERS: dict[Any, list[Writer]] = {}
READERS: dict[tuple[str, int], Reader] = {}  # by operator and version
_READ: dict[str, dict[int | tuple[int, ...], Reader]] = {}  # by operator and `since`; READERS is made from it
CONVERTERS: dict[tuple[str, int, int] | str, Rule] = {}  # by operator, version before and after; or for all versions

MODES: dict[str, Rule] = {}  # by operator


def writes(target: Any, operator: str, since: Since = None) -> Callable[[AnyRule], AnyRule]:
    """Register a rule that writes calls of `target` as `operator`, from version `since` of the operator on."""
    return _register(target, operator, _checked(operator, since))


def lowers(target: Any) -> Callable[[AnyRule], AnyRule]:
    """Register a rule that writes calls of `target` with any operators that the opset has."""
    return _register(target, None, ())


def _register(target: Any, operator: str | None, since: int | tuple[int, ...]) -> Callable[[AnyRule], AnyRule]:
    def add(rule: AnyRule) -> AnyRule:
        WRITERS.setdefault(target, []).append(Writer(target, operator, since, rule))
        return rule

    return add


def reads(
    operator: str, since: Since = None, fixed: Container[int] | Callable[[Any], Container[int]] = ()
) -> Callable[[AnyRule], AnyRule]:
    """Register the rule that reads nodes of `operator`, from version `since` of the operator on."""
    begins, rules = _checked(operator, since), _READ.setdefault(operator, {})

    def add(rule: AnyRule) -> AnyRule:
        if begins in rules:
            raise ValueError(f"{operator} {begins} has a reader already: {rules[begins].rule.__name__}")
        rules[begins] = reader = Reader(rule, fixed)
        READERS.update({(operator, version): reader for version in _covered(operator, begins, rules)})
        return rule

    return add


def converts(operator: str, old: int | None = None, new: int = 0) -> Callable[[AnyRule], AnyRule]:
    """Register the rule that converts an operator from version `old` to version `new`.

    If `old` is None, the rule converts the operator between any two versions.
    """
    key = operator if old is None else (operator, old, new)
    if key in CONVERTERS:
        raise ValueError(f"{key} has a rule already: {CONVERTERS[key].__name__}")

    def add(rule: AnyRule) -> AnyRule:
        CONVERTERS[key] = rule
        return rule

    return add


def sets_mode(operator: str) -> Callable[[AnyRule], AnyRule]:
    """Register the rule that changes nodes of `operator` to their form for training or for inference."""

    def add(rule: AnyRule) -> AnyRule:
        MODES[operator] = rule
        return rule

    return add


def _checked(operator: str, since: Since) -> int | tuple[int, ...]:
    """Return `since`, or the first version if `since` is None; raise ValueError for an unpublished version."""
    published = versions.PUBLISHED.get(operator, ())
    since = published[0] if since is None and published else since
    unknown = set(since if isinstance(since, tuple) else (since,)) - set(published)
    if unknown or not since:
        raise ValueError(f"{operator}: {sorted(unknown, key=str)} are not since-versions of it; see graph/versions.py")
    return since


def _covered(operator: str, since: int | tuple[int, ...], rivals: Iterable[int | tuple[int, ...]]) -> tuple[int, ...]:
    """Return the versions that a rule applies to; `rivals` are the versions at which other rules begin."""
    if isinstance(since, tuple):
        return since
    later = min((begin for begin in rivals if isinstance(begin, int) and begin > since), default=versions.NEWEST + 1)
    return tuple(version for version in versions.PUBLISHED[operator] if since <= version < later)


def writers(target: Any, opset: int) -> list[Rule]:
    """Return the rules for a call of `target` at `opset`, in the order in which the writer tries them."""
    found = [writer for writer in WRITERS.get(target, ()) if writer.fits(opset)]
    return [w.rule for w in found if w.operator is not None] + [w.rule for w in found if w.operator is None]


def absent(target: Any, opset: int) -> list[str]:
    """Return a reason for each operator that could write a call of `target` only at a newer opset than `opset`."""
    found = [writer for writer in WRITERS.get(target, ()) if not writer.fits(opset)]
    return [f"it is {w.operator} of opset {w.versions()[0]} on; the model's opset is {opset}" for w in found]


def reader(operator: str, opset: int) -> Reader:
    """Return the reader of nodes of `operator` at `opset`; raise LookupError if there is no reader."""
    since = versions.resolve(operator, opset)
    if (operator, since) not in READERS:
        raise LookupError(f"minorm does not have version {since} of the operator {operator}")
    return READERS[operator, since]


def why_not(operator: str, domain: str, opset: int) -> str:
    """Return the reason why minorm does not read nodes of this operator; "" if minorm reads them."""
    if domain:
        return f"domain {domain!r} is not ONNX's own, and the file defines no such function"
    if not opset:
        return "the file does not give its opset"
    if not onnx.defs.has(operator):
        return f"ONNX does not have the operator {printable(operator)}"
    try:
        reader(operator, opset)
    except LookupError as error:
        return str(error.args[0])
    return ""
