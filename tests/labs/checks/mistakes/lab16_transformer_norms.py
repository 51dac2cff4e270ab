"""Lab 16: solutions with one mistake, written in another way than the classes that recognize it."""

from __future__ import annotations

MEAN, VAR = "c = x - x.mean(axis=-1, keepdims=True)", "var = (c * c).mean(axis=-1, keepdims=True)"
MS = "ms = (x * x).mean(axis=-1, keepdims=True)"
LAYER, RMS = "return c / np.sqrt(var + eps) * s + b", "return x / np.sqrt(ms + eps) * s"
POST_1, POST_2 = (
    'h = norm(x + attention(x, w), w["s1"], w["b1"])',
    'return norm(h + mlp(h, w), w["s2"], w["b2"])',
)
PRE_1, PRE_2 = 'h = x + attention(norm(x, w["s1"], w["b1"]), w)', 'return h + mlp(norm(h, w["s2"], w["b2"]), w)'
Q, K = "q = rms_norm(split_heads(q, heads), s_q, eps)", "k = rms_norm(split_heads(k, heads), s_k, eps)"
BOUND = "return len(s_q) ** 0.5 * np.abs(s_q * s_k).max()"
SCALED = "return rms_norm(x.astype(np.float32), s.astype(np.float32), eps).astype(x.dtype)"
CAST = "return rms_norm(wide, np.float32(1), eps).astype(x.dtype) * s"
FIT = 'return fit[0] if len(fit) == 1 else ("both" if fit else "neither")'
NEARER = """a, b = (np.sum(f(x, s, eps) != y) for f in names.values())
    return "both" if a == b else list(names)[int(b < a)]"""
COUNTED = "np.mean(f(x, s, eps) != y) <= 0.02"
BATCH = "return c / np.sqrt((c * c).sum(axis=(0, 1)) / n + eps)"
BATCH_MEAN = "mean = np.where(real, x, 0).sum(axis=(0, 1)) / n"
CHOSEN, TOTAL = "c = np.where(real, x - mean, 0)", "total = np.where(mask[:, :, None], x, 0).sum(axis=1)"
POOLED = "return layer_norm(total / mask.sum(axis=1)[:, None], s, b, eps)"
MADE: dict[str, list[tuple[str, str]]] = {
    "FirstAxis": [(MEAN, "c = x - x.mean(0, keepdims=True)"), (VAR, "var = c.var(0, keepdims=True)"),
                  (MS, "ms = np.square(x).mean(0, keepdims=True)")],
    "AllButBatch": [(MEAN, "axes = tuple(range(1, x.ndim))\n    c = x - x.mean(axes, keepdims=True)"),
                    (VAR, "var = x.var(axes, keepdims=True)"),
                    (MS, "ms = np.square(x).mean(tuple(range(1, x.ndim)), keepdims=True)")],
    "EpsOutside": [(LAYER, "return s * c / (var**0.5 + eps) + b"), (RMS, "return s * x / (ms**0.5 + eps)")],
    "EpsForgotten": [(LAYER, "return s * c / var**0.5 + b"), (RMS, "return s * x / ms**0.5")],
    "DivisorOneLess": [(VAR, "var = x.var(axis=-1, keepdims=True, ddof=1)")],
    "MeanInRms": [(MS, "x = x - np.mean(x, axis=-1)[..., None]\n    " + MS)],
    "SumInRms": [(MS, "ms = np.square(x).sum(axis=-1)[..., None]")],
    "NoScaleInRms": [(RMS, "return x * (ms + eps) ** -0.5")],
    "PlacesSwapped": [(POST_1, PRE_1.replace("norm(x", "layer_norm(x")), (POST_2, PRE_2.replace("norm(h", "layer_norm(h")),
                      (PRE_1.replace("norm(x", "norm(x"), POST_1), (PRE_2, POST_2)],
    "ResidualOfNormalized": [(PRE_1, 'x = norm(x, w["s1"], w["b1"])\n    h = attention(x, w) + x'),
                             (PRE_2, 'h = norm(h, w["s2"], w["b2"])\n    return mlp(h, w) + h')],
    "NormBeforeSum": [(POST_1, 'h = norm(attention(x, w), w["s1"], w["b1"]) + x'),
                      (POST_2, 'return norm(mlp(h, w), w["s2"], w["b2"]) + h')],
    "ResidualForgotten": [(POST_1, 'h = norm(attention(x, w), w["s1"], w["b1"])'),
                          (POST_2, 'return norm(mlp(h, w), w["s2"], w["b2"])'),
                          (PRE_1, 'h = attention(norm(x, w["s1"], w["b1"]), w)'),
                          (PRE_2, 'return mlp(norm(h, w["s2"], w["b2"]), w)')],
    "SecondFromX": [(POST_2, 'return norm(mlp(h, w) + x, w["s2"], w["b2"])'),
                    (PRE_2, 'return mlp(norm(h, w["s2"], w["b2"]), w) + x')],
    "OneNormTwice": [(POST_2, 'return norm(mlp(h, w) + h, w["s1"], w["b1"])'),
                     (PRE_2, 'return mlp(norm(h, w["s1"], w["b1"]), w) + h')],
    "HeadsTogether": [(Q, "q = split_heads(rms_norm(q, 1, eps), heads) * s_q"),
                      (K, "k = split_heads(rms_norm(k, 1, eps), heads) * s_k")],
    "NotNormalized": [(Q, "q = s_q * split_heads(q, heads)"), (K, "k = s_k * split_heads(k, heads)")],
    "LogitsNotDivided": [("return q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5", "return q @ k.swapaxes(-1, -2)")],
    "DividedByWidth": [("/ q.shape[-1] ** 0.5\n    # END\n\n\ndef logit", "/ (heads * len(s_q)) ** 0.5\n    # END\n\n\ndef logit")],
    "BoundOfEach": [(BOUND, "return max(abs(s_q)) * max(abs(s_k)) * np.sqrt(s_q.size)")],
    "BoundSigned": [(BOUND, "return max(s_q * s_k) * np.sqrt(s_q.size)")],
    "BoundOfD": [(BOUND, "return max(abs(s_q * s_k)) * s_q.size")],
    "ConventionsSwapped": [(SCALED, "return s * rms_norm(x.astype(np.float32), np.float32(1), eps).astype(x.dtype)"),
                           (CAST, "return (s.astype(np.float32) * rms_norm(wide, np.float32(1), eps)).astype(x.dtype)")],
    "AlwaysOneRounding": [(CAST, "return (s.astype(np.float32) * rms_norm(wide, np.float32(1), eps)).astype(x.dtype)")],
    "AlwaysTwoRoundings": [(SCALED, "return s * rms_norm(x.astype(np.float32), np.float32(1), eps).astype(x.dtype)")],
    "NotCastBack": [(SCALED, SCALED.replace(".astype(x.dtype)", "")), (CAST, CAST + " * np.float32(1)")],
    "NamesSwapped": [('{"scale, then cast": scale_then_cast, "cast, then scale": cast_then_scale}',
                      '{"cast, then scale": scale_then_cast, "scale, then cast": cast_then_scale}')],
    "FirstThatFits": [(FIT, 'return fit[0] if fit else "neither"')],
    "NearerNamed": [(FIT, NEARER)],
    "EveryBit": [(COUNTED, "np.array_equal(f(x, s, eps), y)")],
    "PaddingCounted": [("n = mask.sum()", "n = len(mask) * len(mask[0])"),
                       (POOLED, "return layer_norm(total / len(mask[0]), s, b, eps)")],
    "MaskIgnored": [(BATCH_MEAN, "mean = x.mean((0, 1))"),
                    (BATCH, "return c / np.sqrt(x.var((0, 1)) + eps)"),
                    (TOTAL, "total = mask.sum(axis=1)[:, None] * x.mean(axis=1)")],
    "NotZeroed": [(BATCH, BATCH.replace("c /", "(x - mean) /"))],
    "ZerosInVariance": [(BATCH, "d = np.where(real, x, 0) - mean\n    " + BATCH.replace("(c * c)", "(d * d)"))],
    "EachSentenceAlone": [("n = mask.sum()", "n = real.sum(axis=1, keepdims=True)"),
                          (BATCH_MEAN, "mean = np.where(real, x, 0).sum(axis=1, keepdims=True) / n"),
                          (BATCH, "return c / np.sqrt((c * c).sum(axis=1, keepdims=True) / n + eps)")],
    "MaskMultiplied": [(BATCH_MEAN, "mean = (real * x).sum(axis=(0, 1)) / n"), (CHOSEN, "c = (x - mean) * real"),
                       (TOTAL, "total = (x * mask[:, :, None]).sum(axis=1)")],
}  # fmt: skip
