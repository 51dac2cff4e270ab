"""Which fake quantization a QConfig may give to weights and to activations."""

from __future__ import annotations

import functools
from typing import Any

import pytest

import minorm as mn
from minorm import nn
from minorm import quantization as Q
from tests.quantized_models import images


def weights(**others: Any) -> Q.QConfig:
    options = {"dtype": mn.int8, "symmetric": True, "quant_min": -127, **others}
    return Q.QConfig(Q.FakeQuantize, functools.partial(Q.FakeQuantize, Q.PerChannelMinMaxObserver, **options))


@pytest.mark.parametrize(
    ("qconfig", "words"),
    [
        (weights(quant_min=-128), r"makes int8, -128 to 127, symmetric with scales along axis 0; expected symmetric"),
        (weights(dtype=mn.uint8, quant_min=0), r"makes uint8, 0 to 255, symmetric"),
        (weights(symmetric=False), r"makes int8, -127 to 127, affine with scales along axis 0"),
        (weights(ch_axis=1), r"symmetric with scales along axis 1"),
        (
            Q.QConfig(functools.partial(Q.FakeQuantize, Q.PerChannelMinMaxObserver), Q.default_qat_qconfig.weight),
            r"qconfig.activation\(\) makes affine with scales along axis 0; expected one scale",
        ),
    ],
)
def test_a_qconfig_whose_integers_no_convolution_takes_is_refused(qconfig: Q.QConfig, words: str) -> None:
    with pytest.raises(ValueError, match=f"prepare_qat: .*{words}"):
        Q.prepare_qat(nn.Sequential(nn.Conv2d(1, 2, 3)), images(2, 1, 6, 6), qconfig)


def test_another_type_of_activations_is_refused() -> None:
    with pytest.raises(ValueError, match="activation='int4'; expected 'uint8' or 'int8'"):
        Q.get_default_qat_qconfig("int4")
