"""Recurrent layers: one direction of an RNN, an LSTM or a GRU is one Function, with its backward pass through time.

x (steps, batch, in) is multiplied by W for all steps at once; then each step adds R times the state before it. On the
way back each step leaves the gradient of its pre-activations in `da`, and again one product over all steps gives the
gradients of W, R and x. Below, a is a pre-activation, v its value; A, V, H, C hold them for all steps, and H[t], C[t]
are the state *before* step t. Blocks of rows of W and R belong to gates; `gates` says in which order ("ifgo").

`lengths` (one a sequence of the batch): beyond its length a sequence keeps its state, and y is 0. A reversed direction
begins at the last step of each sequence. A sequence of no steps ends in state 0, as in onnxruntime.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minorm.devices import constant_of, dtypes
from minorm.graph.expressions import passing
from minorm.graph.graph import Function
from minorm.graph.recorded import expressed
from minorm.kernels.select import backend
from minorm.ops.elementwise import Where
from minorm.ops.gates import expression as gate_expression
from minorm.ops.gates import slope, value
from minorm.ops.indexing import Take
from minorm.ops.shape import Cat, Flip


def product(a, b):
    """a @ b for matrices."""
    return backend(a).matmul.matmul(a, b)


def rows(a):
    """a (..., n) as (rows, n)."""
    return a.reshape(-1, a.shape[-1]) if a.size else a.reshape(int(np.prod(a.shape[:-1])), a.shape[-1])


class Recurrent(Function):
    """The walk through time; a subclass has `step`, and `step_back` directly below it."""

    split_bias = False  # whether the bias of the recurrent product is kept apart from the other
    steps: int
    batch: int
    hidden: int
    w: Any
    r: Any
    p: Any
    b: Any
    br: Any
    H: Any
    C: Any
    lengths: Any  # whether a sequence has any step; this, mask and order are None where all have all steps
    mask: Any  # (steps, batch, 1): whether there is such a step
    order: Any  # (steps, batch): which step a reversed direction reads

    def forward(self, x, w, r, b, h, c=None, p=None, *, gates, activations, clip, reverse, lengths, variant):
        """y (steps, batch, hidden) and the last state. Absent: b, h, c (zeros), p; clip and lengths may be None."""
        self.dtype, self.gates, self.activations, self.clip = x.dtype, gates, activations, clip
        self.variant = variant  # GRU: the reset comes after the product; LSTM: f = 1 - i
        wide = dtypes.compute_type(x.dtype)
        x, self.w, self.r, b, h, c, self.p = (
            None if a is None else a.astype(wide, copy=False) for a in (x, w, r, b, h, c, p)
        )
        self.steps, self.batch, self.hidden = x.shape[0], x.shape[1], self.r.shape[1]
        self._clock(lengths, reverse, x)
        self.x = x = self._turned(x)
        A = product(rows(x), self.w.T).reshape(self.steps, self.batch, len(w))
        self.b, self.br = b, None
        if b is not None:
            bw, br = b[: len(w)], b[len(w) :]
            A += bw if self.split_bias else bw + br
            self.br = br if self.split_bias else None
        self.A, self.keeps = A, True in self.needs
        kept = self.steps if self.keeps else 1
        self.V = np.empty_like(A, shape=(kept, *A.shape[1:]))
        self.extra = np.empty_like(A, shape=(kept, self.batch, self.hidden))  # what else a step remembers
        self.H = self._start(h)
        self.C = self._start(c) if "i" in gates else None
        for t in range(self.steps):
            self.step(t, t if self.keeps else 0)
            self._keep(t)
        return self._results()

    def backward(self, dy, dh=None, dc=None):
        """Of x, w, r, b, h, and of c and p where they were given."""
        wide = self.A.dtype
        dy, dh, dc = (None if g is None else g.astype(wide, copy=False) for g in (dy, dh, dc))
        nothing = np.zeros_like(self.H[0])
        dy = None if dy is None else self._turned(dy)
        dh, dc = (nothing if g is None else self._alive(g, nothing) for g in (dh, dc))
        self.da = np.zeros_like(self.A)  # of the pre-activations: what x @ W.T receives
        for t in range(self.steps)[::-1]:
            given = dh if dy is None else dh + dy[t]
            if self.mask is None:
                dh, dc = self.step_back(t, given, dc)
            else:
                live = self.mask[t]
                before = self.step_back(t, np.where(live, given, 0), np.where(live, dc, 0))
                dh, dc = np.where(live, before[0], dh), np.where(live, before[1], dc)
                self.da[t] = np.where(live, self.da[t], 0)
        flat = rows(self.da)
        dx = self._turned(product(flat, self.w).reshape(self.x.shape)) if self.needs[0] else None
        dw = product(flat.T, rows(self.x)) if self.needs[1] else None
        recurrent = self.recurrent_gradient()
        dr = self.weight_gradient(recurrent) if self.needs[2] else None
        db = np.concatenate([flat.sum(0), recurrent.sum(0)]) if self.needs[3] else None
        dp = self.peephole_gradient() if self.p is not None and self.needs[6] else None
        found = [None if g is None else g.astype(self.dtype, copy=False) for g in (dx, dw, dr, db, dh, dc, dp)]
        return tuple(found[: len(self.needs)])

    def gradient(self, *gradients):
        """From the steps written with Tensors: all of them are recorded, and each is differentiated."""
        like = next(g for g in gradients if g is not None)
        kept = (self._turned(self.x), self.w, self.r, self.b, self.H[0], None if self.C is None else self.C[0], self.p)
        inputs = [
            None if a is None else self.input(i, a.astype(self.dtype, copy=False), like)
            for i, a in enumerate(kept[: len(self.needs)])
        ]
        return expressed(self.expression, inputs, gradients)

    def expression(self, x, w, r, b, h, c=None, p=None):
        """The forward pass with Tensors."""
        wide = self.A.dtype
        x, w, r, b, h, c, p = (None if a is None else a.to(wide) for a in (x, w, r, b, h, c, p))
        a = (self._turned_tensor(x) @ w.mT).unbind(0) if self.steps else ()
        bw: Any = None if b is None else b[: len(w)]
        br: Any = None if b is None else b[len(w) :]
        if b is not None and not self.split_bias:
            bw, br = bw + br, None
        states = []
        for t in range(self.steps):
            before = h, c
            h, c = self.step_expression(a[t] if bw is None else a[t] + bw, h, c, r, br, p)
            if self.mask is not None:
                live = h.from_array(self.mask[t])
                h, c = (
                    None if new is None else Where.apply(live, new, old)
                    for new, old in zip((h, c), before, strict=True)
                )
            states.append(h)
        none = h.from_array(self.H[1:1])
        y = Cat.apply(none, *[state.unsqueeze(0) for state in states], axis=0)
        y = self._turned_tensor(y if self.mask is None else passing(y, self.mask))
        last = [
            state if self.lengths is None else passing(state, self.lengths) for state in (h, c) if state is not None
        ]
        return tuple([state.to(self.dtype) for state in (y, *last)])

    def step_expression(self, a, h, c, r, br, p):
        """The next h and c, Tensors; a is the step's x W^T with its bias."""
        raise NotImplementedError

    def recurrent_gradient(self):
        """What the products with R, all gates side by side, receive: (steps * batch, gates * hidden)."""
        return rows(self.da)

    def weight_gradient(self, recurrent):
        """dR"""
        return product(recurrent.T, rows(self.H[:-1]))

    def peephole_gradient(self):
        """dp; only an LSTM has peepholes."""

    def step(self, t, kept):
        """H[t + 1] (and C[t + 1]) from H[t]; what backward needs of the step is kept at place `kept`."""
        raise NotImplementedError

    def step_back(self, t, dh, dc):
        """The gradients of H[t] and C[t] from those of H[t + 1] and C[t + 1], and da[t]."""
        raise NotImplementedError

    # Gates

    def part(self, a, gate):
        """The columns of one gate."""
        i = self.gates.index(gate)
        return a[..., i * self.hidden : (i + 1) * self.hidden]

    def activate(self, activation, a):
        """The activation of a, after the clip."""
        if self.clip is not None:
            a = np.clip(a, a.dtype.type(-self.clip), a.dtype.type(self.clip))
        return value(activation, a)

    def active(self, activation, a):
        """`activate` of a Tensor."""
        return gate_expression(activation, a if self.clip is None else a.clip(-self.clip, self.clip))

    def slope(self, activation, a, v):
        """dv/da"""
        if self.clip is None:
            return slope(activation, a, v)
        bound = a.dtype.type(self.clip)
        return slope(activation, np.clip(a, -bound, bound), v) * (abs(a) <= bound)

    # Time

    def _clock(self, lengths, reverse, x):
        """What the lengths and the direction say about time."""
        self.order = self.mask = self.lengths = None
        if lengths is not None:
            time = np.arange(self.steps)[:, None]
            self.lengths = constant_of((lengths > 0)[:, None], x)
            self.mask = constant_of((time < lengths)[..., None], x)
            if reverse:
                self.order = constant_of(np.where(time < lengths, lengths - 1 - time, time), x)
        self.backwards = reverse

    def _turned(self, a):
        """a in this direction's order of steps, or back again: turning twice changes nothing."""
        if not self.backwards:
            return a
        if self.order is None:
            return a[::-1].copy()
        return a[self.order, constant_of(np.arange(self.batch), a)]

    def _turned_tensor(self, a):
        """`_turned` of a Tensor."""
        if not self.backwards:
            return a
        if self.order is None:
            return Flip.apply(a, axes=(0,))
        return Take.apply(a, index=(self.order, constant_of(np.arange(self.batch), self.order)))

    def _start(self, state):
        states = np.empty_like(self.A, shape=(self.steps + 1, self.batch, self.hidden))
        states[0] = 0 if state is None else state
        return states

    def _keep(self, t):
        """A sequence that has ended keeps its state."""
        if self.mask is not None:
            for states in (self.H, self.C):
                if states is not None:
                    states[t + 1] = np.where(self.mask[t], states[t + 1], states[t])

    def _alive(self, state, nothing):
        return state if self.lengths is None else np.where(self.lengths, state, nothing)

    def _results(self):
        y = self.H[1:].copy() if self.mask is None else np.where(self.mask, self.H[1:], self.A.dtype.type(0))
        last = [self._alive(states[-1].copy(), np.zeros_like(states[0])) for states in (self.H, self.C)
                if states is not None]  # fmt: skip
        return tuple(a.astype(self.dtype, copy=False) for a in (self._turned(y), *last))


class RNN(Recurrent):
    """h' = f(W x + R h + b)"""

    def step(self, t, kept):
        a = self.A[t]
        a += product(self.H[t], self.r.T)
        self.H[t + 1] = self.V[kept] = self.activate(self.activations[0], a)

    def step_expression(self, a, h, c, r, br, p):  # noqa: ARG002
        return self.active(self.activations[0], a + h @ r.mT), c

    def step_back(self, t, dh, dc):
        self.da[t] = dh * self.slope(self.activations[0], self.A[t], self.V[t])
        return product(self.da[t], self.r), dc


class LSTM(Recurrent):
    """i, f, o = sigmoid(W x + R h + b); g = tanh(W x + R h + b); c' = f c + i g; h' = o tanh(c')

    With peepholes p (i, o, f) the gates i and f see p * c too, and o sees p * c'.
    """

    def step(self, t, kept):
        f_of, g_of, h_of = self.activations
        a, v, c = self.A[t], self.V[kept], self.C[t]
        a += product(self.H[t], self.r.T)
        if self.p is not None:
            pi, po, pf = self.p.reshape(3, -1)
            self.part(a, "i")[...] += pi * c
            self.part(a, "f")[...] += pf * c
        i, f, o, g = (self.part(v, gate) for gate in "ifog")
        i[...] = self.activate(f_of, self.part(a, "i"))
        f[...] = 1 - i if self.variant else self.activate(f_of, self.part(a, "f"))
        g[...] = self.activate(g_of, self.part(a, "g"))
        self.C[t + 1] = f * c + i * g
        if self.p is not None:
            self.part(a, "o")[...] += po * self.C[t + 1]
        o[...] = self.activate(f_of, self.part(a, "o"))
        self.extra[kept] = value(h_of, self.C[t + 1])
        self.H[t + 1] = o * self.extra[kept]

    def step_expression(self, a, h, c, r, br, p):  # noqa: ARG002
        f_of, g_of, h_of = self.activations
        i, f, o, g = (self.part(a + h @ r.mT, gate) for gate in "ifog")
        pi, po, pf = (None,) * 3 if p is None else (p[k * self.hidden : (k + 1) * self.hidden] for k in range(3))
        if p is not None:
            i, f = i + pi * c, f + pf * c
        i = self.active(f_of, i)
        f = 1 - i if self.variant else self.active(f_of, f)
        c = f * c + i * self.active(g_of, g)
        o = self.active(f_of, o if p is None else o + po * c)
        return o * gate_expression(h_of, c), c

    def step_back(self, t, dh, dc):
        f_of, g_of, h_of = self.activations
        a, v, da, c = self.A[t], self.V[t], self.da[t], self.C[t]
        i, f, o, g = (self.part(v, gate) for gate in "ifog")
        ai, af, ao, ag = (self.part(a, gate) for gate in "ifog")
        di, df, do, dg = (self.part(da, gate) for gate in "ifog")
        do[...] = dh * self.extra[t] * self.slope(f_of, ao, o)
        dc = dc + dh * o * slope(h_of, self.C[t + 1], self.extra[t])
        if self.p is not None:
            pi, po, pf = self.p.reshape(3, -1)
            dc = dc + do * po
        if self.variant:  # f = 1 - i
            di[...] = dc * (g - c) * self.slope(f_of, ai, i)
        else:
            di[...] = dc * g * self.slope(f_of, ai, i)
            df[...] = dc * c * self.slope(f_of, af, f)
        dg[...] = dc * i * self.slope(g_of, ag, g)
        dc = dc * f
        if self.p is not None:
            dc = dc + di * pi + df * pf
        return product(da, self.r), dc

    def peephole_gradient(self):
        """dp"""
        before, after = self.C[:-1], self.C[1:]
        pairs = (("i", before), ("o", after), ("f", before))
        return np.concatenate([(self.part(self.da, gate) * c).sum((0, 1)) for gate, c in pairs])


class GRU(Recurrent):
    """z, r = sigmoid(W x + R h + b); n = tanh(W x + r * (R h + b) + b); h' = (1 - z) n + z h

    That is the variant, PyTorch's; the other resets first: n = tanh(W x + R (r * h) + b). Rows of z and r come first
    in W and R, those of n last.
    """

    split_bias = True

    def step(self, t, kept):
        f_of, g_of = self.activations
        a, v, h, hidden = self.A[t], self.V[kept], self.H[t], self.hidden
        count = 3 * hidden if self.variant else 2 * hidden
        q = product(h, self.r[:count].T)
        if self.br is not None:
            q += self.br[:count]
        a[:, : 2 * hidden] += q[:, : 2 * hidden]
        v[:, : 2 * hidden] = self.activate(f_of, a[:, : 2 * hidden])
        z, r, n = (self.part(v, gate) for gate in "zrn")
        an = self.part(a, "n")
        if self.variant:
            self.extra[kept] = self.part(q, "n")
            an += r * self.part(q, "n")
        else:
            self.extra[kept] = r * h
            an += product(self.extra[kept], self.r[2 * hidden :].T)
            if self.br is not None:
                an += self.br[2 * hidden :]
        n[...] = self.activate(g_of, an)
        self.H[t + 1] = (1 - z) * n + z * h

    def step_expression(self, a, h, c, r, br, p):  # noqa: ARG002
        f_of, g_of = self.activations
        early = 2 * self.hidden
        recurrent = h @ (r if self.variant else r[:early]).mT
        if br is not None:
            recurrent = recurrent + (br if self.variant else br[:early])
        gates = self.active(f_of, a[..., :early] + recurrent[..., :early])
        z, reset = (self.part(gates, gate) for gate in "zr")
        if self.variant:
            n = self.part(a, "n") + reset * self.part(recurrent, "n")
        else:
            n = self.part(a, "n") + (reset * h) @ r[early:].mT
            n = n if br is None else n + br[early:]
        n = self.active(g_of, n)
        return (1 - z) * n + z * h, c

    def step_back(self, t, dh, dc):
        f_of, g_of = self.activations
        a, v, da, h = self.A[t], self.V[t], self.da[t], self.H[t]
        z, r, n = (self.part(v, gate) for gate in "zrn")
        dz, dr, dn = (self.part(da, gate) for gate in "zrn")
        dn[...] = dh * (1 - z) * self.slope(g_of, self.part(a, "n"), n)
        rn = self.r[2 * self.hidden :]
        if self.variant:
            through = product(dn * r, rn)
            reset = dn * self.extra[t]
        else:
            through = product(dn, rn)
            reset, through = through * h, through * r
        dz[...] = dh * (h - n) * self.slope(f_of, self.part(a, "z"), z)
        dr[...] = reset * self.slope(f_of, self.part(a, "r"), r)
        early = 2 * self.hidden
        return dh * z + through + product(da[:, :early], self.r[:early]), dc

    def recurrent_gradient(self):
        if not self.variant:
            return rows(self.da)
        da = self.da.copy()
        self.part(da, "n")[...] *= self.part(self.V, "r")
        return rows(da)

    def weight_gradient(self, recurrent):
        if self.variant:
            return super().weight_gradient(recurrent)
        early = 2 * self.hidden
        return np.concatenate(
            [product(recurrent[:, :early].T, rows(self.H[:-1])), product(recurrent[:, early:].T, rows(self.extra))]
        )
