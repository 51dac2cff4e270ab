"""Lab 3: solutions with one mistake, written in another way than the classes that recognize it."""

from __future__ import annotations

RSTD = "    rstd = (var + eps) ** -0.5\n"
DC = "    dc = g * rstd\n"
DRSTD = "drstd = (g * c).sum(axis=axes, keepdims=True)"
DVAR = "dvar = -0.5 * rstd**3 * drstd"
JOIN = "dc = dc + 2 * c * dvar / m"
END = "    dmean = -dc.sum(axis=axes, keepdims=True)\n    return dc + dmean / m\n"
M = "m = np.prod([x.shape[axis] for axis in axes])"
MEANS = "    mean_g = g.mean(axis=axes, keepdims=True)\n    mean_gx = (g * xhat).mean(axis=axes, keepdims=True)\n"
FORMULA = "    return rstd * (g - mean_g - xhat * mean_gx)\n"
SUMS = "return (dy * xhat).sum(axis=axes), dy.sum(axis=axes)"
XHAT = "xhat = ((x4 - k) - d) * rstd"
PARAMETERS = "parameter_sums(nest, dy4 * xhat), parameter_sums(nest, dy4)"
MADE: dict[str, list[tuple[str, str]]] = {
    "MeanIsConstant": [(END, "    return dc\n")],
    "MeanIsAdded": [(END, "    return dc + dc.mean(axis=axes, keepdims=True)\n")],
    "MeanNotDivided": [(END, END.replace("dmean / m", "dmean"))],
    "MeanAlone": [(END, END.replace("dc + dmean / m", "np.broadcast_to(dmean / m, x.shape)"))],
    "VarianceIsConstant": [(f"    {JOIN}\n", "")],
    "ProductIsConstant": [(JOIN, "dc = 2 * c * dvar / m")],
    "VarianceSubtracted": [(JOIN, "dc -= 2 * c * dvar / m")],
    "SquareNotDivided": [(JOIN, "dc = dc + c * dvar * 2")],
    "SquareWithoutTwo": [(JOIN, "dc = dc + dvar * c / m")],
    "VarianceIsConstant 2": [(JOIN, "dc = dc + dvar / m * 2")],
    "RootWithoutHalf": [(DVAR, "dvar = -drstd * rstd**3")],
    "VarianceSubtracted 2": [(DVAR, "dvar = drstd / 2 * rstd**3")],
    "RootOfFirstPower": [(DVAR, "dvar = -drstd / 2 * rstd")],
    "RootOfSecondPower": [(DVAR, "dvar = -drstd / 2 / (var + eps)")],
    "RootNotRaised": [(DVAR, "dvar = -drstd / 2")],
    "RstdNotSummed": [(DRSTD, "drstd = g * c")],
    "RstdAveraged": [(DRSTD, "drstd = (c * g).sum(axis=axes, keepdims=True) / m")],
    "RstdWithoutC": [(DRSTD, "drstd = g.sum(axis=axes, keepdims=True)")],
    "ProductWithoutRstd": [(DC, "    dc = g\n")],
    "WrongM": [(M, "m = np.prod(x.shape)")],
    "EpsForgotten": [(RSTD, "    rstd = 1 / np.sqrt(var)\n")],
    "WithoutMeanOfG": [(FORMULA, "    return (g - mean_gx * xhat) * rstd\n")],
    "WithoutMeanOfProduct": [(FORMULA, "    return (g - mean_g) * rstd\n")],
    "WithoutRstd": [(FORMULA, "    return g - mean_g - mean_gx * xhat\n")],
    "WithoutXhat": [(FORMULA, "    return (g - mean_g - mean_gx) * rstd\n")],
    "OnlyG": [(FORMULA, "    return g * rstd\n")],
    "ProductAdded": [(FORMULA, "    return (g - (mean_g - mean_gx * xhat)) * rstd\n")],
    "MeanOfGAdded": [(FORMULA, "    return (g + mean_g - mean_gx * xhat) * rstd\n")],
    "RstdSquared": [(FORMULA, "    return rstd * rstd * (g - mean_g - mean_gx * xhat)\n")],
    "DividedByRstd": [(FORMULA, "    return 1 / rstd * (g - mean_g - mean_gx * xhat)\n")],
    "RstdOfGAlone": [(FORMULA, "    return rstd * g - mean_g - mean_gx * xhat\n")],
    "WrongSign": [(FORMULA, "    return (mean_g - g + mean_gx * xhat) * rstd\n")],
    "SumOfG": [("    mean_g = g.mean(axis=axes", "    mean_g = g.sum(axis=axes")],
    "SumOfProduct": [("(g * xhat).mean(axis=axes", "(g * xhat).sum(axis=axes")],
    "BothSums": [(MEANS, MEANS.replace(".mean(", ".sum("))],
    "WithoutMeanOfProduct 2": [("(g * xhat).mean(axis=axes", "mean_g * xhat.mean(axis=axes")],
    "AllAxes": [(MEANS, "    mean_g, mean_gx = g.mean(), (g * xhat).mean()\n")],
    "AxesDropped": [(MEANS, "    mean_g, mean_gx = g.mean(axes), (g * xhat).mean(axes)\n")],
    "ParametersAveraged": [(SUMS, "return np.mean(xhat * dy, axes), np.mean(dy, axes)")],
    "BiasAveraged": [(SUMS, "return np.sum(xhat * dy, axes), np.mean(dy, axes)")],
    "ScaleAveraged": [(SUMS, "return np.mean(xhat * dy, axes), np.sum(dy, axes)")],
    "ParametersKept": [(SUMS, SUMS.replace("axis=axes", "axis=axes, keepdims=True"))],
    "ScaleKept": [(SUMS, SUMS.replace("axis=axes", "axis=axes, keepdims=True", 1))],
    "ParametersSwapped": [(SUMS, "return dy.sum(axis=axes), (dy * xhat).sum(axis=axes)")],
    "ScaleWithoutXhat": [(SUMS, "return 2 * (dy.sum(axis=axes),)")],
    "OtherAxes": [(SUMS, "axes = tuple({0, 1, 2} - set(axes))\n    " + SUMS)],
    "ChannelsAlways": [(SUMS, "axes = (0, 2)\n    " + SUMS)],
    "ScaleIgnored": [("dy4 if s is None else dy4 * parameters(nest, s)", "dy4")],
    "ScaleExpected": [("dy4 if s is None else dy4 * parameters(nest, s)", "dy4 * parameters(nest, s)")],
    "AlwaysCentered": [(" if equation.centered else 0", "")],
    "SlopeIgnored": [("mean_gx = slope * ", "mean_gx = ")],
    "ShiftDropped": [(XHAT, "xhat = (x4 - k) * rstd")],
    "MeanDropped": [(XHAT, "xhat = (x4 - d) * rstd")],
    "NothingSubtracted": [(XHAT, "xhat = x4 * rstd")],
    "ScaleSummedFromG": [(PARAMETERS, PARAMETERS.replace("dy4", "g"))],
    "ScaleFromX": [(PARAMETERS, PARAMETERS.replace("dy4 * xhat", "x4 * dy4"))],
    "SumsSwapped": [(PARAMETERS, "parameter_sums(nest, dy4), parameter_sums(nest, dy4 * xhat)")],
}  # fmt: skip
