"""Matrix products: long-double formulas, every shape, step and level, special numbers, and no bit from the threads."""

from __future__ import annotations

import signal
import threading
import time

import ml_dtypes
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import minorm_ext
from minorm.kernels import cpu, reference
from minorm.kernels.cpu.matmul import linear, matmul

EPS = {np.float32: 2.0**-23, np.float64: 2.0**-52}


@pytest.fixture(params=minorm_ext.levels(), autouse=True)
def level(request, monkeypatch):
    monkeypatch.setattr(cpu.matmul, "_kernels", minorm_ext.kernels("matmul", request.param))


@pytest.fixture
def threads():
    before = minorm_ext.get_num_threads()
    yield minorm_ext.set_num_threads
    minorm_ext.set_num_threads(before)


def close(c, a, b, bias=0):
    """|c - a @ b| stays within the rounding of a blocked sum, from |a| @ |b|."""
    wide = np.longdouble
    exact = np.matmul(a.astype(wide), b.astype(wide)) + np.asarray(bias, wide)
    size = np.matmul(abs(a).astype(wide), abs(b).astype(wide)) + abs(np.asarray(bias, wide))
    depth = min(a.shape[-1], 400)
    assert c.dtype == a.dtype
    assert c.shape == exact.shape
    assert (abs(c - exact) <= EPS[a.dtype.type] * (2 + depth**0.5) * size).all()


def stored(rng, shape, dtype, layout):
    """Random numbers of this shape: as they come, transposed, every other one, backwards, or one row for all."""
    rows, columns = shape
    if layout == "transposed":
        return rng.standard_normal((columns, rows)).astype(dtype).T
    if layout == "every other":
        return rng.standard_normal((2 * rows, 3 * columns)).astype(dtype)[::2, 1::3]
    if layout == "backwards":
        return rng.standard_normal(shape).astype(dtype)[::-1, ::-1]
    if layout == "repeated":
        return np.broadcast_to(rng.standard_normal((1, columns)).astype(dtype), shape)
    return rng.standard_normal(shape).astype(dtype)


sizes = st.one_of(st.integers(1, 20), st.sampled_from([24, 31, 32, 33, 64, 65, 100, 150]))
depths = st.one_of(st.integers(1, 40), st.sampled_from([64, 127, 383, 384, 385, 500, 1000, 9000]))
layouts = st.sampled_from(["plain", "plain", "transposed", "transposed", "every other", "backwards", "repeated"])


@given(sizes, depths, sizes, layouts, layouts, st.sampled_from([np.float32, np.float64]))
@example(1, 9000, 1, "plain", "plain", np.float32)  # dots in parts
@example(3, 9000, 2, "transposed", "plain", np.float32)  # tiles in parts
@example(1, 100, 300, "plain", "plain", np.float32)  # wide tiles
@example(300, 100, 1, "transposed", "plain", np.float64)  # the same, sides changed
@example(30, 500, 70, "plain", "transposed", np.float32)  # packed strips of b
@example(30, 512, 150, "plain", "plain", np.float32)  # packed strips of a
@example(30, 500, 150, "transposed", "plain", np.float32)
def test_every_shape_and_step(rows, depth, columns, left, right, dtype):
    rng = np.random.default_rng(rows * depth + columns)
    a, b = stored(rng, (rows, depth), dtype, left), stored(rng, (depth, columns), dtype, right)
    close(matmul(a, b), a, b)
    bias = rng.standard_normal(columns).astype(dtype)
    close(linear(a, b.T, bias), a, b, bias)


LEADS = [((5,), (5,)), ((2, 1), (3,)), ((), (4,)), ((4,), ()), ((2, 3), ()), ((1, 1), (2, 2)), ((0,), (0,))]


@pytest.mark.parametrize(("left", "right"), LEADS)
@pytest.mark.parametrize("swapped", [False, True])
def test_stacks_broadcast(left, right, swapped, rng):
    a = rng.standard_normal((*left, 7, 20)).astype(np.float32)
    b = rng.standard_normal((*right, 20, 9)).astype(np.float32)
    if swapped:
        a = np.ascontiguousarray(np.moveaxis(a, -1, -2)).swapaxes(-1, -2)
    close(matmul(a, b), a, b)


@pytest.mark.parametrize(
    ("a", "b"), [((4,), (4,)), ((3, 4), (4,)), ((4,), (4, 2)), ((4,), (5, 4, 2)), ((5, 3, 4), (4,))]
)
def test_vectors(a, b, rng):
    a, b = rng.standard_normal(a), rng.standard_normal(b)
    result = matmul(a, b)
    assert isinstance(result, np.ndarray)
    np.testing.assert_allclose(result, np.matmul(a, b), rtol=1e-13)
    assert result.shape == np.matmul(a, b).shape


def test_nothing_to_add_and_nothing_to_compute():
    f = np.float32
    np.testing.assert_array_equal(matmul(np.ones((3, 0), f), np.ones((0, 2), f)), np.zeros((3, 2), f))
    np.testing.assert_array_equal(
        linear(np.ones((3, 0), f), np.ones((2, 0), f), np.array([1, 2], f)), [[1, 2], [1, 2], [1, 2]]
    )
    assert matmul(np.ones((0, 4), f), np.ones((4, 2), f)).shape == (0, 2)
    assert linear(np.ones((2, 0, 4), f), np.ones((3, 4), f), None).shape == (2, 0, 3)
    assert matmul(np.ones((0, 3, 4), f), np.ones((4, 2), f)).shape == (0, 3, 2)


def test_shapes_that_do_not_fit():
    with pytest.raises(ValueError, match=r"matmul: a is \(2, 3\), b is \(4, 2\)"):
        matmul(np.ones((2, 3), np.float32), np.ones((4, 2), np.float32))


def test_float16_is_added_up_in_float32_and_rounded_once(rng):
    dtype = np.float16
    x, w, b = (rng.standard_normal(shape).astype(dtype) for shape in [(33, 700), (12, 700), (12,)])
    wide = [array.astype(np.float32) for array in (x, w, b)]
    for backend in (cpu, reference):
        y = backend.matmul.linear(x, w, b)
        assert y.dtype == dtype
        np.testing.assert_array_equal(y, backend.matmul.linear(*wide).astype(dtype))
        np.testing.assert_array_equal(
            backend.matmul.matmul(x, w.T), backend.matmul.matmul(wide[0], wide[1].T).astype(dtype)
        )


def test_bfloat16_has_the_same_bits_in_both_backends(rng):
    """Every rank, with the order of tiles; how that goes is tests/kernels/products/test_tiles.py's matter."""
    x, w, b = (rng.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in [(3, 11, 70), (12, 70), (12,)])
    for left, right in [(x, w.T), (x[0], w.T), (x[0, 0], w.T), (x, w[0]), (x[0, 0], w[0]), (w, x.swapaxes(1, 2))]:
        got, expected = cpu.matmul.matmul(left, right), reference.matmul.matmul(left, right)
        wide = np.matmul(left.astype(np.float64), right.astype(np.float64))
        assert got.dtype == expected.dtype == ml_dtypes.bfloat16
        assert got.shape == expected.shape == wide.shape
        assert got.tobytes() == expected.tobytes()
        np.testing.assert_allclose(got.astype(np.float64), wide, rtol=2**-8, atol=1e-4)
    for bias in (b, None):
        assert cpu.matmul.linear(x, w, bias).tobytes() == reference.matmul.linear(x, w, bias).tobytes()


def test_other_types_and_odd_memory(rng):
    a, b = rng.integers(0, 9, (3, 4)), rng.integers(0, 9, (4, 2))
    np.testing.assert_array_equal(matmul(a, b), a @ b)
    assert matmul(a, b).dtype == (a @ b).dtype
    x = rng.standard_normal((6, 20)).astype(np.float32)
    unaligned = np.frombuffer(b"-" + x.tobytes(), np.float32, offset=1).reshape(x.shape)
    assert not unaligned.flags.aligned
    np.testing.assert_array_equal(matmul(unaligned, x.T), matmul(x, x.T))
    big_endian = x.astype(">f4")
    np.testing.assert_allclose(matmul(big_endian, big_endian.T).astype(np.float32), x @ x.T, rtol=1e-5, atol=1e-5)
    frozen = x.copy()
    frozen.flags.writeable = False
    np.testing.assert_array_equal(matmul(frozen, frozen.T), matmul(x, x.T))


@pytest.mark.parametrize(("rows", "depth", "columns"), [(40, 30, 50), (2, 100, 5), (2, 39, 300)])
@pytest.mark.parametrize("layout", ["C", "F"])  # tiles, and dots where c is narrow
def test_nan_and_infinity_stay_in_their_row_and_column(rows, depth, columns, layout, rng):
    a, b = rng.standard_normal((rows, depth)), rng.standard_normal((depth, columns)).copy(layout)
    a[0, 3], a[1:, -1], b[-1, 0] = np.nan, 1, np.inf
    c = matmul(a, b)
    assert np.isnan(c[0]).all()
    assert np.isinf(c[1:, 0]).all()
    assert np.isfinite(c[1:, 1:]).all()


SHAPES = [
    (128, 512, 10), (1, 512, 10), (64, 128, 10), (128, 800, 500), (1, 1, 1), (1, 100_000, 1), (3, 50_000, 4),
    (500, 20, 700), (1, 2000, 1500), (1500, 2000, 1), (5, 5, 50_000), (50_000, 5, 5),
]  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_threads_and_repeats_change_no_bit(shape, dtype, threads, rng):
    rows, depth, columns = shape
    x = rng.standard_normal((rows, depth), dtype=dtype)
    w = rng.standard_normal((columns, depth), dtype=dtype)
    b = rng.standard_normal(columns, dtype=dtype)
    dy = rng.standard_normal((rows, columns), dtype=dtype)
    results = set()
    for n in (1, 2, 3, 4, 64, 1):
        threads(n)
        results.add(b"".join(c.tobytes() for c in (linear(x, w, b), matmul(dy, w), matmul(dy.T, x), matmul(x, w.T))))
    assert len(results) == 1


@pytest.mark.parametrize("count", [1, 7, 300])
def test_threads_change_no_bit_of_stacks(count, threads, rng):
    a, b = rng.standard_normal((count, 30, 170)), rng.standard_normal((count, 170, 40))
    results = set()
    for n in (1, 2, 3, 4):
        threads(n)
        results.add(matmul(a, b).tobytes())
    assert len(results) == 1


def test_a_row_does_not_depend_on_the_other_rows(rng):
    """True of tiles, that is, of everything but the narrowest products: the same image, the same bits, in any batch."""
    x, w = rng.standard_normal((100, 900), dtype=np.float32), rng.standard_normal((200, 900), dtype=np.float32)
    y = linear(x, w)
    for rows in (13, 50, 99):
        np.testing.assert_array_equal(linear(x[:rows], w), y[:rows])


def test_eight_threads_of_python_at_once(rng):
    x, w = rng.standard_normal((64, 700), dtype=np.float32), rng.standard_normal((90, 700), dtype=np.float32)
    expected, found = linear(x, w).tobytes(), []

    def work():
        found.extend(linear(x, w).tobytes() for _ in range(20))

    workers = [threading.Thread(target=work) for _ in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(found) == 160
    assert set(found) == {expected}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "shape",
    [(1, 9, 3), (4, 128, 128), (16, 700, 40), (3, 40_000, 5), (2, 9000, 31), (130, 800, 70), (5, 0, 4)],
    ids=str,
)
def test_a_bias_and_a_relu_have_the_bits_of_operations_apart(shape, dtype, threads):
    """Also where the depth is added up in parts, which a bias would join before they are rounded."""
    rows, depth, columns = shape
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((rows, depth)).astype(dtype), rng.standard_normal((depth, columns)).astype(dtype)
    bias = rng.standard_normal(columns).astype(dtype)
    a[1:2, :1] = np.nan  # where there is a second row: the others stay numbers
    close = 1e-3 if dtype == np.float32 else 1e-10
    apart = matmul(a, b) + bias
    for count in (1, 2):
        threads(count)
        for relu in (False, True):
            wanted = np.where(apart <= 0, dtype(0), apart) if relu else apart
            assert cpu.matmul.affine(a, b, bias, relu).tobytes() == wanted.tobytes()
            stacked = cpu.matmul.affine(a[None], b, bias, relu)
            assert (stacked.shape, stacked.tobytes()) == ((1, rows, columns), wanted.tobytes())
            turned = cpu.matmul.affine(np.asfortranarray(a), np.asfortranarray(b), bias, relu)
            np.testing.assert_allclose(turned, wanted, rtol=close, atol=close)
            np.testing.assert_allclose(reference.matmul.affine(a, b, bias, relu), wanted, rtol=close, atol=close)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16], ids=str)
def test_a_bias_and_a_relu_behind_16_bits(dtype):
    """Rounded after each step; the formula in float64 is a few roundings away."""
    rng = np.random.default_rng(0)
    a, b, bias = (rng.standard_normal(shape).astype(dtype) for shape in ((7, 33), (33, 6), (6,)))
    got = cpu.matmul.affine(a, b, bias, True)
    exact = np.maximum(a.astype(np.float64) @ b.astype(np.float64) + bias.astype(np.float64), 0)
    assert got.dtype == dtype
    np.testing.assert_allclose(got.astype(np.float64), exact, atol=0.1, rtol=1e-2)


@pytest.mark.parametrize(("rows", "depth", "columns"), [(4000, 4000, 4000), (50_000, 6000, 100), (60, 3_000_000, 60)])
def test_ctrl_c_is_answered(rows, depth, columns):
    if minorm_ext.kernels("matmul") is not cpu.matmul._kernels:
        pytest.skip("the waves are the same at every level")
    a = np.broadcast_to(np.float32(1), (rows, depth))
    b = np.broadcast_to(np.float32(1), (depth, columns))
    pressed = []

    def press():
        time.sleep(0.05)
        pressed.append(time.perf_counter())
        signal.raise_signal(signal.SIGINT)

    hand = threading.Thread(target=press)
    hand.start()
    with pytest.raises(KeyboardInterrupt):
        for _ in range(50):
            matmul(a, b)
    assert time.perf_counter() - pressed[0] < 1.5  # 0.5 on a machine without other users
    hand.join()
