"""The results of onnxruntime for a model, as the expected values of a test."""

from __future__ import annotations

from typing import Any

import pytest


def expected(proto: Any, *arrays: Any, exact: bool = False) -> list[Any]:
    """The outputs for these inputs, in their order; the types that the model declares of outputs do not count.

    exact    sums of bytes are cut off nowhere, not on processors without VNNI either
    """
    onnxruntime = pytest.importorskip("onnxruntime")
    model = type(proto).FromString(proto.SerializeToString())
    for entry in model.graph.output:
        entry.ClearField("type")
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    if exact:
        options.add_session_config_entry("session.x64quantprecision", "1")
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    names = [entry.name for entry in session.get_inputs()]
    return list(session.run(None, dict(zip(names, arrays, strict=True))))
