"""mn.diagnose: every disease planted is found on its layer, healthy models raise no alarm, and nothing is changed."""

from __future__ import annotations

import io
import itertools
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minorm as mn
import minorm.functional as F
from minorm import models, nn, random
from minorm.data import ArrayDataset
from tests.diagnosis import planting
from tests.diagnosis.planting import Sick, loader, network, trained

NAMES = {
    "stale_statistics", "untouched_statistics", "momentum_convention", "skipped_batches",
    "train_eval_gap", "small_batch", "batch_of_one",
    "large_mean", "eps_swallows_variance", "vanished_scale", "dead_channel", "saturated_channel", "undone_norm",
    "folded_norm", "frozen_norm_drifts", "variance_convention", "eps_underflows",
}  # fmt: skip


def check(sick: Sick, model: nn.Module, batch_size: int | None) -> Any:
    found = mn.diagnose(model, sick.batches or loader(), batch_size=batch_size)
    hits = [f for f in found.findings if (f.name, f.layer) == (sick.name, sick.layer)]
    assert len(hits) == 1, str(found)
    allowed = ("warning", "error") if sick.severity == "harm" else (sick.severity,)
    assert hits[0].severity in allowed, str(found)
    assert hits[0].numbers
    return found


@pytest.mark.parametrize("name", planting.PLANTED)
def test_a_planted_disease_is_found_on_its_layer(name: str) -> None:
    sick = planting.PLANTED[name]()
    found = check(sick, sick.model, sick.batch_size)
    other = [f for f in found.findings if f.severity != "note" and f.name != sick.name]
    assert all(f.layer == sick.layer or sick.name == "train_eval_gap" for f in other), str(found)


@pytest.mark.parametrize("name", planting.IN_FILES)
def test_a_planted_disease_is_found_in_an_onnx_file(name: str) -> None:
    pytest.importorskip("onnx")
    import minorm.onnx

    sick = planting.PLANTED[name]()
    x, _ = next(iter(sick.batches or loader()))
    file = io.BytesIO()
    minorm.onnx.export(sick.model, x, file)
    check(sick, minorm.onnx.load(file.getvalue()), None)


def test_all_names_are_planted() -> None:
    assert {make().name for make in planting.PLANTED.values()} == NAMES


def loaded(model: nn.Module, **options: Any) -> Any:
    pytest.importorskip("onnx")
    import minorm.onnx

    file = io.BytesIO()
    minorm.onnx.export(model, mn.zeros(2, 3, 8, 8), file, **options)
    return minorm.onnx.load(file.getvalue())


def test_a_file_in_training_mode() -> None:
    graph = loaded(planting.healthy(), training=True)
    found = mn.diagnose(graph, loader(), batch_size=None)
    assert [(f.name, f.layer, f.severity) for f in found.findings] == [
        ("saved_in_training", layer, "note") for layer in ("1", "4", "7", "11")
    ]
    assert not mn.diagnose(loaded(planting.healthy()), loader(), batch_size=None).findings


def test_a_graph_whose_scales_do_not_train() -> None:
    graph = loaded(planting.healthy()).train()
    for name, parameter in graph.named_parameters():
        parameter.requires_grad = not name.startswith("4.")
    found = mn.diagnose(graph, loader(), batch_size=None)
    assert [(f.layer, f.severity) for f in found.findings if f.name == "frozen_norm_drifts"] == [("4", "warning")]


def test_a_file_tells_of_n_minus_one_where_the_batch_is_known() -> None:
    sick = planting.divided_by_one_less()
    found = mn.diagnose(loaded(sick.model), sick.batches, batch_size=4)
    numbers = {f.layer: f.numbers for f in found.findings if f.name == "variance_convention"}
    assert list(numbers) == ["11"]
    assert (numbers["11"]["values"], numbers["11"]["factor"]) == (4, 4 / 3)
    assert numbers["11"]["ratio"] == pytest.approx(4 / 3, rel=0.15)


def test_noise_in_place_of_images_shows_what_is_in_the_file_alone() -> None:
    model = planting.healthy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that this momentum is PyTorch's
        model[4].momentum, model[7].eps = 0.1, 1e-9
    model[11].reset_running_stats()
    found = mn.diagnose(loaded(model))
    assert [(f.name, f.layer, f.severity) for f in found.findings] == [
        ("untouched_statistics", "11", "warning"),
        ("momentum_convention", "4", "note"),
        ("eps_underflows", "7", "note"),
    ]
    assert found.images == 0
    assert str(found).startswith("noise instead of images: 1 warning, 2 notes")
    assert found.layers[0]["offset"] is None
    fresh = network()
    assert {f.severity for f in mn.diagnose(loaded(fresh)).findings} == {"note"}, "it was never trained"
    with pytest.raises(TypeError, match="diagnose: loader is None; expected batches, because only an ONNX graph"):
        mn.diagnose(fresh)


def test_a_file_that_fixes_its_batch() -> None:
    onnx = pytest.importorskip("onnx")
    import minorm.onnx

    file = io.BytesIO()
    proto = minorm.onnx.export(planting.stale_variance().model, mn.zeros(2, 3, 8, 8), file)
    for value in (*proto.graph.input, *proto.graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = 1
    graph = minorm.onnx.load(onnx.ModelProto.SerializeToString(proto))
    found = mn.diagnose(graph, loader(), batch_size=None)
    assert [(f.name, f.layer) for f in found.findings if f.severity == "error"] == [("stale_statistics", "4")]
    assert graph.inputs[0].shape == (1, 3, 8, 8)


def test_one_batch_in_place_of_a_loader() -> None:
    data = planting.images(64)
    x, y = (mn.tensor(array) for array in data.arrays)
    for batch in (x, (x, y), data.arrays[0], data.arrays):
        found = mn.diagnose(planting.healthy(), batch)
        assert (found.images, found.batch_size) == (64, None)
    assert "loss_evaluation" in mn.diagnose(planting.healthy(), (x, y)).gap.numbers
    assert mn.diagnose(planting.healthy(), (x, x)).images == 128, "two batches without labels"


def assert_no_alarm(found: Any) -> None:
    assert found.is_healthy, str(found)
    assert not [f for f in found.findings if f.name not in ("dead_channel", "small_batch")], str(found)


@pytest.mark.parametrize("seed", range(3))
def test_no_alarm_for_healthy_models(seed: int) -> None:
    for name in ("digits", "norms"):
        _healthy(name, seed, steps=100, lr=0.05, batch_size=32)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", ["digits", "lenet", "resnet20", "norms"])
def test_no_alarm_for_many_healthy_models(name: str, seed: int) -> None:
    for steps, lr, batch_size in itertools.product((100, 200), (0.01, 0.1), (16, 64)):
        _healthy(name, seed, steps, lr, batch_size)


def _healthy(name: str, seed: int, steps: int, lr: float, batch_size: int) -> None:
    mn.manual_seed(seed)
    data = planting.images(size=16 if name == "lenet" else 8, seed=seed)
    batches = loader(batch_size, data, seed)
    model = trained(models.build(name, 3, data.arrays[0].shape[-1], planting.CLASSES), steps, lr, batches)
    assert_no_alarm(mn.diagnose(model, batches))
    eight = [(mn.tensor(data.arrays[0][:8]), mn.tensor(data.arrays[1][:8]))]
    assert_no_alarm(mn.diagnose(model, eight, batch_size=batch_size))


def test_no_alarm_for_a_frozen_model_that_was_fine_tuned() -> None:
    model = planting.healthy()
    nn.utils.freeze_norm(model)
    trained(model, steps=40, lr=0.01, batches=loader(4))
    found = mn.diagnose(model, loader(4))
    assert found.is_healthy, str(found)
    assert not [f for f in found.findings if f.name == "small_batch"]


# Nothing is changed


def snapshot(model: nn.Module) -> Any:
    state = {key: value.array.tobytes() for key, value in model.state_dict().items()}
    modes = [(name, dict(vars(m), _hooks=str(vars(m).get("_hooks"))).keys(), m.training, m.frozen, "_hooks" in vars(m))
             for name, m in model.named_modules()]  # fmt: skip
    return state, str(modes), random.get_state()


@pytest.mark.parametrize("training", [True, False])
def test_it_changes_nothing(training: bool) -> None:
    model = planting.healthy().train(training)
    model[4].freeze()
    seen = []
    handle = model[1].register_forward_hook(lambda *args: seen.append(args))
    batches = loader()
    before, place = snapshot(model), batches.state_dict()
    mn.diagnose(model, batches)
    assert snapshot(model) == before
    assert batches.state_dict() == place
    assert seen, "hooks of one's own run on"
    handle.remove()


def test_it_changes_nothing_when_it_raises() -> None:
    class Breaks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.calls = 0

        def forward(self, x: Any) -> Any:
            mn.rand(3)
            self.calls += 1
            if self.calls % 9 == 8:  # in the second pass
                raise ValueError("it broke")
            return x

    model = nn.Sequential(*network().children(), Breaks()).train()
    before = snapshot(model)
    with pytest.raises(ValueError, match="it broke"):
        mn.diagnose(model, loader())
    assert snapshot(model) == before
    y = model(mn.zeros(2, 3, 8, 8))
    assert y.requires_grad, "gradients are recorded again"


def test_a_layer_that_minorm_does_not_know_keeps_its_statistics() -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("running_mean", mn.zeros(3))
            self.register_buffer("running_var", mn.ones(3))

        def forward(self, x: Any) -> Any:
            if self.training:
                self.running_mean.array[...] += x.mean((0, 2, 3)).array
            shape = (1, 3, 1, 1)
            return (x - self.running_mean.reshape(shape)) / self.running_var.reshape(shape).sqrt()

    model = nn.Sequential(Own(), *network().children())
    before = snapshot(model)
    found = mn.diagnose(model, loader())
    assert snapshot(model) == before
    assert found.layers[0]["layer"] == "0"


# What it can look at


def test_functional_calls_are_seen_as_modules_are() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 8, 3)
            self.norm = nn.GroupNorm(2, 8)
            self.last = nn.Linear(8, 4)

        def forward(self, x: Any) -> Any:
            return self.last(F.relu(self.norm(self.conv(x))).mean((2, 3)))

    model = Net()
    model.norm.bias.array[...] = -100
    found = mn.diagnose(model, loader())
    assert [(f.name, f.layer, f.severity) for f in found.findings] == [("dead_channel", "norm", "warning")]


def test_one_activation_after_layers_of_different_widths() -> None:
    relu = nn.ReLU()
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), relu, nn.Conv2d(8, 5, 3), relu, nn.GroupNorm(1, 5), nn.Flatten(), nn.Linear(80, 4)
    )
    assert mn.diagnose(model, loader()).layers[0]["layer"] == "4"


def test_layers_without_running_statistics_have_neither_gap_nor_batch_findings() -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU(), nn.RMSNorm(16), nn.Linear(16, 4))
    found = mn.diagnose(model, [mn.randn(16, 5, 8)], batch_size=1)
    assert found.gap is None
    assert [(row["layer"], row["gap"], row["offset"], row["batch_error"]) for row in found.layers] == [
        ("1", None, None, None),
        ("3", None, None, None),
    ]
    assert found.findings == []


def variants(norm: Any) -> nn.Module:
    """A network with this normalization, called with a number of channels, in 1 and 3."""
    mn.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1, bias=False), norm(16), nn.Conv2d(16, 16, 3, bias=False), norm(16), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 4),
    )  # fmt: skip


@pytest.mark.parametrize(
    "norm", [nn.BatchRenorm2d, nn.FilterResponseNorm2d, lambda c: nn.BatchRenorm2d(c, rmax=3.0, dmax=5.0)]
)
def test_no_alarm_for_healthy_variants(norm: Any) -> None:
    model = trained(variants(norm))
    before = snapshot(model)
    found = mn.diagnose(model, loader())
    assert found.findings == [], str(found)
    assert [row["layer"] for row in found.layers] == ["1", "3"]
    assert snapshot(model) == before


def test_ghost_batch_norm_counts_its_virtual_batch() -> None:
    found = mn.diagnose(trained(variants(lambda c: nn.GhostBatchNorm(c, 4))), loader())
    assert [(f.name, f.severity, f.numbers["batch_size"]) for f in found.findings] == [("small_batch", "note", 4)] * 2


def test_frozen_batch_norm_is_a_note_and_has_no_batch() -> None:
    model = trained(variants(nn.BatchNorm2d))
    frozen = nn.FrozenBatchNorm2d(16)
    frozen.load_state_dict(model[3].state_dict())
    frozen.running_var *= 16.0
    model[3] = frozen
    found = mn.diagnose(model, loader(2), batch_size=2)
    assert [(f.name, f.severity) for f in found.findings if f.layer == "3"] == [("stale_statistics", "note")]


def test_a_loader_without_labels() -> None:
    sick = planting.stale_variance()
    data = planting.images()
    found = mn.diagnose(sick.model, [mn.tensor(data.arrays[0][i : i + 64]) for i in range(0, 512, 64)])
    assert "loss_evaluation" not in found.gap.numbers
    assert [(f.name, f.layer) for f in found.findings if f.severity == "error"] == [("stale_statistics", "4")]


def test_images_in_the_order_of_their_classes_are_mixed() -> None:
    data = planting.images()
    order = np.argsort(data.arrays[1], kind="stable")
    batches = [(mn.tensor(data.arrays[0][i]), mn.tensor(data.arrays[1][i])) for i in order.reshape(-1, 64)]
    assert_no_alarm(mn.diagnose(planting.healthy(), batches))


def test_float16_and_float64() -> None:
    data = planting.images(64)
    for dtype in (mn.bfloat16, mn.float64):
        x = mn.tensor(data.arrays[0]).to(dtype)
        assert mn.diagnose(planting.healthy().to(dtype), [(x, mn.tensor(data.arrays[1]))]).is_healthy


def test_the_batch_of_a_sync_batch_norm_is_that_of_all_ranks() -> None:
    class Group:
        size = 8

    model = nn.Sequential(nn.SyncBatchNorm(3), nn.Flatten(), nn.Linear(192, 4))
    model[0].process_group = group = Group()
    found = mn.diagnose(model, loader(2))
    assert model[0].process_group is group
    assert not [f for f in found.findings if f.name == "small_batch"]
    model[0].process_group = None
    assert [f.layer for f in mn.diagnose(model, loader(2)).findings if f.name == "small_batch"] == ["0"]


def test_padding_that_a_mask_leaves_out_raises_no_alarm() -> None:
    """Sequences of different lengths, padded with numbers far from the data."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.other, self.last = nn.BatchNorm1d(6), nn.LayerNorm(6), nn.Linear(6, 4)

        def forward(self, x: Any) -> Any:
            mask = x[:, :1] < 500
            h = self.norm(x, mask=mask).transpose(1, 2)
            h = self.other(h, mask=mask.transpose(1, 2))
            return self.last(h.sum(1))

    draw = np.random.default_rng(0)
    x = draw.standard_normal((256, 6, 9)).astype(np.float32) + 2
    for row, length in zip(x, draw.integers(2, 9, 256), strict=True):
        row[:, length:] = 1000
    model, batches = Net().train(), [mn.tensor(x[i : i + 32]) for i in range(0, 256, 32)]
    for _ in range(8):
        for batch in batches:
            model(batch)
    found = mn.diagnose(model, batches)
    assert [f for f in found.findings if f.layer is not None] == [], str(found)
    assert found.layers[0]["offset"] < 0.1
    assert found.layers[0]["digits_lost"] < 1


# Bad input


def images_of(*shapes: tuple[int, ...]) -> list[Any]:
    return [mn.zeros(*shape) for shape in shapes]


@pytest.mark.parametrize(
    ("batches", "error", "said"),
    [
        ([], ValueError, "the loader gave 0 images"),
        (images_of((1, 3, 8, 8)), ValueError, "the loader gave 1 images; expected at least 2"),
        (
            iter(images_of((4, 3, 8, 8))),
            TypeError,
            "loader is a list_iterator; expected batches that can",
        ),
        (7, TypeError, "loader is a int"),
        ([{"x": 1}], TypeError, "a batch is a dict; expected x or"),
        (images_of((4, 3, 8, 8), (4, 3, 9, 9)), ValueError, "images have shapes"),
        (images_of((4, 1, 8, 8)), ValueError, r"the model does not take images of shape \(4, 1, 8, 8\): conv2d"),
    ],
)
def test_loaders_that_give_no_images(batches: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said) as caught:
        mn.diagnose(network(), batches)
    assert str(caught.value).startswith("diagnose: ")


def test_models_that_cannot_be_diagnosed() -> None:
    with pytest.raises(TypeError, match="model is a function; expected a Module"):
        mn.diagnose(lambda x: x, loader())
    with pytest.raises(ValueError, match="the model runs no normalization"):
        mn.diagnose(nn.Sequential(nn.Flatten(), nn.Linear(192, 4)), loader())
    with pytest.raises(ValueError, match="diagnose: batch_size=0; expected an int of at least 1, or None"):
        mn.diagnose(network(), loader(), batch_size=0)
    model = network()
    model[3].weight.array[0] = np.nan
    with pytest.raises(ArithmeticError, match="4 gives NaN or infinity in evaluation"):
        mn.diagnose(model, loader())


def test_a_dataset_of_one_class_and_constant_images() -> None:
    data = ArrayDataset(np.zeros((64, 3, 8, 8), np.float32), np.zeros(64, np.int64))
    found = mn.diagnose(planting.healthy(), loader(data=data))
    assert found.images == 64  # all channels are constant: no division by nothing


def test_what_pytorch_exports_folded_and_unfolded(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnx")
    import minorm.onnx

    ours, t = planting.healthy(), torch.nn
    theirs = t.Sequential(
        t.Conv2d(3, 16, 3, padding=1, bias=False), t.BatchNorm2d(16), t.ReLU(),
        t.Conv2d(16, 16, 3, padding=1, bias=False), t.BatchNorm2d(16), t.ReLU(),
        t.Conv2d(16, 16, 3, padding=1, bias=False), t.BatchNorm2d(16), t.ReLU(),
        t.Flatten(), t.Linear(1024, 24, bias=False), t.BatchNorm1d(24), t.ReLU(), t.Linear(24, 4),
    ).eval()  # fmt: skip
    theirs.load_state_dict({key: torch.tensor(value.array) for key, value in ours.state_dict().items()})
    mode, path = torch.onnx.TrainingMode, tmp_path / "theirs.onnx"
    for training, names, layers in (
        (mode.EVAL, {"folded_norm"}, ["11"]),
        (mode.PRESERVE, set(), ["1", "4", "7", "11"]),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that this exporter is the older one
            torch.onnx.export(
                theirs, torch.zeros(2, 3, 8, 8), path, input_names=["x"], dynamic_axes={"x": {0: "n"}},
                training=training, dynamo=False,
            )  # fmt: skip
        found = mn.diagnose(minorm.onnx.load(path), loader(), batch_size=None)
        assert {f.name for f in found.findings} == names, str(found)
        assert [row["layer"] for row in found.layers] == layers
    assert {f.layer for f in found.findings} <= {"3", "6"}
