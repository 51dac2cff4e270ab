"""Check that a run can go on.

All ranks must read the same file, the model, classes and images must be the same, and there must be epochs left to
train.

Each check raises an error that names the difference, before any part of the checkpoint is used.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from itertools import zip_longest
from typing import Any

import numpy as np

from minorm.distributed import Group, RankError
from minorm.serialization import opening
from minorm.support.safe_names import quoted
from minorm.training.data import images
from minorm.training.model import model_building
from minorm.training.model.onnx_graph import Graph
from minorm.training.model.own_code import Code, is_file, split
from minorm.training.settings import Settings


def code_of(
    file: str, facts: Mapping[str, Any], model: str | None, trust: bool, agreed: Code | Graph | None = None
) -> Code | Graph | None:
    """Return the code that builds the checkpoint's model, after checking the code's SHA-256. No code is run here.

    agreed  the code that the user has seen and allowed. These bytes are used even if the file has changed meanwhile

    Raises UntrustedCode if the user has not allowed the code. Raises ValueError if `model` or `agreed` differs from the
    code with which the checkpoint was trained.
    """
    if agreed is not None:
        check_same_code(file, facts, agreed)
        return agreed
    if model is not None and is_file(model) != is_file(facts["name"]):
        raise ValueError(f"model is {quoted(model)}; expected {quoted(facts['name'])}, the model of the run of {file}")
    code = model_building.trusted(facts, file, model, trust)
    check_same_code(file, facts, code)
    return code


def check_same_code(file: str, facts: Mapping[str, Any], code: Code | Graph | None) -> None:
    """Raise ValueError unless the checkpoint was trained with the function of `code`, in the same file."""
    if code is None:
        return
    if code.sha256 != facts.get("sha256"):
        raise ValueError(
            f"{code.path} is no longer the file that {file} was trained with; restore that file to continue, or "
            "start a new run with another --out"
        )
    if isinstance(code, Code) and code.function != split(facts["name"])[1]:
        raise ValueError(f"model is {code.name!r}; expected the function {split(facts['name'])[1]!r}, as in {file}")


def check_same_file(file: str, group: Group) -> None:
    """Raise RankError unless all ranks read the same bytes. A network disk may show an old file to some ranks."""
    with opening.regular(file, "resume") as opened:
        digest = hashlib.file_digest(opened, "sha256").digest()
    found = group.all_gather(np.frombuffer(digest, np.uint8), label="the checkpoint's digest")
    for rank, other in enumerate(found):
        if not np.array_equal(other, found[0]):
            raise RankError(f"resume: rank {rank} and rank 0 read different contents of {file}; expected one file, on "
                            "a disk that all processes see")  # fmt: skip


def check_same_sizes(file: str, facts: Mapping[str, Any], mine: Mapping[str, Any]) -> None:
    """Raise ValueError unless the images have the channels, the size and the number of classes of the model."""
    if [facts[key] for key in ("classes", "size", "channels")] != [
        mine[key] for key in ("classes", "size", "channels")
    ]:
        said = [f"{found['classes']} classes and {found['channels']} x {found['size']} x {found['size']} pixels"
                for found in (facts, mine)]  # fmt: skip
        raise ValueError(f"the model of {file} is for {said[0]}, but these images have {said[1]}")


def check_same_classes(file: str, classes: list[str] | None, mine: list[str]) -> None:
    """Raise ValueError if the classes differ; `classes` is None for an old checkpoint without names."""
    if classes is not None and classes != mine:
        other = next(pair for pair in zip_longest(classes, mine) if pair[0] != pair[1])
        raise ValueError(f"the classes of the run of {file} have other names: {quoted(other[0])}, but these images "
                         f"have {quoted(other[1])} in the same place")  # fmt: skip


def to_epoch(file: str, settings: Settings, done: int, epochs: int | None) -> Settings:
    """Return the settings with `epochs` as the number of epochs, or unchanged if `epochs` is None.

    Raises ValueError if the run has already done as many epochs.
    """
    if epochs is None:
        return settings
    further = replace(settings, epochs=epochs)
    if epochs <= done:
        raise ValueError(
            f"epochs is {epochs}; expected more than {done}, the number of epochs that the run of {file} has finished"
        )
    return further


def schedule_after(scheduler: Any, steps: int) -> dict[str, Any]:
    """Return the state of the new schedule `scheduler` after this number of steps."""
    for _ in range(steps):
        scheduler.step()
    state: dict[str, Any] = scheduler.state_dict()
    return state


def check_same_images(file: str, found: Mapping[str, Any], now: images.Known) -> None:
    """Raise ValueError if the images differ from those of the checkpoint.

    For an old checkpoint, only the number of images can be compared.
    """
    if changes := images.changes(images.known_before(found, now), now):
        raise ValueError(f"the run of {file} had other images: {'; '.join(changes)}. To continue with the new images, "
                         "pass --other-images, or in Python other_images=True")  # fmt: skip
