"""DistributedDataParallel trains a copy of the model on every rank; each rank has a part of the batch.

    loss = cross_entropy(model(images), labels)       # the loss of this rank's part
    loss = model.backward(loss, len(labels))          # the loss and gradients of the whole batch

Ranks communicate only in `backward` and in SyncBatchNorm. The loss of a rank is multiplied by the rank's share of the
batch *before* the backward pass, because SyncBatchNorm already combines gradients of all ranks during this pass.
Afterwards it is enough to add up the gradients of each parameter over all ranks.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from minorm import devices
from minorm.devices import dtypes
from minorm.diagnosis.finite import NonFiniteLoss
from minorm.distributed.meeting import RankError
from minorm.distributed.process_group import Group
from minorm.nn import Module, SyncBatchNorm
from minorm.support.documented import documented
from minorm.tensor.tensor import Tensor

Array = Any


@documented(
    {}, module="the rank's own model; all ranks must build the same model", group="the Group that the program got"
)
class DistributedDataParallel(Module):
    """A copy of the model on every rank of `group`; all copies start with the parameters and buffers of rank 0.

    The state_dict, the parameters and the mode are those of the module itself, so a checkpoint does not depend on the
    number of ranks. SyncBatchNorm layers that have no group get this group. If the models of the ranks differ, a
    RankError names the first difference.

    Example:
        >>> def program(group):
        ...     model = mn.distributed.DistributedDataParallel(nn.Linear(2, 1), group)
        ...     return model.module.weight.detach()
        >>> first, second = mn.distributed.simulate(2, program)
        >>> first.equal(second)
        True
    """

    def __init__(self, module: Module, group: Group) -> None:
        super().__init__()
        self.module, self.group = module, group
        self.counted = 0.0  # the divisor of the last whole batch's mean
        self._sync, self._unsent = True, False  # whether `backward` adds up gradients; whether some are still to add
        for layer in module.modules():
            if isinstance(layer, SyncBatchNorm) and layer.process_group is None:
                layer.process_group = group
        if group.size > 1:
            _check_alike(module, group)
            tensors = [tensor for _, tensor in (*module.named_parameters(), *module.named_buffers())]
            for kind, same in _by_type(tensors, exact=True).items():
                values = group.broadcast(_flat(same, kind, [t.array for t in same]), label="the model of rank 0")
                for tensor, value in zip(same, _parts(values, same), strict=True):
                    tensor.array[...] = devices.to_device(value, tensor.device)
                    tensor.version.count += 1

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return the module's result for this rank's part."""
        return self.module(*args, **kwargs)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """In this block, `backward` does not add up gradients over ranks; the first `backward` after the block adds up
        all of them. So a step of several micro-batches sends only one message. Call `zero_grad` before the first
        micro-batch.
        """
        before, self._sync = self._sync, False
        try:
            yield
        finally:
            self._sync = before

    def backward(self, loss: Tensor, count: float) -> Tensor:
        """Add the gradient of the whole batch's mean loss to each parameter's `grad`, and return the mean loss.

        loss   the mean loss of this rank's part, with its graph
        count  the divisor of this mean: usually the number of this rank's images. If targets are ignored or classes
               have weights, it is the sum of the weights of all targets that are not ignored. If count is 0, the loss
               of this part is ignored

        If the loss of a rank with images is NaN or infinite, all ranks raise NonFiniteLoss before any gradient is
        computed. If one rank was asked to stop, all ranks raise KeyboardInterrupt.
        """
        if self.group.size == 1:
            self.counted = float(count)
            if not count:
                return loss.detach()
            if not math.isfinite(loss.item()):
                raise NonFiniteLoss(f"the loss is {loss.item()}")
            loss.backward()
            return loss.detach()
        total, whole = self._roll_call(loss, count)
        self.counted = float(total)
        parameters = [p for p in self.module.parameters() if p.requires_grad]
        mine = self._unsent or not self._sync  # grad holds this rank's gradients only
        before = [None if mine else p.grad for p in parameters]
        for p in () if mine else parameters:
            p.grad = None
        loss.backward(Tensor(devices.to_device(np.asarray(count / (total or 1), loss.dtype), loss.device)))
        self._unsent = not self._sync
        if self._sync:
            self._reduce(parameters)
        for p, earlier in zip(parameters, before, strict=True):
            if earlier is not None:
                p.grad = earlier if p.grad is None else earlier.add_(p.grad)  # in place, as the user may refer to it
        return Tensor(devices.to_device(np.asarray(whole, loss.dtype), loss.device))

    def _roll_call(self, loss: Tensor, count: float) -> tuple[float, float]:
        """Gather the count and the loss of every rank; return the total count and the mean loss of all ranks."""
        group, value = self.group, loss.item() if count else 0.0
        bad = not math.isfinite(value)
        mine = [count, 0.0 if bad else value * count, group.rank if bad else math.inf, value if bad else 0.0]
        stop = group.rank if group.stopping else math.inf
        total, summed, worst, what, stopped = group.all_reduce(
            np.array([*mine, stop]), _combine_roll_calls, "the roll call"
        )
        if worst < math.inf:
            raise NonFiniteLoss(f"rank {worst:.0f} of {group.size}: the loss is {what}", int(worst))
        if stopped < math.inf:
            raise KeyboardInterrupt
        return float(total), summed / (float(total) or 1.0)

    def _reduce(self, parameters: list[Any]) -> None:
        """Add up the gradients of all ranks. Gradients of one type are sent in one vector, which also says, for each
        gradient, how many ranks have it. A gradient that no rank has stays None.
        """
        for kind, same in _by_type(parameters).items():
            grads = [p.grad for p in same]
            flat = _flat(same, kind, [None if grad is None else grad.array for grad in grads])
            there = np.array([grad is not None for grad in grads], kind)
            mine = np.concatenate([devices.to_device(flat, "cpu"), there])
            total = self.group.all_reduce(mine, label="the gradients")
            for p, value, ranks in zip(same, _parts(total, same), total[-len(same) :], strict=True):
                if ranks:
                    value = devices.to_device(value.astype(p.dtype, copy=True), p.device)
                    if p.grad is None:
                        p.grad = Tensor(value)
                    else:  # in place, as it may be part of a buffer of all gradients
                        p.grad.copy_(Tensor(value))

    def average_buffers(self) -> None:
        """Set the running statistics of all ranks to their mean. Call this before evaluation and before saving.

        The statistics of SyncBatchNorm are equal on all ranks anyway, and keep their bits. Integers (counters) do not
        change.
        """
        buffers = [buffer for buffer in self.module.buffers() if dtypes.is_float(buffer.dtype)]
        if self.group.size == 1 or not buffers:
            return
        kind = np.dtype(np.float64)
        mine = np.append(devices.to_device(_flat(buffers, kind, [b.array for b in buffers]), "cpu"), 1.0)
        mean = self.group.all_reduce(mine, _mean, "the running statistics")[:-1]
        for buffer, value in zip(buffers, _parts(mean, buffers), strict=True):
            buffer.array[...] = devices.to_device(value.astype(buffer.dtype), buffer.device)
            buffer.version.count += 1

    # Names, parameters and modes are the module's own: keys have no prefix

    def _named_modules(self, prefix: str) -> Iterator[tuple[str, Module]]:
        yield from self.module._named_modules(prefix)

    def state_dict(self, *args: Any, **options: Any) -> dict[str, Any]:
        """Return the module's state_dict."""
        return self.module.state_dict(*args, **options)

    def train(self, mode: bool = True) -> DistributedDataParallel:
        """Set the module's training mode."""
        self.module.train(mode)
        return self

    @property
    def training(self) -> bool:  # type: ignore[override]
        """Whether the module is in training mode."""
        return self.module.training


def _combine_roll_calls(a: Array, b: Array) -> Array:
    """Combine the reports a and b of two groups of ranks.

    The counts and the losses are added. Of the ranks with a bad loss, the first one is kept, and so is the first rank
    that was asked to stop.
    """
    first = a if a[2] <= b[2] else b
    return np.array([a[0] + b[0], a[1] + b[1], first[2], first[3], min(a[4], b[4])])


def _mean(a: Array, b: Array) -> Array:
    """Combine a and b, the means of two groups of ranks, into the mean of all these ranks.

    The last element of each array is the number of ranks in the group. Equal values keep their bits.
    """
    count = a[-1] + b[-1]
    mean = a + (b - a) * (b[-1] / count)
    mean[-1] = count
    return mean


def _by_type(tensors: list[Any], exact: bool = False) -> dict[Any, list[Any]]:
    """Group tensors by the type in which they are sent: 16-bit floats as float32, unless `exact` is True."""
    found: dict[Any, list[Any]] = {}
    for tensor in tensors:
        found.setdefault(tensor.dtype if exact else dtypes.compute_type(tensor.dtype), []).append(tensor)
    return found


def _flat(tensors: list[Any], kind: Any, arrays: list[Any]) -> Array:
    """Return the arrays, which have the shapes of `tensors`, as one vector on the host.

    An array that is None becomes zeros.
    """
    vector = np.zeros(sum(t.array.size for t in tensors), kind)
    for part, array in zip(_parts(vector, tensors), arrays, strict=True):
        if array is not None:
            part[...] = devices.to_device(array, "cpu")
    return vector


def _parts(vector: Array, tensors: list[Any]) -> Iterator[Array]:
    """Yield consecutive parts of the vector, as views with the shapes of `tensors`."""
    start = 0
    for tensor in tensors:
        shape = tensor.array.shape
        stop = start + math.prod(shape)
        yield vector[start:stop].reshape(shape)
        start = stop


def _check_alike(module: Module, group: Group) -> None:
    """Raise RankError unless all ranks have parameters and buffers of the same names, shapes and types."""
    lines = [
        f"{name} {tensor.dtype}{tuple(tensor.shape)}"
        for name, tensor in (*module.named_parameters(), *module.named_buffers())
    ]
    digests = group.all_gather(_digests(["\n".join(lines)]), "the model's digest")[:, 0]
    if (digests == digests[0]).all():
        return
    counts = group.all_gather(np.array(len(lines)), "the model's length")
    most = int(counts.max())
    table = np.zeros((most, 16), np.uint8)
    table[: len(lines)] = _digests(lines)
    tables = group.all_gather(table, "the model's lines")
    line = next(i for i in range(most) if (tables[:, i] != tables[0, i]).any())
    said = group.all_gather_text(lines[line] if line < len(lines) else "nothing", "the difference")
    other = next(rank for rank, theirs in enumerate(said) if theirs != said[0])
    raise RankError(
        f"DistributedDataParallel: the models differ: rank 0 has {said[0]}, rank {other} has {said[other]}; expected "
        "the same parameters and buffers on all ranks"
    )


def _digests(texts: list[str]) -> Array:
    return np.array([list(hashlib.sha256(text.encode()).digest()[:16]) for text in texts], np.uint8).reshape(-1, 16)
