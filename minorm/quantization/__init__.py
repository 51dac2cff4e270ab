"""minorm.quantization makes int8 models by quantization-aware training; minorm.onnx.export writes them.

qat = minorm.quantization.prepare_qat(model, example)
...  # train
int8 = minorm.quantization.convert(qat)
minorm.onnx.export(int8, example, "int8.onnx")
"""

from minorm.quantization.calibration import calibrate
from minorm.quantization.fake_quantize import FakeQuantize, LearnedFakeQuantize
from minorm.quantization.histograms import MSEObserver, PercentileObserver
from minorm.quantization.noise import LayerNoise, folding_gap, measure_noise
from minorm.quantization.norm_folding import fuse_conv_bn_weights
from minorm.quantization.observers import (
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
    ObserverBase,
    PerChannelMinMaxObserver,
)
from minorm.quantization.qat import QATModel, freeze_bn_stats, prepare_qat, update_bn_stats
from minorm.quantization.qconfig import QConfig, default_qat_qconfig, get_default_qat_qconfig
from minorm.quantization.quantized_model import QuantizedModel, convert

__all__ = [
    "FakeQuantize",
    "LayerNoise",
    "LearnedFakeQuantize",
    "MSEObserver",
    "MinMaxObserver",
    "MovingAverageMinMaxObserver",
    "MovingAveragePerChannelMinMaxObserver",
    "ObserverBase",
    "PerChannelMinMaxObserver",
    "PercentileObserver",
    "QATModel",
    "QConfig",
    "QuantizedModel",
    "calibrate",
    "convert",
    "default_qat_qconfig",
    "folding_gap",
    "freeze_bn_stats",
    "fuse_conv_bn_weights",
    "get_default_qat_qconfig",
    "measure_noise",
    "prepare_qat",
    "update_bn_stats",
]
