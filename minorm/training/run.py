"""Run: a training run in a folder, which can stop at any moment and go on to the same bits.

    DIR/checkpoint.safetensors   everything the next epoch depends on: model, optimizer, schedule, random state,
                                 the loader's place, the epochs done and their scores, the settings
    DIR/log.csv                  one line an epoch; no times in it, so two equal runs write equal files

Both files are replaced in one step, after every epoch, so whenever the run ends there is a whole checkpoint of the
last finished epoch (the first is written before epoch 1). Going on repeats the epoch that was cut short.

With `settings.ranks` above 1 every rank has a Run of its own and all do the same at the same time: each trains on its
part of every batch, and rank 0 writes the files.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np

from minorm import atomic, checkpoint, models, nn, opening, random
from minorm.distributed import DistributedDataParallel, Group, RankError
from minorm.finite import NonFiniteLoss
from minorm.training.loop import evaluate, train_epoch
from minorm.training.score import Score
from minorm.training.settings import CLASSES, Settings, load_data, loaders, make_optimizer, make_scheduler

CHECKPOINT, LOG = "checkpoint.safetensors", "log.csv"
Row = dict[str, Any]  # numbers by name; an accuracy is None where targets are no classes


class Run:
    """A new run; `Run.resume` goes on with an old one.

    settings  what to train, and how
    out       the folder for checkpoint and log, made if it is not there; None writes nothing
    path      where the images are, for all but the digits
    device    what to compute on, "cpu" or "cuda"; a checkpoint can go on on another
    group     what the `settings.ranks` ranks of a distributed run talk to each other through
    sets      (train, test) datasets, where they were loaded already
    """

    def __init__(
        self,
        settings: Settings,
        out: str | None = None,
        path: str | None = None,
        device: str = "cpu",
        group: Group | None = None,
        sets: Any = None,
    ) -> None:
        self.settings, self.out, self.group = settings, out, group
        self.rank, size = (0, 1) if group is None else (group.rank, group.size)
        if size != settings.ranks:
            raise ValueError(f"Run: ranks is {settings.ranks}; expected the size of the group, {size}")
        train, test = sets or load_data(settings.data, path, settings.seed)
        random.manual_seed(settings.seed)
        self.images = {"train": len(train), "test": len(test)}
        self.model_facts = _facts(settings.model, train)
        self.model = models.build(**self.model_facts).to(device)
        self._trained = self.model  # what the loop calls
        if group is not None and group.size > 1:
            self.model = nn.SyncBatchNorm.convert_sync_batchnorm(self.model, group)
            self._trained = DistributedDataParallel(self.model, group)
        self.loss_function = nn.CrossEntropyLoss(label_smoothing=settings.label_smoothing)
        self.train_loader, self.test_loader = loaders(settings, train, test, self.rank)
        if len(self.train_loader) == 0:
            raise ValueError(f"batch_size is {settings.batch_size}; expected at most the {len(train)} training images")
        self.optimizer = make_optimizer(settings, self.model)
        self.steps = settings.epochs * len(self.train_loader)
        self.scheduler = make_scheduler(settings, self.optimizer, self.steps)
        self.epoch = 0  # finished ones
        self.history: list[Row] = []

    @classmethod
    def resume(
        cls, out: str, path: str | None = None, device: str = "cpu", group: Group | None = None, sets: Any = None
    ) -> Run:
        """The run in folder `out`, as it was after its last finished epoch; on the same number of ranks, carried by
        any number of processes.
        """
        file = os.path.join(out, CHECKPOINT)
        if group is not None:
            _check_same_file(file, group)
        run = cls(cls.settings_of(out), out, path, device, group, sets)
        rest = checkpoint.load_training(file, **run._objects())
        random.set_state(rest["random"])
        run.epoch, run.history = rest["epoch"], rest["history"]
        return run

    @staticmethod
    def settings_of(out: str) -> Settings:
        """The settings of the run in folder `out`; ValueError where its checkpoint is none of a Run."""
        file = os.path.join(out, CHECKPOINT)
        saved = checkpoint.load_training(file)
        if not {"settings", "model", "optimizer", "loader", "random", "epoch", "history"} <= saved.keys():
            raise ValueError(f"{file} was not written by a Run; it holds {', '.join(saved)}")
        return Settings(**saved["settings"])

    def fit(
        self, after_step: Callable[[Score], None] | None = None, after_epoch: Callable[[Row], None] | None = None
    ) -> None:
        """Train the epochs that are left; the callbacks show progress."""
        if self.out is not None:
            self.save(self.out)
        while self.epoch < self.settings.epochs:
            rate = self.optimizer.param_groups[0]["lr"]
            try:
                train = train_epoch(
                    self._trained, self.train_loader, self.loss_function, self.optimizer, self.scheduler, after_step
                )
                test = evaluate(self._trained, self.test_loader, self.loss_function)
            except NonFiniteLoss as error:
                raise NonFiniteLoss(f"epoch {self.epoch + 1}: {error}", error.rank) from None
            self.epoch += 1
            self.history.append(
                {
                    "epoch": self.epoch,
                    "learning_rate": float(rate),
                    "train_loss": train.loss,
                    "train_accuracy": train.accuracy,
                    "test_loss": test.loss,
                    "test_accuracy": test.accuracy,
                }
            )
            if self.out is not None:
                self.save(self.out)
            if after_epoch is not None:
                after_epoch({**self.history[-1], "images_per_second": train.images_per_second})

    def save(self, out: str) -> None:
        """Write checkpoint and log into the folder, which is made if it is not there; rank 0 does it for all."""
        state = random.get_state()  # of all ranks together
        if self.group is None or self.group.size == 1:
            self._write(out, state)
            return
        try:
            if self.rank == 0:
                self._write(out, state)
        except OSError as error:
            self.group.all_gather_text(str(error), "what was written")
            raise
        if said := self.group.all_gather_text("", "what was written")[0]:
            raise RankError(f"rank 0 could not write: {said}")

    def _write(self, out: str, state: Any) -> None:
        atomic.make_folder(out, "train")
        checkpoint.save_training(
            os.path.join(out, CHECKPOINT),
            **self._objects(),
            random=state,
            epoch=self.epoch,
            history=self.history,
            settings=asdict(self.settings),
            model_facts=self.model_facts,
        )
        with atomic.replacing(os.path.join(out, LOG), "train") as file:
            file.write(log(self.history).encode())

    def _objects(self) -> dict[str, Any]:
        """What has a state_dict."""
        parts = {"model": self.model, "optimizer": self.optimizer, "loader": self.train_loader}
        return parts if self.scheduler is None else {**parts, "scheduler": self.scheduler}


def _check_same_file(file: str, group: Group) -> None:
    """RankError unless all ranks read the same bytes: a network disk may show an old file to some."""
    with opening.regular(file, "resume") as opened:
        digest = hashlib.file_digest(opened, "sha256").digest()
    found = group.all_gather(np.frombuffer(digest, np.uint8), label="the checkpoint's digest")
    for rank, other in enumerate(found):
        if not np.array_equal(other, found[0]):
            raise RankError(f"resume: rank {rank} reads another {file} than rank 0; expected one file, on a disk that "
                            "all processes see")  # fmt: skip


def log(history: list[Row]) -> str:
    """The scores of every epoch as CSV, with a header; numbers have the digits that read back to the same bits.

    What there is none of, an accuracy where targets are no classes, is an empty field.
    """
    columns = ("epoch", "learning_rate", "train_loss", "train_accuracy", "test_loss", "test_accuracy")
    lines = [",".join(columns)] + [
        ",".join("" if row[name] is None else repr(row[name]) for name in columns) for row in history
    ]
    return "\n".join(lines) + "\n"


def _facts(model: str, dataset: Any) -> dict[str, Any]:
    """The arguments of models.build for the images of a dataset."""
    channels, height, width = np.shape(dataset[0][0])
    assert height == width, "every data set here has square images"
    return {"name": model, "channels": channels, "size": height, "classes": CLASSES}
