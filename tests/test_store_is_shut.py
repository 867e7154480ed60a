"""A stranger's query reads and writes nothing outside, learns nothing of the machine, and ends in time."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from inline_snapshot import snapshot

from tests.build import asked
from tests.hostile_sql import CHANGES, HELD, READS, WRITES
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
