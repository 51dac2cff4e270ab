"""What the arguments mean that several normalizations have: texts for `documented`, those of the layers among them."""

from __future__ import annotations

from minorm.functional.argument_texts import PLACE

ARGUMENTS = {
    "running_mean": "(C), the mean of each channel over the batches so far; None where none is kept",
    "running_var": "(C), the variance of each channel over the batches so far; None where none is kept",
    "weight": "(C), the scale of each channel; None is 1",
    "bias": "(C), what is added to each channel; None is 0",
    "training": "True normalizes with the statistics of x and blends them into the running ones, False with those",
    "momentum": (
        "the share of the old running value that is kept, 0 to 1, as in ONNX, Keras and Flax: PyTorch's momentum=0.1 "
        "is 0.9 here. None averages over all batches, and needs num_batches_tracked"
    ),
    "eps": "added to the variance, so that a constant x is not divided by 0",
    "num_batches_tracked": "an integer Tensor of one element that is counted up; None counts nothing",
    "unbiased_running_var": (
        "False keeps the population variance in running_var, as ONNX does; True N / (N - 1) of it, as PyTorch does"
    ),
    "update_nonfinite": (
        "False leaves a batch out of all running values if its mean or variance is NaN or infinite for one channel, or "
        "if a running value would no longer fit its type; True blends it in, as PyTorch does"
    ),
    "skipped_batches": (
        "an integer Tensor of one element that is counted up for each batch that is left out; None counts nothing"
    ),
    "compute_dtype": (
        "float32 or float64, the type to compute in, forward and backward (ONNX's stash_type); None is float32 for the "
        "16-bit types and x's own otherwise. y is rounded once, to x's type"
    ),
    "backend": "an object with the functions of minorm/kernels/protocol.py; None is what x's device has",
    "process_group": (
        "what this rank of a distributed run talks to the others through (minorm.distributed.Group): statistics are "
        "those of all ranks, whose batches may be empty. None is this rank alone. An export leaves it out"
    ),
    "variance": (
        'the formula for the moments of x, "two_pass", "welford" or "onnx" (E[x^2] - E[x]^2), to see the error of a '
        "runtime that has it; None is ours, which loses nothing. A file has its runtime's"
    ),
    "mask": (
        "a bool Tensor that broadcasts to x. Where it is False there is no element: statistics, gradients and N are "
        "those of the others, y and the gradient of x are 0, and what x holds, NaN too, reaches nothing. None takes all"
    ),
    "activation": (
        '"relu" gives max(y, 0), in the same pass over memory and to the same bits as an operation of its own; None '
        "leaves y as it is"
    ),
    "residual": (
        "a Tensor of x's shape that is added before the activation, as at the end of a residual block: it must have "
        "x's type; None adds nothing"
    ),
    "num_groups": "how many groups of neighbouring channels; it must divide C",
    "normalized_shape": "the lengths of the trailing axes that are normalized over, an int for the last axis alone",
    "virtual_batch_size": "how many samples a group has; the last group may be smaller",
}

# Of one operation each, and of its layer
RMS_EPS = (
    "added to the mean of squares; None is the smallest step at 1 of the type that x is computed in, 1.2e-7 for the "
    "16-bit types and float32, 2.2e-16 for float64, as in PyTorch"
)
GUARD_EPS = "added to the standard deviation, outside the root"
AXES = "what mean and var are taken over"
ANY_AXES = "what mean and var are taken over: a tuple, or an int as a bit mask (bit i is axis i)"
AXIS_GROUPS = "above 1 it splits axis 1, which must not be among the axes, into groups whose channels are reduced too"
LRN = {
    "size": "how many neighbouring channels: c - size // 2 ... c + (size - 1) // 2, cut off at the ends",
    "alpha": "what the mean of squares is multiplied with",
    "beta": "the exponent",
    "k": "added to the sum, so that 0 is not divided by 0",
}

CHANNELS = "C, the length of axis 1 of x"

LAYER = {
    **ARGUMENTS,
    **PLACE,
    "num_features": (
        "C, the length of axis 1 of x; or a shape (C, *positions), for statistics and parameters of every position, "
        "taken over N alone (spatial=0 of ONNX BatchNormalization 7)"
    ),
    "momentum": (
        "the share of the old running value that is kept, 0 to 1, as in ONNX, Keras and Flax: PyTorch's momentum=0.1 "
        "is 0.9 here, and a value below 0.5 warns. None averages over all batches"
    ),
    "affine": "True learns weight and bias (C), which start as 1 and 0; False has neither",
    "track_running_stats": (
        "True keeps running statistics for evaluation; False keeps none and always normalizes with those of x"
    ),
    "elementwise_affine": "True learns parameters of shape normalized_shape; False has none",
    "bias": "False leaves the bias out and keeps the weight",
}
