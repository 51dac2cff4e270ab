"""Handles Ctrl-C and errors while the command line imports the library: then the process prints one line and ends.

    minorm ...    python -m minorm ...    python -m minorm.cli ...

`minorm/__init__.py` imports this module first, but the module has an effect only in processes of the command line.
NumPy turns an interrupt during its import into an ImportError about a bad installation, and other packages ignore the
interrupt. So while modules are imported, Ctrl-C ends the process at once; no work can be lost yet. As soon as
`cli.main` can handle an interrupt, Ctrl-C raises KeyboardInterrupt again.
"""

from __future__ import annotations

# The module signal would import enum, which takes longer than all other work until the handler is set.
import _signal  # type: ignore[import-not-found]
import os
import sys

from minorm.support.safe_names import message

TYPE_CHECKING = False  # importing typing takes even longer
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType, TracebackType
    from typing import Any

INTERRUPTED = 130  # the exit code after Ctrl-C: 128 + SIGINT, as in shells


class Startup:
    """Handles Ctrl-C and errors before `cli.main` runs.

    After `main` has begun, a Startup handles only interrupts and errors that `main` cannot catch.

    begun    True if `main` runs, because `main` reports errors itself
    ready    True while `main` is inside its `try`, which catches a KeyboardInterrupt
    pressed  True if Ctrl-C was pressed, even if some code has ignored the KeyboardInterrupt
    """

    begun = False
    ready = False
    pressed = False

    def watch(self) -> None:
        """Install the handlers; if SIGINT is ignored, as in a background job of a shell, SIGINT stays ignored."""
        if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
            _signal.signal(_signal.SIGINT, self.interrupt)
        sys.excepthook = self.excepthook
        sys.unraisablehook = self.unraisablehook

    def interrupt(self, _: int, frame: FrameType | None) -> None:
        """At the first Ctrl-C, raise KeyboardInterrupt if `main` will catch it; otherwise end the process here."""
        if not self.ready or _is_importing(frame):
            _end()
        self.ready, self.pressed = False, True
        raise KeyboardInterrupt

    def excepthook(self, kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        """Handle an uncaught exception: end the process after an interrupt; print an error of an import in one line."""
        if issubclass(kind, KeyboardInterrupt):
            _end()
        if self.begun or "--traceback" in sys.argv or not issubclass(kind, (ImportError, ValueError, OSError)):
            sys.__excepthook__(kind, error, traceback)
        else:
            _say(f"minorm: {message(error).removeprefix('minorm: ')}\n")

    def unraisablehook(self, what: Any) -> None:
        """End the process after an interrupt in a C callback or a destructor, where Python cannot raise an error."""
        if issubclass(what.exc_type, KeyboardInterrupt):
            _end()
        sys.__unraisablehook__(what)


def is_command_line(argv: Sequence[str], original: Sequence[str]) -> bool:
    """Return whether sys.argv and sys.orig_argv are those of the command line.

    While `python -m NAME` imports the packages of NAME, argv[0] is "-m", and NAME is the word before argv[1:] in
    sys.orig_argv.
    """
    if not argv or len(original) < len(argv):
        return False
    if argv[0] == "-m":
        return original[-len(argv)].removeprefix("-m") in ("minorm", "minorm.cli")
    return os.path.splitext(os.path.basename(argv[0]))[0] == "minorm"  # the installed script


def _is_importing(frame: FrameType | None) -> bool:
    """Return whether a module is being imported for the first time."""
    while frame is not None:
        code = frame.f_code
        if code.co_name == "_find_and_load" and code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False


def _end() -> None:
    _say("\nminorm: stopped\n")
    os._exit(INTERRUPTED)


def _say(text: str) -> None:
    os.write(2, text.encode(errors="backslashreplace"))  # sys.stderr may be in the middle of a write


startup = Startup()
if is_command_line(getattr(sys, "argv", ()), sys.orig_argv):
    startup.watch()
