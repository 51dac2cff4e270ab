"""Run cases on tract, which is written in Rust."""

from __future__ import annotations

from typing import Any

from minorm.conformance.adapters.files import on_disk
from minorm.conformance.case import Case


def answer(case: Case) -> list[Any]:
    """Run the case on tract; return the outputs that the case asks for."""
    import tract

    with on_disk(case) as (path, x):
        runnable = tract.onnx().load(str(path)).into_model().into_runnable()
    return [value.to_numpy() for value in runnable.run([x])]
