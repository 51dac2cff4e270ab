"""SyncBatchNorm: a BatchNorm with statistics over all ranks of a distributed run.

The layers exchange messages with the other ranks by calling the methods of a `minorm.distributed.Group`.
"""

from __future__ import annotations

from typing import Any, TypeVar

import minorm.functional as F
from minorm.functional.norm.texts import LAYER
from minorm.nn.attributes import MODULE
from minorm.nn.module import Module
from minorm.nn.norm.batch import _BatchNorm
from minorm.nn.norm.instance import _InstanceNorm
from minorm.support.documented import documented
from minorm.tensor.tensor import Tensor

AnyModule = TypeVar("AnyModule", bound=Module)


@documented(
    LAYER,
    process_group="the run's minorm.distributed.Group; None normalizes this rank's x alone, until "
    "DistributedDataParallel gives the layer its group",
)
class SyncBatchNorm(_BatchNorm):
    """y = (x - mean) / sqrt(var + eps) * weight + bias, with mean and var of each channel over the inputs of all ranks.

    x is (N, C) or (N, C, *positions). N may differ from rank to rank, and may be 0. In training all ranks must call the
    layer the same number of times. Each call sends one message in the forward pass and one in the backward pass. On a
    single rank the result is the same as from BatchNorm, bit for bit. In evaluation, and in a frozen layer, no message
    is sent, and the result is the same as from BatchNorm. An export writes a BatchNorm. The parameters and the state
    are the same as in BatchNorm. y has x's shape and type. See `F.batch_norm`.

    Example:
        >>> model = nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3))
        >>> nn.SyncBatchNorm.convert_sync_batchnorm(model)[1]
        SyncBatchNorm(3, eps=1e-05, momentum=0.9, affine=True, track_running_stats=True)

    Written to ONNX as BatchNormalization (opset 15); Ioffe and Szegedy 2015, arXiv:1502.03167.
    """

    ranks, form = (2, 3, 4, 5), "(N, C) or (N, C, *positions)"

    def __init__(
        self,
        num_features: int | tuple[int, ...],
        eps: float = 1e-5,
        momentum: float | None = 0.9,
        affine: bool = True,
        track_running_stats: bool = True,
        process_group: Any = None,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
        unbiased_running_var: bool = False,
        update_nonfinite: bool = False,
        compute_dtype: Any = None,
        backend: Any = None,
        variance: str | None = None,
    ) -> None:
        super().__init__(
            num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias,
            unbiased_running_var=unbiased_running_var, update_nonfinite=update_nonfinite,
            compute_dtype=compute_dtype, backend=backend, variance=variance,
        )  # fmt: skip
        self.process_group = process_group

    def normalize(self, *args: Any, **options: Any) -> Tensor:
        """Call F.batch_norm with the process group."""
        return F.batch_norm(*args, process_group=self.process_group, **options)

    @classmethod
    def convert_sync_batchnorm(cls, module: AnyModule, process_group: Any = None) -> AnyModule:
        """Replace every BatchNorm layer of `module` by a SyncBatchNorm with the same parameters, buffers and options.

        InstanceNorm layers are not replaced, because InstanceNorm normalizes single samples. If an InstanceNorm has
        running statistics, these statistics now come from the samples of all ranks. GhostBatchNorm and BatchRenorm are
        not changed. Returns the module, or a SyncBatchNorm if the module itself is a BatchNorm. Layers of a loaded ONNX
        graph have other classes and are not replaced; each rank uses its own statistics there.
        """
        made: dict[int, Module] = {}
        for layer in list(module.modules()):
            if isinstance(layer, _InstanceNorm):
                layer.process_group = process_group
            elif isinstance(layer, _BatchNorm) and layer.takes_group:
                made[id(layer)] = cls._from(layer, process_group)
        for parent in list(module.modules()):
            for name, child in list(parent._own(MODULE)):
                if id(child) in made:
                    parent.add_module(name, made[id(child)])
        return made.get(id(module), module)  # type: ignore[return-value]

    @classmethod
    def _from(cls, layer: _BatchNorm, process_group: Any) -> SyncBatchNorm:
        """Return a SyncBatchNorm with the attributes of `layer`, and with the same Parameter objects."""
        made = cls.__new__(cls)
        made.__dict__.update(layer.__dict__, _kinds=dict(layer._kinds))
        made.process_group = process_group
        return made
