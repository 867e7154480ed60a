"""Why SDPA's calls ran on their backends: every kind of call is judged by the rules of the room attention.

Owns the rows of the answer; which calls are alike, and the verdict on them, is verdicts.py's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracekit.analyses.headers import headers_of
from tracekit.analyses.verdicts import environments, in_words, judged, kinds
from tracekit.attention.knowledge import load
from tracekit.table import Note, Rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tracekit.analyses.verdicts import Judged
    from tracekit.attention.backends.verdict import Backend, Verdict
    from tracekit.attention.calls.arguments import Argument
    from tracekit.store import Store

NAME = "backend_verdict"
_COUNTS = frozenset({"kind", "calls", "device_ns"})
_COLUMNS = (
    "kind", "query", "key", "dtype", "calls", "device_ns", "ran", "backend", "state", "certainty", "why", "remedy",
)  # fmt: skip
_TYPES = {name: "Int64" if name in _COUNTS else "String" for name in _COLUMNS}
_LONE = """
    select
        family,
        nullif(regexp_extract(name, $traits, 1), '') as head_dim,
        count(*) as kernels,
        sum(dur_ns)::bigint as ns
    from kernel
    where op_id is null and family in (select unnest($families)) and not regexp_matches(name, $backward)
    group by all
    order by ns desc, family, head_dim
"""
_TRAITS = r"Flash_fwd_kernel_traits<(\d+)"
"""The first number is the head dim that the kernel is compiled for, to which others are padded.

source: pytorch aten/src/ATen/native/transformers/cuda/flash_attn/kernel_traits.h
"""


def answer(store: Store, values: Mapping[str, Any], _opened: object) -> tuple[Rows, tuple[Note, ...]]:
    """Return a row for each backend of each kind of call, and what to know about them; no other run is opened."""
    found = kinds(store)
    shown = found[: values["top"]] if values["top"] > 0 else found
    around = environments(store)
    verdicts = [(kind, judged(kind, around)) for kind in shown]
    rows = [row for number, pair in enumerate(verdicts) for row in _rows(number, *pair, is_all=values["all"])]
    rows += _lone(store)
    about = {note["about"]: Note(note["status"], note["text"]) for note in headers_of(NAME)[NAME]["notes"]}
    is_recorded = all("flash_enabled" in known["facts"] for known in around.values())
    notes = [about["recorded" if is_recorded else "assumed"]]
    if any(found and found.has_other_switches for _, found in verdicts):
        notes.append(about["other"])
    if len(shown) < len(found):
        notes.append(Note("info", f"{len(found)} kinds of calls in all; -p top=0 judges every one."))
    if not found:
        notes.insert(0, Note("info", "No call of scaled_dot_product_attention is in the run, or in its selected part."))
    return Rows(_TYPES, rows).select(*headers_of(NAME)[NAME]["columns"]), tuple(notes)


def _lone(store: Store) -> Iterator[tuple[Any, ...]]:
    """Yield a row for each kind of kernels of SDPA whose op is not in the trace: what their names alone tell."""
    known = {name: row for name, row in load("calls/calls")["family"].items() if row["implementation"] == "sdpa"}
    asked = {"traits": _TRAITS, "families": list(known), "backward": load("roles/order")["backward"]["pattern"]}
    for family, head_dim, kernels, ns in (row.values() for row in store.rows(_LONE, asked)):
        width = f" (head dim up to {head_dim})" if head_dim else ""
        why = (
            f"{kernels} kernels of {family}{width} have no op: a fused attention, not math; rules need the op's inputs"
        )
        yield None, None, None, None, None, ns, known[family].get("backend"), None, "note", "certain", why, None


def _rows(number: int, kind: Mapping[str, Any], found: Judged | None, *, is_all: bool) -> Iterator[tuple[Any, ...]]:
    first = (number, *_shapes(found.arguments if found else {}), kind["calls"], kind["ns"], kind["ran"])
    if found is None:
        yield (*first, None, None, "unknown", "its inputs were not recorded, or in no order that is known", None)
    else:
        yield from ((*first, *rest) for rest in _judged(found.verdict, is_all=is_all))


def _shapes(named: Mapping[str, Argument]) -> tuple[str | None, str | None, str | None]:
    query, key = named.get("query"), named.get("key")
    shapes = ["×".join(map(str, one.shape)) if one and one.shape is not None else None for one in (query, key)]
    return shapes[0], None if shapes[1] == shapes[0] else shapes[1], query.dtype if query else None


def _judged(verdict: Verdict, *, is_all: bool) -> Iterator[tuple[str | None, str | None, str, str | None, str | None]]:
    """Yield backend, state, certainty, why and remedy of each backend that matters, then what else is worth saying."""
    from tracekit.attention.backends.verdict_words import matters

    for backend in verdict.backends:
        if is_all or backend.status in {"ran", "predicted"} or matters(verdict, backend.name):
            yield (
                backend.name,
                backend.status,
                _certainty(verdict, backend),
                _why(verdict, backend),
                _remedy(verdict, backend),
            )
    for lint in verdict.lints:
        yield None, lint.severity, lint.certainty, f"{lint.why} ({lint.rule})", None
    if verdict.problem:
        yield None, "problem", "unknown", verdict.problem, None


def _certainty(verdict: Verdict, backend: Backend) -> str:
    return verdict.predicted_certainty if backend.status in {"ran", "predicted"} else backend.certainty


def _why(verdict: Verdict, backend: Backend) -> str | None:
    from tracekit.attention.backends.verdict_words import reason_in_words

    if backend.status in {"ran", "predicted"}:
        foretold = " or ".join(verdict.possible) or "none"
        orders = " or ".join(", ".join(order) for order in verdict.orders) or "nothing"
        return f"the rules predict {foretold}; torch {verdict.releases or 'of an unknown release'} tries {orders}"
    told: Sequence[str] = [reason_in_words(reason) for reason in backend.reasons if reason.refuses is not False]
    return "; ".join(told) or None


def _remedy(verdict: Verdict, backend: Backend) -> str | None:
    for remedy in verdict.remedies:
        if remedy.backend == backend.name and remedy.steps:
            left = f"; it would still be refused by {', '.join(remedy.left)}" if remedy.left else ""
            return in_words(remedy.steps) + left
    return None
