"""Observers against PyTorch's, and against searches written out here."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm import quantization as Q

TYPES = [(mn.uint8, "quint8"), (mn.int8, "qint8")]


def batches(rng: np.random.Generator) -> list[np.ndarray[Any, Any]]:
    return [rng.normal(1, 2, (4, 3, 5)).astype(np.float32) * scale for scale in (1, 3, 0.5)]


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize(("dtype", "theirs"), TYPES, ids=["uint8", "int8"])
@pytest.mark.parametrize(
    "name",
    [
        "MinMaxObserver",
        "MovingAverageMinMaxObserver",
        "PerChannelMinMaxObserver",
        "MovingAveragePerChannelMinMaxObserver",
    ],
)
def test_scales_and_zero_points_are_pytorchs(
    rng: np.random.Generator, name: str, dtype: Any, theirs: str, symmetric: bool
) -> None:
    torch = pytest.importorskip("torch")
    from torch.ao.quantization import observer

    channels = "PerChannel" in name
    scheme = f"per_{'channel' if channels else 'tensor'}_{'symmetric' if symmetric else 'affine'}"
    options = {"ch_axis": 1} if channels else {}
    other = getattr(observer, name)(dtype=getattr(torch, theirs), qscheme=getattr(torch, scheme), **options)
    ours = getattr(Q, name)(dtype=dtype, symmetric=symmetric, **options)
    for batch in batches(rng):
        other(torch.tensor(batch))
        x = mn.tensor(batch)
        assert ours(x) is x
    scale, zero = ours.calculate_qparams()
    want_scale, want_zero = other.calculate_qparams()
    np.testing.assert_allclose(scale.array.reshape(-1), want_scale.numpy().reshape(-1), rtol=1e-6)
    np.testing.assert_array_equal(zero.array.reshape(-1), want_zero.numpy().reshape(-1))


def test_before_any_batch_and_after_a_reset_the_scale_is_1() -> None:
    observer = Q.MinMaxObserver()
    assert [p.item() for p in observer.calculate_qparams()] == [1, 0]
    observer(mn.tensor([3.0]))
    assert observer.calculate_qparams()[0].item() == pytest.approx(3 / 255)
    observer.reset_min_max_vals()
    assert observer.calculate_qparams()[0].item() == 1


def test_zero_is_always_a_number_of_the_grid() -> None:
    observer = Q.MinMaxObserver()
    observer(mn.tensor([5.0, 10.0]))
    scale, zero = observer.calculate_qparams()
    assert (scale.item(), zero.item()) == (pytest.approx(10 / 255), 0)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Q.MinMaxObserver(dtype=mn.float32), "dtype is"),
        (lambda: Q.MinMaxObserver(quant_min=5, quant_max=5), "expected 0 <= quant_min < quant_max <= 255"),
        (lambda: Q.MovingAverageMinMaxObserver(averaging_constant=0), "averaging_constant=0"),
        (lambda: Q.MinMaxObserver(quant_min=1.5), "MinMaxObserver: quant_min is 1.5; expected an int"),
        (lambda: Q.MinMaxObserver(eps=0), "eps=0; expected a positive number"),
        (lambda: Q.MinMaxObserver(eps="small"), "eps is 'small'; expected a number"),  # type: ignore[arg-type]
        (lambda: Q.PerChannelMinMaxObserver(ch_axis=4)(mn.ones(2, 3)), "ch_axis=4 is out of range"),
    ],
)
def test_errors_say_what_was_given(make: Any, words: str) -> None:
    with pytest.raises((TypeError, ValueError, IndexError), match=words):
        make()


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("make", [Q.MinMaxObserver, Q.PerChannelMinMaxObserver, Q.MSEObserver, Q.PercentileObserver])
def test_what_no_scale_can_hold_is_refused_and_forgotten(make: Any, wrong: float) -> None:
    observer = make()
    observer(mn.tensor([[-1.0, 2.0]]))
    before = [buffer.array.copy() for buffer in observer.buffers()]
    with pytest.raises(ValueError, match=f"{make.__name__}: x has a NaN or an infinity; expected finite numbers"):
        observer(mn.tensor([[5.0, wrong]]))
    for buffer, old in zip(observer.buffers(), before, strict=True):
        np.testing.assert_array_equal(buffer.array, old)


@pytest.mark.parametrize("make", [Q.MovingAverageMinMaxObserver, Q.MovingAveragePerChannelMinMaxObserver])
def test_a_moving_average_leaves_out_what_is_not_finite(make: Any) -> None:
    observer, x = make(0.5), mn.tensor([[-1.0, 2.0]])
    observer(x)
    for wrong in (np.nan, np.inf, -np.inf):
        observer(mn.tensor([[5.0, wrong]]))
    observer(3 * x)
    np.testing.assert_array_equal([observer.min_val.item(), observer.max_val.item()], [-2, 4])


def test_another_number_of_channels_is_refused() -> None:
    observer = Q.PerChannelMinMaxObserver()
    observer(mn.ones(2, 3))
    with pytest.raises(ValueError, match="x has 3 channels along axis 0, earlier batches had 2"):
        observer(mn.ones(3, 3))


def test_a_state_goes_into_a_new_observer(rng: np.random.Generator) -> None:
    observer = Q.PerChannelMinMaxObserver()
    observer(mn.tensor(rng.normal(size=(3, 4)).astype(np.float32)))
    other = Q.PerChannelMinMaxObserver()
    other.load_state_dict(observer.state_dict())
    np.testing.assert_array_equal(other.calculate_qparams()[0].array, observer.calculate_qparams()[0].array)
