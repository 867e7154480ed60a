"""`tracekit bundle`: what a bundle holds, and whether it is whole."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tracekit.cli import options
from tracekit.cli.output import emit, put
from tracekit.errors import TracekitError

if TYPE_CHECKING:
    from tracekit.cli.output import Answer


@click.group(short_help="Look into a bundle, or verify it.")
def bundle() -> None:
    """Look into a bundle, or verify it."""


@bundle.command()
@click.argument("source", metavar="PATH", type=options.FILE)
@options.output
def info(source: str, *, answer: Answer) -> None:
    """List what the bundle at PATH holds, and what was left out."""
    from tracekit.bundle import Bundle
    from tracekit.table import Note, Rows, Table

    opened = Bundle.open(Path(source))
    rows = [(name, opened.size(name)) for name in opened.names()]
    manifest = opened.manifest
    notes = [Note("info", f"Written by tracekit {manifest.tool_version}, schema version {manifest.schema_version}.")]
    notes += [Note("info", f"Left out: {name} ({reason}).") for name, reason in manifest.left_out.items()]
    docs = {"entry": "Name inside the bundle.", "size_bytes": "Size."}
    emit(Table("bundle", Rows({"entry": "String", "size_bytes": "Int64"}, rows), docs, tuple(notes)), answer)


@bundle.command()
@click.argument("path", type=options.FILE)
def verify(path: str) -> None:
    """Compare every entry of the bundle at PATH with its recorded SHA-256."""
    from tracekit.bundle import verify as check_entries

    checks = check_entries(Path(path))
    damaged = [entry for entry in checks if not entry.ok]
    if damaged:
        named = "; ".join(f"{entry.name} ({entry.problem})" for entry in damaged[:3])
        more = f" and {len(damaged) - 3} more" if len(damaged) > 3 else ""
        raise TracekitError(
            f"{path}: {len(damaged)} of {len(checks)} entries are damaged: {named}{more}",
            "get the file again",
        )
    put(f"{path}: {len(checks)} entries, all as they were written\n".encode())
