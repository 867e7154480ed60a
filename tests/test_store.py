"""The store answers any SELECT about a run's tables, and obeys the selection."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from inline_snapshot import snapshot

from tests.build import asked
from tracekit.errors import TracekitError
from tracekit.store import PHASES, Limits, Selection, Store, schema

if TYPE_CHECKING:
    from collections.abc import Iterator

KERNELS = pl.DataFrame(
    {
        "kernel_id": [0, 1, 2],
        "trace_id": [0, 0, 0],
        "name": ["gemm", "flash_fwd", "gemm"],
        "start_ns": [10, 30, 70],
        "dur_ns": [5, 20, 7],
        "args_json": ['{"a": {"b": [1, 2]}}', None, "{}"],
    }
)
TRACE = pl.DataFrame({"trace_id": [0], "rank": [0], "has_device": [True]})
TRACE_COLUMNS = [column.name for relation in schema() if relation.name == "trace" for column in relation.columns]


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    with Store({"kernel": KERNELS.lazy(), "trace": TRACE.lazy()}, limits=Limits(seconds=20, memory="200MB")) as opened:
        yield opened


@pytest.fixture
def fresh() -> Iterator[Store]:
    """Give a store that nothing was asked of, so that nothing is made in it."""
    with Store({"kernel": KERNELS.lazy(), "trace": TRACE.lazy()}) as opened:
        yield opened


@pytest.mark.parametrize(
    "sql",
    [
        "select count(*) from KERNEL",
        'select count(*) from "Kernel"',
        "select count(*) from main.work",
        "select count(*) from query_table('wo' || 'rk')",
        "select count(*) from kernel_of_any_step",
        "select 3 + count(*) from roof_signature(false)",
        "select 3 + count(*) from op, step, module",
        "select 3 + count(*) from cpu_op",
    ],
)
def test_a_table_is_there_however_it_is_named(fresh: Store, sql: str) -> None:
    assert asked(fresh, sql).item() == 3


@pytest.mark.parametrize(
    ("column", "catalog"),
    [
        ("view_name", "duckdb_views()"),
        ("table_name", "information_schema.tables"),
        ("relname", "pg_class"),
        ("name", "sqlite_master"),
        ("name", "(show tables)"),
        ("name", "(SHOW ALL TABLES)"),
        ("name", "(describe)"),
        ("name", "( desc )"),
    ],
)
def test_the_catalog_shows_every_table_whatever_was_asked_before(fresh: Store, column: str, catalog: str) -> None:
    shown = set(asked(fresh, f"select {column} from {catalog}").to_series().to_list())
    assert {relation.name for relation in schema()} <= shown | {"roof_signature"}


def test_a_name_that_is_not_there_brings_up_its_neighbours(fresh: Store) -> None:
    with pytest.raises(TracekitError, match='Did you mean "attention_call'):
        asked(fresh, "select * from attention_cal")


def test_threads_may_ask_at_once(fresh: Store) -> None:
    tables = ["work", "gemm_call", "roof_call", "op", "kernel", "launch", "step", "trace"] * 4
    with ThreadPoolExecutor(8) as pool:
        counts = list(pool.map(lambda name: fresh.scalar(f"select count(*) from {name}"), tables))
    assert counts == [3, 0, 0, 0, 3, 0, 0, 1] * 4


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("select count(*) from kernel", [(3,)]),
        ("from kernel select name limit 1", [("gemm",)]),
        ("with t as (select dur_ns from kernel) select sum(dur_ns)::bigint from t", [(32,)]),
        ("with recursive r(n) as (select 1 union all select n + 1 from r where n < 3) from r", [(1,), (2,), (3,)]),
        ("select name, row_number() over (order by dur_ns desc) from kernel order by 2 limit 1", [("flash_fwd", 1)]),
        ("select args_json->'a'->'b'->>0 from kernel order by kernel_id", [("1",), (None,), (None,)]),
        ("select name, count(*) as n from kernel group by all order by n desc", [("gemm", 2), ("flash_fwd", 1)]),
        (
            "select k.name from kernel k join trace t using (trace_id) where t.rank = 0 and k.dur_ns > 9",
            [("flash_fwd",)],
        ),
        ("values (1, 'a'), (2, 'b')", [(1, "a"), (2, "b")]),
        ("table trace", [tuple(TRACE.row(0, named=True).get(name) for name in TRACE_COLUMNS)]),
        ("(select 1) union all (select 2) order by 1", [(1,), (2,)]),
        ("pivot kernel on name in ('gemm') using sum(dur_ns)::bigint as ns group by trace_id", [(0, 12)]),
        ("select * from range(2)", [(0,), (1,)]),
        ("select list(name order by dur_ns) from kernel", [(["gemm", "gemm", "flash_fwd"],)]),
        ("select ';' as a, '--' as b -- ; select 2", [(";", "--")]),
        ("select 1;", [(1,)]),
        ("; select 1", [(1,)]),
        ("select 1;  -- what a file ends with\n", [(1,)]),
        ("/* a file\n begins */ select 1 /* so */ ; ;", [(1,)]),
        ("select\u00a01", [(1,)]),
        ("\ufeffselect 1", [(1,)]),
        ("select " + "(" * 90 + "1" + ")" * 90, [(1,)]),
    ],
)
def test_any_select_is_answered(store: Store, sql: str, rows: list[tuple[Any, ...]]) -> None:
    assert asked(store, sql).rows() == rows


@pytest.mark.parametrize("sql", ["describe kernel", "show tables", "summarize kernel", "from (describe kernel)"])
def test_words_about_tables_are_answered(store: Store, sql: str) -> None:
    assert asked(store, sql).height > 2


def test_parameters_are_values_never_text(store: Store) -> None:
    hostile = "'); drop view kernel; --"
    frame = asked(store, "select $a as a, $n + 1 as n, $flag as flag", {"a": hostile, "n": 1, "flag": True})
    assert frame.rows() == [(hostile, 2, True)]


@pytest.mark.parametrize("params", [{}, {"b": 1}, {"a": 1, "b": 2}])
def test_parameters_that_do_not_match_are_a_fault(store: Store, params: dict[str, int]) -> None:
    with pytest.raises(TracekitError, match=r"SQL: .*[Pp]arameter"):
        asked(store, "select $a", params)


def test_columns_of_one_name_are_kept_apart(store: Store) -> None:
    frame = asked(store, "select 1 as a, 2 as a, 3 as A from trace")
    assert len(set(frame.columns)) == 3
    assert frame.row(0) == (1, 2, 3)


def test_an_answer_without_rows_keeps_its_columns_and_types(store: Store) -> None:
    assert asked(store, "select name, dur_ns from kernel where false").schema == {"name": pl.String, "dur_ns": pl.Int64}


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("interval 1 day", "INTERVAL"),
        ("[interval 1 day]", "INTERVAL[]"),
        ("union_value(a := 1)", "UNION(a INTEGER)"),
    ],
)
def test_a_type_that_no_table_holds_is_named(store: Store, value: str, kind: str) -> None:
    with pytest.raises(TracekitError) as caught:
        asked(store, f"select 1 as fine, {value} as odd")
    assert str(caught.value) == f"column odd is of type {kind}, which no table holds: cast it, as in x::varchar"


def test_scalar_and_holds_ask_for_one_value(store: Store) -> None:
    assert store.scalar("select max(dur_ns) from kernel") == 20
    assert store.scalar("select dur_ns from kernel where false") is None
    assert store.holds("kernel", "dur_ns")
    assert not store.holds("kernel", "family")
    assert not store.holds("op", "op_id")


# -- Tables ------------------------------------------------------------------------------------------------------


def test_a_run_without_tables_has_every_table_empty_and_typed() -> None:
    types = {"BIGINT": pl.Int64, "VARCHAR": pl.String, "BOOLEAN": pl.Boolean, "DOUBLE": pl.Float64}
    types |= {"BIGINT[]": pl.List(pl.Int64), "MAP(VARCHAR, VARCHAR)": pl.Map(pl.String, pl.String)}
    types |= {"MAP(VARCHAR, DOUBLE)": pl.Map(pl.String, pl.Float64)}
    with Store({}) as opened:
        for relation in schema():
            frame = asked(opened, f"select * from {relation.name}")
            assert frame.height == 0
            assert dict(frame.schema) == {column.name: types[column.type] for column in relation.columns}


def test_a_column_that_is_missing_is_null_and_one_too_many_is_not_shown() -> None:
    with Store({"op": pl.DataFrame({"op_id": [7], "unheard_of": [1]}), "unheard_of": KERNELS}) as opened:
        row = asked(opened, "select * from op").row(0, named=True)
        assert row.pop("op_id") == 7
        assert set(row.values()) == {None}
        with pytest.raises(TracekitError, match="unheard_of"):
            asked(opened, "select unheard_of from op")
        with pytest.raises(TracekitError, match="unheard_of"):
            asked(opened, "select * from unheard_of")


def test_every_column_of_the_live_views_has_its_comment(store: Store) -> None:
    columns = asked(
        store,
        "select table_name, column_name, comment from duckdb_columns() "
        "where not internal and schema_name = 'main' and table_name not like '\\_%' escape '\\'",
    )
    documented = {(column.table, column.name): column.doc for relation in schema() for column in relation.columns}
    assert {(table, name): comment for table, name, comment in columns.rows()} == documented
    assert all(documented.values())
    views = asked(store, "select view_name, comment from duckdb_views() where not internal and not temporary")
    assert dict(views.rows()) == {relation.name: relation.doc for relation in schema()}


def test_every_macro_has_its_comment(store: Store) -> None:
    macros = asked(store, "select function_name, comment from duckdb_functions() where not internal")
    assert macros["function_name"].to_list() == ["roof_signature"]
    assert all(text.endswith(".") for text in macros["comment"])


def test_frames_and_lazy_frames_are_the_same_table() -> None:
    with Store({"kernel": KERNELS}) as eager, Store({"kernel": KERNELS.lazy()}) as lazy:
        text = "select * from kernel order by kernel_id"
        assert asked(eager, text).equals(asked(lazy, text))


# -- Selection ---------------------------------------------------------------------------------------------------

# Two ranks, each with the steps 2 (0 to 100 ns) and 3 (100 to 200 ns). Every step has one row with phase forward at
# 10 ns and one with phase backward at 50 ns; row 8 lies outside all steps, in rank 0.
ROW_STEPS = [0, 0, 1, 1, 2, 2, 3, 3, None]
ROWS = pl.DataFrame(
    {
        "id": range(9),
        "trace_id": [0, 0, 0, 0, 1, 1, 1, 1, 0],
        "step_id": pl.Series(ROW_STEPS, dtype=pl.Int64),
        "phase": ["forward", "backward"] * 4 + ["optimizer"],
        "start_ns": [10, 50, 110, 150, 10, 50, 110, 150, 250],
    }
).with_columns(op_id=pl.col("id"))
TWO_RANKS: dict[str, pl.DataFrame] = {
    "trace": pl.DataFrame({"trace_id": [0, 1], "rank": [0, 1], "has_device": [True, True]}),
    "step": pl.DataFrame(
        {
            "step_id": [0, 1, 2, 3],
            "trace_id": [0, 0, 1, 1],
            "number": [2, 3, 2, 3],
            "start_ns": [0, 100, 0, 100],
            "dur_ns": [100] * 4,
        }
    ),
    "module": pl.DataFrame({"module_id": [0, 1], "trace_id": [0, 1]}),
    "quality": pl.DataFrame({"count": [0, 1], "trace_id": [0, 1]}),
    "memory_sample": ROWS.select("trace_id", time_ns="start_ns", allocated_bytes="id"),
    "batch": ROWS.select("trace_id", "step_id", ordinal="id"),
    "op": ROWS,
    "kernel": ROWS.rename({"id": "kernel_id"}),
    "attention_call": ROWS.rename({"id": "call_id"}),
    "launch": ROWS.rename({"id": "launch_id"}).drop("phase"),
    "frame": ROWS.select("trace_id", "start_ns", frame_id="id"),
    "allocation": ROWS.rename({"id": "allocation_id"}),
    "collective": ROWS.rename({"id": "collective_id"}),
    "workload": ROWS.select("trace_id", "start_ns", workload_id="id"),
    "other_event": ROWS.select("trace_id", "start_ns", dur_ns="id"),
}
ID_OF = {
    "memory_sample": "allocated_bytes", "batch": "ordinal", "quality": "count", "other_event": "dur_ns",
    "attention_call": "call_id", "work": "work_id",
}  # fmt: skip


def _shown(selection: Selection) -> dict[str, str]:
    """Return for each table the ids of the rows that a selection shows, as one word."""
    with Store(TWO_RANKS, selection) as opened:
        shown = {}
        for table in [*TWO_RANKS, "work"]:
            id_name = ID_OF.get(table, f"{table}_id")
            ids = asked(opened, f"select {id_name} from {table} order by 1")[id_name]
            shown[table] = "".join(str(number) for number in ids)
    return shown


def test_without_a_selection_everything_is_shown() -> None:
    shown = _shown(Selection())
    assert (shown.pop("trace"), shown.pop("step"), shown.pop("module"), shown.pop("quality")) == (
        "01",
        "0123",
        "01",
        "01",
    )
    assert set(shown.values()) == {"012345678"}


def test_steps_select_rows_by_step_or_by_time() -> None:
    assert _shown(Selection(steps=frozenset({3}))) == snapshot(
        {
            "trace": "01",
            "step": "13",
            "module": "01",
            "quality": "01",
            "memory_sample": "2367",
            "batch": "2367",
            "op": "2367",
            "kernel": "2367",
            "attention_call": "2367",
            "launch": "2367",
            "frame": "2367",
            "allocation": "2367",
            "collective": "2367",
            "workload": "2367",
            "other_event": "2367",
            "work": "2367",
        }
    )


def test_ranks_select_rows_by_trace() -> None:
    assert _shown(Selection(ranks=frozenset({1}))) == snapshot(
        {
            "trace": "1",
            "step": "23",
            "module": "1",
            "quality": "1",
            "memory_sample": "4567",
            "batch": "4567",
            "op": "4567",
            "kernel": "4567",
            "attention_call": "4567",
            "launch": "4567",
            "frame": "4567",
            "allocation": "4567",
            "collective": "4567",
            "workload": "4567",
            "other_event": "4567",
            "work": "4567",
        }
    )


def test_phases_select_rows_by_phase_or_by_op() -> None:
    assert _shown(Selection(phases=frozenset({"backward"}))) == snapshot(
        {
            "trace": "01",
            "step": "0123",
            "module": "01",
            "quality": "01",
            "memory_sample": "012345678",
            "batch": "012345678",
            "op": "1357",
            "kernel": "1357",
            "attention_call": "1357",
            "launch": "1357",
            "frame": "012345678",
            "allocation": "1357",
            "collective": "1357",
            "workload": "012345678",
            "other_event": "012345678",
            "work": "1357",
        }
    )


def test_steps_ranks_and_phases_narrow_each_other() -> None:
    assert _shown(Selection(frozenset({2}), frozenset({0}), frozenset({"forward"}))) == snapshot(
        {
            "trace": "0",
            "step": "0",
            "module": "0",
            "quality": "0",
            "memory_sample": "01",
            "batch": "01",
            "op": "0",
            "kernel": "0",
            "attention_call": "0",
            "launch": "0",
            "frame": "01",
            "allocation": "0",
            "collective": "0",
            "workload": "01",
            "other_event": "01",
            "work": "0",
        }
    )


@settings(max_examples=10, deadline=None)
@given(
    steps=st.frozensets(st.sampled_from([2, 3])),
    ranks=st.frozensets(st.sampled_from([0, 1])),
    phases=st.frozensets(st.sampled_from(PHASES)),
)
def test_work_is_selected_as_its_columns_say(
    steps: frozenset[int], ranks: frozenset[int], phases: frozenset[str]
) -> None:
    by_step = {0: 2, 1: 3, 2: 2, 3: 3, None: None}
    expected = [
        row["id"]
        for row in ROWS.iter_rows(named=True)
        if (not steps or by_step[row["step_id"]] in steps)
        and (not ranks or row["trace_id"] in ranks)
        and (not phases or row["phase"] in phases)
    ]
    with Store(TWO_RANKS, Selection(steps, ranks, phases)) as opened:
        assert asked(opened, "select work_id from work order by 1")["work_id"].to_list() == expected


@pytest.mark.parametrize(
    ("selection", "message"),
    [
        (
            Selection(steps=frozenset({2, 7, 9})),
            "the run has no step 7: it has 2, 3",
        ),
        (Selection(ranks=frozenset({5})), "the run has no rank 5: it has 0, 1"),
    ],
)
def test_a_selection_of_what_the_run_has_not_is_refused(selection: Selection, message: str) -> None:
    with pytest.raises(TracekitError) as caught:
        Store(TWO_RANKS, selection)
    assert str(caught.value) == message
    assert os.linesep not in message
