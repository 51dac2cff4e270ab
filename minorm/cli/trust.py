"""Decides which code a command may run to build a checkpoint's model.

This code is the file that --model names or, with --trust, the copy of the code in the checkpoint. If a command needs
code that the user has not allowed, its error names this code and gives the command line that would allow it. At a
terminal, the command asks the user instead.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from minorm.cli.terminal import extras, output
from minorm.cli.terminal.one_line_errors import UsageError
from minorm.distributed.launcher import launched
from minorm.support.safe_names import printable
from minorm.training.model import model_building
from minorm.training.model.onnx_graph import Graph
from minorm.training.model.own_code import Code, is_graph


@dataclass(frozen=True)
class Trust:
    """The code that the user allows.

    `words` is the command line. An error repeats this command line, with the missing option added.
    """

    model: str | None = None
    given: bool = False
    words: tuple[str, ...] = ()
    max_bytes: int | None = None  # limit of memory for the graph of an ONNX file

    def line(self, *more: str) -> str:
        """Return the command line with more options, for the user to copy."""
        return printable(shlex.join(["minorm", *self.words[:1], *more, *self.words[1:]]))


NOTHING = Trust()


def add(parser: argparse.ArgumentParser) -> None:
    """Declare --trust."""
    parser.add_argument("--trust", action="store_true", help="run the FILE.py in the run's folder that builds the "
                        "model; the code can do everything that you can do, so read it first")  # fmt: skip


def of(args: argparse.Namespace, model: str | None) -> Trust:
    """Return the code that the command line allows; `model` is FILE.py:FUNCTION if --model was given."""
    return Trust(model, args.trust, tuple(args.words), getattr(args, "max_bytes", None))


def code(facts: Mapping[str, Any], path: str, trust: Trust) -> Code | Graph | None:
    """Return the code that builds the model of the checkpoint at `path`; return None for a model of `minorm.models`.

    Raises UsageError if the user has not allowed that code; the message has the command line that would allow it.
    """
    if is_graph(facts["name"]):
        extras.need("onnx")
    try:
        found = model_building.trusted(facts, path, trust.model, trust.given, trust.max_bytes)
    except model_building.UntrustedCode as missing:
        found = missing.code
        if found is None:
            line = trust.line("--model", f"FILE.py:{missing.function}")
            raise UsageError(f"the model of {path} is built by code that is not in the same folder; no code was run. "
                             f"To build the model with a file of yours, use: {line}") from None  # fmt: skip
        if not _agreed(found):
            raise UsageError(f"the model of {path} is built by code in the same folder: "
                             f"{printable(model_building.said(found))}. No code was run. Read the code first; to run "
                             f"it, use: {trust.line('--trust')}") from None  # fmt: skip
        return found
    if isinstance(found, Code) and trust.model is None and launched()[0] == 0:
        output.note(f"minorm {' '.join(trust.words[:1])}: running {model_building.said(found)}")
    return found


def _agreed(found: Code) -> bool:
    """Ask the user, and return True if the answer is yes.

    Return False if there is no terminal, or if there are several processes.
    """
    if launched()[1] > 1:
        return False
    question = (
        f"The model is built by {printable(model_building.said(found))}.\nThis code can do everything that you can do. "
        "Run it? [y/N]"
    )
    return output.ask(question).lower() in ("y", "yes")
