"""Run cases on OpenVINO, on the CPU in accuracy mode; by default, OpenVINO computes in bfloat16 if this is faster."""

from __future__ import annotations

from typing import Any

import numpy as np

from minorm.conformance.adapters.files import as_file
from minorm.conformance.case import Case


def answer(case: Case) -> list[Any]:
    """Run the case on OpenVINO; return the outputs that the case asks for."""
    import openvino

    proto, x = as_file(case)
    core = openvino.Core()
    read = core.read_model(proto.SerializeToString())
    compiled = core.compile_model(read, "CPU", {"EXECUTION_MODE_HINT": "ACCURACY"})
    results = compiled({0: openvino.Tensor(np.ascontiguousarray(x))})
    return [np.array(results[output]) for output in compiled.outputs]
