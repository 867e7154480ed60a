"""`tracekit schema`: the tables and columns that SQL can use."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tracekit.cli import options
from tracekit.cli.output import emit
from tracekit.errors import TracekitError

if TYPE_CHECKING:
    from tracekit.cli.output import Answer


@click.command(short_help="List the tables and columns that SQL can use.")
@click.argument("table", required=False)
@options.output
def schema(table: str | None, *, answer: Answer) -> None:
    """List the tables of a run and their columns, or those of TABLE alone."""
    from tracekit.store import schema as relations
    from tracekit.table import Rows, Table

    chosen = [relation for relation in relations() if table in (None, relation.name)]
    if not chosen:
        known = ", ".join(relation.name for relation in relations())
        raise TracekitError(f"there is no table {table!r}", f"choose from {known}")
    rows: list[tuple[str, str | None, str, str]] = []
    for relation in chosen:
        if table is None:
            rows.append((relation.name, None, "view" if relation.is_view else "table", relation.doc))
        rows += [(relation.name, column.name, column.type.lower(), column.doc) for column in relation.columns]
    docs = {"table": "Table or view.", "column": "Column.", "type": "Type.", "meaning": "What it means."}
    emit(Table("schema", Rows(dict.fromkeys(docs, "String"), rows), docs), answer)
