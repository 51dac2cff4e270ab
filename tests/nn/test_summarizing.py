"""The table of a model."""

from __future__ import annotations

from minorm import nn


def test_every_layer_has_a_line() -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 16, 5)
    )
    found = nn.summary(model, (1, 3, 4, 4))
    assert [row.output_shape for row in found.rows] == [
        "(1, 8, 4, 4)", "(1, 8, 4, 4)", "(1, 8, 4, 4)", "(1, 128)", "(1, 5)",
    ]  # fmt: skip
    assert [row.multiplications for row in found.rows] == [8 * 16 * 27, 0, 0, 0, 5 * 128]
    assert [row.parameters for row in found.rows] == [8 * 27 + 8, 16, 0, 0, 5 * 128 + 5]
    assert found.rows[1].reduces_over == "(0, 2, 3)"
    assert found.total_parameters == sum(p.numel() for p in model.parameters()) == found.trainable_parameters
    assert model.training
    assert model[1].num_batches_tracked.item() == 0
    text = repr(found)
    assert "1 (BatchNorm2d)" in text
    assert f"parameters: {found.total_parameters:,}" in text


def test_norms_say_what_they_reduce_over() -> None:
    model = nn.Sequential(nn.GroupNorm(2, 4), nn.LayerNorm((3, 3)), nn.InstanceNorm2d(4))
    rows = nn.summary(model, [(2, 4, 3, 3)]).rows
    assert [row.reduces_over for row in rows] == ["(1, 2, 3), 2 groups", "(2, 3)", "(2, 3)"]
