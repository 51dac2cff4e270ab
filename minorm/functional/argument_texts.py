"""What the arguments mean that several functions or layers have: texts for `documented`, one dictionary a family."""

from __future__ import annotations

PLACE = {
    "device": 'where parameters and buffers are, "cpu" or "cuda"; None is the CPU',
    "dtype": "the float type of parameters and buffers; None is the default type, float32",
}

LENGTHS = {"kernel": "3", "full": "8", "half": "4", "double": "16"}  # in examples
# What differs where one, two and three axes share a docstring
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
SAMPLE = "(N, {form}), or one sample ({form})"  # what x is

# Of functions, and of the layers that call them

ELEMENTWISE = {
    "x": "any shape, floats",
    "input": "any shape, floats: the x of the formula",
    "inplace": "taken, without effect: the result is a new Tensor",
}

ALONG = {
    "x": "any shape, floats",
    "input": "any shape, floats: the x of the formula",
    "dim": "the axis that sums to one; negative numbers count from the end",
    "dtype": "what x is cast to before, for a 16-bit x the type to compute in; None is x's own",
}

DROPOUT = {
    "x": "any shape, floats",
    "p": "the probability of a zero, 0 to 1",
    "training": "True draws zeros, False gives x itself",
    "inplace": "taken, without effect: the result is a new Tensor",
}

CONVOLUTION = {
    "bias": "(O), what is added to each output channel; None is 0",
    "stride": "how far the kernel moves between two outputs, an int for all axes or one int an axis",
    "padding": (
        'zeros around x: an int, one int an axis, a (low, high) pair an axis, or a word: "valid" is none, "same" '
        "gives y the lengths of x (for stride 1; of an odd sum the larger part goes to the end)"
    ),
    "dilation": "how far apart in x the taps of the kernel are, an int or one int an axis",
    "groups": (
        "into how many convolutions side by side the channels are split, each from C / groups to O / groups of them; "
        "groups = C is the depthwise convolution"
    ),
}

TRANSPOSED = CONVOLUTION | {
    "stride": "how far apart in y the inputs are spread out, an int or one int an axis",
    "padding": "what is cut off at both ends of y: an int, one int an axis, or a (low, high) pair an axis",
    "output_padding": (
        "makes y longer at its end, to choose among the lengths that a convolution of this stride takes to x's; "
        "less than stride or dilation"
    ),
    "dilation": "how far apart in y the taps of the kernel are, an int or one int an axis",
}

POOLING = {
    "kernel_size": "the length of the window, an int for all axes or one int an axis",
    "stride": "how far the window moves, an int or one int an axis; None is kernel_size: windows side by side",
    "padding": (
        "what is added at both ends: an int, one int an axis, or a (low, high) pair an axis; at most half the kernel"
    ),
    "dilation": "how far apart the taps of the window are, an int or one int an axis",
    "ceil_mode": "True keeps a last window that hangs over the end, if it starts inside; False drops it",
    "return_indices": "True gives the places of the maxima too, counted over the flattened positions, as int64",
    "count_include_pad": "True counts the padding among the elements of a mean, False does not",
    "divisor_override": "what the sum is divided by instead; None is the number of elements",
    "output_size": "the lengths of y, an int for all axes or one an axis, where None keeps x's",
    "norm_type": "the p of the norm",
}

UNPOOLING = POOLING | {
    "indices": "the places that max pooling gave, integers of input's shape",
    "padding": "what the pooling added at both ends, an int or one int an axis",
    "output_size": "the lengths of y, where the pooling came from others; None is those that are most likely",
}

LOSS = {
    "input": "what the model gives, floats of any shape",
    "target": "what was wanted, of input's shape and type",
    "reduction": '"mean" and "sum" give one number, over all elements; "none" the loss of each',
    "weight": "a factor for each element, which broadcasts to input; None is 1",
    "margin": "how far ahead the right answer must be to cost nothing",
    "eps": "keeps the logarithm or the quotient finite",
}

CLASSES = LOSS | {
    "input": "(N, C, d1, ...) or (C), C the number of classes",
    "weight": "(C), a factor for each class, which gets no gradient; None is 1",
    "ignore_index": "a label whose loss is 0 and which the mean leaves out",
}

TRIPLET = LOSS | {
    "anchor": "vectors (..., M), floats",
    "positive": "vectors like the anchors, of their shape",
    "negative": "vectors unlike the anchors, of their shape",
    "margin": "how much farther away the negative must be to cost nothing, above 0",
    "swap": "True compares with d(positive, negative) where that is smaller than d(anchor, negative)",
}

VECTORS = {
    "x1": "(..., M), floats",
    "x2": "(..., M), of x1's type",
    "p": "of the norm: 2 is the length, 1 the sum of sizes, math.inf the largest, 0 how many are not 0",
}

TABLE = {
    "input": "which rows, integers of any shape",
    "weight": "(rows, features), the table",
    "padding_idx": "a row that gets no gradient, negative numbers count from the end; None is none",
    "max_norm": "rows that are read and longer than this are first shortened to it, in place; None shortens none",
    "norm_type": "the p of that length",
    "scale_grad_by_freq": "True divides a row's gradient by how often the row was read",
    "sparse": "taken, without effect: gradients are dense here",
}

WINDOWS = {
    "kernel_size": "height and width of a window, an int for both or two",
    "dilation": "how far apart the taps of a window are, an int or two",
    "padding": "rows and columns of zeros at both ends, an int or two",
    "stride": "how far a window is from the next, an int or two",
}

RESIZING = {
    "input": "(N, C, *lengths) with one to three lengths, floats",
    "size": "the lengths of y, an int for all axes or one an axis; None where scale_factor is given",
    "scale_factor": "by how much each axis grows, a number for all or one an axis; None where size is given",
    "mode": (
        '"nearest" (the element at floor(i / scale)), "nearest-exact" (at the nearest centre), "linear", "bilinear", '
        '"trilinear" (between two an axis), "bicubic" (four), "area" (means of parts)'
    ),
    "align_corners": (
        "True: the centres of the outer elements fall together; False and None: their outer edges. Not for nearest and "
        "area"
    ),
    "recompute_scale_factor": "True: the scale is what the rounded lengths say, and not scale_factor",
    "antialias": 'True: a wider kernel where an axis shrinks, for "bilinear" and "bicubic"',
}
