"""The command line: one file a verb, each parses, calls the library once and renders.

Owns the group and the one place where a fault in the input becomes a line on stderr and exit code 1.
"""

from __future__ import annotations

import os
import signal
import sys
from importlib import import_module
from typing import Any, NoReturn

import click

from tracekit import __version__
from tracekit.errors import TracekitError

_VERBS = ("bundle", "cache", "capture", "doctor", "graph", "load", "query", "schema", "summary")
"""Each is the command of its name in the module of its name, imported when it is asked for."""


class Tracekit(click.Group):
    """The group of verbs; turns a TracekitError into one line and exit 1."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Return the names of all verbs."""
        return list(_VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Return a verb by its name."""
        if cmd_name not in _VERBS:
            return None
        found: click.Command = getattr(import_module(f"tracekit.cli.{cmd_name}"), cmd_name)
        return found

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

    RUN is a bundle (.tkb), a trace as torch.profiler wrote it (.json, also in gzip, zstd or ZIP) or a folder of ranks.
    """


def start() -> NoReturn:
    """Run the command line as a process, and end that at once: taking down all that was imported helps nobody."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what is half done is cleaned up
    try:
        main(prog_name="tracekit")
    except SystemExit as end:
        if not isinstance(end.code, int | None) or "torch" in sys.modules:  # which has something to say at the end
            raise
        code = end.code or 0
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os._exit(code)
