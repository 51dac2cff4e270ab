"""Lab 0 varies the lowest bit of a mask, the channels of a group, and the unit of steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from minorm.labs.varied.choices import WORDS, Variants, kinds

Loops = list[tuple[int, int]]


def _mask_texts(low: int) -> tuple[str, ...]:
    """Return the lab's texts about masks for a variant in which the `low` lowest bits of a mask are not used."""
    i = f"i + {low}" if low else "i"
    free = f" The lowest {WORDS[low]} bits are 0: they are kept for flags." if low else ""
    mask, of_axis = 13 << low, f"1 << axis + {low}" if low else "1 << axis"
    back = f"i - {low} for i in range({low}, mask.bit_length())" if low else "i for i in range(mask.bit_length())"
    all_masks = f"range({1 << low}, {16 << low}, {1 << low})" if low else "range(1, 16)"
    return (
        f"Bit {i} is set if axis i is reduced.{free}",
        f"give 2^{low} + 2^{low + 2} + 2^{low + 3} = {mask}.",
        f"In binary this is {mask:b}:",
        f"bit {i} is set for each i in axes",
        f"sum({of_axis} for axis in set(axes))",
        f"tuple({back} if mask >> i & 1)",
        f"for mask in {all_masks}:",
    )


def _step_texts(size: int) -> tuple[str, ...]:
    """Return the pieces of the lab's text about steps.

    Steps are counted in bytes, with `size` bytes for an element; 1 means steps in elements.
    """
    plain = size == 1
    places = "start + inside" if plain else f"(start + inside) // {size}"
    return (
        "measured in elements." if plain else f"measured in bytes, where an element has {size}.",
        f"| 0 | 2 | {60 * size} |",
        f"| 1 | 3 | {20 * size} |",
        f"| 2 | 4 | {5 * size} |",
        f"| 3 | 5 | {size} |",
        f"4 turns of step {5 * size} around 5 turns of step {size} are the same as 20 turns of step {size}.",
        f"keep   (3, {20 * size})",
        f"reduce (2, {60 * size}) (20, {size})",
        "step = int(np.prod(shape))" if plain else f"step = {size} * int(np.prod(shape))",
        f"flat[{places}].mean()",
        "the two lists of loops, and nothing else."
        if plain
        else f"the two lists of loops, and nothing else. The steps are bytes: {size} for each number.",
        'print("yours:"' if plain else 'print("yours, in bytes:"',
    )


V = Variants(
    "lab00_axes",
    first_bit=kinds("the bit of axis 0 in a mask", {low: _mask_texts(low) for low in (0, 2, 3, 4)}),
    groups=kinds(
        "the channels of a group",
        {
            "neighbours": (
                (
                    "The split must not move any element. Group 0 holds the first C/G channels, group 1 holds the next "
                    "C/G channels, and so on. This is what `reshape` does."
                ),
                "return x.reshape(n, num_groups, c // num_groups, *x.shape[2:])",
                "two neighbouring channels of one image",
                "group, channel = divmod(ELEMENT[1], split[2])",
                "index).reshape(SHAPE)",
            ),
            "strided": (
                (
                    "Channel c is in group c % G. Group 0 holds the channels 0, G, 2G and so on, and group 1 the "
                    "channel behind each of them. `reshape` alone puts neighbours together."
                ),
                "return x.reshape(n, c // num_groups, num_groups, *x.shape[2:]).swapaxes(1, 2)",
                "two channels of one image, three apart",
                "channel, group = divmod(ELEMENT[1], split[1])",
                "index).swapaxes(1, 2).reshape(SHAPE)",
            ),
            "from the end": (
                (
                    "Group 0 holds the *last* C/G channels, group 1 the C/G channels before them, and so on. Inside a "
                    "group, the channels keep their order."
                ),
                "return x.reshape(n, num_groups, c // num_groups, *x.shape[2:])[:, ::-1]",
                "two neighbouring channels of one image",
                "group, channel = split[1] - 1 - ELEMENT[1] // split[2], ELEMENT[1] % split[2]",
                "index)[:, ::-1].reshape(SHAPE)",
            ),
        },
    ),
    step_size=kinds("the size of a step of one element", {size: _step_texts(size) for size in (1, 2, 4, 8)}),
)


def placed(x: Any, count: int) -> Any:
    """Reorder the channels of x so that the channels of each of the variant's groups become neighbours."""
    if V.groups == "neighbours" or x.shape[1] % count:
        return x
    places = np.arange(x.shape[1])
    places = places.reshape(-1, count).T if V.groups == "strided" else places.reshape(count, -1)[::-1]
    return x[:, places.ravel()]


def stepped(loops: Sequence[tuple[int, int]], up: bool = True) -> Loops:
    """Convert the steps of loops to the variant's unit, or, with up=False, back to the plain unit."""
    return [(count, step * V.step_size if up else step // V.step_size) for count, step in loops]


def translated(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Adapt `function`, which is written for the plain lab, to the variant.

    The result converts arguments and answers.
    """

    def called(*args: Any, **options: Any) -> Any:
        if name == "to_axes":
            return function(args[0] >> V.first_bit)
        if name == "split_groups":
            return function(placed(*args), args[1])
        if name == "means_by_loops":
            return function(args[0], *(stepped(loops, up=False) for loops in args[1:]))
        answer = function(*args, **options)
        if name == "to_mask" and isinstance(answer, int):
            return answer << V.first_bit
        if name == "loops":
            return tuple(stepped(loops) for loops in answer)
        return answer

    return called
