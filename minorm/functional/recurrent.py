"""RNN, LSTM and GRU as functions. Not public: the layers of minorm.nn.recurrent call them.

The arguments are PyTorch's, with two exceptions: one tensor holds the weights of all directions, as in ONNX, and one
tensor holds both biases.

    x            (steps, batch, in); (batch, steps, in) with batch_first
    hx           the first state (directions, batch, hidden), or None for zeros; for an LSTM a pair (h, c)
    weight_ih    (directions, gates * hidden, in)         weight_hh    (directions, gates * hidden, hidden)
    bias         (directions, 2 * gates * hidden), first the bias of weight_ih @ x, then the bias of weight_hh @ h
    direction    "forward", "reverse", or "bidirectional", which means two directions
    lengths      (batch,) integers: the number of steps of each sequence; y is 0 after these steps
    gates        the order of the gates' rows in the weights: PyTorch's by default
    activations  one Gate for each kind of gate in each direction; None means sigmoid and tanh
    clip         every pre-activation is limited to the range from -clip to clip

The functions return y and the last state. y (steps, directions, batch, hidden) holds the state after each step; the
last state has hx's shape. With batch_first (ONNX calls it layout 1) y is (batch, steps, directions, hidden), and a
state is (batch, directions, hidden).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minorm.devices import dtypes
from minorm.functional.arguments import floats, number
from minorm.graph import trace
from minorm.kernels.reference.gates import DEFAULTS, Gate
from minorm.ops import recurrent as ops
from minorm.tensor.tensor import Tensor

SIGMOID, TANH = Gate("Sigmoid"), Gate("Tanh")
Gates = Sequence[Sequence[Gate]] | None
Pair = tuple[Tensor | None, Tensor | None]


@trace.operation
def rnn(
    x: Tensor,
    hx: Tensor | None,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias: Tensor | None = None,
    *,
    direction: str = "forward",
    lengths: Tensor | None = None,
    batch_first: bool = False,
    activations: Gates = None,
    clip: float | None = None,
) -> tuple[Tensor, Tensor]:
    """h' = tanh(W x + R h + b) at each step, where W, R and b stand for weight_ih, weight_hh and bias. Returns y and
    the last h. The module's docstring describes the arguments.
    """
    y, h = _run(
        "rnn", ops.RNN, (x, hx, weight_ih, weight_hh, bias), direction=direction, lengths=lengths, gates="h",
        batch_first=batch_first, activations=activations, usual=(TANH,), clip=clip, variant=False,
    )  # fmt: skip
    return y, h


@trace.operation
def gru(
    x: Tensor,
    hx: Tensor | None,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias: Tensor | None = None,
    *,
    direction: str = "forward",
    lengths: Tensor | None = None,
    batch_first: bool = False,
    activations: Gates = None,
    clip: float | None = None,
    reset_after: bool = True,
    gates: str = "rzn",
) -> tuple[Tensor, Tensor]:
    """z, r = sigmoid(W x + R h + b); n = tanh(W x + r * (R h + b) + b); h' = (1 - z) n + z h. Returns y and the last h.

    W, R and b stand for the rows of weight_ih, weight_hh and bias that belong to z, r or n. reset_after=False computes
    n = tanh(W x + R (r * h) + b) instead. gates is "rzn" or "zrn". The module's docstring describes the other
    arguments. Source: Cho et al. 2014, arXiv:1406.1078.
    """
    y, h = _run(
        "gru", ops.GRU, (x, hx, weight_ih, weight_hh, bias), direction=direction, lengths=lengths, gates=gates,
        batch_first=batch_first, activations=activations, usual=(SIGMOID, TANH), clip=clip, variant=reset_after,
    )  # fmt: skip
    return y, h


@trace.operation
def lstm(
    x: Tensor,
    hx: Pair | None,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias: Tensor | None = None,
    *,
    direction: str = "forward",
    lengths: Tensor | None = None,
    batch_first: bool = False,
    activations: Gates = None,
    clip: float | None = None,
    peephole: Tensor | None = None,
    input_forget: bool = False,
    gates: str = "ifgo",
) -> tuple[Tensor, Tensor, Tensor]:
    """i, f, o = sigmoid(W x + R h + b); g = tanh(W x + R h + b); c' = f c + i g; h' = o tanh(c').

    Returns y and the last h and c. W, R and b stand for the rows of weight_ih, weight_hh and bias that belong to the
    gate. input_forget=True sets f = 1 - i. peephole is (directions, 3 * hidden) and holds vectors p_i, p_o and p_f: p_i
    * c, p_f * c and p_o * c' are added before the sigmoid of i, f and o. gates gives the order of the rows with the
    letters i, f, g and o. The module's docstring describes the other arguments. Source: Hochreiter and Schmidhuber
    1997.
    """
    h, c = (None, None) if hx is None else hx
    y, h, c = _run(
        "lstm", ops.LSTM, (x, h, weight_ih, weight_hh, bias, c, peephole), direction=direction, lengths=lengths,
        gates=gates, batch_first=batch_first, activations=activations, usual=(SIGMOID, TANH, TANH), clip=clip,
        variant=input_forget,
    )  # fmt: skip
    return y, h, c


def _run(
    name: str,
    cell: type[ops.Recurrent],
    tensors: Sequence[Any],
    *,
    direction: str,
    lengths: Tensor | None,
    gates: str,
    batch_first: bool,
    activations: Gates,
    usual: tuple[Gate, ...],
    clip: float | None,
    variant: bool,
) -> tuple[Tensor, ...]:
    x, h, w, r, b, *rest = tensors
    c, p = rest or (None, None)
    _check_tensors(name, "ifgo" if cell is ops.LSTM else gates, direction, batch_first, x, h, w, r, b, c, p)
    if set(gates) != set({"lstm": "ifgo", "gru": "zrn"}.get(name, "h")) or (name == "gru" and gates[-1] != "n"):
        orders = "the letters of 'ifgo' in some order" if name == "lstm" else "'rzn' or 'zrn'"
        raise ValueError(f"{name}: gates is {gates!r}; expected {orders}")
    if clip is not None:
        number(name, "clip", clip)
        if not clip > 0:
            raise ValueError(f"{name}: clip is {clip}; expected a number above 0, or None")
    directions = w.shape[0]
    chosen = _gates_of(name, activations, usual, directions)
    if batch_first:
        x, h, c = (None if a is None else a.transpose(0, 1) for a in (x, h, c))
    counts = None if lengths is None else _lengths_of(name, lengths, x)
    own = (x, w, r, b, h, c, p) if cell is ops.LSTM else (x, w, r, b, h)
    y, *states = cell.apply(
        *own, gates=gates, activations=chosen, clip=clip, direction=direction, lengths=counts, variant=variant
    )
    if batch_first:
        return y.permute(2, 0, 1, 3), *(state.transpose(0, 1) for state in states)
    return y, *states


def _check_tensors(
    name: str, gates: str, direction: str, batch_first: bool, x: Any, h: Any, w: Any, r: Any, b: Any, c: Any, p: Any
) -> None:
    optional = ("hx", "c", "bias", "peephole")
    floats(name, optional, x=x, hx=h, weight_ih=w, weight_hh=r, bias=b, c=c, peephole=p)
    if direction not in ("forward", "reverse", "bidirectional"):
        raise ValueError(f"{name}: direction is {direction!r}; expected 'forward', 'reverse' or 'bidirectional'")
    directions = 2 if direction == "bidirectional" else 1
    if x.ndim != 3:
        order = "(batch, steps, in)" if batch_first else "(steps, batch, in)"
        raise ValueError(f"{name}: x has shape {x.shape}; expected 3 dimensions {order}")
    if w.ndim != 3 or r.ndim != 3:
        raise ValueError(
            f"{name}: weight_ih has shape {w.shape}, weight_hh {r.shape}; expected (directions, gates * hidden, in) "
            "and (directions, gates * hidden, hidden)"
        )
    hidden, count, batch = r.shape[2], len(gates), x.shape[0 if batch_first else 1]
    state = (batch, directions, hidden) if batch_first else (directions, batch, hidden)
    for given, a, shape in (
        ("weight_ih", w, (directions, count * hidden, x.shape[2])),
        ("weight_hh", r, (directions, count * hidden, hidden)),
        ("bias", b, (directions, 2 * count * hidden)),
        ("hx", h, state),
        ("c", c, state),
        ("peephole", p, (directions, 3 * hidden)),
    ):
        if a is not None and a.shape != shape:
            raise ValueError(
                f"{name}: {given} has shape {a.shape}; expected {shape}, for x {x.shape}, {hidden} hidden units and "
                f"direction {direction!r}"
            )


def _gates_of(name: str, given: Gates, usual: tuple[Gate, ...], directions: int) -> Sequence[Sequence[Gate]]:
    chosen = [usual] * directions if given is None else given
    if len(chosen) != directions or any(len(gates) != len(usual) for gates in chosen):
        raise ValueError(
            f"{name}: activations is {given}; expected {len(usual)} function(s) for each of {directions} direction(s)"
        )
    for gate in (gate for gates in chosen for gate in gates):
        if gate.name not in DEFAULTS:
            raise ValueError(f"{name}: activation {gate.name!r} is unknown; expected one of {', '.join(DEFAULTS)}")
    return chosen


def _lengths_of(name: str, lengths: Tensor, x: Tensor) -> Any:
    """Check `lengths`, and return `lengths` as a NumPy array."""
    if dtypes.is_float(lengths.dtype) or lengths.dtype == dtypes.bool or lengths.shape != x.shape[1:2]:
        raise ValueError(
            f"{name}: lengths is {lengths.dtype} of shape {lengths.shape}; expected integers, one for each of "
            f"{x.shape[1]} sequences"
        )
    counts = lengths.cpu().array.astype("int64")
    if ((counts < 0) | (counts > x.shape[0])).any():
        raise ValueError(f"{name}: lengths are {counts.tolist()[:8]}; expected 0 to {x.shape[0]}, the steps of x")
    return counts
