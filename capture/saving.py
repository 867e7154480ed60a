"""From the profiler to a bundle on disk: export, clean, pack.

Owns the files that a recording makes. Nothing is left of one that fails.
"""

from __future__ import annotations

import gzip
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tracekit import __version__, bundle
from tracekit.errors import TracekitError

from .cleaning import clean, local_prefixes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_ENTRY = "raw/trace.json.gz"
_LEFT_OUT = {"tables": "made when the bundle is first opened"}
_GZIP_LEVEL = 6


def check_output(path: Path, *, overwrite: bool) -> None:
    """Raise TracekitError if a bundle can't be written to `path`, as far as can be told before there is one."""
    if not path.parent.is_dir():
        raise TracekitError(f"{path} can't be written ({path.parent} is not a folder)", "create it, or choose another")
    if path.is_dir():
        raise TracekitError(f"{path} is a folder", "name a file, such as run.tkb")
    if os.path.lexists(path) and not overwrite:
        raise TracekitError(f"{path} exists", "choose another name, or overwrite it with --force")
    if not os.access(path.parent, os.W_OK):
        raise TracekitError(f"{path} can't be written (permission denied)", "choose another place, or allow it there")


def exported(export: Callable[[str], None], beside: Path) -> str:
    """Return the text that `export` writes to the path it is given, cleaned of what names this machine.

    The file lies in a folder of its own beside the output, where there must be room for it, and is removed.
    Raises TracekitError if it can't be written whole.
    """
    try:
        with tempfile.TemporaryDirectory(prefix=f".{beside.name}.tmp-", dir=beside.parent) as folder:
            trace = Path(folder).resolve() / "trace.json"
            export(str(trace))
            if not trace.is_file():
                raise _no_room(beside, "the profiler could not write its file there")
            text = trace.read_bytes().decode("utf-8", "surrogateescape")
            prefixes = local_prefixes(trace)
    except OSError as error:
        raise _no_room(beside, error.strerror or str(error)) from error
    if not text.rstrip().endswith("}"):
        raise _no_room(beside, "the profiler's file ends early")
    return clean(text, prefixes)


def save(path: Path, text: str, facts: Mapping[str, object], *, overwrite: bool) -> None:
    """Write a trace's text and its facts as a bundle; raises TracekitError if that fails, and leaves nothing."""
    data = gzip.compress(text.encode("utf-8", "surrogateescape"), _GZIP_LEVEL, mtime=0)
    bundle.write(path, {_ENTRY: data}, facts=facts, left_out=_LEFT_OUT, tool_version=__version__, overwrite=overwrite)


def _no_room(path: Path, reason: str) -> TracekitError:
    return TracekitError(f"{path} can't be written ({reason})", "make room, or choose another disk")
