"""The normalizations. Each function only decides over which axes statistics are taken, and along which axes weight and
bias vary.

    y = (x - mean) / sqrt(var + eps) * weight + bias

                        statistics over                     weight and bias vary along
    batch_norm          all axes but C                      C
    instance_norm       all axes but N, C                   C
    group_norm          all axes but N, and a group of C    C (or the groups)
    layer_norm          the trailing axes                   the same axes
    rms_norm            the trailing axes, without mean     the same axes
    mean_variance_norm  any axes, eps outside the root      none
    normalization       any axes, and a group of C          any

Statistics are stored as (shift, mean - shift, 1/std), so that float32 keeps its seven digits even if the data is far
from 0. docs/maths.md explains why. The variance is the population variance, which divides by N.

The first two functions are in running_norms.py, the next three in sample_norms.py, and the last two in
general_norms.py.
"""

from __future__ import annotations

from minorm.functional.norm.general_norms import mean_variance_norm, normalization
from minorm.functional.norm.running_norms import batch_norm, instance_norm
from minorm.functional.norm.sample_norms import group_norm, layer_norm, rms_norm

__all__ = [
    "batch_norm",
    "group_norm",
    "instance_norm",
    "layer_norm",
    "mean_variance_norm",
    "normalization",
    "rms_norm",
]
