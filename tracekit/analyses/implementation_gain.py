"""What the fastest eligible implementation could save of each signature's time.

Owns the choice of that implementation and the two figures: a bound by the roofline, and what other runs measured.
Whether it is eligible is the rules' to say, in the room attention.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

from tracekit.analyses.headers import headers_of
from tracekit.analyses.measured_runs import KEY, best_of, measured_runs, other_masks, signature
from tracekit.analyses.verdicts import environments, in_words, judged, kinds
from tracekit.table import Note, Rows

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from tracekit.analyses.measured_runs import Best, Measured, Signature
    from tracekit.attention.backends.remedies import Remedy
    from tracekit.attention.backends.verdict import Backend, Verdict
    from tracekit.store import Store

NAME = "implementation_gain"
_TYPES = {
    **dict.fromkeys(("implementation", "phase", "sizes", "dtype", "mask"), "String"),
    **dict.fromkeys(("window", "calls", "total_ns"), "Int64"),
    "share_frac": "Float64", "could": "String", "state": "String", "roof_gain_ns": "Int64",
    "roof_gain_frac": "Float64", "measured": "String", "measured_gain_ns": "Int64",
    **dict.fromkeys(("measured_gain_frac", "mean_ns", "measured_mean_ns", "roof_ns"), "Float64"),
    **dict.fromkeys(("bound", "certainty", "how", "reason", "run"), "String"),
}  # fmt: skip
_ALIKE = ("implementation", "backend", "phase", *KEY)
_NAMES = ", ".join(f'"{name}"' for name in _ALIKE)
_CALLS = f"""
    with
        calls as (
            select
                a.*,
                case when t.has_device then a.device_ns else a.host_ns end as spent_ns,
                greatest(r.compute_ns, r.memory_ns) as roof_ns,
                coalesce(greatest(r.compute_ns, r.memory_ns) > 0, false) as has_roof,
                r.sizes,
                r.bound,
                r.reason
            from attention_call as a
            join trace as t using (trace_id)
            left join roof_call as r on r.kind = 'attention' and r.call_id = a.call_id
        )
    select
        {_NAMES},
        bound,
        first(trace_id order by call_id) as trace_id,
        first(sizes order by call_id) as sizes,
        list(call_id order by call_id) as call_ids,
        coalesce(bool_or(mode = 'train'), false) as is_trained,
        sum(spent_ns)::bigint as total_ns,
        bool_and(has_roof) as has_roof,
        sum(roof_ns) as roof_ns,
        coalesce(bool_or(flops_status = 'estimated'), false) as is_estimated,
        min(call_id) filter (where not has_roof and reason is not null) as reason_call_id,
        first(reason order by call_id) filter (where not has_roof and reason is not null) as reason
    from calls
    group by {_NAMES}, bound
    order by min(call_id)
"""  # noqa: S608 - of names in this file alone
"""Calls that are alike and have the same bound, a row each, in the order of their first one."""
_FUSED = "sdpa"
_CALL = "call scaled_dot_product_attention (it gives no weights)"
_RANKS = ("eligible", "after a change", "unknown", "refused")


class Choice(NamedTuple):
    """The implementation to go to, whether the rules let it, how sure that is, and what to do."""

    could: str | None
    state: str
    certainty: str | None = None
    how: str | None = None


def answer(store: Store, values: Mapping[str, Any], opened: Callable[[Path], Store]) -> tuple[Rows, tuple[Note, ...]]:
    """Return a row for each signature and phase, and what to know about them; `opened` opens another run's store."""
    found = _signatures(store.rows(_CALLS))
    shown = found[: values["top"]] if values["top"] > 0 else found
    measured, notes = measured_runs(values["measured"], store, opened) if values["measured"] else ((), ())
    whole = store.scalar("select sum(dur_ns) from work")
    choose = _Chooser(store, found)
    best = _best(found, measured)
    rows = [
        _row(row, choose.of(row), best.get(_ran(row)), other_masks(measured, signature(row)), whole) for row in shown
    ]
    table = Rows(_TYPES, rows).select(*headers_of(NAME)[NAME]["columns"])
    about = {note["about"]: Note(note["status"], note["text"]) for note in headers_of(NAME)[NAME]["notes"]}
    said = [note for column, note in about.items() if any(one is not None for (one,) in table.select(column).rows)]
    if len(shown) < len(found):
        said.append(Note("info", f"{len(found)} signatures in all; -p top=0 judges every one."))
    if not found:
        said = [Note("info", "No attention call is in the run, or in its selected part.")]
    if measured and not any(best.values()):
        said.append(Note("warning", "The measured runs hold no other implementation of any signature of this run."))
    return table, (*said, *notes)


def _signatures(parts: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return calls that are alike as one row, those of most time first; `parts` are those of each bound."""
    alike: dict[tuple[object, ...], list[Mapping[str, Any]]] = defaultdict(list)
    for part in parts:
        alike[tuple(part[name] for name in _ALIKE)].append(part)
    found = [_put_together(dict(zip(_ALIKE, key, strict=True)), of_key) for key, of_key in alike.items()]
    return sorted(found, key=lambda row: (row["total_ns"] is None, -(row["total_ns"] or 0), -row["calls"]))


def _put_together(key: dict[str, Any], parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    call_ids = sorted(call for part in parts for call in part["call_ids"])
    spent = [part["total_ns"] for part in parts if part["total_ns"] is not None]
    bounds = sorted(parts, key=lambda part: -(part["total_ns"] or 0))  # of equals, that of the first call
    reasons = [part for part in parts if part["reason"] is not None]
    return {
        **key,
        **{name: parts[0][name] for name in ("trace_id", "sizes")},
        "call_ids": call_ids,
        "calls": len(call_ids),
        "total_ns": sum(spent) if spent else None,
        "roof_ns": sum(part["roof_ns"] for part in parts) if all(part["has_roof"] for part in parts) else None,
        "is_trained": any(part["is_trained"] for part in parts),
        "is_estimated": any(part["is_estimated"] for part in parts),
        "reason": min(reasons, key=lambda part: part["reason_call_id"])["reason"] if reasons else None,
        "bound": next((part["bound"] for part in bounds if part["bound"] is not None), None),
    }


_Ran = tuple[tuple[str | None, str | None], "Signature | None"]


def _ran(row: Mapping[str, Any]) -> _Ran:
    return (row["implementation"], row["backend"]), signature(row)


def _best(found: Sequence[Mapping[str, Any]], measured: tuple[Measured, ...]) -> dict[_Ran, Best | None]:
    """Return for each signature that ran the measured implementation to go to, one for all its phases."""
    spent: dict[_Ran, dict[str, tuple[float, int]]] = defaultdict(dict)
    for row in found:
        if row["total_ns"]:
            spent[_ran(row)][row["phase"]] = row["total_ns"], row["calls"]
    return {ran: best_of(measured, ran[1], ran[0], by_phase) for ran, by_phase in spent.items()}


def _row(
    row: Mapping[str, Any], choice: Choice, best: Best | None, masks: Sequence[str], whole: int | None
) -> tuple[Any, ...]:
    total, calls = row["total_ns"], row["calls"]
    roof = row["roof_ns"]
    roof_gain = None if roof is None or not total else max(0, round(total - roof))
    time = best.times.get(row["phase"]) if best else None
    gain = None if time is None or total is None else round(total - time.median_ns * calls)
    return (
        "/".join(filter(None, (row["implementation"], row["backend"]))),
        row["phase"],
        row["sizes"],
        row["dtype"],
        row["mask_kind"],
        row["window"],
        calls,
        total,
        _share(total, whole),
        choice.could,
        choice.state,
        roof_gain,
        _share(roof_gain, whole),
        "/".join(filter(None, best.implementation)) if best and time else None,
        gain,
        _share(gain, whole),
        None if total is None else total / calls,
        time.median_ns if time else None,
        None if roof is None else roof / calls,
        row["bound"],
        choice.certainty,
        choice.how,
        _reason(row, masks, is_phase_missing=best is not None and time is None),
        best.run if best and time else None,
    )


def _share(part: float | None, whole: int | None) -> float | None:
    return None if part is None or not whole else part / whole


def _reason(row: Mapping[str, Any], masks: Sequence[str], *, is_phase_missing: bool) -> str | None:
    reasons = [f"its sizes were measured with another mask: {', '.join(masks)}"] if masks else []
    if row["roof_ns"] is None and row["reason"]:
        reasons.append(row["reason"])
    elif row["is_estimated"]:
        reasons.append("its operations are an upper bound, so that the gain may be larger")
    if row["total_ns"] is None:
        reasons.append("its device work is not in the trace")
    if is_phase_missing:
        reasons.append("the measured implementation was not measured in this phase")
    return "; ".join(reasons) or None


class _Chooser:
    """Chooses the implementation to go to, each signature's once for all its phases."""

    def __init__(self, store: Store, found: Sequence[Mapping[str, Any]]) -> None:
        self._around = environments(store)
        self._kinds = kinds(store)
        self._kind_of = {call: number for number, kind in enumerate(self._kinds) for call in kind["call_ids"]}
        self._forward: dict[_Ran, Mapping[str, Any]] = {}
        for row in found:
            if row["phase"] != "backward":
                self._forward.setdefault(_ran(row), row)
        self._known: dict[_Ran, Choice] = {}

    def of(self, row: Mapping[str, Any]) -> Choice:
        """Return the choice for a row of signatures; a backward one goes where its forward one goes."""
        ran = _ran(row)
        if ran not in self._known:
            self._known[ran] = self._choice(self._forward.get(ran, row))
        return self._known[ran]

    def _choice(self, row: Mapping[str, Any]) -> Choice:
        if row["implementation"] == "naive":
            return self._naive(row)
        if row["implementation"] != _FUSED or row["phase"] == "backward":
            return Choice(None, "not judged")
        numbers = sorted({self._kind_of[call] for call in row["call_ids"] if call in self._kind_of})
        found = judged(self._kinds[numbers[0]], self._around) if numbers else None  # that of most time
        return Choice(None, "unknown", "unknown") if found is None else _faster(found.verdict)

    def _naive(self, row: Mapping[str, Any]) -> Choice:
        """Return what scaled_dot_product_attention would do with these sizes, were it called."""
        from tracekit.attention.backends.readings import Environment
        from tracekit.attention.backends.verdict import judge
        from tracekit.attention.calls.arguments import as_called

        called = as_called(row)
        if called is None:
            return Choice(None, "unknown", "unknown")
        needs_grad = True if row["is_trained"] else None
        verdict = judge(called, Environment(**self._around[row["trace_id"]], needs_grad=needs_grad))
        fused = [name for name in verdict.possible if name != "math"]
        if not fused:
            choice = _faster(verdict)
            return choice._replace(how="; ".join(filter(None, (_CALL, choice.how)))) if choice.could else choice
        if len(fused) == len(verdict.possible) == 1 and verdict.predicted_certainty != "unknown":
            return Choice(f"{_FUSED}/{fused[0]}", "eligible", "likely", f"{_CALL}: the rules let {fused[0]} take it")
        others = [f"{name} would" for name in verdict.possible if name != fused[0]]
        where = f"in other releases or settings {' or '.join(others)}" if others else "as far as the trace tells"
        how = f"{_CALL}: the rules let {fused[0]} take it, {where}"
        return Choice(f"{_FUSED}/{fused[0]}", "unknown", "unknown", how)


def _faster(verdict: Verdict) -> Choice:
    """Return the backend to go to from the one that took a call: of those that may, the fastest."""
    backends = {backend.name: backend for backend in verdict.backends}
    choices = [_of_backend(backends[one.backend], one) for one in verdict.remedies if one.backend in backends]
    return min(choices, key=lambda choice: _RANKS.index(choice.state), default=Choice(None, "none faster"))


def _of_backend(backend: Backend, remedy: Remedy) -> Choice:
    name = f"{_FUSED}/{backend.name}"
    how = in_words(remedy.steps) or None
    if "passed over" in backend.status:  # what kept it out is not in the trace, and may keep it out again
        return Choice(
            name, "unknown", "unknown", how or "nothing that is recorded refuses it, yet torch passed it over"
        )
    if backend.is_eligible:
        return Choice(name, "eligible", backend.certainty, how)
    if remedy.is_eligible:
        return Choice(name, "after a change", "likely", how)
    if backend.is_eligible is None or (remedy.is_eligible is None and how):
        return Choice(name, "unknown", "unknown", how or _undecided(backend))
    return Choice(name, "refused", backend.certainty, _undecided(backend))


def _undecided(backend: Backend) -> str | None:
    from tracekit.attention.backends.verdict_words import reason_in_words

    told: Sequence[str] = [reason_in_words(reason) for reason in backend.reasons if reason.refuses is not False]
    return "; ".join(told) or None
