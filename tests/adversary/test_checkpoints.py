"""Checkpoints that a stranger has changed run no code, and take memory only in proportion to the file.

A wrong file raises a ValueError or an OSError; an accepted one trains on, or its loss is not finite.
"""

from __future__ import annotations

import copy
import functools
import json
import operator
import random
import resource
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm import random as random_numbers
from minorm.checkpoint import load_training, save_training
from minorm.cli import sources
from minorm.data import ArrayDataset
from minorm.training import NonFiniteLoss, Run, Settings
from minorm.training.model.own_code import Code
from minorm.training.run import CHECKPOINT

SPARE = 1 << 29  # bytes that opening a file of 300 KB may take, on top of what the process has
IMAGES = tuple(ArrayDataset(np.zeros((20, 1, 8, 8), np.float32), np.arange(20) % 10) for _ in range(2))
EMA = {"ema": 0.9, "schedule": "cosine", "warmup_epochs": 1, "optimizer": "adam"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where two runs stopped; beside them code that leaves a mark where it is run."""
    root = tmp_path_factory.mktemp("stranger")
    for name, settings in (("plain", {}), ("ema", EMA)):
        run = Run(Settings(epochs=3, batch_size=10, **settings), str(root / name), sets=IMAGES)  # type: ignore[arg-type]
        with suppress(KeyboardInterrupt):
            run.fit(after_epoch=stop)
        (root / name / "trip.py").write_text(f"open({str(root / 'ran')!r}, 'w').close()\nbuild = None\n")
    return root


def stop(_: Any) -> None:
    raise KeyboardInterrupt


@contextmanager
def little_memory() -> Iterator[None]:
    """Limit the memory: code that takes SPARE bytes more than now gets a MemoryError."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + SPARE, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def hostile(rng: random.Random, run: Path) -> Any:
    """Draw a value that a part may not expect."""
    code = Code.read(f"{run}/trip.py:build")
    return rng.choice(
        [
            None, True, 0, -1, 1, 2, 3, 10**9, 10**18, 2**63, 10**400, -(10**30), 0.5, -1e308, 1e308, float("nan"),
            float("inf"), "", "digits", "resnet20", "norms", "x" * 500, "\x1b[31m", "\ud800", [], {}, [[]], [1], (1,),
            {"a": 1}, {1: 2}, "trip.py:build", f"{run}/trip.py:build", "../trip.py:build", code.sha256,
            {"name": "trip.py:build", "channels": 1, "size": 8, "classes": 10, "sha256": code.sha256},
            {"name": "trip.py:build", "channels": 1, "size": 8, "classes": 10},
            np.zeros(3, np.float32), np.zeros((2, 2), np.int64), np.float32(2), mn.ones(4), np.zeros(0, np.uint8),
        ]
    )  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path to every item in a nest of dicts and lists."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in pairs:
        yield (*path, key)
        yield from places(item, (*path, key))


def changed(parts: dict[str, Any], rng: random.Random, run: Path) -> None:
    """Replace, remove or add one to three things; facts and settings are chosen as often as everything else."""
    for _ in range(rng.randint(1, 3)):
        top = rng.choice(list(parts))
        inner = list(places(parts[top]))
        path = (top, *rng.choice(inner)) if inner and rng.random() < 0.9 else (top,)
        holder: Any = parts
        for key in path[:-1]:
            holder = holder[key]
        what = rng.random()
        if what < 0.2 and isinstance(holder, dict):
            del holder[path[-1]]
        elif what < 0.3 and isinstance(holder, dict):
            holder[rng.choice(["more", "sha256", "$array", "0", 7])] = hostile(rng, run)
        else:
            holder[path[-1]] = hostile(rng, run)
        if not parts:
            return


def trained(run: Run) -> None:
    """Train three steps without writing anything."""
    steps = iter(range(3))

    def after_step(_: Any) -> None:
        if next(steps, None) is None:
            raise KeyboardInterrupt

    run.out = None
    with suppress(KeyboardInterrupt, NonFiniteLoss), np.errstate(all="ignore"):
        run.fit(after_step)


def tried(run: Path) -> list[str]:
    """Open and resume the checkpoint; return the outcomes, and fail for any other error."""
    said = []
    for act in (
        lambda: sources.open_model(str(run / CHECKPOINT)),
        lambda: Run.settings_of(str(run)),
        lambda: trained(Run.resume(str(run), sets=IMAGES)),
    ):
        try:
            act()
            said.append("taken")
        except (ValueError, OSError) as error:
            said.append(type(error).__name__)
    return said


def fuzz(folder: Path, seeds: range) -> list[str]:
    said = []
    state = random_numbers.get_state()
    for name in ("plain", "ema"):
        run, whole = folder / name, (folder / name / CHECKPOINT).read_bytes()
        parts = load_training(run / CHECKPOINT)
        try:
            for seed in seeds:
                rng, given = random.Random(seed), copy.deepcopy(parts)
                changed(given, rng, run)
                with suppress(TypeError, ValueError, RecursionError):  # what no file can hold
                    save_training(run / CHECKPOINT, **given)
                with little_memory():
                    try:
                        said += tried(run)
                    except Exception as error:
                        raise AssertionError(f"{name}, seed {seed}: {type(error).__name__}: {error}") from error
                assert not (folder / "ran").exists(), f"{name}, seed {seed}: code ran"
        finally:
            (run / CHECKPOINT).write_bytes(whole)
            random_numbers.set_state(state)
    return said


def test_a_changed_checkpoint_is_refused_or_taken(folder: Path) -> None:
    said = fuzz(folder, range(40))
    assert said.count("ValueError") + said.count("UntrustedCode") > 100
    assert "taken" in said


def test_code_is_named_in_every_place_of_a_text(folder: Path) -> None:
    """One place at a time, and settings and facts together: whichever says which model to build."""
    run = folder / "plain"
    whole, parts = (run / CHECKPOINT).read_bytes(), load_training(run / CHECKPOINT)
    code = Code.read(f"{run}/trip.py:build")
    facts = {**parts["model_facts"], "name": code.name, "sha256": code.sha256}
    try:
        for name in (code.name, f"{run}/trip.py:build", f"../{run.name}/trip.py:build"):
            given = [{**parts, "model_facts": {**facts, "name": name}}]
            given += [{**each, "settings": {**parts["settings"], "model": name}} for each in (parts, *given)]
            for path in places(parts):
                there = copy.deepcopy(parts)
                *upper, last = path
                holder = functools.reduce(operator.getitem, upper, there)
                if isinstance(holder[last], str):
                    holder[last] = name
                    given.append(there)
            assert len(given) > 20
            for each in given:
                save_training(run / CHECKPOINT, **each)
                tried(run)
                with suppress(ValueError, OSError):
                    Run(Run.settings_of(str(run)), sets=IMAGES)  # in this folder there is no trip.py
                assert not (folder / "ran").exists()
    finally:
        (run / CHECKPOINT).write_bytes(whole)


@pytest.mark.slow
def test_many_changed_checkpoints_are_refused_or_taken(folder: Path) -> None:
    fuzz(folder, range(1000, 3000))


def rewritten(raw: bytes, change: Any) -> bytes:
    """The safetensors file with another header."""
    (size,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + size])
    tree = json.loads(header["__metadata__"]["minorm.tree"])
    change(tree)
    header["__metadata__"]["minorm.tree"] = json.dumps(tree)
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + raw[8 + size :]


SIZES = [
    (name, key, value)
    for name in ("digits", "lenet", "resnet20", "norms")
    for key in ("channels", "size", "classes")
    for value in (8192, 10**6, 10**9, 10**18)
    if (name, key, value) != ("resnet20", "size", 8192)  # its weights are the same for images of any size
]


@pytest.mark.parametrize(("name", "key", "value"), SIZES)
def test_sizes_of_a_model_that_the_file_cannot_hold(folder: Path, name: str, key: str, value: int) -> None:
    run = folder / "plain"
    whole = (run / CHECKPOINT).read_bytes()

    def change(tree: dict[str, Any]) -> None:
        tree["model_facts"] |= {"name": name, key: value}
        tree["settings"]["model"] = name
        del tree["preprocessing"]  # which would not fit: a run of before there was one

    try:
        (run / CHECKPOINT).write_bytes(rewritten(whole, change))
        with little_memory():
            assert tried(run) == ["ValueError"] * 3
    finally:
        (run / CHECKPOINT).write_bytes(whole)


def test_one_array_named_a_thousand_times_is_no_large_model(folder: Path) -> None:
    """The tree may name one array as often as it likes: memory goes by the bytes of the file."""
    run = folder / "plain"
    whole = (run / CHECKPOINT).read_bytes()

    def change(tree: dict[str, Any]) -> None:
        large = [*tree["model"].values()][-2]
        tree["model"] |= {f"more{i}": large for i in range(1000)}
        tree["model_facts"]["classes"] = 10_000
        del tree["preprocessing"]

    try:
        (run / CHECKPOINT).write_bytes(rewritten(whole, change))
        with little_memory():
            assert tried(run) == ["ValueError"] * 3
    finally:
        (run / CHECKPOINT).write_bytes(whole)
