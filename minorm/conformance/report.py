"""All cells of some runtimes, and the versions that they are true of."""

from __future__ import annotations

import dataclasses
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any

from minorm.config import __version__
from minorm.conformance import asking
from minorm.conformance.asking import CannotRun, Outcome
from minorm.conformance.cases import all_cases
from minorm.conformance.runtimes import RUNTIMES, Runtime
from minorm.conformance.verdict import WRONG, Cell, judge
from minorm.onnx.checking import sandbox


@dataclass(frozen=True)
class Report:
    """versions: of packages, None where one is not installed; failures: why a runtime could not run at all."""

    versions: dict[str, str | None]
    cells: list[Cell]
    failures: dict[str, str] = field(default_factory=dict)

    @property
    def is_well(self) -> bool:
        """Whether every runtime ran and minorm is nowhere wrong; what is wrong in others is theirs."""
        return not self.failures and not any(c.runtime == "minorm" and c.verdict == WRONG for c in self.cells)

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        return {"versions": self.versions, "cells": [dataclasses.asdict(cell) for cell in self.cells]}


def conform(
    runtimes: Iterable[str] | None = None,
    places: Sequence[int] | None = None,
    known: Mapping[str, Runtime] = RUNTIMES,
) -> Report:
    """Ask the runtimes for the cases at these places of `all_cases()`, and judge what they say; None: all.

    Each is asked for the kinds of cases that it has. One that is not installed has cells that are unsupported, and an
    extra one has none; one that was asked for by name has failed.
    """
    cases = all_cases()
    places = range(len(cases)) if places is None else places
    cells, failures = [], {}
    usual = (name for name, runtime in known.items() if not runtime.extra or asking.installed(runtime))
    names = list(usual if runtimes is None else runtimes)
    for name in names:
        asked = [place for place in places if cases[place].kind in known[name].functions]
        try:
            outcomes = asking.ask(known[name], asked)
            if runtimes is not None and not asking.installed(known[name]):
                failures[name] = outcomes[asked[0]].text
        except CannotRun as error:
            failures[name] = f"it cannot run: {error}"
            outcomes = dict.fromkeys(asked, Outcome("absent", failures[name]))
        cells += [judge(cases[place], name, outcomes[place]) for place in asked]
    return Report(versions(known[name] for name in names), cells, failures)


def versions(runtimes: Iterable[Runtime] = ()) -> dict[str, str | None]:
    """Of everything that takes part, and of what it runs on; of modules whose package has another name, by that."""
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
