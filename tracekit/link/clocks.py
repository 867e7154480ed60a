"""Clocks: how far each rank's clock is from a reference rank's, by the ends of collectives they took part in together.

Owns the matching of collectives across ranks, and the estimate. It applies nothing: times stay as they were recorded.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import polars as pl

from tracekit.link.collectives import knowledge

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Status = Literal["reference", "estimated", "not_derivable"]


@dataclass(frozen=True)
class Trace:
    """A rank's trace: when its time 0 was by its own wall clock, or None, and its collectives in its own time."""

    rank: int
    start_unix_ns: int | None
    collectives: pl.DataFrame


@dataclass(frozen=True)
class Clock:
    """A rank's clock against the reference rank's, in ns.

    `start_ns` is when the trace's time 0 was in the reference trace's time: add it to its times to lay both on one
    line. `offset_ns` is how far its wall clock is ahead of the reference's, None where a trace does not say when it
    began. Both hold at the middle of the shared collectives; `drift_ns_per_s` is how the offset grows, None where no
    drift can be told from noise. `spread_ns` is the median absolute deviation of the ends from that. Where a rank
    shares no collective with the reference, its clock is taken through `through_rank`, and spreads add up.
    """

    rank: int
    reference_rank: int
    status: Status
    reason: str | None = None
    matched: int = 0
    offset_ns: int | None = None
    start_ns: int | None = None
    spread_ns: int | None = None
    drift_ns_per_s: float | None = None
    through_rank: int | None = None


@dataclass(frozen=True)
class _Fit:
    """How much later ends are in one trace's time than in another's."""

    matched: int
    late_ns: float
    spread_ns: float
    drift: float | None


def offsets(traces: Sequence[Trace]) -> list[Clock]:
    """Return each rank's clock against the lowest rank's, in order of rank; no two traces have one rank.

    Only collectives with device work are used, and only those that no rank can leave before all have entered: their
    ends lie close together, whoever came last. They are matched by group and sequence number; where traces hold none,
    by their order within the group, if what they moved agrees.
    """
    by_rank = {trace.rank: trace for trace in sorted(traces, key=lambda one: one.rank)}
    if not by_rank:
        return []
    reference = min(by_rank)
    usable = {rank: _by_group(trace.collectives) for rank, trace in by_rank.items()}
    found: dict[int, Clock] = {reference: Clock(reference, reference, "reference", None, 0, 0, 0, 0)}
    reasons: dict[int, str] = {}
    frontier = deque([reference])
    while frontier:
        known = frontier.popleft()
        for rank in [one for one in by_rank if one not in found]:
            fit = _compared(usable[known], usable[rank])
            if isinstance(fit, str):
                reasons.setdefault(rank, fit)
                continue
            found[rank] = _clock(by_rank, rank, found[known], fit)
            frontier.append(rank)
    return [found.get(rank) or Clock(rank, reference, "not_derivable", reasons[rank]) for rank in by_rank]


def _clock(by_rank: Mapping[int, Trace], rank: int, known: Clock, fit: _Fit) -> Clock:
    """Return the clock of a rank that was compared with a rank whose clock is known."""
    reference = known.reference_rank
    start = (known.start_ns or 0) - round(fit.late_ns)
    own, other = by_rank[rank].start_unix_ns, by_rank[reference].start_unix_ns
    drifts = [drift for drift in (known.drift_ns_per_s, fit.drift) if drift is not None]
    is_reference = known.rank == reference
    return Clock(
        rank,
        reference,
        "estimated",
        None if own is not None and other is not None else "a trace does not say when it began: only start_ns is known",
        fit.matched if is_reference else min(known.matched, fit.matched),
        None if own is None or other is None else own - other - start,
        start,
        (known.spread_ns or 0) + round(fit.spread_ns),
        sum(drifts) if drifts else None,
        None if is_reference else known.rank,
    )


def _rules() -> dict[str, Any]:
    return knowledge()["clocks"]  # type: ignore[no-any-return]


def _by_group(collectives: pl.DataFrame) -> dict[Any, pl.DataFrame]:
    """Return the ends of usable collectives for each process group, in order of start.

    What an all_to_all moves may differ by rank, so its bytes are no mark of it.
    """
    names = [row["name"] for row in knowledge()["collective"] if row.get("waits_for_all")]
    content = pl.when(pl.col("name") != "all_to_all").then(pl.col("bytes"))
    usable = collectives.filter(pl.col("name").is_in(names) & pl.col("kernel_id").is_not_null())
    ends = usable.sort("start_ns", "collective_id").select(
        "group_name",
        "group_ranks",
        "sequence_number",
        "name",
        content.alias("content"),
        (pl.col("start_ns") + pl.col("dur_ns")).alias("end_ns"),
    )
    return dict(ends.partition_by("group_name", "group_ranks", as_dict=True))


def _compared(one: Mapping[Any, pl.DataFrame], other: Mapping[Any, pl.DataFrame]) -> _Fit | str:
    """Return how the ends of two ranks' shared collectives compare, or why that can't be told."""
    rules = _rules()
    matches = [match for key in one if key in other and (match := _matched(one[key], other[key])) is not None]
    if not any(key in other for key in one):
        return "no process group with device work is in both traces"
    if not matches:
        return "the collectives of the two traces can't be matched: they differ in number or in what they moved"
    ends = pl.concat(matches)
    if ends.height < rules["fewest"]:
        return f"too few collectives are in both traces ({ends.height}; it takes {rules['fewest']})"
    fit = _fitted(ends)
    if fit.spread_ns > rules["widest_spread_ns"]:
        return f"the ends of collectives in both traces differ by {fit.spread_ns / 1e6:.1f} ms: no measure of a clock"
    return fit


def _matched(one: pl.DataFrame, other: pl.DataFrame) -> pl.DataFrame | None:
    """Return the ends of one group's collectives in both traces, as `end_ns` and `late_ns`, or None."""
    if not one["sequence_number"].null_count() and not other["sequence_number"].null_count():
        keys = ["sequence_number", "name"]
        both = one.unique(keys, keep="none").join(other.unique(keys, keep="none"), on=keys, suffix="_other")
        return _late(both) if both.height else None
    if one.height == other.height:
        laid = _laid(one, other, 0)
        return _late(laid) if laid is not None else None
    return _best_laid(one, other)


def _laid(one: pl.DataFrame, other: pl.DataFrame, moved: int) -> pl.DataFrame | None:
    """Lay row `moved` of one on row 0 of the other; None where what they did differs anywhere."""
    first, second = one.slice(max(moved, 0)), other.slice(max(-moved, 0))
    height = min(first.height, second.height)
    both = pl.concat([first.head(height), second.head(height).rename(lambda name: f"{name}_other")], how="horizontal")
    differs = (pl.col("name") != pl.col("name_other")) | (pl.col("content") != pl.col("content_other"))
    return None if both.select(differs.any()).item() else both


def _best_laid(one: pl.DataFrame, other: pl.DataFrame) -> pl.DataFrame | None:
    """Lay the collectives of recordings that began or ended apart over each other, or None if it isn't clear how.

    A way to do it must agree in all that the collectives moved, and its ends must lie much closer than in any other.
    """
    rules = _rules()
    if one["content"].null_count() + other["content"].null_count() > (one.height + other.height) // 2:
        return None
    least = max(rules["fewest"], min(one.height, other.height) // 2)
    ways = []
    for moved in range(
        max(least - other.height, -rules["most_moved"]), min(one.height - least, rules["most_moved"]) + 1
    ):
        laid = _laid(one, other, moved)
        if laid is not None and laid.height >= least:
            late = _late(laid)
            ways.append((_spread(late["late_ns"]), moved, late))
    ways.sort(key=lambda way: way[:2])
    if not ways or (len(ways) > 1 and ways[1][0] < rules["clearly_better"] * max(ways[0][0], 1)):
        return None
    return ways[0][2]


def _late(both: pl.DataFrame) -> pl.DataFrame:
    return both.select("end_ns", late_ns=pl.col("end_ns_other") - pl.col("end_ns"))


def _spread(values: pl.Series) -> float:
    """Return the median absolute deviation from the median."""
    return _median((values - _median(values)).abs())


def _median(values: pl.Series) -> float:
    return float(values.median())  # type: ignore[arg-type]


def _fitted(ends: pl.DataFrame) -> _Fit:
    """Return the median by which ends are late, or, where that grows beyond noise, the line at its middle."""
    late = ends["late_ns"]
    middle, spread = _median(late), _spread(late)
    level = _Fit(ends.height, middle, spread, None)
    near = ends.filter((pl.col("late_ns") - middle).abs() <= 5 * max(spread, 1))
    if near.height < _rules()["fewest_for_drift"]:
        return level
    seconds = near.select(seconds=(pl.col("end_ns") - pl.col("end_ns").mean()) / 1e9)["seconds"]
    squares = float((seconds**2).sum())
    if not squares:
        return level
    centre = float(near["late_ns"].mean())  # type: ignore[arg-type]
    slope = float((seconds * (near["late_ns"] - centre)).sum()) / squares
    rest = near["late_ns"] - centre - slope * seconds
    error = (float((rest**2).sum()) / (near.height - 2) / squares) ** 0.5
    is_clear = abs(slope) > _rules()["drift_errors"] * error and _spread(rest) < spread / 2
    return _Fit(ends.height, centre, _spread(rest), slope) if is_clear else level
