"""True lengths of the sequences of a batch: a list, or a distribution with a seed.

Owns the text of `--lengths` and the drawing. Standard library only, so that equal seeds give equal lengths
whatever torch is installed.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from tracekit.errors import TracekitError

if TYPE_CHECKING:
    from collections.abc import Callable

_LIST = re.compile(r"-?\d+(,-?\d+)*")
_NUMBER = r"(\d+(?:\.\d+)?)"
_FORMS = {
    "uniform": re.compile(r"uniform:(\d+)-(\d+)"),
    "lognormal": re.compile(rf"lognormal:{_NUMBER},{_NUMBER}"),
    "zipf": re.compile(rf"zipf:{_NUMBER}"),
}
_WAYS = "give 37,64,12 or uniform:LOW-HIGH, lognormal:MEDIAN,SIGMA, zipf:EXPONENT"


@dataclass(frozen=True)
class Lengths:
    """A list of lengths, or the name and the numbers of a distribution to draw them from."""

    form: str
    numbers: tuple[float, ...]

    @property
    def listed(self) -> tuple[int, ...] | None:
        """Return the lengths where they were listed, else None."""
        return tuple(int(number) for number in self.numbers) if self.form == "list" else None

    def check(self, batch: int, seq: int) -> None:
        """Raise TracekitError if these lengths don't make a batch of `batch` sequences padded to `seq`."""
        if self.listed is not None and len(self.listed) != batch:
            raise TracekitError(
                f"--lengths lists {len(self.listed)} sequences, --batch is {batch}", "make them equal, or leave one out"
            )
        shortest, longest = self._bounds()
        if shortest < 1:
            raise TracekitError(f"--lengths holds {shortest:.0f}", "a sequence has at least 1 token")
        if longest > seq:
            raise TracekitError(
                f"--lengths goes up to {longest:.0f}, above the padded length {seq}", "raise --seq, or shorten it"
            )

    def _bounds(self) -> tuple[float, float]:
        """Return the shortest and longest length asked for; a distribution that is cut off asks for no longest."""
        if self.form in {"list", "uniform"}:
            return min(self.numbers), max(self.numbers)
        return (self.numbers[0], 1) if self.form == "lognormal" else (1, 1)

    def draw(self, batch: int, seq: int, seed: int, number: int) -> tuple[int, ...]:
        """Return the lengths of the batch of step `number`, each from 1 to `seq`; a list is the same in each step."""
        if self.listed is not None:
            return self.listed
        draws = Random(f"{seed}/{number}")  # noqa: S311 - lengths, not secrets
        return tuple(max(1, min(seq, _DRAWS[self.form](draws, self.numbers, seq))) for _ in range(batch))


def parse(text: str) -> Lengths:
    """Read the text of `--lengths`; raises TracekitError if it is neither a list nor a known distribution.

    `uniform:LOW-HIGH` is even over whole numbers, both ends included; `lognormal:MEDIAN,SIGMA` is cut off at the
    padded length, as a data loader cuts; `zipf:EXPONENT` gives length k a weight of k to the power -EXPONENT.
    """
    plain = text.replace(" ", "")
    if _LIST.fullmatch(plain):
        return Lengths("list", tuple(int(part) for part in plain.split(",")))
    for form, pattern in _FORMS.items():
        if found := pattern.fullmatch(plain):
            numbers = tuple(float(part) for part in found.groups())
            if form == "uniform" and numbers[0] > numbers[1]:
                raise TracekitError(f"--lengths {text} ends below its start", _WAYS)
            return Lengths(form, numbers)
    raise TracekitError(f"--lengths {text!r} is neither a list nor a distribution", _WAYS)


def _uniform(draws: Random, numbers: tuple[float, ...], seq: int) -> int:
    return draws.randint(int(numbers[0]), min(int(numbers[1]), seq))


def _lognormal(draws: Random, numbers: tuple[float, ...], seq: int) -> int:
    median, sigma = numbers
    return round(math.exp(min(draws.normalvariate(math.log(median), sigma), math.log(seq))))


def _zipf(draws: Random, numbers: tuple[float, ...], seq: int) -> int:
    weights = [rank ** -numbers[0] for rank in range(1, seq + 1)]
    return draws.choices(range(1, seq + 1), weights)[0]


_DRAWS: dict[str, Callable[[Random, tuple[float, ...], int], int]] = {
    "uniform": _uniform,
    "lognormal": _lognormal,
    "zipf": _zipf,
}
