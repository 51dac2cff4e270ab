"""CTC: the probability of a text, summed over all ways to spread its letters over the steps of a sequence.

A way is a path through the extended text, blank l1 blank l2 ... blank. The path starts at one of the first two symbols
and ends at one of the last two. In each step it stays, moves on by one symbol, or moves on by two symbols if this skips
a blank between different letters. alpha[t, s] is the log-probability of all paths up to step t that are at symbol s.
beta[t, s] is the log-probability of all paths from symbol s at step t to the end. Graves et al. 2006.
"""

from __future__ import annotations

import numpy as np

from minorm.devices import device_of, dtypes, to_device
from minorm.graph.graph import Function
from minorm.graph.recorded import expressed
from minorm.kernels.select import backend
from minorm.ops.reduction import LogSumExp
from minorm.ops.shape import Cat, Unbind, stacked


class CTC(Function):
    """-log P(text) for each example.

    x (steps, batch, classes) holds log-probabilities, and `texts` (batch, longest) holds the classes of each text.

    Texts and lengths are NumPy arrays. The Function computes all examples of a batch together, on the CPU, in float64
    or float32.
    """

    def forward(self, x, *, texts, steps, lengths, blank, zero_infinity):
        self.device, self.dtype = device_of(x), x.dtype
        self.x = x
        log = to_device(x, "cpu").astype(dtypes.compute_type(x.dtype), copy=False)
        batch, longest = texts.shape
        self.places = np.full((batch, 2 * longest + 1), blank)
        self.places[:, 1::2] = np.where(np.arange(longest) < lengths[:, None], texts, blank)
        self.steps, self.lengths = steps, lengths
        self.skips = np.zeros(self.places.shape, bool)
        self.skips[:, 2:] = (self.places[:, 2:] != blank) & (self.places[:, 2:] != self.places[:, :-2])
        self.seen = log[:, np.arange(batch)[:, None], self.places]
        self.alpha = self._walk(self.seen, self.skips)
        last = self.alpha[np.maximum(steps - 1, 0), np.arange(batch)]
        ends = [np.take_along_axis(last, np.maximum(2 * lengths - k, 0)[:, None], 1)[:, 0] for k in (0, 1)]
        ends[1] = np.where(lengths > 0, ends[1], -np.inf)
        self.log = np.where(steps > 0, added(*ends), np.where(lengths > 0, -np.inf, 0.0))
        self.zeroed = np.isinf(self.log) & zero_infinity
        return to_device(np.where(self.zeroed, 0, -self.log).astype(x.dtype), self.device)

    def backward(self, dy):
        """Return dx = exp(x) - (share of the paths that have the class at the step), as in PyTorch.

        This is the gradient if the probabilities exp(x) sum to one.
        """
        log = to_device(self.x, "cpu").astype(self.alpha.dtype, copy=False)
        exp = backend(log).elementwise.exp  # not np.exp, whose last bits depend on the processor
        batch = len(self.places)
        rows = np.arange(batch)[:, None]
        # The walk backwards in time and place is the same walk on reversed arrays, in which the end of each example
        # comes first.
        time, width = np.arange(len(log))[:, None], self.places.shape[1]
        turned_time = (self.steps - 1 - time) % max(1, len(log))
        turned_place = (2 * self.lengths[:, None] - np.arange(width)) % width
        seen = self.seen[turned_time[:, :, None], np.arange(batch)[None, :, None], turned_place]
        skips = self.skips[rows, (turned_place + 2) % width]
        skips[:, :2] = False
        beta = self._walk(seen, skips)[turned_time[:, :, None], np.arange(batch)[None, :, None], turned_place]
        inside = np.arange(width) <= 2 * self.lengths[:, None]
        with np.errstate(invalid="ignore", over="ignore"):
            ways = np.where(inside, self.alpha + beta - self.seen - self.log[:, None], -np.inf)
        share = np.zeros_like(log)
        np.add.at(share, (time[:, :, None], np.arange(batch)[None, :, None], self.places), exp(ways))
        running = (time < self.steps)[..., None] & ~self.zeroed[:, None]
        with np.errstate(invalid="ignore"):
            dx = np.where(running, (exp(log) - share) * to_device(dy, "cpu")[:, None], 0)
        return to_device(dx.astype(self.dtype), self.device)

    def gradient(self, dy):
        """Differentiate the forward pass. The shares are the derivative of log P, so they have derivatives of every
        order.

        An impossible example has P = 0, and log 0 has no derivative. For such an example, dx is the constant that
        `backward` returns.
        """
        wide, lost = self.alpha.dtype, np.isinf(self.log) & ~self.zeroed
        x, weights = (a.to("cpu").to(wide) for a in (self.input(0, self.x, dy), dy))
        ended = (np.arange(len(x))[:, None] >= self.steps) | self.zeroed | lost
        dx = (x.exp() * weights.unsqueeze(1)).masked_fill(x.from_array(ended[..., None]), 0.0)
        dx = dx + expressed(self.loss, [x], [weights])[0]
        if lost.any():
            constant = to_device(self.backward(dy.array), "cpu").astype(wide)
            dx = dx + x.from_array(np.where(lost[:, None], constant, 0))
        return dx.to(self.dtype).to(self.device)

    def loss(self, x):
        """Compute the forward pass with Tensors. The loss of an impossible example is 0 here."""
        rows, width = np.arange(len(self.places)), self.places.shape[1]

        def nothing(count):
            return x.from_array(np.full((len(rows), count), -np.inf, x.dtype))

        cut = x.from_array(~self.skips)
        steps = Unbind.apply(x[:, rows[:, None], self.places], axis=0)
        ways = [Cat.apply(steps[0][:, :2], nothing(width - 2), axis=1) if width > 2 else steps[0]]
        for seen in steps[1:]:
            before = Cat.apply(nothing(2), ways[-1], axis=1)
            two = before[:, :-2].masked_fill(cut, -np.inf)
            ways.append(added_up(before[:, 2:], before[:, 1:-1], two) + seen)
        last = stacked(ways, 0)[np.maximum(self.steps - 1, 0), rows]
        ends = [last[rows, np.maximum(2 * self.lengths - k, 0)] for k in (0, 1)]
        ends[1] = ends[1].masked_fill(x.from_array(self.lengths == 0), -np.inf)
        certain = np.isinf(self.log) | (self.steps == 0)
        return (-added_up(*ends)).masked_fill(x.from_array(certain), 0.0)

    @staticmethod
    def _walk(seen, skips):
        """Return alpha[t, n, s]: the log-probability of all paths of example n up to step t that are at symbol s."""
        alpha = np.full(seen.shape, -np.inf, seen.dtype)
        if not len(seen):
            return alpha
        alpha[0, :, :2] = seen[0, :, :2]
        nothing = np.full((seen.shape[1], 2), -np.inf, seen.dtype)
        for t in range(1, len(seen)):
            before = np.concatenate([nothing, alpha[t - 1]], 1)
            one, two = before[:, 1:-1], np.where(skips, before[:, :-2], -np.inf)
            alpha[t] = added(added(before[:, 2:], one), two) + seen[t]
        return alpha


def added(a, b):
    """log(exp(a) + exp(b))"""
    return np.logaddexp(a, b)


def added_up(*tensors):
    """log(sum of exp(t)) for Tensors."""
    return LogSumExp.apply(stacked(tensors, 0), axes=(0,), keepdims=False)
