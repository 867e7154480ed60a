"""Plain values: exact whatever DuckDB and Polars made of them."""

import duckdb
import polars as pl
import pytest

from tracekit.render.frames import plain_values
from tracekit.render.values import json_text


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("sum(x)", "3"),
        ("170141183460469231731687303715884105727::hugeint", str(2**127 - 1)),
        ("[sum(x)]", "[3]"),
        ("{'total': sum(x)}", '{"total":3}'),
        ("map{'total': sum(x)}", '{"total":3}'),
        ("sum(x * 1.5)", "4.5"),
        ("timestamp_ns '2024-01-02 03:04:05.123456789'", '"2024-01-02T03:04:05.123456789"'),
        ("time '01:02:03'", '"01:02:03"'),
        ("'dense'::enum('dense', 'sparse')", '"dense"'),
        ("'ab'::blob", '"YWI="'),
        ("'nan'::double", "null"),
        ("null", "null"),
    ],
)
def test_what_duckdb_answers_is_plain_and_exact(expression: str, expected: str) -> None:
    with duckdb.connect() as connection:
        query = f"select {expression} as value from (values (1::bigint), (2)) as t (x)"
        frame = pl.DataFrame(connection.sql(query))
    assert json_text(plain_values(frame)["value"].to_list()[0]) == expected


def test_integers_deep_inside_are_integers() -> None:
    dtype = pl.List(pl.Struct({"a": pl.Array(pl.Decimal(38, 0), 2)}))
    frame = pl.DataFrame({"deep": pl.Series([[{"a": [10**30, None]}]], dtype=dtype)})
    assert plain_values(frame)["deep"].to_list() == [[{"a": [10**30, None]}]]
    assert plain_values(frame).schema["deep"] == pl.List(pl.Struct({"a": pl.Array(pl.Int128, 2)}))
