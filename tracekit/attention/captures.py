"""Names for the kernels that a graph replays: those of the calls that were captured into it, by their position.

Owns which capture a replay is of, and what a replayed kernel takes over. A replay that no capture fits keeps what it
has, and is counted. Attention calls of a replay have the sizes of the captured ones: a graph repeats them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, NamedTuple

import polars as pl

from tracekit.attention.knowledge import family_of
from tracekit.attention.roles.sequences import UNSAID
from tracekit.attention.tables import part_tables

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tracekit.link import Trace

_TAKEN = ("op_name", "phase", "role", "role_confidence", "role_reason")
_SAID = (
    "layer", "phase", "mode", "implementation", "backend", "b", "hq", "hkv", "nq", "nk", "d_qk", "d_v", "dtype",
    "is_causal", "causal_alignment", "window", "mask_kind", "mask_bytes", "dropout", "is_varlen",
    "tokens_q", "tokens_k", "pairs", "pairs_least", "pairs_status", "flops", "flops_status", "bytes", "bytes_status",
)  # fmt: skip
"""What a captured attention says that holds for every replay: a graph's shapes and scalars are fixed."""


class Call(NamedTuple):
    """A captured call: the kind of its work, the kernel's name, empty if the call does not say it, and its meaning.

    `call_id` is the attention that it is a piece of, `said` what that says.
    """

    kind: str
    name: str
    module: str | None
    op_name: str | None
    phase: str
    role: str
    role_confidence: str
    role_reason: str
    call_id: int | None
    said: tuple[object, ...] | None = None


class Capture(NamedTuple):
    """The calls of one capture, in their order, and the modules around them: class, instance and path by label."""

    calls: tuple[Call, ...]
    modules: pl.DataFrame


class Named(NamedTuple):
    """Kernels of which some took over what a capture says, how many replays did, and how many fit none.

    `attention` has what captures say of attention calls, by the replay's call.
    """

    kernels: pl.DataFrame
    replays: int
    unmatched: int
    attention: dict[int, Call]


def capture_of(linked: Trace) -> Capture:
    """Return a capture of a trace whose device work are the captured calls, as `captured_work` gives them."""
    tables = part_tables(linked)
    kernels = tables["kernel"].sort("start_ns", "correlation")
    labels = linked.modules.select("module_id", pl.col("path").alias("module"))
    rows = kernels.join(labels, on="module_id", how="left", maintain_order="left")
    said = {call_id: tuple(row) for call_id, *row in tables["attention_call"].select("call_id", *_SAID).iter_rows()}
    calls = (Call(*row) for row in rows.select(Call._fields[:-1]).iter_rows())
    return Capture(
        tuple(call if call.call_id is None else call._replace(said=said[call.call_id]) for call in calls),
        linked.modules,
    )


def named(kernels: pl.DataFrame, captures: Sequence[Capture], module_ids: dict[str, int]) -> Named:
    """Give the kernels that launches replay what the capture of their graph says, by position.

    `module_ids` are the ids of modules by path. A launch of several pieces of work is a replay.
    """
    rows = kernels.with_row_index("row").filter(pl.col("launch_id").is_not_null())
    columns = ("row", "kind", "name", "call_id")
    rows = rows.sort("start_ns", "kernel_id").group_by("launch_id", maintain_order=True).agg(columns)
    rows = rows.filter(pl.col("row").list.len() > 1)
    taken: dict[int, tuple[object, ...]] = {}
    attention: dict[int, Call] = {}
    unmatched = 0
    for places, kinds, names, own in rows.select(columns).iter_rows():
        calls = _calls_of(list(zip(kinds, names, strict=True)), captures)
        unmatched += calls is None
        taken.update(zip(places, (_as_taken(call, module_ids) for call in calls or ()), strict=False))
        attention.update(_attention(own, calls or ()))
    return Named(_with(kernels, taken), rows.height - unmatched, unmatched, attention)


def _attention(own: Sequence[int | None], calls: Sequence[Call]) -> dict[int, Call]:
    """Return what is captured of those attention calls of a replay whose pieces are those of one captured call."""
    pairs = {(mine, call.call_id): call for mine, call in zip(own, calls, strict=False) if mine is not None}
    replayed = Counter(mine for mine, _ in pairs)
    captured = Counter(theirs for _, theirs in pairs)
    return {
        mine: call
        for (mine, theirs), call in pairs.items()
        if call.said is not None and replayed[mine] == captured[theirs] == 1
    }


def with_captured(table: pl.DataFrame, attention: Mapping[int, Call], module_ids: dict[str, int]) -> pl.DataFrame:
    """Return attention calls with what a capture says of them, which is at best an estimate: position alone ties them.

    What a capture does not say stays as the kernels tell it.
    """
    rows = [
        (call_id, None if call.module is None else module_ids[call.module], *(call.said or ()))
        for call_id, call in attention.items()
    ]
    names = ("call_id", "module_id", *_SAID)
    new = pl.DataFrame(rows, schema={name: table.schema[name] for name in names}, orient="row")
    statuses = ("pairs_status", "flops_status", "bytes_status")
    estimated = [pl.col(name).replace("exact", "estimated") for name in statuses]
    return table.update(new.with_columns(*estimated, source=pl.lit("capture")), on="call_id")


def _as_taken(call: Call, module_ids: dict[str, int]) -> tuple[object, ...]:
    confidence = "inferred" if not call.name else "likely" if call.role_confidence == "certain" else None
    sure = confidence or call.role_confidence
    module = None if call.module is None else module_ids[call.module]
    return (call.op_name, call.phase, call.role, sure, f"graph capture: {call.role_reason}", module)


def _calls_of(work: list[tuple[str, str]], captures: Sequence[Capture]) -> Sequence[Call] | None:
    """Return the captured calls of replayed work, in the order of the work, or None if no capture fits.

    Branches of a graph may run in another order than they were captured in: of kernels of one name the first replayed
    is the first captured. Without names only the order of kinds can be compared, and one capture alone may fit.
    """
    fitting = [found for capture in captures if (found := _in_order(work, capture.calls)) is not None]
    if not fitting or (
        len(fitting) > 1
        and len({tuple((call.role, call.op_name, call.module) for call in found) for found in fitting}) > 1
    ):
        return None
    said = {tuple(call.said for call in found) for found in fitting}
    return fitting[0] if len(said) == 1 else [call._replace(said=None) for call in fitting[0]]


def _in_order(work: list[tuple[str, str]], calls: Sequence[Call]) -> list[Call] | None:
    if len(work) != len(calls):
        return None
    if any(not call.name for call in calls if call.kind == "kernel"):
        return list(calls) if all(map(_may_be, work, calls)) else None
    by_key = defaultdict(list)
    for call in calls:
        by_key[_key(call.kind, call.name)].append(call)
    waiting = {key: iter(each) for key, each in by_key.items()}
    found = [next(waiting.get(_key(kind, name), iter(())), None) for kind, name in work]
    return None if None in found else [call for call in found if call is not None]


def _may_be(work: tuple[str, str], call: Call) -> bool:
    """Tell whether a piece of work can be that of a call which does not name it: an attention is one in both."""
    kind, name = work
    family = family_of(name)
    is_attention = family is not None and family.action == "attention"
    fits = call.role.startswith("attention.") if is_attention else family is None or call.role != "attention.core"
    return kind == call.kind and fits


def _key(kind: str, name: str) -> tuple[str, str]:
    return (kind, name if kind == "kernel" else "")


def _with(kernels: pl.DataFrame, taken: dict[int, tuple[object, ...]]) -> pl.DataFrame:
    """Return kernels with what some of them took over; a role that says nothing replaces none."""
    if not taken:
        return kernels
    names = (*_TAKEN, "module_id")
    schema = {"row": pl.UInt32} | {f"new_{name}": kernels.schema[name] for name in names}
    new = pl.DataFrame([(row, *values) for row, values in taken.items()], schema=schema, orient="row")
    joined = kernels.with_row_index("row").join(new, on="row", how="left", maintain_order="left")
    says = pl.col("new_role").is_not_null() & ~pl.col("new_role").is_in(list(UNSAID))
    by_role = {name for name in _TAKEN if name.startswith("role")}
    return joined.with_columns(
        pl.when(says if name in by_role else pl.col(f"new_{name}").is_not_null())
        .then(pl.col(f"new_{name}"))
        .otherwise(pl.col(name))
        .alias(name)
        for name in names
    ).select(kernels.columns)
