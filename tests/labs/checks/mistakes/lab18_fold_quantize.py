"""Lab 18: solutions with one mistake, written in another way than the classes that recognize it."""

from __future__ import annotations

A = "    a = s / np.sqrt(var + eps)\n"
BIAS = "((before - mean) * a + b).astype(W.dtype)"
FOLDED = "    folded = W * a.reshape(-1, *[1] * (W.ndim - 1))\n    return folded"
PRODUCT = "    weight, bias = fold(W, c, mean, var, eps, s, b)\n"
K = "    k = x.shape[1] + 7\n"
TWICE = "    return 2 * gamma * (a * terms + np.abs(b))\n"
TERMS = "np.abs(x) @ np.abs(W).T"
SLOPE = "    slope = np.sqrt((z.var(axis=0) + eps) / (var + eps))\n"
OFFSET = " / np.sqrt(var + eps) - slope * b\n"
ENDS = "    low, high = min(low, 0.0), max(high, 0.0)\n"
ZERO = "-128 - np.rint(low / scale)"
CLIP = "np.clip(np.rint(x / scale) + zero, least, 127)"
BACK = "(q.astype(np.float64) - zero) * scale"
OTHERS = "        others = tuple(i for i in range(W.ndim) if i != axis % W.ndim)\n"
OF_W = "    of_weights = np.abs(x).sum(axis=1, keepdims=True) * W_scale / 2\n"
OF_X = "x_scale / 2 * (np.abs(W) + W_scale[:, None] / 2).sum(axis=1)"
GAIN = "    return weight_scales(W, None) ** 2 / np.mean(weight_scales(W, 0) ** 2)\n"
JUMPS = "    return (q[1:] != q[:-1]).sum(axis=1)\n"
LOOP = "    integers = []\n    for a in slopes:\n"
MADE: dict[str, list[tuple[str, str]]] = {
    "BiasNotScaled": [(BIAS, "(before + (b - mean * a)).astype(W.dtype)")],
    "BiasForgotten": [(BIAS, "(b - a * mean).astype(W.dtype)")],
    "MeanAdded": [(BIAS, "(a * mean + before * a + b).astype(W.dtype)")],
    "NormBiasScaled": [(BIAS, "(a * (b + before - mean)).astype(W.dtype)")],
    "EpsLeftOut": [(A, "    a = s * var**-0.5\n")],
    "EpsOutside": [(A, "    a = s / (var**0.5 + eps)\n")],
    "VarianceNotRooted": [(A, "    a = 1 / (eps + var) * s\n")],
    "ScaleOfNormForgotten": [(A, "    a = (var + eps) ** -0.5\n")],
    "InputsScaled": [(FOLDED, "    folded = a * W\n    return folded")],
    "BatchStatisticsFolded": [(PRODUCT, f"    z = x @ W.T + c\n    var = z.std(axis=0) ** 2\n    mean = z.sum(axis=0) / len(z)\n{PRODUCT}")],
    "RoundingsOfNormForgotten": [(K, "    k = W.shape[1]\n")],
    "OneWay": [(TWICE, TWICE.replace("2 * ", ""))],
    "TermsCancel": [(TERMS, "np.abs(W @ x.T).T")],
    "SlopeUpsideDown": [(SLOPE, "    slope = ((var + eps) / (z.var(axis=0) + eps)) ** 0.5\n")],
    "BatchUnbiased": [(SLOPE, SLOPE.replace("z.var(axis=0)", "z.var(axis=0) * len(z) / (len(z) - 1)"))],
    "OffsetKeepsBias": [(OFFSET, " / np.sqrt(var + eps) - b\n")],
    "ZeroOutOfRange": [(ENDS, "")],
    "RangeOf256": [("/ 255 or 1.0", "/ 2**8 or 1.0")],
    "ZeroRoundedDown": [(ZERO, "-128 + np.floor(-low / scale)")],
    "ZeroRoundedUp": [(ZERO, "-128 + np.ceil(-low / scale)")],
    "ZeroOfBytes": [(ZERO, "np.rint(-low / scale)")],
    "ZeroWrongSign": [(ZERO, "np.rint(low / scale) - 128")],
    "HalvesUp": [(CLIP, CLIP.replace("np.rint(x / scale)", "(x / scale + 0.5) // 1"))],
    "CutOff": [(CLIP, CLIP.replace("np.rint(x / scale)", "(x / scale).astype(int)"))],
    "WrapsAround": [(CLIP, "(np.rint(x / scale) + zero).astype(np.int32)")],
    "LeastIgnored": [(CLIP, CLIP.replace("least", "-128"))],
    "ZeroAddedBack": [(BACK, "q.astype(np.float64) * scale - zero")],
    "WrongAxis": [(OTHERS, OTHERS.replace("axis % W.ndim", "(0 if axis % W.ndim else 1)"))],
    "SignsIgnored": [("np.abs(W).max()", "np.max(W)"), ("np.abs(W).max(axis=others", "np.max(W, axis=others")],
    "ScaleOf128": [("largest / 127", "largest / 2**7")],
    "InputsAreExact": [(OF_X, "0")],
    "WeightsAreExact": [(OF_W, "    of_weights = np.zeros((len(x), len(W)))\n")],
    "BoundCancels": [(OF_W, "    of_weights = np.abs(x.sum(axis=1))[:, None] * W_scale / 2\n")],
    "GainOfSteps": [(GAIN, "    return weight_scales(W, None) / weight_scales(W, 0).mean()\n")],
    "GainUpsideDown": [(GAIN, "    return (weight_scales(W, 0) ** 2).mean() / weight_scales(W, None) ** 2\n")],
    "JumpsSummed": [(JUMPS, "    return (q[1:] != q[:-1]).sum()\n")],
    "ScaleOfFirstBatch": [(LOOP, f"    first = weight_scales((W.T * slopes[0]).T, axis)\n{LOOP}"), ("quantize(folded, weight_scales(folded, axis), 0", "quantize(folded, first, 0")],
}  # fmt: skip
