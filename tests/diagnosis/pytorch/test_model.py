"""mn.diagnose of modules of PyTorch: every disease planted is found on its layer, healthy families raise no alarm."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minorm as mn
from tests.diagnosis.pytorch import planting
from tests.diagnosis.pytorch.planting import batches, healthy, settled, trained

t = pytest.importorskip("torch")


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    """PyTorch's threads and minorm's would stand in each other's way."""
    before = t.get_num_threads()
    t.set_num_threads(1)
    yield
    t.set_num_threads(before)


@pytest.mark.parametrize("name", planting.PLANTED)
def test_a_planted_disease_is_found_on_its_layer(name: str) -> None:
    sick = planting.PLANTED[name]()
    found = mn.diagnose(sick.model, sick.batches or batches(), batch_size=sick.batch_size)
    hits = [f for f in found.findings if (f.name, f.layer) == (sick.name, sick.layer)]
    assert len(hits) == 1, str(found)
    assert hits[0].severity in (("warning", "error") if sick.severity == "harm" else (sick.severity,)), str(found)
    assert hits[0].numbers
    for text in (hits[0].why, hits[0].fix, str(hits[0])):
        assert not set("{}") & set(text)
    assert not [word for word in ("precise_bn", "freeze_norm", "minorm", "mn.") if word in hits[0].fix], (
        "PyTorch's words"
    )
    other = [f for f in found.findings if f.severity != "note" and f.name != sick.name]
    assert all(f.layer == sick.layer or sick.name == "train_eval_gap" for f in other), str(found)


@pytest.mark.parametrize("family", planting.FAMILIES)
def test_no_alarm_for_healthy_families(family: str) -> None:
    t.manual_seed(0)
    model = trained(planting.FAMILIES[family]())
    found = mn.diagnose(model, batches())
    assert found.is_healthy, str(found)
    assert not [f for f in found.findings if f.name not in ("dead_channel", "small_batch")], str(found)
    x, y = batches(8)[0]
    assert mn.diagnose(model, (x, y)).is_healthy, "eight images"


@pytest.mark.parametrize("family", ["batch", "residual", "group", "instance"])
def test_no_alarm_for_the_same_models_as_files(family: str, tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    import minorm.onnx

    t.manual_seed(0)
    model, path = trained(planting.FAMILIES[family]()), tmp_path / "model.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that this exporter is the older one
        t.onnx.export(
            model, t.zeros(2, 3, 8, 8), path, dynamo=False, training=t.onnx.TrainingMode.PRESERVE,
            input_names=["x"], dynamic_axes={"x": {0: "n"}},
        )  # fmt: skip
    given = [(mn.tensor(x.numpy()), mn.tensor(y.numpy())) for x, y in batches()]
    found = mn.diagnose(minorm.onnx.load(path), given, batch_size=None)
    assert found.is_healthy, str(found)


def state_of(model: Any) -> Any:
    tensors = {key: value.numpy().tobytes() for key, value in model.state_dict().items()}
    hooks = [(len(m._forward_hooks), len(m._forward_pre_hooks), m.training) for m in model.modules()]
    return tensors, hooks, t.random.get_rng_state().numpy().tobytes()


@pytest.mark.parametrize("training", [True, False])
def test_it_changes_nothing(training: bool) -> None:
    model = healthy().train(training)
    model[4].eval()
    loader = t.utils.data.DataLoader(
        t.utils.data.TensorDataset(*(t.cat(parts) for parts in zip(*batches(), strict=True))), 32, shuffle=True
    )
    before = state_of(model)
    found = mn.diagnose(model, loader)
    assert state_of(model) == before
    assert found.images == 512
    assert model(t.zeros(2, 3, 8, 8)).requires_grad, "gradients are recorded again"


def test_it_changes_nothing_when_it_raises() -> None:
    class Breaks(t.nn.Module):
        calls = 0

        def forward(self, x: Any) -> Any:
            t.rand(3)
            self.calls += 1
            if self.calls % 9 == 8:  # in the second pass
                raise RuntimeError("it broke")
            return x

    model = t.nn.Sequential(*healthy(), Breaks()).train()
    before = state_of(model)
    with pytest.raises(ValueError, match=r"^diagnose: the model does not take images of shape .*: it broke"):
        mn.diagnose(model, batches())
    assert state_of(model) == before


def test_a_layer_that_ignores_its_mode_keeps_its_statistics() -> None:
    class Always(t.nn.BatchNorm2d):
        def forward(self, x: Any) -> Any:
            return t.nn.functional.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, True)

    model = t.nn.Sequential(Always(3), *healthy()).eval()
    before = state_of(model)
    assert mn.diagnose(model, batches()).layers[0]["layer"] == "0"
    assert state_of(model) == before


def test_the_numbers_are_those_of_pytorch() -> None:
    """The offset of the first layer, by the formula of the documentation, from PyTorch's own convolution."""
    model = healthy()
    model[1].running_mean += 0.3
    x = t.cat([x for x, _ in batches()[:16]])
    row = mn.diagnose(model, [x]).layers[0]
    with t.no_grad():
        h = model[0](x).double()
    mean, s = h.mean((0, 2, 3)), (h.var((0, 2, 3), unbiased=False) + 1e-5).sqrt()
    m, sr = model[1].running_mean.double(), (model[1].running_var.double() + 1e-5).sqrt()
    offset = ((mean - m) ** 2 / (s * sr) + (s / sr).log() ** 2).mean().sqrt()
    np.testing.assert_allclose(row["offset"], float(offset), rtol=1e-4)
    assert (row["layer"], row["kind"], row["channels"]) == ("1", "batch", 16)


def test_the_words_are_those_of_pytorch() -> None:
    sick = planting.convention()
    finding = next(f for f in mn.diagnose(sick.model, batches()).findings if f.name == "momentum_convention")
    assert finding.numbers == {"momentum": 0.99, "kept": pytest.approx(0.01), "usual": 0.01}
    assert "in PyTorch momentum is the share of the new statistics" in finding.why
    assert "layer.momentum = 0.01, and measure the statistics anew: torch.optim.swa_utils.update_bn" in finding.fix


def test_a_layer_in_evaluation_while_the_model_trains_is_frozen() -> None:
    """By another layer's mode: here that of the other BatchNorms."""
    model = healthy().train()
    model[4].eval()
    model[4].running_var *= 16.0
    model[4].requires_grad_(False)
    found = mn.diagnose(model, batches(), batch_size=2)
    assert {(f.name, f.severity) for f in found.findings if f.layer == "4"} == {("stale_statistics", "note")}


def test_a_new_module_around_others_freezes_nothing() -> None:
    """It begins in training mode, which says nothing of the layers in it."""
    sick = planting.stale_variance()
    found = mn.diagnose(t.nn.DataParallel(sick.model), batches())
    assert [(f.name, f.layer) for f in found.findings if f.severity == "error"] == [("stale_statistics", "module.4")]


def test_an_exported_module() -> None:
    sick = planting.stale_variance()
    dims = ({0: t.export.Dim("n", min=2, max=512)},)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exported = t.export.export(sick.model, (t.zeros(4, 3, 8, 8),), dynamic_shapes=dims).module()
    found = mn.diagnose(exported, batches())
    assert [(f.name, f.layer) for f in found.findings if f.severity == "error"] == [("stale_statistics", "4")]


def test_outputs_of_other_kinds_and_16_bits() -> None:
    class Output(dict):  # type: ignore[type-arg]
        @property
        def logits(self) -> Any:
            return self["logits"]

    class Wrapped(t.nn.Module):
        def __init__(self, how: Any) -> None:
            super().__init__()
            self.body, self.how = healthy(), how

        def forward(self, x: Any) -> Any:
            return self.how(self.body(x))

    for how in (lambda y: (y, 1), lambda y: {"out": y}, lambda y: Output(logits=y), lambda y: [y]):
        assert mn.diagnose(Wrapped(how), batches()[:4]).is_healthy
    with pytest.raises(TypeError, match=r"diagnose: the model returns a int; expected a tensor"):
        mn.diagnose(Wrapped(lambda y: 1), batches())
    low = settled(healthy()).bfloat16()
    assert mn.diagnose(low, [(x.bfloat16(), y) for x, y in batches()[:4]]).is_healthy


def test_a_compiled_module_is_the_module() -> None:
    class Compiled(t.nn.Module):
        def __init__(self, inner: Any) -> None:
            super().__init__()
            self._orig_mod = inner

    sick = planting.stale_variance()
    found = mn.diagnose(Compiled(sick.model), batches())
    assert [f.layer for f in found.findings if f.severity == "error"] == ["4"], "by the names of the module"


def test_what_cannot_be_diagnosed() -> None:
    with pytest.raises(TypeError, match="diagnose: loader is None; expected batches"):
        mn.diagnose(healthy())
    with pytest.raises(ValueError, match="the model runs no normalization"):
        mn.diagnose(t.nn.Sequential(t.nn.Flatten(), t.nn.Linear(192, 4)), batches())
    with pytest.raises(TypeError, match="diagnose: 0 is a scripted module, whose layers cannot be watched; expected"):
        mn.diagnose(t.nn.Sequential(t.jit.trace(healthy(), t.zeros(2, 3, 8, 8))), batches())
    with pytest.raises(ValueError, match="diagnose: model has lazy layers without weights; expected one that has run"):
        mn.diagnose(t.nn.Sequential(t.nn.Flatten(), t.nn.LazyLinear(4), t.nn.BatchNorm1d(4)), batches())
    model = healthy()
    with t.no_grad():
        model[3].weight[0] = float("nan")
    with pytest.raises(ArithmeticError, match="4 gives NaN or infinity in evaluation"):
        mn.diagnose(model, batches())
    with pytest.raises(ValueError, match=r"the model does not take images of shape \(4, 1, 8, 8\)"):
        mn.diagnose(healthy(), t.zeros(4, 1, 8, 8))


def test_minorm_does_not_import_pytorch() -> None:
    code = "import sys, minorm.diagnosis; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
