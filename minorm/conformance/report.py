"""All cells of some runtimes, and the versions that they are true of."""

from __future__ import annotations

import dataclasses
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
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

    A runtime that is not installed has cells that are unsupported; one that was asked for by name has failed.
    """
    cases = all_cases()
    places = range(len(cases)) if places is None else places
    cells, failures = [], {}
    for name in known if runtimes is None else runtimes:
        try:
            outcomes = asking.ask(known[name], places)
            if runtimes is not None and not asking.installed(known[name]):
                failures[name] = outcomes[places[0]].text
        except CannotRun as error:
            failures[name] = f"it cannot run: {error}"
            outcomes = dict.fromkeys(places, Outcome("absent", failures[name]))
        cells += [judge(cases[place], name, outcomes[place]) for place in places]
    return Report(versions(), cells, failures)


def versions() -> dict[str, str | None]:
    """Of everything that takes part, and of what it runs on."""
    packages = ("onnxruntime", "onnx", "torch", "numpy")
    found = {name: sandbox.version(name).removeprefix(name).strip() or None for name in packages}
    return {
        "minorm": __version__,
        **found,
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
    }
