"""Write, for each cause of a disagreement, a page and an ONNX file of less than a kilobyte that shows the error.

python -m minorm.conformance.cause_pages docs/conformance    runs all runtimes, and writes README.md, and NAME.md and
                                                             NAME.onnx for each cause
python -m minorm.conformance.cause_pages docs/conformance NAME    writes only the page and file of this cause

The file contains its numbers as defaults of its inputs, so `minorm conform NAME.onnx` needs no other data.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from typing import Any

import numpy as np
from onnx import ModelProto, numpy_helper

from minorm.conformance import runtime_calls
from minorm.conformance.adapters.files import declare_outputs
from minorm.conformance.case import GRADIENTS, Case, model
from minorm.conformance.causes import CAUSES, Cause
from minorm.conformance.defects import KNOWN
from minorm.conformance.framework_formula import due
from minorm.conformance.report import versions
from minorm.conformance.runtime_calls import CannotRun, Outcome
from minorm.conformance.runtimes import RUNTIMES, Runtime
from minorm.conformance.verdict import RIGHT, WRONG, judge
from minorm.serialization import atomic

NAMES = ("x", "scale", "bias", "mean", "var")  # names of inputs; an operator has the first 1, 2, 3 or all 5

INTRODUCTION = """# Why runtimes disagree

Each page shows one cause of wrong cells in [the table of all runtimes](../conformance.md). It has an ONNX file of less
than a kilobyte, the result of the formula in float64, and the results of the runtimes when the page was made. The files
contain their inputs, so `minorm conform NAME.onnx` runs them on the runtimes that you have.
"""


def file(case: Case) -> ModelProto:
    """Return the case as an ONNX file in which each input has its numbers as a default."""
    proto = model(case)
    declare_outputs(proto, case)
    for name, array in case.feeds().items():
        proto.graph.initializer.append(numpy_helper.from_array(array, name))
    proto.ir_version = max(4, proto.ir_version)  # from version 4 on, an input may have a default
    return proto


def answers(names: Sequence[str]) -> dict[str, dict[str, Outcome]]:
    """Run the cases of these causes on each installed runtime.

    Return a dict from causes to dicts from runtimes to outcomes.
    """
    found: dict[str, dict[str, Outcome]] = {name: {} for name in names}
    cases = [CAUSES[name].case for name in names]
    for runtime in RUNTIMES.values():
        if not runtime_calls.installed(runtime):
            continue
        places = [place for place, case in enumerate(cases) if case.kind in runtime.functions]
        try:
            outcomes = runtime_calls.ask(runtime, places, cases=cases)
        except CannotRun:
            continue
        for place in places:
            found[names[place]][runtime.name] = outcomes[place]
    return found


def text(cause: Cause, outcomes: Mapping[str, Outcome], version: Mapping[str, str | None]) -> str:
    """Return the page of a cause."""
    case, wrong, right = cause.case, [], []
    for name, outcome in outcomes.items():
        cell = judge(case, name, outcome)
        if cell.verdict == RIGHT:
            right.append(RUNTIMES[name].title)
        elif cell.verdict == WRONG and cell.cause == cause.name:
            wrong.append((RUNTIMES[name], _given(case, outcome, cell.said)))
    lines = [
        f"# {title(cause)}",
        f"A runtime {cause.text}.",
        f"{_node(case)}, in [{cause.name}.onnx]({cause.name}.onnx):",
        "```text\n" + "\n".join(f"{name} = {shown(array)}" for name, array in named(case)) + "\n```",
        "\n".join(["| who | what comes out |", "|---|---|", f"| the formula | {formula(case)} |",
                   *(f"| {_titled(runtime, version)} | {given} |" for runtime, given in wrong)]),
    ]  # fmt: skip
    if right:
        lines.append(f"Right: {', '.join(right)}.")
    lines.append(_how(cause, [runtime for runtime, _ in wrong]))
    return "\n\n".join(lines) + "\n"


def title(cause: Cause) -> str:
    """Return the name of a cause as a heading."""
    words = re.sub(r"(?<!1e)-", " ", cause.name).replace("nan", "NaN")
    return words[0].upper() + words[1:]


def named(case: Case) -> list[tuple[str, Any]]:
    """Return a pair (name, array) for each input. If the case asks for gradients, the gradient of y is included."""
    found = list(zip(NAMES, case.inputs, strict=False))
    return [*found, ("gradient of y", case.beside)] if case.kind == GRADIENTS else found


def formula(case: Case) -> str:
    """Return the expected numbers of each output as text, with the output's name."""
    values = due(case)
    return ", ".join(f"{name} = {shown(values[place][0], values[place][1])}" for place, name in case.wanted)


def shown(value: Any, dtype: Any = None) -> str:
    """Show an array in one line, with its type if it is not float32."""
    array = np.asarray(value)
    kind = np.dtype(array.dtype if dtype is None else dtype)
    line = _numbers(array.astype(np.float64), 12 if kind == np.float64 else 6)
    line = line if array.size else f"no values, of shape {array.shape}"
    return line if kind == np.float32 else f"{line} ({kind})"


def _numbers(array: Any, digits: int) -> str:
    if array.ndim:
        return f"[{', '.join(_numbers(part, digits) for part in array)}]"
    return f"{float(array):.{digits}g}"


def _given(case: Case, outcome: Outcome, said: str) -> str:
    if outcome.kind != "answered":
        return said
    pairs = zip(case.wanted, outcome.arrays, strict=False)
    given = ", ".join(f"{name} = {shown(array)}" for (_, name), array in pairs)
    return f"{given}; {said}" if outcome.overwrote or len(outcome.arrays) != len(case.wanted) else given


def _node(case: Case) -> str:
    more = ", ".join(f"{name} {value}" for name, value in case.attributes.items())
    what = "Gradients of " if case.kind == GRADIENTS else ""
    return f"{what}{case.operator}, opset {case.opset}{f', {more}' if more else ''}"


def _titled(runtime: Runtime, version: Mapping[str, str | None]) -> str:
    module = runtime.name if runtime.name in runtime.packages else runtime.packages[0]
    package = metadata.packages_distributions().get(module, [module])[0]
    return f"{runtime.title} {version.get(package) or ''}".strip()


def _runtimes_of(cause: Cause) -> list[str]:
    return list(dict.fromkeys(name for defect in KNOWN if defect.cause == cause.name for name in defect.runtimes))


def _how(cause: Cause, wrong: Iterable[Runtime]) -> str:
    runtime = next((runtime.name for runtime in wrong), "")
    if cause.case.kind == GRADIENTS or not runtime:
        command = f"minorm conform --runtime {runtime or _runtimes_of(cause)[0]}"
        return f"To see it among all cases: `{command}`."
    return f"To see it: `minorm conform --runtime {runtime} docs/conformance/{cause.name}.onnx`."


def index() -> str:
    """Return the text of README.md, the list of all pages."""
    lines = [f"- [{title(cause)}]({name}.md): a runtime {cause.text}" for name, cause in CAUSES.items()]
    return "\n".join([INTRODUCTION, *lines]) + "\n"


def main(folder: str, *names: str) -> None:
    """Run all runtimes, and write the pages and files of the named causes, or of all causes if no name is given."""
    found = answers(names or list(CAUSES))
    version = versions(RUNTIMES.values())
    os.makedirs(folder, exist_ok=True)
    with atomic.replacing(os.path.join(folder, "README.md"), "conform") as contents:
        contents.write(index().encode())
    for name, outcomes in found.items():
        cause = CAUSES[name]
        with atomic.replacing(os.path.join(folder, f"{name}.md"), "conform") as page:
            page.write(text(cause, outcomes, version).encode())
        with atomic.replacing(os.path.join(folder, f"{name}.onnx"), "conform") as model_file:
            model_file.write(file(cause.case).SerializeToString())


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("folder", help="where the pages and files are written")
    options.add_argument("name", nargs="*", help="a cause; all causes if no name is given")
    chosen = options.parse_args()
    if absent := [name for name in chosen.name if name not in CAUSES]:
        options.error(f"no cause is named {', '.join(absent)}; expected names from {', '.join(CAUSES)}")
    main(chosen.folder, *chosen.name)
