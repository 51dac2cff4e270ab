"""Loop and Scan: run a graph several times; each turn reads results of the turn before.

    Loop    v = body(i, condition, v) while i < M and the condition holds
    Scan    v = body(v, x[i]) for all i

The other results of the turns are collected and stacked at the end. A turn returns a condition, which counts even if
the node has no condition input; ONNX would ignore the condition then, but onnxruntime does not. In Scan 8, the first
axis is a batch, whose sequences may have different lengths. From 9 on, Scan has axes and directions instead. A reader
in this file returns a function. Its first argument, `turn`, runs the body, and its other arguments are the node's
inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import Any

import numpy as np

from minorm.devices import dtypes
from minorm.onnx.graph.errors import RuleNotApplicable
from minorm.onnx.graph.memory_budget import TURN
from minorm.onnx.graph.model_graph import Graph
from minorm.onnx.graph.reading import Node, integers
from minorm.onnx.graph.registry import lowers, reads
from minorm.onnx.graph.scope import Loop
from minorm.ops.operands import axis_of
from minorm.ops.shape import Unbind
from minorm.tensor.combining import pad, stack
from minorm.tensor.tensor import Tensor

Turn = Callable[..., list[Any]]
State = Sequence[Any]


def _counts(node: Node) -> Container[int]:
    """List the inputs that have no gradient: the trip count and the conditions."""
    last = None if node.body is None or node.enters else node.body.condition
    return (0, 1) if last is None else (0, 1, last)


def _lengths(node: Node) -> Container[int]:
    return range(node.body.before if node.body is not None else 0)


@reads("Loop", since=1, fixed=_counts)
def read_loop(node: Node) -> Callable[..., tuple[Any, ...]]:
    body = node.body
    assert body is not None
    endless = bool(np.all(node.constants.get(body.outputs[0], False)))  # no turn ends it

    def loop(turn: Turn, most: Tensor | None, condition: Tensor | None, *given: Any) -> tuple[Any, ...]:
        state: State = given
        limit = None if most is None else _single(most, "the trip count", "iu")
        goes_on = condition is None or bool(_single(condition, "the condition", "b"))
        if endless and goes_on and limit is not None:
            node.check_work(max(0, limit), TURN)
        collected: list[list[Tensor]] = [[] for _ in range(body.collected)]
        i = 0
        while goes_on and (limit is None or i < limit):
            going, *results = _turn(turn, i, Tensor(np.array(i, np.int64)), Tensor(np.array(True)), *state)
            state = _handed_on(state, results[: body.carried], i)
            _collect(collected, results[body.carried :], i)
            goes_on = bool(_single(going, f"the condition after turn {i}", "b"))
            i += 1
        return (*state, *(_joined(node, k, pieces) for k, pieces in enumerate(collected)))

    return loop


@reads("Scan", since=9)
def read_scan(node: Node) -> Callable[..., tuple[Any, ...]]:
    body = node.body
    assert body is not None
    scanned = len(body.inputs) - body.carried
    axes, ends = (_listed(node, f"scan_{kind}_axes", n) for kind, n in (("input", scanned), ("output", body.collected)))
    backwards = _flags(node, "scan_input_directions", scanned)
    prepended = _flags(node, "scan_output_directions", body.collected)

    def scan(turn: Turn, *given: Any) -> tuple[Any, ...]:
        _check_tensors(given)
        sequences = given[body.carried :]
        places = [axis_of("Scan", axis, x) for axis, x in zip(axes, sequences, strict=True)]
        n = _length([x.shape[axis] for x, axis in zip(sequences, places, strict=True)])
        state, collected = _scanned(node, turn, given[: body.carried], sequences, places, backwards, n)
        results = [pieces[::-1] if first else pieces for pieces, first in zip(collected, prepended, strict=True)]
        return (*state, *(_joined(node, k, pieces, ends[k]) for k, pieces in enumerate(results)))

    return scan


@reads("Scan", since=8, fixed=_lengths)
def read_scan_8(node: Node) -> Callable[..., tuple[Any, ...]]:
    """Scan a batch whose sequence b has lengths[b] elements; later elements are not read, and are 0 in the results."""
    body = node.body
    assert body is not None
    scanned = len(body.inputs) - body.carried
    backwards = _flags(node, "directions", scanned)

    def scan(turn: Turn, lengths: Tensor | None, *given: Any) -> tuple[Any, ...]:
        _check_tensors(given)
        for place, x in enumerate(given):
            if x.ndim < (1 if place < body.carried else 2):
                raise ValueError(
                    f"input {place + 1} has shape {x.shape}; expected a first axis for the batch, and an axis for the "
                    "steps unless the input is a state"
                )
        batch = _length([len(x) for x in given], "batches")
        longest = _length([x.shape[1] for x in given[body.carried :]])
        node.check_work(batch, TURN)
        each = [longest] * batch if lengths is None else integers(lengths, "sequence_lens", batch)
        if len(each) != batch or not all(0 <= n <= longest for n in each):
            raise ValueError(f"sequence_lens is {each}; expected {batch} lengths of at most {longest}")
        finals: list[list[Tensor]] = [[] for _ in range(body.carried)]
        collected: list[list[Tensor]] = [[] for _ in range(body.collected)]
        for b, n in enumerate(each):
            values = [x[b] for x in given]
            sequences = values[body.carried :]
            state, found = _scanned(node, turn, values[: body.carried], sequences, [0] * scanned, backwards, n)
            rows = [_joined(node, k, pieces) for k, pieces in enumerate(found)]
            _collect(finals, state, b)
            _collect(collected, [_longer(row, longest) for row in rows], b)
        return tuple(_joined(node, k - body.carried, rows) for k, rows in enumerate((*finals, *collected)))

    return scan


@lowers(Loop)
def write_loop(g: Graph) -> None:
    raise RuleNotApplicable("the number of turns depends on the input; export(loaded, None) keeps the Loop as it is")


def _scanned(
    node: Node, turn: Turn, state: State, sequences: Sequence[Tensor], axes: list[int], backwards: list[bool], n: int
) -> tuple[State, list[list[Tensor]]]:
    """Run n turns; each turn reads one element of every sequence, along the sequence's axis in `axes`.

    Return the last state and the collected results.
    """
    body = node.body
    assert body is not None
    node.check_work(n, TURN)
    collected: list[list[Tensor]] = [[] for _ in range(body.collected)]
    for x in sequences if n else ():
        node.fits(x.shape, x.dtype)
    rows = [Unbind.apply(x, axis=axis)[:n] if n else () for x, axis in zip(sequences, axes, strict=True)]
    rows = [elements[::-1] if back else elements for elements, back in zip(rows, backwards, strict=True)]
    for i in range(n):
        results = _turn(turn, i, *state, *(elements[i] for elements in rows))
        state = _handed_on(state, results[: body.carried], i)
        _collect(collected, results[body.carried :], i)
    return state, collected


def _turn(turn: Turn, i: int, *inputs: Any) -> list[Any]:
    try:
        return turn(*inputs)
    except MemoryError as error:
        raise MemoryError(f"turn {i}: {error}") from error
    except ValueError as error:
        raise ValueError(f"turn {i}: {error}") from error


def _handed_on(before: State, after: State, i: int) -> State:
    """Return the new state of turn `i`, which must have the types of the old state."""
    for place, (old, new) in enumerate(zip(before, after, strict=True)):
        if _type(old) != _type(new):
            raise ValueError(
                f"turn {i}: carried value {place} was {_type(old)} before this turn, but {_type(new)} after it; "
                "expected one type"
            )
    return after


def _type(value: Any) -> str:
    return "absent" if value is None else "a sequence" if isinstance(value, list) else str(value.dtype)


def _collect(collected: list[list[Tensor]], results: State, i: int) -> None:
    for place, (pieces, piece) in enumerate(zip(collected, results, strict=True)):
        if not isinstance(piece, Tensor):
            raise ValueError(f"turn {i}: collected value {place} is {_type(piece)}; expected a Tensor")
        if pieces and (piece.shape, piece.dtype) != (pieces[0].shape, pieces[0].dtype):
            raise ValueError(
                f"turn {i}: collected value {place} is {piece.dtype} of shape {piece.shape}, but was "
                f"{pieces[0].dtype} of shape {pieces[0].shape} in the first turn; expected one type and shape in all "
                "turns"
            )
        pieces.append(piece)


def _joined(node: Node, place: int, pieces: list[Tensor], axis: int = 0) -> Tensor:
    """Stack the pieces along a new axis; if no turn ran, make an empty Tensor of the shape that the file declares."""
    body = node.body
    assert body is not None
    if not pieces:
        dtype, shape = body.declared[body.heads[1] + body.carried + place]
        empty = list(shape)
        empty.insert(axis if axis >= 0 else len(shape) + 1 + axis, 0)
        node.fits(empty, dtype or dtypes.float32)
        return Tensor(np.zeros(empty, dtype or dtypes.float32))
    if not -pieces[0].ndim - 1 <= axis <= pieces[0].ndim:
        raise ValueError(f"scan_output_axes holds {axis}; the collected results have {pieces[0].ndim + 1} axes")
    node.fits((len(pieces), *pieces[0].shape), pieces[0].dtype)
    return stack(pieces, axis)


def _longer(row: Tensor, n: int) -> Tensor:
    """Append zeros to a sequence until it has n elements."""
    return pad(row, [0, 0] * (row.ndim - 1) + [0, n - len(row)]) if len(row) < n else row


def _check_tensors(given: State) -> None:
    for place, x in enumerate(given):
        if not isinstance(x, Tensor):
            raise ValueError(f"input {place} is {_type(x)}; expected a Tensor")


def _single(x: Tensor, what: str, kinds: str) -> int:
    if not isinstance(x, Tensor) or x.numel() != 1 or x.dtype.kind not in kinds:
        found = f"{x.dtype} of shape {x.shape}" if isinstance(x, Tensor) else _type(x)
        raise ValueError(f"{what} is {found}; expected one {'bool' if kinds == 'b' else 'whole number'}")
    return int(x.item())


def _length(found: list[int], what: str = "elements") -> int:
    if len(set(found)) != 1:
        raise ValueError(f"the sequences have {found} {what}; expected equal numbers")
    return found[0]


def _listed(node: Node, name: str, n: int) -> list[int]:
    """Return the attribute's numbers for n sequences; all are 0 if the attribute is left out."""
    given = node[name]
    if given is None:
        return [0] * n
    if len(given) != n:
        raise ValueError(f"{name} is {given}; expected {n} numbers")
    return list(given)


def _flags(node: Node, name: str, n: int) -> list[bool]:
    given = _listed(node, name, n)
    if not set(given) <= {0, 1}:
        raise ValueError(f"{name} is {given}; expected only 0 (forwards) and 1 (backwards)")
    return [bool(flag) for flag in given]
