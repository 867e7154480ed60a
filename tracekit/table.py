"""The answer to every question: rows, what each column means, and the notes that keep the reader honest.

Owns the plain data type that questions return and formats render. It computes nothing and prints nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    import polars as pl

Status = Literal["exact", "estimated", "not_derivable", "info", "warning"]
"""How far a statement can be trusted; `info` and `warning` speak of the run rather than of a number."""


@dataclass(frozen=True)
class Note:
    """One sentence about an answer, and how it bears on the numbers."""

    status: Status
    text: str


@dataclass(frozen=True)
class Table:
    """An answer.

    `name` is the question's; `frame` holds the rows, with unit suffixes in the column names; `docs` says for
    every column, in the frame's order, what it means. Raises ValueError if the two name different columns.
    """

    name: str
    frame: pl.DataFrame
    docs: Mapping[str, str]
    notes: tuple[Note, ...] = field(default=())

    def __post_init__(self) -> None:
        if list(self.docs) != self.frame.columns:
            message = f"{self.name}: documented columns {list(self.docs)} are not {self.frame.columns}"
            raise ValueError(message)
