"""The worker returns values, and says where an error arose and which assertion failed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from minorm.labs import cells
from minorm.labs.beside import Beside
from minorm.labs.calling import submission
from minorm.labs.calling.student import Failure, Here
from minorm.labs.calling.worker import Absent, run_tests
from minorm.labs.remote import Remote

LAB = Beside("minorm.labs.beside.lab00_axes")
TEXT = """\
# %% [markdown]
# # Title

# %%
import os

# %% tags=["plot"]
raise SystemExit

# %%
def broken(x):
    # a comment
    return x / None


# %%
def test_first(norm):
    assert norm.f(1) == 2, "twice"


def test_second(norm):
    y = norm.f(2)

    assert y == 5
"""
NOTEBOOK = cells.to_notebook(cells.read_percent(TEXT))


def here(text: str, file: str) -> Here:
    return Here(submission.load(text, file)[0], LAB)


@pytest.mark.parametrize(
    ("text", "file", "said"),
    [(TEXT, "mine.py", "line 13: TypeError"), (NOTEBOOK, "mine.ipynb", "cell 3, line 3: TypeError")],
)
def test_an_error_names_the_cell_of_a_notebook_and_the_line(text: str, file: str, said: str) -> None:
    """Cells of code count as Jupyter counts them when it runs all: text does not, a plot does."""
    with pytest.raises(Failure, match=f"^{said}"):
        here(text, file).broken(1)
    with Remote(text, file, LAB, 0) as remote:
        remote.allow(20)
        with pytest.raises(Failure, match=f"^{said}"):
            remote.broken(1)


def test_a_statement_that_fails_names_its_cell() -> None:
    notebook = json.loads(NOTEBOOK)
    notebook["cells"][1]["source"] = ["import os\n", "import not_there\n"]
    notebook["cells"][4]["source"] = ["x = 1\n", "\n", "y = = 2\n"]
    _, notes = submission.load(json.dumps(notebook), "mine.ipynb")
    assert [note.split(":")[0] for note in notes] == ["cell 1, line 2", "cell 4, line 3"]


@pytest.mark.parametrize(
    ("answer", "text", "file", "said"),
    [
        (lambda x: 3 * x, TEXT, "mine.py", "line 18: AssertionError: twice, in: assert norm.f(1) == 2"),
        (lambda x: 2 * x, TEXT, "mine.py", "line 24: AssertionError, in: assert y == 5"),
        (lambda x: 2 * x, NOTEBOOK, "mine.ipynb", "cell 4, line 8: AssertionError, in: assert y == 5"),
    ],
)
def test_a_failed_assertion_of_the_students_tests_is_shown(answer: Any, text: str, file: str, said: str) -> None:
    module, _ = submission.load(text, file)
    (*_, last) = run_tests(module, Absent(lambda _name, args, _options: answer(*args)))
    assert last["error"].startswith(said)
