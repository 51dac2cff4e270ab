"""The rooms that each room may import, read from the syntax tree of every file: each import points downward.

The table is the one of docs/architecture.md. A package may always import from itself.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# The rooms that each room may import, besides itself and `support`, which every room may; listed bottom up, so that an
# arrow can only point to a line above. "loops" are the two modules of normalization/ that kernels read.
LOOPS = {"minorm.normalization.nest", "minorm.normalization.equation"}
MAY_IMPORT = {
    room: set(words.split())
    for room, words in {
        "minorm_ext": "",
        "support": "",
        "loops": "",
        "devices": "",
        "graph": "devices minorm_ext",
        "kernels": "loops devices minorm_ext",
        "normalization": "loops devices graph kernels minorm_ext",
        "ops": "loops devices graph kernels normalization",
        "tensor": "devices graph kernels ops",
        "testing": "graph tensor",
        "amp": "devices graph ops minorm_ext",
        "cuda": "devices graph kernels tensor amp",
        "accelerator": "devices cuda",
        "backends": "kernels cuda",
        "functional": "loops devices graph kernels normalization ops tensor",
        "nn": "devices graph kernels normalization ops tensor functional",  # kernels: nn/utils/gradients.py clips them
        "distributions": "devices graph tensor functional",
        "quantization": "devices graph ops tensor functional nn",
        "optim": "devices graph kernels tensor nn",  # graph, nn: swa_utils averages a Module
        "serialization": "devices kernels tensor",
        "data": "devices tensor cuda functional serialization",  # functional: transforms of images
        "utils": "devices graph normalization tensor data minorm_ext",  # utils/checkpoint.py computes a second time
        "config": "devices kernels minorm_ext",
        "profiler": "devices graph ops cuda nn optim serialization data",
        "diagnosis": "loops devices graph kernels normalization ops tensor functional nn data",
        "onnx": "devices graph normalization ops tensor cuda functional nn serialization config",
        "conformance": "devices serialization config tensor functional onnx",
        "models": "tensor functional nn",
        "distributed": "devices kernels tensor cuda nn config diagnosis minorm_ext",
        "training": (
            "devices graph tensor cuda functional nn quantization optim serialization data diagnosis onnx models "
            "distributed"
        ),
        "progress": "training",
        "plots": "optim training",
        "labs": (
            "loops devices graph kernels normalization tensor testing functional nn optim serialization data config "
            "onnx models distributed training"
        ),
        "autograd": "graph tensor",
        "random": "devices",
        "checkpoint": "serialization",
    }.items()
}
LATE = {ROOT / "minorm" / name for name in ("kernels/select.py", "training/model/onnx_graph.py")}
TOP = {"__init__", "__main__", "cli"}  # may import anything below


def part_of(module: str) -> str | None:
    """Return the room that a dotted module name belongs to; None if it is not ours."""
    names = module.split(".")
    if names[0] == "minorm_ext":
        return "minorm_ext"
    if names[0] == "minorm":
        if ".".join(names[:3]) in LOOPS:
            return "loops"
        return names[1] if len(names) > 1 else "__init__"
    return None


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@functools.cache
def nodes(path: Path) -> list[ast.AST]:
    return list(ast.walk(parsed(path)))


def dotted(node: ast.AST) -> str:
    """`a.b.c` as text; "" for what is no chain of names, which ast.unparse would take long to write."""
    if isinstance(node, ast.Name):
        return node.id
    before = dotted(node.value) if isinstance(node, ast.Attribute) else ""
    return f"{before}.{node.attr}" if before and isinstance(node, ast.Attribute) else ""


@functools.cache
def sources() -> list[Path]:
    return sorted(p for folder in ("minorm", "minorm_ext") for p in (ROOT / folder).rglob("*.py"))


def owner(path: Path) -> str:
    return part_of(".".join(path.relative_to(ROOT).with_suffix("").parts)) or ""


def is_typing_only(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield (line, dotted name) of every import, except those that only a type checker sees."""
    pending = [tree]
    while pending:
        node = pending.pop()
        if is_typing_only(node):
            continue
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: a relative import; write the whole name"
            for alias in node.names:
                yield node.lineno, f"{node.module}.{alias.name}"
        pending.extend(ast.iter_child_nodes(node))


@functools.cache
def imported(path: Path) -> list[tuple[int, str]]:
    return list(imports(parsed(path)))


def test_the_table_only_points_upward_in_the_list() -> None:
    seen: set[str] = set()
    for part, allowed in MAY_IMPORT.items():
        assert allowed <= seen, f"{part} may import {sorted(allowed - seen)}, listed below it"
        seen.add(part)


def test_imports_point_downward() -> None:
    wrong = []
    for path in sources():
        part = owner(path)
        if part in TOP:
            continue
        assert part in MAY_IMPORT, f"{part} has no line in the table of this test and of docs/architecture.md"
        allowed = MAY_IMPORT[part] | {part, "support"}
        for line, name in imported(path):
            target = part_of(name)
            if target is not None and target not in allowed:
                wrong.append(f"{path.relative_to(ROOT)}:{line} imports {name}; {part} may import {sorted(allowed)}")
    assert wrong == []


def modules() -> dict[str, set[str]]:
    """Return, for every module of minorm, our modules that it imports, also those for a type checker."""
    paths = {".".join(p.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): p for p in sources()}
    named = {}
    for name, path in paths.items():
        found = set()
        for node in nodes(path):
            if isinstance(node, ast.ImportFrom):
                full = [f"{node.module}.{alias.name}" for alias in node.names]
                found |= {one if one in paths else node.module or "" for one in full}
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
        named[name] = found & paths.keys() - {name}
    return named


CIRCLES = {
    frozenset({"minorm.onnx.graph.model_graph", "minorm.onnx.graph.measuring"})
}  # nodes that a Graph gets from a Graph


def test_no_two_modules_know_each_other() -> None:
    named = modules()
    reached = {name: set(direct) for name, direct in named.items()}
    pending = True
    while pending:
        pending = False
        for name, known in reached.items():
            further = known.union(*(reached[other] for other in named[name]))
            pending |= len(further) != len(known)
            reached[name] = further
    circles = {frozenset({a, b}) for a in reached for b in reached[a] if a != b and a in reached[b]}
    assert circles == CIRCLES


def test_a_process_of_a_student_imports_nothing_of_the_judge_that_follows() -> None:
    for path in sources():
        for line, name in imported(path):
            if "minorm/labs/calling/" in path.as_posix():
                assert not name.startswith("minorm.labs.following"), f"{path.name}:{line} imports {name}"


@pytest.mark.parametrize(
    ("package", "where"),
    [
        ("cupy", ("minorm/kernels/gpu", "minorm/devices/__init__.py")),
        ("onnx", ("minorm/onnx/", "minorm/conformance", "minorm/cli", "minorm/labs/zoo.py", "minorm/labs/oracles.py")),
        ("onnxruntime", ("minorm/onnx/", "minorm/cli")),
        ("torch", ("minorm/conformance/torch_calls.py", "minorm/conformance/adapters/onnx2torch.py")),
        ("pickle", ()),
        ("rich", ("minorm/cli", "minorm/progress")),
        ("matplotlib", ("minorm/cli", "minorm/plots", "minorm/labs/pictures")),
        ("sklearn", ("minorm/data/digits.py",)),
        ("PIL", ("minorm/data/pictures/decoding.py",)),
        ("tensorboard", ("minorm/training/trackers.py",)),
        ("wandb", ("minorm/training/trackers.py",)),
        ("mlflow", ("minorm/training/trackers.py",)),
        ("mpi4py", ("minorm/distributed/mpi.py",)),
    ],
)
def test_a_foreign_package_is_named_only_where_it_belongs(package: str, where: tuple[str, ...]) -> None:
    for path in sources():
        relative = path.relative_to(ROOT).as_posix()
        for line, name in imported(path):
            if name.split(".")[0] == package:
                assert relative.startswith(where or ("nowhere",)), f"{relative}:{line} imports {package}"


def test_no_import_of_ours_hides_inside_a_function() -> None:
    """An import inside a function usually dodges a cycle; foreign extras are the only ones allowed there.

    Two exceptions: kernels/select.py imports the backend, and training/model/onnx_graph.py the room of ONNX, whose own
    imports need an extra.
    """
    for path in sources():
        if owner(path) in TOP or path in LATE:
            continue
        for function in nodes(path):
            if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
                for line, name in imports(function):
                    assert part_of(name) is None, f"{path.name}:{line} imports {name} inside {function.name}"


def test_cython_sources_never_cimport_numpy_and_no_flag_breaks_floats() -> None:
    for path in (ROOT / "minorm_ext").rglob("*.p*x*"):
        assert "cimport numpy" not in path.read_text(), path.name
    setup = (ROOT / "setup.py").read_text()
    flags = [n.value for n in ast.walk(ast.parse(setup)) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    for forbidden in ("-ffast-math", "-fassociative-math", "-march=native", "-Ofast"):
        assert forbidden not in flags


ROOMS = {  # of minorm/onnx: which others each may import
    "graph": set(),
    "operators": {"graph"},
    "loading": {"graph", "operators"},
    "checking": {"graph", "operators", "loading"},
    "conversion": {"graph", "operators", "loading", "checking"},
    "exporting": {"graph", "operators", "loading", "checking", "conversion"},
}


@pytest.mark.parametrize("room", ROOMS)
def test_rooms_of_onnx_import_those_below_them(room: str) -> None:
    for path in sorted((ROOT / "minorm" / "onnx" / room).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("minorm.onnx"):
                parts = (node.module or "").split(".")
                found = {parts[2]} if len(parts) > 2 else {alias.name for alias in node.names}
                assert found <= ROOMS[room] | {room}, f"{path.name}:{node.lineno} imports {found}"


# Other attributes with the name data: an array's address and its memoryview, a loop's step, the view that a layout
# takes, the name of a data set.
OTHER_DATA = re.compile(
    r"(\.ctypes|\.view\(np\.uint8\)|\b(settings|defaults|args|layout|loop|axis|(loops|all_axes|keep|kept|inner)\[[^]]*\]))\.data$"
)
# of `x.data`, the memory of a CuPy array; also where it is the argument memptr
CUPYS = ("ptr", "device_id", "copy_from_host_async")


def reads_data(found: list[ast.AST]) -> Iterator[tuple[int, str]]:
    """(line, text) of every `.data` that may be a Tensor's."""
    addresses = {id(node.value) for node in found if isinstance(node, ast.Attribute) and node.attr in CUPYS}
    addresses |= {id(node.value) for node in found if isinstance(node, ast.keyword) and node.arg == "memptr"}
    for node in found:
        match node:
            case ast.Attribute(attr="data") if id(node) not in addresses and not OTHER_DATA.search(ast.unparse(node)):
                yield node.lineno, ast.unparse(node)
            case ast.Call(func=ast.Name("getattr" | "hasattr" | "setattr"), args=[_, ast.Constant("data"), *_]):
                yield node.lineno, ast.unparse(node)


def test_the_library_reads_the_array_of_a_tensor_and_never_its_data() -> None:
    """`x.data` makes a new Tensor at each access: its id means nothing, and a change through it is counted."""
    for path in sources():
        relative = path.relative_to(ROOT).as_posix()
        for line, text in reads_data(nodes(path)):
            assert (relative, text) == ("minorm/training/settings.py", "self.data"), f"{relative}:{line} reads {text}"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("x.data", True),
        ("id(x.data)", True),
        ("x.grad.data[...]", True),
        ("getattr(x, 'data', x)", True),
        ("f(x)[0].data", True),
        ("x.array", False),
        ("x.data.ptr", False),
        ("x.ctypes.data", False),
        ("flat.view(np.uint8).data", False),
        ("nest.keep[-1].data", False),
        ("self.layout.data(x)", False),
    ],
)
def test_reading_data_is_recognised(text: str, found: bool) -> None:
    assert bool(list(reads_data(list(ast.walk(ast.parse(text)))))) == found


ENVIRONMENT = {
    "minorm_ext/__init__.py", "minorm/distributed/launcher.py", "minorm/labs/sealed/entry.py",
    "minorm/support/subprocesses.py",
}  # fmt: skip


def test_no_print_and_no_environment_variable_in_the_library() -> None:
    """Exceptions: minorm_ext/__init__.py respects OpenMP's variables and its own, distributed/launcher.py
    reads what mpiexec and srun set, labs/sealed/entry.py sets those of a process that began without any,
    support/subprocesses.py hands them on; each explains them.
    """
    for path in sources():
        relative = path.relative_to(ROOT).as_posix()
        for node in nodes(path):
            if isinstance(node, ast.Call) and dotted(node.func) == "print":
                assert relative.startswith(("minorm/cli", "minorm/config.py")), f"{relative}:{node.lineno} prints"
            if isinstance(node, ast.Attribute) and dotted(node) in ("os.environ", "os.getenv"):
                assert relative in ENVIRONMENT, f"{relative}:{node.lineno} reads an environment variable"


# Files that may write with `open` and the like: all others write through minorm.serialization.atomic, so that a full
# disk does not cost a user the old file. These write only pipes, and scratch files in new temporary folders.
SCRATCH = {
    "minorm/support/subprocesses.py",
    "minorm/conformance/node_cases/writing.py",  # into a new folder alone, where no old file can be lost
    "minorm/conformance/runtime_process.py",
    "minorm/conformance/case_files.py",
    "minorm/conformance/adapters/files.py",
    "minorm/onnx/checking/sandbox.py",
    "minorm/onnx/checking/sandbox_worker.py",
    "minorm/labs/compiling.py",
    "minorm/labs/judge/grading.py",
    "minorm/labs/judge/handed_in.py",  # unpacks archives into a temporary folder
    "minorm/labs/beside/lab12_capstone.py",
    "minorm/labs/sealed/attack.py",
    "minorm/labs/sealed/compiler.py",
    "minorm/labs/calling/wire.py",
}
READS = {"r", "rb", "rt"}
WRITERS = {"write_text", "write_bytes", "savefig", "savez", "savez_compressed", "save_model", "tofile", "memmap"}


def writes(node: ast.Call) -> bool:
    """Whether a call writes a file, or opens one to write, by a path."""
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if name == "savefig":  # into a file of atomic's
        return not (isinstance(node.args[0], ast.Name) and node.args[0].id == "file")
    if name != "open" or dotted(node.func) == "os.open":
        return name in WRITERS
    modes = [*node.args[1:2], *(keyword.value for keyword in node.keywords if keyword.arg == "mode")]
    return any(not (isinstance(mode, ast.Constant) and mode.value in READS) for mode in modes)


def test_every_file_that_somebody_keeps_is_written_by_atomic() -> None:
    for path in sources():
        relative = path.relative_to(ROOT).as_posix()
        if relative == "minorm/serialization/atomic.py" or relative in SCRATCH:
            continue
        for node in nodes(path):
            if isinstance(node, ast.Call):
                assert not writes(node), (
                    f"{relative}:{node.lineno} writes past minorm.serialization.atomic: {ast.unparse(node)}"
                )


def test_writing_past_atomic_is_recognised() -> None:
    found = {
        "open(p, 'w')": True,
        "open(p, mode='xb')": True,
        "p.write_text(t)": True,
        "figure.savefig(path, dpi=130)": True,
        "figure.savefig(file, dpi=130)": False,
        "open(p)": False,
        "open(p, 'rb')": False,
        "open(p, mode)": True,
    }
    for text, expected in found.items():
        call = ast.parse(text, mode="eval").body
        assert isinstance(call, ast.Call)
        assert writes(call) == expected, text
