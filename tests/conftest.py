"""The tests share a generator with a fixed seed, quick hypothesis settings, and a list of skipped tests."""

from __future__ import annotations

import gc
import signal
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

import minorm as mn
from tests.long import EACH

# A shell starts what it runs in the background with Ctrl-C ignored, and tests press it.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile(
    "minorm", max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("minorm")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--list-skipped", metavar="FILE", help="write there what was skipped, one a line; `pytest @FILE` tries it again"
    )


def pytest_configure(config: pytest.Config) -> None:
    if (file := config.getoption("list_skipped")) and not hasattr(config, "workerinput"):  # a worker of xdist has that
        config.pluginmanager.register(Skipped(Path(file)))


class Skipped:
    """Notes tests, and modules that skip themselves as a whole."""

    def __init__(self, file: Path) -> None:
        self.file, self.names = file, dict[str, None]()  # each once, in order

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.note(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self.note(report)

    def note(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.skipped and not hasattr(report, "wasxfail"):
            # A parameter set that was empty here may have values on a machine that has the missing package.
            self.names[report.nodeid.removesuffix("[NOTSET]")] = None

    def pytest_sessionfinish(self) -> None:
        self.file.write_text("".join(f"{name}\n" for name in self.names))


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20240607)


@pytest.fixture(autouse=True)
def _seed() -> None:
    mn.manual_seed(0)


@pytest.hookimpl(tryfirst=True)  # before pytest leaves out what is marked slow
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks most cases of long tests as slow: see tests/long.py."""
    seen = Counter[str]()
    for item in items:
        name = item.nodeid.partition("[")[0].removeprefix("tests/")
        if (each := EACH.get(name)) is not None and item.get_closest_marker("slow") is None:
            if each == 0 or seen[name] % each:
                item.add_marker(pytest.mark.slow)
            seen[name] += 1


def pytest_collection_finish() -> None:
    """Freeze the collected tests, which stay to the end: later garbage collections pass over them, and tests that ask
    for one take milliseconds, not half a second."""
    gc.collect()
    gc.freeze()
