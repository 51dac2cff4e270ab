from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

from minorm.onnx.loading import judge, tables

F32 = np.float32
rng = np.random.default_rng(0)
angles = np.arange(6)[:, None] * 1e4 ** -(np.arange(4) / 4)
waves = np.stack([np.sin(angles), np.cos(angles)], -1).reshape(6, 8)
row = np.array([1, 2, 1]) / 4


@pytest.mark.parametrize(
    ("array", "table"),
    [
        (np.triu(np.full((4, 4), -np.inf), 1), True),
        (np.triu(np.full((1, 4, 4), -100.0), 1), True),
        (waves[None], True),
        (np.concatenate([np.sin(angles), np.cos(angles)], 1), True),
        (waves.T[None, :, :, None], True),
        (1e4 ** -(np.arange(4) / 4), True),
        (np.arange(7.0), True),
        (np.broadcast_to(np.outer(row, row), (5, 1, 3, 3)), True),
        (np.ones((4, 4)), False),
        (np.zeros(4), False),
        (np.full((3, 1, 3, 3), 0.1), False),
        (np.array(-np.inf), False),
        (np.arange(3.0), False),
        (rng.standard_normal((4, 4)), False),
        (rng.standard_normal((8, 1, 3, 3)), False),
        (rng.standard_normal(16), False),
        (np.array([-60.0, 0.5, 1, 2]), False),
    ],
)
def test_a_table_has_a_formula(array: Any, table: bool) -> None:
    assert bool(tables.formula(array.astype(F32))) is table


def test_what_follows_a_buffer_of_a_module_is_another() -> None:
    def draw() -> Any:
        return rng.standard_normal(5).astype(F32)

    held = {
        "token": draw(),
        "index": np.arange(5),
        "scale": draw(),
        "a.weight": draw(),
        "a.running_mean": draw(),
        "a.other": draw(),
        "a.b.weight": draw(),
        "a.b.noise_const": draw(),
        "head.anchors": draw(),
        "head.m.weight": draw(),
        "onnx::MatMul_7": draw(),
    }
    assert set(judge.buffers_of(held)) == {"index", "scale", "a.running_mean", "a.other", "a.b.noise_const", "head.anchors"}
