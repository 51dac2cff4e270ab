"""L-BFGS, for full batches: estimates Newton's direction from the last steps and the changes of the gradient along
these steps.

    s, y     a step, and the change of the gradient along this step; the last `history_size` pairs are kept
    d        -H g, where H approximates the inverse Hessian; two loops over the pairs (s, y) compute d without a matrix
    p += t d where t is lr, or is found by a line search

All parameters together form one vector. So there is only one group, and the state of its first parameter is the state
of the whole vector.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from minorm import devices
from minorm.devices import dtypes
from minorm.graph.grad_mode import enable_grad
from minorm.kernels import select
from minorm.optim.argument_texts import OPTIMIZER
from minorm.optim.line_search import Point, strong_wolfe
from minorm.optim.optimizer import Optimizer
from minorm.support.documented import documented
from minorm.support.states import check_number, shown
from minorm.tensor.tensor import Tensor

_COUNTS = ("func_evals", "n_iter")
_SCALARS = ("t", "H_diag", "prev_loss")
_VECTORS = ("d", "prev_flat_grad")
_LISTS = ("old_dirs", "old_stps")


@documented(
    OPTIMIZER,
    lr="the length t of a step along d; a line search begins with it",
    max_iter="the largest number of directions per step()",
    max_eval="the largest number of closure calls per step(); None is max_iter * 5 // 4",
    tolerance_grad="a step() ends if no element of the gradient is larger than this",
    tolerance_change="a step() ends if no parameter changes by more than this, or if the loss changes by less",
    history_size="how many steps are kept to estimate d; each takes as much memory as two copies of the parameters",
    line_search_fn='"strong_wolfe" searches for t along d; None takes t = lr',
)
class LBFGS(Optimizer):
    """p += t d, where d is Newton's direction, estimated from the last steps. One call of step(closure) takes several
    such steps.

    The closure must return the same loss for the same parameters, so the batch and the dropout must not change within a
    step(). The arguments and results are PyTorch's. Raises ValueError for a second group of parameters and for a
    negative setting.

    Example:
        >>> p = nn.Parameter(mn.tensor([1.0, -2.0]))
        >>> optimizer = mn.optim.LBFGS([p], line_search_fn="strong_wolfe")
        >>> def closure():
        ...     optimizer.zero_grad()
        ...     loss = ((p - 3) ** 2).sum()
        ...     loss.backward()
        ...     return loss
        >>> optimizer.step(closure).item()
        29.0
        >>> p.data
        tensor([3., 3.])

    Liu and Nocedal 1989.
    """

    _at_least_0 = ("lr", "max_iter", "max_eval", "tolerance_grad", "tolerance_change", "history_size")
    _counts = ("max_iter", "max_eval", "history_size")

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1.0,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
    ) -> None:
        if max_eval is None and isinstance(max_iter, (int, np.integer)):
            max_eval = int(max_iter) * 5 // 4
        super().__init__(params, {"lr": lr, "max_iter": max_iter, "max_eval": max_eval,
                                  "tolerance_grad": tolerance_grad, "tolerance_change": tolerance_change,
                                  "history_size": history_size, "line_search_fn": line_search_fn})  # fmt: skip

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add the only group; raise ValueError for a second group."""
        if self.param_groups:
            raise ValueError(
                "LBFGS: there is a second group of parameters; expected one group, because all "
                "parameters form one vector"
            )
        super().add_param_group(param_group)

    def _check(self, group: dict[str, Any]) -> None:
        super()._check(group)
        if group["line_search_fn"] not in (None, "strong_wolfe"):
            raise ValueError(f"LBFGS: line_search_fn={group['line_search_fn']!r}; expected None or 'strong_wolfe'")

    @documented(
        {},
        closure="a function that clears the gradients, computes them anew and returns the loss; it is "
        "called several times",
    )
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take up to max_iter steps, and return the loss before the first step."""
        if closure is None:
            raise TypeError("LBFGS.step: closure is None; expected a function that computes the gradients anew")
        self._refuse_capture()
        group, parameters = self.param_groups[0], self.param_groups[0]["params"]
        with devices.on_device_of(parameters[0].array):
            return self._minimize(group, parameters, closure)

    def _minimize(self, group: dict[str, Any], parameters: list[Tensor], closure: Callable[[], Any]) -> Any:
        group = self._plain(group)
        state = self._state_of(parameters[0])
        for name in _COUNTS:
            state.setdefault(name, 0)

        def evaluated() -> tuple[Any, Any]:
            with enable_grad():
                loss = closure()
            state["func_evals"] += 1
            return loss, self._gradient(group, parameters)

        first_loss, gradient = evaluated()
        if _largest(gradient) <= group["tolerance_grad"]:
            return first_loss
        loss, calls = float(first_loss), 1
        for iteration in range(1, group["max_iter"] + 1):
            state["n_iter"] += 1
            d = _direction(state, gradient, group["history_size"])
            t = group["lr"] * (min(1.0, 1.0 / float(abs(gradient).sum())) if state["n_iter"] == 1 else 1.0)
            slope = _dot(gradient, d)
            state.update(d=d, t=t, prev_flat_grad=gradient, prev_loss=loss)
            if slope > -group["tolerance_change"]:
                break
            before = loss
            if group["line_search_fn"] is not None:
                start = [p.array.copy() for p in parameters]

                def at(t: float, d: Any = d, start: list[Any] = start) -> Point:
                    _move(parameters, t, d)
                    try:
                        value, found = evaluated()
                    finally:
                        _restore(parameters, start)
                    return Point(t, float(value), found, _dot(found, d))

                found, asked = strong_wolfe(at, Point(0.0, loss, gradient, slope), t,
                                            most=group["max_eval"] - calls, reach=_largest(d))  # fmt: skip
                loss, gradient, calls = found.loss, found.gradient, calls + asked
                state["t"] = t = found.t
                _move(parameters, t, d)
            else:
                _move(parameters, t, d)
                if iteration < group["max_iter"]:  # no step needs the gradient after the last one
                    value, gradient = evaluated()
                    loss, calls = float(value), calls + 1
            if (
                calls >= group["max_eval"]
                or _largest(gradient) <= group["tolerance_grad"]
                or abs(t) * _largest(d) <= group["tolerance_change"]
                or abs(loss - before) < group["tolerance_change"]
            ):
                break
        return first_loss

    def _gradient(self, group: dict[str, Any], parameters: list[Tensor]) -> Any:
        """Return all gradients as one vector; a parameter without a gradient contributes zeros."""
        chosen = [p for p in parameters if p.grad is not None]
        self._check_gradients(chosen, [p.grad.array for p in chosen if p.grad is not None])
        self._follow(group, parameters)
        if len({p.device for p in parameters}) > 1:
            raise RuntimeError(
                "LBFGS.step: the parameters are on several devices; expected one device, because all parameters form "
                "one vector"
            )
        wide = np.result_type(*{dtypes.compute_type(p.dtype) for p in parameters})
        parts = [
            (np.zeros_like(p.array) if p.grad is None else p.grad.array).astype(wide, copy=False).reshape(-1)
            for p in parameters
        ]
        return select.backend(parts[0]).copying.concatenate(parts, 0)

    def _follow(self, group: dict[str, Any], parameters: list[Tensor]) -> None:
        chosen = [p for p in parameters if p.grad is not None]
        if not chosen:
            return
        super()._follow(group, chosen)
        state, place = self.state[parameters[0]], parameters[0].device
        for name, value in state.items():
            if name in _VECTORS:
                state[name] = devices.to_device(value, place)
            elif name in _LISTS:
                state[name] = [devices.to_device(array, place) for array in value]

    def _own(self, parameter: Tensor, key: Any, name: str, value: Any) -> Any:
        """Return a copy of `value`, the entry `name` of a state. A vector must have one element for each element of the
        parameters.
        """
        operation = "LBFGS.load_state_dict"
        if name in _COUNTS:
            check_number(operation, name, value, 0, whole=True)
            return int(value)
        if name in _SCALARS:
            return self._number(name, value)
        if name in _VECTORS:
            return self._vector(parameter, name, value)
        if name in (*_LISTS, "ro", "al"):
            if not isinstance(value, (list, tuple)):
                raise ValueError(f"{operation}: {name} is {shown(value)}; expected a list")
            if name == "al":  # PyTorch's buffer for the numbers of one step
                return []
            return [self._vector(parameter, name, x) if name in _LISTS else self._number(name, x) for x in value]
        return super()._own(parameter, key, name, value)

    def _number(self, name: str, value: Any) -> float:
        array = value.array if isinstance(value, Tensor) else value
        if not isinstance(array, (int, float)) and getattr(array, "size", 0) != 1:
            raise ValueError(f"LBFGS.load_state_dict: {name} is {shown(value)}; expected a number")
        return float(array)

    def _vector(self, parameter: Tensor, name: str, value: Any) -> Any:
        array = value.array if isinstance(value, Tensor) else value
        count = sum(p.numel() for group in self.param_groups for p in group["params"])
        if not select.is_array(array) or array.shape != (count,):
            shape = f"has shape {array.shape}" if select.is_array(array) else f"is {shown(array)}"
            raise ValueError(f"LBFGS.load_state_dict: {name} {shape}; expected ({count},), all parameters' numbers")
        moved = devices.to_device(array, parameter.device)
        with devices.on_device_of(moved):
            return moved.astype(dtypes.compute_type(parameter.dtype), copy=moved is array)


def _direction(state: dict[str, Any], gradient: Any, history: int) -> Any:
    """Return -H g. First add the last step's pair (s, y) to the pairs, if the loss is convex along this step."""
    if state["n_iter"] == 1:
        state.update(old_dirs=[], old_stps=[], ro=[], H_diag=1.0)
        return -gradient
    y, s = gradient - state["prev_flat_grad"], state["d"] * state["t"]
    ys = _dot(y, s)
    if ys > 1e-10:
        for name, value in (("old_dirs", y), ("old_stps", s), ("ro", 1.0 / ys)):
            state[name] = [*state[name], value][-history:] if history else []
        state["H_diag"] = ys / _dot(y, y)
    pairs = list(zip(state["old_dirs"], state["old_stps"], state["ro"], strict=True))
    d, shares = -gradient, []
    for y, s, ro in reversed(pairs):
        shares.append(_dot(s, d) * ro)
        d = d - shares[-1] * y
    d = d * state["H_diag"]
    for (y, s, ro), share in zip(pairs, reversed(shares), strict=True):
        d = d + (share - _dot(y, d) * ro) * s
    return d


def _dot(a: Any, b: Any) -> float:
    return float((a * b).sum())  # in an order that does not depend on threads


def _largest(a: Any) -> float:
    return float(abs(a).max()) if a.size else 0.0


def _move(parameters: list[Tensor], t: float, d: Any) -> None:
    """Compute p += t d for all parameters."""
    start = 0
    for p in parameters:
        part = d[start : start + p.numel()].reshape(p.shape)
        p.array[...] = p.array + t * part
        p.version.count += 1
        start += p.numel()


def _restore(parameters: list[Tensor], arrays: list[Any]) -> None:
    for p, array in zip(parameters, arrays, strict=True):
        p.array[...] = array
        p.version.count += 1
