"""The notes of an answer as lines of text.

Owns the word that each status is shown by. It adds no sentence of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.render.escape import visible

if TYPE_CHECKING:
    from tracekit.table import Status, Table

_WORDS: dict[Status, str] = {
    "info": "note",
    "exact": "exact",
    "estimated": "estimated",
    "not_derivable": "not derivable",
    "warning": "warning",
}


def note_lines(table: Table) -> list[str]:
    """Return one line a note, in the table's order: `estimated: FLOPs count causal pairs only`."""
    return [f"{_WORDS[note.status]}: {visible(note.text)}" for note in table.notes]


def notes_text(table: Table) -> str:
    """Return the notes as text, for standard error beside a format that has no place for them."""
    return "".join(f"{line}\n" for line in note_lines(table))
