"""Build a model from its name, FILE.py:FUNCTION or FILE.onnx; only code that the user names or trusts is run.

A checkpoint names the function that built its model and the SHA-256 of the function's file. A run's folder has a copy
of this file. The checkpoint and the copy may come from a stranger, so the file is run only with the user's consent: the
user names FILE.py:FUNCTION, or passes `trust` to run the copy beside the checkpoint. A path in a checkpoint is never
opened. The graph of an ONNX file is not code, so its copy is read without consent if its SHA-256 is the one in the
checkpoint.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from minorm import models
from minorm.support.documented import documented
from minorm.support.safe_names import quoted
from minorm.training.model import parameter_counts
from minorm.training.model.onnx_graph import NAME, Graph
from minorm.training.model.own_code import Code, is_file, is_graph, split
from minorm.training.settings import LARGEST

FACTS = ("name", "channels", "size", "classes")
KEEPS_HEAD = "keeps_head"
PIXELS = 3 * LARGEST**2  # numbers that an image of a checkpoint's model may have
COPY = re.compile(r"[^/\\:\0]+\.py")  # a file's name, without a folder or a drive


@documented(
    {},
    path="the checkpoint",
    function="the name of the function that builds the model",
    code="the copy of the code in the checkpoint's folder; None if there is no copy with the SHA-256 in the checkpoint",
)
class UntrustedCode(ValueError):
    """A checkpoint's model is built by code that the user has not allowed to run. No code was run.

    Example:
        >>> error = mn.training.UntrustedCode("run/best.safetensors", "build", None)
        >>> error.path, error.function
        ('run/best.safetensors', 'build')
    """

    def __init__(self, path: str, function: str, code: Code | None) -> None:
        self.path, self.code, self.function = path, code, function
        where = "is not in the same folder" if code is None else f"is in the same folder: {said(code)}"
        wish = "" if code is None else "trust=True, or "
        super().__init__(f"the model of {path} is built by code that {where}; nothing was run. To run the code, pass "
                         f"{wish}model='FILE.py:{function}' with a file of yours")  # fmt: skip


def said(code: Code) -> str:
    """Return the function, its file and the beginning of the file's SHA-256, as text."""
    return f"{code.function!r} in {quoted(code.path)}, SHA-256 {code.sha256[:12]}"


def read(model: str) -> Code | Graph | None:
    """Read the file that `model` names; return None for a model of `minorm.models`."""
    if is_graph(model):
        return Graph.read(model)
    return Code.read(model) if is_file(model) else None


def facts(
    model: str, channels: int, size: int, classes: int, code: Code | Graph | None = None, keeps_head: bool = False
) -> dict[str, Any]:
    """Return the description of a model that a checkpoint contains.

    code        the file that `model` names, if the file was read already
    keeps_head  whether the head of a graph stays as it is in the file
    """
    code = read(model) if code is None else code
    found: dict[str, Any] = {"name": model, "channels": channels, "size": size, "classes": classes}
    if code is not None:
        found |= {"name": code.name, "sha256": code.sha256}
    return found | ({KEEPS_HEAD: True} if keeps_head else {})


def build(
    name: str,
    channels: int,
    size: int,
    classes: int,
    sha256: str | None = None,
    keeps_head: bool = False,
    *,
    code: Code | Graph | None = None,
) -> Any:
    """Return the model `name` for images with `channels` channels, `size` x `size` pixels and `classes` classes.

    sha256      the SHA-256 of the file, if `name` is FILE.py:FUNCTION or FILE.onnx
    keeps_head  whether the head of FILE.onnx stays as it is in the file
    code        the code or graph that builds the model, in place of `name`; if it is None, no code is run

    Raises ValueError if the facts name a file and `code` is None, or if the code does not build a model for images of
    this size.
    """
    if isinstance(code, Graph):
        return code.build(channels, size, classes, keeps_head)
    if code is not None:
        return code.build(channels, size, classes)
    if is_graph(name):
        raise ValueError(f"the model {name!r} is the graph of a file with SHA-256 {sha256}; pass that file: "
                         "code=Graph.read('FILE.onnx')")  # fmt: skip
    if is_file(name):
        raise ValueError(f"the model {name!r} is code with SHA-256 {sha256}, which is not run by itself; to run a file "
                         "of yours, pass code=Code.read('FILE.py:FUNCTION')")  # fmt: skip
    return models.build(name, channels, size, classes)


def checked(found: Any, path: str) -> dict[str, Any]:
    """Return the facts `found` in the file at `path`.

    Raises ValueError if the facts are malformed, or if the file is too small for the weights of their model.
    """
    if not isinstance(found, dict) or not {*FACTS} <= found.keys() <= {*FACTS, "sha256", KEEPS_HEAD}:
        said = sorted(map(str, found)) if isinstance(found, dict) else type(found).__name__
        raise ValueError(f"{path}: the facts of its model are {said}; expected {', '.join(FACTS)}")
    name = found["name"]
    if not isinstance(name, str) or not (name in models.BY_NAME or is_file(name) or is_graph(name)):
        raise ValueError(f"{path}: its model is {name!r}; expected one of {', '.join(models.BY_NAME)}, "
                         "FILE.py:FUNCTION or FILE.onnx")  # fmt: skip
    if not isinstance(found.get(KEEPS_HEAD, False), bool):
        raise ValueError(f"{path}: {KEEPS_HEAD} of its model is {found[KEEPS_HEAD]!r}; expected True or False")
    bytes_there = os.path.getsize(path)
    for key, most in (("channels", bytes_there), ("size", LARGEST), ("classes", bytes_there)):
        if isinstance(found[key], bool) or not isinstance(found[key], int) or not 1 <= found[key] <= most:
            raise ValueError(f"{path}: {key} of its model is {found[key]!r}; expected a whole number from 1 to {most}")
    if is_file(name) or is_graph(name):
        _check_file(found, path)
    else:
        parameter_counts.check(found, path)
    return found


def trusted(
    found: Mapping[str, Any], path: str, model: str | None = None, trust: bool = False, max_bytes: int | None = None
) -> Code | Graph | None:
    """Return the file that builds the model of the checkpoint at `path`; return None for a model of `minorm.models`.

    model      the user's own FILE.py:FUNCTION or FILE.onnx, used in place of the checkpoint's copy
    trust      whether the copy of the code in the checkpoint's folder may be run
    max_bytes  the most bytes that an ONNX model may have; None is the usual limit

    Raises UntrustedCode if code builds the model, and neither `model` nor `trust` allows this code. Raises ValueError
    if the file of the model's graph is missing. No code is run here.
    """
    if model is not None and is_file(model):
        return Code.read(model)
    if is_graph(found["name"]):
        return _graph(found, path, model if model is not None and is_graph(model) else None, max_bytes)
    if not is_file(found["name"]):
        return None
    code = _copy(found, os.path.dirname(path))
    if code is None or not trust:
        raise UntrustedCode(path, split(found["name"])[1], code)
    return code


def _graph(found: Mapping[str, Any], path: str, model: str | None, max_bytes: int | None) -> Graph:
    """Read the ONNX file of the user, or the copy in the checkpoint's folder.

    Raises ValueError if the file's SHA-256 is not the one in the facts.
    """
    file = os.path.join(os.path.dirname(path), found["name"]) if model is None else model
    try:
        graph = Graph.read(file, max_bytes, copied=model is None)
    except FileNotFoundError:
        raise ValueError(f"the model of {path} is the graph of {quoted(found['name'])}, which is not in the same "
                         "folder; put the graph there, or give its path: --model FILE.onnx") from None  # fmt: skip
    if graph.sha256 != found["sha256"]:
        raise ValueError(f"{quoted(file)} is not the file that {path} was trained with: its SHA-256 is "
                         f"{graph.sha256[:12]}; expected {found['sha256'][:12]}")  # fmt: skip
    return graph


def _copy(found: Mapping[str, Any], folder: str) -> Code | None:
    """Return the copy of the code in the folder.

    Return None if the copy is missing, is a link, or has another SHA-256 than the facts say, or if its name is a path.
    """
    file, function = split(found["name"])
    if not COPY.fullmatch(file):
        return None
    try:
        code = Code.read(f"{os.path.join(folder, file)}:{function}", copied=True)
    except (OSError, ValueError):  # the file is missing, cannot be read, or is too large for a file of Python
        return None
    return code if code.sha256 == found["sha256"] else None


def _check_file(found: Mapping[str, Any], path: str) -> None:
    """Check the facts of a model that a file builds.

    Code must have a function's name, a graph's name must have no folder, the images must not be too large, and there
    must be a SHA-256.
    """
    if is_graph(found["name"]):
        if not NAME.fullmatch(found["name"]):
            raise ValueError(
                f"{path}: its model is {found['name']!r}; expected FILE.onnx, a file name without a folder"
            )
    elif not split(found["name"])[1].isidentifier():
        raise ValueError(
            f"{path}: its model is {found['name']!r}; expected FILE.py:FUNCTION with the name of a function"
        )
    if found["channels"] * found["size"] ** 2 > PIXELS:
        raise ValueError(f"{path}: its model is for images of {found['channels']} x {found['size']} x {found['size']}; "
                         f"expected at most {PIXELS:,} numbers per image")  # fmt: skip
    digest = found.get("sha256")
    if not isinstance(digest, str) or not re.fullmatch("[0-9a-f]{64}", digest):
        raise ValueError(f"{path}: the SHA-256 of its model's file is {digest!r}; expected 64 hexadecimal digits")
