"""ONNX models on a GPU: a loaded one moves there like any other, and one that is there is exported as from the CPU."""

from __future__ import annotations

import importlib.util
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
    arrays = {name: value.array for name, value in net.state_dict().items()}
    found = minorm.onnx.export(net, x.to("cuda"), tmp_path / "model.onnx", training=training, verify=not training)
    assert found == expected
    for name, value in net.state_dict().items():
        assert value.array is arrays[name]


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


def nodes() -> Any:
    """Load tests/onnx/test_node_tests.py, which has the onnx package's tests and their tolerances."""
    path = Path(__file__).parents[1] / "onnx" / "test_node_tests.py"
    specification = importlib.util.spec_from_file_location("node_tests", path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def failures(part: slice) -> list[str]:
    """Of the onnx package's node tests, those that fail on a GPU."""
    from minorm.onnx import backend

    suite = nodes()
    cases = [case for case in suite.everything() if suite.considered(case.model) and case.name not in suite.EXCEPTIONS]
    found = []
    for case in cases[part]:
        try:
            prepared = backend.prepare(case.model, "CUDA:0")
            for inputs, outputs in case.data_sets:
                suite.compare(prepared.run([suite.plain(x) for x in inputs]), outputs, case.rtol, case.atol)
        except (ValueError, TypeError, RuntimeError, AssertionError) as error:
            found.append(f"{case.name}: {error}")
    return found


@pytest.mark.usefixtures("cuda")
def test_some_node_tests() -> None:
    assert failures(slice(None, None, 40)) == []


@pytest.mark.slow
@pytest.mark.usefixtures("cuda")
def test_every_node_test() -> None:
    assert failures(slice(None)) == []


@pytest.mark.usefixtures("cuda")
def test_the_backend_knows_the_devices() -> None:
    from minorm.onnx import backend

    assert [backend.supports_device(name) for name in ("CPU", "CUDA", "CUDA:1", "TPU")] == [True, True, True, False]
    with pytest.raises(ValueError, match="device is 'TPU'; minorm computes on 'CPU' here and on 'CUDA'"):
        backend.prepare(None, "TPU")
