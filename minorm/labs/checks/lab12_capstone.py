"""Lab 12: compares kernels with formulas, losses bit for bit with the judge's loop, and models in files with its own.

minorm.onnx needs the onnx package, which the other labs do not need. So minorm.onnx is imported only inside the checks.
"""

from __future__ import annotations

import os
import tempfile
from typing import Any

import numpy as np

from minorm.devices import dtypes
from minorm.graph.grad_mode import no_grad
from minorm.labs import capstone, gap
from minorm.labs.beside import lab12_capstone as beside
from minorm.labs.calling.sent import Sent
from minorm.labs.checks.right import lab12_capstone as ours
from minorm.labs.comparing import Wrong, close, equal, numbers, parts, true
from minorm.labs.lab import Lab
from minorm.tensor.creation import tensor

LAB = Lab(
    12,
    "lab12_capstone",
    "Capstone",
    "Train, stop, resume, export, import, fine-tune: what must not get lost, and how do you know that nothing did?",
    minutes=90,
    needs=(1, 3, 5),
    writes=True,
    deadline=120,
    packages=("onnx", "sklearn"),
)
FLOORS = {"base": 96.0, "mirrored": 85.0, "camera": 90.0}
SECONDS = 30.0
LARGEST = 64 << 20  # bytes of any result of a student's file, which runs in the grader's process


# 12.1


def _layer(
    student: Any, rng: np.random.Generator, shape: tuple[int, ...], dtype: Any, offset: float, which: Any
) -> None:
    x = (rng.standard_normal(shape) + offset).astype(dtype)
    s, b = rng.standard_normal((2, shape[1])).astype(dtype)
    dy = rng.standard_normal(shape).astype(dtype)
    wide_x, wide_dy, wide_s, wide_b = (v.astype(np.float64) for v in (x, dy, s[:, None, None], b[:, None, None]))
    axes = (0, 2, 3)
    mean, var = wide_x.mean(axes, keepdims=True), wide_x.var(axes, keepdims=True)
    rstd = 1 / np.sqrt(var + 1e-5)
    xhat, g = (wide_x - mean) * rstd, wide_dy * wide_s
    dx = rstd * (g - g.mean(axes, keepdims=True) - xhat * (g * xhat).mean(axes, keepdims=True))
    expected = (
        xhat * wide_s + wide_b,
        dx,
        (wide_dy * xhat).sum(axes),
        wide_dy.sum(axes),
        0.1 * mean.ravel(),
        0.9 + 0.1 * var.ravel(),
    )
    names = ("y", "dx", "ds", "db", "running_mean", "running_var")
    what = f"BatchNorm2d of x {shape}, {np.dtype(dtype)}, with your kernels"
    results = parts(student.drive("normalized", x=x, s=s, b=b, dy=dy), 6, what)
    tolerance = 1e-9 if np.dtype(dtype) == np.float64 else 2e-4
    for name, got, right in zip(names, results, expected, strict=True):
        if name in which:
            close(got, right, f"{name} of {what}", rtol=tolerance, atol=tolerance, dtype=dtype)


@LAB.check("12.1", "forward", visible=True)
def kernel_forward(student: Any, rng: np.random.Generator) -> None:
    which = ("y", "running_mean", "running_var")
    _layer(student, rng, (4, 3, 5, 2), np.float64, 1.0, which)
    _layer(student, rng, (8, 5, 3, 3), np.float32, 1.0, which)


@LAB.check("12.1", "backward", points=2, visible=True)
def kernel_backward(student: Any, rng: np.random.Generator) -> None:
    _layer(student, rng, (4, 3, 5, 2), np.float64, 1.0, ("dx", "ds", "db"))
    _layer(student, rng, (8, 5, 3, 3), np.float32, 1.0, ("dx", "ds", "db"))


@LAB.check("12.1", "odd shapes, large means")
def kernel_corners(student: Any, rng: np.random.Generator) -> None:
    every = ("y", "dx", "ds", "db", "running_mean", "running_var")
    _layer(student, rng, (7, 1, 1, 3), np.float64, 0.0, every)
    _layer(student, rng, (2, 6, 1, 1), np.float64, 0.0, every)
    _layer(student, rng, (3, 2, 4, 4), np.float32, 100.0, ("y", "running_mean"))


# 12.2 and 12.3


def _losses(found: Any, right: list[float], what: str) -> None:
    got = numbers(found, what, f"{len(right)} losses")
    equal(got.astype(np.float64), np.array(right), what)


def _same_state(found: dict[str, Any], model: Any, what: str) -> None:
    for name, value in beside.state(model).items():
        equal(found[name], value, f"{name} after {what}")


@LAB.check("12.2", "the same losses, bit for bit", points=2, visible=True, seconds=SECONDS)
def training(student: Any, rng: np.random.Generator) -> None:
    seed = int(rng.integers(100))
    run = capstone.Run(seed)
    right = beside.single(beside.loop, run, 2)
    found = student.drive("trained", seed=seed, epochs=2)
    _losses(found["losses"], right, "losses of two epochs")
    _same_state(found["state"], run.model, "two epochs")


@LAB.check("12.2", "your kernels train the network", points=2, visible=True, seconds=SECONDS)
def own_kernels(student: Any, rng: np.random.Generator) -> None:
    seed = int(rng.integers(100))
    right = beside.single(beside.loop, capstone.Run(seed, dtype=dtypes.float64), 1)
    found = student.drive("trained", seed=seed, epochs=1, mine=True)
    close(found["losses"], right, "losses of an epoch in float64 with your kernels", rtol=1e-6)


def _resume(student: Any, rng: np.random.Generator, first: int, second: int) -> None:
    seed = int(rng.integers(100))
    run = capstone.Run(seed)
    right = beside.single(beside.loop, run, first + second)
    before = student.drive("saved", seed=seed, first=first)
    student.fresh()
    after = student.drive("resumed", data=before["file"], seed=seed + 1000, second=second)
    what = f"losses of {first} + {second} epochs, with a checkpoint between"
    _losses([*before["losses"], *after["losses"]], right, what)
    _same_state(after["state"], run.model, what)


@LAB.check("12.3", "the resumed run equals the uninterrupted one", points=3, visible=True, seconds=SECONDS)
def resuming(student: Any, rng: np.random.Generator) -> None:
    _resume(student, rng, 1, 1)


@LAB.check("12.3", "stopped early and stopped late", seconds=SECONDS)
def early_and_late(student: Any, rng: np.random.Generator) -> None:
    _resume(student, rng, 0, 1)
    _resume(student, rng, 3, 1)


# 12.4


def _written(student: Any, rng: np.random.Generator, training: bool) -> tuple[dict[str, Any], Any]:
    """Let the student write a trained model.

    Return the file, and a model with the same values as the one that was written.
    """
    seed = int(rng.integers(100))
    found = student.drive("written", seed=seed, training=training)
    run = capstone.Run(seed)
    beside.single(beside.loop, run, 1)
    return found, run.model


def _through_a_file(student: Any, rng: np.random.Generator, training: bool) -> tuple[dict[str, Any], Any]:
    """Return what a new process reads from the student's file, and the model that the file should hold."""
    found, model = _written(student, rng, training)
    student.fresh()
    return student.drive("read_back", data=found["file"]), model


@LAB.check("12.4", "the same answers in evaluation", visible=True, seconds=SECONDS)
def same_answers(student: Any, rng: np.random.Generator) -> None:
    found, model = _through_a_file(student, rng, True)
    model.eval()
    with no_grad():
        right = model(tensor(gap.images()[2])).numpy()
    equal(numbers(found["answers"], "answers of the model read", "an array"), right, "answers of the model read")


@LAB.check("12.4", "training continues with the same bits", points=2, visible=True, seconds=SECONDS)
def goes_on(student: Any, rng: np.random.Generator) -> None:
    images, labels, _, _ = gap.images()
    for training in (True, False):
        found, model = _through_a_file(student, rng, training)
        right = beside.tuning(model, gap.mirrored(images[: beside.TUNING]), labels[: beside.TUNING])
        mode = "training" if training else "evaluation"
        _losses(found["losses"], right, f"losses of the continued training, with a model written in {mode} mode")


@LAB.check("12.4", "two BatchNorm nodes, any batch size, an unchanged model", seconds=SECONDS)
def whole_file(student: Any, rng: np.random.Generator) -> None:
    found, _ = _written(student, rng, False)
    with tempfile.TemporaryDirectory() as folder:
        model = _load(found["file"], folder, "the file")
        layers = sum(type(layer).__name__ == "BatchNormalization" for layer in model.modules())
        equal(layers, 2, "BatchNormalization nodes in the file")
        for count in (1, 5):
            shape = _answers(model, np.zeros((count, 1, 8, 8), np.float32), "the file").shape
            equal(shape, (count, 10), f"shape of the answer for {count} images")
    for training in (False, True):
        found, model = _written(student, rng, training)
        equal(found["mode"], training, "model.training after write")
        _same_state(found["state"], model, "write")


def _load(data: Any, folder: str, what: str) -> Any:
    """Return the model in a student's file, in evaluation mode."""
    true(isinstance(data, np.ndarray) and data.size > 0, what, "an ONNX file", "no file")
    try:
        return beside.onnx().load(beside.as_file(data, folder), max_bytes=LARGEST).eval()
    except (ValueError, TypeError) as error:
        raise Wrong(what, "an ONNX file", " ".join(str(error).split())[:200]) from None


def _answers(model: Any, images: Any, what: str) -> Any:
    try:
        with no_grad():
            answer = model(tensor(images))
    except (ValueError, TypeError) as error:
        raise Wrong(what, "answers", " ".join(str(error).split())[:200]) from None
    return (answer[0] if isinstance(answer, tuple) else answer).numpy()


# 12.5 and 12.6


def _require_accuracy(data: Any, kind: str, what: str) -> None:
    """Raise Wrong unless the model in this file classifies enough of the test digits correctly."""
    _, _, images, labels = gap.images()
    with tempfile.TemporaryDirectory() as folder:
        answers = _answers(_load(data, folder, what), beside.images_of(kind, images), what)
    true(answers.shape == (len(images), 10), what, f"answers of shape {(len(images), 10)}", f"{answers.shape}")
    share = float(100 * np.mean(answers.argmax(axis=1) == labels))
    name = "test digits" if kind == "base" else f"{kind} test digits"
    true(share >= FLOORS[kind], what, f"at least {FLOORS[kind]:g} % of the {name} right", f"{share:.1f} %")


def _tuned(student: Any, rng: np.random.Generator, kind: str) -> None:
    run = capstone.Run(int(rng.integers(100)))
    beside.single(beside.loop, run, 3)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "base.onnx")
        beside.onnx().export(run.model, tensor(np.zeros((2, 1, 8, 8), np.float32)), path, training=True)
        found = student.drive("tuned", data=beside.content(path), kind=kind)
    _require_accuracy(found["file"], kind, f"the model fine-tuned on {beside.TUNING} {kind} digits")
    equal(found["training"], False, f"model.training after fine_tune on {kind} digits")


@LAB.check("12.5", "mirrored digits", points=2, visible=True, seconds=SECONDS)
def mirror(student: Any, rng: np.random.Generator) -> None:
    _tuned(student, rng, "mirrored")


@LAB.check("12.5", "another camera", points=2, seconds=SECONDS)
def camera(student: Any, rng: np.random.Generator) -> None:
    _tuned(student, rng, "camera")


def _everything(student: Any, rng: np.random.Generator) -> None:
    seed = int(rng.integers(100))
    run = capstone.Run(seed)
    right = beside.single(beside.loop, run, 4)
    found = student.drive("all_of_it", seed=seed)
    _losses(found["losses"], right, "losses of the four epochs of everything")
    for name in ("save", "resume"):
        true(name in found["called"], f"everything, steps 1 and 2: {name}", "a call", "no call")
    for kind in ("base", "mirrored"):
        _require_accuracy(found[kind], kind, f"{kind}.onnx")
    run.model.eval()
    images = gap.images()[2]
    with no_grad():
        expected = run.model(tensor(images)).numpy()
    with tempfile.TemporaryDirectory() as folder:
        got = _answers(_load(found["base"], folder, "base.onnx"), images, "base.onnx")
    equal(got, expected, "answers of base.onnx")


@LAB.check("12.6", "losses and both files", points=4, visible=True, seconds=SECONDS)
def whole_way(student: Any, rng: np.random.Generator) -> None:
    _everything(student, rng)


@LAB.check("12.6", "losses and both files, another seed", points=2, seconds=SECONDS)
def another_way(student: Any, rng: np.random.Generator) -> None:
    _everything(student, rng)


LAB.provide("12.1", forward=Sent(ours.forward), backward=Sent(ours.backward))
LAB.provide("12.2", train=Sent(ours.train))
LAB.provide("12.3", save=Sent(ours.save), resume=Sent(ours.resume))
LAB.provide("12.4", write=Sent(ours.write), read=Sent(ours.read))
LAB.provide("12.5", fine_tune=Sent(ours.fine_tune))
