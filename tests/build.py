"""Traces typed by hand: functions that make events, and one that opens them as a run."""

from __future__ import annotations

import json
from textwrap import fill
from typing import TYPE_CHECKING, Any

from tracekit.loading import tables_of
from tracekit.run import Run
from tracekit.store import Limits, Selection
from tracekit.table import Rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    import polars as pl

    from tracekit.store import Store
    from tracekit.table import Table

Event = dict[str, Any]
PROCESS, THREAD = 100, 100


def event(category: str, name: str, start: float, duration: float, **rest: Any) -> Event:
    """Make a complete event; times in µs. `rest` goes to the event itself, `args` among it."""
    row: Event = {"ph": "X", "cat": category, "name": name, "pid": PROCESS, "tid": THREAD, "ts": start, "dur": duration}
    return row | rest


def op(name: str, start: float, duration: float, *, tid: int = THREAD, **args: Any) -> Event:
    """Make a CPU op; keyword arguments with `_` for blanks, such as Sequence_number=3, become its args."""
    return event("cpu_op", name, start, duration, tid=tid, args=_args(args))


def annotation(name: str, start: float, duration: float, *, tid: int = THREAD, **args: Any) -> Event:
    """Make a user annotation."""
    return event("user_annotation", name, start, duration, tid=tid, args=_args(args))


def step(number: int, start: float, duration: float) -> Event:
    """Make a profiler step."""
    return annotation(f"ProfilerStep#{number}", start, duration)


def recorded_step(number: int, start: float, duration: float) -> Event:
    """Make a step as `tracekit capture` marks it, its number that of the facts."""
    return annotation(f"tracekit|step={number}", start, duration)


def frame(name: str, start: float, duration: float, python_id: int, parent_id: int | None = None) -> Event:
    """Make a Python frame; `nn.Module: Linear_0` makes a module."""
    return event("python_function", name, start, duration, args={"Python id": python_id, "Python parent id": parent_id})


def launch(
    start: float, correlation: int, *, name: str = "cudaLaunchKernel", duration: float = 1, tid: int = THREAD
) -> Event:
    """Make the runtime call that puts device work with this correlation on a device."""
    return event("cuda_runtime", name, start, duration, tid=tid, args={"cbid": 211, "correlation": correlation})


def kernel(
    name: str,
    start: float,
    duration: float,
    correlation: int | None = None,
    *,
    stream: int = 7,
    device: int = 0,
    **args: Any,
) -> Event:
    """Make a kernel on a device's stream."""
    known = {"device": device, "stream": stream} | ({} if correlation is None else {"correlation": correlation})
    return event("kernel", name, start, duration, pid=device, tid=stream, args=known | _args(args))


def memory(
    start: float,
    address: int | None,
    size: int,
    total: int | None,
    *,
    device_type: int = 1,
    device_id: int = 0,
    tid: int = THREAD,
) -> Event:
    """Make an allocator's row: `size` bytes allocated, or freed if negative, after which `total` are allocated.

    Without an address or a total the row has none, as in 2021. Type 1 is CUDA; the CPU is type 0, id -1.
    """
    known = {"Device Type": device_type, "Device Id": device_id, "Addr": address, "Bytes": size}
    known |= {"Total Allocated": total, "Total Reserved": None if total is None else 2 * total}
    args = {name: value for name, value in known.items() if value is not None}
    return event("cpu_instant_event", "[memory]", start, 0, ph="i", s="t", tid=tid, args=args)


def arrow(identity: Any, start: Event, end: Event, *, category: str = "fwdbwd") -> list[Event]:
    """Make the two ends of an arrow from the start of one op, such as a forward op, to that of another."""
    head = {"cat": category, "name": category, "id": identity}
    first, last = ({key: each[key] for key in ("pid", "tid", "ts")} for each in (start, end))
    return [{"ph": "s", **head, **first}, {"ph": "f", "bp": "e", **head, **last}]


def work(name: str, start: float, duration: float, correlation: int, *, op_name: str, stream: int = 7) -> list[Event]:
    """Make an op, its launch and its kernel: the op runs from 2 µs before the launch to 2 µs after it."""
    at = start - 5
    return [
        op(op_name, at - 2, 4),
        launch(at, correlation),
        kernel(name, start, duration, correlation, stream=stream),
    ]


def _args(args: dict[str, Any]) -> dict[str, Any]:
    return {name.replace("_", " "): value for name, value in args.items()}


def document(*events: Event | list[Event], **top: Any) -> bytes:
    """Make a trace file of events, lists of events flattened; `top` becomes top-level keys."""
    rows = [row for entry in events for row in (entry if isinstance(entry, list) else [entry])]
    return json.dumps({"schemaVersion": 1, "baseTimeNanoseconds": 0, **top, "traceEvents": rows}).encode()


def tables(
    *events: Event | list[Event], facts: Mapping[str, object] | None = None, **top: Any
) -> dict[str, pl.DataFrame]:
    """Load events typed by hand into tables, `facts` as if they lay beside the trace."""
    return tables_of(document(*events, **top), "hand.json", facts)


def run(
    *events: Event | list[Event],
    facts: Mapping[str, object] | None = None,
    selection: Selection | None = None,
    limits: Limits | None = None,
    **top: Any,
) -> Run:
    """Open events typed by hand as a run, `facts` as if they lay beside the trace."""
    loaded = {name: frame.lazy() for name, frame in tables(*events, facts=facts, **top).items()}
    return Run("hand.json", loaded, selection or Selection(), limits or Limits())


def trace_file(path: Path) -> Run:
    """Open a trace file as a run, past the cache."""
    loaded = {name: frame.lazy() for name, frame in tables_of(path.read_bytes(), path.name).items()}
    return Run(path.name, loaded, Selection(), Limits())


def asked(store: Store, sql: str, params: Mapping[str, Any] | None = None) -> pl.DataFrame:
    """Ask SQL that anybody may have written of a store."""
    found = store.ask(sql, params)
    return found.frame() if isinstance(found, Rows) else found


def only(steps: Iterable[int] = (), ranks: Iterable[int] = (), phases: Iterable[str] = ()) -> Selection:
    """Select a part of a run, as --steps, --ranks and --phase do."""
    return Selection(frozenset(steps), frozenset(ranks), frozenset(phases))


def ask(
    question: str,
    *events: Event | list[Event],
    facts: Mapping[str, object] | None = None,
    selection: Selection | None = None,
    **params: int | float | str,
) -> Table:
    """Answer a question about events typed by hand."""
    with run(*events, facts=facts, selection=selection) as opened:
        return opened.query(question, **params)


def csv(table: Table, *columns: str) -> str:
    """Return columns of an answer, or all, as CSV: a row a line, null as `-`, so that an eye can check it."""
    return table.frame.select(columns or table.frame.columns).write_csv(null_value="-")


def notes(table: Table) -> str:
    """Return the notes of an answer, each as `status: text`, wrapped."""
    return "".join(fill(f"{note.status}: {note.text}", 100) + "\n" for note in table.notes)
