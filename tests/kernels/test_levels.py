"""The same bits on every instruction set that this processor has, for any shape, type and number of threads.

By construction: no product is fused with a sum, no sum is ordered by the width of a vector, and no function comes from
a library that has special code for some processors. Convolution and matmul write multiply-adds as such, so there the
levels agree that round these once. tests/test_determinism.py compares whole operations; here hypothesis looks for
shapes.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minorm_ext
from minorm.devices import dtypes
from minorm.kernels.cpu import conv, elementwise, matmul, pool, recurrent, softmax, sums, update
from minorm.kernels.reference.gates import DEFAULTS, Gate
from tests.levels import FUSED, at_level

LEVELS = minorm_ext.levels()
TYPES = st.sampled_from([dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64])
WIDE = st.sampled_from([dtypes.float32, dtypes.float64])
SEEDS = st.integers(0, 2**32 - 1)

pytestmark = pytest.mark.skipif(len(LEVELS) == 1, reason="one level here")


def numbers(shape, seed, dtype):
    """Numbers of very different size: adding them up in another order, or rounding once less, gives other bits."""
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(shape) * 2.0 ** rng.integers(-8, 4, shape)).astype(dtype)


def everywhere(function, levels=LEVELS):
    """function() on all levels with 1 and 2 threads, and on the highest with 3: its results, which must be alike."""
    before = minorm_ext.get_num_threads()
    found = []
    try:
        for level, threads in [(level, threads) for level in levels for threads in (1, 2)] + [(levels[-1], 3)]:
            minorm_ext.set_num_threads(threads)
            with at_level(level):
                results = function()
            results = results if isinstance(results, (tuple, list)) else [results]
            found.append([(level, threads), *(np.asarray(array).tobytes() for array in results)])
    finally:
        minorm_ext.set_num_threads(before)
    for one in found:
        assert one[1:] == found[0][1:], f"{one[0]} differs from {found[0][0]}"


ONE = ["relu", "relu6", "leaky_relu", "hardswish", "sigmoid", "tanh", "silu", "elu", "gelu", "erf", "exp", "expm1",
       "log", "log1p", "copy", "neg"]  # fmt: skip
TWO = ["add", "sub", "mul", "div", "power", "relu_grad", "relu6_grad", "leaky_relu_grad", "hardswish_grad",
       "sigmoid_grad", "tanh_grad", "silu_grad", "elu_grad", "gelu_grad", "erf_grad"]  # fmt: skip
# The other functions of elementwise: separate families, or not a map of arrays to an array.
OTHERS = {"accumulate", "scale", "over", "check_target", "sum_axes", "sum_to", "softmax", "softmax_grad", "log_softmax",
          "log_softmax_grad", "cross_entropy", "cross_entropy_grad", "reduce_losses"}  # fmt: skip


def test_no_map_is_left_out():
    assert {*ONE, *TWO, *OTHERS} == set(elementwise.__all__)


SIZES = st.one_of(st.integers(1, 600), st.sampled_from([8191, 8192, 8193, 70_001, 300_001]))


@pytest.mark.parametrize("name", ONE)
@given(size=SIZES, dtype=TYPES, seed=SEEDS)
def test_maps_of_one(name, size, dtype, seed):
    x = numbers(size, seed, dtype)
    x = abs(x) if name in ("log", "log1p") else x  # of NaN not even the sign is promised
    everywhere(lambda: getattr(elementwise, name)(x))


@pytest.mark.parametrize("name", TWO)
@given(size=SIZES, dtype=TYPES, seed=SEEDS)
def test_maps_of_two(name, size, dtype, seed):
    a, b = numbers(size, seed, dtype), numbers(size, seed + 1, dtype)
    a = abs(a) if name == "power" else a
    everywhere(lambda: getattr(elementwise, name)(a, b))


@given(size=SIZES, dtype=TYPES, seed=SEEDS, option=st.floats(-3, 3, width=16))
def test_maps_with_a_number(size, dtype, seed, option):
    x, total = numbers(size, seed, dtype), numbers(size, seed + 1, dtype)

    def function():
        kept = total.copy()
        elementwise.accumulate(kept, x)
        exponent = np.asarray(option).astype(dtype)
        by_tanh = elementwise.gelu(x, "tanh"), elementwise.gelu_grad(total, x, "tanh")
        return kept, elementwise.scale(x, option), elementwise.power(abs(x), exponent), *by_tanh

    everywhere(function)


ROWS = st.tuples(st.integers(1, 40), st.integers(1, 300)) | st.sampled_from([(1, 70_001), (9000, 10), (700, 130)])


@given(shape=ROWS, dtype=TYPES, seed=SEEDS)
def test_softmax(shape, dtype, seed):
    x, dy = numbers(shape, seed, dtype), numbers(shape, seed + 1, dtype)

    def function():
        y, logy = softmax.softmax(x), softmax.log_softmax(x)
        return y, logy, softmax.softmax_grad(dy, y), softmax.log_softmax_grad(dy, logy)

    everywhere(function)


@given(shape=ROWS, dtype=WIDE, seed=SEEDS, smoothing=st.sampled_from([0.0, 0.1]))
def test_cross_entropy(shape, dtype, seed, smoothing):
    x, dy = numbers(shape, seed, dtype), numbers(shape[0], seed + 1, dtype)
    classes = np.arange(shape[0]) * 7 % shape[1]

    def function():
        loss, lse = softmax.cross_entropy(x, classes, label_smoothing=smoothing)
        return loss, lse, softmax.cross_entropy_grad(dy, x, classes, lse, label_smoothing=smoothing)

    everywhere(function)


SHAPES = st.lists(st.integers(1, 12), min_size=1, max_size=4) | st.sampled_from(
    [[300_001], [2, 70_000], [70_000, 3], [3, 400, 300], [5000, 1, 64]]
)


@given(shape=SHAPES, dtype=TYPES, seed=SEEDS, data=st.data())
def test_sums(shape, dtype, seed, data):
    axes = data.draw(st.sets(st.integers(0, len(shape) - 1)), label="axes")
    x = numbers(shape, seed, dtype)
    everywhere(lambda: (sums.sum_axes(x, tuple(axes)), sums.mean_axes(x, tuple(axes), True)))


@given(
    planes=st.tuples(st.integers(1, 3), st.integers(1, 5)) | st.just((16, 40)),
    size=st.tuples(st.integers(3, 20), st.integers(3, 40)),
    kernel=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    stride=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    low=st.integers(0, 1),
    whole=st.booleans(),
    dtype=TYPES,
    seed=SEEDS,
)
def test_pooling(planes, size, kernel, stride, low, whole, dtype, seed):
    kernel = size if whole else kernel
    padding = ((0, 0),) * 2 if whole else tuple((min(low, k // 2),) * 2 for k in kernel)
    x = numbers((*planes, *size), seed, dtype)

    def function():
        y, where = pool.max_forward(x, kernel, stride, padding, (1, 1), False)
        mean = pool.avg_forward(x, kernel, stride, padding, (1, 1), False, True, None)
        dy = numbers(y.shape, seed + 1, dtype)
        dx = pool.max_backward(dy, where, x.shape)
        return y, where, mean, dx, pool.avg_backward(dy, x.shape, kernel, stride, padding, (1, 1), True, None)

    everywhere(function)


@given(size=SIZES, dtype=WIDE, seed=SEEDS, decay=st.sampled_from([0.0, 0.01]), flag=st.booleans())
def test_updates(size, dtype, seed, decay, flag):
    start = [abs(numbers(size, seed + i, dtype)) for i in range(5)]

    def function():
        p, g, m, v, peak = (array.copy() for array in start)
        options = {"lr": 0.1, "weight_decay": decay, "maximize": flag}
        update.sgd([p], [g], [m], momentum=0.9, dampening=0.1, nesterov=flag, **options)
        update.sgd([p], [g], [], **options)
        peaks = [peak] if flag else []
        update.adam([p], [g], [m], [v], peaks, [3], beta1=0.9, beta2=0.99, eps=1e-8, decoupled=flag, **options)
        update.scale([g], 0.3)
        return p, g, m, v, peak, update.square_sum(p)

    everywhere(function)


@pytest.mark.skipif(len(FUSED) < 2, reason="one level here that rounds multiply-adds once")
@given(
    images=st.sampled_from([1, 3, 17, 40]),
    channels=st.sampled_from([(1, 1, 6), (1, 3, 8), (1, 16, 20), (2, 5, 2), (1, 70, 33)]),
    size=st.tuples(st.integers(5, 20), st.integers(5, 40)),
    kernel=st.sampled_from([(1, 1), (3, 3), (3, 3), (5, 5), (2, 4), (3, 7)]),
    stride=st.integers(1, 2),
    low=st.integers(0, 2),
    dilation=st.integers(1, 2),
    dtype=WIDE,
    seed=SEEDS,
)
def test_convolution(images, channels, size, kernel, stride, low, dilation, dtype, seed):
    groups, inputs, outputs = channels
    size = tuple(max(n, dilation * (k - 1) + 1) for n, k in zip(size, kernel, strict=True))
    how = (stride,) * 2, ((low, low),) * 2, (dilation,) * 2, groups
    x = numbers((images, groups * inputs, *size), seed, dtype)
    w, b = numbers((groups * outputs, inputs, *kernel), seed + 1, dtype), numbers(groups * outputs, seed + 2, dtype)

    def function():
        y = conv.forward(x, w, b, *how)
        dy = numbers(y.shape, seed + 3, dtype)
        return y, conv.grad_input(dy, w, x.shape, *how), *conv.grad_weight(dy, x, w.shape, *how)

    everywhere(function, FUSED)


@pytest.mark.skipif(len(FUSED) < 2, reason="one level here that rounds multiply-adds once")
@given(
    planes=st.sampled_from([1, 6, 16]),
    kernel=st.sampled_from([3, 5]),
    size=st.tuples(st.integers(5, 20), st.integers(5, 40)),
    stride=st.integers(1, 2),
    dtype=WIDE,
    seed=SEEDS,
)
def test_depthwise_convolution(planes, kernel, size, stride, dtype, seed):
    how = (stride,) * 2, ((kernel // 2,) * 2,) * 2, (1, 1), planes
    x, w = numbers((3, planes, *size), seed, dtype), numbers((planes, 1, kernel, kernel), seed + 1, dtype)

    def function():
        y = conv.forward(x, w, None, *how)
        dy = numbers(y.shape, seed + 3, dtype)
        return y, conv.grad_input(dy, w, x.shape, *how), *conv.grad_weight(dy, x, w.shape, *how)

    everywhere(function, FUSED)


SIDES = st.one_of(st.integers(1, 40), st.integers(1, 600))


@pytest.mark.skipif(len(FUSED) < 2, reason="one level here that rounds multiply-adds once")
@given(rows=SIDES, columns=SIDES, depth=SIDES | st.sampled_from([5000, 9001]), turned=st.tuples(*[st.booleans()] * 2),
       dtype=WIDE, seed=SEEDS)  # fmt: skip
def test_matrix_products(rows, columns, depth, turned, dtype, seed):
    rows, columns = (min(n, 20) if depth > 600 else n for n in (rows, columns))
    a = numbers((depth, rows), seed, dtype).T if turned[0] else numbers((rows, depth), seed, dtype)
    b = numbers((columns, depth), seed + 1, dtype).T if turned[1] else numbers((depth, columns), seed + 1, dtype)
    everywhere(lambda: matmul.matmul(a, b), FUSED)


CELLS = {"RNN": ("h", 1), "GRU": ("zrn", 2), "LSTM": ("iofg", 3)}


@pytest.mark.skipif(len(FUSED) < 2, reason="one level here that rounds multiply-adds once")
@pytest.mark.parametrize("kind", CELLS)
@given(
    sizes=st.tuples(st.integers(1, 5), st.integers(1, 60), st.integers(1, 80)),
    names=st.lists(st.sampled_from([*DEFAULTS]), min_size=3, max_size=3) | st.just(["Sigmoid", "Tanh", "Tanh"]),
    dtype=WIDE,
    seed=SEEDS,
    variant=st.booleans(),
    reverse=st.booleans(),
)
def test_recurrent_layers(kind, sizes, names, dtype, seed, variant, reverse):
    steps, batch, hidden = sizes
    order, count = CELLS[kind]
    activations = tuple(Gate(name, *DEFAULTS[name]) for name in names[:count])
    cell = recurrent.Cell(kind, order, activations, 2.5, variant)
    state, every = (batch, hidden), (steps, batch, hidden)
    a = numbers((steps, batch, len(order) * hidden), seed, dtype) / 8
    r = numbers((len(order) * hidden, hidden), seed + 1, dtype) / 8
    lengths = np.arange(batch) * 7 % (steps + 1)

    def function():
        h, c, y = np.ones(state, dtype), np.ones(state, dtype) if kind == "LSTM" else None, np.empty(every, dtype)
        memory = recurrent.forward(cell, a.copy(), r, None, None, h, c, y, lengths, reverse, True)
        dh, dc = np.ones(state, dtype), np.ones(state, dtype) if kind == "LSTM" else None
        found = recurrent.backward(cell, memory, r, None, y, dh, dc, lengths, reverse)
        return [array for array in (y, h, c, dh, dc, *found) if array is not None]

    everywhere(function, FUSED)
