"""Run cases on ncnn, with its converter pnnx; one sample at a time, because ncnn has no batch axis."""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

from minorm.conformance.adapters.files import on_disk
from minorm.conformance.case import Case


def answer(case: Case) -> list[Any]:
    """Return the output, computed sample by sample."""
    import ncnn

    if len(case.wanted) > 1:
        raise NotImplementedError("an ncnn layer has only one output")
    with on_disk(case) as (path, x):
        package = importlib.util.find_spec("pnnx")
        assert package is not None and package.origin is not None  # noqa: PT018  both or neither
        command = Path(package.origin).parent / "pnnx"
        shape = ",".join(map(str, x.shape))
        options = [str(path), f"inputshape=[{shape}]f32", "fp16=0"]
        done = subprocess.run([command, *options], cwd=path.parent, capture_output=True, text=True, check=False)
        text, weights = path.with_suffix(".ncnn.param"), path.with_suffix(".ncnn.bin")
        if done.returncode or not text.exists() or case.operator.lower()[:5] not in text.read_text().lower():
            raise NotImplementedError("the converter pnnx does not know this operator")
        net = ncnn.Net()
        net.opt.use_fp16_packed = net.opt.use_fp16_storage = net.opt.use_fp16_arithmetic = False
        net.opt.use_bf16_storage = False
        if net.load_param(str(text)) or net.load_model(str(weights)):
            raise NotImplementedError("ncnn does not load the file that the converter pnnx wrote")
        found = []
        for sample in x:
            run = net.create_extractor()
            run.input("in0", ncnn.Mat(np.ascontiguousarray(sample)).clone())
            status, y = run.extract("out0")
            if status:
                raise NotImplementedError(f"extract gives {status}")
            found.append(np.array(y))
    return [np.stack(found) if found else np.zeros_like(x)]
