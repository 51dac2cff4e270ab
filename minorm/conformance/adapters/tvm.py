"""Run cases on Apache TVM, with its ONNX frontend and LLVM."""

from __future__ import annotations

from typing import Any

from minorm.conformance.adapters.files import as_file
from minorm.conformance.case import Case


def answer(case: Case) -> list[Any]:
    """Run the case on TVM; return the outputs that the case asks for."""
    import tvm
    from tvm import relax
    from tvm.relax.frontend.onnx import from_onnx

    proto, x = as_file(case)
    machine = relax.VirtualMachine(relax.build(from_onnx(proto), target="llvm"), tvm.cpu())
    results = machine["main"](tvm.runtime.tensor(x))
    return [y.numpy() for y in ([results] if hasattr(results, "numpy") else results)]
