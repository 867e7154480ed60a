"""What a condition is that a rule about SDPA's backends is written in, and how it is declared.

A condition is True, False, or None where a reading it needs is not known. One that is given a boolean in a rule asks
whether its test gives that; any other argument goes to the test itself, before the readings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.attention.backends.readings import Readings

    _Test = TypeVar("_Test", bound=Callable[..., bool])


class Condition(NamedTuple):
    """A condition: the readings it needs, and the test of them."""

    needs: tuple[str, ...]
    test: Callable[..., bool]

    def holds(self, argument: object, readings: Readings) -> bool | None:
        """Return whether it holds, None where a reading is not known."""
        values = [readings[name] for name in self.needs_of(argument)]
        if any(value is None for value in values):
            return None
        if isinstance(argument, bool):
            return self.test(*values) is argument
        return self.test(argument, *values)

    def needs_of(self, argument: object) -> tuple[str, ...]:
        """Return the readings it needs; a condition on a fact is told which by its argument."""
        return self.needs or (str(argument),)


def needing(conditions: dict[str, Condition]) -> Callable[..., Callable[[_Test], _Test]]:
    """Return a decorator that adds a test to conditions under its own name, with the readings it needs."""

    def needs(*names: str) -> Callable[[_Test], _Test]:
        def add(test: _Test) -> _Test:
            conditions[test.__name__] = Condition(names, test)
            return test

        return add

    return needs
