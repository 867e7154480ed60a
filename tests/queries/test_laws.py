"""Laws that answers keep on real traces, against a second reading of the same files that shares no code with ours."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests import independent
from tests.build import trace_file
from tests.independent import Span, Work

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tracekit.run import Run

FILES = ["h100-qwen1.5-0.5b.json.gz", "v100-training-memory.json.gz"]
GROUPINGS = ["role", "module", "op", "family", "phase", "role,phase", "role,module,op,family", ""]


class Case(NamedTuple):
    """A real trace: opened by us, and its device work as an independent reading finds it."""

    opened: Run
    raw: list[independent.Event]
    work: list[Work]

    @property
    def total(self) -> int:
        """Return the ns of all device work."""
        return sum(piece.duration for piece in self.work)


@pytest.fixture(scope="module", params=FILES)
def case(request: pytest.FixtureRequest, traces: Path) -> Iterator[Case]:
    """Open one trace both ways; pytest runs all tests on it before it opens the next."""
    path = traces / request.param
    raw = independent.read(path.read_bytes())
    with trace_file(path) as opened:
        yield Case(opened, raw, independent.device_work(raw))


@pytest.mark.parametrize("by", GROUPINGS)
@pytest.mark.parametrize("by_step", [False, True])
def test_however_work_is_grouped_it_adds_up_to_all_of_it(case: Case, by: str, by_step: object) -> None:
    found = case.opened.query("kernel_attribution", by=by, by_step=by_step, top=0).frame
    assert found["total_ns"].sum() == case.total
    assert found["calls"].sum() == len(case.work)
    assert found["share_frac"].sum() == pytest.approx(1)
    assert (found["p50_ns"] <= found["p99_ns"]).all()


def test_attention_and_rest_are_everything_in_every_phase(case: Case) -> None:
    found = case.opened.query("attention_share").frame
    assert (found["attention_ns"] + found["rest_ns"]).to_list() == found["total_ns"].to_list()
    assert (found["core_ns"] <= found["attention_ns"]).all()
    assert (found["unlinked_ns"] <= found["rest_ns"]).all()
    whole, phases = found.filter(phase="all"), found.filter(found["phase"] != "all")
    assert whole["total_ns"].item() == case.total
    for column in ("total_ns", "attention_ns", "core_ns", "rest_ns", "unlinked_ns", "pieces"):
        assert phases[column].sum() == whole[column].item(), column


def test_names_have_the_times_that_an_independent_reading_finds(case: Case) -> None:
    by_name: dict[str, list[int]] = defaultdict(list)
    for piece in case.work:
        by_name[piece.name].append(piece.duration)
    expected = {
        name: (len(times), sum(times), _percentile(times, 0.5), _percentile(times, 0.99), max(times))
        for name, times in by_name.items()
    }
    found = case.opened.query("top_kernels", top=0).frame
    rows = found.select("kernel", "calls", "total_ns", "p50_ns", "p99_ns", "max_ns").iter_rows()
    assert {name: tuple(rest) for name, *rest in rows} == expected
    assert found["total_ns"].is_sorted(descending=True)
    assert found["cumulative_frac"].is_sorted()
    assert found["cumulative_frac"][-1] == pytest.approx(1)


def _percentile(times: list[int], part: float) -> int:
    return sorted(times)[math.ceil(part * len(times)) - 1]


def test_work_without_an_op_is_what_independent_nesting_leaves_over(case: Case) -> None:
    works = independent.device_work(case.raw)
    owned = [piece for piece, _ in independent.ops_of_work(case.raw, works)]
    left = list((Counter(works) - Counter(owned)).elements())
    found = case.opened.query("unlinked_kernels", top=0).frame
    assert found["calls"].sum() == len(left)
    assert found["total_ns"].sum() == sum(piece.duration for piece in left)
    assert found["share_frac"].sum() == pytest.approx(sum(piece.duration for piece in left) / case.total)


def test_busy_idle_and_role_times_are_those_of_the_file(case: Case) -> None:
    found = case.opened.query("step_breakdown").frame
    assert (found["busy_ns"] + found["idle_ns"]).to_list() == found["window_ns"].to_list()
    steps = found.group_by("step", "device", maintain_order=True)
    shown = {
        (step, device): (rows["window_ns"][0], rows["busy_ns"][0], rows["role_ns"].sum())
        for (step, device), rows in steps
    }
    expected = {}
    for number, window in _windows(case).items():
        for device in {_device(event) for event in independent.complete(case.raw, independent.DEVICE)}:
            spans = _inside(case, device, window)
            time = sum(end - start for start, end in spans)
            expected[number, device] = (window.end - window.start, independent.busy(spans) if spans else 0, time)
    assert shown == expected


def _windows(case: Case) -> dict[int | None, Span]:
    """Return the profiler's steps by number, or the whole trace as one."""
    marks = independent.complete(case.raw, independent.ANNOTATIONS | independent.OPS)
    steps: dict[int | None, Span] = {
        int(mark["name"].partition("#")[2]): independent.span(mark)
        for mark in marks
        if mark["name"].startswith("ProfilerStep#")
    }
    rows = independent.complete(
        case.raw,
        independent.OPS | independent.ANNOTATIONS | independent.FRAMES | independent.CALLS | independent.DEVICE,
    )
    return steps or {None: Span(independent.first_moment(case.raw), max(independent.span(row).end for row in rows))}


def _device(event: independent.Event) -> int:
    return int(str(independent.args(event).get("device", event["pid"])))


def _inside(case: Case, device: int, window: Span) -> list[Span]:
    """Return the parts of a device's work inside a window, in order of start."""
    events = independent.complete(case.raw, independent.DEVICE)
    spans = (independent.span(event) for event in events if _device(event) == device)
    clipped = (Span(max(start, window.start), min(end, window.end)) for start, end in spans)
    return sorted(span for span in clipped if span.end > span.start)
