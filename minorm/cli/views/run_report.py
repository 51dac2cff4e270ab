"""Writes the report of a run: the page DIR/report.html and, if matplotlib is installed, PNG files.

The page loads no other file. It has curves, scores by class, the confusion matrix, the images with the largest losses,
the normalizations, the settings and the time.
"""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from minorm.cli.views import charts, class_section, html_parts, worst_images
from minorm.serialization import atomic
from minorm.serialization.checkpoint import load_training
from minorm.support.safe_names import for_page
from minorm.training import ClassificationReport, Run
from minorm.training.data.majority_guess import Guess, largest_class
from minorm.training.data.preparing import loaders
from minorm.training.files.outcome import Outcome, clipped, outcome
from minorm.training.files.run_folder import BEST, OUTCOME
from minorm.training.metrics.classification_report import scores_of

REPORT = "report.html"
PAIRS = 12  # of classes that are confused with each other


def write(run: Run, out: str, seconds: float) -> list[str]:
    """Write the report of a finished run into the folder `out`, and return the paths of the files.

    All scores are computed with the best weights of the run.
    """
    model, alone = run.model, replace(run.settings, ranks=1)  # one rank reads all of validation
    train, val = run.sets
    loader = loaders(alone, train, val, run.preprocessing, num_workers=int(run.val_loader.num_workers))[1]
    last = {name: tensor.cpu().numpy().copy() for name, tensor in model.state_dict().items()}
    try:
        best = os.path.join(out, BEST)
        if os.path.exists(best):
            model.load_state_dict(load_training(best)["model"])
        found = outcome(model, loader)
        names = run.preprocessing.classes
        guess, scores = largest_class(val, names), scores_of(found.labels, found.probabilities, names)
        worst = worst_images.html(model, found, loader, names)
        contents = page(run, found, scores, guess, worst, seconds).encode()
    finally:
        model.load_state_dict(last)
    paths = [os.path.join(out, name) for name in (REPORT, OUTCOME)]
    for path, text in zip(paths, (contents, summary(run, found, scores, guess)), strict=True):
        with atomic.replacing(path, "report") as file:
            file.write(text)
    if importlib.util.find_spec("matplotlib") is not None:
        paths += _pictures(run, found, out)
    return paths


def summary(run: Run, found: Outcome, scores: ClassificationReport, guess: Guess) -> bytes:
    """Return the contents of outcome.json: validation scores of the best weights, and a constant guess's accuracy."""
    row = run.history[run.best_epoch - 1]
    values = {
        "epoch": run.best_epoch,
        "images": len(found.labels),
        "accuracy": found.accuracy,
        "loss": row["val_loss"],
        "largest_class": asdict(guess),
        "better_than_guessing": found.accuracy > guess.accuracy,
        **scores.as_dict(),
    }
    return f"{json.dumps(values, indent=2)}\n".encode()


def page(run: Run, found: Outcome, scores: ClassificationReport, guess: Guess, worst: str, seconds: float) -> str:
    """Return the whole page as HTML. `worst` is its section on the images with the largest losses."""
    settings, names = run.settings, run.preprocessing.classes
    title = f"{settings.data} with {os.path.basename(settings.model)}"
    parts = [
        f"<p>{_summary(run, found)} {for_page(guess.beside(found.accuracy))}.</p>",
        "<h2>Curves</h2>",
        _curves(run),
        "<h2>Classes</h2>",
        class_section.html(scores),
        "<h2>Confusion matrix</h2>",
        f'<div class="scroll">{charts.confusion(found.confusion, names)}</div>',
        _pairs(found.confusion, names),
        worst,
        _norms(run.model),
        "<h2>Settings</h2>",
        html_parts.pairs([(key.replace("_", "-"), str(value)) for key, value in _settings(run).items()]),
        "<h2>Time</h2>",
        html_parts.pairs(
            [("since the start or --resume", _time(seconds)), ("images per second", _speed(run, seconds))]
        ),
    ]
    return html_parts.page(title, parts)


def _settings(run: Run) -> dict[str, Any]:
    """Return all settings, and the SHA-256 of the model's file and of the initial weights."""
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
    """Return a table of the pairs of classes that are confused most often."""
    off = matrix.copy()
    np.fill_diagonal(off, 0)
    order = [place for place in np.argsort(-off, axis=None, kind="stable")[:PAIRS] if off.flat[place]]
    if not order:
        return "<p>No validation image is taken for another class.</p>"
    rows = []
    for place in order:
        i, j = divmod(int(place), len(names))
        rows.append((names[i], names[j], f"{off[i, j]:,} of {matrix[i].sum():,}"))
    return html_parts.table(("class", "taken for", "images"), rows, numbers=1)


def _norms(model: Any) -> str:
    """Return a table with the minimum, median and maximum of each normalization's running statistics and scale."""
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
    return f"<h2>Normalizations</h2>{note}with them.</small></p>{html_parts.table(head, rows, numbers=4)}"


def _range(tensor: Any) -> str:
    if tensor is None:
        return ""
    values = tensor.cpu().numpy().astype(np.float64)
    return " / ".join(f"{value:.3g}" for value in (values.min(), np.median(values), values.max()))


def _time(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.1f} seconds"
    return f"{int(seconds // 3600)}:{int(seconds % 3600 // 60):02}:{int(seconds % 60):02} hours"


def _speed(run: Run, seconds: float) -> str:
    images = run.images["train"] + run.images["validation"]
    speed = run.trained_epochs * images / max(seconds, 1e-9)
    return f"{speed:,.0f} over {run.trained_epochs} epochs, evaluation included"


def _pictures(run: Run, found: Outcome, out: str) -> list[str]:
    """Write curves.png and confusion.png; return their paths."""
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
