"""Is a run fit to judge by: nothing is found on a healthy trace, and on a broken sibling just what is broken."""

from __future__ import annotations

import statistics
import tomllib
from importlib.resources import files
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from inline_snapshot import snapshot

from tests import independent
from tests.build import Event, event, frame, kernel, launch, memory, only, op, run, step, tables, trace_file
from tracekit.analyses import doctor_device, doctor_ranks, doctor_recording
from tracekit.analyses.doctor import verdict
from tracekit.analyses.doctor_page import page
from tracekit.analyses.doctor_ranks import ranks_text
from tracekit.analyses.doctor_scans import rules
from tracekit.run import Run
from tracekit.store import Limits, Selection

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from tracekit.table import Table

PROPERTIES = [{"id": 0, "name": "NVIDIA H100", "numSms": 132, "computeMajor": 9, "computeMinor": 0}]
PLAIN = {"unprofiled_step_ns": [950_000]}
STEPS = (5, 6, 7, 8)
CHECKS = {rule["name"]: rule for rule in rules()["check"]}


def end(at: float = 4000) -> Event:
    """Make the profiler's own end mark."""
    return event("", "Record Window End", at, 0, ph="i", s="g")


def overhead(at: float, duration: float, name: str = "Activity Buffer Request") -> Event:
    """Make a row of the profiler's own work."""
    return event("overhead", name, at, duration, pid=-1, tid=0)


def healthy() -> list[Event]:
    """Make four steps of 1 ms, each with ten ops, their launches and kernels, a module and an allocation."""
    events = [end()]
    for number, at in zip(STEPS, range(0, 4000, 1000), strict=True):
        events += [step(number, at, 1000), frame("nn.Module: LlamaMLP_0", at + 1, 998, number)]
        events += [memory(at + 2, 64, 512, 1024), memory(at + 998, 64, -512, 512)]
        for place in range(10):
            start, correlation = at + 10 + 95 * place, 100 * number + place
            shape = {"Input_Dims": [[4, 4]], "Input_type": ["float"]}
            events += [op("aten::mm", start, 8, **shape), launch(start + 2, correlation)]
            events.append(kernel("gemm", start + 7, 80, correlation))
    return events


def on_device(events: list[Event]) -> list[Event]:
    """Return the kernels among events."""
    return [row for row in events if row["cat"] == "kernel"]


def diagnosis(events: list[Event], facts: dict[str, Any] | None = PLAIN, **top: Any) -> Table:
    """Return the doctor's rows on events typed by hand, on one H100 and the only rank unless `top` says else."""
    known = {"deviceProperties": PROPERTIES, "distributedInfo": {"rank": 0, "world_size": 1}}
    with run(*events, facts=facts, **(known | top)) as opened:
        return opened.doctor()


def found(table: Table) -> dict[str, str]:
    """Return the verdict of each check that is not ok."""
    rows = table.frame.filter(pl.col("verdict") != "ok")
    return dict(rows.select("check", "verdict").iter_rows())


def row(table: Table, check: str) -> dict[str, Any]:
    """Return the row of a check."""
    return table.frame.row(by_predicate=pl.col("check") == check, named=True)


def test_nothing_is_found_on_a_healthy_trace() -> None:
    table = diagnosis(healthy())
    assert found(table) == {}
    assert set(table.frame["next_capture"]) == {""}
    assert table.frame["check"].to_list() == list(CHECKS)
    assert verdict(table) == "fit to judge by"
    assert [(note.status, note.text) for note in table.notes] == [("info", "fit to judge by.")]


def test_a_healthy_trace_has_nothing_to_say_beside_answers() -> None:
    with run(*healthy(), facts=PLAIN, deviceProperties=PROPERTIES) as opened:
        assert opened.query("top_kernels").notes == ()


# Each breaks the healthy trace in one way: the events are changed in place, or others are returned.


def without(*categories: str) -> Callable[[list[Event]], list[Event]]:
    """Return a break that leaves out some categories."""
    return lambda events: [row for row in events if row["cat"] not in categories]


def no_marks(events: list[Event]) -> list[Event]:
    return [row for row in events if not row["name"].startswith("ProfilerStep")]


def one_step(events: list[Event]) -> list[Event]:
    return [row for row in events if row["name"] not in {f"ProfilerStep#{number}" for number in STEPS[1:]}]


def empty_step(events: list[Event]) -> list[Event]:
    return [*events, step(9, 4000, 10)]


def cold_step(events: list[Event]) -> None:
    next(row for row in events if row["name"] == "ProfilerStep#5").update(ts=-1000, dur=2000)


def full_buffer(events: list[Event]) -> list[Event]:
    return [row for row in events if row["cat"] != "kernel" or row["ts"] < 3500]


def lost_at_start(events: list[Event]) -> list[Event]:
    first = min(row["ts"] for row in on_device(events))
    return [row for row in events if row["cat"] != "kernel" or row["ts"] > first]


def earlier_work(events: list[Event]) -> list[Event]:
    return [*events, kernel("gemm", -60, 50, 3)]


def outside_ops(events: list[Event]) -> list[Event]:
    return [*events, launch(3955, 9999), kernel("gemm", 3960, 39, 9999)]


def old_ids(events: list[Event]) -> list[Event]:
    """Make a kernel without a launch whose op is named by an id, in epoch µs with decimals."""
    for each in events:
        each["ts"] += 1_700_000_000_000_000.25
    at = events[1]["ts"]
    return [*events, op("aten::mm", at + 3955, 4, External_id=77), kernel("gemm", at + 3960, 39, 99999, External_id=77)]


def repeated(events: list[Event]) -> list[Event]:
    return [*events, kernel("gemm", 99, 4, 500)]


def early_device(events: list[Event]) -> None:
    for each in on_device(events)[:5]:
        each.update(ts=each["ts"] - 9, dur=40)


def late_device(events: list[Event]) -> None:
    for each in on_device(events):
        each["ts"] += 1500


def overlapping(events: list[Event]) -> None:
    on_device(events)[3]["dur"] = 120


def crossing(events: list[Event]) -> list[Event]:
    return [*events, op("aten::add", 980, 10), op("aten::add", 985, 10)]


def zeros(events: list[Event]) -> None:
    for each in on_device(events)[:5]:
        each["dur"] = 0


def negative(events: list[Event]) -> None:
    on_device(events)[0]["dur"] = -1


def endless(events: list[Event]) -> list[Event]:
    return [*events, kernel("gemm", 3995, 4e9, 999, stream=8), op("aten::mm", 3985, 8), launch(3987, 999)]


def very_long(events: list[Event]) -> list[Event]:
    return [*events, kernel("gemm", 3995, 2e6, 999, stream=8), op("aten::mm", 3985, 8), launch(3987, 999)]


def unfinished(events: list[Event]) -> None:
    next(row for row in events if row["cat"] == "cpu_op")["args"]["finished"] = False


def loud_profiler(events: list[Event]) -> list[Event]:
    return [*events, overhead(100, 300), overhead(500, 900, "Command Buffer Full")]


def idle(events: list[Event]) -> None:
    for each in on_device(events):
        each["dur"] = 30


def alone(events: list[Event]) -> list[Event]:
    return [*events, memory(6, 4096, -512, 0), memory(7, 8192, -512, 0)]


def two_devices(events: list[Event]) -> None:
    on_device(events)[0].update(pid=1, args={"device": 1, "stream": 7, "correlation": 500})


def no_totals(events: list[Event]) -> None:
    for each in events:
        if each["name"] == "[memory]":
            del each["args"]["Total Reserved"]


def no_shapes(events: list[Event]) -> None:
    for each in events:
        if each["cat"] == "cpu_op":
            each["args"] = {}


def whole_microseconds(events: list[Event]) -> None:
    for each in events:
        each["ts"] += 1_700_000_000_000_000


BROKEN: dict[str, tuple[Callable[[list[Event]], list[Event] | None], dict[str, str]]] = {
    "no end marker": (lambda events: events[1:], {"end_marker": "unknown"}),
    "whole µs": (whole_microseconds, {"dialect": "warn"}),
    "no shapes": (no_shapes, {"shapes": "warn"}),
    "no stacks": (without("python_function"), {"stacks": "warn", "modules": "warn"}),
    "no memory": (
        without("cpu_instant_event"),
        {"memory_rows": "warn", "frees_alone": "unknown", "reserved_memory": "unknown"},
    ),
    "no marks": (
        no_marks,
        {
            "step_marks": "warn",
            "partial_steps": "unknown",
            "cold_first_step": "unknown",
            "recording_inflation": "unknown",
        },
    ),
    "one step": (one_step, {"step_marks": "warn", "cold_first_step": "unknown"}),
    "an empty step": (empty_step, {"partial_steps": "warn"}),
    "a cold step": (cold_step, {"cold_first_step": "warn"}),
    "a full buffer": (full_buffer, {"launches_without_work": "bad"}),
    "a kernel lost at the start": (lost_at_start, {"launches_without_work": "warn"}),
    "work from before": (earlier_work, {"work_without_launch": "warn"}),
    "no launches": (
        without("cuda_runtime"),
        {"work_without_launch": "bad", "starts_before_launch": "unknown", "starts_late": "unknown"},
    ),
    "a launch outside ops": (outside_ops, {"work_outside_ops": "warn"}),
    "old External ids": (old_ids, {"external_ids": "warn"}),
    "repeated correlations": (repeated, {"repeated_correlations": "warn"}),
    "an early device": (early_device, {"starts_before_launch": "bad"}),
    "a late device": (late_device, {"starts_late": "warn"}),
    "an overlap": (overlapping, {"stream_overlaps": "warn"}),
    "crossing ops": (crossing, {"crossing_ops": "warn"}),
    "zero durations": (zeros, {"zero_durations": "warn"}),
    "a negative duration": (negative, {"impossible_durations": "warn"}),
    "an endless kernel": (endless, {"impossible_durations": "warn"}),
    "a kernel longer than all else": (very_long, {"impossible_durations": "warn"}),
    "an unfinished op": (unfinished, {"unfinished_ops": "warn"}),
    "a loud profiler": (loud_profiler, {"profiler_overhead": "warn"}),
    "frees alone": (alone, {"frees_alone": "warn"}),
    "two devices": (two_devices, {"one_device": "warn"}),
    "no totals": (no_totals, {"reserved_memory": "warn"}),
}


@pytest.mark.parametrize("name", BROKEN)
def test_on_a_broken_trace_just_what_is_broken_is_found(name: str) -> None:
    damage, expected = BROKEN[name]
    events = healthy()
    table = diagnosis(damage(events) or events)
    assert found(table) == {check: said for check, said in expected.items() if said != "ok"}
    advised = set(table.frame.filter(pl.col("next_capture") != "")["check"])
    assert advised == {check for check, said in expected.items() if said in {"warn", "bad"}}


@pytest.mark.parametrize(
    ("top", "facts", "expected"),
    [
        ({"deviceProperties": []}, PLAIN, {"device": "warn"}),
        ({"distributedInfo": {"rank": 0, "world_size": 4}}, PLAIN, {"ranks_missing": "warn"}),
        ({"distributedInfo": {"rank": 0}}, PLAIN, {"ranks_missing": "unknown"}),
        ({}, None, {"recording_inflation": "unknown"}),
        ({}, {"unprofiled_step_ns": [700_000]}, {"recording_inflation": "warn"}),
        ({}, {"unprofiled_step_ns": [300_000]}, {"recording_inflation": "bad"}),
    ],
)
def test_what_the_trace_says_of_itself_is_judged(
    top: dict[str, Any], facts: dict[str, Any] | None, expected: dict[str, str]
) -> None:
    assert found(diagnosis(healthy(), facts, **top)) == expected


def test_an_idle_device_is_held_against_the_recording_unless_steps_were_as_quick_without() -> None:
    events = healthy()
    idle(events)
    assert found(diagnosis(events, None)) == {"recording_inflation": "unknown", "idle_device": "warn"}
    assert found(diagnosis(events, PLAIN)) == {}
    assert "idle_device" not in found(diagnosis(without("python_function")(no_shapes_of(events)), None))


def no_shapes_of(events: list[Event]) -> list[Event]:
    """Return the events without shapes."""
    no_shapes(events)
    return events


def test_launches_without_any_device_work_are_told_beside_answers_too() -> None:
    with run(*without("kernel")(healthy()), facts=PLAIN) as opened:
        said = row(opened.doctor(), "launches_without_work")
        notes = [note.text for note in opened.query("top_kernels").notes]
    assert (said["verdict"], said["count"], said["share_frac"]) == ("bad", 40, 1.0)
    assert notes == snapshot(
        [
            "No device was recorded: work is the self time of CPU ops.",
            "trace quality: 100.0 % of launches lack their device work (see `tracekit doctor`).",
        ]
    )


def test_a_full_buffer_is_told_with_its_time() -> None:
    said = row(diagnosis(full_buffer(healthy())), "launches_without_work")
    assert (said["count"], said["share_frac"], said["value_ns"]) == (4, 0.1, 3_487_000)
    assert said["meaning"] == snapshot(
        "4 of 40 launches (10.0 %) lack their kernel: none after 3.49 ms has one, the profiler's buffer was full"
    )


def test_launches_captured_into_a_graph_and_empty_sets_are_not_lost() -> None:
    captured = [
        launch(990, 7001, name="cudaStreamBeginCapture"),
        *(launch(991 + place, 7002 + place) for place in range(5)),
        launch(997, 7010, name="cudaStreamEndCapture"),
        launch(998, 7011, name="cudaMemsetAsync"),
    ]
    said = row(diagnosis([*healthy(), *captured]), "launches_without_work")
    assert (said["verdict"], said["count"]) == ("ok", 0)
    assert said["meaning"] == snapshot(
        "every launch has its kernel; 5 more were captured into a graph, which runs nothing"
    )


def test_dependent_launches_may_overlap_for_4_us() -> None:
    events = healthy()
    on_device(events)[3]["dur"] = 98
    said = row(diagnosis(events), "stream_overlaps")
    assert (said["verdict"], said["meaning"]) == snapshot(
        ("ok", "no two kernels of a stream run at once; 1 overlap by less than 4 µs, as dependent launches do")
    )


def test_a_run_without_a_device_has_nothing_held_against_its_device() -> None:
    events = without("kernel", "cuda_runtime")(healthy())
    table = diagnosis(events)
    assert set(found(table).values()) == {"unknown"}
    assert verdict(table) == "fit to judge by"
    whys = set(table.frame.filter(pl.col("verdict") == "unknown")["meaning"])
    assert whys == {"no device work was recorded"}


def with_quality(*rows: tuple[str, str, int, int | None, str]) -> dict[str, pl.DataFrame]:
    """Return the healthy trace's tables, and rows of quality as loading would write them."""
    made = tables(*healthy(), facts=PLAIN, deviceProperties=PROPERTIES, distributedInfo={"rank": 0, "world_size": 1})
    names = ("check_name", "severity", "count", "first_offset", "message")
    noted = pl.DataFrame(rows, schema=dict(zip(names, made["quality"].select(names).dtypes, strict=True)), orient="row")
    noted = noted.with_columns(trace_id=pl.lit(0, pl.Int64), share_frac=pl.lit(None, pl.Float64))
    return made | {"quality": noted.select(made["quality"].columns)}


def open_tables(made: dict[str, pl.DataFrame], selection: Selection | None = None) -> Run:
    """Open tables as a run."""
    return Run("hand.json", {name: rows.lazy() for name, rows in made.items()}, selection or Selection(), Limits())


def test_lost_and_repaired_events_are_told_by_reason() -> None:
    made = with_quality(
        ("lost_event", "bad", 2, 1234, "Cut inside an event."),
        ("lost_event", "bad", 1, 99, "No time."),
        ("repaired_event", "warn", 3, 17, "A quote in a name."),
    )
    with open_tables(made) as opened:
        table, (note,) = opened.doctor(), opened.query("top_kernels").notes
    assert found(table) == {"events_lost": "bad", "events_repaired": "warn"}
    assert row(table, "events_lost")["count"] == 3
    assert row(table, "events_lost")["meaning"] == snapshot(
        "3 events were lost. 1: No time (first at byte 99). 2: Cut inside an event (first at byte 1,234)."
    )
    assert note.text == snapshot("trace quality: 3 events (2.1 %) could not be read (see `tracekit doctor`).")


def test_a_file_that_was_cut_off_is_bad() -> None:
    made = with_quality()
    cut = made | {"trace": made["trace"].with_columns(truncated=pl.lit(value=True))}
    with open_tables(cut) as opened:
        table, notes = opened.doctor(), opened.query("top_kernels").notes
    assert found(table) == {"read_whole": "bad", "end_marker": "unknown", "dialect": "unknown"}
    assert verdict(table) == "not fit to judge by: file cut off"
    assert [note.text for note in notes] == snapshot(
        ["trace quality: the file was cut off, and what came after, however much, is missing (see `tracekit doctor`)."]
    )


def test_what_a_cut_may_have_caused_asks_for_nothing_else_at_the_next_capture() -> None:
    made = with_quality(("lost_event", "bad", 2, 1234, "Cut inside an event."))
    for is_cut, advised in ((True, {"read_whole"}), (False, {"events_lost"})):
        cut = made | {"trace": made["trace"].with_columns(truncated=pl.lit(value=is_cut))}
        with open_tables(cut) as opened:
            advice = opened.doctor().frame.filter(pl.col("next_capture") != "")
        assert set(advice["check"]) == advised


def test_a_file_that_was_cut_before_any_device_work_is_not_taken_for_one_without_a_device() -> None:
    made = {name: rows for name, rows in with_quality().items() if name in {"op", "trace", "step", "quality"}}
    no_device = made["trace"].with_columns(has_device=pl.lit(value=False))
    for is_cut in (True, False):
        with open_tables(made | {"trace": no_device.with_columns(truncated=pl.lit(is_cut))}) as opened:
            note = opened.query("top_kernels").notes[0]
        assert (note.status, "was cut off" in note.text) == (("warning", True) if is_cut else ("info", False))
        assert ("No device was recorded" in note.text) is not is_cut


def test_a_file_that_is_damaged_but_has_its_end_is_to_be_taken_with_care() -> None:
    made = with_quality(("damaged_file", "bad", 1, 99, "The file is damaged. First: its checksum is another."))
    with open_tables(made) as opened:
        table, (note,) = opened.doctor(), opened.query("top_kernels").notes
    assert found(table) == {"file_undamaged": "warn"}
    assert verdict(table) == "fit with care: damaged file"
    assert "the file was damaged after it was written" in note.text
    cut = made | {"trace": made["trace"].with_columns(truncated=pl.lit(value=True))}
    with open_tables(cut) as opened:
        table = opened.doctor()
    assert verdict(table) == "not fit to judge by: file cut off"
    assert "its checksum is another" in row(table, "read_whole")["meaning"]


def test_whatever_else_was_noticed_while_loading_has_a_row_of_its_own() -> None:
    made = with_quality(
        ("duplicate_key", "warn", 4, 8, "Keys that an event has twice."), ("new_thing", "info", 1, None, "Fine.")
    )
    with open_tables(made) as opened:
        table = opened.doctor()
    assert found(table) == {"duplicate_key": "warn"}
    assert row(table, "duplicate_key")["meaning"] == snapshot("Keys that an event has twice (first at byte 8).")
    assert row(table, "new_thing")["verdict"] == "ok"


def test_no_row_of_quality_is_lost(traces: Path) -> None:
    spoken = {name for rule in CHECKS.values() for name in rule.get("quality", ())}
    for name in ("mtia-inference.json.gz", "rtx4080-nanovllm-decode.json"):
        with trace_file(traces / name) as opened:
            noticed = set(opened.sql("select check_name from quality").frame["check_name"])
            assert noticed - spoken <= set(opened.doctor().frame["check"])


def test_a_missing_flag_names_the_questions_that_it_leaves_without_an_answer() -> None:
    said = row(diagnosis(without("cpu_instant_event")(healthy())), "memory_rows")
    assert said["meaning"] == snapshot("not recorded, so nothing can be said about memory (no answer: memory_hotspots)")
    assert said["next_capture"] == "profile_memory=True"


def test_the_recording_is_judged_whatever_steps_and_phases_are_selected() -> None:
    events = [*earlier_work(healthy()), step(4, -500, 100)]
    expected = {"partial_steps": "warn", "work_without_launch": "warn", "recording_inflation": "unknown"}
    for selection in (only(), only(steps=[6]), only(phases=["optimizer"])):
        with run(
            *events, selection=selection, deviceProperties=PROPERTIES, distributedInfo={"rank": 0, "world_size": 1}
        ) as opened:
            assert found(opened.doctor()) == expected


def ranks(*traces: tuple[list[Event], dict[str, Any]]) -> dict[str, pl.DataFrame]:
    """Return the tables of a run of several ranks, each from its events; ids are made unique in the run."""
    parts: dict[str, list[pl.DataFrame]] = {}
    for number, (events, facts) in enumerate(traces):
        distributed = {"rank": number, "world_size": len(traces)}
        made = tables(*events, facts=facts, deviceProperties=PROPERTIES, distributedInfo=distributed)
        for name, rows in made.items():
            ids = [column for column in rows.columns if column.endswith("_id") and rows[column].dtype == pl.Int64]
            shift = [pl.col(column) + (number if column == "trace_id" else 100_000 * number) for column in ids]
            parts.setdefault(name, []).append(rows.with_columns(shift))
    return {name: pl.concat(rows) for name, rows in parts.items()}


def test_ranks_that_are_alike_share_a_row() -> None:
    with open_tables(ranks(*[(healthy(), PLAIN)] * 8)) as opened:
        table = opened.doctor()
    assert found(table) == {"rank_clocks": "unknown"}
    assert table.frame["check"].is_unique().all()
    assert set(table.frame["ranks"]) == {"0-7"}


def test_ranks_that_were_left_out_by_choice_are_not_missing() -> None:
    with open_tables(ranks(*[(healthy(), PLAIN)] * 2), only(ranks=[1])) as opened:
        assert found(opened.doctor()) == {"ranks_missing": "unknown"}


def test_ranks_that_differ_have_a_row_each_verdict_with_the_worst_figure() -> None:
    worse = [*earlier_work(healthy()), kernel("gemm", -300, 100, 4)]
    made = ranks((healthy(), PLAIN), (earlier_work(healthy()), PLAIN), (worse, PLAIN), (healthy(), PLAIN))
    with open_tables(made) as opened:
        rows = opened.doctor().frame.filter(pl.col("check") == "work_without_launch")
        assert rows.select("ranks", "verdict", "count").rows() == [("1-2", "warn", 2), ("0, 3", "ok", 0)]
        assert rows["meaning"][0].startswith("worst in rank 2: 4.5 % of device time has no launch")
        shown = page(opened.doctor()).frame
    assert any(text.startswith("device work without a launch (ranks 1-2):") for text in shown["finding"])


def test_steps_that_only_some_ranks_recorded_are_told() -> None:
    late = [row for row in healthy() if row["name"] != "ProfilerStep#5"]
    with open_tables(ranks((healthy(), PLAIN), (late, PLAIN))) as opened:
        assert found(opened.doctor()) == {"rank_steps": "warn", "rank_clocks": "unknown"}


@pytest.mark.parametrize(("offset", "said"), [(900_000, "ok"), (-1_000_000, "warn")])
def test_clocks_that_are_far_apart_are_told(offset: int, said: str) -> None:
    here = {"traces": [{"clock_offset_ns": 0}, {"clock_offset_ns": offset}]}
    clocks = doctor_ranks.rank_clocks(here)
    assert clocks.value_ns == abs(offset)
    assert (abs(offset) >= CHECKS["rank_clocks"]["warn"]) == (said == "warn")


def test_ranks_are_written_as_ranges() -> None:
    assert ranks_text([3, 0, 1, 2, 9, 11, 12]) == "0-3, 9, 11-12"
    assert ranks_text([]) == ""


def test_the_page_says_the_verdict_what_is_wrong_and_what_to_do() -> None:
    events = without("python_function")(cut_short(healthy()))
    assert shown(diagnosis(events, None)) == snapshot("""\
verdict: not fit to judge by: launches without device work; with care: partial steps, device work without a launch
warn: partial steps: 1 of 5 steps: nothing was recorded in them, or recording stopped there. → step_breakdown
bad: launches without device work: 4 of 40 launches (10.0 %) lack their kernel: none after 3.55 ms has one, the profiler's buffer was full.
warn: device work without a launch: 1.7 % of device time has no launch in the trace (launched before the recording began): its roles come from kernel names and order. → unlinked_kernels
lacks: stacks: not recorded, so work can't be traced to lines of Python.
lacks: modules: not recorded, so what belongs to attention beside its core is told by the names and the order of ops, where it is told at all (no answer: module_tree).
next time: profile with with_stack=True.
next time: End the recording after a step, and synchronise the device before it ends.
next time: Synchronise the device before recording ends, record fewer steps, or raise ACTIVITIES_MAX_GPU_BUFFER_SIZE_MB in KINETO_CONFIG.
next time: Synchronise the device before recording starts; warmup=1 or more.
can't tell: slower while recorded: no step was timed without the profiler.
ok: 29 more checks; -f table shows every one.
""")


def cut_short(events: list[Event]) -> list[Event]:
    """Return events that lost their last kernels, with work from before and an empty step."""
    return [*full_buffer(earlier_work(events)), step(9, 4000, 10)]


def shown(table: Table) -> str:
    """Return the page as lines of topic, finding and question."""
    lines = page(table).frame.iter_rows()
    return "".join(f"{topic}: {text}{f' → {ask}' if ask else ''}\n" for topic, text, ask in lines)


def test_the_note_beside_answers_names_what_changes_numbers() -> None:
    with run(*cut_short(healthy()), facts=PLAIN) as opened:
        (note,) = opened.query("top_kernels").notes
        assert opened.query("top_kernels").notes == (note,)
    assert note.text == snapshot(
        "trace quality: 10.0 % of launches lack their device work; 1.7 % of device time has no op in the trace, its roles come from kernel names and order (see `tracekit doctor`)."
    )


def test_every_check_has_its_function_and_every_bound_its_source() -> None:
    for name, rule in CHECKS.items():
        rooms = (doctor_recording, doctor_device, doctor_ranks)
        assert sum(hasattr(room, name) for room in rooms) == 1, name
        assert rule["source"], name
        assert rule["figure"] in {"count", "share_frac", "value_ns", "ratio"}, name
        assert rule["bears_on"] in {"numbers", "answers"}, name
        assert rule.get("warn", 0) <= rule.get("bad", float("inf")), name
        assert rule["next"], name


def test_a_step_is_cold_from_the_ratio_on_that_marks_it_in_table_step() -> None:
    linking = tomllib.loads(files("tracekit.link").joinpath("phases.toml").read_text(encoding="utf-8"))
    assert CHECKS["cold_first_step"]["warn"] == linking["step"]["cold_ratio"]


def test_every_check_but_those_between_ranks_and_of_the_file_is_broken_above() -> None:
    broken = {check for _, expected in BROKEN.values() for check in expected}
    elsewhere = {
        "read_whole",
        "file_undamaged",
        "events_lost",
        "events_repaired",
        "device",
        "recording_inflation",
        "idle_device",
    }
    elsewhere |= {"ranks_missing", "rank_steps", "rank_clocks"}
    assert set(CHECKS) - elsewhere == broken - elsewhere


# Figures of real traces, worked out again from the file with the standard library.


@pytest.mark.parametrize(
    "name", ["h100-nanogpt-8ranks/rank3.json.gz", "v100-resnet-2021.json.gz", "b200-vllm-eager.json.gz"]
)
def test_figures_of_a_real_trace_are_those_of_a_second_reading(traces: Path, name: str) -> None:
    raw = independent.read((traces / name).read_bytes())
    with trace_file(traces / name) as opened:
        table = opened.doctor()
    works = independent.device_work(raw)
    total = sum(work.duration for work in works)
    calls = independent.launched_by(raw)
    lone = [work for work in works if work.correlation not in calls]
    lone_row = row(table, "work_without_launch")
    assert (lone_row["count"], lone_row["share_frac"]) == (
        len(lone),
        pytest.approx(sum(w.duration for w in lone) / total),
    )
    delays = [
        work.start - independent.span(calls[work.correlation]).start for work in works if work.correlation in calls
    ]
    early = row(table, "starts_before_launch")
    assert (early["count"], row(table, "starts_late")["value_ns"]) == (sum(d < 0 for d in delays), max(0, min(delays)))
    assert row(table, "zero_durations")["count"] == sum(work.duration == 0 for work in works)
    assert row(table, "stream_overlaps")["count"] == sum(over > 4000 for over in overlaps(works))
    assert row(table, "idle_device")["share_frac"] == pytest.approx(idle_share(works))
    own = [e for e in independent.complete(raw, {"overhead"}) if e["name"] != "Command Buffer Full"]
    assert row(table, "profiler_overhead")["count"] == len(own)
    steps = step_lengths(raw)
    if len(steps) > 1:
        ratio = steps[0] / statistics.median(steps[1:])
        assert row(table, "cold_first_step")["ratio"] == pytest.approx(ratio)


def step_lengths(raw: list[independent.Event]) -> list[int]:
    """Return how long each profiler step took, in ns, in order of start."""
    marks = independent.complete(raw, independent.ANNOTATIONS)
    spans = sorted(independent.span(mark) for mark in marks if mark["name"].startswith("ProfilerStep#"))
    return [span.end - span.start for span in spans]


def overlaps(works: Iterable[independent.Work]) -> list[int]:
    """Return by how many ns each piece of work reaches into the next one of its stream."""
    streams: dict[str, list[independent.Work]] = {}
    for work in works:
        streams.setdefault(work.stream, []).append(work)
    ordered = (sorted(each, key=lambda work: (work.start, work.duration)) for each in streams.values())
    return [a.start + a.duration - b.start for each in ordered for a, b in pairwise(each)]


def idle_share(works: Iterable[independent.Work]) -> float:
    """Return the share of the time from first to last work in which nothing ran, of one device."""
    spans = sorted(independent.Span(work.start, work.start + work.duration) for work in works)
    whole = max(span.end for span in spans) - spans[0].start
    return 1 - independent.busy(spans) / whole
