"""RNN, LSTM and GRU against formulas for one sequence and one step at a time, PyTorch, and finite differences."""

from __future__ import annotations

import itertools
import re
from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm.functional import recurrent as F
from minorm.kernels.reference.gates import DEFAULTS, Gate
from minorm.testing import gradcheck

STEPS, BATCH, IN, HIDDEN = 4, 3, 2, 2
KINDS = {"rnn": 1, "gru": 3, "lstm": 4}
FUNCTIONS = {"rnn": F.rnn, "gru": F.gru, "lstm": F.lstm}


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def arrays(kind: str, directions: int, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    gates = KINDS[kind]
    return {
        "x": rng.normal(0, 0.7, (STEPS, BATCH, IN)),
        "h": rng.normal(0, 0.7, (directions, BATCH, HIDDEN)),
        "w": rng.normal(0, 0.7, (directions, gates * HIDDEN, IN)),
        "r": rng.normal(0, 0.7, (directions, gates * HIDDEN, HIDDEN)),
        "b": rng.normal(0, 0.7, (directions, 2 * gates * HIDDEN)),
        **({"c": rng.normal(0, 0.7, (directions, BATCH, HIDDEN))} if kind == "lstm" else {}),
    }


def one_step(kind: str, x: Any, h: Any, c: Any, w: Any, r: Any, b: Any, option: Any, p: Any, clip: float) -> Any:
    """One sequence, one step, gates in PyTorch's order; option: reset_after of the GRU, input_forget of the LSTM."""
    bw, br = np.split(b, 2)
    fx, fh = w @ x + bw, r @ h + br

    def cut(a: Any) -> Any:
        return np.clip(a, -clip, clip)

    if kind == "rnn":
        return np.tanh(cut(fx + fh)), c
    if kind == "gru":
        (xr, xz, xn), (hr, hz, hn) = np.split(fx, 3), np.split(fh, 3)
        reset, z = sigmoid(cut(xr + hr)), sigmoid(cut(xz + hz))
        n = np.tanh(cut(xn + reset * hn if option else xn + r[2 * HIDDEN :] @ (reset * h) + br[2 * HIDDEN :]))
        return (1 - z) * n + z * h, c
    i, f, g, o = np.split(fx + fh, 4)
    pi, po, pf = np.split(p, 3)
    i = sigmoid(cut(i + pi * c))
    f = 1 - i if option else sigmoid(cut(f + pf * c))
    c = f * c + i * np.tanh(cut(g))
    return sigmoid(cut(o + po * c)) * np.tanh(c), c


def expected(
    kind: str, a: dict[str, Any], backwards: list[bool], lengths: Any, option: Any, p: Any, clip: float
) -> Any:
    count = len(backwards)
    y = np.zeros((STEPS, count, BATCH, HIDDEN))
    last_h, last_c = np.zeros((2, count, BATCH, HIDDEN))
    for d, n in itertools.product(range(count), range(BATCH)):
        h, c = a["h"][d, n], a["c"][d, n] if kind == "lstm" else 0
        times = range(lengths[n])
        for t in times[::-1] if backwards[d] else times:
            h, c = one_step(kind, a["x"][t, n], h, c, a["w"][d], a["r"][d], a["b"][d], option, p[d], clip)
            y[t, d, n] = h
        if lengths[n]:
            last_h[d, n], last_c[d, n] = h, c
    return (y, last_h, last_c) if kind == "lstm" else (y, last_h)


OPTION = {"gru": "reset_after", "lstm": "input_forget"}
DIRECTIONS = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}


def called(kind: str, x: Any, h: Any, w: Any, r: Any, b: Any = None, c: Any = None, **options: Any) -> Any:
    return FUNCTIONS[kind](x, (h, c) if kind == "lstm" else h, w, r, b, **options)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lengths", [None, (2, 4, 1), (0, 3, 4)], ids=str)
def test_against_a_step_at_a_time(kind: str, direction: str, lengths: Any) -> None:
    """Values with every combination of options; finite differences with both directions and several lengths."""
    backwards = DIRECTIONS[direction]
    a = arrays(kind, len(backwards))
    p = np.random.default_rng(1).normal(size=(len(backwards), 3 * HIDDEN))
    for option, clip, peephole in itertools.product((False, True), (None, 0.6), (False, True)):
        if (kind != "lstm" and peephole) or (kind == "rnn" and option):
            continue
        options: dict[str, Any] = {"direction": direction, "clip": clip}
        if lengths is not None:
            options["lengths"] = mn.tensor(np.array(lengths, np.int32))
        if kind in OPTION:
            options[OPTION[kind]] = option
        weights = p if peephole else np.zeros_like(p)
        want = expected(kind, a, backwards, lengths or (STEPS,) * BATCH, option, weights, clip or 1e9)

        def run(
            x: Any, h: Any, w: Any, r: Any, b: Any, c: Any = None, p: Any = None, options: dict[str, Any] = options
        ) -> Any:
            return called(kind, x, h, w, r, b, c, **options, **({} if p is None else {"peephole": p}))

        given = [*a.values(), *([p] if peephole else [])]
        for got, formula in zip(run(*map(mn.tensor, given)), want, strict=True):
            np.testing.assert_allclose(got.array, formula, rtol=1e-12, atol=1e-12)
        if lengths == (2, 4, 1) and direction == "bidirectional" and peephole == (kind == "lstm"):
            gradcheck(run, *given)


@pytest.mark.parametrize("kind", KINDS)
def test_batch_first_turns_the_first_two_axes(kind: str) -> None:
    a = arrays(kind, 2)
    plain = called(kind, *map(mn.tensor, a.values()), direction="bidirectional")
    first = {k: v.transpose(1, 0, 2) if k in "xhc" else v for k, v in a.items()}
    y, *states = called(kind, *map(mn.tensor, first.values()), direction="bidirectional", batch_first=True)
    np.testing.assert_array_equal(y.array.transpose(1, 2, 0, 3), plain[0].array)
    for got, want in zip(states, plain[1:], strict=True):
        np.testing.assert_array_equal(got.array.transpose(1, 0, 2), want.array)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_left_out_is_zero(kind: str) -> None:
    a = arrays(kind, 1)
    x, w, r = (mn.tensor(a[name]) for name in "xwr")
    zeros = {name: mn.tensor(np.zeros_like(a[name])) for name in "hbc" if name in a}
    for got, want in zip(
        FUNCTIONS[kind](x, None, w, r), called(kind, x, zeros["h"], w, r, zeros["b"], zeros.get("c")), strict=True
    ):
        np.testing.assert_array_equal(got.array, want.array)


@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_the_order_of_the_gates(kind: str) -> None:
    """Rows of ONNX's order and rows of PyTorch's are the same layer."""
    ours, onnx = {"gru": ("rzn", "zrn"), "lstm": ("ifgo", "iofg")}[kind]
    a = arrays(kind, 1)
    blocks = np.arange(len(ours) * HIDDEN).reshape(len(ours), HIDDEN)
    rows = blocks[[ours.index(gate) for gate in onnx]].reshape(-1)
    moved = {**a, "w": a["w"][:, rows], "r": a["r"][:, rows], "b": a["b"][:, [*rows, *(rows + len(rows))]]}
    for got, want in zip(
        called(kind, *map(mn.tensor, moved.values()), gates=onnx),
        called(kind, *map(mn.tensor, a.values())),
        strict=True,
    ):
        np.testing.assert_allclose(got.array, want.array, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("name", DEFAULTS)
def test_any_activation_in_any_place(name: str) -> None:
    numbers = (0.7, 0.4)[: len(DEFAULTS[name])]
    gate = Gate(name, *numbers)
    a = arrays("lstm", 1, seed=3)
    gradcheck(lambda *given: called("lstm", *given, activations=[(gate, gate, gate)]), *a.values())
    gradcheck(lambda *given: called("rnn", *given, activations=[(gate,)], clip=0.9), *arrays("rnn", 1).values())


@pytest.mark.parametrize("both", [False, True], ids=["forward", "bidirectional"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(7, 3, 5, 6), (1, 1, 1, 1), (3, 2, 4, 9)], ids=str)
def test_against_pytorch(kind: str, both: bool, shape: Any) -> None:
    """Results and every gradient, padded sequences of several lengths included."""
    torch = pytest.importorskip("torch")
    steps, batch, inputs, hidden = shape
    torch.manual_seed(0)
    layer = getattr(torch.nn, kind.upper())(inputs, hidden, bidirectional=both).double()
    names = ["", "_reverse"][: 1 + both]
    rng = np.random.default_rng(2)
    lengths = np.sort(rng.integers(1, steps + 1, batch))[::-1].copy()
    lengths[0] = steps
    x = rng.normal(size=(steps, batch, inputs))
    states = [rng.normal(size=(1 + both, batch, hidden)) for _ in range(2 if kind == "lstm" else 1)]
    theirs = [torch.tensor(a, requires_grad=True) for a in (x, *states)]
    packed = torch.nn.utils.rnn.pack_padded_sequence(theirs[0], torch.tensor(lengths))
    y, last = layer(packed, tuple(theirs[1:]) if kind == "lstm" else theirs[1])
    results = [torch.nn.utils.rnn.pad_packed_sequence(y)[0], *(last if kind == "lstm" else (last,))]
    weights = [rng.normal(size=tuple(r.shape)) for r in results]
    sum((r * torch.tensor(g)).sum() for r, g in zip(results, weights, strict=True)).backward()

    def both_of(pattern: str, attribute: str | None = None) -> Any:
        found = [getattr(layer, pattern + name) for name in names]
        return np.stack([(p if attribute is None else p.grad).detach().numpy() for p in found])

    bias = np.concatenate([both_of("bias_ih_l0"), both_of("bias_hh_l0")], 1)
    given = [mn.Tensor(a, True) for a in (x, *states, both_of("weight_ih_l0"), both_of("weight_hh_l0"), bias)]
    hx = tuple(given[1:3]) if kind == "lstm" else given[1]
    ours = FUNCTIONS[kind](
        given[0], hx, *given[-3:], lengths=mn.tensor(lengths), direction="bidirectional" if both else "forward"
    )
    turned = [ours[0].permute(0, 2, 1, 3).reshape(steps, batch, -1), *ours[1:]]
    for got, want in zip(turned, results, strict=True):
        np.testing.assert_allclose(got.array, want.detach().numpy(), rtol=1e-12, atol=1e-12)
    total = mn.tensor(0.0, dtype=mn.float64)
    for result, weight in zip(turned, weights, strict=True):
        total = total + (result * weight).sum()
    total.backward()
    slopes = [*(t.grad.numpy() for t in theirs), both_of("weight_ih_l0", "grad"), both_of("weight_hh_l0", "grad")]
    slopes.append(np.concatenate([both_of("bias_ih_l0", "grad"), both_of("bias_hh_l0", "grad")], 1))
    for got, want in zip(given, slopes, strict=True):
        np.testing.assert_allclose(got.grad.array, want, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("dtype", [mn.float16, mn.bfloat16], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_narrow_floats_are_computed_in_float32(kind: str, dtype: Any) -> None:
    a = {name: array.astype(dtype) for name, array in arrays(kind, 1).items()}
    wide = called(kind, *(mn.tensor(array.astype(np.float32)) for array in a.values()))
    given = [mn.Tensor(array, True) for array in a.values()]
    narrow = called(kind, *given)
    for got, want in zip(narrow, wide, strict=True):
        assert got.dtype == dtype
        np.testing.assert_array_equal(got.array, want.array.astype(dtype))
    narrow[0].sum().backward()
    assert all(x.grad is None or x.grad.dtype == dtype for x in given)


def test_no_steps_and_no_sequences() -> None:
    for steps, batch in ((0, 2), (3, 0)):
        x = mn.Tensor(np.zeros((steps, batch, 4)), True)
        h, w, r = mn.Tensor(np.ones((1, batch, 2))), mn.Tensor(np.ones((1, 8, 4)), True), mn.Tensor(np.ones((1, 8, 2)))
        y, last, _ = F.lstm(x, (h, h), w, r)
        assert (y.shape, last.shape) == ((steps, 1, batch, 2), (1, batch, 2))
        np.testing.assert_array_equal(last.array, h.array)
        (y.sum() + last.sum()).backward()
        assert not w.grad.array.any()


def test_nothing_is_kept_without_gradients() -> None:
    a = {name: mn.tensor(array) for name, array in arrays("lstm", 1).items()}
    assert called("lstm", *a.values())[0].creator is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": (4, 3)}, "lstm: x has shape (4, 3); expected 3 dimensions (steps, batch, in)"),
        ({"w": (1, 8, 6)}, "lstm: weight_ih has shape (1, 8, 6); expected (1, 8, 2), for x (4, 3, 2), 2 hidden units"),
        ({"w": (8, 2)}, "lstm: weight_ih has shape (8, 2), weight_hh (1, 8, 2); expected (directions, gates * hidden"),
        ({"r": (2, 8, 2)}, "lstm: weight_hh has shape (2, 8, 2); expected (1, 8, 2)"),
        ({"b": (1, 8)}, "lstm: bias has shape (1, 8); expected (1, 16)"),
        ({"h": (1, 2, 2)}, "lstm: hx has shape (1, 2, 2); expected (1, 3, 2)"),
        ({"peephole": (1, 4)}, "lstm: peephole has shape (1, 4); expected (1, 6)"),
        ({"direction": "back"}, "lstm: direction is 'back'; expected 'forward', 'reverse' or 'bidirectional'"),
        ({"clip": -1.0}, "lstm: clip is -1.0; expected a number above 0, or None"),
        ({"gates": "ifgx"}, "lstm: gates is 'ifgx'; expected the letters of 'ifgo' in some order"),
        ({"lengths": [5, 1, 1]}, "lstm: lengths are [5, 1, 1]; expected 0 to 4, the steps of x"),
        ({"lengths": [1, 1]}, "lstm: lengths is int64 of shape (2,); expected integers, one for each of 3 sequences"),
        ({"activations": [(F.TANH,)]}, "lstm: activations is [(Gate(name='Tanh', alpha=0.0, beta=0.0),)]; expected 3"),
        ({"activations": [(Gate("Sine"),) * 3]}, "lstm: activation 'Sine' is unknown; expected one of Relu, Tanh"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_mistakes(change: dict[str, Any], message: str) -> None:
    given = {name: mn.tensor(array) for name, array in arrays("lstm", 1).items()}
    options: dict[str, Any] = {}
    for name, value in change.items():
        tensor = isinstance(value, tuple) or name == "lengths"
        made = (
            (mn.ones(*value, dtype=mn.float64) if isinstance(value, tuple) else mn.tensor(value)) if tensor else value
        )
        (given if name in given else options)[name] = made
    with pytest.raises(ValueError, match=re.escape(message)):
        called("lstm", *given.values(), **options)


def test_types_must_agree() -> None:
    a = {name: mn.tensor(array) for name, array in arrays("gru", 1).items()}
    with pytest.raises(TypeError, match="gru: weight_ih is float32, x is float64; expected one float type"):
        called("gru", a["x"], a["h"], a["w"].float(), a["r"])
