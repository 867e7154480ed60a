"""Where answers go: data to stdout or a file, everything else to stderr.

The only module that writes an answer. A file is whole or not there; one that exists is kept without --force.
"""

from __future__ import annotations

import os
import secrets
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tracekit.errors import TracekitError

if TYPE_CHECKING:
    from tracekit.table import Table


def check(path: str | None, *, force: bool) -> None:
    """Raise TracekitError, before any work is done, if an output may not be written."""
    if path is not None and not force and os.path.lexists(path):
        raise TracekitError(f"{path} exists", "choose another name, or give --force to replace it")


def say(line: str) -> None:
    """Write one line to stderr, if somebody is watching."""
    if sys.stderr.isatty():
        click.echo(line, err=True)


def emit(table: Table, format_name: str | None, path: str | None, *, force: bool, default: str = "table") -> None:
    """Render an answer and write it to a file or to stdout; notes a format can't hold go to stderr.

    The format is the one named, else the one that the file's suffix stands for, else the default.
    """
    from tracekit.render import FORMATS, format_for_path, render
    from tracekit.render.notes import notes_text

    name = format_name or (format_for_path(Path(path)) if path else None) or default
    chosen = FORMATS[name]
    if path is None and chosen.is_binary and sys.stdout.isatty():
        raise TracekitError(f"{name} is binary", "give a file with -o, or redirect stdout")
    width = shutil.get_terminal_size().columns if path is None and sys.stdout.isatty() else None
    data = render(table, name, width)
    if path is None:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    else:
        _write(Path(path), data, force=force)
    if not chosen.notes_inside and (notes := notes_text(table)):
        click.echo(notes, err=True, nl=not notes.endswith("\n"))


def _write(path: Path, data: bytes, *, force: bool) -> None:
    temporary = path.with_name(f".{path.name}.tmp-{secrets.token_hex(6)}")
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if force:
            temporary.replace(path)
        else:
            check(str(path), force=False)
            temporary.rename(path)
    except OSError as error:
        raise TracekitError(
            f"{path} can't be written ({error.strerror})", "choose a folder that exists and has room"
        ) from error
    finally:
        temporary.unlink(missing_ok=True)
