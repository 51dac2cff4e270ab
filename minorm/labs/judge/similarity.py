"""Measures how much code two submissions share, by fingerprints of their tokens, which ignore names and layout.

Schleimer, Wilkerson and Aiken, "Winnowing: local algorithms for document fingerprinting", SIGMOD 2003. All names count
as the same token, and so do all numbers and all texts. Comments and line breaks do not count. Of a few neighbouring
hashes, only the smallest is kept, so that equal code has equal fingerprints anywhere in a file.
"""

from __future__ import annotations

import io
import keyword
import tokenize
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping

LENGTH = 12  # tokens of a piece that is compared
WINDOW = 6  # neighbouring pieces, of which one is kept: this finds code that is equal over LENGTH + WINDOW - 1 tokens
MOST = 5000  # fingerprints of a submission
FEWEST = 10  # with fewer a submission is not compared
COMMON = 1 / 3  # of the class: code that so many share is the usual solution, and proves nothing
ALIKE = 0.8
LEFT_OUT = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING,
    tokenize.ENDMARKER,
}  # fmt: skip
KINDS = {tokenize.NAME: "n", tokenize.NUMBER: "0", tokenize.STRING: "s"}


def fingerprints(lines: Iterable[str]) -> set[int]:
    """Return the fingerprints of the code in these lines."""
    tokens = _tokens("\n".join(lines))
    hashes = [zlib.crc32(" ".join(tokens[i : i + LENGTH]).encode()) for i in range(len(tokens) - LENGTH + 1)]
    if len(hashes) < WINDOW:
        return set(hashes)
    found = {min(hashes[i : i + WINDOW]) for i in range(len(hashes) - WINDOW + 1)}
    return set(sorted(found)[:MOST])


def _tokens(text: str) -> list[str]:
    """Return the tokens of the text, without names and layout. The list ends where the text is not valid Python."""
    found: list[str] = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type in LEFT_OUT:
                continue
            found.append(token.string if keyword.iskeyword(token.string) else KINDS.get(token.type, token.string))
    except (tokenize.TokenError, SyntaxError, ValueError):
        return found  # code that is cut off: what came before it counts
    return found


def alike(prints: Mapping[str, set[int]]) -> dict[str, dict[str, float]]:
    """Return the similar submissions for each name, each with the share of fingerprints that both submissions have.

    Submissions are similar if they share at least ALIKE of the smaller set of fingerprints. If there are at least six
    submissions, a fingerprint that more than a third of the submissions have does not count.
    """
    counts = Counter(one for found in prints.values() for one in found)
    most = max(COMMON * len(prints), 2) if len(prints) >= 6 else len(prints)
    own = {name: {one for one in found if counts[one] <= most} for name, found in prints.items()}
    pairs: dict[str, dict[str, float]] = {name: {} for name in own}
    names = [name for name, found in own.items() if len(found) >= FEWEST]
    for place, name in enumerate(names):
        for other in names[:place]:
            share = len(own[name] & own[other]) / min(len(own[name]), len(own[other]))
            if share >= ALIKE:
                pairs[name][other] = pairs[other][name] = share
    return pairs
