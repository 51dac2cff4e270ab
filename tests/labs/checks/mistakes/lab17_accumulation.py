"""Lab 17: solutions with one mistake, written in another way than the classes that recognize it."""

from __future__ import annotations

WEIGHTS = "weights = [n / sum(sizes) for n in sizes]"
COMPOUNDED, PER_UPDATE = "return 1 - (1 - momentum) ** k\n", "return 1 - (1 - momentum) ** (1 / k)"
SHARES = "return momentum * (1 - momentum) ** np.arange(k - 1, -1, -1)"
STATISTICS = "return len(h), h.mean(axis=0), h.var(axis=0)"
VAR = "var = (n_a * var_a + n_b * var_b) / n + n_a * n_b / n**2 * delta**2"
MEAN = "return n, mean_a + n_b / n * delta, var"
UNBIASED = "unbiased = var * n / (n - 1)"
NEW_MEAN, NEW_VAR = (
    "new_mean = (1 - momentum) * running_mean + momentum * mean",
    "return new_mean, (1 - momentum) * running_var + momentum * unbiased",
)
XHAT, DY = "xhat = (x @ w - mean) / np.sqrt(var + eps)", "dy = (xhat * s + b - t) / n"
DS = '"ds": (dy * xhat).sum(axis=0)'
FROM_MEAN, FROM_VAR = 'from_mean = np.outer(sums["xsum"], sums["db"]) / n', 'from_var = sums["xxhat"] * sums["ds"] / n'
DW = 'dw = (sums["xdy"] - from_mean - from_var) * s / np.sqrt(var + eps)'
GHOST = "y[i : i + size] = c / np.sqrt((c * c).mean(axis=0) + eps)"
CENTERED = "c = x[i : i + size] - x[i : i + size].mean(axis=0)"
BOTH = """        within = within + len(ghost) / len(x) * ghost.var(axis=0)
        between = between + len(ghost) / len(x) * (ghost.mean(axis=0) - mean) ** 2
"""
PLACES = "    for i in range(0, len(x), size):\n        ghost = x[i : i + size]\n"
GHOSTS = "    for i in range(0, len(x), size):\n        c ="
FULL = """    full = len(x) // size
    for i in range(0, full * size, size):
        ghost = x[i : i + size]
"""
MADE: dict[str, list[tuple[str, str]]] = {
    "Unweighted": [(WEIGHTS, "weights = [1 / len(sizes)] * len(sizes)")],
    "LastAsFull": [(WEIGHTS, "weights = [max(sizes[:1]) / sum(sizes) for _ in sizes]")],
    "GradientsSummed": [(WEIGHTS, "weights = [1 for _ in sizes]")],
    "NotDivided": [(WEIGHTS, "weights = list(sizes)")],
    "MomentumTimesK": [(COMPOUNDED, "return sum([momentum] * k)\n")],
    "RestReturned": [(COMPOUNDED, "return np.prod([1 - momentum] * k)\n")],
    "SharesReversed": [(SHARES, "return (1 - momentum) ** np.arange(k) * momentum")],
    "SharesEqual": [(SHARES, "return np.ones(k) * (1 - (1 - momentum) ** k) / k")],
    "MomentumOverK": [(PER_UPDATE, "return momentum * (1 / k)")],
    "RootOfMomentum": [(PER_UPDATE, "return np.exp(np.log(momentum) / k)")],
    "MeansLeftOut": [(VAR, "var = n_a / n * var_a + n_b / n * var_b")],
    "MeansUnweighted": [(MEAN, "return n, np.mean([mean_a, mean_b], axis=0), var")],
    "VariancesUnweighted": [(VAR, "var = np.mean([var_a, var_b], axis=0) + n_a * n_b * (delta / n) ** 2")],
    "DeltaNotSquared": [(VAR, "var = n_a / n * var_a + n_b / n * var_b + n_a * n_b / n / n * delta")],
    "SquareOverN": [(VAR, "var = n_a / n * var_a + n_b / n * var_b + n_a / n * n_b * delta**2")],
    "StatisticsUnbiased": [(STATISTICS, "n = len(h)\n    return n, h.mean(axis=0), h.var(axis=0) * n / (n - 1)")],
    "RunningBiased": [(UNBIASED, "unbiased = var")],
    "MomentumReversed": [(NEW_MEAN, "new_mean = momentum * running_mean + (1 - momentum) * mean"),
                         (NEW_VAR, "return new_mean, momentum * running_var + (1 - momentum) * unbiased")],
    "OwnStatistics": [(XHAT, "h = x @ w\n    xhat = (h - h.mean(0)) / np.sqrt(h.var(0) + eps)")],
    "DividedByOwnSize": [(DY, "dy = (b + s * xhat - t) / x.shape[0]")],
    "LossNotDivided": [(DY, "dy = b + s * xhat - t")],
    "EpsForgotten": [(XHAT, "xhat = (x @ w - mean) / np.sqrt(var)"), (DW, DW.replace("var + eps", "var"))],
    "EpsOutside": [(XHAT, "xhat = (x @ w - mean) / (np.sqrt(var) + eps)"),
                   (DW, DW.replace("np.sqrt(var + eps)", "(np.sqrt(var) + eps)"))],
    "ScaleInSums": [(DS, '"ds": s * (dy * xhat).sum(axis=0)')],
    "StatisticsConstant": [(DW, 'dw = sums["xdy"] * s * (var + eps) ** -0.5')],
    "MeanForgotten": [(DW, 'dw = (sums["xdy"] - from_var) * s * (var + eps) ** -0.5')],
    "VarianceForgotten": [(DW, 'dw = (sums["xdy"] - from_mean) * s * (var + eps) ** -0.5')],
    "CouplingNotDivided": [(FROM_MEAN, FROM_MEAN.replace(" / n", "")), (FROM_VAR, FROM_VAR.replace(" / n", ""))],
    "ScaleForgotten": [(DW, 'dw = (sums["xdy"] - from_mean - from_var) * (var + eps) ** -0.5')],
    "GhostsInterleaved": [(GHOSTS, "    k = int(np.ceil(len(x) / size))\n    for i in range(k):\n        c ="),
                          (CENTERED, "c = x[i::k] - x[i::k].mean(axis=0)"), (GHOST, GHOST.replace("i : i + size", "i::k")),
                          (PLACES, "    k = int(np.ceil(len(x) / size))\n    for i in range(k):\n        ghost = x[i::k]\n")],
    "WholeBatch": [(CENTERED, "c = x - x.mean(axis=0)"),
                   (GHOST, "y[:] = c / np.sqrt((c * c).mean(axis=0) + eps)")],
    "GhostsUnweighted": [(BOTH, BOTH.replace("len(ghost) / len(x)", "1 / np.ceil(len(x) / size)"))],
    "RestDropped": [(GHOSTS, "    y = y[: len(x) - len(x) % size]\n    for i in range(0, len(y), size):\n        c ="),
                    (PLACES, FULL),
                    (BOTH, BOTH.replace("len(ghost) / len(x)", "1 / full"))],
}  # fmt: skip
