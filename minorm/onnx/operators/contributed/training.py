"""Momentum, Adagrad and Adam of ai.onnx.preview.training: one step of an optimizer, for one weight or several.

The inputs are the learning rate R, the number T of the step, all weights, all gradients, and then all states of the
first kind, of the second kind, and so on. The outputs are all new weights, and then all new states in the same order.
"""

from __future__ import annotations

from collections.abc import Callable

from minorm.onnx.operators.expansions import Call, expands, number

PREVIEW = "ai.onnx.preview.training"


def _count(call: Call, groups: int) -> int:
    return max(1, (len(call.inputs) - 2) // groups)


def _head(name: str, attributes: str, inputs: str, outputs: str) -> Callable[[Call], str]:
    """Return the head of a function; each letter of `inputs` and `outputs` names a group of tensors."""

    def head(call: Call) -> str:
        count = _count(call, len(inputs))
        given = ", ".join(f"{letter}{i}" for letter in inputs for i in range(count))
        made = ", ".join(f"{letter}{i}_new" for letter in outputs for i in range(count))
        return f"{name} <{attributes}> (R, T, {given}) => ({made})"

    return head


def _regularized(call: Call, i: int) -> str:
    """Write the gradient plus the gradient of the regularization, norm * weight."""
    return f"r{i} = Mul(norm, X{i})  d{i} = Add(r{i}, G{i})\n"


NORM = ("norm", "norm_coefficient", 0.0)


def _numbers(call: Call, *wanted: tuple[str, str, float]) -> str:
    return "".join(number(name, call.get(attribute, default), "X0") for name, attribute, default in wanted)


STARTED = "zero = Constant <value_int: int = 0> ()  started = Greater(T, zero)  rate = CastLike(R, X0)\n"


def Momentum(call: Call) -> str:
    nodes = STARTED + number("one", 1, "X0")
    nodes += _numbers(call, NORM, ("alpha", "alpha", 0.0), ("beta", "beta", 0.0))
    nodes += "share = Where(started, beta, one)\n"
    nesterov = call.get("mode", "standard") == "nesterov"
    for i in range(_count(call, 3)):
        nodes += _regularized(call, i)
        nodes += f"a{i} = Mul(alpha, V{i})  b{i} = Mul(share, d{i})  V{i}_new = Add(a{i}, b{i})\n"
        nodes += (
            f"n{i} = Mul(alpha, V{i}_new)  m{i} = Add(d{i}, n{i})\n" if nesterov else f"m{i} = Identity(V{i}_new)\n"
        )
        nodes += f"s{i} = Mul(rate, m{i})  X{i}_new = Sub(X{i}, s{i})\n"
    return nodes


def Adagrad(call: Call) -> str:
    nodes = "rate_0 = CastLike(R, X0)  steps = CastLike(T, X0)\n" + number("one", 1, "X0")
    nodes += _numbers(call, NORM, ("decay", "decay_factor", 0.0), ("eps", "epsilon", 0.0))
    nodes += "more = Mul(steps, decay)  divisor = Add(one, more)  rate = Div(rate_0, divisor)\n"
    for i in range(_count(call, 3)):
        nodes += _regularized(call, i)
        nodes += f"q{i} = Mul(d{i}, d{i})  H{i}_new = Add(H{i}, q{i})  w{i} = Sqrt(H{i}_new)  e{i} = Add(w{i}, eps)\n"
        nodes += f"t{i} = Mul(rate, d{i})  s{i} = Div(t{i}, e{i})  X{i}_new = Sub(X{i}, s{i})\n"
    return nodes


def Adam(call: Call) -> str:
    nodes = STARTED + "steps = CastLike(T, X0)\n" + number("one", 1, "X0")
    nodes += _numbers(call, NORM, ("after", "norm_coefficient_post", 0.0), ("alpha", "alpha", 0.9),
                      ("beta", "beta", 0.999), ("eps", "epsilon", 0.0))  # fmt: skip
    nodes += "alpha_t = Pow(alpha, steps)  beta_t = Pow(beta, steps)  u_t = Sub(one, alpha_t)  v_t = Sub(one, beta_t)\n"
    # At step 0 both are 0, and the root of 0 has no slope; but the branch that is not chosen needs a slope too.
    nodes += "u = Where(started, u_t, one)  v = Where(started, v_t, one)\n"
    nodes += "root = Sqrt(v)  wide = Mul(rate, root)  corrected = Div(wide, u)\n"
    nodes += "speed = Where(started, corrected, rate)  kept = Sub(one, after)\n"
    nodes += "alpha_rest = Sub(one, alpha)  beta_rest = Sub(one, beta)\n"
    for i in range(_count(call, 4)):
        nodes += _regularized(call, i)
        nodes += f"a{i} = Mul(alpha, V{i})  b{i} = Mul(alpha_rest, d{i})  V{i}_new = Add(a{i}, b{i})\n"
        nodes += f"q{i} = Mul(d{i}, d{i})  g{i} = Mul(beta, H{i})  h{i} = Mul(beta_rest, q{i})\n"
        nodes += f"H{i}_new = Add(g{i}, h{i})  w{i} = Sqrt(H{i}_new)  e{i} = Add(w{i}, eps)\n"
        nodes += f"m{i} = Div(V{i}_new, e{i})  s{i} = Mul(speed, m{i})  x{i} = Sub(X{i}, s{i})\n"
        nodes += f"X{i}_new = Mul(kept, x{i})\n"
    return nodes


expands(PREVIEW, _head("Momentum", "alpha, beta, mode, norm_coefficient", "XGV", "XV"))(Momentum)
expands(PREVIEW, _head("Adagrad", "decay_factor, epsilon, norm_coefficient", "XGH", "XH"))(Adagrad)
expands(
    PREVIEW, _head("Adam", "alpha, beta, epsilon, norm_coefficient, norm_coefficient_post", "XGVH", "XVH")
)(Adam)  # fmt: skip
