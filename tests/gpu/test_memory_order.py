"""Operations keep the order of memory on a GPU: images with channels last give results with channels last.

All public functionals and methods of a Tensor are tried with such images, with each of some arguments that they may
take; so are the gradients. And in training steps of networks nothing is brought into another order.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from typing import Any

import cudnn_double
import numpy as np
import pytest

import minorm as mn
import minorm.functional as F
from benchmarks import networks
from minorm import models, nn, optim
from minorm.distributed import DistributedDataParallel, simulate

SHAPE = (2, 4, 5, 6)
OPERATORS = {
    f"__{name}__"
    for prefix, names in (
        ("", "abs add eq floordiv ge gt le lt mod mul ne neg pow sub truediv"),
        ("i", "add mul sub truediv"),
        ("r", "add mul sub truediv"),
    )
    for name in (prefix + name for name in names.split())
}
OTHERWISE = {  # where the result lies otherwise, and why
    "argsort": "CuPy sorts along the last axis",
    "avg_pool3d": "four axes are one image of three: the last one lies first",
    "bernoulli": "numbers are drawn row by row, as on the CPU",
    "channel_shuffle": "channels are regrouped by a reshape, which goes row by row",
    "contiguous": "it asks for rows",
    "cuda": "it asks for another GPU",
    "lp_pool3d": "four axes are one image of three: the last one lies first",
    "max_pool3d": "four axes are one image of three: the last one lies first",
    "native_channel_shuffle": "channels are regrouped by a reshape, which goes row by row",
    "new_tensor": "it makes a tensor of a list or an array, in rows",
    "roll": "without an axis it goes over all elements, row by row",
    "scaled_dot_product_attention": "a product of matrices",
    "sort": "CuPy sorts along the last axis",
    "tile": "its gradient is added up row by row",
    "unique": "rows are sorted",
}


def images(seed: int, requires_grad: bool = False) -> mn.Tensor:
    """Images whose channels come last in memory."""
    rows = np.random.default_rng(seed).standard_normal([SHAPE[axis] for axis in (0, 2, 3, 1)], np.float32)
    return mn.tensor(rows).to("cuda").permute(0, 3, 1, 2).detach().requires_grad_(requires_grad)


def is_last(x: Any) -> bool:
    return bool(x.array.strides == tuple(x.array.itemsize * step for step in (120, 1, 24, 4)))


def arguments() -> Iterator[tuple[Any, ...]]:
    """Yield the arguments that a function of images may take besides them."""
    y, row, mean, var = images(1), *(mn.ones(4, device="cuda") for _ in range(3))
    yield from [(), (y,), (row.reshape(4, 1, 1),), (0.5,), (2,), (1,), (-1.0, 1.0), (1, 0), ((1, 1),), (3, 1, 1)]
    yield from [(y, y), (y > 0, y), (y > 0, 0.5)]
    yield from [(row, row), (None, None, row, row, True), (mean, var, row, row), (2, row, row)]


def results(function: Any, changes: bool) -> Iterator[tuple[Any, mn.Tensor, mn.Tensor]]:
    """(arguments, images, a result of their shape) for some of the arguments that the function takes."""
    taken = 0
    for given in arguments():
        if taken == 4:
            return
        x = images(0, requires_grad=not changes)
        mn.manual_seed(0)
        try:
            found = function(x, *given)
        except Exception:  # noqa: BLE001
            continue  # it takes others
        for y in found if isinstance(found, tuple) else (found,):
            if isinstance(y, mn.Tensor) and y.shape == SHAPE and y.device != "cpu":
                taken += 1
                yield given, x, y


def gone_astray(function: Any, changes: bool) -> list[str] | None:
    """Results and gradients that lie otherwise; None where the function has no result of the images' shape."""
    astray: list[str] | None = None
    for given, x, y in results(function, changes):
        astray = astray or []
        told = ", ".join("a Tensor" if isinstance(value, mn.Tensor) else repr(value) for value in given)
        if not is_last(y):
            astray.append(f"({told}): result")
        if y.requires_grad and y.dtype == x.dtype and y.device == x.device:
            y.backward(images(2).to(y.device))
            if x.grad is not None and not is_last(x.grad):
                astray.append(f"({told}): gradient")
    return astray


FUNCTIONALS = {name: getattr(F, name) for name in dir(F) if callable(getattr(F, name)) and not name.startswith("_")}
METHODS = {
    name: getattr(mn.Tensor, name)
    for name in dir(mn.Tensor)
    if callable(getattr(mn.Tensor, name)) and (not name.startswith("_") or name in OPERATORS)
}
PARTS = 9
CASTS = {"bfloat16", "bool", "byte", "double", "float", "half", "int", "long", "short"}  # whose argument is an order


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("part", range(PARTS))
def test_what_keeps_the_shape_keeps_the_order(part: int, cuda: Any) -> None:
    found = {}
    for name, function in [*FUNCTIONALS.items(), *METHODS.items()][part::PARTS]:
        changes = name.endswith("_") and (not name.startswith("__") or name.startswith("__i"))
        if name in CASTS:
            function = lambda x, of=function: of(x)  # noqa: E731
        found[name] = gone_astray(function, changes)
    assert {name: places for name, places in found.items() if places and name not in OTHERWISE} == {}
    tried = [name for name, places in found.items() if places is not None]
    assert len(tried) > len(found) / 3  # others take no images, or have results of another shape


def test_the_list_is_no_longer_than_it_needs_to_be(cuda: Any) -> None:
    for name in OTHERWISE:
        assert gone_astray(FUNCTIONALS.get(name) or METHODS[name], False), name


def test_joining_and_casting(cuda: Any) -> None:
    x, y = images(0, True), images(1, True)
    for joined in (mn.cat([x, y], 1), mn.cat([x, y], 0), F.pad(x, (1, 2, 0, 1))):
        steps = joined.array.strides
        assert steps[1] == 4
        assert steps[0] > steps[2] > steps[3] > 4
        joined.backward(joined.detach())
    assert is_last(x.grad)
    for dtype in (mn.bfloat16, mn.float16, mn.float64):
        assert is_last(x.to(dtype))
    x.grad = None
    larger = F.interpolate(x, scale_factor=2)
    assert larger.array.strides == (1920, 4, 192, 16)
    larger.backward(larger.detach())
    assert is_last(x.grad)
    with mn.autocast("cuda", dtype=mn.bfloat16):
        assert is_last(F.relu(x * 0.5 + 1))


@pytest.fixture
def cudnn(cuda: Any, monkeypatch: Any) -> Iterator[Any]:
    from minorm.kernels.gpu import conv_cudnn

    monkeypatch.setattr(conv_cudnn, "cudnn", cudnn_double)
    allowed = mn.backends.cudnn.allow_tf32
    conv_cudnn._call.cache_clear()
    yield cudnn_double
    conv_cudnn._call.cache_clear()
    mn.backends.cudnn.allow_tf32 = allowed


@pytest.mark.parametrize("how", ["float32 by TF32", "bfloat16"])
@pytest.mark.parametrize("name", ["resnet20", "unet", "densenet"])
def test_a_training_step_turns_nothing(name: str, how: str, cudnn: Any, cuda: Any) -> None:
    """Neither images nor weights nor gradients; and each of cuDNN's graphs has one order for all its arrays."""
    mn.manual_seed(0)
    mn.backends.cudnn.allow_tf32 = how != "bfloat16"
    model: Any = models.build(name, 3, 8, 10) if name == "resnet20" else getattr(networks, name)(mn)
    model = model.to("cuda")
    loss_function, optimizer = nn.CrossEntropyLoss(), optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    rng = np.random.default_rng(0)
    x = mn.tensor(rng.standard_normal((2, 3, 8, 8), np.float32)).to("cuda").to(memory_format=mn.channels_last)
    labels = mn.tensor(rng.integers(0, 10, (2, 8, 8) if name == "unet" else 2)).to("cuda")

    def step() -> None:
        with mn.autocast("cuda", dtype=mn.bfloat16) if how == "bfloat16" else contextlib.nullcontext():
            loss = loss_function(model(x), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    step()  # in bfloat16, the first convolutions lay the weights, which are float32
    cuda.transfers.clear()
    cudnn.strides.clear()
    step()
    assert set(cuda.transfers.launches) == {"cudnn", "gemm"} - ({"gemm"} if name == "unet" else set())
    assert cuda.transfers.turned == []
    assert set(cudnn.strides) == {(True, True, True)}
    for p in model.parameters():
        assert p.grad.array.strides == p.array.strides == optimizer.state[p]["momentum_buffer"].strides


def test_the_double_sees_what_is_turned(cuda: Any) -> None:
    x = images(0)
    cuda.transfers.clear()
    x.contiguous()
    assert cuda.transfers.turned == [SHAPE]  # by a kernel of ours
    x.array.copy()
    x.array.reshape(-1)
    x.array + x.array
    assert len(cuda.transfers.turned) == 5  # and by CuPy: a sum reads two
    cuda.transfers.clear()
    x + x
    x.clone()
    assert cuda.transfers.turned == []


# The weights of convolutions


def lies_last(array: Any) -> bool:
    """Are the channels last, and is the array not in C order as well?"""
    return not array.flags.c_contiguous and bool(np.moveaxis(array.memory, 1, -1).flags.c_contiguous)


def test_weights_are_laid_last_where_tensor_cores_compute(cudnn: Any, cuda: Any) -> None:
    layers = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ConvTranspose2d(4, 3, 2), nn.Conv2d(3, 5, 1), nn.Linear(2, 2))
    rows = {name: value.numpy().copy() for name, value in layers.state_dict().items()}
    for dtype, tf32, expected in (
        (mn.float32, False, False), (mn.float32, True, True), (mn.float16, False, True), (mn.bfloat16, False, True),
        (mn.float64, True, False),
    ):  # fmt: skip
        mn.backends.cudnn.allow_tf32 = tf32
        model = copy.deepcopy(layers).to("cuda", dtype)
        assert [lies_last(p.array) for p in model.parameters()] == [expected, False, expected, *[False] * 5]
        for name, value in model.state_dict().items():  # bits and order of the CPU
            for found in (value.cpu().numpy(), value.numpy(force=True)):
                assert found.flags.c_contiguous
                np.testing.assert_array_equal(found, rows[name].astype(dtype))
        back = model.to("cpu")
        assert all(p.array.flags.c_contiguous for p in back.parameters())


def test_the_first_convolution_in_autocast_lays_its_weights(cudnn: Any, cuda: Any) -> None:
    mn.manual_seed(0)
    layer = nn.Conv2d(3, 4, 3).to("cuda")
    x = images(0)[:, :3]
    plain = layer(x)
    plain.sum().backward()
    old, version = layer.weight.array, layer.weight.version
    assert not lies_last(old)  # float32 without TF32 stays in rows
    with mn.autocast("cuda", dtype=mn.bfloat16):
        y = layer(x)
        y.sum().backward()
        laid = layer.weight.array
        layer(x)
    assert layer.weight.array is laid  # once
    assert layer.weight.version is not version
    assert lies_last(laid)
    assert lies_last(layer.weight.grad.array)
    np.testing.assert_array_equal(laid.get(), old.get())
    cudnn.strides.clear()
    again = layer(x)  # rows again: it reads weights of either order
    np.testing.assert_array_equal(again.cpu().numpy(), plain.cpu().numpy())
    again.sum().backward()
    assert lies_last(layer.weight.grad.array)


def test_a_state_that_was_loaded_first_follows_its_weights(cudnn: Any, cuda: Any) -> None:
    def trained(resumed: bool) -> tuple[Any, Any]:
        mn.manual_seed(0)
        layer = nn.Conv2d(3, 4, 3).to("cuda")
        optimizer = optim.Adam(layer.parameters(), lr=0.1)
        for number in range(3):
            if resumed and number == 2:
                state, entries = optimizer.state_dict(), layer.state_dict()
                layer, optimizer = nn.Conv2d(3, 4, 3).to("cuda"), None
                optimizer = optim.Adam(layer.parameters(), lr=0.1)
                optimizer.load_state_dict(state)
                layer.load_state_dict({name: value.cpu() for name, value in entries.items()})
            with mn.autocast("cuda", dtype=mn.bfloat16):
                loss = layer(images(number)[:, :3]).square().mean()
            optimizer.zero_grad()
            loss.backward()
            cuda.transfers.clear()
            optimizer.step()
            assert not resumed or set(cuda.transfers.launches) <= {"zeros_like"}  # our kernel, not the reference
        assert lies_last(layer.weight.array)
        assert all(lies_last(optimizer.state[layer.weight][name]) for name in ("exp_avg", "exp_avg_sq"))
        return layer.weight.cpu().numpy(), optimizer.state_dict()

    straight, resumed = trained(False), trained(True)
    np.testing.assert_array_equal(straight[0], resumed[0])
    saved = {key: value for key, value in resumed[1]["state"][0].items() if key != "step"}
    assert all(value.get().flags.c_contiguous for value in saved.values())


def test_files_have_the_rows_of_weights(cudnn: Any, cuda: Any, tmp_path: Any) -> None:
    layer = nn.Conv2d(3, 4, 3)
    rows = layer.weight.numpy().copy()
    layer = layer.to("cuda", mn.float16)
    mn.save(layer.state_dict(), tmp_path / "state.npz")
    mn.onnx.export(layer, mn.zeros(1, 3, 5, 5, dtype=mn.float16, device="cuda"), tmp_path / "layer.onnx")
    for loaded in (mn.load(tmp_path / "state.npz"), mn.onnx.load(tmp_path / "layer.onnx").state_dict()):
        (weight,) = [value.cpu().numpy() for name, value in loaded.items() if "weight" in name]
        np.testing.assert_array_equal(weight, rows.astype(np.float16))
    laid = layer.weight.array
    layer.load_state_dict({name: value.cpu() * 2 for name, value in layer.state_dict().items()})
    assert layer.weight.array is laid
    np.testing.assert_array_equal(laid.get(), rows.astype(np.float16) * 2)


def test_a_module_takes_an_order(cudnn: Any, cuda: Any) -> None:
    module = nn.ModuleList([nn.Conv2d(2, 3, 3), nn.Conv3d(2, 3, 2), nn.Linear(2, 3)])
    assert module.to(memory_format=mn.channels_last) is module
    assert all(p.array.flags.c_contiguous for p in module.parameters())  # harmless on the CPU
    weights = [layer.weight for layer in module]
    module.to("cuda", memory_format=mn.channels_last)
    assert [lies_last(w.array) for w in weights] == [True, False, False]
    module.to(memory_format=mn.channels_last_3d)
    assert [lies_last(w.array) for w in weights] == [True, True, False]
    module.to(memory_format=mn.preserve_format)
    module.to("cuda:1")  # the other GPU's arrays lie so too
    assert [lies_last(w.array) for w in weights] == [True, True, False]
    module.to(memory_format=mn.contiguous_format)
    assert [lies_last(w.array) for w in weights] == [False] * 3
    with pytest.raises(ValueError, match="memory_format='last'"):
        module.to(memory_format="last")
    x = mn.randn(2, 3, 4, 5).to("cuda")
    last = x.contiguous(memory_format=mn.channels_last)
    assert last.stride() == (60, 1, 15, 3)
    assert last.is_contiguous(memory_format=mn.channels_last)
    assert last.contiguous(mn.channels_last) is last
    np.testing.assert_array_equal(last.contiguous().cpu().numpy(), x.cpu().numpy())


def test_graphed_steps_averages_and_ranks_keep_the_order(cudnn: Any, cuda: Any) -> None:
    x, labels = images(0)[:, :3].contiguous(mn.channels_last), mn.tensor([1, 2]).to("cuda")

    def trained(graphed: bool) -> tuple[list[Any], Any]:
        mn.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()).to("cuda")
        average = optim.swa_utils.AveragedModel(model, multi_avg_fn=optim.swa_utils.get_ema_multi_avg_fn(0.9))
        optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

        def step(x: mn.Tensor, labels: mn.Tensor) -> mn.Tensor:
            optimizer.zero_grad()
            with mn.autocast("cuda", dtype=mn.bfloat16):
                loss = F.cross_entropy(model(x), labels)
            loss.backward()
            optimizer.step()
            return loss

        run: Any = mn.cuda.make_graphed_step(step, x, labels) if graphed else step
        losses = []
        for _ in range(6):
            losses.append(run(x, labels).item())
            average.update_parameters(model)
            assert lies_last(model[0].weight.array)
            assert lies_last(average.module[0].weight.array)
        assert not graphed or run.captured
        return losses, average.module[0].weight.cpu().numpy()

    for found, right in zip(trained(True), trained(False), strict=True):
        np.testing.assert_array_equal(found, right)

    def program(group: Any) -> bool:
        layer = nn.Conv2d(3, 4, 3).to("cuda", mn.float16)
        model = DistributedDataParallel(layer, group)
        for _ in range(2):
            loss = model(x.to(mn.float16)).float().mean()
            model.backward(loss, 2)
        return lies_last(layer.weight.grad.array)

    assert simulate(2, program) == [True, True]
