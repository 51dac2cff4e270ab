"""Which layers of a module of PyTorch are seen, and under which names."""

from __future__ import annotations

from typing import Any

import pytest

import minorm as mn
from tests.diagnosis.pytorch.planting import batches

t = pytest.importorskip("torch")


def test_layers_that_are_seen() -> None:
    nn = t.nn

    class FrozenBatchNorm2d(nn.Module):
        """As torchvision's: arithmetic with buffers, and no momentum."""

        def __init__(self) -> None:
            super().__init__()
            for name, value in (("weight", 1.0), ("bias", 0.0), ("running_mean", 0.5), ("running_var", 40.0)):
                self.register_buffer(name, t.full((3,), value))
            self.eps = 1e-5

        def forward(self, x: Any) -> Any:
            scale = self.weight / (self.running_var + self.eps).sqrt()
            return x * scale.reshape(1, -1, 1, 1) + (self.bias - self.running_mean * scale).reshape(1, -1, 1, 1)

    model = nn.Sequential(
        FrozenBatchNorm2d(), nn.SyncBatchNorm(3), nn.InstanceNorm2d(3, track_running_stats=True), nn.GroupNorm(1, 3),
        nn.LayerNorm([3, 8, 8]), nn.Flatten(), nn.Linear(192, 4),
    ).eval()  # fmt: skip
    found = mn.diagnose(model, batches())
    assert [(row["layer"], row["kind"]) for row in found.layers] == [
        ("0", "batch"), ("1", "batch"), ("2", "instance"), ("3", "group"), ("4", "layer"),
    ]  # fmt: skip
    assert [(f.name, f.severity) for f in found.findings if f.layer == "0"] == [("stale_statistics", "note")], "frozen"


def test_functions_are_seen_under_the_module_that_calls_them() -> None:
    """Functions of torch and torch.nn.functional, methods, a weight that two calls share, one of no module."""
    f = t.nn.functional

    class Net(t.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.head = t.nn.LayerNorm(8), t.nn.Linear(192, 4)
            self.scale = t.nn.Parameter(t.ones(3))
            self.register_buffer("mean", t.zeros(3))
            self.register_buffer("var", t.full((3,), 9.0))

        def forward(self, x: Any) -> Any:
            x = t.batch_norm(x, self.scale, None, self.mean, self.var, False, 0.25, 1e-5, False)
            x = f.layer_norm(self.norm(x).relu(), (8,), self.norm.weight)
            x = t.group_norm(f.max_pool2d(f.instance_norm(x), 3, 1, 1), 3)
            return self.head(f.relu_(f.rms_norm(input=x, normalized_shape=(8,))).flatten(1))

    found = mn.diagnose(Net().eval(), batches()[:4])
    rows = [(row["layer"], row["kind"]) for row in found.layers]
    assert rows == [
        ("batch_norm", "batch"), ("norm", "layer"), ("instance_norm", "instance"), ("group_norm", "group"),
        ("rms_norm", "rms"),
    ]  # fmt: skip
    assert found.layers[0]["offset"] > 0.5, "the variance of the images is 1, not 9"
    assert [f.name for f in found.findings if f.layer == "batch_norm" and f.severity == "error"] == []
