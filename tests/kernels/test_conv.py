"""The convolution kernel against the reference, which is itself held against a plain loop and PyTorch."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minorm_ext
from minorm.devices import dtypes
from minorm.kernels.cpu import conv as cpu
from minorm.kernels.cpu import conv_layout, conv_plan, conv_tiles
from minorm.kernels.reference import conv as reference

BACKENDS = [reference, cpu]
CASES = [  # x, w, stride, padding, dilation, groups
    ((2, 3, 9), (4, 3, 3), (2,), ((1, 2),), (2,), 1),
    ((64, 1, 8, 8), (16, 1, 3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 1),
    ((33, 6, 4, 4), (7, 6, 3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 1),
    ((3, 6, 14, 14), (16, 6, 5, 5), (1, 1), ((0, 0), (0, 0)), (1, 1), 1),
    ((2, 5, 33, 31), (8, 5, 3, 3), (2, 2), ((1, 1), (1, 1)), (1, 1), 1),
    ((2, 16, 17, 40), (16, 1, 3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 16),  # depthwise
    ((2, 3, 6, 18), (3, 1, 5, 4), (1, 1), ((2, 2), (3, 0)), (1, 1), 3),
    ((2, 3, 9, 17), (3, 1, 3, 2), (1, 1), ((0, 0), (0, 0)), (1, 2), 3),
    ((2, 4, 9, 9), (12, 2, 3, 3), (1, 3), ((0, 3), (2, 0)), (2, 1), 2),
    ((2, 8, 16, 16), (13, 8, 1, 1), (2, 2), ((0, 0), (0, 0)), (1, 1), 1),
    ((1, 3, 5, 6, 7), (4, 3, 2, 3, 3), (1, 2, 1), ((1, 0), (1, 1), (0, 2)), (1, 1, 2), 1),
    ((2, 2, 3, 3), (2, 2, 1, 1), (1, 1), ((2, 1), (3, 3)), (1, 1), 1),  # more padding than kernel
    ((1, 2, 5, 5), (3, 2, 5, 5), (1, 1), ((0, 0), (0, 0)), (1, 1), 1),  # one result
    ((2, 4, 12, 11), (6, 2, 2, 3), (1, 2), ((0, -3), (0, -1)), (4, 3), 2),  # x is cut off
    ((3, 2, 23), (3, 2, 3), (3,), ((1, -7),), (4,), 1),
    ((2, 3, 40, 40), (4, 3, 2, 2), (1, 1), ((0, -19), (0, -19)), (20, 20), 1),
    ((3, 64, 7, 9), (40, 32, 3, 3), (1, 1), ((1, 1), (0, 3)), (1, 1), 2),  # by Winograd's tiles
    ((2, 3, 3, 3), (2, 3, 1, 1), (2, 2), ((0, 2), (0, 2)), (1, 1), 1),  # as many results as places, in spite of strides
]


def arrays(x_shape: Any, w_shape: Any, how: Any, dtype: Any = np.float64) -> tuple[Any, Any, Any, Any]:
    rng = np.random.default_rng(sum(x_shape) + sum(w_shape))
    y_shape = reference.output_shape(x_shape[2:], w_shape[2:], *how[:3])
    shapes = (x_shape, w_shape, w_shape[:1], (x_shape[0], w_shape[0], *y_shape))
    x, w, b, dy = (rng.standard_normal(shape).astype(dtype) for shape in shapes)
    return x, w, b, dy


def plain(x: Any, w: Any, b: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Any:
    """The definition, element by element."""
    out = [
        (n + low + high - d * (k - 1) - 1) // s + 1
        for n, k, s, (low, high), d in zip(x.shape[2:], w.shape[2:], stride, padding, dilation, strict=True)
    ]
    y = np.zeros((len(x), len(w), *out))
    share = len(w) // groups
    for n, o in np.ndindex(len(x), len(w)):
        for place in np.ndindex(*out):
            total = b[o]
            for c in range(w.shape[1]):
                for tap in np.ndindex(*w.shape[2:]):
                    at = [
                        i * s + t * d - p[0]
                        for i, s, t, d, p in zip(place, stride, tap, dilation, padding, strict=True)
                    ]
                    if all(0 <= i < size for i, size in zip(at, x.shape[2:], strict=True)):
                        total += w[(o, c, *tap)] * x[(n, o // share * w.shape[1] + c, *at)]
            y[(n, o, *place)] = total
    return y


def close(got: Any, expected: Any, tolerance: float) -> None:
    assert got.shape == expected.shape
    assert got.dtype == expected.dtype
    assert np.abs(got - expected).max(initial=0) <= tolerance * (1 + np.abs(expected).max(initial=0))


def compare(x_shape: Any, w_shape: Any, how: Any, dtype: Any) -> None:
    """All three sums of the kernel against the reference."""
    x, w, b, dy = arrays(x_shape, w_shape, how, dtype)
    tolerance = 1e-12 if dtype == np.float64 else 1e-4
    close(cpu.forward(x, w, b, *how), reference.forward(x, w, b, *how), tolerance)
    close(cpu.grad_input(dy, w, x_shape, *how), reference.grad_input(dy, w, x_shape, *how), tolerance)
    for got, expected in zip(
        cpu.grad_weight(dy, x, w_shape, *how), reference.grad_weight(dy, x, w_shape, *how), strict=True
    ):
        close(got, expected, tolerance)


@pytest.mark.parametrize("case", [case for case in CASES if np.prod(case[0]) * np.prod(case[1]) < 2e5])
def test_the_reference_is_the_definition(case: Any) -> None:
    x, w, b, _ = arrays(*case[:2], case[2:])
    close(reference.forward(x, w, b, *case[2:]), plain(x, w, b, *case[2:]), 1e-12)


@pytest.mark.parametrize("case", CASES)
def test_the_gradients_of_the_reference_are_its_transposes(case: Any) -> None:
    """<dy, W * x> = <dx, x> = <dW, w>: a bilinear sum read three ways."""
    x, w, _, dy = arrays(*case[:2], case[2:])
    total = (dy * reference.forward(x, w, None, *case[2:])).sum()
    dw, db = reference.grad_weight(dy, x, w.shape, *case[2:])
    np.testing.assert_allclose((reference.grad_input(dy, w, x.shape, *case[2:]) * x).sum(), total)
    np.testing.assert_allclose((dw * w).sum(), total)
    np.testing.assert_allclose(db, dy.sum(axis=(0, *range(2, dy.ndim))))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("case", CASES)
def test_the_kernel_agrees_with_the_reference(case: Any, dtype: Any) -> None:
    compare(*case[:2], case[2:], dtype)


@pytest.mark.parametrize("level", minorm_ext.levels())
@pytest.mark.parametrize("pixels", [0, 1024])
@pytest.mark.parametrize("cache", [1, 400000])
def test_every_instruction_set_and_layout(level: str, cache: int, pixels: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tiny cache cuts every plane into strips of few rows; with no pixels to transpose, lanes are never images.

    Kernels of 3x3 by shifted reads, too: test_conv_tiles.py has them all by tiles.
    """
    monkeypatch.setattr(conv_tiles, "pays", lambda *_: False)
    kernel = minorm_ext.kernels("conv", level)
    monkeypatch.setattr(conv_plan, "kernels", kernel)
    monkeypatch.setattr(conv_layout, "CACHE", cache)
    monkeypatch.setattr(conv_plan, "MOST_PIXELS", pixels)
    plans = (conv_plan.forward, conv_plan.grad_input, conv_plan.grad_weight)
    try:
        for cached in plans:
            cached.cache_clear()
        for case, dtype in itertools.product(CASES, (np.float32, np.float64)):
            compare(*case[:2], case[2:], dtype)
    finally:
        for cached in plans:
            cached.cache_clear()


@given(
    data=st.data(), rank=st.integers(1, 3), groups=st.sampled_from([1, 1, 2, 3]), images=st.sampled_from([1, 2, 9, 17])
)
def test_any_shape(data: Any, rank: int, groups: int, images: int) -> None:
    def draw(low: int, high: int) -> tuple[int, ...]:
        return tuple(data.draw(st.lists(st.integers(low, high), min_size=rank, max_size=rank)))

    kernel, stride, dilation = draw(1, 4), draw(1, 3), draw(1, 2)
    padding = tuple(zip(draw(0, 3), draw(0, 3), strict=True))
    size = tuple(
        max(n, d * (k - 1) + 1 - sum(p))
        for n, k, d, p in zip(draw(1, [0, 40, 12, 6][rank]), kernel, dilation, padding, strict=True)
    )
    channels, outputs = data.draw(st.sampled_from([1, 2, 5])), data.draw(st.sampled_from([1, 3, 7, 8]))
    compare(
        (images, groups * channels, *size),
        (groups * outputs, channels, *kernel),
        (stride, padding, dilation, groups),
        np.float64,
    )


def test_any_number_of_threads_gives_the_same_bits() -> None:
    before = minorm_ext.get_num_threads()
    try:
        for case in CASES:
            x, w, b, dy = arrays(*case[:2], case[2:], np.float32)
            found = set()
            for threads in (1, 2, 3, 7):
                minorm_ext.set_num_threads(threads)
                dw, db = cpu.grad_weight(dy, x, w.shape, *case[2:])
                y, dx = cpu.forward(x, w, b, *case[2:]), cpu.grad_input(dy, w, x.shape, *case[2:])
                found.add((dw.tobytes(), db.tobytes(), y.tobytes(), dx.tobytes()))
            assert len(found) == 1
    finally:
        minorm_ext.set_num_threads(before)


@pytest.mark.parametrize("backend", BACKENDS)
def test_float16_is_computed_in_float32_and_rounded_once(backend: Any) -> None:
    """products/test_conv_products.py tests the type of bfloat16's sums."""
    half = dtypes.float16
    how = CASES[3][2:]
    x, w, b, dy = (a.astype(half) for a in arrays(*CASES[3][:2], how))
    wide = [a.astype(np.float32) for a in (x, w, b, dy)]
    expected = backend.forward(*wide[:3], *how).astype(half)
    got = backend.forward(x, w, b, *how)
    assert got.dtype == half
    np.testing.assert_array_equal(got, expected)
    dw, db = backend.grad_weight(dy, x, w.shape, *how)
    assert dw.dtype == db.dtype == half
    assert backend.grad_input(dy, w, x.shape, *how).dtype == half


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_empty_batch(backend: Any) -> None:
    how = ((1, 1), ((1, 1), (1, 1)), (1, 1), 1)
    x, w, b = np.zeros((0, 3, 5, 5), np.float32), np.ones((4, 3, 3, 3), np.float32), np.ones(4, np.float32)
    y = backend.forward(x, w, b, *how)
    assert y.shape == (0, 4, 5, 5)
    assert backend.grad_input(y, w, x.shape, *how).shape == x.shape
    dw, db = backend.grad_weight(y, x, w.shape, *how)
    assert dw.shape == w.shape
    assert not dw.any()
    assert not db.any()


def test_arrays_that_are_not_plain() -> None:
    """Strides of every kind, read-only memory, another byte order: by copy, and the same numbers."""
    how = CASES[3][2:]
    x, w, b, dy = arrays(*CASES[3][:2], how)
    y, dx = cpu.forward(x, w, b, *how), cpu.grad_input(dy, w, x.shape, *how)
    odd = [
        np.asfortranarray(x),
        np.flip(np.ascontiguousarray(np.flip(x, 3)), 3),
        np.repeat(x, 2, axis=1)[:, ::2],
        np.frombuffer(b"." + x.tobytes(), np.uint8)[1:].view(x.dtype).reshape(x.shape),  # unaligned, read-only
    ]
    for view in odd:
        np.testing.assert_array_equal(cpu.forward(view, w, b, *how), y)
    np.testing.assert_allclose(cpu.forward(x.astype(">f8"), w.astype(">f8"), b.astype(">f8"), *how), y)
    constant = np.broadcast_to(np.float64(2), dy.shape)
    np.testing.assert_allclose(
        cpu.grad_input(constant, w, x.shape, *how), reference.grad_input(constant.copy(), w, x.shape, *how)
    )
    frozen = x.copy()
    frozen.flags.writeable = False
    np.testing.assert_array_equal(cpu.forward(frozen, w, b, *how), y)
    np.testing.assert_array_equal(cpu.grad_input(dy, w, x.shape, *how), dx)


def test_a_bias_of_the_transposed_convolution() -> None:
    case = CASES[6]
    x, w, _, dy = arrays(*case[:2], case[2:])
    b = np.arange(x.shape[1], dtype=x.dtype)
    for backend in BACKENDS:
        close(
            backend.grad_input(dy, w, x.shape, *case[2:], b),
            backend.grad_input(dy, w, x.shape, *case[2:]) + b[:, None, None],
            1e-12,
        )


def test_nan_stays_in_its_image_and_channel() -> None:
    how = ((1, 1), ((1, 1), (1, 1)), (1, 1), 2)
    for images in (3, 20):  # pixels in the lanes, and images
        x, w, _, dy = arrays((images, 4, 6, 6), (6, 2, 3, 3), how, np.float32)
        x[1, 0] = np.nan
        y = cpu.forward(x, w, None, *how)
        assert np.isnan(y[1, :3]).all()
        assert np.isfinite(np.delete(y, 1, axis=0)).all()
        assert np.isfinite(y[:, 3:]).all()
        dw, _ = cpu.grad_weight(dy, x, w.shape, *how)
        assert np.isnan(dw[:3, 0]).all()
        assert np.isfinite(dw[:3, 1]).all()
        assert np.isfinite(dw[3:]).all()


@pytest.mark.parametrize(
    ("kernel", "stride", "padding", "dilation", "groups"), [(4, 1, 2, 1, 1), (9, 2, 0, 3, 2), (5, 3, 7, 1, 1)]
)
@pytest.mark.parametrize("below", [(), (2,)])
def test_a_line_longer_than_the_cache(
    below: tuple[int, ...], kernel: int, stride: int, padding: int, dilation: int, groups: int, monkeypatch: Any
) -> None:
    """It is cut into pieces that overlap in the source; here the cache is called small, so that there are many."""
    for plan in (conv_plan.forward, conv_plan.grad_input, conv_plan.grad_weight):
        plan.cache_clear()
    monkeypatch.setattr(conv_layout, "CACHE", 4096)
    monkeypatch.setattr(conv_plan, "LINE", 4096)
    monkeypatch.setattr(conv_plan, "LARGEST", 2e4)
    rank = 1 + len(below)
    ones = (1,) * (rank - 1)
    how = ((*ones, stride), (((0, 0),) * (rank - 1) + ((padding, padding // 2),)), (*ones, dilation), groups)
    x, w, b, dy = arrays((2, 4, *below, 1003), (6, 4 // groups, *below, kernel), how)
    close(cpu.forward(x, w, b, *how), reference.forward(x, w, b, *how), 1e-11)
    close(cpu.grad_input(dy, w, x.shape, *how), reference.grad_input(dy, w, x.shape, *how), 1e-11)
    for mine, right in zip(
        cpu.grad_weight(dy, x, w.shape, *how), reference.grad_weight(dy, x, w.shape, *how), strict=True
    ):
        close(mine, right, 1e-11)
    for plan in (conv_plan.forward, conv_plan.grad_input, conv_plan.grad_weight):
        plan.cache_clear()


# Nothing outside the arrays


def in_guarded_memory(*arguments: str) -> subprocess.CompletedProcess[str]:
    paths = (str(Path(minorm_ext.__file__).parents[1]), os.environ.get("PYTHONPATH", ""))
    return subprocess.run(
        [sys.executable, Path(__file__).with_name("guarded.py"), *arguments],
        capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
    )  # fmt: skip


@pytest.mark.skipif(sys.platform != "linux", reason="mprotect through ctypes")
@pytest.mark.parametrize("level", minorm_ext.levels()[::-1])  # the highest is the one that always runs
def test_no_address_is_outside_the_arrays(level: str) -> None:
    result = in_guarded_memory("conv", level)
    assert (result.returncode, result.stdout) == (0, "done\n"), result.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="mprotect through ctypes")
@pytest.mark.parametrize("where", ["start", "end"])
def test_a_process_that_leaves_a_guarded_array_ends(where: str) -> None:
    result = in_guarded_memory("leave", where)
    assert (result.returncode, result.stdout) == (-signal.SIGSEGV, "inside\n"), result.stderr


@pytest.mark.parametrize("backend", BACKENDS)
def test_shapes_that_do_not_belong_together(backend: Any) -> None:
    how = ((1, 1), ((1, 1), (1, 1)), (1, 1), 1)
    x, w, b, dy = arrays((2, 3, 5, 5), (4, 3, 3, 3), how)
    for wrong in (dy[:1], dy[:, :3], dy[:, :, :4], dy[..., :4], np.repeat(dy, 2, axis=3)):
        with pytest.raises(ValueError, match=r"conv.grad_weight: dy.shape is .*; expected \(2, 4, 5, 5\); x.shape is"):
            backend.grad_weight(wrong, x, w.shape, *how)
        with pytest.raises(ValueError, match=r"conv.grad_input: dy.shape is .*; expected \(2, 4, 5, 5\); x.shape is"):
            backend.grad_input(wrong, w, x.shape, *how)
    for call in (
        lambda: backend.forward(x[:, :2], w, b, *how),
        lambda: backend.grad_input(dy, w, (2, 2, 5, 5), *how),
        lambda: backend.grad_weight(dy, x[:, :2], w.shape, *how),
        lambda: backend.forward(x, w, b, *how[:3], 3),
        lambda: backend.forward(x[..., 0], w, b, *how),
    ):
        with pytest.raises(ValueError, match=r"conv.*: w.shape is .*, x.shape is .*, groups=.; expected w.shape\[1\]"):
            call()
    with pytest.raises(ValueError, match=r"conv.forward: the kernel is larger than the padded x"):
        backend.forward(x[..., :1], w, b, (1, 1), ((0, 0), (0, 0)), (1, 1), 1)
    with pytest.raises(ValueError, match=r"conv.forward: b.shape is \(3,\); expected \(4,\)"):
        backend.forward(x, w, b[:3], *how)
    with pytest.raises(ValueError, match=r"conv.grad_input: b.shape is \(4,\); expected \(3,\)"):
        backend.grad_input(dy, w, x.shape, *how, b)


@pytest.mark.parametrize("level", minorm_ext.levels())
def test_the_kernel_itself_refuses_short_arrays(level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last gate: whatever Python believes of the shapes, memory of the layout's size is there."""
    kernel = minorm_ext.kernels("conv", level)
    monkeypatch.setattr(conv_plan, "kernels", kernel)
    x_shape, w_shape, *how = CASES[4]  # both of its sums pack their source
    x, w, b, dy = arrays(x_shape, w_shape, how)
    for plan in (conv_plan.forward, conv_plan.grad_weight):
        plan.cache_clear()
    forward, _ = conv_plan.forward(x_shape, w_shape, *how, 8)
    weights = conv_plan.grad_weight(dy.shape, x_shape, w_shape, *how, 8)
    for plan in (conv_plan.forward, conv_plan.grad_weight):
        plan.cache_clear()
    room = np.empty(max(forward.correlate_buffer(1), weights.weight_buffer(1)))
    for i in range(5):
        those = [a.ravel()[:-1] if i == j else a for j, a in enumerate((x, w, b, dy.copy()))]
        buffer = room[: forward.correlate_buffer(1) - (i == 4)]
        with pytest.raises(ValueError, match=r"kernel: array has \d+ elements; expected at least \d+"):
            forward.correlate(*those[:2], (those[2], None, None), those[3], buffer, False, 8, 1)
    for i in range(5):
        those = [a.ravel()[:-1] if i == j else a for j, a in enumerate((dy, x, w.copy(), b.copy()))]
        buffer = room[: weights.weight_buffer(1) - (i == 4)]
        with pytest.raises(ValueError, match=r"kernel: array has \d+ elements; expected at least \d+"):
            weights.weight_gradient(*those, buffer, 8, 1)
