"""Does the library still work at all? Ten seconds, after every edit; what each part promises is tested elsewhere."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minorm as mn
import minorm.functional as F
import minorm_ext
from minorm import nn, optim
from tests.levels import at_level

# Every module of the library, in a process that has loaded none yet. A module that needs an extra may say that it is
# missing.
IMPORTS = """
import importlib, pkgutil, minorm
found = 0
for module in pkgutil.walk_packages(minorm.__path__, "minorm."):
    if not module.name.endswith("__main__"):
        try:
            importlib.import_module(module.name)
            found += 1
        except ModuleNotFoundError as error:
            if (error.name or "minorm").partition(".")[0] in ("minorm", "minorm_ext"):
                raise
print(found)
"""


def run(*arguments: str) -> str:
    """Run a new Python; return its output."""
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def network() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64, 3)
    )


def batch(dtype: Any) -> tuple[mn.Tensor, mn.Tensor]:
    rng = np.random.default_rng(1)
    return mn.tensor(rng.standard_normal((8, 1, 8, 8)).astype(dtype)), mn.tensor(rng.integers(0, 3, 8))


def step(model: nn.Module, optimizer: optim.Optimizer, x: mn.Tensor, target: mn.Tensor) -> None:
    optimizer.zero_grad()
    F.cross_entropy(model(x), target).backward()
    optimizer.step()


def normalized(x: Any, dy: Any, axes: int | tuple[int, ...], weight: Any, bias: Any) -> tuple[Any, Any]:
    """y = weight * (x - mean) / std + bias and the gradient for x, in float64."""
    x, dy, weight, bias = (np.asarray(array, np.float64) for array in (x, dy, weight, bias))
    std = np.sqrt(x.var(axes, keepdims=True) + 1e-5)
    x_hat = (x - x.mean(axes, keepdims=True)) / std
    g = weight * dy
    return weight * x_hat + bias, (
        g - g.mean(axes, keepdims=True) - x_hat * (g * x_hat).mean(axes, keepdims=True)
    ) / std


def test_every_module_can_be_imported() -> None:
    assert int(run("-c", IMPORTS)) > 400


def test_the_command_line_answers() -> None:
    assert run("-m", "minorm", "--help").startswith("usage: minorm")


def test_one_training_step() -> None:
    model, (x, target) = network().double(), batch(np.float64)
    optimizer = optim.SGD(model.parameters(), lr=0.05)

    def loss() -> float:
        return F.cross_entropy(model(x), target).item()

    def moved(by: float) -> float:
        """The loss with the parameters `by` further along their gradients."""
        for p, value, grad in before:
            p.array[...] = value + by * grad
        return loss()

    F.cross_entropy(model(x), target).backward()
    before = [(p, p.array.copy(), p.grad.array.copy()) for p in model.parameters()]
    squared_length = sum((grad**2).sum() for _, _, grad in before)
    assert (moved(1e-6) - moved(-1e-6)) / 2e-6 == pytest.approx(squared_length, rel=1e-6)

    first = moved(0.0)
    optimizer.step()
    for p, value, grad in before:
        np.testing.assert_allclose(p.array, value - 0.05 * grad, rtol=1e-12)
    assert loss() < first


def test_layer_norm_forward_and_backward(rng: np.random.Generator) -> None:
    x, weight, bias, dy = (rng.standard_normal(shape).astype(np.float32) for shape in ((6, 50), 50, 50, (6, 50)))
    layer, input = nn.LayerNorm(50), mn.tensor(x, requires_grad=True)
    layer.load_state_dict({"weight": mn.tensor(weight), "bias": mn.tensor(bias)})
    y = layer(input)
    y.backward(mn.tensor(dy))
    expected, dx = normalized(x, dy, 1, weight, bias)
    np.testing.assert_allclose(y.numpy(), expected, atol=1e-5)
    np.testing.assert_allclose(input.grad.numpy(), dx, atol=1e-5)


@pytest.mark.parametrize("level", minorm_ext.levels())
def test_a_kernel_at_each_level(level: str, rng: np.random.Generator) -> None:
    x, dy = (rng.standard_normal((4, 3, 7, 9)).astype(np.float32) for _ in range(2))
    input = mn.tensor(x, requires_grad=True)
    with at_level(level):
        y = F.batch_norm(input, None, None, training=True)
        y.backward(mn.tensor(dy))
    expected, dx = normalized(x, dy, (0, 2, 3), 1, 0)
    np.testing.assert_allclose(y.numpy(), expected, atol=1e-5)
    np.testing.assert_allclose(input.grad.numpy(), dx, atol=1e-5)


def test_a_run_goes_on_from_a_checkpoint_as_if_it_had_not_stopped(tmp_path: Path) -> None:
    runs = []
    for seed in range(2):
        mn.manual_seed(seed)
        model = network()
        runs.append((model, optim.SGD(model.parameters(), lr=0.05, momentum=0.9)))
    (model, optimizer), (other, its_optimizer) = runs
    x, target = batch(np.float32)
    step(model, optimizer, x, target)
    mn.checkpoint.save_training(tmp_path / "run.safetensors", model=model, optimizer=optimizer)
    mn.checkpoint.load_training(tmp_path / "run.safetensors", model=other, optimizer=its_optimizer)
    step(model, optimizer, x, target)
    step(other, its_optimizer, x, target)
    expected, found = model.state_dict(), other.state_dict()
    assert expected.keys() == found.keys()
    assert all(found[name].numpy().tobytes() == expected[name].numpy().tobytes() for name in expected)


def test_onnx_there_and_back(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    from onnx.reference import ReferenceEvaluator

    import minorm.onnx

    model, (x, target) = network(), batch(np.float32)
    step(model, optim.SGD(model.parameters(), lr=0.05), x, target)  # running statistics that are not 0 and 1
    model.eval()
    y = model(x).detach().numpy()
    minorm.onnx.export(model, x, tmp_path / "model.onnx", input_names=["x"])
    (theirs,) = ReferenceEvaluator(str(tmp_path / "model.onnx")).run(None, {"x": x.numpy()})
    np.testing.assert_allclose(y, theirs, rtol=1e-4, atol=1e-5)
    loaded = minorm.onnx.load(tmp_path / "model.onnx")
    np.testing.assert_allclose(loaded(x).detach().numpy(), theirs, rtol=1e-4, atol=1e-5)
