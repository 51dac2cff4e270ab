"""Nobody is told to install `minorm` by its name: on the public index that is somebody else's package."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from minorm import driver

ROOT = Path(__file__).resolve().parents[1]
PLACES = ("minorm", "minorm_ext", "docs", "examples", "benchmarks", "tests", ".ci", ".")  # the last without its folders
TEXTS = (".py", ".pyx", ".pxd", ".h", ".cu", ".cuh", ".md", ".toml", ".yaml", ".in", "")

# Words after `pip install`, on its line or on the next, up to our name. `minorm-nn` is somebody's we do not mind.
STRANGER = re.compile(r"pip3?\s+install(?:\s+(?:#\s*)?|[ \t]+)(?:[\w\-.=<>,'\"\[\]]+[ \t]+)*['\"]?minorm(?!-nn)\b")


def strangers(text: str) -> list[str]:
    """Every command in the text that would install the package of that name from an index."""
    return STRANGER.findall(text)


@pytest.mark.parametrize(
    "words",
    ["minorm", "'minorm[onnx]'", '"minorm[labs]"', "-U minorm", "onnx minorm", "\n    minorm", "\n# minorm[demo]"],
)
def test_a_command_for_the_stranger_is_found(words: str) -> None:
    assert strangers(f"do pip install {words} now")


@pytest.mark.parametrize(
    "words",
    ["-e .", '".[onnx]"', "minorm-nn", "'minorm-nn[onnx]'", "onnx` and minorm", "onnx\n\nimport minorm", ". && minorm"],
)
def test_other_commands_are_not(words: str) -> None:
    assert not strangers(f"do `pip install {words}")


def test_no_text_sends_anybody_to_the_stranger() -> None:
    """Sources, docs and messages; tests/labs/test_packaging.py and .ci/run look through what is built."""
    found, read = [], 0
    for place in PLACES:
        for path in (ROOT / place).glob("*" if place == "." else "**/*"):
            if path.suffix in TEXTS and path.is_file() and "__pycache__" not in path.parts:
                read += 1
                found += [(str(path.relative_to(ROOT)), command) for command in strangers(path.read_text())]
    assert not found
    assert read > 300


def test_the_readme_installs_so_that_the_clone_can_be_worked_in() -> None:
    """Without -e the sources of the clone, which have no kernels, hide what was installed."""
    text = (ROOT / "README.md").read_text()
    assert re.findall(r"pip install (.*?\[\w+\]\")", text) == [f'-e ".[{extra}]"' for extra in ("demo", "test", "labs", "docs")]


def test_the_cupy_that_is_advised_is_the_extras() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for extra, version in (("cuda12", 12000), ("cuda12", 12090), ("cuda13", 13000)):
        assert driver.package(version) in extras[extra]
