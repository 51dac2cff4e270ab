"""Masks on a GPU, whose kernels know none: the rows are filled around them. The same as on the CPU, in all types."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import minorm as mn
import minorm.functional as F
from minorm import nn
from minorm.devices import DeviceError
from minorm.tensor.tensor import Tensor

pytestmark = pytest.mark.usefixtures("cuda")

CASES: dict[str, Any] = {
    "batch": (lambda x, w, b, m, **o: F.batch_norm(x, None, None, w, b, True, mask=m, **o), 6),
    "evaluation": (
        lambda x, w, b, m, **o: F.batch_norm(
            x, mn.full((6,), 0.5, device=x.device), mn.full((6,), 2.0, device=x.device), w, b, mask=m, **o
        ),
        6,
    ),
    "instance": (lambda x, w, b, m, **o: F.instance_norm(x, None, None, w, b, mask=m, **o), 6),
    "group": (lambda x, w, b, m, **o: F.group_norm(x, 3, w, b, mask=m, **o), 6),
    "layer": (lambda x, w, b, m, **o: F.layer_norm(x, 7, w, b, mask=m, **o), 7),
    "rms": (lambda x, w, b, m, **o: F.rms_norm(x, 7, w, mask=m, **o) + b * 0, 7),
    "mean variance": (lambda x, w, b, m, **o: F.mean_variance_norm(x, mask=m, **o) + 0 * (w + b).sum(), 7),
}
MASKS = {
    "padded": np.arange(7) < np.array([2, 7, 0, 1]).reshape(4, 1, 1, 1),
    "tokens": np.random.default_rng(1).random((4, 1, 5, 1)) < 0.5,
    "any": np.random.default_rng(2).random((4, 6, 5, 7)) < 0.3,
    "none": np.zeros((), bool),
}
ERROR = {np.float32: 3e-6, np.float64: 1e-13, np.float16: 2e-3, ml_dtypes.bfloat16: 1.6e-2}


def run(case: Any, device: str, dtype: Any, mask: Any, **options: Any) -> list[Any]:
    rng = np.random.default_rng(3)
    function, size = case
    x, dy = (rng.standard_normal((2, 4, 6, 5, 7)) + 2).astype(dtype)
    for array in (x, dy):
        array[~np.broadcast_to(mask, array.shape)] = np.nan
    given = [Tensor(a.astype(dtype)).to(device) for a in (x, *rng.standard_normal((2, size)))]
    for tensor in given:
        tensor.requires_grad = True
    y = function(*given, Tensor(mask).to(device), **options)
    assert y.device.startswith(device)
    y.backward(Tensor(dy).to(device))
    return [y.numpy() if device == "cpu" else y.cpu().numpy(), *(t.grad.cpu().numpy() for t in given)]


@pytest.mark.parametrize("dtype", ERROR)
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_as_on_the_cpu(case: Any, mask: Any, dtype: Any) -> None:
    for got, want in zip(run(case, "cuda", dtype, mask), run(case, "cpu", dtype, mask), strict=True):
        want = want.astype(np.float64)
        bound = ERROR[dtype] * (1 + np.abs(want).max())
        np.testing.assert_allclose(got.astype(np.float64), want, atol=bound, rtol=0)


def test_compute_dtype() -> None:
    a, b = (run(CASES["batch"], d, np.float32, MASKS["any"], compute_dtype=mn.float64) for d in ("cuda", "cpu"))
    for got, want in zip(a, b, strict=True):
        np.testing.assert_allclose(got, want, atol=1e-6)


@pytest.mark.parametrize("make", [lambda: nn.BatchNorm2d(6), lambda: nn.InstanceNorm2d(6, track_running_stats=True)])
@pytest.mark.parametrize("momentum", [0.9, None])
def test_running_statistics(make: Any, momentum: Any) -> None:
    x = np.random.default_rng(4).standard_normal((4, 6, 5, 7)).astype(np.float32)
    mask = MASKS["any"].copy()
    mask[:, 2] = False
    held = {}
    for device in ("cpu", "cuda"):
        layer = make().to(device)
        layer.momentum, layer.unbiased_running_var = momentum, True
        for m in (mask, mask[::-1].copy(), np.zeros(7, bool)):
            layer(Tensor(x).to(device), Tensor(m).to(device))
        held[device] = [t.cpu().numpy() for t in layer.buffers()]
    assert held["cuda"][-1] == 2
    assert held["cuda"][0][2] == 0
    assert held["cuda"][1][2] == 1
    for got, want in zip(held["cuda"], held["cpu"], strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-7)


def test_a_mask_elsewhere_is_named() -> None:
    x, mask = mn.randn(4, 3, device="cuda"), mn.ones((4, 1), dtype=mn.bool)
    with pytest.raises(DeviceError, match="mask is on"):
        F.layer_norm(x, 3, mask=mask)
    with pytest.raises(DeviceError, match="mask is on"):
        F.layer_norm(x.cpu(), 3, mask=mask.to("cuda"))


def test_micro_batches_of_a_mask() -> None:
    x = np.random.default_rng(5).standard_normal((4, 6, 5, 7)).astype(np.float32)
    held = {}
    for device in ("cpu", "cuda"):
        layer = nn.BatchNorm2d(6).to(device)
        with nn.accumulate_stats(layer):
            for part in (slice(2), slice(2, 4)):
                layer(Tensor(x[part].copy()).to(device), Tensor(MASKS["any"][part].copy()).to(device))
        held[device] = [t.cpu().numpy() for t in layer.buffers()]
    assert held["cuda"][-1] == 1
    for got, want in zip(held["cuda"], held["cpu"], strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-7)
