"""What the doctor looks at: a few scans of a run's tables, each giving figures by trace.

Owns the SQL. It judges nothing: a figure that is out of the ordinary is told apart by the checks.
"""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from tracekit.errors import TracekitError

if TYPE_CHECKING:
    from tracekit.store import Store

Facts = dict[str, Any]
"""What is known of one trace: its row of table `trace`, and figures by name; a figure without rows is missing."""

_STEPS = """
    select trace_id, number, dur_ns, is_partial from step where number is not null order by trace_id, start_ns, number
"""
_KERNELS = """
    select
        trace_id,
        unlinked_cause as cause,
        (op_id is not null or op_name is not null) as has_op, -- or named by a capture
        launch_id is not null as has_launch,
        count(*) as pieces,
        sum(dur_ns)::double as ns,
        count(*) filter (where dur_ns = 0) as zeros,
        count(*) filter (where dur_ns > $longest_ns) as endless,
        max(dur_ns) filter (where dur_ns <= $longest_ns) as longest_ns
    from kernel
    group by all
    order by all
"""
_WORK = """
    select
        trace_id,
        (op_id is not null or op_name is not null) as has_op, -- or named by a capture
        launch_id is not null as has_launch,
        sum(dur_ns)::double as ns,
        count(*) filter (where dur_ns > $longest_ns) as endless,
        max(dur_ns) filter (where dur_ns <= $longest_ns) as longest_ns
    from kernel
    group by all
"""
_DEVICES = """
    select trace_id, list(distinct device order by device) as devices
    from kernel
    where device is not null
    group by trace_id
"""
_LOST = """
    with
        made as (
            select trace_id, min(start_ns) as first_ns, max(start_ns) as last_ns, count(*) as working
            from launch
            where regexp_matches(name, $launch_calls)
            group by trace_id
        ),
        marked as (
            select
                trace_id,
                start_ns,
                regexp_matches(name, $launch_calls) as is_launch,
                sum(
                    case
                        when regexp_matches(name, $capture_starts) then 1
                        when regexp_matches(name, $capture_ends) then -1
                        else 0
                    end
                ) over (partition by trace_id order by start_ns) > 0 as is_captured
            from other_event
            where phase_letter = 'X' and regexp_matches(category, $launch_categories)
        ),
        lost as (select * from marked where is_launch)
    select
        trace_id,
        coalesce(any_value(working), 0) as working_launches,
        count(*) filter (where is_captured) as captured,
        count(*) filter (where not is_captured) as lost,
        count(*) filter (where not is_captured and start_ns < first_ns) as lost_before,
        count(*) filter (where not is_captured and start_ns > last_ns) as lost_after,
        any_value(last_ns) as last_working_ns
    from lost
    left join made using (trace_id)
    group by trace_id
"""
_DELAYS = """
    with
        delays as (
            select k.trace_id, k.start_ns - l.start_ns as delay_ns from kernel as k join launch as l using (launch_id)
        )
    select
        trace_id,
        count(*) as linked,
        count(*) filter (where delay_ns < 0) as early,
        -min(delay_ns) filter (where delay_ns < 0) as worst_lead_ns,
        -median(delay_ns) filter (where delay_ns < 0) as median_lead_ns,
        min(delay_ns) as least_delay_ns
    from delays
    group by trace_id
"""
_OVERLAPS = """
    with
        pairs as (
            select
                trace_id,
                dur_ns,
                start_ns + dur_ns - lead(start_ns) over (
                    partition by trace_id, device, stream order by start_ns, dur_ns, kernel_id
                ) as over_ns
            from kernel
        )
    select
        trace_id,
        count(over_ns) as pairs,
        count(*) filter (where over_ns > $usual_overlap_ns) as overlaps,
        count(*) filter (where over_ns between 1 and $usual_overlap_ns) as usual_overlaps,
        sum(over_ns) filter (where over_ns > $usual_overlap_ns)::double as overlap_ns,
        max(over_ns) as worst_overlap_ns
    from pairs
    group by trace_id
"""
_IDLE = """
    with
        reached as (
            select
                trace_id,
                device,
                start_ns,
                start_ns + dur_ns as end_ns,
                max(start_ns + dur_ns) over (
                    partition by trace_id, device order by start_ns, dur_ns
                    rows between unbounded preceding and 1 preceding
                ) as before_ns
            from kernel
        ),
        devices as (
            select
                trace_id,
                max(end_ns) - min(start_ns) as span_ns,
                sum(greatest(0, end_ns - greatest(start_ns, coalesce(before_ns, start_ns))))::double as busy_ns
            from reached
            group by trace_id, device
        )
    select trace_id, sum(span_ns)::double as span_ns, sum(busy_ns) as busy_ns from devices group by trace_id
"""
_OPS = """
    select
        trace_id,
        count(*) filter (where kind <> 'annotation') as ops,
        count(*) filter (where not is_finished) as unfinished,
        max(start_ns + dur_ns) filter (where dur_ns <= $longest_ns) - min(start_ns) as host_ns,
        count(*) filter (where dur_ns > $longest_ns) as endless_ops
    from op
    group by trace_id
"""
_OVERHEAD = """
    select trace_id, count(*) as overheads, sum(dur_ns)::double as overhead_ns
    from other_event
    where category = 'overhead' and not list_contains($waits, name)
    group by trace_id
"""
_REPEATED = r"""
    with
        calls as (
            select trace_id, category, correlation, count(*) as n from launch group by all having count(*) > 1
        ),
        kernels as (
            select k.trace_id, k.correlation, count(*) as n, sum(k.dur_ns)::double as ns
            from kernel as k
            left join launch as l on l.launch_id = k.launch_id
            where k.correlation is not null
            group by k.trace_id, k.correlation
            having count(*) > 1 and not coalesce(bool_or(regexp_matches(l.name, '(?i)graph')), false)
        ),
        repeats as (
            select trace_id, n - 1 as calls, 0 as pieces, 0::double as ns from calls
            union all by name
            select trace_id, 0 as calls, n as pieces, ns from kernels
        )
    select
        trace_id,
        sum(calls)::bigint as repeated_calls,
        sum(pieces)::bigint as repeated_pieces,
        sum(ns) as repeated_ns
    from repeats
    group by trace_id
"""
_ALLOCATIONS = """
    select
        trace_id,
        count(*) filter (where start_ns is null) as frees_alone,
        count(*) filter (where end_ns is not null) as frees
    from allocation
    group by trace_id
"""
_SAMPLES = """
    select
        trace_id,
        count(*) filter (where device <> 'cpu') as device_samples,
        count(*) filter (where device <> 'cpu' and reserved_bytes > 0) as reserved_samples
    from memory_sample
    group by trace_id
"""


@cache
def rules() -> dict[str, Any]:
    """Return what doctor.toml says: the checks in their order, and the names and bounds that scans need."""
    return tomllib.loads(files("tracekit.analyses").joinpath("doctor.toml").read_text(encoding="utf-8"))


QUICKLY_READ = ("trace", "quality", "kernel")
"""The tables that `quick` reads."""


def quick(store: Store) -> dict[int, Facts]:
    """Return by trace what a few short scans tell: its own row, quality and device work."""
    traces = _traces(store)
    _collect(store, traces, "kernels", _WORK, _bounds("longest_ns"))
    if any(row["check_name"] == "launch_without_work" for facts in traces.values() for row in facts["quality"]):
        _lost(store, traces)
    return traces


def thorough(store: Store) -> dict[int, Facts]:
    """Return by trace all that the checks look at."""
    traces = _traces(store)
    _collect(store, traces, "kernels", _KERNELS, _bounds("longest_ns"))
    _collect(store, traces, "steps", _STEPS)
    _lost(store, traces)
    _merge(store, traces, _OPS, _bounds("longest_ns"))
    _merge(store, traces, _OVERHEAD, _bounds("waits"))
    if any(facts["kernels"] for facts in traces.values()):
        _merge(store, traces, _OVERLAPS, _bounds("usual_overlap_ns"))
        for scan in (_DEVICES, _DELAYS, _IDLE, _REPEATED):
            _merge(store, traces, scan)
    if any(facts["has_memory"] for facts in traces.values()):
        _merge(store, traces, _ALLOCATIONS)
        _merge(store, traces, _SAMPLES)
    return traces


def _traces(store: Store) -> dict[int, Facts]:
    rows = store.rows("select * from trace order by rank nulls first, trace_id")
    if not rows:
        raise TracekitError("the run holds no trace", "load the trace again with this version of tracekit")
    traces: dict[int, Facts] = {row["trace_id"]: row | {"quality": [], "steps": [], "kernels": []} for row in rows}
    for row in store.rows("select * from quality order by all"):
        traces[row["trace_id"]]["quality"].append(row)
    return traces


def _lost(store: Store, traces: dict[int, Facts]) -> None:
    _merge(store, traces, _LOST, _bounds("launch_categories", "launch_calls", "capture_starts", "capture_ends"))


def _bounds(*names: str) -> Facts:
    return {name: rules()["scan"][name] for name in names}


def _collect(store: Store, traces: dict[int, Facts], name: str, sql: str, params: Facts | None = None) -> None:
    for row in store.rows(sql, params):
        traces[row["trace_id"]][name].append(row)


def _merge(store: Store, traces: dict[int, Facts], sql: str, params: Facts | None = None) -> None:
    for row in store.rows(sql, params):
        traces[row["trace_id"]].update(row)
