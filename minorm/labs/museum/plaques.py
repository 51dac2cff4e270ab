"""Holds a plaque for each exhibit: its function, who shipped the fault, what users saw, and a page on the cause."""

from __future__ import annotations

from typing import NamedTuple


class Plaque(NamedTuple):
    """A plaque: the exhibit's function, the tool that shipped the fault, and what users saw.

    complaint: what a user saw; page: the page in docs/conformance/ that names the cause
    """

    function: str
    tool: str
    version: str
    operator: str
    complaint: str
    page: str


PLAQUES = {
    "A": Plaque(
        "batch_norm", "onnx's reference", "1.23.2", "BatchNormalization 9",
        "in training, y changes with the running statistics", "blends-statistics.md",
    ),
    "B": Plaque(
        "batch_norm", "TVM", "0.27.0.post1", "BatchNormalization 15",
        "after one batch, the old running mean is nearly gone", "momentum-the-other-way.md",
    ),
    "C": Plaque(
        "batch_norm", "PaddlePaddle", "3.3.1", "BatchNormalization 15",
        "with a batch of one, nothing is normalized", "one-value-a-channel.md",
    ),
    "D": Plaque(
        "group_norm", "onnxruntime", "1.32.0", "GroupNormalization 21",
        "readings near 10000 come out far too small", "variance-by-squares.md",
    ),
    "E": Plaque(
        "group_norm", "ncnn", "1.0.20261020", "GroupNormalization 18",
        "half of the channels come out as they went in", "scale-of-each-group.md",
    ),
    "F": Plaque(
        "layer_norm", "ncnn", "1.0.20261020", "LayerNormalization 17",
        "images come out striped", "several-axes.md",
    ),
    "G": Plaque(
        "layer_norm", "onnxruntime", "1.32.0", "LayerNormalization 17",
        "the output is 0, and nothing says why", "squares-overflow.md",
    ),
    "H": Plaque(
        "lp_norm", "tinygrad", "0.14.0", "LpNormalization 22",
        "in float16, embeddings become 0", "computes-in-16-bits.md",
    ),
}  # fmt: skip


def guide(causes: bool = False) -> str:
    """Return a table of the exhibits: with the users' complaints, or, if `causes` is true, with links to the causes."""
    rows = []
    for letter, plaque in PLAQUES.items():
        shipped = f"{plaque.tool} {plaque.version}"
        last = f"docs/conformance/{plaque.page}" if causes else plaque.complaint
        rows.append(f"{letter}  {plaque.function:11}  {shipped:24}  {plaque.operator:22}  {last}")
    return "\n".join(rows)
