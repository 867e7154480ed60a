"""Where the engine reads a run's tables from: files without a name, or served by Python, which are the same tables."""

from __future__ import annotations

import io
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from tests.build import asked
from tracekit import __version__, bundle
from tracekit.attention.devices.lookups import Lookup, lookups
from tracekit.errors import TracekitError
from tracekit.loading import load, open_tables
from tracekit.loading.opening import Tables
from tracekit.render import render
from tracekit.store import Limits, Selection, Store, schema, source
from tracekit.store.rows import _FEW
from tracekit.table import Table

if TYPE_CHECKING:
    from collections.abc import Mapping

SAMPLE = Path(__file__).parents[1] / "sample_traces" / "train.json.gz"
NAMELESS = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="this system has no files without a name")


def parquet(frame: pl.DataFrame) -> bytes:
    file = io.BytesIO()
    frame.write_parquet(file)
    return file.getvalue()


def parts(count: int) -> Tables:
    """Make a run whose kernels lie in so many files, one a file."""
    kernels = {
        f"tables/kernel/{number:05}.parquet": parquet(pl.DataFrame({"kernel_id": [number], "dur_ns": [2 * number]}))
        for number in range(count)
    }
    return Tables({"trace": {"tables/trace.parquet": parquet(pl.DataFrame({"trace_id": [0]}))}, "kernel": kernels})


def nameless() -> int:
    """Count the files without a name that this process holds."""
    found = 0
    for link in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # the one that lists them is gone
            found += str(link.readlink()).startswith("/memfd:")
    return found


@NAMELESS
def test_a_run_of_few_files_has_no_names_and_gives_them_back() -> None:
    before = nameless()
    with Store(parts(20)) as store:
        assert isinstance(store._source, source.Nameless)
        assert asked(store, "select count(*), sum(dur_ns)::bigint from kernel").row(0) == (20, 380)
        assert nameless() == before + 21
    assert nameless() == before


@NAMELESS
def test_a_file_that_is_filled_is_sealed() -> None:
    with Store(parts(1)) as store:
        path = store._source._paths("kernel")[0]  # type: ignore[attr-defined]
        assert asked(store, "select count(*) from kernel").item() == 1
        with pytest.raises(PermissionError), Path(path).open("r+b") as file:
            file.write(b"x")


@NAMELESS
def test_a_run_of_very_many_files_is_served() -> None:
    many = source._MOST_NAMELESS + 1
    before = nameless()
    with Store(parts(many)) as store:
        assert not isinstance(store._source, source.Nameless)
        assert asked(store, "select count(*), sum(dur_ns)::bigint from kernel").row(0) == (many, many * (many - 1))
        assert nameless() == before


@NAMELESS
def test_a_run_reads_no_file_of_another_run() -> None:
    with Store(parts(3)) as store, Store(parts(3)) as other:
        assert asked(other, "select count(*) from kernel").item() == 3
        held = [path for name in ("kernel", "trace") for path in other._source._paths(name)]  # type: ignore[attr-defined]
        theirs = os.memfd_create("kernel")
        held += [f"/proc/self/fd/{theirs}", f"/proc/{os.getpid()}/fd/{held[0].rpartition('/')[2]}"]
        for path in held:
            for reader in ("read_parquet", "read_blob"):
                with pytest.raises(TracekitError, match="a query sees the run's tables alone"):
                    asked(store, f"from {reader}('{path}')")
        os.close(theirs)


@NAMELESS
def test_a_run_is_served_where_the_system_gives_no_more_files(monkeypatch: pytest.MonkeyPatch) -> None:
    before, given = nameless(), os.memfd_create

    def scarce(name: str, flags: int) -> int:
        if nameless() > before + 4:
            raise OSError(24, "Too many open files")
        return given(name, flags)

    monkeypatch.setattr(os, "memfd_create", scarce)
    with Store(parts(20)) as store:
        assert nameless() == before
        assert asked(store, "select count(*) from kernel").item() == 20


@NAMELESS
def test_a_store_that_can_t_be_opened_keeps_nothing() -> None:
    before = nameless()
    for selection, limits in ((Selection(ranks=frozenset({7})), None), (None, Limits(memory="lots"))):
        with pytest.raises(TracekitError) as caught:
            Store(parts(5), selection, limits)
        assert nameless() == before
        del caught


def test_what_is_made_for_a_question_keeps_to_the_limits_too() -> None:
    endless = Lookup("select sum(a.range + b.range) from range(10000000) as a, range(10000000) as b", list)
    with Store(parts(1), limits=Limits(seconds=0.5), lookups={"residency": endless}) as store:
        with pytest.raises(TracekitError, match=r"ran longer than 0\.5 s"):
            asked(store, "from residency")
        assert asked(store, "select count(*) from kernel").item() == 1


DIFFERING = {
    "a column more": {"kernel_id": [1], "dur_ns": [2], "name": ["a"]},
    "a column less": {"kernel_id": [1]},
    "another type": {"kernel_id": [1], "dur_ns": [1.6]},
}


@pytest.mark.parametrize("most", [0, 256])
@pytest.mark.parametrize("difference", DIFFERING)
def test_parts_that_differ_are_no_table(monkeypatch: pytest.MonkeyPatch, difference: str, most: int) -> None:
    monkeypatch.setattr(source, "_MOST_NAMELESS", most)
    halves = [{"kernel_id": [0], "dur_ns": [1]}, DIFFERING[difference]]
    kernels = {f"tables/kernel/{place}.parquet": parquet(pl.DataFrame(half)) for place, half in enumerate(halves)}
    with Store(Tables({"kernel": kernels}, "x.tkb")) as store:
        for ask in (asked, asked, Store.rows, Store.rows, asked):  # and no later question is told less
            with pytest.raises(TracekitError, match=r"differ: load the trace again$"):
                ask(store, "select sum(dur_ns), count(name) from kernel")


@pytest.mark.parametrize("selection", [Selection(ranks=frozenset({0})), Selection(steps=frozenset({0}))])
def test_a_damaged_table_that_is_selected_by_is_named(selection: Selection) -> None:
    broken = b"PAR1" + bytes(500) + b"PAR1"
    tables = {name: {f"tables/{name}.parquet": broken} for name in ("trace", "step")}
    with pytest.raises(TracekitError, match=r"x\.tkb: entry tables/(trace|step)\.parquet is no Parquet file"):
        Store(Tables(tables, "x.tkb"), selection)


def test_a_table_that_can_t_be_made_of_the_others_is_named() -> None:
    ops = pl.LazyFrame({"op_id": ["text"]})
    tables = Tables({}, "x.tkb").also("product", lambda: ops.select(pl.col("op_id").cast(pl.Int64)))
    with Store(tables) as store, pytest.raises(TracekitError) as caught:
        asked(store, "from product")
    assert str(caught.value) == "x.tkb: table product can't be made of the others: load the trace again"


def test_both_give_every_table_of_a_real_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load(SAMPLE, tmp_path / "run.tkb")
    answers = []
    for most in (0, source._MOST_NAMELESS):
        monkeypatch.setattr(source, "_MOST_NAMELESS", most)
        with Store(open_tables(tmp_path / "run.tkb")) as store:
            answers.append({one.name: asked(store, f"from {one.name} order by all") for one in schema()})
    assert sum(frame.height > 0 for frame in answers[0].values()) > 10
    for name in answers[0]:
        assert_frame_equal(answers[0][name], answers[1][name])


def test_every_table_is_what_polars_reads(tmp_path: Path) -> None:
    load(SAMPLE, tmp_path / "run.tkb")
    tables = open_tables(tmp_path / "run.tkb")
    with Store(tables) as store:
        for name, lazy in tables.items():
            expected = lazy.cast({pl.Categorical: pl.String}).collect()
            plain = [column for column, kind in expected.schema.items() if not kind.is_nested()]
            found = asked(store, f"select {', '.join(map(_quoted, plain))} from {name}")
            assert_frame_equal(found, expected.select(plain))


def _quoted(name: str) -> str:
    return f'"{name}"'


def written(path: Path, entries: Mapping[str, bytes]) -> Path:
    bundle.write(path, entries, tool_version=__version__)
    return path


@pytest.mark.parametrize("most", [0, 256])
@pytest.mark.parametrize("place", ["first", "second", "page"])
def test_what_only_looks_like_parquet_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, most: int
) -> None:
    monkeypatch.setattr(source, "_MOST_NAMELESS", most)
    good = parquet(pl.DataFrame({"kernel_id": list(range(1000)), "name": [f"kernel {n}" for n in range(1000)]}))
    broken = b"PAR1" + b"\0" * 500 + b"PAR1"
    if place == "page":
        broken = good[:50] + bytes(200) + good[250:]
    halves = [good, broken] if place == "second" else [broken, good]
    entries = {f"tables/kernel/{number}.parquet": half for number, half in enumerate(halves)}
    path = written(tmp_path / "x.tkb", {"tables/trace.parquet": parquet(pl.DataFrame({"trace_id": [0]})), **entries})
    with Store(open_tables(path)) as store, pytest.raises(TracekitError) as caught:
        asked(store, "select name, kernel_id from kernel order by name")
    assert "\n" not in str(caught.value)
    if place == "page":  # the outline is whole, so that the engine says what is wrong
        assert str(caught.value).startswith("SQL: ")
    else:
        number = {"first": 0, "second": 1}[place]
        assert str(caught.value) == (
            f"{path}: entry tables/kernel/{number}.parquet is no Parquet file: load the trace again"
        )


def test_an_integer_wider_than_a_decimal_is_kept() -> None:
    for widest in (2**127 - 1, -(2**127) + 1, 10**38):
        with Store({}) as store:
            table = Table("wide", store.ask(f"select {widest}::hugeint as x, null::hugeint as y"), {"x": "", "y": ""})
        assert str(widest) in render(table, "csv").decode()
        assert str(widest) in render(table, "json").decode()


SIMPLE = """
    select
        (i % 3 = 0)::boolean as "flag", i::tinyint as a, i::smallint as b, i::integer as c, i::bigint as d,
        i::hugeint * 10000000000000000000 as e, i::utinyint as f, i::usmallint as g, i::uinteger as h, i::ubigint as j,
        i / 7 as "share_frac", case when i % 2 = 0 then 'text ' || i end as "name", if(i % 5 = 0, null, i) as holes
    from range(100) as r(i)
"""


@pytest.mark.parametrize("copies", [1, _FEW // 50])
def test_few_rows_and_many_are_the_same_frame(copies: int) -> None:
    with Store({}) as store:
        found = store.ask(f"from ({SIMPLE}) cross join range({copies}) as s(copy) order by d, copy")
        assert isinstance(found, pl.DataFrame) == (copies > 1)
        expected = store.own(f"from ({SIMPLE}) cross join range({copies}) as s(copy) order by d, copy")
    assert_frame_equal(found if isinstance(found, pl.DataFrame) else found.frame(), expected)


@pytest.mark.parametrize("block", ["[" * 5_000, "[]", "[1, -1, 1]", "7", "[32,"])
def test_a_block_that_is_no_size_has_no_residency(block: str) -> None:
    rows = lookups()["residency"].rows([(0, "9.0", block, 32, 0)])
    assert [row[-2:] for row in rows] == [("not_derivable", "its block is no size")]
