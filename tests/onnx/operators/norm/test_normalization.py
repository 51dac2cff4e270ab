from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm import nn

X = mn.tensor(np.random.default_rng(3).normal(1, 2, (2, 6, 3, 5)).astype(np.float32))


@pytest.mark.parametrize(
    ("layer", "operator", "since"),
    [
        (nn.Normalization((1, 6, 1, 1)), "InstanceNormalization", 7),
        (nn.Normalization(None, 0b1100), "InstanceNormalization", 7),
        (nn.Normalization((1, 3, 1, 1), num_groups=3), "InstanceNormalization", 7),
        (nn.Normalization((1, 6, 1, 1), num_groups=3), "InstanceNormalization", 7),
        (nn.Normalization((1, 1, 3, 5), axes=(2, 3)), "LayerNormalization", 17),
        (nn.Normalization((1, 1, 1, 5), axes=(-1,)), "LayerNormalization", 17),
        (nn.Normalization((1, 6, 1, 5), axes=(0, 2)), None, 7),
        (nn.Normalization((1, 3, 3, 1), axes=(2,), num_groups=3), None, 7),
        (nn.Normalization((1, 6, 1, 1), axes=(0, 3), num_groups=2), None, 7),
        (nn.Normalization((1, 6, 1, 1), compute_dtype=mn.float64), None, 7),
    ],
    ids=str,
)
def test_whichever_operator_equals_it(
    lived_in: Any, proved: Any, operators: Any, layer: nn.Module, operator: str | None, since: int, opset: int
) -> None:
    proto = proved(lived_in(layer), X, opset=opset, batches=(3,))
    found = [name for name in operators(proto) if name.endswith("Normalization")]
    assert found == ([operator] if operator is not None and opset >= since else [])
    assert set(layer.state_dict()) <= {t.name for t in proto.graph.initializer}


@pytest.mark.parametrize("dtype", [mn.float16, mn.float64, mn.bfloat16])
def test_other_float_types(lived_in: Any, proved: Any, dtype: Any) -> None:
    layer = lived_in(nn.Normalization((1, 6, 1, 5), axes=(0, 2))).to(dtype)
    proved(layer, X.to(dtype), must_run=False)
