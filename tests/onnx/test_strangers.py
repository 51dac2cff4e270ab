"""Networks that nothing else tests, from PyTorch and back; `python -m tests.onnx.strangers` tries more on more."""

from __future__ import annotations

import warnings

import pytest

pytest.importorskip("onnx")
pytest.importorskip("torch")
pytest.importorskip("onnxruntime")

from tests.onnx.strangers.everything import FAMILIES
from tests.onnx.strangers.trial import Trial

SAMPLE = ["efficientnet", "unet_padded", "local_windows", "style_generator_demodulated", "gru_both_ways", "llama"]
UNWRITTEN = {"gated", "spatial_transformer", "spectral"}  # by PyTorch's older exporter at opset 17


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in SAMPLE else pytest.mark.slow) for n in FAMILIES if n not in UNWRITTEN]
)
def test_a_file_runs_trains_and_goes_out_again(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trial = Trial(FAMILIES[name], dynamo=False)
        for step in (trial.agrees, trial.trains, trial.goes_out, lambda: trial.converts(23)):
            assert step() == ""
