"""QConfig: the kinds of fake quantization for weights and for activations."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from minorm.devices import dtypes
from minorm.quantization.fake_quantize import FakeQuantize, LearnedFakeQuantize
from minorm.quantization.observers import MovingAverageMinMaxObserver, PerChannelMinMaxObserver
from minorm.support.documented import documented

ACTIVATION_TYPES = {"uint8": dtypes.uint8, "int8": dtypes.int8}


class QConfig(NamedTuple):
    """activation() makes the FakeQuantize layer for an activation, and weight() makes one for a weight.

    Example:
        >>> from functools import partial
        >>> from minorm.quantization import FakeQuantize, MSEObserver, QConfig, get_default_qat_qconfig
        >>> qconfig = QConfig(partial(FakeQuantize, MSEObserver), get_default_qat_qconfig().weight)
    """

    activation: Callable[[], FakeQuantize]  #: makes a FakeQuantize for activations: one scale, uint8 or int8
    weight: Callable[[], FakeQuantize]  #: makes a FakeQuantize for weights: symmetric int8, a scale per output channel


class WeightObserver(PerChannelMinMaxObserver):
    """Records the least and the largest number of the current weight.

    Earlier weights do not count, because the weight changes at every training step.
    """

    def observe(self, array: Any) -> None:
        """Replace the ends by the least and the largest number of the weight `array`."""
        self._set(*self._ends_of(array))


@documented(
    {},
    activation="the type of activations, 'uint8' or 'int8'",
    learned="True: scales are Parameters (LSQ), which the optimizer changes",
)
def get_default_qat_qconfig(activation: str = "uint8", learned: bool = False) -> QConfig:
    """Return the default: moving averages for activations; symmetric int8 with a scale per output channel for weights.

    The integers of weights begin at -127, not -128, so that every weight can change its sign. Folding changes the sign
    if the weight of the BatchNorm is negative.

    Example:
        >>> mn.quantization.get_default_qat_qconfig("int8").weight()
        FakeQuantize(
          int8, -127 to 127
          (activation_post_process): WeightObserver(int8, -127 to 127, symmetric=True)
        )
    """
    if activation not in ACTIVATION_TYPES:
        raise ValueError(f"get_default_qat_qconfig: activation={activation!r}; expected 'uint8' or 'int8'")
    fake = LearnedFakeQuantize if learned else FakeQuantize
    return QConfig(
        functools.partial(fake, MovingAverageMinMaxObserver, dtype=ACTIVATION_TYPES[activation]),
        functools.partial(fake, WeightObserver, dtype=dtypes.int8, symmetric=True, quant_min=-127, quant_max=127),
    )


default_qat_qconfig = get_default_qat_qconfig()


def weight_quantizer(qconfig: QConfig) -> FakeQuantize:
    """Make the FakeQuantize layer of a weight; raise ValueError if integer convolutions cannot use such weights."""
    fake = qconfig.weight()
    symmetric = fake.activation_post_process.symmetric and fake.quant_min == -fake.quant_max
    if fake.dtype != dtypes.int8 or not symmetric or fake.ch_axis not in (None, 0):
        raise ValueError(
            f"prepare_qat: qconfig.weight() makes {fake.extra_repr()}, {_scales(fake)}; expected symmetric int8 with "
            "quant_min = -quant_max, since folding may change signs, and scales along axis 0 or one scale"
        )
    return fake


def activation_quantizer(qconfig: QConfig) -> FakeQuantize:
    """Make the FakeQuantize layer of an activation; raise ValueError if the layer has several scales."""
    fake = qconfig.activation()
    if fake.ch_axis is not None:
        raise ValueError(f"prepare_qat: qconfig.activation() makes {_scales(fake)}; expected one scale")
    return fake


def _scales(fake: FakeQuantize) -> str:
    symmetric = "symmetric" if fake.activation_post_process.symmetric else "affine"
    return f"{symmetric} with " + ("one scale" if fake.ch_axis is None else f"scales along axis {fake.ch_axis}")
