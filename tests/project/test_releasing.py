"""The files of a release agree: the version stands in two places, and what RELEASING.md names is there."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

import minorm as mn

ROOT = Path(__file__).parents[2]
STEPS = (ROOT / "RELEASING.md").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def cited() -> dict[str, str]:
    """The lines of CITATION.cff that have one value."""
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    return dict(re.findall(r"^(?:  - )?([\w-]+): \"?([^\"\n]+)\"?$", text, re.MULTILINE))


def test_the_citation_is_of_this_version() -> None:
    found = cited()
    assert found["version"] == mn.__version__
    assert found["license"] == PROJECT["license"]
    assert found["name"] == PROJECT["authors"][0]["name"]
    assert found["cff-version"] == "1.2.0"
    assert found.keys() >= {"message", "title", "type"}


def test_the_recipe_is_of_this_version_and_requires_what_the_wheel_does() -> None:
    text = (ROOT / "recipe" / "recipe.yaml").read_text(encoding="utf-8")
    assert re.findall(r'^  version: "(.+)"$', text, re.MULTILINE) == [mn.__version__]
    assert re.findall(r"^  name: (.+)$", text, re.MULTILINE) == [PROJECT["name"]]
    (required,) = re.findall(r"^  run:\n((?:    - .+\n)+)", text, re.MULTILINE)
    assert re.findall(r"- (\S+) (\S+)", required) == [
        tuple(re.match(r"([\w-]+)([^;]+)", requirement).groups())  # type: ignore[union-attr]
        for requirement in PROJECT["dependencies"]
    ]


def test_the_changelog_begins_with_what_is_unreleased_and_then_this_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert headings[0] == "[Unreleased]"
    assert len(headings) == len(set(headings))
    released = rf"\[{re.escape(mn.__version__)}\] - (\d{{4}}-\d\d-\d\d|not yet released)"
    assert re.fullmatch(released, headings[1]), headings[1]
    section = text.partition(f"## {headings[1]}\n")[2].partition("\n## ")[0]
    assert {"Added", "Changed", "Fixed"} & set(re.findall(r"^### (.+)$", section, re.MULTILINE))


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`((?:tests|minorm|recipe|\.github)/[\w./]+)`", STEPS))))
def test_what_the_steps_name_is_there(name: str) -> None:
    assert (ROOT / name).exists()


def test_the_steps_are_numbered_and_the_sdist_has_the_files() -> None:
    assert re.findall(r"^(\d)\. \*\*", STEPS, re.MULTILINE) == list("12345678")
    manifest = (ROOT / "MANIFEST.in").read_text(encoding="utf-8")
    assert {"CITATION.cff", "RELEASING.md"} <= set(re.findall(r"[\w.]+", manifest))


@pytest.mark.parametrize("workflow", sorted((ROOT / ".github" / "workflows").glob("*.yml")), ids=lambda path: path.name)
def test_a_workflow_names_the_exact_version_of_what_it_uses(workflow: Path) -> None:
    text = workflow.read_text(encoding="utf-8")
    used = re.findall(r"uses: (\S+)", text)
    assert used
    assert all(re.fullmatch(r"[\w./-]+@v\d+\.\d+\.\d+", action) for action in used), used
    installed = re.findall(r"pip install (?!(?:-e )?\.|dist/)(.+)", text)
    assert all("==" in package for line in installed for package in line.split())
    assert re.search(r"^permissions: \{\}$", text, re.MULTILINE)  # each job says what it needs


def test_wheels_are_built_for_the_pythons_of_the_classifiers() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["cibuildwheel"]
    said = re.findall(r"Python :: 3\.(\d+)\n", "\n".join([*PROJECT["classifiers"], ""]))
    assert settings["build"] == [*(f"cp3{minor}-*" for minor in said), "cp314t-*"]
    assert "*-win*" in settings["skip"]
    assert not [name for name in PROJECT["classifiers"] if "Windows" in name]
