"""profile: which events there are, where they belong, what they sum to, and that a profile changes nothing."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest

import minorm as mn
import minorm.functional as F
from minorm import nn
from minorm.autograd.function import Function as UsersFunction
from minorm.data import ArrayDataset, DataLoader
from minorm.graph import backward, custom_function, graph, recorded
from minorm.optim import Optimizer
from minorm.profiler import ProfilerActivity, profile, record_function
from minorm.profiler.event_recorder import here
from minorm.profiler.events import Event


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8))
        self.act = nn.ReLU()
        self.head = nn.Linear(8, 4)

    def forward(self, x: mn.Tensor) -> mn.Tensor:
        return self.head(self.act(self.body(x)).mean((2, 3)))


def step(model: nn.Module, x: mn.Tensor, y: mn.Tensor, optimizer: Optimizer) -> mn.Tensor:
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


def batch(n: int = 4, side: int = 8) -> tuple[mn.Tensor, mn.Tensor]:
    numbers = np.random.default_rng(0).standard_normal((n, 3, side, side)).astype(np.float32)
    return mn.tensor(numbers), mn.tensor(np.arange(n) % 4)


def trained(steps: int = 2, **options: Any) -> tuple[profile, nn.Module]:
    mn.manual_seed(0)
    model = Net()
    optimizer = mn.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    with profile(**options) as prof:
        for _ in range(steps):
            step(model, *batch(), optimizer)
            prof.step()
    return prof, model


def rows(prof: profile, **how: bool) -> dict[str, Any]:
    return {row.key: row for row in prof.key_averages(**how)}


def named(prof: profile, name: str) -> list[Event]:
    return [event for event in prof.events() if event.name == name]


# Which events there are


def test_operations_are_counted_forward_and_backward() -> None:
    found = rows(trained(steps=3)[0])
    for name in ("Convolution", "Normalize", "Relu", "Linear", "CrossEntropy"):
        assert found[name].count == found[f"{name}Backward"].count == 3
    assert found["Optimizer.step#SGD.step"].count == 3


def test_layers_have_the_names_of_the_state_dict() -> None:
    prof, model = trained()
    found = rows(prof, group_by_layer=True)
    for path, module in model.named_modules():
        label = f"{path} ({type(module).__name__}, " if path else "Net ("
        assert found[f"{label}forward)"].count == 2, path
        if list(module.parameters(recurse=False)):
            assert found[f"{label}backward)"].self_cpu_time_total > 0, path


def test_each_operation_belongs_to_its_layer_in_both_passes() -> None:
    prof, _ = trained(steps=1)
    where = {event.name: [layer.path for layer in event.layers] for event in prof.events()}
    assert where["Convolution"] == where["ConvolutionBackward"] == ["", "body", "body.0"]
    assert where["Linear"] == where["LinearBackward"] == ["", "head"]
    assert where["CrossEntropy"] == where["CrossEntropyBackward"] == []


def test_every_event_lies_inside_the_one_around_it() -> None:
    prof, _ = trained()
    assert prof.events()
    for event in prof.events():
        assert 0 <= event.start <= event.end
        if event.parent is not None:
            assert event.parent.start <= event.start
            assert event.end <= event.parent.end
        inside = sum(other.time for other in prof.events() if other.parent is event)
        assert event.nested == inside <= event.time


def test_a_function_of_the_users_is_one_event_in_either_form() -> None:
    class Ours(UsersFunction):
        def forward(self, x: Any) -> Any:
            return 2 * x

        def backward(self, dy: Any) -> Any:
            return 2 * dy

    class PyTorchs(UsersFunction):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, dy: Any) -> Any:
            return dy * 2

    x = mn.ones(3, requires_grad=True)
    with profile() as prof:
        (Ours.apply(x) + PyTorchs.apply(x)).sum().backward()
    assert [event.parent for event in named(prof, "Ours")] == [None]
    assert [event.parent for event in named(prof, "PyTorchs")] == [None]
    assert len(named(prof, "OursBackward")) == len(named(prof, "PyTorchsBackward")) == 1
    inner = [event for event in prof.events() if event.parent in named(prof, "PyTorchs")]
    assert [event.name for event in inner] == ["Mul"]


def test_second_gradients_are_seen_in_their_layer() -> None:
    layer = nn.Sequential(nn.Linear(2, 2))
    x = mn.ones(1, 2, requires_grad=True)
    with profile() as prof:
        (slope,) = mn.autograd.grad((layer(x) ** 3).sum(), x, create_graph=True)
        slope.sum().backward()
    (first, *others) = named(prof, "LinearBackward")
    assert first.backward
    assert [layer.path for layer in first.layers] == ["", "0"]
    inside = [event for event in prof.events() if event.parent is first]
    assert inside
    assert all(event.layers == first.layers and event.backward for event in inside)
    assert others or any(event.layers == first.layers for event in prof.events() if event.start > first.end)


def test_a_layer_that_is_called_as_a_function_has_its_name() -> None:
    class Functional(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.conv10 = nn.Conv2d(3, 2, 1), nn.Conv2d(2, 2, 1)

        def forward(self, x: mn.Tensor) -> mn.Tensor:
            return F.conv2d(F.conv2d(x, self.conv1.weight), self.conv10.weight)

    model = Functional()
    with profile() as prof:
        model(batch()[0]).sum().backward()
    assert [event.layers[-1].path for event in named(prof, "Convolution")] == ["conv1", "conv10"]
    assert [event.layers[-1].path for event in named(prof, "ConvolutionBackward")] == ["conv10", "conv1"]
    assert rows(prof, group_by_layer=True)["conv1 (Convolution, forward)"].count == 1


def test_two_models_whose_layers_have_the_same_name_are_told_apart() -> None:
    one, other = nn.Sequential(nn.Linear(2, 3)), nn.Sequential(nn.Linear(3, 2))
    with profile() as prof:
        other(one(mn.ones(1, 2)))
    found = rows(prof, group_by_layer=True)
    assert {"0 of model 1 (Linear, forward)", "0 of model 2 (Linear, forward)"} <= found.keys()


def test_a_loader_is_seen_each_time_that_it_is_asked() -> None:
    class Slow(ArrayDataset):
        def __getitem__(self, index: Any) -> Any:
            time.sleep(0.01)
            return super().__getitem__(index)

    loader = DataLoader(Slow(np.zeros((4, 2), np.float32), np.arange(4)), batch_size=2)
    with profile() as prof:
        for _ in loader:
            pass
    found = rows(prof)["DataLoader.__next__"]
    assert found.count == 3  # two batches, and the end
    assert found.cpu_time_total >= 20_000
    assert prof.summary().endswith("of the time is spent in DataLoader.__next__")


def test_a_loader_that_outlives_the_profile_goes_on() -> None:
    loader = DataLoader(ArrayDataset(np.arange(6, dtype=np.float32)), batch_size=2)
    with profile() as prof:
        batches = iter(loader)
        next(batches)
    seen = len(prof.events())
    assert len(list(batches)) == 2
    assert len(prof.events()) == seen


def test_a_graph_that_runs_by_a_plan_is_seen(tmp_path: Any) -> None:
    pytest.importorskip("onnx")
    import minorm.onnx

    model = Net().eval()
    x, _ = batch()
    minorm.onnx.export(model, x, str(tmp_path / "net.onnx"))
    loaded = minorm.onnx.load(str(tmp_path / "net.onnx")).eval()
    with mn.no_grad():
        for _ in range(4):
            loaded(x)
        with profile(profile_memory=True) as prof:
            loaded(x)
    (convolution,) = [event for event in prof.events() if event.name.startswith("Convolution")]
    assert convolution.layers[-1].path == "body.0"
    assert convolution.allocated == 4 * 8 * 8 * 8 * 4


def test_layers_of_a_graph_that_trains_have_the_names_of_its_weights(tmp_path: Any) -> None:
    pytest.importorskip("onnx")
    import minorm.onnx

    model = Net()
    x, y = batch()
    minorm.onnx.export(model.eval(), x, str(tmp_path / "net.onnx"))
    loaded = minorm.onnx.load(str(tmp_path / "net.onnx")).train()
    with profile() as prof:
        F.cross_entropy(loaded(x), y).backward()
    for name in ("Convolution", "ConvolutionBackward"):
        assert [event.layers[-1].path for event in named(prof, name)] == ["body.0"]


# Sums


def test_the_self_times_add_up_to_the_whole_and_operations_to_the_most_of_it() -> None:
    model, (x, y) = Net(), batch(32, 32)
    optimizer = mn.optim.SGD(model.parameters(), lr=0.1)
    step(model, x, y, optimizer)
    start = time.perf_counter()
    with profile() as prof:
        for _ in range(3):
            step(model, x, y, optimizer)
    wall = 1e6 * (time.perf_counter() - start)
    for how in ({}, {"group_by_layer": True}):
        found = prof.key_averages(**how)
        assert sum(row.self_cpu_time_total for row in found) == pytest.approx(found.total, rel=1e-9)
        assert found.total <= wall
        outside = next(row for row in found if row.key == "(outside of operations)")
        assert 0 <= outside.self_cpu_time_total < 0.5 * found.total


class Sleeper(nn.Module):
    def forward(self, x: mn.Tensor) -> mn.Tensor:
        time.sleep(0.05)
        return x * 2


def test_a_layer_that_waits_is_the_largest_and_its_parent_only_in_total() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(Sleeper()))
    with profile() as prof:
        model(mn.ones(1, 2))
    found = rows(prof, group_by_layer=True)
    assert found["1.0 (Sleeper, forward)"].self_cpu_time_total >= 50_000
    assert found["1 (Sequential, forward)"].self_cpu_time_total < 50_000
    assert found["1 (Sequential, forward)"].cpu_time_total >= 50_000
    assert found["Sequential (forward)"].cpu_time_total >= 50_000
    assert "is spent in 1.0 (Sleeper, forward)" in prof.summary()


def test_the_sentence_speaks_of_steps_where_there_are_some() -> None:
    prof, _ = trained()
    share, rest = prof.summary().split(" % of a step is spent in ")
    assert 0 < int(share) <= 100
    assert rest in {row.key for row in prof.key_averages(group_by_layer=True)} | {"Python outside of operations"}


def test_a_range_inside_itself_counts_once_in_its_total() -> None:
    @record_function("again")
    def again(depth: int) -> None:
        time.sleep(0.01)
        if depth:
            again(depth - 1)

    with profile() as prof:
        again(2)
    found = rows(prof)["again"]
    assert found.count == 3
    assert found.cpu_time_total == pytest.approx(found.self_cpu_time_total)
    assert found.cpu_time_total <= prof.key_averages().total


def test_shapes_are_told_apart_where_they_are_recorded() -> None:
    with profile(record_shapes=True) as prof:
        mn.ones(2, 3) * 2
        mn.ones(4) * 2
    found = [row for row in prof.key_averages(group_by_input_shape=True) if row.key == "Mul"]
    assert sorted(row.input_shapes[0] for row in found) == [(2, 3), (4,)]
    assert len([row for row in prof.key_averages() if row.key == "Mul"]) == 1


# Memory


def test_bytes_of_results_and_of_what_is_kept() -> None:
    x = mn.ones(10, 100, requires_grad=True)
    with profile(profile_memory=True) as prof:
        (x * 1.5).exp().sum().backward()
    found = rows(prof)
    assert found["Mul"].self_cpu_memory_usage == found["Exp"].self_cpu_memory_usage == 4000
    assert found["Exp"].kept_memory_usage == 4000  # its result; x * 1.5 needs nothing but a number
    assert found["Mul"].kept_memory_usage == 0
    assert found["ExpBackward"].self_cpu_memory_usage == 4000
    assert found["Sum"].self_cpu_memory_usage == 4


def test_views_and_parameters_take_no_memory() -> None:
    layer, x = nn.Linear(100, 10, bias=False), mn.ones(4, 10, 10)
    with profile(profile_memory=True) as prof:
        layer(x.reshape(4, 100)).sum().backward()
    found = rows(prof)
    assert found["Reshape"].cpu_memory_usage == 0
    assert found["Linear"].self_cpu_memory_usage == 160
    assert found["Linear"].kept_memory_usage == 1600 - 1600  # x's own memory, which is the user's


def test_the_peak_is_the_most_that_lived_at_a_time() -> None:
    with mn.no_grad(), profile(profile_memory=True) as prof:
        x = mn.ones(1000)  # not a result of an operation
        for _ in range(5):
            x = x + 1  # old and new: 2 x 4000 bytes
    assert prof.peak_memory == 8000
    x = mn.ones(1000)
    with mn.no_grad(), profile(profile_memory=True) as prof:
        kept = [x + i for i in range(5)]
    assert prof.peak_memory == 20_000
    assert len(kept) == 5


# A profile changes nothing


def test_a_profile_changes_no_bit() -> None:
    def weights(profiled: bool) -> list[Any]:
        mn.manual_seed(3)
        model = Net()
        optimizer = mn.optim.Adam(model.parameters(), lr=0.01)
        if profiled:
            with profile(profile_memory=True, record_shapes=True):
                for _ in range(3):
                    step(model, *batch(), optimizer)
        else:
            for _ in range(3):
                step(model, *batch(), optimizer)
        return [tensor.numpy() for tensor in model.state_dict().values()]

    for with_profile, without in zip(weights(True), weights(False), strict=True):
        np.testing.assert_array_equal(with_profile, without)


LISTENS = [
    (graph.Function, "apply"), (graph.Function, "differentiate"), (custom_function.Function, "apply"),
    (recorded, "differentiated"), (recorded, "add_to_leaves"), (backward, "gradients_of"), (nn.Module, "__call__"),
    (Optimizer, "step"), (DataLoader, "__iter__"),
]  # fmt: skip


def test_while_no_profile_is_open_the_methods_are_the_plain_ones() -> None:
    before = [vars(owner)[name] for owner, name in LISTENS]
    with profile():
        assert all(vars(owner)[name] is not b for (owner, name), b in zip(LISTENS, before, strict=True))
    assert all(vars(owner)[name] is b for (owner, name), b in zip(LISTENS, before, strict=True))
    with pytest.raises(KeyError), profile():
        raise KeyError
    assert all(vars(owner)[name] is b for (owner, name), b in zip(LISTENS, before, strict=True))
    assert here.recorder is None


def test_an_operation_that_raises_closes_its_events() -> None:
    model = nn.Sequential(nn.Linear(3, 2))
    with profile() as prof:
        with pytest.raises(ValueError, match="linear"):
            model(mn.ones(1, 5))
        mn.ones(2) * 2
    assert all(event.end for event in prof.events())
    assert named(prof, "Mul")[0].parent is None


def test_other_threads_are_not_seen_and_may_have_a_profile_themselves() -> None:
    results: dict[str, profile] = {}
    inside, done = threading.Event(), threading.Event()

    def other() -> None:
        inside.wait(10)
        mn.ones(2) - 1
        with profile() as own:
            mn.ones(2) / 2
        results["own"] = own
        done.set()

    thread = threading.Thread(target=other)
    thread.start()
    with profile() as prof:
        inside.set()
        mn.ones(2) * 2
        assert done.wait(10)
        mn.ones(2) * 2
    thread.join()
    assert [event.name for event in prof.events()] == ["Mul", "Mul"]
    assert [event.name for event in results["own"].events()] == ["Div"]


# Wrong uses


def test_wrong_uses_are_errors_in_words() -> None:
    with pytest.raises(RuntimeError, match="another profile is open in this thread"), profile(), profile():
        pass
    assert here.recorder is None
    prof = profile()
    with pytest.raises(RuntimeError, match="there are no results yet"):
        prof.key_averages()
    with pytest.raises(RuntimeError, match=r"stop\(\) was called, but this profile is not open"):
        prof.stop()
    with prof:
        mn.ones(2) * 2
    with pytest.raises(RuntimeError, match="was used before"):
        prof.start()
    with pytest.raises(RuntimeError, match="peak_memory was not counted"):
        _ = prof.peak_memory
    with pytest.raises(ValueError, match="needs profile"):
        prof.key_averages(group_by_input_shape=True)
    with pytest.raises(ValueError, match="sort_by is 'time'; expected one of count, cpu_time_total"):
        prof.key_averages().table(sort_by="time")
    with pytest.raises(TypeError, match="table: row_limit is 'a'; expected an int, -1 for all rows"):
        prof.key_averages().table(row_limit="a")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"activities\[0\] is 'cpu'; expected ProfilerActivity"):
        profile(activities=["cpu"])  # type: ignore[list-item]
    if not mn.cuda.is_available():
        with pytest.raises(RuntimeError, match="there is no GPU"):
            profile(activities=[ProfilerActivity.CUDA])


def test_a_range_outside_of_a_profile_does_nothing() -> None:
    with record_function("outside") as opened:
        assert opened.name == "outside"
    with record_function("across"), profile() as prof:
        pass
    assert prof.events() == []


def test_start_and_stop_are_a_with_by_hand() -> None:
    prof = profile(activities=[ProfilerActivity.CPU])
    prof.start()
    mn.ones(2) * 2
    prof.stop()
    assert [event.name for event in prof.events()] == ["Mul"]
