"""The answer to every question: rows, what each column means, and the notes that keep the reader honest.

Owns the plain data type that questions return and formats render. It computes nothing and prints nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import polars as pl

Status = Literal["exact", "estimated", "not_derivable", "info", "warning"]
"""How far a statement can be trusted; `info` and `warning` speak of the run rather than of a number."""


@dataclass(frozen=True)
class Note:
    """One sentence about an answer, and how it bears on the numbers."""

    status: Status
    text: str


@dataclass(frozen=True)
class Rows:
    """Rows of plain values: numbers, booleans, texts. Polars, which is slow to import, is not needed to show them.

    `types` names every column and, as Polars does, its type; `rows` have a value for each.
    """

    types: Mapping[str, str]
    rows: Sequence[tuple[Any, ...]]

    @property
    def columns(self) -> list[str]:
        """The columns' names."""
        return [*self.types]

    @property
    def height(self) -> int:
        """The number of rows."""
        return len(self.rows)

    def iter_rows(self) -> Iterator[tuple[Any, ...]]:
        """Yield the rows."""
        return iter(self.rows)

    def select(self, *names: str) -> Rows:
        """Return these columns, in this order."""
        if [*names] == self.columns:
            return self
        places = [self.columns.index(name) for name in names]
        return Rows({name: self.types[name] for name in names}, [tuple(row[at] for at in places) for row in self.rows])

    def frame(self) -> pl.DataFrame:
        """Return the rows as a Polars frame. 128-bit integers are decimals in it, as they are in all that SQL gives."""
        import polars as pl

        kinds = {
            name: pl.Decimal(38, 0) if kind == "Int128" else getattr(pl, kind) for name, kind in self.types.items()
        }
        return pl.DataFrame(self.rows, schema=kinds, orient="row")


@dataclass(frozen=True)
class Table:
    """An answer.

    `name` is the question's; `content` holds the rows, with unit suffixes in the column names; `docs` says for
    every column, in the same order, what it means. Raises ValueError if the two name different columns.
    """

    name: str
    content: pl.DataFrame | Rows
    docs: Mapping[str, str]
    notes: tuple[Note, ...] = field(default=())

    def __post_init__(self) -> None:
        if list(self.docs) != self.content.columns:
            message = f"{self.name}: documented columns {list(self.docs)} are not {self.content.columns}"
            raise ValueError(message)

    @cached_property
    def frame(self) -> pl.DataFrame:
        """The rows as a Polars frame."""
        return self.content.frame() if isinstance(self.content, Rows) else self.content
