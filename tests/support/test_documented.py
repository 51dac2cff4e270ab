"""help() explains a normalization: formula, each argument with its default, shapes, an example that runs, sources.

These tests read the arguments out of a docstring's text and compare them with the signature.
"""

from __future__ import annotations

import doctest
import inspect
import re
import subprocess
import sys
from collections.abc import Callable
from enum import Enum
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import pytest

import minorm as mn
import minorm.functional as F
from minorm import nn
from minorm.support.documented import arguments_of, documented
from tests import public_names

MODULES = (  # of minorm.functional.norm
    "running_norms", "sample_norms", "general_norms", "response", "filter_response", "ghost", "renormalization",
)  # fmt: skip
PUBLIC: dict[str, Callable[..., Any]] = {
    f"nn.{name}": found
    for name in dir(nn)
    if inspect.isclass(found := getattr(nn, name))
    and (found.__module__.startswith("minorm.nn.norm.") or "Norm" in name)
} | {
    f"F.{name}": found
    for name in dir(F)
    if inspect.isfunction(found := getattr(F, name))
    and found.__module__ in [f"minorm.functional.norm.{module}" for module in MODULES]
}


def resolved(name: str) -> Any:
    """Return the object of a full name: minorm.functional.linear is the function, although a module has that name
    too."""
    package, _, last = name.rpartition(".")
    try:
        return getattr(import_module(package), last)
    except ModuleNotFoundError:  # a class
        return getattr(resolved(package), last)


# All of tests/public_names.txt but the layers: functions, classes with their arguments, a Tensor's methods. The parts
# of minorm.diagnosis are listed there, and documented in their files.
PARTS = {f"minorm.diagnosis.{name}" for name in ("Measured", "Norm", "judge", "measure")}
OTHERS: dict[str, Callable[..., Any]] = {
    name.replace("minorm.functional.", "F."): found
    for name in public_names.listed()
    if not name.startswith("minorm.nn.")
    and name not in PARTS
    and (find_spec("onnx") or not name.startswith("minorm.onnx."))
    and callable(found := resolved(name))
    and (getattr(found, "__module__", None) or "").startswith("minorm")
    and found not in PUBLIC.values()
}
# The rest of minorm.nn beside the normalizations: its other public names, and its modules init, utils ...
NN: dict[str, Callable[..., Any]] = {
    name.removeprefix("minorm."): found
    for name in public_names.listed()
    if name.startswith("minorm.nn.") and callable(found := resolved(name)) and found not in PUBLIC.values()
}
LAZY = {name: found for name, found in PUBLIC.items() if name.startswith("nn.Lazy")}
UNDESCRIBED: set[str] = set()  # of OTHERS, those that are still to be done
EXTRAS = {  # examples that need more than the core
    "PIL": "ImageFolder load_folder read_image",
    "sklearn": "split_digits",
    "onnxruntime": "verify",
}
# Operators of a standard without a paper
PAPERLESS = {"nn.MeanVarianceNorm", "F.mean_variance_norm", "nn.Normalization", "F.normalization", "F.normalize"}


def described(text: str) -> dict[str, tuple[str, str]]:
    """The arguments of the section `Args:`: by name what stands in brackets, and the text."""
    section = re.search(r"^Args:\n((?: {4}.*\n)+)", text + "\n", re.MULTILINE)
    if section is None:
        return {}
    entries = re.split(r"^ {4}(?=\S)", section[1], flags=re.MULTILINE)[1:]
    parsed = [re.fullmatch(r"\*{0,2}(\w+)(?: \((.*?)\))?:\s+(.*)", entry, re.DOTALL) for entry in entries]
    assert all(parsed), entries
    return {found[1]: (found[2] or "", found[3].strip()) for found in parsed if found}


def arguments(public: Callable[..., Any]) -> list[inspect.Parameter]:
    """Return the arguments of the signature, without the Tensor that a method is called on."""
    if inspect.isclass(public) and public.__init__ is object.__init__:  # what a base's __new__ takes, it passes on
        return []
    if inspect.isclass(public) and issubclass(public, (Exception, Enum)) and "__init__" not in vars(public):
        return []  # a message; a member's value
    if inspect.isbuiltin(public):  # mn.empty_cache, which Cython compiled and which takes nothing
        return []
    parameters = inspect.signature(public).parameters.values()
    return [parameter for parameter in parameters if parameter.name != "self"]


def missing(public: Callable[..., Any]) -> list[str]:
    """Return the arguments that the docstring lacks or describes wrongly."""
    found, wrong = described(inspect.getdoc(public) or ""), []
    for parameter in arguments(public):
        bracket, text = found.pop(parameter.name, ("", ""))
        if len(text) < 8:
            wrong.append(f"{parameter.name} is not described")
        default = getattr(parameter.default, "__name__", repr(parameter.default))
        if parameter.default is not parameter.empty and not bracket.endswith(f"default {default}"):
            wrong.append(f"{parameter.name} has the default {default}, the docstring ({bracket})")
    return wrong + [f"{name} is no argument" for name in found]


def test_all_normalizations_and_all_of_nn_are_looked_at() -> None:
    assert len(PUBLIC) >= 24 + 12
    assert len(NN) > 200
    assert {"nn.Conv2d", "nn.init.eye_", "nn.utils.rnn.pack_sequence", "nn.Module.to"} <= set(NN)
    assert {"nn.BatchNorm2d", "nn.TLU", "nn.SyncBatchNorm", "nn.LazyBatchNorm1d", "F.normalize"} <= set(PUBLIC)


@pytest.mark.parametrize("name", PUBLIC)
def test_every_argument_is_described_with_its_default(name: str) -> None:
    assert not missing(PUBLIC[name])


@pytest.mark.parametrize("name", PUBLIC)
def test_every_example_runs(name: str) -> None:
    assert run_examples(name, PUBLIC[name])


def run_examples(name: str, public: Callable[..., Any]) -> int:
    """How many lines of examples the docstring has; all of them print what it says."""
    names = {"mn": mn, "nn": nn, "F": F}
    for module, needing in EXTRAS.items():
        if name.rpartition(".")[2] in needing.split():
            pytest.importorskip(module)
    test = doctest.DocTestParser().get_doctest(inspect.getdoc(public) or "", names, name, None, None)
    shown: list[str] = []
    doctest.DocTestRunner(verbose=False).run(test, out=shown.append)
    assert not shown, "".join(shown)
    return len(test.examples)


@pytest.mark.parametrize("name", OTHERS)
def test_others_describe_every_argument_with_its_default(name: str) -> None:
    wrong = missing(OTHERS[name])
    assert bool(wrong) is (name in UNDESCRIBED), wrong or f"{name} is described: take it out of UNDESCRIBED"


@pytest.mark.parametrize("name", OTHERS)
def test_others_have_examples_that_run(name: str) -> None:
    count = run_examples(name, OTHERS[name])
    assert count or len(arguments(OTHERS[name])) < 2 or name in UNDESCRIBED


@pytest.mark.parametrize("name", NN)
def test_each_name_of_nn_is_described(name: str) -> None:
    assert not missing(NN[name])
    assert run_examples(name, NN[name]) or (name.startswith("nn.Module.") and len(arguments(NN[name])) < 2)
    assert not re.search(r"the same over|\{[a-z]\w+\}", inspect.getdoc(NN[name]) or "")


@pytest.mark.parametrize("name", sorted(set(PUBLIC) - set(LAZY)))
def test_formula_shapes_and_sources(name: str) -> None:
    text = inspect.getdoc(PUBLIC[name]) or ""
    assert re.match(r"y = |`LocalResponseNorm` by its older name:\n\ny = ", text)
    assert re.search(r"\(N, C|normalized_shape|any rank|any shape|as many axes as x|over `axes`", text)
    assert "x's shape and type" in " ".join(text.split())
    assert "ONNX" in text.rpartition("\n\n")[2]
    assert name in PAPERLESS or re.search(r"arXiv:\d{4}\.\d{5}|Krizhevsky", text)
    if "momentum" in inspect.signature(PUBLIC[name]).parameters:
        assert "the share of the old running value that is kept" in " ".join(text.split())


@pytest.mark.parametrize("name", PUBLIC)
def test_no_docstring_stands_on_another(name: str) -> None:
    assert not re.search("the same over|{|}", inspect.getdoc(PUBLIC[name]) or "", re.IGNORECASE)


def test_what_is_missing_is_found() -> None:
    @documented({"x": "an array of numbers", "eps": "added to the variance"})
    def function(x: Any, eps: float = 1e-5) -> None:
        """y = x"""

    assert not missing(function)
    text = function.__doc__ or ""
    function.__doc__ = text.replace("1e-05", "1e-06")
    assert missing(function) == ["eps has the default 1e-05, the docstring (float, default 1e-06)"]
    function.__doc__ = text.replace("x: an array of numbers", "z: an array of numbers")
    assert missing(function) == ["x is not described", "z is no argument"]
    function.__doc__ = "y = x"
    assert len(missing(function)) == 3


def test_an_argument_without_a_text_is_an_error() -> None:
    with pytest.raises(KeyError, match="size"):

        @documented({})
        def function(size: int) -> None:
            """y = x"""


def test_without_docstrings_there_is_nothing_to_add_to() -> None:
    def function(x: Any) -> None: ...

    assert documented({})(function) is function
    assert function.__doc__ is None


def test_a_family_shares_what_its_words_do_not_tell_apart() -> None:
    class Base:
        """x is ({form}), ONNX {name}."""

    @documented({"size": "of the window"}, base=Base, words={"form": "N, C, " + "L" * 200})
    class Pool1d(Base):
        """y = max x."""

        def __init__(self, size: int) -> None: ...

    text = inspect.getdoc(Pool1d) or ""
    assert not missing(Pool1d)
    assert text.startswith("y = max x.\n\nx is (N, C,\nL")  # a line that became too long is broken
    assert "ONNX Pool1d." in text
    assert Pool1d(2).__doc__ == text
    assert arguments_of(Pool1d) == {"size": "of the window"}


def test_a_class_without_a_text_is_an_error_when_it_is_read() -> None:
    @documented({})
    class Pool:
        """y = max x."""

        def __init__(self, size: int) -> None: ...

    with pytest.raises(KeyError, match="size"):
        inspect.getdoc(Pool)


def test_names_for_several_types_are_spelled_out() -> None:
    assert "kernel_size (int | Sequence[int]):" in (inspect.getdoc(nn.Conv2d) or "")


def test_everything_can_be_imported_without_docstrings() -> None:
    code = "import minorm as mn; [getattr(part, name) for part in (mn, mn.nn, mn.functional) for name in dir(part)]"
    subprocess.run([sys.executable, "-OO", "-c", code], check=True, timeout=120)
