"""Texts for `documented`: descriptions of arguments of Tensor's methods and of functions that make Tensors."""

from __future__ import annotations

OTHER = {
    "other": "a number, or a Tensor that broadcasts with x",
    "alpha": "the factor of other",
}

OTHER_IN_PLACE = OTHER | {"other": "a number, or a Tensor that broadcasts to x's shape"}

AXES = {
    "dim": "an axis or several; negative numbers count from the end, and None means all axes",
    "keepdim": "True keeps the reduced axes with length 1, False drops them",
    "dtype": "the type to which x is cast first; None is x's type, or int64 for smaller integers",
}

AXIS = "an axis; negative numbers count from the end"

DRAWN = {"generator": "a minorm.Generator, or NumPy's, to draw from; None is the one that minorm.manual_seed sets"}

MADE = {
    "dtype": "the element type; None is the default float type, float32",
    "device": 'the device of the result, "cpu" or "cuda"; None is the CPU',
    "requires_grad": "True makes backward() store a gradient in the Tensor",
    "size": "the length of each axis, as numbers or as one tuple",
}

MADE_LIKE = MADE | {
    "input": "a Tensor of the shape wanted",
    "dtype": "the element type; None is input's type",
    "device": 'the device of the result, "cpu" or "cuda"; None is input\'s device',
    "memory_format": "the order in memory; None is input's order, minorm.contiguous_format is row-major order",
}

MEMORY = {
    "memory_format": "minorm.channels_last for images whose channels lie last in memory; None keeps the order",
    "non_blocking": "accepted but ignored: the program waits for the copy",
}

DRAW = MADE | DRAWN
DRAW_LIKE = MADE_LIKE | DRAWN
