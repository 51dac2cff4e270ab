"""Run FILE.py:FUNCTION, the user's function that builds a model, called as build(channels, size, classes).

The bytes that were read and checked are the bytes that run, so replacing the file after the check has no effect. For
`minorm doctor`, `built` builds a model of PyTorch or minorm.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from minorm.diagnosis.pytorch import arrays
from minorm.nn import Module
from minorm.nn.evaluating import evaluating
from minorm.serialization import limits, opening
from minorm.support.argument_errors import kind_of
from minorm.support.safe_names import quoted
from minorm.tensor.creation import zeros


@dataclass(frozen=True)
class Code:
    """A function in a Python file. The file has been read, but not run."""

    path: str
    function: str
    contents: bytes
    copied: bool = False  # True for a run's copy, which may not import files beside it

    @classmethod
    def read(cls, model: str, copied: bool = False) -> Code:
        """Read the file of `FILE.py:FUNCTION`; `copied` is True for a run's copy, which may not be a symbolic link.

        Raises ValueError for a file of more than limits.CODE bytes.
        """
        path, function = split(model)
        with opening.regular(path, "model", follow=not copied) as file:
            contents = file.read(limits.CODE + 1)
        if len(contents) > limits.CODE:
            raise ValueError(f"model: {quoted(path)} has more than {limits.CODE:,} bytes; expected a file of Python")
        return cls(path, function, contents, copied)

    @property
    def file(self) -> str:
        """The file's name without its folder."""
        return os.path.basename(self.path)

    @property
    def name(self) -> str:
        """FILE.py:FUNCTION, without the file's folder."""
        return f"{self.file}:{self.function}"

    @property
    def sha256(self) -> str:
        """The SHA-256 of the file's bytes, in hexadecimal digits."""
        return hashlib.sha256(self.contents).hexdigest()

    def build(self, channels: int, size: int, classes: int) -> Module:
        """Run the file and call the function.

        Raises ValueError if the function is missing, raises, or does not return a Module that takes the images and
        gives one number for each class.
        """
        named = f"{self.path}:{self.function}"
        made = _called(named, self.loaded(), channels, size, classes)
        _check(named, made, channels, size, classes)
        return made

    def loaded(self) -> Callable[..., Any]:
        """Run the file and return the function.

        A user's own file may import modules beside it. A run's copy may not: the user may not have allowed a file
        beside the copy, such as a `json.py`, to run.
        """
        module = types.ModuleType(os.path.splitext(self.file)[0])
        module.__file__ = self.path
        try:
            with nullcontext() if self.copied else _importable(os.path.dirname(os.path.abspath(self.path))):
                exec(compile(self.contents, self.path, "exec"), module.__dict__)
        except Exception as error:
            lacks = self.copied and isinstance(error, ImportError)
            fix = f"; a run keeps a copy of this file only, so pass --model PATH/{self.name}" if lacks else ""
            raise ValueError(f"{self.path} cannot be run: {type(error).__name__}: {error}{fix}") from error
        found = getattr(module, self.function, None)
        if not callable(found):
            has = [key for key, value in vars(module).items() if isinstance(value, types.FunctionType)]
            raise ValueError(f"{self.path} has no function {self.function!r}; it has {', '.join(has) or 'none'}")
        return found


@contextmanager
def _importable(folder: str) -> Iterator[None]:
    """Let the block import modules from the folder."""
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)


def is_file(model: str) -> bool:
    """Return whether a model's name has the form FILE.py:FUNCTION."""
    return ".py:" in model


def is_graph(model: str) -> bool:
    """Return whether a model's name has the form FILE.onnx, the graph of an ONNX file."""
    return model.lower().endswith(".onnx")


def split(model: str) -> tuple[str, str]:
    """Split "FILE.py:FUNCTION" into (FILE.py, FUNCTION)."""
    path, _, function = model.rpartition(":")
    return path, function


def _called(named: str, function: Callable[..., Any], channels: int, size: int, classes: int) -> Module:
    try:
        made = function(channels, size, classes)
    except Exception as error:
        raise ValueError(f"{named}({channels}, {size}, {classes}) raised {type(error).__name__}: {error}; expected a "
                         "function that can be called as build(channels, size, classes)") from error  # fmt: skip
    if not isinstance(made, Module):
        raise ValueError(f"{named} returned a {type(made).__name__}; expected a minorm.nn.Module")
    return made


def _check(named: str, model: Module, channels: int, size: int, classes: int) -> None:
    """Run the model on two black images, so that an unsuitable model is an error before the training begins."""
    try:
        with evaluating(model):
            outputs = model(zeros(2, channels, size, size))
    except Exception as error:
        raise ValueError(f"the model of {named} does not take images of 2 x {channels} x {size} x {size}: "
                         f"{type(error).__name__}: {error}") from error  # fmt: skip
    if getattr(outputs, "shape", None) != (2, classes):
        raise ValueError(f"for two images the output of {named}'s model is "
                         f"{tuple(getattr(outputs, 'shape', ())) or type(outputs).__name__}; expected shape (2, "
                         f"{classes}), one number for each class")  # fmt: skip


# For the doctor: a module of PyTorch or minorm, and perhaps batches


class ImagesNeeded(ValueError):
    """The function needs channels, size and classes, but the user chose no images."""


@dataclass(frozen=True)
class Built:
    """The function's result. `batches` is None unless the function returned (model, batches)."""

    model: Any
    batches: Any = None


def built(given: str, images: tuple[int, int, int] | None = None) -> Built:
    """Run the file and call FUNCTION(), or FUNCTION(channels, size, classes) if it has these arguments.

    images    channels, size and classes of the images that the user chose; None if the user chose no images
    """
    code = Code.read(given)
    made = _with_images(code.loaded(), given, images)
    model, batches = made if isinstance(made, tuple) and len(made) == 2 else (made, None)
    if not isinstance(model, Module) and not arrays.is_module(model):
        raise ValueError(f"{given} returned a {kind_of(model)}; expected a torch.nn.Module or a minorm.nn.Module, or "
                         "(model, batches)")  # fmt: skip
    return Built(model, batches)


def _with_images(function: Any, given: str, images: tuple[int, int, int] | None) -> Any:
    needed = _count_required_arguments(function)
    if needed not in (0, 3):
        raise ValueError(f"{given} takes {needed} arguments; expected none, or channels, size and classes")
    if needed and images is None:
        raise ImagesNeeded(f"{given} needs the channels, size and classes of the images; expected --data")
    try:
        return function(*(images or ())) if needed else function()
    except Exception as error:
        raise ValueError(f"{given} raised {type(error).__name__}: {error}") from error


def _count_required_arguments(function: Any) -> int:
    """Return the function's number of positional arguments without a default."""
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(function).parameters.values()
    return sum(p.kind in positional and p.default is p.empty for p in parameters)
