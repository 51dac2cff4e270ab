"""Run cases on runtimes, and collect the cells of the table and the versions of the packages."""

from __future__ import annotations

import dataclasses
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any

from minorm.config import __version__
from minorm.conformance import runtime_calls
from minorm.conformance.case import Case
from minorm.conformance.cases import all_cases
from minorm.conformance.file_cases import FileCases
from minorm.conformance.runtime_calls import CannotRun, Outcome
from minorm.conformance.runtimes import RUNTIMES, Runtime
from minorm.conformance.verdict import WRONG, Cell, judge
from minorm.onnx.checking import sandbox


@dataclass(frozen=True)
class Report:
    """Holds the cells, one for each case and runtime.

    versions    package -> version, or None if the package is not installed
    failures    runtime -> why the runtime could not run at all
    left_out    normalization of a user's file -> why this normalization is not judged; None if there is no user's file
    """

    versions: dict[str, str | None]
    cells: list[Cell]
    failures: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] | None = None

    @property
    def is_well(self) -> bool:
        """Return True if every runtime ran and minorm has no wrong cell; wrong cells of other runtimes do not count."""
        return not self.failures and not any(c.runtime == "minorm" and c.verdict == WRONG for c in self.cells)

    def plain(self) -> dict[str, Any]:
        """Return the report as plain values for JSON."""
        found = {"versions": self.versions, "cells": [dataclasses.asdict(cell) for cell in self.cells]}
        return found if self.left_out is None else {**found, "left_out": self.left_out}


def conform(
    runtimes: Iterable[str] | None = None,
    places: Sequence[int] | None = None,
    known: Mapping[str, Runtime] = RUNTIMES,
) -> Report:
    """Run the cases `all_cases()[i]`, for i in `places`, on the runtimes and judge the results. None means all cases.

    A runtime gets only the kinds of cases that it can run. If a runtime is not installed, its cells are "unsupported";
    an extra runtime that is not installed has no cells. If `runtimes` names a runtime that is not installed, the report
    has a failure.
    """
    return _asked(runtimes, None, places, known)


def conform_file(
    found: FileCases,
    runtimes: Iterable[str] | None = None,
    known: Mapping[str, Runtime] = RUNTIMES,
) -> Report:
    """Run the normalizations of a user's file on the runtimes. The `case` of each cell is the name of a node."""
    report = _asked(runtimes, found.cases, None, known)
    since = {case.name: version for case, version in zip(found.cases, found.since, strict=True)}
    cells = [dataclasses.replace(cell, opset=since[cell.case]) for cell in report.cells]
    return dataclasses.replace(report, cells=cells, left_out=found.left_out)


def _asked(
    runtimes: Iterable[str] | None,
    given: Sequence[Case] | None,
    places: Sequence[int] | None,
    known: Mapping[str, Runtime],
) -> Report:
    """Run and judge the cases of `given` whose indices are in `places`.

    If `given` is None, the cases are `all_cases()`. If `places` is None, all cases run.
    """
    cases = all_cases() if given is None else given
    places = range(len(cases)) if places is None else places
    cells, failures = [], {}
    usual = (name for name, runtime in known.items() if not runtime.extra or runtime_calls.installed(runtime))
    names = list(usual if runtimes is None else runtimes)
    for name in names:
        asked = [place for place in places if cases[place].kind in known[name].functions]
        try:
            outcomes = runtime_calls.ask(known[name], asked, cases=given)
            if runtimes is not None and not runtime_calls.installed(known[name]):
                failures[name] = runtime_calls.missing(known[name])
        except CannotRun as error:
            failures[name] = f"it cannot run: {error}"
            outcomes = dict.fromkeys(asked, Outcome("absent", failures[name]))
        cells += [judge(cases[place], name, outcomes[place]) for place in asked]
    return Report(versions(known[name] for name in names), cells, failures)


def versions(runtimes: Iterable[Runtime] = ()) -> dict[str, str | None]:
    """Return a dict of versions: of minorm, Python and the runtimes' packages, whose keys are their names on PyPI."""
    found = {name: _version(name) for name in ("onnxruntime", "onnx", "torch", "numpy")}
    distributions = metadata.packages_distributions()
    for runtime in runtimes:
        for module in runtime.packages if runtime.extra else ():
            package = distributions.get(module, [module])[0]
            found[package] = _version(package)
    return {
        "minorm": __version__,
        **found,
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
    }


def _version(package: str) -> str | None:
    return sandbox.version(package).removeprefix(package).strip() or None
