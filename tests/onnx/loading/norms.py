"""Graphs that write norms in other operators, in many ways, and graphs that only look like norms."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

Formula = Callable[[Any, Mapping[str, Any]], Any]
SHAPES = [(2, 3, 5), (7, 3, 5)]
IMAGES = [(2, 6, 4, 5), (3, 6, 2, 3)]


class Writer:
    """Writes a graph: x, constants, weights and nodes, each operation a call."""

    def __init__(self, opset: int = 18, rank: int = 3, known: bool = True) -> None:
        self.opset, self.rank, self.known = opset, rank, known
        self.nodes: list[Any] = []
        self.tensors: dict[str, Any] = {}
        self.described: dict[str, int] = {}

    def constant(self, value: Any, name: str = "", dtype: Any = np.float32) -> str:
        name = name or f"c{len(self.nodes)}"
        tensor = numpy_helper.from_array(np.array(value, dtype), name)
        self.nodes.append(helper.make_node("Constant", [], [name], value=tensor))
        return name

    def weight(self, name: str, *shape: int) -> str:
        self.tensors[name] = np.random.default_rng(len(name)).uniform(0.5, 1.5, shape).astype(np.float32)
        return name

    def __call__(self, operator: str, *inputs: str, to: str = "", **attributes: Any) -> str:
        name = to or f"{operator.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [name], name=f"{operator}_{name}", **attributes))
        return name

    def mean(self, x: str, axes: list[int], keepdims: int = 1) -> str:
        if self.opset < 18:
            return self("ReduceMean", x, axes=axes, keepdims=keepdims)
        return self("ReduceMean", x, self.constant(axes, dtype=np.int64), keepdims=keepdims)

    def model(self, result: str, *others: str) -> Any:
        self("Identity", result, to="unused")
        self.nodes.pop()
        self.nodes[-1].output[0] = "y"
        shape = [None] * self.rank if self.known else None
        graph = helper.make_graph(
            self.nodes,
            "norm",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("y", *others)],
            [numpy_helper.from_array(array, name) for name, array in self.tensors.items()],
        )
        for output in graph.output:
            output.type.tensor_type.shape.Clear()
            for i in range(self.rank):
                output.type.tensor_type.shape.dim.add().dim_param = f"{output.name}_{i}"
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)


def weights(proto: Any) -> set[str]:
    """The tensors of these graphs that are weights."""
    return {tensor.name for tensor in proto.graph.initializer if tensor.name.startswith("norm.")}


def standardized(x: Any, axes: tuple[int, ...]) -> Any:
    centred = x - x.mean(axes, keepdims=True)
    return centred / np.sqrt((centred**2).mean(axes, keepdims=True) + 1e-5)


def layer_formula(x: Any, p: Mapping[str, Any]) -> Any:
    y = standardized(x, (-1,)) * p.get("norm.weight", 1)
    return y + p.get("norm.bias", 0)


def rms_formula(x: Any, p: Mapping[str, Any]) -> Any:
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5) * p.get("norm.weight", 1)


def group_formula(x: Any, p: Mapping[str, Any]) -> Any:
    y = standardized(x.reshape(x.shape[0], 2, -1), (2,)).reshape(x.shape)
    scale, shift = p.get("norm.weight", np.ones(1)), p.get("norm.bias", np.zeros(1))
    if len(scale) == 2:
        scale, shift = scale.repeat(x.shape[1] // 2), shift.repeat(x.shape[1] // 2)
    return y * scale.reshape(-1, 1, 1) + shift.reshape(-1, 1, 1)


# The root, and what is done with it


def quotient(w: Writer, d: str, v: str, way: str) -> str:
    if way == "Div":
        return w("Div", d, w("Sqrt", v))
    if way == "Reciprocal":
        return w("Mul", d, w("Reciprocal", w("Sqrt", v)))
    if way == "one over":
        return w("Mul", w("Div", w.constant(1), w("Sqrt", v)), d)
    if way == "root of the inverse":
        return w("Mul", d, w("Sqrt", w("Reciprocal", v)))
    if way == "power":
        return w("Mul", d, w("Pow", v, w.constant(-0.5)))
    return w("Div", d, w("Pow", v, w.constant(0.5)))


def square(w: Writer, d: str, way: str) -> str:
    return w("Mul", d, d) if way == "Mul" else w("Pow", d, w.constant(2))


def layer(
    root: str = "Div", squared: str = "Pow", opset: int = 18, twice: bool = False, centred_twice: bool = False,
    axes: tuple[int, ...] = (-1,), affine: str = "weight, bias", known: bool = True,
) -> Any:  # fmt: skip
    w = Writer(opset, known=known)
    d = w("Sub", "x", w.mean("x", list(axes)))
    if centred_twice:
        d = w("Sub", d, w.mean(d, list(axes)))
    inner = w("Sub", "x", w.mean("x", list(axes))) if twice else d
    eps = w.constant(1e-5, "eps")
    v = w("Add", w.mean(square(w, inner, squared), list(axes)), eps)
    if affine == "weight first":
        y = quotient(w, w("Mul", w.weight("norm.weight", 5), d), v, root)
        return "LayerNorm", w.model(w("Add", y, w.weight("norm.bias", 5))), layer_formula, SHAPES
    y = quotient(w, d, v, root)
    if "weight" in affine:
        y = w("Mul", w.weight("norm.weight", 5), y, to="scaled")
    if "bias" in affine:
        y = w("Add", y, w.weight("norm.bias", 5))
    return "LayerNorm", w.model(y), layer_formula, SHAPES


def moments(opset: int = 18, squared: str = "Mul", bias_axes: int = 5) -> Any:
    """As TensorFlow writes it, with the difference the other way around."""
    w = Writer(opset)
    mean = w.mean("x", [-1])
    d = w("Sub", mean, "x") if squared == "Mul" else w("Sub", "x", mean)
    r = w("Reciprocal", w("Sqrt", w("Add", w.mean(square(w, d, squared), [-1]), w.constant(1e-5))))
    k = w("Mul", r, w.weight("norm.weight", 5))
    shift = w("Sub", w.weight("norm.bias", bias_axes), w("Mul", mean, k))
    return "LayerNorm", w.model(w("Add", w("Mul", "x", k), shift)), layer_formula, SHAPES


def rms(
    root: str = "Reciprocal", squared: str = "Pow", opset: int = 18, weight: bool = True, casts: bool = False
) -> Any:
    w = Writer(opset)
    x = w("Cast", "x", to=TensorProto.FLOAT) if False else "x"
    v = w("Add", w.constant(1e-5), w.mean(square(w, x, squared), [-1]))
    y = quotient(w, x, v, root)
    if casts:
        y = "cast"
        w.nodes.append(helper.make_node("Cast", [w.nodes[-1].output[0]], [y], to=TensorProto.FLOAT))
    if weight:
        y = w("Mul", y, w.weight("norm.weight", 5))
    return "RMSNorm", w.model(y), rms_formula, SHAPES


def group(
    inner: str = "instances", stretched: str = "Unsqueeze", target: tuple[int, ...] = (0, 2, -1),
    back: tuple[int, ...] | None = None, affine: bool = True, opset: int = 18, shapes: Any = None, known: bool = True,
    **zero: int,
) -> Any:  # fmt: skip
    w = Writer(opset, rank=4, known=known)
    rows = w("Reshape", "x", w.constant(list(target), dtype=np.int64), **zero)
    if inner == "instances":
        ones, zeros = w.constant([1, 1]), w.constant([0, 0])
        y = w("InstanceNormalization", rows, ones, zeros, epsilon=1e-5)
    elif inner == "weighted":
        y = w("InstanceNormalization", rows, w.weight("norm.weight", 2), w.weight("norm.bias", 2), epsilon=1e-5)
        affine = False
    elif inner == "expanded":
        ones, zeros = (w("Expand", w.constant([n]), w.constant([2], dtype=np.int64)) for n in (1, 0))
        y = w("InstanceNormalization", rows, ones, zeros, epsilon=1e-5)
    else:
        axes = list(range(2, len(target)))
        d = w("Sub", rows, w.mean(rows, axes))
        y = quotient(w, d, w("Add", w.mean(square(w, d, "Mul"), axes), w.constant(1e-5)), "Div")
    shape = w("Shape", "x") if back is None else w.constant(list(back), dtype=np.int64)
    y = w("Reshape", y, shape, **zero)
    if affine:
        for operator, name in (("Mul", "norm.weight"), ("Add", "norm.bias")):
            if stretched == "Unsqueeze":
                p = w.weight(name, 6)
                axes = [1, 2]
                p = w("Unsqueeze", p, axes=axes) if opset < 13 else w("Unsqueeze", p, w.constant(axes, dtype=np.int64))
            elif stretched == "Reshape":
                p = w("Reshape", w.weight(name, 6), w.constant([1, 6, 1, 1], dtype=np.int64))
            else:
                p = w.weight(name, 6, 1, 1)
            y = w(operator, y, p) if operator == "Mul" else w(operator, p, y)
    return "GroupNorm", w.model(y), group_formula, shapes or IMAGES


WAYS: dict[str, Callable[[], Any]] = {
    "layer, Div, Pow": layer,
    "layer, Reciprocal, Mul": lambda: layer("Reciprocal", "Mul"),
    "layer, one over, opset 9": lambda: layer("one over", opset=9),
    "layer, root of the inverse": lambda: layer("root of the inverse"),
    "layer, a power": lambda: layer("power", "Mul"),
    "layer, over a power": lambda: layer("over a power", opset=13),
    "layer, mean taken twice": lambda: layer(twice=True),
    "layer, centred twice": lambda: layer(centred_twice=True),
    "layer, weight first": lambda: layer(affine="weight first"),
    "layer, weight alone": lambda: layer(affine="weight"),
    "layer, no weights": lambda: layer(affine=""),
    "layer, axes counted from the front": lambda: layer(axes=(2,)),
    "layer, moments": moments,
    "layer, moments and Pow, opset 11": lambda: moments(11, "Pow"),
    "rms, Reciprocal": rms,
    "rms, Div, Mul": lambda: rms("Div", "Mul"),
    "rms, one over, opset 9": lambda: rms("one over", opset=9),
    "rms, a cast": lambda: rms(casts=True),
    "rms, no weight": lambda: rms(weight=False),
    "group, instances": group,
    "group, expanded ones": lambda: group("expanded"),
    "group, opset 9": lambda: group(opset=9),
    "group, folded weights": lambda: group(stretched=""),
    "group, reshaped weights": lambda: group(stretched="Reshape"),
    "group, the formula": lambda: group("formula"),
    "group, the formula of five axes": lambda: group("formula", target=(0, 2, 3, 4, 5), shapes=[(2, 6, 4, 5)]),
    "group, one weight a group": lambda: group("weighted"),
    "group, no weights": lambda: group(affine=False),
    "group, fixed lengths": lambda: group(target=(2, 2, -1), back=(2, 6, 4, 5), shapes=[(2, 6, 4, 5)], known=False),
    "group, fixed lengths, allowzero": lambda: group(
        target=(2, 2, -1), back=(2, 6, 4, 5), shapes=[(2, 6, 4, 5)], known=False, allowzero=1
    ),
    "group, free batch, fixed lengths": lambda: group(back=(0, 6, 4, 5), shapes=[(2, 6, 4, 5), (3, 6, 4, 5)]),
    "group, of unknown rank": lambda: group(known=False),
}


# Graphs that are not norms


def changed(make: Callable[[], Any], change: Callable[[Any], None]) -> Callable[[], Any]:
    def build() -> Any:
        proto = make()[1]
        change(proto.graph)
        return proto

    return build


def node(graph: Any, operator: str, number: int = 0) -> Any:
    return [n for n in graph.node if n.op_type == operator][number]


def replaced(name: str, value: Any) -> Callable[[Any], None]:
    """The constant of this name, or the number of the one, has another value."""

    def change(graph: Any) -> None:
        constants = {n.output[0]: n for n in graph.node if n.op_type == "Constant"}
        tensor = constants[name].attribute[0].t
        old = numpy_helper.to_array(tensor)
        tensor.CopyFrom(numpy_helper.from_array(np.array(value, old.dtype), name))

    return change


def _read_elsewhere(graph: Any) -> None:
    graph.node.append(helper.make_node("Sqrt", [node(graph, "Sub").output[0]], ["other"]))
    graph.output.append(helper.make_tensor_value_info("other", TensorProto.FLOAT, [None] * 3))


def _is_output(graph: Any) -> None:
    graph.output.append(helper.make_tensor_value_info(node(graph, "Sqrt").output[0], TensorProto.FLOAT, [None] * 3))


def _learned_eps(graph: Any) -> None:
    graph.node.remove(next(n for n in graph.node if "eps" in n.output))
    graph.initializer.append(numpy_helper.from_array(np.array(1e-5, np.float32), "norm.eps"))
    for n in graph.node:
        for i, name in enumerate(n.input):
            n.input[i] = "norm.eps" if name == "eps" else name


def _second_axes(graph: Any) -> None:
    constants = {n.output[0]: n for n in graph.node if n.op_type == "Constant"}
    axes = constants[node(graph, "ReduceMean", 1).input[1]].attribute[0].t
    axes.CopyFrom(numpy_helper.from_array(np.array([-2], np.int64), axes.name))


def _exponent(graph: Any) -> None:
    replaced(node(graph, "Pow").input[1], 3)(graph)


def _weight_on_other_axes(graph: Any) -> None:
    tensor = next(t for t in graph.initializer if t.name == "norm.weight")
    tensor.CopyFrom(numpy_helper.from_array(np.ones((1, 3, 1), np.float32), tensor.name))


def _scaled_instances(graph: Any) -> None:
    replaced(node(graph, "InstanceNormalization").input[1], [1, 2])(graph)


def _other_groups(graph: Any) -> None:
    replaced(node(graph, "Reshape").input[1], [-1, 2, 12])(graph)


def _batch_into_groups(graph: Any) -> None:
    replaced(node(graph, "Reshape", 1).input[1], [4, 3, 4, 5])(graph)


def _shape_of_another(graph: Any) -> None:
    graph.input.append(helper.make_tensor_value_info("like", TensorProto.FLOAT, [None] * 4))
    node(graph, "Shape").input[0] = "like"


def _stretched_as_of_old(graph: Any) -> None:
    for n in graph.node:
        if n.op_type in ("Mul", "Add"):
            n.attribute.append(helper.make_attribute("broadcast", 1))


def _old() -> Any:
    kind, proto, formula, shapes = layer(opset=9)
    proto.opset_import[0].version = 6
    return kind, proto, formula, shapes


def _uncertain_axes() -> Any:
    return layer(axes=(2,), known=False)


OTHERS: dict[str, Callable[[], Any]] = {
    "an intermediate value is read elsewhere": changed(layer, _read_elsewhere),
    "an intermediate value is an output": changed(layer, _is_output),
    "eps is a weight": changed(layer, _learned_eps),
    "eps is a vector": changed(layer, replaced("eps", [1e-5] * 5)),
    "eps is negative": changed(layer, replaced("eps", -1e-5)),
    "two means over different axes": changed(layer, _second_axes),
    "a third power": changed(layer, _exponent),
    "axes that may not be the last": changed(_uncertain_axes, lambda _: None),
    "axes that are not the last": changed(lambda: layer(axes=(1,)), lambda _: None),
    "two axes and no weight": changed(lambda: layer(axes=(-2, -1), affine=""), lambda _: None),
    "moments with a bias of another shape": changed(lambda: moments(bias_axes=1), lambda _: None),
    "instances scaled by numbers": changed(group, _scaled_instances),
    "instances in other groups than weights": changed(lambda: group("weighted"), _other_groups),
    "groups that mix samples": changed(group, _other_groups),
    "a batch that is taken apart": changed(
        lambda: group(target=(2, 2, -1), back=(2, 6, 4, 5), affine=False), _batch_into_groups
    ),
    "operands that stretch as of old": changed(_old, _stretched_as_of_old),
    "another shape behind": changed(group, _shape_of_another),
}
