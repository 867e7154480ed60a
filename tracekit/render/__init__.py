"""Turns a `Table` into bytes: one file a format, and the one registry of them.

Owns which formats exist and how to find one by name or by a file's suffix. It draws nothing itself, and
imports a format's module only when that format is asked for, so that the command line starts fast.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import PurePath
from typing import TYPE_CHECKING

from tracekit.errors import TracekitError
from tracekit.render.notes import notes_text

if TYPE_CHECKING:
    from os import PathLike

    from tracekit.table import Table

__all__ = ["FORMATS", "Format", "format_for_path", "notes_text", "render"]


@dataclass(frozen=True)
class Format:
    """A way to write a `Table`.

    `function` is where its function lies, as `module:name`, relative to this package. `notes_inside` says
    that the output carries the table's notes; where it doesn't, show `notes_text` beside it. A format that
    `fits_width` takes the width of the terminal as its second argument.
    """

    name: str
    function: str
    suffixes: tuple[str, ...]
    is_binary: bool = False
    notes_inside: bool = True
    fits_width: bool = False


FORMATS: dict[str, Format] = {
    known.name: known
    for known in (
        Format("table", "text:render_text", (".txt",), fits_width=True),
        Format("csv", "delimited:render_csv", (".csv",), notes_inside=False),
        Format("tsv", "delimited:render_tsv", (".tsv",), notes_inside=False),
        Format("json", "json_envelope:render_json", (".json",)),
        Format("md", "markdown:render_markdown", (".md", ".markdown")),
        Format("parquet", "parquet:render_parquet", (".parquet",), is_binary=True),
        Format("page", "page:render_page", (), fits_width=True),
    )
}


def render(table: Table, format_name: str, width: int | None = None) -> bytes:
    """Return a table in the named format; `width` is the terminal's, None where the output is no terminal.

    Raises TracekitError for a format that doesn't exist.
    """
    if format_name not in FORMATS:
        raise TracekitError(f"there is no format {format_name!r}", f"choose one of {', '.join(FORMATS)}")
    chosen = FORMATS[format_name]
    module, _, name = chosen.function.partition(":")
    function = getattr(import_module(f"{__name__}.{module}"), name)
    rendered: bytes = function(table, width) if chosen.fits_width else function(table)
    return rendered


def format_for_path(path: str | PathLike[str]) -> str | None:
    """Return the name of the format that a file's suffix stands for, or None if it stands for none."""
    suffix = PurePath(path).suffix.lower()
    return next((known.name for known in FORMATS.values() if suffix in known.suffixes), None)
