"""Module.to: all tensors or none, whatever stops it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm import devices, nn
from minorm.nn import conversion
from tests.interrupts import at_every_line


def model() -> nn.Module:
    made = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    made[0].tied = made[2].weight
    made(mn.ones(5, 3)).sum().backward()
    return made


def kinds(module: nn.Module) -> set[Any]:
    """The types of all float tensors and of their gradients."""
    tensors = [*module.parameters(), *module.buffers()]
    grads = [tensor.grad for tensor in tensors if tensor.grad is not None]
    return {tensor.dtype for tensor in [*tensors, *grads] if tensor.dtype.kind == "f"}


def test_every_tensor_and_gradient_is_converted() -> None:
    module = model()
    expected = {name: tensor.numpy().astype(np.float64) for name, tensor in module.state_dict().items()}
    module.to(mn.float64)
    assert kinds(module) == {np.dtype(np.float64)}
    assert module[1].num_batches_tracked.dtype == np.int64
    assert module[0].tied is module[2].weight
    for name, tensor in module.state_dict().items():
        np.testing.assert_array_equal(tensor.numpy(), expected[name])


@pytest.mark.parametrize("failing", range(1, 12))
def test_memory_that_does_not_suffice_changes_nothing(failing: int, monkeypatch) -> None:
    module, calls, to_device = model(), 0, devices.to_device

    def refusing(array: Any, device: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == failing:
            raise MemoryError("no room")
        return to_device(array, device)

    monkeypatch.setattr(conversion.devices, "to_device", refusing)
    with pytest.raises(MemoryError, match="no room"):
        module.to("cpu", mn.float64)
    assert kinds(module) == {np.dtype(np.float32)}


def test_ctrl_c_at_any_line_converts_all_or_nothing() -> None:
    found = []
    for module in at_every_line(lambda module: module.to(mn.float64), make=model):
        assert len(kinds(module)) == 1
        found.append(kinds(module).pop().itemsize)
    assert set(found) == {4, 8}
