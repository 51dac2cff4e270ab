"""The normalization layers share PyTorch's state, the meaning of momentum, modes, freezing, types and backends."""

from __future__ import annotations

import inspect
import warnings

import numpy as np
import pytest

import minorm as mn
import minorm.functional as F
from minorm import nn
from minorm.kernels import reference
from minorm.kernels.partial import PartialBackend

BATCH = [
    (nn.BatchNorm1d, (4, 3)),
    (nn.BatchNorm1d, (4, 3, 5)),
    (nn.BatchNorm2d, (4, 3, 5, 2)),
    (nn.BatchNorm3d, (4, 3, 2, 2, 2)),
]
INSTANCE = [(nn.InstanceNorm1d, (4, 3, 5)), (nn.InstanceNorm2d, (4, 3, 5, 2)), (nn.InstanceNorm3d, (4, 3, 2, 2, 2))]


@pytest.mark.parametrize(("layer", "shape"), BATCH + INSTANCE)
def test_three_training_steps_beside_pytorch(layer, shape, rng):
    torch = pytest.importorskip("torch")
    ours = layer(3, affine=True, track_running_stats=True, unbiased_running_var=True)
    theirs = getattr(torch.nn, layer.__name__)(3, affine=True, track_running_stats=True)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    for step in range(4):
        x, dy = rng.standard_normal((2, *shape)).astype(np.float32)
        if step == 3:
            ours.eval()
            theirs.eval()
        y, expected = ours(mn.tensor(x)), theirs(torch.tensor(x))
        np.testing.assert_allclose(y.array, expected.detach(), atol=2e-6)
        y.backward(dy)
        expected.backward(torch.tensor(dy))
        for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
            np.testing.assert_allclose(p.grad.array, q.grad, rtol=1e-5, atol=1e-5)
            p.array[...] -= 0.1 * p.grad.array
            q.data -= 0.1 * q.grad
            p.grad = q.grad = None
    for key, value in theirs.state_dict().items():
        if key == "num_batches_tracked" and layer.__name__.startswith("Instance"):
            continue  # PyTorch's InstanceNorm has the counter and never counts
        np.testing.assert_allclose(ours.state_dict()[key].array, value, rtol=1e-5, atol=1e-6)
    theirs.load_state_dict({k: torch.tensor(v.array) for k, v in ours.state_dict().items()})
    ours.load_state_dict({k: v.numpy() for k, v in theirs.state_dict().items()})


def test_state_and_start():
    layer = nn.BatchNorm2d(3)
    assert list(layer.state_dict()) == ["weight", "bias", "running_mean", "running_var", "num_batches_tracked"]
    assert [v.array.tolist() for v in layer.state_dict().values()] == [[1] * 3, [0] * 3, [0] * 3, [1] * 3, 0]
    assert layer.num_batches_tracked.dtype == np.int64
    assert [name for name, _ in layer.named_parameters()] == ["weight", "bias"]
    bare = nn.BatchNorm2d(3, affine=False, track_running_stats=False)
    assert list(bare.state_dict()) == []
    assert list(nn.InstanceNorm2d(3).state_dict()) == []


def test_population_variance_by_default(rng):
    x = rng.standard_normal((4, 3)).astype(np.float32)
    layer = nn.BatchNorm1d(3, momentum=0.75)
    layer(mn.tensor(x))
    np.testing.assert_allclose(layer.running_mean.array, 0.25 * x.mean(0), rtol=1e-5)
    np.testing.assert_allclose(layer.running_var.array, 0.75 + 0.25 * x.var(0), rtol=1e-5)
    assert layer.num_batches_tracked.item() == 1
    layer.reset_running_stats()
    assert layer.running_mean.array.tolist() == [0, 0, 0]
    assert layer.num_batches_tracked.item() == 0


def test_momentum_none_is_the_mean_of_all_batches(rng):
    x = rng.standard_normal((3, 10, 2)).astype(np.float32)
    layer = nn.BatchNorm1d(2, momentum=None)
    for batch in x:
        layer(mn.tensor(batch))
    np.testing.assert_allclose(layer.running_mean.array, x.mean((0, 1)), rtol=1e-5, atol=1e-7)


def test_a_low_momentum_warns_and_tells_pytorchs():
    with pytest.warns(
        UserWarning, match=r"BatchNorm2d: momentum=0.1 keeps 10%.*PyTorch's momentum=0.1 is momentum=0.9"
    ):
        nn.BatchNorm2d(3, momentum=0.1)
    for layer in (nn.BatchNorm2d, nn.InstanceNorm2d):
        with pytest.warns(UserWarning, match="momentum=0.1") as found:
            layer(3, momentum=0.1)
        assert [warning.filename for warning in found] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        nn.InstanceNorm2d(3, momentum=0.5)
        nn.BatchNorm2d(3, momentum=None)
    with pytest.raises(ValueError, match=r"momentum=1.5; expected the share"):
        nn.BatchNorm2d(3, momentum=1.5)


@pytest.mark.parametrize("how", ["freeze layer", "freeze model", "eval"])
def test_frozen_survives_train(how, rng):
    model = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 2))
    layer = model[0]
    layer.running_mean.fill_(0.5)
    {"freeze layer": layer.freeze, "freeze model": model.freeze, "eval": model.eval}[how]()
    if how != "eval":
        model.train()
        assert layer.training
    before = {k: v.array.copy() for k, v in layer.state_dict().items()}
    x = mn.tensor(rng.standard_normal((4, 3)), dtype=mn.float32, requires_grad=True)
    np.testing.assert_allclose(layer(x).array, (x.array - 0.5) / np.sqrt(1 + 1e-5), rtol=1e-5)
    model(x).sum().backward()
    assert x.grad is not None
    for key, value in before.items():
        np.testing.assert_array_equal(layer.state_dict()[key].array, value)
    if how != "eval":
        model.unfreeze()
        layer(x)
        assert layer.num_batches_tracked.item() == 1


def test_without_running_statistics_evaluation_uses_the_batch(rng):
    x = mn.tensor(rng.standard_normal((4, 3)), dtype=mn.float32)
    layer = nn.BatchNorm1d(3, track_running_stats=False)
    np.testing.assert_array_equal(layer(x).array, layer.eval()(x).array)


def test_no_stats_update(rng):
    layer = nn.BatchNorm1d(3)
    with mn.no_stats_update():
        layer(mn.randn(4, 3))
    assert layer.num_batches_tracked.item() == 0
    assert layer.running_mean.array.tolist() == [0, 0, 0]


def test_double():
    layer = nn.BatchNorm1d(3, dtype=mn.float64)
    assert layer(mn.randn(4, 3).double()).dtype == np.float64
    assert layer.running_mean.dtype == np.float64


def test_a_backend_of_ones_own(rng):
    from minorm.kernels.reference import norm

    x = mn.tensor(rng.standard_normal((4, 3, 5)), dtype=mn.float32)
    y = nn.BatchNorm1d(3, backend=norm)(x)
    np.testing.assert_allclose(y.array, nn.BatchNorm1d(3)(x).array, atol=1e-6)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: nn.BatchNorm2d(3)(mn.randn(2, 3, 4)),
            r"BatchNorm2d: x has 3 axes; expected \(N, C, H, W\); x.shape is",
        ),
        (lambda: nn.BatchNorm1d(3)(mn.randn(2, 3, 4, 5)), r"expected \(N, C\) or \(N, C, L\)"),
        (lambda: nn.BatchNorm2d(3)(mn.randn(2, 4, 5, 5)), "x has 4 channels, the layer num_features=3"),
        (lambda: nn.InstanceNorm3d(3)(mn.randn(2, 4, 5)), "InstanceNorm3d: x has 3 axes"),
        (lambda: nn.InstanceNorm3d(3)(mn.randn(2, 4, 5, 5)), r"it is one sample, with 2 channels.*is \(2, 4, 5, 5\)"),
        (lambda: nn.BatchNorm1d(3)(mn.randn(1, 3)), r"one value per channel.*\(1, 3\)"),
        (lambda: nn.BatchNorm1d(0), "num_features is 0; expected at least 1"),
    ],
)
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: nn.BatchNorm2d(3, 1e-5, True), "BatchNorm2d: momentum is True; expected a number"),
        (lambda: nn.BatchNorm2d(3, momentum="0.9"), "momentum is '0.9'; expected a number"),
        (lambda: nn.InstanceNorm2d((3, 4, 4)), r"InstanceNorm2d: num_features is \(3, 4, 4\); expected an int"),
        (lambda: nn.BatchNorm2d([3, 4, 4]), r"num_features is \[3, 4, 4\]; expected an int"),
    ],
)
def test_arguments_of_wrong_types(call, message):
    with pytest.raises(TypeError, match=message):
        call()


@pytest.mark.parametrize("layer", [nn.BatchNorm2d, nn.InstanceNorm2d])
def test_one_value_per_channel_and_a_bad_eps_are_refused_by_layers_too(layer):
    with pytest.raises(ValueError, match=r"one .* per channel has no variance.*\(1, 3, 1, 1\)"):
        layer(3)(mn.randn(1, 3, 1, 1))
    with pytest.raises(ValueError, match=r"eps=-1\.0; expected a number of at least 0"):
        layer(3, eps=-1.0)(mn.randn(2, 3, 4, 4))


@pytest.mark.parametrize("name", ["BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "InstanceNorm2d", "GroupNorm"])
def test_a_weight_without_a_bias(name, rng):
    torch = pytest.importorskip("torch")
    arguments = (3, 6) if name == "GroupNorm" else (6, 1e-5, None)
    theirs = getattr(torch.nn, name)
    if "bias" not in inspect.signature(theirs).parameters:
        pytest.skip("this PyTorch has no bias=")
    ours, theirs = (module(*arguments, affine=True, bias=False) for module in (getattr(nn, name), theirs))
    assert list(ours.state_dict()) == list(theirs.state_dict())
    assert "bias=False" in repr(ours)
    shape = {"1d": (4, 6), "3d": (4, 6, 2, 3, 2)}.get(name[-2:], (4, 6, 3, 5))
    x, w = rng.standard_normal(shape).astype(np.float32), rng.standard_normal(6).astype(np.float32)
    ours.weight.array[...] = w
    theirs.weight.data[...] = torch.tensor(w)
    np.testing.assert_allclose(ours(mn.tensor(x)).array, theirs(torch.tensor(x)).detach(), rtol=1e-5, atol=2e-6)
    assert (getattr(nn, name)(*arguments, affine=False, bias=True).bias) is None


@pytest.mark.parametrize(
    ("name", "arguments", "shape"),
    [
        ("GroupNorm", (2, 6), (3, 6, 4, 5)),
        ("GroupNorm", (3, 6, 1e-3, False), (3, 6)),
        ("LayerNorm", (5,), (3, 4, 5)),
        ("LayerNorm", ((4, 5), 1e-3), (3, 4, 5)),
        ("LayerNorm", ((4, 5), 1e-3, True, False), (3, 4, 5)),
        ("LayerNorm", (5, 1e-5, False), (3, 4, 5)),
        ("RMSNorm", ((4, 5),), (3, 4, 5)),
        ("RMSNorm", (5, 1e-3, False), (3, 4, 5)),
    ],
)
def test_beside_pytorch(name, arguments, shape, rng):
    torch = pytest.importorskip("torch")
    ours, theirs = getattr(nn, name)(*arguments), getattr(torch.nn, name)(*arguments)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    x, dy = rng.standard_normal((2, *shape)).astype(np.float32)
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        p.array[...] = rng.standard_normal(p.shape)
        q.data[...] = torch.tensor(p.array)
    x_ours, x_theirs = mn.tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
    y, expected = ours(x_ours), theirs(x_theirs)
    y.backward(dy)
    expected.backward(torch.tensor(dy))
    np.testing.assert_allclose(y.array, expected.detach(), rtol=1e-5, atol=2e-6)
    np.testing.assert_allclose(x_ours.grad.array, x_theirs.grad, rtol=1e-4, atol=5e-6)
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        np.testing.assert_allclose(p.grad.array, q.grad, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("layer", "arguments", "function"),
    [
        (nn.GroupNorm, (2, 6), lambda x, layer, c: F.group_norm(x, 2, layer.weight, layer.bias, compute_dtype=c)),
        (nn.LayerNorm, (500,), lambda x, layer, c: F.layer_norm(x, 500, layer.weight, layer.bias, compute_dtype=c)),
        (nn.RMSNorm, (500,), lambda x, layer, c: F.rms_norm(x, 500, layer.weight, compute_dtype=c)),
        (nn.BatchNorm1d, (6,), lambda x, layer, c: F.batch_norm(x, None, None, layer.weight, layer.bias, True,
                                                                compute_dtype=c)),
        (nn.InstanceNorm1d, (6,), lambda x, layer, c: F.instance_norm(x, compute_dtype=c)),
        (nn.MeanVarianceNorm, ((0, 2),), lambda x, layer, c: F.mean_variance_norm(x, (0, 2), compute_dtype=c)),
        (nn.Normalization, ([1, 6, 1], (2,)), lambda x, layer, c: F.normalization(x, layer.weight, layer.bias, (2,),
                                                                                compute_dtype=c)),
    ],
)  # fmt: skip
def test_compute_dtype_is_handed_on(layer, arguments, function, rng):
    """Computed in float64, both y and dx are other float32 numbers than computed in float32."""
    values, dy = (rng.standard_normal((4, 6, 500)).astype(np.float32) + 100 for _ in range(2))
    found = []
    for options in ({}, {"compute_dtype": mn.float64}):
        x, same = mn.tensor(values, requires_grad=True), mn.tensor(values, requires_grad=True)
        module = layer(*arguments, **options)
        y = module(x)
        y.backward(dy)
        function(same, module, options.get("compute_dtype")).backward(dy)
        np.testing.assert_array_equal(x.grad.array, same.grad.array)
        found.append((y.array, x.grad.array))
    (y, dx), (wide_y, wide_dx) = found
    assert (y != wide_y).any()
    assert (dx != wide_dx).any()
    np.testing.assert_allclose(y, wide_y, atol=1e-5)


@pytest.mark.parametrize("training", [True, False])
def test_track_running_stats_may_be_switched_off_and_on(training, rng):
    torch = pytest.importorskip("torch")
    x = rng.standard_normal((4, 3, 5)) + 2
    found = []
    for library, options in ((mn, {"momentum": 0.9, "unbiased_running_var": True}), (torch, {"momentum": 0.1})):
        layer = library.nn.BatchNorm1d(3, dtype=library.float64, **options)
        given = library.tensor(x, dtype=library.float64)
        layer(given)
        layer.train(training)
        layer.track_running_stats = False
        results = [layer(given), layer(given)]
        layer.track_running_stats = True
        results += [layer.train()(given), layer.eval()(given), layer.running_mean]
        found.append([np.asarray(y.detach()) for y in results])
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9)


@pytest.mark.parametrize("training", [True, False])
def test_an_untracked_instance_norm_takes_its_input_and_learns_nothing(training, rng):
    """As one that was made so; PyTorch's gives the same, but goes on blending its input into the running statistics."""
    x, layer = rng.standard_normal((4, 3, 5)), nn.InstanceNorm1d(3, track_running_stats=True, dtype=mn.float64)
    layer.train(training)
    layer.track_running_stats = False
    want = (x - x.mean(2, keepdims=True)) / np.sqrt(x.var(2, keepdims=True) + layer.eps)
    np.testing.assert_allclose(layer(mn.tensor(x)).numpy(), want, rtol=1e-9)
    assert (layer.running_mean.numpy().tolist(), layer.num_batches_tracked.item()) == ([0.0, 0.0, 0.0], 0)


def test_tracking_needs_statistics():
    layer = nn.BatchNorm1d(2, track_running_stats=False)
    with pytest.raises(ValueError, match="BatchNorm1d: track_running_stats=True, but the layer has no running"):
        layer.track_running_stats = True
    assert layer.track_running_stats is False
    with pytest.raises(ValueError, match="BatchRenorm1d: track_running_stats is False"):
        nn.BatchRenorm1d(2).track_running_stats = False


def test_a_low_momentum_warns_wherever_it_arrives():
    layer, sync = nn.BatchNorm1d(2), nn.SyncBatchNorm(2)
    x, mean, var = mn.tensor([[1.0], [3.0]]), mn.zeros(1), mn.ones(1)
    y = x.reshape(1, 1, 2)

    def by_apply():
        nn.Sequential(layer).apply(lambda module: setattr(module, "momentum", 0.1))

    for program in (
        lambda: setattr(layer, "momentum", 0.1),
        lambda: setattr(sync, "momentum", 0.1),
        lambda: setattr(nn.BatchRenorm1d(2), "momentum", 0.1),
        by_apply,
        lambda: F.batch_norm(x, mean, var, training=True, momentum=0.1),
        lambda: F.instance_norm(y, mean, var, momentum=0.1),
        lambda: F.ghost_batch_norm(x, mean, var, 2, training=True, momentum=0.1),
        lambda: F.batch_renorm(x, mean, var, training=True, momentum=0.1),
    ):
        with pytest.warns(UserWarning, match="momentum=0.1 keeps 10%.*PyTorch's momentum=0.1 is momentum=0.9") as found:
            program()
        assert [warning.filename for warning in found] == [__file__]
    with warnings.catch_warnings():  # a layer has said it; evaluation has no use for it
        warnings.simplefilter("error")
        layer(mn.ones(3, 2)), layer.forward(mn.ones(3, 2))
        F.batch_norm(x, mean, var, momentum=0.1)
        layer.momentum = None
        layer.momentum = 0.75
    for wrong, error in (("x", TypeError), (1.5, ValueError)):
        with pytest.raises(error, match=f"BatchNorm1d: momentum.*{wrong}"):
            layer.momentum = wrong
    assert layer.momentum == 0.75


# Batches whose statistics are not finite

KEEPING = {
    "BatchNorm": nn.BatchNorm1d,
    "cumulative": lambda c, **options: nn.BatchNorm1d(c, momentum=None, **options),
    "unbiased": lambda c, **options: nn.BatchNorm1d(c, unbiased_running_var=True, **options),
    "half": lambda c, **options: nn.BatchNorm1d(c, dtype=mn.float16, **options),
    "reference": lambda c, **options: nn.BatchNorm1d(c, backend=reference.norm, **options),
    "ghost": lambda c, **options: nn.GhostBatchNorm(c, 4, **options),
    "ghosts": lambda c, **options: nn.GhostBatchNorm(c, 2, **options),
    "renorm": lambda c, **options: nn.BatchRenorm1d(c, rmax=2.0, dmax=1.0, **options),
    "sync": nn.SyncBatchNorm,
    "instance": lambda c, **options: nn.InstanceNorm1d(c, track_running_stats=True, **options),
}


def _batch(bad=None):
    x = np.random.default_rng(0).standard_normal((4, 3, 5)).astype(np.float32)
    if bad is not None:
        x[0, 1, 2] = x[2, 1, 0] = bad
    return mn.tensor(x)


@pytest.mark.filterwarnings("ignore:invalid value encountered")  # in the reference, which is NumPy
@pytest.mark.parametrize(
    ("name", "masked"),
    [
        *((name, False) for name in KEEPING),
        *((name, True) for name in KEEPING if name not in ("ghost", "ghosts", "renorm")),
    ],
)
def test_a_batch_that_is_not_finite_moves_nothing(name, masked):
    layer = KEEPING[name](3)
    given = (mn.tensor(np.arange(5) < 4),) if masked else ()
    dtype = mn.float16 if name == "half" else mn.float32
    layer(_batch().to(dtype), *given)
    before = {key: value.numpy().copy() for key, value in layer.state_dict().items()}
    for bad in (np.inf, -np.inf, np.nan):
        layer(_batch(bad).to(dtype), *given)
    for key, value in layer.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), before[key], err_msg=key)
    assert layer.skipped_batches == (6 if name == "ghosts" else 3)
    assert not any("skipped" in key for key in layer.state_dict())
    assert np.isfinite(layer.eval()(_batch().to(dtype)).numpy()).all()
    layer.reset_running_stats()
    assert layer.skipped_batches == 0


@pytest.mark.parametrize("name", ["BatchNorm", "instance"])
def test_update_nonfinite_is_what_pytorch_does(name):
    torch = pytest.importorskip("torch")
    layer = KEEPING[name](3, update_nonfinite=True, unbiased_running_var=True)
    theirs = (torch.nn.BatchNorm1d if name == "BatchNorm" else torch.nn.InstanceNorm1d)(3, track_running_stats=True)
    for x in (_batch(), _batch(np.nan), _batch()):
        layer(x)
        theirs(torch.tensor(x.numpy()))
    np.testing.assert_allclose(layer.running_mean.numpy(), theirs.running_mean.numpy(), rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(layer.running_var.numpy(), theirs.running_var.numpy(), rtol=1e-5)
    assert np.isnan(layer.running_mean.numpy()).tolist() == [False, True, False]
    assert (layer.skipped_batches, layer.num_batches_tracked.item()) == (0, 3)
    assert "update_nonfinite=True" in repr(layer)


def test_a_variance_beyond_the_type_is_left_out():
    """x is finite in float32, a tenth of its variance is not: 1e40 / 10. A tenth of 9e38 is."""
    layer = nn.BatchNorm1d(3)
    layer(mn.tensor(np.float32([[3e19, 0, 0], [-3e19, 0, 0]])))
    assert layer.skipped_batches == 0
    np.testing.assert_allclose(layer.running_var.numpy(), [9e37, 0.9, 0.9], rtol=1e-6)
    layer(mn.tensor(np.float32([[1e20, 0, 0], [-1e20, 0, 0]])))
    assert layer.skipped_batches == 1
    np.testing.assert_allclose(layer.running_var.numpy(), [9e37, 0.9, 0.9], rtol=1e-6)


def test_the_function_has_both_options():
    mean, var, skipped = mn.zeros(3), mn.ones(3), mn.zeros((), dtype=mn.int64)
    F.batch_norm(_batch(np.inf), mean, var, training=True, skipped_batches=skipped)
    assert (mean.numpy().tolist(), skipped.item()) == ([0, 0, 0], 1)
    F.batch_norm(_batch(np.inf), mean, var, training=True, skipped_batches=skipped, update_nonfinite=True)
    assert (np.isnan(mean.numpy()).tolist(), skipped.item()) == ([False, True, False], 1)
    with pytest.raises(ValueError, match=r"skipped_batches is float32 of shape \(3,\); expected one integer"):
        F.batch_norm(_batch(), mean, var, training=True, skipped_batches=mn.zeros(3))
    with pytest.raises(TypeError, match="update_nonfinite is 'no'; expected True or False"):
        F.batch_norm(_batch(), mean, var, training=True, update_nonfinite="no")


def test_an_export_after_an_overflow_is_unharmed():
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    import io

    from minorm import onnx

    model = nn.Sequential(nn.BatchNorm1d(3))
    model(_batch())
    model(_batch(np.inf))
    for training in (False, True):
        onnx.export(model.train(training), _batch(), io.BytesIO())
    file = io.BytesIO()
    onnx.export(model.eval(), _batch(), file)
    session = runtime.InferenceSession(file.getvalue(), providers=["CPUExecutionProvider"])
    found = session.run(None, {session.get_inputs()[0].name: _batch().numpy()})[0]
    x = _batch().numpy().astype(np.float64)
    mean, var = 0.1 * x.mean((0, 2)), 0.9 + 0.1 * x.var((0, 2))
    expected = (x - mean[:, None]) / np.sqrt(var[:, None] + 1e-5)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_large_numbers_of_float64_are_no_overflow():
    layer = nn.BatchNorm1d(2, dtype=mn.float64)
    layer(mn.tensor(np.array([[1e100, 0], [-1e100, 0]])))
    np.testing.assert_allclose(layer.running_var.numpy(), [1e199, 0.9])
    layer(mn.tensor(np.array([[1e160, 0], [-1e160, 0]])))  # whose square is not in float64
    np.testing.assert_allclose(layer.running_var.numpy(), [1e199, 0.9])
    assert (layer.skipped_batches, layer.num_batches_tracked.item()) == (1, 1)


@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
def test_a_product_that_overflows_under_autocast():
    """The statistics leave out the batches that a GradScaler's step leaves out because gradients are not finite."""
    mn.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
    x = mn.randn(8, 4)
    with mn.autocast("cpu", dtype=mn.float16):
        model(x)
        before = {key: value.numpy().copy() for key, value in model.state_dict().items()}
        model(x * 1e6)  # 65504 is the largest number of float16
        for key, value in model.state_dict().items():
            np.testing.assert_array_equal(value.numpy(), before[key], err_msg=key)
        model(x)
    norm = model[1]
    assert (norm.skipped_batches, norm.num_batches_tracked.item()) == (1, 2)
    seen = (x.numpy() @ model[0].weight.numpy().T + model[0].bias.numpy()).astype(np.float64).mean(0)
    np.testing.assert_allclose(norm.running_mean.numpy(), seen * 0.19, rtol=2e-3, atol=1e-4)


def _expected(layer, x, mean, var):
    """y in float64, by the layer's attributes of now; mean and var are the running ones."""
    x = x.astype(np.float64)
    axes, shape = (0, 2, 3), (1, -1, 1, 1)
    if layer.training and not layer.frozen:
        mean, var = x.mean(axes), x.var(axes)
    y = (x - mean.reshape(shape)) / np.sqrt(var.reshape(shape) + layer.eps)
    for parameter, apply in ((layer.weight, np.multiply), (layer.bias, np.add)):
        y = y if parameter is None else apply(y, parameter.detach().numpy().astype(np.float64).reshape(shape))
    return y


def test_what_is_set_after_the_first_call_counts(rng):
    """Each attribute, one after the other: the result is that of the values of now, never of those of before."""
    layer = nn.BatchNorm2d(3)
    layer.weight.data, layer.bias.data = (mn.tensor(rng.standard_normal(3), dtype=mn.float32) for _ in range(2))
    x = (rng.standard_normal((4, 3, 5, 2)) * 2 + 1).astype(np.float32)
    called = []

    def moments(*args, **options):
        called.append(args)
        return reference.norm.moments(*args, **options)

    steps = {
        "nothing": lambda: None,
        "eps": lambda: setattr(layer, "eps", 3.0),
        "momentum": lambda: setattr(layer, "momentum", 0.75),
        "eval": layer.eval,
        "eps in evaluation": lambda: setattr(layer, "eps", 0.5),
        "train": layer.train,
        "training": lambda: setattr(layer, "training", False),
        "training again": lambda: setattr(layer, "training", True),
        "no weight": lambda: setattr(layer, "weight", None),
        "no bias": lambda: setattr(layer, "bias", None),
        "weight again": lambda: setattr(layer, "weight", nn.Parameter(mn.tensor([2.0, 3.0, -1.0]))),
        "frozen": lambda: setattr(layer, "frozen", True),
        "thawed": lambda: setattr(layer, "frozen", False),
        "float64": layer.double,
        "float32": lambda: layer.to(mn.float32),
        "compute_dtype": lambda: setattr(layer, "compute_dtype", mn.float64),
        "no compute_dtype": lambda: setattr(layer, "compute_dtype", None),
        "variance": lambda: setattr(layer, "variance", "two_pass"),
        "no variance": lambda: setattr(layer, "variance", None),
        "backend": lambda: setattr(layer, "backend", PartialBackend(moments=moments)),
        "no backend": lambda: setattr(layer, "backend", None),
        "unbiased": lambda: setattr(layer, "unbiased_running_var", True),
        "momentum None": lambda: setattr(layer, "momentum", None),
        "momentum again": lambda: setattr(layer, "momentum", 0.5),
    }
    for name, change in steps.items():
        change()
        mean, var, count = (
            t.numpy().astype(np.float64) for t in (layer.running_mean, layer.running_var, layer.num_batches_tracked)
        )
        before = len(called)
        for shape_of in (lambda a: a, lambda a: np.ascontiguousarray(a.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)):
            layer.running_mean.copy_(mn.tensor(mean.astype(layer.running_mean.dtype)))
            layer.running_var.copy_(mn.tensor(var.astype(layer.running_var.dtype)))
            layer.num_batches_tracked.fill_(int(count))
            given = mn.tensor(shape_of(x))
            y = layer(given)
            assert y.dtype == given.dtype, name
            np.testing.assert_allclose(y.detach().numpy(), _expected(layer, x, mean, var), atol=3e-6, err_msg=name)
        assert (len(called) > before) == (name == "backend"), name
        learns = layer.training and not layer.frozen
        keep = 1.0 if not learns else count / (count + 1) if layer.momentum is None else layer.momentum
        whole = x.astype(np.float64)
        batch_var = whole.var((0, 2, 3)) * (40 / 39 if layer.unbiased_running_var else 1)
        expected = mean * keep + whole.mean((0, 2, 3)) * (1 - keep), var * keep + batch_var * (1 - keep)
        np.testing.assert_allclose(layer.running_mean.numpy(), expected[0], rtol=2e-5, err_msg=name)
        np.testing.assert_allclose(layer.running_var.numpy(), expected[1], rtol=2e-5, err_msg=name)
        assert layer.num_batches_tracked.item() == count + learns, name


@pytest.mark.parametrize(
    ("layer", "shape", "name", "value"),
    [
        (lambda: nn.LayerNorm(6), (4, 6), "eps", 2.0),
        (lambda: nn.LayerNorm(6), (4, 6), "weight", None),
        (lambda: nn.LayerNorm(6), (4, 6), "bias", None),
        (lambda: nn.LayerNorm(6), (4, 6), "normalized_shape", (4, 6)),
        (lambda: nn.RMSNorm(6), (4, 6), "eps", 2.0),
        (lambda: nn.GroupNorm(2, 6), (4, 6), "num_groups", 3),
        (lambda: nn.GroupNorm(2, 6), (4, 6), "eps", 2.0),
        (lambda: nn.InstanceNorm1d(6, affine=True), (4, 6, 5), "eps", 2.0),
        (lambda: nn.InstanceNorm1d(6, affine=True), (4, 6, 5), "weight", None),
        (lambda: nn.MeanVarianceNorm((1,)), (4, 6), "axes", (0,)),
        (lambda: nn.MeanVarianceNorm((1,)), (4, 6), "eps", 2.0),
        (lambda: nn.Normalization(axes=(1,)), (4, 6), "axes", (0,)),
        (lambda: nn.FilterResponseNorm2d(3), (2, 3, 4, 4), "eps", 2.0),
        (lambda: nn.FrozenBatchNorm2d(3), (2, 3, 4, 4), "eps", 2.0),
    ],
)
def test_the_others_see_what_is_set_later_too(layer, shape, name, value, rng):
    """As a layer that was never called before."""
    x = mn.tensor(rng.standard_normal(shape).astype(np.float32))
    called, fresh = layer(), layer()
    for one in (called, fresh):
        for i, parameter in enumerate([*one.parameters(), *one.buffers()]):
            parameter.data.copy_(mn.tensor(np.random.default_rng(i).random(parameter.shape).astype(np.float32)))
    before = called(x).detach().numpy()
    for one in (called, fresh):
        if name == "normalized_shape":
            one.weight = one.bias = None
        setattr(one, name, value)
    after = called(x).detach().numpy()
    np.testing.assert_array_equal(after, fresh(x).detach().numpy())
    assert not np.allclose(after, before)
