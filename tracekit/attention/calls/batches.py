"""True lengths against what was computed: tokens and query-key pairs of each step's batch.

Owns the counting of pairs. Those needed follow from the lengths and the mask; those computed from the shapes
and the implementation that ran, as padding.toml describes it.

P = nq * nk - nq * (nq - 1) / 2 for a causal mask aligned at the last query and key, nq * nk without one.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import polars as pl

from tracekit.attention.knowledge import load

if TYPE_CHECKING:
    from tracekit.attention.facts import Facts, StepFacts

_BATCH: dict[str, pl.DataType | type[pl.DataType]] = {
    "step_id": pl.Int64,
    "ordinal": pl.Int64,
    "sequences": pl.Int64,
    "padded_length": pl.Int64,
    "lengths": pl.List(pl.Int64),
    "tokens": pl.Int64,
    "source": pl.String,
    "mask_kind": pl.String,
    "implementation": pl.String,
    "useful_tokens": pl.Int64,
    "computed_tokens": pl.Int64,
    "useful_pairs": pl.Int64,
    "computed_pairs": pl.Int64,
    "pairs_status": pl.String,
}


_SEEING_ALL = {"none", "padding"}
_CAUSAL = {"causal", "causal_padding"}


class Computed(NamedTuple):
    """What one attention call computed: its implementation, its pairs over the batch, and how sure that is."""

    implementation: str
    pairs: int
    status: str


def batches(facts: Facts, steps: pl.DataFrame, ops: pl.DataFrame) -> pl.DataFrame:
    """Return one row for each step whose lengths are known. Pairs are those of one head of one layer."""
    ids = dict(steps.select("number", "step_id").iter_rows())
    naive = facts.workload is not None and facts.workload.implementation == "naive"
    rows = []
    for step in facts.steps:
        if step.number in ids and step.lengths and step.padded_length:
            computed = _in_step(ops, ids[step.number])
            rows.append(_row(step, ids[step.number], computed or (_naive(step) if naive else None)))
    return pl.DataFrame(rows, schema=_BATCH, orient="row")


def _row(step: StepFacts, step_id: int, computed: Computed | None) -> tuple[Any, ...]:
    lengths = step.lengths or []
    queries = step.query_length or step.padded_length or 0
    pairs = [useful_pairs(min(queries, length), length, step.mask_kind) for length in lengths]
    return (
        step_id,
        0,
        len(lengths),
        step.padded_length,
        lengths,
        sum(lengths),
        "facts",
        step.mask_kind,
        computed.implementation if computed else None,
        sum(min(queries, length) for length in lengths),
        len(lengths) * queries,
        None if None in pairs else sum(pairs),
        computed.pairs if computed else None,
        computed.status if computed and None not in pairs else "not_derivable",
    )


def useful_pairs(queries: int, keys: int, mask_kind: str | None) -> int | None:
    """Return the query-key pairs that count in one sequence of `keys` tokens, its last `queries` of them asking.

    None for a mask of a kind that is not known here.
    """
    if mask_kind in _SEEING_ALL:
        return queries * keys
    return queries * keys - queries * (queries - 1) // 2 if mask_kind in _CAUSAL else None


def _naive(step: StepFacts) -> Computed:
    queries, keys = step.query_length or step.padded_length or 0, step.padded_length or 0
    return Computed("naive", len(step.lengths or []) * queries * keys, "exact")


def calls_with_padding(ops: pl.DataFrame) -> pl.DataFrame:
    """Return, of linked ops, those that `batches` looks at."""
    names = [row["name"] for row in load("calls/padding")["op"]]
    return ops.filter(pl.col("name").is_in(names)).select("step_id", "name", "input_dims", "concrete_inputs", "phase")


def _in_step(ops: pl.DataFrame, step_id: int) -> Computed | None:
    """Return what the attention calls of a step computed, if they agree."""
    names = [row["name"] for row in load("calls/padding")["op"]]
    calls = ops.filter(
        (pl.col("step_id") == step_id) & pl.col("name").is_in(names) & (pl.col("phase") == "forward")
    )  # fmt: skip
    found = {_computed(*row) for row in calls.select("name", "input_dims", "concrete_inputs").iter_rows()}
    return found.pop() if len(found) == 1 else None


@cache
def _computed(name: str, dims_json: str | None, concrete_json: str | None) -> Computed | None:
    """Return what one call computed, from its recorded shapes; None where they were not recorded."""
    rule = next(row for row in load("calls/padding")["op"] if row["name"] == name)
    if dims_json is None:
        return None
    dims: list[Any] = msgspec.json.decode(dims_json)
    concrete: list[Any] = msgspec.json.decode(concrete_json or "[]")
    if len(dims) < 2 or any(len(shape) != 4 for shape in dims[:2]) or len(concrete) <= rule["is_causal"]:
        return None
    sequences, queries, keys = dims[0][0], dims[0][2], dims[1][2]
    has_mask = len(dims) > rule.get("mask", len(dims)) and bool(dims[rule["mask"]])
    if rule["skips"] and not has_mask and concrete[rule["is_causal"]] == "True":
        # PyTorch aligns is_causal at the first query and key: query i sees keys 0 to i.
        seen = min(queries, keys)
        return Computed(
            rule["implementation"], sequences * (seen * (seen + 1) // 2 + (queries - seen) * keys), "estimated"
        )
    return Computed(rule["implementation"], sequences * queries * keys, "exact")
