"""How severe a finding is: harm decides, and consequences are notes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from minorm.diagnosis import findings
from minorm.diagnosis.image_batches import Images
from minorm.diagnosis.measured import Activation, Measured, Norm

N = 256
LABELS = np.arange(N) % 4
RIGHT = 8.0 * np.eye(4)[LABELS]


def layer(name: str, offset: float = 0.0, **options: Any) -> Norm:
    draw = np.random.default_rng(0)
    made = Norm(name, "batch", 1e-5, np.ones(8), (np.full(8, offset + 1e-3), np.ones(8)), 0.9, 100, **options)
    made.means, made.variances = [draw.standard_normal((N, 8))], [np.full((N, 8), 1e-3)]
    made.outputs = {"E": [np.zeros(4)], "R": [np.zeros(4)]}
    return made


def measured(norms: list[Norm], e: Any = RIGHT, r: Any = RIGHT, labels: Any = LABELS, **more: Any) -> Measured:
    parts = {"activations": [], "affine": []} | more
    order = [norm.name for norm in norms]
    return Measured(Images(np.zeros((N, 1), np.float32), labels, 64), 64, norms, logits={"E": e, "R": r}, order=order,
                    **parts)  # fmt: skip


def judge(case: Measured) -> dict[tuple[str, str | None], findings.Judged]:
    return {(found.symptom.name, found.symptom.layer): found for found in findings.judge(case)[0]}


def wrong(count: int) -> Any:
    logits = RIGHT.copy()
    logits[:count] = np.roll(logits[:count], 1, axis=1)
    return logits


@pytest.mark.parametrize(("count", "severity"), [(0, "note"), (18, "warning"), (60, "error")])
@pytest.mark.parametrize("labels", [LABELS, None])
def test_stale_statistics_are_as_severe_as_the_harm(count: int, severity: str, labels: Any) -> None:
    if labels is None and severity == "warning":
        return  # without labels there is no harm below 10 % of the predictions
    found = judge(measured([layer("a"), layer("b", 2.0)], wrong(count), labels=labels))
    assert found["stale_statistics", "b"].severity == severity


def test_what_changes_without_harm_is_a_note() -> None:
    found = judge(measured([layer("a")], r=wrong(18)))  # evaluation is the better one
    assert found["train_eval_gap", None].severity == "note"


def test_a_gap_is_a_note_where_a_layer_explains_it() -> None:
    found = judge(measured([layer("a"), layer("b", 2.0)], wrong(60)))
    assert (found["train_eval_gap", None].severity, found["train_eval_gap", None].cause) == ("note", "b")
    found = judge(measured([layer("a", 2.0), layer("b")], wrong(60)))  # the data may be at fault
    assert (found["train_eval_gap", None].severity, found["train_eval_gap", None].cause) == ("error", "a")
    assert found["stale_statistics", "a"].severity == "error"
    found = judge(measured([layer("a"), layer("b")], wrong(60)))
    assert (found["train_eval_gap", None].severity, found["train_eval_gap", None].cause) == ("error", None)


def test_a_frozen_layer_is_a_note_and_the_gap_stands_for_it() -> None:
    found = judge(measured([layer("a"), layer("b", 2.0, frozen=True)], wrong(60)))
    assert found["stale_statistics", "b"].severity == "note"
    assert (found["train_eval_gap", None].severity, found["train_eval_gap", None].cause) == ("error", "b")


def test_behind_a_layer_that_destroys_its_input_findings_are_consequences() -> None:
    first = layer("a")
    first.weight = np.r_[np.zeros(6), 1, 1]
    found = judge(measured([first, layer("b", 2.0), layer("c", undone=("b", 0.01))], wrong(60)))
    assert (found["vanished_scale", "a"].severity, found["vanished_scale", "a"].after) == ("warning", None)
    assert (found["stale_statistics", "b"].severity, found["stale_statistics", "b"].after) == ("note", "a")
    assert (found["train_eval_gap", None].severity, found["train_eval_gap", None].cause) == ("note", "a")
    assert found["undone_norm", "c"].after is None, "which the images have no part in"


def test_a_note_has_no_consequences() -> None:
    first = layer("a")
    first.weight = np.r_[0, np.ones(7)]
    found = judge(measured([first, layer("b", 2.0)], wrong(60)))
    assert (found["stale_statistics", "b"].severity, found["stale_statistics", "b"].after) == ("error", None)


def test_in_a_layer_vanished_comes_before_dead_and_dead_before_saturated() -> None:
    dead = Activation("a", "relu6", np.zeros(8), np.full(8, 100.0), 100)
    flat = Activation("a", "tanh", np.ones(8), np.full(8, 100.0), 100)
    norm = layer("a")
    assert ("dead_channel", "a") in judge(measured([norm], activations=[dead, flat]))
    assert ("saturated_channel", "a") not in judge(measured([norm], activations=[dead, flat]))
    norm.weight = np.r_[np.zeros(6), 1, 1]
    names = {name for name, _ in judge(measured([norm], activations=[dead, flat]))}
    assert names == {"vanished_scale"}


def test_the_most_severe_comes_first() -> None:
    found = findings.judge(measured([layer("a"), layer("b", 2.0)], wrong(60)))[0]
    assert [f.severity for f in found] == ["error", "note"]


def test_the_gap_in_numbers() -> None:
    _, gap = findings.judge(measured([layer("a")], wrong(64)))
    assert gap is not None
    assert gap.changed == 0.25
    assert gap.accuracy == (0.75, 1.0)
    logits = RIGHT - RIGHT.max(1, keepdims=True)
    loss = float(np.log(np.exp(logits).sum(1)).mean())
    assert gap.loss is not None
    assert gap.loss[1] == pytest.approx(loss)
    assert gap.loss[0] == pytest.approx(loss + 8 / 4)


def test_outputs_that_are_probabilities_are_taken_as_such() -> None:
    p = np.exp(RIGHT) / np.exp(RIGHT).sum(1, keepdims=True)
    _, gap = findings.judge(measured([layer("a")], p, p))
    _, same = findings.judge(measured([layer("a")]))
    assert gap is not None
    assert same is not None
    assert gap.loss == pytest.approx(same.loss)


def test_masks_are_counted_by_pixel() -> None:
    e = np.moveaxis(np.eye(4)[np.zeros((N, 5, 5), int)], -1, 1) * 9
    r = np.moveaxis(np.eye(4)[np.ones((N, 5, 5), int)], -1, 1) * 9
    _, gap = findings.judge(measured([layer("a")], e, r, np.ones((N, 5, 5), int)))
    assert gap is not None
    assert (gap.changed, gap.accuracy) == (1.0, (0.0, 1.0))


def test_a_regression_has_neither_predictions_nor_loss() -> None:
    _, gap = findings.judge(measured([layer("a")], RIGHT[:, :1], RIGHT[:, :1] + 20, labels=None))
    assert gap is not None
    assert gap.changed is None
    assert gap.loss is None
    assert gap.harms


def test_a_model_without_running_statistics_has_no_gap() -> None:
    norm = layer("a")
    norm.running, norm.sets = None, [(np.zeros(8), np.ones(8))]
    found, gap = findings.judge(measured([norm], wrong(60)))
    assert gap is None
    assert found == []
