"""docs/how-to/read-json-output.md names the keys of every command's JSON, and no others."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from minorm import cli
from minorm.diagnosis import Finding

for package in ("sklearn", "onnx", "onnxruntime", "PIL"):
    pytest.importorskip(package)
from PIL import Image  # noqa: E402

from minorm.conformance import report  # noqa: E402
from minorm.onnx.checking import inspection, lint  # noqa: E402

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "read-json-output.md"
ROW = ("layers[]", "operations[]")  # of profile, whose rows have a separate table below
COMMANDS = ("evaluate", "predict", "profile", "check", "doctor", "quantize", "lr-find", "conform")


def named(section: str) -> list[str]:
    """Return the keys in the tables below a heading of the page."""
    text = re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)
    body = next(part for part in text if part.startswith(f"{section}\n"))
    cells = [line.split("|")[1] for line in body.splitlines() if line.startswith("| `")]
    keys = [key for cell in cells for key in re.findall(r"`([^`]+)`", cell)]
    if section != "minorm profile":
        return keys
    rows = keys[keys.index("operations[].ROW") + 1 :]
    return [*keys[: keys.index("layers[].ROW")], *(f"{place}.{row}" for place in ROW for row in rows)]


def paths(value: Any, path: str = "") -> Iterator[str]:
    """Yield the path of every leaf; an empty list or dict has no leaf."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield from paths(part, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for part in value:
            yield from paths(part, f"{path}[]")
    else:
        yield path


def there(value: Any, parts: list[str]) -> bool:
    """Return whether a value has a documented key, or is empty or null where the key would be."""
    if value is None or value in ([], {}) or not parts:
        return True
    if parts[0] == "[]":
        return isinstance(value, list) and there(value[0], parts[1:])
    found = list(value.values()) if parts[0] == "NAME" else [value[part] for part in parts[:1] if part in value]
    return bool(found) and there(found[0], parts[1:])


def compare(section: str, value: Any, keys: list[str] | None = None, optional: tuple[str, ...] = ()) -> None:
    """Check that a value has exactly the documented keys."""
    keys = named(section) if keys is None else keys
    forms = [re.escape(key).replace("NAME", ".+") for key in keys]
    for path in paths(value):
        known = any(re.fullmatch(form, path) or form.startswith(f"{re.escape(path)}\\") for form in forms)
        assert known, f"{section}: {path} is not documented"
    for key in keys:
        parts = re.findall(r"\[\]|[^.\[\]]+", key)
        assert key in optional or there(value, parts), f"{section}: {key} is documented, but is not there"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("json")
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(found / "digit.png")
    assert cli.main(["train", "--data", "digits", "--epochs", "1", "-o", str(found / "run")]) == 0
    assert cli.main(["export", str(found / "run"), "-o", str(found / "net.onnx")]) == 0
    return found


@pytest.mark.parametrize(
    "words",
    [
        ["evaluate", "run"],
        ["predict", "run", "digit.png", "--top-k", "2"],
        ["profile", "run", "--steps", "1"],
        ["check", "net.onnx"],
        ["quantize", "run", "-o", "int8.onnx"],
        ["lr-find", "--data", "digits", "--steps", "10"],
    ],
    ids=lambda words: words[0],
)
def test_a_command_prints_the_keys_of_the_page(
    folder: Path, words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    capsys.readouterr()
    assert cli.main([*words, "--json"]) == 0
    compare(f"minorm {words[0]}", json.loads(capsys.readouterr().out, parse_constant=pytest.fail))


def test_doctor(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(folder)
    capsys.readouterr()
    cli.main(["doctor", "run", "--json"])
    found = json.loads(capsys.readouterr().out)
    row = Finding("dead_channel", "2", "warning", {"share": 0.5}, why="nothing passes", fix="train it again")
    found["findings"].append(json.loads(json.dumps(dataclasses.asdict(row))))
    compare("minorm doctor", found, optional=("folding_gap.NAME",))  # of a run with --qat alone


def test_outcome_json(folder: Path) -> None:
    left_out = ("split", "path")
    keys = [key for key in named("minorm evaluate") if key not in left_out] + named("outcome.json")
    compare("outcome.json", json.loads((folder / "run" / "outcome.json").read_text()), keys)


def test_conform() -> None:
    found = report.conform(["minorm"], [0]).plain()
    assert found["cells"]
    compare("minorm conform", {**found, "left_out": {"x: LRN 13": "it is in a branch"}})


def test_rows_that_a_small_file_lacks() -> None:
    """The kinds of rows have the documented fields also where the file above has no such row."""
    for key, kind in (("nodes", inspection.Row), ("weights", inspection.Weight), ("tensors", inspection.TensorRole),
                      ("normalizations", lint.Norm)):  # fmt: skip
        fields = {field.name for field in dataclasses.fields(kind)}
        assert fields == {
            name.split(".")[1].removesuffix("[]") for name in named("minorm check") if name.startswith(f"{key}[]")
        }


def test_the_page_has_every_command_with_json(capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    listed = re.findall(r"^ {4}([a-z][a-z-]+)(?: |$)", capsys.readouterr().out, re.MULTILINE)
    found = set()
    for name in listed:
        with pytest.raises(SystemExit):
            cli.main([name, "--help"])
        if "--json" in capsys.readouterr().out:
            found.add(name)
    assert found == set(COMMANDS)
    assert set(re.findall(r"^## minorm (\S+)$", PAGE.read_text(), re.MULTILINE)) == found
