"""Run: a training run in a folder, which can stop at any moment and go on to the same bits.

    DIR/checkpoint.safetensors   everything the next epoch depends on: model, optimizer, schedule, random state,
                                 the loader's place, the epochs done and their scores, the settings
    DIR/best.safetensors         the model of the best epoch by the test images; with `ema` its averaged weights
    DIR/log.csv                  one line an epoch; no times in it, so two equal runs write equal files

Each file is replaced in one step, after every epoch, so whenever the run ends there is a whole checkpoint of the
last finished epoch (the first is written before epoch 1). Going on repeats the epoch that was cut short.

With `settings.ranks` above 1 every rank has a Run of its own and all do the same at the same time: each trains on its
part of every batch, and rank 0 writes the files.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import asdict
from itertools import zip_longest
from typing import Any

import numpy as np

from minorm import atomic, checkpoint, dtypes, nn, opening, random
from minorm.distributed import DistributedDataParallel, Group, RankError
from minorm.documented import documented
from minorm.finite import NonFiniteLoss
from minorm.tensor import Tensor
from minorm.training import building
from minorm.training.history import LOG, Row, log
from minorm.training.loop import evaluate, train_epoch
from minorm.training.optimizing import averaged, make_optimizer, make_scheduler
from minorm.training.preparing import balanced, folder_of, labels_of, load_data, loaders, mixed, preprocessing
from minorm.training.score import Score
from minorm.training.settings import Settings

CHECKPOINT, BEST = "checkpoint.safetensors", "best.safetensors"


@documented(
    {},
    settings="what to train, and how",
    out="the folder for checkpoint and log, made if it is not there; None writes nothing",
    path="where the images are, for all but the digits",
    device='what to compute on, "cpu" or "cuda"; a checkpoint can go on on another',
    group="what the `settings.ranks` ranks of a distributed run talk to each other through; None is this rank alone",
    sets="(train, test) datasets, where they were loaded already; None loads them",
    num_workers="threads that read images ahead; they change no bit",
)
class Run:
    """A new run; `Run.resume` goes on with an old one, to the same bits.

    ValueError where group and settings have another number of ranks.

    Example:
        >>> digits = mn.data.ArrayDataset(mn.rand(20, 1, 8, 8), mn.arange(20) % 10)
        >>> run = mn.training.Run(mn.training.Settings(epochs=1, batch_size=10), sets=(digits, digits))
        >>> run.fit()
        >>> [row["epoch"] for row in run.history]
        [1]
    """

    def __init__(
        self,
        settings: Settings,
        out: str | None = None,
        path: str | None = None,
        device: str = "cpu",
        group: Group | None = None,
        sets: Any = None,
        num_workers: int = 0,
    ) -> None:
        self.settings, self.out, self.group = settings, out, group
        self.rank, size = (0, 1) if group is None else (group.rank, group.size)
        if size != settings.ranks:
            raise ValueError(f"Run: ranks is {settings.ranks}; expected the size of the group, {size}")
        train, test = self.sets = sets or load_data(settings, path)
        random.manual_seed(settings.seed)
        self.images = {"train": len(train), "test": len(test)}
        self.preprocessing = found = preprocessing(settings, train)
        self.model_facts = building.facts(settings.model, found.channels, found.size, len(found.classes))
        self.model = building.build(**self.model_facts).to(device=device)
        if settings.dtype == "bfloat16":
            self.model = self.model.to(dtypes.bfloat16)
        self._trained = self.model  # what the loop calls
        if group is not None and group.size > 1:
            self.model = nn.SyncBatchNorm.convert_sync_batchnorm(self.model, group)
            self._trained = DistributedDataParallel(self.model, group)
        self.loss_function = _loss(settings, train, len(found.classes)).to(device)
        self.train_loader, self.test_loader = loaders(settings, train, test, found, self.rank, num_workers)
        if len(self.train_loader) == 0:
            raise ValueError(f"batch_size is {settings.batch_size}; expected at most the {len(train)} training images")
        self._batches = mixed(settings, self.train_loader, len(found.classes))
        self.optimizer = make_optimizer(settings, self.model)
        self.steps_per_epoch = -(-len(self.train_loader) // settings.accumulate)
        self.steps = settings.epochs * self.steps_per_epoch
        self.scheduler = make_scheduler(settings, self.optimizer, self.steps)
        self.average = averaged(settings, self.model)
        self.epoch = 0  # finished ones
        self.history: list[Row] = []
        self.trained_epochs = 0  # by this object, others of the history by those before it

    @classmethod
    def resume(
        cls,
        out: str,
        path: str | None = None,
        device: str = "cpu",
        group: Group | None = None,
        sets: Any = None,
        num_workers: int = 0,
    ) -> Run:
        """The run in folder `out`, as it was after its last finished epoch; on the same number of ranks, carried by
        any number of processes.
        """
        file = os.path.join(out, CHECKPOINT)
        if group is not None:
            _check_same_file(file, group)
        run = cls(cls.settings_of(out), out, path, device, group, sets, num_workers)
        saved = checkpoint.load_training(file)
        run._check_same_model(file, saved["model_facts"])
        run._check_same_classes(file, saved.get("preprocessing", {}).get("classes"))
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
        while not self.finished:
            rate = self.optimizer.param_groups[0]["lr"]
            try:
                train = self._train(after_step)
                test = evaluate(self._evaluated(), self.test_loader, self.loss_function)
            except NonFiniteLoss as error:
                raise NonFiniteLoss(f"epoch {self.epoch + 1}: {error}", error.rank) from None
            for part, score, images in zip(("train", "test"), (train, test), self.sets, strict=True):
                if not score.images:
                    folder = folder_of(images)
                    why = next(iter(folder.broken.values()), "").removeprefix("read_image: ") if folder else ""
                    raise ValueError(f"no {part} image could be read; expected at least one{why and f'; {why}'}")
            self.epoch += 1
            self.trained_epochs += 1
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

    @property
    def best_epoch(self) -> int:
        """The epoch with the highest accuracy on the test images, among equals the lowest loss; 0 before the first."""
        best = max(self.history, key=lambda row: (row["test_accuracy"] or 0.0, -row["test_loss"]), default=None)
        return 0 if best is None else int(best["epoch"])

    @property
    def finished(self) -> bool:
        """Whether all epochs are done, or none of the last `early_stopping` ones was better than those before."""
        patience = self.settings.early_stopping
        return self.epoch >= self.settings.epochs or (0 < patience <= self.epoch - self.best_epoch)

    def _train(self, after_step: Callable[[Score], None] | None) -> Score:
        """One epoch."""

        def follow(score: Score) -> None:
            if self.average is not None:
                self.average.update_parameters(self.model)
            if after_step is not None:
                after_step(score)

        settings, rest = self.settings, (self.optimizer, self.scheduler, follow)
        return train_epoch(
            self._trained,
            self._batches,
            self.loss_function,
            *rest,
            accumulate=settings.accumulate,
            clip_grad=settings.clip_grad,
        )

    def _evaluated(self) -> Any:
        """The model whose scores count: the averaged one where there is one."""
        if self.average is None:
            return self._trained
        model = self.average.module
        return model if self._trained is self.model else DistributedDataParallel(model, self._trained.group)

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
        facts = {
            "epoch": self.epoch,
            "history": self.history,
            "settings": asdict(self.settings),
            "model_facts": self.model_facts,
            "preprocessing": asdict(self.preprocessing),
        }
        if self.epoch and self.best_epoch == self.epoch:  # first: a run cut short between the two writes it again
            best = self.model if self.average is None else self.average.module
            checkpoint.save_training(os.path.join(out, BEST), model=best, **facts)
        checkpoint.save_training(os.path.join(out, CHECKPOINT), **self._objects(), random=state, **facts)
        with atomic.replacing(os.path.join(out, LOG), "train") as file:
            file.write(log(self.history).encode())

    def _objects(self) -> dict[str, Any]:
        """What has a state_dict."""
        parts = {"model": self.model, "optimizer": self.optimizer, "loader": self.train_loader}
        others = {"scheduler": self.scheduler, "average": self.average}
        return parts | {name: part for name, part in others.items() if part is not None}

    def _check_same_model(self, file: str, facts: dict[str, Any]) -> None:
        mine = self.model_facts
        if facts.get("sha256") != mine.get("sha256"):
            raise ValueError(f"{self.settings.model} is not the file any more that {file} was trained with; put that "
                             "one back to go on, or start a new run with another --out")  # fmt: skip
        if facts["classes"] != mine["classes"] or facts["size"] != mine["size"]:
            raise ValueError(f"{file} is of a model for {facts['classes']} classes and images of {facts['size']} "
                             f"pixels; these are {mine['classes']} classes and {mine['size']} pixels")  # fmt: skip

    def _check_same_classes(self, file: str, classes: list[str] | None) -> None:
        """None: a checkpoint of before their names were written."""
        mine = self.preprocessing.classes
        if classes is not None and classes != mine:
            other = next(pair for pair in zip_longest(classes, mine) if pair[0] != pair[1])
            raise ValueError(f"{file} is of a run whose classes have other names: {other[0]!r} where these images have "
                             f"{other[1]!r}")  # fmt: skip


def _check_same_file(file: str, group: Group) -> None:
    """RankError unless all ranks read the same bytes: a network disk may show an old file to some."""
    with opening.regular(file, "resume") as opened:
        digest = hashlib.file_digest(opened, "sha256").digest()
    found = group.all_gather(np.frombuffer(digest, np.uint8), label="the checkpoint's digest")
    for rank, other in enumerate(found):
        if not np.array_equal(other, found[0]):
            raise RankError(f"resume: rank {rank} reads another {file} than rank 0; expected one file, on a disk that "
                            "all processes see")  # fmt: skip


class Loss(nn.CrossEntropyLoss):
    """Cross entropy in float32, whatever type the outputs are stored in."""

    def forward(self, outputs: Any, targets: Tensor) -> Tensor:
        """The loss; outputs that are none are for the loss itself to name."""
        if not isinstance(outputs, Tensor) or outputs.dtype != dtypes.bfloat16:
            return super().forward(outputs, targets)
        wide = targets.to(dtypes.float32) if dtypes.is_float(targets.dtype) else targets
        return super().forward(outputs.to(dtypes.float32), wide)


def _loss(settings: Settings, train: Any, classes: int) -> Loss:
    weight = None
    if settings.class_weights == "balanced":
        weight = Tensor(balanced(labels_of(train), classes))
    return Loss(weight, label_smoothing=settings.label_smoothing)
