"""make_graphed_step on the double that captures: every call has the bits of an eager loop, or runs eagerly."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import minorm as mn
import minorm.functional as F
from minorm import amp, nn, optim
from minorm.optim import lr_scheduler

OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "SGD": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01, nesterov=True),
    "Adam": lambda p: optim.Adam(p, lr=0.01, amsgrad=True),
    "AdamW": lambda p: optim.AdamW(p, lr=0.01),
}


@pytest.fixture(autouse=True)
def no_warning() -> Iterator[None]:
    """A step that is not captured where it should be is an error."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="make_graphed_step")
        yield


def batches(count: int, size: int = 4) -> list[tuple[Any, Any]]:
    rng = np.random.default_rng(size)
    return [
        (mn.tensor(rng.standard_normal((size, 6), np.float32)), mn.tensor(rng.integers(0, 3, size)))
        for _ in range(count)
    ]


class Run:
    """A network with all that a step may change, and one step of it."""

    def __init__(self, make: Callable[[Any], Any] = OPTIMIZERS["SGD"], **ways: bool) -> None:
        mn.manual_seed(0)
        layers = [nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 3)]
        self.model = nn.Sequential(*layers).to("cuda")
        self.optimizer = make(self.model.parameters())
        self.schedule = lr_scheduler.OneCycleLR(self.optimizer, max_lr=0.1, total_steps=30)
        self.generator = mn.Generator().manual_seed(5)
        self.ways, self.calls = ways, 0

    def step(self, x: Any, y: Any) -> Any:
        self.calls += 1
        self.optimizer.zero_grad(set_to_none=not self.ways.get("filled"))
        with amp.autocast("cuda", dtype=mn.bfloat16, enabled=bool(self.ways.get("autocast"))):
            outputs = self.model(x)
        loss = F.cross_entropy(outputs.float(), y)
        loss.backward()
        if self.ways.get("clip"):
            nn.utils.clip_grad_norm_(self.model.parameters(), 0.5)
        self.optimizer.step()
        if self.ways.get("schedule"):
            self.schedule.step()
        return {"loss": loss, "drawn": (mn.empty(3, device="cuda").uniform_(generator=self.generator), "kept as it is")}

    def state(self) -> dict[str, Any]:
        """Everything that a step changes."""
        found = {name: value.cpu().numpy() for name, value in self.model.state_dict().items()}
        for i, state in self.optimizer.state_dict()["state"].items():
            for name, value in state.items():
                found[f"{i}.{name}"] = np.asarray(value if isinstance(value, int) else value.get())
        for i, p in enumerate(self.model.parameters()):
            found[f"grad {i}"] = np.zeros(0) if p.grad is None else p.grad.cpu().numpy()
        rates = [group["lr"] for group in self.optimizer.param_groups]
        return found | {
            "lr": np.array(rates),
            "random": np.array(repr((mn.random.get_state(), self.generator.get_state()))),
        }


def same(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        np.testing.assert_array_equal(found[key], value, err_msg=key)


def followed(steps: Callable[[Run], Any], data: list[tuple[Any, Any]], **ways: Any) -> list[dict[str, Any]]:
    """Return each step's state and results."""
    run, found = Run(**ways), []
    step = steps(run)
    for batch in data:
        result = step(*batch)
        found.append(run.state() | {"loss": result["loss"].cpu().numpy(), "drawn": result["drawn"][0].cpu().numpy()})
        assert result["drawn"][1] == "kept as it is"
    return found


def on_gpu(run: Run) -> Callable[..., Any]:
    return lambda x, y: run.step(x.to("cuda"), y.to("cuda"))


def compared(data: list[tuple[Any, Any]], **ways: Any) -> Run:
    """Every step has the bits of an eager one; returns the run that was graphed."""
    runs = []

    def graphed(run: Run) -> Any:
        runs.append(run)
        return mn.cuda.make_graphed_step(run.step, *(part.to("cuda") for part in data[0]))

    expected = followed(on_gpu, data, **ways)
    for number, (found, wanted) in enumerate(zip(followed(graphed, data, **ways), expected, strict=True)):
        try:
            same(found, wanted)
        except AssertionError as error:
            raise AssertionError(f"step {number}: {error}") from None
    return runs[0]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_call_has_the_bits_of_an_eager_step(name: str, cuda: Any) -> None:
    run = compared(batches(8), make=OPTIMIZERS[name])
    assert run.calls == 4, "three eager steps, the capture, and then replays"


@pytest.mark.parametrize("way", ["clip", "schedule", "autocast", "filled"])
def test_what_else_a_step_may_do_is_obeyed(way: str, cuda: Any) -> None:
    assert compared(batches(7), **{way: True}).calls == 4


def test_batches_of_another_form_run_eagerly_and_the_graph_goes_on(cuda: Any) -> None:
    data = batches(5) + batches(2, size=3) + batches(3)
    data.insert(7, (data[0][0].to(mn.float32), data[0][1].to(mn.int32)))
    assert compared(data).calls == 4 + 3


def test_its_result_may_be_kept(cuda: Any) -> None:
    run, data = Run(), batches(6)
    step = mn.cuda.make_graphed_step(run.step, *(part.to("cuda") for part in data[0]))
    kept = [step(*batch) for batch in data]
    assert step.captured
    before = [result["loss"].item() for result in kept]
    step(*data[0])
    assert [result["loss"].item() for result in kept] == before
    assert len(set(before)) == 6
    assert not any(result["loss"].requires_grad for result in kept)


def test_a_replay_asks_the_host_for_nothing(cuda: Any) -> None:
    run, data = Run(), batches(6)
    data = [tuple(part.to("cuda") for part in batch) for batch in data]
    step = mn.cuda.make_graphed_step(run.step, *data[0])
    for batch in data[:5]:
        step(*batch)
    cuda.transfers.clear()
    step(*data[5])
    assert (cuda.transfers.to_host, cuda.transfers.to_device) == (0, 0)


def test_a_module_in_another_mode_runs_eagerly(cuda: Any) -> None:
    def steps(make: Callable[[Run], Any]) -> dict[str, Any]:
        run = Run()
        step = make(run)
        for number, batch in enumerate(batches(9)):
            run.model.train(number not in (5, 6))
            step(*batch)
        return run.state() | {"calls": np.array(run.calls)}

    expected, found = steps(on_gpu), steps(lambda run: mn.cuda.make_graphed_step(run.step, *sample()))
    assert (expected.pop("calls"), found.pop("calls")) == (9, 6)
    same(found, expected)


def sample() -> tuple[Any, ...]:
    return tuple(part.to("cuda") for part in batches(1)[0])


def test_parts_of_a_step_may_stay_outside(cuda: Any) -> None:
    """Gradients are added up over two calls by a step without zero_grad, and RMSprop, which is not captured, steps."""

    def train(graphed: bool, set_to_none: bool) -> tuple[dict[str, Any], int]:
        run, calls = Run(lambda p: optim.RMSprop(p, lr=0.01)), []

        def gradients(x: Any, y: Any) -> Any:
            calls.append(1)
            loss = F.cross_entropy(run.model(x), y)
            loss.backward()
            return loss

        step = mn.cuda.make_graphed_step(gradients, *sample()) if graphed else gradients
        for number, (x, y) in enumerate(batches(14)):
            step(x.to("cuda"), y.to("cuda"))
            if number % 2:
                run.optimizer.step()
                run.optimizer.zero_grad(set_to_none)
        return run.state(), len(calls)

    for set_to_none in (True, False):
        expected, _ = train(False, set_to_none)
        found, calls = train(True, set_to_none)
        same(found, expected)
        assert calls == (14 if set_to_none else 4), "a replay adds to the memory that it knows, and to no other"


def test_an_optimizer_alone_and_a_backward_outside(cuda: Any) -> None:
    """The captured optimizer reads gradients that lie elsewhere each time: then it steps eagerly."""

    def train(graphed: bool) -> dict[str, Any]:
        run = Run()
        step = mn.cuda.make_graphed_step(run.optimizer.step) if graphed else run.optimizer.step
        for x, y in batches(8):
            run.optimizer.zero_grad()
            F.cross_entropy(run.model(x.to("cuda")), y.to("cuda")).backward()
            step()
        return run.state()

    same(train(True), train(False))


def test_an_autocast_around_the_call_is_obeyed(cuda: Any) -> None:
    def train(graphed: bool) -> dict[str, Any]:
        run = Run()
        step = mn.cuda.make_graphed_step(run.step, *sample()) if graphed else on_gpu(run)
        for number, batch in enumerate(batches(9)):
            with amp.autocast("cuda", dtype=mn.bfloat16, enabled=number in (1, 6)):
                step(*batch)
        return run.state() | {"calls": np.array(run.calls)}

    found, expected = train(True), train(False)
    assert (found.pop("calls"), expected.pop("calls")) == (5, 9)
    same(found, expected)


@pytest.mark.parametrize("what", ["optimizer", "model", "unfrozen"])
def test_it_captures_again_where_memory_has_moved(what: str, cuda: Any) -> None:
    def train(graphed: bool) -> dict[str, Any]:
        run = Run(OPTIMIZERS["AdamW"])
        run.model[0].weight.requires_grad = what != "unfrozen"
        step = mn.cuda.make_graphed_step(run.step, *sample()) if graphed else on_gpu(run)
        for number, batch in enumerate(batches(12)):
            if number == 6 and what == "optimizer":
                run.optimizer.load_state_dict(run.optimizer.state_dict())
            elif number == 6 and what == "model":
                run.model.to("cpu").to("cuda")
            elif number == 6:
                run.model[0].weight.requires_grad = True
            step(*batch)
        return run.state() | {"calls": np.array(run.calls)}

    found, expected = train(True), train(False)
    assert found.pop("calls") < expected.pop("calls") - 3
    same(found, expected)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda loss: loss.item(), "CUDA or CuPy refused an operation that cannot be captured"),
        (lambda loss: loss > 2 and None, "CUDA or CuPy refused an operation that cannot be captured"),
        (lambda loss: mn.randn(3, device="cuda"), "numbers are drawn on the CPU"),
        (lambda loss: mn.zeros(3).to("cuda"), r"an array of shape \(3,\) is copied"),
    ],
)
def test_what_cannot_be_captured_is_one_warning_and_runs_eagerly(
    ask: Callable[[Any], Any], message: str, cuda: Any
) -> None:
    def make(run: Run) -> Callable[..., Any]:
        def step(x: Any, y: Any) -> Any:
            run.optimizer.step()  # gradients of the step before
            result = run.step(x, y)
            ask(result["loss"])
            run.optimizer.zero_grad()
            F.cross_entropy(run.model(x), y).backward()  # left for the next one
            return result

        return step

    data = batches(8)
    expected = followed(lambda run: lambda x, y: make(run)(x.to("cuda"), y.to("cuda")), data)
    with pytest.warns(UserWarning, match=f"make_graphed_step: the step is not captured.*{message}") as caught:
        found = followed(lambda run: mn.cuda.make_graphed_step(make(run), *sample()), data)
    assert len([warning for warning in caught if "make_graphed_step" in str(warning.message)]) == 1
    for one, other in zip(found, expected, strict=True):
        same(one, other)


@pytest.mark.parametrize("kind", ["RMSprop", "GradScaler", "ReduceLROnPlateau"])
def test_what_counts_on_the_host_runs_eagerly(kind: str, cuda: Any) -> None:
    def train(graphed: bool) -> dict[str, Any]:
        run = Run((lambda p: optim.RMSprop(p, lr=0.01)) if kind == "RMSprop" else OPTIMIZERS["SGD"])
        scaler, plateau = (
            amp.GradScaler(init_scale=2.0**20, growth_interval=2),
            lr_scheduler.ReduceLROnPlateau(run.optimizer, patience=0),
        )

        def step(x: Any, y: Any) -> Any:
            run.optimizer.zero_grad()
            loss = F.cross_entropy(run.model(x), y)
            if kind == "GradScaler":
                scaler.scale(loss).backward()
                scaler.step(run.optimizer)
                scaler.update()
                return loss
            loss.backward()
            run.optimizer.step()
            if kind == "ReduceLROnPlateau":
                plateau.step(1.0)
            return loss

        called = mn.cuda.make_graphed_step(step, *sample()) if graphed else step
        for x, y in batches(7):
            called(x.to("cuda"), y.to("cuda"))
        return run.state() | {"scaler": np.array(repr(scaler.state_dict()))}

    expected = train(False)
    with pytest.warns(UserWarning, match="each call runs it eagerly"):
        found = train(True)
    same(found, expected)


def test_a_step_that_differs_from_call_to_call_is_not_captured(cuda: Any) -> None:
    calls: list[int] = []

    def make(run: Run) -> Callable[..., Any]:
        def step(x: Any, y: Any) -> Any:
            calls.append(1)
            loss = F.cross_entropy(run.model(x), y)
            loss.backward()
            if len(calls) in (1, 4, 8):
                run.optimizer.step()
                run.optimizer.zero_grad()
            return loss

        return step

    def train(graphed: bool) -> dict[str, Any]:
        calls.clear()
        run = Run()
        step = mn.cuda.make_graphed_step(make(run), *sample()) if graphed else make(run)
        for x, y in batches(9):
            step(x.to("cuda"), y.to("cuda"))
        return run.state()

    expected = train(False)
    with pytest.warns(UserWarning, match="the step differs from the previous step"):
        found = train(True)
    assert expected.keys() == found.keys()  # a call that is tried twice counts twice: such a step goes its own way


class Sentences(nn.Module):
    """A transformer that classifies sentences."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(20, 8)
        self.layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 1)
        self.out = nn.Linear(8, 3)

    def forward(self, x: Any) -> Any:
        return self.out(self.layers(self.words((x[..., 0] * 3).abs().long() % 20)).mean(1))


class Series(nn.Module):
    """An LSTM and causal attention over a series."""

    def __init__(self) -> None:
        super().__init__()
        self.series, self.out = nn.LSTM(5, 6, batch_first=True), nn.Linear(6, 3)

    def forward(self, x: Any) -> Any:
        y, _ = self.series(x)
        return self.out(F.scaled_dot_product_attention(y, y, y, is_causal=True)[:, -1])


class Pictures(nn.Module):
    """Convolutions that enlarge and shrink pictures, with reflecting padding."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(1, 4, 3, padding=1, padding_mode="reflect"), nn.GroupNorm(2, 4)
        self.up, self.last = nn.Upsample(scale_factor=2, mode="bilinear"), nn.ConvTranspose2d(4, 3, 2, 2)

    def forward(self, x: Any) -> Any:
        y = F.gelu(self.norm(self.first(x.unsqueeze(1))))
        return F.adaptive_avg_pool2d(self.last(F.max_pool2d(self.up(y), 2)), (2, 3)).mean((2, 3))


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "a transformer": Sentences,
    "an LSTM": Series,
    "a U": Pictures,
    "parametrized": lambda: nn.Sequential(
        nn.Flatten(), nn.utils.parametrizations.spectral_norm(nn.Linear(35, 6)), nn.BatchNorm1d(6, momentum=None),
        nn.RReLU(), nn.AlphaDropout(0.2), nn.utils.parametrizations.weight_norm(nn.Linear(6, 3)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_of_many_kinds_are_captured(name: str, cuda: Any) -> None:
    rng = np.random.default_rng(0)
    data = [rng.standard_normal((4, 7, 5), np.float32) for _ in range(5)]
    labels, found = mn.tensor([0, 1, 2, 0]).to("cuda"), []
    for graphed in (False, True):
        mn.manual_seed(0)
        network = NETWORKS[name]().to("cuda")
        optimizer = optim.AdamW(network.parameters(), lr=0.01)

        def step(x: Any, network: Any = network, optimizer: Any = optimizer) -> Any:
            optimizer.zero_grad()
            loss = F.cross_entropy(network(x), labels)
            loss.backward()
            optimizer.step()
            return loss

        called = mn.cuda.make_graphed_step(step, mn.tensor(data[0]).to("cuda"), num_warmup_iters=2) if graphed else step
        losses = [called(mn.tensor(x).to("cuda")).item() for x in data]
        assert not graphed or called.captured
        values = [value.cpu().numpy() for value in network.state_dict().values()]
        found.append([np.array(losses), *values])
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


def test_an_error_of_the_step_passes_and_the_next_call_goes_on(cuda: Any) -> None:
    run, data = Run(), batches(7)
    wrong: list[int] = []

    def step(x: Any, y: Any) -> Any:
        if len(wrong) < 2 and run.calls == 3:
            wrong.append(1)
            raise KeyError("no such picture")
        return run.step(x, y)

    called = mn.cuda.make_graphed_step(step, *sample())
    for batch in data[:3]:
        called(*batch)
    with pytest.raises(KeyError, match="no such picture"):
        called(*data[3])
    called(*data[3])
    assert called.captured


def test_a_step_without_a_gpu_runs_eagerly() -> None:
    x = mn.ones(2, 3)
    with pytest.warns(UserWarning, match="inputs are on cpu; expected all of them on one GPU"):
        step = mn.cuda.make_graphed_step(lambda x: x * 2, x)
    assert step(x).tolist() == [[2, 2, 2], [2, 2, 2]]
    assert not step.captured


def test_arguments_that_are_none() -> None:
    with pytest.raises(TypeError, match=r"make_graphed_step: step is a list; expected a function of the inputs"):
        mn.cuda.make_graphed_step([])  # type: ignore[arg-type]
    with pytest.raises(
        TypeError, match=r"make_graphed_step: inputs\[1\] is a (NumPy array|.*ndarray); expected a Tensor"
    ):
        mn.cuda.make_graphed_step(print, mn.ones(1), np.ones(1))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"num_warmup_iters is 0; expected an int of at least 1"):
        mn.cuda.make_graphed_step(print, mn.ones(1), num_warmup_iters=0)
