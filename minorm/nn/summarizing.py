"""summary: shows a model as a table. The table has a line for each layer, in the order in which the layers run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from minorm.devices import dtypes
from minorm.graph.grad_mode import no_grad
from minorm.nn.module import Module
from minorm.support.documented import documented
from minorm.support.safe_names import printable
from minorm.tensor.tensor import Tensor


class Row(NamedTuple):
    """A line of the table: the layer's name and kind, the shape of its output, its numbers of parameters and
    multiplications, and the axes over which a normalization takes its statistics.
    """

    layer: str
    output_shape: str
    parameters: int
    multiplications: int
    reduces_over: str


class Summary:
    """The result of `summary`. `rows` holds the lines, and the total_ attributes hold sums. A Summary prints as a
    table.
    """

    def __init__(self, rows: list[Row], total_parameters: int, trainable_parameters: int) -> None:
        self.rows, self.total_parameters, self.trainable_parameters = rows, total_parameters, trainable_parameters
        self.total_multiplications = sum(row.multiplications for row in rows)

    def __repr__(self) -> str:
        head = ("layer", "output shape", "parameters", "multiplications", "norm over")
        lines = [head, *[(printable(r.layer), r.output_shape, f"{r.parameters:,}", f"{r.multiplications:,}",
                          r.reduces_over) for r in self.rows]]  # fmt: skip
        widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
        text = ["  ".join(part.rjust(w) if i in (2, 3) else part.ljust(w)
                          for i, (part, w) in enumerate(zip(line, widths, strict=True))).rstrip()
                for line in lines]  # fmt: skip
        text.insert(1, "-" * max(map(len, text)))
        text.append(text[1])
        text.append(
            f"parameters: {self.total_parameters:,}, trained: {self.trainable_parameters:,}; "
            f"multiplications: {self.total_multiplications:,}"
        )
        return "\n".join(text)


@documented(
    {},
    model="the Module",
    input_size="the shape of the input, or a list of shapes, with the batch axis",
    dtype="the type of the zeros",
)
def summary(model: Module, input_size: Sequence[Any], dtype: Any = dtypes.float32) -> Summary:
    """Runs a model once on zeros of size `input_size`, and lists the layers in a table, in the order in which they run.

    The model runs in evaluation mode, and its mode is restored afterwards. The multiplications of Linear and
    convolution layers are counted. "norm over" shows the axes over which a normalization takes its mean and variance.
    Returns a Summary, which prints as the table and has the attributes `rows`, `total_parameters`,
    `trainable_parameters` and `total_multiplications`.

    Example:
        >>> nn.summary(nn.Sequential(nn.Linear(4, 8), nn.ReLU()), (1, 4))
        layer       output shape  parameters  multiplications  norm over
        ----------------------------------------------------------------
        0 (Linear)  (1, 8)                40               32
        1 (ReLU)    (1, 8)                 0                0
        ----------------------------------------------------------------
        parameters: 40, trained: 40; multiplications: 32
    """
    shapes = [tuple(s) for s in input_size] if isinstance(input_size[0], (tuple, list)) else [tuple(input_size)]
    device = next((p.device for p in model.parameters()), "cpu")
    rows: list[Row] = []
    handles = []
    for name, module in model.named_modules():
        computed = "parametrizations" in name.split(".")  # a parametrization is part of its layer
        if not computed and all(child == "parametrizations" for child, _ in module.named_children()):

            def note(module: Module, inputs: Any, output: Any, name: str = name) -> None:
                rows.append(_row(name, module, inputs, output))

            handles.append(module.register_forward_hook(note))
    modes = [(module, module.training) for module in model.modules()]
    try:
        model.eval()
        with no_grad():
            model(*[Tensor(np.zeros(shape, dtype)).to(device) for shape in shapes])
    finally:
        for handle in handles:
            handle.remove()
        for module, training in modes:
            module.training = training
    parameters = list(model.parameters())
    trained = sum(p.numel() for p in parameters if p.requires_grad)
    return Summary(rows, sum(p.numel() for p in parameters), trained)


def _row(name: str, module: Module, inputs: tuple[Any, ...], output: Any) -> Row:
    first = output[0] if isinstance(output, (tuple, list)) else output
    kind, shape = type(module).__name__, tuple(getattr(first, "shape", ()))
    weight = getattr(module, "weight", None)
    count = 0
    if weight is not None and kind == "Linear":
        count = math.prod(shape) * weight.shape[1]
    elif weight is not None and kind.startswith("ConvTranspose"):
        count = inputs[0].numel() * math.prod(weight.shape[1:])
    elif weight is not None and kind.startswith("Conv"):
        count = math.prod(shape) * math.prod(weight.shape[1:])
    own = sum(p.numel() for p in module.parameters())
    return Row(f"{name} ({kind})" if name else kind, str(shape), own, count, _axes(kind, module, len(shape)))


def _axes(kind: str, module: Any, rank: int) -> str:
    """Return the axes over which a normalization takes its statistics."""
    if kind.startswith(("BatchNorm", "BatchRenorm", "SyncBatchNorm")):
        return str((0, *range(2, rank)))
    if kind == "GhostBatchNorm":
        return f"{(0, *range(2, rank))}, {module.virtual_batch_size} samples per group"
    if kind.startswith(("InstanceNorm", "FilterResponseNorm")):
        return str(tuple(range(2, rank)))
    if kind == "GroupNorm":
        return f"{(1, *range(2, rank))}, {module.num_groups} groups"
    if kind in ("LayerNorm", "RMSNorm"):
        return str(tuple(range(rank - len(module.normalized_shape), rank)))
    return str(getattr(module, "axes", "")) if kind in ("Normalization", "MeanVarianceNorm") else ""
