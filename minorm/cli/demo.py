"""`minorm demo` works with real images: it trains, saves, exports, verifies in onnxruntime and draws a picture.

The demo checks each of its claims, such as that onnxruntime finds the same classes. The command's exit code is 0 only
if all claims hold.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import minorm as mn
from minorm import models
from minorm.cli.options import device_option
from minorm.cli.terminal import extras
from minorm.data import DataLoader
from minorm.serialization import atomic
from minorm.serialization.opening import contents
from minorm.support.safe_names import message, printable

ACCURACY = 0.985  # which the mean over the seeds must reach
TOLERANCE = 1e-5  # times max(1, max|logit|): the largest allowed difference of logits


def add(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "demo",
        help="train on real handwritten digits, export to ONNX, verify in onnxruntime, draw a picture",
        description="Train a small CNN with BatchNorm on scikit-learn's 1,797 handwritten digits, save a checkpoint, "
        "export it to ONNX, compare it with onnxruntime on every test image, and draw what happened. "
        "The exit code is 0 if every check holds.",
    )
    parser.add_argument("--epochs", type=int, default=8, help="passes over the training images (default 8)")
    parser.add_argument(
        "--seed", type=int, default=0, help="the seed of the first run: of its split, weights and order (default 0)"
    )
    parser.add_argument(
        "--seeds", type=int, default=3, metavar="N", help="the number of runs whose mean accuracy is shown (default 3)"
    )
    parser.add_argument("--threads", type=int, help="the number of processors to use (default: all)")
    parser.add_argument(
        "-o", "--out", default="runs/demo", metavar="DIR", help="the folder for all files (default runs/demo)"
    )
    device_option.add(parser)
    parser.set_defaults(run=run)


@dataclass
class Trained:
    """A finished run, with its time, its losses and the watched BatchNorm layers."""

    run: Any
    watch: Any
    seconds: float = 0.0
    losses: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Check:
    """A claim about a value, with the value found, the value wanted, and whether the claim holds.

    `detail` is printed below the table.
    """

    name: str
    found: str
    wanted: str
    passed: bool
    detail: str = ""


def run(args: argparse.Namespace) -> int:
    """Run the whole demo; return 1 if a check failed."""
    extras.need("rich", "matplotlib", "sklearn", "onnx", "onnxruntime")
    from minorm.cli.terminal.screen import Screen

    if args.epochs < 1 or args.seeds < 1:
        raise ValueError(f"--epochs is {args.epochs} and --seeds {args.seeds}; expected at least 1")
    device_option.check(args)
    if args.threads is not None:
        mn.set_num_threads(args.threads)
    with atomic.making_folder(args.out, "demo"):
        return _run(args, Screen())


def _run(args: argparse.Namespace, console: Any) -> int:
    """Run the demo in the output folder, which must exist."""
    console.print(f"A CNN with BatchNorm learns handwritten digits, 8 x 8 pixels; {mn.get_num_threads()} threads.\n")
    runs = [_train(console, args.seed + i, args.epochs, args.device) for i in range(args.seeds)]
    first = runs[0]
    paths = {
        "checkpoint": os.path.join(args.out, "model.safetensors"),
        "ONNX model": os.path.join(args.out, "model.onnx"),
        "picture": os.path.join(args.out, "training.png"),
    }
    checks = [_accuracy([r.run.history[-1]["val_accuracy"] for r in runs])]
    checks += _checks_or_failure("checkpoint", lambda: _save_and_check(first.run, paths["checkpoint"]))
    checks += _checks_or_failure("ONNX", lambda: _export_and_check(first.run, paths["ONNX model"]))
    checks += _checks_or_failure("picture", lambda: _drawn(first, paths["picture"]))
    _print(console, runs, checks, paths)
    return 0 if all(check.passed for check in checks) else 1


def _train(console: Any, seed: int, epochs: int, device: str) -> Trained:
    from minorm.progress import TrainingBar
    from minorm.training import BatchNormWatch, Run, Score, Settings

    run = Run(Settings(data="digits", epochs=epochs, seed=seed), device=device)
    trained = Trained(run, BatchNormWatch(run.model))
    with TrainingBar(console, f"seed {seed}", run.steps) as bar:

        def after_step(score: Score) -> None:
            trained.losses.append(score.last_loss)
            bar.after_step(score)

        start = time.perf_counter()
        run.fit(after_step, callbacks=[trained.watch])
        trained.seconds = time.perf_counter() - start
    return trained


def _accuracy(accuracies: list[float]) -> Check:
    mean = float(np.mean(accuracies))
    name = f"test accuracy, mean of {len(accuracies)} seeds" if len(accuracies) > 1 else "test accuracy"
    return Check(name, f"{mean:.4f}", f"at least {ACCURACY}", mean >= ACCURACY)


def _save_and_check(run: Any, path: str) -> list[Check]:
    """Save the model, and load the weights into a new model, which must compute the same bits."""
    from minorm.training import predict
    from minorm.training.steps.batches import device_of

    mn.save(run.model.state_dict(), path, metadata={"minorm.model": json.dumps(run.model_facts)})
    again = models.build(**run.model_facts).to(device=device_of(run.model))
    again.load_state_dict(mn.load(path))
    images = _test_images(run)
    same = np.array_equal(predict(run.model, images).cpu().numpy(), predict(again, images).cpu().numpy())
    return [Check("checkpoint, loaded again", "same bits" if same else "other logits", "same bits", same)]


def _export_and_check(run: Any, path: str) -> list[Check]:
    """Export the model. The checker must accept the file, and onnxruntime must agree on every test image."""
    import onnx
    import onnxruntime

    import minorm.onnx
    from minorm.training import predict

    images = _test_images(run)
    minorm.onnx.export(run.model, images, path)
    written = contents(path, "demo")  # checker and onnxruntime refuse a path that is not UTF-8
    onnx.checker.check_model(written, full_check=True)
    session = onnxruntime.InferenceSession(written, providers=["CPUExecutionProvider"])
    (theirs,) = session.run(None, {session.get_inputs()[0].name: images.numpy()})
    ours = predict(run.model, images).cpu().numpy()

    agree = int(np.count_nonzero(ours.argmax(axis=1) == theirs.argmax(axis=1)))
    difference = float(np.abs(ours - theirs).max())
    allowed = TOLERANCE * max(1.0, float(np.abs(ours).max()))
    count = len(ours)
    return [
        Check("ONNX checker", "accepts the model", "no complaint", True),
        Check("argmax agreement", f"{agree} of {count}", "100 %", agree == count),
        Check("largest logit difference", f"{difference:.2e}", f"at most {allowed:.2e}", difference <= allowed),
    ]


def _test_images(run: Any) -> Any:
    """Return all test images as one batch, scaled for the model."""
    return mn.cat([images for images, _ in run.val_loader])


def _drawn(trained: Trained, path: str) -> list[Check]:
    from minorm import plots

    run = trained.run
    figure = plots.training_picture(
        f"minorm demo: {run.images['train']:,} digits, {len(run.history)} epochs, seed {run.settings.seed}",
        trained.losses,
        run.history,
        trained.watch,
        _population(run),
        run.settings.label_smoothing,
    )
    with atomic.replacing(path, "demo") as file:
        figure.savefig(file, format="png", dpi=130)
    return []


def _population(run: Any) -> Any:
    """Run the trained model on all training images as one batch.

    Return a BatchNormWatch with the statistics of this batch.
    """
    from minorm.training import BatchNormWatch
    from minorm.training.steps.batches import device_of

    device = device_of(run.model)
    model = models.build(**run.model_facts).to(device=device)
    model.load_state_dict(run.model.state_dict())
    watch = BatchNormWatch(model)
    images, _ = next(
        iter(DataLoader(run.train_loader.dataset, run.images["train"], transform=run.val_loader.transform))
    )
    with mn.no_grad():
        model(images.to(device))
    watch.step()
    return watch


def _checks_or_failure(name: str, step: Callable[[], list[Check]]) -> list[Check]:
    """Return the step's checks; if the step raises, return one failed check."""
    try:
        return step()
    except Exception as error:  # noqa: BLE001  any exception is the check's finding
        return [Check(name, type(error).__name__, "no error", False, f"{name}: {type(error).__name__}: {error}")]


def _print(console: Any, runs: list[Trained], checks: list[Check], paths: dict[str, str]) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("check", "found", "wanted"):
        table.add_column(column)
    table.add_column("", justify="right")
    for check in checks:
        result = Text("ok", "bold blue") if check.passed else Text("FAILED", "bold red")
        table.add_row(check.name, check.found, check.wanted, result)
    console.print(table)
    for check in checks:
        if check.detail:
            console.print(f"{message(check.detail)}\n", soft_wrap=True)
    accuracies = ", ".join(f"{r.run.history[-1]['val_accuracy']:.4f}" for r in runs)
    seconds = ", ".join(f"{r.seconds:.2f}" for r in runs)
    facts = {"accuracy": f"{accuracies} (each seed)" if len(runs) > 1 else accuracies}
    facts["training took"] = f"{seconds} s"
    facts |= {name: path for name, path in paths.items() if os.path.exists(path)}
    for name, value in facts.items():
        console.print(printable(f"{name:14} {value}"), soft_wrap=True)
    failed = [check.name for check in checks if not check.passed]
    console.print()
    end = Text(f"Failed: {'; '.join(failed)}.", "bold red") if failed else Text("All checks passed.", "bold")
    console.print(end)
