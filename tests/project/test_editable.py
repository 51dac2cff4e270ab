"""An editable install is found by a script that lies beside the checkout, whose folder is called minorm too."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
if not (CHECKOUT / "pyproject.toml").exists():
    pytest.skip("needs a checkout", allow_module_level=True)
pytest.importorskip("setuptools", minversion="77")

BUILD = "import sys; from setuptools import build_meta; build_meta.build_editable(sys.argv[1])"
SCRIPT = """
import os, site, sys
site.addsitedir(sys.argv[1])
import minorm, minorm_ext
print(os.path.relpath(minorm.__file__), os.path.relpath(minorm_ext.__file__))
"""


def test_a_script_beside_the_checkout_finds_the_package(tmp_path: Path) -> None:
    clone, site = tmp_path / "minorm", tmp_path / "site"
    for package in ("minorm", "minorm_ext"):
        (clone / package).mkdir(parents=True)
        (clone / package / "__init__.py").touch()
    (clone / "minorm" / "config.py").write_text('__version__ = "1.0"\n')
    (clone / "setup.py").write_text("from setuptools import setup\nsetup()\n")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(CHECKOUT / name, clone)
    run = [sys.executable, "-c", BUILD, str(tmp_path)]
    subprocess.run(run, cwd=clone, check=True, capture_output=True, env={**os.environ, "PYTHONPATH": ""})
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        wheel.extractall(site)
    (tmp_path / "script.py").write_text(SCRIPT)
    # -S: without the site-packages of this Python, where minorm is installed
    found = subprocess.run(
        [sys.executable, "-S", "script.py", str(site)], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    assert found.stdout.split() == ["minorm/minorm/__init__.py", "minorm/minorm_ext/__init__.py"]
