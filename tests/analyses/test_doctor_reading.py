"""What the doctor says of a damaged trace is what reading it noted: the same severity, count, share and place."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.build import document, op
from tracekit.analyses.doctor_scans import rules
from tracekit.ingest.args import knowledge
from tracekit.loading import tables_of
from tracekit.run import Run
from tracekit.store import Limits, Selection

if TYPE_CHECKING:
    import polars as pl

CHECKS = {rule["name"]: rule for rule in rules()["check"]}


def diagnosed(made: dict[str, pl.DataFrame]) -> dict[str, dict[str, Any]]:
    """Return the doctor's row for each check."""
    with Run("hand.json", {name: rows.lazy() for name, rows in made.items()}, Selection(), Limits()) as opened:
        return {row["check"]: row for row in opened.doctor().frame.iter_rows(named=True)}


@pytest.mark.parametrize("events", [20, 150, 400])
@pytest.mark.parametrize("broken", [1, 2, 3])
def test_the_severity_of_what_reading_lost_or_repaired_is_the_doctor_s_verdict(events: int, broken: int) -> None:
    rows = [json.dumps(op(f"aten::op{number}", 10 * number, 5)).encode() for number in range(events)]
    for number in range(broken):
        rows[3 * number + 1] = rows[3 * number + 1].replace(b"aten", b'a"ten')
        rows[3 * number + 3] = rows[3 * number + 3][:20]
    made = tables_of(b'{"traceEvents": [' + b", ".join(rows) + b"]}", "t.json")
    said = diagnosed(made)
    for name, check in (("lost_event", "events_lost"), ("repaired_event", "events_repaired")):
        noticed = made["quality"].filter(check_name=name)
        severities = {severity.replace("info", "ok") for severity in noticed["severity"]}
        assert (severities, noticed["count"].sum()) == ({said[check]["verdict"]}, said[check]["count"])
        assert noticed["share_frac"].sum() == pytest.approx(said[check]["share_frac"])


def test_the_bounds_of_reading_are_the_doctor_s() -> None:
    for name, check in (("lost_event", "events_lost"), ("repaired_event", "events_repaired")):
        rule = CHECKS[check]
        assert knowledge()["bounds"][name] == {level: rule[level] for level in ("warn", "bad") if level in rule}


def test_a_duration_that_can_not_be_true_is_named_with_its_place() -> None:
    rows = [op(f"aten::op{number}", 10 * number, 5) for number in range(9)]
    rows[4]["dur"], rows[6]["dur"] = -5, 9e13
    data = document(*rows)
    said = diagnosed(tables_of(data, "t.json"))["impossible_durations"]
    first, second = (data.index(json.dumps(rows[number]).encode()) for number in (4, 6))
    assert (said["verdict"], said["count"]) == ("warn", 2)
    assert said["meaning"] == (
        f"1: Durations longer than a day were set to 0 (first at byte {second:,}). "
        f"1: Negative durations were set to 0 (first at byte {first:,})."
    )
