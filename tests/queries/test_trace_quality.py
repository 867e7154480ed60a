"""Whether a trace is fit to judge by: one hand-made trace for each thing that can be wrong with it."""

from __future__ import annotations

import pytest
from inline_snapshot import snapshot

from tests.build import Event, ask, csv, event, frame, kernel, launch, notes, op, run, step, work

END = event("trace", "Record Window End", 1000, 0)
MEMORY: Event = {
    "ph": "i",
    "cat": "cpu_instant_event",
    "name": "[memory]",
    "pid": 100,
    "tid": 100,
    "ts": 5,
    "args": {"Device Type": 1, "Device Id": 0, "Addr": 1, "Bytes": 8, "Total Allocated": 8, "Total Reserved": 16},
}


def whole() -> list[Event]:
    """Make a trace with everything recorded: shapes, stacks, a module, memory, linked work and an end marker."""
    return [
        frame("nn.Module: Linear_0", 0, 40, 1),
        op("aten::mm", 10, 10, Input_Dims=[[2, 2], [2, 2]]),
        launch(15, 1),
        kernel("gemm", 30, 60, 1),
        MEMORY,
        END,
    ]


def row(check: str, *events: Event | list[Event]) -> dict[str, object]:
    """Return the one row that a check gives, by column."""
    rows = ask("trace_quality", *events).frame.rows(named=True)
    return next(row for row in rows if row["check"] == check)


def test_a_whole_trace_has_nothing_but_ok() -> None:
    table = ask("trace_quality", *whole())
    assert csv(table, "rank", "check", "severity", "count", "share_frac") == snapshot("""\
rank,check,severity,count,share_frac
-,events,ok,6,-
-,linked_device_time,ok,1,1.0
""")
    assert table.frame["message"].to_list() == snapshot(
        [
            "Events read from hand.json, dialect kineto-relative.",
            "Device work with an op, and its share of device time.",
        ]
    )
    assert notes(table) == ""


@pytest.mark.parametrize(
    ("linked", "severity"), [(96, "ok"), (95, "ok"), (94, "warn"), (50, "warn"), (49, "bad"), (0, "bad")]
)
def test_the_share_of_device_time_with_an_op_decides_how_bad_it_is(linked: int, severity: str) -> None:
    events = [*work("gemm", 20, linked, 1, op_name="aten::mm")] if linked else []
    found = row("linked_device_time", *events, kernel("mystery", 200, 100 - linked, 99))
    assert (found["severity"], found["count"], found["share_frac"]) == (severity, bool(linked), linked / 100)


def test_work_that_starts_before_its_launch_is_counted() -> None:
    events = [
        *work("gemm", 20, 10, 1, op_name="aten::mm"),
        op("aten::mm", 40, 20),
        launch(55, 2),
        kernel("gemm", 50, 5, 2),
    ]
    found = row("starts_before_launch", *events)
    assert (found["severity"], found["count"], found["share_frac"]) == ("warn", 1, 0.5)
    assert found["message"] == snapshot(
        "Device work that starts before its own launch: clocks disagree; share of linked work."
    )


def test_a_run_without_a_device_says_what_counts_instead() -> None:
    table = ask("trace_quality", op("aten::mm", 0, 10))
    assert table.frame["check"].to_list() == snapshot(["events", "no_device", "not_recorded", "no_end_marker"])
    assert row("no_device", op("aten::mm", 0, 10))["message"] == snapshot(
        "No device work was recorded: questions count the self time of CPU ops."
    )


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        (
            work("gemm", 20, 10, 1, op_name="aten::mm"),
            snapshot(
                "Not recorded: shapes (record_shapes), stacks and nn.Modules (with_stack), memory (profile_memory)."
            ),
        ),
        (
            [frame("model.py(1): forward", 0, 40, 1), op("aten::mm", 10, 10, Input_Dims=[[2]]), MEMORY],
            snapshot("Not recorded: nn.Modules."),
        ),
        (
            [frame("nn.Module: Linear_0", 0, 40, 1), op("aten::mm", 10, 10), MEMORY],
            snapshot("Not recorded: shapes (record_shapes)."),
        ),
    ],
    ids=["nothing", "no module", "no shapes"],
)
def test_what_was_not_recorded_is_named_with_the_flag_that_records_it(events: list[Event], expected: str) -> None:
    assert row("not_recorded", *events)["message"] == expected


def test_a_cold_first_step_is_a_warning() -> None:
    events = [step(1, 0, 200), step(2, 200, 100), step(3, 300, 100)]
    events += [line for at in (20, 220, 320) for line in work("gemm", at, 10, at, op_name="aten::mm")]
    found = row("cold_step", *events)
    assert (found["severity"], found["count"]) == ("warn", 1)


def test_work_without_an_op_is_counted_by_its_reason() -> None:
    table = ask(
        "trace_quality",
        work("gemm", 20, 60, 1, op_name="aten::mm"),
        kernel("lost", 100, 30, 99),
        kernel("bare", 140, 5),
        kernel("bare", 150, 5),
    )
    unlinked = table.frame.filter(check="unlinked_kernel")
    assert unlinked.select("severity", "count", "share_frac", "message").rows() == snapshot(
        [
            ("warn", 2, 0.1, "Device work without an op: it has no correlation."),
            ("warn", 1, 0.3, "Device work without an op: no launch with its correlation in the trace."),
        ]
    )


def test_what_loading_noticed_is_shown() -> None:
    table = ask(
        "trace_quality",
        op("aten::mm", 0, 10, finished=False),
        op("aten::mm", 20, -5),
        event("novel_category", "x", 30, 1),
        launch(40, 5),
    )
    noticed = table.frame.filter(~table.frame["check"].is_in(["events", "no_device", "not_recorded", "no_end_marker"]))
    assert noticed.select("check", "severity", "count").rows() == snapshot(
        [
            ("launch_without_work", "bad", 1),
            ("negative_duration", "warn", 1),
            ("unfinished_op", "warn", 1),
            ("unknown_category", "warn", 1),
        ]
    )


def test_the_rank_of_the_trace_is_shown() -> None:
    with run(*whole(), distributedInfo={"rank": 3, "world_size": 8}) as opened:
        assert set(opened.query("trace_quality").frame["rank"]) == {3}


def test_every_message_is_a_sentence() -> None:
    events = [
        op("aten::mm", 0, 10, finished=False),
        op("aten::mm", 20, -5),
        event("novel", "x", 30, 1),
        kernel("k", 50, 0),
    ]
    for message in ask("trace_quality", *events, launch(60, 9)).frame["message"]:
        assert message.endswith("."), message
