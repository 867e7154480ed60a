"""Times of attention calls in other runs, by signature: what an implementation took where it was measured.

Owns which signatures are the same, and which runs may be compared: those of the same device.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tracekit.errors import TracekitError
from tracekit.table import Note

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tracekit.store import Store

_SIZES = ("b", "hq", "hkv", "nq", "nk", "d_qk", "d_v", "dtype")
KEY = (*_SIZES, "is_causal", "causal_alignment", "window", "mask_kind", "dropout", "is_varlen")
"""Columns of attention_call in which calls of one signature are alike, whatever runs them, in each phase."""
_NEEDED = ("b", "hq", "nq", "nk", "d_qk", "dtype")
_ALIKE = 0.1
"""By how much the same implementation may differ between two runs before that is worth a note."""
_RAN = ("implementation", "backend", "phase")
_NAMES = ", ".join(f'"{name}"' for name in (*_RAN, *KEY))
_CALLS = f"""
    select
        {_NAMES},
        median(case when t.has_device then c.device_ns else c.host_ns end)::double as median_ns,
        count(*) as calls
    from attention_call as c
    join trace as t using (trace_id)
    where case when t.has_device then c.device_ns else c.host_ns end > 0
    group by {_NAMES}
    order by min(c.call_id)
"""  # noqa: S608 - of names in this file alone
_DEVICES = """
    select distinct
        case when has_device then coalesce(device_name, 'a device without a name') else 'the CPU alone' end as device
    from trace
    order by device
"""

Signature = tuple[object, ...]
Implementation = tuple[str | None, str | None]


class Time(NamedTuple):
    """The median time of a call in ns, and of how many."""

    median_ns: float
    calls: int


class Best(NamedTuple):
    """The implementation that saves most of a signature in all phases, its time in each, and the run."""

    implementation: Implementation
    times: Mapping[str, Time]
    run: str


@dataclass(frozen=True)
class Measured:
    """What one run measured: by signature and implementation, the time in each phase."""

    name: str
    times: Mapping[Signature, Mapping[Implementation, Mapping[str, Time]]]


def signature(row: Mapping[str, Any]) -> Signature | None:
    """Return what calls of one signature share, None where too little of it is known to compare."""
    if any(row[name] is None for name in _NEEDED):
        return None
    alike = {
        "dropout": row["dropout"] or 0.0,
        "is_causal": bool(row["is_causal"]),  # what a chain does not say, mask_kind says
        "hkv": row["hq"] if row["hkv"] is None else row["hkv"],
        "causal_alignment": row["causal_alignment"] if row["nq"] != row["nk"] else None,
    }
    return tuple(alike.get(name, row[name]) for name in KEY)


def measured_runs(
    text: str, store: Store, opened: Callable[[Path], Store]
) -> tuple[tuple[Measured, ...], tuple[Note, ...]]:
    """Return what the runs named in a text measured, and what is to be said of those that can't be compared.

    The text is a path, or several separated by commas. Raises TracekitError if one of them is no run.
    """
    found, notes = [], []
    own = _devices(store)
    for path in _paths(text):
        with opened(path) as other:
            device = _devices(other)
            if device != own or len(own) != 1:
                words = f"{path.name} is not compared: it ran on {_words(device)}, this run on {_words(own)}."
                notes.append(Note("warning", words))
                continue
            found.append(Measured(path.name, _times(other)))
            notes += _calibration(store, found[-1])
    if found and own == ["the CPU alone"]:
        notes.append(Note("estimated", "That the measured runs ran on the same CPU is assumed: no trace names it."))
    return tuple(found), tuple(notes)


def best_of(
    measured: tuple[Measured, ...], key: Signature | None, ran: Implementation, spent: Mapping[str, tuple[float, int]]
) -> Best | None:
    """Return the other implementation that saves most of a signature; `spent` gives time and calls by phase.

    One that was measured in all of these phases goes before one that was not.
    """
    if key is None:
        return None
    choices = [
        Best(implementation, times, run.name)
        for run in measured
        for implementation, times in run.times.get(key, {}).items()
        if implementation != ran and times.keys() & spent.keys()
    ]

    def rank(choice: Best) -> tuple[int, float, str]:
        shared = choice.times.keys() & spent.keys()
        saved = sum(spent[phase][0] - choice.times[phase].median_ns * spent[phase][1] for phase in shared)
        return len(shared), saved, str(choice.implementation)

    return max(choices, key=rank, default=None)


def other_masks(measured: tuple[Measured, ...], key: Signature | None) -> list[str]:
    """Return the masks with which a signature's sizes were measured, where it was not with its own."""
    if key is None:
        return []
    place = KEY.index("mask_kind")
    sizes = key[: len(_SIZES)]
    keys = [other for run in measured for other in run.times if other[: len(_SIZES)] == sizes]
    return [] if key in keys else sorted({str(other[place]) for other in keys})


def _paths(text: str) -> list[Path]:
    if Path(text).exists():
        return [Path(text)]
    paths = [Path(part.strip()) for part in text.split(",") if part.strip()]
    if not paths:
        raise TracekitError(f"parameter measured: {text!r} names no run", "write -p measured=RUN")
    return paths


def _devices(store: Store) -> list[str]:
    return [str(row["device"]) for row in store.rows(_DEVICES)]


def _words(devices: list[str]) -> str:
    return " and ".join(devices) or "nothing that it names"


def _times(store: Store) -> dict[Signature, dict[Implementation, dict[str, Time]]]:
    found: dict[Signature, dict[Implementation, dict[str, Time]]] = defaultdict(lambda: defaultdict(dict))
    for row in store.rows(_CALLS):
        if (key := signature(row)) is not None:
            ran = row["implementation"], row["backend"]
            found[key][ran][row["phase"]] = Time(row["median_ns"], row["calls"])
    return found


def _calibration(store: Store, other: Measured) -> Iterator[Note]:
    """Yield how the same implementations compare in both runs, if they differ: then so do clocks, or releases."""
    ratios = [
        there[phase].median_ns / time.median_ns
        for key, by in _times(store).items()
        for ran, times in by.items()
        for phase, time in times.items()
        if (there := other.times.get(key, {}).get(ran, {})) and phase in there
    ]
    if ratios and abs((middle := sorted(ratios)[len(ratios) // 2]) - 1) > _ALIKE:
        words = f"In {other.name} the implementations of this run take {middle:.2f} times as long: so do not trust"
        yield Note("warning", f"{words} gains of less than that; clocks, releases or neighbours differ.")
