"""Find out whether a tensor's name comes from a module, from a person, or from a program that numbers tensors.

    MODULE    a module's tensor: `layer1.0.conv1.weight`, TensorFlow's `model/dense/MatMul/ReadVariableOp:0`,
              Paddle's `linear_0.w_0`; in a file of PyTorch's older exporter also `cls_token`, a tensor of the outermost
              module
    PLAIN     a word that a person may have given to anything: `kernel`, `eps`
    TOOL      a number or a path that a program made up: `onnx::Mul_7`, `497`, `/fc/Transpose_output_0`, `val_12`,
              Paddle's `helper.constant.3`

A foreign file may have any names, so each check of a name takes a time proportional to the name's length at most.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from minorm.onnx.loading import metadata

KIND = "pkg.torch.export.graph_signature.InputSpec.kind"
PARAMETER = "PARAMETER"


class Form(enum.Enum):
    """The author of a name: a module, a person or a program."""

    MODULE = "a module"
    PLAIN = "a person"
    TOOL = "a program"


_WORD = re.compile(r"[^\W\d]\w*")
_DOTTED = re.compile(r"\w+(\.\w+)+")
_COUNTERS = re.compile(r"(_\d+)+")
_DIGITS = "0123456789"
_TORCH_COUNTS = re.compile(r"val_\d+|scalar_tensor_default\w*|lifted_tensor\w*|_tensor_constant\d*|_inlfunc\w*")
_COUNTED = re.compile(r"scalar_tensor_default|lifted_tensor|_tensor_constant\d*|[Cc]onst\d*")
_PROGRAMS = ("p2o.", "helper.", "auto.")  # prefixes of Paddle2ONNX's own names
_TEMPORARY = re.compile(r"tmp_\d+|\d+")  # the last part of a dotted name that Paddle's programs number
_TENSORS = (
    "kernel", "bias", "gamma", "beta", "alpha", "embeddings", "weight", "weights", "recurrent_kernel",
    "depthwise_kernel", "pointwise_kernel",
)  # fmt: skip
_LITERALS = re.compile(
    r"(eps|epsilon|zeros?|ones?|two|three|four|half|quarter|pi|infinity|sqrt\w*|rsqrt\w*|inv_sqrt\w*|(min|max)_?val\w*|"
    r"const|(neg|minus|literal)(_\w+)?)",
    re.IGNORECASE,
)
_STATISTICS = frozenset(
    f"{kind}_{name}" for kind in ("running", "moving", "pixel", "image") for name in ("mean", "var", "std")
) | {"mean", "std", "moving_variance", "num_batches_tracked"}
_TABLES = frozenset((
    "anchors", "anchor_grid", "noise_const", "inv_freq", "cos_cached", "sin_cached", "freqs_cos", "freqs_sin",
    "freqs_cis", "masked_bias", "causal_mask", "attn_mask",
))  # fmt: skip
_BUFFER = ("_buffer", "_buf")


@dataclass
class Origin:
    """Holds the statements of a file about its producer and its tensors.

    kinds      name -> PARAMETER and the like; empty if the file does not say
    scripted   True if PyTorch's older exporter wrote the file; then only names that the exporter made up have colons
               and slashes
    """

    producer: str = ""
    kinds: Mapping[str, str] = field(default_factory=dict)
    scripted: bool = False

    @property
    def ours(self) -> bool:
        """Return True if minorm wrote the file; then its initializers, not its Constants, are the model's tensors."""
        return self.producer == metadata.OURS

    @classmethod
    def of(cls, model: Any) -> Origin:
        """Read the statements of this model."""
        kinds = {}
        for entry in chain(model.graph.input, model.graph.value_info, model.graph.initializer):
            for item in entry.metadata_props:
                if item.key == KIND:
                    kinds[entry.name] = item.value
        newer = bool(kinds) or any(node.metadata_props for node in model.graph.node[:1])
        return cls(model.producer_name, kinds, scripted=model.producer_name == "pytorch" and not newer)

    def form(self, name: str) -> Form:
        """Return the kind of author that probably gave the name."""
        if self.kinds:
            return Form.MODULE if self.kinds.get(name) == PARAMETER else Form.TOOL
        if is_named_as_buffer(name):
            return Form.TOOL
        if self.scripted:
            return Form.MODULE if is_module_name(name) and not _TORCH_COUNTS.fullmatch(name) else Form.TOOL
        if "/" in name or ":" in name:
            return Form.MODULE if _is_variable(name) else Form.TOOL
        if _DOTTED.fullmatch(name):
            last = name.rpartition(".")[2]
            counted = _TEMPORARY.fullmatch(last) is not None and self.producer != "pytorch"
            return Form.TOOL if counted or name.startswith(_PROGRAMS) else Form.MODULE
        return Form.PLAIN if _WORD.fullmatch(name) and not _is_counted(name) else Form.TOOL

    def names(self, name: str) -> bool:
        """Return whether the file says that the tensor is a weight, by its declaration or by its name."""
        return self.form(name) is not Form.TOOL


def is_module_name(name: str) -> bool:
    """Return True if PyTorch's older exporter may give a module's tensor this name: words joined by dots."""
    return _WORD.fullmatch(name) is not None or _DOTTED.fullmatch(name) is not None


def _is_variable(name: str) -> bool:
    """Return True if a name is TensorFlow's name for a variable, or ends with a usual name of a layer's tensor."""
    if "ReadVariableOp" in name:
        return True
    last = name.rpartition(":")[0] or name
    last = last.removesuffix("/read").rpartition("/")[2].rpartition(".")[2]
    return last in _TENSORS or last.startswith(("weight_", "bias_"))


def _is_counted(name: str) -> bool:
    """Return whether a word ends with numbers (`mul_3`) or is a word that tools use for constants."""
    base = name.rstrip(f"_{_DIGITS}")
    return _COUNTED.fullmatch(name) is not None or bool(base and _COUNTERS.fullmatch(name[len(base) :]))


def is_literal(name: str) -> bool:
    """Return whether a word names a number rather than its purpose: `half`, `eps`, `one`."""
    return _LITERALS.fullmatch(name.rpartition(".")[2]) is not None


def is_named_as_buffer(name: str, siblings: Container[str] = ()) -> bool:
    """Return whether a name is usual for a buffer: for statistics, a known table, or a reparametrization's state.

    siblings    the other tensors of the file: `weight_u` and `weight_mask` are buffers if the file has a `weight_orig`
    """
    last = name.rpartition(".")[2]
    if last in _STATISTICS or last in _TABLES or last.endswith(_BUFFER):
        return True
    if last in ("_u", "_v"):  # the newer form of spectral_norm
        return ".parametrizations." in name or name.startswith("parametrizations.")
    base, _, part = name.rpartition("_")
    return part in ("u", "v", "mask") and f"{base}_orig" in siblings
