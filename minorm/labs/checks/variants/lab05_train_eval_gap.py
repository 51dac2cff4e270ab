"""Lab 5 from year to year: images that fill no batch, a default batch, the measure of a spread, and what is fixed."""

from __future__ import annotations

from typing import Any

from minorm.labs.varied.choices import Variants, kinds, numbers

V = Variants(
    "lab05_train_eval_gap",
    rest=kinds(
        "what becomes of the images that fill no batch",
        {
            "left out at the end": (
                "images that fill no batch at the end are left out.",
                "right, count = 0, len(images) // batch_size * batch_size",
                "for start in range(0, count, batch_size):\n            batch = slice(start, start + batch_size)",
                "in order and without the rest that fills no batch, in training mode",
                (
                    "for start in range(0, len(images) - batch_size + 1, batch_size):\n"
                    "            model(mn.tensor(images[start : start + batch_size]))"
                ),
            ),
            "left out at the front": (
                "images that fill no batch are left out at the front.",
                "right, count = 0, len(images) // batch_size * batch_size",
                (
                    "for start in range(len(images) - count, len(images), batch_size):\n"
                    "            batch = slice(start, start + batch_size)"
                ),
                "in order and without as many at the front as fill no batch, in training mode",
                (
                    "for start in range(len(images) % batch_size, len(images), batch_size):\n"
                    "            model(mn.tensor(images[start : start + batch_size]))"
                ),
            ),
            "in the last batch": (
                "images that fill no batch at the end join the last one.",
                "right, count = 0, len(images)",
                (
                    "for start in range(0, count - batch_size + 1, batch_size):\n"
                    "            stop = start + batch_size\n"
                    "            batch = slice(start, stop if stop + batch_size <= count else None)"
                ),
                "in order and with the rest that fills no batch in the last one, in training mode",
                (
                    "for start in range(0, len(images) - batch_size + 1, batch_size):\n"
                    "            stop = start + batch_size\n"
                    "            batch = slice(start, stop if stop + batch_size <= len(images) else None)\n"
                    "            model(mn.tensor(images[batch]))"
                ),
            ),
        },
    ),
    batch=numbers("the batch of recalibrate, where a call names none", ("256", "128", "200", "100"), "batch_size={}"),
    spread=kinds(
        "what the two functions of spread give",
        {
            "deviation": (
                "Its standard deviation, in units of sigma.",
                "The standard deviation of a batch's mean, in sigma.",
                "return m**-0.5",
                "return np.sqrt((1 - momentum) / (1 + momentum) / m)",
            ),
            "variance": (
                "Its variance, in units of sigma^2.",
                "The variance of a batch's mean, in sigma^2.",
                "return 1 / m",
                "return (1 - momentum) / (1 + momentum) / m",
            ),
            "1.96 deviations": (
                "1.96 times its standard deviation, within which it is in 95 % of all cases, in units of sigma.",
                "1.96 times the standard deviation of a batch's mean, in sigma.",
                "return 1.96 * m**-0.5",
                "return 1.96 * np.sqrt((1 - momentum) / (1 + momentum) / m)",
            ),
        },
    ),
    learning=kinds(
        "what of a BatchNorm layer goes on learning in task 5.5",
        {
            (): (
                "must stay what they are while the linear layers learn: statistics, scale and bias fixed, whatever",
                "Fix the BatchNorm layers; everything",
                "for layer in gap.norms(model):\n        layer.freeze()",
                "fix the BatchNorm layers and nothing else",
            ),
            ("weight", "bias"): (
                "must keep their statistics while the linear layers learn, and scale and bias with them, whatever",
                "Fix the statistics of the BatchNorm layers; everything",
                (
                    "for layer in gap.norms(model):\n        layer.freeze()\n"
                    "        layer.weight.requires_grad = layer.bias.requires_grad = True"
                ),
                "fix the statistics and nothing else",
            ),
            ("bias",): (
                "must keep their statistics and scale while the linear layers learn, and the bias with them, whatever",
                "Fix statistics and scale of the BatchNorm layers; everything",
                "for layer in gap.norms(model):\n        layer.freeze()\n        layer.bias.requires_grad = True",
                "fix statistics and scale and nothing else",
            ),
            ("weight",): (
                "must keep their statistics and bias while the linear layers learn, and the scale with them, whatever",
                "Fix statistics and bias of the BatchNorm layers; everything",
                "for layer in gap.norms(model):\n        layer.freeze()\n        layer.weight.requires_grad = True",
                "fix statistics and bias and nothing else",
            ),
        },
    ),
)


def batches(count: int, size: int) -> list[slice]:
    """The batches of so many images."""
    first = count % size if V.rest == "left out at the front" else 0
    found = [slice(start, start + size) for start in range(first, count - size + 1, size)]
    if V.rest == "in the last batch":
        found[-1] = slice(found[-1].start, count)
    return found


def spread(deviation: Any) -> Any:
    """The measure of a standard deviation that the variant asks for."""
    return {"deviation": deviation, "variance": deviation**2, "1.96 deviations": 1.96 * deviation}[V.spread]
