"""`tracekit summary`: one page on where a run's time and memory go."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tracekit.cli import options
from tracekit.cli.output import emit
from tracekit.cli.progress import opened

if TYPE_CHECKING:
    from tracekit.cli.options import Opening
    from tracekit.cli.output import Answer


@click.command(short_help="One page: where a run's time and memory go.")
@click.argument("run", type=options.FILE)
@options.selection
@options.limits
@options.output
def summary(run: str, *, opening: Opening, answer: Answer) -> None:
    """Say on one page where RUN's time and memory go, and what to ask next."""
    with opened(run, opening) as found:
        table = found.summary()
    emit(table, answer, default="page")
