"""A wheel that was built without kernels: NumPy computes, show_config says so; elsewhere missing kernels are an error.

The wheel is installed away from the checkout. Programs find it first, and the packages that are named beside NumPy.
"""

from __future__ import annotations

import inspect
import os
import shutil
import subprocess
import sys
import zipfile
from importlib import import_module
from pathlib import Path

import pytest

from minorm.labs import catalogue

ROOT = Path(__file__).resolve().parents[1]
LABS = ROOT / "examples" / "labs" / "solutions"
if not (ROOT / "setup.py").exists():
    pytest.skip("needs a checkout", allow_module_level=True)
pytest.importorskip("setuptools", minversion="77")

OPTIONAL = (
    "ml_dtypes",
    "threadpoolctl",
    "safetensors",
    "onnx",
    "onnxruntime",
    "sklearn",
    "rich",
    "matplotlib",
    "torch",
)
BEGIN = """
import sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {hidden!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Hidden())
sys.path.insert(0, {site!r})
"""
TRAIN = """
import numpy as np
import minorm as mn
import minorm.functional as F
from minorm import nn, optim

mn.manual_seed(0)
model = nn.Sequential(
    nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64, 4)
)
optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
x, labels = mn.randn(32, 1, 8, 8), mn.tensor(np.arange(32) % 4)
for _ in range(40):
    loss = F.cross_entropy(model(x), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
mn.save(model.state_dict(), sys.argv[1])
model.load_state_dict(mn.load(sys.argv[1]))
mn.empty_cache()
print(loss.item() < 0.05)
"""


def build(folder: Path, *commands: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run setup.py without leaving files in the checkout."""
    egg = ["egg_info", "--egg-base", str(folder)]
    environment = {name: value for name, value in os.environ.items() if name not in ("MINORM_NO_KERNELS", "PYODIDE")}
    return subprocess.run(
        [sys.executable, "setup.py", "-q", *egg, *commands],
        cwd=ROOT,
        env=environment | variables,
        capture_output=True,
        text=True,
        check=False,
    )


def wheel_of(folder: Path, **variables: str) -> Path:
    wheel = ["bdist_wheel", "--dist-dir", str(folder / "dist"), "--bdist-dir", str(folder / "tree")]
    done = build(folder, "build", "--build-base", str(folder / "build"), *wheel, **variables)
    assert done.returncode == 0, done.stderr
    (found,) = (folder / "dist").iterdir()
    return found


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the wheel without kernels is installed, and nothing else."""
    folder = tmp_path_factory.mktemp("without")
    wheel = wheel_of(folder, MINORM_NO_KERNELS="1")
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def run(site: Path, program: str, *args: str, hidden: tuple[str, ...] = OPTIONAL) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-I", "-c", BEGIN.format(hidden=hidden, site=str(site)) + program, *args],
        cwd=site,
        capture_output=True,
        text=True,
        check=False,
    )


def printed(site: Path, program: str, *args: str) -> list[str]:
    done = run(site, program, *args)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_wheel_has_the_mark_and_no_kernel(site: Path) -> None:
    files = {path.relative_to(site).as_posix() for path in site.rglob("*") if path.is_file()}
    assert "minorm_ext/_no_kernels.py" in files
    assert "minorm/labs/notebooks/lab00_axes.py" in files
    assert not [name for name in files if name.endswith((".so", ".pyx", ".pxd", ".c"))]


def test_show_config_says_so(site: Path) -> None:
    program = """
import minorm, minorm_ext
print(minorm.__file__, minorm_ext.__file__)
facts = minorm.show_config("dicts")
print(facts["kernels"], facts["threads"])
print(facts["chosen"])
print(facts["memory"])
print(facts["blas"])
minorm.set_num_threads(3)
print(minorm.get_num_threads())
try:
    minorm_ext.kernels("norm")
except ImportError as error:
    print(error)
"""
    assert printed(site, program) == [
        f"{site / 'minorm' / '__init__.py'} {site / 'minorm_ext' / '__init__.py'}",
        "reference 1",
        "the wheel was built without kernels; NumPy computes",
        "no pool: NumPy allocates",
        "not known: the package threadpoolctl is not installed",
        "3",
        "kernels: module 'norm' is not there: this wheel was built without kernels",
    ]


def test_a_network_trains_with_numpy_alone(site: Path, tmp_path: Path) -> None:
    assert printed(site, TRAIN, str(tmp_path / "model.safetensors")) == ["True"]


def test_bfloat16_needs_its_package(site: Path) -> None:
    program = """
import minorm as mn
for ask in (
    lambda: mn.zeros(2, dtype=mn.bfloat16),
    lambda: mn.zeros(2, dtype="bfloat16"),
    lambda: mn.nn.Linear(2, 2).to(mn.bfloat16),
    lambda: mn.zeros(2).numpy().astype(mn.bfloat16),
    lambda: mn.autocast("cpu"),
):
    try:
        ask()
    except TypeError as error:
        print("needs the package ml_dtypes, which is not installed" in str(error))
print(mn.zeros(2).dtype == mn.bfloat16, mn.finfo(mn.float16).max == 65504)
"""
    assert printed(site, program) == [*["True"] * 5, "False True"]


def test_explain_names_no_plan(site: Path) -> None:
    program = """
import minorm as mn, minorm.functional as F
print(mn.explain(F.layer_norm, (4, 8), 8))
print(mn.explain(F.conv2d, (2, 3, 8, 8), (4, 3, 3, 3)).strategies["forward"])
"""
    text = "\n".join(printed(site, program))
    assert "reference: there are no kernels, NumPy takes each operation over all of x" in text
    assert 'so "again" reads from memory' in text
    assert text.endswith("\nreference")
    assert "5 passes" not in text  # which kernels need, whose second phase reads from cache


def test_processes_of_a_job_compare_what_computes(site: Path) -> None:
    program = """
from minorm.distributed import job
print('"rounding of multiply-adds": "as NumPy does"' in job._fingerprint(2, "cpu").tobytes().decode())
"""
    assert printed(site, program) == ["True"]


def test_another_process_computes_with_the_same_blas(site: Path) -> None:
    program = """
import os
os.environ["OPENBLAS_CORETYPE"] = "Haswell"
from minorm import config
print(config.environment()["OPENBLAS_CORETYPE"], [name for name in config.environment() if name in ("HOME", "PATH")])
"""
    assert printed(site, program) == ["Haswell []"]


def test_without_the_mark_missing_kernels_are_an_error(site: Path, tmp_path: Path) -> None:
    shutil.copytree(site, tmp_path / "site")
    (tmp_path / "site" / "minorm_ext" / "_no_kernels.py").unlink()
    done = run(tmp_path / "site", "import minorm", hidden=())
    assert done.returncode == 1
    assert "ImportError: minorm_ext: the kernels are not compiled in" in done.stderr


def test_a_build_for_pyodide_has_none_either(tmp_path: Path) -> None:
    library = tmp_path / "lib"
    assert build(tmp_path, "build_py", "--build-lib", str(library), PYODIDE="1").returncode == 0
    assert (library / "minorm_ext" / "_no_kernels.py").exists()
    assert build(tmp_path, "build_py", "--build-lib", str(library)).returncode == 0
    assert not (library / "minorm_ext" / "_no_kernels.py").exists()  # an ordinary build takes it away


def test_kernels_for_a_checkout_are_not_left_out(tmp_path: Path) -> None:
    done = build(tmp_path, "build_ext", "--inplace", MINORM_NO_KERNELS="1")
    assert done.returncode != 0
    assert "MINORM_NO_KERNELS: it is set, so there is nothing to compile; unset it" in done.stderr
    assert not (ROOT / "minorm_ext" / "_no_kernels.py").exists()


@pytest.mark.parametrize(
    "name", ["conv", "elementwise", "matmul", "memory", "norm", "pool", "random", "recurrent", "sums", "update"]
)
def test_the_reference_has_every_function_of_the_kernels(name: str) -> None:
    compiled, reference = (import_module(f"minorm.kernels.{package}.{name}") for package in ("cpu", "reference"))
    public = getattr(compiled, "__all__", None) or [
        name
        for name, value in inspect.getmembers(compiled, inspect.isfunction)
        if value.__module__ == compiled.__name__
    ]
    assert not [name for name in public if not name.startswith("_") and not hasattr(reference, name)]
    assert public or name == "memory"


NEEDS = {3: ["sklearn"], 5: ["sklearn"], 10: ["onnx"], 12: ["onnx", "sklearn"], 16: ["sklearn"]}
SLOW = (3, 4, 5, 6, 12, 15, 16, 17)  # they train or take long


@pytest.mark.parametrize(
    "number", [pytest.param(n, marks=pytest.mark.slow) if n in SLOW else n for n in (*range(7), 10, 12, *range(13, 19))]
)
def test_the_solution_of_a_lab_earns_full_marks(site: Path, number: int) -> None:
    for package in NEEDS.get(number, []):
        pytest.importorskip(package)
    lab = catalogue.find(number)
    program = "from minorm.cli import main; sys.exit(main(sys.argv[1:]))"
    options = ("--seed", "1", "--patience", "5")
    done = run(site, program, "labs", "check", str(number), str(LABS / f"{lab.file}.py"), *options, hidden=())
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"total {lab.points:g} of {lab.points:g} points" in done.stdout
