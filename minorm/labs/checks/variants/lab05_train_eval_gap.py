"""Lab 5 varies what happens to the last images, the default batch size, the measure of spread, and the frozen parts."""

from __future__ import annotations

from typing import Any

from minorm.labs.varied.choices import Variants, kinds, numbers

V = Variants(
    "lab05_train_eval_gap",
    rest=kinds(
        "how to treat the images that fill no batch",
        {
            "left out at the end": (
                "Leaves out the images at the end that do not fill a batch.",
                "right, count = 0, len(images) // batch_size * batch_size",
                "for start in range(0, count, batch_size):\n            batch = slice(start, start + batch_size)",
                "in order. Leave out the images at the end that do not fill a batch.",
                (
                    "for start in range(0, len(images) - batch_size + 1, batch_size):\n"
                    "            model(mn.tensor(images[start : start + batch_size]))"
                ),
            ),
            "left out at the front": (
                "Leaves out as many images at the front as do not fill a batch.",
                "right, count = 0, len(images) // batch_size * batch_size",
                (
                    "for start in range(len(images) - count, len(images), batch_size):\n"
                    "            batch = slice(start, start + batch_size)"
                ),
                "in order. Leave out as many images at the front as do not fill a batch.",
                (
                    "for start in range(len(images) % batch_size, len(images), batch_size):\n"
                    "            model(mn.tensor(images[start : start + batch_size]))"
                ),
            ),
            "in the last batch": (
                "The images at the end that do not fill a batch join the last one.",
                "right, count = 0, len(images)",
                (
                    "for start in range(0, count - batch_size + 1, batch_size):\n"
                    "            stop = start + batch_size\n"
                    "            batch = slice(start, stop if stop + batch_size <= count else None)"
                ),
                "in order. The images at the end that do not fill a batch join the last one.",
                (
                    "for start in range(0, len(images) - batch_size + 1, batch_size):\n"
                    "            stop = start + batch_size\n"
                    "            batch = slice(start, stop if stop + batch_size <= len(images) else None)\n"
                    "            model(mn.tensor(images[batch]))"
                ),
            ),
        },
    ),
    batch=numbers("the batch size of recalibrate, if a call gives none", ("256", "128", "200", "100"), "batch_size={}"),
    spread=kinds(
        "the results of the two functions of spread",
        {
            "deviation": (
                "Give its standard deviation, in units of sigma.",
                "The standard deviation of the running mean after many batches, in sigma.",
                "The standard deviation of the mean of a batch, in units of sigma.",
                "return m**-0.5",
                "return np.sqrt((1 - momentum) / (1 + momentum) / m)",
            ),
            "variance": (
                "Give its variance, in units of sigma^2.",
                "The variance of the running mean after many batches, in sigma^2.",
                "The variance of the mean of a batch, in units of sigma^2.",
                "return 1 / m",
                "return (1 - momentum) / (1 + momentum) / m",
            ),
            "1.96 deviations": (
                "Give 1.96 times its standard deviation, in units of sigma. In 95 % of all cases it is within that.",
                "1.96 times the standard deviation of the running mean after many batches, in sigma.",
                "1.96 times the standard deviation of the mean of a batch, in units of sigma.",
                "return 1.96 * m**-0.5",
                "return 1.96 * np.sqrt((1 - momentum) / (1 + momentum) / m)",
            ),
        },
    ),
    learning=kinds(
        "the part of a BatchNorm layer that keeps learning in task 5.5",
        {
            (): (
                "Statistics, scale and bias must stay fixed in any mode.",
                "So keep the BatchNorm layers as they are while the linear layers learn.",
                "Fix the BatchNorm layers. All other layers continue",
                "for layer in gap.norms(model):\n        layer.freeze()",
                "fix the BatchNorm layers and nothing else",
            ),
            ("weight", "bias"): (
                "The statistics must stay fixed in any mode. Scale and bias must learn, as the linear layers do.",
                "So keep the statistics of the BatchNorm layers as they are while the linear layers learn.",
                "Fix the statistics of the BatchNorm layers. All parameters continue",
                (
                    "for layer in gap.norms(model):\n        layer.freeze()\n"
                    "        layer.weight.requires_grad = layer.bias.requires_grad = True"
                ),
                "fix the statistics and nothing else",
            ),
            ("bias",): (
                "Statistics and scale must stay fixed in any mode. The bias must learn, as the linear layers do.",
                "So keep statistics and scale of the BatchNorm layers as they are while the linear layers learn.",
                "Fix statistics and scale of the BatchNorm layers. All other parameters continue",
                "for layer in gap.norms(model):\n        layer.freeze()\n        layer.bias.requires_grad = True",
                "fix statistics and scale and nothing else",
            ),
            ("weight",): (
                "Statistics and bias must stay fixed in any mode. The scale must learn, as the linear layers do.",
                "So keep statistics and bias of the BatchNorm layers as they are while the linear layers learn.",
                "Fix statistics and bias of the BatchNorm layers. All other parameters continue",
                "for layer in gap.norms(model):\n        layer.freeze()\n        layer.weight.requires_grad = True",
                "fix statistics and bias and nothing else",
            ),
        },
    ),
)


def batches(count: int, size: int) -> list[slice]:
    """Split this many images into batches."""
    first = count % size if V.rest == "left out at the front" else 0
    found = [slice(start, start + size) for start in range(first, count - size + 1, size)]
    if V.rest == "in the last batch":
        found[-1] = slice(found[-1].start, count)
    return found


def spread(deviation: Any) -> Any:
    """Convert a standard deviation to the variant's measure of spread: deviation, variance or 1.96 deviations."""
    return {"deviation": deviation, "variance": deviation**2, "1.96 deviations": 1.96 * deviation}[V.spread]
