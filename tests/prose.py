"""Finds sentences that are hard to read: in pages, docstrings, comments and messages.

    python -m tests.prose                      # everything
    python -m tests.prose minorm/onnx docs     # these files and folders
    python -m tests.prose --counts             # the number of findings in each folder

`RULES` has the words and patterns. A sentence is also too long above 40 words, and a chain of passives with three
verbs or more. Code, tables of numbers, quotes and generated pages are left out.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import subprocess
import tokenize
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LONGEST = 40  # words in a sentence
PASSIVES = 3  # passive verbs in a sentence
MESSAGE = 4  # words that make a string prose
GENERATED = ("docs/conformance.md", "docs/conformance/")

RULES = {
    "nobody": (r"\b[Nn]obody\b", "no one, or name who: 'no user', 'no rank'"),
    "somebody": (r"\b[Ss]omebody\b", "someone, or name who: 'a user', 'another project'"),
    "whoever": (r"\b[Ww]hoever\b", "the person who, any user who"),
    "shall": (r"\bshall\b", "must, should, or the present tense"),
    "own": (r"\bof (?:its|their|one's|our|his|her) own\b", "'its own x', 'a separate x', 'a custom x'"),
    "one's own": (r"\b[Oo]ne's own\b", "your own"),
    "is none": (r"\b(?:is|are|was|were|be) none\b(?! of)", "'there is no x', 'x is missing'"),
    "what": (
        r"^What(?: [^\s?]+){3,}[.:;]$|[:;,] what (?:[\w'`-]+ ){0,7}(?:is|are|was|were|stays|goes|comes)\b[^?]*$",
        "name the thing",
    ),
    "where there is": (r"\b[Ww]here there (?:is|are) (?:none|one)\b", "'if there is no x', 'if x exists'"),
}
_PASSIVE = re.compile(
    r"\b(?:is|are|was|were|be|been|being|gets?)\b(?: not| \w+ly)? (\w+(?:ed|en|wn|ept|old|ought|ut|elt|ade|aid))\b"
)
_MARK = re.compile(r"^(?:noqa|type|pragma|fmt|mypy):?\S*(?: ?[A-Z]+\d+,?)*\s*(?:# ?)?")


@dataclass(frozen=True)
class Text:
    """A paragraph of prose: the file, its first line, and the words."""

    path: Path
    line: int
    words: str


@dataclass(frozen=True)
class Finding:
    """A sentence that breaks a rule."""

    path: Path
    line: int
    rule: str
    sentence: str

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}: {self.rule}: {self.sentence}"


def findings(paths: list[Path]) -> Iterator[Finding]:
    """Yield each sentence of these files that breaks a rule."""
    for path in paths:
        for text in texts(path):
            for sentence in sentences(text.words):
                for rule in broken(sentence):
                    yield Finding(path, text.line, rule, sentence)


def broken(sentence: str) -> Iterator[str]:
    """Yield the names of the rules that a sentence breaks."""
    for name, (pattern, _) in RULES.items():
        if re.search(pattern, sentence):
            yield name
    listed = re.sub(r"(?:`x`,? ?)+", "x ", sentence)  # a list of names counts as one word
    if (count := len(re.findall(r"[A-Za-z][\w'.-]*", listed))) > LONGEST:
        yield f"{count} words"
    if (count := len(_PASSIVE.findall(sentence))) >= PASSIVES:
        yield f"{count} passives"


def sentences(words: str) -> list[str]:
    """Cut a paragraph at its full stops, question marks and semicolons."""
    words = re.sub(r"\b(e\.g|i\.e|vs|cf|Fig|Eq|No|etc)\.", r"\1", words)
    return [part.strip() for part in re.split(r"(?<=[.!?;])[\"')*_]*\s+(?=[\"'(*_\[`]*[\w`~-])", words) if part.strip()]


def texts(path: Path) -> Iterator[Text]:
    """Yield the paragraphs of prose in a file."""
    source = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        yield from _markdown(path, source, 1)
    elif path.suffix == ".py":
        yield from _python(path, source)
    elif path.suffix in (".pyx", ".pxd"):
        yield from _comments(path, source, r"^\s*#(.*)$", r"(?<=\S)\s+#\s(.*)$")
        for match in re.finditer(r'"""(.*?)"""', source, re.DOTALL):
            if re.search(r"\bcdef extern from \*[^\n]*:\s*$", source[: match.start()]):
                continue  # C
            yield from _plain(path, match[1], source[: match.start()].count("\n") + 1)
    else:
        yield from _comments(path, source, r"^\s*(?://|/?\*+)(.*?)(?:\*/)?$", r"(?<=\S)\s+//\s(.*)$")


def _markdown(path: Path, source: str, start: int) -> Iterator[Text]:
    """Yield paragraphs, list items, headings and cells of tables; no code, no front matter."""
    source = re.sub(r"^---\n.*?\n---\n", lambda m: "\n" * m[0].count("\n"), source, flags=re.DOTALL)
    source = re.sub(r"<!--.*?-->", lambda m: "\n" * m[0].count("\n"), source, flags=re.DOTALL)
    fenced = False
    block: list[str] = []
    first = start
    for number, line in enumerate([*source.split("\n"), ""], start):
        fence = re.match(r"\s*(?:```|~~~|\$\$)", line)
        begins = re.match(r"\s*(?:[-*+]|\d+\.)\s|\s*[#>|:]|\(.*\)=$", line)
        if block and (fence or begins or not line.strip()):
            yield Text(path, first, _inline(" ".join(block)))
            block = []
        if fence:
            fenced = not fenced if line.count("$$") != 2 else fenced
        elif fenced or not line.strip() or (re.match(r"    \s*\S", line) and not block and not begins):
            continue
        elif line.lstrip().startswith("|"):
            for cell in re.split(r"(?<!\\)\|", line):
                yield Text(path, number, _inline(cell.strip()))
        elif re.match(r"\s*(?:>|:::|\(.*\)=$)", line):
            continue
        else:
            if not block:
                first = number
            block.append(re.sub(r"^\s*(?:[-*+]|\d+\.|#+)\s+", "", line).strip())
            if line.lstrip().startswith("#"):
                yield Text(path, first, _inline(" ".join(block)))
                block = []


def _inline(words: str) -> str:
    """Code becomes the word `x`, a link its text; marks go."""
    words = re.sub(r"``.+?``|`[^`]+`", "`x`", words)
    words = re.sub(r"\$[^$]+\$", "`x`", words)
    words = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", words)
    return re.sub(r"[*]{1,2}(\S[^*]*)[*]{1,2}", r"\1", words)


def _plain(path: Path, source: str, start: int) -> Iterator[Text]:
    """Yield the paragraphs of a docstring: no indented code, no doctests, a line of a table each by itself."""
    block: list[str] = []
    first, margin = start, None
    for number, line in enumerate([*source.split("\n"), ""], start):
        indent = len(line) - len(line.lstrip())
        if line.strip() and number > start:
            margin = indent if margin is None else min(margin, indent)
        deep = margin is not None and indent >= margin + 4
        row = re.search(r"\S\s{2,}\S", line) or re.match(r"\s*(?:>>>|\.\.\.|[-*+|]\s|\w+:$)", line)
        if block and (not line.strip() or deep or row):
            yield Text(path, first, _inline(" ".join(block)))
            block = []
        if line.strip() and not deep and not re.match(r"\s*(?:>>>|\.\.\.)", line):
            if row:
                yield Text(path, number, _inline(re.split(r"\s{2,}", line.strip())[-1]))
                continue
            if not block:
                first = number
            block.append(line.strip())


def _python(path: Path, source: str) -> Iterator[Text]:
    """Yield docstrings, comments, the cells of a notebook and all strings that read as prose."""
    if re.search(r"^# %% \[markdown\]", source, re.MULTILINE):
        for match in re.finditer(r"^# %% \[markdown\]\n((?:#.*\n)+)", source, re.MULTILINE):
            cell = re.sub(r"^# ?", "", match[1], flags=re.MULTILINE)
            yield from _markdown(path, cell, source[: match.start()].count("\n") + 2)
        source = re.sub(
            r"^# %% \[markdown\]\n((?:#.*\n)+)", lambda m: "\n" * m[0].count("\n"), source, flags=re.MULTILINE
        )
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[0] if node.body else None
            if (
                isinstance(body, ast.Expr)
                and isinstance(body.value, ast.Constant)
                and isinstance(body.value.value, str)
            ):
                yield from _plain(path, body.value.value, body.lineno)
    if not path.is_relative_to(ROOT / "tests"):  # their strings quote
        yield from _messages(path, tree)
    block: list[str] = []
    first = last = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        line, words = token.start[0], _MARK.sub("", token.string.split("  #")[-1].lstrip("#:! "))
        if token.line.lstrip().startswith("#") and block and line == last + 1:
            block.append(words)
        else:
            yield Text(path, first, _inline(" ".join(block)))
            block, first = [words], line
        last = line if token.line.lstrip().startswith("#") else 0
    yield Text(path, first, _inline(" ".join(block)))


def _messages(path: Path, tree: ast.AST) -> Iterator[Text]:
    """Yield strings of at least four words but docstrings, with `x` for the values in an f-string."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.JoinedStr):
            parts = (str(part.value) if isinstance(part, ast.Constant) else "`x`" for part in child.values)
            words = "".join(parts)
        elif isinstance(child, ast.Constant) and isinstance(child.value, str) and not isinstance(tree, ast.Expr):
            words = child.value
        else:
            yield from _messages(path, child)
            continue
        for line in words.split("\n"):  # of a page or a program
            if len(line.split()) >= MESSAGE:
                yield Text(path, child.lineno, _inline(line))


def _comments(path: Path, source: str, alone: str, behind: str) -> Iterator[Text]:
    """Yield the comments that a file in another language has: neighbouring lines as one text."""
    block: list[str] = []
    first = 1
    for number, line in enumerate([*source.split("\n"), ""], 1):
        match = re.match(alone, line)
        if match and match[1].strip() and not re.search(r"\S\s{3,}\S", match[1]):
            if not block:
                first = number
            block.append(match[1].strip())
            continue
        if block:
            yield Text(path, first, _inline(" ".join(block)))
            block = []
        if not match and (match := re.search(behind, line)):
            yield Text(path, number, _inline(match[1]))


def files(names: list[str]) -> list[Path]:
    """Return the files of the repository with prose in them, below these names; all of them for an empty list."""
    tracked = subprocess.run(["git", "ls-files", *names], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    kinds = (".md", ".py", ".pyx", ".pxd", ".h", ".cu", ".cuh")
    return [
        ROOT / name
        for name in tracked.split("\n")
        if name.endswith(kinds) and not name.startswith(GENERATED) and (ROOT / name).exists()
    ]


def main() -> None:
    """Print the findings, or how many each folder has; the exit code is 1 if there are any."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--counts", action="store_true", help="the number of findings in each folder")
    args = parser.parse_args()
    found = list(findings(files(args.names)))
    if args.counts:
        folders = Counter("/".join(str(f.path.relative_to(ROOT)).split("/")[:2]) for f in found)
        rules = Counter(re.sub(r"^\d+ ", "", f.rule) for f in found)
        for name, count in [*folders.most_common(), ("", 0), *rules.most_common()]:
            print(f"{count:6} {name}" if name else "")
    else:
        print(*found, sep="\n")
    print(f"{len(found)} findings")
    raise SystemExit(bool(found))


if __name__ == "__main__":
    main()
