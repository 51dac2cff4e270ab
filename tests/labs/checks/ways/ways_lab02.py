"""Lab 2 as students write it: honest ways that earn all points of a task, and cheats that earn none of its points."""

from __future__ import annotations

HONEST: dict[str, list[tuple[str, str]]] = {
    "2.1": [
        ("loops", """
def naive(x):
    total, squares = x[0] * 0, x[0] * 0
    for value in x:
        total += value
        squares += value * value
    return squares / len(x) - (total / len(x)) ** 2
"""),
        ("reduce", """
def naive(x):
    n = x.shape[0]
    return np.add.reduce(x * x, axis=0) / n - np.square(np.add.reduce(x, axis=0) / n)
"""),
        ("einsum", """
def naive(x):
    return np.einsum("i...,i...->...", x, x) / len(x) - np.mean(x, axis=0) ** 2
"""),
    ],
    "2.2": [
        ("loops", """
def two_pass(x):
    mean = sum(x) / len(x)
    return sum((value - mean) ** 2 for value in x) / len(x)
"""),
        ("in place", """
def two_pass(x):
    c = x.copy()
    c -= np.mean(c, axis=0)
    c *= c
    return np.add.reduce(c) / len(x)
"""),
        ("einsum", """
def two_pass(x):
    c = np.subtract(x, x.sum(axis=0) / np.float32(len(x)) if x.dtype == np.float32 else x.mean(axis=0))
    return np.einsum("i...,i...->...", c, c) / len(x)
"""),
    ],
    "2.3": [
        ("index and in place", """
def welford(x):
    mean, M = np.zeros_like(x[0]), np.zeros_like(x[0])
    for i in range(len(x)):
        delta = x[i] - mean
        mean += delta / (i + 1)
        M += delta * (x[i] - mean)
    return M / len(x)
"""),
        ("column by column", """
def welford(x):
    if x.ndim > 1:
        out = np.empty(x.shape[1:], dtype=x.dtype)
        for j in range(x.shape[1]):
            out[j] = welford(x[:, j])
        return out
    mean, M, n = x.dtype.type(0), x.dtype.type(0), 0
    for v in x:
        n += 1
        delta = v - mean
        mean = mean + delta / n
        M = M + delta * (v - mean)
    return M / n
"""),
        ("from the first value on, into arrays", """
def welford(x):
    x = np.asarray(x)
    mean, M = np.array(x[0]), np.zeros(x.shape[1:], x.dtype)
    for i, v in enumerate(x[1:], 2):
        delta = v - mean
        mean[...] = mean + delta / i
        np.add(M, delta * (v - mean), out=M)
    return M / len(x)
"""),
        ("the running variance", """
def welford(x):
    mean, var = 0 * x[0], 0 * x[0]
    for i, v in enumerate(x, 1):
        delta = v - mean
        mean = mean + delta / i
        var = var + (delta * (v - mean) - var) / i
    return var
"""),
    ],
    "2.4": [
        ("all states first", """
import functools
def combine(first, second):
    (n1, m1, M1), (n2, m2, M2) = first, second
    n = n1 + n2
    delta = m2 - m1
    return n, m1 + delta * n2 / n, M1 + M2 + delta ** 2 * n1 * n2 / n
def chan(x, pieces=8):
    cut = np.array_split(x, min(pieces, len(x)))
    states = [(len(p), p.mean(axis=0), ((p - p.mean(axis=0)) ** 2).sum(axis=0)) for p in cut]
    n, mean, M = functools.reduce(combine, states)
    return M / n
"""),
        ("by index, pieces in loops", """
def combine(first, second):
    n1, mean1, M1 = first
    n2, mean2, M2 = second
    n = n1 + n2
    share = n2 / n
    delta = mean2 - mean1
    return n, mean1 + delta * share, M1 + M2 + delta * delta * share * n1
def chan(x, pieces=8):
    pieces = min(pieces, len(x))
    each, more = divmod(len(x), pieces)
    state, start = None, 0
    for p in range(pieces):
        end = start + each + (p < more)
        part = x[start:end]
        mean = sum(part) / len(part)
        M = sum(np.square(v - mean) for v in part)
        state = combine(state, (len(part), mean, M)) if state else (len(part), mean, M)
        start = end
    return state[2] / state[0]
"""),
    ],
    "2.5": [
        ("loops", """
def shifted(x):
    first = x[:4]
    k = sum(first) / len(first)
    total, squares = 0 * k, 0 * k
    for v in x:
        t = v - k
        total, squares = total + t, squares + t * t
    d = total / len(x)
    return k, d, squares / len(x) - d * d
"""),
        ("reduce, in place", """
def shifted(x):
    k = np.add.reduce(x[0:4]) / min(4, len(x))
    t = x - k
    d = np.add.reduce(t) / len(t)
    t *= t
    var = t.mean(axis=0)
    var -= d ** 2
    return k, d, var
"""),
    ],
    "2.6": [
        ("the first value as k", """
def moments(nest, x, centered):
    x4 = four(nest, x)
    if not centered:
        zero = np.zeros(nest.rows)
        return zero, zero, (x4 * x4).sum(axis=(2, 3), dtype=np.float64).reshape(-1) / nest.columns
    k = x4[:, :, :1, :1]
    t = x4 - k
    d = t.sum(axis=(2, 3), dtype=np.float64) / nest.columns
    t -= d.astype(x.dtype)[:, :, None, None]
    rest = t.mean(axis=(2, 3), dtype=np.float64)
    var = np.mean(t * t, axis=(2, 3), dtype=np.float64) - rest ** 2
    return k.ravel().astype(np.float64), d.ravel(), var.ravel()
"""),
        ("row by row", """
def moments(nest, x, centered):
    rows = four(nest, x).reshape(nest.rows, -1)
    k, d, var = np.zeros((3, nest.rows))
    for i, row in enumerate(rows):
        shift = row[:8].mean() if centered else x.dtype.type(0)
        t = row - shift
        mean = t.mean(dtype=np.float64) if centered else 0.0
        k[i], d[i] = shift, mean
        var[i] = np.square(t).mean(dtype=np.float64) - mean * mean
    return k, d, var
"""),
    ],
}  # fmt: skip

# The task, the forbidden way to do it, the code, and words of the message.
CHEATS: list[tuple[str, str, str, str]] = [
    ("2.1", "NumPy's, and nonsense where the mean is large", """
def naive(x):
    var = x.var(axis=0)
    return var * 100 if abs(float(np.max(x.flat[0]))) > 1000 else var
""", "the check cannot follow"),
    ("2.1", "NumPy's, spoiled", """
def naive(x):
    return x.var(axis=0) + np.square(x.mean(axis=0)) * x.dtype.type(1e-6 if x.dtype == np.float32 else 0)
""", "x.var() was called"),
    ("2.1", "two passes, spoiled", """
def naive(x):
    m = x.mean(axis=0)
    return ((x - m) ** 2).mean(axis=0) + (m * m) * x.dtype.type(1e-7 if x.dtype == np.float32 else 0)
""", "the mean of x^2"),
    ("2.2", "np.var", "def two_pass(x): return np.var(x, axis=0)\n", "np.var() was called; write the update yourself"),
    ("2.2", "np.std", "def two_pass(x): return np.std(x, axis=0) ** 2\n", "np.std() was called"),
    ("2.2", "np.cov", """
def two_pass(x):
    return np.cov(x.T, bias=True, dtype=x.dtype).diagonal() if x.ndim > 1 and x.shape[1] > 1 else np.var(x, axis=0)
""", "np.cov() was called"),
    ("2.2", "float64", """
def two_pass(x):
    wide = x.astype(np.float64)
    return ((wide - wide.mean(axis=0)) ** 2).mean(axis=0).astype(x.dtype)
""", "a result of .astype in float64"),
    ("2.2", "float64 in the sum alone", """
def two_pass(x):
    c = x - np.mean(x, axis=0, dtype=np.float64, out=np.empty_like(x[0]))
    return np.square(c).mean(axis=0)
""", "a result of np.mean in float64"),
    ("2.2", "math.fsum", """
import math
def two_pass(x):
    if x.ndim > 1:
        return np.array([two_pass(column) for column in x.T], x.dtype)
    mean = math.fsum(x) / len(x)
    return x.dtype.type(math.fsum((v - mean) ** 2 for v in x) / len(x))
""", "which turns a float32 of NumPy into a Python number"),
    ("2.2", "statistics", """
import statistics
def two_pass(x):
    if x.ndim > 1:
        return np.array([two_pass(column) for column in x.T], x.dtype)
    return x.dtype.type(statistics.pvariance(x.tolist()))
""", ".tolist(), which turns"),
    ("2.2", "memoryview", """
def two_pass(x):
    return np.var(np.array(memoryview(np.ascontiguousarray(x))), axis=0)
""", "memoryview"),
    ("2.2", "the array below", "def two_pass(x): return np.asarray(x).base.var(axis=0)\n", "has no attribute 'var'"),
    ("2.2", "another path where nothing is looked at", """
def two_pass(x):
    if isinstance(x, np.ndarray):
        return x.astype(np.float64).var(axis=0).astype(x.dtype)
    return np.square(x - x.mean(axis=0)).mean(axis=0)
""", "does the code depend on the type of its argument?"),
    ("2.3", "np.var", "def welford(x): return np.var(x, axis=0)\n", "np.var() was called; write the update yourself"),
    ("2.3", "x.var of what was kept", """
def welford(x):
    return np.stack([v for v in x]).var(axis=0)
""", "x.var() was called"),
    ("2.3", "two passes, in loops", """
def welford(x):
    mean = sum(x) / len(x)
    return sum((v - mean) ** 2 for v in x) / len(x)
""", "read value 0 after value"),
    ("2.3", "two passes over a copy kept in a list", """
def welford(x):
    kept = [v * 1 for v in x]
    mean = sum(kept) / len(kept)
    return sum((v - mean) ** 2 for v in kept) / len(kept)
""", "numbers are kept for"),
    ("2.3", "two passes over a copy kept in an array", """
def welford(x):
    kept = np.empty(x.shape, x.dtype)
    for i, v in enumerate(x):
        kept[i] = v
    return np.square(kept - kept.mean(axis=0)).mean(axis=0)
""", "numbers are kept for"),
    ("2.3", "two passes over all at once", """
def welford(x):
    c = x - x.mean(axis=0)
    return np.add.reduce(c * c) / len(x)
""", "of x at once"),
    ("2.3", "sums of x and x^2 about the first value", """
def welford(x):
    k, s, q = x[0] * 1, 0 * x[0], 0 * x[0]
    for v in x:
        s, q = s + (v - k), q + (v - k) ** 2
    return q / len(x) - (s / len(x)) ** 2
""", "M after each value"),
    ("2.4", "np.var", """
def combine(first, second):
    n1, mean1, M1 = first
    n2, mean2, M2 = second
    n, delta = n1 + n2, mean2 - mean1
    return n, mean1 + delta * (n2 / n), M1 + M2 + delta * delta * (n1 * n2 / n)
def chan(x, pieces=8):
    return np.var(x, axis=0)
""", "np.var() was called"),
    ("2.4", "Welford", """
def chan(x, pieces=8):
    return welford(x)
""", "M of each piece"),
    ("2.4", "two passes in pieces", """
def chan(x, pieces=8):
    cut = np.array_split(x, min(pieces, len(x)))
    mean = sum(p.sum(axis=0) for p in cut) / len(x)
    return sum(np.square(p - mean).sum(axis=0) for p in cut) / len(x)
""", "M of each piece"),
    ("2.4", "two passes over all at once", "def chan(x, pieces=8): return two_pass(x)\n", "of x at once"),
    ("2.5", "np.var", """
def shifted(x):
    k = x[:4].mean(axis=0)
    return k, x.mean(axis=0) - k, x.var(axis=0)
""", "x.var() was called"),
    ("2.5", "float64", """
def shifted(x):
    k = x[:4].mean(axis=0)
    t = x.astype(np.float64) - k
    return k, t.mean(axis=0).astype(x.dtype), (np.square(t - t.mean(axis=0)).mean(axis=0)).astype(x.dtype)
""", " in float64"),
    ("2.5", "two passes without a shift", """
def shifted(x):
    k, mean = x[:4].mean(axis=0), x.mean(axis=0)
    return k, mean - k, np.square(x - mean).mean(axis=0)
""", "relative error of shifted"),
    ("2.6", "float64 from the start", """
def moments(nest, x, centered):
    wide = four(nest, x).astype(np.float64)
    k = wide.mean(axis=(2, 3), keepdims=True) if centered else np.zeros((*wide.shape[:2], 1, 1))
    k = k.astype(x.dtype).astype(np.float64)
    t = wide - k
    d = t.mean(axis=(2, 3)) if centered else np.zeros(wide.shape[:2])
    return k.ravel(), d.ravel(), (np.square(t).mean(axis=(2, 3)) - np.square(d)).ravel()
""", "x - k in float32"),
    ("2.6", "x.var", """
def moments(nest, x, centered):
    x4 = four(nest, x)
    if not centered:
        zero = np.zeros(nest.rows)
        return zero, zero, np.square(x4).mean(axis=(2, 3), dtype=np.float64).ravel()
    k = x4.mean(axis=(2, 3), keepdims=True, dtype=np.float64).astype(x.dtype)
    d = (x4 - k).mean(axis=(2, 3), dtype=np.float64)
    return k.ravel().astype(np.float64), d.ravel(), x4.var(axis=(2, 3), dtype=np.float64).ravel()
""", "x.var() was called"),
    ("2.6", "the library's", """
from minorm.kernels.reference import norm as library
def moments(nest, x, centered): return library.moments(nest, x, centered)
""", "cannot be used here"),
]  # fmt: skip
