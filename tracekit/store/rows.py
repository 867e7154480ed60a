"""What is taken of an answer's rows: plain values where these are few and simple, else a Polars frame.

Owns which types are simple. The rows are held by the engine first, which keeps to its limit of memory as no reader of
a stream would.
"""

from __future__ import annotations

from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Any

from tracekit.table import Rows

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    import duckdb
    import polars as pl

    Values = Mapping[str, Any] | None
    Taker = Callable[[duckdb.DuckDBPyConnection, str, Values], Any]
    """What runs a SELECT with its parameters, and takes its rows."""

_HELD = "_held"
_FEW = 10_000
"""More rows are made a frame sooner than they are made Python's values."""
_SIMPLE = {
    "BOOLEAN": "Boolean", "TINYINT": "Int8", "SMALLINT": "Int16", "INTEGER": "Int32", "BIGINT": "Int64",
    "HUGEINT": "Int128", "UTINYINT": "UInt8", "USMALLINT": "UInt16", "UINTEGER": "UInt32", "UBIGINT": "UInt64",
    "DOUBLE": "Float64", "VARCHAR": "String",
}  # fmt: skip
"""Types whose values are the same in Python and in a frame, and what Polars calls them."""
_OBJECT = "Object"
_TOO_WIDE = 10**38


def plain(
    con: duckdb.DuckDBPyConnection,
    text: str,
    values: Values,
    names: Sequence[str] | None = None,
    shown: Collection[str] | None = None,
) -> Rows | pl.DataFrame:
    """Return the rows of a SELECT, with their columns by other names if these are given.

    Columns that are not shown, if any are named that are, may be of any type: they are for Python alone.
    """
    with _holding(con, text, values):
        kinds = {name: kind for name, kind, *_ in con.execute(f"describe {_HELD}").fetchall()}
        ((height,),) = con.execute(f"select count(*) from {_HELD}").fetchall()
        types = [_SIMPLE.get(kind, "") or (shown and name not in shown and _OBJECT) for name, kind in kinds.items()]
        if height <= _FEW and all(types):
            rows = con.execute(f"from {_HELD}").fetchall()
            if "HUGEINT" not in kinds.values() or not any(map(_is_too_wide, chain.from_iterable(rows))):
                return Rows(dict(zip(names or kinds, map(str, types), strict=True)), rows)
        frame = _frame(con)
        return frame.rename(dict(zip(frame.columns, names, strict=True))) if names else frame


def framed(con: duckdb.DuckDBPyConnection, text: str, values: Values) -> pl.DataFrame:
    """Return the rows of a SELECT as a frame."""
    with _holding(con, text, values):
        return _frame(con)


def named_rows(con: duckdb.DuckDBPyConnection, text: str, values: Values) -> list[dict[str, Any]]:
    """Return the rows of a SELECT, which are few, by name of column."""
    found = con.execute(text, dict(values or {})).fetchall()
    names = [name for name, *_ in con.description or ()]
    return [dict(zip(names, row, strict=True)) for row in found]


def first_row(con: duckdb.DuckDBPyConnection, text: str, values: Values) -> tuple[Any, ...] | None:
    """Return the first row of a SELECT, None if it has none."""
    row: tuple[Any, ...] | None = con.execute(text, dict(values or {})).fetchone()
    return row


def _is_too_wide(value: object) -> bool:
    """Return whether a number has more digits than the decimals of a frame."""
    return isinstance(value, int) and abs(value) >= _TOO_WIDE


@contextmanager
def _holding(con: duckdb.DuckDBPyConnection, text: str, values: Values) -> Iterator[None]:
    con.execute(f"create or replace temp table {_HELD} as\n{text}", dict(values or {}))
    try:
        yield
    finally:
        con.execute(f"drop table {_HELD}")


def _frame(con: duckdb.DuckDBPyConnection) -> pl.DataFrame:
    import duckdb  # noqa: F401 - gives connections their relations, which engine.py leaves out
    import polars as pl

    return pl.DataFrame(con.sql(f"select * from {_HELD}"))
