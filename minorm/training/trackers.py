"""Callbacks that send a run's settings and each epoch's numbers to a tracker: wandb, MLflow, TensorBoard.

Only rank 0 sends these numbers. A tracker's package is imported when a run begins, so an error for a missing package
comes before the first epoch.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from minorm.support.documented import documented
from minorm.training.callbacks import Callback, CallbackState
from minorm.training.files.log_file import COLUMNS


class Tracker(Callback):
    """Base class of the trackers, which record the numbers of each epoch of a run. Pass a tracker to `Run.fit`."""

    def on_fit_start(self, state: CallbackState) -> None:
        """Begin to track the run."""
        if state.run.rank == 0:
            self._start(state.run)

    def on_train_epoch_start(self, state: CallbackState) -> None:
        """Raise TypeError if the tracker was given to `train_epoch`, which has no Run."""
        if state.run is None:
            name = type(self).__name__
            raise TypeError(
                f"{name} cannot be used in train_epoch, because it needs a Run; use Run.fit(callbacks=[{name}(...)])"
            )

    def on_train_epoch_end(self, state: CallbackState) -> None:
        """Send loss/train, loss/val, accuracy/train, accuracy/val and learning_rate, as far as they are known."""
        assert state.row is not None
        if state.run.rank == 0:
            named = {_tag(name): state.row[name] for name in COLUMNS if name != "epoch"}
            self._log({tag: value for tag, value in named.items() if value is not None}, state.epoch)

    def on_fit_end(self, state: CallbackState) -> None:
        """Mark the run as finished."""
        if state.run.rank == 0:
            self._stop(failed=False)

    def on_exception(self, state: CallbackState) -> None:
        """Mark the run as failed."""
        if state.run is not None and state.run.rank == 0:
            self._stop(failed=True)

    def _start(self, run: Any) -> None:
        raise NotImplementedError

    def _log(self, numbers: Mapping[str, float], epoch: int) -> None:
        raise NotImplementedError

    def _stop(self, failed: bool) -> None:
        raise NotImplementedError


def _tag(column: str) -> str:
    part, _, what = column.partition("_")
    return column if column == "learning_rate" else f"{what}/{part}"


@documented(
    {},
    project="wandb's project; None is wandb's default",
    options='further arguments of wandb.init, such as mode="offline"',
)
class WandbCallback(Tracker):
    """Sends a run to Weights & Biases: its settings as the config, and the numbers of each epoch.

    Example:
        >>> callback = mn.training.WandbCallback("digits", mode="offline")
        >>> callback.options
        {'mode': 'offline'}
    """

    def __init__(self, project: str | None = None, **options: Any) -> None:
        self.project, self.options = project, options
        self.run: Any = None  # wandb's run during the training

    def _start(self, run: Any) -> None:
        import wandb

        self.run = wandb.init(project=self.project, config=asdict(run.settings), **self.options)

    def _log(self, numbers: Mapping[str, float], epoch: int) -> None:
        self.run.log(dict(numbers), step=epoch)

    def _stop(self, failed: bool) -> None:
        if self.run is not None:
            self.run.finish(exit_code=int(failed))
            self.run = None


@documented(
    {},
    experiment="MLflow's experiment, made if it does not exist",
    tracking_uri='where MLflow writes, such as "sqlite:///mlflow.db" or a server; None uses the default of MLflow',
)
class MLflowCallback(Tracker):
    """Sends a run to MLflow: its settings as parameters, and the numbers of each epoch as metrics.

    Example:
        >>> mn.training.MLflowCallback("digits", tracking_uri="sqlite:///mlflow.db").experiment
        'digits'
    """

    def __init__(self, experiment: str = "minorm", tracking_uri: str | None = None) -> None:
        self.experiment, self.tracking_uri = experiment, tracking_uri
        self.run_id: str | None = None  # MLflow's id of the run during the training
        self._client: Any = None

    def _start(self, run: Any) -> None:
        import mlflow

        self._client = client = mlflow.MlflowClient(self.tracking_uri)
        known = client.get_experiment_by_name(self.experiment)
        place = client.create_experiment(self.experiment) if known is None else known.experiment_id
        self.run_id = client.create_run(place).info.run_id
        for name, value in asdict(run.settings).items():
            client.log_param(self.run_id, name, value)

    def _log(self, numbers: Mapping[str, float], epoch: int) -> None:
        for name, value in numbers.items():
            self._client.log_metric(self.run_id, name, value, step=epoch)

    def _stop(self, failed: bool) -> None:
        if self.run_id is not None:
            self._client.set_terminated(self.run_id, "FAILED" if failed else "FINISHED")
            self.run_id = None


@documented({}, folder="the folder of the file; None is the run's own folder")
class TensorBoardCallback(Tracker):
    """Writes the numbers of each epoch to a TensorBoard event file.

    Example:
        >>> mn.training.TensorBoardCallback("runs/digits").folder
        'runs/digits'
    """

    def __init__(self, folder: str | None = None) -> None:
        self.folder = folder
        self._place: str | None = None  # the folder of this run
        self._writer: Any = None  # until the first epoch is done

    def _start(self, run: Any) -> None:
        self._place = run.out if self.folder is None else self.folder
        if self._place is None:
            raise ValueError(
                "TensorBoardCallback: folder is None, and the run has no folder either; expected a "
                "folder for the run or for TensorBoardCallback"
            )
        import tensorboard.summary.writer.event_file_writer  # noqa: F401  an error comes before the first epoch

    def _log(self, numbers: Mapping[str, float], epoch: int) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        if self._writer is None:
            self._writer = EventFileWriter(self._place)
        values = [Summary.Value(tag=tag, simple_value=value) for tag, value in numbers.items()]
        self._writer.add_event(Event(wall_time=time.time(), step=epoch, summary=Summary(value=values)))

    def _stop(self, failed: bool) -> None:  # noqa: ARG002  a file of events does not say how it ended
        if self._writer is not None:
            self._writer.close()
            self._writer = None
