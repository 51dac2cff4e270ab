"""Recurrent layers: RNN, LSTM and GRU, each as one Function with its backward pass through time.

One product multiplies x (steps, batch, in) by W for all steps. Then the loop in kernels/reference/recurrent.py runs the
steps. In backward, the loop computes the gradients of all pre-activations. Then one product over all steps gives each
of the gradients of W, R and x. One tensor holds the weights of all directions: w (directions, gates * hidden, in).

If a sequence has no steps, its last state is 0, as in onnxruntime.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from minorm.devices import constant_of, dtypes
from minorm.graph.expressions import passing
from minorm.graph.graph import Function
from minorm.graph.recorded import expressed
from minorm.kernels.reference.recurrent import Cell
from minorm.kernels.select import backend
from minorm.ops import activation
from minorm.ops.elementwise import Where
from minorm.ops.indexing import Take
from minorm.ops.matmul import as_rows
from minorm.ops.shape import Flip, stacked

cell_of = functools.lru_cache(maxsize=64)(Cell)


class Recurrent(Function):
    """Base class of the recurrent layers. A subclass sets `kind`."""

    kind = ""
    states = 1  # an LSTM has two

    def forward(self, x, w, r, b, h, c=None, p=None, *, gates, activations, clip, direction, lengths, variant):
        """Return y (steps, directions, batch, hidden) and the last states. b, p, clip and lengths may be None. If h or
        c is None, this state starts with zeros.
        """
        self.dtype = x.dtype
        wide = dtypes.compute_type(x.dtype)
        if x.dtype != wide:
            x, w, r, b, h, c, p = (None if a is None else a.astype(wide) for a in (x, w, r, b, h, c, p))
        self.x, self.w, self.r, self.p = x, w, r, p
        self.b, self.h, self.c = b, h, c  # small arrays, from which `gradient` starts
        self.lengths = lengths
        self.reversed = [direction == "reverse"] if len(w) == 1 else [False, True]
        self.cells = [cell_of(self.kind, gates, tuple(own), clip, variant) for own in activations]
        steps, batch, hidden = x.shape[0], x.shape[1], r.shape[2]
        y = backend(x).memory.empty((steps, len(w), batch, hidden), wide)
        last = [_started(state, x, (len(w), batch, hidden)) for state in (h, c)[: self.states]]
        self.memories = [self._walk(d, b, y[:, d], *[state[d] for state in last]) for d in range(len(w))]
        results = y, *[self._alive(state) for state in last]
        return results if self.dtype == wide else tuple([a.astype(self.dtype) for a in results])

    def backward(self, dy, dh=None, dc=None):
        """Return the gradients of x, w, r, b and h. If c and p were given, return their gradients too."""
        wide = self.w.dtype
        dy, dh, dc = (None if g is None else g.astype(wide, copy=False) for g in (dy, dh, dc))
        shape = (len(self.w), self.x.shape[1], self.r.shape[2])
        states = [_started(None if g is None else self._alive(g), self.x, shape) for g in (dh, dc)[: self.states]]
        found = [self._walk_back(d, dy, *[state[d] for state in states]) for d in range(len(self.w))]
        dxs, *others = zip(*found, strict=True)
        dx = None if dxs[0] is None else sum(dxs[1:], dxs[0])
        dw, dr, db, dp = (None if g[0] is None else np.stack(g) for g in others)
        gradients = [dx, dw, dr, db, *states, *[dp] * (self.states == 2)]
        return tuple([None if g is None else g.astype(self.dtype, copy=False) for g in gradients[: len(self.needs)]])

    def gradient(self, *gradients):
        """Run all steps again with Tensors, so that the graph records the steps, and differentiate this graph."""
        like = next(g for g in gradients if g is not None)
        kept = self.x, self.w, self.r, self.b, self.h, self.c, self.p
        inputs = [
            None if a is None else self.input(i, a.astype(self.dtype, copy=False), like)
            for i, a in enumerate(kept[: len(self.needs)])
        ]
        return expressed(self.expression, inputs, gradients)

    def expression(self, x, w, r, b, h, c=None, p=None):
        """Compute the forward pass with Tensors."""
        wide = self.w.dtype
        x, w, r, b, h, c, p = (None if a is None else a.to(wide) for a in (x, w, r, b, h, c, p))
        directions = range(len(self.cells))
        own = [[None if a is None else a[d] for a in (w, r, b, h, c, p)] for d in directions]
        found = [self._steps(d, x, *own[d]) for d in directions]
        y, *states = zip(*found, strict=True)
        results = [stacked(y, 1), *[stacked(of, 0) for of in states]]
        return tuple([result.to(self.dtype) for result in results])

    def _steps(self, d, x, w, r, b, h, c, p):
        """Return y (steps, batch, hidden) of direction d, and the last states of this direction."""
        cell, (steps, batch), hidden = self.cells[d], self.x.shape[:2], self.r.shape[2]
        turn = _turn(x, self.reversed[d], self.lengths)
        a = (turn(x) @ w.mT).unbind(0) if steps else ()
        bw = br = None
        if b is not None and self.kind == "GRU":
            bw, br = b[: len(w)], b[len(w) :]
        elif b is not None:
            bw = b[: len(w)] + b[len(w) :]
        h, c = (x.from_array(np.zeros_like(self.x, shape=(batch, hidden))) if s is None else s for s in (h, c))
        states, live = [], None
        for t in range(steps):
            before = h, c
            h, c = self.step_expression(cell, a[t] if bw is None else a[t] + bw, h, c, r, br, p)
            if self.lengths is not None:
                live = x.from_array(constant_of((t < self.lengths)[:, None], self.x))
                h, c = (Where.apply(live, new, old) for new, old in zip((h, c), before, strict=True))
            states.append(h if live is None else passing(h, live.array))
        none = np.zeros_like(self.x, shape=(0, batch, hidden))
        y = turn(stacked(states, 0)) if states else x.from_array(none)
        alive = None if self.lengths is None else constant_of((self.lengths > 0)[:, None], self.x)
        return [y, *[state if alive is None else passing(state, alive) for state in (h, c)[: self.states]]]

    def step_expression(self, cell, a, h, c, r, br, p):
        """Return the next h and c as Tensors. a is the product W x of the step, plus the bias."""
        raise NotImplementedError

    def _walk(self, d, b, y, h, c=None):
        """Run one direction forward."""
        x, w, kernels = self.x, self.w[d], backend(self.x)
        bias = between = None
        if b is not None:
            bias, between = b[d, : len(w)], b[d, len(w) :]
            if self.kind != "GRU":
                bias, between = bias + between, None
        a = kernels.matmul.linear(as_rows(x), w, bias).reshape(*x.shape[:2], len(w))
        p = None if self.p is None else self.p[d]
        how = self.lengths, self.reversed[d], True in self.needs
        return kernels.recurrent.forward(self.cells[d], a, self.r[d], between, p, h, c, y, *how)

    def _walk_back(self, d, dy, dh, dc=None):
        """Run one direction backward, and return the gradients of x, w, r, b and p. dh and dc are overwritten by the
        gradients of h and c.
        """
        kernels, memory = backend(self.x), self.memories[d]
        p = None if self.p is None else self.p[d]
        own = None if dy is None else dy[:, d]
        how = self.lengths, self.reversed[d]
        da, dq = kernels.recurrent.backward(self.cells[d], memory, self.r[d], p, own, dh, dc, *how)
        dx = kernels.matmul.matmul(as_rows(da), self.w[d]).reshape(self.x.shape) if self.needs[0] else None
        dw = dr = db = None
        if self.needs[1] or self.needs[3]:
            dw, db = kernels.matmul.linear_grads(as_rows(da), as_rows(self.x), self.needs[3])
        if self.needs[2] or self.needs[3]:
            dr, after = self._recurrent_gradients(kernels.matmul.linear_grads, self.cells[d], memory, dq)
            db = np.concatenate([db, after]) if self.needs[3] else None
        dp = _peephole_gradient(self.cells[d], memory, da) if p is not None and self.needs[6] else None
        return dx, dw, dr, db, dp

    def _recurrent_gradients(self, linear_grads, cell, memory, dq):
        """Return the gradient of R, and the gradient of the bias that is added to R h."""
        flat = as_rows(dq)
        if self.kind != "GRU" or cell.variant:
            return linear_grads(flat, as_rows(memory.h), self.needs[3])
        early = 2 * memory.h.shape[2]  # the product for the gate n is with r * h
        found = linear_grads(flat[:, :early], as_rows(memory.h), self.needs[3])
        late = linear_grads(flat[:, early:], as_rows(memory.e), self.needs[3])
        return [None if g is None else np.concatenate([g, n]) for g, n in zip(found, late, strict=True)]

    def _alive(self, state):
        """Return the state, with 0 for sequences that have no steps."""
        if self.lengths is None or self.lengths.all():
            return state
        return np.where(constant_of((self.lengths > 0)[:, None], state), state, state.dtype.type(0))


class RNN(Recurrent):
    """h' = f(W x + R h + b)"""

    kind = "RNN"

    def step_expression(self, cell, a, h, c, r, br, p):  # noqa: ARG002  the signature of all
        return _active(cell, 0, a + h @ r.mT), c


class LSTM(Recurrent):
    """i, f, o = sigmoid(W x + R h + b); g = tanh(W x + R h + b); c' = f c + i g; h' = o tanh(c')"""

    kind = "LSTM"
    states = 2

    def step_expression(self, cell, a, h, c, r, br, p):  # noqa: ARG002
        hidden = h.shape[-1]
        i, f, o, g = (_part(cell, a + h @ r.mT, gate, hidden) for gate in "ifog")
        pi, po, pf = (None,) * 3 if p is None else (p[k * hidden : (k + 1) * hidden] for k in range(3))
        if p is not None:
            i, f = i + pi * c, f + pf * c
        i = _active(cell, 0, i)
        f = 1 - i if cell.variant else _active(cell, 0, f)
        c = f * c + i * _active(cell, 1, g)
        o = _active(cell, 0, o if p is None else o + po * c)
        return o * activated(cell.activations[2], c), c


class GRU(Recurrent):
    """z, r = sigmoid(W x + R h + b); n = tanh(W x + r * (R h + b) + b); h' = (1 - z) n + z h"""

    kind = "GRU"

    def step_expression(self, cell, a, h, c, r, br, p):  # noqa: ARG002
        hidden = h.shape[-1]
        early = 2 * hidden
        recurrent = h @ (r if cell.variant else r[:early]).mT
        if br is not None:
            recurrent = recurrent + (br if cell.variant else br[:early])
        gates = _active(cell, 0, a[..., :early] + recurrent[..., :early])
        z, reset = (_part(cell, gates, gate, hidden) for gate in "zr")
        if cell.variant:
            n = _part(cell, a, "n", hidden) + reset * _part(cell, recurrent, "n", hidden)
        else:
            n = _part(cell, a, "n", hidden) + (reset * h) @ r[early:].mT
            n = n if br is None else n + br[early:]
        n = _active(cell, 1, n)
        return (1 - z) * n + z * h, c


def _started(state, like, shape):
    """Return a copy of a state, since the loop overwrites it. If the state is None, return zeros."""
    return np.zeros_like(like, order="C", shape=shape) if state is None else state.copy("C")


def _peephole_gradient(cell, memory, da):
    """Return dp, in the order (i, o, f). The gates i and f read the state before the step, and o the state after it."""
    hidden = memory.c.shape[2]
    part = {gate: slice(i * hidden, (i + 1) * hidden) for i, gate in enumerate(cell.gates)}
    v, before = memory.v, memory.c
    after = v[..., part["f"]] * before + v[..., part["i"]] * v[..., part["g"]]
    pairs = (("i", before), ("o", after), ("f", before))
    return np.concatenate([(da[..., part[gate]] * c).sum((0, 1)) for gate, c in pairs])


# Steps written with Tensors


def _turn(like, backwards, lengths):
    """Return a function that reverses the steps of a Tensor (steps, batch, ...) if the direction is backwards.

    The same function brings the steps back into their order.
    """
    if not backwards:
        return lambda a: a
    if lengths is None:
        return lambda a: Flip.apply(a, axes=(0,))
    steps, batch = like.shape[:2]
    t = np.arange(steps)[:, None]
    order = np.where(t < lengths, lengths - 1 - t, t)
    index = constant_of(order, like.array), constant_of(np.arange(batch), like.array)
    return lambda a: Take.apply(a, index=index)


def _part(cell, a, gate, hidden):
    """Return the columns of a that belong to one gate."""
    i = cell.gates.index(gate)
    return a[..., i * hidden : (i + 1) * hidden]


def _active(cell, kind, a):
    """Clip the Tensor a if the cell has a clip, and apply the activation with number `kind`."""
    return activated(cell.activations[kind], a if cell.clip is None else a.clip(-cell.clip, cell.clip))


def activated(gate, x):
    """Apply an activation to a Tensor x, so that the graph records it."""
    name, alpha, beta = gate
    if name in ("Sigmoid", "Tanh", "Relu"):
        return getattr(activation, name).apply(x)
    if name == "Softsign":
        return x / (1 + x.abs())
    if name == "Softplus":
        return activation.Softplus.apply(x, beta=1.0, threshold=math.inf)
    if name == "LeakyRelu":
        return activation.LeakyRelu.apply(x, slope=alpha)
    if name == "ThresholdedRelu":
        return passing(x, x.array > alpha)
    if name == "Elu":
        return activation.Elu.apply(x, alpha=alpha)
    if name == "Affine":
        return x * alpha + beta
    if name == "ScaledTanh":
        return activation.Tanh.apply(x * beta) * alpha
    return (x * alpha + beta).clip(0.0, 1.0)  # HardSigmoid
