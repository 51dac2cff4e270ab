"""PyTorch's arguments, name by name: each is taken under its name, at its place and with its default, or stands in the
table of docs/names.md with the reason."""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import minorm as mn
from minorm.support.argument_errors import MEMORY

torch = pytest.importorskip("torch")

PAGE = Path(__file__).parents[2] / "docs" / "names.md"


class Argument(NamedTuple):
    """One of an overload: `place` counts from 0 for what may be given by position, and is None for the rest."""

    name: str
    place: int | None
    default: Any


NEEDED = object()


def stubs(path: str, cls: str = "") -> dict[str, list[list[Argument]]]:
    """The overloads of PyTorch's compiled functions, whose signatures stand in its .pyi files alone."""
    tree: Any = ast.parse((Path(torch.__file__).parent / path).read_text(encoding="utf-8"))
    if cls:
        tree = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == cls)
    found: dict[str, list[list[Argument]]] = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            found.setdefault(node.name, []).append(arguments(node.args))
    return found


def arguments(given: ast.arguments) -> list[Argument]:
    ordered = given.posonlyargs + given.args
    defaults = [None] * (len(ordered) - len(given.defaults)) + list(given.defaults)
    return [
        *(Argument(a.arg, i, value_of(d)) for i, (a, d) in enumerate(zip(ordered, defaults, strict=True))),
        *(Argument(a.arg, None, value_of(d)) for a, d in zip(given.kwonlyargs, given.kw_defaults, strict=True)),
    ]


def value_of(node: ast.expr | None) -> Any:
    if node is None:
        return NEEDED
    try:
        return ast.literal_eval(node)
    except ValueError:
        return None  # torch.preserve_format and the like


def signature(function: Any) -> list[Argument] | None:
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return None
    return [
        Argument(p.name, None if p.kind is p.KEYWORD_ONLY else i, NEEDED if p.default is p.empty else p.default)
        for i, p in enumerate(parameters)
        if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]


# Arguments that PyTorch has in many places, and their counterpart here: docs/names.md says the same.
GENERAL: dict[str, str] = {
    "out": "results are new tensors; y.copy_(result) writes one into another",
    "size_average": "PyTorch's old name for reduction, as is `reduce`; give the later arguments by name",
    "reduce": "as above",
    "_stacklevel": "internal to PyTorch; give the later arguments by name",
    "input": "the first argument may be named `x` in minorm; both names work",
    "pin_memory": "accepted where Tensors are made, as are `layout` and `memory_format` (but not of `zeros_like` and "
    "similar functions): numbers do not depend on them",
    "sparse_grad": "gradients are dense",
    "out_dtype": "the result has the operands' type",
    "foreach": "PyTorch's way to loop, as are `fused`, `capturable` and `differentiable`; no number depends on it",
    "decoupled_weight_decay": "AdamW is Adam with decoupled weight decay",
    "min_value": "Hardtanh's old name, as is `max_value`; the names are min_val and max_val",
}
PASSED_OVER = {*GENERAL, *MEMORY, "fused", "capturable", "differentiable", "max_value", "implicit", "names", "inplace"}
TENSOR = {"self", "input", "x"}

# Where an argument differs on purpose: what differs, and why. docs/names.md says the same.
MOMENTUM = "the share of the old running value that is kept, as in ONNX: 0.9 is PyTorch's 0.1"
AXIS = "the axis is never guessed"
DIFFER: dict[str, tuple[str, str]] = {
    "mn.from_dlpack ext_tensor": ("absent", "give it by position"),
    "mn.from_dlpack device": ("absent", "the result shares the memory on its device; x.to(device) copies it"),
    "mn.from_dlpack copy": ("absent", "x.clone() copies"),
    "mn.linspace steps": ("has no default", "PyTorch's default is deprecated"),
    "mn.load f": ("absent", "`path`: a file is opened by its name"),
    "mn.load pickle_module": ("absent", "nothing is unpickled"),
    "mn.load weights_only": ("default True", "load never reads anything but weights"),
    "mn.load mmap": ("absent", "a file is read whole, and closed"),
    "mn.save obj": ("absent", "`state_dict`, a nest of Tensors, numbers and texts"),
    "mn.save f": ("absent", "as load"),
    "mn.save pickle_module": ("absent", "as load"),
    "mn.save pickle_protocol": ("absent", "as load"),
    "mn.set_num_threads num": ("absent", "give it by position"),
    "x.to other": ("absent", "give it by position"),
    "x.view dtype": ("absent", "x.to(dtype) converts; bits are not read as another type"),
    **{f"F.{name} momentum": ("default 0.9", MOMENTUM) for name in ("batch_norm", "instance_norm")},
    **{f"nn.{name}{n}d momentum": ("default 0.9", MOMENTUM)
       for name in ("BatchNorm", "InstanceNorm") for n in (1, 2, 3)},
    "nn.SyncBatchNorm momentum": ("default 0.9", MOMENTUM),
    **{f"F.{name} weight": ("absent", "weigh the losses of reduction='none'") for name in ("l1_loss", "mse_loss")},
    **{f"F.{name} dim": ("has no default", AXIS) for name in ("log_softmax", "softmax", "softmin")},
    **{f"nn.{name} dim": ("has no default", AXIS) for name in ("LogSoftmax", "Softmax", "Softmin")},
    "nn.Buffer data": ("has no default", "a buffer holds a Tensor"),
    "nn.Parameter data": ("has no default", "a parameter holds a Tensor"),
    "nn.RNNBase mode": ("absent", "LSTM, GRU and RNN are the modes"),
    "nn.RNNCellBase num_chunks": ("absent", "as RNNBase"),
    "Module.modules remove_duplicate": ("absent", "a shared object comes once"),
    "Module.named_buffers remove_duplicate": ("absent", "as above"),
    "Module.named_modules memo": ("absent", "PyTorch's own"),
    "Module.named_modules remove_duplicate": ("absent", "as above"),
    "Module.named_parameters remove_duplicate": ("absent", "as above"),
    "Module.register_forward_hook always_call": ("absent", "a hook runs only after a forward without an error"),
    "nn.utils.rnn.PackedSequence batch_sizes": ("has no default", "packed data has no meaning without batch sizes"),
}  # fmt: skip


def differences(name: str, theirs: list[Argument], ours: Any) -> Iterator[tuple[str, str]]:
    """Yield the arguments of one of PyTorch's overloads that ours does not take in the same way."""
    parameters = dict(inspect.signature(ours).parameters)
    kinds = {p.kind for p in parameters.values()}
    if inspect.Parameter.VAR_KEYWORD in kinds:  # the Lazy layers hand all to the layer that they become
        return
    starred = inspect.Parameter.VAR_POSITIONAL in kinds
    places = [p.name for p in parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    in_place = True
    for i, argument in enumerate(theirs):
        if argument.name in TENSOR and i == 0:
            continue
        if argument.name in PASSED_OVER:
            in_place = False  # what stands behind it is given by name
            continue
        mine, label = parameters.get(argument.name), f"{name} {argument.name}"
        if mine is None:
            if not (starred and argument.name in ("size", "dims", "shape", "tensors")):
                yield label, "absent"
                in_place = False
        elif argument.default is not NEEDED and mine.default is mine.empty:
            yield label, "has no default"
        elif argument.default is not NEEDED and not same(argument.default, mine.default):
            yield label, f"default {mine.default!r}"
        elif argument.place is None or not in_place or starred:
            continue
        elif places[argument.place : argument.place + 1] != [argument.name]:
            yield label, "another place"


def same(theirs: Any, ours: Any) -> bool:
    """Equal, or both the absence of a value, or a function and its name."""
    nothing = (None, (), False)
    return theirs == ours or (theirs in nothing and ours in nothing) or getattr(theirs, "__name__", theirs) == ours


def walked() -> Iterator[tuple[str, list[list[Argument]], Any]]:
    """Every shared name of the families: label, PyTorch's overloads, ours."""
    functions, methods = stubs("_C/_VariableFunctions.pyi"), stubs("_C/__init__.pyi", "TensorBase")
    for label, theirs, ours, compiled in (
        ("mn", torch, mn, functions),
        ("x", torch.Tensor, mn.Tensor, methods),
        ("F", torch.nn.functional, mn.functional, functions),
        ("nn", torch.nn, mn.nn, {}),
        ("Module", torch.nn.Module, mn.nn.Module, {}),
        *((place, importlib.import_module(f"torch.{place}"), importlib.import_module(f"minorm.{place}"), {})
          for place in ("nn.init", "nn.utils", "nn.utils.rnn", "nn.utils.parametrizations", "optim",
                        "optim.lr_scheduler", "optim.swa_utils")),
    ):  # fmt: skip
        for name in dir(theirs):
            mine, other = getattr(ours, name, None), getattr(theirs, name)
            if name.startswith("_") or not callable(mine) or not callable(other) or mine in (mn.Tensor, mn.Size):
                continue
            if not (getattr(mine, "__module__", "") or "").startswith("minorm"):
                continue
            own = signature(other)
            overloads = (
                [own] if own is not None and (label, name) != ("x", "requires_grad_") else compiled.get(name, [])
            )
            yield f"{label}.{name}", [o for o in overloads if not old(o, label)], mine


def old(overload: list[Argument], label: str) -> bool:
    """Whether an overload of a function is one that PyTorch keeps for programs from before 2018."""
    names = [argument.name for argument in overload]
    return label in ("mn", "F") and "self" in names


def found() -> dict[str, str]:
    """Return the differences by name and argument; test_overloads has the arguments that tell overloads apart."""
    return {
        label: what
        for name, overloads, mine in walked()
        for theirs in overloads
        for label, what in differences(name, theirs, mine)
        if label.partition(".")[2] not in OVERLOADED and label not in NOT_SO
    }


def convolved(n: int, t: Any) -> Any:
    return getattr(t.nn.functional, f"conv{n}d")(t.ones((1, 1, *(3,) * n)), t.ones((1, 1, *(3,) * n)), padding="same")


# Arguments that mean one thing or another by what they are: called both ways, in both libraries.
OVERLOADED: dict[str, Any] = {
    "arange end": lambda t: t.arange(3),
    "max other": lambda t: t.max(t.tensor([1, 5]), t.tensor([3, 2])),
    "min other": lambda t: t.tensor([1, 5]).min(t.tensor([3, 2])),
    "randint high": lambda t: t.randint(1, (2,)),
    "randint size": lambda t: t.randint(1, size=(2,)),
    "randint_like high": lambda t: t.randint_like(t.tensor([1, 2]), 1),
    "random_ to": lambda t: t.tensor([1, 2]).random_(1),
    **{f"conv{n}d padding": functools.partial(convolved, n) for n in (1, 2, 3)},
    "scatter value": lambda t: t.zeros(3).scatter(0, t.tensor([1]), 2.0),
    "scatter_ value": lambda t: t.zeros(3).scatter_(0, t.tensor([1]), 2.0),
    "std unbiased": lambda t: t.tensor([1.0, 2.0, 4.0]).std(False),
    "std correction": lambda t: t.tensor([1.0, 2.0, 4.0]).std(correction=0),
    "var unbiased": lambda t: t.var(t.tensor([1.0, 2.0, 4.0]), False),
    "var correction": lambda t: t.var(t.tensor([1.0, 2.0, 4.0])),
    **{
        f"{name}_mean unbiased": lambda t, name=name: getattr(t, f"{name}_mean")(t.tensor([1.0, 2.0, 4.0]), False)[0]
        for name in ("std", "var")
    },
    **{
        f"{name}_mean correction": lambda t, name=name: getattr(t, f"{name}_mean")(t.tensor([1.0, 2.0, 4.0]))[0]
        for name in ("std", "var")
    },
    "isin element": lambda t: t.isin(2, t.tensor([1, 2])),
    "isin test_element": lambda t: t.isin(t.tensor([1, 2]), 2),
    "tensor_split sections": lambda t: t.tensor([1, 2, 3]).tensor_split(sections=2)[0],
    "tensor_split indices": lambda t: t.tensor_split(t.tensor([1, 2, 3]), indices=(1, 2))[1],
    "tensor_split tensor_indices_or_sections": lambda t: t.tensor_split(t.tensor([1, 2, 3]), t.tensor([2]))[0],
    "repeat_interleave repeats": lambda t: t.repeat_interleave(t.tensor([2, 0, 1])),
    "subtract alpha": lambda t: t.subtract(t.tensor([5]), t.tensor([2]), alpha=2),
    "subtract_ alpha": lambda t: t.tensor([5]).subtract_(t.tensor([2]), alpha=2),
    "meshgrid indexing": lambda t: t.meshgrid(t.tensor([1, 2]), t.tensor([3, 4]), indexing="ij")[0],
    "split tensor": lambda t: t.split(tensor=t.tensor([1, 2, 3]), split_size_or_sections=[1, 2])[1],
    "split split_size_or_sections": lambda t: t.split(t.tensor([1, 2, 3]), 2)[0],
}
# Arguments in PyTorch's stubs that PyTorch itself does not take.
NOT_SO = {"x.requires_grad_ mode", "mn.enable_grad orig_func", "mn.save _use_new_zipfile_serialization",
          "mn.save _disable_byteorder_record"}  # fmt: skip


@pytest.mark.parametrize("call", OVERLOADED.values(), ids=OVERLOADED)
def test_overloads(call: Any) -> None:
    expected, mine = call(torch), call(mn)
    np.testing.assert_allclose(mine.numpy(), expected.numpy(), rtol=1e-6)
    assert str(expected.dtype) == f"torch.{mine.dtype}"


def test_every_argument_of_pytorch_is_ours_or_in_the_table() -> None:
    assert found() == {label: what for label, (what, _) in DIFFER.items()}


def test_every_shared_name_has_a_text_of_its_own() -> None:
    names = list(walked())
    assert len(names) > 800
    assert not [name for name, _, mine in names if not inspect.getdoc(mine)]


def test_the_page_has_the_table() -> None:
    section = PAGE.read_text(encoding="utf-8").partition("## Arguments\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `([^`]+)` \| (.+) \|$", section, flags=re.MULTILINE)
    assert rows == [*GENERAL.items(), *((label, f"{what}: {why}") for label, (what, why) in DIFFER.items())]
