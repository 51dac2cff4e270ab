"""Typical mistakes in lab 4: the class Right has the right functions, and each subclass has one mistake."""

from __future__ import annotations

from typing import Any

import numpy as np

from minorm.labs.checks.variants.lab04_running_statistics import V, translated
from minorm.labs.judge.recognizing import Recognizer


class Right:
    """The right functions of the lab. Each uses the earlier functions, so a mistake also changes the later tasks."""

    def batch_statistics(self, x: Any) -> Any:
        """Return mean, population variance and m of each channel."""
        axes = self._axes(x)
        return x.mean(axis=axes), self._var(x, axes), self._m(x)

    def _axes(self, x: Any) -> tuple[int, ...]:
        return (0, *range(2, x.ndim))

    def _var(self, x: Any, axes: tuple[int, ...]) -> Any:
        return x.var(axis=axes)

    def _m(self, x: Any) -> int:
        return x.size // x.shape[1]

    def update(self, mean: Any, var: Any, x: Any, momentum: float = 0.9) -> Any:
        """Return the running mean and variance after the batch x."""
        batch_mean, batch_var, _ = self.batch_statistics(x)
        return self._moved(mean, batch_mean, 1 - momentum), self._moved(var, batch_var, 1 - momentum)

    def _moved(self, old: Any, new: Any, share: float) -> Any:
        return old * (1 - share) + new * share

    def unbiased(self, var: Any, m: int) -> Any:
        """Return the variance that divides by m - 1."""
        return var * m / (m - 1)

    def cumulative_momentum(self, seen: int) -> float:
        """Return the momentum that makes the running value the average of all batches."""
        return seen / (seen + 1)

    def trajectory(self, batches: Any, convention: str, momentum: float | None = None) -> Any:
        """Return the running mean and variance after each batch."""
        channels = batches[0].shape[1]
        mean, var, found = np.zeros(channels), self._first_var(channels), []
        for seen, x in enumerate(batches):
            batch_mean, batch_var, m = self.batch_statistics(x)
            if convention in self._unbiased_ones():
                batch_var = self.unbiased(batch_var, m)
            share = self._share(convention, momentum, seen)
            mean, var = self._moved(mean, batch_mean, share), self._moved(var, batch_var, share)
            found.append((mean, var))
        return found

    def _first_var(self, channels: int) -> Any:
        return np.full(channels, V.first_var)

    def _unbiased_ones(self) -> tuple[str, ...]:
        return ("pytorch", "paper")

    def _share(self, convention: str, momentum: float | None, seen: int) -> float:
        """Return the share of the new batch in the running value."""
        if convention == "paper":
            return 1 - self.cumulative_momentum(seen)
        if momentum is None:
            return {"onnx": 0.1, "keras": 0.01, "pytorch": 0.1}[convention]
        return momentum if convention == "pytorch" else 1 - momentum

    def onnx_momentum(self, torch_momentum: float) -> float:
        """Convert PyTorch's momentum to ONNX's."""
        return 1 - torch_momentum

    def onnx_running_var(self, torch_running_var: Any, torch_momentum: float, batches: int, m: int) -> Any:
        """Convert PyTorch's running variance to ONNX's."""
        initial = self._initial(torch_momentum, batches)
        return (torch_running_var - initial) * (m - 1) / m + initial

    def _initial(self, torch_momentum: float, batches: int) -> float:
        return float(V.first_var * (1 - torch_momentum) ** batches)


# Task 4.1


class BatchAxisOnly(Right):
    """the statistics are taken over the batch axis only; they have to include all positions of a channel"""

    def _axes(self, x: Any) -> tuple[int, ...]:
        return (0,)


class WithoutSamples(Right):
    """the statistics are taken over the positions only; they have to include all samples of the batch"""

    def _axes(self, x: Any) -> tuple[int, ...]:
        return tuple(range(2, x.ndim))


class EverythingReduced(Right):
    """the statistics are taken over all axes; each channel has to have its own statistics"""

    def _axes(self, x: Any) -> tuple[int, ...]:
        return tuple(range(x.ndim))


class OfSamples(Right):
    """the statistics are taken for each sample; they have to be taken for each channel"""

    def _axes(self, x: Any) -> tuple[int, ...]:
        return tuple(range(1, x.ndim))


class ImagesOnly(Right):
    """the axes are always (0, 2, 3), which only fits images of four axes"""

    of_plain = True

    def _axes(self, x: Any) -> tuple[int, ...]:
        return (0, 2, 3)


class DivisorOneLess(Right):
    """the variance of the batch is divided by m - 1 instead of m, as with ddof=1"""

    def _var(self, x: Any, axes: tuple[int, ...]) -> Any:
        return x.var(axis=axes, ddof=1)


class StandardDeviation(Right):
    """the standard deviation is taken instead of the variance"""

    def _var(self, x: Any, axes: tuple[int, ...]) -> Any:
        return x.std(axis=axes)


class AxesKept(Right):
    """the statistics keep the reduced axes (keepdims=True); their shape has to be (C,)"""

    def batch_statistics(self, x: Any) -> Any:
        axes = self._axes(x)
        return x.mean(axis=axes, keepdims=True), x.var(axis=axes, keepdims=True), self._m(x)


class BatchSizeForM(Right):
    """m is the batch size; it has to be the batch size times the number of positions"""

    def _m(self, x: Any) -> int:
        return len(x)


class PositionsForM(Right):
    """m is the number of positions; it has to be the batch size times the number of positions"""

    def _m(self, x: Any) -> int:
        return int(np.prod(x.shape[2:]))


class AllElementsForM(Right):
    """m is the number of all elements of x; count the elements of one channel only"""

    def _m(self, x: Any) -> int:
        return x.size


class ChannelsForM(Right):
    """m is the number of channels; it has to be the number of elements in a channel"""

    def _m(self, x: Any) -> int:
        return x.shape[1]


class MomentumReversed(Right):
    """momentum is taken as the share of the new value, as in PyTorch; here it has to be the share of the old value"""

    def update(self, mean: Any, var: Any, x: Any, momentum: float = 0.9) -> Any:
        batch_mean, batch_var, _ = self.batch_statistics(x)
        return self._moved(mean, batch_mean, momentum), self._moved(var, batch_var, momentum)


class MomentumForBoth(Right):
    """the old and the new value are both multiplied by momentum; the two shares have to add up to 1"""

    def update(self, mean: Any, var: Any, x: Any, momentum: float = 0.9) -> Any:
        batch_mean, batch_var, _ = self.batch_statistics(x)
        return momentum * (mean + batch_mean), momentum * (var + batch_var)


class NewNotWeighted(Right):
    """the new value is added without the factor 1 - momentum"""

    def update(self, mean: Any, var: Any, x: Any, momentum: float = 0.9) -> Any:
        batch_mean, batch_var, _ = self.batch_statistics(x)
        return momentum * mean + batch_mean, momentum * var + batch_var


class OldNotWeighted(Right):
    """the old value is kept without the factor momentum"""

    def update(self, mean: Any, var: Any, x: Any, momentum: float = 0.9) -> Any:
        batch_mean, batch_var, _ = self.batch_statistics(x)
        return mean + (1 - momentum) * batch_mean, var + (1 - momentum) * batch_var


class MomentumConstant(Right):
    """the argument momentum is ignored and its default is always used"""

    def update(self, mean: Any, var: Any, x: Any, momentum: float = 0.9) -> Any:
        return super().update(mean, var, x, V.momentum)


class VarianceReversed(Right):
    """momentum is taken as the share of the new value, for the variance only"""

    def update(self, mean: Any, var: Any, x: Any, momentum: float = 0.9) -> Any:
        return super().update(mean, var, x, momentum)[0], super().update(mean, var, x, 1 - momentum)[1]


class VarianceNotMoved(Right):
    """only the running mean is updated and the running variance stays as it was"""

    def update(self, mean: Any, var: Any, x: Any, momentum: float = 0.9) -> Any:
        return super().update(mean, var, x, momentum)[0], var


class UpdateUnbiased(Right):
    """the running variance takes the unbiased variance, which divides by m - 1; it has to divide by m"""

    def update(self, mean: Any, var: Any, x: Any, momentum: float = 0.9) -> Any:
        batch_mean, batch_var, m = self.batch_statistics(x)
        batch_var = self.unbiased(batch_var, m)
        return self._moved(mean, batch_mean, 1 - momentum), self._moved(var, batch_var, 1 - momentum)


class BatchReturned(Right):
    """the statistics of the batch are returned and the old values are ignored"""

    def update(self, mean: Any, var: Any, x: Any, momentum: float = 0.9) -> Any:
        return self.batch_statistics(x)[:2]


# Task 4.2


class FactorUpsideDown(Right):
    """the factor is (m - 1) / m instead of m / (m - 1)"""

    def unbiased(self, var: Any, m: int) -> Any:
        return var * (m - 1) / m


class DividedOnly(Right):
    """var is divided by m - 1, but not multiplied by m first; var is already a mean, not a sum"""

    def unbiased(self, var: Any, m: int) -> Any:
        return var / (m - 1)


class OneMore(Right):
    """the divisor is m + 1 instead of m - 1"""

    def unbiased(self, var: Any, m: int) -> Any:
        return var * m / (m + 1)


class Unchanged(Right):
    """var is returned unchanged; it has to be multiplied by m / (m - 1)"""

    def unbiased(self, var: Any, m: int) -> Any:
        return var


# Task 4.3


class OneBehind(Right):
    """the momentum comes one batch too late; `seen` counts only the batches before the new one"""

    def cumulative_momentum(self, seen: int) -> float:
        return (seen + 1) / (seen + 2)


class OneAhead(Right):
    """the momentum comes one batch too early, as in (seen - 1) / seen"""

    def cumulative_momentum(self, seen: int) -> float:
        return 0.0 if seen == 0 else (seen - 1) / seen


class ShareOfNew(Right):
    """1 / (seen + 1), the share of the new value, is returned; momentum has to be the share of the old value"""

    def cumulative_momentum(self, seen: int) -> float:
        return 1 / (seen + 1)


class ShareOfAnyBatch(Right):
    """cumulative_momentum divides by `seen`, which is 0 at the first batch"""

    def cumulative_momentum(self, seen: int) -> float:
        return 1 / seen


# Task 4.4


class OnnxMeaning(Right):
    """PyTorch's momentum is taken as the share of the old value; it has to be the share of the new value"""

    def _share(self, convention: str, momentum: float | None, seen: int) -> float:
        if convention == "pytorch":
            return 0.9 if momentum is None else 1 - momentum
        return super()._share(convention, momentum, seen)


class OnnxMeaningOfGiven(Right):
    """a momentum given for PyTorch is taken as the share of the old value; it has to be the share of the new value"""

    def _share(self, convention: str, momentum: float | None, seen: int) -> float:
        if convention == "pytorch" and momentum is not None:
            return 1 - momentum
        return super()._share(convention, momentum, seen)


class TorchMeaning(Right):
    """momentum is always taken as the share of the new value; in ONNX and Keras, it is the share of the old value"""

    def _share(self, convention: str, momentum: float | None, seen: int) -> float:
        if convention == "paper":
            return super()._share(convention, momentum, seen)
        return {"onnx": 0.9, "keras": 0.99, "pytorch": 0.1}[convention] if momentum is None else momentum


class TorchMeaningOfGiven(Right):
    """a given momentum is taken as the share of the new value; in ONNX and Keras, it is the share of the old value"""

    def _share(self, convention: str, momentum: float | None, seen: int) -> float:
        if momentum is not None and convention != "paper":
            return momentum
        return super()._share(convention, momentum, seen)


class GivenIgnored(Right):
    """the argument momentum is ignored and the default of the convention is always used"""

    def _share(self, convention: str, momentum: float | None, seen: int) -> float:
        return super()._share(convention, None, seen)


class KerasAsOnnx(Right):
    """Keras has ONNX's default momentum of 0.9; Keras's default has to be 0.99"""

    def _share(self, convention: str, momentum: float | None, seen: int) -> float:
        return super()._share("onnx" if convention == "keras" else convention, momentum, seen)


class PaperAsOnnx(Right):
    """the paper's running values use ONNX's momentum; all batches have to have the same weight there"""

    def _share(self, convention: str, momentum: float | None, seen: int) -> float:
        return super()._share("onnx" if convention == "paper" else convention, momentum, seen)


class TorchBiased(Right):
    """PyTorch's running variance is taken from the population variance; it has to divide by m - 1"""

    def _unbiased_ones(self) -> tuple[str, ...]:
        return ("paper",)


class PaperBiased(Right):
    """the paper's running variance is taken from the population variance; it has to be multiplied by m / (m - 1)"""

    def _unbiased_ones(self) -> tuple[str, ...]:
        return ("pytorch",)


class NeverUnbiased(Right):
    """every convention takes the population variance; PyTorch and the paper have to divide by m - 1"""

    def _unbiased_ones(self) -> tuple[str, ...]:
        return ()


class AllUnbiased(Right):
    """every convention takes the unbiased variance; ONNX and Keras have to divide by m"""

    def _unbiased_ones(self) -> tuple[str, ...]:
        return ("onnx", "keras", "pytorch", "paper")


class KerasUnbiased(Right):
    """the variance for Keras is unbiased; Keras has to divide by m, like ONNX"""

    def _unbiased_ones(self) -> tuple[str, ...]:
        return ("keras", "pytorch", "paper")


class VarianceFromZero(Right):
    """the running variance starts at 0; task 4.4 says where it starts"""

    def _first_var(self, channels: int) -> Any:
        return np.zeros(channels)


class MeanFromOne(Right):
    """the running mean starts at 1; it has to start at 0"""

    def trajectory(self, batches: Any, convention: str, momentum: float | None = None) -> Any:
        found, left = super().trajectory(batches, convention, momentum), 1.0
        shifted = []
        for seen, (mean, var) in enumerate(found):
            left *= 1 - self._share(convention, momentum, seen)
            shifted.append((mean + left, var))
        return shifted


class InitialIncluded(Right):
    """the list includes the initial values; its first entry has to come after the first batch"""

    def trajectory(self, batches: Any, convention: str, momentum: float | None = None) -> Any:
        channels = batches[0].shape[1]
        return [
            (np.zeros(channels), np.full(channels, V.first_var)),
            *super().trajectory(batches, convention, momentum),
        ]


class LastOnly(Right):
    """only the last pair is returned; the list needs one pair for each batch"""

    def trajectory(self, batches: Any, convention: str, momentum: float | None = None) -> Any:
        return super().trajectory(batches, convention, momentum)[-1]


class SameArrays(Right):
    """all entries hold the same two arrays, which are changed in place, so all entries show the last values"""

    def trajectory(self, batches: Any, convention: str, momentum: float | None = None) -> Any:
        found = super().trajectory(batches, convention, momentum)
        return [found[-1]] * len(found)


# Task 4.5


class MomentumAsItIs(Right):
    """the momentum is returned unchanged; PyTorch's momentum is 1 - momentum in ONNX"""

    def onnx_momentum(self, torch_momentum: float) -> float:
        return torch_momentum


class InitialForgotten(Right):
    """the factor is applied to the initial 1 as well; it has to apply only to the part that comes from the batches"""

    def _initial(self, torch_momentum: float, batches: int) -> float:
        return 0.0


class InitialOfOneBatch(Right):
    """1 - momentum is left of the initial 1, as after one batch; after several, (1 - momentum) ** batches is left"""

    def _initial(self, torch_momentum: float, batches: int) -> float:
        return 1 - torch_momentum


class InitialReversed(Right):
    """momentum ** batches is taken as what is left of the initial 1; it has to be (1 - momentum) ** batches"""

    def _initial(self, torch_momentum: float, batches: int) -> float:
        return torch_momentum**batches


class InitialNotAdded(Right):
    """what is left of the initial 1 is subtracted, but not added again"""

    def onnx_running_var(self, torch_running_var: Any, torch_momentum: float, batches: int, m: int) -> Any:
        return (torch_running_var - self._initial(torch_momentum, batches)) * (m - 1) / m


class CorrectedUpwards(Right):
    """PyTorch's variance is multiplied by m / (m - 1); ONNX's variance is smaller, so the factor is (m - 1) / m"""

    def onnx_running_var(self, torch_running_var: Any, torch_momentum: float, batches: int, m: int) -> Any:
        initial = self._initial(torch_momentum, batches)
        return (torch_running_var - initial) * m / (m - 1) + initial


class NotCorrected(Right):
    """the running variance is returned unchanged; PyTorch divided the variance of each batch by m - 1"""

    def onnx_running_var(self, torch_running_var: Any, torch_momentum: float, batches: int, m: int) -> Any:
        return torch_running_var


RECOGNIZER = Recognizer.of(Right, vars(), V, translated)
