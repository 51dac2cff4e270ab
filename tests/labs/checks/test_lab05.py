"""Lab 5: typically wrong answers lose the points they should, and no others; the models are as broken as they claim."""

from __future__ import annotations

from typing import Any

import pytest

import minorm as mn
from minorm.labs import gap

STATISTICS = "running statistics"
UNTOUCHED = "weights, momentum and mode stay"
TUNED = "fine-tuning reaches its target"
STANDING = "what is fixed stands still, weights move"
REPAIRS = {f"repair: {kind}" for kind in gap.BROKEN}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        # measuring moves the running statistics, and the mode is lost
        (
            [
                ("with mn.no_grad(), mn.no_stats_update():", "with mn.no_grad():"),
                ("    model.train(before)\n    return 100 * np.mean", "    return 100 * np.mean"),
            ],
            {"no trace is left"},
        ),
        # the rest at the end counts, and a batch is always 4
        (
            [("    right, count = 0,", "    batch_size = 4\n    right, count = 0,")],
            {"accuracy in training mode"},
        ),
        # variances where deviations were asked for; N - 1 upside down
        (
            [
                ("return np.sqrt((1 - momentum) / (1 + momentum) / m)", "return (1 - momentum) / (1 + momentum) / m"),
                ("return (m - 1) / m\n", "return m / (m - 1)\n"),
            ],
            {"spread of the means", "another momentum", "variance and largest xhat"},
        ),
        # nothing is reset: with momentum=None the batches of training count too, and NaN stays NaN
        (
            [("        layer.reset_running_stats()\n        layer.momentum", "        layer.momentum")],
            {STATISTICS, "repair: inverted", "repair: poisoned", "repair: camera"},
        ),
        # the momentum stays what it was: the last batches count most, and 0 and 1 for some
        (
            [("        layer.momentum = None\n", "")],
            {STATISTICS, "repair: camera", "repair: frozen", "repair: lost", "repair: poisoned"},
        ),
        # in evaluation mode nothing is gathered at all
        (
            [("    model.train()\n    with mn.no_grad():\n", "    model.eval()\n    with mn.no_grad():\n")],
            {STATISTICS} | REPAIRS,
        ),
        # frozen layers are not thawed
        ([("        layer.unfreeze()\n    recal", "        pass\n    recal")], {"repair: frozen"}),
        # eval() does not outlast the loop's train()
        ([("        layer.freeze()\n    # END", "        layer.eval()\n    # END")], {TUNED, STANDING}),
        # everything is frozen
        (
            [("        layer.freeze()\n    # END", "        model.freeze()\n    # END")],
            {TUNED, STANDING, "unfreeze follows"},
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
