"""`tracekit load`: a trace to a bundle."""

from __future__ import annotations

import time
from pathlib import Path

import click

from tracekit.errors import TracekitError


@click.command(short_help="Turn a trace into a bundle that answers at once.")
@click.argument("traces", nargs=-1, required=True, type=click.Path())
@click.option("-o", "--output", required=True, type=click.Path(dir_okay=False), help="The bundle to write, RUN.tkb.")
@click.option("--keep-raw", is_flag=True, help="Put the trace itself into the bundle too, compressed.")
@click.option("--force", is_flag=True, help="Replace an output that exists.")
def load(traces: tuple[str, ...], output: str, *, keep_raw: bool, force: bool) -> None:
    """Read TRACE, a .json or .json.gz file of torch.profiler, and write it as the bundle -o RUN.tkb.

    A bundle is one file with the trace's tables: it opens at once, and it can be sent to somebody else.
    """
    from tracekit.loading import load as load_trace

    if len(traces) > 1:
        raise TracekitError(f"{len(traces)} traces were given", "this version loads one trace into a bundle")
    started = time.perf_counter()
    done = load_trace(traces[0], output, keep_raw=keep_raw, overwrite=force)
    seconds = time.perf_counter() - started
    size = Path(output).stat().st_size
    click.echo(
        f"{output}: {done.events:,} events, {done.kernels:,} pieces of device work, "
        f"{size / 2**20:.1f} MiB, {seconds:.1f} s",
        err=True,
    )
    if done.problems:
        click.echo(f"there are warnings: tracekit query {output} trace_quality", err=True)
