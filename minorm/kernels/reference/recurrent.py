"""RNN, LSTM and GRU in NumPy: one direction of a layer over all steps, with each gradient directly below its function.

    memory = forward(cell, a, r, br, p, h, c, y, lengths, reverse, keep)
    da, dq = backward(cell, memory, r, p, dy, dh, dc, lengths, reverse)

`a` (steps, batch, gates * hidden) is W x plus the biases. It is computed for all steps together, since it depends on no
state. Each step adds R h to `a` and applies the gates. Each gate has a block of rows in W and R; `cell.gates` has the
order of these blocks ("ifgo"). A GRU may multiply R h by the reset gate before the sum; `br` is the bias that a GRU
adds to R h first. For RNN and LSTM, `br` is None. `h` and `c` (batch, hidden) are the first states, and the loop
overwrites them with the last states. `y` (steps, batch, hidden) is filled with the states after each step. In backward,
dh and dc are the gradients of the last states, and the loop overwrites them with the gradients of the first states. da
is the gradient of W x, and dq is the gradient of R h. With reverse=True, the loop begins at the last step.

`lengths` (batch,) has the number of steps of each sequence. It is None if every sequence has all steps. Beyond its
length, a sequence keeps its state, and y is 0.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from minorm.devices import constant_of
from minorm.kernels.reference import elementwise, gates, matmul


class Cell(NamedTuple):
    """A recurrent cell of kind RNN, LSTM or GRU. With variant=True, a GRU applies the reset gate after the product R h,
    and an LSTM has f = 1 - i.
    """

    kind: str
    gates: str
    activations: tuple[gates.Gate, ...]
    clip: float | None
    variant: bool


class Kernels(NamedTuple):
    """The two modules of a backend that compute the steps: `elementwise` and `matmul`."""

    elementwise: Any = elementwise
    matmul: Any = matmul


NUMPY = Kernels()


class Memory(NamedTuple):
    """The arrays of all steps that backward needs: a holds pre-activations, v the gates, e an extra value, and h and c
    the states before each step.
    """

    a: Any
    v: Any
    e: Any
    h: Any
    c: Any


class Step:
    """Computes one step of a cell, forward and backward, by a backend's kernels."""

    def __init__(self, cell: Cell, r: Any, b: Any, p: Any, kernels: Kernels) -> None:
        self.cell, self.r, self.b = cell, r, b
        self.maps, self.product = kernels.elementwise, kernels.matmul.matmul
        self.hidden = r.shape[1]
        self.p = None if p is None else p.reshape(3, -1)

    def forward(self, a: Any, h: Any, c: Any) -> tuple[Any, Any, Any, Any]:
        """Return the gates v, the extra value e, and the states after the step."""
        raise NotImplementedError

    def backward(self, a: Any, v: Any, e: Any, h: Any, c: Any, dh: Any, dc: Any) -> tuple[Any, Any, Any, Any]:
        """Return da, dq, and the gradients of the states before the step, from the gradients of the states after it."""
        raise NotImplementedError

    def part(self, a: Any, gate: str) -> Any:
        """Return the columns of a that belong to one gate."""
        i = self.cell.gates.index(gate)
        return a[..., i * self.hidden : (i + 1) * self.hidden]

    def value(self, kind: int, a: Any) -> Any:
        """Clip a, and return the activation of the clipped a. `kind` is the number of the activation in the cell."""
        return gates.value(self.cell.activations[kind], self.clipped(a), self.maps)

    def slope(self, kind: int, a: Any, v: Any) -> Any:
        """Return dv/da, where v is the activation with number `kind` of a."""
        inside = self.clipped(a)
        return gates.slope(self.cell.activations[kind], inside, v, self.maps) * ((inside == a) | (a != a))

    def clipped(self, a: Any) -> Any:
        if self.cell.clip is None:
            return a
        bound = a.dtype.type(self.cell.clip)
        return np.clip(a, -bound, bound)


class RNN(Step):
    """h' = f(W x + R h + b)"""

    def forward(self, a, h, c):
        a += self.product(h, self.r.T)
        v = self.value(0, a)
        return v, v, v, c

    def backward(self, a, v, e, h, c, dh, dc):  # noqa: ARG002  all cells have this signature
        da = dh * self.slope(0, a, v)
        return da, da, self.product(da, self.r), dc


class LSTM(Step):
    """i, f, o = sigmoid(W x + R h + b); g = tanh(W x + R h + b); c' = f c + i g; h' = o tanh(c')

    With peepholes p (i, o, f), the gates i and f also add p * c, and o adds p * c'.
    """

    def forward(self, a, h, c):
        a += self.product(h, self.r.T)
        v = np.empty_like(a)
        i, f, o, g = (self.part(v, gate) for gate in "ifog")
        if self.p is not None:
            pi, po, pf = self.p
            self.part(a, "i")[...] += pi * c
            self.part(a, "f")[...] += pf * c
        i[...] = self.value(0, self.part(a, "i"))
        f[...] = 1 - i if self.cell.variant else self.value(0, self.part(a, "f"))
        g[...] = self.value(1, self.part(a, "g"))
        after = f * c + i * g
        if self.p is not None:
            self.part(a, "o")[...] += po * after
        o[...] = self.value(0, self.part(a, "o"))
        e = gates.value(self.cell.activations[2], after, self.maps)
        return v, e, o * e, after

    def backward(self, a, v, e, h, c, dh, dc):  # noqa: ARG002
        da = np.empty_like(a)
        i, f, o, g = (self.part(v, gate) for gate in "ifog")
        ai, af, ao, ag = (self.part(a, gate) for gate in "ifog")
        di, df, do, dg = (self.part(da, gate) for gate in "ifog")
        after = f * c + i * g
        do[...] = dh * e * self.slope(0, ao, o)
        dc = dc + dh * o * gates.slope(self.cell.activations[2], after, e, self.maps)
        if self.p is not None:
            pi, po, pf = self.p
            dc = dc + do * po
        if self.cell.variant:  # f = 1 - i
            di[...] = dc * (g - c) * self.slope(0, ai, i)
            df[...] = 0
        else:
            di[...] = dc * g * self.slope(0, ai, i)
            df[...] = dc * c * self.slope(0, af, f)
        dg[...] = dc * i * self.slope(1, ag, g)
        dc = dc * f
        if self.p is not None:
            dc = dc + (di * pi + df * pf)
        return da, da, self.product(da, self.r), dc


class GRU(Step):
    """z, r = sigmoid(W x + R h + b); n = tanh(W x + r * (R h + b) + b); h' = (1 - z) n + z h

    This is PyTorch's form, for which `cell.variant` is True. The other form resets first: n = tanh(W x + R
    (r * h) + b). In W and R the rows of z and r are first, and the rows of n are last.
    """

    def forward(self, a, h, c):
        early, v = 2 * self.hidden, np.empty_like(a)
        count = len(self.r) if self.cell.variant else early
        q = self.product(h, self.r[:count].T)
        if self.b is not None:
            q += self.b[:count]
        a[:, :early] += q[:, :early]
        v[:, :early] = self.value(0, a[:, :early])
        z, r, n = (self.part(v, gate) for gate in "zrn")
        if self.cell.variant:
            e = self.part(q, "n")
            self.part(a, "n")[...] += r * e
        else:
            e = r * h
            self.part(a, "n")[...] += self.product(e, self.r[early:].T)
            if self.b is not None:
                self.part(a, "n")[...] += self.b[early:]
        n[...] = self.value(1, self.part(a, "n"))
        return v, e, (1 - z) * n + z * h, c

    def backward(self, a, v, e, h, c, dh, dc):  # noqa: ARG002
        early, da = 2 * self.hidden, np.empty_like(a)
        z, r, n = (self.part(v, gate) for gate in "zrn")
        dz, dr, dn = (self.part(da, gate) for gate in "zrn")
        dn[...] = dh * (1 - z) * self.slope(1, self.part(a, "n"), n)
        dz[...] = dh * (h - n) * self.slope(0, self.part(a, "z"), z)
        if self.cell.variant:
            dr[...] = dn * e * self.slope(0, self.part(a, "r"), r)
            dq = da.copy()
            self.part(dq, "n")[...] *= r
            return da, dq, dh * z + self.product(dq, self.r), dc
        through = self.product(dn, self.r[early:])
        dr[...] = through * h * self.slope(0, self.part(a, "r"), r)
        return da, da, dh * z + through * r + self.product(da[:, :early], self.r[:early]), dc


STEPS: dict[str, type[Step]] = {"RNN": RNN, "LSTM": LSTM, "GRU": GRU}


def forward(
    cell: Cell, a: Any, r: Any, br: Any, p: Any, h: Any, c: Any, y: Any, lengths: Any, reverse: bool, keep: bool,
    kernels: Kernels = NUMPY,
) -> Memory | None:  # fmt: skip
    """Run all steps. With keep=True, return the Memory for backward.

    c is None unless the cell is an LSTM. p is None unless the LSTM has peepholes.
    """
    step = STEPS[cell.kind](cell, r, br, p, kernels)
    memory = None
    if keep:
        e, states, cells = (np.empty_like(a, shape=y.shape) for _ in range(3))
        memory = Memory(a, np.empty_like(a), e, states, None if c is None else cells)
    for t, live in _times(len(a), lengths, reverse, a):
        v, e, *after = step.forward(a[t], h, c)
        if memory is not None:
            for all_steps, found in zip(memory[1:], (v, e, h, c), strict=True):
                if all_steps is not None:
                    all_steps[t] = _where(live, found, 0)
        y[t] = _where(live, after[0], 0)
        for state, found in zip((h, c), after, strict=True):
            if state is not None:
                state[...] = _where(live, found, state)
    return memory


def backward(
    cell: Cell, memory: Memory, r: Any, p: Any, dy: Any, dh: Any, dc: Any, lengths: Any, reverse: bool,
    kernels: Kernels = NUMPY,
) -> tuple[Any, Any]:  # fmt: skip
    """Return da and dq. Except for a GRU with cell.variant, da and dq are equal, and the same array is returned twice.

    dy may be None. dc is None unless the cell is an LSTM.
    """
    step = STEPS[cell.kind](cell, r, None, p, kernels)
    da = np.empty_like(memory.a)
    dq = np.empty_like(da) if cell.kind == "GRU" and cell.variant else da
    for t, live in _times(len(da), lengths, not reverse, da):
        given = dh if dy is None else dh + dy[t]
        a, v, e, h, c = (None if x is None else x[t] for x in memory)
        found = step.backward(a, v, e, h, c, given, dc)
        da[t], dq[t] = (_where(live, g, 0) for g in found[:2])
        for gradient, new in zip((dh, dc), found[2:], strict=True):
            if gradient is not None:
                gradient[...] = _where(live, new, gradient)
    return da, dq


def _times(steps: int, lengths: Any, backwards: bool, like: Any) -> Any:
    """Yield each step in order, with a mask of the sequences that have this step, or None if `lengths` is None."""
    for t in range(steps)[:: -1 if backwards else 1]:
        yield t, None if lengths is None else constant_of((t < lengths)[:, None], like)


def _where(live: Any, found: Any, otherwise: Any) -> Any:
    return found if live is None else np.where(live, found, otherwise)
