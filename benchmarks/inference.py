"""Inference of loaded ONNX models on one thread, minorm and onnxruntime in turn.

    python -m benchmarks.inference [--batches 1 8] [--seconds 10] [--networks resnet18 vit_tiny] [--quantized QDQ]

PyTorch writes the networks of benchmarks/vision.py with random weights and BatchNorm as nodes of its own; minorm and
onnxruntime load the same file, and their results are compared before they are timed. Times are medians of runs taken in
turn in one process; `ratio` is minorm's time by onnxruntime's: below 1 minorm is the faster one.

`nodes` is how many nodes a run of minorm computes. `us a node` is what each of them costs outside the kernels: the
time of images of 32 x 32 pixels without what the kernels took of it.

With --quantized, onnxruntime's own quantizer makes 8-bit models first: DequantizeLinear and QuantizeLinear around float
nodes (QDQ), or QLinear nodes (QOperator), signed weights with a scale for each channel, unsigned activations. Weights
take 7 bits: without VNNI onnxruntime's sums of pairs would leave 16. All results have to be onnxruntime's, bit by bit.

MINORM_MAX_LEVEL=v3 holds minorm to AVX2. onnxruntime has no such switch: it takes what the processor has.
"""

from __future__ import annotations

import argparse
import functools
import io
import os
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import minorm as mn
import minorm.onnx
from benchmarks import vision
from benchmarks.timing import in_turn

NETWORKS = {f.__name__: f for f in (vision.resnet18, vision.mobilenet_v2, vision.convnext, vision.vit_tiny)}
SIZE, SMALL = 224, 32
CALIBRATION = 4  # images
CLOSE = 1e-4  # of the largest output: how far the results may be from onnxruntime's


def exported(name: str, size: int, batch: int) -> bytes:
    """The network as PyTorch's exporter writes it, in evaluation mode, with weights from a fixed seed."""
    import torch

    torch.manual_seed(0)
    model = NETWORKS[name](torch, size).eval()
    generator = torch.Generator().manual_seed(1)
    for layer in model.modules():
        if isinstance(layer, torch.nn.BatchNorm2d):  # not 0 and 1, which a runtime might see
            for tensor, middle in ((layer.running_mean, 0), (layer.bias, 0), (layer.running_var, 1), (layer.weight, 1)):
                tensor.data.uniform_(middle - 0.3, middle + 0.3, generator=generator)
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model, (torch.zeros(batch, 3, size, size),), file, dynamo=False, opset_version=17,
            training=torch.onnx.TrainingMode.PRESERVE,  # else BatchNorm is folded into the weights
        )  # fmt: skip
    return file.getvalue()


def quantized(name: str, form: str, batch: int, size: int = SIZE) -> bytes:
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
            file.write(exported(name, size, batch))
        quant_pre_process(paths[0], paths[1])
        reader = Images(minorm.onnx.load(paths[1]).input_names[0])
        quantize_static(
            paths[1], paths[2], reader, quant_format=QuantFormat[form], per_channel=True, reduce_range=True,
            activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8,
        )  # fmt: skip
        with open(paths[2], "rb") as file:
            return file.read()


def written(name: str, size: int, batch: int, form: str | None) -> bytes:
    """The network as a file, in floats or quantized in this form."""
    return exported(name, size, batch) if form is None else quantized(name, form, batch, size)


def images(batch: int, size: int) -> Any:
    return np.random.default_rng(0).standard_normal((batch, 3, size, size), np.float32)


def runs_of(name: str, batch: int, form: str | None = None) -> tuple[Any, list[Callable[[], Any]]]:
    """minorm's model, and a run of each of the two."""
    import onnxruntime

    file, x = written(name, SIZE, batch, form), images(batch, SIZE)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    feed = {session.get_inputs()[0].name: x}
    model = minorm.onnx.load(file).eval()
    given = mn.from_numpy(x)
    return model, [lambda: model(given).numpy(), lambda: session.run(None, feed)[0]]


class Kernels:
    """How long the compiled functions of minorm_ext run, by Python's profiling hook."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._begin = 0.0
        self._inside: Any = None

    def __call__(self, frame: Any, event: str, function: Any) -> None:  # noqa: ARG002  the hook's signature
        if event == "c_call" and self._inside is None and _is_kernel(function):
            self._inside, self._begin = function, time.perf_counter()
        elif event in ("c_return", "c_exception") and function == self._inside:
            self.seconds += time.perf_counter() - self._begin
            self._inside = None


def _is_kernel(function: Any) -> bool:
    owner = getattr(function, "__self__", None)
    name = getattr(owner, "__name__", None) or type(owner).__module__
    return str(name).startswith("minorm_ext.")


def outside_kernels(name: str, form: str | None = None, repeats: int = 30) -> tuple[int, float]:
    """The nodes of a run, and the seconds that each of them costs outside the kernels."""
    model = minorm.onnx.load(written(name, SMALL, 1, form)).eval()
    x = mn.from_numpy(images(1, SMALL))
    nodes = 0

    def count(*_: Any) -> None:
        nonlocal nodes
        nodes += 1

    with model.watching(count):
        model(x)
    whole, inside = [], []
    for _ in range(repeats):
        start = time.perf_counter()
        model(x)
        whole.append(time.perf_counter() - start)
        kernels = Kernels()
        sys.setprofile(kernels)
        try:
            model(x)
        finally:
            sys.setprofile(None)
        inside.append(kernels.seconds)
    return nodes, (statistics.median(whole) - statistics.median(inside)) / nodes


def main() -> None:
    formatter = functools.partial(argparse.RawDescriptionHelpFormatter, width=100)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=formatter)
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 8])
    parser.add_argument("--seconds", type=float, default=10, help="for each network and batch")
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, help="all four; of 8-bit models the first two")
    parser.add_argument("--quantized", choices=("QDQ", "QOperator"), help="8-bit models, in this form")
    args = parser.parse_args()
    mn.set_num_threads(1)
    try:
        import onnxruntime
        import torch
    except ImportError:
        raise SystemExit("benchmarks.inference loads what PyTorch exports; install torch and onnxruntime") from None
    torch.set_num_threads(1)
    print(f"minorm {mn.__version__}, onnxruntime {onnxruntime.__version__}, one thread, milliseconds a run")
    print(f"{'network':14} {'batch':>5} {'minorm':>9} {'onnxruntime':>11} {'ratio':>7} {'nodes':>7} {'us a node':>9}")
    with mn.no_grad():
        for name in args.networks or list(NETWORKS)[: 4 if args.quantized is None else 2]:
            nodes, outside = outside_kernels(name, args.quantized)
            for batch in args.batches:
                _, runs = runs_of(name, batch, args.quantized)
                y, wanted = (run() for run in runs)
                error = np.abs(y - wanted).max() / np.abs(wanted).max()
                most = CLOSE if args.quantized is None else 0
                assert error <= most, f"{name}: the results differ by {error:.1e} of the largest"
                ours, theirs = (1000 * t for t in in_turn(runs, seconds=args.seconds))
                times = f"{ours:9.2f} {theirs:11.2f} {ours / theirs:7.2f}"
                print(f"{name:14} {batch:5} {times} {nodes:7} {outside * 1e6:9.1f}", flush=True)


if __name__ == "__main__":
    main()
