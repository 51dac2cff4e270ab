"""`minorm quantize` writes a float model as int8 without further training: it measures the scales on pictures."""

from __future__ import annotations

import argparse
import functools
import os
from collections.abc import Sequence
from typing import Any

import minorm as mn
from minorm import quantization
from minorm.cli import sources
from minorm.cli.options import device_option, external_root, output_files
from minorm.cli.quantize import calibration_images, runtime_comparison
from minorm.cli.quantize.calibration_images import Images
from minorm.cli.terminal import extras, output
from minorm.cli.terminal.one_line_errors import UsageError
from minorm.quantization import LayerNoise, QConfig, calibrate, convert, get_default_qat_qconfig, measure_noise
from minorm.quantization.fake_quantize import FakeQuantize
from minorm.quantization.qat import prepared
from minorm.quantization.qconfig import ACTIVATION_TYPES

OBSERVERS = {
    "minmax": quantization.MinMaxObserver,
    "percentile": quantization.PercentileObserver,
    "mse": quantization.MSEObserver,
}


def add(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "quantize",
        help="write a trained model as int8, without training",
        description="Write a trained model as an ONNX file whose weights are int8 and whose activations are 8 bits, "
        "with QuantizeLinear and DequantizeLinear. The scales of the activations are measured on the pictures. If the "
        "pictures are in folders with the names of the classes, the loss of accuracy is measured too. If too much is "
        "lost, `minorm train --qat --init MODEL` can reduce the loss by training.",
        epilog="Example: minorm quantize model.onnx --calibrate images/ -o int8.onnx",
    )
    parser.add_argument("model", metavar="MODEL", help=sources.MODEL_HELP)
    parser.add_argument("--calibrate", metavar="DIR|FILE.npz", help="pictures to run the model on; default: the images "
                        "of the run, or those of --data and --path")  # fmt: skip
    sources.add_data(parser)
    parser.add_argument(
        "-o", "--out", default="int8.onnx", metavar="FILE", help="the file to write (default int8.onnx)"
    )
    parser.add_argument("--observer", choices=list(OBSERVERS), default="mse", help="how the scale of an activation is "
                        "chosen (default mse: the least mean squared error)")  # fmt: skip
    parser.add_argument(
        "--activation",
        choices=list(ACTIVATION_TYPES),
        default="uint8",
        help="the type of the activations (default uint8)",
    )
    parser.add_argument("--exclude", action="append", default=[], metavar="MODULE", help="a module that stays float; "
                        "may be given several times")  # fmt: skip
    parser.add_argument(
        "--images",
        type=int,
        default=256,
        metavar="N",
        help="the largest number of pictures to run the model on (default 256)",
    )
    parser.add_argument(
        "--opset",
        type=int,
        metavar="N",
        help="the opset to write, 13 to the newest (default: the lowest possible opset from 17 on)",
    )
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--plot", metavar="FILE", help="draw the noise and the cost of each layer (.png, .svg, .pdf)")
    external_root.add(parser)
    device_option.add_to_a_reader(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Calibrate the model, write it as int8, and print the report."""
    extras.need("onnx", "onnxruntime")
    output_files.check_picture("--plot", args.plot)
    if args.plot:
        extras.need("matplotlib")
    if args.images < 1:
        raise UsageError(f"--images {args.images}: expected at least 1")
    if args.opset is not None and args.opset < 13:
        raise UsageError(f"--opset {args.opset}: expected 13 or more: older opsets have no scale for each channel")
    source = sources.opened(args)
    if source.qat is not None:
        raise UsageError(
            f"{source.path} is trained for int8; expected a float model (to write this one as an int8 model, use "
            "`minorm export`)"
        )
    output_files.check("quantize", source.path, args.out, args.plot)
    images = calibration_images.read(source, args)
    report = quantized(source, images, args)
    rows = report.pop("rows")
    if args.plot:
        from minorm.cli.views import quantization_picture

        figure = quantization_picture.picture(rows, os.path.basename(source.path))
        output_files.write_picture("quantize", figure, args.plot)
    if args.json:
        output.show_json(report)
    else:
        _show(report, rows, args)
    return 0


def quantized(source: Any, images: Images, args: argparse.Namespace) -> dict[str, Any]:
    """Quantize the model and write the file; return the report, in which `rows` has an object for each layer."""
    model = source.model.eval()
    on_cpu = images.batches
    batches = [batch.to(args.device) for batch in on_cpu]
    wanted = [outcome(model, batch) for batch in batches]
    activation = functools.partial(FakeQuantize, OBSERVERS[args.observer], dtype=ACTIVATION_TYPES[args.activation])
    qconfig = QConfig(activation, get_default_qat_qconfig().weight)
    qat = prepared(model, batches[0], qconfig, False, tuple(args.exclude), strict=False)
    int8 = convert(calibrate(qat, batches))
    score = functools.partial(images.score, wanted=wanted)
    noise = measure_noise(qat, batches, score)
    floats = runtime_comparison.written(source, on_cpu[0])
    whole = runtime_comparison.write(int8, on_cpu[0], args, source)
    mine, fake = ([outcome(one.eval(), batch) for batch in batches] for one in (int8, qat))
    return {
        "model": source.path,
        "out": args.out,
        "images": sum(len(batch) for batch in batches),
        "score": images.kind,
        "float": score(wanted),
        "int8": score(mine),
        "fake_quantization": {
            "values": sum(y.numel() for y in mine),
            "differ": sum(int((a.cpu().array != b.cpu().array).sum()) for a, b in zip(mine, fake, strict=True)),
        },
        "layers": [vars(row) for row in noise],
        "stay_float": list(qat.plan.floats),
        "bytes": {"float": len(floats), "int8": len(whole)},
        "onnxruntime": runtime_comparison.compared(floats, whole, on_cpu, mine),
        "rows": noise,
    }


def outcome(model: Any, batch: mn.Tensor) -> mn.Tensor:
    """Return the model's first output for a batch."""
    with mn.no_grad():
        result = model(batch)
    first: mn.Tensor = result[0] if isinstance(result, (tuple, list)) else result
    if first.ndim != 2:
        raise ValueError(
            f"quantize: for {len(batch)} image{'' if len(batch) == 1 else 's'} the model's output has shape "
            f"{tuple(first.shape)}; expected one row "
            "for each image, with one number for each class"
        )
    return first


def _show(report: dict[str, Any], rows: Sequence[LayerNoise], args: argparse.Namespace) -> None:
    runtime, sizes = report["onnxruntime"], report["bytes"]
    output.say(f"{report['model']}: {report['images']:,} images, observer {args.observer}")
    for line in table(rows, report["score"]):
        output.say(line)
    for name in report["stay_float"]:
        output.say(f"stays float, because no integer operation reads it: {name}")
    output.say(f"{report['score']}: float model {report['float']:.2%}, int8 model {report['int8']:.2%}")
    fake = report["fake_quantization"]
    output.say(
        f"fake quantization: {fake['differ']:,} of {fake['values']:,} outputs differ from the outputs of the integer "
        "model"
    )
    output.say(f"{args.out}: {sizes['int8']:,} bytes (float model: {sizes['float']:,} bytes)")
    output.say(
        f"onnxruntime: float {runtime['float_ms']:.2f} ms per batch, int8 {runtime['int8_ms']:.2f} ms; for "
        f"{runtime['same_class']:,} of {report['images']:,} images it predicts the same class as minorm's integer model"
    )
    if runtime["saturates"]:
        output.say(
            "this processor has no VNNI instructions, so onnxruntime adds pairs of products in 16 bits, where they "
            f"can saturate: with the session option {runtime_comparison.PRECISE} = 1 the class is the same for "
            f"{runtime['same_class_exact']:,} images"
        )


def table(layers: Sequence[LayerNoise], score: str) -> list[str]:
    """Return the lines of a table that has a header and a line for each layer."""
    width = max(len(row.name) for row in layers)
    lines = [f"{'layer':{width}}  weight dB  output dB  {score} lost"]
    for row in layers:
        cost = "" if row.cost is None else f"{row.cost:10.2%}"
        lines.append(f"{row.name:{width}}  {row.weight:9.1f}  {row.output:9.1f}  {cost}")
    return lines
