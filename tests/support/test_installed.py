"""minorm-nn beside another distribution called minorm: who says so, in which words; a plain import does not look."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
from pathlib import Path

import pytest

import minorm as mn
from minorm.cli import main
from minorm.support import installed

ROOT = Path(__file__).parents[2]
ANOTHER = (
    r"the distribution minorm 3\.1 \(another project\) is installed in the same folder as minorm-nn; "
    r"run `pip uninstall minorm`, then `pip install --force-reinstall --no-deps \.` in a clone of minorm-nn"
)


def install(
    site: Path,
    name: str,
    version: str,
    author: str,
    metadata: str = "METADATA",
    file: str = "minorm/__init__.py",
) -> None:
    """Write the files that pip leaves for a distribution, without its modules; `file` is one that pip wrote."""
    folder = site / f"{name.replace('-', '_')}-{version}.{'dist' if metadata == 'METADATA' else 'egg'}-info"
    folder.mkdir()
    (folder / metadata).write_text(f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\nAuthor: {author}\n")
    (folder / "RECORD").write_text(f"{file},,\n{folder.name}/{metadata},,\n")


def look_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is installed but what this folder has; modules are imported from where they were."""
    everywhere = importlib.metadata.distributions
    monkeypatch.setattr(importlib.metadata, "distributions", lambda **by: everywhere(path=[str(folder)], **by))


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which minorm-nn is installed, the only one that is looked through."""
    install(tmp_path, "minorm-nn", "0.2.0", installed.AUTHOR)
    look_in(tmp_path, monkeypatch)
    return tmp_path


def test_alone_nothing_is_said(site: Path) -> None:
    assert installed.conflict() is None
    assert "conflict" not in (mn.show_config("dicts") or {})


def test_without_an_installation_of_ours_nothing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From a clone: no file of the other is in our way."""
    install(tmp_path, "minorm", "3.1", "Somebody")
    look_in(tmp_path, monkeypatch)
    assert installed.conflict() is None


def test_another_projects_is_named(
    site: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install(site, "minorm", "3.1", "Somebody")
    assert re.fullmatch(ANOTHER, installed.conflict() or "")
    facts = mn.show_config("dicts")
    assert facts is not None
    assert facts["conflict"] == installed.conflict()
    assert main(["labs", "list"]) == 0
    assert re.fullmatch(f"minorm: {ANOTHER}\n", capsys.readouterr().err)


def test_our_own_under_its_old_name_is_told_apart(site: Path) -> None:
    install(site, "minorm", "0.1.0", installed.AUTHOR)
    said = installed.conflict() or ""
    assert said.startswith(
        "the distribution minorm 0.1.0 (this project under its old name) is installed in the same folder"
    )
    assert "`pip uninstall minorm`" in said


def test_what_a_build_left_in_a_checkout_is_no_installation(site: Path) -> None:
    install(site, "minorm", "0.1.0", installed.AUTHOR, metadata="PKG-INFO")
    assert installed.conflict() is None


def test_an_editable_installation_writes_into_no_folder_of_ours(site: Path) -> None:
    install(site, "minorm", "0.1.0", installed.AUTHOR, file="__editable__.minorm-0.1.0.pth")
    assert installed.conflict() is None


BROKEN = """
import importlib.metadata, sys, types
everywhere = importlib.metadata.distributions
importlib.metadata.distributions = lambda **by: everywhere(path=[{site!r}], **by)
for name in {names!r}:
    sys.modules[name] = types.ModuleType(name)  # somebody else's file in the place of ours
{program}
"""


@pytest.mark.parametrize(
    ("names", "program"),
    [
        (["minorm.graph.grad_mode"], "import minorm"),
        (["minorm.serialization.safetensors_file"], "import minorm; minorm.save"),
        (["minorm.training"], "import minorm.cli"),
    ],
)
def test_an_import_error_inside_the_package_says_so(site: Path, names: list[str], program: str) -> None:
    code = BROKEN.format(site=str(site), names=names, program=program)

    def last() -> str:
        done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 1
        return done.stderr.strip().splitlines()[-1]

    before = last()
    assert re.match("(ImportError|ModuleNotFoundError): (cannot import name|No module named)", before), before
    install(site, "minorm", "3.1", "Somebody")
    assert re.fullmatch(f"{re.escape(before)}; {ANOTHER}", last())


def test_a_plain_import_does_not_look() -> None:
    code = "import sys, minorm; print('importlib.metadata' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
