"""Run cases on OpenCV's module dnn."""

from __future__ import annotations

from typing import Any

import numpy as np

from minorm.conformance.adapters.files import as_file
from minorm.conformance.case import Case


def answer(case: Case) -> list[Any]:
    """Run the case on OpenCV; return the outputs that the case asks for."""
    import cv2

    proto, x = as_file(case)
    net = cv2.dnn.readNetFromONNX(np.frombuffer(proto.SerializeToString(), np.uint8))
    net.setInput(np.ascontiguousarray(x), "i0")
    return list(net.forward([name for _, name in case.wanted]))
