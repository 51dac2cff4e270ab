"""One file of one exporter: what it must do, step by step. Each step returns "" or what went wrong."""

from __future__ import annotations

import functools
import io
import operator
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import torch

import minorm as mn
import minorm.onnx as mo
from minorm.onnx.checking import verification
from minorm.tensor.tensor import Tensor
from tests.onnx import retyped
from tests.onnx.strangers.network import Family, Net

OUTPUTS, TRAINING, FILES = 1e-5, 1e-6, 2e-4  # float32 constants in float64; float64; float32 against onnxruntime


def exported(
    made: Family, module: Any, dynamo: bool, free: bool, plain: bool = False, training: bool = False, opset: int = 17
) -> Any:
    """plain: without the exporter's optimizations, so that every weight stays its own."""
    x, names, axes = made.example(), list(made.inputs), made.axes() if free else {}
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if dynamo:
            shapes = tuple(dict.fromkeys(axes.get(name, {}), torch.export.Dim.AUTO) for name in names)
            program = torch.onnx.export(
                module, x, dynamo=True, optimize=not plain, verbose=False,
                dynamic_shapes=((shapes,) if isinstance(module, Net) else shapes) if free else None,
                input_names=names, opset_version=max(18, opset),
            )  # fmt: skip
            return program.model_proto
        mode = torch.onnx.TrainingMode.TRAINING if training else torch.onnx.TrainingMode.EVAL
        torch.onnx.export(
            module, x, file, dynamo=False, opset_version=opset, input_names=names, dynamic_axes=axes or None,
            training=mode, do_constant_folding=not plain,
        )  # fmt: skip
    return onnx.load_from_string(file.getvalue())


def many(y: Any) -> list[Any]:
    return [t for part in y for t in many(part)] if isinstance(y, (tuple, list)) else [y]


def added(terms: Any) -> Any:
    return functools.reduce(operator.add, terms)


def cast(tensors: Any, dtype: Any) -> list[Any]:
    return [t.to(dtype) if t.is_floating_point() else t for t in tensors]


def arrays(tensors: Any) -> list[Any]:
    return [t.numpy() for t in tensors]


def start(proto: Any) -> Any:
    """Of a file in 16 bits: without the last level of optimization, at which onnxruntime 1.32 may crash."""
    try:
        return retyped.session(proto)
    except Exception as error:  # noqa: BLE001  of onnxruntime, whose exceptions have no common class
        return str(error)


def held(file: Any, given: Any) -> Any:
    """Only the inputs that the file has: an exporter drops what no output depends on."""
    there = {entry.name for entry in file.graph.input}
    return {name: array for name, array in given.items() if name in there}


def apart(got: Any, want: Any, bound: float) -> str:
    for i, (a, b) in enumerate(zip(got, want, strict=True)):
        if a.shape != b.shape:
            return f"output {i}: shape {a.shape}, expected {b.shape}"
        a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
        if not np.allclose(
            a, b, rtol=bound, atol=bound * max(1.0, np.abs(b[np.isfinite(b)]).max(initial=0)), equal_nan=True
        ):
            return f"output {i}: apart by {np.nanmax(np.abs(a - b)):.3g} of {np.nanmax(np.abs(b)):.3g}"
    return ""


class Trial:
    """A file with the network it came from."""

    def __init__(self, made: Family, dynamo: bool, opset: int = 17) -> None:
        self.made, self.dynamo, self.opset = made, dynamo, opset
        torch.manual_seed(0)
        self.module = made.make()
        self.settle()
        self.module.eval()
        self.free = bool(made.axes())
        try:
            self.file = exported(made, self.module, dynamo, self.free, opset=opset)
        except Exception:
            if not self.free:
                raise
            self.free = False
            self.file = exported(made, self.module, dynamo, False, opset=opset)

    def settle(self) -> None:
        """Statistics and weights as after some training, so that none is 0 or 1."""
        for module in self.module.modules():
            if isinstance(module, torch.nn.modules.batchnorm._BatchNorm):
                module.running_mean.normal_(0, 0.3)
                module.running_var.uniform_(0.5, 2)
        with torch.no_grad():
            for p in self.module.parameters():
                if p.ndim == 1:
                    p.add_(torch.randn_like(p) * 0.2)

    def sizes(self) -> list[Any]:
        """Examples that file and network take: three, or the usual one of a file without free lengths."""
        found: list[Any] = []
        free, fixed = set[Any](), set[Any]()
        for entry in self.file.graph.input:
            for dim, name in zip(entry.type.tensor_type.shape.dim, self.made.inputs[entry.name], strict=True):
                (free if dim.dim_param else fixed).add(name)
        self.free = bool(free - fixed)
        session = verification.start(self.file)
        for number in range(4 if self.free else 1):
            x = self.made.example(number, free - fixed)
            try:
                with torch.no_grad():
                    self.module(*x)
                if number:  # an exporter may have fixed inside what it calls free
                    verification.run(session, self.given(self.file, x))
            except Exception:  # noqa: BLE001  of onnxruntime, whose exceptions have no common class
                continue
            found.append(x)
        return found[:3]

    def given(self, file: Any, x: Any) -> dict[str, Any]:
        return held(file, dict(zip(self.made.inputs, arrays(x), strict=True)))

    def agrees(self) -> str:
        model, module = mo.load(self.file).double(), self.made.make()
        module.load_state_dict(self.module.state_dict())
        module.double().eval()
        for x in self.sizes():
            x = cast(x, torch.float64)
            with torch.no_grad():
                want = [t.numpy() for t in many(module(*x))]
            fed = self.given(self.file, x)
            got = [t.numpy() for t in many(model(*map(Tensor, fed.values())))]
            if wrong := apart(got, want, OUTPUTS):
                small = {name: a.astype(np.float32) if a.dtype == np.float64 else a for name, a in fed.items()}
                theirs = verification.run(verification.start(self.file), small)  # may hold what was traced at one size
                if not apart(theirs, want, FILES) or apart(got, theirs, FILES):
                    return f"{[tuple(t.shape) for t in x]}: {wrong}"
        return ""

    def counts(self) -> str:
        """The trainable elements of the file as it is by default; without vectors where BatchNorms are folded."""
        least = 2 if any(isinstance(m, torch.nn.modules.batchnorm._BatchNorm) for m in self.module.modules()) else 0
        y = [t for t in many(self.module(*self.made.example())) if t.is_floating_point()]
        found = torch.autograd.grad(added(t.sum() for t in y), list(self.module.parameters()), allow_unused=True)
        kept = {id(p) for m in self.module.modules() if isinstance(m, torch.nn.RNNBase) for p in m.parameters()}
        slopes = sum(m.weight.numel() for m in self.module.modules() if isinstance(m, torch.nn.PReLU))
        pairs = zip(self.module.parameters(), found, strict=True)
        want = sum(p.numel() for p, g in pairs if g is not None and (p.ndim >= least or id(p) in kept))
        got = {name: p.shape for name, p in mo.load(self.file).named_parameters() if p.ndim >= least}
        ours = sum(int(np.prod(shape)) for shape in got.values())
        right = want == ours or (least and want + slopes == ours)  # ONNX writes slopes with one axis or more
        return "" if right else f"{ours} elements, PyTorch has {want}: {got}"

    def trains(self) -> str:
        """One step in float64: elements, loss, gradients, running statistics, and the outputs after it."""
        torch.manual_seed(0)
        module = self.made.make()
        module.load_state_dict(self.module.state_dict())
        module.train(not self.dynamo)
        file = exported(self.made, module, self.dynamo, self.free, plain=True, training=True, opset=self.opset)
        model = mo.load(file).double().train()
        module.double().train()
        x = cast(self.made.example(), torch.float64)
        mine = tuple(map(Tensor, self.given(file, x).values()))
        seen: dict[str, Any] = {}

        def watch(name: str) -> Callable[..., None]:
            def look(layer: Any, inputs: Any) -> None:
                data = inputs[0].detach().transpose(0, 1).flatten(1)
                keep = 1 - layer.momentum
                seen[f"{name}.running_mean"] = layer.running_mean * keep + data.mean(1) * layer.momentum
                seen[f"{name}.running_var"] = layer.running_var * keep + data.var(1, unbiased=False) * layer.momentum

            return look

        hooks = [
            m.register_forward_pre_hook(watch(name))
            for name, m in module.named_modules()
            if isinstance(m, torch.nn.modules.batchnorm._BatchNorm)
        ]
        theirs = [t for t in many(module(*x)) if t.is_floating_point()]
        for hook in hooks:
            hook.remove()
        ours = [t for t in many(model(*mine)) if t.dtype == np.float64]
        made = torch.Generator().manual_seed(1)
        aims = [torch.randn(t.shape, generator=made, dtype=torch.float64) for t in theirs]
        loss = sum(((y - aim) ** 2).mean() for y, aim in zip(theirs, aims, strict=True))
        our_loss = added(((y - Tensor(aim.numpy())) ** 2).mean() for y, aim in zip(ours, aims, strict=True))
        if abs(our_loss.item() - loss.item()) > TRAINING * abs(loss.item()):
            return f"loss {our_loss.item()}, PyTorch's {loss.item()}"
        loss.backward()
        our_loss.backward()
        count = sum(p.numel() for p in module.parameters() if p.grad is not None)  # the others are in no file
        our_count = sum(p.array.size for p in model.parameters())
        elements = "" if count == our_count else f"{our_count} elements, PyTorch has {count};"
        squares = sum((p.grad**2).sum().item() for p in module.parameters() if p.grad is not None)
        our_squares = sum(float((p.grad.array**2).sum()) for p in model.parameters() if p.grad is not None)
        if abs(our_squares - squares) > 10 * TRAINING * squares:
            return f"{elements} squares of gradients {our_squares}, PyTorch's {squares}"
        buffers = {name: b.array for name, b in model.named_buffers()}
        for name, want in seen.items():
            if name not in buffers:
                return f"running statistics {name} are no buffer"
            if wrong := apart([buffers[name]], [want.numpy()], TRAINING):
                return f"{name}: {wrong}"
        torch.optim.SGD(module.parameters(), lr=0.01).step()
        mn.optim.SGD([p for p in model.parameters() if p.grad is not None], lr=0.01).step()
        want = [t.detach().numpy() for t in many(module(*x)) if t.is_floating_point()]
        got = [t.numpy() for t in many(model(*mine)) if t.dtype == np.float64]
        return elements or apart(got, want, 10 * TRAINING)

    def converts(self, opset: int) -> str:
        new = mo.convert(self.file, opset_version=opset)
        return self.same(self.file, new)

    def same(self, old: Any, new: Any) -> str:
        a, b = verification.start(old), verification.start(new)
        if isinstance(a, str):
            return f"onnxruntime refuses the file: {a}"
        if isinstance(b, str):
            return f"onnxruntime refuses what was written: {b}"
        for x in self.sizes():
            fed = self.given(old, x)
            if wrong := apart(verification.run(b, fed), verification.run(a, fed), FILES):
                return f"{[v.shape for v in fed.values()]}: {wrong}"
        return ""

    def goes_out(self) -> str:
        """Moved by one step, exported at its own opset, and run by onnxruntime."""
        model = mo.load(self.file)
        x = self.made.example()
        ys = [y for y in many(model(*map(Tensor, self.given(self.file, x).values()))) if y.requires_grad]
        if ys:
            added((y**2).mean() for y in ys).backward()
            mn.optim.SGD([p for p in model.parameters() if p.grad is not None], lr=0.01).step()
        proto = mo.export(model, None, training=None)
        old, new = ([(n.op_type, n.name, *n.input, *n.output) for n in f.graph.node] for f in (self.file, proto))
        kept = [node[:2] for node in old if node in new or node[0] != "Identity"]  # which hand on equal weights
        if kept != [node[:2] for node in new]:
            return f"{len(old)} nodes became {len(new)}, or others"
        ends = [[e.SerializeToString() for e in (*f.graph.input, *f.graph.output)] for f in (self.file, proto)]
        if ends[0] != ends[1]:
            return "inputs or outputs are not those of the file"
        session = verification.start(proto)
        if isinstance(session, str):
            return f"onnxruntime refuses what was written: {session}"
        for x in self.sizes():
            fed = self.given(proto, x)
            want = [t.numpy() for t in many(model(*map(Tensor, fed.values())))]
            if wrong := apart(verification.run(session, fed), want, FILES):
                return f"{[v.shape for v in fed.values()]}: {wrong}"
        return ""

    def in_type(self, name: str) -> str:
        """Exported in another float type: onnxruntime loads the file, and minorm computes the same from it."""
        model = mo.load(self.file).to(getattr(mn, name))
        proto = mo.export(model, None)
        session = start(proto)
        if isinstance(session, str) and not (name != "float16" and "NOT_IMPLEMENTED" in session.upper()):
            return f"onnxruntime refuses what was written: {session}"
        again = mo.load(proto)
        fed = self.given(proto, cast(self.made.example(), torch.float64))
        mine = [Tensor(a).to(getattr(mn, name)) if a.dtype == np.float64 else Tensor(a) for a in fed.values()]
        want, got = ([np.asarray(t.numpy(), np.float64) for t in many(m(*mine))] for m in (model, again))
        return apart(got, want, {"float16": 1e-2, "bfloat16": 1e-1, "float64": 1e-12}[name])
