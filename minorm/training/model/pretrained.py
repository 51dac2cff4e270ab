"""Read from a file of initial weights which model has these weights, and how the model's pictures are scaled.

A file that a run wrote contains the model's name and the scaling. An ONNX file is itself the model. Its metadata may
have the scaling, and the model's input has a size. Other files contain only weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from minorm.serialization import checkpoint
from minorm.training.data.preparing import MEAN_STD, Preprocessing
from minorm.training.files import saved
from minorm.training.files.run_folder import weights_file
from minorm.training.model import model_building
from minorm.training.model.onnx_graph import Graph
from minorm.training.model.own_code import is_graph


@dataclass(frozen=True)
class Pretrained:
    """A file of initial weights: its model, and how the model's pictures are scaled.

    path           the path of the file; for a run's folder, the path of its best weights
    facts          the facts of the model if a run wrote the file, else None
    graph          the graph if the file is an ONNX model, else None
    preprocessing  the Preprocessing if the file contains one, else None
    """

    path: str
    facts: dict[str, Any] | None = None
    graph: Graph | None = None
    preprocessing: Preprocessing | None = None

    @classmethod
    def read(cls, given: str, max_bytes: int | None = None, external_root: str | None = None) -> Pretrained:
        """Read the file or, if the path is a run's folder, its best weights. No code in the file is run."""
        path = weights_file(given)
        if is_graph(path):
            graph = Graph.read(path, max_bytes, external_root)
            return cls(path, None, graph, graph.preprocessing)
        if not path.endswith(".safetensors") or checkpoint.TREE not in checkpoint.load_metadata(path):
            return cls(path)
        parts = checkpoint.load_training(path)
        if not {"model_facts", "preprocessing"} <= parts.keys():
            return cls(path)
        facts = parts["model_facts"] = model_building.checked(parts["model_facts"], path)
        return cls(path, facts, None, saved.preprocessing(parts, path))

    @property
    def model(self) -> str | None:
        """The name of the model that has these weights. It is None if the file does not name the model."""
        return self.path if self.graph is not None else self.facts["name"] if self.facts is not None else None

    def form(self, data: str) -> dict[str, Any]:
        """Return image_size, mean and std as they are in Settings. A value that the file lacks is left out."""
        found = self.preprocessing
        sides = {"image_size": self._size} if data == "folder" and self._size is not None else {}
        if found is None or (data in MEAN_STD and len(MEAN_STD[data][0]) != found.channels and not self._fits(data)):
            return sides
        return {**sides, "mean": said(found.mean), "std": said(found.std)}

    def sentence(self, found: Preprocessing, given: Mapping[str, Any]) -> str:
        """Return a sentence that says how a run scales pictures, and why. `given` has the user's settings."""
        source = "the file" if self.facts is None else "its run"
        size = "--image-size" if "image_size" in given else source if self._size is not None else "the images"
        scaling = f"{source}'s"
        if "mean" in given or "std" in given:
            scaling = "--mean and --std"
        elif self.preprocessing is None:
            scaling = "the usual values, because the file has none"
        text = f"takes pictures of {found.channels} x {found.size} x {found.size} (the size of {size})"
        text += f", scaled by mean {said(found.mean)} and std {said(found.std)} ({scaling})"
        return f"{text}; to change this, use --image-size, --mean, --std and --pixel-range"

    @property
    def _size(self) -> int | None:
        if self.preprocessing is not None:
            return self.preprocessing.size
        return None if self.graph is None else self.graph.classifier.input.size

    def _fits(self, data: str) -> bool:
        """Return True if the data are a folder of pictures and the file is a graph.

        Then the folder is read with as many channels as the graph's input has.
        """
        return data == "folder" and self.graph is not None


def said(numbers: list[float]) -> str:
    """Return numbers as the text of a setting: "0.485,0.456,0.406"."""
    return ",".join(f"{number:g}" if float(f"{number:g}") == number else repr(number) for number in numbers)
