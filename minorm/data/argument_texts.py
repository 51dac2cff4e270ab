"""Texts about arguments that several datasets, samplers and transforms share; `documented` adds them to docstrings."""

from __future__ import annotations

from minorm.support.argument_texts import DRAWN

SAMPLER = DRAWN | {
    "data_source": "the dataset, or any object with a length",
    "replacement": "True allows an index to be drawn more than once",
}

PICTURES = {
    "root": "the folder that has a folder for each class; folders inside the folder of a class are searched too",
    "image_size": "height and width: the shorter side is scaled to this length, and the centre is cut out",
    "channels": "3 for RGB, 1 for grey",
    "skip_broken": "True leaves out files that are no pictures, and lists them in `broken`; False raises BrokenImage",
    "max_bytes": "the bytes that a decoded picture may take, at 4 bytes per value; None allows 512 MiB",
}

TRANSFORM = {
    "transforms": "functions of images or of (images, generator), if the second argument has this name or no default",
    "p": "the probability that an image is changed, 0 to 1",
    "size": "height and width: one number for both, or two numbers",
    "inplace": "accepted but ignored, because the given images are never changed",
    "interpolation": '"nearest", "nearest-exact", "bilinear" or "bicubic"',
    "antialias": "True widens the kernel where an axis shrinks",
    "fill": "the value outside the image",
    "padding_mode": (
        '"constant" adds `fill`; "edge" copies the outermost elements, "reflect" mirrors at these '
        'elements, and "symmetric" mirrors at the border'
    ),
    "degrees": "(a, b), the range of the angle, or d for (-d, d)",
    "center": "the fixed point (x, y), in pixels from the upper left corner; None is the middle",
}

WARP = TRANSFORM | {
    "interpolation": '"nearest" or "bilinear"',
    "fill": "the value outside the image: one number, or a number for each channel",
}
