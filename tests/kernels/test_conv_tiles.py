"""Winograd's tiles: the same sums as the reference, the same bits everywhere, and each result from its window alone."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minorm_ext
from minorm.kernels.cpu import conv as cpu
from minorm.kernels.cpu import conv_axes, conv_plan, conv_tiles
from minorm.kernels.reference import conv as reference
from tests.kernels.test_conv import CASES, arrays, close

PLANS = (conv_plan.forward, conv_plan.grad_input, conv_plan.grad_weight)
PLAIN = ((1, 1), ((1, 1), (1, 1)), (1, 1), 1)  # stride, padding, dilation, groups


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Use tiles wherever they apply, even if they are slower."""
    monkeypatch.setattr(conv_tiles, "pays", lambda *_: True)
    forget()
    yield
    forget()


def forget() -> None:
    for plan in PLANS:
        plan.cache_clear()


def sums(x: Any, w: Any, b: Any, dy: Any, how: Any, backend: Any = cpu) -> list[Any]:
    """y, dx, dw and db."""
    y, dx = backend.forward(x, w, b, *how), backend.grad_input(dy, w, x.shape, *how)
    return [y, dx, *backend.grad_weight(dy, x, w.shape, *how)]


def way(x_shape: Any, w_shape: Any, how: Any = PLAIN, itemsize: int = 4) -> list[str]:
    """Which way y, dx and dw go."""
    y_shape = (x_shape[0], w_shape[0], *reference.output_shape(x_shape[2:], w_shape[2:], *how[:3]))
    found = [
        conv_plan.forward(x_shape, w_shape, *how, itemsize)[0],
        conv_plan.grad_input(y_shape, w_shape, x_shape, *how, itemsize),
        conv_plan.grad_weight(y_shape, x_shape, w_shape, *how, itemsize),
    ]
    return [type(plan).__name__ for plan in found]


# The choice


@pytest.mark.skipif(not minorm_ext.WINOGRAD, reason="turned off in the environment")
@pytest.mark.parametrize(
    ("x", "w", "how", "chosen"),
    [
        ((64, 16, 32, 32), (16, 16, 3, 3), PLAIN, True),
        ((64, 64, 8, 8), (64, 64, 3, 3), PLAIN, True),
        ((1, 64, 56, 56), (64, 64, 3, 3), PLAIN, True),
        ((8, 64, 14, 14), (64, 32, 3, 3), (*PLAIN[:3], 2), True),
        ((64, 64, 4, 4), (64, 64, 3, 3), PLAIN, False),  # short rows of tiles
        ((64, 3, 32, 32), (16, 3, 3, 3), PLAIN, False),  # few channels: the tiles cost more than the products
        ((64, 16, 32, 32), (16, 1, 3, 3), (*PLAIN[:3], 16), False),
        ((1, 512, 7, 7), (512, 512, 3, 3), PLAIN, False),  # few tiles: the kernels do
        ((64, 16, 32, 32), (32, 16, 3, 3), ((2, 2), *PLAIN[1:]), False),
        ((64, 16, 32, 32), (32, 16, 3, 3), (*PLAIN[:2], (2, 2), 1), False),
        ((64, 16, 32, 32), (32, 16, 3, 5), PLAIN, False),
        ((64, 16, 4, 32, 32), (32, 16, 1, 3, 3), ((1,) * 3, ((0, 0), (1, 1), (1, 1)), (1,) * 3, 1), False),
    ],
)
def test_tiles_are_chosen_where_they_pay(x: Any, w: Any, how: Any, chosen: bool) -> None:
    assert way(x, w, how) == ["Winograd" if chosen else "Layout"] * 3


def test_the_choice_does_not_depend_on_the_level(monkeypatch: pytest.MonkeyPatch) -> None:
    axes = conv_axes.forward((5, 32, 30, 17), (48, 32, 3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1))
    found = []
    for level in minorm_ext.levels():
        monkeypatch.setattr(conv_plan, "kernels", minorm_ext.kernels("conv", level))
        found.append([conv_tiles.sizes(axes, (1, 3, 3), 5, 1, 32, 48, 4, weights) for weights in (False, True)])
    assert all(one == found[0] for one in found)


@pytest.mark.parametrize(("value", "chosen"), [("0", "Layout"), ("1", "Winograd")])
def test_the_environment_turns_it_off(value: str, chosen: str) -> None:
    program = (
        "from minorm.kernels.cpu import conv_plan as p; "
        "print(type(p.forward((8, 32, 16, 16), (32, 32, 3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 1, 4)[0]).__name__)"
    )
    environment = {**os.environ, "MINORM_WINOGRAD": value}
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment)
    assert run.stdout == chosen + "\n"


def test_another_value_in_the_environment_is_an_error() -> None:
    environment = {**os.environ, "MINORM_WINOGRAD": "no"}
    run = subprocess.run(
        [sys.executable, "-c", "import minorm"], capture_output=True, text=True, check=False, env=environment
    )
    assert run.returncode == 1
    assert "ValueError: minorm: MINORM_WINOGRAD='no' in the environment; expected 0 or 1" in run.stderr


# The sums


def on_every_level(x: Any, w: Any, b: Any, dy: Any, how: Any) -> dict[tuple[str, int], list[bytes]]:
    """All bytes, by level and number of threads; and close to the reference on every level."""
    found = {}
    tolerance = 1e-12 if x.dtype == np.float64 else 1e-4
    expected = sums(x, w, b, dy, how, reference)
    before = minorm_ext.get_num_threads(), conv_plan.kernels
    try:
        for level in minorm_ext.levels():
            conv_plan.kernels = minorm_ext.kernels("conv", level)
            forget()
            for threads in (1, 2, 5):
                minorm_ext.set_num_threads(threads)
                got = sums(x, w, b, dy, how)
                for mine, right in zip(got, expected, strict=True):
                    close(mine, right, tolerance)
                found[level, threads] = [a.tobytes() for a in got]
    finally:
        minorm_ext.set_num_threads(before[0])
        conv_plan.kernels = before[1]
        forget()
    return found


def alike(found: dict[tuple[str, int], list[bytes]]) -> None:
    """Check that all levels with multiply-adds in hardware give the same bytes; the baseline may give others."""
    for levels in (("baseline",), ("v3", "v4")):
        those = [bits for (level, _), bits in found.items() if level in levels]
        assert all(bits == those[0] for bits in those)


@pytest.mark.usefixtures("always")
@given(
    images=st.sampled_from([1, 2, 9, 17]),
    groups=st.sampled_from([1, 1, 2, 3]),
    channels=st.sampled_from([1, 2, 5, 13, 33]),
    outputs=st.sampled_from([1, 3, 7, 8, 20, 100]),
    size=st.tuples(st.integers(1, 20), st.sampled_from([1, 2, 3, 5, 8, 14, 16, 33])),
    padding=st.tuples(*[st.tuples(st.integers(0, 4), st.integers(-1, 4))] * 2),
    dtype=st.sampled_from([np.float32, np.float64]),
)
def test_any_shape(images: int, groups: int, channels: int, outputs: int, size: Any, padding: Any, dtype: Any) -> None:
    size = tuple(max(n, 3 - sum(p)) for n, p in zip(size, padding, strict=True))
    how = ((1, 1), padding, (1, 1), groups)
    shapes = (images, groups * channels, *size), (groups * outputs, channels, 3, 3)
    if minorm_ext.WINOGRAD:
        assert way(*shapes, how) == ["Winograd"] * 3
    alike(on_every_level(*arrays(*shapes, how, dtype), how))


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("case", [case for case in CASES if case[1][2:] == (3, 3)])
def test_every_case_of_3x3(case: Any) -> None:
    alike(on_every_level(*arrays(*case[:2], case[2:], np.float32), case[2:]))


@pytest.mark.usefixtures("always")
def test_many_pieces_and_signals_between_them() -> None:
    """More tiles than are added up at a time, in one row and in many; dw comes from several chunks."""
    for shape in ((1, 3, 4, 3001), (40, 6, 21, 23)):
        alike(on_every_level(*arrays(shape, (7, shape[1], 3, 3), PLAIN, np.float32), PLAIN))


# A result depends on its own window alone


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("level", minorm_ext.levels())
def test_receptive_fields(bad: float, level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A NaN or infinity reaches the results whose window it is in, and no others: forward and for the input."""
    monkeypatch.setattr(conv_plan, "kernels", minorm_ext.kernels("conv", level))
    forget()
    for size in ((7, 9), (8, 16)):
        x, w, b, dy = arrays((3, 4, *size), (6, 4, 3, 3), PLAIN, np.float32)
        for h, v in ((0, 0), (3, 4), (size[0] - 1, size[1] - 1), (2, size[1] - 1), (4, 0), (5, 5)):
            window = np.zeros(size, bool)
            window[max(0, h - 1) : h + 2, max(0, v - 1) : v + 2] = True
            for forward, source in ((True, x), (False, dy)):
                spoiled = source.copy()
                spoiled[1, 2, h, v] = bad
                y, expected = (
                    cpu.forward(a, w, b, *PLAIN) if forward else cpu.grad_input(a, w, x.shape, *PLAIN)
                    for a in (spoiled, source)
                )
                assert not np.isfinite(y[1][:, window]).any()
                np.testing.assert_array_equal(y[1][:, ~window], expected[1][:, ~window])
                np.testing.assert_array_equal(y[::2], expected[::2])


@pytest.mark.usefixtures("always")
def test_a_window_of_zeros_gives_zero() -> None:
    """Exactly, whatever the neighbours are: nothing that cancels in exact arithmetic alone may reach a result."""
    x, w, _, dy = arrays((2, 5, 12, 10), (6, 5, 3, 3), PLAIN)
    for source, function in (
        (x.astype(np.float32), lambda x: cpu.forward(x, w.astype(np.float32), None, *PLAIN)),
        (dy.astype(np.float32), lambda dy: cpu.grad_input(dy, w.astype(np.float32), x.shape, *PLAIN)),
    ):
        source[:, :, 3:8, 2:7] = 0
        source[:, :, 0, :] *= 1e20
        y = function(source)
        assert not y[:, :, 4:7, 3:6].any()
        assert y[:, :, 8:].all()


# Errors


@pytest.mark.skipif(not minorm_ext.WINOGRAD, reason="turned off in the environment")
@pytest.mark.parametrize(("images", "channels", "size"), [(16, 16, 32), (16, 32, 16), (16, 64, 8), (1, 64, 56)])
def test_errors_are_smaller_than_those_of_direct_sums(
    images: int, channels: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against float64, relative to the largest value: y and dx at most as large, dw at most a third of PyTorch's."""
    shapes = (images, channels, size, size), (channels, channels, 3, 3)
    assert way(*shapes) == ["Winograd"] * 3
    wide = arrays(*shapes, PLAIN)
    narrow = [a.astype(np.float32) for a in wide]
    exact = sums(*(a.astype(np.float64) for a in narrow), PLAIN, reference)

    def errors(found: Any) -> list[float]:
        return [float(abs(a - e).max() / abs(e).max()) for a, e in zip(found, exact, strict=False)]

    mine = errors(sums(*narrow, PLAIN))
    monkeypatch.setattr(conv_tiles, "pays", lambda *_: False)
    forget()
    direct = errors(sums(*narrow, PLAIN))
    forget()
    assert mine[0] <= direct[0]
    assert mine[1] <= direct[1]
    torch = pytest.importorskip("torch")
    x, w, _, dy = (torch.from_numpy(a) for a in narrow)
    theirs = torch.nn.grad.conv2d_weight(x, w.shape, dy, padding=1).numpy()
    assert mine[2] <= errors([exact[0], exact[1], theirs])[2] / 3
