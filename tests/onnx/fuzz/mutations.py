"""How a sound model is broken: one to four changes, each where a file could be wrong, drawn from a seeded generator."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, numpy_helper
from onnx import helper as h

from minorm.onnx.graph import registry

Mutation = Callable[[random.Random, Any], None]
MUTATIONS: list[Mutation] = []  # the likely ones more than once

ABSURD = (2**31 - 1, 2**31, 2**32, 2**40, 2**62, 2**63 - 1, -(2**31), -(2**63))
LARGE = (300, 1000, 4000, 10_000, 65_536, 400_000, 2_000_000, 10_000_000, 33_000_000, 60_000_000)
SMALL = (0, 1, -1, 2, 3, 4, 7, 8, -2, 16, 64)
REAL = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-5, 1e-45, 1e30, 3e38, -3e38, float("inf"), float("-inf"), float("nan"), 1e9)
TEXTS = (
    b"", b"SAME_UPPER", b"VALID", b"NOTSET", b"linear", b"cubic", b"nearest", b"reflect", b"wrap", b"edge", b"sum",
    b"none", b"mean", b"align_corners", b"tf_crop_and_resize", b"ij,jk->ik", b"...i->i", b"\xff\xfe", b"a" * 300, b"\0",
)  # fmt: skip
TYPES = tuple(range(-1, 30))
OPERATORS = sorted({operator for operator, _ in registry.READERS})


def mutation(weight: int) -> Callable[[Mutation], Mutation]:
    """Register a mutation; `weight` says how often it is drawn."""

    def register(function: Mutation) -> Mutation:
        MUTATIONS.extend([function] * weight)
        return function

    return register


def mutate(rng: random.Random, model: Any, others: list[Any]) -> None:
    """Change `model` in place."""
    for _ in range(rng.choice((1, 1, 1, 1, 2, 2, 3))):
        if rng.random() < 0.08:
            graft(rng, model, rng.choice(others))
        else:
            rng.choice(MUTATIONS)(rng, model)


def bytes_of(rng: random.Random, contents: bytes) -> bytes:
    """The same with a few bytes changed, lost, doubled or added."""
    data = bytearray(contents)
    for _ in range(rng.choice((1, 1, 2, 4, 8))):
        at = rng.randrange(len(data) + 1) if data else 0
        kind = rng.choice((0, 0, 0, 1, 1, 1, 2, 3, 4, 5))
        if kind == 0 and at < len(data):
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1 and at < len(data):
            data[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        elif kind == 2:
            del data[at : at + rng.choice((1, 1, 4, 50))]
        elif kind == 3:
            data[at:at] = rng.randbytes(rng.choice((1, 2, 8)))
        elif kind == 4:
            data[at:at] = data[at : at + rng.randrange(60)]
        elif kind == 5 and rng.random() < 0.2:
            del data[at:]
    return bytes(data)


# Where


def graphs(model: Any) -> list[Any]:
    """The graph and the branches in it."""
    found, open_ = [], [model.graph]
    while open_:
        graph = open_.pop()
        found.append(graph)
        open_ += [a.g for node in graph.node for a in node.attribute if a.HasField("g")]
    return found


def nodes(model: Any) -> list[Any]:
    """All nodes, those of functions and branches too."""
    return [n for body in (*graphs(model), *model.functions) for n in body.node]


def a_node(rng: random.Random, model: Any) -> Any:
    """Draw a node; return an empty one if the model has no nodes."""
    found = nodes(model)
    return rng.choice(found) if found else onnx.NodeProto()


def names(model: Any) -> list[str]:
    """Return the names of values, and some names that no value has."""
    found = [name for node in nodes(model) for name in (*node.input, *node.output)]
    return [*found, *(entry.name for entry in model.graph.input), "", "nothing", "x"]


def whole(rng: random.Random) -> int:
    """Draw an integer: mostly small, often large enough to hurt, sometimes absurd."""
    kind = rng.random()
    return rng.choice(SMALL if kind < 0.5 else LARGE if kind < 0.85 else ABSURD)


def real(rng: random.Random) -> float:
    """Draw a float, ordinary or extreme."""
    return rng.choice(REAL) if rng.random() < 0.6 else rng.uniform(-4, 4)


# Nodes


@mutation(5)
def attribute_value(rng: random.Random, model: Any) -> None:
    node = a_node(rng, model)
    if not node.attribute:
        return add_attribute(rng, model)
    a = rng.choice(node.attribute)
    kind = a.type
    if kind == AttributeProto.INT:
        a.i = whole(rng)
    elif kind == AttributeProto.FLOAT:
        a.f = real(rng)
    elif kind == AttributeProto.STRING:
        a.s = rng.choice(TEXTS)
    elif kind in (AttributeProto.INTS, AttributeProto.FLOATS):
        values = a.ints if kind == AttributeProto.INTS else a.floats
        action = rng.randrange(5)
        number = whole(rng) if kind == AttributeProto.INTS else real(rng)
        if action == 0 or not values:
            values.append(number)
        elif action == 1:
            del values[rng.randrange(len(values)) :]
        elif action == 2 and len(values) < 100:
            values.extend(list(values))
        else:
            values[rng.randrange(len(values))] = number
    elif kind == AttributeProto.TENSOR:
        spoil(rng, a.t)
    return None


@mutation(3)
def add_attribute(rng: random.Random, model: Any) -> None:
    """One that the operator has in some version."""
    node = a_node(rng, model)
    if not onnx.defs.has(node.op_type):
        return
    opset = next((entry.version for entry in model.opset_import if not entry.domain), 0)
    version = rng.choice((max(0, min(opset, 28)), 1, 28))
    try:
        known = sorted(onnx.defs.get_schema(node.op_type, version, "").attributes.items())
    except onnx.defs.SchemaError:
        return
    if not known:
        return
    name, schema = rng.choice(known)
    for i, given in enumerate(node.attribute):
        if given.name == name:
            del node.attribute[i]
            break
    kind = schema.type.value
    if kind == AttributeProto.INT:
        node.attribute.append(h.make_attribute(name, whole(rng)))
    elif kind == AttributeProto.FLOAT:
        node.attribute.append(h.make_attribute(name, real(rng)))
    elif kind == AttributeProto.INTS:
        node.attribute.append(AttributeProto(name=name, type=kind, ints=[whole(rng) for _ in range(rng.randrange(5))]))
    elif kind == AttributeProto.STRING:
        node.attribute.append(AttributeProto(name=name, type=kind, s=rng.choice(TEXTS)))


@mutation(1)
def drop_or_retype_attribute(rng: random.Random, model: Any) -> None:
    node = a_node(rng, model)
    if not node.attribute:
        return
    at = rng.randrange(len(node.attribute))
    action = rng.randrange(5)
    if action <= 1:
        del node.attribute[at]
    elif action == 2:
        node.attribute[at].type = rng.randrange(15)
    elif action == 3:
        node.attribute.append(node.attribute[at])
    else:
        node.attribute[at].ref_attr_name = rng.choice(("along", "axis", ""))


@mutation(2)
def operator(rng: random.Random, model: Any) -> None:
    node = a_node(rng, model)
    action = rng.random()
    if action < 0.7:
        node.op_type = rng.choice(OPERATORS)
        if rng.random() < 0.7:
            node.ClearField("attribute")
    elif action < 0.85:
        node.op_type = rng.choice(
            ("", "Loop", "Scan", "Nothing", "Norm", "Twice", "SequenceMap", "GRU", "QuantizeLinear")
        )
    else:
        node.domain = rng.choice(("f", "ai.onnx", "ai.onnx.ml", "com.microsoft", "nowhere"))


@mutation(2)
def wiring(rng: random.Random, model: Any) -> None:
    node = a_node(rng, model)
    values = node.input if rng.random() < 0.75 else node.output
    action = rng.randrange(5)
    if action == 0 and values:
        del values[rng.randrange(len(values))]
    elif action == 1:
        values.append(rng.choice(names(model)))
    elif action == 2 and len(values) > 1:
        i, j = rng.sample(range(len(values)), 2)
        values[i], values[j] = values[j], values[i]
    elif values:
        values[rng.randrange(len(values))] = rng.choice(names(model))


@mutation(1)
def order(rng: random.Random, model: Any) -> None:
    body = rng.choice([*graphs(model), *model.functions]).node
    if not body:
        return
    at, action = rng.randrange(len(body)), rng.randrange(4)
    if action == 0:
        del body[at]
    elif action == 1:
        body.append(body[at])
    elif action == 2:
        body[at].CopyFrom(rng.choice(body))
    else:
        body[at].name = rng.choice(("", "a.b.c", "forward", "a" * 100, "x/y.z", "train", "0"))


@mutation(1)
def functions(rng: random.Random, model: Any) -> None:
    """Make a node a call, of a function that may call itself."""
    node = a_node(rng, model)
    body = onnx.NodeProto()
    body.CopyFrom(node)
    if rng.random() < 0.3:
        body.domain, body.op_type = "f", "Wrapped"
    inputs = list(dict.fromkeys(filter(None, node.input)))
    wrapped = h.make_function("f", "Wrapped", inputs, list(node.output), [body], model.opset_import)
    model.functions.append(wrapped)
    node.domain, node.op_type = "f", "Wrapped"
    del node.input[:]
    node.input.extend(inputs)
    node.ClearField("attribute")
    if rng.random() < 0.9 and all(entry.domain != "f" for entry in model.opset_import):
        model.opset_import.append(h.make_opsetid("f", 1))


@mutation(1)
def branch(rng: random.Random, model: Any) -> None:
    """Put a node into the branches of an If whose condition is computed, or fixed."""
    body = model.graph.node
    if not body:
        return
    at = rng.randrange(len(body))
    taken = onnx.GraphProto(name="b", node=[body[at]])
    results = [name for name in body[at].output if name]
    taken.output.extend(h.make_empty_tensor_value_info(name) for name in results)
    other = onnx.GraphProto()
    other.CopyFrom(taken)
    for _ in range(rng.choice((0, 0, 1, 12))):
        inner = h.make_node("If", ["condition"], results, then_branch=other, else_branch=taken)
        other = onnx.GraphProto(name="b", node=[inner], output=taken.output)
        if rng.random() < 0.1:
            break
    node = h.make_node("If", ["condition"], results, then_branch=taken, else_branch=other)
    body[at].CopyFrom(node)
    if rng.random() < 0.5:
        model.graph.initializer.append(numpy_helper.from_array(np.array(rng.random() < 0.5), "condition"))
    else:
        model.graph.input.append(h.make_tensor_value_info("condition", TensorProto.BOOL, []))


@mutation(3)
def amplify(rng: random.Random, model: Any) -> None:
    """Put nodes before an input that make much of little."""
    body = model.graph.node
    places = [(at, i) for at, node in enumerate(body) for i, name in enumerate(node.input) if name]
    if not places:
        return
    at, i = rng.choice(places)
    value, made = body[at].input[i], f"huge{len(body)}"
    new: list[Any] = []

    def constant(array: Any) -> str:
        name = f"{made}.{len(model.graph.initializer)}"
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def add(operator: str, *inputs: str, **attributes: Any) -> str:
        new.append(h.make_node(operator, list(inputs), [f"{made}.{operator}.{len(new)}"], **attributes))
        return str(new[-1].output[0])

    def flat(shape: list[int]) -> str:
        return add("Reshape", value, constant(np.array(shape)))

    sizes = [rng.choice(LARGE[:7]) for _ in range(rng.choice((1, 2, 2, 3)))]
    kind = rng.randrange(9)
    if kind == 0:
        y = value
        for _ in range(rng.randrange(4, 30)):
            y = add("Concat", y, y, axis=0)
    elif kind == 1:
        y = add("Expand", flat([-1, 1]), constant(np.array([1, rng.choice(LARGE)])))
    elif kind == 2:
        wide = add("Tile", flat([-1]), constant(np.array([rng.choice(LARGE[:4])])))
        column, row = (
            add("Reshape", wide, constant(np.array([-1, 1]))),
            add("Reshape", wide, constant(np.array([1, -1]))),
        )
        y = add(rng.choice(("Mul", "Add", "MatMul", "Pow", "Div")), column, row)
    elif kind == 3:
        row = flat([1, 1, -1])
        y = add(
            "Resize", row, "", constant(np.array([1, 1, rng.choice(LARGE)], np.float32)),
            mode=rng.choice(("linear", "cubic", "nearest")),
        )  # fmt: skip
    elif kind == 4:
        y = add(
            "Mul", value, add("Cast", add("ConstantOfShape", constant(np.array(sizes))), to=rng.choice((1, 1, 10, 11)))
        )
    elif kind == 5:
        y = add("Pad", flat([-1]), constant(np.array([rng.choice(LARGE), rng.choice(LARGE)])))
    elif kind == 6:
        y = add("Tile", flat([-1]), constant(np.array([rng.choice(LARGE)])))
        y = add(rng.choice(("Erf", "Softplus", "Gelu", "Softmax", "CumSum", "Mish", "Exp")), y)
    elif kind == 7:
        y = add(
            "OneHot", add("Cast", flat([-1]), to=7), constant(np.int64(rng.choice(LARGE))), constant(np.float32([0, 1]))
        )
    else:
        size = np.array([1, 1, *(sizes * 3)[:2]])
        image = add("Expand", add("ReduceMax", flat([1, 1, 1, -1]), axes=[3]), constant(size))
        kernel = add(
            "Expand",
            constant(np.ones((1, 1, 1, 1), np.float32)),
            constant(np.array([rng.choice((1, 64, 4000)), 1, 3, 3])),
        )
        y = add(rng.choice(("Conv", "ConvTranspose")), image, kernel)
    for node in reversed(new):
        body.insert(at, node)
    for node in body[at + len(new) : at + len(new) + 1]:
        node.input[i] = y


def graft(rng: random.Random, model: Any, other: Any) -> None:
    """Let the nodes of another model work on what this one computes."""
    outputs = [entry.name for entry in model.graph.output]
    if not outputs or not other.graph.input:
        return
    inner = onnx.GraphProto()
    inner.CopyFrom(other.graph)
    taken = rng.choice(inner.input).name
    mapping = {taken: outputs[0]}
    for node in inner.node:
        copy = model.graph.node.add()
        copy.CopyFrom(node)
        for values in (copy.input, copy.output):
            for i, name in enumerate(values):
                values[i] = mapping.get(name, f"g.{name}") if name else ""
    for entry in inner.input:
        if entry.name != taken:
            entry.name = f"g.{entry.name}"
            model.graph.input.append(entry)
    for tensor in inner.initializer:
        tensor.name = f"g.{tensor.name}"
        model.graph.initializer.append(tensor)
    for entry in inner.output:
        entry.name = f"g.{entry.name}"
    model.graph.ClearField("output")
    model.graph.output.extend(inner.output)


# Tensors


def spoil(rng: random.Random, tensor: Any) -> None:
    """Dims, type, contents: what a TensorProto can be wrong in."""
    action = rng.randrange(14)
    if action == 0 and tensor.dims:
        tensor.dims[rng.randrange(len(tensor.dims))] = whole(rng)
    elif action == 1:
        tensor.dims.extend([rng.choice((1, 1, 2, whole(rng)))] * rng.choice((1, 1, 2, 70)))
    elif action == 2:
        tensor.data_type = rng.choice(TYPES)
    elif action == 3:
        tensor.raw_data = tensor.raw_data[: rng.randrange(len(tensor.raw_data) + 1)] + rng.randbytes(
            rng.choice((0, 0, 4))
        )
    elif action == 4:
        tensor.data_location = rng.choice((0, 1))
        tensor.external_data.add(
            key=rng.choice(("location", "offset", "length")),
            value=rng.choice(("weights", "../x", "/etc/passwd", "0", "-1", "9" * 30, "")),
        )
    elif action == 5:
        tensor.int64_data.append(whole(rng))
    else:
        contents(rng, tensor)


def contents(rng: random.Random, tensor: Any) -> None:
    """Sound, but with other numbers: what shapes, axes, bounds and weights may be."""
    try:
        array = np.array(numpy_helper.to_array(tensor))
    except Exception:  # noqa: BLE001  it is spoilt already
        return
    if array.dtype.kind == "O" or array.size > 100_000:
        return
    kind = array.dtype.kind
    flat = array.reshape(-1)
    for _ in range(rng.choice((1, 1, 2))):
        if not flat.size:
            break
        at = rng.randrange(flat.size)
        with np.errstate(all="ignore"):
            number: Any = whole(rng) if kind in "iu" else real(rng)
            flat[at] = np.array(number).astype(array.dtype) if kind != "u" else number % 2**8
    if rng.random() < 0.2:
        array = array.reshape(-1) if rng.random() < 0.5 else np.repeat(flat, 2)
    if rng.random() < 0.1:
        with np.errstate(all="ignore"):
            array = array.astype(rng.choice((np.float32, np.float64, np.float16, np.int64, np.int32, np.bool_)))
    tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))


@mutation(6)
def initializer(rng: random.Random, model: Any) -> None:
    tensors = [t for graph in graphs(model) for t in graph.initializer]
    if not tensors:
        return
    chosen = rng.choice(tensors)
    if rng.random() < 0.05:
        model.graph.initializer.append(chosen)
    elif rng.random() < 0.05:
        chosen.name = rng.choice(names(model))
    else:
        spoil(rng, chosen)


@mutation(2)
def shapes_of_inputs(rng: random.Random, model: Any) -> None:
    if not model.graph.input:
        return
    entry = rng.choice(model.graph.input)
    kind, action = entry.type.tensor_type, rng.randrange(5)
    if action == 0:
        kind.elem_type = rng.choice(TYPES)
    elif action == 1 and kind.shape.dim:
        kind.shape.dim[rng.randrange(len(kind.shape.dim))].dim_value = whole(rng)
    elif action == 2:
        kind.shape.dim.add(dim_value=rng.choice((1, 2, 0)))
    elif action == 3 and kind.shape.dim:
        del kind.shape.dim[rng.randrange(len(kind.shape.dim))]
    else:
        entry.name = rng.choice(names(model))


@mutation(2)
def header(rng: random.Random, model: Any) -> None:
    action = rng.randrange(6)
    if action <= 3 and model.opset_import:
        entry = rng.choice(model.opset_import)
        entry.version = rng.choice(
            (1, 2, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 24, 28, whole(rng))
        )
    elif action == 4:
        model.ir_version = rng.choice((1, 3, 4, 8, 10, whole(rng)))
    elif model.graph.output:
        model.graph.output[rng.randrange(len(model.graph.output))].name = rng.choice(names(model))


def hold(rng: random.Random, model: Any, arrays: dict[str, Any]) -> None:
    """Some inputs become initializers with the arrays that were fed: then they are what a file says."""
    for entry in list(model.graph.input):
        if entry.name in arrays and rng.random() < 0.6:
            tensor = numpy_helper.from_array(np.asarray(arrays.pop(entry.name)), entry.name)
            model.graph.initializer.append(tensor)
            model.graph.input.remove(entry)
