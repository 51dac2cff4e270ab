"""`minorm completion`: a script that lets the shell complete commands and options, written from their declarations.

bash  minorm completion bash > ~/.local/share/bash-completion/completions/minorm
zsh   minorm completion zsh > "${fpath[1]}/_minorm"
fish  minorm completion fish > ~/.config/fish/completions/minorm.fish
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Mapping
from typing import Any

from minorm.cli.terminal import output

SHELLS = ("bash", "zsh", "fish")


def add(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "completion",
        help="a tab-completion script for the shell",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("shell", choices=SHELLS)
    parser.set_defaults(run=functools.partial(run, commands))


def run(commands: Any, args: argparse.Namespace) -> int:
    """Print the completion script for the shell that `args` names."""
    output.show({"bash": _bash, "zsh": _zsh, "fish": _fish}[args.shell](commands.choices), end="")
    return 0


def _options(parser: Any) -> dict[str, str]:
    """Return a dict from each long option to its choices. Options of subcommands such as `labs grade` are included."""
    found: dict[str, str] = {}
    for action in parser._actions:
        choices = " ".join(map(str, action.choices or ()))
        found |= {option: choices for option in action.option_strings if option.startswith("--")}
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                found |= _options(below)
    return found


def _words(parser: Any) -> str:
    """Return the words that may follow the command. For `labs` they are `list start check grade`."""
    return " ".join(
        str(word) for action in parser._actions if not action.option_strings for word in action.choices or ()
    )


def _found(parsers: Mapping[str, Any]) -> list[str]:
    """Return shell code, for bash and zsh, that finds the words that may complete the current word.

    The code sets the shell variable `found` to these words. It reads the shell variables `word` (the word to complete),
    `before` (the word before it), `name` (the command) and `place` (the position of `word` in the command line).
    """
    choices = [
        f'*:{name}:{option}) found="{words}" ;;'
        for name, parser in parsers.items()
        for option, words in _options(parser).items()
        if words
    ]
    options = [f'*:{name}:-*) found="{" ".join(_options(parser))}" ;;' for name, parser in parsers.items()]
    words = [f'2:{name}:*) found="{_words(parser)}" ;;' for name, parser in parsers.items() if _words(parser)]
    first = f'1:*) found="{" ".join(parsers)}" ;;'
    lines = []
    for told, cases in (("before", [first, *choices]), ("word", [*options, *words])):
        lines += [
            f'    [ -n "$found" ] || case "$place:$name:${told}" in',
            *(f"        {case}" for case in cases),
            "    esac",
        ]
    return lines


def _bash(parsers: Mapping[str, Any]) -> str:
    lines = [
        "# minorm: tab completion for bash",
        "_minorm() {",
        '    local place="$COMP_CWORD" name="${COMP_WORDS[1]}" found=""',
        '    local word="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}"',
        *_found(parsers),
        '    COMPREPLY=($(compgen -W "$found" -- "$word"))',
        "}",
        "complete -o default -F _minorm minorm",
    ]
    return "\n".join(lines) + "\n"


def _zsh(parsers: Mapping[str, Any]) -> str:
    lines = [
        "#compdef minorm",
        "# minorm: tab completion for zsh",
        "_minorm() {",
        '    local place="$((CURRENT - 1))" name="${words[2]}" found=""',
        '    local word="${words[CURRENT]}" before="${words[CURRENT-1]}"',
        *_found(parsers),
        '    if [ -n "$found" ]; then compadd -- ${=found}; else _files; fi',
        "}",
        "# found in fpath, or sourced",
        'if [ "${funcstack[1]}" = _minorm ]; then _minorm "$@"; else compdef _minorm minorm; fi',
    ]
    return "\n".join(lines) + "\n"


def _fish(parsers: Mapping[str, Any]) -> str:
    lines = [
        "# minorm: tab completion for fish",
        f"complete -c minorm -n __fish_use_subcommand -f -a '{' '.join(parsers)}'",
    ]
    for name, parser in parsers.items():
        seen = f"complete -c minorm -n '__fish_seen_subcommand_from {name}'"
        lines += [f"{seen} -f -a '{words}'"] if (words := _words(parser)) else []
        for option, choices in _options(parser).items():
            lines.append(f"{seen} -l {option[2:]}" + (f" -x -a '{choices}'" if choices else ""))
    return "\n".join(lines) + "\n"
