"""A wrong argument and another library's array: every public function and class names them, and nothing is misread."""

from __future__ import annotations

import abc
import copy
import inspect
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import minorm as mn
import minorm.functional as F
from minorm import data, nn, optim
from minorm.data import transforms
from minorm.support import argument_errors


def functions() -> list[tuple[str, Callable[..., Any]]]:
    """Every function of `minorm`, `minorm.functional` and `minorm.nn.utils` that takes arguments by name."""
    found = []
    for place, module, home in (("mn", mn, "minorm"), ("F", F, "minorm.f"), ("nn.utils", nn.utils, "minorm.nn.utils")):
        for name in sorted({*vars(module), *vars(module).get("_LATER", ())}):
            value = getattr(module, name)
            if inspect.isfunction(value) and not name.startswith("_") and value.__module__.startswith(home):
                kinds = {p.kind for p in inspect.signature(value).parameters.values()}
                if kinds and inspect.Parameter.VAR_KEYWORD not in kinds and kinds != {inspect.Parameter.VAR_POSITIONAL}:
                    found.append((f"{place}.{name}", value))
    return found


def classes() -> list[tuple[str, type]]:
    """Every layer, loss, optimizer, schedule, and what makes up a DataLoader."""
    found = []
    for module in (nn, optim, optim.lr_scheduler, data):
        for name, value in vars(module).items():
            ours = inspect.isclass(value) and value.__module__.startswith("minorm") and not name.startswith("_")
            if ours and not issubclass(value, (mn.Tensor, Exception)):
                kinds = {p.kind for p in inspect.signature(value).parameters.values()}
                if inspect.Parameter.VAR_KEYWORD not in kinds and inspect.Parameter.VAR_POSITIONAL not in kinds:
                    found.append((name, value))
    return found


FUNCTIONS, CLASSES = functions(), classes()


def test_all_of_them_are_asked() -> None:
    assert len(FUNCTIONS) > 90
    assert len(CLASSES) > 60
    names = {name for name, _ in (*FUNCTIONS, *CLASSES)}
    assert {"mn.zeros", "mn.tensor", "mn.cat", "mn.save", "F.conv2d", "F.group_norm"} <= names
    assert {"Conv2d", "BatchNorm2d", "ReLU", "CrossEntropyLoss", "SGD", "AdamW", "StepLR", "DataLoader"} <= names


@pytest.mark.parametrize(("name", "call"), FUNCTIONS + CLASSES, ids=[name for name, _ in FUNCTIONS + CLASSES])
def test_every_function_and_class_names_a_wrong_argument(name: str, call: Callable[..., Any]) -> None:
    own = name.rpartition(".")[2]
    shown = own if inspect.isclass(call) else call.__name__  # mn.clamp is clip
    parameters = inspect.signature(call).parameters.values()
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    with pytest.raises(TypeError) as caught:
        call(qqqq=1)
    assert str(caught.value).startswith(f"{shown}: there is no argument 'qqqq'; expected {shown}(")
    for right in names:
        if len(right) > 1:
            wrong = right + "x"
            with pytest.raises(TypeError) as caught:
                call(**{wrong: 1})
            assert str(caught.value).startswith(f"{shown}: there is no argument {wrong!r}; did you mean '")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: optim.SGD([], lr=0.1, momentun=0.9), "SGD: there is no argument 'momentun'; did you mean 'momentum'?"),
        (lambda: nn.Conv2d(1, 8, kernel=3), "Conv2d: there is no argument 'kernel'; did you mean 'kernel_size'?"),
        (lambda: F.conv2d(1, 2, strid=2), "conv2d: there is no argument 'strid'; did you mean 'stride'?"),
        (lambda: mn.zeros(2, dtyp=mn.int8), "zeros: there is no argument 'dtyp'; did you mean 'dtype'?"),
        (lambda: nn.ReLU(1, 2), "ReLU: too many positional arguments; expected ReLU("),
        (
            lambda: nn.Linear(1, 2, in_features=3),
            "Linear: multiple values for argument 'in_features'; expected Linear(",
        ),
        (lambda: nn.Linear(bias=False), "Linear: missing a required argument: 'in_features'; expected Linear("),
        (
            lambda: F.softmax(mn.ones(2)),
            "softmax: missing a required argument: 'dim'; expected softmax(x, dim, *, dtype=None)",
        ),
    ],
)
def test_the_message(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(TypeError) as caught:
        call()
    assert str(caught.value).startswith(message)


def test_inside_a_trace_too() -> None:
    with mn.no_grad(), mistakes_traced(), pytest.raises(TypeError, match="relu: there is no argument 'inplac'"):
        F.relu(mn.ones(2), inplac=True)


def mistakes_traced() -> Any:
    from minorm.graph import trace

    return trace.record()


def test_a_type_error_from_inside_is_not_misread() -> None:
    class Net(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.fc = nn.Linear(width, 2)
            helper(1)

    def helper() -> None: ...

    with pytest.raises(TypeError, match=r"helper\(\) takes 0 positional arguments but 1 was given"):
        Net(3)
    with pytest.raises(TypeError, match="Net: there is no argument 'widht'; did you mean 'width'"):
        Net(widht=3)

    @argument_errors.checked
    def outer(x: int) -> None:
        helper(x)

    with pytest.raises(TypeError, match=r"helper\(\) takes 0 positional"):
        outer(1)
    with pytest.raises(TypeError, match="outer: there is no argument 'y'") as caught:
        outer(y=1)
    assert isinstance(caught.value.__context__, TypeError)  # Python's own is kept, and not shown


class Free(nn.Module):
    """A module that takes any arguments."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__()
        self.args, self.options = args, options


@dataclass(eq=False)
class Recorded(nn.Module):
    """A dataclass, whose `__init__` is written after the class was made."""

    width: int
    depth: int = 2

    def __post_init__(self) -> None:
        super().__init__()


class Abstract(nn.Module, abc.ABC):
    """A class with a custom metaclass."""

    @abc.abstractmethod
    def size(self) -> int: ...


class Concrete(Abstract):
    def __init__(self, n: int) -> None:
        super().__init__()
        self.n = n

    def size(self) -> int:
        return self.n


class Chosen(nn.Module):
    """A class whose `__new__` passes no arguments on."""

    def __new__(cls, n: int) -> Any:
        return super().__new__(cls)

    def __init__(self, n: int) -> None:
        super().__init__()
        self.n = n


def test_classes_of_the_users_are_made_as_before() -> None:
    assert Free(1, 2, anything=3).options == {"anything": 3}
    assert (Recorded(3).width, Recorded(width=3, depth=4).depth) == (3, 4)
    assert Concrete(n=3).size() == 3
    assert Chosen(3).n == 3
    assert len(nn.Sequential(nn.ReLU(), nn.ReLU())) == 2
    with pytest.raises(TypeError, match="Sequential: there is no argument 'layers'"):
        nn.Sequential(layers=[])
    with pytest.raises(TypeError, match="abstract"):
        Abstract()
    with pytest.raises(TypeError, match="Recorded: there is no argument 'widt'; did you mean 'width'"):
        Recorded(widt=3)
    layer = nn.Conv2d(1, 2, 3)
    assert copy.deepcopy(layer).kernel_size == pickle.loads(pickle.dumps(layer)).kernel_size == (3, 3)
    assert isinstance(copy.copy(optim.SGD(layer.parameters(), lr=0.1)), optim.SGD)


def test_signatures_are_those_of_init() -> None:
    assert list(inspect.signature(nn.Linear).parameters)[:2] == ["in_features", "out_features"]
    assert "args" not in inspect.signature(nn.Sigmoid).parameters
    assert list(inspect.signature(mn.full).parameters)[:2] == ["size", "fill_value"]


# Arrays of other libraries


class Other:
    """An array of another library, as jax.Array, tensorflow.Tensor and cupy.ndarray look from outside."""

    def __init__(self, array: Any) -> None:
        self.array = array
        self.shape, self.dtype, self.ndim = array.shape, array.dtype, array.ndim

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.array(self.array, dtype)

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


Other.__module__, Other.__qualname__ = "jaxlib._jax", "ArrayImpl"


def other(*shape: int) -> Other:
    return Other(np.ones(shape, np.float32))


def test_any_library_is_named_with_its_module() -> None:
    with pytest.raises(TypeError) as caught:
        nn.Linear(3, 2)(other(2, 3))
    assert str(caught.value) == (
        "linear: x is jaxlib._jax.ArrayImpl; expected a Tensor of minorm; convert it: minorm.from_dlpack(x) shares "
        "the memory, minorm.tensor(numpy.asarray(x)) makes a copy"
    )
    x = other(2, 3)
    assert np.array_equal(mn.from_dlpack(x).numpy(), mn.tensor(np.asarray(x)).numpy())


def test_what_is_no_array_keeps_its_own_message() -> None:
    for value, words in ((np.ones((2, 3), np.float32), "ndarray"), ([1.0], "list"), (3, "int")):
        with pytest.raises(TypeError) as caught:
            nn.Linear(3, 2)(value)
        assert str(caught.value) == (f"linear: x is {words}; expected a Tensor; make one with minorm.tensor(data)")
    assert not argument_errors.is_foreign(np.ones(2).view(np.matrix))
    assert not argument_errors.is_foreign(nn.Parameter(np.ones(2)))


TORCH: list[tuple[str, Callable[[Any], Any]]] = [
    ("linear: x is", lambda t: nn.Linear(4, 4)(t.ones(4, 4))),
    ("conv2d: x is", lambda t: nn.Conv2d(1, 2, 3)(t.ones(1, 1, 4, 4))),
    ("conv_transpose2d: x is", lambda t: nn.ConvTranspose2d(1, 2, 3)(t.ones(1, 1, 4, 4))),
    ("batch_norm: x is", lambda t: nn.BatchNorm2d(1)(t.ones(2, 1, 4, 4))),
    ("group_norm: x is", lambda t: nn.GroupNorm(1, 1)(t.ones(2, 1, 4, 4))),
    ("layer_norm: x is", lambda t: nn.LayerNorm(4)(t.ones(2, 4))),
    ("rms_norm: x is", lambda t: nn.RMSNorm(4)(t.ones(2, 4))),
    ("max_pool2d: x is", lambda t: nn.MaxPool2d(2)(t.ones(1, 1, 4, 4))),
    ("adaptive_avg_pool2d: x is", lambda t: nn.AdaptiveAvgPool2d(1)(t.ones(1, 1, 4, 4))),
    ("relu: x is", lambda t: nn.ReLU()(t.ones(4))),
    ("dropout: x is", lambda t: nn.Dropout()(t.ones(4))),
    ("softmax: x is", lambda t: F.softmax(t.ones(4), 0)),
    ("Flatten: x is", lambda t: nn.Flatten()(t.ones(4, 4))),
    ("Unflatten: x is", lambda t: nn.Unflatten(1, (2, 2))(t.ones(4, 4))),
    ("cross_entropy: input is", lambda t: F.cross_entropy(t.ones(2, 3), t.zeros(2).long())),
    ("cross_entropy: target is", lambda t: F.cross_entropy(mn.ones(2, 3), t.zeros(2).long())),
    ("mse_loss: target is", lambda t: F.mse_loss(mn.ones(2, 3), t.zeros(2, 3))),
    ("add: operand is", lambda t: mn.ones(3) + t.ones(3)),
    ("mul: operand is", lambda t: t.ones(3) * mn.ones(3)),
    ("matmul: operand is", lambda t: mn.ones(3, 3) @ t.ones(3, 3)),
    ("cat: tensors[0] is", lambda t: mn.cat([t.ones(3), t.ones(3)])),
    ("cat: tensors[1] is", lambda t: mn.cat([mn.ones(3), t.ones(3)])),
    ("stack: tensors[0] is", lambda t: mn.stack([t.ones(3), t.ones(3)])),
    ("exp: x is", lambda t: mn.exp(t.ones(3))),
    ("sum: x is", lambda t: mn.sum(t.ones(3))),
    ("Tensor: data is", lambda t: mn.Tensor(t.ones(3))),
    ("Parameter: data is", lambda t: nn.Parameter(t.ones(3))),
    ("SGD: params[0] is a", lambda t: optim.SGD([t.ones(3)], lr=0.1)),
    ("clip_grad_norm_: parameters[0] is a", lambda t: nn.utils.clip_grad_norm_([t.ones(3)], 1.0)),
]


@pytest.mark.parametrize(("start", "call"), TORCH, ids=[start for start, _ in TORCH])
def test_a_tensor_of_pytorch_is_named_and_can_be_converted(start: str, call: Callable[[Any], Any]) -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(TypeError) as caught:
        call(torch)
    text = str(caught.value)
    assert text.startswith(f"{start} torch.Tensor; expected ")
    assert "convert it: minorm.from_dlpack(" in text
    assert ".numpy()) makes a copy" in text


def test_the_conversion_that_is_advised_works() -> None:
    torch = pytest.importorskip("torch")
    for x in (torch.ones(2, 3), torch.ones(2, 3, requires_grad=True), torch.nn.Parameter(torch.ones(2, 3))):
        with pytest.raises(TypeError) as caught:
            F.relu(x)
        shared, copied = str(caught.value).partition("convert it: ")[2].split(", ")
        for advice in (shared.removesuffix(" shares the memory"), copied.removesuffix(" makes a copy")):
            y = eval(advice, {"minorm": mn, "x": x})
            assert isinstance(F.relu(y), mn.Tensor)
            assert y.shape == (2, 3)


def test_every_functional_refuses_a_tensor_of_pytorch() -> None:
    torch = pytest.importorskip("torch")
    x = torch.ones(2, 2, 4, 4)
    more: dict[str, Any] = {"num_groups": 1, "normalized_shape": (4,), "kernel_size": 2, "output_size": 1, "size": 3}
    more |= {"running_mean": None, "running_var": None, "dim": 1, "weight": x, "target": x, "dtype": mn.float32}
    for name, function in vars(F).items():
        if not inspect.isfunction(function) or name.startswith("_"):
            continue
        first, *rest = inspect.signature(function).parameters.values()
        needed = {p.name: more.get(p.name, x) for p in rest if p.default is p.empty and p.kind is not p.VAR_KEYWORD}
        with pytest.raises(TypeError) as caught:
            function(x, **needed)
        assert f"{name}: {first.name} is torch.Tensor; expected a Tensor of minorm" in str(caught.value)


def test_onnx_names_them_too() -> None:
    pytest.importorskip("onnx")
    torch = pytest.importorskip("torch")
    import io

    import minorm.onnx

    file = io.BytesIO()
    minorm.onnx.export(nn.Linear(3, 2), mn.ones(1, 3), file)
    with pytest.raises(TypeError, match=r"is torch.Tensor; expected a Tensor; convert it: minorm.from_dlpack\(x\)"):
        minorm.onnx.load(file.getvalue())(torch.ones(1, 3))
    with pytest.raises(TypeError, match="export: there is no argument 'opset'; did you mean 'opset_version'"):
        minorm.onnx.export(nn.Linear(3, 2), mn.ones(1, 3), file, opset=13)


def test_a_transform_is_asked_as_well() -> None:
    with pytest.raises(TypeError, match="RandomCrop: there is no argument 'pading'; did you mean 'padding'"):
        transforms.RandomCrop(32, pading=4)


OF_AN_AXIS = """cumsum cumprod squeeze unsqueeze softmax log_softmax sort argsort unbind count_nonzero sum mean max min
                argmax var std amax prod any all median logsumexp""".split()  # noqa: SIM905
KEEPING_IT = """sum mean max min argmax var std amax prod any all median logsumexp""".split()  # noqa: SIM905


@pytest.mark.parametrize("name", OF_AN_AXIS)
def test_numpys_axis_is_dim(name: str) -> None:
    x = mn.tensor(np.random.default_rng(0).random((2, 1, 3)))
    dim = 1 if name == "squeeze" else 2
    expected = str(getattr(x, name)(dim=dim))
    assert str(getattr(x, name)(axis=dim)) == str(getattr(mn, name)(x, axis=dim)) == expected


@pytest.mark.parametrize("name", KEEPING_IT)
def test_numpys_keepdims_is_keepdim(name: str) -> None:
    x = mn.tensor(np.random.default_rng(0).random((2, 1, 3)))
    expected = str(getattr(x, name)(2, keepdim=True))
    assert str(getattr(x, name)(2, keepdims=True)) == str(getattr(mn, name)(x, axis=2, keepdims=True)) == expected


def test_numpys_axis_where_tensors_are_joined() -> None:
    x = mn.ones(2, 1, 3)
    assert mn.cat([x, x], axis=1).shape == (2, 2, 3)
    assert mn.stack([x, x], axis=1).shape == (2, 2, 1, 3)
    with pytest.raises(TypeError, match="cat: there is no argument 'axes'"):
        mn.cat([x, x], axes=1)  # type: ignore[call-arg]


def test_the_signature_of_a_class_is_that_of_its_init() -> None:
    """Python 3.11.2 says (*args, **kwargs) for a class whose base has a __new__."""
    assert list(argument_errors.signature(nn.Linear).parameters)[:3] == ["in_features", "out_features", "bias"]
    assert list(argument_errors.signature(nn.BatchNorm2d).parameters)[:2] == ["num_features", "eps"]
    assert "self" in str(inspect.signature(nn.Linear.__init__))
    assert list(argument_errors.signature(mn.device).parameters) == ["type", "index"]
    assert list(argument_errors.signature(F.relu).parameters) == list(inspect.signature(F.relu).parameters)
