"""Declares the options of `minorm train`, each with its default."""

from __future__ import annotations

import argparse
import functools
from dataclasses import fields
from typing import Any

from minorm.cli import sources, trust
from minorm.cli.options import device_option, logger_option, transfer_options
from minorm.models import BY_NAME
from minorm.training import Settings
from minorm.training.data.defaults import BATCH, CROP_SCALE, FEW, MOST_EPOCHS, SIZES, SMALL_BATCH, STEPS
from minorm.training.settings import CLASS_WEIGHTS, DTYPES, LOSSES, MODEL_FOR, OPTIMIZERS, QAT, SCHEDULES

TIMEOUT = 300.0


def given(args: argparse.Namespace) -> dict[str, Any]:
    """Return a dict with the settings that the command line or --config gives."""
    values = {field.name: getattr(args, field.name, None) for field in fields(Settings)}
    return {name: value for name, value in values.items() if value is not None}


def add(parser: argparse.ArgumentParser) -> None:
    """Declare all options of `minorm train`."""
    add_training(parser)
    _add_run(parser)


def add_training(parser: argparse.ArgumentParser) -> None:
    """Declare the options that determine a training step: images, model, optimizer, device."""
    defaults = Settings()
    # None means that the option was not given: then --config, the checkpoint or the default of Settings is used.
    option = functools.partial(parser.add_argument, default=None)
    option("--data", choices=list(MODEL_FOR), help=f"images to train on (default {defaults.data}; with --path the "
           "default is folder, or numpy for a .npz file)")  # fmt: skip
    option("--path", help="a folder with one folder of images for each class, or a folder with train/ and, "
           "optionally, val/ and test/ with such folders; for numpy a .npz file with x_train, y_train, x_test, "
           "y_test")  # fmt: skip
    sources.add_limit(parser)
    option("--image-size", type=int, metavar="N", help="the size of a folder's images: the shorter side is scaled to "
           f"N, and the centre square is cut out (default: {SIZES[0]} to {SIZES[-1]}, depending on the size of the "
           "pictures)")  # fmt: skip
    option("--model", metavar="NAME|FILE.py:FUNCTION|FILE.onnx", help=f"{', '.join(BY_NAME)}, a function that is "
           "called as build(channels, size, classes), or the graph of an ONNX file (default: the usual model for the "
           "data)")  # fmt: skip
    option(
        "--config",
        metavar="FILE.toml",
        help="a file of options by their long names, such as batch-size = 32; options on the command line override it",
    )
    option("--epochs", type=int, metavar="N", help=f"default {defaults.epochs}; for your own images up to "
           f"{MOST_EPOCHS}, so that there are {STEPS} steps. With --resume a run, finished or not, goes on to "
           "this epoch")  # fmt: skip
    option("--batch-size", type=int, metavar="N", help=f"default {BATCH}; for fewer than {FEW:,} images of your own "
           f"{SMALL_BATCH}, and still less for very few images")  # fmt: skip
    transfer_options.add(parser, option)
    option("--lr", type=float, help="largest learning rate (default 0.05 for sgd, 0.003 for adam, adamw)")
    option("--optimizer", choices=OPTIMIZERS, help=f"default {defaults.optimizer}, with momentum 0.9")
    option("--schedule", choices=SCHEDULES, help=f"the schedule of the learning rate (default {defaults.schedule})")
    option(
        "--warmup-epochs", type=int, metavar="N", help="the number of epochs in which the learning rate rises from 0"
    )
    option("--weight-decay", type=float, metavar="X", help=f"default {defaults.weight_decay}")
    option("--clip-grad", type=float, metavar="X", help="the largest norm of all gradients together")
    option(
        "--accumulate",
        type=int,
        metavar="K",
        help="the number of batches per step; the running statistics are updated once per step",
    )
    option(
        "--ema",
        type=float,
        metavar="D",
        help="the decay of a moving average of the weights; the averaged weights are then scored and saved",
    )
    option(
        "--early-stopping",
        type=int,
        metavar="PATIENCE",
        help="end the run after this many epochs without a better score",
    )
    option("--hflip", type=float, metavar="P", help="mirror an image with this probability (default: 0.5 "
           "for cifar10 and a folder's pictures in colour, unless its classes are letters, digits, left or right; "
           "else 0)")  # fmt: skip
    option("--crop-padding", type=int, metavar="N", help="move an image by up to N pixels (default: 4 for "
           "cifar10, an eighth of the size for small images of a folder; else 0)")  # fmt: skip
    option("--crop-scale", type=float, metavar="X", help="crop a part of X to 1 of each image's area, and "
           f"scale it to the image's size (default: {CROP_SCALE:g} for large images of a folder; else 1)")  # fmt: skip
    option("--vflip", type=float, metavar="P", help="turn an image upside down with this probability")
    option("--rotate", type=float, metavar="DEG", help="rotate an image by up to this many degrees in either direction")
    option(
        "--perspective",
        type=float,
        metavar="X",
        help="distort the perspective of half of the images, with a strength of up to X (0 to 1)",
    )
    option(
        "--blur",
        type=float,
        metavar="X",
        help="blur an image by a Gaussian with a standard deviation of up to X pixels",
    )
    option("--rand-augment", nargs="?", const="2,9", metavar="N,M", help="apply N random changes (shears, turns, "
           "colours, tones) of RandAugment to each image, with strength M from 0 to 30 (default without a "
           "value: 2,9)")  # fmt: skip
    option("--trivial-augment", action="store_const", const=True, help="apply one random change of TrivialAugmentWide "
           "to each image, with a random strength, so that there is nothing to tune")  # fmt: skip
    option("--cutout", type=int, metavar="N", help="blank out a square of N x N pixels of each image")
    option("--color-jitter", type=float, metavar="X", help="change brightness, contrast and saturation by up to X")
    option("--mixup", type=float, metavar="A", help="mix pairs of images, with a weight drawn from Beta(A, A)")
    option("--cutmix", type=float, metavar="A", help="paste a piece of one image into another")
    option("--loss", choices=LOSSES, help="the loss; focal gives images with a small loss less weight, which helps "
           "rare or hard classes (default cross_entropy)")  # fmt: skip
    option("--label-smoothing", type=float, metavar="E", help=f"default {defaults.label_smoothing}")
    option("--class-weights", choices=CLASS_WEIGHTS, help="balanced: a rare class counts as much as a common one")
    option("--dtype", choices=DTYPES, help="the type of weights and activations (default float32)")
    option("--qat", nargs="?", const="uint8", choices=QAT, help="train for an int8 model (uint8 activations unless "
           "int8 is given), from scratch or, with --init, from a trained model; `minorm export` writes the "
           "int8 model")  # fmt: skip
    option("--fold", metavar="I/K", help="validate on the I-th of K folds of the training images, and train on the "
           "other folds; each class is spread evenly over the folds")  # fmt: skip
    option("--seed", type=int, metavar="N", help="the seed of split, weights and order (default 0)")
    option("--num-workers", type=int, metavar="N", help="the number of threads that read images ahead (default 2 for "
           "a folder); changes no result")  # fmt: skip
    option("--threads", type=int, metavar="N", help="the number of processors to use (default: all); changes no result")
    device_option.add(parser, default=None)


def _add_run(parser: argparse.ArgumentParser) -> None:
    """Declare the options for the run's folder and its processes."""
    option = functools.partial(parser.add_argument, default=None)
    parser.add_argument(
        "--no-graph", action="store_true", help="on a GPU launch each kernel by itself, instead of a whole step as "
        "one CUDA graph; changes no result"
    )  # fmt: skip
    logger_option.add(parser)
    option("-o", "--out", metavar="DIR", help="the folder for all files of the run (default runs/DATA-MODEL)")
    option(
        "--ranks",
        type=int,
        metavar="S",
        help="the number of parts into which each batch is split; each part has a copy of the model, and all share "
        "batch statistics; the last bits of the results depend on this number (default: the number of processes)",
    )
    parser.add_argument(
        "--distributed",
        action="store_true",
        help="train one model with all processes that mpiexec or srun starts: mpiexec -n 4 minorm train --distributed "
        "...",
    )
    option(
        "--timeout",
        type=float,
        metavar="SECONDS",
        help=f"how long a process waits for the other processes (default {TIMEOUT:g})",
    )
    parser.add_argument("--resume", action="store_true", help="continue the run in --out, with its settings")
    parser.add_argument(
        "--other-images", action="store_true", help="with --resume: continue with other images than the run began with"
    )
    trust.add(parser)
