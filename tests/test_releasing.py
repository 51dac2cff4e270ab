"""The files of a release agree: the version stands in two places, and what RELEASING.md names is there."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

import minorm as mn

ROOT = Path(__file__).parents[1]
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


def test_the_changelog_begins_with_what_is_unreleased() -> None:
    headings = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert headings[0] == "[Unreleased]"
    assert len(headings) == len(set(headings))


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`((?:tests|minorm)/[\w./]+)`", STEPS))))
def test_what_the_steps_name_is_there(name: str) -> None:
    assert (ROOT / name).exists()


def test_the_steps_are_numbered_and_the_sdist_has_the_files() -> None:
    assert re.findall(r"^(\d)\. \*\*", STEPS, re.MULTILINE) == list("1234567")
    manifest = (ROOT / "MANIFEST.in").read_text(encoding="utf-8")
    assert {"CITATION.cff", "RELEASING.md"} <= set(re.findall(r"[\w.]+", manifest))
