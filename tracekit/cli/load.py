"""`tracekit load`: traces to a bundle."""

from __future__ import annotations

import os
import time
from pathlib import Path

import click

from tracekit.cli import options


@click.command(short_help="Turn traces into a bundle that answers at once.")
@click.argument("traces", nargs=-1, required=True, type=options.FILE)
@click.option(
    "-o",
    "--output",
    required=True,
    type=options.NO_FOLDER,
    callback=options.named,
    help="The bundle to write, RUN.tkb.",
)
@click.option("--keep-raw", is_flag=True, help="Put the traces themselves into the bundle too, compressed.")
@click.option(
    "--graph-capture",
    "captures",
    multiple=True,
    type=options.FILE,
    help="A trace in which graphs were captured that TRACES replay: names their kernels.",
)
@options.reading
@click.option("--force", is_flag=True, help="Replace an output that exists.")
def load(
    traces: tuple[str, ...],
    output: str,
    *,
    keep_raw: bool,
    captures: tuple[str, ...],
    strict: bool,
    trust_archive: bool,
    workers: int,
    force: bool,
) -> None:
    """Read TRACES, files of torch.profiler (.json, also in gzip, zstd or ZIP), and write the bundle -o RUN.tkb.

    Several files, a folder or a pattern are the ranks of one run. A bundle is one file with the traces' tables: it
    opens at once, and it can be sent to somebody else.
    """
    from tracekit.cli.progress import shown
    from tracekit.loading import Settings
    from tracekit.loading import load as load_traces

    started = time.perf_counter()
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # NumPy's threads would spin for work that never comes
    with shown() as progress:
        settings = Settings(
            is_strict=strict,
            trust_archive=trust_archive,
            progress=progress,
            graph_captures=tuple(map(Path, captures)),
        )
        done = load_traces(traces, output, keep_raw=keep_raw, overwrite=force, workers=workers, settings=settings)
    seconds = time.perf_counter() - started
    size = Path(output).stat().st_size
    ranks = f"{done.traces} traces, " if done.traces > 1 else ""
    events = "1 event" if done.events == 1 else f"{done.events:,} events"
    work = "1 piece" if done.kernels == 1 else f"{done.kernels:,} pieces"
    click.echo(
        f"{output}: {ranks}{events}, {work} of device work, {size / 2**20:.1f} MiB, {seconds:.1f} s",
        err=True,
    )
    if done.problems:
        more = f"; {len(done.problems) - 1} more" if len(done.problems) > 1 else ""
        click.echo(f"warning: {done.problems[0].rstrip('.')}{more} (see `tracekit doctor {output}`).", err=True)
