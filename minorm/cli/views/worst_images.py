"""Writes the report's section on the images with the largest losses. Each image is shown beside its Grad-CAM.

The Grad-CAM is shown as the image in grey; the more orange an area is, the more it counts for the predicted class.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from minorm.cli.views import html_parts
from minorm.data import DataLoader, Subset
from minorm.diagnosis import grad_cam
from minorm.nn import Module
from minorm.support.safe_names import for_page, printable
from minorm.training.files.outcome import Outcome, pixels

SHOWN, TOGETHER = 24, 4  # images shown, and images in one batch of Grad-CAM, as its graph takes memory
ORANGE = np.array([230, 97, 0], np.float64)
MOST = 0.75  # the largest share of orange
Array = Any


def html(model: Module, found: Outcome, loader: DataLoader, names: Sequence[str]) -> str:
    """Return the section as HTML, or "" if all predictions are right.

    `loader` gives the images on which `found` was computed.
    """
    chosen = found.worst(SHOWN)
    if not len(chosen):
        return ""
    heats, why = _heats(model, loader, found.indices[chosen], found.predicted[chosen])
    figures = []
    for row, heat in zip(chosen, heats, strict=True):
        index = int(found.indices[row])
        label, taken = names[found.labels[row]], names[found.predicted[row]]
        share = found.probabilities[row, found.predicted[row]]
        seen = pixels(loader.dataset, index)
        pictures = html_parts.image(html_parts.png(seen), label)
        if heat is not None:
            pictures += html_parts.image(html_parts.png(overlaid(seen, heat)), f"the parts that speak for {taken}")
        figures.append(
            f'<figure><div class="pair">{pictures}</div><figcaption><b>{for_page(label)}</b><br>'
            f"taken for {for_page(taken)}, {100 * share:.0f}&nbsp;%<br>"
            f"<small>{for_page(printable(_name(loader.dataset, index)))}</small></figcaption></figure>"
        )
    note = (
        why
        or "Right of each image Grad-CAM: the more orange a place, the more it speaks for the class it is taken for."
    )
    return f'<h2>Worst images</h2><p><small>{for_page(note)}</small></p><div class="images">{"".join(figures)}</div>'


def _heats(model: Module, loader: DataLoader, indices: Array, classes: Array) -> tuple[Sequence[Any], str]:
    """Return (the Grad-CAM of each image for the class in `classes`, "").

    If Grad-CAMs cannot be computed, return (a list with None for each image, the reason).
    """
    found: list[Any] = []
    try:
        for images, _ in DataLoader(Subset(loader.dataset, indices), TOGETHER, transform=loader.transform):
            target = classes[len(found) : len(found) + len(images)]
            found += [*grad_cam(model, images, target=target).cpu().numpy()]
    except (ValueError, TypeError, RuntimeError) as error:  # the user's code may compute without gradients
        return [None] * len(indices), f"There is no Grad-CAM: {str(error).removeprefix('grad_cam: ')}"
    return found, ""


def overlaid(image: Array, heat: Array) -> Array:
    """Return the image in grey, coloured orange where `heat` (0 to 1) is high. The result is 3 x height x width."""
    grey = image.astype(np.float64).mean(0)
    share = MOST * heat
    return np.rint((1 - share) * grey + share * ORANGE[:, None, None]).astype(np.uint8)


def _name(dataset: Any, index: int) -> str:
    """Return the name of the image's file, or its number."""
    files = getattr(getattr(dataset, "dataset", None), "files", None)
    return f"image {index:,}" if files is None else str(files[int(dataset.indices[index])])
