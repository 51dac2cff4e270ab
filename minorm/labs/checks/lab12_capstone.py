"""Lab 12: kernels against formulas, losses bit for bit against a loop of our own, files loaded and measured here.

minorm.onnx needs the onnx package, so it is asked for when a check does: the other labs do without it.
"""

from __future__ import annotations

import importlib
import os
import tempfile
from typing import Any

import numpy as np

import minorm.functional as F
from minorm import config, dtypes, nn, random
from minorm.autograd import no_grad
from minorm.creation import tensor
from minorm.kernels.partial import PartialBackend
from minorm.labs import capstone, gap
from minorm.labs.comparing import Wrong, close, equal, numbers, parts, true
from minorm.labs.lab import Lab

LAB = Lab(
    12,
    "lab12_capstone",
    "Capstone",
    "Train, stop, resume, export, import, fine-tune: what must not get lost, and how do you know that nothing did?",
    minutes=90,
    packages=("onnx", "sklearn"),
)
FLOORS = {"base": 96.0, "mirrored": 85.0, "camera": 90.0}
TUNING = 400  # labelled images
SECONDS = 30.0
LARGEST = 64 << 20  # bytes of any result of a student's file, which runs in the grader's process


def onnx() -> Any:
    """minorm.onnx."""
    return importlib.import_module("minorm.onnx")


# 12.1


def normalized(module: Any, x: Any, s: Any, b: Any, dy: Any) -> tuple[Any, ...]:
    """y, dx, ds, db and the running statistics of a BatchNorm layer with the student's kernels."""
    layer: Any = nn.BatchNorm2d(
        x.shape[1], backend=PartialBackend(forward=module.forward, backward=module.backward)
    ).to(dtype=x.dtype)
    layer.weight.array[...], layer.bias.array[...] = s, b
    data: Any = tensor(x, requires_grad=True)
    y = layer(data)
    y.backward(tensor(dy))
    gradients = [value.grad.numpy() for value in (data, layer.weight, layer.bias)]
    return (y.numpy(), *gradients, layer.running_mean.numpy(), layer.running_var.numpy())


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


def loop(run: Any, epochs: int) -> list[float]:
    """The training loop that is asked for."""
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
    """Call it on one thread: more are no faster here, and wait for each other on a busy machine."""
    threads = config.get_num_threads()
    config.set_num_threads(1)
    try:
        return function(*args)
    finally:
        config.set_num_threads(threads)


def trained(module: Any, seed: int, epochs: int, mine: bool = False) -> dict[str, Any]:
    """The student's losses, and the state of the model afterwards; mine: with the student's kernels, in float64."""
    backend = PartialBackend(forward=module.forward, backward=module.backward) if mine else None
    run = capstone.Run(seed, backend, dtypes.float64 if mine else dtypes.float32)
    if not mine:
        run.model.eval()
    losses = single(module.train, run, epochs)
    return {"losses": losses, "state": _state(run.model)}


def _state(model: Any) -> dict[str, Any]:
    return {name: value.numpy().copy() for name, value in model.state_dict().items()}


def _losses(found: Any, right: list[float], what: str) -> None:
    got = numbers(found, what, f"{len(right)} losses")
    equal(got.astype(np.float64), np.array(right), what)


def _same_state(found: dict[str, Any], model: Any, what: str) -> None:
    for name, value in _state(model).items():
        equal(found[name], value, f"{name} after {what}")


@LAB.check("12.2", "the same losses, bit for bit", points=2, visible=True, seconds=SECONDS)
def training(student: Any, rng: np.random.Generator) -> None:
    seed = int(rng.integers(100))
    run = capstone.Run(seed)
    right = single(loop, run, 2)
    found = student.drive("trained", seed=seed, epochs=2)
    _losses(found["losses"], right, "losses of two epochs")
    _same_state(found["state"], run.model, "two epochs")


@LAB.check("12.2", "your kernels train the network", points=2, visible=True, seconds=SECONDS)
def own_kernels(student: Any, rng: np.random.Generator) -> None:
    seed = int(rng.integers(100))
    right = single(loop, capstone.Run(seed, dtype=dtypes.float64), 1)
    found = student.drive("trained", seed=seed, epochs=1, mine=True)
    close(found["losses"], right, "losses of an epoch in float64 with your kernels", rtol=1e-6)


def resumed(module: Any, seed: int, first: int, second: int) -> dict[str, Any]:
    """Train, save, spoil what can be spoiled, resume, train; with the lab's own loop."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "run.safetensors")
        run = capstone.Run(seed)
        losses = single(loop, run, first)
        module.save(path, run)
        more = single(loop, run, 1)  # the old run goes on, the file must not
        random.manual_seed(12345)
        fresh = capstone.Run(seed + 1000)
        module.resume(path, fresh)
        losses += single(loop, fresh, second)
    return {"losses": losses, "state": _state(fresh.model), "more": more}


def _resume(student: Any, rng: np.random.Generator, first: int, second: int) -> None:
    seed = int(rng.integers(100))
    run = capstone.Run(seed)
    right = single(loop, run, first + second)
    found = student.drive("resumed", seed=seed, first=first, second=second)
    what = f"losses of {first} + {second} epochs, with a checkpoint between"
    _losses(found["losses"], right, what)
    _same_state(found["state"], run.model, what)


@LAB.check("12.3", "the resumed run equals the uninterrupted one", points=3, visible=True, seconds=SECONDS)
def resuming(student: Any, rng: np.random.Generator) -> None:
    _resume(student, rng, 1, 1)


@LAB.check("12.3", "early and late", seconds=SECONDS)
def early_and_late(student: Any, rng: np.random.Generator) -> None:
    _resume(student, rng, 0, 1)
    _resume(student, rng, 3, 1)


# 12.4


def _file(data: Any, folder: str) -> str:
    path = os.path.join(folder, "model.onnx")
    with open(path, "wb") as file:
        file.write(bytes(data))
    return path


def _bytes(path: str) -> Any:
    with open(path, "rb") as file:
        return np.frombuffer(file.read(), np.uint8)


def _tuning(model: Any, images: Any, labels: Any) -> list[float]:
    run = capstone.Run(11, images=images, labels=labels, model=model, lr=0.02)
    losses: list[float] = single(loop, run, 2)
    return losses


def through_a_file(module: Any, seed: int, training: bool) -> dict[str, Any]:
    """A trained model, written and read by the student: its answers, the losses when it is trained on, the file."""
    images, labels, test_images, _ = gap.images()
    run = capstone.Run(seed)
    single(loop, run, 1)
    run.model.train(training)
    before = _state(run.model)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.onnx")
        module.write(path, run.model)
        data, model = _bytes(path), module.read(path)
    after, mode = _state(run.model), run.model.training
    model.eval()
    with no_grad():
        answers = model(tensor(test_images)).numpy()
    losses = _tuning(model, gap.mirrored(images[:TUNING]), labels[:TUNING])
    untouched = all(np.array_equal(before[name], after[name]) for name in before)
    return {"answers": answers, "losses": losses, "file": data, "mode": mode, "untouched": untouched}


def _through_a_file(student: Any, rng: np.random.Generator, training: bool) -> tuple[dict[str, Any], Any]:
    """What came back, and the model that it should be."""
    seed = int(rng.integers(100))
    found = student.drive("through_a_file", seed=seed, training=training)
    run = capstone.Run(seed)
    single(loop, run, 1)
    return found, run.model


@LAB.check("12.4", "the same answers in evaluation", visible=True, seconds=SECONDS)
def same_answers(student: Any, rng: np.random.Generator) -> None:
    found, model = _through_a_file(student, rng, True)
    model.eval()
    with no_grad():
        right = model(tensor(gap.images()[2])).numpy()
    equal(numbers(found["answers"], "answers of the model read", "an array"), right, "answers of the model read")


@LAB.check("12.4", "training goes on to the same bits", points=2, visible=True, seconds=SECONDS)
def goes_on(student: Any, rng: np.random.Generator) -> None:
    images, labels, _, _ = gap.images()
    for training in (True, False):
        found, model = _through_a_file(student, rng, training)
        right = _tuning(model, gap.mirrored(images[:TUNING]), labels[:TUNING])
        mode = "training" if training else "evaluation"
        _losses(found["losses"], right, f"losses of training on, the model written in {mode} mode")


@LAB.check("12.4", "nothing folded, any batch, the model as it was", seconds=SECONDS)
def whole_file(student: Any, rng: np.random.Generator) -> None:
    found, _ = _through_a_file(student, rng, False)
    with tempfile.TemporaryDirectory() as folder:
        model = _load(found["file"], folder, "the file")
        layers = sum(type(layer).__name__ == "BatchNormalization" for layer in model.modules())
        equal(layers, 2, "BatchNormalization nodes in the file")
        for count in (1, 5):
            shape = _answers(model, np.zeros((count, 1, 8, 8), np.float32), "the file").shape
            equal(shape, (count, 10), f"shape of the answer for {count} images")
    for training in (False, True):
        found, _ = _through_a_file(student, rng, training)
        equal(found["mode"], training, "model.training after write")
        equal(found["untouched"], True, "parameters and statistics are the same after write")


def _load(data: Any, folder: str, what: str) -> Any:
    """The model in a student's file, in evaluation mode."""
    true(isinstance(data, np.ndarray) and data.size > 0, what, "an ONNX file", "none")
    try:
        return onnx().load(_file(data, folder), max_bytes=LARGEST).eval()
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


def _kind(kind: str, images: Any) -> Any:
    changed: dict[str, Any] = {"base": np.asarray, "mirrored": gap.mirrored, "camera": gap.camera}
    return changed[kind](images)


def _floor(data: Any, kind: str, what: str) -> None:
    """At least so many of the test digits right, by the model in this file."""
    _, _, images, labels = gap.images()
    with tempfile.TemporaryDirectory() as folder:
        answers = _answers(_load(data, folder, what), _kind(kind, images), what)
    true(answers.shape == (len(images), 10), what, f"answers of shape {(len(images), 10)}", f"{answers.shape}")
    share = float(100 * np.mean(answers.argmax(axis=1) == labels))
    name = "test digits" if kind == "base" else f"{kind} test digits"
    true(share >= FLOORS[kind], what, f"at least {FLOORS[kind]:g} % of the {name} right", f"{share:.1f} %")


def tuned(module: Any, data: Any, kind: str) -> dict[str, Any]:
    """The model in these bytes, fine-tuned by the student; as a file again."""
    images, labels, _, _ = gap.images()
    with tempfile.TemporaryDirectory() as folder:
        model = onnx().load(_file(data, folder))
        single(module.fine_tune, model, _kind(kind, images[:TUNING]), labels[:TUNING])
        path = os.path.join(folder, "tuned.onnx")
        mode = model.training
        onnx().export(model, tensor(images[:2]), path)
        return {"file": _bytes(path), "training": mode}


def _tuned(student: Any, rng: np.random.Generator, kind: str) -> None:
    run = capstone.Run(int(rng.integers(100)))
    single(loop, run, 3)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "base.onnx")
        onnx().export(run.model, tensor(np.zeros((2, 1, 8, 8), np.float32)), path, training=True)
        found = student.drive("tuned", data=_bytes(path), kind=kind)
    _floor(found["file"], kind, f"the model fine-tuned on {TUNING} {kind} digits")
    equal(found["training"], False, f"model.training after fine_tune on {kind} digits")


@LAB.check("12.5", "mirrored digits", points=2, visible=True, seconds=SECONDS)
def mirror(student: Any, rng: np.random.Generator) -> None:
    _tuned(student, rng, "mirrored")


@LAB.check("12.5", "another camera", points=2, seconds=SECONDS)
def camera(student: Any, rng: np.random.Generator) -> None:
    _tuned(student, rng, "camera")


def all_of_it(module: Any, seed: int) -> dict[str, Any]:
    """What `everything` returns, the files that it leaves, and which of save and resume it called."""
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
            files[name] = _bytes(path) if os.path.exists(path) else None
    return {"losses": losses, "called": called, **files}


def _everything(student: Any, rng: np.random.Generator) -> None:
    seed = int(rng.integers(100))
    run = capstone.Run(seed)
    right = single(loop, run, 4)
    found = student.drive("all_of_it", seed=seed)
    _losses(found["losses"], right, "losses of the four epochs of everything")
    for name in ("save", "resume"):
        true(name in found["called"], f"everything, steps 1 and 2: {name}", "a call", "none")
    for kind in ("base", "mirrored"):
        _floor(found[kind], kind, f"{kind}.onnx")
    run.model.eval()
    images = gap.images()[2]
    with no_grad():
        expected = run.model(tensor(images)).numpy()
    with tempfile.TemporaryDirectory() as folder:
        got = _answers(_load(found["base"], folder, "base.onnx"), images, "base.onnx")
    equal(got, expected, "answers of base.onnx")


@LAB.check("12.6", "the whole way", points=4, visible=True, seconds=SECONDS)
def whole_way(student: Any, rng: np.random.Generator) -> None:
    _everything(student, rng)


@LAB.check("12.6", "the whole way, another seed", points=2, seconds=SECONDS)
def another_way(student: Any, rng: np.random.Generator) -> None:
    _everything(student, rng)
