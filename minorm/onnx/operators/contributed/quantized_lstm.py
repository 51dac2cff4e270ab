"""DynamicQuantizeLSTM: an LSTM that quantizes its inputs and states at run time and multiplies integers.

The inputs are quantized together, but the states are quantized separately for each sample, so that no sample depends on
the others; onnxruntime does the same if it has a thread for each sample.
"""

from __future__ import annotations

from minorm.onnx.operators.contributed.fused_operators import MICROSOFT
from minorm.onnx.operators.contributed.quantized import product
from minorm.onnx.operators.expansions import Call, expands, integers, refuse

USUAL = ("sigmoid", "tanh", "tanh")
NUMBERS = (("none", 0.0), ("unit", 1.0), ("most", 255.0))


@expands(
    MICROSOFT,
    "DynamicQuantizeLSTM <activations, activation_alpha, activation_beta, clip, direction, hidden_size, input_forget> "
    "(X, W, R, B, sequence_lens, initial_h, initial_c, P, W_scale, W_zero_point, R_scale, R_zero_point) => "
    "(Y, Y_h, Y_c)",
)
def dynamic_quantize_lstm(call: Call) -> str:
    direction, hidden = call.get("direction", "forward"), call.get("hidden_size", 0)
    given = call.get("activations", [])
    odd = [name for name in ("clip", "input_forget") if call.get(name, 0)] + ["sequence_lens"] * call.has(4)
    if odd or hidden < 1 or any(a.lower() != USUAL[i % 3] for i, a in enumerate(given)):
        found = ", ".join(odd) or f"activations={given} and hidden_size={hidden}"
        raise refuse(
            "DynamicQuantizeLSTM",
            f"{found}; expected "
            "the activations Sigmoid, Tanh, Tanh, hidden_size >= 1, and no clip, input_forget or sequence_lens",
        )
    ways = {"forward": [0], "reverse": [1], "bidirectional": [0, 1]}.get(direction)
    if ways is None:
        raise refuse("DynamicQuantizeLSTM", f"direction={direction!r}; expected forward, reverse or bidirectional")
    nodes = integers("first", [0]) + integers("wide", [hidden]) + integers("axis_1", [1])
    nodes += "batch = Shape <start = 1, end = 2> (X)  start = Concat <axis = 0> (batch, wide)\n"
    nodes += "zeros = ConstantOfShape(start)\n"
    nodes += "".join(f"{name} = Constant <value_float: float = {n}> ()\n" for name, n in NUMBERS)
    nodes += "".join(_direction(call, place, bool(back)) for place, back in enumerate(ways))
    for name, axis in (("Y", 1), ("Y_h", 0), ("Y_c", 0)):
        parts = ", ".join(f"{name}_{place}" for place in range(len(ways)))
        nodes += f"{name} = Concat <axis = {axis}> ({parts})\n"
    return nodes


def _direction(call: Call, d: int, backwards: bool) -> str:
    """Write the nodes of one direction: a Scan over the time steps, whose state is h and c."""
    nodes = f"at_{d} = Constant <value_int: int = {d}> ()\n"

    def part(name: str, of: str) -> str:
        return f"{name}_{d} = Gather <axis = 0> ({of}, at_{d})\n"

    for name, of in (("w", "W"), ("r", "R"), ("ws", "W_scale"), ("wz", "W_zero_point"), ("rs", "R_scale"),
                     ("rz", "R_zero_point")):  # fmt: skip
        nodes += part(name, of)
    for name, place, of in (("h0", 5, "initial_h"), ("c0", 6, "initial_c")):
        nodes += part(name, of) if call.has(place) else f"{name}_{d} = Identity(zeros)\n"
    nodes += product(f"px_{d}", "X", f"w_{d}", f"ws_{d}", f"wz_{d}")
    if call.has(3):
        nodes += part("b", "B") + f"bw_{d}, br_{d} = Split <axis = 0, num_outputs = 2> (b_{d})\n"
        nodes += f"bb_{d} = Add(bw_{d}, br_{d})  gx_{d} = Add(px_{d}, bb_{d})\n"
    else:
        nodes += f"gx_{d} = Identity(px_{d})\n"
    if call.has(7):
        nodes += part("p", "P") + f"pi_{d}, po_{d}, pf_{d} = Split <axis = 0, num_outputs = 3> (p_{d})\n"
    way = f"scan_input_directions = [{int(backwards)}], scan_output_directions = [{int(backwards)}]"
    nodes += (
        f"h_{d}, c_{d}, y_{d} = Scan <num_scan_inputs = 1, {way}, body = step_{d} {_step(call, d)}> "
        f"(h0_{d}, c0_{d}, gx_{d})\n"
    )
    nodes += f"Y_{d} = Unsqueeze(y_{d}, axis_1)  Y_h_{d} = Unsqueeze(h_{d}, first)  Y_c_{d} = Unsqueeze(c_{d}, first)\n"
    return nodes


def _by_sample(r: str, scale: str, zero: str) -> str:
    """Write ph = h r; h is quantized as in DynamicQuantizeLinear, but with one scale and zero point for each row."""
    return (
        "low_any = ReduceMin <keepdims = 0> (h, axis_1)  high_any = ReduceMax <keepdims = 0> (h, axis_1)\n"
        "low = Min(low_any, none)  high = Max(high_any, none)  span = Sub(high, low)  step = Div(span, most)\n"
        "flat = Equal(step, none)  s = Where(flat, unit, step)  below = Neg(low)  place = Div(below, s)\n"
        "whole = Round(place)  z = Cast <to = 2> (whole)  q = QuantizeLinear <axis = 0> (h, s, z)\n"
        f"sums = MatMulInteger(q, {r}, z, {zero})  f32 = Cast <to = 1> (sums)  row = Unsqueeze(s, axis_1)\n"
        f"by_row = Mul(f32, row)  ph = Mul(by_row, {scale})\n"
    )


def _step(call: Call, d: int) -> str:
    """Write the body of the Scan: one time step."""
    nodes = _by_sample(f"r_{d}", f"rs_{d}", f"rz_{d}")
    nodes += "g = Add(gx, ph)  gi, go, gf, gc = Split <axis = -1, num_outputs = 4> (g)\n"
    if call.has(7):
        nodes += f"ii = Mul(pi_{d}, c)  ff = Mul(pf_{d}, c)  ai = Add(gi, ii)  af = Add(gf, ff)\n"
    else:
        nodes += "ai = Identity(gi)  af = Identity(gf)\n"
    nodes += "i = Sigmoid(ai)  f = Sigmoid(af)  n = Tanh(gc)  kept = Mul(f, c)  more = Mul(i, n)\n"
    nodes += "c_next = Add(kept, more)\n"
    nodes += f"oo = Mul(po_{d}, c_next)  ao = Add(go, oo)\n" if call.has(7) else "ao = Identity(go)\n"
    nodes += "o = Sigmoid(ao)  bent = Tanh(c_next)  h_next = Mul(o, bent)  y = Identity(h_next)\n"
    return f"(h, c, gx) => (h_next, c_next, y) {{ {nodes} }}"
