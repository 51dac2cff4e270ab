"""Read and write RNN, LSTM and GRU.

From version 3 on, a GRU may apply the reset gate after the product. From 7 on, `activations` may be given without alpha
and beta. Version 7 also removed `output_sequence`, which said whether to compute Y (here Y is always computed). Version
14 added `layout`, which onnxruntime refuses on the CPU; version 22 added bfloat16. In ONNX, the rows of the gates are
in the order i o f c (minorm's "iofg") and z r h (minorm's "zrn"). Weights in PyTorch's order are written with a Gather
that reorders the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from minorm.devices import dtypes
from minorm.functional import recurrent as F
from minorm.onnx.graph.memory_budget import TURN
from minorm.onnx.graph.model_graph import Graph, Value
from minorm.onnx.graph.reading import Node
from minorm.onnx.graph.registry import reads, writes
from minorm.onnx.operators.shape.shape import transpose
from minorm.tensor.tensor import Tensor

ORDERS = {"LSTM": "iofg", "GRU": "zrn", "RNN": "h"}
KINDS = {"LSTM": 3, "GRU": 2, "RNN": 1}  # the number of activations for each direction
HELD = 11  # numbers per hidden unit that a step of an LSTM keeps for backward

Activations = Sequence[Sequence[F.Gate]] | None


# Readers


@reads("LSTM", since=1, fixed=(4,))
def read_lstm(node: Node) -> Callable[..., tuple[Tensor, ...]]:
    options, weigh = _options(node), _limits(node)
    input_forget = bool(node["input_forget"])

    def lstm(
        x: Tensor,
        w: Tensor,
        r: Tensor,
        b: Tensor | None = None,
        lengths: Tensor | None = None,
        h: Tensor | None = None,
        c: Tensor | None = None,
        p: Tensor | None = None,
    ) -> tuple[Tensor, ...]:
        weigh(x, w, r)
        return F.lstm(x, (h, c), w, r, b, lengths=lengths, peephole=p, input_forget=input_forget, **options)

    return lstm


@reads("GRU", since=1, fixed=(4,))
def read_gru(node: Node) -> Callable[..., tuple[Tensor, ...]]:
    options, weigh = _options(node), _limits(node)
    reset_after = bool(node.get("linear_before_reset"))

    def gru(
        x: Tensor,
        w: Tensor,
        r: Tensor,
        b: Tensor | None = None,
        lengths: Tensor | None = None,
        h: Tensor | None = None,
    ) -> tuple[Tensor, ...]:
        weigh(x, w, r)
        return F.gru(x, h, w, r, b, lengths=lengths, reset_after=reset_after, **options)

    return gru


@reads("RNN", since=1, fixed=(4,))
def read_rnn(node: Node) -> Callable[..., tuple[Tensor, ...]]:
    options, weigh = _options(node), _limits(node)
    options.pop("gates")

    def rnn(
        x: Tensor,
        w: Tensor,
        r: Tensor,
        b: Tensor | None = None,
        lengths: Tensor | None = None,
        h: Tensor | None = None,
    ) -> tuple[Tensor, ...]:
        weigh(x, w, r)
        return F.rnn(x, h, w, r, b, lengths=lengths, **options)

    return rnn


def _options(node: Node) -> dict[str, Any]:
    directions = 2 if node["direction"] == "bidirectional" else 1
    return {
        "direction": node["direction"],
        "batch_first": bool(node.get("layout")),
        "activations": _activations(node, directions),
        "clip": node["clip"],
        "gates": ORDERS[node.operator],
    }


def _activations(node: Node, directions: int) -> Activations:
    """Return the activations that the node names, with alpha and beta of each; None if the node names no activation."""
    names = node.attributes.get("activations")
    if not names:
        return None
    kinds = KINDS[node.operator]
    if len(names) != kinds * directions:
        raise ValueError(f"activations is {names}; expected {kinds} name(s) for each of {directions} direction(s)")
    known = {name.lower(): name for name in F.DEFAULTS}
    numbers = [list(node[name] or ()) for name in ("activation_alpha", "activation_beta")]
    gates = []
    for name in names:
        if name.lower() not in known:
            raise ValueError(f"activations holds {name!r}; expected {', '.join(F.DEFAULTS)}")
        defaults = F.DEFAULTS[known[name.lower()]]
        # The lists hold numbers for the activations that take a number, in order; missing numbers have their defaults.
        own = [given.pop(0) if given else usual for given, usual in zip(numbers, defaults, strict=False)]
        gates.append(F.Gate(known[name.lower()], *own))
    return [tuple(gates[d * kinds : (d + 1) * kinds]) for d in range(directions)]


def _limits(node: Node) -> Callable[[Tensor, Tensor, Tensor], None]:
    """Return a function that raises an error if a run would take too much memory or time.

    A step counts as TURN multiplications at least, because even a small step takes time.
    """
    batch_first, hidden = bool(node.get("layout")), node["hidden_size"]

    def weigh(x: Tensor, w: Tensor, r: Tensor) -> None:
        if x.ndim != 3 or w.ndim != 3 or r.ndim != 3:
            return  # the function itself raises the error
        if hidden is not None and hidden != r.shape[2]:
            raise ValueError(f"hidden_size is {hidden}, but R has shape {r.shape}; expected hidden_size == R.shape[2]")
        steps, batch = (x.shape[1], x.shape[0]) if batch_first else x.shape[:2]
        node.fits((steps, r.shape[0], batch, HELD * r.shape[2]), x.dtype)
        work = batch * r.shape[1] * (x.shape[2] + r.shape[2])
        node.check_work(steps, w.shape[0], max(work, TURN))

    return weigh


# Writers


@writes(F.lstm, "LSTM", since=7)
def write_lstm(
    g: Graph, x: Value, hx: Any, weight_ih: Value, weight_hh: Value, bias: Value | None,
    peephole: Value | None, input_forget: bool, **options: Any,
) -> tuple[Value, ...]:  # fmt: skip
    h, c = (None, None) if hx is None else hx
    extra = {"input_forget": 1 if input_forget else None}
    return _write(g, "LSTM", x, weight_ih, weight_hh, bias, (h, c), peephole, extra, **options)


@writes(F.gru, "GRU", since=7)
def write_gru(
    g: Graph, x: Value, hx: Value | None, weight_ih: Value, weight_hh: Value, bias: Value | None,
    reset_after: bool, **options: Any,
) -> tuple[Value, ...]:  # fmt: skip
    extra = {"linear_before_reset": 1 if reset_after else None}
    return _write(g, "GRU", x, weight_ih, weight_hh, bias, (hx,), None, extra, **options)


@writes(F.rnn, "RNN", since=7)
def write_rnn(
    g: Graph, x: Value, hx: Value | None, weight_ih: Value, weight_hh: Value, bias: Value | None, **options: Any
) -> tuple[Value, ...]:
    return _write(g, "RNN", x, weight_ih, weight_hh, bias, (hx,), None, {}, gates="h", **options)


def _write(
    g: Graph, operator: str, x: Value, w: Value, r: Value, b: Value | None, states: Sequence[Value | None],
    peephole: Value | None, extra: dict[str, Any], *, direction: str, lengths: Value | None, batch_first: bool,
    activations: Activations, clip: float | None, gates: str,
) -> tuple[Value, ...]:  # fmt: skip
    layout = batch_first and g.has(operator, 14)
    turned = batch_first and not layout
    if turned:
        x = transpose(g, x, (1, 0, 2))
        states = [None if s is None else transpose(g, s, (1, 0, 2)) for s in states]
    hidden = int(r.known_shape[2])
    if gates != ORDERS[operator]:
        wanted = ORDERS[operator]
        w, r = (_ordered(g, a, gates, wanted, hidden) for a in (w, r))
        b = None if b is None else _ordered(g, b, gates, wanted, hidden)
    steps, batch = x.known_shape[1 if layout else 0], x.known_shape[0 if layout else 1]
    directions = w.known_shape[0]
    state = (batch, directions, hidden) if layout else (directions, batch, hidden)
    all_states = (batch, steps, directions, hidden) if layout else (steps, directions, batch, hidden)
    names, alpha, beta = _named(activations)
    results = g.add(
        operator, x, w, r, b, None if lengths is None else g.cast(lengths, dtypes.int32), *states, peephole,
        outputs=1 + len(states), shape=(all_states, *[state] * len(states)), hidden_size=hidden, direction=direction,
        clip=clip, layout=1 if layout else None, activations=names, activation_alpha=alpha, activation_beta=beta,
        **extra,
    )  # fmt: skip
    if not turned:
        return tuple(results)
    y, *last = results
    return (transpose(g, y, (2, 0, 1, 3)), *(transpose(g, s, (1, 0, 2)) for s in last))


def _named(activations: Activations) -> tuple[list[str] | None, list[float] | None, list[float] | None]:
    """Return the attributes activations, activation_alpha and activation_beta."""
    if activations is None:
        return None, None, None
    gates = [F.Gate(*gate) for own in activations for gate in own]  # a trace passes plain tuples
    alpha = [gate.alpha for gate in gates if F.DEFAULTS[gate.name]]
    beta = [gate.beta for gate in gates if len(F.DEFAULTS[gate.name]) == 2]
    return [gate.name for gate in gates], alpha or None, beta or None


def _ordered(g: Graph, a: Value, order: str, wanted: str, hidden: int) -> Value:
    """Write weights or biases with the rows of their gates in another order."""
    blocks = np.arange(len(order) * hidden).reshape(len(order), hidden)
    places = blocks[[order.index(gate) for gate in wanted]].reshape(-1)
    if a.ndim == 2:  # both biases
        places = np.concatenate([places, places + len(places)])
    return g.add("Gather", a, g.constant(places, np.int64, "rows"), shape=a.known_shape, axis=1)
