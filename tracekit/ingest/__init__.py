"""Bytes to event tables: the only room that knows the profiler's file format.

`read(path)` gives `Events`; what belongs to what, and what it means, is found out by the rooms above.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from tracekit.ingest.columns import build
from tracekit.ingest.container import read_file, unpack
from tracekit.ingest.events import Events, Problem, Recording
from tracekit.ingest.kineto import parse

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Events", "Problem", "Recording", "read", "read_bytes", "read_file"]


def read(path: Path) -> Events:
    """Read one trace file, raw or gzipped. Raises TracekitError if it is none or is damaged."""
    return read_bytes(read_file(path), path.name)


def read_bytes(data: bytes, name: str) -> Events:
    """Read one trace from bytes, raw or gzipped; `name` is what messages and the trace table call it."""
    return build(parse(unpack(data, name), name), name, hashlib.sha256(data).hexdigest())
