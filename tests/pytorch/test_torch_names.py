"""PyTorch's public names of layers and their functions, optimizers and schedules: here, or in the table of those that
are deliberately not (docs/differences.md, with a reason each)."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

import minorm as mn

torch = pytest.importorskip("torch")
pytest.importorskip("expecttest")

from tests.pytorch import test_names, test_samples  # noqa: E402  they hold the counts

DOCS = Path(__file__).resolve().parents[2] / "docs" / "differences.md"
HELPERS = {  # of PyTorch itself: not documented there, or not for users
    "F": {"assert_int_or_pair", "boolean_dispatch", "has_torch_function", "has_torch_function_unary",
          "has_torch_function_variadic", "handle_torch_function", "ScalingType", "SwizzleType", "Tensor"},
    "lr_scheduler": {"Counter", "Optimizer", "Tensor"},
}  # fmt: skip


def listed() -> dict[str, str]:
    """The names of the table and their reasons."""
    text = DOCS.read_text(encoding="utf-8")
    section = text.split("## Layers, functions and optimizers that are not there")[1].split("\n## ")[0]
    return dict(re.findall(r"^\| `([^`]+)` \| (.+) \|$", section, flags=re.MULTILINE))


def layers() -> set[str]:
    return {name for name, value in vars(torch.nn).items() if inspect.isclass(value) and not name.startswith("_")}


def functions() -> set[str]:
    names = set()
    for name, value in vars(torch.nn.functional).items():
        home = getattr(value, "__module__", None) or ""
        if callable(value) and not name.startswith("_") and (not home or home.startswith(("torch", "_"))):
            names.add(name)
    return names - HELPERS["F"]


def classes(module: Any) -> set[str]:
    return {name for name, value in vars(module).items() if inspect.isclass(value)
            and value.__module__.startswith("torch.optim") and not name.startswith("_")}  # fmt: skip


FAMILIES: dict[str, tuple[Any, Any]] = {
    "nn": (mn.nn, layers),
    "F": (mn.functional, functions),
    "optim": (mn.optim, lambda: classes(torch.optim)),
    "lr_scheduler": (
        mn.optim.lr_scheduler, lambda: classes(torch.optim.lr_scheduler) - HELPERS["lr_scheduler"]
    ),
}  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES)
def test_every_public_name_is_here_or_in_the_table(family: str) -> None:
    ours, theirs = FAMILIES[family]
    absent = {f"{family}.{name}" for name in theirs() if not hasattr(ours, name)}
    assert absent == {name for name in listed() if name.startswith(f"{family}.")}


def test_every_late_name_is_where_its_table_says() -> None:
    for package in (mn.nn, mn.functional):
        for name in " ".join(package.LATER.values()).split():
            assert getattr(package, name).__name__ in (name, "channel_shuffle")
            assert name in dir(package)
    with pytest.raises(AttributeError, match=r"minorm\.nn.*no attribute 'Nonsense'"):
        _ = mn.nn.Nonsense


def test_the_page_counts_them() -> None:
    """docs/names.md, "How many": the numbers of PyTorch's public names, of those here, and of those that are not."""
    methods = {name for name in dir(torch.Tensor) if not name.startswith("_")}
    own = {name for name in methods if hasattr(mn.Tensor, name)}
    functions = {name for name in own if not name.endswith("_") and callable(getattr(torch, name, None))}
    rows = {
        "Tensor": (len(methods), len(own)),
        "methods of Tensor that are functions, too": (len(functions), sum(hasattr(mn, name) for name in functions)),
    }
    places = {"nn": "nn", "F": "nn.functional", "optim": "optim", "lr_scheduler": "optim.lr_scheduler"}
    for family, (ours, theirs) in FAMILIES.items():
        rows[places[family]] = len(theirs()), sum(hasattr(ours, name) for name in theirs())
    section = DOCS.with_name("names.md").read_text(encoding="utf-8").partition("## How many\n")[2].partition("\n## ")[0]
    found = re.findall(r"^\| `?([^|`]+)`? \| (\d+) \| (\d+) \| (\d+) \|$", section, flags=re.MULTILINE)
    assert found == [(name, str(all_), str(here), str(all_ - here)) for name, (all_, here) in rows.items()]
    assert [int(n) for n in re.findall(r"^\| of .+ \| (\d+) \|$", section, flags=re.MULTILINE)] == [
        test_names.COUNT,
        *test_samples.SAMPLES.values(),
    ]
