"""Finds the operations of a model that can run on integers: runs the model once and watches its operations.

    weighted    convolutions and linear maps: int8 weights, int32 bias, and integers in and out
    joining     sums, concatenations, averages: integers in and out
    passing     max pooling, reshaping and the like, which only select or move numbers: integers in, integers out
    others      separate norms, hardswish, softmax ...: floats; results that an operation on integers reads are rounded

A BatchNorm after a convolution is folded into the convolution. If a ReLU or ReLU6 follows a weighted operation, a
folded BatchNorm or a joining operation, the two operations belong to one chain. Values inside a chain are not rounded;
only the result of the chain's last operation is rounded.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import minorm.functional as F
from minorm.devices import dtypes
from minorm.functional.piecewise import hardtanh
from minorm.functional.volumes import adaptive_avg_pool3d
from minorm.nn import Module, ModuleDict
from minorm.ops import elementwise, indexing, pooling, reduction, shape
from minorm.quantization.recorded_steps import Site, Step, tensors_of, watch
from minorm.tensor.tensor import Tensor

WEIGHTED = (F.conv1d, F.conv2d, F.conv3d, F.linear)
CLIPPING = (F.relu, F.relu6, hardtanh, elementwise.Clip)
JOINING = (
    elementwise.Add, shape.Cat, reduction.Mean, F.avg_pool1d, F.avg_pool2d, F.avg_pool3d, F.adaptive_avg_pool1d,
    F.adaptive_avg_pool2d, adaptive_avg_pool3d, pooling.AvgPool, pooling.AdaptiveAvgPool,
)  # fmt: skip
PASSING = (
    F.max_pool1d, F.max_pool2d, F.max_pool3d, pooling.MaxPool, F.dropout, shape.Reshape, shape.Permute, shape.Expand,
    shape.Flip, shape.Unbind, indexing.GetItem,
)  # fmt: skip
SHAPING = (shape.Reshape, shape.Permute, shape.Expand, indexing.GetItem)
BESIDE = (elementwise.Add, elementwise.Sub, elementwise.Mul, elementwise.Div, shape.Cat)
ATTRIBUTES = {"model", "plan", "ends"}  # attributes of the int8 model that other modules do not have


@dataclass
class Plan:
    """The steps of a model, and the inputs of the model that are rounded."""

    steps: list[Step] = field(default_factory=list)
    inputs: dict[int, Site] = field(default_factory=dict)
    weights: dict[str, str] = field(default_factory=dict)  # the key of a weight's fake quantization -> its name
    floats: list[str] = field(default_factory=list)  # weights without an int8 form, if allowed

    @property
    def sites(self) -> list[Site]:
        """Return all Sites, the points at which activations are rounded."""
        return [*self.inputs.values(), *(site for step in self.steps for site in step.outputs.values())]


def make_plan(model: Module, args: tuple[Any, ...], exclude: tuple[str, ...] = (), strict: bool = True) -> Plan:
    """Return the Plan of `model(*args)`, which says which steps run on integers.

    exclude    the paths of modules that stay float, together with all modules inside them
    strict     True to raise ValueError for a weight that cannot become integers; False to list it in `floats` of the
               plan
    """
    _check_paths(model, exclude)
    steps, returned = watch(model, args)
    plan = Plan(steps)
    planner = _Planner(model, plan, args, returned, exclude)
    planner.run()
    plan.floats = planner.left_out(strict)
    for step in plan.steps:
        if step.target in CLIPPING:
            step.clips = bounds(step)
        step.forget()
    return plan


def _check_paths(model: Module, exclude: tuple[str, ...]) -> None:
    known = {path for path, _ in model.named_modules()}
    for path in exclude:
        if path not in known:
            raise ValueError(
                f"prepare_qat: exclude names {path!r}, which is no module of {type(model).__name__}; expected one of "
                f"{', '.join(sorted(known - {''}))}"
            )


def bounds(step: Step) -> tuple[float | None, float | None]:
    """Return the lower and the upper bound of a step that clips."""
    given = step.arguments
    if step.target is elementwise.Clip:
        return given["low"], given["high"]
    if step.target is hardtanh:
        return given["min_val"], given["max_val"]
    return 0.0, 6.0 if step.target is F.relu6 else None


def numbered(wish: str, is_taken: Callable[[str], bool]) -> str:
    """Return the name `wish` if it is free, else the first free name of wish_2, wish_3 ..."""
    names = itertools.chain((wish,), (f"{wish}_{number}" for number in itertools.count(2)))
    return next(name for name in names if not is_taken(name))


class _Planner:
    def __init__(
        self, model: Module, plan: Plan, args: tuple[Any, ...], returned: list[Tensor], exclude: tuple[str, ...]
    ) -> None:
        self.model, self.plan, self.steps, self.exclude = model, plan, plan.steps, exclude
        self.names = {id(p): name for name, p in model.named_parameters()}
        self.readers: dict[int, list[int]] = {}  # a step -> the steps that read its result
        self.inputs = {id(tensor): i for i, tensor in enumerate(tensors_of(args))}
        self.fed: set[int] = set()  # the steps that depend on the inputs
        makers: dict[int, int] = {}  # id of a tensor -> the step that made it, or changed it last
        for i, step in enumerate(self.steps):
            read = [id(tensor) for tensor in tensors_of(step.arguments)]
            step.makers = {key: makers[key] for key in read if key in makers}
            if not self.inputs.keys().isdisjoint(read) or not self.fed.isdisjoint(step.makers.values()):
                self.fed.add(i)
            for maker in step.makers.values():
                self.readers.setdefault(maker, []).append(i)
            for tensor in step.results:
                if step.changed or id(tensor) not in makers:
                    makers[id(tensor)] = i
        self.returned = {makers[id(tensor)] for tensor in returned if id(tensor) in makers}
        self.keys = set(dir(ModuleDict()))  # keys in use; a ModuleDict will hold the FakeQuantize layers

    def run(self) -> None:
        """Fill in the plan."""
        for i, step in enumerate(self.steps):
            if self._is_weighted(step):
                step.weight = self._weight_key(self.names[id(step.arguments["weight"])])
                step.norm = self._follower(i, self._folds)
                if step.norm is not None:
                    self.steps[step.norm].folded = True
            step.last = i if step.norm is None else step.norm
            if step.weight or (step.target in JOINING and self._joins(step)):
                step.clip = self._follower(step.last, lambda s: s.target in CLIPPING)
                step.last = step.last if step.clip is None else step.clip
        for i, step in enumerate(self.steps):
            if step.weight:
                step.source = self._round(step.arguments["x"], step)
                self._site(step.last, step.path, i)
            elif step.target in JOINING and self._joins(step):
                found = [self._round(tensor, step) for tensor in self._floats_of(step)]
                step.sources = [site for site in found if site is not None]
                self._site(step.last, step.path, i)

    def _is_out(self, step: Step) -> bool:
        return self._is_excluded(step.path)

    def _is_excluded(self, path: str) -> bool:
        return any(path == out or path.startswith(f"{out}.") for out in self.exclude)

    def _is_weighted(self, step: Step) -> bool:
        if step.target not in WEIGHTED or id(step.arguments["weight"]) not in self.names or self._is_out(step):
            return False
        return self._is_computed(step.arguments["x"], step)

    def _is_computed(self, tensor: Tensor, reader: Step) -> bool:
        """Return True if a tensor is an input or a computed result.

        The result of a passing step counts only if the step's argument is an input or a computed result.
        """
        if id(tensor) not in reader.makers:
            return id(tensor) in self.inputs
        step = self.steps[reader.makers[id(tensor)]]
        return step.target not in PASSING or self._is_computed(self._floats_of(step)[0], step)

    def _floats_of(self, step: Step) -> list[Tensor]:
        return [tensor for tensor in tensors_of(step.arguments) if dtypes.is_float(tensor.dtype)]

    def _joins(self, step: Step) -> bool:
        """Return True if the operation joins computed activations.

        A sum with a Parameter does not count, since it only adds a bias.
        """
        found = self._floats_of(step)
        made = all(id(t) in step.makers or id(t) in self.inputs for t in found)
        wanted = 2 if step.target is elementwise.Add else 1
        return made and len(found) >= wanted and not self._is_out(step)

    def _follower(self, i: int, wanted: Callable[[Step], bool]) -> int | None:
        """Return the number of the step that reads the result of step i.

        Return None if several steps read this result, or if `wanted` refuses the step.
        """
        readers = self.readers.get(i, [])
        if len(readers) != 1 or i in self.returned or self._is_out(self.steps[readers[0]]):
            return None
        return readers[0] if wanted(self.steps[readers[0]]) else None

    def _folds(self, step: Step) -> bool:
        """Return whether a step is a BatchNorm with running statistics over the output channels of the step before.

        The output channels are axis 1 after a convolution of a batch. After a linear layer they are axis 1 only if the
        result is N x C.
        """
        if step.target is not F.batch_norm or step.arguments["training"] or step.arguments["running_mean"] is None:
            return False
        x = step.arguments["x"]
        weight = self.steps[step.makers[id(x)]].arguments["weight"]
        return bool(x.ndim == weight.ndim)

    def _round(self, tensor: Tensor, reader: Step) -> Site | None:
        """Mark a tensor for rounding, at the step that computed its numbers; return the Site."""
        if id(tensor) not in reader.makers:
            number = self.inputs.get(id(tensor))
            if number is None:
                return None
            if number not in self.plan.inputs:
                self.plan.inputs[number] = Site(self._key(f"input{number or ''}"))
            return self.plan.inputs[number]
        i = reader.makers[id(tensor)]
        step = self.steps[i]
        if step.target in PASSING:
            return self._round(self._floats_of(step)[0], step)
        place = next(n for n, result in enumerate(step.results) if result is tensor)
        return self._site(i, step.path, i, place)

    def _site(self, i: int, path: str, named_by: int, place: int = 0) -> Site:
        """Return the Site of Tensor number `place` in the result of step i; make the Site if it does not exist yet."""
        step = self.steps[i]
        if place not in step.outputs:
            target = self.steps[named_by].target
            weight = self.steps[named_by].weight
            path = path or ("" if weight is None else weight.removesuffix("_weight"))
            step.outputs[place] = Site(self._key(path or str(target.__name__)))
        return step.outputs[place]

    def _weight_key(self, name: str) -> str:
        """Return the key of a weight: its name with _ instead of dots, and a number if another weight has this key."""
        known = next((key for key, other in self.plan.weights.items() if other == name), None)
        if known is not None:
            return known
        stem, suffix = name.replace(".", "_"), ""
        if stem.endswith("_weight"):
            stem, suffix = stem.removesuffix("_weight"), "_weight"
        taken = self.keys | ATTRIBUTES  # also attributes, because the keys are names of the int8 model's buffers
        key = numbered(stem, lambda key: not taken.isdisjoint((key + suffix, f"{key}_bias")))
        self.keys |= {key + suffix, f"{key}_bias"}
        self.plan.weights[key + suffix] = name
        return key + suffix

    def _key(self, wish: str) -> str:
        key = numbered(wish.replace(".", "_").lower(), lambda key: key in self.keys)
        self.keys.add(key)
        return key

    def left_out(self, strict: bool) -> list[str]:
        """Return the weight matrices that no operation on integers reads.

        If `strict` is True, raise ValueError for the first of these matrices.
        """
        weights = set(self.plan.weights.values())
        if not weights:
            raise ValueError(
                f"prepare_qat: {type(self.model).__name__} has no convolution and no linear layer to quantize"
            )
        owners = dict(self.model.named_modules())
        found = []
        for name, parameter in self.model.named_parameters():
            path, _, last = name.rpartition(".")
            layer = owners.get(path, self.model)
            out = "" in self.exclude or self._is_excluded(path)
            if out or parameter.ndim < 2 or name in weights or not self._needs_integers(layer):
                continue
            if self._is_beside([i for i, step in enumerate(self.steps) if step.reads(parameter)]):
                continue
            found.append(name)
            if not strict:
                continue
            kind = type(layer).__name__
            raise ValueError(
                f"prepare_qat: layer {path!r} is a {kind}, whose {last} cannot be converted to integers; expected "
                f"layers that call conv1d, conv2d, conv3d or linear with a Parameter; exclude=({path!r},) leaves it "
                "float"
            )
        return found

    def _is_beside(self, readers: list[int]) -> bool:
        """Return True if all readers of a Parameter only add, multiply or concatenate it with activations.

        Examples of such Parameters are a layer's scale, positions and a class token, which may be reshaped first. Such
        Parameters have few numbers.
        """
        for i in readers:
            target = self.steps[i].target
            shaped = target in SHAPING and i not in self.fed and self._is_beside(self.readers.get(i, []))
            if not shaped and not (target in BESIDE and i in self.fed):
                return False
        return bool(readers)

    def _needs_integers(self, layer: Module) -> bool:
        return not type(layer).__module__.startswith("minorm.nn.norm") and "Embedding" not in type(layer).__name__
