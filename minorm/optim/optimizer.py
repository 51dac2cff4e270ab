"""Base of all optimizers: it has groups of parameters with their settings, and a state for each parameter.

    groups   lists of parameters, each with separate settings (`param_groups`, a list of dicts as in PyTorch)
    state    parameter -> {name: array or number}, made at the parameter's first step

A subclass defines `_update(group, parameters, gradients)`, which does one step on the arrays of a group.
"""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from minorm import devices
from minorm.devices import capture
from minorm.graph.grad_mode import enable_grad
from minorm.kernels import select
from minorm.optim.argument_texts import OPTIMIZER
from minorm.optim.rates import as_number, checked_number, set_rate
from minorm.support.argument_errors import Checked, conversion, is_foreign, kind_of
from minorm.support.documented import documented
from minorm.support.states import check_kind, check_number, completed, shown
from minorm.tensor.memory_formats import lies_like
from minorm.tensor.tensor import Tensor

_CPU = {"cpu"}
_TAKEN = frozenset({"foreach", "fused", "capturable", "differentiable"})  # PyTorch's options that change no result
_COMMON = frozenset({"lr", "weight_decay", "maximize"})  # options that all optimizers have
_NUMBERS = frozenset({"step", "mu_product"})  # the numbers in a parameter's state; the rest are arrays
_ARRAYS = frozenset({"momentum_buffer", "exp_avg", "exp_avg_sq", "max_exp_avg_sq", "exp_inf", "square_avg", "grad_avg",
                     "acc_delta", "sum"})  # fmt: skip
_SCHEDULED = frozenset({"initial_lr", "max_lr", "min_lr", "max_momentum", "base_momentum"})  # set by schedules


@documented(OPTIMIZER, defaults="the settings for groups that lack a setting")
class Optimizer(Checked):
    """Base of the optimizers: groups of parameters with separate settings, and a state for each parameter.

    A subclass defines `_update(group, parameters, gradients)`, which does one step. Raises TypeError for a parameter
    that is not a Tensor. Raises ValueError for an empty list, for a Tensor that was computed from other Tensors or
    appears twice, and for a setting outside its range.

    Example:
        >>> model = nn.Linear(2, 1)
        >>> groups = [{"params": [model.weight]}, {"params": [model.bias], "lr": 1.0}]
        >>> isinstance(optimizer := mn.optim.SGD(groups, lr=0.1), mn.optim.Optimizer)
        True
        >>> [group["lr"] for group in optimizer.param_groups]
        [0.1, 1.0]
    """

    _can_be_captured = False  # True: the backend's kernels do a whole step
    _at_least_0: tuple[str, ...] = ()  # settings that must not be negative; a group may lack some
    _counts: tuple[str, ...] = ()  # settings among them that are whole numbers
    _required: frozenset[str] = frozenset()  # names that a parameter's state must have, unless it is empty

    def __init__(self, params: Iterable[Any], defaults: dict[str, Any], differentiable: bool = False) -> None:
        if differentiable:
            raise NotImplementedError(
                f"{self._name}: differentiable is True; expected False, because gradients cannot flow through the "
                "steps of this optimizer"
            )
        self.defaults = defaults
        self.state: defaultdict[Tensor, dict[str, Any]] = defaultdict(dict)  # as in PyTorch: a `step` may make an entry
        self._places: dict[int, set[str]] = {}  # devices of a group's parameters at its last step
        self._versions: dict[int, list[Any]] = {}  # of a group's parameters at its last step
        self.param_groups: list[dict[str, Any]] = []
        if (
            isinstance(params, (Tensor, np.ndarray, dict, str))
            or hasattr(params, "parameters")
            or not isinstance(params, Iterable)
        ):
            raise TypeError(
                f"{self._name}: params is a {type(params).__name__}; expected a list of Tensors or of dicts, "
                f"such as model.parameters(){_how_to_list(params)}"
            )
        groups = list(params)
        if not groups:
            raise ValueError(
                f"{self._name}: params is empty; expected at least one parameter (model.parameters()); a model finds "
                "layers in an nn.ModuleList, but not in a list, and finds each nn.Parameter, but no other Tensor"
            )
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(group)

    @property
    def _is_ours(self) -> bool:
        return type(self).__module__.startswith("minorm.")

    def __setattr__(self, name: str, value: Any) -> None:
        # A user's subclass may keep anything under these names.
        if name in self.__dict__.get("defaults", ()) and self._is_ours:
            raise AttributeError(
                f"{self._name}.{name} = {value!r}: settings belong to the parameter groups; use: for group in "
                f"optimizer.param_groups: group[{name!r}] = {value!r}"
            )
        object.__setattr__(self, name, value)

    @property
    def _name(self) -> str:
        return type(self).__name__

    @documented({}, param_group='{"params": Tensors, "lr": ...}')
    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of parameters; a setting that is missing in the dict gets the default."""
        if not isinstance(param_group, dict) or "params" not in param_group:
            raise TypeError(f"{self._name}: a parameter group is a dict with 'params'; got {_brief(param_group)}")
        unknown = sorted(param_group.keys() - self.defaults.keys() - {"params"} - _SCHEDULED - _TAKEN)
        if unknown:
            raise ValueError(
                f"{self._name}: parameter group has {', '.join(map(repr, unknown))}; expected 'params' and any of "
                f"{', '.join(map(repr, self.defaults))}"
            )
        given = param_group["params"]
        parameters = [given] if isinstance(given, Tensor) else list(given)
        if not parameters:
            raise ValueError(f"{self._name}: a parameter group has no parameters; expected at least one")
        known = {id(p) for group in self.param_groups for p in group["params"]}
        for index, parameter in enumerate(parameters):
            if not isinstance(parameter, Tensor):
                name = f"params[{index}]"
                fix = "; pass model.parameters(), without the names" if isinstance(parameter, tuple) else ""
                if isinstance(parameter, (Iterator, list)):
                    fix = "; put several lists into one: [*a.parameters(), *b.parameters()]"
                if is_foreign(parameter):
                    fix = f"; {conversion(name, parameter)}"
                raise TypeError(f"{self._name}: {name} is a {kind_of(parameter)}; expected a Tensor{fix}")
            if not parameter.is_leaf:
                raise ValueError(
                    f"{self._name}: params[{index}] of shape {parameter.shape} was computed by "
                    f"{type(parameter.creator).__name__}; expected a leaf, because only a leaf has its own gradient"
                )
            if id(parameter) in known:
                raise ValueError(
                    f"{self._name}: params[{index}] of shape {parameter.shape} appears twice; expected each parameter "
                    "once, in one group"
                )
            known.add(id(parameter))
        group = {**self.defaults, **param_group, "params": parameters}
        self._check(group)
        self.param_groups.append(group)

    def _check(self, group: dict[str, Any]) -> None:
        """Raise an error for settings outside their range; further settings of a user's subclass are not checked."""
        if self._at_least_0:
            self._require(group, *[name for name in self._at_least_0 if name in group])

    def _require(self, group: dict[str, Any], *names: str) -> None:
        """Raise an error unless these settings are numbers of at least 0. If the optimizer has betas, there must be two
        betas of at least 0 and below 1.
        """
        for name in names:
            value = group[name]
            if name == "lr":
                value = checked_number(self._name, name, value)
            if name in self._counts and (isinstance(value, bool) or not isinstance(value, (int, np.integer))):
                raise TypeError(f"{self._name}: {name}={value!r}; expected an int")
            if not isinstance(value, (int, float, np.number)):
                raise TypeError(f"{self._name}: {name}={value!r}; expected a number")
            if not 0 <= value < float("inf"):
                raise ValueError(f"{self._name}: {name}={value}; expected at least 0")
        betas = group["betas"] if "betas" in self.defaults else (0, 0)
        if len(betas) != 2 or not all(0 <= beta < 1 for beta in betas):
            raise ValueError(f"{self._name}: betas={betas}; expected two numbers with 0 <= beta < 1")

    @documented({}, set_to_none="True sets the gradients to None, False fills them with zeros in place")
    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients of all parameters. Without this call, backward() adds to the old gradients."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if set_to_none:
                    parameter.grad = None
                elif parameter.grad is not None:
                    with devices.on_device_of(parameter.grad.array):
                        parameter.grad.array[...] = 0
                    parameter.grad.version.count += 1

    @documented(
        {},
        closure="a function that is called before the step, computes the gradients and returns the loss; "
        "None calls nothing",
    )
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Change every parameter that has a gradient, in place.

        Return the result of `closure`, or None if there is no closure.
        """
        if closure is not None and not callable(closure):
            raise TypeError(
                f"{self._name}.step: closure is a {kind_of(closure)}; expected a function, or nothing; call "
                "loss.backward(), and then optimizer.step()"
            )
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        for group in self.param_groups:
            parameters = [p for p in group["params"] if p.grad is not None]
            if parameters:
                gradients = [p.grad.array for p in parameters]
                self._check_gradients(parameters, gradients)
                self._follow(group, parameters)
                watch = capture.watch()
                if watch is not None:
                    watch.gradients += [(p, p.grad) for p in parameters]
                recording = capture.recording()
                if recording is None:
                    self._update_each_device(group, parameters, gradients)
                else:
                    self._capture(recording, group, parameters, gradients)
                for p in parameters:
                    p.version.count += 1
        return loss

    def _capture(
        self, recording: capture.Recording, group: dict[str, Any], parameters: list[Tensor], gradients: list[Any]
    ) -> None:
        """Capture the step as part of a CUDA graph; the counters on the host go up at each replay, but not now."""
        self._refuse_capture()

        def again() -> None:
            self._update_each_device(group, parameters, gradients)
            for p in parameters:
                p.version.count += 1

        before = {p: dict(state) for p, state in self.state.items()}
        try:
            self._update_each_device(group, parameters, gradients)
            if any(state.keys() != before.get(p, {}).keys() for p, state in self.state.items()):
                raise RuntimeError(
                    f"{self._name}.step: the captured step creates a part of the optimizer's state, so each replay "
                    "would reset this part; run a step before the capture"
                )
        finally:
            self.state.clear()
            self.state.update(before)
        recording.again.append(again)
        recording.checks.append(self._unchanged(group, parameters))

    def _refuse_capture(self) -> None:
        """During the capture of a CUDA graph, raise RuntimeError unless kernels compute every part of a step."""
        if capture.recording() is not None and not self._can_be_captured:
            raise RuntimeError(
                f"{self._name}.step: {self._name} computes with numbers on the CPU, which a replay of a CUDA graph "
                "does not update; expected SGD, Adam or AdamW in a captured step"
            )

    def _unchanged(self, group: dict[str, Any], parameters: list[Tensor]) -> Callable[[], str]:
        """Return a function to call before each replay; it checks that memory, parameters and switches are the same."""
        arrays = [(p, p.array) for p in parameters]
        states = [(p, name, value) for p in parameters for name, value in self.state[p].items() if name in _ARRAYS]
        before = self._form(group)

        def check() -> str:
            if any(p.array is not array for p, array in arrays) or any(
                self.state[p].get(name) is not value for p, name, value in states
            ):
                return (
                    "a parameter or the optimizer's state has moved to other memory since the capture; call "
                    "load_state_dict, to() and add_param_group before the capture"
                )
            return (
                ""
                if self._form(group) == before
                else (f"{self._name} has other groups or switches than at the capture")
            )

        return check

    def _form(self, group: dict[str, Any]) -> tuple[Any, ...]:
        """Return the facts that must not change after a capture: how many parameters train, and the switches of the
        group.
        """
        trained = [sum(p.requires_grad for p in each["params"]) for each in self.param_groups]
        return (*trained, *(bool(group.get(name)) for name in ("momentum", "nesterov", "amsgrad")))

    def _check_gradients(self, parameters: list[Tensor], gradients: list[Any]) -> None:
        for p, g in zip(parameters, gradients, strict=True):
            data = p.array
            if g.shape != data.shape or g.dtype != data.dtype:
                raise ValueError(
                    f"{self._name}: the gradient of a parameter is {g.dtype} of shape {g.shape}; expected {data.dtype} "
                    f"of shape {data.shape}, as for the parameter; set p.grad to None to drop the gradient"
                )

    def _follow(self, group: dict[str, Any], parameters: list[Tensor]) -> None:
        """Bring the state to the parameters' devices and into their order in memory, if parameters have got new arrays
        since the last step: model.to(device) moves them, and a convolution may lay its weights with the channels last.
        """
        key = id(group["params"])
        known = self._places.get(key)
        if known == _CPU and all(type(p.array) is np.ndarray for p in parameters):
            return
        versions, seen = [p.version for p in parameters], self._versions.get(key, ())  # new ones with each new array
        if known is not None and len(seen) == len(versions) and all(map(operator.is_, seen, versions)):
            return
        places: set[str] = {p.device for p in parameters}
        for p, g in zip(parameters, [p.grad for p in parameters], strict=True):
            if g is not None and g.device != p.device:
                raise RuntimeError(
                    f"{self._name}: a parameter is on {p.device}, but its gradient is on {g.device}; expected one "
                    "device; move the model before the backward pass"
                )
            for name, value in self.state.get(p, {}).items():
                if select.is_array(value):
                    moved = devices.to_device(value, p.device)
                    self.state[p][name] = lies_like(moved, p.array) if moved.shape == p.shape else moved
        self._places[key], self._versions[key] = places, versions

    def _plain(self, group: dict[str, Any]) -> dict[str, Any]:
        """Return the settings of a group; a rate that is a Tensor becomes a number."""
        rate = group.get("lr")
        if not isinstance(rate, Tensor):
            return group
        if rate.is_cuda and capture.recording() is not None:
            raise RuntimeError(
                f"{self._name}.step: lr is a Tensor on {rate.device}, which a captured step cannot read; expected a "
                "Tensor on the CPU, or a number"
            )
        return {**group, "lr": as_number(rate)}

    def _update_each_device(self, group: dict[str, Any], parameters: list[Tensor], gradients: list[Any]) -> None:
        group = self._plain(group)
        if len(self._places[id(group["params"])]) == 1:
            with devices.on_device_of(parameters[0].array):
                self._update(group, parameters, gradients)
            return
        by_device: dict[str, list[int]] = {}
        for i, p in enumerate(parameters):
            by_device.setdefault(p.device, []).append(i)
        for chosen in by_device.values():
            with devices.on_device_of(parameters[chosen[0]].array):
                self._update(group, [parameters[i] for i in chosen], [gradients[i] for i in chosen])

    def _update(self, group: dict[str, Any], parameters: list[Tensor], gradients: list[Any]) -> None:
        raise NotImplementedError(f"{self._name} has no _update")

    def _state_of(self, parameter: Tensor) -> dict[str, Any]:
        return self.state[parameter]

    # State in and out

    def state_dict(self) -> dict[str, Any]:
        """Return {"state": {index: {name: array or number}}, "param_groups": [...]}; index is the number of a
        parameter, counted over all groups.

        The arrays are not copies: the optimizer keeps using them, as in PyTorch.
        """
        index = {id(p): i for i, p in enumerate(p for group in self.param_groups for p in group["params"])}
        groups = [
            {
                **{k: as_number(v) for k, v in group.items() if k != "params"},
                "params": [index[id(p)] for p in group["params"]],
            }
            for group in self.param_groups
        ]
        return {"state": {index[id(p)]: dict(state) for p, state in self.state.items()}, "param_groups": groups}

    @documented(
        {}, state_dict="the result of `state_dict()` of an optimizer with the same groups; its arrays are copied"
    )
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from the state of another optimizer.

        If the groups, the shapes or the kind of optimizer differ, raise ValueError and change nothing.
        """
        operation = f"{self._name}.load_state_dict"
        saved = _field(operation, state_dict, "param_groups", (list, tuple))
        if len(saved) != len(self.param_groups):
            raise ValueError(
                f"{operation}: the state has {len(saved)} parameter groups; expected {len(self.param_groups)}"
            )
        place: dict[int, Tensor] = {}
        for number, (ours, theirs) in enumerate(zip(self.param_groups, saved, strict=True)):
            if not isinstance(theirs, dict) or not isinstance(theirs.get("params"), (list, tuple)):
                raise ValueError(
                    f"{operation}: group {number} of the state is {_brief(theirs)}; "
                    "expected a dict with a list 'params'"
                )
            if len(ours["params"]) != len(theirs["params"]):
                raise ValueError(
                    f"{operation}: group {number} of the state has {len(theirs['params'])} "
                    f"parameters; expected {len(ours['params'])}"
                )
            own = self.defaults.keys() - _COMMON
            if own and own.isdisjoint(theirs):
                raise ValueError(
                    f"{operation}: group {number} of the state has no {', '.join(sorted(own))}; "
                    f"expected the state of {self._name}"
                )
            place.update(zip((self._index(i) for i in theirs["params"]), ours["params"], strict=True))
        state = {}
        for key, values in _field(operation, state_dict, "state", dict).items():
            if not isinstance(values, dict):
                raise ValueError(f"{operation}: state of parameter {key} is {_brief(values)}; expected a dict")
            if values and (missing := self._required - values.keys()):
                raise ValueError(f"{operation}: state of parameter {key} lacks {', '.join(sorted(missing))}")
            if self._index(key) not in place:
                raise ValueError(f"{operation}: the state has a parameter {key} that is in no group")
            parameter = place[int(key)]
            state[parameter] = {name: self._own(parameter, key, name, value) for name, value in values.items()}
        groups = [
            {
                **ours,
                **{
                    name: checked_number(operation, name, value)
                    for name, value in theirs.items()
                    if name in self.defaults or name in _SCHEDULED
                },
            }
            for ours, theirs in zip(self.param_groups, saved, strict=True)
        ]
        for group in groups:
            for name, default in self.defaults.items():
                if default is not None:
                    check_kind(operation, name, group[name], as_number(default))
                if isinstance(default, tuple):
                    if len(group[name]) != len(default):
                        raise ValueError(f"{operation}: {name} has {len(group[name])} numbers; expected {len(default)}")
                    group[name] = tuple(group[name])  # a text format stores tuples as lists
            self._check(group)

        def take() -> None:
            self.state = defaultdict(dict, state)
            for ours, group in zip(self.param_groups, groups, strict=True):
                ours.update({name: value for name, value in group.items() if name != "lr"})
                if "lr" in group:
                    set_rate(ours, group["lr"])

        completed(take)

    def _index(self, key: Any) -> int:
        """Return the index of a parameter as an int; a text format may have stored the index as a string."""
        if isinstance(key, bool) or not isinstance(key, (int, str, np.integer)) or not str(key).isdecimal():
            raise ValueError(f"{self._name}.load_state_dict: {shown(key)} is no number of a parameter; expected an int")
        return int(key)

    def _own(self, parameter: Tensor, key: Any, name: str, value: Any) -> Any:
        """Return `value`, the entry `name` of a parameter's state. An array is copied and converted to the parameter's
        type.
        """
        array = value.array if isinstance(value, Tensor) else value
        if name in _NUMBERS:  # PyTorch keeps these as tensors of one float
            array = array.item() if select.is_array(array) and array.size == 1 else array
            check_number(f"{self._name}.load_state_dict", f"{name} of parameter {key}", array, 0, whole=name == "step")
            return int(array) if name == "step" else float(array)
        if not select.is_array(array):
            if name in _ARRAYS and not (array is None and name == "momentum_buffer"):
                raise ValueError(
                    f"{self._name}.load_state_dict: {name} of parameter {key} is {shown(array)}; expected an array"
                )
            return array
        if array.shape != parameter.shape:
            raise ValueError(
                f"{self._name}.load_state_dict: {name} of parameter {key} has shape {array.shape}; "
                f"expected {parameter.shape}, as the parameter"
            )
        moved = devices.to_device(array, parameter.device)
        with devices.on_device_of(moved):
            own = lies_like(moved.astype(parameter.dtype, order="C", copy=moved is array), parameter.array)
        return Tensor(own) if isinstance(value, Tensor) and not self._is_ours else own  # a user's step expects Tensors

    def __repr__(self) -> str:
        groups = []
        for number, group in enumerate(self.param_groups):
            count = sum(p.numel() for p in group["params"])
            settings = ", ".join(f"{name}={group[name]}" for name in self.defaults)
            groups.append(f"  group {number}: {len(group['params'])} parameters, {count:,} numbers; {settings}")
        return "\n".join([f"{self._name}(", *groups, ")"])


def _field(operation: str, state_dict: Any, name: str, kind: Any) -> Any:
    if not isinstance(state_dict, dict) or name not in state_dict:
        raise ValueError(
            f"{operation}: expected a dict with 'state' and 'param_groups', as state_dict() gives; "
            f"got {_brief(state_dict)}"
        )
    if not isinstance(state_dict[name], kind):
        raise ValueError(
            f"{operation}: {name!r} is {_brief(state_dict[name])}; expected {'a dict' if kind is dict else 'a list'}"
        )
    return state_dict[name]


def _brief(value: Any) -> str:
    if isinstance(value, dict):
        return "a dict with " + (", ".join(map(repr, value)) or "nothing in it")
    return f"a {type(value).__name__}"


def _how_to_list(params: Any) -> str:
    """Return the end of a message: how to make a list of parameters from this argument."""
    if hasattr(params, "parameters"):
        return "; pass the model's parameters, not the model"
    if callable(params):
        return "; call it, with ()"
    return "; put it into a list: [x]" if isinstance(params, Tensor) else ""
