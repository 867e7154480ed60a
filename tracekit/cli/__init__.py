"""The command line: one file a verb, each parses, calls the library once and renders.

Owns the group and the one place where a fault in the input becomes a line on stderr and exit code 1.
"""

from __future__ import annotations

from typing import Any

import click

from tracekit import __version__
from tracekit.cli import bundle, capture, load, query, schema, summary
from tracekit.errors import TracekitError


class Tracekit(click.Group):
    """The group of verbs; turns a TracekitError into one line and exit 1."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the verb. Anything but a fault in the input is our bug and keeps its traceback."""
        try:
            return super().invoke(ctx)
        except TracekitError as error:
            click.echo(f"tracekit: {error}", err=True)
            ctx.exit(1)


@click.group(cls=Tracekit, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="tracekit")
def main() -> None:
    """Answer questions about PyTorch profiler traces, offline.

    RUN is a bundle (.tkb) or a trace as torch.profiler wrote it (.json, .json.gz).
    """


for _command in (capture.capture, load.load, query.query, schema.schema, summary.summary, bundle.bundle):
    main.add_command(_command)
