"""A stranger's query reads and writes nothing outside, learns nothing of the machine, and ends in time."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from inline_snapshot import snapshot

from tests.build import asked
from tracekit.errors import TracekitError
from tracekit.store import Limits, Store, source

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SECRET = "what-only-the-owner-knows"  # content of files that no query may show
a_frame_of_this_module = pl.DataFrame({"x": [SECRET]})
KERNELS = pl.DataFrame({"kernel_id": [0, 1, 2], "name": ["gemm", "flash_fwd", "gemm"], "dur_ns": [5, 20, 7]})


@pytest.fixture(scope="module", params=["nameless", "served"])
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    """Give a store over files of each kind: without a name where the system has such, and served by Python."""
    with pytest.MonkeyPatch.context() as patched:
        if request.param == "served":
            patched.setattr(source, "_MOST_NAMELESS", 0)
        elif not hasattr(os, "memfd_create"):
            pytest.skip("this system has no files without a name")
        with Store({"kernel": KERNELS.lazy()}, limits=Limits(seconds=20, memory="200MB")) as opened:
            assert (type(opened._source) is source.Nameless) == (request.param == "nameless")
            yield opened


@pytest.fixture(scope="module")
def state(store: Store) -> list[tuple[Any, ...]]:
    return _state(store)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder to work in that holds files of every kind DuckDB reads."""
    (tmp_path / "secret.txt").write_text(f"a,b\n1,{SECRET}\n")
    (tmp_path / "secret.csv").write_text(f"a,b\n1,{SECRET}\n")
    (tmp_path / "secret.json").write_text(f'[{{"a": "{SECRET}"}}]')
    pl.DataFrame({"a": [SECRET]}).write_parquet(tmp_path / "secret.parquet")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _state(store: Store) -> list[tuple[Any, ...]]:
    """Return all of the engine that a query could change for the next one."""
    return asked(
        store,
        """
        select 'setting' as kind, name, value::varchar from duckdb_settings()
        union all select 'view', view_name, sql from duckdb_views() where not internal
        union all select 'table', table_name, sql from duckdb_tables() where table_name <> '_held' -- this answer itself
        union all select 'function', function_name, macro_definition from duckdb_functions() where not internal
        union all select 'database', database_name, path from duckdb_databases()
        union all select 'variable', name, value::varchar from duckdb_variables()
        union all select 'statement', name, statement from duckdb_prepared_statements()
        union all select 'row', name, dur_ns::varchar from kernel
        order by all
        """,
    ).rows()


HELD = "{path}"
"""Stands in a hostile text for the path by which the engine reads the table kernel."""
WRITES = [
    f"copy (select 1) to '{HELD}'",
    f"copy (select 1) to '{HELD}' (format parquet)",
    f"with x as (copy (select 1) to '{HELD}' (format parquet)) select * from x",
    f"with x as (copy (select 1) to '{HELD}x') select * from x",
    f"attach '{HELD}' as y",
    "copy (select 1) to 'x.csv'",
    "copy kernel to 'x.parquet' (format parquet)",
    "copy kernel from 'secret.csv'",
    "COPY\u00a0(select 1) TO 'x.csv'",
    "with x as (copy (select 1) to 'x.csv') select * from x",
    "with x as materialized (copy (select 1) to 'x.csv') from x",
    "with a as (select 1), x as (copy a to 'x.csv') select * from a",
    "with recursive x as (copy (select 1) to 'x.csv') select * from x",
    "select * from (with x as (copy (select 1) to 'x.csv') select * from x)",
    "explain copy (select 1) to 'x.csv'",
    "explain analyze copy (select 1) to 'x.csv'",
    "explain analyze with x as (copy (select 1) to 'x.csv') select * from x",
    "explain (format json) select 1",
    "explain analyze select 1",
    "export database 'x'",
    "export database 'x' (format parquet)",
    "import database 'x'",
    "attach 'y.db'",
    "attach 'y.db' as y (type duckdb)",
    "attach ':memory:' as z",
    "detach memory",
    "checkpoint",
    "force checkpoint",
    "vacuum",
    "vacuum analyze",
    "select 1; copy (select 1) to 'x.csv'",
    "copy (select 1) to 'x.csv'; select 1",
    "select 1) to 'x.csv'",
    "select 1) ; copy (select 1) to 'x.csv' --",
    "select 1 -- \n; copy (select 1) to 'x.csv'",
    "select 1 /* ; */ ; copy (select 1) to 'x.csv' -- ;",
    "select 1 /* /* */ ; copy (select 1) to 'x.csv' /* */",
    "select 1\0; copy (select 1) to 'x.csv'",
    "select '\ud800'",
    "select $$ 1; copy (select 1) to 'x.csv'",
    "select 1\u2028; copy (select 1) to 'x.csv'",
    "select 1) as a, (select 2",
]
CHANGES = [
    "create table t (a int)",
    "create temp table t as select 1",
    "create or replace view kernel as select 1",
    "create or replace temp view kernel as select 1",
    "create macro f() as 1",
    "create function f(a) as table select a",
    "create schema s",
    "create sequence q",
    "create type mood as enum ('a')",
    "create index i on kernel (kernel_id)",
    "create secret s (type s3)",
    "create persistent secret s (type s3)",
    "drop secret s",
    "drop view kernel",
    "alter view kernel rename to k",
    "comment on view kernel is 'x'",
    "insert into kernel select * from kernel",
    "update kernel set name = 'x'",
    "delete from kernel",
    "truncate kernel",
    "merge into kernel using trace on true when matched then delete",
    "with x as (insert into kernel select * from kernel returning 1) select 1 from x",
    "with x as (update kernel set name = 'x' returning 1) from x",
    "with x as (delete from kernel returning 1) from x",
    "with x as (merge into kernel using trace on true when matched then delete returning 1) from x",
    "with x as (create table t as select 1) from x",
    "with x as (set threads = 1) from x",
    "set threads = 1",
    "set global memory_limit = '1TB'",
    "set session enable_external_access = true",
    "set lock_configuration = false",
    "set variable a = 1",
    "reset threads",
    "reset lock_configuration",
    "use temp",
    "pragma threads = 1",
    "pragma enable_profiling",
    "pragma database_list",
    "pragma table_info('kernel')",
    "call enable_logging()",
    "call pragma_version()",
    "install httpfs",
    "force install httpfs",
    "load httpfs",
    "load 'x.duckdb_extension'",
    "update extensions",
    "begin",
    "commit",
    "rollback",
    "prepare p as select 1",
    "execute p",
    "deallocate p",
    "pivot kernel on name",
    "from enable_logging()",
    "from enable_logging(storage = 'file', storage_path = 'logs')",
    "from enable_logging(level = 'trace', storage = 'stdout')",
    "from disable_logging()",
    "from enable_profiling(save_location = 'profile.json')",
    "from enable_profiling(format = 'json', save_location = 'profile.json', mode = 'detailed')",
    "from disable_profiling()",
    "from force_checkpoint()",
    "from add_grammar_extension('x')",
    "select nextval('q')",
    "select set_config('threads', '1')",
    "",
    " ",
    ";",
    "-- nothing",
    "selec 1",
    "kernel",
    "select * from no_such_table",
    "select no_such_column from kernel",
    "select error('x')",
]
READS = [
    f"select * from read_text('{HELD}/../../../../../../../../etc/passwd')",
    f"select * from read_text('{HELD}.txt')",
    "select * from glob('tracekit://*')",
    "select * from glob('tracekit://_kernel/*')",
    "select * from read_text('tracekit://../../etc/passwd')",
    "select * from read_blob('tracekit://_kernel/1.parquet')",
    "select * from glob('/proc/self/fd/*')",
    "select * from read_text('/proc/self/fd/0')",
    "select * from read_text('/proc/self/environ')",
    "select * from read_text('/proc/self/maps')",
    "select * from read_csv('secret.csv')",
    "select * from read_csv_auto(['secret.csv'])",
    "select * from read_csv('secret.csv', store_rejects = true)",
    "select * from sniff_csv('secret.csv')",
    "select * from read_text('secret.txt')",
    "select * from read_text('/etc/passwd')",
    "select * from read_text('~/.ssh/id_rsa')",
    "select * from read_text('file://secret.txt')",
    "select * from read_text('http://localhost:1/x')",
    "select * from read_text('s3://bucket/x')",
    "select * from read_blob('secret.*')",
    "select * from read_json('secret.json')",
    "select * from read_json_objects('secret.json')",
    "select * from read_ndjson('secret.json')",
    "select * from read_parquet('secret.parquet')",
    "select * from parquet_scan('secret.parquet')",
    "select * from parquet_metadata('secret.parquet')",
    "select * from parquet_schema('secret.parquet')",
    "select * from parquet_kv_metadata('secret.parquet')",
    "select * from parquet_file_metadata('secret.parquet')",
    "select * from parquet_bloom_probe('secret.parquet', 'a', 1)",
    "select * from read_duckdb('y.db')",
    "select * from glob('*')",
    "select * from glob('/*')",
    "select * from 'secret.csv'",
    'select * from "secret.parquet"',
    "from '/etc/passwd'",
    "from 'secret.json' limit 1",
    "select (select content from read_text('secret.txt'))",
    "select * from kernel where name in (select content from read_text('secret.txt'))",
    "with x as (from 'secret.csv') from x",
    "from query('from ''secret.csv''')",
    "from query('copy (select 1) to ''x.csv''')",
    "from query('select 1; select 2')",
    "from query('with x as (copy (select 1) to ''x.csv'') select * from x')",
    "from query_table('secret.csv')",
    "from query_table(['secret.csv'])",
    "from json_execute_serialized_sql(json_serialize_sql('from ''secret.csv'''))",
    "from destroy_external_resource('read_text', 'secret.txt')",
    "select * from a_frame_of_this_module",
    "select * from a_frame_of_this_test",
    "from query_table('a_frame_of_this_module')",
    "from pandas_scan()",
    "from arrow_scan(1, 2, 3)",
    "from arrow_scan(null, null, null)",
    "from pandas_scan(1::pointer)",
    "from python_map_function((select 1))",
    "select getenv('HOME')",
    "from duckdb_secrets(redact = false)",
]


@pytest.mark.parametrize("sql", [*WRITES, *CHANGES, *READS])
def test_a_hostile_text_is_refused_and_changes_nothing(
    store: Store, state: list[tuple[Any, ...]], folder: Path, sql: str
) -> None:
    a_frame_of_this_test = pl.DataFrame({"x": [SECRET]})
    files = _files(folder)
    with pytest.raises(TracekitError) as caught:
        asked(store, sql.replace(HELD, store._source._paths("kernel")[0]))
    assert SECRET not in str(caught.value)
    assert "\n" not in str(caught.value)
    assert _files(folder) == files
    assert _state(store) == state
    assert a_frame_of_this_test.height == 1


def test_no_function_of_the_engine_shows_a_file(store: Store, state: list[tuple[Any, ...]], folder: Path) -> None:
    files = _files(folder)
    names = asked(
        store,
        "select distinct function_name, function_type from duckdb_functions() "
        "where function_type <> 'aggregate' and function_name not like '%collate\\_%' escape '\\' order by all",
    ).rows()
    assert len(names) > 500
    for name, kind in names:
        call = f"\"{name}\"('secret.txt')"
        for path in ("secret.txt", "secret.csv", "secret.json", "secret.parquet"):
            text = call.replace("secret.txt", path)
            if kind.startswith("table"):
                assert SECRET not in _rows(store, f"from {text}")
            elif path == "secret.txt":
                assert SECRET not in _rows(store, f"select {text}::varchar")
    assert _files(folder) == files
    assert _state(store) == state


def _rows(store: Store, sql: str) -> str:
    """Return an answer's rows as text, nothing where there is no answer."""
    try:
        return repr(asked(store, sql).rows())
    except TracekitError:
        return ""


def test_no_query_learns_whose_machine_it_runs_on(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    for name in ("HOME", "USERPROFILE", "TMPDIR"):
        monkeypatch.setenv(name, str(folder / SECRET))
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy"):
        monkeypatch.setenv(name, f"http://user:{SECRET}@proxy:1")
    monkeypatch.setenv("TZ", "Asia/Kathmandu")
    with Store({}) as opened:
        seen = [
            _rows(opened, "select name, value::varchar from duckdb_settings(include_all = true)"),
            *(
                _rows(opened, f"select current_setting('{name}')")
                for name in ("secret_directory", "http_proxy", "temp_directory", "home_directory", "TimeZone")
            ),
            *(
                _rows(opened, f"select * from {function}()")
                for function in (
                    "duckdb_databases",
                    "duckdb_secrets",
                    "duckdb_extensions",
                    "duckdb_extension_repositories",
                    "duckdb_temporary_files",
                    "duckdb_logs",
                    "duckdb_external_file_cache",
                )
            ),
        ]
        assert (
            asked(opened, "select timezone('UTC', timestamptz '2020-01-01')::varchar").item() == "2020-01-01 00:00:00"
        )
    for answer in seen:
        assert SECRET not in answer
        assert "Kathmandu" not in answer


@pytest.mark.parametrize(
    "sql",
    [
        "select " + "(" * 100_000,
        "select " + "(" * 20_000,
        "select " + "[" * 1_000 + "1" + "]" * 1_000,
        "select " + "+ " * 10_000 + "1",
        "select " + "+/**/" * 10_000 + "1",
        "select " + "- + ~ " * 5_000 + "1",
        "select " + "1 + " * 200_000 + "1",
        "select '" + "x" * 200_000 + "'",
        "select * from " + "(select * from " * 1_000 + "kernel" + ")" * 1_000,
    ],
    ids=lambda sql: sql[:24],
)
def test_a_text_that_would_choke_the_parser_is_refused(store: Store, sql: str) -> None:
    with pytest.raises(TracekitError, match=r"nested more than 200 deep|longer than 100,000 characters"):
        asked(store, sql)


ENDLESS = [
    "select count(*) from range(1000000000000)",
    "select sum(a.range + b.range) from range(10000000) a, range(10000000) b",
    "with recursive r(n) as (select 1 union all select n + 1 from r) select max(n) from r",
    "select sleep_ms(60000)",
    "select levenshtein(repeat('a', 100000), repeat('b', 100000))",
    "select count(*) from range($n)",
]


@pytest.mark.parametrize("sql", ENDLESS)
def test_a_query_that_never_ends_is_stopped_and_the_next_one_is_answered(sql: str) -> None:
    with Store({"kernel": KERNELS.lazy()}, limits=Limits(seconds=1)) as opened:
        with pytest.raises(TracekitError) as caught:
            asked(opened, sql, {"n": 10**12} if "$n" in sql else None)
        assert str(caught.value) == snapshot(
            "the query ran longer than 1 s and was stopped: ask for less, or raise --timeout"
        )
        assert asked(opened, "select count(*) from kernel").item() == 3


@pytest.mark.parametrize(
    "sql",
    [
        "select * from range(1000000000000)",
        "with recursive r(n) as (select 1 union all select n + 1 from r) select n, repeat('x', 1000) from r",
        "select list(range) from range(1000000000)",
        "select string_agg(repeat('x', 1000), '') from range(100000000)",
        "select * from range(100000000) order by hash(range)",
        "select range % 7, count(distinct range) from range(1000000000) group by 1",
        "select repeat('x', 20000) from range(1000000)",
        "select repeat('x', 150000000)",
    ],
)
def test_a_query_that_wants_all_memory_is_stopped_and_the_next_one_is_answered(sql: str) -> None:
    with Store({"kernel": KERNELS.lazy()}, limits=Limits(seconds=60, memory="100MB")) as opened:
        with pytest.raises(TracekitError) as caught:
            asked(opened, sql)
        assert str(caught.value) == snapshot(
            "the query needs more than 100MB of memory: ask for less, or raise --memory-limit"
        )
        assert asked(opened, "select count(*) from kernel").item() == 3


def test_a_query_within_its_limits_is_not_stopped_by_those_before_it() -> None:
    with Store({"kernel": KERNELS.lazy()}, limits=Limits(seconds=2)) as opened:
        for _ in range(2):
            with pytest.raises(TracekitError, match="ran longer"):
                asked(opened, "select sleep_ms(60000)")
            assert asked(opened, "select sleep_ms(50), count(*) from kernel").row(0)[1] == 3


@pytest.mark.parametrize(
    "memory", ["", "lots", "4", "GB", "0GB", "-1GB", "1e9GB", "4 GB; select 1", "1GB'", "99999999TB", "٤GB", "1" * 400]
)
def test_a_limit_that_is_no_amount_of_memory_is_refused(memory: str) -> None:
    with pytest.raises(TracekitError, match="is no amount of memory: write it as 512MB or 4GB"):
        Store({}, limits=Limits(memory=memory))


@pytest.mark.parametrize("memory", ["512MB", "4 GB", "1.5gib", "300 MiB"])
def test_amounts_of_memory_are_read(memory: str) -> None:
    with Store({}, limits=Limits(memory=memory)) as opened:
        assert opened.scalar("select 1") == 1
