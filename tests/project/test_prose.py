"""The check of the prose finds each kind of sentence that it is for, in each kind of file, and no others."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import prose


@pytest.mark.parametrize(
    ("sentence", "rule"),
    [
        ("The lock is free when nobody holds it.", "nobody"),
        ("A process of its own reads the file.", "own"),
        ("Returns the last row, or None where there is none.", "is none"),
        ("What the kernel gives for a type.", "what"),
        ("The file stays: what is wrong gets a new version.", "what"),
        ("It shall be a Tensor.", "shall"),
        (" ".join(["word"] * 41) + ".", "41 words"),
        ("The file is opened, its parts are checked and the rest is thrown away.", "3 passives"),
    ],
)
def test_a_tiring_sentence_is_found(sentence: str, rule: str) -> None:
    assert rule in list(prose.broken(sentence))


@pytest.mark.parametrize(
    "sentence",
    [
        "What does `plan` return?",
        "What differs from PyTorch",  # a heading
        "It has its own memory.",
        "None of the rows is empty.",
        " ".join(["word"] * 40) + ".",
        "The file is opened and its parts are checked.",
    ],
)
def test_a_plain_sentence_is_not(sentence: str) -> None:
    assert not list(prose.broken(sentence))


FILES = {
    "page.md": "# Title\n\nIt is fast.\nNobody waits.\n\n```python\n# nobody\n```\n\n| a | nobody |\n|---|---|\n",
    "module.py": (
        '"""Waits for\nnobody.\n\n    code for nobody\n"""\n\n# Nobody\n# reads.\nx = "nobody"  # nobody\n'
        'raise ValueError(f"x is {x}; nobody wants it")\n'
    ),
    "notebook.py": "# %% [markdown]\n# Nobody reads.\n\n# %%\nx = 1  # nobody\n",
    "kernel.pyx": "# Nobody reads\n# this.\ncdef int x = 1  # nobody\n",
    "kernel.cu": "/* Nobody reads\n * this. */\nint x = 1;  // nobody\n",
}
LINES = {
    "page.md": [3, 10],
    "module.py": [1, 9, 10, 7],
    "notebook.py": [2, 5],
    "kernel.pyx": [1, 3],
    "kernel.cu": [1, 3],
}


@pytest.mark.parametrize("name", FILES)
def test_prose_is_found_in_its_places_and_code_is_not(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(FILES[name], encoding="utf-8")
    found = [finding for finding in prose.findings([path]) if finding.rule == "nobody"]
    assert sorted(finding.line for finding in found) == sorted(LINES[name])
