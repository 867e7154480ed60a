"""Which backends of SDPA take a call, in one release and in all that the trace can be of.

Owns how the outcomes of rules add up: one that refuses is enough, one that is not known leaves the backend not known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tracekit.attention.backends.readings import in_words, words_of
from tracekit.attention.backends.releases import known_releases, span_of
from tracekit.attention.backends.rules import Known, Order, Outcome, Rule, evaluate, known_at, rows_of, rules_of, worst

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tracekit.attention.backends.readings import Readings


class Reason(NamedTuple):
    """What a rule says against a backend.

    `refuses` is True where it refuses, None where that is not known, False where it does not by what is assumed alone.
    `fields` are the readings that decided, in words. `releases` are those it is a reason in, where not in all.
    """

    rule: str
    refuses: bool | None
    certainty: str
    why: str
    fields: str
    releases: str = ""


class Eligibility(NamedTuple):
    """Whether a backend takes a call, None where not known; how sure that is, and why."""

    is_eligible: bool | None
    certainty: str
    reasons: tuple[Reason, ...] = ()


class Sequenced(NamedTuple):
    """An order in which backends are tried, by which row, and how sure that it held.

    `assumed` are the readings it rests on that are assumed, in words. `possible` are the backends that may be taken in
    it, by what is known, and `taken_certainty` how sure one is.
    """

    backends: tuple[str, ...]
    row: str
    certainty: str
    assumed: str = ""
    possible: tuple[str, ...] = ()
    taken_certainty: str = "unknown"


class Answer(NamedTuple):
    """What one release does with a call: the orders that may hold, and what each backend says."""

    release: str
    orders: tuple[Sequenced, ...]
    eligibilities: dict[str, Eligibility]

    @property
    def possible(self) -> tuple[str, ...]:
        """Return the backends that may be taken."""
        return tuple(dict.fromkeys(backend for order in self.orders for backend in order.possible))

    @property
    def certainty(self) -> str:
        """Return how sure it is which backend is taken."""
        if len(self.possible) != 1:
            return "unknown"
        return worst(*(order.taken_certainty for order in self.orders))

    def given(self, ran: str) -> Answer:
        """Return the answer with only the orders in which this backend may be taken: likely, if that chose them."""
        return self._replace(
            orders=tuple(
                order._replace(certainty="likely") if order.certainty == "unknown" else order
                for order in self.orders
                if ran in order.possible
            )
        )


def answer(readings: Readings, release: str, device: str, priority: tuple[str, ...] = ()) -> Answer:
    """Return what a release does with a call; `priority` is the order that torch was told, if that is known."""
    known = known_at(readings, release, device)
    orders = [Sequenced(priority, "captured", "certain")] if priority else _orders(known, release, device)
    backends = dict.fromkeys(backend for order in orders for backend in order.backends)
    found = {backend: eligibility(known, release, device, backend) for backend in backends}
    return Answer(release, tuple(_walked(order, found) for order in orders), found)


def eligibility(known: Known, release: str, device: str, backend: str) -> Eligibility:
    """Return whether a backend takes a call in a release."""
    outcomes = [(rule, evaluate(rule, known, rule.level)) for rule in rules_of(release, device, backend)]
    told = [(rule, outcome) for rule, outcome in outcomes if outcome.holds is not False or outcome.assumed]
    told.sort(key=lambda each: (None, False).index(each[1].holds) if each[1].holds is not True else -1)
    reasons = tuple(_reason(rule, outcome, known) for rule, outcome in told)
    against = tuple(reason for reason in reasons if reason.refuses)
    refusals = [outcome.certainty for _, outcome in outcomes if outcome.holds]
    if refusals:
        return Eligibility(False, "certain" if "certain" in refusals else "likely", against)
    if any(outcome.holds is None for _, outcome in outcomes):
        return Eligibility(None, "unknown", reasons)
    return Eligibility(True, worst(*(outcome.certainty for _, outcome in outcomes)), reasons)


def over_releases(answers: Sequence[Answer], backend: str) -> Eligibility:
    """Return whether a backend takes a call in all releases; one that differs by release is not known."""
    found = [(each.release, each.eligibilities[backend]) for each in answers if backend in each.eligibilities]
    said = {eligible.is_eligible for _, eligible in found}
    reasons = _merged(found, answers)
    if len(said) != 1:
        return Eligibility(None, "unknown", reasons)
    return Eligibility(said.pop(), worst(*(eligible.certainty for _, eligible in found)), reasons)


def newest() -> str:
    """Return the newest release that rules know."""
    return known_releases()[-1]


def _orders(known: Known, release: str, device: str) -> list[Sequenced]:
    """Return the first order that holds, with those before it that may."""
    found = []
    for row in rows_of("backends", "order", Order):
        if not row.fits(release, device):
            continue
        outcome = evaluate(row, known)
        if outcome.holds is not False:
            certainty = worst(outcome.certainty, row.level)
            found.append(Sequenced(row.backends, row.id, certainty, _assumed(outcome, known)))
        if outcome.holds:
            break
    return _after_assumed(found, known, release, device)


def _after_assumed(found: list[Sequenced], known: Known, release: str, device: str) -> list[Sequenced]:
    """Return the orders, likely where an earlier one was passed by what is assumed alone."""
    rows = [row for row in rows_of("backends", "order", Order) if row.fits(release, device)]
    passed = [row for row in rows if evaluate(row, known).holds is False and evaluate(row, known).assumed]
    names = [row.id for row in rows]
    return [
        order._replace(certainty=worst(order.certainty, "likely"))
        if any(names.index(row.id) < names.index(order.row) for row in passed)
        else order
        for order in found
    ]


def _walked(order: Sequenced, found: dict[str, Eligibility]) -> Sequenced:
    """Return an order with the backends that may be taken in it."""
    taken, certainties = [], [order.certainty]
    for backend in order.backends:
        eligible = found[backend]
        certainties.append(eligible.certainty)
        if eligible.is_eligible is not False:
            taken.append(backend)
        if eligible.is_eligible:
            break
    return order._replace(possible=tuple(taken), taken_certainty=worst(*certainties))


def _reason(rule: Rule, outcome: Outcome, known: Known) -> Reason:
    if outcome.holds:
        fields = [in_words(known.filled, name) for name in outcome.readings]
        fields = [
            f"{text} (assumed)" if name in outcome.assumed else text
            for name, text in zip(outcome.readings, fields, strict=True)
        ]
    elif outcome.holds is None:
        names = [name for name in outcome.readings if known.filled[name] is None] or list(outcome.readings)
        fields = [
            f"{words_of(name)} is not known" if known.filled[name] is None else in_words(known.filled, name)
            for name in names
        ]
    else:
        fields = [_assumed(outcome, known)]
    return Reason(rule.id, outcome.holds, outcome.certainty, rule.why, "; ".join(fields))


def _assumed(outcome: Outcome, known: Known) -> str:
    return "; ".join(f"{in_words(known.filled, name)} (assumed)" for name in outcome.assumed)


def _merged(found: Iterable[tuple[str, Eligibility]], answers: Sequence[Answer]) -> tuple[Reason, ...]:
    """Return the reasons of all releases, each rule once, with the releases it is a reason in where not in all."""
    places: dict[tuple[str, bool | None], list[tuple[str, Reason]]] = {}
    for release, eligible in found:
        for reason in eligible.reasons:
            places.setdefault((reason.rule, reason.refuses), []).append((release, reason))
    merged = []
    for told in places.values():
        releases = [release for release, _ in told]
        span = "" if len(releases) == len(answers) else span_of(releases)
        certainty = worst(*(reason.certainty for _, reason in told))
        merged.append(told[0][1]._replace(certainty=certainty, releases=span))
    return tuple(sorted(merged, key=lambda reason: (True, None, False).index(reason.refuses)))
