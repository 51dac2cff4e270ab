"""Lab 5: checks accuracies in both modes, recalibrated statistics, five repairs, and fine-tuning with batches of two.

The student's process returns a state dict, or the settings that a function has made on layers. The judge copies them
into another model, and trains and measures this model in the judge's process.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minorm.graph.grad_mode import no_grad
from minorm.labs import gap
from minorm.labs.beside.lab05_train_eval_gap import state, trained
from minorm.labs.calling.sent import Sent
from minorm.labs.checks.right import lab05_train_eval_gap as ours
from minorm.labs.checks.variants.lab05_train_eval_gap import V, batches, spread
from minorm.labs.comparing import Wrong, close, equal, numbers, true
from minorm.labs.lab import Lab
from minorm.normalization.running import no_stats_update
from minorm.tensor.creation import tensor

LAB = Lab(
    5,
    "lab05_train_eval_gap",
    "The gap between training and evaluation",
    "When do training mode and evaluation mode disagree, and how do you repair wrong statistics?",
    minutes=75,
    needs=(4,),
    packages=("sklearn",),
    variants=V,
)
TARGET = 95.0
TUNED = 65.0
LEAST = 30.0  # percent that a trained model has right in either mode, in batches of eight
MIRRORED = 400  # labelled images for fine-tuning
STATISTICS = ("running_mean", "running_var")


def _share(model: Any, x: Any, labels: Any) -> float:
    """Return the percentage of right answers, in the model's current mode."""
    with no_grad(), no_stats_update():
        found = model(tensor(x)).numpy().argmax(axis=1)
    return float(100 * np.mean(found == labels))


def _loaded(found: Any, what: str) -> Any:
    """Load the state that the student's process returned into a model of the judge's, and return this model."""
    model = gap.network()
    try:
        model.load_state_dict(found)
    except (ValueError, TypeError, AttributeError) as error:
        raise Wrong(what, "a model with the same parameters", str(error)) from None
    return model.eval()


def _check_arrays(found: Any, expected: dict[str, Any], names: Any, what: str) -> None:
    for name in names:
        equal(found[name], expected[name], f"{name} {what}")


def _measure(student: Any, rng: Any, function: str, count: int, batch_size: int = 0, trace: bool = False) -> None:
    seed, training = int(rng.integers(5)), bool(rng.integers(2))
    options = {"seed": seed, "count": count, "batch_size": batch_size, "training": training}
    found = student.drive("measured", function=function, **options)
    model, _, x, labels = trained(seed)
    if batch_size:
        model.train()
        parts = batches(count, batch_size)
        shares = [_share(model, x[part], labels[part]) for part in parts]
        right = float(np.average(shares, weights=[part.stop - part.start for part in parts]))
    else:
        right = _share(model.eval(), x[:count], labels[:count])
    what = f"{function} of {count} images" + (f" in batches of {batch_size}" if batch_size else "")
    if trace:
        before = state(trained(seed)[0])
        _check_arrays(found["after"], before, before, f"after {what}")
        equal(found["training"], training, f"model.training after {what}")
        share = float(numbers(found["answer"], what, "a share in percent"))
        true(share >= LEAST, what, f"at least {LEAST:g} % right, of a trained model", f"{share:.1f} %")
    else:
        close(found["answer"], right, what, rtol=0, atol=1e-6)


@LAB.check("5.1", "accuracy in evaluation mode", visible=True)
def evaluation(student: Any, rng: np.random.Generator) -> None:
    _measure(student, rng, "accuracy", 359)


@LAB.check("5.1", "accuracy in training mode", points=2, visible=True)
def training(student: Any, rng: np.random.Generator) -> None:
    _measure(student, rng, "accuracy_in_training", 40, 4)
    _measure(student, rng, "accuracy_in_training", 100, 16)


@LAB.check("5.1", "the model is not changed", points=2)
def unchanged(student: Any, rng: np.random.Generator) -> None:
    for _ in range(3):
        _measure(student, rng, "accuracy", 50, trace=True)
        _measure(student, rng, "accuracy_in_training", 50, 8, trace=True)


@LAB.check("5.2", "spread of the means", visible=True)
def spreads(student: Any, rng: np.random.Generator) -> None:
    for m in (2, 7, 64):
        close(student.spread_of_batch_mean(m), spread(1 / np.sqrt(m)), f"spread_of_batch_mean({m})")
        weights = 0.1 * 0.9 ** np.arange(2000)
        right = spread(np.sqrt((weights**2).sum() / m))
        close(student.spread_of_running_mean(m, 0.9), right, f"spread_of_running_mean({m}, 0.9)")


@LAB.check("5.2", "variance and largest xhat", visible=True)
def bounds(student: Any, rng: np.random.Generator) -> None:
    for m in (2, 5, 64):
        close(student.expected_variance(m), 1 - 1 / m, f"expected_variance({m})")
        row = np.array([1.0] + [0.0] * (m - 1))
        close(student.largest_xhat(m), (1 - row.mean()) / row.std(), f"largest_xhat({m})")


@LAB.check("5.2", "another momentum")
def other_momentum(student: Any, rng: np.random.Generator) -> None:
    for momentum in (0.0, 0.1, 0.99):
        weights = (1 - momentum) * momentum ** np.arange(5000)
        right = spread(np.sqrt((weights**2).sum() / 3))
        close(student.spread_of_running_mean(3, momentum), right, f"spread_of_running_mean(3, {momentum:g})", rtol=1e-6)


def _averages(seed: int, batch_size: int) -> dict[str, Any]:
    """Average the means and variances of batches, computed from each layer's input. Return both for each layer."""
    model, x, _, _ = trained(seed)
    model.train()
    layers = list(model.children())
    sums: dict[str, Any] = {}
    parts = batches(600, batch_size)
    for part in parts:
        value = tensor(x[part])
        for place, layer in enumerate(layers):
            if layer in gap.norms(model):
                rows = value.numpy().astype(np.float64)
                for name, row in zip(STATISTICS, (rows.mean(axis=0), rows.var(axis=0)), strict=True):
                    key = f"{place}.{name}"
                    sums[key] = sums.get(key, 0) + row / len(parts)
            with no_grad(), no_stats_update():
                value = layer(value)
    return sums


@LAB.check("5.3", "running statistics", points=2, visible=True)
def statistics(student: Any, rng: np.random.Generator) -> None:
    for batch_size in (200, 250, 0):
        seed = int(rng.integers(5))
        found = student.drive("recalibrated", seed=seed, batch_size=batch_size, momentum=0.9, training=True)["after"]
        words = f"batches of {batch_size}" if batch_size else "recalibrate(model, images)"
        for name, right in _averages(seed, batch_size or V.batch).items():
            close(found[name], right, f"{name} after {words}", rtol=1e-3, atol=1e-4)


@LAB.check("5.3", "weights, momentum and mode are not changed")
def untouched(student: Any, rng: np.random.Generator) -> None:
    for training, momentum in ((True, 0.8), (False, 0.95)):
        seed = int(rng.integers(5))
        found = student.drive("recalibrated", seed=seed, batch_size=100, momentum=momentum, training=training)
        before = state(trained(seed)[0])
        weights = [name for name in before if name.endswith(("weight", "bias"))]
        _check_arrays(found["after"], before, weights, "after recalibrate")
        equal(found["momenta"], [momentum] * 3, "momentum of the layers after recalibrate")
        equal(found["training"], training, "model.training after recalibrate")
        moved = any(not np.array_equal(found["after"][name], before[name]) for name in before if name.endswith("mean"))
        true(moved, "running_mean after recalibrate", "a change", "none")


def _repair(student: Any, kind: str, seed: int) -> None:
    found = student.drive("repaired", kind=kind, seed=seed)
    broken, _, x_test, labels_test = gap.broken(kind, seed)
    what = f'the model "{kind}" after repair'
    mine = _loaded(found["after"], what)
    share = _share(mine, x_test, labels_test)
    true(share >= TARGET, what, f"at least {TARGET:g} % of the test digits", f"{share:.1f} %")
    weights = {name: value for name, value in state(broken).items() if name.endswith(("weight", "bias"))}
    for name, value in weights.items():
        close(found["after"][name], value, f"{name} of {what}", rtol=1e-4, atol=1e-5)
    equal(found["training"], False, f"model.training of {what}")


for _kind in gap.BROKEN:

    @LAB.check("5.4", f"repair: {_kind}", points=2 if _kind == "frozen" else 1, visible=True)
    def repair(student: Any, rng: np.random.Generator, kind: str = _kind) -> None:
        _repair(student, kind, int(rng.integers(5)))


def _mirrored(seed: int) -> Any:
    """Return a model in evaluation mode whose running statistics come from mirrored digits."""
    model, x, _, _ = trained(seed, epochs=4)
    x = gap.mirrored(x)
    for layer in gap.norms(model):
        layer.momentum = None
        layer.reset_running_stats()
    with no_grad():
        for start in range(0, 1400, 350):
            model(tensor(x[start : start + 350]))
    for layer in gap.norms(model):
        layer.momentum = 0.9
    return model.eval()


def _set_as(model: Any, said: dict[str, Any]) -> None:
    """Copy the values and settings in `said` to `model`.

    The student's function gave them to a model in the student's process.
    """
    model.load_state_dict(said["values"])
    layers, parameters = list(model.modules()), list(model.parameters())
    for layer, frozen, training in zip(layers, said["frozen"], said["training"], strict=True):
        layer.frozen, layer.training = bool(frozen), bool(training)
    for parameter, learns in zip(parameters, said["learns"], strict=True):
        parameter.requires_grad = bool(learns)
    for layer, momentum in zip(gap.norms(model), said["momenta"], strict=True):
        layer.momentum = momentum


def _tuned(student: Any, seed: int, train: bool = True) -> dict[str, Any]:
    """Freeze a model as the student's function does, and train it on mirrored digits in batches of two.

    Return its states before, after and unfrozen.
    """
    model = _mirrored(seed)
    before = state(model)
    _set_as(model, student.drive("frozen", values=before))
    x, labels = gap.mirrored(gap.images()[0]), gap.images()[1]
    if train:
        gap.train(model, x[:MIRRORED], labels[:MIRRORED], batch_size=2, epochs=3, lr=0.03, seed=seed)
    after = state(model)
    frozen = [layer.frozen for layer in gap.norms(model)]
    for layer in gap.norms(model):
        layer.unfreeze()
    grads = [bool(parameter.requires_grad) for parameter in model.parameters()]
    model.train()
    with no_grad():
        model(tensor(x[:64]))
    return {"before": before, "after": after, "frozen": frozen, "unfrozen": state(model), "grads": grads}


@LAB.check("5.5", "fine-tuning reaches its target", points=2, visible=True)
def fine_tuning(student: Any, rng: np.random.Generator) -> None:
    found = _tuned(student, int(rng.integers(5)))
    _, _, x_test, labels_test = gap.images()
    share = _share(_loaded(found["after"], "the tuned model"), gap.mirrored(x_test), labels_test)
    true(share >= TUNED, "the tuned model on mirrored digits", f"at least {TUNED:g} % right", f"{share:.1f} %")


@LAB.check("5.5", "fixed values stay, weights change", visible=True)
def fixed(student: Any, rng: np.random.Generator) -> None:
    found = _tuned(student, int(rng.integers(5)))
    places = [name.rsplit(".", 1)[0] for name in found["before"] if name.endswith("running_mean")]
    fixed = [name for name in (*STATISTICS, "weight", "bias") if name not in V.learning]
    still = [f"{place}.{name}" for place in places for name in fixed]
    learning = [f"{place}.{name}" for place in places for name in V.learning]
    _check_arrays(found["after"], found["before"], still, "after fine-tuning")
    for name in found["before"]:
        if (name.endswith("weight") and name not in still) or name in learning:
            moved = not np.array_equal(found["before"][name], found["after"][name])
            true(moved, f"{name} after fine-tuning", "changed values", "the old values")


@LAB.check("5.5", "layers learn again after unfreeze")
def unfreezing(student: Any, rng: np.random.Generator) -> None:
    found = _tuned(student, int(rng.integers(5)), train=False)
    equal(found["frozen"], [True] * len(found["frozen"]), "layer.frozen of each BatchNorm after freeze_norms")
    equal(all(found["grads"]), True, "all parameters have requires_grad=True after unfreeze")
    name = next(name for name in found["before"] if name.endswith("running_mean"))
    moved = not np.array_equal(found["after"][name], found["unfrozen"][name])
    true(moved, f"{name} after unfreeze and a batch in training mode", "changed values", "the old values")


LAB.provide("5.3", recalibrate=Sent(ours.recalibrate, lambda: {"rest": V.rest, "default": V.batch}))
