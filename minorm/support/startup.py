"""The command line's first moments: Ctrl-C, or an error while the library is imported, ends it in one line.

    minorm ...    python -m minorm ...    python -m minorm.cli ...

`minorm/__init__.py` imports this before all else, and in every other process that is all that happens. NumPy turns an
interrupt that falls into its import into an ImportError about a bad installation, and others swallow it; so as long as
modules are imported, when there is nothing to lose yet, Ctrl-C ends the process where it stands. Once `cli.main` is
ready for it, it is Python's KeyboardInterrupt again.
"""

from __future__ import annotations

# The module signal would first import enum, and that takes longer than all the rest until the handler stands.
import _signal  # type: ignore[import-not-found]
import os
import sys

from minorm.support.masking import message

TYPE_CHECKING = False  # typing takes longer still
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType, TracebackType
    from typing import Any

INTERRUPTED = 130  # the exit code of what Ctrl-C stopped: 128 + SIGINT, as shells have it


class Startup:
    """What happens to Ctrl-C and to errors before `cli.main` takes over, and where it cannot see them.

    begun    `main` runs: it says itself what is wrong
    ready    `main` is inside its `try`: a KeyboardInterrupt will be caught
    pressed  Ctrl-C came, whatever became of the KeyboardInterrupt
    """

    begun = False
    ready = False
    pressed = False

    def watch(self) -> None:
        """Stand between the user and Python; a shell that starts a job in the background keeps Ctrl-C from it."""
        if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
            _signal.signal(_signal.SIGINT, self.interrupt)
        sys.excepthook = self.excepthook
        sys.unraisablehook = self.unraisablehook

    def interrupt(self, _: int, frame: FrameType | None) -> None:
        """Raise KeyboardInterrupt where it will be caught, the first time; else end here."""
        if not self.ready or _is_importing(frame):
            _end()
        self.ready, self.pressed = False, True
        raise KeyboardInterrupt

    def excepthook(self, kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        """What nobody caught: an interrupt, or an error of an import in one line."""
        if issubclass(kind, KeyboardInterrupt):
            _end()
        if self.begun or "--traceback" in sys.argv or not issubclass(kind, (ImportError, ValueError, OSError)):
            sys.__excepthook__(kind, error, traceback)
        else:
            _say(f"minorm: {message(error).removeprefix('minorm: ')}\n")

    def unraisablehook(self, what: Any) -> None:
        """An interrupt that fell where Python cannot raise, in a callback of C or in a destructor, is not lost."""
        if issubclass(what.exc_type, KeyboardInterrupt):
            _end()
        sys.__unraisablehook__(what)


def is_command_line(argv: Sequence[str], original: Sequence[str]) -> bool:
    """Do sys.argv and sys.orig_argv belong to the command line?

    While `python -m NAME` imports the packages that NAME is in, argv[0] is "-m" and NAME the word before argv[1:].
    """
    if not argv or len(original) < len(argv):
        return False
    if argv[0] == "-m":
        return original[-len(argv)].removeprefix("-m") in ("minorm", "minorm.cli")
    return os.path.splitext(os.path.basename(argv[0]))[0] == "minorm"  # the script that an installation makes


def _is_importing(frame: FrameType | None) -> bool:
    """Is a module being loaded for the first time?"""
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
    os.write(2, text.encode(errors="backslashreplace"))  # sys.stderr may be in the middle of something


startup = Startup()
if is_command_line(getattr(sys, "argv", ()), sys.orig_argv):
    startup.watch()
