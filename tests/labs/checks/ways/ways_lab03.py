"""Lab 3 as students write it: honest ways that earn all points of a task, and cheats that earn none of its points."""

from __future__ import annotations

HONEST: dict[str, list[tuple[str, str]]] = {
    "3.1": [
        ("in place", """
def graph(x, g, axes, eps=1e-5):
    m = np.prod([x.shape[axis] for axis in axes])
    c = x - np.add.reduce(x, axis=axes, keepdims=True) / m
    rstd = 1 / np.sqrt(np.mean(np.square(c), axis=axes, keepdims=True) + eps)
    dvar = np.sum(g * c, axis=axes, keepdims=True) * rstd ** 3 / -2
    dc = np.multiply(g, rstd)
    dc += c * dvar * 2 / m
    dc -= dc.mean(axis=axes, keepdims=True)
    return dc
"""),
        ("loops", """
import math
def graph(x, g, axes, eps=1e-5):
    rows, back = np.moveaxis(x, axes, range(-len(axes), 0)), [a for a in range(x.ndim) if a not in axes]
    m = int(np.prod([x.shape[axis] for axis in axes]))
    flat, flat_g = rows.reshape(-1, m), np.moveaxis(g, axes, range(-len(axes), 0)).reshape(-1, m)
    out = np.zeros(flat.shape)
    for r in range(flat.shape[0]):
        mean = sum(flat[r, j] for j in range(m)) / m
        c = [flat[r, j] - mean for j in range(m)]
        rstd = 1 / math.sqrt(sum(v * v for v in c) / m + eps)
        drstd = sum(flat_g[r, j] * c[j] for j in range(m))
        dc = [flat_g[r, j] * rstd - rstd ** 3 * drstd * c[j] / m for j in range(m)]
        back_mean = sum(dc) / m
        for j in range(m):
            out[r, j] = dc[j] - back_mean
    return np.moveaxis(out.reshape(rows.shape), range(-len(axes), 0), axes)
"""),
    ],
    "3.2": [
        ("sums and m", """
def three_terms(g, xhat, rstd, axes):
    m = g.size // rstd.size
    return (g - np.add.reduce(g, axis=axes, keepdims=True) / m
            - xhat * np.sum(g * xhat, axis=axes, keepdims=True) / m) * rstd
"""),
        ("in place", """
def three_terms(g, xhat, rstd, axes):
    dx = np.array(g, copy=True)
    dx -= np.mean(g, axis=axes, keepdims=True)
    dx -= xhat * np.mean(xhat * g, axis=axes, keepdims=True)
    np.multiply(dx, rstd, out=dx)
    return dx
"""),
        ("the Jacobian", """
def three_terms(g, xhat, rstd, axes):
    keep = [a for a in range(g.ndim) if a not in axes]
    order = (*keep, *axes)
    rows = int(np.prod([g.shape[a] for a in keep]))
    G, X = g.transpose(order).reshape(rows, -1), xhat.transpose(order).reshape(rows, -1)
    m = G.shape[1]
    J = np.eye(m) - 1 / m - X[:, :, None] * X[:, None, :] / m
    dx = np.einsum("rij,rj->ri", J, G).reshape([g.shape[a] for a in order])
    return dx.transpose(np.argsort(order).tolist()) * rstd
"""),
    ],
    "3.3": [
        ("einsum", """
def parameter_gradients(dy, xhat, axes):
    letters = "abcdef"[:dy.ndim]
    kept = "".join(v for i, v in enumerate(letters) if i not in axes)
    return np.einsum(f"{letters},{letters}->{kept}", dy, xhat), np.add.reduce(dy, axis=axes)
"""),
        ("loops", """
def parameter_gradients(dy, xhat, axes):
    ds, db = dy * xhat, dy
    for axis in sorted(axes, reverse=True):
        ds, db = sum(np.moveaxis(ds, axis, 0)), sum(np.moveaxis(db, axis, 0))
    return ds, db
"""),
    ],
    "3.4": [
        ("rows", """
def backward(nest, dy, x, stats, s, equation, needs=(True, True)):
    x4, dy4 = four(nest, x), four(nest, dy)
    shape, m = (*x4.shape[:2], 1, 1), nest.columns
    slope = np.reshape(equation.slope(stats.var) * np.ones(nest.rows), shape)
    xhat = ((x4 - stats.k.reshape(shape)) - stats.d.reshape(shape)) * stats.rstd.reshape(shape)
    g = np.array(dy4, copy=True)
    if s is not None:
        g *= parameters(nest, s)
    dx = g - xhat * slope * np.sum(g * xhat, axis=(2, 3), keepdims=True) / m
    if equation.centered:
        dx -= np.add.reduce(g, axis=(2, 3), keepdims=True) / m
    dx *= stats.rstd.reshape(shape)
    return like(nest, dx, x), parameter_sums(nest, dy4 * xhat), parameter_sums(nest, dy4)
"""),
        ("what is asked for", """
def backward(nest, dy, x, stats, s, equation, needs=(True, True)):
    x4, dy4 = four(nest, x), four(nest, dy)
    k, d, rstd = kept(nest, stats.k), kept(nest, stats.d), kept(nest, stats.rstd)
    slope = kept(nest, equation.slope(stats.var) * np.ones(nest.rows))
    xhat = (x4 - k - d) * rstd
    dx = ds = db = None
    if needs[0]:
        g = dy4 if s is None else np.multiply(dy4, parameters(nest, s))
        along = np.einsum("abcd,abcd->ab", g, xhat)[:, :, None, None] / nest.columns
        terms = g - xhat * (slope * along)
        dx = like(nest, (terms - g.mean((2, 3), keepdims=True) if equation.centered else terms) * rstd, x)
    if needs[1]:
        ds, db = parameter_sums(nest, dy4 * xhat), parameter_sums(nest, dy4)
    return dx, ds, db
"""),
    ],
}  # fmt: skip

DIFFERENCES = """
def _forward(v, axes, eps):
    c = v - v.mean(axis=axes, keepdims=True)
    return c / np.sqrt((c * c).mean(axis=axes, keepdims=True) + eps)
def _differences(x, g, axes, eps, h=1e-5):
    dx = np.zeros_like(x)
    for i in np.ndindex(x.shape):
        up, down = x.copy(), x.copy()
        up[i] += h
        down[i] -= h
        dx[i] = ((g * _forward(up, axes, eps)).sum() - (g * _forward(down, axes, eps)).sum()) / (2 * h)
    return dx
def _complex_step(x, g, axes, eps):
    dx = np.zeros(x.shape)
    for i in np.ndindex(x.shape):
        z = x.astype(np.complex128)
        z[i] += 1e-30j
        dx[i] = (g * _forward(z, axes, eps)).sum().imag / 1e-30
    return dx
def _column_by_column(x, g, axes, eps, h=1e-5):
    axis = axes[-1]
    dx = np.zeros_like(x)
    for j in range(x.shape[axis]):
        e = np.zeros([x.shape[axis] if a == axis else 1 for a in range(x.ndim)])
        e[tuple(j if a == axis else 0 for a in range(x.ndim))] = h
        up, down = (g * (_forward(x + e, axes, eps) - _forward(x - e, axes, eps))).sum(axis=axis), None
        index = [slice(None)] * x.ndim
        index[axis] = j
        dx[tuple(index)] = up / (2 * h)
    return dx
"""
BACKWARD = """
def backward(nest, dy, x, stats, s, equation, needs=(True, True)):
    x4, dy4 = four(nest, x), four(nest, dy)
    g = dy4 if s is None else dy4 * parameters(nest, s)
    k, d, rstd = kept(nest, stats.k), kept(nest, stats.d), kept(nest, stats.rstd)
    xhat = ((x4 - k) - d) * rstd
    def forward(v):
        c = v - v.mean(axis=(2, 3), keepdims=True) if equation.centered else v
        return c * equation.rstd((c * c).mean(axis=(2, 3), keepdims=True))
    dx = np.zeros(x4.shape)
    h = 1e-5
    DX
    return like(nest, dx, x), parameter_sums(nest, dy4 * xhat), parameter_sums(nest, dy4)
"""
EACH = """for i in np.ndindex(x4.shape):
        up, down = x4.copy(), x4.copy()
        up[i] += h
        down[i] -= h
        dx[i] = ((g * forward(up)).sum() - (g * forward(down)).sum()) / (2 * h)
"""
TOGETHER = """for j in range(x4.shape[2]):
        for i in range(x4.shape[3]):
            e = np.zeros((1, 1, *x4.shape[2:]))
            e[0, 0, j, i] = h
            dx[:, :, j, i] = (g * (forward(x4 + e) - forward(x4 - e))).sum(axis=(2, 3)) / (2 * h)
"""

# The task, the forbidden way to do it, the code, and words of the message.
CHEATS: list[tuple[str, str, str, str]] = [
    ("3.1", "finite differences", DIFFERENCES + """
def graph(x, g, axes, eps=1e-5): return _differences(x, g, axes, eps)
""", "graph, x of shape"),
    ("3.1", "finite differences with more steps, so with more digits", DIFFERENCES + """
def graph(x, g, axes, eps=1e-5):
    c = x - x.mean(axis=axes, keepdims=True)
    one, two, four_h = (_differences(c, g, axes, eps, h) for h in (5e-4, 1e-3, 2e-3))
    return (one * 64 - two * 20 + four_h) / 45
""", "looks like finite differences"),
    ("3.1", "finite differences of all rows together", DIFFERENCES + """
def graph(x, g, axes, eps=1e-5):
    return _column_by_column(x, g, axes, eps) if len(axes) == 1 else _differences(x, g, axes, eps)
""", "graph, x of shape"),
    ("3.1", "a complex step", DIFFERENCES + """
def graph(x, g, axes, eps=1e-5): return _complex_step(x, g, axes, eps)
""", "complex"),
    ("3.1", "the library's autograd", """
import minorm as mn
def graph(x, g, axes, eps=1e-5):
    v = mn.tensor(x)
    v.requires_grad = True
    c = v - v.mean(dim=axes, keepdim=True)
    (c * ((c * c).mean(dim=axes, keepdim=True) + eps) ** -0.5).backward(mn.tensor(g))
    return v.grad.numpy()
""", "graph"),
    ("3.2", "finite differences", DIFFERENCES + """
def three_terms(g, xhat, rstd, axes):
    x = xhat / rstd
    eps = rstd ** -2 - (x * x).mean(axis=axes, keepdims=True)
    return _differences(x, g, axes, eps)
""", "three_terms"),
    ("3.2", "a complex step", DIFFERENCES + """
def three_terms(g, xhat, rstd, axes):
    x = xhat / rstd
    return _complex_step(x, g, axes, rstd ** -2 - (x * x).mean(axis=axes, keepdims=True))
""", "complex"),
    ("3.2", "a whole pass with more steps, so with more digits", DIFFERENCES + """
def three_terms(g, xhat, rstd, axes):
    x = xhat / rstd
    eps = rstd ** -2 - (x * x).mean(axis=axes, keepdims=True)
    one, two, four_h = (_differences(x, g, axes, eps, h) for h in (1e-3, 2e-3, 4e-3))
    return (one * 64 - two * 20 + four_h) / 45
""", "three_terms"),
    ("3.2", "the mean's part alone", """
def three_terms(g, xhat, rstd, axes): return rstd * (g - g.mean(axis=axes, keepdims=True))
""", "three_terms"),
    ("3.3", "the right size, and ones", """
def parameter_gradients(dy, xhat, axes):
    return np.ones_like(dy.sum(axis=axes)), np.ones_like(dy.sum(axis=axes))
""", "ds, shape"),
    ("3.3", "the gradient of one sample", """
def parameter_gradients(dy, xhat, axes): return (dy * xhat).max(axis=axes), dy.max(axis=axes)
""", "ds, shape"),
    ("3.3", "means", """
def parameter_gradients(dy, xhat, axes): return (dy * xhat).mean(axis=axes), dy.mean(axis=axes)
""", "ds, shape"),
    ("3.4", "finite differences", BACKWARD.replace("DX", EACH), "with your backward"),
    ("3.4", "finite differences of all rows together", BACKWARD.replace("DX", TOGETHER), "with your backward"),
    ("3.4", "without the shift", BACKWARD.replace("DX", """xhat = (x4 - k) * rstd
    slope = kept(nest, equation.slope(stats.var) * np.ones(nest.rows))
    mean_g = g.mean(axis=(2, 3), keepdims=True) if equation.centered else 0
    dx = rstd * (g - mean_g - xhat * slope * (g * xhat).mean(axis=(2, 3), keepdims=True))
"""), "with your backward"),
    ("3.4", "the library's", """
from minorm.kernels.reference import norm as library
def backward(nest, dy, x, stats, s, equation, needs=(True, True)):
    return library.backward(nest, dy, x, stats, s, equation, needs)
""", "cannot be used here"),
]  # fmt: skip
