"""Lab 15: solutions with one mistake, written in another way than the classes that recognize it."""

from __future__ import annotations

STEPS = (
    "    new_mean = running_mean.astype(np.float64) * momentum + mean * (1 - momentum)\n"
    "    new_var = running_var.astype(np.float64) * momentum + var * (1 - momentum)\n"
)
XHAT = "    xhat = (wide - mean.reshape(along)) / np.sqrt(var.reshape(along) + eps)\n"
Y = "    y = (xhat * s.reshape(along) + b.reshape(along)).astype(x.dtype)\n"
MOMENTS = "    mean, var = wide.mean(axis=axes), wide.var(axis=axes)\n"
SPREAD = "(np.repeat(v, channels // len(v)).reshape(along) for v in (s, b))"
GROUPS = "    groups = x.astype(np.float64).reshape(len(x), num_groups, -1)\n"
GROUP_XHAT = "    xhat = (c / np.sqrt((c * c).mean(axis=2, keepdims=True) + eps)).reshape(x.shape)\n"
AXES = "    axes = tuple(range(axis % x.ndim, x.ndim))\n"
LAYER = "    return (xhat * s + b).astype(x.dtype)\n    # END\n\n\ndef lp_norm"
NORM = "    norm = (np.abs(wide) ** p).sum(axis=axis, keepdims=True) ** (1 / p)\n"
LP = f"    wide = x.astype(np.float64)\n{NORM}"
MADE: dict[str, list[tuple[str, str]]] = {
    "Blended": [(XHAT + Y, ""), (STEPS, f"{STEPS}    mean, old, var, older = new_mean, mean, new_var, var\n{XHAT}{Y}")],
    "MomentumReversed": [(STEPS, STEPS.replace("* momentum +", "* (1 - momentum) +").replace("* (1 - momentum)\n", "* momentum\n"))],
    "GatheredUnbiased": [(STEPS, f"    n = x.size / x.shape[1]\n    unbiased = wide.var(axis=axes, ddof=1) if n > 1 else var\n{STEPS.replace('+ var *', '+ unbiased *')}")],
    "OneValueLeft": [(MOMENTS, f"{MOMENTS}    if x.size == x.shape[1]:\n        return x, running_mean, running_var\n")],
    "PositionsForgotten": [(MOMENTS, "    mean = np.array([wide[:, c].mean(axis=0).mean() for c in range(x.shape[1])])\n    var = np.array([wide[:, c].var(axis=0).mean() for c in range(x.shape[1])])\n")],
    "EpsOutside": [(XHAT, "    xhat = (wide - mean.reshape(along)) / (wide.std(axis=axes).reshape(along) + eps)\n")],
    "ScaleTiled": [(SPREAD, "(np.concatenate([v] * (channels // len(v))).reshape(along) for v in (s, b))")],
    "ScaleOfChannels": [(SPREAD, "(v.reshape(along) for v in (s, b))")],
    "VarianceBySquares": [(GROUPS, "    kind = np.float64 if x.dtype == np.float64 else np.float32\n    groups = x.reshape(len(x), num_groups, -1).astype(kind)\n"),
                          (GROUP_XHAT, "    mean = groups.mean(axis=2, keepdims=True)\n    var = np.square(groups).mean(axis=2, keepdims=True) - mean * mean\n    xhat = (c / np.sqrt(var + eps)).reshape(x.shape)\n")],
    "ChannelsGroupedInTurn": [(GROUPS, "    order = [c for g in range(num_groups) for c in range(g, channels, num_groups)]\n    groups = x.astype(np.float64)[:, order].reshape(len(x), num_groups, -1)\n"),
                              (GROUP_XHAT, GROUP_XHAT + "    xhat = xhat[:, np.argsort(order)]\n")],
    "LastAxisAlone": [(AXES, "    axes = x.ndim - 1\n")],
    "OneAxis": [(AXES, "    axes = (axis % x.ndim,)\n")],
    "FirstRow": [(LAYER, f"    while s.ndim > 1:\n        s, b = s[0], b[0]\n{LAYER}")],
    "SquaresOverflow": [(f"{AXES}    wide = x.astype(np.float64)\n", f"{AXES}    wide = x.astype(np.float32) if x.dtype == np.float16 else x\n")],
    "In16Bits": [(LP, LP.replace("x.astype(np.float64)", "x"))],
    "WithoutAbs": [(NORM, NORM.replace("np.abs(wide)", "wide"))],
    "ZeroOverZero": [("np.where(norm == 0, 1, norm)", "norm")],
    "RootForgotten": [(NORM, NORM.replace(" ** (1 / p)", ""))],
    "AlwaysLast": [(NORM, NORM.replace("axis=axis", "axis=x.ndim - 1"))],
}  # fmt: skip
