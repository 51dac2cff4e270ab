"""Convert a model to another opset by rewriting its nodes one by one.

Conversion does not run the model and guesses nothing. So free lengths stay free, nodes that need no change stay
unchanged, and operators that minorm does not know are copied. `rewriting.py` walks through the graph. `steps.py`
converts a node from each version of its operator to the next. The rules for these steps are in `operators/`, beside the
readers and writers of the same operator. `equivalence.py` compares the old file with the new one.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

import onnx
from onnx import TensorProto

from minorm.onnx.conversion import describing
from minorm.onnx.conversion.constant_folding import folded, with_constants
from minorm.onnx.conversion.equivalence import against
from minorm.onnx.conversion.rewriting import Rewriter
from minorm.onnx.graph import encoding, external, tensors, versions
from minorm.onnx.graph.errors import LoadError
from minorm.onnx.graph.external import Path, Weights
from minorm.onnx.graph.lengths import Shapes
from minorm.onnx.graph.node_rewriter import Kinds, tensors_of
from minorm.onnx.graph.tensors import Budget
from minorm.onnx.loading import validation
from minorm.onnx.loading.load import Source, parse
from minorm.serialization import limits
from minorm.support.argument_errors import checked
from minorm.support.documented import documented


@documented(
    {},
    source="a path, the file's bytes, or an onnx.ModelProto, of any opset",
    path="a file name, or a binary file; None writes no file",
    opset_version="7 to the newest",
    shapes='lengths of inputs, {"x": (1, 3, 224, 224)}, or the length of a free axis, {"height": 224}. These lengths '
    "become fixed in the file, and `verify` uses them. All other free axes stay free",
    sizes=(
        "lengths in the form of `shapes`, with which `verify` runs the model if guessing fails; the file's axes stay "
        "free"
    ),
    external_data="True: weights go to a separate file beside `path`; False: never; None: weights outside the "
    "file stay outside",
    verify=(
        "True runs the old and the new file in onnxruntime on random inputs, with three lengths of every free axis, "
        "and compares the results; nothing is written if they differ. If onnxruntime does not run the old file, a "
        "warning says so"
    ),
    max_bytes="a limit in bytes for the file and its weights",
    external_root="a folder that you trust, as for `load`: weights in other files may be links to files in it",
)
@checked
def convert(
    source: Source,
    path: Path = None,
    *,
    opset_version: int,
    shapes: Shapes | None = None,
    sizes: Shapes | None = None,
    external_data: bool | None = None,
    verify: bool = False,
    max_bytes: int = limits.ONNX,
    external_root: str | os.PathLike[str] | None = None,
) -> onnx.ModelProto:
    """Convert the model in `source` to another opset, write it to `path`, and return the onnx.ModelProto.

    A node is copied if its operator has the same version at both opsets, and otherwise changed in place. If the opset
    lacks the operator of a node, the node is replaced by several nodes. Names, order, metadata, functions and the mode
    of each layer stay. Raises LoadError if the file is damaged. If nodes have no form at the opset, an ExportError
    names all these nodes. If the old and the new model differ, a VerifyError names the size of the input and the first
    wrong node.

    Example:
        >>> written = mn.onnx.export(nn.GELU(), mn.ones(1, 2), opset_version=20)
        >>> [node.op_type for node in written.graph.node]
        ['Gelu']
        >>> older = mn.onnx.convert(written, opset_version=13)  # which has no Gelu
        >>> sorted({node.op_type for node in older.graph.node})
        ['Add', 'Constant', 'Erf', 'Mul']
    """
    if (
        isinstance(opset_version, bool)
        or not isinstance(opset_version, int)
        or not (versions.OLDEST_EXPORT <= opset_version <= min(versions.NEWEST, onnx.defs.onnx_opset_version()))
    ):
        newest = min(versions.NEWEST, onnx.defs.onnx_opset_version())
        raise ValueError(
            f"convert: opset_version is {opset_version!r}; expected an int from {versions.OLDEST_EXPORT} to {newest}"
        )
    if isinstance(max_bytes, bool) or not isinstance(max_bytes, int) or max_bytes < 1:
        raise ValueError(f"convert: max_bytes is {max_bytes!r}; expected a number of bytes, at least 1")
    old, folder = parse(source, max_bytes, external_root=external_root)
    validation.opsets_of(old)
    if opset_version < 11 and old.graph.sparse_initializer:
        raise LoadError("convert: the model has sparse initializers, which need opset 11 or newer")
    encoding.reserve(3 * sum(len(tensor.raw_data) for tensor in old.graph.initializer), "convert: a copy of the model")
    new = onnx.ModelProto()
    new.CopyFrom(old)
    lengths = describing.fix(new.graph, shapes or {})
    lengths |= describing.tried(new.graph, sizes or {})
    find = rewrite(new, opset_version)
    if shapes:
        describing.describe_anew(new)
    if not all(entry.type.tensor_type.HasField("shape") for entry in new.graph.output):
        describing.describe_outputs(new.graph, find().get("", {}))
    comparison = against(old, folder, lengths) if verify else None
    if comparison is not None:
        comparison.correct(new, folder)
    weights = _weights(new, path, folder, external_data, Budget(max_bytes))
    external.write(new, path, weights, comparison.check if comparison else None)
    return new


def rewrite(model: Any, opset: int) -> Callable[[], Kinds]:
    """Rewrite the model in place for another opset.

    Return a function that infers the types and lengths of the model's values. The model may lack the contents of large
    tensors.
    """
    bare = describing.skeleton(model)
    fixed = functools.cache(functools.partial(folded, bare))
    find = functools.cache(lambda: describing.kinds(with_constants(bare, fixed())))
    Rewriter(model, opset, find, fixed).rewrite()
    model.ir_version = describing.ir_version(model, opset)
    return find


# Weights and files


def _weights(model: Any, path: Path, folder: str | None, asked: bool | None, budget: Budget) -> Weights:
    """Read the weights that are in other files, and collect the weights that go to a separate file beside `path`."""
    name = path if isinstance(path, (str, os.PathLike)) else None
    if asked is None and name is not None:
        asked = any(t.data_location == TensorProto.EXTERNAL for t in model.graph.initializer) or None
    weights = Weights(name, asked, "convert")
    everything = list(tensors_of(model))
    outside = [t for t in everything if t.data_location == TensorProto.EXTERNAL]
    if not outside and not asked:
        return weights
    there = {id(tensor) for tensor in outside}
    arrays = [
        (tensor, tensors.read(tensor, f"initializer {tensor.name!r}", folder, budget))
        for tensor in everything
        if id(tensor) in there or (asked and tensor.data_type in tensors.DTYPES)
    ]
    weights.decide([array for _, array in arrays])
    mine = {id(tensor) for tensor in model.graph.initializer}
    for tensor, array in arrays:
        goes = weights.active and id(tensor) in mine and array.nbytes >= external.LEAST
        if not goes and id(tensor) not in there:
            continue
        encoding.describe(tensor, array)
        if not (goes and weights.take(array, tensor)):
            encoding.fill([(tensor, array)], "convert")
    return weights
