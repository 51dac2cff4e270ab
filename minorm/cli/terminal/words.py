"""Formats numbers, shapes and lists of names for the commands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from minorm.support.safe_names import printable
from minorm.training.data.preparing import folder_of

if TYPE_CHECKING:
    from minorm.cli.views.check_report import Report
    from minorm.onnx.checking.inspection import Inspection
    from minorm.training.data.majority_guess import Guess

UNITS = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def short(number: int) -> str:
    """Return the number with three digits and a unit, such as 4.09 G."""
    for size, unit in UNITS:
        if number >= size:
            value = number / size
            return f"{value:.{0 if value >= 99.95 else 1 if value >= 9.995 else 2}f} {unit}"
    return str(number)


def gain_of_bfloat16(level: str) -> str:
    """Return a line that says what bfloat16 gains on a processor with kernels of this level."""
    gain = "bfloat16: weights and activations take half as much memory as in float32"
    if level == "amx":
        return f"{gain}, and matrix products run on the processor's matrix tiles"
    return f"{gain}; this processor has no matrix tiles (level {level}), so a step is no faster than in float32"


def shape(lengths: Sequence[int]) -> str:
    """Return a shape as text: 1x3x224x224."""
    return "x".join(map(str, lengths)) or "number"


def shapes(sizes: Mapping[str, Sequence[int]]) -> str:
    """Return the shapes of several tensors as text: x 1x3x224x224, ids 1x8."""
    return ", ".join(f"{printable(name)} {shape(lengths)}" for name, lengths in sizes.items())


def counted(operators: Mapping[str, int], most: int = 4) -> str:
    """Return the `most` most frequent operators with their counts, and three dots for others: Conv, Relu 2, ..."""
    shown = list(operators)
    if len(shown) > most:
        shown = sorted(sorted(shown, key=lambda name: -operators[name])[:most], key=list(operators).index)
    names = [f"{name} {operators[name]}" if operators[name] > 1 else name for name in shown]
    return ", ".join(names + (["..."] if len(shown) < len(operators) else []))


def totals(report: Report) -> str:
    """Return the multiplications and parameters of the whole model, in one line."""
    facts, parts = report.found.facts, []
    if report.size:
        parts.append(f"at {shapes(report.size)}: {short(report.multiplications or 0)} multiplications")
    if facts["parameters"] is not None:
        parts.append(
            f"{facts['parameters']:,} parameters" + (f", {facts['frozen']:,} frozen" if facts["frozen"] else "")
        )
    return "; ".join(parts)


def bare(node: str, operator: str) -> str:
    """Return a node's name without its operator, because a table shows the operator beside the name.

    For `layer1/bn/BatchNormalization` the result is `layer1/bn`.
    """
    return node.removesuffix(f"/{operator}") or node


def odd(found: Inspection) -> dict[tuple[str, ...], list[str]]:
    """Return a dict from nodes to sentences that say what is odd about these nodes."""
    where: dict[str, list[str]] = {}
    for norm in found.norms:
        for sentence in norm.odd:
            where.setdefault(sentence, []).append(bare(norm.node, norm.operator))
    if found.folded:
        count = f"{len(found.folded)} convolution{'s' if len(found.folded) > 1 else ''}"
        where[
            f"BatchNorm was folded into {count} when the model was exported: it is no layer any more, and does not "
            "train. To keep it, export with training=TrainingMode.PRESERVE, or with dynamo=True, optimize=False"
        ] = found.folded
    if found.written_out:
        where[
            "BatchNorm was written as a product and a sum when the model was exported: its statistics and its mode are "
            "gone, and it does not normalize in training"
        ] = found.written_out
    if found.quantized:
        where[
            f"The model is quantized, and has no Parameters: {found.quantized} of its tensors hold weights as "
            "integers, which do not train. Fine-tune it before it is quantized"
        ] = []
    if found.twice:
        names, others = [*found.twice], [*found.twice.values()]
        where[
            f"The exporter wrote {quoted(others)} a second time, as {quoted(names)}: where the network ties them, they "
            "train apart here"
        ] = [bare(n.name, n.operator) for n in found.nodes if set(names) & set(n.inputs)]
    if found.merged:
        where[
            f"The exporter wrote weights of several modules once, as {quoted([*found.merged])}: they were equal, and "
            "train as one here"
        ] = [bare(n.name, n.operator) for n in found.nodes if set(found.merged) & set(n.inputs)]
    told: dict[tuple[str, ...], list[str]] = {}
    for sentence, nodes in where.items():
        told.setdefault(tuple(nodes), []).append(sentence)
    return told


def quoted(names: Sequence[str]) -> str:
    """Return at most three quoted names and the number of the rest: 'a', 'b', 'c' and 2 more."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(map(repr, names[:3])) + more


def listed(nodes: Sequence[str]) -> str:
    """Return at most three nodes: `node a`, or `nodes a, b, c and 2 more`. For an empty list, return `the model`."""
    if not nodes:
        return "the model"
    more = f" and {len(nodes) - 3} more" if len(nodes) > 3 else ""
    return f"node{'s' if len(nodes) > 1 else ''} {', '.join(nodes[:3])}{more}"


def left_out(sets: Iterable[Any]) -> list[str]:
    """Return a line for each folder that says which files were left out because of their names.

    The folders' notes follow.
    """
    folders = {id(folder): folder for folder in filter(None, map(folder_of, sets))}.values()
    lines = [f"left out of {folder.root}: {folder.left_out}" for folder in folders if folder.left_out.counts]
    return lines + [note for folder in folders for note in folder.notes]


def skipped(sets: Iterable[Any]) -> list[str]:
    """Return a line for each of the first ten broken pictures, and a line with the number of other broken pictures."""
    broken: dict[str, str] = {}
    for folder in filter(None, map(folder_of, sets)):
        broken |= folder.broken
    lines = [f"skipped: {reason.removeprefix('read_image: ')}" for reason in list(broken.values())[:10]]
    return lines + ([f"skipped: and {len(broken) - 10:,} more"] if len(broken) > 10 else [])


def compared(accuracy: float, guess: Guess) -> list[str]:
    """Return a line that compares the accuracy with that of a constant guess.

    Advice follows if the model is no better than the guess.
    """
    lines = [guess.beside(accuracy)]
    if accuracy <= guess.accuracy:
        lines.append(
            "try another --lr, a smaller --batch-size, or --resume with more --epochs; also look at the worst images "
            "in report.html: are they in the right folders?"
        )
    return lines
