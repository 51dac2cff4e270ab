"""Lab 6: checks ulps, rounding by hand, overflow, results that are rounded only once, and tests of precision bugs."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

import minorm.functional as F
from minorm.devices import dtypes
from minorm.kernels.partial import PartialBackend
from minorm.labs.checks.variants import lab06_precision as varied
from minorm.labs.checks.variants.lab06_precision import V, root, rounded_bits, unit
from minorm.labs.comparing import close, equal, numbers, parts, true
from minorm.labs.following import verdicts
from minorm.labs.following.follower import Follower
from minorm.labs.lab import Lab
from minorm.normalization.equation import Equation
from minorm.normalization.nest import plan
from minorm.tensor.creation import tensor

LAB = Lab(
    6,
    "lab06_precision",
    "Precision",
    "In which type must a normalization compute so that its 16-bit result is as good as 16 bits can show?",
    minutes=75,
    needs=(1, 2),
    variants=V,
)
HALVES = {"float16": dtypes.float16, "bfloat16": dtypes.bfloat16}
FLOATS = {**HALVES, "float32": dtypes.float32}
INTEGERS = ("uint16", "uint32", "uint64", "int8", "int16", "int32", "int64")


def _ulp(v: Any, dtype: Any) -> Any:
    """Return the distance between neighbouring numbers of this type at v."""
    facts = ml_dtypes.finfo(dtype)
    _, exponent = np.frexp(np.maximum(np.abs(v), 2.0 ** float(facts.minexp)))
    return 2.0 ** (exponent - 1.0 - facts.nmant)


def _from_exponents(student: Any, rng: np.random.Generator) -> None:
    """Check that `ulp` computes with exponents and numbers of bits, and does not use narrow types of NumPy."""
    v = rng.standard_normal(30) * 10.0 ** rng.integers(-3, 4, 30)
    for name in FLOATS:
        follow, what = Follower(plain=8 * v.size, decisions=8 * v.size), f"ulp of some numbers in {name}"
        answer = follow.call(student, "ulp", follow.array(v), name)
        verdicts.types(follow, [*INTEGERS, "float64"], what)
        verdicts.same_answer(answer, student.call("ulp", (v, name), {}), what)


@LAB.check("6.1", "units in the last place", points=2, visible=True)
def units(student: Any, rng: np.random.Generator) -> None:
    for name, dtype in FLOATS.items():
        v = rng.standard_normal(50) * 10.0 ** rng.integers(-3, 4, 50)
        close(student.ulp(v, name), _ulp(v, dtype), f"ulp of some numbers in {name}", rtol=0, atol=0)
    _from_exponents(student, rng)


@LAB.check("6.1", "powers of two, tiny numbers and 0")
def edges(student: Any, rng: np.random.Generator) -> None:
    for name, dtype in FLOATS.items():
        powers = 2.0 ** np.arange(-14, 15)
        for v in (powers, -powers, np.nextafter(powers, 0), 2.0 ** np.array([-15.0, -20, -24]), np.zeros(2)):
            close(student.ulp(v, name), _ulp(v, dtype), f"ulp({v[0]:.17g}, {name}), ...", rtol=0, atol=0)
    tiny = 2.0 ** np.array([-126.0, -130, -133])
    close(student.ulp(tiny, "bfloat16"), np.full(3, 2.0**-133), "ulp of tiny numbers in bfloat16", rtol=0, atol=0)
    _from_exponents(student, rng)


@LAB.check("6.1", "errors in ulp", visible=True)
def errors(student: Any, rng: np.random.Generator) -> None:
    for name, dtype in FLOATS.items():
        right = rng.standard_normal(40)
        y = (right * (1 + 0.01 * rng.standard_normal(40))).astype(dtype)
        wide = y.astype(np.float64)
        expected = np.abs(wide - right) / _ulp(unit(wide, right), dtype)
        close(student.error_in_ulp(y, right, name), expected, f"error_in_ulp in {name}")


def _bits(student: Any, x: Any, what: str) -> None:
    found = numbers(student.to_bfloat16(x), what, "bits as uint16")
    true(found.dtype == np.uint16, what, "bits as uint16", str(found.dtype))
    expected = rounded_bits(x)
    nan = np.isnan(x)
    equal(found[~nan], expected[~nan], what)
    held = np.isnan(found[nan].view(ml_dtypes.bfloat16).astype(np.float32))
    true(held.all(), what, "NaN stays NaN", "a number or infinity")


def _by_hand(student: Any, name: str, x: Any) -> None:
    """Check that the function computes the bits with integers, and does not let NumPy convert to a narrower type."""
    follow, what = Follower(decisions=8 * x.size), f"{name} of some numbers"
    answer = follow.call(student, name, follow.array(x))
    verdicts.types(follow, [*INTEGERS, "float32"], what, ", the bits by hand")
    verdicts.same_answer(answer, student.call(name, (x,), {}), what)


def _rounds_by_hand(student: Any, rng: np.random.Generator) -> None:
    _by_hand(student, "to_bfloat16", np.append(rng.standard_normal(40), np.nan).astype(np.float32))


@LAB.check("6.2", "to the nearest", points=2, visible=True)
def nearest(student: Any, rng: np.random.Generator) -> None:
    x = (rng.standard_normal(300) * 10.0 ** rng.integers(-30, 30, 300)).astype(np.float32)
    _bits(student, x, "to_bfloat16 of some numbers")
    _rounds_by_hand(student, rng)


@LAB.check("6.2", "ties", visible=True)
def ties(student: Any, rng: np.random.Generator) -> None:
    upper = rng.integers(0x0080, 0x7F70, 200).astype(np.uint32) << 16
    for lower in (0x8000, 0x7FFF, 0x8001, 0):
        _bits(student, (upper + lower).astype(np.uint32).view(np.float32), f"to_bfloat16, lower half {lower:#06x}")
    _rounds_by_hand(student, rng)


@LAB.check("6.2", "NaN, infinity, overflow, denormals")
def odd_bits(student: Any, rng: np.random.Generator) -> None:
    patterns = [0x7F800001, 0xFF800001, 0x7FFFFFFF, 0xFFFFFFFF, 0x7F800000, 0xFF800000, 0x7F7FFFFF, 0xFF7FFFFF]
    patterns += [0, 0x80000000, 1, 0x00008000, 0x80018000, 0x007FFFFF]
    _bits(student, np.array(patterns, np.uint32).view(np.float32), "to_bfloat16 of odd numbers")
    _rounds_by_hand(student, rng)


@LAB.check("6.2", "and back", visible=True)
def widened(student: Any, rng: np.random.Generator) -> None:
    bits = rng.integers(0, 0x7F80, 100).astype(np.uint16) | (rng.integers(0, 2, 100) << 15).astype(np.uint16)
    expected = bits.view(ml_dtypes.bfloat16).astype(np.float32)
    close(student.from_bfloat16(bits), expected, "from_bfloat16", rtol=0, atol=0, dtype=np.float32)
    _by_hand(student, "from_bfloat16", bits[:40])


def _root(student: Any, rng: np.random.Generator, dtype: Any, sizes: tuple[float, ...]) -> None:
    for size in sizes:
        x = (rng.standard_normal((3, 50)) * size).astype(dtype)
        largest = np.abs(x).max().astype(np.float64)
        right = largest * np.sqrt(((x.astype(np.float64) / largest) ** 2).mean(axis=-1, keepdims=True))
        what = f"root_mean_square of {np.dtype(dtype)} numbers of size {size:g}"
        atol = 2e-45 if V.root == "root" else 5e-6
        close(student.root_mean_square(x), root(right), what, rtol=2e-6, atol=atol, dtype=dtype)
    _no_wider_root(student, rng)


def _no_wider_root(student: Any, rng: np.random.Generator) -> None:
    """Check that the function does not turn whole rows into Python's floats, which are float64.

    A few numbers of each row may become floats, because the function may need them for decisions.
    """
    for name in ("float32", "float64"):
        x = (rng.standard_normal((3, 40)) * 100).astype(name)
        follow, what = Follower(plain=12, decisions=x.size), f"root_mean_square of {name} numbers"
        answer = follow.call(student, "root_mean_square", follow.array(x))
        verdicts.types(follow, [name, "int32", "int64"], what)
        verdicts.same_answer(answer, student.call("root_mean_square", (x,), {}), what)


@LAB.check("6.3", "the root of the mean square", visible=True)
def ordinary_root(student: Any, rng: np.random.Generator) -> None:
    _root(student, rng, np.float32, (1.0, 300.0, 0.01))


@LAB.check("6.3", "no overflow, no underflow", points=2, visible=True)
def overflow(student: Any, rng: np.random.Generator) -> None:
    _root(student, rng, np.float32, (1e20, 1e30, 5e37, 1e-20, 1e-30))


@LAB.check("6.3", "float64, zeros, rows of different sizes", points=2)
def no_wider_type(student: Any, rng: np.random.Generator) -> None:
    _root(student, rng, np.float64, (1e200, 1e-200, 1.0))
    rows = np.array([[0, 0], [3e30, -4e30], [3e-30, 4e-30]], np.float32)
    expected = np.array([[0], [np.sqrt(12.5) * 1e30], [np.sqrt(12.5) * 1e-30]])
    close(student.root_mean_square(rows), root(expected), "root_mean_square of rows 0, 1e30, 1e-30", rtol=2e-6, atol=0)
    _no_wider_root(student, rng)


def _exact(x: Any, s: Any, b: Any, eps: float, centered: bool = True) -> tuple[Any, Any]:
    """Return y in float64 (normalized over the last axis), and the size of its summands, (|x - mean| + |mean|) f + |b|.

    f is |s| / sqrt(var + eps). If x is near the mean, y is small although the summands are large.
    """
    wide = x.astype(np.float64)
    mean = wide.mean(axis=-1, keepdims=True) * centered
    c = wide - mean
    factor = 1 / np.sqrt((c * c).mean(axis=-1, keepdims=True) + eps)
    factor = factor if s is None else factor * s.astype(np.float64)
    shift = 0 if b is None else b.astype(np.float64)
    return c * factor + shift, (np.abs(c) + np.abs(mean)) * np.abs(factor) + np.abs(shift)


def _computing_error(compute: str, dtype: Any) -> float:
    """Return the error that computing in the type `compute` may cause, relative to the size of the summands.

    NumPy rounds float64 to bfloat16 through float32.
    """
    if compute == "float32":
        return 2e-6
    return 2.0**-24 if np.dtype(dtype) == dtypes.bfloat16 else 1e-12


def _check_error(got: Any, right: Any, size: Any, dtype: Any, slack: float, what: str) -> None:
    """Check that the error is at most half an ulp plus `slack` times the size of the summands."""
    found = numbers(got, what, f"numbers of shape {right.shape}")
    true(found.shape == right.shape, what, f"shape {right.shape}", f"shape {found.shape}")
    true(found.dtype == dtype, what, f"numbers of type {dtype}", str(found.dtype))
    with np.errstate(invalid="ignore", over="ignore"):
        off = np.abs(found.astype(np.float64) - right)
        excess = (off - slack * size) / _ulp(right, dtype)
    worst = float(np.max(np.where(np.isnan(excess), np.inf, excess)))
    true(worst <= 0.5 + 1e-6, f"error of {what}", "at most 0.5 ulp", f"{worst:.3g} ulp")


def _rounded_once(
    student: Any, rng: np.random.Generator, dtype: Any, shape: tuple[int, int], scale: float, compute: str
) -> None:
    x = (rng.standard_normal(shape) * scale + scale).astype(dtype)
    s, b = rng.standard_normal((2, shape[1])).astype(dtype)
    what = f"layer_norm, {np.dtype(dtype)}, rows of {shape[1]}, numbers of size {scale:g}, compute={compute!r}"
    right, size = _exact(x, s, b, 1e-5)
    got = student.layer_norm(x, s, b, 1e-5, compute)
    _check_error(got, right, size, np.dtype(dtype), _computing_error(compute, dtype), what)


def _check_types(student: Any, rng: np.random.Generator, *kinds: tuple[str, str]) -> None:
    """Check that the student's layer_norm computes y only from numbers of the type that `compute` names."""
    for narrow, wide in kinds:
        x, s, b = ((rng.standard_normal(shape) + 1).astype(FLOATS[narrow]) for shape in ((3, 40), 40, 40))
        follow, what = Follower(), f"layer_norm of {narrow} numbers, compute={wide!r}"
        answer = follow.call(student, "layer_norm", *(follow.array(v) for v in (x, s, b)), 1e-5, wide)
        verdicts.rounded_once(follow, wide, narrow, what)
        verdicts.same_answer(answer, student.call("layer_norm", (x, s, b, 1e-5, wide), {}), what)


@LAB.check("6.4", "half an ulp in float16 and bfloat16", points=2, visible=True)
def halves(student: Any, rng: np.random.Generator) -> None:
    for dtype in HALVES.values():
        for shape in ((20, 7), (6, 300), (2, 10_000)):
            _rounded_once(student, rng, dtype, shape, 1.0, "float32")
    _check_types(student, rng, ("float16", "float32"), ("bfloat16", "float32"))


@LAB.check("6.4", "large numbers", points=2)
def large(student: Any, rng: np.random.Generator) -> None:
    _rounded_once(student, rng, dtypes.float16, (8, 100), 8000.0, "float32")
    _rounded_once(student, rng, dtypes.bfloat16, (8, 100), 1e15, "float32")
    _rounded_once(student, rng, dtypes.bfloat16, (8, 100), 1e30, "float64")
    _check_types(student, rng, ("bfloat16", "float32"), ("bfloat16", "float64"))


@LAB.check("6.4", "float32 in float64")
def wider(student: Any, rng: np.random.Generator) -> None:
    _rounded_once(student, rng, dtypes.float32, (10, 50), 1.0, "float64")
    _rounded_once(student, rng, dtypes.float32, (4, 1000), 1e25, "float64")
    _check_types(student, rng, ("float32", "float64"))


@LAB.check("6.4", "parameters of other types, or none")
def mixed(student: Any, rng: np.random.Generator) -> None:
    x = (rng.standard_normal((6, 40)) + 1).astype(np.float16)
    s, b = rng.standard_normal((2, 40)).astype(np.float32)
    for scale, bias in ((s, b), (s, None), (None, b), (None, None), (s.astype(dtypes.bfloat16), b)):
        right, size = _exact(x, scale, bias, 1e-3)
        types = " and ".join("none" if v is None else str(v.dtype) for v in (scale, bias))
        got = student.layer_norm(x, scale, bias, 1e-3)
        _check_error(got, right, size, dtypes.float16, 2e-6, f"layer_norm of float16 with s and b {types}")
    _check_types(student, rng, ("float16", "float32"))
    x = (0.02 * rng.standard_normal((6, 40))).astype(np.float16)
    right, size = _exact(x, s, b, V.eps)
    _check_error(
        student.layer_norm(x, s, b), right, size, dtypes.float16, 2e-6, "layer_norm of small numbers without eps"
    )


def _run(student: Any, layer: str, x: Any, s: Any, b: Any, compute: str | None) -> Any:
    """Run a layer of minorm with the student's forward, and return y."""
    backend, dtype = PartialBackend(forward=student.forward), None if compute is None else np.dtype(compute)
    if layer == "rms_norm":
        return F.rms_norm(tensor(x), x.shape[1:], tensor(s), 1e-5, compute_dtype=dtype, backend=backend).array
    if layer == "layer_norm":
        weight, bias = tensor(s), tensor(b)
        return F.layer_norm(tensor(x), x.shape[1:], weight, bias, compute_dtype=dtype, backend=backend).array
    weight, bias = tensor(s), tensor(b)
    return F.group_norm(tensor(x), 2, weight, bias, compute_dtype=dtype, backend=backend).array


def _in_layer(student: Any, rng: np.random.Generator, layer: str, dtype: Any, compute: str | None) -> None:
    x = (rng.standard_normal((3, 4, 30)) * 2 + 1).astype(dtype)
    shape = x.shape[1:] if layer != "group_norm" else x.shape[1:2]
    s, b = rng.standard_normal((2, *shape)).astype(np.float32 if np.dtype(dtype) in dtypes.HALVES else dtype)
    rows = x.reshape(3, -1) if layer != "group_norm" else x.reshape(6, -1)
    flat_s, flat_b = s.ravel(), b.ravel()
    if layer == "group_norm":
        flat_s, flat_b = (np.tile(np.repeat(v, 30).reshape(2, 60), (3, 1)) for v in (s, b))
    if layer == "rms_norm":
        flat_b = None
    right, size = _exact(rows, flat_s, flat_b, 1e-5, layer != "rms_norm")
    wide = compute or ("float32" if np.dtype(dtype) in dtypes.HALVES else str(np.dtype(dtype)))
    what = f"{layer} of {np.dtype(dtype)} with your forward, compute_dtype={compute}"
    got = numbers(_run(student, layer, x, s, b, compute), what, "y")
    _check_error(got.reshape(right.shape), right, size, np.dtype(dtype), _computing_error(wide, dtype), what)


def _check_forward_types(student: Any, rng: np.random.Generator) -> None:
    """Check that `forward` rounds y once, and computes y in the right type; float64 statistics are allowed."""
    for narrow, dtype in (("float16", None), ("bfloat16", None), ("float32", "float64")):
        x = (rng.standard_normal((3, 4, 10)) * 2 + 1).astype(FLOATS[narrow])
        s, b = rng.standard_normal((2, 4)).astype(np.float32)
        nest, equation, kind = plan(x.shape, (1, 2), param=(1,)), Equation(1e-5), dtype and np.dtype(dtype)
        follow, what = Follower(), f"forward of {narrow} numbers, dtype={dtype}"
        given = [follow.array(v) for v in (x, s, b)]
        y, _ = parts(follow.call(student, "forward", nest, *given, equation, kind), 2, what)
        verdicts.rounded_once(follow, dtype or "float32", narrow, what)
        plain = student.call("forward", (nest, x, s, b, equation, kind), {})
        verdicts.same_answer([y], [plain[0]], what)


@LAB.check("6.5", "your forward in LayerNorm", points=2, visible=True)
def in_layer_norm(student: Any, rng: np.random.Generator) -> None:
    for dtype in HALVES.values():
        _in_layer(student, rng, "layer_norm", dtype, None)
    _in_layer(student, rng, "layer_norm", dtypes.float32, "float64")
    _check_forward_types(student, rng)


@LAB.check("6.5", "in GroupNorm and RMSNorm", points=2)
def in_others(student: Any, rng: np.random.Generator) -> None:
    for layer in ("group_norm", "rms_norm"):
        for dtype, compute in ((dtypes.float16, None), (dtypes.bfloat16, "float64"), (dtypes.float32, "float64")):
            _in_layer(student, rng, layer, dtype, compute)
        _in_layer(student, rng, layer, dtypes.float64, None)
    _check_forward_types(student, rng)


def _norm(
    sums: bool = False,
    squares: bool = False,
    mean_rounded: bool = False,
    eps_rounded: bool = False,
    three: bool = False,
    towards_0: bool = False,
    fewer: int = 0,
    eps_outside: bool = False,
    twice: bool = False,
    away_from_0: bool = False,
    var_rounded: bool = False,
    rstd_rounded: bool = False,
) -> dict[str, Any]:
    """Make a LayerNorm with a planted bug.

    The right LayerNorm computes in float32, with statistics in float64, and rounds the result once.
    """

    def total(v: Any, kind: Any) -> Any:
        """Return the sum over the last axis. If `sums` is true, which is a bug, each partial sum is rounded."""
        if sums:
            return np.add.accumulate(v.astype(kind), axis=-1)[..., -1:].astype(np.float64)
        return v.sum(axis=-1, keepdims=True, dtype=np.float64)

    def layer_norm(x: Any, s: Any, b: Any, eps: float) -> Any:
        kind, m = x.dtype, x.shape[-1]
        mean = total(x, kind) / m
        if mean_rounded:
            mean = mean.astype(kind).astype(np.float64)
        c = x.astype(np.float64) - mean
        square = (c.astype(kind) * c.astype(kind)) if squares else c * c
        var = total(square, kind) / (m - fewer)
        var = var.astype(kind).astype(np.float64) if var_rounded else var
        guard = float(np.asarray(eps, kind)) if eps_rounded else eps
        rstd = 1 / (np.sqrt(var) + guard) if eps_outside else 1 / np.sqrt(var + guard)
        rstd = rstd.astype(kind).astype(np.float64) if rstd_rounded else rstd
        wide_s, wide_b = s.astype(np.float32), b.astype(np.float32)
        if three:
            return ((c * rstd).astype(kind) * s + b).astype(kind)
        y = (c * rstd).astype(np.float32) * wide_s
        y = (y.astype(kind).astype(np.float32) if twice else y) + wide_b
        rounded = y.astype(kind)
        if away_from_0:
            short = np.abs(rounded.astype(np.float32)) < np.abs(y)
            rounded = np.where(short, np.nextafter(rounded, np.copysign(np.inf, y).astype(kind)), rounded).astype(kind)
        if towards_0:
            beyond = np.abs(rounded.astype(np.float32)) > np.abs(y)
            rounded = np.where(beyond, np.nextafter(rounded, np.zeros_like(rounded)), rounded).astype(kind)
        return rounded

    def quiet(x: Any, s: Any, b: Any, eps: float | None = None) -> Any:
        with np.errstate(all="ignore"):
            return layer_norm(x, s, b, V.eps if eps is None else eps)

    return {"layer_norm": quiet}


BUGS = {
    varied.SUMS: _norm(sums=True),
    varied.SQUARES: _norm(squares=True),
    varied.MEAN: _norm(mean_rounded=True),
    varied.EPS: _norm(eps_rounded=True),
    varied.VARIANCE: _norm(var_rounded=True),
    varied.RSTD: _norm(rstd_rounded=True),
    varied.TWICE: _norm(twice=True),
    varied.THREE_TIMES: _norm(three=True),
    varied.TOWARDS_0: _norm(towards_0=True),
    varied.AWAY_FROM_0: _norm(away_from_0=True),
    varied.FEWER: _norm(fewer=1),
    varied.OUTSIDE: _norm(eps_outside=True),
}
LAB.mutants("6.6", _norm(), lambda: {name: BUGS[name] for name in V.bugs}, visible=True)
