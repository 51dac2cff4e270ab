"""Represent the folder of a model and its weight files, and the folders to which links may lead."""

from __future__ import annotations

import os
from pathlib import PurePath
from typing import Any

from minorm.onnx.graph.errors import LoadError


class Folder(str):
    """A folder as a path, with the folders to which its links may lead.

    roots    real folders in which the target of a link may be
    named    the roots that the caller named
    """

    __slots__ = ("named", "roots")
    named: tuple[str, ...]
    roots: tuple[str, ...]

    @classmethod
    def of(cls, model: Any, external_root: Any = None) -> Folder:
        """Return the folder of a model's path. If the model file is a link (in a hub's cache, say), links in the folder
        may also lead to the folder of the real model file.

        external_root    another folder to which links may lead
        """
        path = os.path.abspath(os.fsdecode(model))
        folder = cls(os.path.dirname(path))
        folder.named = () if external_root is None else (_root(external_root),)
        own = (os.path.dirname(os.path.realpath(path)),) if os.path.islink(path) else ()
        folder.roots = folder.named + own
        return folder


def _root(given: Any) -> str:
    if not isinstance(given, (str, bytes, os.PathLike)):
        raise TypeError(f"load: external_root is {type(given).__name__}; expected the path of a folder")
    path = os.path.realpath(os.fsdecode(given))
    if not os.path.isdir(path):
        raise LoadError(f"load: external_root is {os.fsdecode(given)!r}; expected a folder that exists")
    return path


def holds(folder: str, path: str) -> bool:
    """Return True if a real path is in a real folder, at any depth."""
    return PurePath(path).is_relative_to(folder)


def advice(real: str) -> str:
    """Return the advice for an error about a link: the option that allows the target of the link."""
    root = os.path.dirname(real)
    return (
        f"expected an ordinary file. If you trust what lies in {root!r}, write load(path, external_root={root!r}), or "
        f"--external-root {root}"
    )
