"""Running statistics: ONNX's formula, one verb, and nothing half done."""

from __future__ import annotations

import threading

import ml_dtypes
import numpy as np
import pytest

from minorm.running import RunningStats, no_stats_update

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


@pytest.mark.parametrize("why", ["empty", "off"])
def test_nothing_changes(why):
    batches = np.zeros((), np.int64)
    running = fresh(batches=batches)
    if why == "empty":
        running.update(np.full(2, np.nan), np.full(2, np.nan), 0)
    else:
        with no_stats_update():
            running.update(MEAN, VAR, 10)
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
