"""The library's face: a path is opened, questions and SQL are answered, a part is selected."""

from __future__ import annotations

import dataclasses
import os
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from inline_snapshot import snapshot

import tracekit
from tests.build import Event, annotation, csv, document, kernel, notes, only, op, run, step, work
from tracekit import catalog
from tracekit.errors import TracekitError
from tracekit.run import Run
from tracekit.store import Limits, Selection, TooMuchMemory, schema
from tracekit.table import Note

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def training() -> list[Event]:
    """Make two steps with 30 and 50 µs of forward work, and 20 µs of optimizer work in the second."""
    return [
        step(1, 0, 100),
        *work("gemm", 20, 30, 1, op_name="aten::mm"),
        step(2, 100, 200),
        *work("gemm", 120, 50, 2, op_name="aten::mm"),
        annotation("Optimizer.step#AdamW.step", 200, 50),
        *work("adamw", 220, 20, 3, op_name="aten::_foreach_add_"),
    ]


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Write the training trace of rank 3 to a file."""
    path = tmp_path / "train.json"
    path.write_bytes(document(*training(), distributedInfo={"rank": 3, "world_size": 8}))
    return path


TOTAL = "select count(*) as pieces, sum(dur_ns)::bigint as total_ns from work"


def test_a_trace_is_opened_by_its_path_and_answers(trace: Path) -> None:
    with tracekit.open(trace) as opened:
        assert isinstance(opened, tracekit.Run)
        assert opened.name == "train.json"
        answer = opened.query("top_kernels", top=1)
    assert isinstance(answer, tracekit.Table)
    assert csv(answer, "kernel", "calls", "total_ns", "share_frac") == snapshot("""\
kernel,calls,total_ns,share_frac
gemm,2,80000,0.8
""")


def test_a_bundle_answers_as_its_trace_does(trace: Path, tmp_path: Path) -> None:
    loaded = tracekit.load(trace, tmp_path / "train.tkb")
    assert (loaded.path, loaded.traces, loaded.kernels) == (tmp_path / "train.tkb", 1, 3)
    with tracekit.open(tmp_path / "train.tkb") as bundle, tracekit.open(str(trace)) as raw:
        answerable = raw.questions().frame.filter("answerable")["question"].to_list()
        assert len(answerable) >= 6
        for name in (name for name in answerable if catalog.question(name).sql):  # the bundle has no trace for HTA
            assert bundle.query(name).frame.equals(raw.query(name).frame), name


def test_a_trace_is_loaded_once_and_says_so_when_it_is(trace: Path) -> None:
    trace.write_bytes(trace.read_bytes() + b"\n")  # no other test has cached these bytes
    said: list[str] = []
    for _ in range(2):
        with tracekit.open(trace, say=said.append) as opened:
            assert opened.sql(TOTAL).frame.row(0) == (3, 100_000)
    assert said == ["loading train.json"]


def test_a_path_that_is_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TracekitError, match="no such file"):
        tracekit.open(tmp_path / "none.json")


def test_sql_answers_one_select() -> None:
    with run(*training()) as opened:
        answer = opened.sql("select phase, sum(dur_ns)::bigint as total_ns from work group by phase order by phase")
    assert answer.name == "sql"
    assert csv(answer) == snapshot("""\
phase,total_ns
forward,80000
optimizer,20000
""")
    assert dict(answer.docs) == {"phase": "", "total_ns": ""}
    assert answer.notes == ()


def test_sql_without_rows_explains_itself() -> None:
    with run(*training()) as opened:
        answer = opened.sql("select name from kernel where dur_ns > 1e9")
    assert answer.frame.height == 0
    assert notes(answer) == snapshot("info: The query gives no rows.\n")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("drop table kernel", "no SELECT but DROP"),
        ("select 1; select 2", "2 statements"),
        ("select nothing from kernel", "nothing"),
        ("selec 1", "SQL"),
        ("", "0 statements"),
    ],
)
def test_sql_that_is_no_select_is_refused(text: str, message: str) -> None:
    with run(*training()) as opened, pytest.raises(TracekitError, match=message):
        opened.sql(text)


def test_tables_are_polars_frames_and_the_selection_is_not_applied() -> None:
    with run(*training(), selection=only(steps=[1])) as opened:
        tables = opened.tables
        assert opened.sql("select count(*) from kernel").frame.item() == 1
    assert all(isinstance(frame, pl.LazyFrame) for frame in tables.values())
    assert set(tables) <= {relation.name for relation in schema()}
    assert tables["kernel"].collect().height == 3


def test_tables_handed_out_are_no_way_into_the_run() -> None:
    with run(*training()) as opened:
        opened.tables.clear()
        assert opened.tables["kernel"].collect().height == 3


@pytest.mark.parametrize(
    ("selected", "expected"),
    [
        (only(), (3, 100_000)),
        (only(steps=[1]), (1, 30_000)),
        (only(steps=[2]), (2, 70_000)),
        (only(steps=[1, 2]), (3, 100_000)),
        (only(phases=["optimizer"]), (1, 20_000)),
        (only(phases=["forward", "optimizer"]), (3, 100_000)),
        (only(steps=[2], phases=["forward"]), (1, 50_000)),
    ],
    ids=["whole", "step 1", "step 2", "steps 1, 2", "optimizer", "two phases", "step 2, forward"],
)
def test_steps_and_phases_select_what_questions_see(selected: Selection, expected: tuple[int, int]) -> None:
    with run(*training(), selection=selected) as opened:
        assert opened.sql(TOTAL).frame.row(0) == expected
        assert opened.query("top_kernels").frame["total_ns"].sum() == expected[1]


def test_a_rank_selects_its_trace(trace: Path) -> None:
    with tracekit.open(trace, ranks=[3]) as opened:
        assert opened.sql(TOTAL).frame.row(0) == (3, 100_000)


@pytest.mark.parametrize(
    ("selected", "expected"),
    [
        ({"steps": [2, 7]}, "the run has no step 7"),
        ({"ranks": [0]}, "the run has no rank 0"),
        ({"phases": ["warmup"]}, "there is no phase 'warmup'"),
    ],
    ids=["step", "rank", "phase"],
)
def test_a_selection_of_what_the_run_has_not_is_refused(trace: Path, selected: dict[str, Any], expected: str) -> None:
    with pytest.raises(TracekitError) as raised:
        tracekit.open(trace, **selected)
    assert raised.value.problem == expected
    assert raised.value.remedy


def test_a_step_of_a_trace_without_steps_is_refused() -> None:
    with pytest.raises(TracekitError, match="the run has no step 1"):
        run(*work("gemm", 20, 30, 1, op_name="aten::mm"), selection=only(steps=[1]))


def test_a_rank_of_a_trace_without_one_is_refused() -> None:
    with pytest.raises(TracekitError, match="the run has no rank 0"):
        run(*training(), selection=only(ranks=[0]))


def test_limits_bind() -> None:
    with (
        run(*training(), limits=Limits(seconds=0.2)) as opened,
        pytest.raises(TracekitError, match=r"longer than 0\.2 s"),
    ):
        opened.sql("select count(*) from range(1000000) a, range(1000000) b")


def test_unknown_questions_and_parameters_are_refused() -> None:
    with run(*training()) as opened:
        with pytest.raises(TracekitError, match="did you mean top_kernels"):
            opened.query("top_kernel")
        with pytest.raises(TracekitError, match="no parameter 'limit'"):
            opened.query("top_kernels", limit=5)
        with pytest.raises(TracekitError, match="'many' is not a whole number"):
            opened.query("top_kernels", top="many")


def test_questions_are_listed_with_what_this_run_lacks() -> None:
    with run(op("aten::mm", 0, 10)) as opened:
        listed = opened.questions()
    assert listed.frame["question"].to_list() == catalog.names()
    lacking = listed.frame.filter(~pl.col("answerable"))
    by_hta = lacking.filter(
        pl.col("question").is_in([name for name in catalog.names() if catalog.question(name).beside])
    )
    assert by_hta["needs"].str.contains("the trace itself: ask the raw trace, or a bundle loaded with --keep-raw").all()
    in_sql = lacking.join(by_hta, on="question", how="anti")
    assert in_sql.select("question", "needs").rows() == snapshot(
        [
            (
                "backend_verdict",
                "calls of attention: profile a model that has some, with activities that include ProfilerActivity.CPU; shapes: profile with record_shapes=True",
            ),
            ("collectives", "collectives: profile a process of torch.distributed while it communicates"),
            (
                "head_occupancy",
                "device activity: profile with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA] on a GPU",
            ),
            (
                "implementation_gain",
                "calls of attention: profile a model that has some, with activities that include ProfilerActivity.CPU",
            ),
            (
                "kernel_fusion",
                "device activity: profile with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA] on a GPU",
            ),
            (
                "launch_gaps",
                "device activity: profile with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA] on a GPU",
            ),
            ("memory_hotspots", "allocator rows: profile with profile_memory=True"),
            ("module_tree", "nn.Module rows, which come with stacks: profile with with_stack=True"),
            (
                "padding_waste",
                "true lengths: record with `tracekit capture --lengths`, or give StepFacts to a Recorder",
            ),
            (
                "precision",
                "device activity: profile with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA] on a GPU",
            ),
            (
                "unlinked_kernels",
                "device activity: profile with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA] on a GPU",
            ),
        ]
    )
    assert listed.frame.filter("answerable")["needs"].null_count() == listed.frame.height - lacking.height


def test_every_question_is_answered_or_refused_as_it_was_listed() -> None:
    for events in ([op("aten::mm", 0, 10)], [kernel("gemm", 0, 10)], training()):
        with run(*events) as opened:
            for name, can in opened.questions().frame.select("question", "answerable").rows():
                if can:
                    assert opened.query(name).name == name
                else:
                    with pytest.raises(TracekitError, match="not derivable from this run"):
                        opened.query(name)


def test_answers_about_a_device_run_warn_of_a_share_without_an_op_from_one_percent_on() -> None:
    linked = work("gemm", 20, 990, 1, op_name="aten::mm")
    with run(linked, kernel("mystery", 2000, 10, 99)) as opened:
        assert notes(opened.query("top_kernels")) == snapshot("""\
warning: 1.0 % of device time has no op in the trace (see unlinked_kernels): its roles come from
kernel names and order.
""")
    with run(linked, kernel("mystery", 2000, 9, 99)) as opened:
        assert notes(opened.query("top_kernels")) == ""


def test_the_names_of_the_library_are_there() -> None:
    assert set(tracekit.__all__) <= set(dir(tracekit))
    assert all(getattr(tracekit, name) is not None for name in tracekit.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        tracekit.nothing  # noqa: B018


_ENDLESS = "select count(*) from range(100000) a, range(100000) b where a.range * b.range % 7 = 3"


@pytest.fixture
def hearing_ctrl_c() -> Iterator[None]:
    """Hear SIGINT as a program on a terminal does: a job in the background would ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    assert signal.signal(signal.SIGINT, before) is signal.default_int_handler


@pytest.mark.usefixtures("hearing_ctrl_c")
def test_ctrl_c_is_heard_while_the_notes_of_the_run_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    with run(*work("gemm", 20, 30, 1, op_name="aten::mm"), limits=Limits(seconds=30)) as opened:
        monkeypatch.setattr(Run, "_run_notes", lambda self: (self._store.own(_ENDLESS), ())[1])
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            opened.query("top_kernels")
        assert time.monotonic() - began < 15


@pytest.mark.usefixtures("hearing_ctrl_c")
@pytest.mark.parametrize("milliseconds", [10, 20, 30, 40, 60, 80])
def test_ctrl_c_is_heard_whenever_it_comes(monkeypatch: pytest.MonkeyPatch, milliseconds: int) -> None:
    with run(*work("gemm", 20, 30, 1, op_name="aten::mm"), limits=Limits(seconds=30)) as opened:
        monkeypatch.setattr(Run, "_run_notes", lambda self: (self._store.own(_ENDLESS), ())[1])

        def ask() -> None:  # it may come before the question has begun
            threading.Timer(milliseconds / 1000, os.kill, (os.getpid(), signal.SIGINT)).start()
            opened.query("top_kernels")

        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            ask()
        assert time.monotonic() - began < 15


def test_a_question_that_fails_does_not_wait_for_the_notes_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    with run(*work("gemm", 20, 30, 1, op_name="aten::mm"), limits=Limits(seconds=30)) as opened:
        monkeypatch.setattr(Run, "_run_notes", lambda self: (self._store.own(_ENDLESS), ())[1])
        broken = dataclasses.replace(catalog.question("top_kernels"), sql="select nothing")
        monkeypatch.setattr(catalog, "question", lambda _: broken)
        began = time.monotonic()
        with pytest.raises(TracekitError, match="nothing"):
            opened.query("top_kernels")
        assert time.monotonic() - began < 15


def test_notes_that_found_no_room_beside_the_question_are_found_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    said = []

    def notes(self: Run) -> tuple[Note, ...]:
        said.append(self)
        if len(said) == 1:
            raise TooMuchMemory(Limits())
        return (Note("info", "found"),)

    with run(*work("gemm", 20, 30, 1, op_name="aten::mm")) as opened:
        monkeypatch.setattr(Run, "_run_notes", notes)
        assert opened.query("top_kernels").notes[-1] == Note("info", "found")
