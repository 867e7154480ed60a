"""HTA as a second opinion: what it needs is said, what it says becomes tables, and its faults are one line."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

import pytest
from inline_snapshot import snapshot

import tracekit
from tests.build import annotation, csv, document, kernel, launch, op, run, step, work
from tracekit import catalog
from tracekit.analyses import hta_questions
from tracekit.errors import TracekitError
from tracekit.loading.raw import entry_names, has_raw, raw_traces
from tracekit.store import Limits

if TYPE_CHECKING:
    from pathlib import Path

NAMES = sorted(hta_questions.headers())
needs_hta = pytest.mark.skipif(hta_questions.installed() is None, reason="HolisticTraceAnalysis is not installed")

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
EVENTS = [
    step(1, 0, 200),
    op("aten::mm", 0, 100),
    launch(10, 1, duration=4),
    kernel("gemm", 20, 30, 1),
    launch(70, 2, duration=60),
    kernel("gemm", 80, 40, 2),
    launch(90, 3),
    kernel(ALL_REDUCE, 110, 50, 3, stream=20),
]


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Write a small trace of one device, two streams and one step, of rank 3."""
    path = tmp_path / "trace.json"
    path.write_bytes(document(*EVENTS, distributedInfo={"rank": 3, "world_size": 8}))
    return path


@pytest.mark.parametrize("name", NAMES)
def test_its_header_is_that_of_a_question(name: str) -> None:
    asked = catalog.question(name)
    assert asked.summary.endswith(", by HTA?")
    assert [doc for doc in (*asked.columns.values(), *(p.doc for p in asked.params.values())) if doc[-1] != "."] == []
    assert asked.params["rounded"].default is True
    own = hta_questions.headers()[name]["instead"].split(" and ")
    assert [each for each in own if not catalog.question(each).sql] == []


@pytest.mark.parametrize("name", NAMES)
def test_without_hta_it_says_how_to_install_it(name: str, trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hta_questions, "DISTRIBUTION", "a-distribution-that-nobody-has")
    with tracekit.open(trace) as opened:
        row = opened.questions().frame.filter(question=name).row(0, named=True)
        assert not row["answerable"]
        assert row["needs"] == "a-distribution-that-nobody-has: pip install 'HolisticTraceAnalysis>=0.5' 'pandas<3'"
        with pytest.raises(TracekitError) as raised:
            opened.query(name)
    problem = f"{name} needs a-distribution-that-nobody-has, which is not installed"
    assert str(raised.value) == f"{problem}: pip install 'HolisticTraceAnalysis>=0.5' 'pandas<3'"


def test_a_run_of_tables_alone_lacks_the_trace() -> None:
    with run(*EVENTS) as opened:
        needs = opened.questions().frame.filter(question="hta_overlap")["needs"].item()
        assert needs.startswith("the trace itself: ")
        with pytest.raises(TracekitError, match="is not derivable from this run: it does not hold the trace itself"):
            opened.query("hta_overlap")


def test_what_the_tables_lack_is_said_first(tmp_path: Path) -> None:
    path = tmp_path / "cpu.json"
    path.write_bytes(document(op("aten::mm", 0, 10)))
    with tracekit.open(path) as opened, pytest.raises(TracekitError, match=r"it holds no kernel\.dur_ns, launch"):
        opened.query("hta_idle")


@pytest.mark.parametrize("part", [{"steps": 1}, {"phases": "other"}])
def test_a_part_of_a_trace_can_not_be_asked_for(trace: Path, part: dict[str, object]) -> None:
    with tracekit.open(trace, **part) as opened, pytest.raises(TracekitError) as raised:  # type: ignore[arg-type]
        opened.query("hta_idle")
    assert str(raised.value) == snapshot(
        "hta_idle takes no --steps and no --phase, since HTA reads whole traces: leave them out"
    )


def test_traces_are_found_again_in_the_order_of_their_tables(tmp_path: Path) -> None:
    folder = tmp_path / "ranks"
    folder.mkdir()
    for rank in (2, 10):
        data = document(op(f"aten::op{rank}", 0, 10), distributedInfo={"rank": rank, "world_size": 16})
        (folder / f"rank{rank}.json").write_bytes(data)
    tracekit.load(folder, tmp_path / "kept.tkb", keep_raw=True)
    names = ["rank2.json", "rank10.json"]
    assert raw_traces(folder, names) == [folder / name for name in names]
    contents = [each for each in raw_traces(tmp_path / "kept.tkb", names) if isinstance(each, bytes)]
    assert [gzip.decompress(each) for each in contents] == [(folder / name).read_bytes() for name in names]
    (folder / "rank2.json").unlink()
    with pytest.raises(TracekitError, match="no longer holds the traces"):
        raw_traces(folder, names)
    with pytest.raises(TracekitError, match=r"holds no raw/rank3\.json\.gz"):
        raw_traces(tmp_path / "kept.tkb", ["rank2.json", "rank3.json"])


def test_a_bundle_made_without_its_trace_has_none(trace: Path, tmp_path: Path) -> None:
    tracekit.load(trace, tmp_path / "bare.tkb")
    tracekit.load(trace, tmp_path / "kept.tkb", keep_raw=True)
    assert [has_raw(path) for path in (trace, tmp_path / "bare.tkb", tmp_path / "kept.tkb")] == [True, False, True]


def test_names_of_entries_are_told_apart() -> None:
    assert entry_names(["a.json.gz", "a.json", "b c/d.json"]) == [
        "raw/a.json.gz",
        "raw/1-a.json.gz",
        "raw/b_c_d.json.gz",
    ]


@needs_hta
def test_idle_time_of_each_stream(trace: Path) -> None:
    with tracekit.open(trace) as opened:
        assert csv(opened.query("hta_idle")) == snapshot("""\
rank,stream,cause,idle_ns,share_frac
3,7,host_wait,30000,1.0
3,7,other,0,0.0
3,20,other,0,-
""")
        assert csv(opened.query("hta_idle", kernel_delay_us=10), "stream", "cause", "idle_ns") == snapshot("""\
stream,cause,idle_ns
7,host_wait,30000
7,other,0
20,other,0
""")


@needs_hta
def test_busy_time_and_overlap(trace: Path) -> None:
    with tracekit.open(trace) as opened:
        assert csv(opened.query("hta_overlap")) == snapshot("""\
rank,span_ns,idle_ns,compute_ns,other_ns,overlap_frac
3,140000,30000,70000,40000,0.2
""")


@needs_hta
def test_launches(trace: Path) -> None:
    with tracekit.open(trace) as opened:
        assert csv(opened.query("hta_launch_stats")) == snapshot("""\
rank,launches,host_ns,device_ns,delay_p50_ns,delay_p99_ns,delay_max_ns,short_kernels,slow_calls,late_starts
3,3,65000,120000,6000,6000,19000,1,1,0
""")


@needs_hta
def test_the_critical_path_of_a_step(trace: Path) -> None:
    with tracekit.open(trace) as opened:
        table = opened.query("hta_critical_path")
        assert csv(table) == snapshot("""\
rank,bound_by,name,edges,path_ns,share_frac
3,cpu_bound,aten::mm,2,66000,0.4125
3,gpu_communication_bound,ncclDevKernel_AllReduce_Sum_f32_RING_LL,1,50000,0.3125
3,cpu_bound,cudaLaunchKernel,2,24000,0.15
3,gpu_kernel_launch_overhead,-,1,20000,0.125
""")
        cut = opened.query("hta_critical_path", top=1)
        assert cut.frame.equals(table.frame.head(1))
        assert "-p top=0 shows every one." in "".join(note.text for note in cut.notes)


@needs_hta
def test_a_bundle_with_its_traces_and_a_folder_of_ranks_say_the_same(tmp_path: Path) -> None:
    folder = tmp_path / "ranks"
    folder.mkdir()
    for rank in (0, 1):
        data = document(
            work("gemm", 20, 30 + rank, 1, op_name="aten::mm"), distributedInfo={"rank": rank, "world_size": 2}
        )
        (folder / f"r{rank}.json.gz").write_bytes(gzip.compress(data))
    tracekit.load(folder, tmp_path / "kept.tkb", keep_raw=True)
    for path in (folder, tmp_path / "kept.tkb"):
        with tracekit.open(path) as opened:
            assert csv(opened.query("hta_overlap"), "rank", "span_ns") == "rank,span_ns\n0,30000\n1,31000\n"
        with tracekit.open(path, ranks=1) as opened:
            assert csv(opened.query("hta_overlap"), "rank", "span_ns") == "rank,span_ns\n1,31000\n"


@needs_hta
def test_rounding_is_said_where_it_changes_times(tmp_path: Path, trace: Path) -> None:
    fine = tmp_path / "fine.json"
    fine.write_bytes(document(work("gemm", 20.25, 30.5, 1, op_name="aten::mm")))
    with tracekit.open(fine) as opened:
        assert opened.query("hta_overlap").frame["span_ns"].item() == 29_000
        exact = opened.query("hta_overlap", rounded=False)
        assert exact.frame["span_ns"].item() == 30_500
        assert any("rounds" in note.text for note in opened.query("hta_overlap").notes)
        assert not any("rounds" in note.text for note in exact.notes)


@needs_hta
def test_faults_of_hta_are_one_line(tmp_path: Path, trace: Path) -> None:
    with tracekit.open(trace) as opened, pytest.raises(TracekitError) as raised:
        opened.query("hta_critical_path", annotation="no such step")
    assert str(raised.value) == snapshot(
        "no annotation is called no such step: give -p annotation=NAME, or -p annotation= for the whole trace"
    )
    broken = tmp_path / "broken.json"
    broken.write_bytes(document(*EVENTS, annotation("x", 0, 1))[:-40])
    with (
        tracekit.open(broken) as opened,
        pytest.raises(TracekitError, match=r"HTA [\d.]+ fails on this trace \(json") as raised,
    ):
        opened.query("hta_overlap")
    assert "\n" not in str(raised.value)
    with tracekit.open(trace, limits=Limits(0.01)) as opened, pytest.raises(TracekitError, match=r"more than 0\.01 s"):
        hta_questions.answer(
            "hta_idle", trace, opened.tables["trace"].collect().with_columns(is_selected=True), {"rounded": True}, 0.01
        )
