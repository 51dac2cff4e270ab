"""Descriptions of arguments. The decorator `documented` adds these descriptions to docstrings. Each dictionary is for
the arguments that a family of functions or layers shares.
"""

from __future__ import annotations

PLACE = {
    "device": 'the device of the parameters and buffers, "cpu" or "cuda"; None is the CPU',
    "dtype": "the float type of the parameters and buffers; None is the default type, float32",
}

LENGTHS = {"kernel": "3", "full": "8", "half": "4", "double": "16"}  # lengths in the examples
# The words that differ, in a shared docstring, between functions of one, two and three axes
AXES = {
    rank: {
        "rank": str(rank),
        "form": ", ".join(["C", *axes]),
        "new": ", ".join(f"{axis}'" for axis in axes),
        "taps": ", ".join(f"K{axis}" for axis in axes) if rank > 1 else "K",
        **{word: ", ".join([length] * rank) for word, length in LENGTHS.items()},
    }
    for rank, axes in {1: "L", 2: "HW", 3: "DHW"}.items()
}
SAMPLE = "(N, {form}), or one sample ({form})"  # the shape of x

# Arguments of functions, and of the layers that call them

ELEMENTWISE = {
    "x": "floats of any shape",
    "input": "floats of any shape: the x of the formula",
    "inplace": "accepted but ignored: the result is a new Tensor",
}

ALONG = {
    "x": "floats of any shape",
    "input": "floats of any shape: the x of the formula",
    "dim": "the axis along which the probabilities sum to one; negative numbers count from the end",
    "dtype": "the type to which x is converted first, and the type of the result; None keeps x's type",
}

DROPOUT = {
    "x": "floats of any shape",
    "p": "the probability of a zero, 0 to 1",
    "training": "True drops elements at random, False returns the input itself",
    "inplace": "accepted but ignored: the result is a new Tensor",
}

CONVOLUTION = {
    "bias": "(O), a number that is added to each output channel; None adds nothing",
    "stride": "how far the kernel moves between two outputs, an int for all axes or one int per axis",
    "padding": (
        'zeros around x: an int, one int per axis, or a (low, high) pair per axis. The word "valid" adds no zeros; '
        '"same" gives y the lengths of x, for stride 1 only. If the number of zeros is then odd, the end gets one more'
    ),
    "dilation": "the distance in x between two taps of the kernel, an int or one int per axis",
    "groups": (
        "the number of groups into which the channels are split; each group maps C / groups channels to O / groups "
        "channels. groups = C is the depthwise convolution"
    ),
}

TRANSPOSED = CONVOLUTION | {
    "stride": "the distance in y between two inputs, an int or one int per axis",
    "padding": (
        "the number of elements cut off at both ends of y: an int, one int per axis, or a (low, high) pair per axis"
    ),
    "output_padding": (
        "the number of elements by which y is longer at its end. With a stride above 1, a convolution maps several "
        "lengths to the length of x, and output_padding chooses among these lengths. It must be less than the stride "
        "or the dilation"
    ),
    "dilation": "the distance in y between two taps of the kernel, an int or one int per axis",
}

POOLING = {
    "kernel_size": "the length of the window, an int for all axes or one int per axis",
    "stride": (
        "how far the window moves, an int or one int per axis; None is kernel_size, so that windows lie side by side"
    ),
    "padding": (
        "elements added at both ends: an int, one int per axis, or a (low, high) pair per axis; at most half the kernel"
    ),
    "dilation": "the distance between two taps of the window, an int or one int per axis",
    "ceil_mode": "True keeps a last window that starts inside the input and ends outside; False drops this window",
    "return_indices": "True also returns the positions of the maxima in the flattened spatial axes, as int64",
    "count_include_pad": "True counts the padding among the elements of a mean, False does not",
    "divisor_override": "the number to divide each sum by; None is the number of elements",
    "output_size": "the lengths of y, an int for all axes or one int per axis; a None in a tuple keeps the old length",
    "norm_type": "the p of the norm",
}

UNPOOLING = POOLING | {
    "indices": "the positions that max pooling returned, integers of input's shape",
    "padding": "the padding of the max pooling, an int or one int per axis",
    "output_size": "the lengths of the pooling's input; None means the most likely lengths",
}

LOSS = {
    "input": "the model's output, floats of any shape",
    "target": "the correct values, of input's shape and type",
    "reduction": '"mean" and "sum" give one number, over all elements; "none" gives the loss of each element',
    "weight": "factors for the elements, which broadcast to input; None is 1",
    "margin": "the lead that a right answer needs for a loss of 0",
    "eps": "keeps the logarithm or the quotient finite",
}

CLASSES = LOSS | {
    "input": "(N, C, d1, ...) or (C), where C is the number of classes",
    "weight": "(C), a factor for each class, which gets no gradient; None is 1",
    "ignore_index": "labels of this value have loss 0 and are left out of the mean",
    "reduction": '"mean" and "sum" give one number, over all targets; "none" gives the loss of each target',
}

TRIPLET = LOSS | {
    "anchor": "vectors (..., M), floats",
    "positive": "vectors that should be similar to the anchors, of the same shape",
    "negative": "vectors that should be different from the anchors, of the same shape",
    "margin": "the distance by which negative must be farther away than positive for a loss of 0; above 0",
    "reduction": '"mean" and "sum" give one number, over all triplets; "none" gives the loss of each triplet',
    "swap": "True replaces d(anchor, negative) by d(positive, negative) where d(positive, negative) is smaller",
}

VECTORS = {
    "x1": "(..., M), floats",
    "x2": "(..., M), of x1's type",
    "p": "the p of the norm: 2 is the length, 1 the sum of absolute values, math.inf the largest absolute value, 0 the "
    "number of elements that are not 0",
}

TABLE = {
    "input": "the indices of the rows, integers of any shape",
    "weight": "(rows, features), the table",
    "padding_idx": (
        "the index of a row that gets no gradient; negative numbers count from the end; None means no such row"
    ),
    "max_norm": (
        "if a row that is read has a larger norm than max_norm, it is first scaled to max_norm, in place; None scales "
        "no row"
    ),
    "norm_type": "the p of the norm that max_norm limits",
    "scale_grad_by_freq": "True divides a row's gradient by the number of times that the row was read",
    "sparse": "accepted but ignored: gradients are dense here",
}

WINDOWS = {
    "kernel_size": "the height and width of a window, one int for both or two ints",
    "dilation": "the distance between two taps of a window, one int for both axes or two ints",
    "padding": "the rows and columns of zeros that are added at both ends, one int for both or two ints",
    "stride": "the distance from one window to the next, one int for both axes or two ints",
}

RESIZING = {
    "input": "(N, C, *lengths) with one to three lengths, floats",
    "size": "the lengths of y, an int for all axes or one int per axis; None if scale_factor is given",
    "scale_factor": "the growth of each axis, one number for all axes or one per axis; None if size is given",
    "mode": (
        '"nearest" (the element at floor(i / scale)), "nearest-exact" (the element with the nearest centre), "linear", '
        '"bilinear", "trilinear" (from two elements per axis), "bicubic" (from four), "area" (means of equal parts)'
    ),
    "align_corners": (
        "True aligns the centres of the outermost elements of input and y; False and None align their outer edges. The "
        'modes "nearest", "nearest-exact" and "area" accept only None'
    ),
    "recompute_scale_factor": "True recomputes the scale from the rounded lengths; False uses scale_factor itself",
    "antialias": 'True widens the kernel where an axis shrinks, for "bilinear" and "bicubic"',
}
