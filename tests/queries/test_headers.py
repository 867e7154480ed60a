"""What every question keeps to, by its header: no code for each file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import polars as pl
import pytest

from tests.build import PROCESS, THREAD, Event, document, event, frame, kernel, launch, op, step
from tracekit import catalog
from tracekit.loading import tables_of
from tracekit.run import Run
from tracekit.store import Limits, Relation, Selection, schema
from tracekit.table import Status
from tracekit.units import unit_of

FOLDER = Path(__file__).parent
QUERIES = FOLDER.parents[1] / "queries"
NAMES = [name for name in catalog.names() if catalog.question(name).sql]
RELATIONS = {relation.name: {column.name for column in relation.columns} for relation in schema()}
COLUMNS = [column for relation in schema() for column in relation.columns]
NUMBERED = {"rank", "step", "device", "stream", "layer", "depth", "count", "m", "n", "k", "batch"}
"""Whole numbers that name, count or size something by themselves; any other without a unit is a plural noun."""
SHAPE = {"b", "hq", "hkv", "nq", "nk", "d_qk", "d_v", "window"}
"""Sizes of an attention, as the field writes them."""


def everything() -> list[Event]:
    """Make a small trace with two steps, a module, a collective, and device work with and without an op."""
    return [
        step(1, 0, 100),
        frame("nn.Module: LlamaAttention_0", 10, 40, 1),
        op("aten::mm", 20, 10, Input_Dims=[[2, 2], [2, 2]]),
        op("aten::_scaled_dot_product_flash_attention", 31, 4, Input_Dims=[[1, 2, 4, 8]] * 3 + [[]] * 4),
        launch(25, 1),
        kernel("gemm", 40, 20, 1),
        step(2, 100, 100),
        kernel("mystery", 150, 10, 99),
        kernel("void pytorch_flash::flash_fwd_kernel<int>(int)", 162, 5, 97, grid=[4, 1, 1], block=[128, 1, 1]),
        event("gpu_memcpy", "Memcpy DtoD (Device -> Device)", 170, 10, pid=0, tid=7, args={"device": 0, "stream": 7}),
        kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 185, 10, 98, stream=20),
        _allocator(30, 512, 512),
        _allocator(60, -512, 0),
    ]


def _allocator(start: float, size: int, total: int) -> Event:
    known = {
        "Device Type": 1,
        "Device Id": 0,
        "Addr": 64,
        "Bytes": size,
        "Total Allocated": total,
        "Total Reserved": 4096,
    }
    row = {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": PROCESS, "tid": THREAD, "ts": start}
    return row | {"s": "t", "args": known}


FACTS = {"steps": [{"number": 1, "lengths": [3, 4], "padded_length": 4, "mask_kind": "causal_padding"}]}


def opened() -> Run:
    """Open that trace, with facts beside it, as a run that can answer every question."""
    tables = tables_of(document(*everything()), "hand.json", FACTS)
    return Run("hand.json", {name: rows.lazy() for name, rows in tables.items()}, Selection(), Limits())


@pytest.fixture(params=NAMES)
def asked(request: pytest.FixtureRequest) -> catalog.Question:
    """Return each question in turn."""
    return catalog.question(request.param)


def test_every_sql_file_is_a_question() -> None:
    assert sorted(path.stem for path in QUERIES.glob("*.sql")) == NAMES
    assert NAMES


def test_the_summary_is_one_question(asked: catalog.Question) -> None:
    assert re.fullmatch(r"[A-Z][^\n?]+\?", asked.summary)


def test_the_columns_are_those_of_the_answer_in_order(asked: catalog.Question) -> None:
    with opened() as run:
        answer = run.query(asked.name)
    assert answer.frame.columns == list(asked.columns)
    assert answer.frame.height > 0


def test_every_column_and_parameter_is_explained_in_a_sentence(asked: catalog.Question) -> None:
    docs = [*asked.columns.values(), *(param.doc for param in asked.params.values())]
    assert [doc for doc in docs if not re.fullmatch(r"\S.*\.", doc)] == []


def test_the_names_in_the_sql_are_the_parameters(asked: catalog.Question) -> None:
    used = set(re.findall(r"\$(\w+)", asked.sql))
    assert used == set(asked.params)
    in_notes = {name for rule in asked.notes for name in re.findall(r"\$(\w+)", rule.sql)}
    assert in_notes <= used


def test_every_measured_column_ends_in_its_unit(asked: catalog.Question) -> None:
    with opened() as run:
        kinds = run.query(asked.name).frame.schema
    plain = {name: kind for name, kind in kinds.items() if kind.is_numeric() and unit_of(name) is None}
    assert [name for name, kind in plain.items() if kind.is_float()] == []
    assert [name for name in plain if name not in NUMBERED | SHAPE and not name.endswith("s")] == []


def test_numbers_fit_what_formats_can_hold(asked: catalog.Question) -> None:
    with opened() as run:
        kinds = set(run.query(asked.name).frame.schema.values())
    assert kinds <= {pl.Int64(), pl.Float64(), pl.String(), pl.Boolean()}


def test_what_it_requires_is_in_the_schema_and_can_be_recorded(asked: catalog.Question) -> None:
    assert asked.requires
    for required in asked.requires:
        table, _, column = required.partition(".")
        assert column in RELATIONS[table]
        assert catalog.how_to_record(required)


def test_its_notes_are_whole(asked: catalog.Question) -> None:
    for rule in asked.notes:
        assert rule.status in get_args(Status)
        assert re.fullmatch(r"\S.*\.", rule.text)
        assert bool(rule.sql) != bool(rule.column)
        assert rule.column not in asked.columns


def test_no_note_computes_the_rates_of_calls_again(asked: catalog.Question) -> None:
    assert [rule.text for rule in asked.notes if re.search(r"roof_(call|signature)", rule.sql)] == []


def test_it_has_a_test_file_of_its_name(asked: catalog.Question) -> None:
    assert (FOLDER / f"test_{asked.name}.py").is_file()


def test_it_reads_the_selected_tables_and_orders_its_rows(asked: catalog.Question) -> None:
    assert re.search(r"\border by\b(?!.*\bfrom\b)", asked.sql, re.DOTALL)
    assert not re.match(r"\s*select\s+\*", asked.sql.rpartition("\n)\n")[2])
    assert not set(re.findall(r"(?:from|join)\s+(\w+)", asked.sql)) & set(NAMES)


def test_the_same_rows_come_in_the_same_order_again(asked: catalog.Question) -> None:
    with opened() as run:
        assert run.query(asked.name).frame.equals(run.query(asked.name).frame)


@pytest.mark.parametrize("relation", schema(), ids=lambda relation: relation.name)
def test_every_table_of_the_schema_is_explained(relation: Relation) -> None:
    assert re.fullmatch(r"\S.*\.", relation.doc or "")


def test_every_column_of_the_schema_is_explained() -> None:
    assert COLUMNS
    bare = [f"{column.table}.{column.name}" for column in COLUMNS if not re.fullmatch(r"\S.*\.", column.doc or "")]
    assert bare == []


def test_what_recording_knows_is_in_the_schema() -> None:
    text = (QUERIES.parent / "tracekit" / "recording.toml").read_text(encoding="utf-8")
    keys = re.findall(r'^"([\w.]+)" = ', text, re.MULTILINE)
    known = set(RELATIONS) | {f"{column.table}.{column.name}" for column in COLUMNS}
    assert keys
    assert set(keys) <= known
