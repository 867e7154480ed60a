"""The computation of one call of a module, or of one op, as a graph: ops in order, with what they ran on the device.

Owns which call is shown and what of each op. A trace does not say which tensor goes where, so that the order of ops is
all that its edges tell.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from tracekit.attention.calls.arguments import read_inputs
from tracekit.errors import TracekitError

if TYPE_CHECKING:
    import polars as pl

    from tracekit.store import Store

MOST = 1_000
"""More ops than this are no picture."""


@dataclass(frozen=True)
class Kernel:
    """Device work of one name under an op: how often it ran, and its time in ns."""

    name: str
    calls: int
    dur_ns: int


@dataclass(frozen=True)
class Node:
    """An op: the modules around it below the root, the outermost op that it is part of, shapes and types of its inputs.

    `dur_ns` is the time of its device work or, where no device was recorded, of the op on the CPU, and `role` then
    that of most of the time of the ops in it, those that say nothing left out where others do. `allocated_bytes` and
    `freed_bytes` are what it made and freed, None where memory was not recorded.
    """

    name: str
    modules: tuple[str, ...]
    outermost: str
    shapes: tuple[tuple[int, ...], ...]
    types: tuple[str, ...]
    role: str
    dur_ns: int
    kernels: tuple[Kernel, ...]
    allocated_bytes: int | None
    freed_bytes: int | None


@dataclass(frozen=True)
class Graph:
    """One call: what it is of, how long it took on the host in ns, and its ops in order of start."""

    root: str
    call: int
    calls: int
    dur_ns: int
    has_device: bool
    nodes: tuple[Node, ...]


def of_module(store: Store, path: str | None, call: int) -> Graph:
    """Return the graph of a module's call, counted from 0, by default of the first attention module.

    Calls in cold or partial steps come last. Raises TracekitError if there is no such module or call.
    """
    chosen = path or store.scalar(_FIRST_ATTENTION)
    if chosen is None:
        problem = "the run knows no attention module"
        raise TracekitError(problem, "name one with --module, or record with_stack=True, which records modules")
    calls = store.own(_CALLS, {"path": chosen})
    if calls.is_empty():
        known = store.own(_LIKE, {"like": chosen.rpartition("/")[2]})["path"].to_list()
        remedy = f"such as {known[0]}" if known else '`tracekit query RUN "select path from module"` lists them'
        raise TracekitError(f"the run has no calls of a module {chosen!r}", remedy)
    if call >= calls.height:
        raise TracekitError(f"{chosen} has {calls.height} calls", f"choose --nth from 0 to {calls.height - 1}")
    return _graph(store, chosen, calls.row(call, named=True), call, calls.height)


def of_call(store: Store, call_id: int) -> Graph:
    """Return the graph of one attention call, from its first op to its last.

    Raises TracekitError if there is none of this number, or it has no op.
    """
    rows = store.own(_CALL, {"call_id": call_id})
    if rows.is_empty():
        remedy = "numbers of calls are those of the table attention_call, where op_id is not null"
        raise TracekitError(f"the run has no attention call {call_id} with an op", remedy)
    row = rows.row(0, named=True)
    return _graph(store, f"attention call {call_id} ({row['implementation']})", row, 0, 1)


def of_op(store: Store, op_id: int) -> Graph:
    """Return the graph of what one op does. Raises TracekitError if there is none of this number."""
    rows = store.own(_OP, {"op_id": op_id})
    if rows.is_empty():
        raise TracekitError(f"the run has no op {op_id}", "numbers of ops are those of the table op")
    row = rows.row(0, named=True)
    return _graph(store, row["name"], row, 0, 1)


def _graph(store: Store, root: str, span: dict[str, Any], call: int, calls: int) -> Graph:
    within = {name: span[name] for name in ("trace_id", "pid", "tid", "start_ns", "end_ns")}
    ops = store.own(_OPS, within)
    has_device = bool(store.scalar("select bool_or(has_device) from trace"))
    has_memory = bool(store.scalar("select bool_or(has_memory) from trace"))
    shown = ops.filter("has_work" if has_device else "is_outermost")
    if shown.is_empty():
        problem = f"{root} launched no device work in this call" if has_device else f"{root} ran no op in this call"
        raise TracekitError(problem, "choose another call with --nth, or a module around it")
    if shown.height > MOST:
        problem = f"{root} has {shown.height:,} ops in this call, more than make a picture"
        raise TracekitError(problem, "choose a module inside it")
    kernels = _kernels(store.own(_KERNELS, within))
    nodes = tuple(
        _node(row, root, kernels.get(row["op_id"], ()), has_memory=has_memory) for row in shown.iter_rows(named=True)
    )
    return Graph(root, call, calls, span["end_ns"] - span["start_ns"], has_device, nodes)


def _kernels(rows: pl.DataFrame) -> dict[int, tuple[Kernel, ...]]:
    found: dict[int, tuple[Kernel, ...]] = {}
    for op_id, *kernel in rows.iter_rows():
        found[op_id] = (*found.get(op_id, ()), Kernel(*kernel))
    return found


def _node(row: dict[str, Any], root: str, kernels: tuple[Kernel, ...], *, has_memory: bool) -> Node:
    path = row["module_path"] or ""
    modules = tuple(path.removeprefix(root).strip("/").split("/")) if path.startswith(f"{root}/") else ()
    return Node(
        row["name"],
        modules,
        row["outermost"],
        _shapes(row["input_dims"]),
        _types(row["input_types"]),
        row["role"],
        sum(kernel.dur_ns for kernel in kernels) or row["dur_ns"],
        kernels,
        row["allocated_bytes"] if has_memory else None,
        row["freed_bytes"] if has_memory else None,
    )


def _types(text: str | None) -> tuple[str, ...]:
    """Return the types of tensors, each once, by torch's names."""
    inputs = read_inputs(None, text, None, None)
    return tuple(dict.fromkeys(one.dtype for one in inputs if one.dtype is not None))


def _listed(text: str | None) -> list[Any]:
    try:
        found = msgspec.json.decode(text) if text else []
    except msgspec.DecodeError:
        return []
    return found if isinstance(found, list) else []


def _shapes(text: str | None) -> tuple[tuple[int, ...], ...]:
    """Return the shapes of tensors, those of lists of tensors among them."""
    found = []
    for one in _listed(text):
        nested = one if isinstance(one, list) and one and all(isinstance(each, list) for each in one) else [one]
        found += [tuple(each) for each in nested if _is_shape(each)]
    return tuple(found)


def _is_shape(one: Any) -> bool:
    return isinstance(one, list) and bool(one) and all(type(size) is int for size in one)


_FIRST_ATTENTION = """
    select m.path
    from module as m
    join frame as f on f.module_id = m.module_id
    where m.kind = 'attention'
    order by m.trace_id, f.start_ns, m.module_id
    limit 1
"""
_CALLS = """
    select
        f.trace_id,
        f.pid,
        f.tid,
        f.start_ns,
        f.start_ns + f.dur_ns as end_ns
    from frame as f
    join module as m on m.module_id = f.module_id
    left join frame as p on p.frame_id = f.parent_id
    left join step as s
        on s.trace_id = f.trace_id and f.start_ns >= s.start_ns and f.start_ns < s.start_ns + s.dur_ns
    where m.path = $path and p.module_id is distinct from f.module_id
    order by coalesce(s.is_cold or s.is_partial, false), f.trace_id, f.start_ns, f.frame_id
"""
_LIKE = "select path from module where contains(path, $like) order by length(path), path limit 1"
_OP = "select name, trace_id, pid, tid, start_ns, start_ns + dur_ns as end_ns from op where op_id = $op_id"
_CALL = """
    select
        any_value(a.implementation) as implementation,
        o.trace_id,
        o.pid,
        o.tid,
        min(o.start_ns) as start_ns,
        max(o.start_ns + o.dur_ns) as end_ns
    from attention_call as a
    left join kernel as k on k.call_id = a.call_id
    join op as o on o.op_id = a.op_id or o.op_id = k.op_id
    where a.call_id = $call_id
    group by o.trace_id, o.pid, o.tid
    order by count(*) desc, o.pid, o.tid
    limit 1
"""
_OPS = """
    with recursive
        inside as (
            select *
            from op
            where
                trace_id = $trace_id
                and pid is not distinct from $pid
                and tid is not distinct from $tid
                and start_ns >= $start_ns
                and start_ns < $end_ns
                and start_ns + dur_ns <= $end_ns
                and kind <> 'annotation'
        ),
        outer_op as (
            select i.op_id, i.op_id as outermost_id, i.name as outermost, true as is_outermost
            from inside as i
            left join inside as p on p.op_id = i.parent_id
            where p.op_id is null
            union all
            select i.op_id, o.outermost_id, o.outermost, false
            from inside as i
            join outer_op as o on o.op_id = i.parent_id
        ),
        by_role as (
            select o.outermost_id, i.role, sum(i.self_ns) as ns
            from inside as i
            join outer_op as o on o.op_id = i.op_id
            group by o.outermost_id, i.role
        ),
        main_role as (
            select
                outermost_id as op_id,
                first(
                    role order by role is null or role in ('attention.other', 'other', 'unlinked'), ns desc, role
                ) as role
            from by_role
            group by outermost_id
        ),
        made as (select op_id, sum(bytes)::bigint as bytes from allocation where op_id is not null group by op_id),
        freed as (
            select free_op_id as op_id, sum(bytes)::bigint as bytes
            from allocation
            where free_op_id is not null
            group by free_op_id
        )
    select
        i.op_id,
        i.name,
        o.outermost,
        o.is_outermost,
        i.input_dims,
        i.input_types,
        case
            when o.is_outermost and not (select bool_or(has_device) from trace) then r.role else i.role
        end as role,
        i.dur_ns,
        m.path as module_path,
        i.op_id in (select op_id from kernel where op_id is not null) as has_work,
        coalesce(a.bytes, 0) as allocated_bytes,
        coalesce(f.bytes, 0) as freed_bytes
    from inside as i
    join outer_op as o on o.op_id = i.op_id
    left join main_role as r on r.op_id = i.op_id
    left join module as m on m.module_id = i.module_id
    left join made as a on a.op_id = i.op_id
    left join freed as f on f.op_id = i.op_id
    order by i.start_ns, i.op_id
"""
_KERNELS = """
    select k.op_id, k.name, count(*) as calls, sum(k.dur_ns)::bigint as dur_ns
    from kernel as k
    join op as o on o.op_id = k.op_id
    where
        o.trace_id = $trace_id
        and o.pid is not distinct from $pid
        and o.tid is not distinct from $tid
        and o.start_ns >= $start_ns
        and o.start_ns < $end_ns
    group by k.op_id, k.name
    order by k.op_id, min(k.start_ns), k.name
"""
