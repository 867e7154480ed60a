"""`tracekit doctor`: whether a trace is fit to judge by."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tracekit.cli import options
from tracekit.cli.output import emit
from tracekit.cli.progress import opened

if TYPE_CHECKING:
    from tracekit.cli.options import Opening
    from tracekit.cli.output import Answer


@click.command(short_help="Is this trace fit to judge by?")
@click.argument("run", type=options.FILE)
@click.option("--ranks", type=options.Ranges(), default=frozenset(), help="Only these ranks, such as 0-3.")
@options.limits
@options.output
def doctor(run: str, *, opening: Opening, answer: Answer) -> None:
    """Say whether RUN is fit to judge by, what makes its numbers doubtful, and what to do at the next capture.

    The whole recording is looked at. By default a page is written; a format gives every check as a row.
    """
    from tracekit.analyses.doctor_page import page

    with opened(run, opening) as found:
        table = found.doctor()
    emit(table if answer.chosen else page(table), answer, default="page")
