"""Inference of loaded ONNX models on one thread: minorm beside onnxruntime and OpenVINO.

    python -m benchmarks.inference [--batches 1 8] [--seconds 10] [--networks resnet18 vit_tiny] [--processor-time]
                                   [--quantized QDQ]

PyTorch writes the networks of benchmarks/vision.py with random weights, BatchNorm as separate nodes; all load the same
file, and their results are compared before they are timed. Times are medians of runs taken in turn in one process, in
milliseconds. The columns:

    ours, ort, vino      float32 of minorm, onnxruntime and OpenVINO
    ours16, vino*        bfloat16 of minorm, and OpenVINO in the precision that it chooses itself, bfloat16 where the
                         processor has units for that; a line above the table names it
    /ort, /vino, /vino*  minorm's time by theirs: below 1 minorm is the faster one

Without OpenVINO (the extra `runtimes`) its columns are empty.

`nodes` is how many nodes a run of minorm computes. `us a node` is what each of them costs outside the kernels: the
time of images of 32 x 32 pixels without what the kernels took of it.

With --quantized, onnxruntime's own quantizer makes 8-bit models first: DequantizeLinear and QuantizeLinear around float
nodes (QDQ), or QLinear nodes (QOperator), signed weights with a scale for each channel, unsigned activations. Weights
take 7 bits: without VNNI onnxruntime's sums of pairs would leave 16. All results have to be onnxruntime's, bit by bit.

MINORM_MAX_LEVEL=v3 holds minorm to AVX2, ONEDNN_MAX_CPU_ISA=AVX2 most of OpenVINO. onnxruntime has no such switch: it
takes what the processor has.
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
import minorm_ext
from benchmarks import vision
from benchmarks.timing import in_turn

NETWORKS = {f.__name__: f for f in (vision.resnet18, vision.mobilenet_v2, vision.convnext, vision.vit_tiny)}
SIZE, SMALL = 224, 32
QUANTIZED = ("resnet18", "mobilenet_v2")  # the networks of 8 bits, where none is named
CALIBRATION = 4  # batches
CLOSE = {"ours": 1e-4, "vino": 1e-4, "ours16": 5e-2, "vino*": 5e-2}  # of the largest output: how far from onnxruntime's
RATIOS = {"/ort": ("ours", "ort"), "/vino": ("ours", "vino"), "/vino*": ("ours16", "vino*")}
TIMES = ("ours", "ort", "vino", "ours16", "vino*")


def exported(name: str, size: int, batch: int) -> bytes:
    """The network as PyTorch's exporter writes it, in evaluation mode, with weights from a fixed seed."""
    import torch

    torch.manual_seed(0)
    model = NETWORKS[name](size).eval()
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


def quantized(name: str, size: int, batch: int, form: str) -> bytes:
    """The network as onnxruntime's quantizer writes it."""
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Images(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self, input_name: str) -> None:
            self.feeds = iter([{input_name: images(batch, size, 1 + i)} for i in range(CALIBRATION)])

        def get_next(self) -> dict[str, Any] | None:
            return next(self.feeds, None)

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
    return exported(name, size, batch) if form is None else quantized(name, size, batch, form)


def images(batch: int, size: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal((batch, 3, size, size), np.float32)


Run = Callable[[], Any]


def openvino_run(openvino: Any, file: bytes, x: Any, options: dict[str, str]) -> tuple[str, Run]:
    """Return OpenVINO's precision, and a run."""
    core = openvino.Core()
    one_thread = {"INFERENCE_NUM_THREADS": "1", "NUM_STREAMS": "1", "PERFORMANCE_HINT": "LATENCY"}
    compiled = core.compile_model(core.read_model(file), "CPU", {**one_thread, **options})
    request = compiled.create_infer_request()
    given = openvino.Tensor(x)

    def run() -> Any:
        request.infer({0: given})
        return request.get_output_tensor().data

    return compiled.get_property("INFERENCE_PRECISION_HINT").to_string(), run


def runs_of(name: str, batch: int, openvino: Any, form: str | None) -> tuple[dict[str, Run], str]:
    """Return a run for each column, and the precision that OpenVINO chooses, "" without OpenVINO.

    form    of an 8-bit model, which only minorm and onnxruntime run
    """
    import onnxruntime

    file, x = written(name, SIZE, batch, form), images(batch, SIZE)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    feed = {session.get_inputs()[0].name: x}
    runs: dict[str, Run] = {"ort": lambda: session.run(None, feed)[0]}
    types = {"ours": mn.float32} if form else {"ours": mn.float32, "ours16": mn.bfloat16}
    for column, dtype in types.items():
        model, given = minorm.onnx.load(file, dtype=dtype).eval(), mn.from_numpy(x).to(dtype)
        runs[column] = functools.partial(_ours, model, given)
    chosen = ""
    if openvino is not None and form is None:
        _, runs["vino"] = openvino_run(openvino, file, x, {"INFERENCE_PRECISION_HINT": "f32"})
        chosen, runs["vino*"] = openvino_run(openvino, file, x, {})
    return {column: runs[column] for column in TIMES if column in runs}, chosen


def _ours(model: Any, x: Any) -> Any:
    return model(x).numpy()


def check(name: str, runs: dict[str, Run], exact: bool) -> None:
    """Compare the results with onnxruntime's; exact: they have to be the same."""
    wanted = runs["ort"]()
    for column, close in CLOSE.items():
        if column in runs:
            error = np.abs(runs[column]().astype(np.float32) - wanted).max() / np.abs(wanted).max()
            most = 0 if exact else close
            assert error <= most, f"{name}: {column} differs from onnxruntime by {error:.1e} of the largest"


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


def outside_kernels(name: str, form: str | None, repeats: int = 30) -> tuple[int, float]:
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
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, help="all four; of 8-bit models two")
    parser.add_argument("--quantized", choices=("QDQ", "QOperator"), help="8-bit models, in this form")
    parser.add_argument("--processor-time", action="store_true", help="for a machine where other programs run as well")
    args = parser.parse_args()
    clock = time.process_time if args.processor_time else time.perf_counter
    mn.set_num_threads(1)
    try:
        import onnxruntime
        import torch
    except ImportError:
        raise SystemExit("benchmarks.inference loads what PyTorch exports; install torch and onnxruntime") from None
    torch.set_num_threads(1)
    openvino = _openvino()
    print(
        f"minorm {mn.__version__} at level {minorm_ext.levels()[-1]}, onnxruntime {onnxruntime.__version__}, one thread"
    )
    heading = False
    with mn.no_grad():
        for name in args.networks or (QUANTIZED if args.quantized else NETWORKS):
            nodes, outside = outside_kernels(name, args.quantized)
            for batch in args.batches:
                runs, chosen = runs_of(name, batch, openvino, args.quantized)
                if not heading:
                    heading = True
                    _print_heading(openvino, chosen)
                check(name, runs, exact=args.quantized is not None)
                medians = in_turn(list(runs.values()), seconds=args.seconds, clock=clock)
                times = dict(zip(runs, (1000 * t for t in medians), strict=True))
                print(f"{name:13} {batch:5}{_cells(times)} {nodes:6} {outside * 1e6:9.1f}", flush=True)


def _print_heading(openvino: Any, chosen: str) -> None:
    if chosen:
        print(f"OpenVINO {openvino.__version__.split('-')[0]}; vino* is {chosen}")
    columns = "".join(f"{column:>8}" for column in (*TIMES, *RATIOS))
    print(f"{'network':13} {'batch':>5}{columns} {'nodes':>6} {'us a node':>9}")


def _cells(times: dict[str, float]) -> str:
    """Format the times and their ratios; blank where something did not run."""
    ratios = {column: times[a] / times[b] for column, (a, b) in RATIOS.items() if b in times}
    found = times | ratios
    return "".join(f"{found[column]:8.2f}" if column in found else f"{'':8}" for column in (*TIMES, *RATIOS))


def _openvino() -> Any:
    """Import OpenVINO; if it is not installed, print a line and return None."""
    try:
        import openvino
    except ImportError:
        print("OpenVINO is not installed, so its columns are empty: pip install openvino")
        return None
    return openvino


if __name__ == "__main__":
    main()
