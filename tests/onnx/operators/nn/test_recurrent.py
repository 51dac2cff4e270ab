"""RNN, LSTM and GRU in files: against onnxruntime with every option, trained against PyTorch, written back."""

from __future__ import annotations

import io
import itertools
from typing import Any

import numpy as np
import pytest

import minorm as mn
import minorm.onnx as mo
from minorm.functional import recurrent as F
from minorm.onnx.graph.versions import PUBLISHED
from minorm.onnx.operators.nn.recurrent import ORDERS

STEPS, BATCH, IN, HIDDEN = 5, 3, 4, 6
NAMES = {
    "RNN": ("x", "w", "r", "b", "lengths", "h"),
    "GRU": ("x", "w", "r", "b", "lengths", "h"),
    "LSTM": ("x", "w", "r", "b", "lengths", "h", "c", "p"),
}
FUNCTIONS = {"RNN": F.rnn, "GRU": F.gru, "LSTM": F.lstm}


def arrays(operator: str, directions: int, layout: int = 0, dtype: Any = np.float32) -> dict[str, Any]:
    rng = np.random.default_rng(4)
    rows = len(ORDERS[operator]) * HIDDEN
    made = {
        "x": rng.normal(size=(STEPS, BATCH, IN)),
        "w": rng.normal(size=(directions, rows, IN)),
        "r": rng.normal(size=(directions, rows, HIDDEN)) / 2,
        "b": rng.normal(size=(directions, 2 * rows)),
        "h": rng.normal(size=(directions, BATCH, HIDDEN)),
        "c": rng.normal(size=(directions, BATCH, HIDDEN)),
        "p": rng.normal(size=(directions, 3 * HIDDEN)),
    }
    if layout:
        made |= {name: made[name].transpose(1, 0, 2) for name in "xhc"}
    return {**{name: a.astype(dtype) for name, a in made.items()}, "lengths": np.array([2, 5, 0], np.int32)}


def node(one_node: Any, operator: str, opset: int, given: dict[str, Any], absent: str = "", **attributes: Any) -> Any:
    """A model of one node whose weights are initializers; inputs named in `absent` are left out."""
    inputs = [None if name in absent.split() else given[name] for name in NAMES[operator]]
    while inputs[-1] is None:
        inputs.pop()
    outputs = ("y", "y_h", "y_c") if operator == "LSTM" else ("y", "y_h")
    held = [i for i in (1, 2, 3, 7) if i < len(inputs) and inputs[i] is not None]
    model = one_node(operator, inputs, opset, outputs, held=held, hidden_size=HIDDEN, **attributes)
    return model, [a for i, a in enumerate(inputs) if a is not None and i not in held]


def by_onnxruntime(model: Any, feeds: list[Any]) -> list[Any]:
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, dict(zip([entry.name for entry in session.get_inputs()], feeds, strict=True)))


OPTIONS: dict[str, list[dict[str, Any]]] = {
    "RNN": [{}, {"clip": 0.5}, {"activations": ["Relu"]}, {"activations": ["ScaledTanh"], "activation_alpha": [0.7],
             "activation_beta": [1.3]}, {"activations": ["Softplus"]}, {"activations": ["Softsign"]}],
    "GRU": [{}, {"linear_before_reset": 1}, {"clip": 0.5}, {"clip": 0.5, "linear_before_reset": 1},
            {"activations": ["HardSigmoid", "LeakyRelu"], "activation_alpha": [0.3, 0.2], "activation_beta": [0.4]}],
    "LSTM": [{}, {"input_forget": 1}, {"clip": 0.5},
             {"activations": ["Sigmoid", "Affine", "Elu"], "activation_alpha": [0.3, 0.6], "activation_beta": [0.1]}],
}  # fmt: skip
CASES = [(operator, options) for operator, several in OPTIONS.items() for options in several]


def for_both(options: dict[str, Any]) -> dict[str, Any]:
    """The same activations for a second direction."""
    return {k: v * 2 if isinstance(v, list) else v for k, v in options.items()}


@pytest.mark.parametrize(("operator", "options"), CASES, ids=[f"{o}-{'-'.join(k) or 'plain'}" for o, k in CASES])
def test_as_onnxruntime_computes(one_node: Any, operator: str, options: dict[str, Any]) -> None:
    for direction, absent in itertools.product(("forward", "reverse", "bidirectional"), ("p lengths", "", "b h c p")):
        both = direction == "bidirectional"
        own = for_both(options) if both else options
        if operator == "LSTM" and "input_forget" in own and "p" not in absent.split():
            continue  # onnxruntime leaves the input gate's peephole out there
        model, feeds = node(one_node, operator, 22, arrays(operator, 1 + both), absent, direction=direction, **own)
        want = by_onnxruntime(model, feeds)
        for got, formula in zip(mo.load(model)(*map(mn.Tensor, feeds)), want, strict=True):
            np.testing.assert_allclose(got.array, formula, rtol=1e-4, atol=3e-6)


@pytest.mark.parametrize("operator", NAMES)
def test_every_version_is_the_same_layer(one_node: Any, operator: str) -> None:
    given = arrays(operator, 2, dtype=np.float64)
    results = []
    for version in PUBLISHED[operator]:
        model, feeds = node(one_node, operator, version, given, direction="bidirectional")
        results.append([r.array for r in mo.load(model)(*map(mn.Tensor, feeds))])
        if version >= 14:
            turned = arrays(operator, 2, layout=1, dtype=np.float64)
            model, feeds = node(one_node, operator, version, turned, direction="bidirectional", layout=1)
            y, *states = [r.array for r in mo.load(model)(*map(mn.Tensor, feeds))]
            results.append([y.transpose(1, 2, 0, 3), *(s.transpose(1, 0, 2) for s in states)])
    for found in results[1:]:
        for a, b in zip(found, results[0], strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("operator", NAMES)
def test_weights_are_parameters_and_move(one_node: Any, operator: str) -> None:
    model, feeds = node(one_node, operator, 22, arrays(operator, 1))
    loaded = mo.load(model)
    assert {name for name, _ in loaded.named_parameters()} == {f"i{i}" for i in (1, 2, 3, 7)[: len(feeds)]} & {
        tensor.name for tensor in model.graph.initializer
    }
    loaded(*map(mn.Tensor, feeds))[0].sum().backward()
    assert all(p.grad is not None and p.grad.array.any() for p in loaded.parameters())


@pytest.mark.parametrize(("operator", "options"), CASES, ids=[f"{o}-{'-'.join(k) or 'plain'}" for o, k in CASES])
def test_written_back_as_the_same_node(one_node: Any, operator: str, options: dict[str, Any], opset: int) -> None:
    layout = {"layout": 1} if opset >= 14 else {}
    own = {"direction": "bidirectional", **for_both(options), **layout}
    model, feeds = node(one_node, operator, opset, arrays(operator, 2, bool(layout)), **own)
    loaded = mo.load(model)
    again = mo.export(loaded, tuple(map(mn.Tensor, feeds)), None, opset_version=opset)
    [one] = again.graph.node
    assert one.op_type == operator
    given = {a.name: a for a in model.graph.node[0].attribute}
    assert {a.name: a for a in one.attribute} == given
    before = {t.name: t.raw_data for t in model.graph.initializer}
    assert {t.name: t.raw_data for t in again.graph.initializer} == before


@pytest.mark.parametrize("operator", NAMES)
@pytest.mark.parametrize("batch_first", [False, True])
def test_in_pytorchs_order(proved: Any, operator: str, batch_first: bool, opset: int) -> None:
    """Rows are moved, and before 14 axes too; onnxruntime computes the same, but refuses layout=1."""
    if batch_first and opset >= 14:
        return
    a = {name: mn.Tensor(array) for name, array in arrays(operator, 2).items()}
    function = FUNCTIONS[operator]

    def layer(x: mn.Tensor) -> mn.Tensor:
        return function(x, None, a["w"], a["r"], a["b"], direction="bidirectional", batch_first=batch_first)[0]

    x = mn.Tensor(a["x"].array.transpose(1, 0, 2).copy()) if batch_first else a["x"]
    proved(layer, x, opset=opset, tolerance=1e-4, reference=False)


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
@pytest.mark.parametrize("both", [False, True], ids=["forward", "bidirectional"])
def test_a_network_from_pytorch_trains_as_there(kind: str, both: bool) -> None:
    torch = pytest.importorskip("torch")

    class Net(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.embed = torch.nn.Linear(3, IN)
            self.layer = getattr(torch.nn, kind)(IN, HIDDEN, 2, bidirectional=both, batch_first=True)
            self.head = torch.nn.Linear(HIDDEN * (1 + both), 2)

        def forward(self, x: Any) -> Any:
            return self.head(self.layer(self.embed(x))[0][:, -1])

    torch.manual_seed(1)
    net = Net().double()
    x = torch.randn(BATCH, STEPS, 3, dtype=torch.float64)
    file = io.BytesIO()
    torch.onnx.export(net, (x,), file, dynamo=False, opset_version=17, training=torch.onnx.TrainingMode.TRAINING,
                      do_constant_folding=False)  # fmt: skip
    loaded = mo.load(file.getvalue())
    y = loaded(mn.Tensor(x.numpy()))
    theirs = net(x)
    np.testing.assert_allclose(y.array, theirs.detach().numpy(), rtol=1e-12, atol=1e-12)
    (theirs**2).sum().backward()
    (y * y).sum().backward()
    ours = sum((p.grad.array**2).sum() for p in loaded.parameters() if p.grad is not None)
    # Every weight of PyTorch's is somewhere among ours, moved about: so the sums of squares agree. Initial states
    # that the exporter wrote as constants are no weights of PyTorch's.
    want = sum(float((p.grad**2).sum()) for p in net.parameters())
    assert ours == pytest.approx(want, rel=1e-10)


@pytest.mark.parametrize(
    ("operator", "change", "message"),
    [
        ("LSTM", {"direction": "up"}, "direction is 'up'; expected 'forward', 'reverse' or 'bidirectional'"),
        ("LSTM", {"activations": ["Tanh"]}, r"activations is \['Tanh'\]; expected 3 name\(s\) for each of 1 direction"),
        ("GRU", {"activations": ["Sigmoid", "Sin"]}, "activations holds 'Sin'; expected Relu, Tanh"),
        ("RNN", {"hidden_size": 7}, "hidden_size is 7, but R has shape"),
        ("RNN", {"clip": -2.0}, "clip is -2.0; expected a number above 0"),
        ("RNN", {"direction": "bidirectional"}, r"weight_ih has shape \(1, 6, 4\); expected \(2, 6, 4\)"),
    ],
)
def test_mistakes(one_node: Any, operator: str, change: dict[str, Any], message: str) -> None:
    model, feeds = node(one_node, operator, 22, arrays(operator, 1))
    from onnx import helper

    for name, value in change.items():
        kept = [a for a in model.graph.node[0].attribute if a.name != name]
        del model.graph.node[0].attribute[:]
        model.graph.node[0].attribute.extend([*kept, helper.make_attribute(name, value)])
    with pytest.raises(ValueError, match=message):
        mo.load(model)(*map(mn.Tensor, feeds))


def test_a_file_that_asks_for_steps_without_end(one_node: Any) -> None:
    """A million steps that compute nothing take Python a minute."""
    x, w, r = np.zeros((0, 1, 1), np.float32), np.ones((1, 1, 1), np.float32), np.ones((1, 1, 1), np.float32)
    model = mo.load(one_node("RNN", [x, w, r], 14, held=(1, 2), hidden_size=1), max_bytes=1 << 28)
    with pytest.raises(ValueError, match="multiplications, more than max_bytes=268435456 allows"):
        model(mn.Tensor(np.zeros((1_000_000, 0, 1), np.float32)))
