"""Lab 2: solutions with one mistake, written in another way than the classes that recognize it."""

from __future__ import annotations

NAIVE = "return np.square(x).mean(axis=0) - np.square(x.mean(axis=0))"
TWO = "return np.square(x - x.mean(axis=0)).mean(axis=0)"
ENUMERATED = "for i, value in enumerate(x, 1):"
MEAN = "mean = mean + delta / i"
M = "M = M + delta * (value - mean)"
WELFORD = "return M / len(x)"
JOINED = "return n, mean1 + delta * (n2 / n), M1 + M2 + delta * delta * (n1 * n2 / n)"
BETWEEN = "M1 + M2 + delta * delta * (n1 * n2 / n)"
JOINT = "mean1 + delta * (n2 / n)"
PIECES = "np.array_split(x, min(pieces, len(x)))"
PART = "part = len(piece), mean, np.square(piece - mean).sum(axis=0)"
CHAN = "return M / n"
K = "k = x[:4].mean(axis=0)"
D = "    d = t.mean(axis=0)\n"
VAR = "np.square(t).mean(axis=0) - np.square(d)"
ROWS = "return k.ravel().astype(np.float64), d.ravel(), var.ravel()"
MADE: dict[str, list[tuple[str, str]]] = {
    "DivisorOneLess": [(TWO, "return ((x - x.mean(0)) ** 2).sum(0) / (len(x) - 1)")],
    "DivisorOneLess 2": [(WELFORD, "return M / (len(x) - 1)")],
    "DivisorOneLess 3": [(CHAN, "return M / (n - 1)")],
    "DivisorOneMore": [(WELFORD, "return M / (i + 1)")],
    "NotDivided": [(WELFORD, "return M")],
    "NotDivided 2": [(TWO, "return ((x - x.mean(0)) ** 2).sum(0)")],
    "StandardDeviation": [(TWO, "return ((x - x.mean(0)) ** 2).mean(0) ** 0.5")],
    "NaiveInFloat64": [(NAIVE, "return (np.square(x, dtype=float).mean(axis=0) - np.square(x.mean(axis=0, dtype=float))).astype(x.dtype)")],
    "NaiveIsVar": [(NAIVE, "return np.square(x - x.mean(axis=0)).mean(axis=0)")],
    "NaiveReversed": [(NAIVE, "return x.mean(0) ** 2 - (x * x).mean(0)")],
    "NaiveMeanSquare": [(NAIVE, "return (x * x).mean(0)")],
    "NaiveMeanNotSquared": [(NAIVE, "return (x * x).mean(0) - x.mean(0)")],
    "NaiveAdded": [(NAIVE, "return (x * x).mean(0) + x.mean(0) ** 2")],
    "NaiveUnbiased": [(NAIVE, "return ((x * x).mean(0) - x.mean(0) ** 2) * len(x) / (len(x) - 1)")],
    "NaiveOverAll": [(NAIVE, "return (x * x).mean() - x.mean() ** 2")],
    "TwoPassOverAll": [(TWO, "return ((x - x.mean()) ** 2).mean()")],
    "TwoPassMeanOfAll": [(TWO, "return ((x - x.mean()) ** 2).mean(0)")],
    "TwoPassNotSquared": [(TWO, "return (x - x.mean(0)).mean(0)")],
    "TwoPassAbsolute": [(TWO, "return abs(x - x.mean(0)).mean(0)")],
    "TwoPassIsNaive": [(TWO, "return (x**2).mean(axis=0) - x.mean(axis=0) ** 2")],
    "TwoPassHalf": [(TWO, "return ((x - x.mean(axis=0)) * x).mean(axis=0)")],
    "WelfordNewMean": [(M, "M = M + (value - mean) ** 2")],
    "WelfordOldMean": [(M, "M = M + delta**2")],
    "WelfordCountLate": [(MEAN, "mean = mean + delta / (1 + i)")],
    "WelfordCountEarly": [(ENUMERATED, "for i, value in enumerate(x):")],
    "WelfordByLength": [(MEAN, "mean = mean + delta / x.shape[0]")],
    "WelfordSubtracted": [(MEAN, "mean = mean - delta / i")],
    "WelfordFirstAsMean": [(ENUMERATED, "mean = x[0].copy()\n    for i, value in enumerate(x, 2):")],
    "WelfordFirstLeftOut": [(ENUMERATED, "for i, value in enumerate(x[1:], 1):")],
    "BetweenForgotten": [(BETWEEN, "M1 + M2")],
    "BetweenNotSquared": [(BETWEEN, "M1 + M2 + delta * (n1 / n * n2)")],
    "BetweenNotDivided": [(BETWEEN, "M1 + M2 + delta**2 * (n1 * n2)")],
    "BetweenWithoutSizes": [(BETWEEN, "M1 + M2 + delta**2")],
    "BetweenSubtracted": [(BETWEEN, "M1 + M2 - delta**2 * (n1 / n * n2)")],
    "BetweenSquareOfSum": [(BETWEEN, "M1 + M2 + delta**2 * (n1 / n) * (n2 / n)")],
    "MeansUnweighted": [(JOINT, "(mean1 + mean2) * 0.5")],
    "MeansSwapped": [(JOINT, "(n2 * mean1 + n1 * mean2) / n")],
    "MeansBackwards": [(JOINT, "mean1 - delta * n2 / n")],
    "MeansAdded": [(JOINT, "mean1 * n1 + mean2 * n2")],
    "FirstMeanKept": [(JOINT, "mean1")],
    "VarianceForM": [(BETWEEN, "(M1 + M2 + delta**2 * (n1 / n * n2)) / n"), (CHAN, "return M")],
    "VariancesAsParts": [(PART, "part = len(piece), mean, np.square(piece - mean).mean(axis=0)")],
    "EmptyPieces": [(PIECES, "np.array_split(x, pieces)")],
    "EqualPieces": [(PIECES, "np.split(x, min(pieces, len(x)))")],
    "RestForgotten": [(PIECES, "x[: len(x) // min(pieces, len(x)) * min(pieces, len(x))].reshape(min(pieces, len(x)), -1, *x.shape[1:])")],
    "PiecesAveraged": [("    whole = None\n", f"    return sum(piece.var(0) for piece in {PIECES}) / min(pieces, len(x))\n    whole = None\n")],
    "FirstValueAsK": [(K, "k = x[0].copy()")],
    "MeanAsK": [(K, "k = x.mean(axis=0)")],
    "ShiftDropped": [("return k, d, " + VAR, "return k, d, (t * t).mean(axis=0)")],
    "ShiftNotSquared": [("return k, d, " + VAR, "return k, d, (t * t).mean(axis=0) - d")],
    "ShiftAdded": [("return k, d, " + VAR, "return k, d, (t * t).mean(axis=0) + d * d")],
    "NotShifted": [("return k, d, " + VAR, "return k, d, (x * x).mean(0) - x.mean(0) ** 2")],
    "MeanAsD": [("return k, d, " + VAR, "return k, x.mean(axis=0), " + VAR)],
    "DBackwards": [("return k, d, " + VAR, "return k, (k - x).mean(axis=0), " + VAR)],
    "SumForD": [(D, "    d = np.sum(t, 0)\n")],
    "KOfEverything": [(K, "k = x[:4].mean()")],
    "ShiftedUnbiased": [("return k, d, " + VAR, f"return k, d, ({VAR}) * len(x) / (len(x) - 1)")],
    "MeanInOneNumber": [(ROWS, "return (k.ravel() + d.ravel()).astype(x.dtype).astype(float), 0 * d.ravel(), var.ravel()")],
    "MeanAsDOfRows": [(ROWS, "return k.ravel().astype(float), x4.mean((2, 3), dtype=float).ravel(), var.ravel()")],
    "DForgotten": [(ROWS, "return k.ravel().astype(float), np.zeros(nest.rows), var.ravel()")],
    "KNotRounded": [("keepdims=True, dtype=np.float64).astype(x.dtype)", "keepdims=True, dtype=np.float64)")],
    "AlwaysCentered": [("    if not centered:\n", "    if False:\n")],
    "RowsNotFlat": [(ROWS, "return k.reshape(-1, 1).astype(float), d.reshape(-1, 1), var.reshape(-1, 1)")],
}  # fmt: skip
