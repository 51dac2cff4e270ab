"""The shape of the tree: few modules lie flat, folders are small, names lead to one file, parameter lists are short."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FLAT = 12  # modules that lie in minorm/ itself
FILES = 25  # source files of one folder
NAMES = 12  # parameters of a function, without self
ROWS = 25  # of the table of who may import whom
SOURCES = {".py", ".pyx", ".pxd", ".h", ".cu", ".cuh"}

# Rooms that have one family each under the same name: where a name leads to several of these, they belong together.
MIRROR = (
    "minorm/functional/",
    "minorm/kernels/cpu/",
    "minorm/kernels/gpu/",
    "minorm/kernels/reference/",
    "minorm/nn/",
    "minorm/onnx/operators/",
    "minorm/ops/",
)
# Folders whose files have the name of something else: a command, a lab, a module of PyTorch.
NAMED_AFTER = ("minorm/cli/", "minorm/labs/beside/", "minorm/labs/checks/", "minorm/backends/", "minorm/utils/")
EVERY_ROOM_HAS = {"__init__", "__main__", "argument_texts"}


def sources(folder: str) -> list[Path]:
    return [path for path in sorted((ROOT / folder).rglob("*")) if path.suffix in SOURCES]


def is_passed_on(path: Path) -> bool:
    """Does the file only pass names on? It imports and lists names from elsewhere, and does nothing else."""
    tree = ast.parse(path.read_text())
    docstring, *others = tree.body
    assert isinstance(docstring, ast.Expr)
    return all(isinstance(node, (ast.ImportFrom, ast.Assign)) for node in others) and not _defines(others)


def _defines(body: list[ast.stmt]) -> bool:
    return any(isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) != "__all__" for node in body)


def test_few_modules_lie_flat() -> None:
    flat = [path for path in (ROOT / "minorm").glob("*.py") if not path.stem.startswith("__")]
    addresses = [path for path in flat if is_passed_on(path)]
    assert {path.stem for path in addresses} == {"checkpoint", "random"}
    for path in addresses:
        assert len(path.read_text().splitlines()) <= 30, f"{path.name} is an address, and long"
    assert len(flat) - len(addresses) <= FLAT


@pytest.mark.parametrize("folder", ["minorm", "minorm_ext", "tests", "benchmarks"])
def test_no_folder_has_many_files(folder: str) -> None:
    counted = Counter(path.parent for path in sources(folder))
    large = {str(where.relative_to(ROOT)): count for where, count in counted.items() if count > FILES}
    assert not large, f"more than {FILES} source files: {large}"


def same_names(paths: Iterable[str]) -> dict[str, list[str]]:
    """Return the names that lead to several unrelated files."""
    found = defaultdict(list)
    for path in paths:
        stem = Path(path).stem
        if stem not in EVERY_ROOM_HAS and not path.startswith(NAMED_AFTER):
            found[stem].append(path)
    apart = {}
    for stem, files in found.items():
        rooms = [next((room for room in MIRROR if path.startswith(room)), path) for path in files]
        others = [path for path in files if not path.startswith(MIRROR)]
        if len(set(rooms)) < len(rooms) or (others and len(files) > 1):
            apart[stem] = files
    return apart


def test_a_name_leads_to_one_file() -> None:
    addresses = {path for path in (ROOT / "minorm").glob("*.py") if is_passed_on(path)}
    files = [path for path in (ROOT / "minorm").rglob("*.py") if path not in addresses]
    assert same_names(path.relative_to(ROOT).as_posix() for path in files) == {}


@pytest.mark.parametrize(
    ("paths", "apart"),
    [
        (["minorm/ops/loss.py", "minorm/functional/losses/loss.py", "minorm/nn/losses/loss.py"], False),
        (["minorm/kernels/cpu/norm.py", "minorm/kernels/gpu/norm.py", "minorm/kernels/reference/norm.py"], False),
        (["minorm/cli/export.py", "minorm/onnx/exporting/export.py"], False),
        (["minorm/ops/loss.py", "minorm/training/loss.py"], True),
        (["minorm/nn/layers/loss.py", "minorm/nn/losses/loss.py"], True),
        (["minorm/data/order.py", "minorm/distributed/order.py"], True),
    ],
)
def test_names_that_lead_apart_are_found(paths: list[str], apart: bool) -> None:
    assert bool(same_names(paths)) == apart


def long_lists(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield (function, number of its parameters) of functions with too many parameters."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            count = sum(one.arg not in ("self", "cls") for one in given)
            if count > NAMES:
                yield node.name, count


# The arguments of one public function, handed on by name; PyTorch's Adam as a function has as many.
LONG = {
    ("minorm/kernels/cpu/update.py", "adam"),
    ("minorm/kernels/gpu/update.py", "adam"),
    ("minorm/kernels/reference/update.py", "adam"),
    ("minorm/onnx/operators/nn/recurrent.py", "_write"),
    ("minorm/onnx/operators/norm/masked_norm.py", "_running"),
    ("minorm/ops/recurrent.py", "forward"),
}
PUBLIC = ("minorm/data/", "minorm/functional/", "minorm/nn/", "minorm/optim/")


def test_parameter_lists_are_short_where_pytorch_does_not_set_them() -> None:
    found = set()
    for path in (ROOT / "minorm").rglob("*.py"):
        name = path.relative_to(ROOT).as_posix()
        for function, _ in long_lists(ast.parse(path.read_text())):
            if not (name.startswith(PUBLIC) and (function == "__init__" or not function.startswith("_"))):
                found.add((name, function))
    assert found == LONG


def test_the_page_says_who_may_import_whom() -> None:
    """A row for each room of tests/test_architecture.py, in as few lines as one reads at once."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    rows = re.findall(r"^\| (.+) \| .+ \|$", page[page.index("| room | may import |") :].split("\n\n")[0], re.MULTILINE)
    assert len(rows) - 1 <= ROWS
    named = {room for row in rows for room in re.findall(r"\w+", row)}
    rooms = {path.name for path in (ROOT / "minorm").iterdir() if (path / "__init__.py").exists()}
    assert rooms <= named, f"the table has no row for {sorted(rooms - named)}"
