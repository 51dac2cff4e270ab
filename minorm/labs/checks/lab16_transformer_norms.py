"""Lab 16: checks formulas in float64, the bits of two conventions for a cast, and tests of a masked BatchNorm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from minorm.devices import dtypes
from minorm.labs.checks.mistakes import lab16_transformer_norms as mistakes
from minorm.labs.checks.right import lab16_transformer_norms as right
from minorm.labs.comparing import at_most, close, equal, numbers, true
from minorm.labs.lab import Lab

LAB = Lab(
    16,
    "lab16_transformer_norms",
    "Norms in transformers",
    "Where do the norms of a transformer go, in which type do they compute, and which positions do they count?",
    minutes=90,
    needs=(1, 3, 6),
    packages=("sklearn",),
)
FAR = 1e6


def _norms(student: Any, rng: np.random.Generator, shape: tuple[int, ...], scale: float, offset: float) -> None:
    """Check both norms with an eps about as large as the variance, so that an eps in the wrong place changes y."""
    x = rng.standard_normal(shape) * scale + offset
    s, b = rng.standard_normal((2, shape[-1]))
    eps = scale**2 / 2
    what = f"x of shape {shape} near {offset:g}, eps={eps:g}"
    near = (x - offset) if offset == FAR else x  # exact, so that the formula loses no digits
    close(
        student.layer_norm(x, s, b, eps), right.layer_norm(near, s, b, eps), f"layer_norm, {what}", rtol=1e-7, atol=1e-8
    )
    close(student.rms_norm(x, s, eps), right.rms_norm(x, s, eps), f"rms_norm, {what}")


@LAB.check("16.1", "both norms", visible=True)
def norms(student: Any, rng: np.random.Generator) -> None:
    _norms(student, rng, (2, 3, 5), 1.0, 0.5)
    _norms(student, rng, (4, 4), 1.0, 0.5)


@LAB.check("16.1", "any number of axes, small and large numbers", points=2)
def odd_norms(student: Any, rng: np.random.Generator) -> None:
    _norms(student, rng, (7,), 1e-3, 0.0)
    _norms(student, rng, (2, 1, 3, 2, 3), 100.0, 30.0)
    _norms(student, rng, (3, 9), 1.0, FAR)
    x, one = np.full((2, 1), 3.0), np.ones(1)
    close(student.layer_norm(x, one, 2 * one), np.full((2, 1), 2.0), "layer_norm of rows of one element")
    whole, s = rng.integers(-9, 10, (4, 6)), rng.integers(1, 4, 6)  # a formula takes them, the library's layers do not
    close(student.layer_norm(whole, s, s, 0.5), right.layer_norm(1.0 * whole, s, s, 0.5), "layer_norm of whole numbers")
    close(student.rms_norm(whole, s, 0.5), right.rms_norm(1.0 * whole, s, 0.5), "rms_norm of whole numbers")


def _block(rng: np.random.Generator, width: int, hidden: int) -> dict[str, Any]:
    """Draw the weights of a block."""
    w = {name: rng.standard_normal((width, width)) / width**0.5 for name in "qkvo"}
    w["up"], w["down"] = rng.standard_normal((width, hidden)), rng.standard_normal((hidden, width)) / hidden**0.5
    return w | {name: rng.standard_normal(width) + 1 for name in ("s1", "s2", "b1", "b2")}


def _blocks(student: Any, rng: np.random.Generator, shape: tuple[int, int, int], hidden: int) -> None:
    x, w = rng.standard_normal(shape) * 2 + 1, _block(rng, shape[2], hidden)
    close(student.post_norm(x, w), right.post_norm(x, w), f"post_norm, x of shape {shape}")
    close(student.pre_norm(x, w), right.pre_norm(x, w), f"pre_norm, x of shape {shape}")


@LAB.check("16.2", "post-norm and pre-norm", points=2, visible=True)
def blocks(student: Any, rng: np.random.Generator) -> None:
    _blocks(student, rng, (2, 3, 4), 8)


@LAB.check("16.2", "other shapes, and several blocks")
def deep_blocks(student: Any, rng: np.random.Generator) -> None:
    _blocks(student, rng, (1, 5, 3), 2)
    x, weights = rng.standard_normal((2, 4, 5)), [_block(rng, 5, 7) for _ in range(3)]
    for name in ("post_norm", "pre_norm"):
        got, expected = x, x
        for w in weights:
            got, expected = getattr(student, name)(got, w), getattr(right, name)(expected, w)
        close(got, expected, f"three blocks of {name}", rtol=1e-8, atol=1e-9)


def _logits(student: Any, rng: np.random.Generator, heads: int, size: int, scale: float) -> None:
    q, k = rng.standard_normal((2, 2, 3, heads * size)) * scale
    s_q, s_k = rng.standard_normal((2, size))
    eps = 0.2 * scale**2
    what = f"qk_logits, {heads} heads of {size}, numbers of size {scale:g}, eps={eps:g}"
    close(student.qk_logits(q, k, heads, s_q, s_k, eps), right.qk_logits(q, k, heads, s_q, s_k, eps), what)


@LAB.check("16.3", "logits of normalized heads", visible=True)
def logits(student: Any, rng: np.random.Generator) -> None:
    _logits(student, rng, 2, 4, 1.0)
    _logits(student, rng, 3, 5, 1.0)


@LAB.check("16.3", "logits do not change when weights grow")
def bounded(student: Any, rng: np.random.Generator) -> None:
    _logits(student, rng, 1, 7, 1000.0)
    q, k = rng.standard_normal((2, 2, 5, 12)) + 3
    s_q, s_k = rng.standard_normal((2, 4))
    for factor in (1.0, 1e3, 1e6):
        what = f"qk_logits with the weights of q and k times {factor:g}, eps=0"
        close(
            student.qk_logits(q * factor, k * factor, 3, s_q, s_k, 0.0), right.qk_logits(q, k, 3, s_q, s_k, 0.0), what
        )


@LAB.check("16.3", "the bound, which is reached", visible=True)
def bound(student: Any, rng: np.random.Generator) -> None:
    for size in (16, 3, 7):
        s_q, s_k = rng.standard_normal((2, size))
        s_k[np.abs(s_q * s_k).argmax()] *= -1 if (s_q * s_k)[np.abs(s_q * s_k).argmax()] > 0 else 1  # a negative one
        one = np.zeros((1, 1, size))
        one[..., np.abs(s_q * s_k).argmax()] = 1.0  # all in the element where the scales are largest
        reached = np.abs(right.qk_logits(one, one, 1, s_q, s_k, 0.0)).max()
        close(student.logit_bound(s_q, s_k), reached, f"logit_bound of {size} scales")


def _bits(got: Any, x: Any, s: Any, eps: float, cast_first: bool, what: str) -> None:
    """Raise Wrong unless each number of `got` has the bits that this convention gives.

    xhat itself may differ by a few float32 units.
    """
    found = numbers(got, what, f"numbers of shape {x.shape}")
    true(found.shape == x.shape, what, f"shape {x.shape}", f"shape {found.shape}")
    true(found.dtype == x.dtype, what, f"numbers of type {x.dtype}", str(found.dtype))
    wide, scale = x.astype(np.float64), s.astype(np.float64)
    xhat = right.rms_norm(wide, 1.0, eps)
    good = np.zeros(x.shape, bool)
    for off in (-4e-7, -2e-7, 0.0, 2e-7, 4e-7):
        moved = (xhat * (1 + off)).astype(np.float32)
        y = moved.astype(x.dtype) * s if cast_first else (moved * scale).astype(np.float32).astype(x.dtype)
        good |= y == found
    share = float(np.mean(~good))
    true(good.all(), f"the bits of {what}", "all bits as in this convention", f"{share:.1%} of them differ")


def _both(student: Any, rng: np.random.Generator, kind: str, shape: tuple[int, ...], scale: float) -> None:
    dtype = getattr(dtypes, kind)
    x = (rng.standard_normal(shape) * scale + scale / 3).astype(dtype)
    s = (rng.uniform(0.3, 3, shape[-1]) * rng.choice([-1, 1], shape[-1])).astype(dtype)
    for name, cast_first in (("scale_then_cast", False), ("cast_then_scale", True)):
        what = f"{name}, {kind} numbers of size {scale:g}, shape {shape}"
        _bits(getattr(student, name)(x, s, 1e-4), x, s, 1e-4, cast_first, what)


@LAB.check("16.4", "the bits of both conventions", points=2, visible=True)
def conventions(student: Any, rng: np.random.Generator) -> None:
    _both(student, rng, "bfloat16", (20, 16), 1.0)
    _both(student, rng, "float16", (20, 16), 1.0)


@LAB.check("16.4", "numbers whose squares overflow or vanish")
def extreme(student: Any, rng: np.random.Generator) -> None:
    _both(student, rng, "float16", (2, 5, 33), 2000.0)
    _both(student, rng, "float16", (7,), 0.01)
    _both(student, rng, "bfloat16", (4, 1000), 1e4)


def _models(rng: np.random.Generator, kind: str) -> list[tuple[str, Any, Any, Any]]:
    """Return four outputs of models in a random order, as tuples (answer, x, s, y). Each has another right answer."""
    dtype = getattr(dtypes, kind)
    found: list[tuple[str, Any, Any, Any]] = []
    x = (rng.standard_normal((40, 32)) * 2).astype(dtype)
    s = rng.uniform(0.3, 3, 32).astype(dtype)
    powers = (2.0 ** rng.integers(-1, 3, 32)).astype(dtype)
    last = np.float32(1) + np.float32(2**-23) * rng.integers(-1, 2, (40, 1)).astype(np.float32)  # statistics off a bit
    xhat = (right.rms_norm(x.astype(np.float64), 1.0, 1e-6)).astype(np.float32) * last
    found.append(("scale, then cast", x, s, (xhat * s.astype(np.float32)).astype(dtype)))
    found.append(("cast, then scale", x, s, xhat.astype(dtype) * s))
    found.append(("both", x, powers, xhat.astype(dtype) * powers))
    centered = right.layer_norm(x.astype(np.float32), s.astype(np.float32), np.float32(0))
    found.append(("neither", x, s, centered.astype(dtype)))
    return [found[place] for place in rng.permutation(len(found))]


def _detected(student: Any, rng: np.random.Generator, kind: str) -> None:
    for answer, x, s, y in _models(rng, kind):
        equal(student.convention(x, s, y, 1e-6), answer, f"convention of a {kind} model")


@LAB.check("16.4", "which one a bfloat16 model uses", visible=True)
def detective(student: Any, rng: np.random.Generator) -> None:
    _detected(student, rng, "bfloat16")


@LAB.check("16.4", "which one a float16 model uses")
def detective_again(student: Any, rng: np.random.Generator) -> None:
    _detected(student, rng, "float16")
    _detected(student, rng, "bfloat16")


def _padded(rng: np.random.Generator, lengths: list[int], longest: int, width: int, padding: float) -> tuple[Any, Any]:
    """Draw x and mask, with the real tokens at random positions."""
    mask = rng.permuted(np.arange(longest) < np.array(lengths)[:, None], axis=1)
    x = rng.standard_normal((len(lengths), longest, width)) * 2 + rng.standard_normal(width)
    x[~mask] = padding
    return x, mask


@LAB.check("16.5", "BatchNorm of the real tokens", visible=True)
def masked(student: Any, rng: np.random.Generator) -> None:
    for lengths, longest, width in (([2, 5, 3], 5, 4), ([1, 6], 7, 3)):
        x, mask = _padded(rng, lengths, longest, width, 3.0)
        what = f"masked_batch_norm, lengths {lengths} of {longest}, eps=0.5"
        close(student.masked_batch_norm(x, mask, 0.5), right.masked_batch_norm(x, mask, 0.5), what)


@LAB.check("16.5", "the mean of the real tokens, then LayerNorm", visible=True)
def pooled(student: Any, rng: np.random.Generator) -> None:
    for lengths, longest, width in (([2, 5, 3], 5, 4), ([1, 6], 7, 3)):
        x, mask = _padded(rng, lengths, longest, width, 3.0)
        s, b = rng.standard_normal((2, width))
        what = f"pooled_layer_norm, lengths {lengths} of {longest}, eps=0.5"
        close(student.pooled_layer_norm(x, mask, s, b, 0.5), right.pooled_layer_norm(x, mask, s, b, 0.5), what)


@LAB.check("16.5", "more padding, or NaN in it, changes nothing", points=2)
def neighbours(student: Any, rng: np.random.Generator) -> None:
    x, mask = _padded(rng, [3, 4], 4, 5, np.nan)
    s, b = rng.standard_normal((2, 5))
    batch, last = right.masked_batch_norm(x, mask), right.pooled_layer_norm(x, mask, s, b)
    at_most(-np.abs(batch).max(), -1e-3, "minus the largest |y| expected")
    for more, value in ((0, np.nan), (9, 0.0), (30, 1e30)):
        longer = np.concatenate([x, np.full((2, more, 5), value)], axis=1)
        real = np.concatenate([mask, np.zeros((2, more), bool)], axis=1)
        what = f"with {more} more positions of {value:g}"
        close(student.pooled_layer_norm(longer, real, s, b), last, f"pooled_layer_norm {what}")
        y = np.concatenate([batch, np.zeros((2, more, 5))], axis=1)
        close(student.masked_batch_norm(longer, real), y, f"masked_batch_norm {what}")
    whole = rng.integers(-9, 10, (3, 4, 2))
    mask, what = np.arange(4) < np.array([[1], [4], [2]]), "masked_batch_norm of whole numbers"
    close(student.masked_batch_norm(whole, mask, 0.5), right.masked_batch_norm(whole, mask, 0.5), what)
    x, mask = _padded(rng, [2, 6, 1], 9, 3, 0.0)
    x[mask] += FAR
    near = np.where(mask[:, :, None], x - FAR, 0.0)
    what = f"masked_batch_norm of tokens near {FAR:g}"
    close(student.masked_batch_norm(x, mask), right.masked_batch_norm(near, mask), what, rtol=1e-7, atol=1e-8)


def _mean_of_all(x: Any, mask: Any, eps: float) -> Any:
    """Compute a masked BatchNorm with the mean of all positions."""
    mean = np.where(np.isfinite(x), x, 0.0).mean(axis=(0, 1))
    c = np.where(mask[:, :, None], x - mean, 0.0)
    return c / np.sqrt(np.square(c).sum(axis=(0, 1)) / mask.sum() + eps)


def _by_sentence(x: Any, mask: Any, eps: float) -> Any:
    """Compute a masked BatchNorm in which each sentence has the same weight."""
    real, weight = mask[:, :, None], mask / mask.sum(axis=1, keepdims=True) / len(mask)
    c = np.where(real, x - np.einsum("nt,ntc->c", weight, np.where(real, x, 0.0)), 0.0)
    return c / np.sqrt(np.einsum("nt,ntc->c", weight, c * c) + eps)


def _implementation(function: Callable[[Any, Any, float], Any]) -> dict[str, Any]:
    """Make a masked BatchNorm for task 16.6 that also takes whole numbers."""

    def masked_batch_norm(x: Any, mask: Any, eps: float = 1e-5) -> Any:
        return function(np.asarray(x, np.float64), np.asarray(mask, bool), eps)

    return {"masked_batch_norm": masked_batch_norm}


LAB.mutants(
    "16.6",
    _implementation(right.masked_batch_norm),
    {
        "padding is counted in n": _implementation(mistakes.PaddingCounted().masked_batch_norm),
        "padding is in the mean": _implementation(_mean_of_all),
        "padded positions are not 0": _implementation(mistakes.NotZeroed().masked_batch_norm),
        "eps outside the root": _implementation(mistakes.EpsOutside().masked_batch_norm),
        "NaN in the padding spreads": _implementation(mistakes.MaskMultiplied().masked_batch_norm),
        "each sentence counts the same": _implementation(_by_sentence),
    },
    visible=True,
)


LAB.provide("16.1", layer_norm=right.layer_norm, rms_norm=right.rms_norm)
LAB.recognizer = mistakes.RECOGNIZER
