"""Clocks of ranks are told apart by the ends of collectives they share, or it is said why not."""

from __future__ import annotations

import gzip
import json
from decimal import Decimal
from statistics import median
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from tracekit.link.clocks import Clock, Trace, offsets
from tracekit.link.collectives import COLLECTIVE, collectives
from tracekit.loading import tables_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

SECOND = 1_000_000_000
UNIX = 1_700_000_000 * SECOND


def rows(ends: Sequence[int], **columns: Any) -> pl.DataFrame:
    """Make all_reduces of 1 µs with these ends; a column is one value for all or a list."""
    known = {"name": "all_reduce", "group_name": "0", "group_ranks": "[0, 1]", "bytes": 4, "kernel_id": 0} | columns
    data = {name: value if isinstance(value, list) else [value] * len(ends) for name, value in known.items()}
    data |= {"start_ns": [end - 1000 for end in ends], "dur_ns": [1000] * len(ends)}
    frame = pl.DataFrame(data, schema_overrides={"sequence_number": pl.Int64} if "sequence_number" in data else None)
    frame = frame.with_row_index("collective_id")
    missing = [pl.lit(None, kind).alias(name) for name, kind in COLLECTIVE.items() if name not in frame.columns]
    return frame.with_columns(missing).select(pl.col(name).cast(kind) for name, kind in COLLECTIVE.items())


def pair(one: pl.DataFrame, other: pl.DataFrame) -> Clock:
    """Return the second rank's clock; its trace begins 500 ns later by the wall clocks."""
    return offsets([Trace(0, UNIX, one), Trace(1, UNIX + 500, other)])[1]


def figures(clock: Clock) -> tuple[str, int, int | None, int | None, int | None]:
    return clock.status, clock.matched, clock.offset_ns, clock.start_ns, clock.spread_ns


ENDS = [10_000, 25_000, 31_000, 48_000, 70_000]


def later(ends: Sequence[int], by: int) -> list[int]:
    return [end + by for end in ends]


def test_an_offset_is_how_far_a_wall_clock_is_ahead() -> None:
    assert figures(pair(rows(ENDS), rows(later(ENDS, 2000)))) == snapshot(("estimated", 5, 2500, -2000, 0))


def test_a_start_lays_a_trace_on_the_references_line() -> None:
    clock = pair(rows(ENDS), rows(later(ENDS, 2000)))
    assert clock.start_ns is not None
    assert later(later(ENDS, 2000), clock.start_ns) == ENDS


def test_the_reference_is_the_lowest_rank_whatever_the_order() -> None:
    found = offsets([Trace(5, UNIX, rows(later(ENDS, 7))), Trace(3, UNIX, rows(ENDS))])
    assert [(clock.rank, clock.reference_rank, clock.status, clock.offset_ns) for clock in found] == snapshot(
        [(3, 3, "reference", 0), (5, 3, "estimated", 7)]
    )


def test_one_end_far_off_moves_nothing() -> None:
    ends = later(ENDS, 2000)
    ends[2] += 15_000
    clock = pair(rows(ENDS), rows(ends))
    assert (clock.offset_ns, clock.spread_ns) == (2500, 0)


def test_without_a_wall_clock_only_the_start_is_known() -> None:
    found = offsets([Trace(0, UNIX, rows(ENDS)), Trace(1, None, rows(later(ENDS, 2000)))])[1]
    assert (found.status, found.offset_ns, found.start_ns, found.reason) == snapshot(
        ("estimated", None, -2000, "a trace does not say when it began: only start_ns is known")
    )


def test_sequence_numbers_match_what_order_would_not() -> None:
    one = rows(ENDS, sequence_number=[1, 2, 3, 4, 5])
    other = rows(later(ENDS, 2000)[1:], sequence_number=[2, 3, 4, 5])
    assert figures(pair(one, other)) == snapshot(("estimated", 4, 2500, -2000, 0))


def test_recordings_that_began_apart_are_laid_by_what_they_moved() -> None:
    one = rows([*ENDS, 90_000], bytes=[1, 2, 3, 4, 5, 6])
    other = rows(later(ENDS, 2000)[1:], bytes=[2, 3, 4, 5])
    assert figures(pair(one, other)) == snapshot(("estimated", 4, 2500, -2000, 0))


def test_of_two_ways_to_lay_them_the_one_with_close_ends_is_taken() -> None:
    other = rows(later(ENDS, 2000)[1:])
    assert figures(pair(rows(ENDS), other)) == snapshot(("estimated", 4, 2500, -2000, 0))


def test_nothing_is_said_where_two_ways_to_lay_them_are_alike() -> None:
    even = list(range(10_000, 100_000, 10_000))
    clock = pair(rows(even), rows(later(even, 2000)[1:]))
    assert (clock.status, clock.reason) == snapshot(
        (
            "not_derivable",
            "the collectives of the two traces can't be matched: they differ in number or in what they moved",
        )
    )


def test_nothing_is_said_where_what_they_moved_differs() -> None:
    clock = pair(rows(ENDS), rows(ENDS, bytes=[4, 4, 8, 4, 4]))
    assert (clock.status, clock.reason) == snapshot(
        (
            "not_derivable",
            "the collectives of the two traces can't be matched: they differ in number or in what they moved",
        )
    )


def test_what_an_all_to_all_moves_may_differ_by_rank() -> None:
    clock = pair(rows(ENDS, name="all_to_all"), rows(ENDS, name="all_to_all", bytes=[4, 4, 8, 4, 4]))
    assert clock.status == "estimated"


@pytest.mark.parametrize("name", ["broadcast", "reduce", "send", "recv", "gather", "scatter", "send_recv", None])
def test_collectives_that_a_rank_can_leave_early_are_not_used(name: str | None) -> None:
    clock = pair(rows(ENDS, name=name), rows(ENDS, name=name))
    assert (clock.status, clock.reason) == ("not_derivable", "no process group with device work is in both traces")


def test_collectives_without_device_work_are_not_used() -> None:
    assert pair(rows(ENDS, kernel_id=None), rows(ENDS)).status == "not_derivable"


def test_two_shared_collectives_are_too_few() -> None:
    clock = pair(rows(ENDS[:2]), rows(ENDS[:2]))
    assert (clock.status, clock.reason) == snapshot(
        ("not_derivable", "too few collectives are in both traces (2; it takes 3)")
    )


def test_ends_that_lie_far_apart_are_no_measure() -> None:
    ends = [end + wait for end, wait in zip(ENDS, [0, 9_000_000, 18_000_000, 27_000_000, 40_000_000], strict=True)]
    clock = pair(rows(ENDS), rows(ends))
    assert (clock.status, clock.reason) == snapshot(
        ("not_derivable", "the ends of collectives in both traces differ by 9.0 ms: no measure of a clock")
    )


def test_groups_of_one_name_and_other_ranks_are_not_matched() -> None:
    assert pair(rows(ENDS), rows(ENDS, group_ranks="[2, 3]")).status == "not_derivable"


def test_a_rank_that_shares_nothing_with_the_reference_is_reached_through_another() -> None:
    both = pl.concat([rows(later(ENDS, 10)), rows(later(ENDS, 1_000_010), group_name="1")])
    traces = [
        Trace(0, UNIX, rows(ENDS)),
        Trace(1, UNIX, both),
        Trace(2, UNIX, rows(later(ENDS, 1_000_030), group_name="1")),
        Trace(3, UNIX, rows(ENDS, group_name="2")),
    ]
    found = [(clock.rank, clock.status, clock.offset_ns, clock.through_rank) for clock in offsets(traces)]
    assert found == snapshot(
        [
            (0, "reference", 0, None),
            (1, "estimated", 10, None),
            (2, "estimated", 30, 1),
            (3, "not_derivable", None, None),
        ]
    )


def test_a_drift_is_told_where_it_stands_out() -> None:
    ends = [number * SECOND // 10 for number in range(1, 41)]
    drifting = [end + end // 100_000 + (number % 3) * 100 for number, end in enumerate(ends)]  # 10 µs a second
    clock = pair(rows(ends), rows(drifting))
    assert clock.drift_ns_per_s == pytest.approx(10_000, rel=0.01)
    assert clock.spread_ns is not None
    assert clock.spread_ns <= 150


def test_noise_is_no_drift() -> None:
    ends = [number * SECOND // 10 for number in range(1, 41)]
    noisy = [end + (number * 7919) % 5000 for number, end in enumerate(ends)]
    assert pair(rows(ends), rows(noisy)).drift_ns_per_s is None


def test_one_trace_is_its_own_reference_and_none_gives_none() -> None:
    assert [clock.status for clock in offsets([Trace(4, None, rows([]))])] == ["reference"]
    assert offsets([]) == []


@given(
    skews=st.lists(st.integers(-10 * SECOND, 10 * SECOND), min_size=2, max_size=5),
    starts=st.lists(st.integers(-SECOND, SECOND), min_size=5, max_size=5),
    gaps=st.lists(st.integers(20_000, 900_000), min_size=3, max_size=20),
    noise=st.integers(0, 2000),
    data=st.data(),
)
def test_known_skews_are_found_within_noise(
    skews: list[int], starts: list[int], gaps: list[int], noise: int, data: st.DataObject
) -> None:
    ends = [sum(gaps[: count + 1]) for count in range(len(gaps))]
    jitter = st.lists(st.integers(0, noise), min_size=len(ends), max_size=len(ends))
    traces = [
        Trace(
            rank,
            UNIX + start + skew,  # what the rank's clock showed when its trace began at `start`
            rows([end - start + late for end, late in zip(ends, data.draw(jitter), strict=True)]),
        )
        for rank, (skew, start) in enumerate(zip(skews, starts, strict=False))
    ]
    for clock, skew, start in zip(offsets(traces), skews, starts, strict=False):
        assert clock.status in {"reference", "estimated"}
        assert clock.offset_ns is not None
        assert abs(clock.offset_ns - (skew - skews[0])) <= noise
        assert clock.start_ns is not None
        assert abs(clock.start_ns - (start - starts[0])) <= noise


def _raw_ends(path: Path) -> list[int]:
    """Return the wall-clock ends in ns of the collectives that carry metadata, in order, straight from the file."""
    content = json.loads(gzip.decompress(path.read_bytes()), parse_float=Decimal)
    kernels = [
        row
        for row in content["traceEvents"]
        if row.get("cat") == "kernel"
        and row["args"].get("Collective name") in {"_allgather_base", "_reduce_scatter_base"}
    ]
    kernels.sort(key=lambda row: row["ts"])
    return [content["baseTimeNanoseconds"] + int((row["ts"] + row["dur"]) * 1000) for row in kernels]


@pytest.fixture(scope="module")
def eight(traces: Path) -> list[Trace]:
    """Return the eight ranks of one host."""
    found = []
    for rank in range(8):
        path = traces / "h100-nanogpt-8ranks" / f"rank{rank}.json.gz"
        made = tables_of(path.read_bytes(), path.name)
        start = made["trace"]["start_unix_ns"][0]
        found.append(Trace(rank, start, collectives(made["op"], made["launch"], made["kernel"])))
    return found


def test_ranks_of_one_host_have_one_clock(eight: list[Trace]) -> None:
    table = [(clock.rank, clock.matched, clock.offset_ns, clock.spread_ns) for clock in offsets(eight)]
    assert table == snapshot(
        [
            (0, 0, 0, 0),
            (1, 76, 436, 6183),
            (2, 76, 688, 4649),
            (3, 76, -748, 6964),
            (4, 56, -2485, 10752),
            (5, 56, -964, 10662),
            (6, 56, -2007, 9656),
            (7, 56, -803, 6306),
        ]
    )
    assert all(abs(clock.offset_ns or 0) < 5_000 for clock in offsets(eight))


def test_real_offsets_are_those_of_the_raw_rows(eight: list[Trace], traces: Path) -> None:
    recorded = [
        Trace(one.rank, one.start_unix_ns, one.collectives.filter(pl.col("source") == "record")) for one in eight
    ]
    ends = [_raw_ends(traces / "h100-nanogpt-8ranks" / f"rank{rank}.json.gz") for rank in range(8)]
    for clock, own in zip(offsets(recorded), ends, strict=True):
        differences = [mine - theirs for mine, theirs in zip(own, ends[0], strict=True)]
        assert clock.matched == (56 if clock.rank else 0)
        assert clock.offset_ns == pytest.approx(median(differences), abs=1)


def test_a_skew_put_into_a_real_trace_is_found_again(eight: list[Trace]) -> None:
    plain = [clock.offset_ns for clock in offsets(eight)]
    assert all(trace.start_unix_ns is not None for trace in eight)
    skewed = [
        Trace(one.rank, (one.start_unix_ns or 0) + one.rank * 7_000_000, one.collectives) for one in reversed(eight)
    ]
    found = [clock.offset_ns for clock in offsets(skewed)]
    assert found == [(offset or 0) + rank * 7_000_000 for rank, offset in enumerate(plain)]


def test_parts_of_other_recordings_are_not_matched(traces: Path) -> None:
    found = []
    for rank, name in enumerate(("gpu-sampled-rank0.json.gz", "gpu-sampled-rank1.json.gz")):
        made = tables_of((traces / name).read_bytes(), name)
        start = made["trace"]["start_unix_ns"][0]
        found.append(Trace(rank, start, collectives(made["op"], made["launch"], made["kernel"])))
    assert offsets(found)[1].status == "not_derivable"
