"""A model by its name, or by FILE.py:FUNCTION: only code that the user names, or says to trust, is run.

A checkpoint says which function its model came from and the SHA-256 of the file, and a run's folder keeps a copy of
that file. Both may come from a stranger, so neither is a reason to run it. The user names FILE.py:FUNCTION, or passes
`trust`; then the copy beside the checkpoint is run. A path in a checkpoint is never opened.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from minorm import models
from minorm.support.documented import documented
from minorm.support.masking import quoted
from minorm.training.model import sizing
from minorm.training.model.own_code import Code, is_file, split
from minorm.training.settings import LARGEST

FACTS = ("name", "channels", "size", "classes")
PIXELS = 3 * LARGEST**2  # numbers an image of a checkpoint's model may have
COPY = re.compile(r"[^/\\:\0]+\.py")  # a file's name, without a folder or a drive


@documented(
    {},
    path="the checkpoint",
    function="the name of the function that builds the model",
    code="the copy in the checkpoint's folder; None where there is none with the SHA-256 that the checkpoint says",
)
class UntrustedCode(ValueError):
    """A checkpoint's model is built by code, and the user has not said to run it. Nothing was run.

    Example:
        >>> error = mn.training.UntrustedCode("run/best.safetensors", "build", None)
        >>> error.path, error.function
        ('run/best.safetensors', 'build')
    """

    def __init__(self, path: str, function: str, code: Code | None) -> None:
        self.path, self.code, self.function = path, code, function
        where = "is not in its folder" if code is None else f"lies in its folder: {said(code)}"
        wish = "" if code is None else "trust=True, or "
        super().__init__(f"the model of {path} is built by code that {where}; nothing was run. To run code, pass {wish}"
                         f"model='FILE.py:{function}' with a file of yours")  # fmt: skip


def said(code: Code) -> str:
    """Where the code lies, and the beginning of its digest."""
    return f"{code.function!r} in {quoted(code.path)}, SHA-256 {code.sha256[:12]}"


def facts(model: str, channels: int, size: int, classes: int, code: Code | None = None) -> dict[str, Any]:
    """What a checkpoint says about a model; `code` is the file that `model` names, where it was read already."""
    code = Code.read(model) if code is None and is_file(model) else code
    found: dict[str, Any] = {"name": model, "channels": channels, "size": size, "classes": classes}
    return found if code is None else found | {"name": code.name, "sha256": code.sha256}


def build(
    name: str, channels: int, size: int, classes: int, sha256: str | None = None, *, code: Code | None = None
) -> Any:
    """The model that facts describe.

    sha256  of the file, where `name` says FILE.py:FUNCTION
    code    what to run, whatever the facts say; without it none is run

    ValueError where facts name code, or the code makes no model for such images.
    """
    if code is not None:
        return code.build(channels, size, classes)
    if is_file(name):
        raise ValueError(f"the model {name!r} is code of SHA-256 {sha256}, and facts run none; pass "
                         "code=Code.read('FILE.py:FUNCTION') to run a file of yours")  # fmt: skip
    return models.build(name, channels, size, classes)


def checked(found: Any, path: str) -> dict[str, Any]:
    """The facts that the file at `path` holds; ValueError unless their model can be built, with its weights there."""
    if not isinstance(found, dict) or not {*FACTS} <= found.keys() <= {*FACTS, "sha256"}:
        said = sorted(map(str, found)) if isinstance(found, dict) else type(found).__name__
        raise ValueError(f"{path}: the facts of its model are {said}; expected {', '.join(FACTS)}")
    name = found["name"]
    if not isinstance(name, str) or not (name in models.BY_NAME or is_file(name)):
        raise ValueError(f"{path}: its model is {name!r}; expected one of {', '.join(models.BY_NAME)}, or "
                         "FILE.py:FUNCTION")  # fmt: skip
    bytes_there = os.path.getsize(path)
    for key, most in (("channels", bytes_there), ("size", LARGEST), ("classes", bytes_there)):
        if isinstance(found[key], bool) or not isinstance(found[key], int) or not 1 <= found[key] <= most:
            raise ValueError(f"{path}: {key} of its model is {found[key]!r}; expected a whole number from 1 to {most}")
    if is_file(name):
        _check_code(found, path)
    else:
        sizing.check(found, path)
    return found


def trusted(found: Mapping[str, Any], path: str, model: str | None = None, trust: bool = False) -> Code | None:
    """The code to build the model of the checkpoint at `path` with; None for a model of `minorm.models`.

    model  FILE.py:FUNCTION of the user's, which is taken whatever the checkpoint says
    trust  whether the copy in the checkpoint's folder may be run

    UntrustedCode where the model is built by code, and neither says which. Nothing is run here.
    """
    if model is not None and is_file(model):
        return Code.read(model)
    if not is_file(found["name"]):
        return None
    code = _copy(found, os.path.dirname(path))
    if code is None or not trust:
        raise UntrustedCode(path, split(found["name"])[1], code)
    return code


def _copy(found: Mapping[str, Any], folder: str) -> Code | None:
    """The file in the folder that has the name and the SHA-256 that the facts say; no path, no link."""
    file, function = split(found["name"])
    if not COPY.fullmatch(file):
        return None
    try:
        code = Code.read(f"{os.path.join(folder, file)}:{function}", copied=True)
    except (OSError, ValueError):  # the file is missing, cannot be read, or is too large for a file of Python
        return None
    return code if code.sha256 == found["sha256"] else None


def _check_code(found: Mapping[str, Any], path: str) -> None:
    _, function = split(found["name"])
    if not function.isidentifier():
        raise ValueError(f"{path}: its model is {found['name']!r}; expected FILE.py:FUNCTION, with a function's name")
    if found["channels"] * found["size"] ** 2 > PIXELS:
        raise ValueError(f"{path}: its model is for images of {found['channels']} x {found['size']} x {found['size']}; "
                         f"expected at most {PIXELS:,} numbers an image")  # fmt: skip
    digest = found.get("sha256")
    if not isinstance(digest, str) or not re.fullmatch("[0-9a-f]{64}", digest):
        raise ValueError(f"{path}: the SHA-256 of its model's file is {digest!r}; expected 64 hexadecimal digits")
