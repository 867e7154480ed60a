"""`tracekit doctor`: whether a trace is fit to judge by."""

from __future__ import annotations

from pathlib import Path

import click

from tracekit.cli import options
from tracekit.cli.output import check, emit, give_up, say


@click.command(short_help="Is this trace fit to judge by?")
@click.argument("run", type=click.Path())
@click.option("--ranks", type=options.Ranges(), default=frozenset(), help="Only these ranks, such as 0-3.")
@options.limits
@options.output
def doctor(
    run: str,
    *,
    ranks: frozenset[int],
    timeout: float,
    memory_limit: str,
    format_name: str | None,
    output: str | None,
    force: bool,
) -> None:
    """Say whether RUN is fit to judge by, what makes its numbers doubtful, and what to do at the next capture.

    The whole recording is looked at. By default a page is written; a format gives every check as a row.
    """
    check(output, force=force)
    import tracekit
    from tracekit.analyses.doctor_page import page
    from tracekit.cli.progress import loading
    from tracekit.store import Limits

    limits = Limits(timeout, memory_limit, give_up)
    with loading() as how, tracekit.open(run, ranks=ranks, limits=limits, say=say, **how) as opened:
        table = opened.doctor()
    is_page = format_name is None and not (output and Path(output).suffix)
    emit(page(table) if is_page else table, format_name, output, force=force, default="page")
