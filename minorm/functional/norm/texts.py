"""Descriptions of the arguments that several normalizations or their layers share. The decorator `documented` adds
these descriptions to docstrings.
"""

from __future__ import annotations

from minorm.functional.argument_texts import PLACE

ARGUMENTS = {
    "running_mean": "(C), the mean of each channel over the batches so far; None keeps no running mean",
    "running_var": "(C), the variance of each channel over the batches so far; None keeps no running variance",
    "weight": "(C), the scale of each channel; None is 1",
    "bias": "(C), a number that is added to each channel; None is 0",
    "training": (
        "True normalizes with the statistics of x, which also update the running statistics; False normalizes with the "
        "running statistics"
    ),
    "momentum": (
        "the share of the old running value that is kept, 0 to 1, as in ONNX, Keras and Flax: PyTorch's momentum=0.1 "
        "is 0.9 here. None averages over all batches, and needs num_batches_tracked"
    ),
    "eps": "added to the variance, so that a constant x is not divided by 0",
    "num_batches_tracked": "an integer Tensor of one element that counts the batches; None counts nothing",
    "unbiased_running_var": (
        "False keeps the population variance in running_var, as in ONNX; True keeps N / (N - 1) times this variance, "
        "as in PyTorch, where N is the number of elements in a mean"
    ),
    "update_nonfinite": (
        "False leaves a batch out of all running values if its mean or variance is NaN or infinite for any channel, or "
        "if a running value would no longer fit its type; True includes the batch, as in PyTorch"
    ),
    "skipped_batches": "an integer Tensor of one element that counts the batches left out; None counts nothing",
    "compute_dtype": (
        "float32 or float64, the type to compute in, forward and backward (ONNX's stash_type); None is float32 for the "
        "16-bit types and x's type otherwise. y is rounded once, to x's type"
    ),
    "backend": "an object with the functions of minorm/kernels/protocol.py; None is the backend of x's device",
    "process_group": (
        "the minorm.distributed.Group that connects this rank to the other ranks: the statistics are taken over all "
        "ranks, and a rank's batch may be empty. None uses this rank alone. An export ignores the group"
    ),
    "variance": (
        'the formula for the moments of x: "two_pass", "welford" or "onnx" (E[x^2] - E[x]^2), to see the error of '
        "a runtime with this formula; None is minorm's formula, which loses no digits. For an exported file, the "
        "runtime chooses the formula"
    ),
    "mask": (
        "a bool Tensor that broadcasts to x, True for the elements to use. Statistics and gradients are computed from "
        "these elements alone. Elsewhere y and the gradient of x are 0, and the values of x, even NaN, change nothing. "
        "None uses all elements"
    ),
    "activation": (
        '"relu" gives max(y, 0) in the same pass over memory, with the same bits as a separate operation; None leaves '
        "y unchanged"
    ),
    "residual": (
        "a Tensor of x's shape that is added before the activation, as at the end of a residual block. It must have "
        "x's type. None adds nothing"
    ),
    "num_groups": "the number of groups of neighbouring channels; it must divide C",
    "normalized_shape": "the lengths of the trailing axes to normalize over, an int for the last axis alone",
    "virtual_batch_size": "the number of samples in a group; the last group may be smaller",
}

# Arguments of a single operation and its layer
RMS_EPS = (
    "added to the mean of squares; None is the machine epsilon of the type in which the mean is computed: 1.2e-7 for "
    "the 16-bit types and float32, 2.2e-16 for float64, as in PyTorch"
)
GUARD_EPS = "added to the standard deviation, outside the root"
AXES = "the axes over which mean and var are taken"
ANY_AXES = "the axes over which mean and var are taken: a tuple, or an int as a bit mask (bit i is axis i)"
AXIS_GROUPS = (
    "a number above 1 splits axis 1 into groups and reduces over the channels of each group; axis 1 must then not be "
    "among the axes"
)
LRN = {
    "size": "the number of neighbouring channels: c - size // 2 ... c + (size - 1) // 2, cut off at the ends",
    "alpha": "the factor of the mean of squares",
    "beta": "the exponent",
    "k": "added to the sum, so that 0 is not divided by 0",
}

CHANNELS = "C, the length of axis 1 of x"

NONFINITE_GROUPS = (  # update_nonfinite of GhostBatchNorm
    "False leaves a group out of all running values if its mean or variance is NaN or infinite for any channel, or if "
    "a running value would no longer fit its type; True includes the group"
)

LAYER = {
    **ARGUMENTS,
    **PLACE,
    "num_features": (
        "C, the length of axis 1 of x; or a shape (C, *positions), for statistics and parameters of every position, "
        "taken over N alone (spatial=0 of BatchNormalization in ONNX opset 7)"
    ),
    "momentum": (
        "the share of the old running value that is kept, 0 to 1, as in ONNX, Keras and Flax: PyTorch's momentum=0.1 "
        "is 0.9 here, and a value below 0.5 warns. None averages over all batches"
    ),
    "affine": "True learns weight and bias (C), which start as 1 and 0; False learns neither",
    "track_running_stats": (
        "True keeps running statistics for evaluation; False keeps no running statistics and always normalizes with "
        "the statistics of x"
    ),
    "elementwise_affine": "True learns parameters of shape normalized_shape; False has no parameters",
    "bias": "False leaves the bias out and keeps the weight",
}
