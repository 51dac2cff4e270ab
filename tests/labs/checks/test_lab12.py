"""Lab 12: typical wrong answers lose their points and no others; the lower bounds leave room."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm.labs import capstone, gap
from minorm.labs.beside import lab12_capstone as beside
from minorm.labs.checks import lab12_capstone as checks

pytest.importorskip("onnx")

FORWARD, BACKWARD, CORNERS = "forward", "backward", "odd shapes, large means"
TRAINING, KERNELS = "the same losses, bit for bit", "your kernels train the network"
RESUMED, LATE = "the resumed run equals the uninterrupted one", "stopped early and stopped late"
ANSWERS, CONTINUES, FILE = (
    "the same answers in evaluation",
    "training continues with the same bits",
    "two BatchNorm nodes, any batch size, an unchanged model",
)
MIRROR, CAMERA = "mirrored digits", "another camera"
WAY, OTHER_WAY = "losses and both files", "losses and both files, another seed"
ALL = {WAY, OTHER_WAY}
PARTS = '("model", "optimizer", "scheduler", "loader")'
EXPORT = "    mn.onnx.export(model, example, path, training=True)"


def _only(monkeypatch: pytest.MonkeyPatch, *tasks: str) -> None:
    """Keep only the checks of these tasks."""
    monkeypatch.setattr(checks.LAB, "items", [item for item in checks.LAB.items if item.task in tasks])


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        # m - 1
        ([("(c * c).mean(axis=(2, 3), keepdims=True)", "(c * c).sum(axis=(2, 3), keepdims=True) / (c[0, 0].size - 1)")],
         {FORWARD, BACKWARD, CORNERS, KERNELS}),
        # E[x^2] - E[x]^2 in the type of x
        ([("var = (c * c).mean(axis=(2, 3), keepdims=True)",
           "var = (x4 * x4).mean(axis=(2, 3), keepdims=True) - mean * mean")], {CORNERS}),
        # a term is missing
        ([("(g - mean_g - xhat * mean_gx)", "(g - mean_g)")], {BACKWARD, CORNERS, KERNELS}),
        # dy instead of g
        ([("g = dy4 if s is None else dy4 * parameters(nest, s)", "g = dy4")], {BACKWARD, CORNERS, KERNELS}),
        # no step of the scheduler
        ([("            run.scheduler.step()\n", "")], {TRAINING, KERNELS}),
        # gradients add up
        ([("            run.optimizer.zero_grad()\n", "")], {TRAINING, KERNELS}),
        # the model stays in its mode
        ([("    run.model.train()\n    for", "    for")], {TRAINING}),
        # the mean loss of each epoch
        ([("    return losses\n    # END\n\n\n# %% tags=[\"check\"]\ncheck(\"12.2\")",
           "    return [np.mean(losses)] * epochs\n    # END\n\n\n# %% tags=[\"check\"]\ncheck(\"12.2\")")],
         {TRAINING, KERNELS}),
    ],
)  # fmt: skip
def test_wrong_kernels_and_loops(
    monkeypatch: pytest.MonkeyPatch, lost: Any, changes: list[tuple[str, str]], expected: set[str]
) -> None:
    _only(monkeypatch, "12.1", "12.2")
    assert lost(12, *changes) == expected


@pytest.mark.parametrize(
    "changes",
    [
        [(PARTS, PARTS.replace('"optimizer", ', ""))],  # the momentum of SGD
        [(PARTS, PARTS.replace('"scheduler", ', ""))],  # the position on the cosine
        [(PARTS, PARTS.replace(', "loader"', ""))],  # the order of the images
        [(PARTS, '("model",)')],
        [("mn.random.set_state(checkpoint.load_training(path, **parts)", "(checkpoint.load_training(path, **parts)")],
    ],
)
def test_incomplete_checkpoints(monkeypatch: pytest.MonkeyPatch, lost: Any, changes: list[tuple[str, str]]) -> None:
    _only(monkeypatch, "12.3")
    assert lost(12, *changes) == {RESUMED, LATE}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        # the form for inference: dropout is lost
        ([(EXPORT, EXPORT.replace(", training=True", ""))], {CONTINUES}),
        # the last layer is missing
        ([("mn.onnx.load(path)\n", 'mn.onnx.load(path, outputs=["8/Dropout_output"])\n')], {ANSWERS, CONTINUES}),
        # it cannot learn
        ([("mn.onnx.load(path)\n", "mn.onnx.load(path).freeze()\n")], {ANSWERS, CONTINUES}),
        # only one batch size
        ([(EXPORT, EXPORT.replace("training=True", "training=True, dynamic_axes={}"))], {ANSWERS, CONTINUES, FILE}),
        # evaluation mode first
        ([(EXPORT, "    model.eval()\n" + EXPORT)], {FILE}),
    ],
)
def test_wrong_files(
    monkeypatch: pytest.MonkeyPatch, lost: Any, changes: list[tuple[str, str]], expected: set[str]
) -> None:
    _only(monkeypatch, "12.4")
    assert lost(12, *changes) == expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        # a learning rate that is too small: only the statistics change, which is enough for the new camera
        ([("epochs=12, lr=0.02", "epochs=12, lr=1e-4")], {MIRROR}),
        # left in training mode
        ([("    train(run, 12)\n    model.eval()", "    train(run, 12)")], {MIRROR, CAMERA}),
        # no training
        ([("    train(run, 12)\n    model.eval()", "    model.eval()")], {MIRROR, CAMERA}),
    ],
)
def test_wrong_fine_tuning(
    monkeypatch: pytest.MonkeyPatch, lost: Any, changes: list[tuple[str, str]], expected: set[str]
) -> None:
    _only(monkeypatch, "12.5")
    assert lost(12, *changes) == expected


@pytest.mark.parametrize(
    "changes",
    [
        [("    resume(saved, run)\n", "")],  # another run continues
        [("    losses += train(run, 2)\n", "    losses = train(run, 2)\n")],  # half of the losses
        [
            ("    losses = train(run, 2)\n", "    losses = train(run, 4)\n"),  # no stop: the same losses
            ("    run = capstone.Run(seed + 1)\n    resume(saved, run)\n    losses += train(run, 2)\n", ""),
        ],
        [("    write(tuned, model)\n", "    write(tuned, run.model)\n")],  # the wrong model
        [("    write(base, run.model)\n", "    write(base, capstone.Run(seed).model)\n")],
        [("    fine_tune(model, gap.mirrored(images[:400])", "    fine_tune(model, images[:400]")],
        [('"mirrored.onnx"', '"tuned.onnx"')],
    ],
)
def test_wrong_ways(monkeypatch: pytest.MonkeyPatch, lost: Any, changes: list[tuple[str, str]]) -> None:
    _only(monkeypatch, "12.6")
    assert lost(12, *changes) == ALL


def test_the_floors_ask_for_training_and_leave_room() -> None:
    images, labels, test_images, test_labels = gap.images()
    run = capstone.Run(3)
    beside.single(beside.loop, run, 3)

    def share(kind: str) -> float:
        run.model.eval()
        with mn.no_grad():
            found = run.model(mn.tensor(beside.images_of(kind, test_images))).numpy().argmax(axis=1)
        return float(100 * np.mean(found == test_labels))

    assert share("base") > checks.FLOORS["base"] + 1
    assert share("mirrored") < 60
    assert share("camera") < 80
    for kind in ("camera", "mirrored"):
        picture = beside.images_of(kind, images[: beside.TUNING])
        tuning = capstone.Run(1, images=picture, labels=labels[: beside.TUNING], model=run.model, lr=0.02, epochs=12)
        beside.single(beside.loop, tuning, 12)
        assert share(kind) > checks.FLOORS[kind] + 2
