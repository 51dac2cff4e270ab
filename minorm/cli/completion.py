"""`minorm completion`: a script that lets the shell complete commands and options, written from what they declare.

bash  minorm completion bash > ~/.local/share/bash-completion/completions/minorm
zsh   minorm completion zsh > "${fpath[1]}/_minorm"
fish  minorm completion fish > ~/.config/fish/completions/minorm.fish
"""

from __future__ import annotations

import argparse
import functools
from typing import Any

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
    """Print the script."""
    table = {name: _options(parser) for name, parser in commands.choices.items()}
    print({"bash": _bash, "zsh": _zsh, "fish": _fish}[args.shell](table), end="")
    return 0


def _options(parser: Any) -> dict[str, list[str]]:
    """The long options, each with its choices."""
    return {
        option: list(map(str, action.choices or ()))
        for action in parser._actions
        for option in action.option_strings
        if option.startswith("--")
    }


def _bash(table: dict[str, dict[str, list[str]]]) -> str:
    lines = [
        "# minorm: tab completion for bash",
        "_minorm() {",
        '    local word="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" words=""',
        '    if [ "$COMP_CWORD" -eq 1 ]; then',
        f'        COMPREPLY=($(compgen -W "{" ".join(table)}" -- "$word")); return',
        "    fi",
        '    case "${COMP_WORDS[1]}:$before" in',
    ]
    lines += [
        f'        {name}:{option}) words="{" ".join(choices)}" ;;'
        for name, options in table.items()
        for option, choices in options.items()
        if choices
    ]
    lines += [
        "    esac",
        '    if [ -z "$words" ] && [ "${word:0:1}" = "-" ]; then',
        '        case "${COMP_WORDS[1]}" in',
    ]
    lines += [f'            {name}) words="{" ".join(options)}" ;;' for name, options in table.items()]
    lines += [
        "        esac",
        "    fi",
        '    if [ -n "$words" ]; then COMPREPLY=($(compgen -W "$words" -- "$word")); fi',
        "}",
        "complete -o default -F _minorm minorm",
    ]
    return "\n".join(lines) + "\n"


def _zsh(table: dict[str, dict[str, list[str]]]) -> str:
    return "#compdef minorm\nautoload -U +X bashcompinit && bashcompinit\n" + _bash(table)


def _fish(table: dict[str, dict[str, list[str]]]) -> str:
    lines = ["# minorm: tab completion for fish"]
    lines += [f"complete -c minorm -n __fish_use_subcommand -f -a {name}" for name in table]
    for name, options in table.items():
        for option, choices in options.items():
            given = f" -x -a '{' '.join(choices)}'" if choices else ""
            lines.append(f"complete -c minorm -n '__fish_seen_subcommand_from {name}' -l {option[2:]}{given}")
    return "\n".join(lines) + "\n"
