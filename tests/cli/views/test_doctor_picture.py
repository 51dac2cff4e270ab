"""The picture of a diagnosis: a row a layer, both modes, and the layers that are sick in colour."""

from __future__ import annotations

import pytest

import minorm as mn
from minorm import nn
from tests.diagnosis import planting

pytest.importorskip("matplotlib")

from minorm.cli.views.doctor_picture import MOST, picture
from minorm.plots import VERMILLION


def test_a_row_a_layer_and_the_sick_one_in_colour() -> None:
    found = mn.diagnose(planting.stale_variance().model, planting.loader())
    left, right = picture(found, "a model").axes
    labels = [label.get_text() for label in left.get_yticklabels()]
    assert labels == ["1  batch", "4  batch", "7  batch", "11  batch"]
    assert [label.get_color() == VERMILLION for label in left.get_yticklabels()] == [False, True, False, False]
    widths = [bar.get_width() for bar in right.patches]
    assert widths[::2] == pytest.approx([row["offset"] for row in found.layers])
    assert widths[1::2] == pytest.approx([row["gap"] for row in found.layers])
    assert len(left.lines) == 3 * 2 * 4, "two lines and a dot, of both modes"


def test_layers_without_running_statistics_and_a_model_of_many_layers() -> None:
    layers = [nn.LayerNorm(8) for _ in range(MOST + 9)]
    found = mn.diagnose(nn.Sequential(*layers), [mn.randn(8, 8)])
    left, right = picture(found, "deep").axes
    assert len(left.get_yticklabels()) == MOST
    assert not right.patches
    assert {text.get_text() for text in right.texts} == {"no running statistics"}


def test_ticks_of_a_wide_axis_are_numbers() -> None:
    model = nn.Sequential(nn.BatchNorm1d(4))
    model[0].weight.array[...] = 1000
    left, _ = picture(mn.diagnose(model, [mn.randn(64, 4)]), "wide").axes
    left.figure.canvas.draw()
    assert left.get_xscale() == "symlog"
    ticks = {label.get_text() for label in left.get_xticklabels()}
    assert {"0", "1000"} <= ticks
    assert not any("$" in tick for tick in ticks)
