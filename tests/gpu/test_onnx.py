"""ONNX models on a GPU: a loaded one moves there like any other, and one that is there is exported as from the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm import models

pytest.importorskip("onnx")


@pytest.mark.parametrize("training", [False, True])
def test_a_model_on_a_gpu_is_exported_as_on_the_cpu(training: bool, cuda: Any, tmp_path: Path) -> None:
    import minorm.onnx

    net, x = models.build("resnet20", 3, 8, 10), mn.randn(2, 3, 8, 8)
    expected = minorm.onnx.export(net, x, training=training)
    net.to("cuda")
    arrays = {name: value.data for name, value in net.state_dict().items()}
    found = minorm.onnx.export(net, x.to("cuda"), tmp_path / "model.onnx", training=training, verify=not training)
    assert found == expected
    for name, value in net.state_dict().items():
        assert value.data is arrays[name]


def test_a_loaded_model_runs_and_trains_on_a_gpu(cuda: Any) -> None:
    import minorm.onnx

    net, x = models.build("resnet20", 3, 8, 10).eval(), mn.randn(2, 3, 8, 8)
    loaded = minorm.onnx.load(minorm.onnx.export(net, x)).to("cuda").eval()
    there = x.to("cuda")
    loaded(there)
    cuda.transfers.clear()
    y = loaded(there)
    assert cuda.transfers.to_host == 0
    np.testing.assert_allclose(y.detach().cpu().numpy(), net(x).numpy(), rtol=1e-4, atol=1e-5)
    loaded.train()
    mn.functional.cross_entropy(loaded(there), mn.tensor([1, 2], device="cuda")).backward()
    assert all(p.grad.device == "cuda:0" for p in loaded.parameters())
