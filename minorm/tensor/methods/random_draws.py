"""Random draws with the probabilities in a Tensor, without gradients."""

from __future__ import annotations

from typing import Any, Generic

import numpy as np

from minorm import devices
from minorm.devices import dtypes, generators
from minorm.kernels import draws, select
from minorm.ops.operands import check_room
from minorm.support.argument_texts import DRAWN
from minorm.support.documented import documented_methods
from minorm.tensor.shapes import Shapes, TensorT

ARGUMENTS = DRAWN | {
    "p": "one probability for all elements; None takes the probabilities from x",
    "num_samples": "the number of indices to draw for each row",
    "replacement": "True allows an index to be drawn more than once",
}


@documented_methods(ARGUMENTS)
class RandomDraws(Shapes[TensorT], Generic[TensorT]):
    """The methods bernoulli and multinomial."""

    __slots__ = ()

    def bernoulli(self, p: float | None = None, *, generator: Any = None) -> TensorT:
        """Draw 1 or 0 for each element of x. The probability of 1 is p or, if p is None, the element of x.

        The result has x's type. Raises ValueError for probabilities outside of 0 to 1.

        Example:
            >>> mn.tensor([0.0, 1.0]).bernoulli()
            tensor([0., 1.])
        """
        with devices.on_device_of(self.array):
            share = self.array if p is None else p
            if not np.all((share >= 0) & (share <= 1)):
                raise ValueError("bernoulli: x holds numbers outside of 0 to 1; expected probabilities")
            numbers = draws.uniform(self.shape, dtypes.float64, devices.device_of(self.array), generator)
            return self.from_array(select.as_array(numbers < share).astype(self.array.dtype))

    def multinomial(self, num_samples: int, replacement: bool = False, *, generator: Any = None) -> TensorT:
        """Draw `num_samples` indices for each row of x. Index i has the probability x[i] / sum x.

        x holds weights of at least 0, in one row or several. With replacement=False no index is repeated: the method
        takes the indices with the largest u^(1 / x), where u is a uniform draw. Raises ValueError if no weight of a row
        is above 0 or, with replacement=False, if fewer than `num_samples` weights are above 0.

        Example:
            >>> mn.tensor([0.0, 1.0]).multinomial(3, replacement=True)
            tensor([1, 1, 1])

        Efraimidis and Spirakis 2006.
        """
        weights = devices.to_device(self.array, "cpu").astype(np.float64)
        if self.ndim not in (1, 2) or not (weights >= 0).all() or not np.isfinite(weights).all():
            raise ValueError(
                f"multinomial: x is {self.array.dtype} of shape {self.shape}; expected one or two axes, with finite "
                "weights >= 0"
            )
        rows = weights.reshape(-1, weights.shape[-1])
        if (rows.sum(1) <= 0).any() or (not replacement and ((rows > 0).sum(1) < num_samples).any()):
            raise ValueError(
                f"multinomial: a row of x has {int((rows > 0).sum(1).min())} weights above 0; expected at least "
                f"{1 if replacement else num_samples}"
            )
        check_room("multinomial", (len(rows), num_samples))
        draw = generators.source(generator)
        if replacement:
            reached = rows.cumsum(1)
            numbers = draw.random((len(rows), num_samples)) * reached[:, -1:]
            places = [np.searchsorted(row, u, side="right") for row, u in zip(reached, numbers, strict=True)]
            chosen = np.array(places, np.int64).reshape(len(rows), num_samples).clip(0, rows.shape[1] - 1)  # rounding
        else:
            with np.errstate(divide="ignore"):
                keys = np.log(draw.random(rows.shape)) / rows
            chosen = np.argsort(-keys, 1, kind="stable")[:, :num_samples]
        return _like(self, chosen.reshape(*self.shape[:-1], num_samples), dtypes.int64)


def _like(x: Any, numbers: Any, kind: Any) -> Any:
    return x.from_array(devices.to_device_of(np.asarray(numbers).astype(kind, copy=False), x.array))
