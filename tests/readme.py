"""What the README shows, made by running it: called by the cog blocks in README.md, which CI holds it to."""

from __future__ import annotations

import shlex
import subprocess

import cog

from tracekit import catalog


def show(command: str) -> None:
    """Write a command and what it prints as a code block."""
    done = subprocess.run(shlex.split(command), capture_output=True, text=True, check=True)
    cog.outl("```")
    cog.outl(f"$ {command}")
    for line in done.stdout.rstrip().splitlines():
        cog.outl(line.rstrip())
    cog.outl("```")


def questions() -> None:
    """Write the table of questions from their headers."""
    cog.outl("| question | answers | parameters |")
    cog.outl("|---|---|---|")
    for name in catalog.names():
        asked = catalog.question(name)
        defaults = ((param.name, param.default) for param in asked.params.values())
        params = ", ".join(
            f"`{name}={str(value).lower() if isinstance(value, bool) else value}`" for name, value in defaults
        )
        cog.outl(f"| `{name}` | {asked.summary} | {params} |")
