"""The command line: `minorm demo`, `train`, `export`, `check` and more. Each command is a file with `add` and `run`.

The exit code is 0 after success, 1 after a failure (one line on stderr says which), 2 for wrong usage, and 130 after
Ctrl-C.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

import minorm
from minorm.support import installed

try:  # this fails if another project's minorm/__init__.py has replaced ours
    from minorm.cli import (
        check,
        completion,
        conform,
        convert,
        demo,
        doctor,
        evaluate,
        export,
        labs,
        lr_find,
        plot,
        predict,
        profile,
        quantize,
        train,
    )
    from minorm.cli.terminal import output
except ImportError as error:
    installed.explain(error)
    raise
from minorm.cli.terminal.one_line_errors import EXPECTED, UsageError
from minorm.support.safe_names import printable
from minorm.support.startup import INTERRUPTED, startup


class Parser(argparse.ArgumentParser):
    """A parser that reports each error in one line, even if the error repeats an argument with line breaks."""

    def error(self, message: str) -> NoReturn:
        """Print the error and the usage, and end the process with code 2."""
        super().error(printable(message))


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    startup.begun = True
    with output.masked(for_good=argv is None):
        return _run(argv)


def _run(argv: Sequence[str] | None) -> int:
    args = _parser().parse_args(argv)
    args.words = sys.argv[1:] if argv is None else [*argv]
    if said := installed.conflict():
        output.complain(f"minorm: {said}")
    try:
        startup.ready = True
        return int(args.run(args))
    except KeyboardInterrupt as stop:
        return _stopped(args.command, str(stop), at_once=argv is None)
    except BrokenPipeError:  # `minorm check model.onnx | head`
        sys.stderr.close()  # the reader is gone; the interpreter must not report it
        return 1
    except EXPECTED as error:
        if startup.pressed:  # the interrupted code turned Ctrl-C into an error
            return _stopped(args.command, "", at_once=argv is None)
        if args.traceback:
            raise
        said = str(error) or "short of memory"  # a bare MemoryError has no text
        output.complain(f"minorm {args.command}: {said.removeprefix(f'{args.command}: ')}")
        return 2 if isinstance(error, UsageError) else 1
    finally:
        startup.ready = False


def _stopped(command: str, advice: str, at_once: bool) -> int:
    output.note("")  # go below the ^C that the terminal shows
    output.note(f"minorm {command}: stopped{f'; {advice}' if advice else ''}")
    if at_once:  # an orderly exit of scikit-learn can take half a second
        sys.stdout.flush()
        os._exit(INTERRUPTED)
    return INTERRUPTED


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="minorm",
        description="Train small CNNs with well-understood normalization, export them to ONNX, check the result.",
        epilog="`minorm COMMAND --help` tells about one command. Start with `minorm demo`.",
    )
    parser.add_argument("--version", action="version", version=f"minorm {minorm.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for module in (
        demo,
        train,
        lr_find,
        evaluate,
        predict,
        plot,
        doctor,
        profile,
        export,
        check,
        convert,
        quantize,
        conform,
        labs,
        completion,
    ):
        module.add(commands)
    for command in commands.choices.values():
        command.add_argument("--traceback", action="store_true", help="on an error show where in the code it arose")
    return parser
