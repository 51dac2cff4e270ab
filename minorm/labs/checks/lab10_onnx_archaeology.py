"""Lab 10: checks versions, attributes, modes, axes, two operators and a zoo of models against formulas in this file.

Models are sent as arrays of bytes. The student's process turns them into ModelProtos.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from minorm.labs import zoo
from minorm.labs.calling.sent import Sent
from minorm.labs.checks.right import lab10_onnx_archaeology as ours
from minorm.labs.checks.variants.lab10_onnx_archaeology import V, axes_as_asked, stored
from minorm.labs.comparing import Wrong, close, equal, numbers, parts, true
from minorm.labs.lab import Lab

LAB = Lab(
    10,
    "lab10_onnx_archaeology",
    "ONNX archaeology",
    "What does a node of an old model mean, and where in the file is that written?",
    minutes=90,
    needs=(1, 4),
    packages=("onnx",),
    variants=V,
)
BATCH, GROUP = "BatchNormalization", "GroupNormalization"
PUBLISHED: dict[str, tuple[int, ...]] = {BATCH: (1, 6, 7, 9, 14, 15), GROUP: (18, 21)}
ALL_FIVE = ("y", "mean2", "var2", "batch_mean", "batch_var")
CONSUMED = {"consumed_inputs": [0, 0, 0, 1, 1]}
REFUSED = "a ValueError"
TOLERANCE = {"float16": 3e-3, "float32": 2e-5, "float64": 1e-9}


def _epsilon() -> float:
    return stored(V.epsilon)


def _momentum() -> float:
    return stored(V.momentum)


def _answer_of(student: Any, function: str, expected: Any, what: str, data: Any, **options: Any) -> Any:
    """Return the answer of the student's function.

    If `expected` is None, the function must raise ValueError, and the result is None.
    """
    found = student.drive("asked", function=function, data=data, **options)
    if expected is None:
        true("refused" in found, what, REFUSED, str(found.get("answer")))
        return None
    true("answer" in found, what, str(expected), REFUSED)
    return found["answer"]


def _node(operator: str, opset: int, outputs: tuple[str, ...] = ("y",), **attributes: Any) -> Any:
    """Make a small model with one node of this operator."""
    x, small = np.zeros((2, 2, 3), np.float32), [np.ones(2, np.float32)] * (4 if operator == BATCH else 2)
    return zoo.specimen(operator, opset, x, small, attributes, outputs)


def _versions(student: Any, operators: Mapping[str, tuple[int, ...]], places: dict[str, Any], domain: str = "") -> None:
    for operator, opsets in operators.items():
        x, small = np.zeros((2, 2, 3), np.float32), [np.ones(2, np.float32)] * (4 if operator == BATCH else 2)
        for opset in opsets:
            right = max((version for version in PUBLISHED[operator] if version <= opset), default=None)
            what = f"since of {operator} in a model of opset {opset}"
            what += f", imported as {places['domain']!r}" if places.get("domain") else ""
            what += f" beside {places['others']}" if places.get("others") else ""
            what += f", domain of the node {domain!r}" if domain else ""
            data = zoo.specimen(operator, opset, x, small, **places)
            answer = _answer_of(student, "since", right, what, data, domain=domain)
            if right is not None:
                equal(answer, right, what)


@LAB.check("10.1", "the newest version at or before the opset", visible=True)
def newest(student: Any, rng: np.random.Generator) -> None:
    _versions(student, {BATCH: (1, 5, 6, 8, 9, 13, 14, 21), GROUP: (18, 20, 21, 25)}, {})


@LAB.check("10.1", "an opset that is too old or missing", visible=True)
def too_old(student: Any, rng: np.random.Generator) -> None:
    _versions(student, {GROUP: (17, 1)}, {})
    data = _node(BATCH, 9)
    _answer_of(
        student,
        "since",
        None,
        "since of a node of domain 'com.example' in a model without this domain",
        data,
        domain="com.example",
    )


@LAB.check("10.1", "other domains, and the long name of ONNX's own")
def domains(student: Any, rng: np.random.Generator) -> None:
    opsets = {BATCH: (6, 13)}
    _versions(student, opsets, {"others": {"ai.onnx.ml": 3, "com.example": 15}})
    _versions(student, opsets, {"domain": zoo.LONG_NAME, "others": {"com.example": 1}})
    _versions(student, opsets, {}, domain=zoo.LONG_NAME)
    _versions(student, opsets, {"domain": zoo.LONG_NAME}, domain=zoo.LONG_NAME)


def _defaults(operator: str, version: int) -> dict[str, Any]:
    """Return a dict with the attributes of this version that have a default, and their defaults."""
    found: dict[str, Any] = {"epsilon": _epsilon()}
    if operator == GROUP:
        return found | ({"stash_type": 1} if version >= 21 else {})
    modes = (("is_test", 0, 1, 6), ("spatial", 1, 1, 7), ("training_mode", 0, 14, 99))
    return (
        found
        | {"momentum": _momentum()}
        | {name: value for name, value, *ends in modes if ends[0] <= version <= ends[1]}
    )


def _required_attributes(operator: str, version: int) -> dict[str, Any]:
    """Return a dict with the attributes that this version requires, and values for them."""
    if operator == GROUP:
        return {"num_groups": 2}
    return dict(CONSUMED) if version == 1 else {}


def _attributes(student: Any, operator: str, version: int, said: dict[str, Any], right: dict[str, Any] | None) -> None:
    what = f"attributes of {operator} {version} where the file says {said or 'nothing'}"
    found = _answer_of(student, "attributes", right, what, _node(operator, version, **said), version=version)
    if right is None:
        return
    true(isinstance(found, dict), what, "a dict", type(found).__name__)
    equal(sorted(found), sorted(right), f"names of {what}")
    for name, value in right.items():
        if isinstance(value, float):
            close(found[name], value, f"{name} of {what}", rtol=1e-12)
        else:
            equal(found[name], value, f"{name} of {what}")


@LAB.check("10.2", "defaults of every version", points=2, visible=True)
def defaults(student: Any, rng: np.random.Generator) -> None:
    for operator, versions in PUBLISHED.items():
        for version in versions:
            said = _required_attributes(operator, version)
            _attributes(student, operator, version, said, _defaults(operator, version) | said)


@LAB.check("10.2", "values in the file", visible=True)
def said_in_the_file(student: Any, rng: np.random.Generator) -> None:
    for operator, versions in PUBLISHED.items():
        for version in versions:
            needed = _required_attributes(operator, version)
            whole = _defaults(operator, version) | needed
            name = str(rng.choice([name for name in whole if name not in needed]))
            value = float(np.float32(rng.uniform(0.1, 0.5))) if isinstance(whole[name], float) else int(rng.integers(2))
            _attributes(student, operator, version, needed | {name: value}, whole | {name: value})


@LAB.check("10.2", "unknown and missing attributes")
def refused_attributes(student: Any, rng: np.random.Generator) -> None:
    for version, said in ((7, {"is_test": 1}), (9, {"spatial": 0}), (6, {"training_mode": 1}), (14, dict(CONSUMED))):
        _attributes(student, BATCH, version, said, None)
    _attributes(student, GROUP, 18, {"num_groups": 2, "stash_type": 1}, None)
    _attributes(student, BATCH, 1, {}, None)
    _attributes(student, GROUP, 21, {}, None)


def _mode(student: Any, version: int, outputs: tuple[str, ...], said: dict[str, Any], right: str | None) -> None:
    names = ", ".join(outputs)
    what = f"mode of {BATCH} {version}, outputs {names}, {said or 'no attribute'}"
    options = said | _required_attributes(BATCH, version)
    answer = _answer_of(student, "mode", right, what, _node(BATCH, version, outputs, **options), version=version)
    if right is not None:
        equal(answer, right, what)


@LAB.check("10.3", "three ways to write the mode", points=2, visible=True)
def modes(student: Any, rng: np.random.Generator) -> None:
    for version in (1, 6):
        for said, right in (({}, "training"), ({"is_test": 0}, "training"), ({"is_test": 1}, "inference")):
            for outputs in (ALL_FIVE[:1], ALL_FIVE) if right == "training" else (ALL_FIVE[:1],):
                _mode(student, version, outputs, said, right)
    for version in (7, 9):
        _mode(student, version, ALL_FIVE[:1], {}, "inference")
        _mode(student, version, ALL_FIVE, {}, "training")
    for version in (14, 15):
        _mode(student, version, ALL_FIVE[:3], {"training_mode": 1}, "training")
        _mode(student, version, ALL_FIVE[:1], {"training_mode": 0}, "inference")
        _mode(student, version, ALL_FIVE[:1], {}, "inference")


@LAB.check("10.3", "outputs that do not fit the mode")
def refused_modes(student: Any, rng: np.random.Generator) -> None:
    for version in (14, 15):
        for outputs, trains in ((ALL_FIVE[:3], 0), (ALL_FIVE[:1], 1), (ALL_FIVE[:2], 1)):
            _mode(student, version, outputs, {"training_mode": trains}, None)
    _mode(student, 9, ALL_FIVE, {"is_test": 0}, None)


def _axes(student: Any, x_shape: tuple[int, ...], scale: tuple[int, ...], right: tuple[int, ...]) -> None:
    equal(student.batch_axes(x_shape, scale), axes_as_asked(right, len(x_shape)), f"batch_axes({x_shape}, {scale})")


@LAB.check("10.4", "one mean for each channel, or for each position", visible=True)
def axes(student: Any, rng: np.random.Generator) -> None:
    _axes(student, (8, 3, 4, 5), (3,), (0, 2, 3))
    _axes(student, (8, 3, 4, 5), (3, 4, 5), (0,))
    _axes(student, (8, 3), (3,), (0,))


@LAB.check("10.4", "any rank")
def any_rank(student: Any, rng: np.random.Generator) -> None:
    _axes(student, (8, 3, 4), (3, 4), (0,))
    _axes(student, (8, 3, 4), (3,), (0, 2))
    _axes(student, (3, 3, 3, 3, 3), (3,), (0, 2, 3, 4))
    _axes(student, (3, 3, 3, 3, 3), (3, 3, 3, 3), (0,))
    _axes(student, (8,), (1,), (0,))


@dataclass(frozen=True)
class Case:
    """A node, its inputs, and the formulas for its right results."""

    operator: str
    version: int
    trains: bool
    x: Any
    parameters: list[Any]
    epsilon: float = field(default_factory=_epsilon)
    momentum: float = field(default_factory=_momentum)
    said: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        mode = f"{'training' if self.trains else 'inference'}, " if self.operator == BATCH else ""
        types = {str(array.dtype) for array in (self.x, *self.parameters)}
        shapes = f"x {self.x.shape}, scale {self.parameters[0].shape}"
        return f"{self.operator} {self.version}, {mode}{shapes}, {' and '.join(sorted(types))}"

    def right(self) -> list[Any]:
        """Return all results in float64."""
        x, s, b, *running = (array.astype(np.float64) for array in (self.x, *self.parameters))
        if self.operator == GROUP:
            groups = self.said["num_groups"]
            rows = x.reshape(len(x), groups, -1)
            xhat = (rows - rows.mean(-1, keepdims=True)) / np.sqrt(rows.var(-1, keepdims=True) + self.epsilon)
            each = x.shape[1] // len(s)  # channels of one scale
            s, b = (np.repeat(v, each).reshape(-1, *[1] * (x.ndim - 2)) for v in (s, b))
            return [xhat.reshape(x.shape) * s + b]
        flat = x.reshape(len(x), s.shape[0] if x.ndim > 1 else 1, -1)
        if s.ndim > 1:  # each position is a channel
            flat = x.reshape(len(x), -1, 1)
        means, variances = flat.mean((0, 2)), flat.var((0, 2))
        mean, var = (means, variances) if self.trains else (v.ravel() for v in running)
        y = (flat - mean[:, None]) / np.sqrt(var[:, None] + self.epsilon) * s.ravel()[:, None] + b.ravel()[:, None]
        batch = [v.reshape(s.shape) for v in (means, variances)]
        new = [old * self.momentum + now * (1 - self.momentum) for old, now in zip(running, batch, strict=True)]
        return [y.reshape(x.shape), *new, *batch][: (5 if self.version <= 9 else 3) if self.trains else 1]

    def types(self) -> list[Any]:
        """Return the types of the results."""
        return [self.x.dtype, self.parameters[-1].dtype, self.parameters[-1].dtype, self.x.dtype, self.x.dtype]

    def compare(self, place: int, got: Any, right: Any, what: str) -> None:
        """Compare the result with the index `place` with the right one, within the tolerance of its type."""
        dtype = self.types()[place]
        tolerance = TOLERANCE[str(dtype)]
        close(got, right, what, rtol=tolerance, atol=tolerance, dtype=dtype)


def _batch(
    rng: np.random.Generator,
    version: int,
    trains: bool,
    shape: tuple[int, ...] = (4, 3, 2, 5),
    positions: bool = False,
    types: tuple[str, str, str] = ("float32",) * 3,
    epsilon: float | None = None,
    momentum: float | None = None,
) -> Case:
    x = rng.standard_normal(shape) * 2 + 3
    own = shape[1:] if positions else shape[1:2] or (1,)
    s, b, mean = rng.standard_normal((3, *own))
    var = rng.uniform(0.5, 4, own)
    kinds = (types[0], types[1], types[1], types[2], types[2])
    arrays = [v.astype(kind) for v, kind in zip((x, s, b, mean, var), kinds, strict=True)]
    epsilon = _epsilon() if epsilon is None else stored(epsilon)
    momentum = _momentum() if momentum is None else stored(momentum)
    return Case(BATCH, version, trains, arrays[0], arrays[1:], epsilon, momentum)


def _norm(student: Any, case: Case) -> None:
    """Run `batch_norm` or `group_norm` on a case."""
    found = {"epsilon": case.epsilon, **case.said}
    right = case.right()
    if case.operator == GROUP:
        what = f"group_norm({case.version}, ...): {case}"
        case.compare(0, student.group_norm(case.version, found, case.x, *case.parameters), right[0], what)
        return
    found["momentum"] = case.momentum
    what = f"batch_norm({case.version}, {case.trains}, ...): {case}"
    results = parts(student.batch_norm(case.version, case.trains, found, case.x, *case.parameters), len(right), what)
    for place, (got, value) in enumerate(zip(results, right, strict=True)):
        case.compare(place, got, value, f"{ALL_FIVE[place]} of {what}")


@LAB.check("10.5", "inference", visible=True)
def inference(student: Any, rng: np.random.Generator) -> None:
    for version in PUBLISHED[BATCH]:
        _norm(student, _batch(rng, version, False))


@LAB.check("10.5", "training", points=2, visible=True)
def training(student: Any, rng: np.random.Generator) -> None:
    for version in PUBLISHED[BATCH]:
        _norm(student, _batch(rng, version, True, epsilon=0.3, momentum=0.7))


@LAB.check("10.5", "statistics for each position", visible=True)
def positions(student: Any, rng: np.random.Generator) -> None:
    for version, trains in ((1, True), (6, False), (7, True)):
        _norm(student, _batch(rng, version, trains, (6, 3, 4, 2), positions=True))


@LAB.check("10.5", "other types, other ranks")
def mixed(student: Any, rng: np.random.Generator) -> None:
    _norm(student, _batch(rng, 15, True, types=("float16", "float32", "float64")))
    _norm(student, _batch(rng, 14, True, types=("float16", "float16", "float32")))
    _norm(student, _batch(rng, 15, False, types=("float32", "float64", "float64")))
    _norm(student, _batch(rng, 9, True, (50,)))
    _norm(student, _batch(rng, 9, True, (7, 3)))
    _norm(student, _batch(rng, 14, False, (2, 3, 2, 2, 2)))


def _group(
    rng: np.random.Generator,
    version: int,
    shape: tuple[int, ...],
    groups: int,
    dtype: str,
    mean: float = 1,
    **said: Any,
) -> Case:
    x = (rng.standard_normal(shape) * (mean if dtype == "float16" else 2) + mean).astype(dtype)
    s, b = rng.standard_normal((2, groups if version == 18 else shape[1])).astype(dtype)
    return Case(GROUP, version, False, x, [s, b], said={"num_groups": groups, **said})


@LAB.check("10.6", "one scale for each group, or for each channel", points=2, visible=True)
def groups(student: Any, rng: np.random.Generator) -> None:
    for shape, count in (((2, 6, 3, 4), 2), ((3, 6, 5), 3), ((2, 4, 2, 2, 3), 1), ((2, 6, 5), 6)):
        _norm(student, _group(rng, 18, shape, count, "float32"))
        _norm(student, _group(rng, 21, shape, count, "float32", stash_type=1))


@LAB.check("10.6", "large numbers, float64")
def stash(student: Any, rng: np.random.Generator) -> None:
    _norm(student, _group(rng, 21, (2, 4, 6), 2, "float16", mean=500.0, stash_type=1))
    _norm(student, _group(rng, 21, (2, 4, 6), 2, "float32", mean=1e6, stash_type=11))
    _norm(student, _group(rng, 18, (2, 4, 6), 2, "float16", mean=500.0))


@LAB.check("10.6", "shapes that do not fit")
def refused_groups(student: Any, rng: np.random.Generator) -> None:
    for version, count, sizes in ((21, 4, (6, 6)), (21, 12, (6, 6)), (18, 2, (6, 6)), (21, 2, (2, 2)), (21, 2, (1, 6))):
        x, found = np.ones((2, 6, 4), np.float32), {"num_groups": count, "epsilon": _epsilon(), "stash_type": 1}
        s, b = (np.ones(size, np.float32) for size in sizes)
        what = f"group_norm {version}, x {x.shape}, num_groups={count}, scale {s.shape}, bias {b.shape}"
        args = (version, found, x, s, b)
        if student.drive("refusal", function="group_norm", args=args) is not True:
            raise Wrong(what, REFUSED, "an answer")


def _outputs(case: Case, fewer: bool) -> tuple[str, ...]:
    """Return the names of the outputs. If `fewer` is true, batch_mean and batch_var are left out."""
    if not case.trains or (case.version <= 6 and case.epsilon != _epsilon()):  # there, one output may train as well
        return ALL_FIVE[:1]
    if case.version >= 14:
        return ALL_FIVE[:3]
    return (*ALL_FIVE[:3], "", "") if fewer else ALL_FIVE


def _written_attributes(case: Case, rng: np.random.Generator) -> dict[str, Any]:
    """Return the attributes of a node. Defaults are written or left out at random."""
    said = dict(case.said) | _required_attributes(case.operator, case.version) | case.said
    if case.operator == BATCH:
        if case.version <= 6 and (not case.trains or rng.random() < 0.3):
            said["is_test"] = int(not case.trains)
        if case.version >= 14 and (case.trains or rng.random() < 0.3):
            said["training_mode"] = int(case.trains)
        if case.version <= 7 and case.parameters[0].ndim > 1:
            said["spatial"] = 0
        if case.momentum != _momentum():
            said["momentum"] = case.momentum
    if case.epsilon != _epsilon():
        said["epsilon"] = case.epsilon
    return said


def cases(rng: np.random.Generator, versions: tuple[int, ...]) -> Iterator[tuple[Case, int]]:
    """Make the zoo: nodes of these versions, each with a suitable opset."""
    for version in versions:
        operator = BATCH if version in PUBLISHED[BATCH] else GROUP
        known = (*PUBLISHED[operator], 26)
        opset = int(rng.integers(version, known[known.index(version) + 1]))
        if operator == GROUP:
            for shape, count in (((2, 6, 4), 3), ((1, 4, 2, 3), 4), ((3, 8, 2), 2)):
                yield _group(rng, version, shape, count, "float32"), opset
            continue
        for trains in (True, False):
            yield _batch(rng, version, trains), opset
            yield _batch(rng, version, trains, epsilon=0.01, momentum=0.5), opset
            if version <= 7:
                yield _batch(rng, version, trains, (5, 2, 3, 2), positions=True), opset
            if version >= 9:
                yield _batch(rng, version, trains, (9,)), opset
            if version >= 14:
                yield _batch(rng, version, trains, types=("float16", "float16", "float32")), opset


def specimen(
    case: Case, opset: int, rng: np.random.Generator, odd: bool
) -> tuple[Any, tuple[str, ...], dict[str, Any]]:
    """Turn a case into a model. If `odd` is true, its names and imports are unusual, and outputs may be missing."""
    outputs, said = _outputs(case, odd and rng.random() < 0.5), _written_attributes(case, rng)
    places: dict[str, Any] = {}
    if odd:
        places = {"domain": zoo.LONG_NAME, "others": {"com.example": 30 - opset}, "prefix": "layer1/"}
    return zoo.specimen(case.operator, opset, case.x, case.parameters, said, outputs, **places), outputs, said


def _zoo(student: Any, rng: np.random.Generator, versions: tuple[int, ...], odd: bool = False) -> None:
    for case, opset in cases(rng, versions):
        data, outputs, said = specimen(case, opset, rng, odd)
        what = f"{case}; opset {opset}, outputs {', '.join(map(repr, outputs))}, {said or 'no attribute'}"
        found = student.drive("ran", data=data, x=case.x)
        true(isinstance(found, dict), f"run: {what}", "a dict", type(found).__name__)
        equal(sorted(found), sorted(filter(None, outputs)), f"names of the results of run: {what}")
        for place, (name, right) in enumerate(zip(outputs, case.right(), strict=False)):
            if name:
                numbers(found[name], f"{name} of run: {what}", "an array")
                case.compare(place, found[name], right, f"{name} of run: {what}")


@LAB.check("10.7", "the zoo: BatchNormalization", points=2, visible=True)
def batch_zoo(student: Any, rng: np.random.Generator) -> None:
    _zoo(student, rng, PUBLISHED[BATCH])


@LAB.check("10.7", "the zoo: GroupNormalization", visible=True)
def group_zoo(student: Any, rng: np.random.Generator) -> None:
    _zoo(student, rng, PUBLISHED[GROUP])


@LAB.check("10.7", "the zoo: rare models", points=2)
def rare(student: Any, rng: np.random.Generator) -> None:
    _zoo(student, rng, (*PUBLISHED[BATCH], *PUBLISHED[GROUP]), odd=True)


def _batch_norm(version: int, training: bool, found: dict[str, Any], x: Any, *parameters: Any) -> list[Any]:
    case = Case(BATCH, version, training, x, list(parameters), found["epsilon"], found["momentum"])
    return [value.astype(dtype) for value, dtype in zip(case.right(), case.types(), strict=False)]


def _group_norm(version: int, found: dict[str, Any], x: Any, s: Any, b: Any) -> Any:
    numbers = (found["num_groups"] if version == 18 else x.shape[1],)
    if x.shape[1] % found["num_groups"] or s.shape != numbers or b.shape != numbers:
        raise ValueError(f"{found['num_groups']} groups of {x.shape[1]} channels, scale {s.shape}, bias {b.shape}")
    case = Case(GROUP, version, False, x, [s, b], found["epsilon"], said=found)
    return case.right()[0].astype(x.dtype)


def _batch_axes(x_shape: tuple[int, ...], scale_shape: tuple[int, ...]) -> Any:
    return axes_as_asked((0, *range(1 + len(scale_shape), len(x_shape))), len(x_shape))


LAB.provide("10.1", since=Sent(ours.since))
LAB.provide("10.2", attributes=Sent(ours.attributes, lambda: {"epsilon": V.epsilon, "momentum": V.momentum}))
LAB.provide("10.3", mode=Sent(ours.mode))
LAB.provide("10.4", batch_axes=_batch_axes)
LAB.provide("10.5", batch_norm=_batch_norm)
LAB.provide("10.6", group_norm=_group_norm)
