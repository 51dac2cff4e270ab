"""DistributedDataParallel trains as one process with the whole batch, with the same bits on any number of processes."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minorm as mn
import minorm.functional as F
from minorm import data, nn, optim
from minorm.devices import generators
from minorm.diagnosis.finite import NonFiniteLoss
from minorm.distributed import DistributedDataParallel, Group, RankError, simulate
from minorm.tensor.tensor import Tensor
from minorm.training import evaluate, predict
from tests.distributed.engines import on_processes
from tests.distributed.programs import digest, distance, images, network, train

# P1: as one process


@pytest.mark.parametrize("size", [3, 2, 4])  # parts of one length and of two
def test_p1_ranks_train_as_one_process_with_the_whole_batch(size: int) -> None:
    for dtype, most in ((np.float32, 1e-6), (np.float64, 1e-13)):
        one = simulate(1, lambda group, dtype=dtype: train(group, dtype=dtype))[0]
        found = simulate(size, lambda group, dtype=dtype: train(group, dtype=dtype))
        for rank in found:
            assert digest(rank) == digest(found[0])
        assert distance(found[0]["state"], one["state"]) <= most
        np.testing.assert_allclose(found[0]["losses"], one["losses"], rtol=1e3 * most)


@pytest.mark.parametrize(
    ("pool", "dtype", "most"),
    [(nn.AvgPool2d, np.float32, 1e-6), (nn.MaxPool2d, np.float64, 1e-13)],
)
def test_p1_of_a_wider_network(pool: Any, dtype: Any, most: float) -> None:
    """In float32 a maximum is of another element where rounding alone tells two apart, and its gradient goes there."""
    draw = np.random.default_rng(0)
    images = draw.standard_normal((10, 16, 3, 12, 12)).astype(dtype)
    labels = draw.integers(0, 10, (10, 16))

    def program(group: Group) -> dict[str, Any]:
        mn.manual_seed(0)
        layers = [nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), pool(2)]
        layers += [nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), pool(2)]
        network = nn.Sequential(*layers, nn.Flatten(), nn.Linear(288, 10)).to(dtype=dtype)
        model = DistributedDataParallel(nn.SyncBatchNorm.convert_sync_batchnorm(network, group), group)
        optimizer = optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        for batch in zip(images, labels, strict=True):
            x, y = (Tensor(np.array_split(part, group.size)[group.rank]) for part in batch)
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            model.backward(loss, len(y))
            optimizer.step()
        return {name: value.numpy().copy() for name, value in model.state_dict().items()}

    one = simulate(1, program)[0]
    for size in (2, 3, 4):
        assert distance(simulate(size, program)[0], one) <= most


def fault_share(self: Any, loss: Tensor, count: int) -> tuple[int, float]:
    _, whole = ROLL_CALL(self, loss, count)
    return count * self.group.size, whole  # as if all parts were of one size


ROLL_CALL = DistributedDataParallel._roll_call


def test_p1_catches_a_share_left_out_and_statistics_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    one = simulate(1, lambda group: train(group, dtype=np.float64))[0]
    with monkeypatch.context() as patch:
        patch.setattr(nn.SyncBatchNorm, "convert_sync_batchnorm", staticmethod(lambda module, group: module))
        alone = simulate(2, lambda group: train(group, dtype=np.float64))[0]
    assert distance(alone["state"], one["state"]) > 1e-3
    monkeypatch.setattr(DistributedDataParallel, "_roll_call", fault_share)
    assert distance(simulate(3, lambda group: train(group, dtype=np.float64))[0]["state"], one["state"]) > 1e-6


# P2: the same bits


@pytest.mark.parametrize("batch_size", [5, 25])  # 5 images for 8 ranks; parts of 3 and 4 images
def test_p2_eight_ranks_have_the_same_bits_on_any_number_of_processes(batch_size: int) -> None:
    def program(group: Group) -> str:
        return digest(train(group, 8, batch_size, 75, dropout=0.2))

    expected = simulate(8, program)
    assert len(set(expected)) == 1
    for processes in (2, 3, 4, 8):
        assert on_processes(processes, 8, program) == expected


def test_p2_any_number_of_threads() -> None:
    before, found = mn.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            mn.set_num_threads(threads)
            found += [digest(rank) for rank in simulate(4, lambda group: train(group, 4))]
    finally:
        mn.set_num_threads(before)
    assert len(set(found)) == 1


@pytest.mark.parametrize("fault", ["order", "streams"])
def test_p2_catches_another_order_and_a_stale_random_stream(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def program(group: Group) -> str:
        return digest(train(group, 4, dropout=0.3))

    expected = simulate(4, program)[0]
    if fault == "order":
        monkeypatch.setattr("minorm.distributed.sum_order.split", lambda start, stop: start + 1)
    else:
        monkeypatch.setattr(generators, "streams", lambda ranks, state=None: [None] * len(ranks))
    assert simulate(4, program)[0] != expected


# P5: a loss that is no number


def poisoned(group: Group) -> tuple[str, bool]:
    mn.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(3, 2), nn.SyncBatchNorm(2)), group)
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    before = {name: value.array.copy() for name, value in model.named_parameters()}
    x = np.full((2, 3), np.nan if group.rank == 2 else group.rank)
    try:
        loss = F.mse_loss(model(Tensor(x.astype(np.float32))), mn.zeros(2, 2))
        # without SyncBatchNorm only rank 2 has it: the loss of the others is made finite again
        loss = loss if group.rank == 2 else F.mse_loss(model.module[0](mn.ones(2, 3)), mn.zeros(2, 2))
        model.backward(loss, 2)
        optimizer.step()
    except NonFiniteLoss as error:
        same = all(np.array_equal(value.array, before[name]) for name, value in model.named_parameters())
        return str(error), same and all(p.grad is None for p in model.parameters())
    return "nothing", False


def test_p5_a_loss_that_is_no_number_stops_all_ranks_in_the_same_step() -> None:
    found = simulate(4, poisoned)
    assert found == [("rank 2 of 4: the loss is nan", True)] * 4


def test_p5_ranks_without_images_do_not_count() -> None:
    def program(group: Group) -> float:
        model = DistributedDataParallel(nn.Linear(3, 2), group)
        count = 0 if group.rank else 4
        x = mn.ones(count, 3)
        loss = model.backward(F.cross_entropy(model(x), mn.zeros(count, dtype=mn.int64)), count)
        assert all(np.isfinite(p.grad.array).all() for p in model.parameters())
        return loss.item()

    losses = simulate(3, program)
    assert len(set(losses)) == 1
    assert np.isfinite(losses[0])


# Gradients


def test_gradients_are_added_to_what_was_there_and_what_is_missing_stays_none() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.sometimes, self.never = nn.Linear(2, 1), nn.Linear(2, 1), nn.Linear(2, 1)

        def forward(self, x: Tensor, both: bool) -> Tensor:
            return self.used(x) + self.sometimes(x) if both else self.used(x)

    x = np.random.default_rng(0).standard_normal((6, 2)).astype(np.float32)

    def program(group: Group) -> Any:
        mn.manual_seed(0)
        model = DistributedDataParallel(Two(), group)
        mine = Tensor(np.array_split(x, group.size)[group.rank])
        for _ in range(2):  # micro-batches
            model.backward(model(mine, group.rank == 0).mean(), len(mine))
        grads = [(name, None if p.grad is None else p.grad.array.tolist()) for name, p in model.named_parameters()]
        return grads, mine.array.sum(0)

    found = simulate(3, program)
    assert all(grads == found[0][0] for grads, _ in found)
    grads = dict(found[0][0])
    assert grads["never.weight"] is None
    np.testing.assert_allclose(grads["used.weight"][0], 2 * x.mean(0), rtol=1e-5)
    np.testing.assert_allclose(grads["sometimes.weight"][0], 2 * found[0][1] / 6, rtol=1e-5)


@pytest.mark.parametrize("again", [False, True])
def test_gradients_travel_once_where_micro_batches_do_not_sync(monkeypatch: pytest.MonkeyPatch, again: bool) -> None:
    """Their sum is that of three messages; `again`: after a step whose second micro-batch had a wrong loss."""
    x = np.random.default_rng(0).standard_normal((3, 6, 2)).astype(np.float32)
    sent: list[int] = []
    reduce = DistributedDataParallel._reduce

    def counted(model: DistributedDataParallel, parameters: list[Any]) -> None:
        sent.append(model.group.rank)
        reduce(model, parameters)

    def program(group: Group, sync: bool) -> Any:
        mn.manual_seed(0)
        model = DistributedDataParallel(nn.Linear(2, 1), group)
        parts = [Tensor(np.array_split(batch, group.size)[group.rank]) for batch in x]
        if again:
            with pytest.raises(NonFiniteLoss), model.no_sync():
                model.backward(model(parts[0]).mean(), 2)
                model.backward(model(parts[1]).mean() * np.nan, 2)
        model.zero_grad()
        for number, part in enumerate(parts):
            with contextlib.nullcontext() if sync or number == 2 else model.no_sync():
                model.backward((model(part) ** 2).mean(), len(part))
        return [p.grad.array for p in model.parameters()]

    monkeypatch.setattr(DistributedDataParallel, "_reduce", counted)
    often, once = simulate(3, lambda group: program(group, True)), simulate(3, lambda group: program(group, False))
    assert sorted(sent) == sorted([0, 1, 2] * 4)
    for name, value in enumerate(often[0]):
        assert all(np.array_equal(grads[name], once[0][name]) for grads in once)
        np.testing.assert_allclose(once[0][name], value, rtol=1e-5)


def test_frozen_parameters_and_16_bits() -> None:
    def program(group: Group) -> Any:
        mn.manual_seed(0)
        layers = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).half().float(), nn.Linear(2, 1))
        layers[0].freeze()
        layers[2].to(mn.float64)
        model = DistributedDataParallel(layers, group)
        y = layers[2](layers[1](layers[0](mn.ones(2, 2))).to(mn.float64))
        model.backward(y.mean(), 2)
        return [None if p.grad is None else (str(p.grad.dtype), p.grad.shape) for p in model.parameters()]

    found = simulate(2, program)
    assert found[0] == [
        None, None, ("float32", (2, 2)), ("float32", (2,)), ("float64", (1, 2)), ("float64", (1,)),
    ]  # fmt: skip


def test_the_whole_batchs_loss_is_the_mean_over_images_and_has_no_graph() -> None:
    def program(group: Group) -> Any:
        model = DistributedDataParallel(nn.Linear(1, 1), group)
        with mn.no_grad():
            model.module.weight.fill_(1)
            model.module.bias.fill_(0)
        x = Tensor(np.full((group.rank + 1, 1), 10.0 * group.rank, np.float32))
        loss = model.backward(model(x).mean(), group.rank + 1)
        return loss.item(), loss.requires_grad

    assert simulate(3, program) == [(float(np.float32((0 * 1 + 10 * 2 + 20 * 3) / 6)), False)] * 3


# The model


def test_rank_0s_model_goes_to_all() -> None:
    def program(group: Group) -> Any:
        model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
        model[1].running_mean.fill_(group.rank)
        own = model[0].weight.array.copy()
        model = DistributedDataParallel(model, group)
        return own, model.module[0].weight.array, model.module[1].running_mean.array

    found = simulate(3, program)
    for own, weight, mean in found:
        np.testing.assert_array_equal(weight, found[0][0])
        np.testing.assert_array_equal(mean, np.zeros(4))
        assert own is not weight
    assert not np.array_equal(found[0][0], found[1][0])


def test_models_that_differ_are_named() -> None:
    def sizes(group: Group) -> None:
        DistributedDataParallel(nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2 + (group.rank == 2))), group)

    with pytest.raises(RankError, match=r"rank 0 has 1\.weight float32\(2, 4\), rank 2 has 1\.weight float32\(3, 4\)"):
        simulate(3, sizes)

    def layers(group: Group) -> None:
        DistributedDataParallel(nn.Sequential(*[nn.Linear(2, 2) for _ in range(1 + group.rank)]), group)

    with pytest.raises(RankError, match=r"rank 0 has nothing, rank 1 has 1\.weight float32\(2, 2\)"):
        simulate(2, layers)


def test_keys_modes_and_parameters_are_the_modules_own() -> None:
    def program(group: Group) -> None:
        inner = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Dropout(0.5))
        model = DistributedDataParallel(inner, group)
        assert list(model.state_dict()) == list(inner.state_dict())
        assert [id(p) for p in model.parameters()] == [id(p) for p in inner.parameters()]
        assert model.eval() is model
        assert not inner.training
        assert not inner[1].training
        assert not model.training
        model.train()
        assert inner[2].training
        model.load_state_dict(inner.state_dict())
        assert "Linear" in repr(model)
        model.to(mn.float64)
        assert inner[0].weight.dtype == mn.float64
        model.zero_grad()

    simulate(2, program)


def test_a_sync_batch_norm_without_a_group_gets_the_models() -> None:
    def program(group: Group) -> bool:
        inner = nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(nn.BatchNorm1d(2)))
        return DistributedDataParallel(inner, group).module[0].process_group is group

    assert simulate(2, program) == [True, True]


def test_running_statistics_are_averaged_over_ranks_and_equal_ones_keep_their_bits() -> None:
    def program(group: Group) -> Any:
        model = DistributedDataParallel(nn.Sequential(nn.BatchNorm1d(2), nn.SyncBatchNorm(2)), group)
        model.module[0].running_mean.fill_(group.rank)
        model.module[1].running_mean.fill_(0.1)
        model.average_buffers()
        return [layer.running_mean.array.copy() for layer in model.module]

    for own, synced in simulate(3, program):
        np.testing.assert_array_equal(own, np.ones(2, np.float32))
        np.testing.assert_array_equal(synced, np.full(2, 0.1, np.float32))


def test_stopping_is_agreed_upon() -> None:
    """One process was asked to stop; all ranks do, after the same step."""
    steps: list[int] = [0] * 4

    def program(group: Group) -> None:
        model = DistributedDataParallel(nn.Linear(2, 1), group)
        for step in range(10):
            if step == 3 and group.rank == 2:
                group._meeting.stopping = True
            model.backward(model(mn.ones(2, 2)).mean(), 2)
            steps[group.rank] += 1

    with pytest.raises(KeyboardInterrupt):
        on_processes(2, 4, program)
    assert steps == [3] * 4


def test_one_rank_computes_what_backward_computes() -> None:
    mn.manual_seed(0)
    plain = nn.Linear(3, 2)
    x, labels = mn.randn(5, 3), mn.tensor([0, 1, 0, 1, 1])
    F.cross_entropy(plain(x), labels).backward()
    expected = plain.weight.grad.array.copy()
    plain.zero_grad()
    model = simulate(1, lambda group: DistributedDataParallel(plain, group))[0]
    loss = model.backward(F.cross_entropy(model(x), labels), 5)
    assert not loss.requires_grad
    assert plain.weight.grad.array.tobytes() == expected.tobytes()
    with pytest.raises(NonFiniteLoss):
        model.backward((plain(x) * float("nan")).mean(), 5)


@pytest.mark.parametrize("ranks", [1, 3])
def test_the_program_in_the_documentation_runs(ranks: int, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("sklearn")
    text = (Path(__file__).resolve().parents[2] / "docs/distributed.md").read_text()
    program = text.split("```python\n")[1].split("```")[0]
    assert "dist.run(train)" in program
    exec(program.replace("dist.run(train)", f"dist.run(train, ranks={ranks})"), {})
    assert capfd.readouterr().out.count("loss ") == 1


def test_gradients_of_all_ranks_are_added_in_the_memory_that_is_there() -> None:
    def program(group: Group) -> Any:
        mn.manual_seed(0)
        model = DistributedDataParallel(nn.Linear(3, 2), group)
        x, labels = mn.randn(4, 3), mn.tensor([0, 1, 1, 0])
        mine = slice(group.rank * 2, group.rank * 2 + 2)
        flat = None
        for _ in range(3):
            model.backward(F.cross_entropy(model(x[mine]), labels[mine]), 2)
            if flat is None:
                flat = mn.cat([p.grad.reshape(-1) for p in model.parameters()])
                first = flat.clone()
                parts = flat.split([p.numel() for p in model.parameters()])
                for p, part in zip(model.parameters(), parts, strict=True):
                    p.grad = part.view(*p.shape)
        return first.numpy(), flat.numpy()

    for first, flat in simulate(2, program):
        np.testing.assert_allclose(flat, 3 * first, rtol=1e-5)


def test_rank_0_alone_evaluates_predicts_diagnoses_and_explains() -> None:
    """In between two steps that all ranks take: no other rank is asked for anything."""

    def program(group: Group) -> Any:
        mn.manual_seed(3)
        model = network(group)
        whole, found = images(40), None
        x, y = next(iter(data.DataLoader(whole, 8, shard=(group.rank, group.size))))
        model.backward(F.cross_entropy(model(x), y), len(y))
        if group.rank == 0:
            score = evaluate(model, data.DataLoader(whole, 16), nn.CrossEntropyLoss())
            mn.explain(F.batch_norm, (4, 3, 5, 5), training=True)
            mn.diagnose(model.module, data.DataLoader(whole, 16))
            with mn.no_grad():
                logits = model.module.eval()(mn.tensor(whole.arrays[0]))
            exact = -logits.double().log_softmax(1).numpy()[np.arange(40), whole.arrays[1]].mean()
            found = score.images, score.loss, exact, predict(model, x).shape
            model.train()
        model.backward(F.cross_entropy(model(x), y), len(y))
        return found

    found, *others = simulate(3, program)
    assert found[0] == 40
    assert found[1] == pytest.approx(found[2], rel=1e-5)
    assert others == [None, None]


def test_parts_are_scored_together() -> None:
    whole = images(30)

    def program(group: Group) -> Any:
        model, part = network(group), slice(group.rank, None, group.size)
        mine = data.ArrayDataset(*(array[part] for array in whole.arrays))
        loaders = (
            data.DataLoader(whole, 7, shard=(group.rank, group.size), seed=0),
            data.DataLoader(whole, 7, sampler=range(group.rank, 30, group.size)),
            list(data.DataLoader(mine, 7)),
        )
        return [
            (score.images, score.loss) for score in (evaluate(model, each, nn.CrossEntropyLoss()) for each in loaders)
        ]

    for scores in simulate(2, program):
        assert [count for count, _ in scores] == [30, 30, 30]
        assert [loss for _, loss in scores] == pytest.approx([scores[0][1]] * 3, rel=1e-5)
