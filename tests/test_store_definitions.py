"""SQL of tracekit's own finds what it names, however it is written, and whatever went wrong with a question before."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest

from tests.build import asked
from tracekit.attention.devices.lookups import Lookup, lookups
from tracekit.store import Store

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

TABLES = {
    "trace": pl.DataFrame({"trace_id": [0], "rank": [0], "device_name": ["NVIDIA H100 80GB HBM3"]}),
    "kernel": pl.DataFrame({"kernel_id": [0, 1, 2], "trace_id": [0, 0, 0], "dur_ns": [5, 20, 7]}),
}


@pytest.mark.parametrize(
    "sql",
    [
        "select count(*) as n from kernel",
        "-- What it does.\nwith x as (select count(*) as n from kernel)\nselect n from x",
        "/* What\nit does. */ with x as (select count(*) as n from kernel) select n from x",
        "with recursive x as (select 0 as i union all select i + 1 from x where i < 3) select max(i) as n from x, kernel",
        "-- with\nWITH RECURSIVE x AS (select 1) select count(*) as n from KERNEL, x",
        "/* don't */ select count(*) as n from kernel /* isn't */",
        "select count(*) as n from kernel -- isn't",
        """select count(*) as n from "kernel" where 'it''s' <> 'a -- b'""",
        """select "it's" as n from (select count(*) as "it's" from kernel) where 'x' = 'x'""",
        "select count(*) as n from kernel left join step using (trace_id) join trace using (trace_id)",
        "select count(*) as n from work where name is null",
        "select count(*) + 2 as n from device_spec",
    ],
)
def test_own_sql_finds_what_it_names(sql: str) -> None:
    with Store(TABLES, lookups=lookups()) as store:
        assert store.own(sql)["n"].to_list() == [3]


def test_a_question_that_is_interrupted_does_not_spoil_the_next() -> None:
    residency, fails = lookups()["residency"], [True, True]

    def rows(found: Sequence[Any]) -> Sequence[Any]:
        if fails and fails.pop():
            raise KeyboardInterrupt
        return residency.rows(found)

    both = "select count(*) as n from device_spec, (select count(*) from residency)"
    with Store(TABLES, lookups=lookups() | {"residency": Lookup(residency.sql, rows)}) as store:
        for ask in (store.own, store.ask):
            with pytest.raises(KeyboardInterrupt):
                ask(both)
        assert store.own(both)["n"].to_list() == [1]
        assert asked(store, both).item() == 1
        assert asked(store, "select count(*) from device_spec").item() == 1


def test_a_lookup_may_read_another() -> None:
    reading = Lookup("select trace_id from device_spec", lambda _: [])
    with Store(TABLES, lookups=lookups() | {"residency": reading}) as store:
        assert store.own("select count(*) as n from device_spec, (select count(*) from residency)")["n"].to_list() == [
            1
        ]
