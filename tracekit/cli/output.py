"""Where answers go: data to stdout or a file, everything else to stderr.

The only module that writes an answer. A file is whole or not there; one that exists is kept without --force.
"""

from __future__ import annotations

import os
import secrets
import shutil
import sys
import threading
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TextIO

import click

from tracekit.errors import TracekitError

if TYPE_CHECKING:
    from tracekit.table import Table


def check(path: str | None, *, force: bool) -> None:
    """Raise TracekitError, before any work is done, if an output may not be written."""
    if path is None:
        return
    if not path or (Path(path).exists() and not Path(path).is_file()):
        raise TracekitError(f"{path!r} is not a file", "name one, such as answer.csv")
    if not force and os.path.lexists(path):
        raise TracekitError(f"{path} exists", "choose another name, or give --force to replace it")


def say(line: str) -> None:
    """Write one line to stderr, if somebody is watching."""
    if _is_terminal(sys.stderr):
        click.echo(line, err=True)


def get_ready() -> None:
    """Begin to import what shows an answer, so that it is there when the engine is done."""
    threading.Thread(target=import_module, args=("tracekit.render.text",), daemon=True).start()


def give_up(fault: TracekitError) -> NoReturn:
    """End the process with the fault's line, whatever else is still running in it and can't be stopped."""
    click.echo(f"tracekit: {fault}", err=True)
    os._exit(1)


def emit(table: Table, format_name: str | None, path: str | None, *, force: bool, default: str = "table") -> None:
    """Render an answer and write it to a file or to stdout; notes a format can't hold go to stderr.

    The format is the one named, else the one that the file's suffix stands for, else the default.
    """
    from tracekit.render import FORMATS, format_for_path, render
    from tracekit.render.notes import notes_text

    by_suffix = format_for_path(Path(path)) if path else None
    if path and not (format_name or by_suffix) and Path(path).suffix:
        known = ", ".join(suffix for each in FORMATS.values() for suffix in each.suffixes)
        raise TracekitError(f"{path}: no format has the suffix {Path(path).suffix}", f"use {known}, or say -f")
    name = format_name or by_suffix or default
    chosen = FORMATS[name]
    is_shown = path is None and _is_terminal(sys.stdout)
    if is_shown and chosen.is_binary:
        raise TracekitError(f"{name} is binary", "give a file with -o, or redirect stdout")
    data = render(table, name, shutil.get_terminal_size().columns if is_shown else None)
    if path is None:
        put(data)
    else:
        _write(Path(path), data, force=force)
    if not chosen.notes_inside and (notes := notes_text(table)):
        click.echo(notes, err=True, nl=not notes.endswith("\n"))


def put(data: bytes) -> None:
    """Write to stdout. Raises TracekitError where it is closed or full; a reader that goes away is no fault."""
    remedy = "give stdout a place that has room"
    if sys.stdout is None:
        raise TracekitError("stdout is closed", remedy)
    try:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise TracekitError(f"stdout can't be written ({error.strerror})", remedy) from error


def _is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and stream.isatty()


def _write(path: Path, data: bytes, *, force: bool) -> None:
    target = Path(os.path.realpath(path)) if force else path  # a link stays, and what it points to is replaced
    temporary = target.with_name(f".{target.name}.tmp-{secrets.token_hex(6)}")
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if force:
            temporary.replace(target)
        else:
            check(str(target), force=False)
            temporary.rename(target)
    except OSError as error:
        raise TracekitError(
            f"{path} can't be written ({error.strerror})", "choose a folder that exists and has room"
        ) from error
    finally:
        with suppress(OSError):  # what made the write fail matters more
            temporary.unlink(missing_ok=True)
