"""The process that `runtime_calls.py` starts: it runs each case on a runtime, and records its progress.

    main(FOLDER, {"outputs": "module:function"}, cases...)

A line goes to FOLDER/progress before and after each case, so that, if this process dies, the parent process knows which
case it was running. The arrays go to FOLDER/<case>.safetensors.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from minorm.conformance import case_files
from minorm.conformance.case import Case
from minorm.conformance.cases import all_cases
from minorm.onnx.checking.sandbox_worker import limit_resources
from minorm.serialization import safetensors_file

MEMORY, SECONDS = 16 << 30, 3600.0  # limits of address space and processor time for all cases of a process
SHORT = 160  # the most characters of a message
ADDED = re.compile(r"^(NotImplementedError: |\w+: \[ONNXRuntimeError\] : \d+ : )")  # prefixes of the runtime's message


def main(folder: str, functions: Mapping[str, str], places: Sequence[int], package: str) -> None:
    """Run the cases at these indices.

    They are indices into the folder's list of cases or, if there is no list, into `all_cases()`.
    """
    limit_resources(MEMORY, SECONDS)
    importlib.import_module(package)  # if this fails, the runtime does not run at all
    cases = case_files.read(folder) or all_cases()
    asked = {cases[place].kind for place in places}
    ask = {kind: _function(name) for kind, name in functions.items() if kind in asked}
    warnings.simplefilter("ignore")
    with open(os.path.join(folder, "progress"), "a", encoding="utf-8", buffering=1) as progress:

        def say(**what: Any) -> None:
            progress.write(json.dumps(what) + "\n")

        say(ready=True)
        for place in places:
            say(begin=place)
            say(**_one(ask[cases[place].kind], cases[place], place, os.path.join(folder, f"{place}.safetensors")))


def _function(name: str) -> Callable[[Case], list[Any]]:
    module, _, function = name.partition(":")
    found: Callable[[Case], list[Any]] = getattr(importlib.import_module(module), function)
    return found


def _one(ask: Any, case: Case, place: int, path: str) -> dict[str, Any]:
    before = [array.copy() for array in case.inputs]
    try:
        with np.errstate(all="ignore"):
            results = [np.asarray(value) for value in ask(case)]
        safetensors_file.write({str(i): array for i, array in enumerate(results)}, path)
    except Exception as error:  # noqa: BLE001  any exception is the answer
        said = ADDED.sub("", " ".join(f"{type(error).__name__}: {error}".split()))
        return {"refused": place, "why": said if len(said) <= SHORT else f"{said[:SHORT]}..."}
    changed = [i for i, (a, b) in enumerate(zip(case.inputs, before, strict=True)) if a.tobytes() != b.tobytes()]
    return {"answered": place, "overwrote": changed}
