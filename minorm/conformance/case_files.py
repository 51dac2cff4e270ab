"""Write a list of cases to disk for the process with the runtime: arrays as safetensors, other fields as JSON."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Sequence
from typing import Any

from minorm.conformance.case import Case
from minorm.serialization import safetensors_file

WORDS, NUMBERS = "cases.json", "cases.safetensors"
ARRAYS = ("inputs", "beside")


def write(cases: Sequence[Case], folder: str) -> None:
    """Write the cases into this folder."""
    arrays, words = {}, []
    for place, case in enumerate(cases):
        arrays.update({f"{place}.{i}": array for i, array in enumerate(case.inputs)})
        if case.beside is not None:
            arrays[f"{place}.beside"] = case.beside
        fields = dataclasses.fields(case)
        words.append({f.name: getattr(case, f.name) for f in fields if f.name not in ARRAYS})
    safetensors_file.write(arrays, os.path.join(folder, NUMBERS))
    with open(os.path.join(folder, WORDS), "w", encoding="utf-8") as file:
        json.dump(words, file)


def read(folder: str) -> list[Case]:
    """Read the cases in this folder; return an empty list if the folder has no cases."""
    path = os.path.join(folder, WORDS)
    if not os.path.exists(path):
        return []
    arrays = safetensors_file.read(os.path.join(folder, NUMBERS))[0]
    with open(path, encoding="utf-8") as file:
        return [_case(place, entry, arrays) for place, entry in enumerate(json.load(file))]


def _case(place: int, entry: dict[str, Any], arrays: dict[str, Any]) -> Case:
    inputs: list[Any] = []
    while f"{place}.{len(inputs)}" in arrays:
        inputs.append(arrays[f"{place}.{len(inputs)}"])
    words: dict[str, Any] = {
        name: tuple(value) if name in ("outputs", "held") else value for name, value in entry.items()
    }
    return Case(inputs=tuple(inputs), beside=arrays.get(f"{place}.beside"), **words)
