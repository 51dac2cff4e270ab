"""Cells of the percent format and of notebooks are read and written, and a submission becomes cells."""

from __future__ import annotations

import time

import pytest

from minorm.labs import cells
from minorm.labs.calling import submission

TEXT = """\
# ---
# jupyter: {}
# ---

import os

# %% [markdown]
# # Title
#
# text

# %% tags=["plot"]
raise SystemExit


# %% a title
def f():
    return 1 / 0
"""


def test_cells_have_their_kind_tags_and_lines() -> None:
    found = cells.read_percent(TEXT)
    assert [(cell.markdown, cell.tags, cell.line) for cell in found] == [
        (False, (), 5),
        (True, (), 8),
        (False, ("plot",), 13),
        (False, (), 17),
    ]
    assert found[1].text == "# Title\n\ntext"


@pytest.mark.parametrize("blank", ["# %%\n   ", "# %% \n\t\n\n", "# %% [markdown]\n  \n"])
def test_a_cell_of_spaces_is_no_cell(blank: str) -> None:
    assert cells.read(f"# %%\nx = 1\n\n{blank}", "mine.py") == [cells.Cell("x = 1", False, (), 2)]


def test_a_notebook_and_back() -> None:
    found = cells.read_percent(TEXT)
    again = cells.read(cells.to_notebook(found), "x.ipynb")
    assert [(c.text, c.markdown, c.tags) for c in again] == [(c.text, c.markdown, c.tags) for c in found]


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"cells": 3}', '{"cells": [{}]}', '{"cells": [{"source": 1}]}', "[" * 9999]
)
def test_a_broken_notebook(text: str) -> None:
    with pytest.raises(ValueError, match=r"x\.ipynb is not a notebook"):
        cells.read(text, "x.ipynb")


def test_magics_become_comments() -> None:
    text = "%time\ndef f():\n    !ls\n    return 5 % 3\nf??\n?f.name\nfiles, n = !ls\nx = %timeit 1"
    lines = cells.without_magics(text).split("\n")
    assert lines[0] == "pass  # %time"
    assert lines[2:4] == ["    pass  # !ls", "    return 5 % 3"]
    assert lines[4:6] == ["pass  # f??", "pass  # ?f.name"]
    assert lines[6:] == ["files, n = None  # files, n = !ls", "x = None  # x = %timeit 1"]
    compile("\n".join(lines), "cell", "exec")


@pytest.mark.parametrize("text", ["x = (5\n  % 3)", 'y = """\n!\n%d\n"""', "ok = (a\n  != b)"])
def test_python_that_looks_like_magic_stays(text: str) -> None:
    assert cells.without_magics(text) == text


def test_lines_in_errors_are_those_of_the_file() -> None:
    module, notes = submission.load(TEXT, "mine.py")
    assert not notes
    with pytest.raises(ZeroDivisionError) as caught:
        module.f()
    assert submission.line_of(caught.value, "mine.py") == 18


def test_each_statement_for_itself() -> None:
    module, notes = submission.load(
        "import nothing_like_this\nx = 1\n# %%\ny = = 2\n# %%\nz = 3\nexit()\nw = 4", "mine.py"
    )
    assert (module.x, module.z, module.w) == (1, 3, 4)
    assert [note.split(":")[0] for note in notes] == ["line 1", "line 4", "line 7"]


@pytest.mark.parametrize("tags", ["[" * 100_000 + "]" * 100_000, '["a" 1', "[{]"])
def test_tags_that_are_none_are_a_sentence(tags: str) -> None:
    with pytest.raises(ValueError, match=r"line 2: tags=\["):
        cells.read_percent(f"x = 1\n# %% tags={tags}]\n")


def test_a_long_line_takes_no_longer_than_its_length() -> None:
    start = time.process_time()
    text = "x = = 1\n" + " " * 200_000 + "a\n" + "a " * 100_000
    assert cells.without_magics(text) == text
    assert time.process_time() - start < 2  # a minute, if every place in it began anew
