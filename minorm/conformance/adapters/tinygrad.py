"""Run cases on tinygrad's ONNX frontend, with its interpreter, because tinygrad's CPU device needs clang."""

from __future__ import annotations

from typing import Any

from minorm.conformance.adapters.files import on_disk
from minorm.conformance.case import Case
from minorm.devices.dtypes import bfloat16


def answer(case: Case) -> list[Any]:
    """Run the case on tinygrad; return the outputs that the case asks for."""
    from tinygrad.nn.onnx import OnnxRunner

    with on_disk(case) as (path, x):
        results = OnnxRunner(str(path))({"i0": x})
        found = [results[name] for _, name in case.wanted]
        return [y.numpy().astype(bfloat16) if "bfloat16" in str(y.dtype) else y.numpy() for y in found]
