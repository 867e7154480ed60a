"""`tracekit query`: a question or SQL about a run; without one, what can be asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tracekit.cli import options
from tracekit.cli.output import emit, get_ready, put
from tracekit.cli.progress import opened
from tracekit.errors import TracekitError

if TYPE_CHECKING:
    from tracekit.catalog import Question
    from tracekit.cli.options import Opening
    from tracekit.cli.output import Answer


@click.command(short_help="Answer a question, or SQL, about a run.")
@click.argument("run", required=False, type=options.FILE)
@click.argument("question", required=False)
@click.option("-p", "--param", "params", multiple=True, type=options.Assignments(), help="A parameter of the question.")
@click.option("--list", "list_all", is_flag=True, help="List every question, without a run.")
@click.option(
    "--describe",
    "described",
    metavar="QUESTION",
    help="Explain a question: parameters, columns, what it needs.",
)
@options.device_spec
@options.selection
@options.limits
@options.output
def query(
    run: str | None,
    question: str | None,
    params: tuple[tuple[str, str], ...],
    *,
    list_all: bool,
    described: str | None,
    opening: Opening,
    answer: Answer,
) -> None:
    """Answer QUESTION about RUN. QUESTION is a name, or one SELECT over the tables of `tracekit schema`.

    Without QUESTION: list what this run can answer, and what it lacks for the rest.
    """
    if list_all:
        _list(answer)
        return
    if described is not None:
        _describe(described)
        return
    if run is None:
        raise click.UsageError("give a RUN: a bundle or a trace (or --list)")
    with opened(run, opening) as found:
        get_ready()
        if question is None:
            table = found.questions()
        elif _is_sql(question):
            if params:
                raise TracekitError("SQL takes no parameters", "write the values into the text")
            table = found.sql(question)
        else:
            table = found.query(question, **dict(params))
    emit(table, answer)


def _is_sql(question: str) -> bool:
    return any(letter.isspace() or letter == "(" for letter in question)


def _list(answer: Answer) -> None:
    from tracekit import catalog
    from tracekit.table import Rows, Table

    rows = [(name, catalog.question(name).summary) for name in catalog.names()]
    docs = {"question": "Name to ask by.", "summary": "What it answers."}
    emit(Table("questions", Rows(dict.fromkeys(docs, "String"), rows), docs), answer)


def _describe(name: str) -> None:
    from tracekit import catalog

    put("".join(f"{line}\n" for line in _description(catalog.question(name))).encode())


def _description(asked: Question) -> list[str]:
    lines = [
        f"{asked.name}: {asked.summary}",
        "",
        f"needs    {', '.join((*asked.requires, *asked.beside)) or 'nothing'}",
    ]
    lines += [f"-p {param.name}={param.default}".ljust(34) + param.doc for param in asked.params.values()]
    return [*lines, "", "columns", *(f"  {name:<18}{doc}" for name, doc in asked.columns.items())]
