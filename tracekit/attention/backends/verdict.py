"""Why one call of scaled_dot_product_attention ran on its backend, and not on a faster one.

Owns the verdict: the order that held, what each backend's rules said, how sure that is, what to change. It is a pure
function of the call's arguments and of where it ran; the rules are TOML beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from tracekit.attention.backends.eligibility import (
    Answer,
    Eligibility,
    Reason,
    Sequenced,
    answer,
    newest,
    over_releases,
)
from tracekit.attention.backends.readings import readings_of
from tracekit.attention.backends.releases import is_exact, known_releases, number_of, release_of, span_of
from tracekit.attention.backends.remedies import Remedy, faster_than, remedy_for
from tracekit.attention.backends.rules import Row, evaluate, known_at, rows_of, worst

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tracekit.attention.backends.readings import Environment, Readings
    from tracekit.attention.calls.arguments import Argument


class Lint(NamedTuple):
    """Something worth saying of the call, whatever it ran on: error (torch raises), warning or note."""

    rule: str
    severity: str
    why: str
    certainty: str


class Backend(NamedTuple):
    """What the verdict says of a backend.

    `status`: ran, predicted, refused, possible, later (in the order than the one taken), passed over (nothing that is
    known refuses it and it comes earlier, so what excluded it is not in the trace); several, where it differs by
    release.
    """

    name: str
    status: str
    is_eligible: bool | None
    certainty: str
    reasons: tuple[Reason, ...]


@dataclass(frozen=True)
class Verdict:
    """The verdict on a call.

    `predicted` is the backend that rules expect without knowing which ran, None where `possible` holds several or
    none. `certainty` is how sure the reasons are for which every backend before the one that ran was not taken; of a
    prediction where none ran. `releases` are those that the reasons hold for. `orders` are the orders that may have
    held. `problem` says where the rules contradict what ran.
    """

    ran: str | None
    predicted: str | None
    possible: tuple[str, ...]
    predicted_certainty: str
    certainty: str
    releases: str
    orders: tuple[tuple[str, ...], ...]
    backends: tuple[Backend, ...]
    remedies: tuple[Remedy, ...]
    lints: tuple[Lint, ...]
    problem: str | None = None

    @property
    def agrees(self) -> bool | None:
        """Return whether what ran is what was predicted, None where it is one of several possible or nothing ran."""
        if self.ran is None:
            return None
        return None if len(self.possible) > 1 and self.ran in self.possible else self.ran == self.predicted


class LintRow(Row, frozen=True, kw_only=True):
    """A row of remedies.toml's `lint`."""

    id: str
    severity: str
    why: str
    remedy: tuple[str, ...] = ()


def judge(arguments: Mapping[str, Argument], environment: Environment, ran: str | None = None) -> Verdict:
    """Return the verdict on a call by the wrapper's named arguments; `ran` is the backend whose row is in the trace."""
    readings = {**readings_of(arguments, environment), "ran": ran}
    device = environment.device
    told = environment.facts.get("priority")
    priority = _priority(told) if isinstance(told, (list, tuple)) and device in {"cuda", "rocm"} else ()
    releases, is_sure = _releases(environment)
    answers = [answer(readings, release, device, priority) for release in releases]
    possible = tuple(dict.fromkeys(backend for each in answers for backend in each.possible))
    predicted_certainty = worst(
        "certain" if is_sure else "likely",
        "certain" if len(possible) == 1 else "unknown",
        *(each.certainty for each in answers),
    )
    fitting = [each.given(ran) for each in answers if ran in each.possible] if ran else answers
    held = fitting or answers
    predicted = possible[0] if len(possible) == 1 else None
    taken = ran or predicted
    backends = _backends(held, ran, taken)
    certainty = predicted_certainty
    if ran:
        sure = [is_sure, not fitting or len(held) == len(answers)]
        certainty = worst(*("certain" if each else "likely" for each in sure), _certainty(held, ran))
    left = tuple(each.release for each in held)
    faster = faster_than(taken, known_at(readings, left[-1], device), left[-1], device) if taken and left else ()
    return Verdict(
        ran,
        predicted,
        possible,
        predicted_certainty,
        certainty,
        span_of(left),
        tuple(dict.fromkeys(order.backends for each in held for order in each.orders)),
        backends,
        tuple(
            remedy_for(backend.name, backend.status, backend.reasons, readings, left, device)
            for name in faster
            for backend in backends
            if backend.name == name
        ),
        _lints(readings, left, device),
        _problem(held, ran) if held else "no release that the rules know fits the trace",
    )


def _releases(environment: Environment) -> tuple[tuple[str, ...], bool]:
    """Return the releases to ask, and whether the answer holds of what ran: not of nightlies and vendors' builds.

    A version newer than all rules is asked as the newest.
    """
    version = environment.torch_version
    if version is None:
        return (known_releases() if environment.releases is None else environment.releases), True
    release = release_of(version)
    if release is None and number_of(version) > number_of(newest()):
        release = newest()
    return ((release,) if release else ()), is_exact(version)


def _priority(told: Sequence[object]) -> tuple[str, ...]:
    """Return an order as torch tells it in the names used here: flash for FLASH_ATTENTION."""
    return tuple(str(name).lower().removesuffix("_attention") for name in told)


def _backends(answers: Sequence[Answer], ran: str | None, taken: str | None) -> tuple[Backend, ...]:
    names = dict.fromkeys(name for each in answers for order in each.orders for name in order.backends)
    found = []
    for name in names:
        eligible = over_releases(answers, name)
        statuses = dict.fromkeys(_status(name, taken, each, order) for each in answers for order in each.orders)
        status = " or ".join(statuses)
        if name == taken:
            status = "ran" if ran else "predicted"
        if name == ran:
            eligible = Eligibility(True, "certain", tuple(reason for reason in eligible.reasons if reason.refuses))
        reasons = eligible.reasons + (_of_order(answers, name, taken) if "passed over" in status else ())
        found.append(Backend(name, status, eligible.is_eligible, eligible.certainty, reasons))
    return tuple(found)


def _of_order(answers: Sequence[Answer], name: str, taken: str | None) -> tuple[Reason, ...]:
    """Return, as reasons for which a backend was passed over, what the orders that have it first assume."""
    orders = [order for each in answers for order in each.orders if order.assumed]
    found = {
        order.row: Reason(order.row, False, "likely", "the order may be another", order.assumed)
        for order in orders
        if taken and _is_before(name, taken, order.backends)
    }
    return tuple(found.values())


def _status(name: str, taken: str | None, told: Answer, order: Sequenced) -> str:
    if name in told.eligibilities and told.eligibilities[name].is_eligible is False:
        return "refused"
    if taken is None:
        return "possible" if name in order.possible else "later"
    return "passed over" if _is_before(name, taken, order.backends) else "later"


def _is_before(name: str, taken: str, backends: tuple[str, ...]) -> bool:
    return name in backends and (taken not in backends or backends.index(name) < backends.index(taken))


def _certainty(answers: Sequence[Answer], ran: str) -> str:
    """Return how sure the reasons are for which backends before the one that ran were not taken."""
    found = []
    for each in answers:
        for order in each.orders:
            before = [each.eligibilities[name] for name in order.backends if _is_before(name, ran, order.backends)]
            found += [order.certainty]
            found += ["unknown" if eligible.is_eligible is not False else eligible.certainty for eligible in before]
    return worst(*found) if found else "unknown"


def _problem(answers: Sequence[Answer], ran: str | None) -> str | None:
    """Return what the rules say against the backend that ran, if they do so in every release: one of both is wrong."""
    if ran is None:
        return None
    found = over_releases(answers, ran)
    if not found.reasons and not any(ran in each.eligibilities for each in answers):
        return f"{ran} is not among the backends that the rules know for this device and release"
    if found.is_eligible is not False:
        return None
    rules = ", ".join(reason.rule for reason in found.reasons if reason.refuses)
    return f"{ran} ran, though {rules} refuses it: the rules are wrong here, or torch is a build of its own"


def _lints(readings: Readings, releases: Sequence[str], device: str) -> tuple[Lint, ...]:
    found: dict[str, Lint] = {}
    for row in rows_of("remedies", "lint", LintRow):
        fits = [release for release in releases if row.fits(release, device)]
        outcomes = [evaluate(row, known_at(readings, release, device)) for release in fits]
        holding = [outcome.certainty for outcome in outcomes if outcome.holds]
        if holding:
            certainty = worst(*holding, "certain" if len(holding) == len(releases) else "likely")
            found[row.id] = Lint(row.id, row.severity, row.why, certainty)
    return tuple(found.values())
