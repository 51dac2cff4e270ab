"""Callbacks: the order of the calls, their arguments, and that they leave bits and files alone."""

from __future__ import annotations

import gc
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm import distributed, nn
from minorm.serialization.checkpoint import load_training
from minorm.training import (
    BatchNormWatch,
    Callback,
    CallbackError,
    CallbackState,
    NonFiniteLoss,
    Run,
    Settings,
    train_epoch,
)
from minorm.training.callbacks import HOOKS
from minorm.training.files.run_folder import CHECKPOINT, LOG

SETTINGS = Settings(epochs=2, batch_size=10, seed=5)


def sets(images: int = 20) -> Any:
    numbers = np.random.default_rng(0).standard_normal((images, 1, 8, 8)).astype(np.float32)
    data = mn.data.ArrayDataset(numbers, np.arange(images) % 10)
    return data, data


class Recorder(Callback):
    """Notes every method that is called, with the state."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, CallbackState]] = []

    def names(self) -> list[str]:
        return [name for name, _ in self.seen]


for hook in HOOKS:
    setattr(Recorder, hook, lambda self, state, hook=hook: self.seen.append((hook, state)))


def raising(hook: str, error: BaseException, epoch: int = 1) -> Callback:
    class Broken(Callback):
        pass

    def fail(self: Any, state: CallbackState) -> None:
        if state.epoch == epoch:
            raise error

    setattr(Broken, hook, fail)
    return Broken()


def test_the_ten_methods_are_called_in_their_order(tmp_path: Path) -> None:
    recorder = Recorder()
    run = Run(SETTINGS, str(tmp_path), sets=sets())
    run.fit(callbacks=[recorder])
    step = ["on_train_batch_start", "on_train_batch_end"]
    epoch = ["on_train_epoch_start", *step, *step, "on_validation_start", "on_validation_end", "on_train_epoch_end",
             "on_save_checkpoint"]  # fmt: skip
    assert recorder.names() == ["on_fit_start", "on_save_checkpoint", *epoch, *epoch, "on_fit_end"]
    assert len(HOOKS) == 10


def test_what_the_methods_are_given(tmp_path: Path) -> None:
    recorder, rows = Recorder(), []
    run = Run(SETTINGS, str(tmp_path), sets=sets())
    run.fit(after_epoch=rows.append, callbacks=[recorder])
    by_hook = {hook: [state for name, state in recorder.seen if name == hook] for hook in HOOKS}
    assert all(state.run is run and state.model is run.model for _, state in recorder.seen)
    assert [state.epoch for state in by_hook["on_train_epoch_end"]] == [1, 2]
    assert [state.step for state in by_hook["on_train_batch_start"]] == [0, 1, 2, 3]
    assert [state.step for state in by_hook["on_train_batch_end"]] == [1, 2, 3, 4]
    assert [state.row for state in by_hook["on_train_epoch_end"]] == run.history
    for state, row in zip(by_hook["on_validation_end"], rows, strict=True):
        assert state.score is not None
        assert state.row is None
        assert state.score.loss == row["val_loss"]
    for state in by_hook["on_save_checkpoint"]:
        assert state.path == str(tmp_path / CHECKPOINT)
    assert by_hook["on_fit_start"][0].score is None
    assert by_hook["on_fit_start"][0].epoch == 0


def test_callbacks_change_no_bit_of_the_training(tmp_path: Path) -> None:
    for name, callbacks in (("with", [Recorder(), Callback()]), ("without", [])):
        Run(SETTINGS, str(tmp_path / name), sets=sets()).fit(callbacks=callbacks)
    for file in (CHECKPOINT, LOG):
        assert (tmp_path / "with" / file).read_bytes() == (tmp_path / "without" / file).read_bytes()


@pytest.mark.parametrize("hook", [hook for hook in HOOKS if hook not in ("on_fit_start", "on_exception")])
def test_a_callback_that_raises_is_named_and_the_checkpoint_stays_good(tmp_path: Path, hook: str) -> None:
    whole, cut, others = tmp_path / "whole", tmp_path / "cut", Recorder()
    Run(SETTINGS, str(whole), sets=sets()).fit()
    broken = raising(hook, ValueError("no such disk"), epoch=2)
    with pytest.raises(CallbackError, match=rf"^callback Broken\.{hook}: ValueError: no such disk$") as found:
        Run(SETTINGS, str(cut), sets=sets()).fit(callbacks=[broken, others])
    assert isinstance(found.value.__cause__, ValueError)
    assert others.names()[-1] == "on_exception"
    assert others.seen[-1][1].error is found.value
    saved = load_training(str(cut / CHECKPOINT))["epoch"]
    assert saved == (2 if hook in ("on_save_checkpoint", "on_fit_end") else 1)
    Run.resume(str(cut), sets=sets()).fit()
    assert (cut / CHECKPOINT).read_bytes() == (whole / CHECKPOINT).read_bytes()


def test_before_the_first_checkpoint_a_callback_that_raises_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(CallbackError, match=r"callback Broken\.on_fit_start: KeyError: 'a'"):
        Run(SETTINGS, str(tmp_path / "run"), sets=sets()).fit(
            callbacks=[raising("on_fit_start", KeyError("a"), epoch=0)]
        )
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("hook", ["on_train_batch_start", "on_train_batch_end", "on_validation_end"])
def test_a_callback_that_raises_ends_the_threads_that_read_ahead(hook: str) -> None:
    def fail(*_: Any) -> None:
        raise KeyError

    callback = type("Bad", (Callback,), {hook: fail})()
    gc.disable()  # nothing is left for the collector
    try:
        with pytest.raises(CallbackError):
            Run(SETTINGS, sets=sets(), num_workers=2).fit(callbacks=[callback])
        for thread in threading.enumerate():
            if thread.name.startswith("DataLoader"):
                thread.join(5)
                assert not thread.is_alive()
    finally:
        gc.enable()


def test_ctrl_c_passes_a_callback_as_it_is() -> None:
    recorder = Recorder()
    with pytest.raises(KeyboardInterrupt):
        Run(SETTINGS, sets=sets()).fit(callbacks=[raising("on_train_batch_end", KeyboardInterrupt()), recorder])
    assert isinstance(recorder.seen[-1][1].error, KeyboardInterrupt)
    assert "on_fit_end" not in recorder.names()


def test_an_error_of_the_training_reaches_on_exception_and_its_own_error_is_a_note() -> None:
    class Poison(Callback):
        def on_train_batch_start(self, state: CallbackState) -> None:
            next(state.model.parameters()).array[...] = np.nan

        def on_exception(self, state: CallbackState) -> None:
            raise OSError("no line")

    recorder = Recorder()
    with pytest.raises(NonFiniteLoss) as found:
        Run(SETTINGS, sets=sets()).fit(callbacks=[Poison(), recorder])
    assert found.value.__notes__ == ["callback Poison.on_exception: OSError: no line"]
    assert recorder.names()[-1] == "on_exception"


@pytest.mark.parametrize("hook", ["on_train_batch_end", "on_validation_end", "on_train_epoch_end"])
def test_should_stop_ends_after_the_epoch_and_the_run_can_go_on(tmp_path: Path, hook: str) -> None:
    class Stop(Callback):
        pass

    setattr(Stop, hook, lambda self, state: setattr(state.run, "should_stop", state.epoch == 1))
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    run = Run(SETTINGS, str(cut), sets=sets())
    run.fit(callbacks=[Stop()])
    assert run.epoch == 1
    assert not run.finished
    assert load_training(str(cut / CHECKPOINT))["epoch"] == 1
    run.fit()  # goes on: nothing of the wish is left
    assert run.epoch == 2
    Run(SETTINGS, str(whole), sets=sets()).fit()
    assert (cut / CHECKPOINT).read_bytes() == (whole / CHECKPOINT).read_bytes()


def test_on_fit_start_may_stop_before_the_first_epoch() -> None:
    class Stop(Callback):
        def on_fit_start(self, state: CallbackState) -> None:
            state.run.should_stop = True

    run = Run(SETTINGS, sets=sets())
    run.fit(callbacks=[Stop()])
    assert run.history == []


def test_all_ranks_are_called_and_one_that_stops_ends_all() -> None:
    seen: list[tuple[int, int]] = []

    class Stop(Callback):
        def on_train_epoch_end(self, state: CallbackState) -> None:
            seen.append((state.run.rank, state.epoch))
            state.run.should_stop = state.run.rank == 1

    settings = Settings(epochs=5, batch_size=10, ranks=2)
    distributed.run(lambda group: Run(settings, group=group, sets=sets()).fit(callbacks=[Stop()]), 2)
    assert sorted(seen) == [(0, 1), (1, 1)]


@pytest.mark.parametrize(
    ("callbacks", "said"),
    [
        (Recorder(), "Run.fit: callbacks is a Recorder; expected a list of Callbacks"),
        ([Recorder], r"callbacks\[0\] is the class Recorder; expected an instance of Callback"),
        ([Recorder(), print], r"callbacks\[1\] is a builtin_function_or_method; expected an instance of Callback"),
        (3, "callbacks is a int; expected a list of Callbacks"),
    ],
)
def test_what_is_no_callback_is_refused_before_the_training(callbacks: Any, said: str) -> None:
    run = Run(SETTINGS, sets=sets())
    with pytest.raises(TypeError, match=said):
        run.fit(callbacks=callbacks)
    assert run.history == []


def test_a_method_that_nothing_would_call_is_refused() -> None:
    class Keras(Callback):
        def on_epoch_end(self, state: CallbackState) -> None:
            pass

    with pytest.raises(TypeError, match=r"a method on_epoch_end, which .*did you mean on_train_epoch_end"):
        Run(SETTINGS, sets=sets()).fit(callbacks=[Keras()])


def loop(**options: Any) -> nn.Module:
    mn.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))
    numbers = np.random.default_rng(1).standard_normal((3, 4, 2)).astype(np.float32)
    loader = [(mn.tensor(x), mn.tensor(x.sum(1, keepdims=True))) for x in numbers]
    train_epoch(model, loader, nn.MSELoss(), mn.optim.SGD(model.parameters(), lr=0.1), **options)
    return model


def test_train_epoch_calls_those_of_an_epoch() -> None:
    recorder = Recorder()
    loop(callbacks=[recorder], accumulate=2)  # two steps of three batches
    step = ["on_train_batch_start", "on_train_batch_end"]
    assert recorder.names() == ["on_train_epoch_start", *step, *step, "on_train_epoch_end"]
    last = recorder.seen[-1][1]
    assert last.run is None
    assert last.step == 2
    assert last.score is not None
    assert last.score.images == 12
    with pytest.raises(CallbackError, match=r"Broken\.on_train_batch_start: OSError: full"):
        loop(callbacks=[raising("on_train_batch_start", OSError("full"), epoch=0)])


def test_a_watch_of_batch_norms_is_a_callback() -> None:
    seen: list[np.ndarray[Any, Any]] = []

    class Mine(Callback):
        def on_train_batch_end(self, state: CallbackState) -> None:
            seen.append(state.model[1].running_mean.numpy().copy())  # type: ignore[index]

    watches: list[BatchNormWatch] = []

    class Watched(Callback):
        def on_train_epoch_start(self, state: CallbackState) -> None:
            watches.append(BatchNormWatch(state.model))

        def on_train_batch_end(self, state: CallbackState) -> None:
            watches[0].on_train_batch_end(state)

    loop(callbacks=[Mine(), Watched()])
    np.testing.assert_array_equal(watches[0].running("1")[0], np.stack(seen))
