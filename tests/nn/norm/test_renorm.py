"""BatchRenorm as a layer: schedules, state, and training that comes to evaluation."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import minorm as mn
import minorm.functional as F
from minorm import nn
from minorm.nn.norm.renorm import default_dmax, default_rmax

LAYERS = [(nn.BatchRenorm1d, (6, 3)), (nn.BatchRenorm1d, (6, 3, 2)), (nn.BatchRenorm2d, (6, 3, 2, 2)),
          (nn.BatchRenorm3d, (6, 3, 2, 1, 2))]  # fmt: skip


def test_the_papers_schedules() -> None:
    steps = (0, 5_000, 22_500, 40_000, 10**9)
    assert [default_rmax(step) for step in steps] == [1, 1, 2, 3, 3]
    assert [default_dmax(step) for step in (0, 5_000, 15_000, 25_000, 10**9)] == [0, 0, 2.5, 5, 5]


@pytest.mark.parametrize(("kind", "shape"), LAYERS)
def test_the_first_steps_are_batch_norm(kind: type, shape: tuple[int, ...]) -> None:
    layer, plain, x = kind(3), nn.SyncBatchNorm(3), mn.randn(*shape) * 2 + 1
    for _ in range(2):
        np.testing.assert_allclose(layer(x).detach().numpy(), plain(x).detach().numpy(), rtol=1e-5, atol=1e-6)
    assert list(layer.state_dict()) == list(plain.state_dict())
    for key, value in plain.state_dict().items():
        np.testing.assert_allclose(layer.state_dict()[key].numpy(), value.numpy(), rtol=1e-6)
    plain.load_state_dict(layer.state_dict())
    x = x[:1]
    assert layer.eval()(x).detach().numpy().tobytes() == plain.eval()(x).detach().numpy().tobytes()


def test_a_schedule_is_asked_for_the_step_and_may_be_a_number() -> None:
    steps: list[int] = []
    layer = nn.BatchRenorm1d(3, rmax=lambda step: steps.append(step) or 1 + step, dmax=2)
    for _ in range(3):
        layer(mn.randn(4, 3))
    layer.eval()
    layer(mn.randn(4, 3))
    assert steps == [0, 1, 2]
    layer.num_batches_tracked.fill_(40_000)
    assert nn.BatchRenorm1d(3).clamps() == (1, 0)
    assert layer.clamps() == (40_001, 2)


def test_a_loaded_state_goes_on_at_its_step() -> None:
    layer, other = nn.BatchRenorm1d(3), nn.BatchRenorm1d(3)
    layer.num_batches_tracked.fill_(22_500)
    other.load_state_dict(layer.state_dict())
    assert other.clamps() == (2, 4.375)


def test_the_layer_is_the_function_with_the_statistics_of_before() -> None:
    x = mn.randn(6, 3) * 2 + 1
    layer = nn.BatchRenorm1d(3, momentum=0.75, rmax=2, dmax=0.5)
    layer(x * 2)
    old = copy.deepcopy(layer)
    expected = F.batch_renorm(x, old.running_mean, old.running_var, old.weight, old.bias, True, 0.75, rmax=2, dmax=0.5)
    assert layer(x).detach().numpy().tobytes() == expected.detach().numpy().tobytes()
    assert layer.running_var.numpy().tobytes() == old.running_var.numpy().tobytes()
    assert layer(x).detach().numpy().tobytes() != expected.detach().numpy().tobytes()  # the statistics have moved


def test_training_comes_to_evaluation() -> None:
    """With a small batch and open clamps, training gives what evaluation gives; BatchNorm does not."""
    rng = np.random.default_rng(0)
    layer, plain = nn.BatchRenorm1d(3, rmax=10, dmax=10), nn.BatchNorm1d(3)
    for _ in range(400):
        x = mn.tensor((rng.standard_normal((4, 3)) * 2 + 1).astype(np.float32))
        layer(x)
        plain(x)
    gaps = []
    for norm in (layer, plain):
        before = norm.eval()(x).detach().numpy()
        gaps.append(np.abs(norm.train()(x).detach().numpy() - before).max())
    assert gaps[0] < 1e-3 < 0.1 < gaps[1]


def test_repr_and_arguments() -> None:
    assert repr(nn.BatchRenorm2d(3)) == (
        "BatchRenorm2d(3, eps=1e-05, momentum=0.9, affine=True, track_running_stats=True, rmax=default_rmax, "
        "dmax=default_dmax)"
    )
    assert repr(nn.BatchRenorm1d(3, rmax=2.0, dmax=1.0, bias=False)).endswith("bias=False, rmax=2.0, dmax=1.0)")
    with pytest.raises(ValueError, match="BatchRenorm1d: track_running_stats is False"):
        nn.BatchRenorm1d(3, track_running_stats=False)
    for name, wrong in (("rmax", 0.5), ("dmax", -1), ("rmax", float("nan"))):
        with pytest.raises(ValueError, match=f"BatchRenorm2d: {name}={wrong}"):
            nn.BatchRenorm2d(3, **{name: wrong})
    with pytest.raises(TypeError, match="BatchRenorm2d: rmax is '3'"):
        nn.BatchRenorm2d(3, rmax="3")
    with pytest.raises(ValueError, match=r"batch_renorm: rmax=0\.5"):
        nn.BatchRenorm2d(3, rmax=lambda _: 0.5)(mn.randn(2, 3, 2, 2))


def test_accumulating_counts_one_step() -> None:
    x = mn.randn(8, 3)
    layer, plain = nn.BatchRenorm1d(3), nn.BatchNorm1d(3)
    with nn.accumulate_stats(layer):
        layer(x[:4])
        layer(x[4:])
    plain(x)
    np.testing.assert_allclose(layer.running_var.numpy(), plain.running_var.numpy(), rtol=1e-6)
    assert layer.num_batches_tracked.item() == 1


def test_ranks_do_not_share_it() -> None:
    layer = nn.Sequential(nn.BatchRenorm1d(3))
    assert type(nn.SyncBatchNorm.convert_sync_batchnorm(layer, object())[0]) is nn.BatchRenorm1d


def test_training_form_is_refused_by_onnx_with_the_reason() -> None:
    onnx = pytest.importorskip("minorm.onnx")
    with pytest.raises(onnx.ExportError, match=r"batch renormalization has no form for training.*training=False"):
        onnx.export(nn.BatchRenorm1d(3), mn.randn(4, 3), None, training=True)
