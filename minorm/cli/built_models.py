"""A model that FILE.py:FUNCTION builds, in PyTorch or in minorm, for the doctor.

The user has written the name on the command line, and so agrees that the file runs. Weights come from a file that only
arrays are read of.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

from minorm.cli.one_line_errors import UsageError
from minorm.diagnosis.pytorch import arrays
from minorm.nn import Module
from minorm.support.argument_errors import kind_of
from minorm.tensor.tensor import Tensor
from minorm.training import initial
from minorm.training.own_code import Code


@dataclass(frozen=True)
class Built:
    """What the function gave. batches: of images, and labels, where it returned (model, batches)."""

    name: str
    model: Any
    batches: Any = None


def build(given: str, weights: str | None, images: tuple[int, int, int] | None = None) -> Built:
    """Run the file and call FUNCTION(), or FUNCTION(channels, size, classes) where it takes these.

    images    channels, size and classes of the images that were chosen; None where none were
    """
    code = Code.read(given)
    made = _called(code.loaded(), given, images)
    model, batches = made if isinstance(made, tuple) and len(made) == 2 else (made, None)
    if not isinstance(model, Module) and not arrays.is_module(model):
        raise ValueError(f"{given} returned {kind_of(model)}; expected a torch.nn.Module or a minorm.nn.Module, or "
                         "(model, batches)")  # fmt: skip
    if weights is not None:
        _fill(model, weights)
    return Built(given, model, batches)


def _called(function: Any, given: str, images: tuple[int, int, int] | None) -> Any:
    needed = _needed(function)
    if needed not in (0, 3):
        raise ValueError(f"{given} takes {needed} arguments; expected none, or channels, size and classes")
    if needed and images is None:
        raise UsageError(f"{given} takes channels, size and classes, which are those of the images; expected --data")
    try:
        return function(*(images or ())) if needed else function()
    except Exception as error:
        raise ValueError(f"{given} raised {type(error).__name__}: {error}") from error


def _needed(function: Any) -> int:
    """How many arguments have no default."""
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(function).parameters.values()
    return sum(p.kind in positional and p.default is p.empty for p in parameters)


def _fill(model: Any, path: str) -> None:
    found = initial.arrays_by_name(path, "--weights")
    if isinstance(model, Module):
        model.load_state_dict({name: Tensor(array) for name, array in found.items()})
    else:
        arrays.fill(model, found, f"--weights {path}")
