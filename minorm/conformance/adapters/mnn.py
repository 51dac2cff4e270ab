"""Run cases on MNN, with its converter and its Python module."""

from __future__ import annotations

from typing import Any

import numpy as np

from minorm.conformance.adapters.files import on_disk
from minorm.conformance.case import Case


def answer(case: Case) -> list[Any]:
    """Run the case on MNN; return the outputs that the case asks for."""
    import _tools  # the code behind `mnnconvert`; an import of MNN.tools would install packages
    from MNN import expr, nn

    names = [name for _, name in case.wanted]
    with on_disk(case) as (path, x):
        written = path.with_suffix(".mnn")
        options = ["-f", "ONNX", "--modelFile", str(path), "--MNNModel", str(written), "--bizCode", "case"]
        _tools.mnnconvert(["mnnconvert", *options])
        if not written.exists():
            raise NotImplementedError("MNN's converter writes no file")
        net = nn.load_module_from_file(str(written), ["i0"], names)
        given = expr.const(np.ascontiguousarray(x), list(x.shape), expr.NCHW)
        results = net.forward([given])
        return [np.array(expr.convert(y, expr.NCHW).read()) for y in results]
