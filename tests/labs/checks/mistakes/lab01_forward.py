"""Lab 1: solutions with one mistake, written in another way than the classes that recognize it."""

from __future__ import annotations

MEAN = "    mean = x.mean(axis=axes, keepdims=True)\n"
VAR = "np.square(x - mean).mean(axis=axes, keepdims=True)"
UNCENTERED = "    if not centered:\n        mean = np.zeros_like(mean)\n"
XHAT = "return (x - mean) / np.sqrt(var + eps)"
APPLY = "y = apply(y, parameter.reshape(parameter.shape + (1,) * behind))"
PAIRS = "for parameter, apply in ((s, np.multiply), (b, np.add)):"
SPLIT = "split = x.reshape(n, num_groups, c // num_groups, *x.shape[2:])"
GROUPED = "xhat = normalize(split, tuple(range(2, split.ndim)), eps)"
LAYER = "return affine(normalize(x, tuple(range(first, x.ndim)), eps), s, b, first)"
RMS = "xhat = normalize(x, tuple(range(first, x.ndim)), eps, centered=False)\n    return affine(xhat, s, None, first)"
BATCH = "normalize(x, (0, *range(2, x.ndim)), eps)"
INSTANCE = "normalize(x, tuple(range(2, x.ndim)), eps)"
BEHIND = "behind = xhat.ndim - axis - parameter.ndim"
MADE: dict[str, list[tuple[str, str]]] = {
    "DivisorOneLess": [(VAR, "np.square(x - mean).sum(axis=axes, keepdims=True) / (x.size // mean.size - 1)")],
    "StandardDeviation": [(VAR, VAR + " ** 0.5")],
    "NotDivided": [(VAR, "np.einsum('...,...->...', x - mean, x - mean).sum(axes, keepdims=True)")],
    "NothingDivided": [(MEAN, MEAN.replace("mean(axis", "sum(axis")), (VAR, VAR.replace(".mean", ".sum"))],
    "MeanSquare": [(VAR, "np.mean(x * x, axis=axes, keepdims=True)")],
    "AbsoluteDeviation": [(VAR, "abs(x - mean).mean(axis=axes, keepdims=True)")],
    "DividedByAll": [(VAR, "np.square(x - mean).sum(axis=axes, keepdims=True) / np.prod(x.shape)")],
    "DividedByFirstAxis": [
        (VAR, "np.square(x - mean).sum(axis=axes, keepdims=True) / len(np.moveaxis(x, axes[0], 0))")
    ],
    "MedianForMean": [(MEAN, "    mean = np.median(x, axis=axes, keepdims=True)\n")],
    "AxesDropped": [
        ("return mean, " + VAR, f"v = {VAR}\n    return np.squeeze(mean, axes), v.reshape(np.sum(v, axes).shape)")
    ],
    "KeepdimsNowhere": [(MEAN, "    mean = x.mean(axes)\n"), (VAR, "((x - mean) ** 2).mean(axes)")],
    "MeanDropped": [(MEAN, "    mean = x.mean(axes)\n")],
    "OnlyMeanDropped": [("return mean, ", "return np.add.reduce(mean, axes), ")],
    "OnlyVarDropped": [(VAR, "np.square(x - mean).mean(axis=axes)")],
    "AllAxes": [
        (MEAN, "    mean = np.full_like(x[(slice(0, 1),) * x.ndim], x.mean())\n"),
        (VAR, "np.full_like(mean, np.square(x - mean).mean())"),
    ],
    "OtherAxes": [(MEAN, "    axes = tuple(set(range(x.ndim)) - set(axes))\n" + MEAN)],
    "FirstAxisOnly": [(MEAN, "    axes = axes[0]\n" + MEAN)],
    "LastAxisOnly": [(MEAN, "    axes = axes[-1]\n" + MEAN)],
    "AlwaysCentered": [(UNCENTERED, "")],
    "NeverCentered": [("    if not centered:\n", "    if True:\n")],
    "CenteredReversed": [("    if not centered:\n", "    if centered:\n")],
    "MeanReturned": [
        ("        mean = np.zeros_like(mean)\n", "        return mean, (x * x).mean(axes, keepdims=True)\n")
    ],
    "VarianceCentered": [(VAR, "x.var(axis=axes, keepdims=True)")],
    "Swapped": [
        ("return mean, " + VAR, f"return {VAR}, mean"),
        ("mean, var = moments(x, axes, centered)", "var, mean = moments(x, axes, centered)"),
    ],
    "EpsOutside": [(XHAT, "return (x - mean) / (var**0.5 + eps)")],
    "EpsForgotten": [(XHAT, "return (x - mean) * var**-0.5")],
    "EpsConstant": [(XHAT, "return (x - mean) * (var + 0.00001) ** -0.5")],
    "EpsSquared": [(XHAT, "return (x - mean) / np.hypot(np.sqrt(var), eps)")],
    "EpsAddedAfterwards": [(XHAT, "return (x - mean) * (var**-0.5 + eps)")],
    "EpsSubtracted": [(XHAT, "return (x - mean) / np.sqrt(var - eps)")],
    "RootForgotten": [(XHAT, "return (x - mean) / (var + eps)")],
    "Multiplied": [(XHAT, "return (x - mean) * np.sqrt(var + eps)")],
    "NotSubtracted": [(XHAT, "return x / np.sqrt(var + eps)")],
    "NotNormalized": [(XHAT, "return x - mean")],
    "MeanDividedAlone": [(XHAT, "return x - mean / np.sqrt(var + eps)")],
    "CenteredNotPassedOn": [("moments(x, axes, centered)", "moments(x, axes)")],
    "AlignedAtTheEnd": [(APPLY, "y = apply(y, parameter)")],
    "AlignedWithChannels": [(BEHIND, "behind = xhat.ndim - 1 - parameter.ndim")],
    "OneAxisOnly": [(BEHIND, "behind = xhat.ndim - axis - 1")],
    "BiasForgotten": [(PAIRS, "for parameter, apply in ((s, np.multiply),):")],
    "ScaleForgotten": [(PAIRS, "for parameter, apply in ((b, np.add),):")],
    "ScaleAndBiasSwapped": [(PAIRS, "for parameter, apply in ((b, np.multiply), (s, np.add)):")],
    "BiasFirst": [(PAIRS, "for parameter, apply in ((b, np.add), (s, np.multiply)):")],
    "OneForScale": [(PAIRS, "for parameter, apply in ((None if s is None else s + 1, np.multiply), (b, np.add)):")],
    "BothNeeded": [("    y = xhat\n    for", "    y = xhat\n    if s is None:\n        return y\n    for")],
    "ScaleNeedsBias": [
        ("    y = xhat\n    for", "    y = xhat\n    if s is None or b is None:\n        return y\n    for")
    ],
    "NoneUnexpected": [("if parameter is not None", "if True")],
    "BatchOfImages": [(BATCH, "normalize(x, (0, 2, 3), eps)")],
    "BatchAxisOnly": [(BATCH, "normalize(x, (0,), eps)")],
    "BatchWithoutSamples": [(BATCH, INSTANCE)],
    "InstanceOfImages": [(INSTANCE, "normalize(x, (2, 3), eps)")],
    "InstanceOverBatch": [(INSTANCE, BATCH)],
    "InstanceOverChannels": [(INSTANCE, "normalize(x, tuple(range(1, x.ndim)), eps)")],
    "GroupsInterleaved": [
        (SPLIT, SPLIT.replace("num_groups, c // num_groups", "c // num_groups, num_groups")),
        (GROUPED, GROUPED.replace("tuple(range(2, split.ndim))", "(1, *range(3, split.ndim))")),
    ],
    "GroupsForSize": [(SPLIT, SPLIT.replace("num_groups, c // num_groups", "c // num_groups, num_groups"))],
    "GroupsShareBatch": [(GROUPED, GROUPED.replace("tuple(range(2, split.ndim))", "(0, *range(2, split.ndim))"))],
    "GroupsKeepChannels": [(GROUPED, GROUPED.replace("range(2,", "range(3,"))],
    "GroupsOfAll": [(GROUPED, GROUPED.replace("range(2,", "range(1,"))],
    "GroupsNotJoined": [("affine(xhat.reshape(x.shape), s, b, 1)", "affine(xhat, s, b, 1)")],
    "LastAxisNormalized": [
        (LAYER, LAYER.replace("tuple(range(first, x.ndim))", "(-1,)")),
        (RMS, RMS.replace("tuple(range(first, x.ndim))", "(-1,)")),
    ],
    "AllButBatch": [(LAYER, LAYER.replace("range(first,", "range(1,")), (RMS, RMS.replace("range(first,", "range(1,"))],
    "LayerAlongChannels": [
        (LAYER, LAYER.replace("b, first)", "b, 1)")),
        (RMS, RMS.replace("None, first)", "None, 1)")),
    ],
    "RootMeanSquareCentered": [(RMS, RMS.replace(", centered=False", ""))],
    "RootMeanSquareOfDeviations": [
        (
            RMS,
            "return affine(x / np.sqrt(x.var(tuple(range(first, x.ndim)), keepdims=True) + eps), s, None, first)",
        )
    ],
    "EpsNotPassedOn": [(BATCH, BATCH.replace(", eps", ""))],
    "MeanTwice": [("Statistics.of(mean, 0 * mean, var, rstd)", "Statistics.of(mean, mean, var, rstd)")],
    "VarianceForRstd": [("Statistics.of(mean, 0 * mean, var, rstd)", "Statistics.of(mean, 0 * mean, var, var)")],
    "ShiftOnly": [
        ("Statistics.of(mean, 0 * mean, var, rstd)", "Statistics.of(np.zeros_like(mean), 0 * mean, var, rstd)")
    ],
    "OwnRstd": [("rstd = equation.rstd(var)", "rstd = (var + 1e-5) ** -0.5")],
    "BackendAlwaysCentered": [("moments(x4, (2, 3), equation.centered)", "moments(x4, (2, 3))")],
    "KeptAxesReduced": [("moments(x4, (2, 3), equation.centered)", "moments(x4, (0, 1), equation.centered)")],
    "NoScaleAndBias": [
        ("        y4 = y4 * parameters(nest, s)\n", "        pass\n"),
        ("        y4 = y4 + parameters(nest, b)\n", "        pass\n"),
    ],
    "FourAxesReturned": [("return like(nest, y4, x), ", "return y4, ")],
}
