"""`tracekit summary`: one page on where a run's time and memory go."""

from __future__ import annotations

import click

from tracekit.cli import options
from tracekit.cli.output import check, emit, give_up, say


@click.command(short_help="One page: where a run's time and memory go.")
@click.argument("run", type=click.Path())
@options.selection
@options.limits
@options.output
def summary(
    run: str,
    *,
    steps: frozenset[int],
    ranks: frozenset[int],
    phases: tuple[str, ...],
    timeout: float,
    memory_limit: str,
    format_name: str | None,
    output: str | None,
    force: bool,
) -> None:
    """Say on one page where RUN's time and memory go, and what to ask next."""
    check(output, force=force)
    import tracekit
    from tracekit.cli.progress import loading
    from tracekit.store import Limits

    limits = Limits(timeout, memory_limit, give_up)
    with (
        loading() as how,
        tracekit.open(run, steps=steps, ranks=ranks, phases=phases, limits=limits, say=say, **how) as opened,
    ):
        table = opened.summary()
    emit(table, format_name, output, force=force, default="page")
