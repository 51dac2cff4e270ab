"""Lab 4: solutions with one mistake, written in another way than the classes that recognize it."""

from __future__ import annotations

STATISTICS = "return x.mean(axis=axes), x.var(axis=axes), x.size // x.shape[1]"
AXES = "axes = (0, *range(2, x.ndim))\n    return x.mean"
STEP = (
    "new_mean = mean * momentum + batch_mean * (1 - momentum)\n"
    "    new_var = var * momentum + batch_var * (1 - momentum)\n"
    "    return new_mean, new_var"
)
UNBIASED = "return var * m / (m - 1)"
CUMULATIVE = "return seen / (seen + 1)"
SHARE = 'momentum if convention == "pytorch" else 1 - momentum'
DEFAULTS = '"onnx": 0.1, "keras": 0.01, "pytorch": 0.1, "paper": None'
GIVEN = 'if momentum is not None and convention != "paper"'
BATCH_UNBIASED = 'if convention in ("pytorch", "paper"):'
START_ = "np.zeros(channels), np.ones(channels), []"
POINT = "        found.append((mean, var))\n"
INITIAL = "initial = (1 - torch_momentum) ** batches"
CORRECTED = "return (torch_running_var - initial) * (m - 1) / m + initial"
MADE: dict[str, list[tuple[str, str]]] = {
    "BatchAxisOnly": [(AXES, AXES.replace("(0, *range(2, x.ndim))", "0"))],
    "WithoutSamples": [(AXES, AXES.replace("(0, *range(2, x.ndim))", "tuple(range(2, x.ndim))"))],
    "EverythingReduced": [(STATISTICS, "return x.mean(), x.var(), x.size // x.shape[1]")],
    "OfSamples": [(AXES, AXES.replace("(0, *range(2, x.ndim))", "tuple(range(1, x.ndim))"))],
    "ImagesOnly": [(AXES, AXES.replace("(0, *range(2, x.ndim))", "(0, 2, 3)"))],
    "DivisorOneLess": [("x.var(axis=axes)", "x.var(axis=axes) * (x.size / x.shape[1]) / (x.size / x.shape[1] - 1)")],
    "StandardDeviation": [("x.var(axis=axes)", "x.var(axis=axes) ** 0.5")],
    "AxesKept": [(STATISTICS, STATISTICS.replace("axis=axes", "axis=axes, keepdims=True"))],
    "BatchSizeForM": [("x.size // x.shape[1]", "x.shape[0]")],
    "PositionsForM": [("x.size // x.shape[1]", "x[0, 0].size")],
    "AllElementsForM": [("x.size // x.shape[1]", "x.size")],
    "ChannelsForM": [("x.size // x.shape[1]", "x.shape[1]")],
    "MomentumReversed": [(STEP, "return mean + momentum * (batch_mean - mean), var + momentum * (batch_var - var)")],
    "MomentumForBoth": [(STEP, STEP.replace("(1 - momentum)", "momentum"))],
    "NewNotWeighted": [(STEP, STEP.replace(" * (1 - momentum)", ""))],
    "OldNotWeighted": [(STEP, STEP.replace("mean * momentum", "mean").replace("var * momentum", "var"))],
    "MomentumConstant": [(STEP, STEP.replace("momentum", "0.9"))],
    "VarianceReversed": [
        (
            STEP,
            STEP.replace("var * momentum + batch_var * (1 - momentum)", "(1 - momentum) * var + momentum * batch_var"),
        )
    ],
    "VarianceNotMoved": [(STEP, STEP.replace("var * momentum + batch_var * (1 - momentum)", "var"))],
    "UpdateUnbiased": [
        (
            "batch_mean, batch_var, _ = batch_statistics(x)\n",
            "batch_mean, batch_var, m = batch_statistics(x)\n    batch_var = batch_var / (m - 1) * m\n",
        )
    ],
    "BatchReturned": [(STEP, "return batch_mean, batch_var")],
    "FactorUpsideDown": [(UNBIASED, "return var - var / m")],
    "DividedOnly": [(UNBIASED, "return var / (m - 1)")],
    "OneMore": [(UNBIASED, "return m * var / (m + 1)")],
    "Unchanged": [(UNBIASED, "return 1.0 * var")],
    "OneBehind": [(CUMULATIVE, "return 1 - 1 / (seen + 2)")],
    "OneAhead": [(CUMULATIVE, "return max(seen - 1, 0) / max(seen, 1)")],
    "ShareOfNew": [(CUMULATIVE, "return 1 - seen / (seen + 1)")],
    "ShareOfAnyBatch": [(CUMULATIVE, "return 1 / seen")],
    "OnnxMeaning": [('"pytorch": 0.1', '"pytorch": 0.9'), (SHARE, "1 - momentum")],
    "OnnxMeaningOfGiven": [(SHARE, "1 - momentum")],
    "TorchMeaning": [('"onnx": 0.1, "keras": 0.01', '"onnx": 0.9, "keras": 0.99'), (SHARE, "momentum")],
    "TorchMeaningOfGiven": [(SHARE, "momentum")],
    "GivenIgnored": [(GIVEN, "if False")],
    "KerasAsOnnx": [('"keras": 0.01', '"keras": 0.1')],
    "PaperAsOnnx": [('"paper": None', '"paper": 0.1')],
    "TorchBiased": [(BATCH_UNBIASED, 'if convention == "paper":')],
    "PaperBiased": [(BATCH_UNBIASED, 'if convention == "pytorch":')],
    "NeverUnbiased": [(BATCH_UNBIASED, "if False:")],
    "AllUnbiased": [(BATCH_UNBIASED, "if True:")],
    "KerasUnbiased": [(BATCH_UNBIASED, 'if convention != "onnx":')],
    "VarianceFromZero": [(START_, "np.zeros(channels), np.zeros(channels), []")],
    "MeanFromOne": [(START_, "np.ones(channels), np.ones(channels), []")],
    "InitialIncluded": [(START_, "np.zeros(channels), np.ones(channels), [(np.zeros(channels), np.ones(channels))]")],
    "LastOnly": [(POINT + "    return found", POINT + "    return mean, var")],
    "SameArrays": [(POINT + "    return found", POINT + "    return [(mean, var) for _ in batches]")],
    "MomentumAsItIs": [("return 1 - torch_momentum", "return torch_momentum")],
    "InitialForgotten": [(CORRECTED, "return torch_running_var * (m - 1) / m")],
    "InitialOfOneBatch": [(INITIAL, "initial = 1 - torch_momentum")],
    "InitialReversed": [(INITIAL, "initial = torch_momentum**batches")],
    "InitialNotAdded": [(CORRECTED, "return (torch_running_var - initial) * (m - 1) / m")],
    "CorrectedUpwards": [(CORRECTED, "return (torch_running_var - initial) / (m - 1) * m + initial")],
    "NotCorrected": [(CORRECTED, "return torch_running_var")],
}
