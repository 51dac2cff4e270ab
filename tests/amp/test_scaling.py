"""GradScaler does what PyTorch's does: the same scales, steps left out, state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm.amp import GradScaler


def pair(**options: Any) -> tuple[Any, Any, Any]:
    w = mn.ones(2, requires_grad=True)
    return w, mn.optim.SGD([w], lr=0.5), GradScaler("cpu", **options)


def test_gradients_are_divided_before_the_step() -> None:
    w, optimizer, scaler = pair(init_scale=8.0)
    loss = (w * 3).sum()
    scaled = scaler.scale(loss)
    assert scaled.item() == 8 * loss.item()
    scaled.backward()
    assert w.grad.tolist() == [24, 24]
    scaler.unscale_(optimizer)
    assert w.grad.tolist() == [3, 3]
    assert scaler.step(optimizer) is None
    scaler.update()
    assert w.tolist() == [-0.5, -0.5]


def test_several_losses_and_16_bits() -> None:
    scaler = GradScaler("cpu", init_scale=2.0**16)
    one, other = scaler.scale([mn.ones((), dtype=mn.float16), mn.ones(())])
    assert (one.item(), one.dtype, other.item()) == (65536, mn.float32, 65536)  # beyond float16
    assert isinstance(scaler.scale((one,)), tuple)


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_a_step_with_infinity_is_left_out(bad: float) -> None:
    w, optimizer, scaler = pair(init_scale=8.0, backoff_factor=0.25)
    w.grad = mn.tensor([1.0, bad])
    assert scaler.step(optimizer) is None
    scaler.update()
    assert w.tolist() == [1, 1]
    assert scaler.get_scale() == 2.0


def test_the_scales_are_pytorchs() -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    finite = rng.random(200) > 0.15
    options = {"init_scale": 1024.0, "growth_factor": 1.5, "backoff_factor": 0.5, "growth_interval": 3}
    w, optimizer, scaler = pair(**options)
    v = torch.ones(2, requires_grad=True)
    peer = torch.amp.GradScaler("cpu", **options)
    other = torch.optim.SGD([v], lr=0.5)
    for good in finite:
        gradient = np.array([1.0, 1.0 if good else np.inf], np.float32)
        w.grad, v.grad = mn.tensor(gradient), torch.from_numpy(gradient.copy())
        peer.scale(torch.ones(()))  # which makes its tensors
        for s, o in ((scaler, optimizer), (peer, other)):
            s.step(o)
            s.update()
        assert scaler.get_scale() == peer.get_scale()
        np.testing.assert_array_equal(w.detach().numpy(), v.detach().numpy())
    assert scaler.state_dict() == peer.state_dict()
    again = GradScaler("cpu")
    again.load_state_dict(peer.state_dict())
    assert again.state_dict() == scaler.state_dict()


def test_clipping_sees_divided_gradients() -> None:
    w, optimizer, scaler = pair()
    scaler.scale((w * mn.tensor([3.0, 4.0])).sum()).backward()
    scaler.unscale_(optimizer)
    assert mn.nn.utils.clip_grad_norm_([w], 1.0).item() == 5.0
    scaler.step(optimizer)
    np.testing.assert_allclose(w.tolist(), [1 - 0.3, 1 - 0.4], rtol=1e-6)


def test_disabled_it_passes_everything_on() -> None:
    w, optimizer, scaler = pair(enabled=False)
    loss = (w * 3).sum()
    assert scaler.scale(loss) is loss
    loss.backward()
    scaler.unscale_(optimizer)
    assert scaler.step(optimizer, lambda: 7) == 7
    scaler.update()
    assert w.tolist() == [-0.5, -0.5]
    assert (scaler.get_scale(), scaler.is_enabled(), scaler.state_dict()) == (1.0, False, {})
    scaler.load_state_dict({"scale": 65536.0})


def stepped(scaler: Any, optimizer: Any) -> None:
    scaler.step(optimizer)
    scaler.step(optimizer)


def divided(scaler: Any, optimizer: Any) -> None:
    scaler.unscale_(optimizer)
    scaler.unscale_(optimizer)


def late(scaler: Any, optimizer: Any) -> None:
    scaler.step(optimizer)
    scaler.unscale_(optimizer)


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (stepped, "GradScaler.step: called twice"),
        (divided, "unscale_: the gradients of this optimizer are divided already"),
        (late, "unscale_: step() was called"),
        (lambda s, o: s.step(o, lambda: 1), "GradScaler.step: a closure is given"),
        (lambda s, _: s.update(), "GradScaler.update: no gradients were checked"),
        (lambda s, _: s.load_state_dict({"scale": 1.0}), "GradScaler.load_state_dict: _growth_tracker, backoff_factor"),
        (lambda *_: GradScaler(growth_factor=1.0), "GradScaler: init_scale=65536.0, growth_factor=1.0"),
    ],
)
def test_errors_say_what_is_expected(act: Callable[[Any, Any], Any], message: str) -> None:
    w, optimizer, scaler = pair()
    w.grad = mn.ones(2)
    with pytest.raises((RuntimeError, ValueError)) as caught:
        act(scaler, optimizer)
    assert str(caught.value).startswith(message)


def test_gradients_of_float16_are_refused() -> None:
    w = mn.ones(2, dtype=mn.float16, requires_grad=True)
    w.grad = mn.ones(2, dtype=mn.float16)
    with pytest.raises(ValueError, match="a gradient is float16; expected float32 parameters"):
        GradScaler("cpu").step(mn.optim.SGD([w], lr=0.5))
