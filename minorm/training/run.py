"""Run: a training run in a folder. It can stop at any moment; a continued run ends with the same bits.

    DIR/checkpoint.safetensors   everything that determines the next epoch: model, optimizer, schedule, random state,
                                 the loader's position, the epochs done and their scores, and the settings
    DIR/best.safetensors         the model of the best epoch by validation; with `ema` its averaged weights
    DIR/log.csv                  one line for each epoch, without times, so two equal runs write equal files
    DIR/FILE.py, DIR/FILE.onnx   the file of the user's own model, as it was when the run began

After every epoch each file is replaced in one step. So a run that stops at any moment leaves a complete checkpoint of
the last finished epoch. The first checkpoint is written before epoch 1. A continued run repeats the epoch that was cut
short. While a run trains, its folder is locked, and a second run in this folder raises an error.

With `settings.ranks` above 1, every rank has its own Run, and all ranks call the same methods together. Each rank
trains on its part of every batch, and rank 0 writes the files.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, replace
from typing import Any

from minorm import nn
from minorm.devices import dtypes, generators
from minorm.diagnosis.finite import NonFiniteLoss
from minorm.distributed import DistributedDataParallel, Group
from minorm.serialization import atomic, checkpoint
from minorm.support.documented import documented
from minorm.training import optimizing
from minorm.training.callbacks import Callback, Callbacks, CallbackState
from minorm.training.data.images import PARTS, Known, changes, known, known_before, place, with_split_of_run
from minorm.training.data.preparing import folder_of, load_data, loaders, mixed, preprocessing
from minorm.training.files import resuming, saved
from minorm.training.files.log_file import LOG, Row, log
from minorm.training.files.run_folder import BEST, CHECKPOINT, check_copy, keep_copy, locked, on_rank_0
from minorm.training.model import model_building, starting
from minorm.training.model.onnx_graph import Graph
from minorm.training.model.own_code import Code
from minorm.training.optimizing import averaged, make_optimizer, make_scheduler
from minorm.training.settings import Settings
from minorm.training.steps.batches import device_of
from minorm.training.steps.criterion import make_loss
from minorm.training.steps.graphed import GraphedLoop
from minorm.training.steps.loop import evaluate, train_by
from minorm.training.steps.score import Score


@documented(
    {},
    settings="the settings of the run",
    out="the folder for checkpoint and log, made if it does not exist; None writes nothing",
    path="the folder or file of the images, for all data but the digits",
    device='the device, "cpu" or "cuda"; a run can continue on another one',
    group="the Group through which the `settings.ranks` ranks of a distributed run communicate; None is this rank "
    "alone",
    sets="(train, validation) datasets, if they were loaded already; None loads them",
    num_workers="the number of threads that read images ahead; it changes no bit",
    code="the code of a model that `settings.model` names as FILE.py:FUNCTION or FILE.onnx, if it was read already; "
    "None reads it",
    graph="True runs each step of one batch on a GPU as a CUDA graph, which changes no bit; False runs the steps "
    "eagerly",
    init="a file of initial weights, or a run's folder. The tensors that fit the model by name and shape are loaded, "
    "and no code in the file is run; None initializes all weights at random",
)
class Run:
    """A new training run; `Run.resume` continues an old one and gives the same bits as an uninterrupted run.

    Raises ValueError if the group's number of ranks differs from that in the settings, or if no weight of `init` fits
    the model. `fit` raises BlockingIOError if another run trains in the folder at the same time.

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
        *,
        code: Code | Graph | None = None,
        init: str | None = None,
        graph: bool = True,
    ) -> None:
        self.settings, self.out, self.group = settings, out, group
        self.code = model_building.read(settings.model) if code is None else code
        if self.code is not None and out is not None:
            check_copy(out, self.code)
        self.rank, size = (0, 1) if group is None else (group.rank, group.size)
        if size != settings.ranks:
            raise ValueError(f"Run: ranks is {settings.ranks}; expected the size of the group, {size}")
        self.path = None if path is None else os.path.abspath(path)
        train, val = self.sets = sets or load_data(settings, path)
        starting.fit_channels(self.sets, self.code)
        generators.manual_seed(settings.seed)
        self.images = {"train": len(train), "validation": len(val)}
        self.preprocessing = found = preprocessing(settings, train)
        self.model_facts = model_building.facts(
            settings.model, found.channels, found.size, len(found.classes), self.code,
            starting.keeps_head(settings, self.code, found),
        )  # fmt: skip
        self.model = model_building.build(**self.model_facts, code=self.code).to(device=device)
        if settings.dtype == "bfloat16":
            self.model = self.model.to(dtypes.bfloat16)
        init = starting.weights_of(init, self.code)
        layers = starting.layers_of(settings, self.model, found, init)
        self.initial = starting.begin(settings, self.model, layers, found, self.code, init)
        self.model = optimizing.prepared(settings, self.model, found.channels, found.size)
        self._trained = self.model  # the module that the loop calls
        if group is not None and group.size > 1:
            self.model = nn.SyncBatchNorm.convert_sync_batchnorm(self.model, group)
            self._trained = DistributedDataParallel(self.model, group)
        self.loss_function = make_loss(settings, train, len(found.classes)).to(device)
        self.train_loader, self.val_loader = loaders(settings, train, val, found, self.rank, num_workers)
        if len(self.train_loader) == 0:
            raise ValueError(f"batch_size is {settings.batch_size}; expected at most the {len(train)} training images")
        self._batches = mixed(settings, self.train_loader, len(found.classes))
        self.optimizer = make_optimizer(settings, self.model, layers)
        self.rates = list(dict.fromkeys(group["lr"] for group in self.optimizer.param_groups))  # the head's first
        self.steps_per_epoch = -(-len(self.train_loader) // settings.accumulate)
        self.steps = settings.epochs * self.steps_per_epoch
        self.scheduler = make_scheduler(settings, self.optimizer, self.steps)
        self.average = averaged(settings, self.model)
        self._graph = graph and settings.qat == "none"  # FakeQuantize reads switches on the CPU, not recorded by graphs
        self._graphed = self._graphs()
        self.epoch = 0  # the number of finished epochs
        self.freezing = starting.freezing(settings, self.model, layers)
        self._freeze()
        self.should_stop = False  # True ends `fit` after the current epoch
        self.patience_from = 0  # the epoch from which `early_stopping` counts
        self.history: list[Row] = []
        self.changes: list[str] = []  # sentences on how the images have changed since the run began
        self.trained_epochs = 0  # by this object; earlier objects trained the other epochs of the history

    @classmethod
    def resume(
        cls,
        out: str,
        path: str | None = None,
        device: str = "cpu",
        group: Group | None = None,
        sets: Any = None,
        num_workers: int = 0,
        *,
        model: str | None = None,
        trust: bool = False,
        other_images: bool = False,
        code: Code | Graph | None = None,
        epochs: int | None = None,
        graph: bool = True,
    ) -> Run:
        """Return the run in folder `out` as it was after its last finished epoch. The number of ranks must be the same,
        but any number of processes may run them.

        model         FILE.py:FUNCTION if such a function builds the run's model; the file must be unchanged
        trust         whether the copy of that file in `out` may be run if `model` is None
        path          the path of the images; None is the path in the checkpoint
        other_images  whether the run may go on if its images have changed. Old pictures stay in training or validation,
                      and a fifth of the new pictures of each class is used for validation
        code          the code, already read and allowed by the user, in place of `model` and `trust`
        epochs        a number that replaces the number of epochs in the settings, so that a finished run can go on too.
                      The learning rate goes on as in a run with this number of epochs, and `early_stopping` counts from
                      the current epoch
        graph         the argument `graph` of a new run

        Raises ValueError for a damaged checkpoint, and for a model, classes or images that differ. Raises UntrustedCode
        (a ValueError) if neither `model` nor `trust` allows the code that builds the model. In this case no code has
        run.
        """
        file = os.path.join(out, CHECKPOINT)
        if group is not None:
            resuming.check_same_file(file, group)
        found = saved.read_run(file)
        facts = found["model_facts"]
        code = resuming.code_of(file, facts, model, trust, code)
        before = saved.settings(found, file)
        settings = resuming.to_epoch(file, replace(before, model=facts["name"]), found["epoch"], epochs)
        path = place(found.get("images"), file, needed=sets is None) if path is None else path
        sets = with_split_of_run(found.get("images"), sets or load_data(settings, path), settings.seed)
        run = cls(settings, out, path, device, group, sets, num_workers, code=code, graph=graph)
        resuming.check_same_sizes(file, facts, run.model_facts)
        resuming.check_same_classes(file, found.get("preprocessing", {}).get("classes"), run.preprocessing.classes)
        if run.rank == 0 and not other_images:
            resuming.check_same_images(file, found, run.known_images)
        run.changes = changes(known_before(found, run.known_images), run.known_images)
        run._take(file, found, settings.epochs != before.epochs)
        if epochs is not None and (epochs != before.epochs or run.finished):
            run.patience_from = run.epoch
        return run

    @staticmethod
    def settings_of(out: str) -> Settings:
        """Return the settings of the run in folder `out`; raise ValueError if a Run did not write its checkpoint."""
        file = os.path.join(out, CHECKPOINT)
        return saved.settings(saved.read_run(file), file)

    def fit(
        self,
        after_step: Callable[[Score], None] | None = None,
        after_epoch: Callable[[Row], None] | None = None,
        callbacks: Iterable[Callback] = (),
    ) -> None:
        """Train the epochs that are left. `after_step` and `after_epoch` are functions that show the progress.

        Training ends early, after an epoch in which a callback of any rank sets `run.should_stop`.
        """
        told = Callbacks("Run.fit", callbacks, CallbackState(self.model, self, self.epoch, self._steps_done))
        self.should_stop = False
        with ExitStack() as held:
            if self.out is not None:
                on_rank_0(self.group, lambda: held.enter_context(locked(str(self.out))))
            held.enter_context(told.told_of_errors())
            told.tell("on_fit_start")
            self._save_and_tell(told)
            while not self.finished and not self._any_stops():
                row = self._epoch(told, after_step)
                self._save_and_tell(told)
                if after_epoch is not None:
                    after_epoch(row)
            told.tell("on_fit_end")

    def _save_and_tell(self, told: Callbacks) -> None:
        if self.out is not None:
            self.save(self.out)
            told.tell("on_save_checkpoint", path=os.path.join(self.out, CHECKPOINT))

    def _any_stops(self) -> bool:
        """Return whether a callback of any rank wants the training to end."""
        if self.group is None or self.group.size == 1:
            return self.should_stop
        return any(self.group.all_gather_text("stop" if self.should_stop else "", "whether a callback ends it"))

    @property
    def best_epoch(self) -> int:
        """The epoch with the highest validation accuracy; 0 before the first epoch.

        Of several epochs with this accuracy, it is the one with the lowest loss.
        """
        best = max(self.history, key=lambda row: (row["val_accuracy"] or 0.0, -row["val_loss"]), default=None)
        return 0 if best is None else int(best["epoch"])

    @property
    def finished(self) -> bool:
        """Whether all epochs are done, or the score has not improved in the last `early_stopping` epochs."""
        settings = self.settings
        thawed = settings.frozen_epochs % settings.epochs  # the patience begins when all is trained
        patience, waited = settings.early_stopping, self.epoch - max(self.best_epoch, self.patience_from, thawed)
        return self.epoch >= self.settings.epochs or 0 < patience <= waited

    def _graphs(self) -> GraphedLoop | None:
        """Return the object that runs steps as CUDA graphs; return None if steps cannot be CUDA graphs."""
        if not self._graph or self._trained is not self.model or self.settings.accumulate != 1:
            return None
        if device_of(self.model) == "cpu":
            return None
        return GraphedLoop(self.model, self.loss_function, self.optimizer, self.settings.clip_grad)

    def _freeze(self) -> None:
        """Freeze or thaw all layers but the head for the next epoch. A change needs new CUDA graphs."""
        if self.freezing is not None and self.freezing.set(self.epoch < self.settings.frozen_epochs):
            self._graphed = self._graphs()

    @property
    def _steps_done(self) -> int:
        """The number of steps in the finished epochs."""
        return self.epoch * self.steps_per_epoch

    def _epoch(self, told: Callbacks, after_step: Callable[[Score], None] | None) -> Row:
        """Train and validate one epoch. Return the new row of the history, with the images per second added."""
        rate = self.optimizer.param_groups[0]["lr"]
        self._freeze()
        optimizing.begin_epoch(self.model, self.epoch, self.settings.epochs)
        told.tell("on_train_epoch_start", epoch=self.epoch + 1, step=self._steps_done, score=None, row=None)
        try:
            train = self._train(told, after_step)
            told.tell("on_validation_start", score=train)
            val = evaluate(self._evaluated(), self.val_loader, self.loss_function)
            told.tell("on_validation_end", score=val)
        except NonFiniteLoss as error:
            raise NonFiniteLoss(f"epoch {self.epoch + 1}: {error}", error.rank) from None
        for part, score, images in zip(PARTS, (train, val), self.sets, strict=True):
            if not score.images:
                folder = folder_of(images)
                why = next(iter(folder.broken.values()), "").removeprefix("read_image: ") if folder else ""
                raise ValueError(f"no {part} image could be read; expected at least one{why and f'; {why}'}")
        self.epoch += 1
        self.trained_epochs += 1
        row = Row(
            epoch=self.epoch,
            learning_rate=float(rate),
            train_loss=train.loss,
            train_accuracy=train.accuracy,
            val_loss=val.loss,
            val_accuracy=val.accuracy,
        )
        self.history.append(row)
        told.tell("on_train_epoch_end", score=train, row=row)
        return Row(row, images_per_second=train.images_per_second)

    def _train(self, told: Callbacks, after_step: Callable[[Score], None] | None) -> Score:
        """Train one epoch."""

        def follow(score: Score) -> None:
            if self.average is not None:
                self.average.update_parameters(self.model)
            told.after_step(score)
            if after_step is not None:
                after_step(score)

        settings, rest = self.settings, (self.optimizer, self.scheduler, told.before_step, follow)
        return train_by(
            self._graphed,
            self._trained,
            self._batches,
            self.loss_function,
            *rest,
            accumulate=settings.accumulate,
            clip_grad=settings.clip_grad,
        )

    def _evaluated(self) -> Any:
        """Return the model that is evaluated: the moving average if the run has one, else the trained model."""
        if self.average is None:
            return self._trained
        model = self.average.module
        return model if self._trained is self.model else DistributedDataParallel(model, self._trained.group)

    def save(self, out: str) -> None:
        """Write checkpoint and log into the folder. The folder is made if it is missing. Only rank 0 writes."""
        state = generators.get_state()  # of all ranks together
        on_rank_0(self.group, lambda: self._write(out, state))

    def _write(self, out: str, state: Any) -> None:
        atomic.make_folder(out, "train")
        if self.code is not None:
            keep_copy(out, self.code)
        facts = {
            "epoch": self.epoch,
            "history": self.history,
            "settings": asdict(self.settings) | {"model": self.model_facts["name"]},
            "model_facts": self.model_facts,
            "preprocessing": asdict(self.preprocessing),
        }
        if self.initial is not None:
            facts["initial"] = asdict(self.initial)
        if self.patience_from:
            facts["patience_from"] = self.patience_from
        if self.epoch and self.best_epoch == self.epoch:  # first: a run cut short between the two writes repeats it
            best = self.model if self.average is None else self.average.module
            checkpoint.save_training(os.path.join(out, BEST), model=best, **facts)
        checkpoint.save_training(
            os.path.join(out, CHECKPOINT), **self._objects(), random=state, images=self.known_images, **facts
        )
        with atomic.replacing(os.path.join(out, LOG), "train") as file:
            file.write(log(self.history).encode())

    def _objects(self) -> dict[str, Any]:
        """Return the parts of the run that have a state_dict."""
        parts = {"model": self.model, "optimizer": self.optimizer, "loader": self.train_loader}
        others = {"scheduler": self.scheduler, "average": self.average}
        return parts | {name: part for name, part in others.items() if part is not None}

    @functools.cached_property
    def known_images(self) -> Known:
        """The description of the images for a checkpoint."""
        return known(self.sets, self.path)

    def _take(self, file: str, found: Mapping[str, Any], other_epochs: bool) -> None:
        """Load the parts of a checkpoint. With `other_epochs`, make the schedule anew for the new number of epochs."""
        objects = self._objects()
        if missing := objects.keys() - found.keys():
            raise ValueError(f"{file} has no part {', '.join(sorted(missing))}, which its settings need")
        parts, epoch = {**found}, found["epoch"]
        other_number = known_before(found, self.known_images)["train"]["number"] != self.images["train"]
        if other_number:
            parts["loader"] = {**self.train_loader.state_dict(), "epoch": epoch, "batch": 0}
        if (other_number or other_epochs) and self.scheduler is not None:
            parts["scheduler"] = resuming.schedule_after(self.scheduler, epoch * self.steps_per_epoch)
        for name, part in objects.items():
            saved.restore_part(file, name, functools.partial(part.load_state_dict, parts[name]))
        saved.restore_part(file, "random", functools.partial(generators.set_state, found["random"]))
        self.epoch, self.history = epoch, found["history"]
        self.initial, self.patience_from = saved.initial(found), found.get("patience_from", 0)
