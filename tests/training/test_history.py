"""log.csv reads back to the bits that were written, and what is no log is named."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minorm.training import read_log
from minorm.training.history import COLUMNS, log

NUMBER = st.floats(allow_nan=False)
ROWS = st.lists(
    st.tuples(st.integers(1, 99), NUMBER, NUMBER, st.none() | NUMBER, NUMBER, st.none() | NUMBER), max_size=5
)


@given(rows=ROWS)
def test_a_log_reads_back(rows: list[tuple[float | None, ...]], tmp_path_factory: pytest.TempPathFactory) -> None:
    history = [dict(zip(COLUMNS, row, strict=True)) for row in rows]
    folder = tmp_path_factory.mktemp("log")
    (folder / "log.csv").write_text(log(history))
    assert read_log(str(folder)) == history
    assert read_log(str(folder / "log.csv")) == history


def test_what_is_no_log_is_said(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"log\.csv"):
        read_log(str(tmp_path))
    for text, said in (
        ("", "columns None"),
        ("a\rb", "is no log.csv: new-line character"),
        (log([]) + "1\r2\n", "no row of numbers: new-line character"),
        (log([]) + "one,2,3,4,5,6\n", "invalid literal"),
        (log([]) + "1\n", "line"),
    ):
        (tmp_path / "log.csv").write_text(text)
        with pytest.raises(ValueError, match=said):
            read_log(str(tmp_path))
