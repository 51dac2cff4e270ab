"""Modules, optimizers and checkpoints on a GPU: what moves with a model, and what follows."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minorm as mn
import minorm.functional as F
from minorm import devices, nn, optim
from minorm.kernels import select
from minorm.testing import gradcheck

pytestmark = pytest.mark.usefixtures("cuda")


def host(tensor: Any) -> np.ndarray:
    return tensor.detach().cpu().numpy()


def model() -> nn.Module:
    mn.manual_seed(1)
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 5 * 5, 3)
    )


def batch() -> tuple[mn.Tensor, mn.Tensor]:
    rng = np.random.default_rng(5)
    return mn.tensor(rng.standard_normal((6, 2, 5, 5)), mn.float32), mn.tensor(rng.integers(0, 3, 6))


def train(net: nn.Module, optimizer: Any, steps: int, device: str) -> list[float]:
    x, target = (t.to(device) for t in batch())
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_a_module_moves_as_a_whole_and_keeps_its_parameters() -> None:
    net = model()
    before = list(net.parameters())
    moves = {"cuda:0": lambda: net.to("cuda"), "cuda:1": lambda: net.cuda(1), "cpu": net.cpu}
    for device, move in moves.items():
        moved = move()
        assert moved is net
        assert all(a is b for a, b in zip(net.parameters(), before, strict=True))
        assert {t.device for t in (*moved.parameters(), *moved.buffers())} == {device}
    assert net.to("cuda", mn.float64)[0].weight.dtype == mn.float64


LAYERS: dict[str, tuple[Any, ...]] = {
    "Linear": (3, 2),
    "GroupNorm": (2, 4),
    "LayerNorm": (5,),
    "Normalization": ((1, 4, 1, 1),),
    "RMSNorm": (5,),
    **{f"Conv{n}d": (4, 6, 3) for n in (1, 2, 3)},
    **{f"ConvTranspose{n}d": (4, 6, 3) for n in (1, 2, 3)},
    **{f"BatchNorm{n}d": (4,) for n in (1, 2, 3)},
    "SyncBatchNorm": (4,),
    **{f"InstanceNorm{n}d": (4, 1e-5, 0.9, True, True) for n in (1, 2, 3)},
    **{f"BatchRenorm{n}d": (4,) for n in (1, 2, 3)},
    "GhostBatchNorm": (4, 2),
    "FilterResponseNorm2d": (4,),
    "TLU": (4,),
    "FrozenBatchNorm2d": (4,),
}


@pytest.mark.parametrize("device", ["cuda:0", "cuda:1"])
@pytest.mark.parametrize("name", LAYERS)
def test_layers_are_made_on_a_device(name: str, device: str) -> None:
    """With the values that they have on the CPU, whichever device is the current one."""
    made = {}
    for where in ("cpu", device):
        mn.manual_seed(0)
        layer = getattr(nn, name)(*LAYERS[name], device=where)
        for tensor in (*layer.parameters(), *layer.buffers()):
            assert tensor.device == where
        made[where] = layer.state_dict()
        layer.reset_parameters()
    for key, value in made["cpu"].items():
        np.testing.assert_array_equal(host(made[device][key]), value.numpy())


def test_every_layer_that_takes_a_device_has_a_case() -> None:
    late = [getattr(nn, name) for module, names in nn.LATER.items() if "norm." in module for name in names.split()]
    kinds = [kind for kind in (*vars(nn).values(), *late) if isinstance(kind, type) and issubclass(kind, nn.Module)]
    assert {kind.__name__ for kind in kinds if "device" in inspect.signature(kind).parameters} == set(LAYERS)


OPTIMIZERS: dict[str, Callable[..., Any]] = {
    "SGD with momentum": lambda p: optim.SGD(p, 0.1, momentum=0.9, weight_decay=1e-3),
    "SGD": lambda p: optim.SGD(p, 0.1),
    "Adam": lambda p: optim.Adam(p, 0.01, amsgrad=True),
    "AdamW": lambda p: optim.AdamW(p, 0.01),
}


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_training_is_the_same_on_both_devices(make: Any) -> None:
    results = {}
    for device in ("cpu", "cuda"):
        net = model().to(device)
        optimizer = make(net.parameters())
        losses = train(net, optimizer, 4, device)
        results[device] = losses, {name: host(t) for name, t in net.state_dict().items()}
        for state in optimizer.state_dict()["state"].values():
            assert {devices.device_of(v) for v in state.values() if select.is_array(v)} <= {f"{device}:0", device}
    np.testing.assert_allclose(results["cuda"][0], results["cpu"][0], rtol=1e-5)
    for name, value in results["cpu"][1].items():
        np.testing.assert_allclose(results["cuda"][1][name], value, rtol=1e-4, atol=1e-5)


def test_training_on_a_device_that_is_not_the_current_one() -> None:
    losses = []
    for device in ("cuda:0", "cuda:1"):
        net = model().to(device)
        optimizer = optim.SGD(net.parameters(), 0.1, momentum=0.9)
        losses.append(train(net, optimizer, 3, device))
        nn.utils.clip_grad_norm_(net.parameters(), 1e-3)
        nn.utils.clip_grad_value_(net.parameters(), 1e-4)
        net.zero_grad(set_to_none=False)
        optimizer.zero_grad(set_to_none=False)
        net.half()
        assert {p.device for p in net.parameters()} == {device}
    assert losses[0] == losses[1]


def test_layers_on_two_devices() -> None:
    first, second = nn.Linear(4, 8).to("cuda:0"), nn.Linear(8, 3).to("cuda:1")
    parameters = [*first.parameters(), *second.parameters()]
    optimizer = optim.Adam(parameters, 0.01)
    x, target = mn.randn(5, 4, device="cuda:0"), mn.tensor([0, 1, 2, 0, 1], device="cuda:1")
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = F.cross_entropy(second(F.relu(first(x)).to("cuda:1")), target)
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        losses.append(loss.item())
    assert losses[2] < losses[0]


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_a_training_step_asks_the_host_for_nothing(make: Any, cuda: Any) -> None:
    net = model().to("cuda")
    optimizer = make(net.parameters())
    schedule = optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    x, target = (t.to("cuda") for t in batch())

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(net(x), target, label_smoothing=0.1).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        schedule.step()

    step()
    cuda.transfers.clear()
    step()
    assert (cuda.transfers.to_host, cuda.transfers.to_device, cuda.transfers.atomics) == (0, 0, 0)


def test_the_optimizers_state_follows_the_model() -> None:
    net, same = model(), model().to("cuda")
    optimizer, other = (optim.Adam(m.parameters(), 0.01) for m in (net, same))
    losses = train(net, optimizer, 2, "cpu")
    net.to("cuda")
    losses += train(net, optimizer, 2, "cuda")
    np.testing.assert_allclose(losses, train(same, other, 4, "cuda"), rtol=1e-5)


def test_state_dicts_go_from_device_to_device(tmp_path: Path) -> None:
    net = model().to("cuda")
    optimizer = optim.Adam(net.parameters(), 0.01)
    train(net, optimizer, 2, "cuda")
    mn.save(net.state_dict(), tmp_path / "model.safetensors")
    loaded = mn.load(tmp_path / "model.safetensors")
    assert {t.device for t in loaded.values()} == {"cpu"}
    for device in ("cpu", "cuda:1"):
        fresh = model().to(device)
        fresh.load_state_dict(loaded)
        fresh.load_state_dict(net.state_dict())
        resumed = optim.Adam(fresh.parameters(), 0.01)
        resumed.load_state_dict(copy.copy(optimizer.state_dict()))
        for name, value in fresh.state_dict().items():
            assert value.device == device
            np.testing.assert_array_equal(host(value), host(net.state_dict()[name]))
        assert {devices.device_of(s["exp_avg"]) for s in resumed.state.values()} == {device}


def test_a_run_resumes_on_another_device(tmp_path: Path) -> None:
    path = tmp_path / "run.safetensors"
    net = model().to("cuda")
    optimizer = optim.SGD(net.parameters(), 0.1, momentum=0.9)
    train(net, optimizer, 2, "cuda")
    mn.checkpoint.save_training(path, model=net, optimizer=optimizer, best=mn.ones(2, device="cuda"))
    expected = train(net, optimizer, 2, "cuda")
    other = model()
    resumed = optim.SGD(other.parameters(), 0.1, momentum=0.9)
    rest = mn.checkpoint.load_training(path, model=other, optimizer=resumed)
    assert rest["best"].device == "cpu"
    np.testing.assert_allclose(train(other, resumed, 2, "cpu"), expected, rtol=1e-5)


@pytest.mark.parametrize("momentum", [0.9, None])
def test_running_statistics_are_updated_where_they_are(momentum: float | None, cuda: Any) -> None:
    found = {}
    for device in ("cpu", "cuda"):
        mn.manual_seed(0)
        layer = nn.BatchNorm1d(3, momentum=momentum).to(device)
        cuda.transfers.clear()
        for batch in (mn.randn(5, 3), mn.randn(7, 3)):
            layer(batch.to(device))
        assert cuda.transfers.to_host == 0
        found[device] = {name: host(value) for name, value in layer.state_dict().items()}
    for name, value in found["cpu"].items():
        np.testing.assert_allclose(found["cuda"][name], value, rtol=1e-6)


def test_accumulated_statistics_stay_where_they_are(cuda: Any) -> None:
    """Merged, measured exactly and frozen: on the device, as on the CPU."""
    found = {}
    for device in ("cpu", "cuda:1"):
        mn.manual_seed(0)
        net = nn.Sequential(nn.BatchNorm1d(3), nn.GhostBatchNorm(3, 2), nn.BatchRenorm1d(3, rmax=2, dmax=1)).to(device)
        batches = [mn.randn(4, 3).to(device), mn.randn(6, 3).to(device)]
        cuda.transfers.clear()
        with nn.accumulate_stats(net):
            for x in batches:
                net(x)
        assert cuda.transfers.to_host == 0
        states = [{name: host(value).copy() for name, value in net.state_dict().items()}]
        for layerwise in (False, True):
            nn.utils.precise_bn(net, batches, layerwise=layerwise)
            states.append({name: host(value).copy() for name, value in net.state_dict().items()})
        assert {b.device for b in net.buffers()} <= {device, f"{device}:0"}
        found[device] = states
    for a, b in zip(found["cpu"], found["cuda:1"], strict=True):
        for name, value in a.items():
            np.testing.assert_allclose(b[name], value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("device", ["cuda:0", "cuda:1"])
def test_gradients_are_checked_where_they_are_computed(device: str) -> None:
    x = mn.randn(2, 3, dtype=mn.float64, device=device, requires_grad=True)
    assert gradcheck(lambda x: (F.tanh(x), x * x.cpu().to(device)), x) < 1e-6
    with pytest.raises(AssertionError, match="backward says"):
        gradcheck(lambda x: x * x.detach(), mn.ones(2, dtype=mn.float64, device=device, requires_grad=True))
