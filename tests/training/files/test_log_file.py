"""log.csv reads back to the bits that were written, and an error names a file that is not a log."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minorm.training import read_log
from minorm.training.files.log_file import COLUMNS, Row, log

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


def test_a_log_of_before_calls_validation_test(tmp_path: Path) -> None:
    """Also the rows of a checkpoint, and programs that ask for the old names."""
    (tmp_path / "log.csv").write_text(
        "epoch,learning_rate,train_loss,train_accuracy,test_loss,test_accuracy\n1,0.1,2.0,0.5,3.0,0.25\n"
    )
    (row,) = read_log(str(tmp_path))
    assert row == dict(zip(COLUMNS, (1, 0.1, 2.0, 0.5, 3.0, 0.25), strict=True))
    assert (row["test_loss"], row["test_accuracy"]) == (3.0, 0.25)
    assert Row.of({"epoch": 1, "test_loss": 2.0}) == {"epoch": 1, "val_loss": 2.0}
    with pytest.raises(KeyError, match="test_speed"):
        row["test_speed"]


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
