"""Every rule against a backend of SDPA on a call that it just refuses and on one that it just does not."""

from __future__ import annotations

import pytest

from tests.attention.backends.cases import BOUNDS, CASES, LINT_CASES, UNCONDITIONAL, UNDECIDED, Case, nested
from tests.attention.backends.sdpa import call, where
from tracekit.attention.backends.conditions import CONDITIONS, needs_of
from tracekit.attention.backends.eligibility import newest
from tracekit.attention.backends.readings import WORDS, readings_of
from tracekit.attention.backends.releases import holds_at, known_releases
from tracekit.attention.backends.remedies import Change, Later, Speed
from tracekit.attention.backends.rules import (
    CERTAINTIES,
    DEVICES,
    Assumption,
    Order,
    Row,
    all_rules,
    evaluate,
    known_at,
    rows_of,
)
from tracekit.attention.backends.verdict import LintRow
from tracekit.attention.knowledge import load

RULES = {rule.id: rule for rule in all_rules()}
REMEDIES = {row.id: row for row in rows_of("remedies", "remedy", Change)}
LINTS = {row.id: row for row in rows_of("remedies", "lint", LintRow)}
ROWS: list[Row] = [
    *RULES.values(),
    *REMEDIES.values(),
    *LINTS.values(),
    *rows_of("backends", "order", Order),
    *rows_of("backends", "speed", Speed),
    *rows_of("backends", "assumption", Assumption),
    *rows_of("remedies", "later", Later),
]
BACKENDS = {row["backend"] for row in load("backends/backends")["op"]}


def outcome_of(row: Row, case: Case, device: str | None = None) -> tuple[bool | None, str]:
    """Return whether a row holds for a case in its first release, and how sure that is."""
    case = dict(case)
    place = {name: case.pop(name) for name in ("sm", "facts", "needs_grad", "device_name") if name in case}
    is_nested, strides = case.pop("is_nested", False), case.pop("all_strides", None)
    ran, value_dtype = case.pop("ran", None), case.pop("value_dtype", None)
    arguments = call(**case)
    if value_dtype:
        arguments["value"] = arguments["value"]._replace(dtype=value_dtype)
    for name in ("query", "key", "value"):
        if is_nested:
            arguments[name] = arguments[name]._replace(shape=None, strides=None, dtype=None)
        if strides:
            arguments[name] = arguments[name]._replace(strides=strides)
    device = device or row.devices[0]
    release = next(each for each in known_releases() if row.fits(each, device))
    known = known_at({**readings_of(arguments, where(device, **place)), "ran": ran}, release, device)
    outcome = evaluate(row, known, getattr(row, "level", "certain"))
    return outcome.holds, outcome.certainty


@pytest.mark.parametrize(("rule", "fails", "passes"), [*((name, *pair) for name, pair in CASES.items()), *BOUNDS])
def test_a_rule_refuses_what_just_fails_it_and_nothing_else(rule: str, fails: Case, passes: Case) -> None:
    wanted = None if RULES[rule].level == "unknown" else True
    for device in RULES[rule].devices if "device_name" not in fails else RULES[rule].devices[:1]:
        assert outcome_of(RULES[rule], fails, device)[0] is wanted
        assert outcome_of(RULES[rule], passes, device)[0] is False


@pytest.mark.parametrize("rule", sorted(UNCONDITIONAL))
def test_a_rule_without_a_condition_always_holds(rule: str) -> None:
    assert outcome_of(RULES[rule], {})[0] is (None if RULES[rule].level == "unknown" else True)


@pytest.mark.parametrize("rule", sorted(UNDECIDED))
def test_what_a_trace_does_not_show_of_nested_tensors_is_not_known(rule: str) -> None:
    assert outcome_of(RULES[rule], nested()) == (None, "unknown")
    assert outcome_of(RULES[rule], {})[0] is False


def test_every_rule_has_a_case() -> None:
    assert CASES.keys() | UNCONDITIONAL | UNDECIDED == RULES.keys()


@pytest.mark.parametrize("lint", LINT_CASES)
def test_a_lint_holds_for_what_it_is_about_and_nothing_else(lint: str) -> None:
    holds, holds_not = LINT_CASES[lint]
    assert outcome_of(LINTS[lint], holds)[0] is True
    assert outcome_of(LINTS[lint], holds_not)[0] is False


def test_every_lint_has_a_case() -> None:
    assert LINT_CASES.keys() == LINTS.keys()


# --- the files -----------------------------------------------------------------------------------------------------------


def test_ids_are_unique() -> None:
    tables = (
        all_rules(),
        rows_of("backends", "order", Order),
        rows_of("remedies", "remedy", Change),
        rows_of("remedies", "lint", LintRow),
    )
    for table in tables:
        assert len({row.id for row in table}) == len(table)


def test_every_row_has_a_source_devices_and_releases_that_there_are() -> None:
    for row in ROWS:
        assert row.source
        assert set(row.devices) <= set(DEVICES)
        assert {row.since, row.until} <= {None, *known_releases()}
        assert any(row.fits(release, device) for release in known_releases() for device in row.devices)
        assert getattr(row, "level", "certain") in CERTAINTIES


def test_every_condition_is_a_word_of_the_vocabulary_and_every_word_is_used() -> None:
    clauses = [clause for row in ROWS for clause in (*row.when, *row.unless)]
    used = {name for clause in clauses for name in clause}
    assert used == CONDITIONS.keys()
    facts = {row["name"] for row in load("backends/backends")["fact"]}
    assert {need for clause in clauses for need in needs_of(clause)} <= WORDS.keys() | facts


def test_backends_and_remedies_that_rows_name_are_there() -> None:
    assert {rule.backend for rule in RULES.values()} <= BACKENDS
    for row in (*rows_of("backends", "order", Order), *rows_of("backends", "speed", Speed)):
        assert set(row.backends) <= BACKENDS
    named = {remedy for rule in RULES.values() for remedy in rule.remedy}
    named |= {remedy for lint in LINTS.values() for remedy in lint.remedy}
    named |= {remedy for row in rows_of("remedies", "later", Later) for remedy in row.remedy}
    assert named == REMEDIES.keys()


def test_every_release_and_device_has_an_order_whatever_the_call() -> None:
    for device in DEVICES:
        for release in known_releases():
            rows = [row for row in rows_of("backends", "order", Order) if row.fits(release, device)]
            assert not rows[-1].when


def test_what_is_assumed_is_a_reading_and_has_one_value_a_release() -> None:
    facts = {row["name"] for row in load("backends/backends")["fact"]}
    for release in known_releases():
        names = [
            name
            for row in rows_of("backends", "assumption", Assumption)
            if row.fits(release, "cuda")
            for name in row.names
        ]
        assert len(set(names)) == len(names)
        assert set(names) <= facts | WORDS.keys()


def test_a_range_includes_its_ends_and_patches() -> None:
    assert holds_at("2.5.1", "2.5.0", "2.5.1")
    assert not holds_at("2.5.0", "2.5.1", None)
    assert holds_at("2.0.1", None, "2.0.1")
    assert not holds_at("2.1", None, "2.0.1")
    assert newest() == "2.14"
