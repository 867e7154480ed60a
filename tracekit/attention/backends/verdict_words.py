"""A verdict on a call of SDPA in sentences, one a line."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracekit.attention.backends.eligibility import Reason
    from tracekit.attention.backends.remedies import Remedy
    from tracekit.attention.backends.verdict import Backend, Verdict


def in_sentences(verdict: Verdict) -> list[str]:
    """Return a verdict as lines: what was taken, why nothing else was, what to change, what else is worth saying."""
    return [
        _taken(verdict),
        *(line for backend in verdict.backends if matters(verdict, backend.name) for line in _backend(backend)),
        *(line for remedy in verdict.remedies for line in _remedy(remedy)),
        *(f"{lint.severity}: {lint.why} ({lint.rule}, {lint.certainty})" for lint in verdict.lints),
        *([f"problem: {verdict.problem}"] if verdict.problem else []),
    ]


def reason_in_words(reason: Reason) -> str:
    """Return a reason with what decided it, its rule and how sure it is."""
    releases = f" in {reason.releases}" if reason.releases else ""
    return f"{reason.why}; {reason.fields} ({reason.rule}{releases}, {reason.certainty})"


def _taken(verdict: Verdict) -> str:
    orders = " or ".join(", ".join(order) for order in verdict.orders)
    place = f"torch {verdict.releases or 'unknown'} tries {orders or 'nothing'}"
    if verdict.ran:
        foretold = verdict.predicted or " or ".join(verdict.possible) or "none"
        return f"{verdict.ran} ran ({verdict.certainty}), predicted {foretold} ({verdict.predicted_certainty}); {place}"
    return f"predicted {verdict.predicted or ' or '.join(verdict.possible) or 'none'} ({verdict.certainty}); {place}"


def matters(verdict: Verdict, backend: str) -> bool:
    """Return whether a backend could have been taken instead: it is the faster, or comes earlier in an order."""
    taken = verdict.ran or verdict.predicted
    return (
        taken is None
        or any(remedy.backend == backend for remedy in verdict.remedies)
        or any(backend in order[: order.index(taken)] for order in verdict.orders if taken in order)
    )


def _backend(backend: Backend) -> Iterator[str]:
    """Yield a line for each reason; what is only assumed not to refuse counts where nothing known explains more."""
    if backend.status in {"ran", "predicted", "later"}:
        return
    verbs = {True: "refused", None: "not known whether refused", False: "nothing recorded refuses it, but perhaps"}
    told = [reason for reason in backend.reasons if reason.refuses is not False or "passed over" in backend.status]
    for reason in told:
        yield f"{backend.name}: {verbs[reason.refuses]}: {reason_in_words(reason)}"
    if not told:
        yield f"{backend.name}: {backend.status}"


def _remedy(remedy: Remedy) -> Iterator[str]:
    for step in remedy.steps:
        others = f" (or {', '.join(step.others)})" if step.others else ""
        yield f"for {remedy.backend}: {step.change}{others}; but: {step.caveat} ({step.remedy} for {step.rule})"
    if remedy.is_eligible:
        yield f"{remedy.backend} would then take the call"
    elif remedy.left:
        yield f"{remedy.backend} would still be refused by {', '.join(remedy.left)}"
