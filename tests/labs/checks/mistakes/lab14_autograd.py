"""Lab 14: solutions with one mistake, written in another way than the classes that recognize it."""

from __future__ import annotations

NEW = "    dy = dy.sum(axis=tuple(range(dy.ndim - len(shape))))\n"
ONES = "    return dy.sum(axis=repeated, keepdims=True)\n"
SPREAD = "(np.broadcast_to(dy, shape),)"
SPREAD_M = "(np.broadcast_to(dy / m, shape),)"
M = "m = np.prod([shape[axis] for axis in axes])"
SLOPE = "dy * p * a.value ** (p - 1)"
JOIN = "one.grad = one.grad + gradient"
WALK = "    found, seen = [], set()\n"
END = "    return found[::-1]\n"
CENTERED = "    centered = sub(x, mean)\n    var = mean_over(mul(centered, centered), axes)\n    rstd = power(add(var, Var(eps)), -0.5)\n"
CUT = '    direct = x if "direct" in paths else detach(x)\n    mean = mean if "mean" in paths else detach(mean)\n'
TERMS = "return g * rstd, -rstd * mean_g + 0 * g, -rstd * xhat * mean_gx"
QUOTIENT = "(f(right) - f(left)) / (2 * h)"
MADE: dict[str, list[tuple[str, str]]] = {
    "NotUndone": [(NEW, "    return dy\n")],
    "NewAxesKept": [(NEW, ""), ("for axis, count in enumerate(shape) if count == 1)", "for axis, count in enumerate((1,) * (dy.ndim - len(shape)) + shape) if count == 1)")],
    "OnesNotSummed": [(ONES, "    return dy\n")],
    "OnesDropped": [(ONES, "    return dy.sum(repeated)\n")],
    "RepeatedAveraged": [(NEW, NEW.replace("dy.sum", "dy.mean")), (ONES, ONES.replace("dy.sum", "dy.mean"))],
    "FirstTaken": [(NEW, "    while dy.ndim > len(shape):\n        dy = dy[0]\n"), (ONES, "    for axis in repeated:\n        dy = dy.take([0], axis)\n    return dy\n")],
    "BroadcastForgotten": [("lambda dy: (unbroadcast(dy, a.value.shape), unbroadcast(-dy, b.value.shape))", "lambda dy: (dy, -dy)"),
                           ("unbroadcast(dy * b.value, a.value.shape)", "dy * b.value"), ("unbroadcast(dy * a.value, b.value.shape)", "dy * a.value")],
    "DifferenceWithoutSign": [("unbroadcast(-dy, b.value.shape)", "unbroadcast(dy, b.value.shape)")],
    "ProductSwapped": [("dy * b.value, a.value.shape", "dy * a.value, a.value.shape"), ("dy * a.value, b.value.shape", "dy * b.value, b.value.shape")],
    "PowerWithoutFactor": [(SLOPE, "a.value ** (p - 1) * dy")],
    "PowerNotLowered": [(SLOPE, "p * a.value**p * dy")],
    "PowerWithoutSign": [(SLOPE, "a.value ** (p - 1) * np.abs(p) * dy")],
    "MeanWithoutM": [(SPREAD_M, SPREAD)],
    "MeanOfAll": [(M, "m = a.value.size")],
    "MeanOfRows": [(M, "m = a.value.mean(axis=axes).size")],
    "MeanOverAllAxes": [(M, "axes = None\n    m = a.value.size")],
    "NotSpread": [(SPREAD, "(dy,)"), (SPREAD_M, "(dy / m,)")],
    "Overwritten": [(JOIN, "one.grad = gradient")],
    "InputsFirst": [(END, "    return found\n")],
    "LevelByLevel": [(WALK, "    found = [root]\n    for node in found:\n        found += [one for one in dict.fromkeys(node.inputs) if one not in found]\n    return found\n    seen = set()\n")],
    "WrittenDownTooEarly": [("        seen.add(node)\n", "        seen.add(node)\n        found.append(node)\n"), ("            visit(one)\n        found.append(node)\n", "            visit(one)\n"), (END, "    return found\n")],
    "VisitedAgain": [("        if node in seen:\n            return\n", "")],
    "NotDetached": [("    return Var(a.value)\n", "    return add(a, Var(0.0))\n")],
    "ZeroValue": [("    return Var(a.value)\n", "    return Var(np.zeros(a.value.shape))\n")],
    "EpsForgotten": [("power(add(var, Var(eps)), -0.5)", "power(var, -0.5)")],
    "VarianceOfCut": [(CENTERED, ""), (CUT, CUT + CENTERED.replace("sub(x,", "sub(direct,"))],
    "AllPathsOpen": [("    mean = mean_over(x, axes)\n    centered", "    paths = \"direct mean variance\"\n    mean = mean_over(x, axes)\n    centered")],
    "OtherPaths": [(" in paths else", " not in paths else")],
    "SumsForMeans": [("g.mean(axis=axes", "g.sum(axis=axes"), ("(g * xhat).mean(", "(g * xhat).sum(")],
    "TermsOverAllAxes": [("g.mean(axis=axes, keepdims=True)", "g.mean()"), ("(g * xhat).mean(axis=axes, keepdims=True)", "(g * xhat).mean()")],
    "MeanAdded": [(TERMS, "return g * rstd, mean_g * rstd + 0 * g, -rstd * xhat * mean_gx")],
    "MeanWithoutRstd": [(TERMS, "return g * rstd, 0 * g - mean_g, -rstd * xhat * mean_gx")],
    "VarianceAdded": [(TERMS, "return g * rstd, -rstd * mean_g + 0 * g, mean_gx * xhat * rstd")],
    "VarianceWithoutXhat": [(TERMS, "return g * rstd, -rstd * mean_g + 0 * g, 0 * g - mean_gx * rstd")],
    "VarianceWithoutRstd": [(TERMS, "return g * rstd, -rstd * mean_g + 0 * g, -mean_gx * xhat")],
    "VarianceOfThirdPower": [(TERMS, "return g * rstd, -rstd * mean_g + 0 * g, -mean_gx * xhat * rstd * rstd * rstd")],
    "OneSided": [(QUOTIENT, "(f(right) - f(x)) / h")],
    "DividedByH": [(QUOTIENT, "(f(right) - f(left)) / h")],
    "NotMovedBack": [("    found = np.zeros(x.shape)\n    for index in np.ndindex(x.shape):\n        right, left = x.copy(), x.copy()\n        right[index] += h\n        left[index] -= h\n",
                      "    found = np.zeros(x.shape)\n    left = x.copy()\n    for index in np.ndindex(x.shape):\n        right = left.copy()\n        right[index] = x[index] + h\n        left[index] = x[index] - h\n")],
    "Ascent": [("leaf.value - rate * leaf.grad", "leaf.value + rate * leaf.grad")],
    "OverFeatures": [("normalized(matmul(x, w1), (0,)", "normalized(matmul(x, w1), (1,)")],
    "SumOfSquares": [("loss = mean_over(", "loss = sum_over(")],
}  # fmt: skip
