"""Builds the kernels: translates each .pyx below minorm_ext/ to C once, and compiles it for each instruction set.

    python setup.py build_ext --inplace                          all kernels, next to their sources
    python setup.py build_ext --inplace --only conv,pool         these two
    python setup.py build_ext --inplace --only norm --level v3   this one, for one instruction set
    MINORM_NO_KERNELS=1 pip wheel .                              none: a wheel for browsers, where NumPy computes

Everything else about the package is in pyproject.toml. Generated C and kernels stay under build/, and no kind of
installation builds an unchanged kernel again (`KernelStore`). Three findings decide what to build: does the compiler
work, does OpenMP work, and which instruction sets does the compiler know? For each, setup.py compiles a tiny program
and does not guess from version numbers.
"""

from __future__ import annotations

import compileall
import contextlib
import copy
import errno
import functools
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py
from setuptools.errors import OptionError, PlatformError

SOURCES = Path("minorm_ext")

# A wheel without kernels, py3-none-any; `pyodide build` sets PYODIDE.
NO_KERNELS = os.environ.get("MINORM_NO_KERNELS", "0") not in ("", "0") or "PYODIDE" in os.environ

# These flags decide the bits of results. There is no -ffast-math and no -fassociative-math: gcc would fold (x - k) - d
# into x - (k + d), and the accuracy of the statistics comes from the first form. Fast-math also drops NaN and sets
# flush-to-zero for the whole process. The compiler may not round a * b + c once, even where the processor could: with
# all three rules, every level computes the same bits. (Convolution and matmul ask for one rounding explicitly, in their
# innermost blocks.) The kernels do not read errno or floating-point traps; giving them up costs no accuracy.
FLOATS = ["-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"]
# These flags spare gcc two searches that find next to nothing in loops of vectors after gcc has searched the trees. One
# looks for common subexpressions among machine instructions, and takes a third of the time that norm.pyx takes to
# compile. The other looks for branches whose outcome an earlier branch decides, and takes a tenth.
SPARING = ["-fno-gcse", "-fno-gcse-after-reload", "-fno-thread-jumps"]
FLAGS = ["-O3", "-g0", *FLOATS, *SPARING]  # no -march=native: wheels travel
X86 = platform.machine().lower() in ("x86_64", "amd64")
# On other architectures the baseline is the only level. On x86-64 only processors before AVX2 use it: saving a quarter
# of the time that the compiler would take for it is worth more than a twentieth of their time.
LEVELS = {
    "baseline": ["-O2", "-ftree-vectorize", "-fvect-cost-model=dynamic"] if X86 else [],
    "v3": ["-march=x86-64-v3"],
    "v4": ["-march=x86-64-v4", "-mprefer-vector-width=512"],
    "amx": [
        "-march=x86-64-v4",
        "-mprefer-vector-width=512",
        "-mamx-tile",
        "-mamx-bf16",
        "-mamx-int8",
        "-DMINORM_TILES",
    ],
}
TILED = {"integers", "products"}  # the modules compiled for amx; the others run as v4 there

# Flags for compiling and for linking. Apple's clang accepts OpenMP with these flags but has no library for it: CFLAGS
# must say where Homebrew's libomp lies (pyproject.toml, tool.cibuildwheel.macos).
OPENMP = [(["-fopenmp"], ["-fopenmp"])]
if sys.platform == "darwin":
    OPENMP.append((["-Xpreprocessor", "-fopenmp"], ["-lomp"]))

# These are compiled once: machine.pyx finds out what the processor can do; memory.pyx and switch.pyx compute nothing.
BASELINE_ONLY = {"machine", "memory", "switch"}

C_PROGRAM = "int main(void) { return 0; }\n"
PYTHON_PROGRAM = "#include <Python.h>\n" + C_PROGRAM
OPENMP_PROGRAM = """
#include <omp.h>
int main(void) {
    int sum = 0;
    #pragma omp parallel for num_threads(2) reduction(+:sum)
    for (int i = 0; i < 10; i++) sum += i;
    /* Ends the threads before a fork. An OpenMP that cannot (gcc before 9) would hang forked children: better none. */
    return sum == 45 && omp_pause_resource_all(omp_pause_hard) == 0 ? 0 : 1;
}
"""


def levels_of(module: str) -> list[str]:
    """Return the instruction sets that a module is compiled for."""
    if not X86 or module in BASELINE_ONLY:
        return ["baseline"]
    return [level for level in LEVELS if level != "amx" or module in TILED]


def extensions() -> list[Extension]:
    """Return an extension for each kernel source and instruction set; the compiler is not known yet."""
    headers = sorted(map(str, SOURCES.rglob("*.h")))  # Cython itself follows the .pxd files
    return [
        Extension(
            f"minorm_ext.{level}.{source.stem}",
            [str(source)],
            depends=[*headers, "setup.py"],
            include_dirs=[str(SOURCES)],
            extra_compile_args=FLAGS + LEVELS[level],
        )
        for source in sorted(SOURCES.rglob("*.pyx"))
        for level in levels_of(source.stem)
    ]


class BuildPython(build_py):
    """Adds two steps to `build_py`: it copies the notebooks of the labs, and marks a wheel without kernels.

    The notebooks are the ones that `minorm labs start` hands out, not the solutions. Without the mark, missing kernels
    are an error (minorm_ext/__init__.py). A checkout is never marked.
    """

    def run(self) -> None:  # noqa: D102
        if NO_KERNELS and self.editable_mode:
            raise OptionError("MINORM_NO_KERNELS: an editable installation has kernels; build a wheel: `pip wheel .`")
        if not self.editable_mode:  # sources of an earlier build may have been moved or deleted since
            for package in ("minorm", "minorm_ext"):
                if os.path.exists(before := os.path.join(self.build_lib, package)):
                    shutil.rmtree(before)
        super().run()
        if self.editable_mode:  # minorm finds the notebooks in the checkout
            return
        target = os.path.join(self.build_lib, "minorm", "labs", "notebooks")
        self.mkpath(target)
        for notebook in sorted(Path("examples", "labs").glob("lab*.py")):
            self.copy_file(str(notebook), os.path.join(target, notebook.name))
        if NO_KERNELS:
            mark = Path(self.build_lib, "minorm_ext", "_no_kernels.py")
            mark.write_text('"""This wheel was built without kernels: minorm_ext/__init__.py looks for this file."""\n')


def processors() -> int:
    """Return the number of processors that this process may use, to run as many compilers at once."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class KernelStore:
    """Stores compiled kernels under a hash of everything that goes into them, so that no kernel is compiled twice.

    pip builds an editable installation in a temporary folder, which has no files from earlier builds. The store is
    build/kernels of the checkout, or the folder that MINORM_KERNEL_STORE names. Several checkouts may share that
    folder, because no path of a checkout is part of a kernel. If two builds run side by side, one waits for the kernel
    that the other compiles.
    """

    NEWEST = 4  # files to keep of each kernel: for several versions of Python, or from the last changes

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @contextlib.contextmanager
    def locked(self, name: str) -> Iterator[None]:
        """Lock the store's kernels of this name, so that only this block uses them."""
        import fcntl  # Windows has no fcntl, and builds no kernels

        self.folder.mkdir(parents=True, exist_ok=True)
        with open(self.folder / f"{name}.lock", "w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX)
            except OSError as error:
                if error.errno not in (errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK):
                    raise  # without locks on this file system, two builds side by side do the work twice
            yield

    def place(self, extension: Extension, compiler: Any) -> Path:
        """Return the path in the store for the kernel that this compiler makes of this source with these flags."""
        made_of = [
            sys.version,
            sysconfig.get_config_var("EXT_SUFFIX"),
            identity(tuple(compiler.compiler_so)),
            shlex.join(compiler.linker_so),
            repr([extension.extra_compile_args, extension.extra_link_args, extension.define_macros]),
            *(
                Path(file).read_text("utf-8")
                for file in (*extension.sources, *extension.depends)
                if file.endswith((".c", ".h"))
            ),
        ]
        key = hashlib.sha256("\0".join(made_of).encode()).hexdigest()
        return self.folder / f"{extension.name}.{key[:32]}.so"

    def keep(self, library: Path, kept: Path) -> None:
        """Put a new kernel into the store, whole or not at all, and delete the oldest files of this name."""
        part = kept.with_suffix(".part")
        shutil.copy2(library, part)
        part.replace(kept)
        of_this_name = self.folder.glob(kept.name.rsplit(".", 2)[0] + ".*.so")
        for old in sorted(of_this_name, key=lambda file: -file.stat().st_mtime_ns)[self.NEWEST :]:
            old.unlink()


@functools.cache
def identity(command: tuple[str, ...]) -> str:
    """Describe the compiler and its flags: the command, and its answer to --version."""
    said = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True).stdout
    return f"{shlex.join(command)}\n{said}"


class BuildKernels(build_ext):
    """Changes `build_ext`: it probes the compiler first, translates each source once, and uses all processors."""

    user_options: ClassVar = [
        *build_ext.user_options,
        ("only=", None, "build only these modules (comma separated)"),
        ("level=", None, "build only for these instruction sets (comma separated); libraries of others stay"),
    ]

    def initialize_options(self) -> None:  # noqa: D102  the five below are steps that build_ext documents
        super().initialize_options()
        self.only = None
        self.level = None
        self.store = KernelStore(Path(os.environ.get("MINORM_KERNEL_STORE", os.path.join("build", "kernels"))))

    def finalize_options(self) -> None:  # noqa: D102
        super().finalize_options()
        self.parallel = self.parallel or processors()
        modules = named("--only", "module", self.only, set(map(module_name, self.extensions)))
        levels = named("--level", "level", self.level, set(map(level_name, self.extensions)))
        self.extensions = [
            extension
            for extension in self.extensions
            if module_name(extension) in modules and level_name(extension) in levels
        ]
        if self.only and (left := sorted(modules - set(map(module_name, self.extensions)))):
            alone = "; ".join(f"{name} of --only is compiled for {', '.join(levels_of(name))} alone" for name in left)
            raise OptionError(f"--level: {alone}; got {self.level}")

    def run(self) -> None:  # noqa: D102
        if NO_KERNELS:
            raise OptionError("MINORM_NO_KERNELS: it is set, so there is nothing to compile; unset it")
        super().run()
        if self.inplace:
            # pip compiles the Python files that it installs, but not those of a checkout. If Python may not write
            # bytecode itself (PYTHONDONTWRITEBYTECODE, a read-only checkout), each `import minorm` would compile all of
            # them again.
            for package in ("minorm", "minorm_ext"):
                compileall.compile_dir(package, quiet=2)

    def build_extensions(self) -> None:  # noqa: D102
        # setuptools calls this method once the compiler object exists: no earlier method can ask the compiler anything.
        self.require_compiler()
        openmp, library = next(
            (way for way in OPENMP if self.compiles(OPENMP_PROGRAM, [*way[0], *way[1]], run=True)), ([], [])
        )
        levels = [level for level in LEVELS if level == "baseline" or (X86 and self.compiles(C_PROGRAM, LEVELS[level]))]
        wanted = self.level.split(",") if self.level else levels
        if unknown := sorted(set(wanted) - set(levels)):
            raise PlatformError(
                f"--level: the C compiler does not know {', '.join(unknown)}; it knows {', '.join(levels)}"
            )
        print(f"minorm: kernels for {', '.join(wanted)}; {'OpenMP' if openmp else 'no OpenMP, so serial'}")

        self.extensions = [extension for extension in self.extensions if level_name(extension) in levels]
        spared = [*SPARING, *LEVELS["baseline"]]
        if not self.compiles(C_PROGRAM, spared):  # clang does not know them all
            for extension in self.extensions:
                extension.extra_compile_args = [flag for flag in extension.extra_compile_args if flag not in spared]
        translated = translate({extension.sources[0] for extension in self.extensions}, self.force, self.parallel)
        for extension in self.extensions:
            extension.sources = [translated[extension.sources[0]]]
            extension.extra_compile_args += openmp
            extension.extra_link_args += library
            if module_name(extension) == "machine":
                extension.define_macros.append(("MINORM_LEVELS", f'"{" ".join(levels)}"'))
                extension.define_macros += [("MINORM_OPENMP", "1")] if openmp else []
        # Start with the longest source, or one processor compiles it at the end while the others wait.
        self.extensions.sort(key=lambda extension: -os.path.getsize(extension.sources[0]))
        super().build_extensions()

    def build_extension(self, extension: Extension) -> None:  # noqa: D102
        library = Path(self.get_ext_fullpath(extension.name))
        with self.store.locked(extension.name):
            kept = self.store.place(extension, self.compiler)
            if self.force or not kept.exists():
                # All levels of a kernel are compiled from one C file, so each level needs its own folder of objects.
                own = copy.copy(self)
                own.build_temp = os.path.join(self.build_temp, level_name(extension))
                own.force = True
                super(BuildKernels, own).build_extension(extension)
                self.store.keep(library, kept)
            elif not library.exists() or library.stat().st_mtime_ns != kept.stat().st_mtime_ns:
                self.mkpath(str(library.parent))
                shutil.copy2(kept, library)

    def require_compiler(self) -> None:
        """Raise an error that says what to install if the compiler or Python.h is missing."""
        if self.compiler.compiler_type != "unix":
            raise PlatformError("minorm: the kernels need gcc or clang; on Windows build inside WSL.")
        if not self.compiles(C_PROGRAM):
            command = shlex.join(self.compiler.compiler_so[:1])
            raise PlatformError(
                f"minorm: the C compiler `{command}` is missing or does not work; install one, "
                "on Debian and Ubuntu with `apt-get install gcc libc6-dev`."
            )
        if not self.compiles(PYTHON_PROGRAM):
            version = sysconfig.get_python_version()
            raise PlatformError(
                f"minorm: Python.h of Python {version} is missing; install the Python headers, "
                f"on Debian and Ubuntu with `apt-get install python3-dev` (or python{version}-dev)."
            )

    def compiles(self, program: str, flags: list[str] | None = None, run: bool = False) -> bool:
        """Return whether this C program compiles with these flags and, with `run`, also links and exits with 0."""
        flags = flags or []
        includes = [f"-I{folder}" for folder in self.compiler.include_dirs]
        with tempfile.TemporaryDirectory() as folder:
            source, output = os.path.join(folder, "probe.c"), os.path.join(folder, "probe")
            Path(source).write_text(program)
            compile_only = [] if run else ["-c"]
            compiler = self.compiler.compiler_so
            commands = [[*compiler, *includes, *flags, *compile_only, source, "-o", output]]
            if run:
                commands.append([output])
            try:
                return all(
                    subprocess.run(command, capture_output=True, check=False).returncode == 0 for command in commands
                )
            except OSError as error:
                # A cross compiler linked this program for another processor: no more can be known here.
                return error.errno in (errno.ENOEXEC, 86)  # macOS calls it EBADARCH


def named(option: str, kind: str, given: str | None, known: set[str]) -> set[str]:
    """Return the names that an option lists, or all known names without the option; an unknown name is an error."""
    wanted = set(given.split(",")) if given else known
    if unknown := sorted(wanted - known):
        raise OptionError(
            f"{option}: no {kind} {', '.join(unknown)} in minorm_ext; there are {', '.join(sorted(known))}"
        )
    return wanted


def level_name(extension: Extension) -> str:
    """Return the level in the extension's name: `v3` of `minorm_ext.v3.conv`."""
    return extension.name.split(".")[1]


def module_name(extension: Extension) -> str:
    """Return the module in the extension's name: `conv` of `minorm_ext.v3.conv`."""
    return extension.name.split(".")[2]


def translate(sources: set[str], force: bool, workers: int) -> dict[str, str]:
    """Translate the Cython sources that changed, and return {source: C file under build/} for all of them."""
    from Cython.Build import cythonize  # not needed for sdist, and slow to import

    modules = [Extension(".".join(Path(source).with_suffix("").parts), [source]) for source in sorted(sources)]
    done = cythonize(
        modules,
        build_dir="build/cython",
        nthreads=min(workers, len(modules)) if len(modules) > 1 else 0,
        force=force,
        language_level=3,
        # A module sets its global variables while Python imports it, or guards them with a lock (runtime/memory.pyx).
        # So Python without a GIL need not switch one on for us. Other versions of Python ignore this.
        compiler_directives={"freethreading_compatible": True},
        quiet=True,
    )
    return dict(zip(sorted(sources), (module.sources[0] for module in done), strict=True))


if __name__ == "__main__":
    setup(ext_modules=[] if NO_KERNELS else extensions(), cmdclass={"build_ext": BuildKernels, "build_py": BuildPython})
