"""`minorm check`: what is in an ONNX model, is it valid, and does onnxruntime run it?

The checker and onnxruntime run in a process of their own with a time and a memory limit: a broken or hostile file
can crash them, and then the answer is "crashed", not a crash.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections import Counter
from typing import Any

from minorm.cli import extras

TIME_LIMIT = 120  # seconds
NORMALIZATIONS = (
    "BatchNormalization",
    "InstanceNormalization",
    "GroupNormalization",
    "LayerNormalization",
    "RMSNormalization",
    "LRN",
    "LpNormalization",
    "MeanVarianceNormalization",
)
DEFAULTS: dict[str, dict[str, Any]] = {  # what the operators mean where a node says nothing
    "BatchNormalization": {"epsilon": 1e-5, "momentum": 0.9},
    "InstanceNormalization": {"epsilon": 1e-5},
    "GroupNormalization": {"epsilon": 1e-5},
    "LayerNormalization": {"epsilon": 1e-5, "axis": -1},
    "RMSNormalization": {"epsilon": 1e-5, "axis": -1},
    "LRN": {"alpha": 1e-4, "beta": 0.75, "bias": 1.0},
    "LpNormalization": {"axis": -1, "p": 2},
    "MeanVarianceNormalization": {"axes": [0, 2, 3]},
}


def add(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "check",
        help="say what is in an ONNX model and whether it is valid",
        description="List inputs, outputs, opset, operators and every normalization of an ONNX model; run the ONNX "
        "checker, and onnxruntime once on random inputs. The exit code is 0 if nothing failed.",
    )
    parser.add_argument("model", metavar="MODEL.onnx")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the summary and the verdicts; returns 1 if one is a failure."""
    extras.need("onnx", "onnx")
    import onnx

    try:
        model = onnx.load(args.model, load_external_data=False)
    except OSError:
        raise
    except Exception as error:  # noqa: BLE001  protobuf's, which is not ours to import
        raise ValueError(f"{args.model} is not an ONNX model: {error}") from None
    if not model.graph.node and not model.graph.output:
        raise ValueError(f"{args.model} is not an ONNX model: it has no graph")
    rows = [("file", f"{args.model}, {os.path.getsize(args.model):,} bytes"), *_summary(model)]
    verdicts = [_verdict(args.model, what) for what in ("checker", "onnxruntime")]
    rows += [(what, text) for what, text, _ in verdicts]
    width = max(len(name) for name, _ in rows)
    for name, text in rows:
        print(f"{name:{width}}  {text}")
    return 0 if all(passed for _, _, passed in verdicts) else 1


def _summary(model: Any) -> list[tuple[str, str]]:
    """(label, text) lines; a label is shown once."""
    graph = model.graph
    known = {tensor.name for tensor in graph.initializer}
    opsets = ", ".join(f"{entry.domain or 'ai.onnx'} {entry.version}" for entry in model.opset_import)
    producer = f"{model.producer_name} {model.producer_version}".strip() or "not said"
    weights = sum(_count(tensor.dims) for tensor in graph.initializer)
    operators = Counter(node.op_type for node in graph.node)
    rows = [("producer", producer), ("opset", f"{opsets} (IR version {model.ir_version})")]
    rows += [("inputs", _value(entry)) for entry in graph.input if entry.name not in known]
    rows += [("outputs", _value(entry)) for entry in graph.output]
    rows += [("initializers", f"{len(graph.initializer)}, {weights:,} numbers")]
    rows += [("nodes", f"{len(graph.node)}: " + ", ".join(f"{n} {name}" for name, n in operators.most_common()))]
    rows += [("normalizations", _normalization(node)) for node in graph.node if node.op_type in NORMALIZATIONS]
    labels = [name for name, _ in rows]
    return [("" if i and name == labels[i - 1] else name, text) for i, (name, text) in enumerate(rows)]


def _count(dims: Any) -> int:
    total = 1
    for length in dims:
        total *= length
    return total


def _value(entry: Any) -> str:
    """`x: float32 [batch, 1, 8, 8]`."""
    from onnx import helper

    kind = entry.type.tensor_type
    if not entry.type.HasField("tensor_type"):
        return f"{entry.name}: {entry.type.WhichOneof('value')}"
    try:
        dtype = str(helper.tensor_dtype_to_np_dtype(kind.elem_type))
    except KeyError:
        dtype = "unknown type"
    shape = [axis.dim_param or (str(axis.dim_value) if axis.HasField("dim_value") else "?") for axis in kind.shape.dim]
    return f"{entry.name}: {dtype} [{', '.join(shape)}]" if kind.HasField("shape") else f"{entry.name}: {dtype}"


def _normalization(node: Any) -> str:
    """The node with its mode and every number that decides its result."""
    from onnx import helper

    values = {**DEFAULTS[node.op_type], **{a.name: helper.get_attribute_value(a) for a in node.attribute}}
    training = values.pop("training_mode", 0)
    mode = ["training" if training or len(node.output) > 1 else "inference"] if node.op_type == DEFAULTS_MODE else []
    name = node.name or node.output[0]
    numbers = [f"{key}={value:g}" if isinstance(value, float) else f"{key}={value}" for key, value in values.items()]
    return f"{node.op_type} {name}: {', '.join(mode + numbers)}"


DEFAULTS_MODE = "BatchNormalization"  # the one normalization with a training mode


def _verdict(path: str, what: str) -> tuple[str, str, bool]:
    """(what, one line, passed) of the checker or of onnxruntime, asked in another process."""
    command = [sys.executable, "-m", "minorm.cli.probe", what, path]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIME_LIMIT, check=False)
    except subprocess.TimeoutExpired:
        return what, f"FAILED: no answer in {TIME_LIMIT} seconds", False
    if done.returncode < 0:
        return what, f"FAILED: crashed (signal {-done.returncode})", False
    lines = done.stdout.strip().splitlines() or done.stderr.strip().splitlines() or ["no answer"]
    return what, lines[-1] if done.returncode == 0 else f"FAILED: {lines[-1]}", done.returncode == 0
