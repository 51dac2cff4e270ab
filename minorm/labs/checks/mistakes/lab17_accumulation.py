"""Typical mistakes in lab 17: the class Right has the right functions, and each subclass has one mistake."""

from __future__ import annotations

from typing import Any

import numpy as np

from minorm.labs.judge.recognizing import Recognizer

Total = tuple[int, Any, Any]


class Right:
    """The right functions of the lab, with a method for each step that can be wrong."""

    def merge_gradients(self, gradients: Any, sizes: Any) -> Any:
        """Return the mean of the gradients, weighted by the sizes of the micro-batches."""
        weights = self._weights(np.array(sizes, float))
        return {name: np.tensordot(weights, [g[name] for g in gradients], 1) for name in gradients[0]}

    def _weights(self, sizes: Any) -> Any:
        return sizes / sizes.sum()

    def compounded(self, momentum: float, k: int) -> Any:
        """Return the share of the old value that k updates replace."""
        return 1 - (1 - momentum) ** k

    def shares(self, momentum: float, k: int) -> Any:
        """Return the share of each micro-batch, in the order of the micro-batches."""
        return np.array([momentum * (1 - momentum) ** later for later in reversed(range(k))])

    def per_update(self, momentum: float, k: int) -> Any:
        """Return the momentum of one update, from the k-th root of the kept share."""
        return 1 - (1 - momentum) ** (1 / k)

    def statistics(self, h: Any) -> Any:
        """Return n, mean and population variance."""
        return len(h), h.mean(axis=0), h.var(axis=0)

    def merged(self, a: Total, b: Total) -> Any:
        """Merge two micro-batches by Chan's formula."""
        n = a[0] + b[0]
        mean = self._mean(a, b)
        return n, mean, self._within(a, b) + self._between(a, b, b[1] - a[1])

    def _mean(self, a: Total, b: Total) -> Any:
        return (a[0] * a[1] + b[0] * b[1]) / (a[0] + b[0])

    def _within(self, a: Total, b: Total) -> Any:
        return (a[0] * a[2] + b[0] * b[2]) / (a[0] + b[0])

    def _between(self, a: Total, b: Total, delta: Any) -> Any:
        return a[0] * b[0] * (delta / (a[0] + b[0])) ** 2

    def running_update(self, running_mean: Any, running_var: Any, total: Total, momentum: float = 0.1) -> Any:
        """Update the running statistics once, with the unbiased variance."""
        _, mean, var = total
        share = self._share(momentum)
        unbiased = var * self._correction(total[0])
        return running_mean + share * (mean - running_mean), running_var + share * (unbiased - running_var)

    def _share(self, momentum: float) -> float:
        return momentum

    def _correction(self, n: int) -> float:
        return n / (n - 1)

    def second_pass(self, x: Any, t: Any, w: Any, s: Any, b: Any, total: Total, eps: float = 1e-5) -> Any:
        """Return the five sums of one micro-batch."""
        h = x @ w
        mean, var = self._used(h, total)
        xhat = (h - mean) * self._rstd(var, eps)
        dy = (xhat * s + b - t) / self._samples(x, total)
        sums = {"db": dy.sum(axis=0), "ds": (self._slope(dy, s) * xhat).sum(axis=0), "xsum": x.sum(axis=0)}
        return {**sums, "xdy": x.T @ dy, "xxhat": x.T @ xhat}

    def _used(self, h: Any, total: Total) -> Any:
        return total[1], total[2]

    def _rstd(self, var: Any, eps: float) -> Any:
        return (var + eps) ** -0.5

    def _samples(self, x: Any, total: Total) -> int:
        return total[0]

    def _slope(self, dy: Any, s: Any) -> Any:
        return dy

    def gradients(self, sums: Any, s: Any, total: Total, eps: float = 1e-5) -> Any:
        """Return the gradients from the sums."""
        dw = sums["xdy"] - self._coupling(sums, total[0])
        return {"w": self._scaled(dw, s) * self._rstd(total[2], eps), "s": sums["ds"], "b": sums["db"]}

    def _coupling(self, sums: Any, n: int) -> Any:
        return (self._from_mean(sums) + self._from_var(sums)) / n

    def _from_mean(self, sums: Any) -> Any:
        return np.outer(sums["xsum"], sums["db"])

    def _from_var(self, sums: Any) -> Any:
        return sums["xxhat"] * sums["ds"]

    def _scaled(self, dw: Any, s: Any) -> Any:
        return dw * s

    def ghost_norm(self, x: Any, size: int, eps: float = 1e-5) -> Any:
        """Normalize each ghost with its own statistics."""
        return np.concatenate([(g - g.mean(axis=0)) * self._rstd(g.var(axis=0), eps) for g in self._cut(x, size)])

    def _cut(self, x: Any, size: int) -> list[Any]:
        return [x[i : i + size] for i in range(0, len(x), size)]

    def within_and_between(self, x: Any, size: int) -> Any:
        """Return the weighted means of the variances and of the squared distances between means."""
        ghosts = self._cut(x, size)
        share = self._ghost_shares(np.array([len(ghost) for ghost in ghosts], float))
        within = np.tensordot(share, [ghost.var(axis=0) for ghost in ghosts], 1)
        return within, np.tensordot(share, [(ghost.mean(axis=0) - x.mean(axis=0)) ** 2 for ghost in ghosts], 1)

    def _ghost_shares(self, sizes: Any) -> Any:
        return sizes / sizes.sum()


# Task 17.1


class Unweighted(Right):
    """the gradients are averaged without weights, so a sample in a small micro-batch counts more than others"""

    def _weights(self, sizes: Any) -> Any:
        return np.ones(len(sizes)) / len(sizes)


class LastAsFull(Right):
    """the last micro-batch has the weight of a full one, although it has fewer samples"""

    def _weights(self, sizes: Any) -> Any:
        return np.full(len(sizes), sizes[0] / sizes.sum())


class GradientsSummed(Right):
    """the gradients are summed; they have to be averaged with weights, because each is the gradient of a mean"""

    def _weights(self, sizes: Any) -> Any:
        return np.ones(len(sizes))


class NotDivided(Right):
    """the gradients are multiplied by their sizes, but not divided by N"""

    def _weights(self, sizes: Any) -> Any:
        return sizes


# Task 17.2


class MomentumTimesK(Right):
    """the momentum is multiplied by k, but each update replaces only a share of what is left of the old value"""

    def compounded(self, momentum: float, k: int) -> Any:
        return k * momentum


class RestReturned(Right):
    """the remaining share of the old value is returned; it has to be the replaced share"""

    def compounded(self, momentum: float, k: int) -> Any:
        return (1 - momentum) ** k


class SharesReversed(Right):
    """the shares are in reverse order; the last micro-batch has to have the largest share"""

    def shares(self, momentum: float, k: int) -> Any:
        return super().shares(momentum, k)[::-1]


class SharesEqual(Right):
    """all micro-batches have the same share, but each later update makes the earlier shares smaller"""

    def shares(self, momentum: float, k: int) -> Any:
        return np.full(k, self.compounded(momentum, k) / k)


class MomentumOverK(Right):
    """the momentum is divided by k, but k updates with this momentum replace less than one with the whole momentum"""

    def per_update(self, momentum: float, k: int) -> Any:
        return momentum / k


class RootOfMomentum(Right):
    """the k-th root of the momentum is taken; it has to be taken of the kept share, 1 - momentum"""

    def per_update(self, momentum: float, k: int) -> Any:
        return momentum ** (1 / k)


# Task 17.3


class MeansLeftOut(Right):
    """the variance of the means is left out of the merge"""

    def _between(self, a: Total, b: Total, delta: Any) -> Any:
        return 0 * delta


class MeansUnweighted(Right):
    """the mean of the two means is taken without weights"""

    def _mean(self, a: Total, b: Total) -> Any:
        return (a[1] + b[1]) / 2


class VariancesUnweighted(Right):
    """the mean of the two variances is taken without weights"""

    def _within(self, a: Total, b: Total) -> Any:
        return (a[2] + b[2]) / 2


class DeltaNotSquared(Right):
    """delta is not squared in the variance of the means"""

    def _between(self, a: Total, b: Total, delta: Any) -> Any:
        return a[0] * b[0] * delta / (a[0] + b[0]) ** 2


class SquareOverN(Right):
    """delta^2 has the factor n_a n_b / n, which is right for sums of squares; a variance has to divide by n again"""

    def _between(self, a: Total, b: Total, delta: Any) -> Any:
        return a[0] * b[0] * delta**2 / (a[0] + b[0])


class StatisticsUnbiased(Right):
    """the variance of a micro-batch divides by n - 1; it has to divide by n, because the merge needs this variance"""

    def statistics(self, h: Any) -> Any:
        return len(h), h.mean(axis=0), h.var(axis=0, ddof=1)


class RunningBiased(Right):
    """the running variance takes the population variance; it has to take the unbiased one, var * n / (n - 1)"""

    def _correction(self, n: int) -> float:
        return 1.0


class MomentumReversed(Right):
    """the momentum is taken as the share of the old value; in PyTorch it is the share of the new value"""

    def _share(self, momentum: float) -> float:
        return 1 - momentum


# Task 17.4


class OwnStatistics(Right):
    """each micro-batch is normalized with its own statistics; the second pass has to use those of the whole batch"""

    def _used(self, h: Any, total: Total) -> Any:
        return h.mean(axis=0), h.var(axis=0)


class DividedByOwnSize(Right):
    """dy is divided by the size of the micro-batch; it has to be divided by N, the size of the whole batch"""

    def _samples(self, x: Any, total: Total) -> int:
        return len(x)


class LossNotDivided(Right):
    """dy is not divided by N; the loss is a mean"""

    def _samples(self, x: Any, total: Total) -> int:
        return 1


class EpsForgotten(Right):
    """eps is left out"""

    def _rstd(self, var: Any, eps: float) -> Any:
        return var**-0.5


class EpsOutside(Right):
    """eps is added to the root; it has to be inside: sqrt(var + eps)"""

    def _rstd(self, var: Any, eps: float) -> Any:
        return 1 / (var**0.5 + eps)


class ScaleInSums(Right):
    """ds is the sum of g * xhat, which has the factor s twice; it has to be the sum of dy * xhat"""

    def _slope(self, dy: Any, s: Any) -> Any:
        return dy * s


class StatisticsConstant(Right):
    """dw treats the statistics as constants; the terms of mean and variance are missing"""

    def _coupling(self, sums: Any, n: int) -> Any:
        return 0.0


class MeanForgotten(Right):
    """the mean's term, sum(x) db / N, is missing in dw"""

    def _from_mean(self, sums: Any) -> Any:
        return 0.0


class VarianceForgotten(Right):
    """the variance's term, x^T xhat * ds / N, is missing in dw"""

    def _from_var(self, sums: Any) -> Any:
        return 0.0


class CouplingNotDivided(Right):
    """the terms of mean and variance are not divided by N"""

    def _coupling(self, sums: Any, n: int) -> Any:
        return self._from_mean(sums) + self._from_var(sums)


class ScaleForgotten(Right):
    """the factor s is missing in dw"""

    def _scaled(self, dw: Any, s: Any) -> Any:
        return dw


# Task 17.5


class GhostsInterleaved(Right):
    """each ghost takes every k-th sample; a ghost has to consist of `size` neighbouring samples"""

    def _cut(self, x: Any, size: int) -> list[Any]:
        k = -(-len(x) // size)
        return [x[i::k] for i in range(k)]

    def ghost_norm(self, x: Any, size: int, eps: float = 1e-5) -> Any:
        y, k = np.empty(x.shape), -(-len(x) // size)
        for i, ghost in enumerate(self._cut(x, size)):
            y[i::k] = (ghost - ghost.mean(axis=0)) * self._rstd(ghost.var(axis=0), eps)
        return y


class WholeBatch(Right):
    """the batch is normalized as a whole; each ghost has to have its own statistics"""

    def ghost_norm(self, x: Any, size: int, eps: float = 1e-5) -> Any:
        return (x - x.mean(axis=0)) * self._rstd(x.var(axis=0), eps)


class GhostsUnweighted(Right):
    """all ghosts have the same weight, but the last ghost may have fewer samples"""

    def _ghost_shares(self, sizes: Any) -> Any:
        return np.ones(len(sizes)) / len(sizes)


class RestDropped(Right):
    """the samples after the last full ghost are left out"""

    def _cut(self, x: Any, size: int) -> list[Any]:
        return super()._cut(x[: len(x) // size * size], size)


RECOGNIZER = Recognizer.of(Right, vars())
