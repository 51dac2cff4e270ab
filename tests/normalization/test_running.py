"""Running statistics: ONNX's formula, one verb, and nothing half done."""

from __future__ import annotations

import threading

import ml_dtypes
import numpy as np
import pytest

import minorm
import minorm.functional as F
from minorm import nn
from minorm.kernels import cpu
from minorm.normalization.running import RunningStats, no_stats_update

MEAN, VAR = np.array([1.0, 2.0]), np.array([4.0, 8.0])


def fresh(**options):
    return RunningStats(np.zeros(2, np.float32), np.ones(2, np.float32), **options)


def test_the_formula():
    running = fresh(momentum=0.75)
    mean, var = running.mean, running.var
    running.update(MEAN, VAR, 10)
    np.testing.assert_allclose(mean, [0.25, 0.5])
    np.testing.assert_allclose(var, [0.75 + 1, 0.75 + 2])
    assert running.mean is mean
    assert running.changed


def test_unbiased_divides_by_one_less():
    running = fresh(momentum=0.5, unbiased=True)
    running.update(MEAN, VAR, 5)
    np.testing.assert_allclose(running.var, 0.5 + 0.5 * VAR * 5 / 4)


def test_cumulative_average():
    batches = np.zeros((), np.int64)
    running = fresh(momentum=None, batches=batches)
    for factor in (1, 2, 6):
        running.update(MEAN * factor, VAR * factor, 10)
    np.testing.assert_allclose(running.mean, MEAN * 3)
    np.testing.assert_allclose(running.var, VAR * 3)
    assert batches == 3
    with pytest.raises(ValueError, match="momentum=None"):
        fresh(momentum=None)


@pytest.mark.parametrize("unbiased", [False, True])
def test_counts_of_their_own(unbiased):
    running = fresh(momentum=0.75, unbiased=unbiased, batches=np.zeros((), np.int64))
    running.update_counted(MEAN, np.array([4.0, 0.0]), np.array([5, 1]))
    np.testing.assert_allclose(running.mean, [0.25, 0.5])
    np.testing.assert_allclose(running.var, [0.75 + (1.25 if unbiased else 1), 0.75])
    assert running.batches == 1


def test_what_has_no_elements_keeps_its_values():
    batches = np.zeros((), np.int64)
    running = fresh(momentum=None, batches=batches)
    running.mean[...] = 0.1
    running.update_counted(MEAN, VAR, np.array([0, 3]))
    np.testing.assert_array_equal(running.mean, np.float32([0.1, 2]))
    np.testing.assert_array_equal(running.var, [1, 8])
    running.update_counted(MEAN, VAR, np.array([0, 0]))
    assert batches == 1
    running.update_counted(MEAN, VAR, np.array([2, 3]))  # the second batch for both: a share of one half
    np.testing.assert_allclose(running.mean, [0.55, 2])


def test_samples_are_averaged_over_those_that_have_elements():
    running = fresh(momentum=0.5, unbiased=True)
    mean, var = np.array([[1.0, 2.0], [3.0, 0.0], [0.0, 0.0]]), np.array([[4.0, 6.0], [8.0, 0.0], [0.0, 0.0]])
    running.update_counted(mean, var, np.array([[2, 3], [5, 0], [0, 0]]))
    np.testing.assert_allclose(running.mean, [1, 1])
    np.testing.assert_allclose(running.var, [0.5 + 0.5 * (4 * 2 + 8 * 1.25) / 2, 0.5 + 0.5 * 6 * 1.5])


@pytest.mark.parametrize("why", ["empty", "off"])
def test_nothing_changes(why):
    batches = np.zeros((), np.int64)
    running = fresh(batches=batches)
    if why == "empty":
        running.update(np.full(2, np.nan), np.full(2, np.nan), 0)
    else:
        with no_stats_update():
            running.update(MEAN, VAR, 10)
            running.update_counted(MEAN, VAR, np.array([5, 5]))
    np.testing.assert_array_equal(running.mean, 0)
    np.testing.assert_array_equal(running.var, 1)
    assert batches == 0
    assert not running.changed


@pytest.mark.parametrize(("mean", "var"), [(np.ones(3), VAR), (MEAN, np.ones(3)), (np.ones((2, 2)), VAR)])
def test_an_error_changes_nothing(mean, var):
    batches = np.zeros((), np.int64)
    running = fresh(batches=batches)
    with pytest.raises(ValueError, match="shape"):
        running.update(mean, var, 10)
    np.testing.assert_array_equal(running.mean, 0)
    np.testing.assert_array_equal(running.var, 1)
    assert batches == 0


def test_off_is_for_this_thread_alone():
    running = fresh()
    with no_stats_update():
        thread = threading.Thread(target=running.update, args=(MEAN, VAR, 10))
        thread.start()
        thread.join()
    assert running.changed


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32])
@pytest.mark.parametrize("momentum", [0.9, 0.99, 0.3, None])
def test_buffers_are_blended_in_float64_and_rounded_once(dtype, momentum):
    rng = np.random.default_rng(0)
    mean, var, new_mean, new_var = np.abs(rng.standard_normal((4, 1000)) * 100)
    mean, var = mean.astype(dtype), var.astype(dtype)
    running = RunningStats(mean.copy(), var.copy(), momentum, True, np.array(1000))
    running.update(new_mean, new_var, 10)
    keep = 1000 / 1001 if momentum is None else momentum
    for found, old, new in ((running.mean, mean, new_mean), (running.var, var, new_var * 10 / 9)):
        assert found.dtype == dtype
        exact = old.astype(np.float64) * keep + new * (1 - keep)
        np.testing.assert_allclose(found.astype("d"), exact, rtol=0.5001 * float(ml_dtypes.finfo(dtype).eps))


@pytest.mark.parametrize("which", ["running_mean", "running_var", "num_batches_tracked"])
def test_one_read_only_array_changes_none_of_them(which):
    batches = np.zeros((), np.int64)
    running = fresh(batches=batches)
    {"running_mean": running.mean, "running_var": running.var}.get(which, batches).flags.writeable = False
    with pytest.raises(ValueError, match=f"{which} is read-only"):
        running.update(MEAN, VAR, 10)
    np.testing.assert_array_equal(running.mean, 0)
    np.testing.assert_array_equal(running.var, 1)
    assert batches == 0


def test_an_overflow_that_raises_changes_nothing():
    batches = np.zeros((), np.int64)
    running = RunningStats(np.zeros(2, np.float16), np.ones(2, np.float16), 0.5, batches=batches)
    with np.errstate(over="raise"), pytest.raises(FloatingPointError):
        running.update(MEAN, np.array([1.0, 1e6]), 10)
    np.testing.assert_array_equal(running.mean, 0)
    np.testing.assert_array_equal(running.var, 1)
    assert batches == 0


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
@pytest.mark.parametrize("unbiased", [False, True])
@pytest.mark.parametrize("shape", [(40, 7, 5, 5), (30, 700), (9, 300, 2, 3)])
def test_the_kernel_blends_to_the_same_bits(shape, unbiased, dtype, monkeypatch):
    rng = np.random.default_rng(0)
    batches = [minorm.from_numpy(rng.standard_normal(shape, np.float32) * 3 + 100) for _ in range(3)]
    found = []
    for by_kernel in (True, False):
        if by_kernel:
            monkeypatch.delattr(RunningStats, "update")
        else:
            monkeypatch.setattr(RunningStats, "is_kernel_ready", lambda *_: False)
        mean, var, seen = np.zeros(shape[1], dtype), np.ones(shape[1], dtype), np.zeros((), np.int64)
        for x in batches:
            F.batch_norm(
                x, *map(minorm.from_numpy, (mean, var)), training=True, unbiased_running_var=unbiased,
                num_batches_tracked=minorm.from_numpy(seen),
            )  # fmt: skip
        found.append((mean.tobytes(), var.tobytes(), int(seen)))
        monkeypatch.undo()
    assert found[0] == found[1]
    assert found[0][2] == 3


@pytest.mark.parametrize("how", ["strided", "unaligned", "two types", "read-only", "cumulative", "another count"])
def test_what_a_kernel_does_not_take(how):
    mean, var, seen = np.zeros(4, np.float32), np.ones(4, np.float32), np.zeros((), np.int64)
    assert RunningStats(mean, var, batches=seen).is_kernel_ready(4)
    assert not RunningStats(mean, var, batches=seen).is_kernel_ready(5)
    if how == "strided":
        var = np.ones(8, np.float32)[::2]
    elif how == "unaligned":
        var = np.ones(17, np.uint8)[1:].view(np.float32)
    elif how == "two types":
        var = var.astype(np.float64)
    elif how == "read-only":
        seen.flags.writeable = False
    elif how == "another count":
        seen = seen.astype(np.int32)
    running = RunningStats(mean, var, None if how == "cumulative" else 0.9, batches=seen)
    assert not running.is_kernel_ready(4)


def test_a_backend_of_ones_own_is_not_asked_to_update():
    class Own:
        def __getattr__(self, name):
            return getattr(cpu.norm, name)

        def forward(self, nest, x, s, b, equation):
            return cpu.norm.forward(nest, x, s, b, equation)

    x = minorm.from_numpy(np.random.default_rng(0).standard_normal((8, 3)).astype(np.float32))
    layers = [nn.BatchNorm1d(3, backend=backend) for backend in (None, Own())]
    for layer in layers:
        layer(x)
    ours, own = (layer.running_mean.numpy() for layer in layers)
    assert np.all(ours != 0)
    np.testing.assert_array_equal(own, ours)


# Batches that are not finite


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("which", ["mean", "var"])
@pytest.mark.parametrize("options", [{}, {"momentum": None}, {"unbiased": True}])
def test_one_channel_that_is_not_finite_leaves_the_batch_out(bad, which, options):
    batches, skipped = np.array(3), np.array(0)
    running = fresh(batches=batches, skipped=skipped, **options)
    found = {"mean": MEAN.copy(), "var": VAR.copy()}
    found[which][1] = bad
    running.update(**found, count=10)
    running.update_counted(**found, count=np.array([10, 10]))
    np.testing.assert_array_equal(running.mean, 0)
    np.testing.assert_array_equal(running.var, 1)
    assert (batches, skipped) == (3, 2)
    assert not running.changed


def test_update_nonfinite_blends_them_in():
    batches, skipped = np.array(0), np.array(0)
    running = fresh(batches=batches, skipped=skipped, update_nonfinite=True)
    running.update(np.array([np.nan, 2.0]), np.array([np.inf, 8.0]), 10)
    np.testing.assert_allclose(running.mean, [np.nan, 0.2])
    np.testing.assert_allclose(running.var, [np.inf, 1.7])
    assert (batches, skipped) == (1, 0)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32])
def test_a_batch_that_does_not_fit_the_type_is_left_out(dtype):
    top = float(ml_dtypes.finfo(dtype).max)
    batches, skipped = np.array(0), np.array(0)
    running = RunningStats(np.zeros(2, dtype), np.ones(2, dtype), 0.5, batches=batches, skipped=skipped)
    running.update(MEAN, np.array([1.0, 1.5 * top]), 10)  # half of it fits
    assert (batches, skipped) == (1, 0)
    before = running.var.copy()
    running.update(MEAN, np.array([1.0, 4 * top]), 10)
    assert (batches, skipped) == (1, 1)
    np.testing.assert_array_equal(running.var, before)
    assert np.isfinite(running.var.astype(np.float64)).all()


def test_statistics_of_nothing_are_not_asked():
    skipped = np.array(0)
    running = fresh(momentum=0.75, skipped=skipped)
    running.update_counted(np.array([1.0, np.nan]), np.array([4.0, np.nan]), np.array([5, 0]))
    np.testing.assert_allclose(running.mean, [0.25, 0])
    assert skipped == 0


def test_what_was_nan_before_is_not_the_fault_of_a_batch():
    skipped = np.array(0)
    running = fresh(momentum=0.75, skipped=skipped)
    running.mean[0] = np.nan
    running.update(MEAN, VAR, 10)
    np.testing.assert_allclose(running.mean, [np.nan, 0.5])
    assert skipped == 0
