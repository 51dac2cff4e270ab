"""Lab 12: runs kernels in a layer, training, checkpoints and files next to the student's functions.

Checkpoints and files are written in one process and read in another, so that only their contents can pass.
"""

from __future__ import annotations

import importlib
import os
import tempfile
from typing import Any

import numpy as np

import minorm.functional as F
from minorm import config, nn
from minorm.devices import dtypes, generators
from minorm.graph.grad_mode import no_grad
from minorm.kernels.partial import PartialBackend
from minorm.labs import capstone, gap
from minorm.tensor.creation import tensor

TUNING = 400  # labelled images


def prepare() -> None:
    """Load everything that later needs an open file, because the process may soon open no more files."""
    gap.images()
    onnx()


def onnx() -> Any:
    """Import and return minorm.onnx."""
    return importlib.import_module("minorm.onnx")


def loop(run: Any, epochs: int) -> list[float]:
    """Train as the student's loop has to: one step of optimizer and scheduler for each batch. Return the losses."""
    losses: list[float] = []
    run.model.train()
    for _ in range(epochs):
        for images, labels in run.loader:
            loss = F.cross_entropy(run.model(images), labels)
            run.optimizer.zero_grad()
            loss.backward()
            run.optimizer.step()
            run.scheduler.step()
            losses.append(loss.item())
    return losses


def single(function: Any, *args: Any) -> Any:
    """Call the function on one thread: more threads are no faster here, and on a busy machine they are slower."""
    threads = config.get_num_threads()
    config.set_num_threads(1)
    try:
        return function(*args)
    finally:
        config.set_num_threads(threads)


def state(model: Any) -> dict[str, Any]:
    """Return everything that a model has learned, as arrays."""
    return {name: value.numpy().copy() for name, value in model.state_dict().items()}


def as_file(data: Any, folder: str) -> str:
    """Write these bytes to a file in the folder and return its path."""
    path = os.path.join(folder, "model.onnx")
    with open(path, "wb") as file:
        file.write(bytes(data))
    return path


def content(path: str) -> Any:
    """Return the bytes of a file, as an array."""
    with open(path, "rb") as file:
        return np.frombuffer(file.read(), np.uint8)


def tuning(model: Any, images: Any, labels: Any) -> list[float]:
    """Train the model on these images with the lab's own loop; return the losses."""
    run = capstone.Run(11, images=images, labels=labels, model=model, lr=0.02)
    losses: list[float] = single(loop, run, 2)
    return losses


def images_of(kind: str, images: Any) -> Any:
    """Return the images: unchanged for "base", mirrored for "mirrored", as taken by another camera for "camera"."""
    changed: dict[str, Any] = {"base": np.asarray, "mirrored": gap.mirrored, "camera": gap.camera}
    return changed[kind](images)


def normalized(module: Any, x: Any, s: Any, b: Any, dy: Any) -> tuple[Any, ...]:
    """Return y, dx, ds, db and the running statistics of a BatchNorm layer with the student's kernels."""
    layer: Any = nn.BatchNorm2d(
        x.shape[1], backend=PartialBackend(forward=module.forward, backward=module.backward)
    ).to(dtype=x.dtype)
    layer.weight.array[...], layer.bias.array[...] = s, b
    data: Any = tensor(x, requires_grad=True)
    y = layer(data)
    y.backward(tensor(dy))
    gradients = [value.grad.numpy() for value in (data, layer.weight, layer.bias)]
    return (y.numpy(), *gradients, layer.running_mean.numpy(), layer.running_var.numpy())


def trained(module: Any, seed: int, epochs: int, mine: bool = False) -> dict[str, Any]:
    """Let the student train a run. Return the losses and the model's state.

    If `mine` is true, the BatchNorm layers use the student's kernels, in float64.
    """
    backend = PartialBackend(forward=module.forward, backward=module.backward) if mine else None
    run = capstone.Run(seed, backend, dtypes.float64 if mine else dtypes.float32)
    if not mine:
        run.model.eval()
    losses = single(module.train, run, epochs)
    return {"losses": losses, "state": state(run.model)}


def saved(module: Any, seed: int, first: int) -> dict[str, Any]:
    """Train a run, let the student save it, then train it further.

    The file is read after the further training, which must not change what is in the file.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "run.safetensors")
        run = capstone.Run(seed)
        losses = single(loop, run, first)
        module.save(path, run)
        single(loop, run, 1)
        return {"losses": losses, "file": content(path)}


def resumed(module: Any, data: Any, seed: int, second: int) -> dict[str, Any]:
    """Let the student load the file into a new run, and train this run with the lab's own loop."""
    with tempfile.TemporaryDirectory() as folder:
        generators.manual_seed(12345)
        fresh = capstone.Run(seed)
        module.resume(as_file(data, folder), fresh)
        return {"losses": single(loop, fresh, second), "state": state(fresh.model)}


def written(module: Any, seed: int, training: bool) -> dict[str, Any]:
    """Let the student write a trained model; return the file, and the model's state afterwards."""
    run = capstone.Run(seed)
    single(loop, run, 1)
    run.model.train(training)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.onnx")
        module.write(path, run.model)
        return {"file": content(path), "mode": run.model.training, "state": state(run.model)}


def read_back(module: Any, data: Any) -> dict[str, Any]:
    """Let the student read a model from a file; return the model's answers, and its losses in further training."""
    images, labels, test_images, _ = gap.images()
    with tempfile.TemporaryDirectory() as folder:
        model = module.read(as_file(data, folder))
    model.eval()
    with no_grad():
        answers = model(tensor(test_images)).numpy()
    return {"answers": answers, "losses": tuning(model, gap.mirrored(images[:TUNING]), labels[:TUNING])}


def tuned(module: Any, data: Any, kind: str) -> dict[str, Any]:
    """Let the student fine-tune the model in these bytes; return the tuned model as the bytes of a file."""
    images, labels, _, _ = gap.images()
    with tempfile.TemporaryDirectory() as folder:
        model = onnx().load(as_file(data, folder))
        single(module.fine_tune, model, images_of(kind, images[:TUNING]), labels[:TUNING])
        path = os.path.join(folder, "tuned.onnx")
        mode = model.training
        onnx().export(model, tensor(images[:2]), path)
        return {"file": content(path), "training": mode}


def all_of_it(module: Any, seed: int) -> dict[str, Any]:
    """Run the student's `everything`.

    Return its losses, the files that it leaves, and which of `save` and `resume` it called.
    """
    names, called = module.everything.__globals__, []

    def noted(name: str) -> Any:
        function = names[name]

        def call(*args: Any, **options: Any) -> Any:
            called.append(name)
            return function(*args, **options)

        return call

    own = {name: names[name] for name in ("save", "resume") if name in names}
    with tempfile.TemporaryDirectory() as folder:
        names.update({name: noted(name) for name in own})
        try:
            losses = single(module.everything, folder, seed)
        finally:
            names.update(own)
        files = {}
        for name in ("base", "mirrored"):
            path = os.path.join(folder, f"{name}.onnx")
            files[name] = content(path) if os.path.exists(path) else None
    return {"losses": losses, "called": called, **files}
