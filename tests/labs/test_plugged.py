"""A layer must take its statistics from the student's kernel: NumPy's own numbers beside the kernel earn nothing."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from minorm.labs import catalogue
from minorm.labs.checks import lab07_openmp, lab08_cuda
from minorm.labs.comparing import Wrong
from minorm.labs.remote import Remote
from tests.labs.conftest import changed

LABS = {7: lab07_openmp, 8: lab08_cuda}
BUILT = "    kernel = build(moments_pyx()).parallel_moments\n"
PAIRS = "mean, var = np.array(pairs).T"
COMPUTED = "k, d, var = found.astype(np.float64)"
# The number of the lab, and what is changed in its solution.
HONEST = {
    "as in the solution": (8, []),
    "built once, before it is called": (7, [(BUILT, "    kernel = KERNEL\n"), (
        "def moments(nest, x,", "KERNEL = build(moments_pyx()).parallel_moments\n\n\ndef moments(nest, x,",
    )]),
}  # fmt: skip
CHEATS = {
    "in lab 7, beside the kernel": (7, [(PAIRS, "mean, var = rows.mean(1, np.float64), rows.var(1, np.float64)")]),
    "in lab 7, without the kernel": (7, [(
        "    pairs = [kernel(row.ctypes.data, row.size, places, THREADS) for row in rows]\n", "    pairs = None\n",
    ), (PAIRS, "mean, var = rows.mean(1, np.float64), rows.var(1, np.float64)")]),
    "in lab 8, beside the kernel": (8, [(
        COMPUTED, "k = np.float64(rows.mean(1))\n    d, var = rows.mean(1, np.float64) - k, rows.var(1, np.float64)",
    )]),
}  # fmt: skip


def check(number: int, changes: list[tuple[str, str]]) -> None:
    """Run the check that lets a layer use the student's moments."""
    lab, text = catalogue.find(number), changed(number, *changes)
    compilers = ("gcc", "g++")[number - 7]
    if shutil.which(compilers) is None:
        pytest.skip(f"no {compilers}")
    if number == 7:
        pytest.importorskip("Cython")
    with Remote(text, f"{lab.file}.py", lab.beside, 4 << 30, patience=4) as student:
        student.allow(60)
        LABS[number].in_layer_norm(student, np.random.default_rng(1))
        LABS[number].in_others(student, np.random.default_rng(2))
        assert student.notes == []


@pytest.mark.parametrize("name", HONEST)
def test_honest_layers_pass(name: str) -> None:
    check(*HONEST[name])


@pytest.mark.parametrize("name", CHEATS)
def test_numbers_from_elsewhere_are_noticed(name: str) -> None:
    with pytest.raises(Wrong, match=r"the statistics must come from .*, got the same y$"):
        check(*CHEATS[name])
