"""Lab 5: typical wrong answers lose their points and no others; the models are really broken."""

from __future__ import annotations

from typing import Any

import pytest

import minorm as mn
from minorm.labs import gap

STATISTICS = "running statistics"
UNTOUCHED = "weights, momentum and mode are not changed"
TUNED = "fine-tuning reaches its target"
FIXED = "fixed values stay, weights change"
REPAIRS = {f"repair: {kind}" for kind in gap.BROKEN}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        # measuring changes the running statistics and the mode
        (
            [
                ("with mn.no_grad(), mn.no_stats_update():", "with mn.no_grad():"),
                ("    model.train(before)\n    return 100 * np.mean", "    return 100 * np.mean"),
            ],
            {"the model is not changed"},
        ),
        # a batch is always 4
        (
            [("    right, count = 0,", "    batch_size = 4\n    right, count = 0,")],
            {"accuracy in training mode"},
        ),
        # a variance instead of a standard deviation; the inverse of (m - 1) / m
        (
            [
                ("return np.sqrt((1 - momentum) / (1 + momentum) / m)", "return (1 - momentum) / (1 + momentum) / m"),
                ("return (m - 1) / m\n", "return m / (m - 1)\n"),
            ],
            {"spread of the means", "another momentum", "variance and largest xhat"},
        ),
        # nothing is reset: with momentum=None the batches of training count as well, and NaN stays NaN
        (
            [("        layer.reset_running_stats()\n        layer.momentum", "        layer.momentum")],
            {STATISTICS, "repair: inverted", "repair: poisoned", "repair: camera"},
        ),
        # the momentum is not set: the last batches count most, and 0 and 1 keep a share
        (
            [("        layer.momentum = None\n", "")],
            {STATISTICS, "repair: camera", "repair: frozen", "repair: lost", "repair: poisoned"},
        ),
        # evaluation mode does not update the statistics
        (
            [("    model.train()\n    with mn.no_grad():\n", "    model.eval()\n    with mn.no_grad():\n")],
            {STATISTICS} | REPAIRS,
        ),
        # frozen layers stay frozen
        ([("        layer.unfreeze()\n    recal", "        pass\n    recal")], {"repair: frozen"}),
        # the training loop calls train(), which undoes eval()
        ([("        layer.freeze()\n    # END", "        layer.eval()\n    # END")], {TUNED, FIXED}),
        # everything is frozen
        (
            [("        layer.freeze()\n    # END", "        model.freeze()\n    # END")],
            {TUNED, FIXED, "layers learn again after unfreeze"},
        ),
    ],
)
def test_wrong_answers(lost: Any, changes: list[tuple[str, str]], expected: set[str]) -> None:
    assert lost(5, *changes) == expected


@pytest.mark.parametrize("kind", gap.BROKEN)
def test_every_broken_model_needs_its_repair(kind: str) -> None:
    model, _, images, labels = gap.broken(kind, seed=1)
    with mn.no_grad():
        found = model(mn.tensor(images)).numpy().argmax(axis=1)
    assert (found == labels).mean() < 0.9


def test_an_unbroken_model_is_good_and_batches_of_two_ruin_it() -> None:
    images, labels, test_images, test_labels = gap.images()
    for batch_size, worst, best in ((64, 0.95, 1.0), (2, 0.0, 0.7)):
        model = gap.train(gap.network(3), images, labels, batch_size, epochs=4 if batch_size > 2 else 2).eval()
        with mn.no_grad():
            share = (model(mn.tensor(test_images)).numpy().argmax(axis=1) == test_labels).mean()
        assert worst <= share <= best
