"""An answer says what every column means, or it is none."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import polars as pl
import pytest

from tracekit.table import Note, Table

FRAME = pl.DataFrame({"kernel": ["gemm"], "total_ns": [5]})
DOCS = {"kernel": "Name.", "total_ns": "Summed duration."}


def test_a_table_holds_rows_meanings_and_notes() -> None:
    note = Note("estimated", "Guessed.")
    table = Table("top", FRAME, DOCS, (note,))
    assert (table.name, table.frame.rows(), table.docs, table.notes) == ("top", [("gemm", 5)], DOCS, (note,))


def test_a_table_has_no_notes_unless_given() -> None:
    assert Table("top", FRAME, DOCS).notes == ()


@pytest.mark.parametrize(
    "docs",
    [
        {"kernel": "Name."},
        {**DOCS, "share_frac": "Share."},
        {"kernel": "Name.", "sum_ns": "Summed duration."},
        {"total_ns": "Summed duration.", "kernel": "Name."},
        {},
    ],
    ids=["one missing", "one too many", "another name", "another order", "none"],
)
def test_meanings_that_are_not_those_of_the_columns_are_refused(docs: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"top: documented columns .* are not \['kernel', 'total_ns'\]"):
        Table("top", FRAME, docs)


def test_a_table_does_not_change() -> None:
    table = Table("top", FRAME, DOCS)
    with pytest.raises(FrozenInstanceError):
        table.name = "bottom"  # type: ignore[misc]
