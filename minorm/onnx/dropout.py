"""Dropout: nothing in the inference form; in the training form the operator, whose mode each version says its own way.

7 and 10 have no mode: a runtime that does inference ignores them. 12: `ratio` and `training_mode` are inputs.
"""

from __future__ import annotations

import numpy as np

import minorm.functional as F
from minorm import dtypes
from minorm.onnx.graph import Graph, Value
from minorm.onnx.registry import writes


@writes(F.dropout, "Dropout", since=(7, 10))
def write_7(g: Graph, x: Value, p: float, training: bool) -> Value:
    g.warn("before opset 12 a Dropout node does not say whether it trains; most runtimes treat it as the identity")
    return g.add("Dropout", x, ratio=float(p))


@writes(F.dropout, "Dropout", since=(12, 13, 22))
def write_12(g: Graph, x: Value, p: float, training: bool) -> Value:
    ratio = g.constant(p, dtypes.float32, "ratio")
    return g.add("Dropout", x, ratio, g.constant(training, np.bool_, "training_mode"), shape=x.shape)
