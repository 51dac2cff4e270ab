"""Typical mistakes in lab 2: the class Right has the right functions, and each subclass has one mistake."""

from __future__ import annotations

from typing import Any

import numpy as np

from minorm.kernels.reference.norm import four
from minorm.labs.checks.variants.lab02_stable_variance import V, translated
from minorm.labs.judge.recognizing import Recognizer


class Right:
    """The right functions of the lab, which compute in the type of x. `_divided` divides the sums by n."""

    def _divided(self, total: Any, n: int) -> Any:
        return total / n

    def naive(self, x: Any) -> Any:
        """Compute mean(x^2) - mean(x)^2."""
        return self._less(np.square(x).mean(axis=0), np.square(x.mean(axis=0)))

    def _less(self, square: Any, mean_squared: Any) -> Any:
        return square - mean_squared

    def two_pass(self, x: Any) -> Any:
        """Compute mean((x - mean)^2)."""
        return self._divided(np.square(x - x.mean(axis=0)).sum(axis=0), len(x))

    def welford(self, x: Any) -> Any:
        """Compute the variance by Welford's algorithm, which adds one value after the other."""
        mean, M = self._beginning(x)
        for i, value in enumerate(x, 1):
            before, mean = mean, self._next_mean(mean, value, i)
            M = M + self._product(value - before, value - mean)
        return self._divided(M, len(x))

    def _beginning(self, x: Any) -> Any:
        return np.zeros(x.shape[1:], x.dtype), np.zeros(x.shape[1:], x.dtype)

    def _next_mean(self, mean: Any, value: Any, i: int) -> Any:
        return mean + (value - mean) / i

    def _product(self, from_old: Any, from_new: Any) -> Any:
        return from_old * from_new

    def combine(self, first: Any, second: Any) -> Any:
        """Merge two pieces, each given as (n, mean, M) with M the sum of squared distances.

        Return (n, mean, M) of all their values.
        """
        (n1, mean1, M1), (n2, mean2, M2) = first, second
        return n1 + n2, self._joint_mean(n1, mean1, n2, mean2), M1 + M2 + self._between(n1, n2, mean2 - mean1)

    def _joint_mean(self, n1: int, mean1: Any, n2: int, mean2: Any) -> Any:
        return mean1 + (mean2 - mean1) * (n2 / (n1 + n2))

    def _between(self, n1: int, n2: int, delta: Any) -> Any:
        return delta * delta * (n1 * n2 / (n1 + n2))

    def chan(self, x: Any, pieces: int = 8) -> Any:
        """Cut x into pieces, combine them from left to right, and return the variance."""
        whole: Any = None
        for piece in self._pieces(x, pieces):
            part = self._part(piece)
            whole = part if whole is None else self.combine(whole, part)
        n, _, M = whole
        return self._divided(M, n)

    def _pieces(self, x: Any, pieces: int) -> Any:
        return np.array_split(x, min(pieces, len(x)))

    def _part(self, piece: Any) -> Any:
        mean = piece.mean(axis=0)
        return len(piece), mean, np.square(piece - mean).sum(axis=0)

    def shifted(self, x: Any) -> Any:
        """Return the shift k, d = mean(x - k) and the variance, which is computed from x - k."""
        k = self._k(x)
        t = x - k
        d = t.mean(axis=0)
        return k, d, self._around(np.square(t).mean(axis=0), d)

    def _k(self, x: Any) -> Any:
        return x[: V.first].mean(axis=0)

    def _around(self, square: Any, d: Any) -> Any:
        return square - np.square(d)

    def moments(self, nest: Any, x: Any, centered: bool) -> Any:
        """Return the shift k, d = mean(x - k) and the variance of each row of a nest."""
        x4 = four(nest, x)
        if not self._is_centered(centered):
            zero = np.zeros(nest.rows)
            return zero, zero, np.square(x4).mean(axis=(2, 3), dtype=np.float64).ravel()
        k = self._rounded(x4.mean(axis=(2, 3), keepdims=True, dtype=np.float64), x.dtype)
        t = x4 - k
        d = t.mean(axis=(2, 3), dtype=np.float64)
        var = self._around(np.square(t).mean(axis=(2, 3), dtype=np.float64), d)
        return self._returned(k.ravel().astype(np.float64), d.ravel(), var.ravel(), x.dtype)

    def _is_centered(self, centered: bool) -> bool:
        return centered

    def _rounded(self, k: Any, dtype: Any) -> Any:
        return k.astype(dtype)

    def _returned(self, k: Any, d: Any, var: Any, dtype: Any) -> Any:
        return k, d, var


class DivisorOneLess(Right):
    """the sum of squares is divided by n - 1 instead of n, as with ddof=1"""

    def _divided(self, total: Any, n: int) -> Any:
        return total / (n - 1)


class DivisorOneMore(Right):
    """the sum of squares is divided by n + 1 instead of n"""

    def _divided(self, total: Any, n: int) -> Any:
        return total / (n + 1)


class NotDivided(Right):
    """the sum of squares is returned; the division by n is missing"""

    def _divided(self, total: Any, n: int) -> Any:
        return total


class StandardDeviation(Right):
    """the standard deviation is returned instead of the variance; there is a root too many"""

    def _divided(self, total: Any, n: int) -> Any:
        return np.sqrt(total / n)


# Task 2.1


class NaiveInFloat64(Right):
    """naive computes in float64; it has to compute in the type of x, so that the formula's error shows"""

    def naive(self, x: Any) -> Any:
        wide = x.astype(np.float64)
        return (np.square(wide).mean(axis=0) - np.square(wide.mean(axis=0))).astype(x.dtype)


class NaiveIsVar(Right):
    """naive uses a stable formula, as np.var does; it has to use mean(x^2) - mean(x)^2"""

    def naive(self, x: Any) -> Any:
        return x.var(axis=0)


class NaiveReversed(Right):
    """the difference is the wrong way round, mean(x)^2 - mean(x^2)"""

    def _less(self, square: Any, mean_squared: Any) -> Any:
        return mean_squared - square


class NaiveMeanSquare(Right):
    """only mean(x^2) is returned; mean(x)^2 has to be subtracted"""

    def _less(self, square: Any, mean_squared: Any) -> Any:
        return square


class NaiveMeanNotSquared(Right):
    """the mean is subtracted without being squared"""

    def naive(self, x: Any) -> Any:
        return np.square(x).mean(axis=0) - x.mean(axis=0)


class NaiveAdded(Right):
    """mean(x)^2 is added instead of subtracted"""

    def _less(self, square: Any, mean_squared: Any) -> Any:
        return square + mean_squared


class NaiveUnbiased(Right):
    """the result of naive is multiplied by n / (n - 1), but this task's variance divides by n"""

    def naive(self, x: Any) -> Any:
        return super().naive(x) * (len(x) / (len(x) - 1))


class NaiveOverAll(Right):
    """naive takes its means over the whole array; each column has to have its own mean"""

    def naive(self, x: Any) -> Any:
        return np.square(x).mean() - np.square(x.mean())


# Task 2.2


class TwoPassOverAll(Right):
    """two_pass takes its means over the whole array; each column has to have its own mean"""

    def two_pass(self, x: Any) -> Any:
        return np.square(x - x.mean()).mean()


class TwoPassMeanOfAll(Right):
    """two_pass subtracts the mean of the whole array; each column has to have its own mean"""

    def two_pass(self, x: Any) -> Any:
        return np.square(x - x.mean()).mean(axis=0)


class TwoPassNotSquared(Right):
    """the distances are not squared, so they add up to 0"""

    def two_pass(self, x: Any) -> Any:
        return (x - x.mean(axis=0)).mean(axis=0)


class TwoPassAbsolute(Right):
    """two_pass is the mean of |x - mean|; it needs squares, not absolute values"""

    def two_pass(self, x: Any) -> Any:
        return np.abs(x - x.mean(axis=0)).mean(axis=0)


class TwoPassIsNaive(Right):
    """two_pass uses the naive formula again; it has to take the mean of (x - mean)^2"""

    def two_pass(self, x: Any) -> Any:
        return self.naive(x)


class TwoPassHalf(Right):
    """two_pass is the naive formula in disguise; mean(x * (x - mean)) subtracts the mean from only one factor"""

    def two_pass(self, x: Any) -> Any:
        return (x * (x - x.mean(axis=0))).mean(axis=0)


# Task 2.3


class WelfordNewMean(Right):
    """both factors of M's product are distances from the new mean; one has to be a distance from the old mean"""

    def _product(self, from_old: Any, from_new: Any) -> Any:
        return from_new * from_new


class WelfordOldMean(Right):
    """both factors of M's product are distances from the old mean; one has to be a distance from the new mean"""

    def _product(self, from_old: Any, from_new: Any) -> Any:
        return from_old * from_old


class WelfordCountLate(Right):
    """the new mean is divided by a count that is one too large; the count of the first value has to be 1"""

    def _next_mean(self, mean: Any, value: Any, i: int) -> Any:
        return mean + (value - mean) / (i + 1)


class WelfordCountEarly(Right):
    """the new mean is divided by a count that begins at 0; the count of the first value has to be 1"""

    def _next_mean(self, mean: Any, value: Any, i: int) -> Any:
        return mean + (value - mean) / np.asarray(i - 1, value.dtype)


class WelfordByLength(Right):
    """the new mean is always divided by n; it has to be divided by the number of values so far"""

    def welford(self, x: Any) -> Any:
        mean, M = self._beginning(x)
        for value in x:
            before, mean = mean, mean + (value - mean) / len(x)
            M = M + (value - before) * (value - mean)
        return M / len(x)


class WelfordSubtracted(Right):
    """the mean moves away from the value; delta / i has to be added"""

    def _next_mean(self, mean: Any, value: Any, i: int) -> Any:
        return mean - (value - mean) / i


class WelfordFirstAsMean(Right):
    """the mean begins as the first value, and the loop adds this value again, so it counts twice"""

    def welford(self, x: Any) -> Any:
        mean, M = x[0], np.zeros(x.shape[1:], x.dtype)
        for i, value in enumerate(x, 2):
            before, mean = mean, mean + (value - mean) / i
            M = M + (value - before) * (value - mean)
        return M / len(x)


class WelfordFirstLeftOut(Right):
    """the first value is left out"""

    def welford(self, x: Any) -> Any:
        mean, M = self._beginning(x)
        for i, value in enumerate(x[1:], 1):
            before, mean = mean, mean + (value - mean) / i
            M = M + (value - before) * (value - mean)
        return M / len(x)


# Task 2.4


class BetweenForgotten(Right):
    """the term delta^2 * n1 * n2 / n is missing; M1 + M2 ignores the distance between the means"""

    def _between(self, n1: int, n2: int, delta: Any) -> Any:
        return 0 * delta


class BetweenNotSquared(Right):
    """delta is not squared"""

    def _between(self, n1: int, n2: int, delta: Any) -> Any:
        return delta * (n1 * n2 / (n1 + n2))


class BetweenNotDivided(Right):
    """delta^2 is multiplied by n1 * n2, but not divided by n"""

    def _between(self, n1: int, n2: int, delta: Any) -> Any:
        return delta * delta * n1 * n2


class BetweenWithoutSizes(Right):
    """delta^2 is added without its factor n1 * n2 / n"""

    def _between(self, n1: int, n2: int, delta: Any) -> Any:
        return delta * delta


class BetweenSubtracted(Right):
    """the term delta^2 * n1 * n2 / n is subtracted instead of added"""

    def _between(self, n1: int, n2: int, delta: Any) -> Any:
        return -super()._between(n1, n2, delta)


class BetweenSquareOfSum(Right):
    """the factor of delta^2 is n1 * n2 / n^2; it has to be n1 * n2 / n, because M is a sum and not a mean"""

    def _between(self, n1: int, n2: int, delta: Any) -> Any:
        return delta * delta * (n1 * n2 / (n1 + n2) ** 2)


class MeansUnweighted(Right):
    """the means are averaged as if both pieces had the same size"""

    def _joint_mean(self, n1: int, mean1: Any, n2: int, mean2: Any) -> Any:
        return (mean1 + mean2) / 2


class MeansSwapped(Right):
    """the weights of the means are swapped; the weight of the second piece has to be n2 / n"""

    def _joint_mean(self, n1: int, mean1: Any, n2: int, mean2: Any) -> Any:
        return mean1 + (mean2 - mean1) * (n1 / (n1 + n2))


class MeansBackwards(Right):
    """the mean moves away from the second piece's mean; delta has to be mean2 - mean1"""

    def _joint_mean(self, n1: int, mean1: Any, n2: int, mean2: Any) -> Any:
        return mean1 - (mean2 - mean1) * (n2 / (n1 + n2))


class MeansAdded(Right):
    """the mean is the sum of n1 * mean1 and n2 * mean2; the division by n is missing"""

    def _joint_mean(self, n1: int, mean1: Any, n2: int, mean2: Any) -> Any:
        return n1 * mean1 + n2 * mean2


class FirstMeanKept(Right):
    """the mean of the first piece is returned as the mean of both"""

    def _joint_mean(self, n1: int, mean1: Any, n2: int, mean2: Any) -> Any:
        return mean1


class VarianceForM(Right):
    """M is divided by n; combine has to return the sum of squares, not the variance"""

    def combine(self, first: Any, second: Any) -> Any:
        n, mean, M = super().combine(first, second)
        return n, mean, M / n

    def chan(self, x: Any, pieces: int = 8) -> Any:
        return Right().chan(x, pieces)


class VariancesAsParts(Right):
    """the M of a piece is its variance; it has to be the sum of squares"""

    def _part(self, piece: Any) -> Any:
        return len(piece), piece.mean(axis=0), piece.var(axis=0)


class EmptyPieces(Right):
    """there are more pieces than values, and the mean of an empty piece is NaN"""

    def _pieces(self, x: Any, pieces: int) -> Any:
        return np.array_split(x, pieces)


class EqualPieces(Right):
    """x is cut into pieces of equal size, which fails if the size does not divide n"""

    def _pieces(self, x: Any, pieces: int) -> Any:
        return np.split(x, min(pieces, len(x)))


class RestForgotten(Right):
    """the values after the last full piece are left out"""

    def _pieces(self, x: Any, pieces: int) -> Any:
        count = min(pieces, len(x))
        size = len(x) // count
        return [x[i * size : (i + 1) * size] for i in range(count)]


class PiecesAveraged(Right):
    """the variances of the pieces are averaged"""

    def chan(self, x: Any, pieces: int = 8) -> Any:
        return np.mean([piece.var(axis=0) for piece in self._pieces(x, pieces)], axis=0)


# Task 2.5


class FirstValueAsK(Right):
    """k is the first value; it has to be the mean of the first four"""

    def _k(self, x: Any) -> Any:
        return x[0]


class MeanAsK(Right):
    """k is the mean of all values; it has to be the mean of the first four"""

    def _k(self, x: Any) -> Any:
        return x.mean(axis=0)


class ShiftDropped(Right):
    """d^2 is not subtracted; the variance is mean(t^2) - d^2"""

    def _around(self, square: Any, d: Any) -> Any:
        return square


class ShiftNotSquared(Right):
    """d is subtracted without being squared"""

    def _around(self, square: Any, d: Any) -> Any:
        return square - d


class ShiftAdded(Right):
    """d^2 is added instead of subtracted"""

    def _around(self, square: Any, d: Any) -> Any:
        return square + np.square(d)


class NotShifted(Right):
    """k is returned but not subtracted; the squares have to be those of x - k"""

    def shifted(self, x: Any) -> Any:
        k = self._k(x)
        return k, (x - k).mean(axis=0), np.square(x).mean(axis=0) - np.square(x.mean(axis=0))


class MeanAsD(Right):
    """d is the mean itself; it has to be the mean minus k"""

    def shifted(self, x: Any) -> Any:
        k, _, var = super().shifted(x)
        return k, x.mean(axis=0), var


class DBackwards(Right):
    """d has the wrong sign; it has to be mean(x - k)"""

    def shifted(self, x: Any) -> Any:
        k, d, var = super().shifted(x)
        return k, -d, var


class SumForD(Right):
    """d is the sum of x - k; it has to be the mean"""

    def shifted(self, x: Any) -> Any:
        k = self._k(x)
        t = x - k
        d = t.sum(axis=0)
        return k, d, np.square(t).mean(axis=0) - np.square(d)


class KOfEverything(Right):
    """k is one number for all columns; each column has to have its own k"""

    def _k(self, x: Any) -> Any:
        return x[: V.first].mean()


class ShiftedUnbiased(Right):
    """var is multiplied by n / (n - 1), but this task's variance divides by n"""

    def shifted(self, x: Any) -> Any:
        k, d, var = super().shifted(x)
        return k, d, var * (len(x) / (len(x) - 1))


# Task 2.6


class MeanInOneNumber(Right):
    """the mean is returned as one number, rounded to the type of x, with d = 0; d has to hold the rest"""

    def _returned(self, k: Any, d: Any, var: Any, dtype: Any) -> Any:
        return (k + d).astype(dtype).astype(np.float64), 0 * d, var


class MeanAsDOfRows(Right):
    """d is the mean itself; it has to be the mean minus k"""

    def _returned(self, k: Any, d: Any, var: Any, dtype: Any) -> Any:
        return k, k + d, var


class DForgotten(Right):
    """d is returned as 0; the mean has to be k + d"""

    def _returned(self, k: Any, d: Any, var: Any, dtype: Any) -> Any:
        return k, 0 * d, var


class KNotRounded(Right):
    """k is a float64 number that the type of x cannot hold, but the kernel subtracts k in the type of x"""

    def _rounded(self, k: Any, dtype: Any) -> Any:
        return k


class AlwaysCentered(Right):
    """centered=False is ignored; with it, the mean has to be 0 and the variance the mean square"""

    def _is_centered(self, centered: bool) -> bool:
        return True


class RowsNotFlat(Right):
    """k, d and var keep the axes of `four`; they have to be flat vectors with one number per row"""

    def _returned(self, k: Any, d: Any, var: Any, dtype: Any) -> Any:
        return k.reshape(-1, 1), d.reshape(-1, 1), var.reshape(-1, 1)


RECOGNIZER = Recognizer.of(Right, vars(), V, translated)
