"""Train the graph of an ONNX file as a model. The model has the weights of the file and a head for the classes.

A run's folder keeps a copy of the file, so a checkpoint needs no other folder. A graph is not code, and
`minorm.onnx.load` limits its size, so building it needs no trust.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from minorm.nn import Module
from minorm.serialization import limits, opening
from minorm.support.safe_names import quoted
from minorm.training.data import file_preprocessing
from minorm.training.data.preparing import Preprocessing

if TYPE_CHECKING:
    from minorm.onnx.loading.exchange.classifier import Classifier

NAME = re.compile(r"[^/\\:\0]+\.onnx", re.IGNORECASE)  # a copy's name, without a folder or a drive


@dataclass(frozen=True)
class Graph:
    """The contents of an ONNX file, with all its weights.

    path       the file's path
    contents   the file's bytes, including weights that were in other files
    """

    path: str
    contents: bytes
    max_bytes: int = limits.ONNX

    @classmethod
    def read(
        cls, path: str, max_bytes: int | None = None, external_root: str | None = None, copied: bool = False
    ) -> Graph:
        """Read the file at the path. If `copied` is True, the file is a run's copy and must not be a symbolic link."""
        from minorm.onnx.loading.exchange import classifier

        with opening.regular(path, "init", follow=not copied):
            pass  # an error in plain words, before anything is read
        most = limits.ONNX if max_bytes is None else max_bytes
        if not NAME.fullmatch(os.path.basename(path)):
            raise ValueError(f"init: the file is called {quoted(os.path.basename(path))}; expected NAME.onnx, as a run "
                             "keeps a copy of it")  # fmt: skip
        return cls(path, classifier.whole(path, most, None if copied else external_root), most)

    @property
    def file(self) -> str:
        """The file's name without its folder."""
        return os.path.basename(self.path)

    @property
    def name(self) -> str:
        """The model's name in a checkpoint, which is the name of the copy in the run's folder."""
        return self.file

    @cached_property
    def sha256(self) -> str:
        """The SHA-256 of the contents, in hexadecimal digits."""
        return hashlib.sha256(self.contents).hexdigest()

    @cached_property
    def classifier(self) -> Classifier:
        """The file as a classifier of images."""
        from minorm.onnx.loading.exchange.classifier import Classifier

        return Classifier(self.path, self.contents, self.max_bytes)

    @property
    def preprocessing(self) -> Preprocessing | None:
        """The scaling of pixels in the file's metadata. It is None if the scaling is missing or malformed."""
        return file_preprocessing.read(self.classifier.metadata)

    @property
    def classes(self) -> list[str]:
        """The names of the classes. The list is empty if the file has no names."""
        return file_preprocessing.classes(self.classifier.metadata)

    def build(self, channels: int, size: int, classes: int, keeps_head: bool = False) -> Module:
        """Return the network for images with `channels` channels and `size` x `size` pixels.

        Raises ValueError if the network cannot take such images, or has no head.
        """
        return self.classifier.build(channels, size, classes, keeps_head)

    def keeps_head(self, channels: int, size: int, classes: Sequence[str]) -> bool:
        """Return True if `classes` are the classes of the file.

        If the file has no names of classes, only the number of classes is compared.
        """
        head = self.classifier.head(channels, size)
        return head.classes == len(classes) and self.classes in ([], list(classes))


def arrays(path: str) -> dict[str, Any]:
    """Return the weights and running statistics of a file by name."""
    from minorm.onnx.loading import load

    return {name: tensor.cpu().numpy() for name, tensor in load.load(path).state_dict().items()}
