"""`tracekit graph`: the computation of one layer as a picture in text."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tracekit.cli import options
from tracekit.cli.output import check_file, deliver
from tracekit.cli.progress import opened
from tracekit.errors import TracekitError

if TYPE_CHECKING:
    from tracekit.cli.options import Opening

_SUFFIXES = {".mmd": "mermaid", ".mermaid": "mermaid", ".dot": "dot", ".gv": "dot", ".svg": "svg"}
_DRAWING_SECONDS = 60


@click.command(short_help="Draw the ops and kernels of one attention layer, or of any module.")
@click.argument("run", type=options.FILE)
@click.option("--module", metavar="PATH", help="The module, by its path. Default: the first attention module.")
@click.option("--op", "op_id", type=click.IntRange(0), metavar="ID", help="An op by its op_id, instead of a module.")
@click.option("--call", type=click.IntRange(0), metavar="N", help="An attention call by its call_id, instead.")
@click.option("--nth", type=click.IntRange(0), default=0, show_default=True, help="Which of its calls.")
@options.selection
@options.limits
@click.option(
    "-f",
    "--format",
    "format_name",
    type=click.Choice(("mermaid", "dot", "svg")),
    help="Default: by suffix, else mermaid.",
)
@click.option("-o", "--output", type=options.NO_FOLDER, help="Write to this file instead of stdout.")
@click.option("--force", is_flag=True, help="Replace an output that exists.")
def graph(
    run: str,
    *,
    module: str | None,
    op_id: int | None,
    call: int | None,
    nth: int,
    opening: Opening,
    format_name: str | None,
    output: str | None,
    force: bool,
) -> None:
    """Draw one call of a module of RUN: ops in order with shapes, their kernels, and memory made and freed.

    Mermaid shows in pages and pull requests, DOT is for Graphviz, which must be installed for svg.
    """
    if sum(one is not None for one in (module, op_id, call)) > 1:
        raise click.UsageError("give one of --module, --op and --call")
    if nth and (op_id is not None or call is not None):
        raise click.UsageError("--nth counts the calls of a module")
    if output is not None:
        check_file(output, force=force)
    chosen = format_name or (_SUFFIXES.get(Path(output).suffix, "mermaid") if output else "mermaid")
    if chosen == "svg" and shutil.which("dot") is None:
        raise TracekitError("svg needs Graphviz, which is not installed", "install it, or take -f dot or -f mermaid")
    from tracekit.render.graph import dot, mermaid

    with opened(run, opening) as found:
        drawn = found.graph(module, nth=nth, op=op_id, call=call)
    if chosen == "mermaid":
        deliver(mermaid(drawn).encode(), output, force=force)
    else:
        source = dot(drawn).encode()
        deliver(_drawn(source) if chosen == "svg" else source, output, force=force)


def _drawn(source: bytes) -> bytes:
    """Return what Graphviz draws. Raises TracekitError if it fails."""
    try:
        done = subprocess.run(["dot", "-Tsvg"], input=source, capture_output=True, check=True, timeout=_DRAWING_SECONDS)  # noqa: S607
    except (OSError, subprocess.SubprocessError) as error:
        raise TracekitError(f"Graphviz failed ({error})", "take -f dot, and draw it by other means") from error
    return done.stdout
