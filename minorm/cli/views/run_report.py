"""What a run leaves to look at: DIR/report.html, one page with nothing to load, and where matplotlib is, PNGs.

Curves, the confusion matrix, the images it is most wrong about, the norms of its layers, settings and time.
"""

from __future__ import annotations

import base64
import importlib.util
import json
import os
import struct
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from minorm.cli.views import charts
from minorm.cli.views.page_style import STYLE
from minorm.cli.views.report_style import REPORT_STYLE
from minorm.serialization import atomic
from minorm.serialization.checkpoint import load_training
from minorm.support.masking import for_page
from minorm.training import Run
from minorm.training.data.guessing import Guess, largest_class
from minorm.training.data.preparing import loaders
from minorm.training.files.outcome import Outcome, clipped, outcome, pixels
from minorm.training.files.run_folder import BEST, OUTCOME

REPORT = "report.html"
SHOWN = 24  # images
PAIRS = 12  # of classes that are mixed up
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def write(run: Run, out: str, seconds: float) -> list[str]:
    """Write the report of a finished run into its folder; returns the paths. The best weights are those that count."""
    model, alone = run.model, replace(run.settings, ranks=1)  # one rank reads all of validation
    train, val = run.sets
    loader = loaders(alone, train, val, run.preprocessing, num_workers=int(run.val_loader.num_workers))[1]
    last = {name: tensor.cpu().numpy().copy() for name, tensor in model.state_dict().items()}
    try:
        best = os.path.join(out, BEST)
        if os.path.exists(best):
            model.load_state_dict(load_training(best)["model"])
        found = outcome(model, loader)
        guess = largest_class(val, run.preprocessing.classes)
        contents = page(run, found, guess, seconds).encode()
    finally:
        model.load_state_dict(last)
    paths = [os.path.join(out, name) for name in (REPORT, OUTCOME)]
    for path, text in zip(paths, (contents, summary(run, found, guess)), strict=True):
        with atomic.replacing(path, "report") as file:
            file.write(text)
    if importlib.util.find_spec("matplotlib") is not None:
        paths += _pictures(run, found, out)
    return paths


def summary(run: Run, found: Outcome, guess: Guess) -> bytes:
    """outcome.json: the scores of the best weights in validation, beside those of a guess."""
    row = run.history[run.best_epoch - 1]
    values = {
        "epoch": run.best_epoch,
        "images": len(found.labels),
        "accuracy": found.accuracy,
        "loss": row["val_loss"],
        "largest_class": asdict(guess),
        "better_than_guessing": found.accuracy > guess.accuracy,
    }
    return f"{json.dumps(values, indent=2)}\n".encode()


def page(run: Run, found: Outcome, guess: Guess, seconds: float) -> str:
    """The whole page."""
    settings, names = run.settings, run.preprocessing.classes
    title = f"{settings.data} with {os.path.basename(settings.model)}"
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
            f"<title>{for_page(title)}</title><style>{STYLE}{REPORT_STYLE}</style></head><body><main>",
            f"<h1>{for_page(title)}</h1>",
            f"<p>{_summary(run, found)} {for_page(guess.beside(found.accuracy))}.</p>",
            "<h2>Curves</h2>",
            _curves(run),
            "<h2>Confusion matrix</h2>",
            f'<div class="scroll">{charts.confusion(found.confusion, names)}</div>',
            _pairs(found.confusion, names),
            _worst(run, found, names),
            _norms(run.model),
            "<h2>Settings</h2>",
            _list([(key.replace("_", "-"), str(value)) for key, value in _settings(run).items()]),
            "<h2>Time</h2>",
            _list([("since the start or --resume", _time(seconds)), ("images a second", _speed(run, seconds))]),
            "</main></body></html>",
            "",
        ]
    )


def _settings(run: Run) -> dict[str, Any]:
    """All that decides the bits; of a FILE.py, and of the weights to begin with, the digest too."""
    said, digest = asdict(run.settings), run.model_facts.get("sha256")
    if digest is not None:
        said["model file's SHA-256"] = digest
    if run.initial is not None:
        said["init"] = f"{run.initial.taken:,} tensors of {run.initial.file}, SHA-256 {run.initial.sha256}"
    return said


def _summary(run: Run, found: Outcome) -> str:
    seen, wrong = len(found.labels), int((found.predicted != found.labels).sum())
    sets = f"{run.images['train']:,} images to train, {seen:,} to validate, {len(run.preprocessing.classes)} classes"
    right = f"<b>{100 * found.accuracy:.2f}&nbsp;%</b> of the validation images are right, {wrong:,} are wrong"
    return f"{sets}. {right}, with the weights of epoch {run.best_epoch} of {run.epoch}."


def _curves(run: Run) -> str:
    rows, best = run.history, run.best_epoch

    def columns(what: str) -> dict[str, Any]:
        parts = {"train": "train", "validation": "val"}
        return {part: [row[f"{name}_{what}"] for row in rows] for part, name in parts.items()}

    drawn = [
        charts.lines("loss", columns("loss"), best),
        charts.lines("accuracy", columns("accuracy"), best, percent=True),
        charts.lines("learning rate at the epoch's start", {"rate": [row["learning_rate"] for row in rows]}),
    ]
    return f'<div class="charts">{"".join(f"<figure>{chart}</figure>" for chart in drawn if chart)}</div>'


def _pairs(matrix: Any, names: Sequence[str]) -> str:
    """Which classes are mixed up most."""
    off = matrix.copy()
    np.fill_diagonal(off, 0)
    order = [place for place in np.argsort(-off, axis=None, kind="stable")[:PAIRS] if off.flat[place]]
    if not order:
        return "<p>No validation image is taken for another class.</p>"
    rows = []
    for place in order:
        i, j = divmod(int(place), len(names))
        rows.append((names[i], names[j], f"{off[i, j]:,} of {matrix[i].sum():,}"))
    return _table(("class", "taken for", "images"), rows, numbers=1)


def _worst(run: Run, found: Outcome, names: Sequence[str]) -> str:
    """The images with the largest losses."""
    chosen = found.worst(SHOWN)
    if not len(chosen):
        return ""
    val = run.sets[1]
    figures = []
    for row in chosen:
        index = int(found.indices[row])
        label, taken = names[found.labels[row]], names[found.predicted[row]]
        share = found.probabilities[row, found.predicted[row]]
        source = base64.b64encode(png(pixels(val, index))).decode()
        figures.append(
            f'<figure><img alt="{for_page(label)}" src="data:image/png;base64,{source}">'
            f"<figcaption><b>{for_page(label)}</b><br>taken for {for_page(taken)}, {100 * share:.0f}&nbsp;%<br>"
            f"<small>{for_page(_name(val, index))}</small></figcaption></figure>"
        )
    return f'<h2>Worst images</h2><div class="images">{"".join(figures)}</div>'


def _name(dataset: Any, index: int) -> str:
    """A file's name, or the image's number."""
    files = getattr(getattr(dataset, "dataset", None), "files", None)
    return f"image {index:,}" if files is None else str(files[int(dataset.indices[index])])


def _norms(model: Any) -> str:
    """Smallest, middle and largest of what each normalization has: statistics by channel, and its scale."""
    rows = []
    for name, module in model.named_modules():
        kind = type(module).__name__
        if "Norm" not in kind or any(True for _ in module.children()):
            continue
        mean, var, weight = (getattr(module, part, None) for part in ("running_mean", "running_var", "weight"))
        channels = next((str(tensor.numel()) for tensor in (weight, mean) if tensor is not None), "")
        rows.append((name, kind, channels, *(_range(tensor) for tensor in (mean, var, weight))))
    if not rows:
        return ""
    head = ("layer", "kind", "channels", "running mean", "running variance", "scale")
    note = "<p><small>Smallest, middle and largest over the channels. <code>minorm doctor</code> says what is wrong "
    return f"<h2>Normalizations</h2>{note}with them.</small></p>{_table(head, rows, numbers=4)}"


def _range(tensor: Any) -> str:
    if tensor is None:
        return ""
    values = tensor.cpu().numpy().astype(np.float64)
    return " / ".join(f"{value:.3g}" for value in (values.min(), np.median(values), values.max()))


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], numbers: int) -> str:
    """The last `numbers` columns to the right."""
    first = len(head) - numbers

    def line(tag: str, cells: Sequence[str]) -> str:
        kinds = [' class="number"' if i >= first else "" for i in range(len(cells))]
        return "".join(f"<{tag}{kind}>{for_page(c)}</{tag}>" for kind, c in zip(kinds, cells, strict=True))

    body = "".join(f"<tr>{line('td', row)}</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{line("th", head)}</tr></thead><tbody>{body}</tbody></table></div>'


def _list(pairs: Iterable[tuple[str, str]]) -> str:
    items = "".join(f"<div><dt>{for_page(k)}</dt><dd>{for_page(v)}</dd></div>" for k, v in pairs)
    return f'<dl class="pairs">{items}</dl>'


def _time(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.1f} seconds"
    return f"{int(seconds // 3600)}:{int(seconds % 3600 // 60):02}:{int(seconds % 60):02} hours"


def _speed(run: Run, seconds: float) -> str:
    images = run.images["train"] + run.images["validation"]
    speed = run.trained_epochs * images / max(seconds, 1e-9)
    return f"{speed:,.0f} over {run.trained_epochs} epochs, evaluation included"


def png(image: Any) -> bytes:
    """Bytes of shape channels x height x width as a PNG file."""
    channels, height, width = image.shape
    rows = np.zeros((height, 1 + width * channels), np.uint8)  # each begins with its filter, 0
    rows[:, 1:] = image.transpose(1, 2, 0).reshape(height, -1)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2 if channels == 3 else 0, 0, 0, 0)
    data = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows.tobytes(), 9)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + data


def _pictures(run: Run, found: Outcome, out: str) -> list[str]:
    """curves.png and confusion.png."""
    from minorm import plots

    title = f"{run.settings.data} with {clipped(os.path.basename(run.settings.model), 40)}"
    figures = {
        "curves.png": plots.curves(run.history, title),
        "confusion.png": plots.confusion(found.confusion, run.preprocessing.classes, title),
    }
    paths = []
    for name, figure in figures.items():
        paths.append(os.path.join(out, name))
        with atomic.replacing(paths[-1], "report") as file:
            figure.savefig(file, dpi=120, format="png")
    return paths
