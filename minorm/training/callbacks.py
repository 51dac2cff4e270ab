"""Callbacks run a user's code at ten moments of a training; their methods have Lightning's names.

    on_fit_start
        on_train_epoch_start
            on_train_batch_start  on_train_batch_end        for every step
            on_validation_start   on_validation_end
        on_train_epoch_end                                  the log has its row
        on_save_checkpoint                                  the checkpoint is on the disk
    on_fit_end, or on_exception

At each of these moments the training, an epoch, a step or the validation begins or ends, or a file was written. To see
the values that the model computes between these moments, use the hooks of modules and Tensors.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from minorm.nn import Module
from minorm.support.argument_errors import kind_of
from minorm.support.documented import documented
from minorm.training.files.log_file import Row
from minorm.training.steps.score import Score


@documented(
    {},
    model="the Module that is trained",
    run="the Run; None in `train_epoch`, which works without a Run",
    epoch="the number of the epoch, from 1; 0 before the first epoch and in `train_epoch`",
    step="the number of steps so far, including earlier epochs",
    score="the Score so far of this epoch's training, or, in `on_validation_end`, of the validation; None before the "
    "first step",
    row="the epoch's row of the log; None before `on_train_epoch_end`",
    path="the checkpoint that was written last; None before the first `on_save_checkpoint`",
    error="the exception that ended the training, in `on_exception`; None elsewhere",
)
@dataclass(frozen=True)
class CallbackState:
    """The current state of the training, which each method of a Callback receives.

    Example:
        >>> mn.training.CallbackState(model=nn.Linear(1, 1), epoch=3).epoch
        3
    """

    model: Module
    run: Any = None
    epoch: int = 0
    step: int = 0
    score: Score | None = None
    row: Row | None = None
    path: str | None = None
    error: BaseException | None = None


class CallbackError(RuntimeError):
    """A callback raised an exception. The message begins with the callback's name, and `__cause__` is the exception.

    Example:
        >>> class Broken(mn.training.Callback):
        ...     def on_train_batch_end(self, state):
        ...         raise KeyError("loss")
        >>> loader = [(mn.ones(2, 1), mn.ones(2, 1))]
        >>> model = nn.Linear(1, 1)
        >>> sgd = mn.optim.SGD(model.parameters(), lr=0.1)
        >>> try:
        ...     mn.training.train_epoch(model, loader, nn.MSELoss(), sgd, callbacks=[Broken()])
        ... except mn.training.CallbackError as error:
        ...     print(error)
        callback Broken.on_train_batch_end: KeyError: 'loss'
    """


class Callback:
    """Base class of callbacks. Override the methods that you need; each method gets a CallbackState.

    All ranks of a distributed run call their callbacks, so a callback may compute with the model. Write files and print
    only if `state.run.rank == 0`. A callback does not change the result of the training unless it changes the model,
    the optimizer or the random generator. If a callback sets `state.run.should_stop = True`, the training ends after
    the current epoch, and this epoch is still validated and saved. If a callback raises an exception, the training ends
    at once with a CallbackError. The checkpoint of the last finished epoch does not change then.

    Example:
        >>> class Losses(mn.training.Callback):
        ...     def __init__(self):
        ...         self.found = []
        ...
        ...     def on_train_epoch_end(self, state):
        ...         self.found.append(state.row["train_loss"])
        ...         state.run.should_stop = state.epoch == 2
        >>> digits = mn.data.ArrayDataset(mn.rand(20, 1, 8, 8), mn.arange(20) % 10)
        >>> run = mn.training.Run(mn.training.Settings(epochs=9, batch_size=10), sets=(digits, digits))
        >>> losses = Losses()
        >>> run.fit(callbacks=[losses])
        >>> len(losses.found)
        2

    lightning.pytorch.callbacks.Callback.
    """

    def on_fit_start(self, state: CallbackState) -> None:
        """Called when the training begins. No file is written yet."""

    def on_train_epoch_start(self, state: CallbackState) -> None:
        """Called when an epoch begins."""

    def on_train_batch_start(self, state: CallbackState) -> None:
        """Called when a step of the optimizer begins. A step takes `accumulate` batches."""

    def on_train_batch_end(self, state: CallbackState) -> None:
        """Called when a step is done; `state.score.last_loss` is the loss of its last batch."""

    def on_validation_start(self, state: CallbackState) -> None:
        """Called when an epoch's steps are done and its validation begins."""

    def on_validation_end(self, state: CallbackState) -> None:
        """Called when the validation is done; `state.score` is its Score."""

    def on_train_epoch_end(self, state: CallbackState) -> None:
        """Called when an epoch is done but not yet saved; `state.row` has its numbers."""

    def on_save_checkpoint(self, state: CallbackState) -> None:
        """Called when the checkpoint at `state.path` was written, before the first epoch and after each epoch."""

    def on_exception(self, state: CallbackState) -> None:
        """Called when the exception `state.error` (or Ctrl-C) ends the training; `on_fit_end` is not called then."""

    def on_fit_end(self, state: CallbackState) -> None:
        """Called when the training is over and all files are written."""


HOOKS = tuple(name for name in vars(Callback) if name.startswith("on_"))


class Callbacks:
    """The callbacks of one training, and the state that they receive.

    operation  the function that the user called with these callbacks; its name is in the error messages
    """

    def __init__(self, operation: str, callbacks: Iterable[Callback], state: CallbackState) -> None:
        self.callbacks, self.state = _checked(operation, callbacks), state

    def tell(self, hook: str, **now: Any) -> None:
        """Call the method `hook` of all callbacks in order; `now` has the new values of fields of the state."""
        if not self.callbacks:
            return
        self.state = replace(self.state, **now)
        for callback in self.callbacks:
            try:
                getattr(callback, hook)(self.state)
            except Exception as error:
                raise CallbackError(f"{_name(callback, hook)}: {type(error).__name__}: {error}") from error

    def before_step(self) -> None:
        """Call `on_train_batch_start`."""
        self.tell("on_train_batch_start")

    def after_step(self, score: Score) -> None:
        """Call `on_train_batch_end`."""
        self.tell("on_train_batch_end", step=self.state.step + 1, score=score)

    @contextmanager
    def told_of_errors(self) -> Iterator[None]:
        """Call `on_exception` if an exception leaves the block.

        Errors that `on_exception` raises become notes of this exception.
        """
        try:
            yield
        except BaseException as first:
            self.state = replace(self.state, error=first)
            for callback in self.callbacks:
                try:
                    callback.on_exception(self.state)
                except Exception as second:  # noqa: BLE001  the first error is the one that the user must see
                    first.add_note(f"{_name(callback, 'on_exception')}: {type(second).__name__}: {second}")
            self.state = replace(self.state, error=None)  # else the error, whose frames hold this object, holds itself
            raise


def _name(callback: Callback, hook: str) -> str:
    return f"callback {type(callback).__name__}.{hook}"


def _checked(operation: str, callbacks: Any) -> list[Callback]:
    """Return the callbacks as a list.

    Raises TypeError for an object that is no Callback, and for a method `on_...` whose name is not one of the hooks.
    """
    if isinstance(callbacks, Callback) or not isinstance(callbacks, Iterable):
        raise TypeError(f"{operation}: callbacks is a {kind_of(callbacks)}; expected a list of Callbacks")
    found = list(callbacks)
    for i, callback in enumerate(found):
        if not isinstance(callback, Callback):
            what = f"the class {callback.__name__}" if inspect.isclass(callback) else f"a {kind_of(callback)}"
            raise TypeError(f"{operation}: callbacks[{i}] is {what}; expected an instance of Callback")
        for name in dir(callback):
            if name.startswith("on_") and name not in HOOKS:
                near = difflib.get_close_matches(name, HOOKS, n=1, cutoff=0.5)
                raise TypeError(
                    f"{operation}: callbacks[{i}], a {type(callback).__name__}, has a method {name}, which is not one "
                    f"of {', '.join(HOOKS)}" + (f"; did you mean {near[0]}?" if near else "")
                )
    return found
