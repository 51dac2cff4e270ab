"""A model on a GPU is diagnosed there, and gets the findings of the CPU."""

from __future__ import annotations

from typing import Any

import pytest

import minorm as mn
from tests.diagnosis import planting


@pytest.mark.parametrize("name", ["stale_variance", "undone", "dead_channels", "folded"])
def test_the_findings_are_those_of_the_cpu(name: str, cuda: Any) -> None:
    sick = planting.PLANTED[name]()
    batches = planting.loader(data=planting.images(96))
    expected = mn.diagnose(sick.model, batches)
    model = sick.model.to("cuda")
    found = mn.diagnose(model, batches)
    assert [(f.name, f.layer, f.severity) for f in found.findings] == [
        (f.name, f.layer, f.severity) for f in expected.findings
    ]
    assert all(buffer.device != "cpu" for buffer in model.buffers())
    for row, other in zip(found.layers, expected.layers, strict=True):
        assert row["gap"] == pytest.approx(other["gap"], abs=1e-3)
        assert row["offset"] == pytest.approx(other["offset"], abs=1e-3)
