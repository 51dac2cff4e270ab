"""Inference of quantized networks on one thread, minorm and onnxruntime in turn.

    python -m benchmarks.quantized [--batches 1] [--seconds 10] [--networks resnet18 mobilenet_v2] [--formats QDQ]

onnxruntime's own quantizer makes 8-bit models of the networks of benchmarks/inference.py: weights are signed and have a
scale for each channel, activations are unsigned. QDQ has DequantizeLinear and QuantizeLinear around float nodes,
QOperator has QLinear nodes. Both run on bytes. Weights take 7 bits: without VNNI onnxruntime's sums of pairs would leave
16 bits. `equal` is how many of the outputs are onnxruntime's, bit by bit; `ratio` is minorm's time by onnxruntime's.
"""

from __future__ import annotations

import argparse
import functools
import os
import tempfile
from typing import Any

import numpy as np

import minorm as mn
import minorm.onnx
from benchmarks import inference
from benchmarks.timing import in_turn

NETWORKS = ("resnet18", "mobilenet_v2")
FORMATS = ("QDQ", "QOperator")
CALIBRATION = 4  # images


def quantized(name: str, form: str, batch: int, size: int = inference.SIZE) -> bytes:
    """The network as onnxruntime's quantizer writes it."""
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Images(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self, name: str) -> None:
            self.name, self.left = name, CALIBRATION

        def get_next(self) -> dict[str, Any] | None:
            self.left -= 1
            shape = batch, 3, size, size
            images = np.random.default_rng(1 + self.left).standard_normal(shape, np.float32)
            return {self.name: images} if self.left >= 0 else None

    with tempfile.TemporaryDirectory() as folder:
        paths = [os.path.join(folder, f"{stage}.onnx") for stage in ("float", "ready", "quantized")]
        with open(paths[0], "wb") as file:
            file.write(inference.exported(name, size, batch))
        quant_pre_process(paths[0], paths[1])
        reader = Images(minorm.onnx.load(paths[1]).input_names[0])
        quantize_static(
            paths[1], paths[2], reader, quant_format=QuantFormat[form], per_channel=True, reduce_range=True,
            activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8,
        )  # fmt: skip
        with open(paths[2], "rb") as file:
            return file.read()


def main() -> None:
    formatter = functools.partial(argparse.RawDescriptionHelpFormatter, width=100)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=formatter)
    parser.add_argument("--batches", nargs="+", type=int, default=[1])
    parser.add_argument("--seconds", type=float, default=10, help="for each network, format and batch")
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--formats", nargs="+", choices=FORMATS, default=list(FORMATS))
    args = parser.parse_args()
    mn.set_num_threads(1)
    try:
        import onnxruntime
        import torch
    except ImportError:
        raise SystemExit("benchmarks.quantized loads what PyTorch exports; install torch and onnxruntime") from None
    torch.set_num_threads(1)
    print(f"minorm {mn.__version__}, onnxruntime {onnxruntime.__version__}, one thread, milliseconds a run")
    print(f"{'network':14} {'format':9} {'batch':>5} {'minorm':>9} {'onnxruntime':>11} {'ratio':>7} {'equal':>7}")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    with mn.no_grad():
        for name in args.networks:
            for form in args.formats:
                for batch in args.batches:
                    file, x = quantized(name, form, batch), inference.images(batch, inference.SIZE)
                    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
                    feed, model, given = {session.get_inputs()[0].name: x}, minorm.onnx.load(file), mn.from_numpy(x)
                    runs = [
                        functools.partial(lambda m, x: m(x).numpy(), model, given),
                        functools.partial(session.run, None, feed),
                    ]
                    ours, theirs = (run() for run in runs)
                    equal = np.mean(ours == theirs[0])
                    ours, theirs = (1000 * t for t in in_turn(runs, seconds=args.seconds))
                    times = f"{ours:9.2f} {theirs:11.2f} {ours / theirs:7.2f} {equal:7.1%}"
                    print(f"{name:14} {form:9} {batch:5} {times}", flush=True)


if __name__ == "__main__":
    main()
