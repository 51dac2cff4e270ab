"""onnxruntime computing in exact integers."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture
def onnxruntime_answers() -> Any:
    """proto, array -> the first output. Without VNNI its kernels saturate sums of two products at 16 bits, unless
    weights become uint8, which this option asks for.
    """
    runtime = pytest.importorskip("onnxruntime")

    def run(proto: Any, x: Any) -> Any:
        options = runtime.SessionOptions()
        options.log_severity_level = 3
        options.intra_op_num_threads = 1
        options.add_session_config_entry("session.x64quantprecision", "1")
        source = proto if isinstance(proto, str) else proto.SerializeToString()
        session = runtime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
        return session.run(None, {session.get_inputs()[0].name: x})[0]

    return run
