"""One page about a run: what it is, where its time goes, its steps, its memory, and what to ask next.

Owns the choice of what stands on the page and its wording. Every figure comes from the tables by SQL.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import polars as pl

from tracekit.table import Table
from tracekit.units import BYTES, FRACTION, NANOSECONDS, text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracekit.store import Store

_DOCS = {
    "topic": "What the line is about.",
    "finding": "What was found.",
    "ask": "The question that says more, or the command.",
}
_MOST_PARTS = 7
_SMALLEST_SHARE = 0.0005
_UNKNOWN_SHARE = 0.05
"""With more time than this whose role is not known, attention's share is a lower bound."""


class Line(NamedTuple):
    """A line of the page: its topic, what was found, and the question that says more."""

    topic: str
    finding: str
    ask: str | None = None


def summarize(store: Store, name: str, verdict: str) -> Table:
    """Return one line a topic: run, trust, steps, attention, the rest, phases, kernels, padding, device, memory.

    `verdict` is the doctor's, in words.
    """
    pages = (
        _run(store, name),
        _trust(store, verdict),
        _steps(store),
        _work(store),
        _padding(store),
        _device(store),
        _memory(store),
    )
    lines = [line for page in pages for line in page]
    return Table("summary", pl.DataFrame(lines, schema=dict.fromkeys(_DOCS, pl.String), orient="row"), _DOCS)


def _run(store: Store, name: str) -> Iterator[Line]:
    row = store.own(
        """
        select
            count(*) as traces, any_value(device_name) as device, max(dur_ns) as dur_ns,
            sum(events)::bigint as events, bool_or(has_device) as has_device, any_value(world_size) as world_size
        from trace
        """
    ).row(0, named=True)
    traces = "1 trace" if row["traces"] == 1 else f"{row['traces']} traces"
    world = f" of {row['world_size']} ranks" if row["world_size"] else ""
    device = row["device"] or ("device not named" if row["has_device"] else "CPU only")
    length = text(row["dur_ns"], NANOSECONDS)
    yield Line("run", f"{name} · {traces}{world} · {device} · {length} · {row['events']:,} events")


def _trust(store: Store, verdict: str) -> Iterator[Line]:
    yield Line("trust", verdict, "tracekit doctor")
    linked = store.scalar(
        "select coalesce(sum(dur_ns) filter (where op_id is not null), 0) / nullif(sum(dur_ns), 0) from kernel"
    )
    sure = store.own(
        """
        select role_confidence as part, sum(dur_ns)::bigint as ns from work
        where role not in ('other', 'unlinked') group by part order by ns desc, part
        """
    )
    known, total = int(sure["ns"].sum() or 0), store.scalar("select sum(dur_ns)::bigint from work")
    parts = [] if linked is None else [f"{text(float(linked), FRACTION)} of device time has an op"]
    if total:
        sureness = f" ({_parts(sure, total)})" if known else ""
        parts.append(f"the role of {text(known / total, FRACTION)} of time is known{sureness}")
    yield Line("trust", ", ".join(parts) or "nothing to judge")


def _steps(store: Store) -> Iterator[Line]:
    row = store.own(
        """
        select
            count(*) filter (where not is_partial) as steps, count(*) as marked,
            median(dur_ns) filter (where not is_partial) as p50, min(dur_ns) filter (where not is_partial) as low,
            max(dur_ns) filter (where not is_partial) as high, count(*) filter (where is_cold) as cold,
            count(distinct trace_id) as traces, min(of_trace) as fewest, max(of_trace) as most
        from (
            select *, count(*) filter (where not is_partial) over (partition by trace_id) as of_trace
            from step where number is not null
        )
        """
    ).row(0, named=True)
    if not row["steps"]:
        without = "none marked: the whole trace is taken as one"
        yield Line(
            "steps", f"{row['marked']} marked, none of them whole" if row["marked"] else without, "step_breakdown"
        )
        return
    low, p50, high = (text(row[key], NANOSECONDS) for key in ("low", "p50", "high"))
    spread = f"median {p50}, {low} to {high}" if row["steps"] > 1 else p50
    cold = ", the first one cold" if row["cold"] else ""
    yield Line("steps", f"{_counted(**row)} of {spread} on the host{cold}", "step_breakdown")
    yield from _recording_cost(store, row["p50"])


def _counted(steps: int, traces: int, fewest: int, most: int, **_: object) -> str:
    """Return how many steps there are; those of several ranks are the same ones as a rule."""
    if traces == 1:
        return f"{steps}"
    return f"{most} in each of {traces} traces," if fewest == most else f"{fewest} to {most} in {traces} traces,"


def _recording_cost(store: Store, recorded_ns: float) -> Iterator[Line]:
    """Say how much slower the steps were while they were recorded, where they were timed without that too."""
    plain_ns = store.scalar("select median(unprofiled_step_ns) from trace")
    if plain_ns:
        plain = text(plain_ns, NANOSECONDS)
        finding = f"a step took {recorded_ns / plain_ns:.2f} times the {plain} that it took without the profiler"
        yield Line("recording", finding)


def _padding(store: Store) -> Iterator[Line]:
    row = store.own(
        """
        select
            1 - sum(useful_tokens) / nullif(sum(computed_tokens), 0) as tokens,
            1 - sum(useful_pairs) / nullif(sum(computed_pairs), 0) as pairs
        from batch where computed_tokens is not null
        """
    ).row(0, named=True)
    if row["tokens"] is not None:
        pairs = "" if row["pairs"] is None else f", {text(float(row['pairs']), FRACTION)} of attention pairs"
        yield Line("padding", f"{text(float(row['tokens']), FRACTION)} of tokens{pairs}", "padding_waste")


def _work(store: Store) -> Iterator[Line]:
    total = store.scalar("select sum(dur_ns)::bigint from work")
    if not total:
        yield Line("time", "no work was recorded")
        return
    has_device = store.scalar("select bool_or(has_device) from trace")
    what = "device time" if has_device else "CPU time in ops"
    roles = store.own("select role as part, sum(dur_ns)::bigint as ns from work group by part order by ns desc, part")
    inside = roles.filter(pl.col("part").str.starts_with("attention."))
    yield Line("attention", _attention(store, inside, total, what), "attention_share")
    rest = roles.filter(~pl.col("part").str.starts_with("attention."))
    yield Line("the rest", _parts(rest, total) or "nothing", "kernel_attribution")
    phases = store.own("select phase as part, sum(dur_ns)::bigint as ns from work group by part order by ns desc, part")
    if phases.height > 1:
        yield Line("phases", _parts(phases, total), "attention_share")
    yield from _top(store, total, "kernels" if has_device else "ops")


def _attention(store: Store, roles: pl.DataFrame, total: int, what: str) -> str:
    of = f"{text(total, NANOSECONDS)} {what}"
    has_modules = bool(store.scalar("select bool_or(has_modules) from trace"))
    if not roles.height:
        only = "without nn.Module rows only what names, order and shapes show is"
        return f"none in {of}" if has_modules else f"none found in {of}; {only}"
    unknown = store.scalar("select sum(dur_ns)::bigint from work where role in ('other', 'unlinked')") or 0
    least = "at least " if unknown >= _UNKNOWN_SHARE * total else "" if has_modules else "about "
    share = text(int(roles["ns"].sum()) / total, FRACTION)
    parts = _parts(roles.with_columns(pl.col("part").str.strip_prefix("attention.")), total)
    return f"{least}{share} of {of}: {parts}"


def _top(store: Store, total: int, topic: str) -> Iterator[Line]:
    rows = store.own(
        """
        select name, sum(dur_ns)::bigint as ns, count(*) as calls from work
        group by name order by ns desc, name limit 3
        """
    )
    for name, ns, calls in rows.iter_rows():
        yield Line(topic, f"{text(ns / total, FRACTION)} in {calls:,} × {_short(name)}", "top_kernels")


def _parts(parts: pl.DataFrame, total: int) -> str:
    named = [(part, ns) for part, ns in parts.select("part", "ns").iter_rows() if ns / total >= _SMALLEST_SHARE]
    shown = [f"{part} {text(ns / total, FRACTION)}" for part, ns in named[:_MOST_PARTS]]
    if rest := named[_MOST_PARTS:]:
        shown.append(f"{len(rest)} more {text(sum(ns for _, ns in rest) / total, FRACTION)}")
    return ", ".join(shown)


def _short(name: str, most: int = 80) -> str:
    return name if len(name) <= most else f"{name[: most // 2]}…{name[1 - most // 2 :]}"


def _device(store: Store) -> Iterator[Line]:
    rows = store.own(
        """
        with reached as (
            select
                trace_id, device, start_ns, start_ns + dur_ns as end_ns,
                max(start_ns + dur_ns) over (
                    partition by trace_id, device order by start_ns, dur_ns
                    rows between unbounded preceding and 1 preceding
                ) as before_ns
            from kernel
        )
        select
            device, max(end_ns) - min(start_ns) as span_ns,
            sum(greatest(0, end_ns - greatest(start_ns, coalesce(before_ns, start_ns))))::bigint as busy_ns
        from reached group by trace_id, device order by trace_id, device
        """
    )
    for device, span, busy in rows.iter_rows():
        if span:
            idle = text(1 - busy / span, FRACTION)
            span_text = text(span, NANOSECONDS)
            yield Line("device", f"{device}: idle {idle} of the {span_text} from first to last work")


def _memory(store: Store) -> Iterator[Line]:
    rows = store.own(
        """
        select
            device, max(allocated_bytes) as peak, max(reserved_bytes) as reserved,
            first(time_ns order by allocated_bytes desc, sample_id) as time_ns
        from memory_sample where allocated_bytes is not null group by device order by device
        """
    )
    for device, peak, reserved, time_ns in rows.iter_rows():
        held = f", {text(reserved, BYTES)} reserved" if reserved else ""
        when = text(time_ns, NANOSECONDS)
        yield Line("memory", f"{device}: peak {text(peak, BYTES)} allocated{held}, at {when}", "memory_hotspots")
