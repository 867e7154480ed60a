"""Attention calls as their table has them, and to which of them each kernel belongs.

Owns the table's columns and what they are made of; which ops are a call is grouping.py's, what they say
reading.py's, what follows from that figures.py's.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl

from tracekit.attention.calls.arguments import read_inputs
from tracekit.attention.calls.chain import INPUTS, read_chain
from tracekit.attention.calls.figures import counted
from tracekit.attention.calls.grouping import found_calls
from tracekit.attention.calls.reading import Mask, Reading, Row, Sizes, merged, read_op
from tracekit.attention.knowledge import family_of, load, place_of_module

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tracekit.attention.calls.figures import Counted
    from tracekit.attention.calls.grouping import Call, Found
    from tracekit.attention.facts import Facts

CALL: dict[str, Any] = {
    "call_id": pl.Int64, "op_id": pl.Int64, "module_id": pl.Int64, "step_id": pl.Int64, "layer": pl.Int64,
    "phase": pl.String, "mode": pl.String, "implementation": pl.String, "backend": pl.String, "source": pl.String,
    "b": pl.Int64, "hq": pl.Int64, "hkv": pl.Int64, "nq": pl.Int64, "nk": pl.Int64, "d_qk": pl.Int64,
    "d_v": pl.Int64, "dtype": pl.String, "is_causal": pl.Boolean, "causal_alignment": pl.String,
    "window": pl.Int64, "mask_kind": pl.String, "mask_bytes": pl.Int64, "dropout": pl.Float64,
    "is_varlen": pl.Boolean, "tokens_q": pl.Int64, "tokens_k": pl.Int64, "start_ns": pl.Int64,
    "kernels": pl.Int64, "launches": pl.Int64, "device_ns": pl.Int64, "host_ns": pl.Int64,
    "pairs": pl.Int64, "pairs_least": pl.Int64, "pairs_status": pl.String,
    "flops": pl.Int64, "flops_status": pl.String, "bytes": pl.Int64, "bytes_status": pl.String,
}  # fmt: skip
"""Columns of the table; schema.sql says what they mean."""
_MOST = 2**63 - 1
_SIZES = ("b", "hq", "hkv", "nq", "nk", "d_qk", "d_v")


class Calls(NamedTuple):
    """The table of calls, and for each kernel, in the kernels' order, the call it belongs to."""

    table: pl.DataFrame
    of_kernel: pl.Series


def attention_calls(ops: pl.DataFrame, kernels: pl.DataFrame, modules: pl.DataFrame) -> Calls:
    """Return the attention calls of linked ops and kernels, both numbered from 0, in order of their start.

    Kernels have their roles.
    """
    found = found_calls(ops, kernels)
    _leave_out_others(found, kernels)
    if not found.calls:
        return Calls(pl.DataFrame(schema=CALL), pl.Series("call_id", [None] * kernels.height, pl.Int64))
    readings = _readings(found, ops, kernels)
    rows = pl.DataFrame(
        [_says(reading) for reading in readings], schema={name: CALL[name] for name in _SAID}, orient="row"
    )
    where = _where(found.calls, ops, kernels)
    work = _work(found, kernels)
    table = pl.concat([where, rows, work], how="horizontal")
    table = table.with_columns(
        layer=pl.Series(list(_layers(table["module_id"].to_list(), modules)), dtype=pl.Int64),
        mode=pl.Series(list(_modes(table, ops)), dtype=pl.String),
    )
    order = table.with_row_index("made").sort("start_ns", "op_id", "made", nulls_last=True)["made"]
    ids = np.empty(len(order), dtype=np.int64)
    ids[order.to_numpy()] = np.arange(len(order))
    table = table.with_columns(call_id=pl.Series(ids)).sort("call_id").select(*CALL)
    numbered = np.where(found.of_kernel >= 0, ids[found.of_kernel], -1)
    of_kernel = pl.select(pl.when(pl.Series(numbered) >= 0).then(pl.Series(numbered)).alias("call_id")).to_series()
    return Calls(table, of_kernel)


def _leave_out_others(found: Found, kernels: pl.DataFrame) -> None:
    """Leave to calls of ops only those kernels that are the attention, not what else the op does beside it."""
    rules = load("calls/calls")["beside"]
    is_op = np.array([call.source == "op" for call in found.calls] + [False])
    names = kernels["name"].unique()
    other = [name for name in names if (family := family_of(name)) is not None and family.action in rules["actions"]]
    is_other = (kernels["role"].is_in(rules["roles"]) | kernels["name"].is_in(other)).fill_null(value=False)
    found.of_kernel = np.where(is_op[found.of_kernel] & is_other.to_numpy(), -1, found.of_kernel)


# --- what calls say ----------------------------------------------------------------------------------------------

_SAID = (
    "implementation", "backend", "source", *_SIZES, "dtype", "is_causal", "causal_alignment", "window", "mask_kind",
    "mask_bytes", "dropout", "is_varlen", "tokens_q", "tokens_k", "pairs", "pairs_least", "pairs_status", "flops",
    "flops_status", "bytes", "bytes_status",
)  # fmt: skip


def _readings(found: Found, ops: pl.DataFrame, kernels: pl.DataFrame) -> list[tuple[Reading, str]]:
    """Return what each call's ops say, forward calls first, since backward ones take over what they don't say."""
    read: dict[int, Reading] = {}
    calls = found.calls
    products = _product_types(found, ops)
    inputs = ops.select(*INPUTS)
    for at, call in sorted(enumerate(calls), key=lambda pair: pair[1].forward is not None):
        forward = read.get(call.forward) if call.forward is not None else None
        reading = _of_backward(_reading(call, inputs), forward) if call.is_backward else _reading(call, inputs)
        read[at] = (
            replace(reading, core_dtype=products[at]) if reading.backend == "math" and at in products else reading
        )
    _guess_masks(calls, read)
    families = _families(found, kernels)
    return [(_with_family(read[at], families.get(at)), call.source) for at, call in enumerate(calls)]


def _guess_masks(calls: Sequence[Call], read: dict[int, Reading]) -> None:
    """Give backward chains, in which a mask leaves no trace, that of forward chains of their sizes if they agree."""
    chains = {at: read[at] for at, call in enumerate(calls) if call.chain is not None}
    known: dict[tuple[int | None, ...], set[Mask]] = {}
    for reading in chains.values():
        if not reading.is_backward:
            known.setdefault(_chain_sizes(reading), set()).add(reading.mask)
    for at, reading in chains.items():
        if reading.is_backward:
            masks = known.get(_chain_sizes(reading), set())
            read[at] = replace(reading, mask=next(iter(masks)) if len(masks) == 1 else Mask())


def _chain_sizes(reading: Reading) -> tuple[int | None, ...]:
    sizes = reading.sizes
    return sizes.batch_heads, sizes.nq, sizes.nk


def _product_types(found: Found, ops: pl.DataFrame) -> dict[int, str | None]:
    """Return for calls with a batched product the element type of the first one."""
    rows = ops.select("name", "input_types").with_columns(call=pl.Series(found.of_op))
    rows = rows.filter((pl.col("call") >= 0) & pl.col("name").is_in(["aten::bmm", "aten::baddbmm"]))
    first = rows.group_by("call", maintain_order=True).agg(pl.col("input_types").first())
    inputs = {call: read_inputs(None, types, None, None) for call, types in first.iter_rows()}
    return {call: next((one.dtype for one in each if one.dtype), None) for call, each in inputs.items()}


def _reading(call: Call, inputs: pl.DataFrame) -> Reading:
    if call.chain is not None:
        return replace(read_chain(call.roots, call.chain, inputs), is_backward=call.is_backward)
    if not call.named:
        return Reading(is_backward=call.is_backward)
    return merged([read_op(Row(*inputs.row(row))) for row in call.named])


def _of_backward(own: Reading, forward: Reading | None) -> Reading:
    """Return what a backward call says, sizes and mask as its forward call has them: those are not padded."""
    if forward is None:
        return own
    return Reading(
        own.implementation or forward.implementation,
        own.backend or forward.backend,
        True,
        forward.sizes if forward.sizes.is_known else own.sizes,
        own.mask if own.mask.kind is not None else forward.mask,
        own.types if own.types.q is not None else forward.types,
        own.dropout if own.dropout is not None else forward.dropout,
        forward.core_dtype,
    )


def _families(found: Found, kernels: pl.DataFrame) -> dict[int, str]:
    """Return for calls with a fused kernel the family of the first one."""
    names = kernels["name"]
    families = {
        name: family.name for name in names.unique() if (family := family_of(name)) and family.action == "attention"
    }
    rows = kernels.select("name", "start_ns", "kernel_id").with_columns(call=pl.Series(found.of_kernel))
    rows = rows.filter((pl.col("call") >= 0) & pl.col("name").is_in(list(families))).sort("start_ns", "kernel_id")
    first = rows.group_by("call", maintain_order=True).agg(pl.col("name").first())
    return {call: families[name] for call, name in first.iter_rows()}


def _with_family(reading: Reading, family: str | None) -> Reading:
    """Return a reading with what its kernels tell: whose call it is, and the backend, where no op said it."""
    if family is None:
        return reading
    known = load("calls/calls")["family"].get(family, {"implementation": family})
    if reading.implementation is None:
        return replace(reading, implementation=known["implementation"], backend=known.get("backend", family))
    if reading.implementation == "sdpa":
        return replace(reading, backend=reading.backend or known.get("backend"))
    return replace(reading, backend=reading.backend or family)


@cache
def _says(reading: tuple[Reading, str]) -> tuple[Any, ...]:
    """Return the columns that follow from what a call's ops say."""
    said, source = reading
    sizes = said.sizes
    columns = (
        said.implementation, said.backend, source, *(getattr(sizes, name) for name in _SIZES),
        said.core_dtype or said.types.q,
        said.mask.is_causal, said.mask.alignment, window_of(said.mask), said.mask.kind, said.mask.bytes, said.dropout,
        sizes.is_varlen, sizes.tokens_q, sizes.tokens_k,
    )  # fmt: skip
    return (*(None if _is_beyond(value) else value for value in columns), *_within(counted(said)))


def _is_beyond(value: object) -> bool:
    """Tell whether a number does not fit 64 bits: sizes that no memory holds are a fault of the trace."""
    return isinstance(value, int) and value > _MOST


def window_of(mask: Mask) -> int | None:
    """Return how many keys a query sees at most through a sliding window, None without one."""
    if mask.left is None:
        return None
    return mask.left + 1 + (mask.right or 0)


def _within(count: Counted) -> Counted:
    """Return counts without those that don't fit 64 bits."""
    if _is_beyond(count.pairs):
        count = count._replace(pairs=None, pairs_least=None, pairs_status="not_derivable")
    if _is_beyond(count.flops):
        count = count._replace(flops=None, flops_status="not_derivable")
    return count._replace(bytes=None, bytes_status="not_derivable") if _is_beyond(count.bytes) else count


# --- where and when ----------------------------------------------------------------------------------------------


def _where(calls: Sequence[Call], ops: pl.DataFrame, kernels: pl.DataFrame) -> pl.DataFrame:
    """Return the op, module and step of each call, when it began, and the host time of its outermost ops."""
    at = {"op_id": pl.Int64, "module_id": pl.Int64, "step_id": pl.Int64, "start_ns": pl.Int64}
    own = pl.Series([call.roots[0] if call.roots else None for call in calls], dtype=pl.Int64)
    first = pl.Series([call.kernels[0] if call.kernels else None for call in calls], dtype=pl.Int64)
    by_op = ops.select(*at, "phase")
    by_kernel = kernels.select(pl.lit(None, pl.Int64).alias("op_id"), *list(at)[1:], "phase")
    rows = pl.DataFrame({"own": own, "first": first})
    told = rows.select(
        pl.coalesce(pl.lit(by_op[name]).gather(pl.col("own")), pl.lit(by_kernel[name]).gather(pl.col("first"))).alias(
            name
        )
        for name in (*at, "phase")
    )
    phases = [
        "backward" if call.is_backward else "recompute" if phase in {"recompute", "backward"} else "forward"
        for call, phase in zip(calls, told["phase"].to_list(), strict=True)
    ]
    spent = ops["dur_ns"]
    host = [int(spent.gather(call.roots).sum()) if call.roots else None for call in calls]
    return told.drop("phase").with_columns(pl.Series("phase", phases), pl.Series("host_ns", host, pl.Int64))


def _work(found: Found, kernels: pl.DataFrame) -> pl.DataFrame:
    """Return the device work of each call; without any, its time is not known."""
    rows = (
        kernels.select("launch_id", "dur_ns").with_columns(call=pl.Series(found.of_kernel)).filter(pl.col("call") >= 0)
    )
    sums = rows.group_by("call").agg(
        pl.len().cast(pl.Int64).alias("kernels"),
        pl.col("launch_id").drop_nulls().n_unique().cast(pl.Int64).alias("launches"),
        pl.col("dur_ns").sum().cast(pl.Int64).alias("device_ns"),
    )
    every = pl.DataFrame({"call": np.arange(len(found.calls))})
    joined = every.join(sums, on="call", how="left", maintain_order="left")
    return joined.select(pl.col("kernels", "launches").fill_null(0), "device_ns")


def _layers(module_ids: Sequence[int | None], modules: pl.DataFrame) -> Iterator[int | None]:
    """Return the number of each call's layer: which instance of its class the block around it is."""
    known = {row[0]: row[1:] for row in modules.select("module_id", "parent_id", "class_name", "instance").iter_rows()}
    found: dict[int | None, int | None] = {None: None}
    for module_id in set(module_ids):
        if module_id is not None:
            found[module_id] = _layer(module_id, known)
    return (found[module_id] for module_id in module_ids)


def _layer(module_id: int, modules: Mapping[int, tuple[Any, ...]]) -> int | None:
    layer = None
    current: int | None = module_id
    seen: set[int] = set()
    while current is not None and current in modules and current not in seen:
        seen.add(current)
        parent, class_name, instance = modules[current]
        place = place_of_module(class_name)
        if place == "block":
            return int(instance)
        if place == "attention":
            layer = int(instance)
        current = parent
    return layer


def _modes(table: pl.DataFrame, ops: pl.DataFrame) -> Iterator[str | None]:
    """Return what each call is for: train in a step with a backward pass, else decode for one query a sequence."""
    trained = set(ops.filter(pl.col("phase") == "backward")["step_id"].unique().to_list())
    columns = table.select("step_id", "phase", "nq", "nk").iter_rows()
    for step_id, phase, queries, keys in columns:
        if phase != "forward" or step_id in trained:
            yield "train"
        elif queries is None:
            yield None
        else:
            yield "decode" if queries == 1 and keys != 1 else "prefill"


# --- facts -------------------------------------------------------------------------------------------------------


def with_lengths(table: pl.DataFrame, facts: Facts, steps: pl.DataFrame) -> pl.DataFrame:
    """Return calls with the pairs and FLOPs of packed sequences whose true lengths facts hold, which are exact."""
    ids = dict(steps.select("number", "step_id").iter_rows())
    lengths = {ids[step.number]: step.lengths for step in facts.steps if step.number in ids and step.lengths}
    packed = table.with_row_index("row").filter(pl.col("is_varlen") & pl.col("step_id").is_in(list(lengths)))
    changed = {}
    for row in packed.iter_rows(named=True):
        if (found := _exact(row, lengths[row["step_id"]])) is not None:
            changed[row["row"]] = found
    if not changed:
        return table
    names = ("pairs", "pairs_least", "pairs_status", "flops", "flops_status")
    schema = {"row": pl.UInt32, **{name: CALL[name] for name in names}}
    new = pl.DataFrame([(row, *values) for row, values in changed.items()], schema=schema, orient="row")
    return table.with_row_index("row").update(new, on="row").drop("row")


def _exact(row: Mapping[str, Any], lengths: Sequence[int]) -> tuple[int | str | None, ...] | None:
    """Return pairs and FLOPs of a row of the table for true lengths, None where they are not its own."""
    is_known = row["mask_kind"] in {"none", "causal"} and row["pairs_status"] != "exact"
    if not is_known or (row["window"] is not None and not row["is_causal"]):
        return None
    left = None if row["window"] is None else row["window"] - 1
    mask = Mask(row["mask_kind"], row["is_causal"], row["causal_alignment"], left, 0 if row["is_causal"] else None)
    known = {name: row[name] for name in (*_SIZES, "tokens_q", "tokens_k")}
    reading = Reading(
        row["implementation"], row["backend"], row["phase"] == "backward", Sizes(**known, is_varlen=True), mask
    )
    count = _within(counted(reading, lengths))
    if count.pairs_status != "exact":
        return None
    return count.pairs, count.pairs_least, count.pairs_status, count.flops, count.flops_status
