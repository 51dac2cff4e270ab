"""Initial weights: those that fit by name and shape equal the file's to the bit, and all others are named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm import models, nn
from minorm.checkpoint import load_training
from minorm.data import ArrayDataset
from minorm.training import Run, Settings
from minorm.training.model.initial import Initial, begin
from minorm.training.run import BEST, CHECKPOINT

SETTINGS = Settings(epochs=2, batch_size=10)
MODEL = "from minorm import nn\ndef build(c, s, k): return nn.Sequential(nn.Flatten(), nn.Linear(c * s * s, k))\n"


def sets(classes: int = 10) -> Any:
    rng = np.random.default_rng(classes)
    return tuple(ArrayDataset(rng.random((n, 1, 8, 8), np.float32), np.arange(n) % classes) for n in (40, 20))


def values(model: nn.Module) -> dict[str, np.ndarray]:
    return {name: tensor.numpy().copy() for name, tensor in model.state_dict().items()}


def drawn(seed: int, classes: int = 10) -> nn.Module:
    mn.manual_seed(seed)
    model: nn.Module = models.digits_cnn(classes=classes)
    return model


@pytest.fixture
def weights() -> dict[str, np.ndarray]:
    """Return the weights of a network for ten classes."""
    return values(drawn(1))


def test_a_head_for_other_classes_is_drawn_anew(tmp_path: Path, weights: dict[str, np.ndarray]) -> None:
    path = str(tmp_path / "ten.safetensors")
    mn.save(weights, path)
    model, before = drawn(2, classes=3), values(drawn(2, classes=3))
    found = begin(model, path)
    head = [name for name in before if before[name].shape != weights[name].shape]
    assert len(head) == 2
    for name, value in values(model).items():
        assert np.array_equal(value, before[name] if name in head else weights[name]), name
    assert (found.taken, found.missing, found.unused) == (len(weights) - 2, [], [])
    assert found.reshaped == [
        f"{name} {weights[name].shape} in the file, {before[name].shape} in the model" for name in head
    ]
    said = found.sentences()
    assert said[0] == f"begins with {len(weights) - 2} tensors of ten.safetensors"
    assert len(said) == 2
    assert all(name in said[1] for name in head)


@pytest.mark.parametrize("form", ["safetensors", "npz", "pt", "nested", "wrapped", "float64", "bfloat16"])
def test_every_form_of_a_file(tmp_path: Path, weights: dict[str, np.ndarray], form: str) -> None:
    path, exact = str(tmp_path / "file.safetensors"), True
    if form == "npz":
        path = str(tmp_path / "file.npz")
        np.savez(path, **weights)  # type: ignore[arg-type]
    elif form == "pt":
        torch = pytest.importorskip("torch")
        path = str(tmp_path / "file.pt")
        torch.save({"state_dict": {name: torch.tensor(value) for name, value in weights.items()}, "epoch": 3}, path)
    elif form == "nested":
        mn.save({"model": weights, "optimizer": {"lr": 0.1}}, path)
    elif form == "wrapped":
        mn.save({f"module.{name}": value for name, value in weights.items()}, path)
    else:
        kind = {"safetensors": np.float32, "float64": np.float64, "bfloat16": mn.bfloat16}[form]
        mn.save({name: v.astype(kind) if v.dtype == np.float32 else v for name, v in weights.items()}, path)
        exact = form != "bfloat16"
    model = drawn(2)
    assert begin(model, path).taken == len(weights)
    for name, value in values(model).items():
        if exact:
            assert np.array_equal(value, weights[name]), name
        else:
            assert np.allclose(value, weights[name], rtol=2**-8), name


def test_every_name_that_was_left_out_is_said(tmp_path: Path, weights: dict[str, np.ndarray]) -> None:
    path, names = str(tmp_path / "some.safetensors"), list(weights)
    given = {name: weights[name] for name in names[1:]}
    mn.save({**given, "evil\x1b[2J": np.ones(2, np.float32), names[-1]: weights[names[-1]].astype(np.int64)}, path)
    model = drawn(2)
    before = values(model)
    found = begin(model, path)
    assert (found.missing, found.unused) == ([names[0]], ["evil\x1b[2J"])
    assert found.reshaped == [f"{names[-1]} (10,) in the file, (10,) in the model"], "whole numbers are no weights"
    assert np.array_equal(values(model)[names[0]], before[names[0]])


def test_a_file_of_which_nothing_fits_changes_nothing(tmp_path: Path, weights: dict[str, np.ndarray]) -> None:
    path = str(tmp_path / "other.safetensors")
    model = drawn(2)
    before = values(model)
    for state, said in (
        (
            {f"features.{name}": value for name, value in weights.items()},
            r"the file has features\.0\.weight \(16, 1, 3, 3",
        ),
        ({"1.num_batches_tracked": weights["1.num_batches_tracked"]}, r"the file has 1\.num_batches_tracked \(\)"),
        ({"epoch": 3}, "has no tensors by name"),
    ):
        mn.save(state, path)
        with pytest.raises(ValueError, match=f"init: .*{said}"):
            begin(model, path)
    with pytest.raises(FileNotFoundError, match=r"is a folder without best\.safetensors and checkpoint\.safetensors"):
        begin(model, str(tmp_path))
    (tmp_path / "bad.npz").write_bytes(b"PK\3\4nothing")
    with pytest.raises(ValueError, match=r"bad\.npz"):
        begin(model, str(tmp_path / "bad.npz"))
    assert all(np.array_equal(value, before[name]) for name, value in values(model).items())


def test_a_run_begins_with_another_and_says_so_in_its_checkpoint(tmp_path: Path) -> None:
    first = Run(SETTINGS, str(tmp_path / "first"), sets=sets())
    first.fit()
    out = str(tmp_path / "second")
    run = Run(SETTINGS, out, sets=sets(), init=str(tmp_path / "first"))
    best = load_training(tmp_path / "first" / BEST)["model"]
    taken = [name for name, value in values(run.model).items() if np.array_equal(value, np.asarray(best[name]))]
    assert run.initial is not None
    assert len(taken) == run.initial.taken == len(best)
    run.fit(after_epoch=None)
    again = Run.resume(out, sets=sets())
    assert again.initial == run.initial
    assert load_training(f"{out}/{BEST}")["initial"]["file"] == BEST
    assert "initial" not in load_training(tmp_path / "first" / CHECKPOINT)


def test_a_run_that_began_with_weights_goes_on_to_the_same_bytes(
    tmp_path: Path, weights: dict[str, np.ndarray]
) -> None:
    path = str(tmp_path / "w.safetensors")
    mn.save(weights, path)

    def stop(row: Any) -> None:
        raise KeyboardInterrupt

    Run(SETTINGS, str(tmp_path / "whole"), sets=sets(), init=path).fit()
    with pytest.raises(KeyboardInterrupt):
        Run(SETTINGS, str(tmp_path / "cut"), sets=sets(), init=path).fit(after_epoch=stop)
    Path(path).unlink()
    Run.resume(str(tmp_path / "cut"), sets=sets()).fit()
    for name in (CHECKPOINT, BEST):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_no_code_of_the_file_is_run(tmp_path: Path) -> None:
    """The run's own FILE.py lies in its folder and is changed: neither is run, the weights are taken all the same."""
    mine = tmp_path / "mine.py"
    mine.write_text(MODEL)
    settings = Settings(epochs=1, batch_size=10, model=f"{mine}:build")
    Run(settings, str(tmp_path / "first"), sets=sets()).fit()
    (tmp_path / "first/mine.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n{MODEL}")
    run = Run(settings, sets=sets(), init=str(tmp_path / "first"))
    assert run.initial is not None
    assert run.initial.taken == 2
    assert not (tmp_path / "ran").exists()


def test_what_a_checkpoint_says_of_it_is_checked(tmp_path: Path) -> None:
    out = str(tmp_path)
    Run(SETTINGS, out, sets=sets()).fit()
    good = {"file": "a", "sha256": "b", "taken": 1, "reshaped": [], "missing": [], "unused": ["x"]}
    parts = load_training(f"{out}/{CHECKPOINT}")
    wrong: Any
    for wrong in ([], {**good, "taken": "1"}, {**good, "unused": [3]}, {**good, "more": 1}, {**good, "file": None}):
        mn.checkpoint.save_training(f"{out}/{CHECKPOINT}", **parts, initial=wrong)
        with pytest.raises(ValueError, match=r"its entry 'initial' is .*; expected file, sha256, taken"):
            Run.resume(out, sets=sets())
    mn.checkpoint.save_training(f"{out}/{CHECKPOINT}", **parts, initial=good)
    assert Run.resume(out, sets=sets()).initial == Initial(**good)  # type: ignore[arg-type]
