"""Whole training steps on a GPU: the losses of the CPU, and not one copy between host and device.

A step that asks the host for a number waits until everything before it is done, and the GPU then waits for the host.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minorm as mn
import minorm.functional as F
from minorm import models, nn, optim, quantization
from minorm.data import ArrayDataset, DataLoader
from minorm.training import Run, Settings
from minorm.training.steps.loop import evaluate, predict, train_epoch

BUILD: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "resnet20": (lambda: models.build("resnet20", 3, 4, 10), (8, 3, 4, 4)),
    "norms": (lambda: models.build("norms", 3, 4, 10), (8, 3, 4, 4)),
    "lenet": (lambda: models.build("lenet", 1, 12, 10), (6, 1, 12, 12)),
}


def sgd(parameters: Any) -> Any:
    return optim.SGD(parameters, 0.002, momentum=0.9, weight_decay=1e-4, nesterov=True)


@pytest.mark.parametrize("name", BUILD)
def test_a_training_step_copies_nothing(name: str, cuda: Any) -> None:
    build, shape = BUILD[name]
    rng = np.random.default_rng(2)
    images, labels = mn.tensor(rng.standard_normal(shape), mn.float32), mn.tensor(rng.integers(0, 10, shape[0]))
    losses: dict[str, list[float]] = {}
    buffers: dict[str, dict[str, np.ndarray]] = {}
    for device in ("cpu", "cuda"):
        mn.manual_seed(4)
        net = build().to(device)
        optimizer = sgd(net.parameters())
        x, target = images.to(device), labels.to(device)
        found = []
        for step in range(2):
            if step:
                cuda.transfers.clear()
            optimizer.zero_grad()
            loss = F.cross_entropy(net(x), target, label_smoothing=0.1)
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 10.0)
            optimizer.step()
            if step:
                assert (cuda.transfers.to_host, cuda.transfers.to_device, cuda.transfers.atomics) == (0, 0, 0)
            found.append(loss)
        losses[device] = [loss.item() for loss in found]
        buffers[device] = {name: buffer.cpu().numpy() for name, buffer in net.named_buffers()}
    np.testing.assert_allclose(losses["cuda"], losses["cpu"], rtol=2e-4)
    for name, expected in buffers["cpu"].items():
        np.testing.assert_allclose(buffers["cuda"][name], expected, rtol=2e-3, atol=2e-4, err_msg=name)
    counts = [value for name, value in buffers["cuda"].items() if name.endswith("num_batches_tracked")]
    assert counts == [2] * len(counts)


def test_evaluation_copies_nothing(cuda: Any) -> None:
    build, shape = BUILD["resnet20"]
    net = build().to("cuda").eval()
    x = mn.randn(*shape, device="cuda")
    with mn.no_grad():
        net(x)
        cuda.transfers.clear()
        net(x)
    assert (cuda.transfers.to_host, cuda.transfers.to_device) == (0, 0)


@pytest.mark.usefixtures("cuda")
def test_the_loop_brings_batches_to_the_model() -> None:
    rng = np.random.default_rng(0)
    data = ArrayDataset(rng.standard_normal((20, 6)).astype(np.float32), rng.integers(0, 3, 20))
    scores = {}
    for device in ("cpu", "cuda:1"):
        mn.manual_seed(0)
        net = nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, 3)).to(device)
        loss = nn.CrossEntropyLoss()
        train = train_epoch(net, DataLoader(data, 5, shuffle=True, seed=1), loss, sgd(net.parameters()))
        test = evaluate(net, DataLoader(data, 8, seed=0), loss)
        assert predict(net, mn.ones(2, 6)).device == device
        scores[device] = train.loss, train.accuracy, test.loss, test.accuracy
    np.testing.assert_allclose(scores["cuda:1"], scores["cpu"], rtol=1e-5)


@pytest.mark.usefixtures("cuda")
def test_a_run_is_started_and_resumed_on_a_device(tmp_path: Path) -> None:
    run = Run(Settings(epochs=1), str(tmp_path), device="cuda:1")
    run.save(str(tmp_path))
    resumed = Run.resume(str(tmp_path), device="cuda")
    for name, value in resumed.model.state_dict().items():
        assert value.device == "cuda:0"
        np.testing.assert_array_equal(value.cpu().numpy(), run.model.state_dict()[name].cpu().numpy())
    assert Run.resume(str(tmp_path)).model[0].weight.device == "cpu"


# Training that rounds to int8 on the way

OBSERVERS = {
    "min-max": quantization.MinMaxObserver,
    "moving": quantization.MovingAverageMinMaxObserver,
    "channels": quantization.PerChannelMinMaxObserver,
    "moving channels": quantization.MovingAveragePerChannelMinMaxObserver,
    "percentile": quantization.PercentileObserver,
    "mse": quantization.MSEObserver,
}


@pytest.mark.usefixtures("cuda")
@pytest.mark.parametrize("name", OBSERVERS)
@pytest.mark.parametrize("dtype", [mn.int8, mn.uint8])
def test_observers(name: str, dtype: Any) -> None:
    found = {}
    for device in ("cpu", "cuda"):
        rng = np.random.default_rng(0)
        observer = OBSERVERS[name](dtype=dtype).to(device)
        for _ in range(3):
            observer(mn.tensor(rng.standard_normal((3, 4, 5)), mn.float32).to(device))
        found[device] = [tensor.cpu().numpy() for tensor in observer.calculate_qparams()]
    for one, other in zip(*found.values(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


@pytest.mark.usefixtures("cuda")
@pytest.mark.parametrize("name", ["lenet", "norms"])
def test_training_that_rounds(name: str) -> None:
    rng = np.random.default_rng(2)
    images = mn.tensor(rng.standard_normal((8, 3, 12, 12)), mn.float32)
    labels = mn.tensor(rng.integers(0, 10, 8))
    found: dict[str, Any] = {}
    for device in ("cpu", "cuda"):
        mn.manual_seed(4)
        net = quantization.prepare_qat(models.build(name, 3, 12, 10).to(device), images.to(device))
        optimizer = optim.SGD(net.parameters(), 0.002, momentum=0.9)
        losses = []
        for step in range(3):
            if step == 2:
                quantization.freeze_bn_stats(net)
            optimizer.zero_grad()
            loss = F.cross_entropy(net(images.to(device)), labels.to(device))
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        int8 = quantization.convert(net)
        y = int8(images.to(device))
        assert y.device.type == device
        found[device] = losses, y.cpu().numpy()
    # Sums in another order move a number over the middle between two integers now and then.
    np.testing.assert_allclose(found["cuda"][0], found["cpu"][0], rtol=2e-2)
    step = np.diff(np.unique(found["cpu"][1])).min()
    np.testing.assert_allclose(found["cuda"][1], found["cpu"][1], rtol=0.02, atol=2 * step)
    with pytest.raises(RuntimeError, match="the model's integers are on cuda:0; expected integers on the CPU"):
        int8.to("cuda")(images)


@pytest.mark.usefixtures("cuda")
@pytest.mark.parametrize(
    "make",
    [
        lambda p: optim.Adadelta(p, lr=mn.tensor(1.0)),
        lambda p: optim.Muon([q for q in p if q.ndim == 2], lr=0.05),
        lambda p: optim.LBFGS(p, max_iter=4, line_search_fn="strong_wolfe"),
    ],
)
def test_an_optimizer_steps_as_on_the_cpu(make: Any) -> None:
    """Also after the model, and so the state, has moved to the second device in the middle."""
    found = {}
    for devices in (("cpu", "cpu"), ("cuda", "cuda:1")):
        mn.manual_seed(0)
        net, x = nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 2)), mn.randn(16, 5)
        target = x[:, :2].sin()
        optimizer = make([*net.parameters()])
        for device in devices:
            net.to(device)
            data, wanted = x.to(device), target.to(device)

            def closure(net: Any = net, optimizer: Any = optimizer, data: Any = data, wanted: Any = wanted) -> Any:
                net.zero_grad()
                loss = ((net(data) - wanted) ** 2).mean()
                loss.backward()
                return loss

            for _ in range(3):
                optimizer.step(closure)
        found[devices[0]] = [p.detach().cpu().numpy() for p in net.parameters()]
    for ours, expected in zip(found["cuda"], found["cpu"], strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.usefixtures("cuda")
def test_a_checkpoint_on_the_device() -> None:
    found = []
    for run in (lambda net, x: net(x), mn.utils.checkpoint.checkpoint):
        mn.manual_seed(0)
        net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.5)).to("cuda")
        x = mn.randn(2, 3, 6, 6).to("cuda").requires_grad_()
        (run(net, x) ** 2).sum().backward()
        tensors = [*[p.grad for p in net.parameters()], *net.buffers(), x.grad]
        found.append([t.cpu().numpy() for t in tensors])
    for plain, kept in zip(*found, strict=True):
        np.testing.assert_array_equal(kept, plain)


@pytest.mark.usefixtures("cuda")
def test_orders_and_draws_on_the_device() -> None:
    x = mn.randn(2, 3, 4, 5).to("cuda").to(memory_format=mn.channels_last)
    for like in (mn.zeros_like(x), mn.randn_like(x), mn.empty_like(x, memory_format=mn.channels_last), x.clone()):
        assert (like.device, like.stride()) == ("cuda:0", (60, 1, 15, 3))
    assert mn.zeros_like(x, memory_format=mn.contiguous_format).is_contiguous()
    distributions = mn.distributions
    normal = distributions.Normal(mn.zeros(3).to("cuda").requires_grad_(), 1.0)
    coins = distributions.Bernoulli(logits=mn.zeros(3).to("cuda"))
    classes = distributions.Categorical(mn.ones(2, 3).to("cuda"))
    for p in (normal, coins, classes):
        draws = p.sample((4,))
        for found in (draws, p.log_prob(draws), p.entropy(), distributions.kl_divergence(p, p)):
            assert found.device == "cuda:0"
    normal.rsample().sum().backward()
    assert normal.loc.is_leaf or normal.loc.requires_grad
