"""A model by its name, or by FILE.py:FUNCTION, which is called as build(channels, size, classes).

A checkpoint holds the path of such a file and the SHA-256 of its contents, and no code. Whoever opens the checkpoint
builds from the file only while it is the same one.
"""

from __future__ import annotations

import hashlib
import os
import sys
import types
from collections.abc import Callable
from typing import Any

from minorm import models, opening
from minorm.autograd import no_grad
from minorm.creation import zeros
from minorm.nn import Module


def facts(model: str, channels: int, size: int, classes: int) -> dict[str, Any]:
    """What a checkpoint says about a model, and `build` makes it from."""
    found: dict[str, Any] = {"name": model, "channels": channels, "size": size, "classes": classes}
    if is_file(model):
        path, function = split(model)
        found |= {"name": f"{os.path.abspath(path)}:{function}", "sha256": hashlib.sha256(_read(path)).hexdigest()}
    return found


def build(
    name: str, channels: int, size: int, classes: int, sha256: str | None = None, instead: str | None = None
) -> Any:
    """The model that facts describe.

    sha256   of the file, where `name` says FILE.py:FUNCTION: another one is not run
    instead  FILE.py:FUNCTION to build from, whatever the facts say

    ValueError where the file is another one, the function is not there, raises, or returns no Module, or one that does
    not take the images or has no number a class.
    """
    named = instead or name
    if not is_file(named):
        return models.build(named, channels, size, classes)
    path, function = split(named)
    contents = _read(path)
    if instead is None and hashlib.sha256(contents).hexdigest() != sha256:
        raise ValueError(f"{path} is not the file any more that the model was built from; to build it from this one "
                         f"say so: --model {path}:{function}")  # fmt: skip
    made = _called(named, _function(path, function, contents), channels, size, classes)
    _check(named, made, channels, size, classes)
    return made


def is_file(model: str) -> bool:
    """Whether a model is said as FILE.py:FUNCTION."""
    return ".py:" in model


def split(model: str) -> tuple[str, str]:
    """(FILE.py, FUNCTION)"""
    path, _, function = model.rpartition(":")
    return path, function


def _read(path: str) -> bytes:
    with opening.regular(path, "model") as file:
        return file.read()


def _function(path: str, name: str, contents: bytes) -> Callable[..., Any]:
    """The function out of the very bytes that were looked at; the file may import what lies beside it."""
    module = types.ModuleType(os.path.splitext(os.path.basename(path))[0])
    module.__file__ = path
    folder = os.path.dirname(os.path.abspath(path))
    sys.path.insert(0, folder)
    try:
        exec(compile(contents, path, "exec"), module.__dict__)
    except Exception as error:
        raise ValueError(f"{path} cannot be run: {type(error).__name__}: {error}") from error
    finally:
        sys.path.remove(folder)
    found = getattr(module, name, None)
    if not callable(found):
        has = [key for key, value in vars(module).items() if isinstance(value, types.FunctionType)]
        raise ValueError(f"{path} has no function {name!r}; it has {', '.join(has) or 'none'}")
    return found


def _called(named: str, function: Callable[..., Any], channels: int, size: int, classes: int) -> Any:
    try:
        made = function(channels, size, classes)
    except Exception as error:
        raise ValueError(f"{named}({channels}, {size}, {classes}) raised {type(error).__name__}: {error}; "
                         "it is called as build(channels, size, classes)") from error  # fmt: skip
    if not isinstance(made, Module):
        raise ValueError(f"{named} returned a {type(made).__name__}; expected a minorm.nn.Module")
    return made


def _check(named: str, model: Module, channels: int, size: int, classes: int) -> None:
    """One pass over two black images: what does not fit is said before the training begins."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with no_grad():
            outputs = model(zeros(2, channels, size, size))
    except Exception as error:
        raise ValueError(f"the model of {named} does not take images of 2 x {channels} x {size} x {size}: "
                         f"{type(error).__name__}: {error}") from error  # fmt: skip
    finally:
        for module, training in modes:
            module.training = training
    if getattr(outputs, "shape", None) != (2, classes):
        raise ValueError(f"the model of {named} makes {tuple(getattr(outputs, 'shape', ())) or type(outputs).__name__} "
                         f"of two images; expected (2, {classes}), one number a class")  # fmt: skip
