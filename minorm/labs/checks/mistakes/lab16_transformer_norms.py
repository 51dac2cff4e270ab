"""Typical mistakes in lab 16: the class Right has the right functions, and each subclass has one mistake."""

from __future__ import annotations

from typing import Any

import numpy as np

from minorm.labs.checks.right import lab16_transformer_norms as right
from minorm.labs.judge.recognizing import Recognizer


class Right:
    """The right functions of the lab, with a method for each step that can be wrong."""

    def layer_norm(self, x: Any, s: Any, b: Any, eps: float = 1e-5) -> Any:
        """Normalize over the last axis, with a mean and a bias."""
        axis = self._axis()
        c = x - x.mean(axis=axis, keepdims=True)
        return c * self._factor(self._var(c, axis), eps) * s + b

    def rms_norm(self, x: Any, s: Any, eps: float = 1e-6) -> Any:
        """Normalize over the last axis, without mean and bias."""
        x = self._centered(x)
        return x * self._factor(np.mean(x * x, axis=self._axis(), keepdims=True), eps) * s

    def _axis(self) -> Any:
        return -1

    def _centered(self, x: Any) -> Any:
        return x

    def _var(self, c: Any, axis: Any) -> Any:
        return (c * c).mean(axis=axis, keepdims=True)

    def _factor(self, var: Any, eps: float) -> Any:
        return 1 / np.sqrt(var + eps)

    def post_norm(self, x: Any, w: Any) -> Any:
        """Compute a block with norms after the sums."""
        h = self.layer_norm(x + right.attention(x, w), w["s1"], w["b1"])
        return self.layer_norm(h + right.mlp(h, w), *self._second(w))

    def pre_norm(self, x: Any, w: Any) -> Any:
        """Compute a block with norms inside the branches."""
        h = x + right.attention(self.layer_norm(x, w["s1"], w["b1"]), w)
        return h + right.mlp(self.layer_norm(h, *self._second(w)), w)

    def _second(self, w: Any) -> Any:
        return w["s2"], w["b2"]

    def qk_logits(self, q: Any, k: Any, heads: int, s_q: Any, s_k: Any, eps: float = 1e-6) -> Any:
        """Multiply normalized queries and keys."""
        q, k = self._normalized(q, heads, s_q, eps), self._normalized(k, heads, s_k, eps)
        return np.matmul(q, np.moveaxis(k, -1, -2)) / self._divisor(len(s_q), heads)

    def _normalized(self, x: Any, heads: int, s: Any, eps: float) -> Any:
        return self.rms_norm(right.heads_of(x, heads), s, eps)

    def _divisor(self, size: int, heads: int) -> float:
        return float(np.sqrt(size))

    def logit_bound(self, s_q: Any, s_k: Any) -> Any:
        """Compute sqrt(D) max |s_q s_k|."""
        return right.logit_bound(s_q, s_k)

    def scale_then_cast(self, x: Any, s: Any, eps: float = 1e-6) -> Any:
        """Scale, then cast: one rounding."""
        return self.rms_norm(x.astype(np.float32), s.astype(np.float32), eps).astype(x.dtype)

    def cast_then_scale(self, x: Any, s: Any, eps: float = 1e-6) -> Any:
        """Cast, then scale: two roundings."""
        return self.rms_norm(x.astype(np.float32), np.float32(1), eps).astype(x.dtype) * s

    def convention(self, x: Any, s: Any, y: Any, eps: float = 1e-6) -> str:
        """Name the convention by the share of elements whose bits differ."""
        scaled = float(np.mean(self.scale_then_cast(x, s, eps) != y))
        cast = float(np.mean(self.cast_then_scale(x, s, eps) != y))
        return self._named(scaled <= self._allowed(), cast <= self._allowed())

    def _allowed(self) -> float:
        return 0.02

    def _named(self, scaled: bool, cast: bool) -> str:
        if scaled and cast:
            return "both"
        return "scale, then cast" if scaled else ("cast, then scale" if cast else "neither")

    def masked_batch_norm(self, x: Any, mask: Any, eps: float = 1e-5) -> Any:
        """Normalize with the statistics of the real tokens."""
        mean = self._only(x, mask).sum(axis=(0, 1)) / self._n(mask)
        c = x - mean
        var = self._only(self._squares(c, mask), mask).sum(axis=(0, 1)) / self._n(mask)
        return self._zeroed(c * self._factor(var, eps), mask)

    def _n(self, mask: Any) -> Any:
        return mask.sum()

    def _only(self, x: Any, mask: Any) -> Any:
        return np.where(mask[:, :, None], x, 0.0)

    def _squares(self, c: Any, mask: Any) -> Any:
        return c * c

    def _zeroed(self, y: Any, mask: Any) -> Any:
        return self._only(y, mask)

    def pooled_layer_norm(self, x: Any, mask: Any, s: Any, b: Any, eps: float = 1e-5) -> Any:
        """Apply LayerNorm to each sentence's mean over its real tokens."""
        return self.layer_norm(self._only(x, mask).sum(axis=1) / self._lengths(mask)[:, None], s, b, eps)

    def _lengths(self, mask: Any) -> Any:
        return mask.sum(axis=1)


# Task 16.1


class FirstAxis(Right):
    """the statistics run over the first axis, as in BatchNorm; they have to run over each token's last axis"""

    def _axis(self) -> Any:
        return 0


class AllButBatch(Right):
    """the statistics run over all axes but the first, as for images; in a text they have to run over the last axis"""

    def layer_norm(self, x: Any, s: Any, b: Any, eps: float = 1e-5) -> Any:
        c = x - x.mean(axis=tuple(range(1, x.ndim)), keepdims=True)
        return c * self._factor(self._var(c, tuple(range(1, x.ndim))), eps) * s + b

    def rms_norm(self, x: Any, s: Any, eps: float = 1e-6) -> Any:
        return x * self._factor(np.mean(x * x, axis=tuple(range(1, x.ndim)), keepdims=True), eps) * s


class EpsOutside(Right):
    """eps is added to the root; it has to be inside: sqrt(var + eps)"""

    def _factor(self, var: Any, eps: float) -> Any:
        return 1 / (np.sqrt(var) + eps)


class EpsForgotten(Right):
    """eps is left out"""

    def _factor(self, var: Any, eps: float) -> Any:
        return 1 / np.sqrt(var)


class DivisorOneLess(Right):
    """the variance is divided by m - 1; it has to be divided by m"""

    def _var(self, c: Any, axis: Any) -> Any:
        return (c * c).sum(axis=axis, keepdims=True) / (c.shape[-1] - 1)


class MeanInRms(Right):
    """RMSNorm subtracts the mean; it has to divide by the root of the mean square and do nothing else"""

    def _centered(self, x: Any) -> Any:
        return x - x.mean(axis=-1, keepdims=True)


class SumInRms(Right):
    """RMSNorm sums the squares; it has to divide by the root of their mean"""

    def rms_norm(self, x: Any, s: Any, eps: float = 1e-6) -> Any:
        return x * self._factor((x * x).sum(axis=-1, keepdims=True), eps) * s


class NoScaleInRms(Right):
    """RMSNorm leaves out the scale"""

    def rms_norm(self, x: Any, s: Any, eps: float = 1e-6) -> Any:
        return super().rms_norm(x, 1.0, eps)


# Task 16.2


class PlacesSwapped(Right):
    """pre-norm and post-norm are swapped; the norm has to be in the branch in pre-norm, after the sum in post-norm"""

    def post_norm(self, x: Any, w: Any) -> Any:
        return super().pre_norm(x, w)

    def pre_norm(self, x: Any, w: Any) -> Any:
        return super().post_norm(x, w)


class ResidualOfNormalized(Right):
    """in pre-norm the residual sum takes the normalized x; it has to take x itself"""

    def pre_norm(self, x: Any, w: Any) -> Any:
        n = self.layer_norm(x, w["s1"], w["b1"])
        h = n + right.attention(n, w)
        n = self.layer_norm(h, *self._second(w))
        return n + right.mlp(n, w)


class NormBeforeSum(Right):
    """in post-norm the norm is on the branch, before the residual sum; it has to come after the sum"""

    def post_norm(self, x: Any, w: Any) -> Any:
        h = x + self.layer_norm(right.attention(x, w), w["s1"], w["b1"])
        return h + self.layer_norm(right.mlp(h, w), *self._second(w))


class ResidualForgotten(Right):
    """the residual sums are missing"""

    def post_norm(self, x: Any, w: Any) -> Any:
        h = self.layer_norm(right.attention(x, w), w["s1"], w["b1"])
        return self.layer_norm(right.mlp(h, w), *self._second(w))

    def pre_norm(self, x: Any, w: Any) -> Any:
        h = right.attention(self.layer_norm(x, w["s1"], w["b1"]), w)
        return right.mlp(self.layer_norm(h, *self._second(w)), w)


class SecondFromX(Right):
    """the second residual sum starts from x again; it has to start from h, the result of the first"""

    def post_norm(self, x: Any, w: Any) -> Any:
        h = self.layer_norm(x + right.attention(x, w), w["s1"], w["b1"])
        return self.layer_norm(x + right.mlp(h, w), *self._second(w))

    def pre_norm(self, x: Any, w: Any) -> Any:
        h = x + right.attention(self.layer_norm(x, w["s1"], w["b1"]), w)
        return x + right.mlp(self.layer_norm(h, *self._second(w)), w)


class OneNormTwice(Right):
    """s1 and b1 are used in both norms; the second norm has to use s2 and b2"""

    def _second(self, w: Any) -> Any:
        return w["s1"], w["b1"]


# Task 16.3


class HeadsTogether(Right):
    """queries and keys are normalized over all heads; each head has to be normalized over its own D elements"""

    def _normalized(self, x: Any, heads: int, s: Any, eps: float) -> Any:
        return right.heads_of(self.rms_norm(x, np.tile(s, heads), eps), heads)


class NotNormalized(Right):
    """queries and keys are scaled, but not normalized"""

    def _normalized(self, x: Any, heads: int, s: Any, eps: float) -> Any:
        return right.heads_of(x, heads) * s


class LogitsNotDivided(Right):
    """the logits are not divided by sqrt(D)"""

    def _divisor(self, size: int, heads: int) -> float:
        return 1.0


class DividedByWidth(Right):
    """the logits are divided by the root of the whole width, heads * D; it has to be the root of D"""

    def _divisor(self, size: int, heads: int) -> float:
        return float(np.sqrt(size * heads))


class BoundOfEach(Right):
    """max |s_q| is multiplied by max |s_k|, but these may be at different indices; take the largest product"""

    def logit_bound(self, s_q: Any, s_k: Any) -> Any:
        return np.sqrt(len(s_q)) * np.abs(s_q).max() * np.abs(s_k).max()


class BoundSigned(Right):
    """the largest product s_q * s_k is taken with its sign; a negative product also makes |logit| large"""

    def logit_bound(self, s_q: Any, s_k: Any) -> Any:
        return np.sqrt(len(s_q)) * (s_q * s_k).max()


class BoundOfD(Right):
    """the factor of the bound is D; |q| |k| is at most D, and the logit divides it by sqrt(D)"""

    def logit_bound(self, s_q: Any, s_k: Any) -> Any:
        return len(s_q) * np.abs(s_q * s_k).max()


# Task 16.4


class ConventionsSwapped(Right):
    """the two conventions are swapped"""

    def scale_then_cast(self, x: Any, s: Any, eps: float = 1e-6) -> Any:
        return super().cast_then_scale(x, s, eps)

    def cast_then_scale(self, x: Any, s: Any, eps: float = 1e-6) -> Any:
        return super().scale_then_cast(x, s, eps)


class AlwaysOneRounding(Right):
    """xhat is not rounded before it is scaled, so cast_then_scale has the bits of scale_then_cast"""

    def cast_then_scale(self, x: Any, s: Any, eps: float = 1e-6) -> Any:
        return super().scale_then_cast(x, s, eps)


class AlwaysTwoRoundings(Right):
    """xhat is rounded before it is scaled, so scale_then_cast has the bits of cast_then_scale"""

    def scale_then_cast(self, x: Any, s: Any, eps: float = 1e-6) -> Any:
        return super().cast_then_scale(x, s, eps)


class NotCastBack(Right):
    """the result is float32; it has to have the type of x"""

    def scale_then_cast(self, x: Any, s: Any, eps: float = 1e-6) -> Any:
        return self.rms_norm(x.astype(np.float32), s.astype(np.float32), eps)

    def cast_then_scale(self, x: Any, s: Any, eps: float = 1e-6) -> Any:
        return super().cast_then_scale(x, s, eps).astype(np.float32)


class NamesSwapped(Right):
    """the two names are swapped in the answer"""

    def _named(self, scaled: bool, cast: bool) -> str:
        return super()._named(cast, scaled)


class FirstThatFits(Right):
    """both conventions fit, but only the first one is named"""

    def _named(self, scaled: bool, cast: bool) -> str:
        return super()._named(scaled, cast and not scaled)


class NearerNamed(Right):
    """the convention with fewer different bits is named, even if neither fits"""

    def convention(self, x: Any, s: Any, y: Any, eps: float = 1e-6) -> str:
        scaled, cast = (np.sum(f(x, s, eps) != y) for f in (self.scale_then_cast, self.cast_then_scale))
        return "both" if scaled == cast else self._named(bool(scaled < cast), bool(cast < scaled))


class EveryBit(Right):
    """a convention counts only if all bits are equal; up to 2 % of the elements have to be allowed to differ"""

    def _allowed(self) -> float:
        return 0.0


# Task 16.5


class PaddingCounted(Right):
    """n counts padded positions as well"""

    def _n(self, mask: Any) -> Any:
        return mask.size

    def _lengths(self, mask: Any) -> Any:
        return np.full(len(mask), mask.shape[1])


class MaskIgnored(Right):
    """the statistics ignore the mask"""

    def masked_batch_norm(self, x: Any, mask: Any, eps: float = 1e-5) -> Any:
        return self._zeroed((x - x.mean(axis=(0, 1))) * self._factor(x.var(axis=(0, 1)), eps), mask)

    def pooled_layer_norm(self, x: Any, mask: Any, s: Any, b: Any, eps: float = 1e-5) -> Any:
        return self.layer_norm(x.mean(axis=1), s, b, eps)


class NotZeroed(Right):
    """y is not 0 at padded positions"""

    def _zeroed(self, y: Any, mask: Any) -> Any:
        return y


class ZerosInVariance(Right):
    """padded positions are set to 0 before the mean is subtracted, so each adds mean^2 to the variance"""

    def _squares(self, c: Any, mask: Any) -> Any:
        return c * c

    def masked_batch_norm(self, x: Any, mask: Any, eps: float = 1e-5) -> Any:
        kept = self._only(x, mask)
        c = kept - kept.sum(axis=(0, 1)) / mask.sum()
        return self._zeroed(c * self._factor((c * c).sum(axis=(0, 1)) / mask.sum(), eps), mask)


class EachSentenceAlone(Right):
    """the statistics are taken over each sentence's tokens; they have to be taken over all sentences, for BatchNorm"""

    def masked_batch_norm(self, x: Any, mask: Any, eps: float = 1e-5) -> Any:
        n = mask.sum(axis=1)[:, None, None]
        c = x - self._only(x, mask).sum(axis=1, keepdims=True) / n
        var = self._only(c * c, mask).sum(axis=1, keepdims=True) / n
        return self._zeroed(c * self._factor(var, eps), mask)


class MaskMultiplied(Right):
    """x is multiplied by the mask, but NaN * 0 is NaN; select the tokens with np.where"""

    def _only(self, x: Any, mask: Any) -> Any:
        return x * mask[:, :, None]


RECOGNIZER = Recognizer.of(Right, vars())
