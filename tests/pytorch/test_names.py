"""PyTorch's names on a Tensor and on minorm: compared with PyTorch on PyTorch's own samples, and counted.

The samples are those of `torch.testing._internal` (OpInfo): a fixed number of each operation, with gradients in
float64, by value in int64 and bool, each also in place where there is the form.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import minorm as mn

torch = pytest.importorskip("torch")
pytest.importorskip("expecttest", reason="PyTorch's samples import it; it comes with the extra dev")

from tests.pytorch.twins import operations as samples  # noqa: E402  it imports PyTorch's tests

COUNT = 4_800  # comparisons that the samples make, at least
EACH = 40  # samples of an operation in float64; half as many in int64 and in bool

INTEGERS = (torch.int64, torch.bool)


def of_bools(dtype: Any, sample: Any) -> bool:
    return dtype == torch.bool


def of_integers(dtype: Any, sample: Any) -> bool:
    return dtype in INTEGERS


def always(dtype: Any, sample: Any) -> bool:
    return True


def asks_for_shares(dtype: Any, sample: Any) -> bool:
    return any(getattr(value, "requires_grad", False) for value in sample.args)


# Where the two differ on purpose: the samples left out of the comparison, and why. docs/names.md says the same.
DEVIATIONS: dict[str, tuple[Callable[[Any, Any], bool], str]] = {
    "arange": (of_integers, "a fraction in an argument counts, also for integers; PyTorch drops it first"),
    "argsort": (of_bools, "equal elements keep their order; PyTorch keeps it only with stable=True"),
    "baddbmm": (
        of_integers,
        "integers times a beta or an alpha with a fraction are floats; PyTorch drops the fraction",
    ),
    "cat": (
        lambda dtype, sample: any(x.shape == (0,) for x in sample.input),
        "an empty tensor must have the axes of the others",
    ),
    "gather": (
        lambda dtype, sample: sample.input.ndim != sample.args[1].ndim,
        "the index has as many axes as x, even if the index is empty or x has no axes",
    ),
    "index_add": (of_bools, "bools are not added"),
    "linspace": (of_integers, "as arange"),
    "linspace/tensor_overload": (
        always,
        "start and end are numbers; PyTorch computes float32 Tensors in float32",
    ),
    "norm/nuc": (always, "the nuclear norm needs singular values, which minorm does not compute"),
    "quantile": (asks_for_shares, "no gradient reaches q"),
    "scatter": (of_bools, "bools are not added"),
    "scatter_add": (of_bools, "bools are not added"),
    "sort": (of_bools, "as argsort"),
    "topk": (of_integers, "equal elements keep their order; PyTorch's order is not defined"),
    "__rpow__": (of_integers, "an integer to a negative power is an error, as in NumPy; PyTorch gives 0"),
}

# Compared elsewhere: without values, random, or the form in place alone.
ELSEWHERE = {"empty", "empty_like", "new_empty", "normal", "normal/number_mean", "bernoulli", "multinomial", "zero_",
             "uniform", "rand_like", "randn", "randn_like", "randint", "randint_like", "to", "data",
             "normal/in_place"}  # fmt: skip


def shared() -> list[str]:
    """PyTorch's operations, with their variants, that minorm has under the same name."""
    return sorted(
        name
        for name, operation in samples.OPERATIONS.items()
        if "." not in name
        and operation.name not in ELSEWHERE
        and name not in ELSEWHERE
        and (operation.name in samples.FIRST or hasattr(mn, operation.name) or hasattr(mn.Tensor, operation.name))
    )


# Without samples or values: tested by name in test_drawing.py, test_grad_mode.py, test_printing.py, test_kinds.py.
NAMED = set(
    """
    Generator Size bernoulli bernoulli_ multinomial normal normal_ uniform_ random_ rand_like randint_like randn_like
    empty_like get_default_dtype set_default_dtype set_printoptions inference_mode set_grad_enabled is_complex
    is_floating_point is_same_size is_signed is_tensor numel detach detach_ relu relu_ element_size get_device
    is_contiguous ndimension nelement new_empty new_tensor pin_memory register_hook stride type type_as
    """.split()  # noqa: SIM905
)


def names_compared() -> set[str]:
    """The names that this file compares, those in place among them."""
    shorts = {samples.OPERATIONS[name].name for name in shared()}
    shorts |= {alias for name in shared() for alias in samples.aliases(name)}
    return shorts | {f"{name}_" for name in shorts} | NAMED


def compared(name: str) -> tuple[int, list[str]]:
    """How many comparisons the samples of an operation made, and what differed."""
    count, wrong = 0, []
    short = samples.OPERATIONS[name].name
    deviates = DEVIATIONS.get(name, (lambda dtype, sample: False, ""))[0]
    for dtype, most in ((torch.float64, EACH), (torch.int64, EACH // 2), (torch.bool, EACH // 2)):
        for sample in samples.samples(name, dtype, most):
            if deviates(dtype, sample):
                continue
            count += 1
            wrong += samples.compare(name, sample)
            for alias in samples.aliases(name):
                count += 1
                wrong += samples.compare(name, sample, alias)
            if hasattr(torch.Tensor, f"{short}_") and hasattr(mn.Tensor, f"{short}_"):
                count += 1
                wrong += samples.compare_in_place(name, sample)
    return count, wrong


def test_values_and_gradients_are_pytorchs_on_its_own_samples() -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        found = {name: compared(name) for name in shared()}
    finally:
        torch.set_num_threads(threads)
    wrong = [text for _, texts in found.values() for text in texts]
    count = sum(n for n, _ in found.values())
    assert not wrong, f"{len(wrong)} of {count} comparisons differ:\n" + "\n".join(wrong[:30])
    assert count >= COUNT, f"{count} comparisons of {len(found)} operations, expected {COUNT}"


@pytest.mark.parametrize("name", sorted(set(DEVIATIONS) - {"norm/nuc"}))
def test_a_deviation_is_one(name: str) -> None:
    deviates, _ = DEVIATIONS[name]
    wrong = []
    for dtype in (torch.float64, *INTEGERS):
        for sample in samples.samples(name, dtype, 200):
            if deviates(dtype, sample):
                wrong += samples.compare(name, sample)
    assert wrong, f"{name} does not deviate any more"


def test_the_page_lists_the_deviations() -> None:
    section = PAGE.read_text(encoding="utf-8").partition("## Samples that are left out\n")[2]
    rows = re.findall(r"^\| `([^`]+)` \| (.+) \|$", section, flags=re.MULTILINE)
    assert rows == [(name, why) for name, (_, why) in DEVIATIONS.items()]


# The walk over the names

PAGE = Path(__file__).parents[2] / "docs" / "names.md"


def absent(section: str) -> set[str]:
    """The names that a section of docs/names.md says are deliberately not there."""
    text = PAGE.read_text(encoding="utf-8").partition(f"## {section}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| .+? \| (.+) \|$", text, flags=re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row)}


def test_every_name_of_pytorchs_tensor_is_there_or_deliberately_not() -> None:
    theirs = {name for name in dir(torch.Tensor) if not name.startswith("_")}
    ours = {name for name in theirs if hasattr(mn.Tensor, name)}
    listed = absent("Not on a Tensor")
    assert theirs - ours <= listed, f"neither there nor in docs/names.md: {sorted(theirs - ours - listed)}"
    assert not listed & ours, f"there, and yet in docs/names.md: {sorted(listed & ours)}"


def test_every_method_that_is_a_function_in_pytorch_is_one_here() -> None:
    names = {
        name
        for name in dir(torch.Tensor)
        if not name.startswith("_") and not name.endswith("_") and hasattr(mn.Tensor, name)
    }
    both = {name for name in names if callable(getattr(torch, name, None))}
    missing = {name for name in both if not hasattr(mn, name)} - absent("Not as functions")
    assert not missing, f"no functions: {sorted(missing)}"
