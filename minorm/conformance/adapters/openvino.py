"""OpenVINO on the CPU, told to be accurate: by default it computes in bfloat16 where that is faster."""

from __future__ import annotations

from typing import Any

import numpy as np

from minorm.conformance.adapters.files import as_file
from minorm.conformance.case import Case


def answer(case: Case) -> list[Any]:
    """The outputs that are fetched."""
    import openvino

    proto, x = as_file(case)
    core = openvino.Core()
    read = core.read_model(proto.SerializeToString())
    compiled = core.compile_model(read, "CPU", {"EXECUTION_MODE_HINT": "ACCURACY"})
    results = compiled({0: openvino.Tensor(np.ascontiguousarray(x))})
    return [np.array(results[output]) for output in compiled.outputs]
