"""No page tells users to install this project by a name: on the public index `minorm` is another project's package, and
`minorm-nn`, until its first release is there, can become anybody's.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from email import message_from_string
from pathlib import Path

import pytest

from minorm.devices import driver

ROOT = Path(__file__).resolve().parents[2]
PLACES = ("minorm", "minorm_ext", "docs", "examples", "benchmarks", "tests", ".ci", ".")  # the last without its folders
TEXTS = (".py", ".pyx", ".pxd", ".h", ".cu", ".cuh", ".md", ".toml", ".yaml", ".in", "")

# Words after `pip install`, on its line or on the next, up to our name, which `minorm-nn` begins with too.
STRANGER = re.compile(r"pip3?\s+install(?:\s+(?:#\s*)?|[ \t]+)(?:[\w\-.=<>,'\"\[\]]+[ \t]+)*['\"]?minorm\b")


def required(metadata: str) -> set[str]:
    """The names of the distributions that a wheel's METADATA requires, for itself or for an extra."""
    lines = message_from_string(metadata).get_all("Requires-Dist", [])
    return {re.match(r"[\w.-]+", line).group().lower().replace("_", "-") for line in lines}  # type: ignore[union-attr]


def strangers(text: str) -> list[str]:
    """Every command in the text that would install the package of that name from an index."""
    return STRANGER.findall(text)


@pytest.mark.parametrize(
    "words",
    [
        "minorm",
        "'minorm[onnx]'",
        '"minorm[labs]"',
        "-U minorm",
        "onnx minorm",
        "\n    minorm",
        "\n# minorm[demo]",
        "minorm-nn",
    ],
)
def test_a_command_for_the_stranger_is_found(words: str) -> None:
    assert strangers(f"do pip install {words} now")


@pytest.mark.parametrize(
    "words",
    ["-e .", '".[onnx]"', "onnx` and minorm", "onnx\n\nimport minorm", ". && minorm"],
)
def test_other_commands_are_not(words: str) -> None:
    assert not strangers(f"do `pip install {words}")


def test_no_text_sends_anybody_to_the_stranger() -> None:
    """Sources, docs and messages; tests/labs/test_packaging.py and .ci/run look through what is built."""
    found, read = [], 0
    for place in PLACES:
        for path in (ROOT / place).glob("*" if place == "." else "**/*"):
            if path.suffix in TEXTS and path.is_file() and not {"__pycache__", ".ruff_cache"} & {*path.parts}:
                read += 1
                found += [(str(path.relative_to(ROOT)), command) for command in strangers(path.read_text())]
    assert not found
    assert read > 300


def test_no_extra_requires_the_stranger(tmp_path: Path) -> None:
    """As setuptools writes it into the wheel, where .ci/run looks again."""
    pytest.importorskip("setuptools", minversion="77")
    if not (ROOT / "setup.py").exists():
        pytest.skip("needs a checkout")
    egg = [sys.executable, "setup.py", "-q", "egg_info", "--egg-base", str(tmp_path)]
    subprocess.run(egg, cwd=ROOT, check=True, capture_output=True)
    metadata = (tmp_path / "minorm_nn.egg-info" / "PKG-INFO").read_text()
    assert {"numpy", "onnx", "minorm-nn"} <= required(metadata)
    assert "minorm" not in required(metadata)


def commands(text: str) -> list[str]:
    """The lines of a page's ```sh blocks."""
    return "\n".join(re.findall(r"^```sh\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)).splitlines()


def test_the_readme_installs_with_e_where_the_clone_is_worked_in() -> None:
    """Tests and docs are run in the clone, where Python would else take its sources, which have no kernels."""
    text = (ROOT / "README.md").read_text()
    wanted = ['".[demo]"', '-e ".[test]"', '".[labs]"', '-e ".[docs]"']
    assert re.findall(r"pip install (.*?\[\w+\]\")", text) == wanted


@pytest.mark.parametrize("page", ["README.md", "docs/quick-start.md"])
def test_what_runs_in_the_clone_takes_what_is_installed(page: str) -> None:
    """`python -m` and `python -c` look into the current folder first; scripts, and `python -P`, do not."""
    taken = [line for line in commands((ROOT / page).read_text()) if re.search(r"python3? -[mc] (?!venv)", line)]
    assert [line for line in taken if '-e ".[' not in line] == []


@pytest.mark.parametrize("page", ["README.md", "docs/quick-start.md"])
def test_a_page_that_installs_says_whose_the_name_is(page: str) -> None:
    text = " ".join((ROOT / page).read_text().split())
    assert re.search(r"`minorm` on the public index(?: \(PyPI\))? is another project's package", text)


def test_the_cupy_that_is_advised_is_the_extras() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for extra, version in (("cuda12", 12000), ("cuda12", 12090), ("cuda13", 13000)):
        assert driver.package(version) in extras[extra]
