"""When each ONNX operator changed: the opsets that published a new version of it.

A node says only `BatchNormalization`; which text defines it follows from the model's opset. The version in
force is the newest one published at or before that opset, its *since-version*:

    resolve("BatchNormalization", 13) == 9        resolve("BatchNormalization", 20) == 15

The table is data of ours, so that nothing needs the onnx package to read it; a test compares every entry with
`onnx.defs` at every opset.
"""

from __future__ import annotations

OLDEST_EXPORT = 7  # opset 7 brought NumPy's broadcasting; older arithmetic is another language
NEWEST = 28  # the newest opset this table knows
# What export chooses from where no opset is asked for: 17 brought LayerNormalization, and 26 is the newest that
# onnxruntime runs (from 1.25 on; 1.31 still refuses 27: "under development").
DEFAULTS = range(17, 27)

# The ir_version of the onnx release that brought an opset, which is the least that may carry it. Before 4 every
# initializer also had to be a graph input, which let callers overwrite weights; no runtime in use is that old, so
# export starts at 4.
_IR_VERSIONS = ((28, 14), (25, 13), (24, 12), (23, 11), (21, 10), (19, 9), (15, 8), (12, 7), (11, 6), (10, 5))

PUBLISHED: dict[str, tuple[int, ...]] = {
    "Abs": (1, 6, 13),
    "Add": (1, 6, 7, 13, 14),
    "AffineGrid": (20,),
    "And": (1, 7),
    "ArgMax": (1, 11, 12, 13),
    "ArgMin": (1, 11, 12, 13),
    "Atan": (7, 22),
    "AveragePool": (1, 7, 10, 11, 19, 22),
    "BatchNormalization": (1, 6, 7, 9, 14, 15),
    "Bernoulli": (15, 22),
    "Cast": (1, 6, 9, 13, 19, 21, 23, 24, 25, 28),
    "CastLike": (15, 19, 21, 23, 24, 25),
    "Ceil": (1, 6, 13),
    "Celu": (12, 28),
    "Clip": (1, 6, 11, 12, 13),
    "Concat": (1, 4, 11, 13),
    "ConcatFromSequence": (11,),
    "Constant": (1, 9, 11, 12, 13, 19, 21, 23, 24, 25),
    "ConstantOfShape": (9, 20, 21, 23, 24, 25),
    "Conv": (1, 11, 22),
    "ConvTranspose": (1, 11, 22),
    "Cos": (7, 22),
    "CumProd": (26,),
    "CumSum": (11, 14),
    "DepthToSpace": (1, 11, 13, 28),
    "DequantizeLinear": (10, 13, 19, 21, 23, 24, 25, 28),
    "Div": (1, 6, 7, 13, 14),
    "Dropout": (1, 6, 7, 10, 12, 13, 22),
    "DynamicQuantizeLinear": (11,),
    "Einsum": (12, 28),
    "Elu": (1, 6, 22),
    "Equal": (1, 7, 11, 13, 19),
    "Erf": (9, 13),
    "Exp": (1, 6, 13),
    "Expand": (8, 13),
    "Flatten": (1, 9, 11, 13, 21, 23, 24, 25),
    "Floor": (1, 6, 13),
    "GRU": (1, 3, 7, 14, 22),
    "Gather": (1, 11, 13),
    "GatherElements": (11, 13),
    "GatherND": (11, 12, 13),
    "Gelu": (20,),
    "Gemm": (1, 6, 7, 9, 11, 13),
    "GlobalAveragePool": (1, 22),
    "GlobalLpPool": (1, 2, 22),
    "GlobalMaxPool": (1, 22),
    "Greater": (1, 7, 9, 13),
    "GreaterOrEqual": (12, 16),
    "GridSample": (16, 20, 22),
    "GroupNormalization": (18, 21),
    "HardSigmoid": (1, 6, 22),
    "HardSwish": (14, 22),
    "Hardmax": (1, 11, 13),
    "If": (1, 11, 13, 16, 19, 21, 23, 24, 25),
    "Identity": (1, 13, 14, 16, 19, 21, 23, 24, 25),
    "InstanceNormalization": (1, 6, 22),
    "IsInf": (10, 20),
    "IsNaN": (9, 13, 20),
    "LRN": (1, 13),
    "LSTM": (1, 7, 14, 22),
    "LayerNormalization": (17,),
    "LeakyRelu": (1, 6, 16),
    "Less": (1, 7, 9, 13),
    "LessOrEqual": (12, 16),
    "Log": (1, 6, 13),
    "LogSoftmax": (1, 11, 13),
    "Loop": (1, 11, 13, 16, 19, 21, 23, 24, 25),
    "LpNormalization": (1, 22),
    "LpPool": (1, 2, 11, 18, 22),
    "MatMul": (1, 9, 13),
    "Max": (1, 6, 8, 12, 13),
    "MaxPool": (1, 8, 10, 11, 12, 22),
    "MaxUnpool": (9, 11, 22),
    "Mean": (1, 6, 8, 13),
    "MeanVarianceNormalization": (9, 13),
    "Min": (1, 6, 8, 12, 13),
    "Mish": (18, 22),
    "Mod": (10, 13, 28),
    "Mul": (1, 6, 7, 13, 14),
    "Multinomial": (7, 22),
    "Neg": (1, 6, 13),
    "NegativeLogLikelihoodLoss": (12, 13, 22),
    "Not": (1,),
    "OneHot": (9, 11, 28),
    "Or": (1, 7),
    "PRelu": (1, 6, 7, 9, 16),
    "Pad": (1, 2, 11, 13, 18, 19, 21, 23, 24, 25),
    "Pow": (1, 7, 12, 13, 15),
    "QuantizeLinear": (10, 13, 19, 21, 23, 24, 25, 28),
    "RMSNormalization": (23,),
    "RNN": (1, 7, 14, 22),
    "RandomNormal": (1, 22),
    "RandomNormalLike": (1, 22),
    "RandomUniform": (1, 22),
    "RandomUniformLike": (1, 22),
    "Range": (11, 27),
    "Reciprocal": (1, 6, 13),
    "ReduceL1": (1, 11, 13, 18),
    "ReduceL2": (1, 11, 13, 18),
    "ReduceLogSum": (1, 11, 13, 18, 28),
    "ReduceLogSumExp": (1, 11, 13, 18, 28),
    "ReduceMax": (1, 11, 12, 13, 18, 20),
    "ReduceMean": (1, 11, 13, 18),
    "ReduceMin": (1, 11, 12, 13, 18, 20),
    "ReduceProd": (1, 11, 13, 18),
    "ReduceSum": (1, 11, 13),
    "ReduceSumSquare": (1, 11, 13, 18),
    "Relu": (1, 6, 13, 14),
    "Reshape": (1, 5, 13, 14, 19, 21, 23, 24, 25),
    "Resize": (10, 11, 13, 18, 19),
    "Round": (11, 22),
    "Scan": (8, 9, 11, 16, 19, 21, 23, 24, 25),
    "Scatter": (9, 11),
    "ScatterElements": (11, 13, 16, 18),
    "ScatterND": (11, 13, 16, 18),
    "Selu": (1, 6, 22),
    "SequenceAt": (11,),
    "SequenceConstruct": (11,),
    "SequenceEmpty": (11,),
    "SequenceErase": (11,),
    "SequenceInsert": (11,),
    "SequenceLength": (11,),
    "Shape": (1, 13, 15, 19, 21, 23, 24, 25),
    "Sigmoid": (1, 6, 13),
    "Sign": (9, 13),
    "Sin": (7, 22),
    "Size": (1, 13, 19, 21, 23, 24, 25),
    "Slice": (1, 10, 11, 13),
    "Softmax": (1, 11, 13),
    "SoftmaxCrossEntropyLoss": (12, 13),
    "Softplus": (1, 22),
    "Softsign": (1, 22),
    "SpaceToDepth": (1, 13, 28),
    "SplitToSequence": (11, 24),
    "Split": (1, 2, 11, 13, 18),
    "Sqrt": (1, 6, 13),
    "Squeeze": (1, 11, 13, 21, 23, 24, 25),
    "Sub": (1, 6, 7, 13, 14),
    "Sum": (1, 6, 8, 13),
    "Swish": (24,),
    "Tan": (7, 22),
    "Tanh": (1, 6, 13),
    "ThresholdedRelu": (10, 22),
    "Tile": (1, 6, 13),
    "TopK": (1, 10, 11, 24),
    "Transpose": (1, 13, 21, 23, 24, 25),
    "Trilu": (14,),
    "Unsqueeze": (1, 11, 13, 21, 23, 24, 25),
    "Upsample": (1, 7, 9, 10),
    "Where": (9, 16),
    "Xor": (1, 7),
}


def resolve(operator: str, opset: int) -> int:
    """The since-version of `operator` in force at `opset`; LookupError where it did not exist yet."""
    versions = PUBLISHED.get(operator)
    if versions is None:
        raise LookupError(f"minorm does not have the operator {operator}")
    found = [since for since in versions if since <= opset]
    if not found:
        raise LookupError(f"{operator} exists from opset {versions[0]} on; the model's opset is {opset}")
    return found[-1]


def exists(operator: str, opset: int) -> bool:
    """Whether `operator` was published at or before `opset`."""
    return PUBLISHED[operator][0] <= opset


def ir_version(opset: int) -> int:
    """The ir_version to write for `opset`: that of the onnx release that brought it, and at least 4."""
    return next((ir for since, ir in _IR_VERSIONS if opset >= since), 4)
