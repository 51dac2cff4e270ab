"""Lab 6 as students write it: honest ways that earn all points of a task, and cheats that earn none of its points."""

from __future__ import annotations

HONEST: dict[str, list[tuple[str, str]]] = {
    "6.1": [
        ("log2 of a power of two, by ldexp", """
def ulp(v, name):
    v = np.abs(np.asarray(v, np.float64))
    _, e = np.frexp(v)
    e = np.where(v == 0, SMALLEST[name], np.maximum(e - 1, SMALLEST[name]))
    return np.ldexp(1.0, e - BITS[name] + 1)
def error_in_ulp(y, right, name):
    return np.abs(np.float64(y) - right) / ulp(right, name)
"""),
        ("number by number", """
import math
def ulp(v, name):
    def one(value):
        e = math.frexp(value)[1] - 1 if value else SMALLEST[name]
        return math.ldexp(1.0, max(e, SMALLEST[name]) - BITS[name] + 1)
    return np.array([one(value) for value in np.ravel(v).tolist()]).reshape(np.shape(v))
def error_in_ulp(y, right, name):
    return np.divide(np.absolute(y.astype(float) - right), ulp(right, name))
"""),
    ],
    "6.2": [
        ("uint32, in place", """
def to_bfloat16(x):
    bits = x.view(np.uint32).copy()
    nan = np.isnan(x)
    bits[nan] = 0
    bits += 0x7FFF + ((bits >> 16) & 1)
    bits >>= 16
    bits[nan] = 0x7FC0
    return bits.astype(np.uint16)
def from_bfloat16(bits):
    return np.left_shift(bits.astype(np.uint32), 16).view(np.float32)
"""),
        ("number by number", """
def to_bfloat16(x):
    out = np.zeros(x.shape, np.uint16)
    bits = x.view(np.uint32)
    for i in range(len(x)):
        if np.isnan(x[i]):
            out[i] = 0x7FC0
        else:
            out[i] = (bits[i] + np.uint64(0x7FFF) + ((bits[i] >> 16) & 1)) >> 16
    return out
def from_bfloat16(bits):
    wide = np.zeros(bits.shape, np.uint32)
    wide[:] = bits
    wide *= 65536
    return wide.view(np.float32)
"""),
    ],
    "6.3": [
        ("row by row, Python's exponents", """
def root_mean_square(x):
    out = np.empty((*x.shape[:-1], 1), x.dtype)
    for i, row in enumerate(x):
        e = int(np.frexp(np.abs(row).max())[1])
        scaled = np.ldexp(row, -e)
        out[i, 0] = np.ldexp(np.sqrt(np.add.reduce(scaled * scaled) / len(row)), e)
    return out
"""),
        ("in place", """
def root_mean_square(x):
    largest = np.maximum.reduce(np.abs(x), axis=-1, keepdims=True)
    _, e = np.frexp(largest)
    y = np.ldexp(x, -e)
    y *= y
    mean = np.add.reduce(y, axis=-1, keepdims=True)
    mean /= x.shape[-1]
    np.sqrt(mean, out=mean)
    return np.ldexp(mean, e)
"""),
        ("einsum", """
def root_mean_square(x):
    e = np.frexp(np.max(np.absolute(x), axis=-1))[1]
    y = np.ldexp(x, -e[..., None])
    return np.ldexp(np.sqrt(np.einsum("...i,...i->...", y, y) / x.shape[-1]), e)[..., np.newaxis]
"""),
    ],
    "6.4": [
        ("types asked for in each sum, in place", """
def layer_norm(x, s, b, eps=1e-5, compute="float32"):
    wide = DTYPES[compute]
    y = x.astype(wide)
    y -= np.add.reduce(y, axis=-1, keepdims=True, dtype=wide) / y.shape[-1]
    y /= np.sqrt(np.mean(np.square(y), axis=-1, keepdims=True, dtype=wide) + eps)
    if s is not None:
        y *= s.astype(wide)
    if b is not None:
        y += b.astype(wide)
    return y.astype(x.dtype)
"""),
        ("row by row, into an array of x's type", """
def layer_norm(x, s, b, eps=1e-5, compute="float32"):
    kind = np.dtype(DTYPES[compute])
    out = np.empty_like(x)
    for i in range(x.shape[0]):
        row = x[i].astype(kind)
        c = row - sum(row) / len(row)
        rstd = 1 / np.sqrt((c * c).sum() / len(row) + kind.type(eps))
        y = c * rstd
        y = y if s is None else y * s.astype(kind)
        out[i] = y if b is None else y + b.astype(kind)
    return out
"""),
        ("np.subtract with dtype", """
def layer_norm(x, s, b, eps=1e-5, compute="float32"):
    wide = DTYPES[compute]
    w = np.asarray(x, dtype=wide)
    c = np.subtract(w, w.mean(axis=-1, keepdims=True))
    y = c * (np.square(c).mean(axis=-1, keepdims=True) + wide.type(eps)) ** -0.5
    for v, operation in ((s, np.multiply), (b, np.add)):
        if v is not None:
            y = operation(y, np.array(v).astype(wide))
    return y.astype(x.dtype)
"""),
    ],
    "6.5": [
        ("np.add.reduce", """
def forward(nest, x, s, b, equation, dtype=None):
    dtype = dtype if dtype is not None else (np.dtype(np.float32) if x.dtype.itemsize == 2 else x.dtype)
    x4 = four(nest, x).astype(dtype)
    m = nest.columns
    mean = np.zeros((*x4.shape[:2], 1, 1), dtype)
    if equation.centered:
        mean = np.add.reduce(x4, axis=(2, 3), keepdims=True) / m
    c = x4 - mean
    var = np.add.reduce(np.square(c), axis=(2, 3), keepdims=True) / m
    rstd = 1 / np.sqrt(var + dtype.type(equation.eps)) if dtype != np.float64 else equation.rstd(var)
    y = c * rstd
    if s is not None:
        y *= parameters(nest, s).astype(dtype)
    if b is not None:
        y += parameters(nest, b).astype(dtype)
    flat = [v.reshape(-1).astype(np.float64) for v in (mean, var, rstd)]
    return like(nest, y, x), Statistics.of(flat[0], np.zeros_like(flat[0]), flat[1], flat[2])
"""),
        ("the layer norm of 6.4 in steps", """
def forward(nest, x, s, b, equation, dtype=None):
    wide = np.dtype("f4") if x.dtype.itemsize == 2 else x.dtype
    wide = wide if dtype is None else dtype
    rows = four(nest, x).astype(wide)
    mean = rows.mean(axis=(2, 3), keepdims=True, dtype=wide)
    if not equation.centered:
        mean = np.zeros_like(mean)
    rows -= mean
    var = np.einsum("abcd,abcd->ab", rows, rows)[:, :, None, None] / (rows.shape[2] * rows.shape[3])
    rstd = equation.rstd(var)
    rows *= rstd
    if s is not None:
        rows = rows * parameters(nest, s).astype(wide)
    if b is not None:
        rows = rows + parameters(nest, b).astype(wide)
    k, v, r = (np.ravel(part).astype("float64") for part in (mean, var, rstd))
    return like(nest, rows, x), Statistics.of(k, 0 * k, v, r)
"""),
    ],
}  # fmt: skip

NORM = """
def layer_norm(x, s, b, eps=1e-5, compute="float32"):
    wide = DTYPES[compute]
    c = x.astype(WIDE)
    c = c - c.mean(axis=-1, keepdims=True)
    y = c / np.sqrt((c * c).mean(axis=-1, keepdims=True) + eps)
    y = y if s is None else y * s.astype(WIDE)
    return (y if b is None else y + b.astype(WIDE)).astype(x.dtype)
"""
FORWARD = """
def forward(nest, x, s, b, equation, dtype=None):
    if dtype is None:
        dtype = np.float32 if x.dtype.itemsize == 2 else x.dtype
    c = four(nest, x).astype(np.float64)
    mean = c.mean(axis=(2, 3), keepdims=True) if equation.centered else np.zeros((*c.shape[:2], 1, 1))
    c = c - mean
    var = (c * c).mean(axis=(2, 3), keepdims=True)
    rstd = equation.rstd(var)
    y = c * rstd
    y = y if s is None else y * parameters(nest, s)
    y = y if b is None else y + parameters(nest, b)
    return like(nest, yCAST, x), Statistics.of(mean.ravel(), 0 * mean.ravel(), var.ravel(), rstd.ravel())
"""

# The task, the forbidden way to do it, the code, and words of the message.
CHEATS: list[tuple[str, str, str, str]] = [
    ("6.1", "np.spacing of the narrow types", """
def ulp(v, name):
    if name == "bfloat16":
        bits = np.abs(v).astype(np.float32).view(np.uint32) & 0xFFFF0000
        return ((bits + 0x10000).view(np.float32) - bits.view(np.float32)).astype(np.float64)
    return np.spacing(np.abs(v).astype(DTYPES[name])).astype(np.float64)
""", " in float"),
    ("6.1", "the neighbours of the narrow types", """
def ulp(v, name):
    y = np.abs(v).astype(DTYPES[name])
    return np.nextafter(y, np.array(np.inf, y.dtype)).astype(np.float64) - y.astype(np.float64)
""", " in float"),
    ("6.1", "a share of the value", """
def ulp(v, name): return np.abs(v) * 2.0 ** (1 - BITS[name])
""", "ulp of some numbers"),
    ("6.2", "NumPy's conversion", """
def to_bfloat16(x): return x.astype(mn.bfloat16).view(np.uint16)
def from_bfloat16(bits): return bits.view(mn.bfloat16).astype(np.float32)
""", "a result of .astype in bfloat16"),
    ("6.2", "an array of another type, written into", """
def to_bfloat16(x):
    out = np.empty(x.shape, mn.bfloat16)
    out[...] = x
    return out.view(np.uint16)
def from_bfloat16(bits):
    out = np.empty(bits.shape, np.float32)
    out[...] = bits.view(mn.bfloat16)
    return out
""", " in bfloat16"),
    ("6.2", "the library's", """
def to_bfloat16(x): return mn.tensor(np.array(x)).to(dtype=mn.bfloat16).numpy().view(np.uint16)
def from_bfloat16(bits): return mn.tensor(bits.view(mn.bfloat16)).to(dtype=mn.float32).numpy()
""", "to_bfloat16"),
    ("6.2", "struct", """
import struct
def to_bfloat16(x):
    return np.array([int(struct.unpack("<I", struct.pack("<f", v))[0]) for v in x.tolist()], np.uint32).view(
        np.float32).astype(mn.bfloat16).view(np.uint16)
def from_bfloat16(bits):
    return np.array([struct.unpack("<f", struct.pack("<I", v << 16))[0] for v in bits.tolist()], np.float32)
""", "which the check cannot follow"),
    ("6.3", "long double", """
def root_mean_square(x):
    return np.sqrt((x.astype(np.longdouble) ** 2).mean(axis=-1, keepdims=True)).astype(x.dtype)
""", " in float128"),
    ("6.3", "float64 or long double", """
def root_mean_square(x):
    wide = np.float64 if x.dtype == np.float32 else np.longdouble
    return np.sqrt(np.mean(np.square(x, dtype=wide), axis=-1, keepdims=True)).astype(x.dtype)
""", "a result of np.square in float64"),
    ("6.3", "a wider sum alone", """
def root_mean_square(x):
    e = np.frexp(np.abs(x).max(axis=-1, keepdims=True))[1]
    y = np.ldexp(x, -e)
    out = np.empty(e.shape, x.dtype)
    np.mean(y * y, axis=-1, keepdims=True, dtype=np.longdouble, out=out)
    return np.ldexp(np.sqrt(out), e)
""", "a result of np.mean in"),
    ("6.3", "Python's whole numbers", """
from fractions import Fraction
import math
def root_mean_square(x):
    out = np.empty((*x.shape[:-1], 1), x.dtype)
    for i, row in enumerate(x.tolist()):
        square = sum(Fraction(v) ** 2 for v in row) / len(row)
        out[i, 0] = math.sqrt(square) if 1e-300 < square < 1e300 else float(
            math.isqrt(int(square * 10 ** 640)) / 10 ** 320)
    return out
""", "which the check cannot follow"),
    ("6.4", "float64, cast at the end", NORM.replace("WIDE", "np.float64"), " in float64"),
    ("6.4", "float64, by way of float32", NORM.replace("WIDE", "np.float64").replace(
        ").astype(x.dtype)\n", ").astype(wide).astype(x.dtype)\n"), " in float64"),
    ("6.4", "long double", NORM.replace("WIDE", "np.longdouble"), " in float128"),
    ("6.4", "sums in float64", NORM.replace("WIDE", "wide").replace(
        "keepdims=True)", "keepdims=True, dtype=np.float64).astype(wide)"), " in float64"),
    ("6.4", "x's own type", NORM.replace("WIDE", "x.dtype"), "layer_norm"),
    ("6.5", "float64 whatever dtype says", FORWARD.replace("CAST", ""), " in float64"),
    ("6.5", "float64, by way of dtype", FORWARD.replace("CAST", ".astype(dtype)"), " in float64"),
    ("6.5", "the library's", """
from minorm.kernels.reference import norm as library
def forward(nest, x, s, b, equation, dtype=None): return library.forward(nest, x, s, b, equation, dtype)
""", "cannot be used here"),
]  # fmt: skip
