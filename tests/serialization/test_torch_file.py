"""PyTorch's .pt files: the values of a state_dict come back, and nothing that a file names is called."""

from __future__ import annotations

import io
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm import nn
from tests.adversary import bombs


def test_a_state_dict_of_pytorch(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    net = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2), torch.nn.Linear(3, 4))
    kinds = [torch.float16, torch.bfloat16, torch.float64, torch.int32, torch.int8, torch.uint8, torch.bool]
    tied = torch.arange(6.0)
    given = {
        "net": net.state_dict(), "epoch": 3, "best": 0.5, "name": "a", "none": None, "flags": [True, (1, -7, 2**40)],
        "types": [torch.ones(2, dtype=kind) for kind in kinds], "turned": tied.reshape(2, 3).T, "part": tied[2:4],
        "parameter": torch.nn.Parameter(torch.zeros(2)), "empty": torch.zeros(0, 3), "one": torch.tensor(5),
    }  # fmt: skip
    torch.save(given, tmp_path / "run.pt")
    found = mn.load(tmp_path / "run.pt")
    assert list(found) == list(given)
    for key in ("epoch", "best", "name", "none", "flags"):
        assert found[key] == given[key]
    for mine, other in zip(found["types"], given["types"], strict=True):
        assert str(mine.dtype) == str(other.dtype).removeprefix("torch.")
    for key in ("turned", "part", "parameter", "empty", "one"):
        np.testing.assert_array_equal(found[key].array, given[key].detach().numpy())
    ours = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Linear(3, 4))
    ours.load_state_dict(found["net"])
    np.testing.assert_array_equal(ours[2].weight.array, net[2].weight.detach().numpy())


TOO_LONG = (  # a tensor of 99 numbers in a storage of 4
    b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n((X\x07\x00\x00\x00storagectorch\nFloatStorage\n"
    b"X\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x04tQK\x00K\x63\x85K\x01\x85\x89}tR."
)


def archive(data: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as made:
        made.writestr("x/data.pkl", data)
        made.writestr("x/data/0", np.ones(4, np.float32).tobytes())
    return file.getvalue()


class Evil:
    """An object whose pickle runs code when it is loaded."""

    def __reduce__(self) -> Any:
        return (exec, ("raise SystemExit('it was run')",))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (pickle.dumps({"a": Evil()}, 2), "the file names .*exec, which minorm does not run"),
        (pickle.dumps({"a": Evil()}, 5), "the file names .*exec, which minorm does not run"),
        (pickle.dumps(mn.nn.Linear, 2), "the file names minorm"),
        (b"\x80\x02}q\x00X\x01", "not enough data"),
        (b"\x80\x02.", "damaged"),
        (b"\x80\x02ctorch\nFloatStorage\n.", "the file holds torch FloatStorage"),
        (b"\x80\x02(", "damaged|pickle"),
        (b"", "damaged|pickle"),
        (TOO_LONG, "does not fit into its storage of 4 numbers"),
    ],
)
def test_anything_else_is_refused(tmp_path: Path, data: bytes, message: str) -> None:
    (tmp_path / "x.pt").write_bytes(archive(data))
    with pytest.raises(ValueError, match=message):
        mn.load(tmp_path / "x.pt")


def test_a_nest_is_saved_and_comes_back(tmp_path: Path) -> None:
    net = nn.Linear(2, 3)
    mn.save({"net": net.state_dict(), "epoch": 3, "best": 0.9, "log": [1.0, None, ("a", True)]}, tmp_path / "run")
    found = mn.load(tmp_path / "run")
    assert (found["epoch"], found["best"], found["log"]) == (3, 0.9, [1.0, None, ("a", True)])
    np.testing.assert_array_equal(found["net"]["weight"].array, net.weight.array)
    nn.Linear(2, 3).load_state_dict(found["net"])


def test_pytorch_of_every_form(tmp_path: Path) -> None:
    """We load the same as torch.load: views, an expanded tensor, an optimizer, old and new zips."""
    torch = pytest.importorskip("torch")
    net = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(net.parameters(), amsgrad=True)
    net(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    base = torch.arange(12.0)
    given = {
        "optimizer": optimizer.state_dict(), "expanded": torch.ones(1).expand(5, 7), "view": base[3:9:2],
        "rows": base.reshape(3, 4)[1], "turned": base.reshape(3, 4).T, "tied": [base, base], "none": torch.zeros(2, 0),
    }  # fmt: skip
    torch.save(given, tmp_path / "a.pt")
    theirs = torch.load(tmp_path / "a.pt", weights_only=True)
    for protocol in (2, 3, 4, 5):
        torch.save(given, tmp_path / "a.pt", pickle_protocol=protocol)
        found = mn.load(tmp_path / "a.pt")
        for key in ("expanded", "view", "rows", "turned", "none"):
            np.testing.assert_array_equal(found[key].array, theirs[key].numpy())
        assert found["tied"][0] is found["tied"][1]
        mine, other = found["optimizer"], theirs["optimizer"]
        assert mine["param_groups"] == other["param_groups"]
        for number, state in other["state"].items():
            for key, value in state.items():
                np.testing.assert_array_equal(mine["state"][number][key].array, value.numpy())


def test_a_limit_is_named_and_raised(tmp_path: Path) -> None:
    tensor = bombs.tensor(bombs.storage("0", 1), (1000, 1000), (0, 0))
    (tmp_path / "x.pt").write_bytes(bombs.pt(tensor, {"0": np.float32(7).tobytes()}))
    assert mn.load(tmp_path / "x.pt", max_bytes=4_000_000).shape == (1000, 1000)
    with pytest.raises(ValueError, match=r"take 4,000,000 bytes, more than max_bytes=3999999; pass max_bytes=4000000"):
        mn.load(tmp_path / "x.pt", max_bytes=3_999_999)
    tensor = bombs.tensor(bombs.storage("0", 1), (10**9,), (0,))
    (tmp_path / "x.pt").write_bytes(bombs.pt(tensor, {"0": np.float32(7).tobytes()}))
    with pytest.raises(ValueError, match="take 4,000,000,000 bytes, more than max_bytes=2147483648"):
        mn.load(tmp_path / "x.pt")


@pytest.mark.parametrize(
    ("program", "storages", "message"),
    [
        (b"}q\x00K\x01h\x00s", {}, "contains itself"),
        (b")" + b"\x85" * 150, {}, "150 deep|more than 100 deep"),
        (b")\x85q\x00" + b"h\x00h\x00\x86q\x00" * 40, {}, "contain each other so often"),
        (b"BOOL", {"0": b"\0\1\2\xff"}, "bools with bytes other than 0 and 1"),
        (b"BOOL", {}, "storage '0' is missing"),
        (b"BOOL", {"0": b"\0\1\1"}, "storage '0' has 3 numbers; expected 4"),
        (b"STORAGE", {"0": bytes(4)}, "a storage without a tensor"),
    ],
)
def test_what_does_not_fit_together_is_a_sentence(
    tmp_path: Path, program: bytes, storages: dict[str, bytes], message: str
) -> None:
    held = bombs.storage("0", 4, "BoolStorage")
    program = {b"BOOL": bombs.tensor(held, (4,), (1,)), b"STORAGE": held}.get(program, program)
    (tmp_path / "x.pt").write_bytes(bombs.pt(program, storages))
    with pytest.raises(ValueError, match=message):
        mn.load(tmp_path / "x.pt")


def test_a_negated_tensor_has_its_sign(tmp_path: Path) -> None:
    """PyTorch writes the numbers of a lazy negation without their sign, and says so beside them."""
    torch = pytest.importorskip("torch")
    x = torch.tensor([1.0, -2.0])
    state = {"plain": x, "negated": torch._neg_view(x), "imaginary": torch.complex(x, x).conj().imag}
    torch.save(state, tmp_path / "state.pt")
    for name, found in mn.load(tmp_path / "state.pt").items():
        np.testing.assert_array_equal(found.numpy(), state[name].numpy(force=True))


@pytest.mark.parametrize("other", [("0", 3), ("0", 4, "IntStorage")])
def test_a_storage_has_one_kind_and_count(tmp_path: Path, other: tuple[Any, ...]) -> None:
    """PyTorch writes one for each key, whichever part of it a tensor shows."""
    held, view = bombs.storage("0", 4), ((2,), (1,))
    ones = {"0": np.ones(4, np.float32).tobytes()}
    twice = b"](" + bombs.tensor(held, *view) + bombs.tensor(held, *view, offset=2) + b"e"
    (tmp_path / "x.pt").write_bytes(bombs.pt(twice, ones))
    assert [found.shape for found in mn.load(tmp_path / "x.pt")] == [(2,), (2,)]
    twice = b"](" + bombs.tensor(held, *view) + bombs.tensor(bombs.storage(*other), *view) + b"e"
    (tmp_path / "x.pt").write_bytes(bombs.pt(twice, ones))
    with pytest.raises(
        ValueError, match=r"storage '0' is a FloatStorage of 4 numbers in one place, and .* same kind and co"
    ):
        mn.load(tmp_path / "x.pt")


def test_empty_storages_of_two_kinds_come_back(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    empty = torch.zeros(0, 2)
    torch.save([empty, empty.view(torch.int32)], tmp_path / "x.pt")
    assert [(found.shape, found.dtype) for found in mn.load(tmp_path / "x.pt")] == [
        ((0, 2), mn.float32), ((0, 2), mn.int32),
    ]  # fmt: skip
