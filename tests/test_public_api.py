"""The public names are a contract: what tests/public_names.txt lists stays, with arguments, their places and defaults.

tests/pytorch/test_signatures.py and tests/pytorch/test_torch_names.py hold the same names against PyTorch's.
"""

from __future__ import annotations

import inspect
import re

import pytest

import minorm as mn
import minorm.functional as F
from minorm import nn, optim
from tests import public_names
from tests.public_names import FILE

pytest.importorskip("onnx", reason="minorm.onnx is among the packages")
LISTED, NOW = public_names.listed(), public_names.public()
GONE = "deprecate it first: CONTRIBUTING.md, 'Change a public name'"
SPECIAL = """
    __iadd__ __isub__ __imul__ __itruediv__ __ifloordiv__ __imod__ __ipow__ __iand__ __ior__ __ixor__
    __floordiv__ __mod__ __and__ __or__ __xor__ __invert__ __array__ __dlpack__ __dlpack_device__
""".split()  # noqa: SIM905  operators, which have no place in a list of names


def split(signature: str) -> list[str]:
    """The arguments of `(x, dims=(0, 1), *, out=None)`, with their defaults; the bare star is one."""
    return re.findall(r"(?:[^,()\[\]]|\([^()]*\)|\[[^\[\]]*\])+", signature[1:-1])


def broken(was: str, now: str) -> list[str]:
    """Return the arguments that are gone or that changed place or default: callers may have given them."""
    old, new = ([word.strip() for word in split(text)] for text in (was, now))
    star = next((i for i, word in enumerate(old) if word.startswith("*")), len(old))
    moved = [word for i, word in enumerate(old[:star]) if new[i : i + 1] != [word]]
    return moved + [word for word in old[star:] if word not in new]


def test_no_public_name_vanishes() -> None:
    assert not sorted(LISTED.keys() - NOW.keys()), GONE


def test_no_argument_vanishes_moves_or_changes_its_default() -> None:
    wrong = {name: broken(was, NOW[name]) for name, was in LISTED.items() if name in NOW}
    assert not {name: words for name, words in wrong.items() if words}, GONE


def test_the_list_is_sorted_and_holds_every_part_of_the_library() -> None:
    lines = FILE.read_text(encoding="utf-8").splitlines()
    assert [line.partition("(")[0] for line in lines] == sorted(LISTED)
    assert len(LISTED) > 1_000
    packages = {name.rpartition(".")[0] for name in LISTED}
    assert packages >= set(public_names.CLASSES) | {"minorm", "minorm.nn", "minorm.functional", "minorm.onnx"}


def test_what_vanished_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(nn, "BatchNorm2d")
    monkeypatch.delattr(next(cls for cls in mn.Tensor.__mro__ if "reshape" in vars(cls)), "reshape")
    assert LISTED.keys() - public_names.public().keys() == {"minorm.nn.BatchNorm2d", "minorm.Tensor.reshape"}


@pytest.mark.parametrize("name", SPECIAL)
def test_special_methods_of_a_tensor(name: str) -> None:
    assert hasattr(mn.Tensor, name)


@pytest.mark.parametrize(
    ("was", "now", "words"),
    [
        ("(x, dim=1)", "(x, dim=1, *, out=None)", []),
        ("(x, *, mask=None)", "(x, *, backend=None, mask=None)", []),
        ("(x, axes=(0, 2), eps=1)", "(x, axes=(0, 2), eps=1)", []),
        ("(x, axes=(0, 2), eps=1)", "(x, axes=(0, 3), eps=1)", ["axes=(0, 2)"]),
        ("(x, dim=1)", "(x, out=None, dim=1)", ["dim=1"]),
        ("(x, dim=1)", "(x)", ["dim=1"]),
        ("(x, *, mask=None)", "(x)", ["*", "mask=None"]),
        ("(x, *sizes)", "(x, *shape)", ["*sizes"]),
        ("(x, dim=1)", "", ["x", "dim=1"]),
    ],
)
def test_a_broken_signature_is_found(was: str, now: str, words: list[str]) -> None:
    assert broken(was, now) == words


def test_cuda_has_torchs_names() -> None:
    torch = pytest.importorskip("torch")
    names = [name.removeprefix("minorm.cuda.") for name in LISTED if name.startswith("minorm.cuda.")]
    assert len(names) >= 11
    assert [name for name in names if not hasattr(torch.cuda, name)] == ["make_graphed_step"]


def test_every_public_function_is_recorded_by_a_trace() -> None:
    for name, function in {**vars(F), **{name: getattr(F, name) for name in dir(F)}}.items():
        if inspect.isfunction(function) and not name.startswith("_"):
            assert hasattr(function, "__wrapped__"), f"F.{name} lacks @trace.operation: an export would not see it"


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW"])
def test_optimizers(name: str) -> None:
    optimizer = getattr(optim, name)([nn.Parameter(mn.ones(1))], lr=0.1)
    for method in ("zero_grad", "step", "state_dict", "load_state_dict", "add_param_group"):
        assert callable(getattr(optimizer, method))
    assert optimizer.param_groups[0]["lr"] == 0.1
