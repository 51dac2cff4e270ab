"""Who is asked, and how: a function a runtime, from a case to the arrays that it gives for the outputs fetched.

An exception is an answer too: the runtime refuses the case. Each is called in another process (runtime_process.py),
and imports what it needs when it is called.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from minorm.conformance import torch_calls
from minorm.conformance.case import Case, model
from minorm.devices.dtypes import bfloat16
from minorm.onnx import backend
from minorm.onnx.checking import sandbox_worker


@dataclass(frozen=True)
class Runtime:
    """answer: "module:function" of what is called; packages: what must be installed, the first names the version."""

    name: str
    answer: str
    packages: tuple[str, ...]


def minorm(case: Case) -> list[Any]:
    """As `minorm.onnx.load` reads the file."""
    return list(backend.run_model(model(case), case.feeds()))


def onnxruntime(case: Case) -> list[Any]:
    """On the CPU. It gets the caller's own arrays, as from a user's script; of bfloat16, which NumPy lacks, copies."""
    session = sandbox_worker.start(model(case).SerializeToString())
    feeds = case.feeds()
    if not any(array.dtype == bfloat16 for array in feeds.values()):
        return list(session.run(None, feeds))
    kinds = {n: (a, sandbox_worker.BFLOAT16 if a.dtype == bfloat16 else 0) for n, a in feeds.items()}
    return [array.view(bfloat16) if kind else array for array, kind in sandbox_worker.run(session, kinds)]


def reference(case: Case) -> list[Any]:
    """The evaluator of the onnx package."""
    from onnx.reference import ReferenceEvaluator

    return list(ReferenceEvaluator(model(case)).run(None, case.feeds()))


def torch(case: Case) -> list[Any]:
    """The function of PyTorch that computes the same, its own conventions translated."""
    return torch_calls.answer(case)


RUNTIMES = {
    name: Runtime(name, f"{__name__}:{function.__name__}", packages)
    for name, function, packages in (
        ("minorm", minorm, ("minorm",)),
        ("onnxruntime", onnxruntime, ("onnxruntime",)),
        ("reference", reference, ("onnx",)),
        ("torch", torch, ("torch",)),
    )
}
Answer = Callable[[Case], list[Any]]
